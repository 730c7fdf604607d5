//! Where results go: stdout, and the files of `-o`.

use std::io;
use std::path::PathBuf;

use crate::cli::args::Format;
use crate::cli::interrupt::Interrupt;
use crate::engine::key::ServerProfile;
use crate::engine::report::ScanReport;
use crate::engine::tally::Finding;

/// An output that cannot be written.
#[derive(Debug)]
pub(super) struct OutputError {
    /// The file; `None` is stdout.
    pub(super) path: Option<PathBuf>,
    /// Why.
    pub(super) source: io::Error,
}

/// All outputs of a run.
pub(super) struct Outputs {}

impl Outputs {
    pub(super) fn open(
        _stdout: Format,
        _files: &[(PathBuf, Format)],
        _columns: usize,
        _colour: bool,
        _interrupt: &Interrupt,
    ) -> Result<Self, OutputError> {
        Ok(Self {})
    }

    pub(super) fn write(&mut self, _finding: &Finding, _server: &ServerProfile) -> Result<(), OutputError> {
        Ok(())
    }

    pub(super) fn tick(&mut self) -> Result<(), OutputError> {
        Ok(())
    }

    pub(super) fn finish(&mut self, _report: &ScanReport) -> Result<(), OutputError> {
        Ok(())
    }

    pub(super) fn is_closed(&self) -> bool {
        false
    }

    pub(super) fn stdout_is_whole(&self) -> bool {
        true
    }
}
