//! What every format's writer does.

use std::io;

use crate::engine::key::ServerProfile;
use crate::engine::tally::Finding;

use super::ScanReport;

/// Writes one format: findings as they come, and the report at the end.
pub trait FindingWriter {
    /// Writes a finding.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn write(&mut self, finding: &Finding, server: &ServerProfile) -> io::Result<()>;

    /// Hands on what is buffered, so that a reader at the other end of a pipe sees it.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn flush(&mut self) -> io::Result<()>;

    /// Writes what comes after the last finding, and flushes.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn finish(&mut self, report: &ScanReport) -> io::Result<()>;
}
