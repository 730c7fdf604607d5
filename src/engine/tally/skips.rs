//! Keys that were seen and could not be measured.

use serde::{Deserialize, Serialize};

use crate::engine::key::{SkipReason, Skipped};

use super::stored::counts;

/// Counts of all skipped keys, and a few of each reason as examples.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SkipTally {
    #[serde(deserialize_with = "counts")]
    counts: [u64; SkipReason::ALL.len()],
    examples: Vec<Skipped>,
}

impl SkipTally {
    /// Examples kept of each reason: enough to see a pattern.
    pub const EXAMPLES_MAX: usize = 3;

    /// Counts a skipped key in.
    pub fn add(&mut self, skipped: &Skipped) {
        let index = index_of(skipped.why);
        if self.counts[index] < Self::EXAMPLES_MAX as u64 {
            self.examples.push(skipped.clone());
        }
        self.counts[index] += 1;
    }

    /// Adds those of another server.
    pub fn merge(&mut self, other: &Self) {
        for example in &other.examples {
            let held = self.examples.iter().filter(|held| held.why == example.why).count();
            if held < Self::EXAMPLES_MAX {
                self.examples.push(example.clone());
            }
        }
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }

    /// Returns whether it holds no more than it may.
    pub(super) fn is_sound(&self) -> bool {
        self.examples.len() <= Self::EXAMPLES_MAX * SkipReason::ALL.len()
    }

    /// Returns how many keys were skipped.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns how many keys were skipped for a reason.
    pub fn count(&self, why: SkipReason) -> u64 {
        self.counts[index_of(why)]
    }

    /// Returns the reasons that occurred with their counts, in the order of [`SkipReason::ALL`].
    pub fn counts(&self) -> Vec<(SkipReason, u64)> {
        SkipReason::ALL.into_iter().zip(self.counts).filter(|&(_, count)| count > 0).collect()
    }

    /// Returns the first few of each reason, as they came.
    pub fn examples(&self) -> &[Skipped] {
        &self.examples
    }
}

fn index_of(why: SkipReason) -> usize {
    SkipReason::ALL.iter().position(|&reason| reason == why).expect("ALL holds every reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_few_are_kept() {
        let mut tally = SkipTally::default();
        for n in 0..100 {
            let key = format!("k{n}").as_str().into();
            tally.add(&Skipped { db: 0, key, why: SkipReason::Vanished, detail: None });
        }
        let key = "m".into();
        tally.add(&Skipped { db: 0, key, why: SkipReason::Moved, detail: Some("MOVED 1 a:1".into()) });
        assert_eq!(tally.total(), 101);
        assert_eq!(tally.counts(), [(SkipReason::Vanished, 100), (SkipReason::Moved, 1)]);
        assert_eq!(tally.examples().len(), SkipTally::EXAMPLES_MAX + 1);
    }
}
