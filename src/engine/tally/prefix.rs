//! What lies under each prefix, in a tree that does not grow with the keyspace.
//!
//! A name is cut at separators: `app:user:42:cart` lies under `app:`, `app:user:` and
//! `app:user:*:`. Segments that are ids (all digits, a UUID, a long hexadecimal number) become `*`:
//! else a million users would make a million nodes that say nothing. The last segment is the key's own
//! and makes no node.
//!
//! The invariant: a node's `total` is `direct` + `other` + the totals of its children. A key whose next
//! segment gets no node (too deep, too long, too many) is counted in `other` of the last node it
//! reached, so that nothing is lost and every level adds up to the whole.

use std::collections::{BinaryHeap, HashMap};

use crate::engine::key::KeyName;

use super::stored::StoredPrefix;
use super::{CensusRow, Finding, SortBy};

/// Bytes that end a segment. `-` and `_` are none: they join words (and UUIDs).
const SEPARATORS: [u8; 4] = [b':', b'/', b'.', b'|'];

/// What stands for a segment that is an id.
const ID: &[u8] = b"*";

#[derive(Debug, Clone, Default)]
struct Node {
    /// The segment with its separator; empty at the root.
    segment: Box<[u8]>,
    total: CensusRow,
    direct: CensusRow,
    other: CensusRow,
    children: HashMap<Box<[u8]>, usize>,
}

/// Sums by prefix, bounded.
#[derive(Debug, Clone)]
pub struct PrefixTree {
    /// The root is the first.
    nodes: Vec<Node>,
}

/// A line of the tree, as a report shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefixRow {
    /// The prefix, with `*` for ids. Bytes, as keys are.
    pub prefix: Vec<u8>,
    /// How deep it lies below other rows, from 1.
    pub depth: usize,
    /// What lies under it.
    pub sums: CensusRow,
}

/// The heaviest prefixes and the rest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PrefixSummary {
    /// The heaviest, parents before their children. Children are part of their parents.
    pub rows: Vec<PrefixRow>,
    /// Keys without any prefix.
    pub without: CensusRow,
    /// Keys under top-level prefixes that are not in `rows`.
    pub rest: CensusRow,
}

impl Default for PrefixTree {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl PrefixTree {
    /// Nodes of the whole tree: about 5 MB when full.
    pub const NODES_MAX: usize = 16_384;
    /// Children of one node, so that one level of random words leaves room for all other prefixes.
    pub const CHILDREN_MAX: usize = 512;
    /// Segments of a prefix. People look at two or three.
    pub const DEPTH_MAX: usize = 4;
    /// Bytes of a segment. A longer one is data and not a name.
    pub const SEGMENT_BYTES_MAX: usize = 64;

    /// Counts a key in under each of its prefixes.
    pub fn add(&mut self, finding: &Finding) {
        self.nodes[0].total.add(finding);
        let mut node = 0;
        let mut rest = finding.facts.key.as_bytes();
        for _ in 0..Self::DEPTH_MAX {
            let Some(end) = rest.iter().position(|byte| SEPARATORS.contains(byte)) else {
                return self.nodes[node].direct.add(finding);
            };
            let (segment, separator) = (&rest[..end], rest[end]);
            let Some(child) = self.child(node, segment, separator) else {
                return self.nodes[node].other.add(finding);
            };
            self.nodes[child].total.add(finding);
            node = child;
            rest = &rest[end + 1..];
        }
        let deeper = rest.iter().any(|byte| SEPARATORS.contains(byte));
        let node = &mut self.nodes[node];
        if deeper { node.other.add(finding) } else { node.direct.add(finding) }
    }

    /// Adds the tree of another server. What finds no room here counts in `other` of the last node that it
    /// reached, as a key does.
    pub fn merge(&mut self, other: &Self) {
        self.graft(0, other, 0);
    }

