//! The N worst keys.
//!
//! The list is offered every key, so the common case (a small key against a full list) must cost
//! nearly nothing: one rank, one look-up by name, no copy. Only a key that enters is cloned.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use crate::engine::key::Kind;
use crate::engine::risk::{Thresholds, level};

use super::Finding;

/// What "worst" means.
///
/// Whatever is unknown gets a stand-in, so that a key is not hidden for want of a permission:
///
/// | unknown | stand-in |
/// |---|---|
/// | allocations | one for each 64 bytes, and at least one for each element; with neither known, 65 |
/// | level | the level of the stand-in allocations, at the default thresholds |
/// | bytes | 64 for each element |
/// | elements | one for each 64 bytes |
/// | stall | 120 ns for each (stand-in) allocation |
///
/// 64 bytes are about what one element of a hash table takes, so a stand-in errs on the high side:
/// what nobody could measure is shown rather than dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortBy {
    /// The level first, then allocations. Levels follow from allocations but for one rule: a single
    /// huge block (a 500 MB string) is one allocation and still stalls everybody; it belongs among its
    /// equals, not at the end of the list.
    #[default]
    Allocations,
    /// Memory.
    Bytes,
    /// Elements; a string counts as one.
    Elements,
    /// Predicted stall.
    Stall,
}

impl SortBy {
    /// Returns the word used in flags and outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allocations => "allocations",
            Self::Bytes => "bytes",
            Self::Elements => "elements",
            Self::Stall => "stall",
        }
    }
}

/// Bytes that one allocation is taken for where one of the two is unknown.
const BYTES_PER_ALLOCATION: u64 = 64;

/// Allocations of a key of which nothing is known: just above what the server frees inline.
const ALLOCATIONS_OF_THE_UNKNOWN: u64 = 65;

/// Time to free one allocation of a large table, in milliseconds: 1M in about 120 ms.
const MS_PER_ALLOCATION: f64 = 120e-6;

/// A key's place: compared part by part, higher is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(u64, u64, u64);

impl Rank {
    fn of(finding: &Finding, sort_by: SortBy) -> Self {
        let allocations = allocations_or_stand_in(finding);
        let bytes = bytes_or_stand_in(finding);
        match sort_by {
            SortBy::Allocations => {
                let level =
                    finding.verdict.level.unwrap_or_else(|| level(allocations, &Thresholds::default()));
                Self(level as u64, allocations, bytes)
            }
            SortBy::Bytes => Self(bytes, allocations, 0),
            SortBy::Elements => Self(elements_or_stand_in(finding), allocations, bytes),
            SortBy::Stall => {
                let stall_ms = finding.verdict.predicted_stall_ms.filter(|ms| ms.is_finite());
                let stall_ms = stall_ms.unwrap_or(allocations as f64 * MS_PER_ALLOCATION);
                // The bits of floats that are not negative sort as the floats do.
                Self(stall_ms.max(0.0).to_bits(), allocations, bytes)
            }
        }
    }
}

fn allocations_or_stand_in(finding: &Finding) -> u64 {
    if let Some(allocations) = finding.verdict.allocations {
        return allocations;
    }
    let by_bytes = finding.facts.bytes().map(|bytes| bytes / BYTES_PER_ALLOCATION);
    by_bytes.max(counted_elements(finding)).unwrap_or(ALLOCATIONS_OF_THE_UNKNOWN)
}

fn bytes_or_stand_in(finding: &Finding) -> u64 {
    let stand_in = || match finding.facts.kind {
        Kind::String => finding.facts.elements,
        _ => finding.facts.elements.map(|elements| elements.saturating_mul(BYTES_PER_ALLOCATION)),
    };
    finding.facts.bytes().or_else(stand_in).unwrap_or(0)
}

fn elements_or_stand_in(finding: &Finding) -> u64 {
    let stand_in = || finding.facts.bytes().map(|bytes| bytes / BYTES_PER_ALLOCATION);
    counted_elements(finding).or_else(stand_in).unwrap_or(0)
}

/// Returns the elements; one for a string, whose `elements` are bytes.
fn counted_elements(finding: &Finding) -> Option<u64> {
    if finding.facts.kind == Kind::String { Some(1) } else { finding.facts.elements }
}

