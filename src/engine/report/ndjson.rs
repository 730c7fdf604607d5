//! NDJSON: one JSON object a line; the last one is the summary.

use std::io::{self, Write};

use serde::Serialize;

use crate::engine::key::ServerProfile;
use crate::engine::tally::Finding;

use super::json::SummaryView;
use super::row::Row;
use super::{FindingWriter, SCHEMA_VERSION, ScanReport};

/// A line. `record` says what it is; readers skip records that they do not know.
#[derive(Serialize)]
struct Line<'a, T: Serialize> {
    record: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// The last line, which says whether the result is whole.
#[derive(Serialize)]
struct LastLine<'a> {
    record: &'static str,
    schema_version: u32,
    #[serde(flatten)]
    summary: SummaryView<'a>,
}

/// Writes findings as NDJSON. A file without a `summary` line at its end was cut off.
pub struct NdjsonWriter<W: Write> {
    output: W,
}

impl<W: Write> NdjsonWriter<W> {
    /// Makes a writer. It writes small pieces: give it a buffer.
    pub fn new(output: W) -> Self {
        Self { output }
    }
}

impl<W: Write> FindingWriter for NdjsonWriter<W> {
    fn write(&mut self, finding: &Finding, server: &ServerProfile) -> io::Result<()> {
        let row = Row::new(finding, server);
        serde_json::to_writer(&mut self.output, &Line { record: "finding", body: &row })?;
        self.output.write_all(b"\n")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn finish(&mut self, report: &ScanReport) -> io::Result<()> {
        let summary = SummaryView::new(report);
        let line = LastLine { record: "summary", schema_version: SCHEMA_VERSION, summary };
        serde_json::to_writer(&mut self.output, &line)?;
        self.output.write_all(b"\n")?;
        self.output.flush()
    }
}