    fn graft(&mut self, here: usize, other: &Self, there: usize) {
        let from = &other.nodes[there];
        let into = &mut self.nodes[here];
        into.total.merge(&from.total);
        into.direct.merge(&from.direct);
        into.other.merge(&from.other);
        // No deeper than DEPTH_MAX. In the order of names, so that the result does not depend on a hash.
        let mut children: Vec<(&Box<[u8]>, usize)> =
            from.children.iter().map(|(place, &child)| (place, child)).collect();
        children.sort_unstable();
        for (place, child) in children {
            match self.place(here, place) {
                Some(mine) => self.graft(mine, other, child),
                None => self.nodes[here].other.merge(&other.nodes[child].total),
            }
        }
    }

    /// Returns the nodes as a checkpoint holds them: each with the place of its parent, which comes before it.
    pub(super) fn store(&self) -> Vec<StoredPrefix> {
        let mut parents = vec![0; self.nodes.len()];
        for (parent, node) in self.nodes.iter().enumerate() {
            for &child in node.children.values() {
                parents[child] = parent;
            }
        }
        let of = |(node, parent): (&Node, usize)| StoredPrefix {
            parent,
            segment: KeyName::new(node.segment.clone()),
            total: node.total,
            direct: node.direct,
            other: node.other,
        };
        self.nodes.iter().zip(parents).map(of).collect()
    }

    /// Takes them from a checkpoint. `None`: they are no tree, or a larger one than this may be.
    pub(super) fn restore(stored: Vec<StoredPrefix>) -> Option<Self> {
        let mut nodes: Vec<Node> = Vec::with_capacity(stored.len().min(Self::NODES_MAX));
        let mut depths: Vec<usize> = Vec::with_capacity(nodes.capacity());
        for StoredPrefix { parent, segment, total, direct, other } in stored {
            let (at, segment): (usize, Box<[u8]>) = (nodes.len(), segment.as_bytes().into());
            if at >= Self::NODES_MAX || segment.len() > Self::SEGMENT_BYTES_MAX + 1 {
                return None;
            }
            let mut depth = 0;
            if at > 0 {
                depth = depths.get(parent)? + 1;
                let children = &mut nodes.get_mut(parent)?.children;
                let is_new = children.insert(segment.clone(), at).is_none();
                if !is_new || children.len() > Self::CHILDREN_MAX || depth > Self::DEPTH_MAX {
                    return None;
                }
            }
            depths.push(depth);
            nodes.push(Node { segment, total, direct, other, ..Node::default() });
        }
        (!nodes.is_empty()).then_some(Self { nodes })
    }

    fn child(&mut self, parent: usize, segment: &[u8], separator: u8) -> Option<usize> {
        // Looked up without an allocation: segments are short, so the key fits on the stack.
        let mut place = [0; Self::SEGMENT_BYTES_MAX + 1];
        let segment = if is_id(segment) { ID } else { segment };
        if segment.len() > Self::SEGMENT_BYTES_MAX {
            return None;
        }
        place[..segment.len()].copy_from_slice(segment);
        place[segment.len()] = separator;
        self.place(parent, &place[..=segment.len()])
    }

    /// Returns the child of that name, made if there is room. A name ends with its separator.
    fn place(&mut self, parent: usize, place: &[u8]) -> Option<usize> {
        if let Some(&child) = self.nodes[parent].children.get(place) {
            return Some(child);
        }
        if self.nodes.len() >= Self::NODES_MAX || self.nodes[parent].children.len() >= Self::CHILDREN_MAX {
            return None;
        }
        let child = self.nodes.len();
        self.nodes.push(Node { segment: place.into(), ..Node::default() });
        self.nodes[parent].children.insert(place.into(), child);
        Some(child)
    }