/// The N worst keys, each `(server, db, key)` once.
///
/// A key that is seen again replaces itself, also when it has shrunk. The list then has room for a
/// key that was turned away before and is not offered again: that key is missed. SCAN repeats few
/// keys, so this is rare; it is the price of keeping N keys and not all of them.
#[derive(Debug, Clone)]
pub struct TopList {
    limit: usize,
    sort_by: SortBy,
    slots: Vec<(Rank, Finding)>,
    /// Slots by rank, the least bad first. Of equals the one that came last goes first.
    order: BTreeSet<(Rank, Reverse<usize>)>,
    /// Slots by name; several when one name lives in several databases.
    by_name: HashMap<Box<[u8]>, Vec<usize>>,
}

impl TopList {
    /// Makes an empty list for at most `limit` keys.
    pub fn new(limit: usize, sort_by: SortBy) -> Self {
        Self { limit, sort_by, slots: Vec::new(), order: BTreeSet::new(), by_name: HashMap::new() }
    }

    /// Returns what "worst" means here.
    pub fn sort_by(&self) -> SortBy {
        self.sort_by
    }

    /// Returns the number of keys in the list.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the worst key so far.
    pub fn worst(&self) -> Option<&Finding> {
        self.order.last().map(|&(_, Reverse(slot))| &self.slots[slot].1)
    }

    /// Offers a finding; the same key seen again replaces itself. Returns whether it is in the list now.
    pub fn offer(&mut self, finding: &Finding) -> bool {
        if self.limit == 0 {
            return false;
        }
        let rank = Rank::of(finding, self.sort_by);
        if let Some(slot) = self.slot_of(finding) {
            self.order.remove(&(self.slots[slot].0, Reverse(slot)));
            self.slots[slot] = (rank, finding.clone());
            self.order.insert((rank, Reverse(slot)));
            return true;
        }
        let slot = self.slots.len();
        if slot < self.limit {
            self.slots.push((rank, finding.clone()));
            self.enter(rank, slot);
            return true;
        }
        let Some(&(least, Reverse(slot))) = self.order.first() else {
            return false;
        };
        if rank <= least {
            return false;
        }
        self.leave(least, slot);
        self.slots[slot] = (rank, finding.clone());
        self.enter(rank, slot);
        true
    }

    /// Keeps only these.
    pub fn retain(&mut self, keeps: impl Fn(&Finding) -> bool) {
        let all = std::mem::replace(self, Self::new(self.limit, self.sort_by));
        for finding in all.into_sorted().iter().filter(|finding| keeps(finding)) {
            self.offer(finding);
        }
    }

    /// Takes those of another server in that are bad enough.
    pub fn merge(&mut self, other: Self) {
        for finding in other.into_sorted() {
            self.offer(&finding);
        }
    }

    /// Returns the findings in the order of their slots, which decides among equals.
    pub(super) fn store(&self) -> Vec<Finding> {
        self.slots.iter().map(|(_, finding)| finding.clone()).collect()
    }

    /// Takes them from a checkpoint.
    pub(super) fn restore(
        stored: Vec<Finding>,
        limit: usize,
        sort_by: SortBy,
        server: usize,
    ) -> Option<Self> {
        let held = stored.len();
        let mut list = Self::new(limit, sort_by);
        for finding in stored {
            list.offer(&Finding { server, ..finding });
        }
        (list.len() == held).then_some(list)
    }

    /// Returns the findings, worst first; equals by server, database and name.
    pub fn into_sorted(self) -> Vec<Finding> {
        let mut slots = self.slots;
        slots.sort_unstable_by(|(a_rank, a), (b_rank, b)| {
            b_rank
                .cmp(a_rank)
                .then_with(|| (a.server, a.facts.db, &a.facts.key).cmp(&(b.server, b.facts.db, &b.facts.key)))
        });
        slots.into_iter().map(|(_, finding)| finding).collect()
    }

    fn slot_of(&self, finding: &Finding) -> Option<usize> {
        let slots = self.by_name.get(finding.facts.key.as_bytes())?;
        slots.iter().copied().find(|&slot| {
            let held = &self.slots[slot].1;
            held.server == finding.server && held.facts.db == finding.facts.db
        })
    }

