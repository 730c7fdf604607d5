//! Writes results. Renderers take `impl io::Write`; width and colour are arguments.

mod model;

pub use model::{
    CanarySummary, Completeness, IncompleteReason, KeysizesCheck, LatencySummary, PaceSummary, ScanReport,
    SkipSummary,
};
