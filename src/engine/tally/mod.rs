//! Ranks and adds up. Bounded whatever the keyspace.

mod census;
mod finding;
mod top;

pub use census::{Census, CensusRow};
pub use finding::Finding;
pub use top::{SortBy, TopList};
