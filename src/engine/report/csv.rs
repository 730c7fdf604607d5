//! CSV: one row for each key, written as it is found.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::engine::key::ServerProfile;
use crate::engine::tally::Finding;

use super::row::{COLUMNS, Row};
use super::{FindingWriter, ScanReport};

/// Writes findings as CSV: quoting as in RFC 4180, lines that end with a line feed, UTF-8.
///
/// CSV has no place for a footer: that a scan was partial is in its exit code and in every other
/// format.
pub struct CsvWriter<W: Write> {
    writer: csv::Writer<W>,
    number: String,
}

impl<W: Write> CsvWriter<W> {
    /// Makes a writer and writes the header, so that a scan without findings is still a table.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn new(output: W) -> io::Result<Self> {
        let mut held = Self::go_on(output);
        held.writer.write_record(COLUMNS).map_err(into_io)?;
        Ok(held)
    }

    /// Makes a writer that goes on after the rows of another.
    pub fn go_on(output: W) -> Self {
        Self { writer: csv::WriterBuilder::new().from_writer(output), number: String::new() }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_field(text).map_err(into_io)
    }

    fn number(&mut self, number: Option<impl Into<u64>>) -> io::Result<()> {
        self.number.clear();
        if let Some(number) = number {
            write!(self.number, "{}", number.into()).expect("writing to a String never fails");
        }
        self.writer.write_field(&self.number).map_err(into_io)
    }

    fn milliseconds(&mut self, ms: Option<f64>) -> io::Result<()> {
        self.number.clear();
        if let Some(ms) = ms {
            write!(self.number, "{ms:.3}").expect("writing to a String never fails");
        }
        self.writer.write_field(&self.number).map_err(into_io)
    }
}

impl<W: Write> FindingWriter for CsvWriter<W> {
    fn write(&mut self, finding: &Finding, server: &ServerProfile) -> io::Result<()> {
        let row = Row::new(finding, server);
        self.text(&row.node)?;
        self.number(Some(row.db))?;
        self.number(row.slot)?;
        self.text(&row.key)?;
        self.text(row.key_encoding)?;
        self.text(&row.kind)?;
        self.text(row.encoding.as_deref().unwrap_or_default())?;
        self.number(row.elements)?;
        self.number(row.bytes)?;
        self.text(row.bytes_basis.unwrap_or_default())?;
        self.number(row.free_effort)?;
        self.number(row.allocations)?;
        self.text(row.allocations_basis.unwrap_or_default())?;
        self.text(row.risk.unwrap_or_default())?;
        self.text(row.del_effect)?;
        self.text(row.unlink_effect)?;
        self.text(row.expire_effect)?;
        self.text(row.overwrite_effect)?;
        self.milliseconds(row.predicted_stall_ms)?;
        self.number(row.ttl_ms)?;
        self.text(row.expires_at.as_deref().unwrap_or_default())?;
        self.number(row.idle_s)?;
        self.number(row.freq)?;
        self.text(row.observed_at.as_deref().unwrap_or_default())?;
        self.text(&row.server_version)?;
        self.number(Some(row.schema_version))?;
        self.writer.write_record(None::<&[u8]>).map_err(into_io)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    fn finish(&mut self, _report: &ScanReport) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Unwraps the I/O error, so that a closed pipe is still told apart.
/// Returns the error of the file behind the CSV.
pub(crate) fn into_io(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