    fn enter(&mut self, rank: Rank, slot: usize) {
        self.order.insert((rank, Reverse(slot)));
        let name = self.slots[slot].1.facts.key.as_bytes();
        self.by_name.entry(name.into()).or_default().push(slot);
    }

    fn leave(&mut self, rank: Rank, slot: usize) {
        self.order.remove(&(rank, Reverse(slot)));
        let name = self.slots[slot].1.facts.key.as_bytes();
        if let Some(slots) = self.by_name.get_mut(name) {
            slots.retain(|&held| held != slot);
            if slots.is_empty() {
                self.by_name.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::key::{BytesBasis, Measured};
    use crate::engine::risk::Level;
    use crate::engine::tally::sample::finding;

    fn names(list: TopList) -> Vec<String> {
        list.into_sorted().iter().map(|finding| finding.facts.key.to_string()).collect()
    }

    #[test]
    fn the_worst_stay_and_come_first() {
        let mut list = TopList::new(3, SortBy::Allocations);
        for (key, allocations) in [("a", 5), ("b", 900), ("c", 70), ("d", 2_000_000), ("e", 80)] {
            list.offer(&finding(key).allocations(allocations).build());
        }
        assert_eq!(list.worst().map(|worst| worst.facts.key.to_string()).as_deref(), Some("d"));
        assert_eq!(names(list), ["d", "b", "e"]);
    }

    #[test]
    fn a_key_seen_again_replaces_itself_also_when_it_shrank() {
        let mut list = TopList::new(2, SortBy::Allocations);
        list.offer(&finding("a").allocations(1000).build());
        list.offer(&finding("b").allocations(500).build());
        list.offer(&finding("a").allocations(100).build());
        assert_eq!(list.len(), 2);
        assert_eq!(names(list.clone()), ["b", "a"]);
        list.offer(&finding("c").allocations(200).build());
        list.offer(&finding("b").db(1).allocations(300).build());
        assert_eq!(names(list), ["b", "b"], "the same name in another database is another key");
    }

    #[test]
    fn a_huge_block_stands_among_its_equals() {
        let mut list = TopList::new(3, SortBy::Allocations);
        list.offer(&finding("set").allocations(200_000).build());
        list.offer(&finding("blob").allocations(1).level(Level::Critical).build());
        list.offer(&finding("small").allocations(9000).build());
        assert_eq!(names(list), ["blob", "set", "small"]);
    }

    #[test]
    fn unknown_allocations_rank_by_size() {
        let mut list = TopList::new(4, SortBy::Allocations);
        let mut module = finding("module").unjudged().build();
        module.facts.size = Some(Measured { bytes: 64 << 20, basis: BytesBasis::Sampled });
        let mut nothing_known = finding("dark").unjudged().build();
        nothing_known.facts.size = None;
        nothing_known.facts.elements = None;
        list.offer(&finding("hash").allocations(500_000).build());
        list.offer(&module);
        list.offer(&finding("tiny").allocations(3).build());
        list.offer(&nothing_known);
        assert_eq!(names(list), ["module", "hash", "dark", "tiny"]);
    }

    #[test]
    fn each_order_is_kept() {
        let build = |key: &str, bytes, elements, stall| {
            let mut finding = finding(key).allocations(10).build();
            finding.facts.size = Some(Measured { bytes, basis: BytesBasis::Measured });
            finding.facts.elements = Some(elements);
            finding.verdict.predicted_stall_ms = stall;
            finding
        };
        let a = build("a", 3000, 10, Some(0.5));
        let b = build("b", 2000, 30, Some(0.25));
        let c = build("c", 1000, 20, Some(40.0));
        for (sort_by, expected) in [
            (SortBy::Bytes, ["a", "b", "c"]),
            (SortBy::Elements, ["b", "c", "a"]),
            (SortBy::Stall, ["c", "a", "b"]),
        ] {
            let mut list = TopList::new(3, sort_by);
            for finding in [&a, &b, &c] {
                list.offer(finding);
            }
            assert_eq!(names(list), expected, "{sort_by:?}");
        }
    }

    #[test]
    fn a_list_of_none_takes_none() {
        let mut list = TopList::new(0, SortBy::Bytes);
        assert!(!list.offer(&finding("a").build()));
        assert!(list.is_empty());
    }
}
