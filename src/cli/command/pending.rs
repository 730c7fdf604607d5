//! Stands in for `engine::scan::run` until it lands.

use std::fmt;
use std::ops::ControlFlow;

use crate::engine::event::{Event, Stop};
use crate::engine::report::ScanReport;
use crate::engine::scan::ScanConfig;

/// Why a scan gives no result at all.
#[derive(Debug)]
pub(super) struct ScanError;

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the engine is not built in yet")
    }
}

impl std::error::Error for ScanError {}

impl ScanError {
    #[expect(clippy::unused_self, reason = "the engine's is not")]
    pub(super) fn hint(&self) -> &'static str {
        ""
    }
}

pub(super) async fn run(
    _config: &ScanConfig,
    mut on_event: impl FnMut(Event<'_>) -> ControlFlow<Stop>,
) -> Result<ScanReport, ScanError> {
    let _ = on_event(Event::Warning(String::new()));
    Err(ScanError)
}
