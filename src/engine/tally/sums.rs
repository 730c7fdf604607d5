//! All tallies of a scan in one.

use crate::engine::key::Skipped;

use super::stored::StoredTally;
use super::{Census, ExpiryTally, Finding, LevelCounts, PrefixTree, SkipTally, SortBy, TopList};

/// All tallies of a scan: each key is added once.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Counts by type and encoding.
    pub census: Census,
    /// Counts by level.
    pub levels: LevelCounts,
    /// The worst keys.
    pub top: TopList,
    /// Sums by prefix.
    pub prefixes: PrefixTree,
    /// Sums by time to live, and storms.
    pub expiry: ExpiryTally,
    /// What could not be measured.
    pub skips: SkipTally,
}

impl Tally {
    /// Makes an empty tally with a top list of so many keys.
    pub fn new(top: usize, sort_by: SortBy) -> Self {
        Self {
            census: Census::default(),
            levels: LevelCounts::default(),
            top: TopList::new(top, sort_by),
            prefixes: PrefixTree::default(),
            expiry: ExpiryTally::default(),
            skips: SkipTally::default(),
        }
    }

    /// Adds a key that was measured. The same key must not come twice: only the top list can tell.
    pub fn add(&mut self, finding: &Finding) {
        self.count(finding);
        self.top.offer(finding);
    }

    /// Adds a key that is too small for the top list.
    pub fn count(&mut self, finding: &Finding) {
        self.census.add(finding);
        self.levels.add(finding);
        self.prefixes.add(finding);
        self.expiry.add(finding);
    }

    /// Adds the tally of another server.
    pub fn merge(&mut self, other: Self) {
        self.census.merge(&other.census);
        self.levels.merge(&other.levels);
        self.top.merge(other.top);
        self.prefixes.merge(&other.prefixes);
        self.expiry.merge(&other.expiry);
        self.skips.merge(&other.skips);
    }

    /// Puts a key of the top list there anew, measured better. Its level is counted anew, too.
    pub fn replace_top(&mut self, before: &Finding, after: &Finding) {
        self.levels.replace(before, after);
        self.top.offer(after);
    }

    /// Returns what a checkpoint holds of it.
    pub fn store(&self) -> StoredTally {
        StoredTally {
            census: self.census.store(),
            levels: self.levels,
            top: self.top.store(),
            prefixes: self.prefixes.store(),
            expiry: self.expiry.store(),
            skips: self.skips.clone(),
        }
    }

    /// Takes it from a checkpoint, with findings that are of this server. `None`: that is none which this
    /// build wrote with a top list of this length.
    pub fn restore(stored: StoredTally, top: usize, sort_by: SortBy, server: usize) -> Option<Self> {
        Some(Self {
            census: Census::restore(stored.census)?,
            levels: stored.levels,
            top: TopList::restore(stored.top, top, sort_by, server)?,
            prefixes: PrefixTree::restore(stored.prefixes)?,
            expiry: ExpiryTally::restore(stored.expiry)?,
            skips: stored.skips.is_sound().then_some(stored.skips)?,
        })
    }

    /// Adds a key that was not.
    pub fn skip(&mut self, skipped: &Skipped) {
        self.skips.add(skipped);
    }
}