    /// Returns the heaviest prefixes: at most so many, in the order of a tree, heaviest first. Prefixes
    /// of a single key are none, and where `a:` has all its keys under `a:b:`, only the latter is shown.
    ///
    /// A child enters only by weight, as its parent did, so that the rows go to where the weight is.
    pub fn heaviest(&self, rows_max: usize, sort_by: SortBy) -> PrefixSummary {
        let root = &self.nodes[0];
        let mut heap: BinaryHeap<(Weight, usize)> = BinaryHeap::new();
        let mut shown = vec![false; self.nodes.len()];
        let push_children = |heap: &mut BinaryHeap<_>, node: &Node| {
            let children = node.children.values().map(|&child| self.settle(child));
            let several = children.filter(|&child| self.nodes[child].total.keys > 1);
            heap.extend(several.map(|child| (self.weight(child, sort_by), child)));
        };
        push_children(&mut heap, root);
        for _ in 0..rows_max {
            let Some((_, node)) = heap.pop() else {
                break;
            };
            shown[node] = true;
            push_children(&mut heap, &self.nodes[node]);
        }
        let mut summary =
            PrefixSummary { without: root.direct, rest: root.other, ..PrefixSummary::default() };
        for &child in root.children.values().filter(|&&child| !shown[self.settle(child)]) {
            summary.rest.merge(&self.nodes[child].total);
        }
        self.walk(0, &mut Vec::new(), 0, sort_by, &shown, &mut summary.rows);
        summary
    }

    /// Goes down while one child is all there is: `app:user:` says more than `app:` and is the same keys.
    fn settle(&self, mut node: usize) -> usize {
        while let Some(only) = self.only_child(node) {
            node = only;
        }
        node
    }

    fn only_child(&self, node: usize) -> Option<usize> {
        let held = &self.nodes[node];
        let mut children = held.children.values();
        let only = *children.next()?;
        (children.next().is_none() && held.direct.keys == 0 && held.other.keys == 0).then_some(only)
    }

    fn walk(
        &self,
        node: usize,
        prefix: &mut Vec<u8>,
        depth: usize,
        sort_by: SortBy,
        shown: &[bool],
        rows: &mut Vec<PrefixRow>,
    ) {
        let mut children: Vec<(usize, usize)> = self.nodes[node]
            .children
            .values()
            .map(|&child| (child, self.settle(child)))
            .filter(|&(_, settled)| shown[settled])
            .collect();
        children.sort_unstable_by(|&(_, a), &(_, b)| {
            let weight = self.weight(b, sort_by).cmp(&self.weight(a, sort_by));
            weight.then_with(|| self.nodes[a].segment.cmp(&self.nodes[b].segment))
        });
        for (child, settled) in children {
            let length = prefix.len();
            prefix.extend_from_slice(&self.nodes[child].segment);
            let mut at = child;
            while at != settled {
                at = self.only_child(at).expect("settling went this way");
                prefix.extend_from_slice(&self.nodes[at].segment);
            }
            let sums = self.nodes[settled].total;
            rows.push(PrefixRow { prefix: prefix.clone(), depth: depth + 1, sums });
            self.walk(settled, prefix, depth + 1, sort_by, shown, rows);
            prefix.truncate(length);
        }
    }

