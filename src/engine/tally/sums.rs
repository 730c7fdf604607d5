//! All tallies of a scan in one.

use crate::engine::key::Skipped;

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
        self.census.add(finding);
        self.levels.add(finding);
        self.prefixes.add(finding);
        self.expiry.add(finding);
        self.top.offer(finding);
    }

    /// Adds a key that was not.
    pub fn skip(&mut self, skipped: &Skipped) {
        self.skips.add(skipped);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::engine::tally::sample::finding;

    type Add = fn(&mut Tally, &Finding);

    /// Not a benchmark: it fails only when adding a key has become ten times dearer than it is.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "it measures")]
    fn adding_a_key_is_cheap() {
        let findings: Vec<_> = (0..10_000)
            .map(|n| finding(format!("app:user:{n}:cart").as_str()).allocations(n % 50).build())
            .collect();
        let mut tally = Tally::new(20, SortBy::Allocations);
        let parts: [(&str, Add); 6] = [
            ("census", |tally, finding| tally.census.add(finding)),
            ("levels", |tally, finding| tally.levels.add(finding)),
            ("prefixes", |tally, finding| tally.prefixes.add(finding)),
            ("expiry", |tally, finding| tally.expiry.add(finding)),
            ("top", |tally, finding| _ = tally.top.offer(finding)),
            ("all", Tally::add),
        ];
        let mut per_key = Duration::ZERO;
        for (name, add) in parts {
            let started = Instant::now();
            for finding in findings.iter().cycle().take(100_000) {
                add(&mut tally, finding);
            }
            per_key = started.elapsed() / 100_000;
            eprintln!("{name}: {per_key:?} for each key");
        }
        assert!(per_key.as_micros() < 40, "{per_key:?} for each key");
    }
}
