//! How many keys of each type and encoding there are, and what they take.

use std::collections::BTreeMap;

use crate::engine::key::{Encoding, Kind};

use super::Finding;

/// A row of the census.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CensusRow {
    /// Keys.
    pub keys: u64,
    /// Memory of those whose size is known, in bytes.
    pub bytes: u64,
    /// Keys whose size is unknown.
    pub keys_unsized: u64,
    /// Elements of those whose count is known.
    pub elements: u64,
    /// Keys whose count was not asked or is unknown.
    pub keys_uncounted: u64,
    /// Allocations of those for which they are known.
    pub allocations: u64,
}

/// Counts by type and encoding. The number of rows is bounded (see [`Census::ROWS_MAX`]).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Census {
    /// Rows by type and encoding; no encoding means that it was not asked, as for most small keys.
    pub rows: BTreeMap<(Kind, Option<Encoding>), CensusRow>,
}

impl Census {
    /// Module types have names of their own, and a hostile server could name a million.
    pub const ROWS_MAX: usize = 256;

    /// Counts a key in.
    pub fn add(&mut self, finding: &Finding) {
        let _ = finding;
    }
}