    fn weight(&self, node: usize, sort_by: SortBy) -> Weight {
        let sums = &self.nodes[node].total;
        let first = match sort_by {
            SortBy::Allocations | SortBy::Stall => sums.allocations,
            SortBy::Bytes => sums.bytes,
            SortBy::Elements => sums.elements,
        };
        (first, sums.bytes, sums.keys)
    }
}

type Weight = (u64, u64, u64);

/// Returns whether a segment names one thing among many: digits, a UUID, a long hexadecimal number.
/// Braces of a hash tag do not count.
fn is_id(segment: &[u8]) -> bool {
    let bare = segment.strip_prefix(b"{").and_then(|inner| inner.strip_suffix(b"}")).unwrap_or(segment);
    if bare.is_empty() {
        return false;
    }
    if bare.iter().all(u8::is_ascii_digit) {
        return true;
    }
    bare.len() >= 8
        && bare.iter().any(u8::is_ascii_digit)
        && bare.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::tally::sample::finding;

    fn add(tree: &mut PrefixTree, key: &[u8], allocations: u64) {
        tree.add(&finding(key).allocations(allocations).build());
    }

    fn shown(summary: &PrefixSummary) -> Vec<(String, u64)> {
        let row = |row: &PrefixRow| (String::from_utf8_lossy(&row.prefix).into_owned(), row.sums.keys);
        summary.rows.iter().map(row).collect()
    }

    fn assert_adds_up(tree: &PrefixTree) {
        for node in &tree.nodes {
            let mut sum = node.direct;
            sum.merge(&node.other);
            for &child in node.children.values() {
                sum.merge(&tree.nodes[child].total);
            }
            assert_eq!(sum, node.total);
        }
    }

    #[test]
    fn ids_fold_and_the_weight_leads_the_way() {
        let mut tree = PrefixTree::default();
        for n in 0..100 {
            add(&mut tree, format!("app:user:{n}:cart").as_bytes(), 50);
            add(&mut tree, format!("app:user:{n}:name").as_bytes(), 1);
            add(&mut tree, format!("s/9f86d081-884c-4d65-9a2f-{n:012x}/x").as_bytes(), 2);
        }
        add(&mut tree, b"plain", 7);
        let summary = tree.heaviest(4, SortBy::Allocations);
        // `app:` and `app:user:` hold nothing else than `app:user:*:`; a prefix of one key is none.
        assert_eq!(shown(&summary), [("app:user:*:".into(), 200), ("s/*/".into(), 100)]);
        assert_eq!(summary.rows[0].depth, 1);
        add(&mut tree, b"app:x", 1);
        add(&mut tree, b"one:x", 1);
        let summary = tree.heaviest(4, SortBy::Allocations);
        assert_eq!(
            shown(&summary),
            [("app:".into(), 201), ("app:user:*:".into(), 200), ("s/*/".into(), 100)]
        );
        assert_eq!(summary.rows[1].depth, 2);
        assert_eq!(summary.rest.keys, 1);
        assert_eq!(summary.without.keys, 1);
        assert_adds_up(&tree);
    }

    #[test]
    fn hash_tags_around_ids_fold_also() {
        for id in ["42", "{42}", "deadbeef01", "9f86d081-884c-4d65-9a2f-0123456789ab"] {
            assert!(is_id(id.as_bytes()), "{id}");
        }
        for word in ["", "cart", "v2", "{tag}", "deadbeef", "2024-x", "decade"] {
            assert!(!is_id(word.as_bytes()), "{word}");
        }
    }

    #[test]
    fn a_hostile_keyspace_stays_within_the_bounds() {
        let mut tree = PrefixTree::default();
        for a in 0..600 {
            for b in 0..60 {
                add(&mut tree, format!("w{a}x:y{b}z:q{b}q:r{a}r:s:t").as_bytes(), 1);
            }
        }
        add(&mut tree, &vec![b'x'; 1 << 20], 1);
        add(&mut tree, &[&[b'x'; 100][..], b":y"].concat(), 1);
        assert!(tree.nodes.len() <= PrefixTree::NODES_MAX);
        assert_eq!(tree.nodes[0].total.keys, 36_002);
        assert_adds_up(&tree);
        let summary = tree.heaviest(10, SortBy::Bytes);
        let top: u64 = summary.rows.iter().filter(|row| row.depth == 1).map(|row| row.sums.keys).sum();
        assert_eq!(top + summary.rest.keys + summary.without.keys, 36_002);
    }

    #[test]
    fn two_trees_make_one_within_the_bounds() {
        let (mut one, mut other) = (PrefixTree::default(), PrefixTree::default());
        for n in 0..400 {
            add(&mut one, format!("a{n}x:b:c").as_bytes(), 1);
            add(&mut other, format!("z{n}x:b:c").as_bytes(), 1);
        }
        add(&mut one, b"shared:x", 5);
        add(&mut other, b"shared:y", 7);
        add(&mut other, b"plain", 1);
        one.merge(&other);
        assert_adds_up(&one);
        assert_eq!(one.nodes[0].total.keys, 803);
        assert!(one.nodes[0].children.len() <= PrefixTree::CHILDREN_MAX);
        let shared = one.nodes[0].children[&b"shared:"[..]];
        assert_eq!((one.nodes[shared].total.keys, one.nodes[shared].total.allocations), (2, 12));
    }

    proptest! {
        #[test]
        fn totals_add_up_for_any_names(names in proptest::collection::vec("[ab1:/.|]{0,12}", 0..200)) {
            let mut tree = PrefixTree::default();
            for name in &names {
                add(&mut tree, name.as_bytes(), 3);
            }
            assert_adds_up(&tree);
            prop_assert_eq!(tree.nodes[0].total.keys, names.len() as u64);
        }
    }
}
