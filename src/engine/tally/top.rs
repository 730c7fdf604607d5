//! The N worst keys.

use super::Finding;

/// What "worst" means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortBy {
    /// Allocations, unknown ones by size between the known ones.
    #[default]
    Allocations,
    /// Memory.
    Bytes,
    /// Elements.
    Elements,
    /// Predicted stall.
    Stall,
}

/// The N worst keys, each once.
#[derive(Debug, Clone)]
pub struct TopList {
    limit: usize,
    sort_by: SortBy,
    findings: Vec<Finding>,
}

impl TopList {
    /// Makes an empty list for at most `limit` keys.
    pub fn new(limit: usize, sort_by: SortBy) -> Self {
        Self { limit, sort_by, findings: Vec::new() }
    }

    /// Offers a finding; the same key seen again replaces itself.
    pub fn offer(&mut self, finding: &Finding) {
        let _ = (finding, self.limit, self.sort_by);
    }

    /// Returns the findings, worst first.
    pub fn into_sorted(self) -> Vec<Finding> {
        self.findings
    }
}
