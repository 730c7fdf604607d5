//! Which keys are looked at closely: what is asked after TYPE and MEMORY USAGE.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::key::{Kind, Measured};
use crate::engine::risk::{LAZYFREE_THRESHOLD, Policy, may_matter};

use super::config::ScanConfig;

/// Strings from this size on are looked at, whatever the thresholds say: `INFO keysizes` is checked
/// against them.
pub(super) const STRING_BYTES_LOOKED_AT: u64 = 1 << 20;

/// Decides key by key; remembers only the sizes of the largest ones.
#[derive(Debug, Clone)]
pub(super) struct Selector {
    /// Every key is looked at.
    everything: bool,
    bytes_min: Option<u64>,
    samples: u64,
    policy: Policy,
    /// Sizes of the largest keys so far, smallest on top: a key that could enter the top list by its
    /// size is looked at too, so that a server without any risky key still gets a list.
    largest: BinaryHeap<Reverse<u64>>,
    largest_max: usize,
}

impl Selector {
    pub(super) fn new(config: &ScanConfig, policy: &Policy, measures_memory: bool) -> Self {
        let mut policy = policy.clone();
        // However high the levels begin: what UNLINK leaves to the background is looked at, and so is
        // every key that `INFO keysizes` is checked against.
        policy.thresholds.low = policy.thresholds.low.min(LAZYFREE_THRESHOLD);
        Self {
            // Without sizes nothing can be ruled out.
            everything: config.all_keys || !measures_memory || config.filter.needs_details_of_small_keys(),
            bytes_min: config.filter.bytes_min,
            samples: u64::from(config.memory_samples),
            policy,
            largest: BinaryHeap::new(),
            largest_max: config.top,
        }
    }

    /// Returns what it remembers.
    pub(super) fn largest(&self) -> Vec<u64> {
        self.largest.iter().map(|Reverse(bytes)| *bytes).collect()
    }

    /// Remembers what another one did.
    pub(super) fn with_largest(mut self, largest: &[u64]) -> Self {
        self.largest = largest.iter().take(self.largest_max).copied().map(Reverse).collect();
        self
    }

    /// Returns whether a key is to be looked at closely.
    pub(super) fn wants(&mut self, kind: &Kind, size: Option<Measured>) -> bool {
        let Some(bytes) = size.map(|size| size.bytes) else { return true };
        let among_largest = self.is_among_largest(bytes);
        self.everything
            || among_largest
            || self.bytes_min.is_some()
            || (*kind == Kind::String && bytes >= STRING_BYTES_LOOKED_AT)
            || may_matter(kind, bytes, self.samples, &self.policy)
    }

    fn is_among_largest(&mut self, bytes: u64) -> bool {
        if self.largest.len() < self.largest_max {
            self.largest.push(Reverse(bytes));
            return true;
        }
        match self.largest.peek() {
            Some(&Reverse(smallest)) if bytes > smallest => {
                self.largest.pop();
                self.largest.push(Reverse(bytes));
                true
            }
            _ => false,
        }
    }
}
