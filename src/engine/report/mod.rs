//! Writes results. Renderers take `impl io::Write`; width and colour are arguments.

mod csv;
mod file;
mod footer;
mod format;
pub(crate) mod grid;
mod json;
mod model;
mod ndjson;
mod read;
mod row;
#[cfg(test)]
pub(crate) mod sample;
mod sink;
mod table;
pub(crate) mod words;
mod writer;

pub use self::csv::CsvWriter;
pub(crate) use self::csv::into_io as csv_into_io;
pub use file::OutputFile;
pub use format::{Format, SCHEMA_VERSION};
pub use json::JsonWriter;
pub use model::{
    CanarySummary, Completeness, Coverage, IncompleteReason, KeysizesCheck, LatencySummary, PaceSummary,
    ScanReport, SkipSummary, TargetFailure,
};
pub use ndjson::NdjsonWriter;
pub use read::{FindingReader, ListedKey, ReadError};
pub use row::{COLUMNS, server_version};
pub use sink::{OutputError, Sink, WrittenFile};
pub use table::{TableStyle, TableWriter};
pub use writer::FindingWriter;
