//! Tallies as a checkpoint holds them.
//!
//! What comes from a file may be anything: counts are bounded here, so that adding to them cannot overflow, and
//! what has a bound in memory is held to it when it is taken back.

use serde::{Deserialize, Deserializer, Serialize};

use crate::engine::key::{Encoding, KeyName, Kind};

use super::{CensusRow, Finding, LevelCounts, SkipTally, TtlBucket};

/// Keys that a checkpoint may have counted: no server holds 2^53, and sums of some of them are numbers still.
pub(crate) const COUNT_MAX: u64 = 1 << 53;

/// All tallies of a server: 10 MB when everything is full, and the names in the top list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredTally {
    pub(super) census: StoredCensus,
    pub(super) levels: LevelCounts,
    pub(super) top: Vec<Finding>,
    pub(super) prefixes: Vec<StoredPrefix>,
    pub(super) expiry: StoredExpiry,
    pub(super) skips: SkipTally,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredCensus {
    pub(super) rows: Vec<(Kind, Option<Encoding>, CensusRow)>,
    pub(super) other: CensusRow,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredPrefix {
    pub(super) parent: usize,
    pub(super) segment: KeyName,
    pub(super) total: CensusRow,
    pub(super) direct: CensusRow,
    pub(super) other: CensusRow,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredExpiry {
    pub(super) buckets: [CensusRow; TtlBucket::ALL.len()],
    /// Second, keys, allocations.
    pub(super) seconds: Vec<(u64, u64, u64)>,
    #[serde(deserialize_with = "count")]
    pub(super) keys_unwatched: u64,
}

/// Reads a number of keys.
pub(super) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let count = u64::deserialize(from)?;
    if count <= COUNT_MAX { Ok(count) } else { Err(serde::de::Error::custom("more keys than can be")) }
}

/// Reads several.
pub(super) fn counts<'de, D: Deserializer<'de>, const N: usize>(from: D) -> Result<[u64; N], D::Error>
where
    [u64; N]: Deserialize<'de>,
{
    let counts = <[u64; N]>::deserialize(from)?;
    if counts.iter().all(|count| *count <= COUNT_MAX) {
        Ok(counts)
    } else {
        Err(serde::de::Error::custom("more keys than can be"))
    }
}
