//! How many keys there are of each level.

use serde::{Deserialize, Serialize};

use crate::engine::risk::Level;

use super::Finding;
use super::stored::counts;

/// Keys by level: the order of [`Level::ALL`], then those whose level is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LevelCounts(#[serde(deserialize_with = "counts")] pub [u64; 6]);

impl LevelCounts {
    /// Counts a key in.
    pub fn add(&mut self, finding: &Finding) {
        let index = finding.verdict.level.map_or(Level::ALL.len(), |level| level as usize);
        self.0[index] += 1;
    }

    /// Adds the counts of another server.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Counts a key anew whose level may have changed.
    pub fn replace(&mut self, before: &Finding, after: &Finding) {
        let index = before.verdict.level.map_or(Level::ALL.len(), |level| level as usize);
        self.0[index] = self.0[index].saturating_sub(1);
        self.add(after);
    }

    /// Returns the number of keys of a level; `None` asks for those whose level is unknown.
    pub fn get(&self, level: Option<Level>) -> u64 {
        self.0[level.map_or(Level::ALL.len(), |level| level as usize)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tally::sample::finding;

    #[test]
    fn levels_are_counted_in_the_order_of_all() {
        for (index, level) in Level::ALL.into_iter().enumerate() {
            assert_eq!(level as usize, index);
        }
        let mut counts = LevelCounts::default();
        counts.add(&finding("a").level(Level::High).build());
        counts.add(&finding("b").level(Level::Critical).build());
        counts.add(&finding("c").unjudged().build());
        assert_eq!(counts.0, [0, 0, 0, 1, 1, 1]);
        counts
            .replace(&finding("a").level(Level::High).build(), &finding("a").level(Level::Critical).build());
        assert_eq!(counts.0, [0, 0, 0, 0, 2, 1]);
    }
}
