//! Rows as CSV or as one JSON object a line: what the audit and the results are written in.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use crate::engine::report::csv_into_io;

/// Bytes written, and read, at a time.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// The form of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowForm {
    /// CSV.
    Csv,
    /// A JSON object a line.
    Ndjson,
}

/// Writes rows in either form.
#[derive(Debug)]
pub(super) enum Lines<W: Write> {
    Csv(Box<csv::Writer<W>>),
    Ndjson(BufWriter<W>),
}

impl<W: Write> Lines<W> {
    /// Goes on with rows: the header, if there is one, is written.
    pub(super) fn new(form: RowForm, output: W) -> Self {
        match form {
            RowForm::Csv => {
                let mut builder = csv::WriterBuilder::new();
                builder.has_headers(false).buffer_capacity(BUFFER_BYTES);
                Self::Csv(Box::new(builder.from_writer(output)))
            }
            RowForm::Ndjson => Self::Ndjson(BufWriter::with_capacity(BUFFER_BYTES, output)),
        }
    }

    /// Begins rows with these columns.
    pub(super) fn with_header(form: RowForm, output: W, columns: &[&str]) -> io::Result<Self> {
        let mut lines = Self::new(form, output);
        if let Self::Csv(writer) = &mut lines {
            writer.write_record(columns).map_err(csv_into_io)?;
        }
        Ok(lines)
    }

    pub(super) fn write(&mut self, row: &impl Serialize) -> io::Result<()> {
        match self {
            Self::Csv(writer) => writer.serialize(row).map_err(csv_into_io),
            Self::Ndjson(writer) => {
                serde_json::to_writer(&mut *writer, row)?;
                writer.write_all(b"\n")
            }
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Csv(writer) => writer.flush(),
            Self::Ndjson(writer) => writer.flush(),
        }
    }

    pub(super) fn get_ref(&self) -> &W {
        match self {
            Self::Csv(writer) => writer.get_ref(),
            Self::Ndjson(writer) => writer.get_ref(),
        }
    }

    pub(super) fn into_inner(self) -> io::Result<W> {
        match self {
            Self::Csv(writer) => writer.into_inner().map_err(|error| io::Error::other(error.to_string())),
            Self::Ndjson(writer) => writer.into_inner().map_err(io::IntoInnerError::into_error),
        }
    }
}
