//! How many keys of each type and encoding there are, and what they take.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::key::{Encoding, Kind};

use super::Finding;
use super::stored::{StoredCensus, count};

/// A row of the census, and of everything else that adds keys up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CensusRow {
    /// Keys.
    #[serde(deserialize_with = "count")]
    pub keys: u64,
    /// Memory of those whose size is known, in bytes.
    pub bytes: u64,
    /// Keys whose size is unknown.
    #[serde(deserialize_with = "count")]
    pub keys_unsized: u64,
    /// Elements of those whose count is known.
    pub elements: u64,
    /// Keys whose count was not asked or is unknown.
    #[serde(deserialize_with = "count")]
    pub keys_uncounted: u64,
    /// Allocations of those for which they are known.
    pub allocations: u64,
    /// Keys whose allocations are unknown.
    #[serde(deserialize_with = "count")]
    pub keys_unjudged: u64,
}

impl CensusRow {
    /// Counts a key in.
    pub fn add(&mut self, finding: &Finding) {
        self.keys += 1;
        add_known(finding.facts.bytes(), &mut self.bytes, &mut self.keys_unsized);
        add_known(finding.facts.elements, &mut self.elements, &mut self.keys_uncounted);
        add_known(finding.verdict.allocations, &mut self.allocations, &mut self.keys_unjudged);
    }

    /// Adds another row.
    pub fn merge(&mut self, other: &Self) {
        self.keys += other.keys;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.keys_unsized += other.keys_unsized;
        self.elements = self.elements.saturating_add(other.elements);
        self.keys_uncounted += other.keys_uncounted;
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.keys_unjudged += other.keys_unjudged;
    }
}

fn has_short_names(finding: &Finding) -> bool {
    let is_short = |name: &str| name.len() <= Census::NAME_BYTES_MAX;
    is_short(finding.facts.kind.as_str())
        && finding.facts.encoding.as_ref().is_none_or(|encoding| is_short(encoding.as_str()))
}

/// Adds where the value is known, else counts the key among those that it is unknown of. A hostile
/// server may answer any number: sums saturate.
fn add_known(value: Option<u64>, sum: &mut u64, unknown: &mut u64) {
    match value {
        Some(value) => *sum = sum.saturating_add(value),
        None => *unknown += 1,
    }
}

/// Counts by type and encoding. The number of rows is bounded (see [`Census::ROWS_MAX`]).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Census {
    /// Rows by type and encoding; no encoding means that it was not asked, as for most small keys.
    pub rows: BTreeMap<(Kind, Option<Encoding>), CensusRow>,
    /// Keys of types and encodings that came after the rows were full.
    pub other: CensusRow,
}

impl Census {
    /// Module types have names of their own, and a hostile server could name a million.
    pub const ROWS_MAX: usize = 256;
    /// A hostile server could also make each name a megabyte; a module's has 9 characters at the most.
    pub const NAME_BYTES_MAX: usize = 64;

    /// Counts a key in.
    pub fn add(&mut self, finding: &Finding) {
        if !has_short_names(finding) {
            return self.other.add(finding);
        }
        // Cloning a native type or encoding copies a tag; only a module's own name is allocated.
        let place = (finding.facts.kind.clone(), finding.facts.encoding.clone());
        if let Some(row) = self.rows.get_mut(&place) {
            row.add(finding);
        } else if self.rows.len() < Self::ROWS_MAX {
            self.rows.entry(place).or_default().add(finding);
        } else {
            self.other.add(finding);
        }
    }

    /// Adds another census: that of another shard.
    pub fn merge(&mut self, other: &Self) {
        for (place, row) in &other.rows {
            if let Some(held) = self.rows.get_mut(place) {
                held.merge(row);
            } else if self.rows.len() < Self::ROWS_MAX {
                self.rows.insert(place.clone(), *row);
            } else {
                self.other.merge(row);
            }
        }
        self.other.merge(&other.other);
    }

    /// Returns what a checkpoint holds of it.
    pub(super) fn store(&self) -> StoredCensus {
        let rows = self.rows.iter().map(|((kind, encoding), row)| (kind.clone(), encoding.clone(), *row));
        StoredCensus { rows: rows.collect(), other: self.other }
    }

    /// Takes it from a checkpoint.
    pub(super) fn restore(stored: StoredCensus) -> Option<Self> {
        let rows = stored.rows.into_iter().map(|(kind, encoding, row)| ((kind, encoding), row)).collect();
        let census = Self { rows, other: stored.other };
        (census.rows.len() <= Self::ROWS_MAX).then_some(census)
    }

    /// Returns the sum of all rows.
    pub fn total(&self) -> CensusRow {
        let mut total = self.other;
        for row in self.rows.values() {
            total.merge(row);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tally::sample::finding;

    #[test]
    fn unknown_is_counted_and_never_added_as_zero() {
        let mut census = Census::default();
        census.add(&finding("a").allocations(10).build());
        let mut dark = finding("b").unjudged().build();
        dark.facts.size = None;
        dark.facts.elements = None;
        census.add(&dark);
        let total = census.total();
        assert_eq!((total.keys, total.keys_unsized, total.keys_uncounted, total.keys_unjudged), (2, 1, 1, 1));
        assert_eq!(total.allocations, 10);
    }

    #[test]
    fn rows_are_bounded_and_totals_still_add_up() {
        let mut census = Census::default();
        for n in 0..1000 {
            let mut finding = finding("k").build();
            finding.facts.kind = Kind::Other(format!("module{n}").into());
            census.add(&finding);
        }
        let mut long = finding("k").build();
        long.facts.encoding = Some(Encoding::Other("x".repeat(1 << 20).into()));
        assert_eq!(census.rows.len(), Census::ROWS_MAX);
        assert_eq!(census.other.keys, 1000 - Census::ROWS_MAX as u64);
        assert_eq!(census.total().keys, 1000);
        let mut fresh = Census::default();
        fresh.add(&long);
        assert_eq!((fresh.rows.len(), fresh.other.keys), (0, 1));
        let mut doubled = census.clone();
        doubled.merge(&census);
        assert_eq!(doubled.total().keys, 2000);
    }

    #[test]
    fn hostile_numbers_do_not_overflow() {
        let mut census = Census::default();
        for _ in 0..3 {
            census.add(&finding("a").allocations(u64::MAX).build());
        }
        assert_eq!(census.total().allocations, u64::MAX);
    }
}
