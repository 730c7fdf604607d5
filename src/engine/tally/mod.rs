//! Ranks and adds up. Bounded whatever the keyspace; pure: no I/O and no clock.

mod census;
mod expiry;
mod finding;
mod levels;
mod prefix;
#[cfg(test)]
pub(crate) mod sample;
mod skips;
mod stored;
mod sums;
mod top;

pub use census::{Census, CensusRow};
pub use expiry::{ExpirySummary, ExpiryTally, Storm, TtlBucket};
pub use finding::Finding;
pub use levels::LevelCounts;
pub use prefix::{PrefixRow, PrefixSummary, PrefixTree};
pub use skips::SkipTally;
pub(crate) use stored::COUNT_MAX;
pub use stored::StoredTally;
pub use sums::Tally;
pub use top::{SortBy, TopList};
