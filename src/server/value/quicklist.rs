//! The quicklist: a row of listpacks of about 8 KB each. Owns the cutting and joining of nodes.
//!
//! One listpack would make every push in front a move of the whole list; one node per element would
//! pay two pointers for each. So elements are packed until a node is full. Freeing costs one free
//! per *node*, which is why deleting a list of a million small elements hurts nobody and why the
//! effort of a list is its number of nodes.
//!
//! An element larger than a node lies alone in a node of its own. Nodes are never empty.

use std::collections::VecDeque;

use super::listpack::{Element, Iter, Listpack, Position};

/// What an element may take beside its text, overestimated.
const ENTRY_OVERHEAD: usize = 8;
/// With a limit on elements, nodes still stop growing here.
const SIZE_SAFETY_LIMIT: usize = 8192;

/// A list end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The left end.
    Head,
    /// The right end.
    Tail,
}

/// Before or after an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// To its left.
    Before,
    /// To its right.
    After,
}

/// A list of listpacks.
#[derive(Clone, Debug, Default)]
pub struct Quicklist {
    nodes: VecDeque<Listpack>,
    count: usize,
}

/// Tells whether a node of so many bytes and elements is over the limit that `fill`
/// (`list-max-listpack-size`) sets.
pub fn over_limit(fill: i32, bytes: usize, count: usize) -> bool {
    let (max_bytes, max_count) = limits(fill);
    bytes > max_bytes || count > max_count
}

/// Bytes and elements that a node may have. Positive `fill` counts elements, 0 behaves as 1;
/// -1 to -5 are 4, 8, 16, 32 and 64 KB, and what is below -5 behaves as -5.
fn limits(fill: i32) -> (usize, usize) {
    match usize::try_from(fill) {
        Ok(count) => (SIZE_SAFETY_LIMIT, count.max(1)),
        Err(_) => (2048 << fill.unsigned_abs().min(5), usize::MAX),
    }
}

impl Quicklist {
    /// Makes a quicklist of one node, or of none if `pack` is empty.
    pub fn from_listpack(pack: Listpack) -> Self {
        let mut list = Self::default();
        list.push_node(pack);
        list
    }

    /// Appends a node as it is, as a file has it; an empty one is dropped.
    pub fn push_node(&mut self, pack: Listpack) {
        if !pack.is_empty() {
            self.count += pack.len();
            self.nodes.push_back(pack);
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the nodes, as the two runs of a ring.
    pub fn nodes(&self) -> (&[Listpack], &[Listpack]) {
        self.nodes.as_slices()
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the only node as a listpack if it is within half the limit. Half, so that a list at
    /// the limit does not change its encoding with every push and pop.
    pub fn take_small(&mut self, fill: i32) -> Option<Listpack> {
        let (max_bytes, max_count) = limits(fill);
        let node = self.nodes.front().filter(|_| self.nodes.len() == 1)?;
        if node.byte_len() > max_bytes / 2 || self.count > max_count / 2 {
            return None;
        }
        self.count = 0;
        self.nodes.pop_front()
    }

    /// Returns the only node as a listpack if it is within the limit.
    pub fn take_only(&mut self, fill: i32) -> Option<Listpack> {
        let node = self.nodes.front().filter(|_| self.nodes.len() == 1)?;
        if over_limit(fill, node.byte_len(), self.count) {
            return None;
        }
        self.count = 0;
        self.nodes.pop_front()
    }

    /// Adds an element at an end.
    pub fn push(&mut self, end: End, text: &[u8], fill: i32) {
        self.count += 1;
        let node = match end {
            End::Head => self.nodes.front_mut(),
            End::Tail => self.nodes.back_mut(),
        };
        match (node.filter(|node| has_room(node, text, fill)), end) {
            (Some(node), End::Head) => node.push_front(text),
            (Some(node), End::Tail) => node.push_back(text),
            (None, End::Head) => self.nodes.push_front(alone(text)),
            (None, End::Tail) => self.nodes.push_back(alone(text)),
        }
    }

    /// Takes the element at an end.
    pub fn pop(&mut self, end: End) -> Option<Vec<u8>> {
        let index = if end == End::Head { 0 } else { self.nodes.len().checked_sub(1)? };
        let node = self.nodes.get_mut(index)?;
        let at = if end == End::Head { node.first() } else { node.last() }?;
        let text = node.get(at).bytes().into_owned();
        node.remove(at, 1);
        if node.is_empty() {
            self.nodes.remove(index);
        }
        self.count -= 1;
        Some(text)
    }

    /// Returns element number `index`.
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        let (node, at) = self.locate(index)?;
        Some(self.nodes[node].get(at))
    }

    /// Replaces element number `index`; tells whether there is one. The node may outgrow its limit.
    pub fn set(&mut self, index: usize, text: &[u8]) -> bool {
        let Some((node, at)) = self.locate(index) else {
            return false;
        };
        self.nodes[node].replace(at, text);
        true
    }

    /// Walks the elements from number `index` on.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = Element<'_>> {
        let start = self.locate(index);
        let first = start.map(|(node, at)| self.nodes[node].iter_from(at));
        let rest = start.map_or(self.nodes.len(), |(node, _)| node + 1);
        first.into_iter().flatten().chain(self.nodes.range(rest..).flat_map(Listpack::iter))
    }

    /// Walks all elements, in either direction.
    pub fn elements(
        &self,
    ) -> std::iter::FlatMap<
        std::collections::vec_deque::Iter<'_, Listpack>,
        Iter<'_>,
        fn(&Listpack) -> Iter<'_>,
    > {
        self.nodes.iter().flat_map(Listpack::iter)
    }

    /// Puts an element beside element number `index`, cutting a full node if there is no other way.
    pub fn insert(&mut self, index: usize, side: Side, text: &[u8], fill: i32) -> bool {
        let Some((node, at)) = self.locate(index) else {
            return false;
        };
        self.count += 1;
        let pack = &mut self.nodes[node];
        if has_room(pack, text, fill) {
            match side {
                Side::Before => pack.insert_before(at, text),
                Side::After => pack.insert_after(at, text),
            }
            return true;
        }
        let at_head = side == Side::Before && pack.first() == Some(at);
        let at_tail = side == Side::After && pack.last() == Some(at);
        if at_head || at_tail {
            // The gap between two nodes: the neighbour may have room.
            let gap = node + usize::from(at_tail);
            if at_tail && self.nodes.get(gap).is_some_and(|next| has_room(next, text, fill)) {
                self.nodes[gap].push_front(text);
            } else if at_head && gap > 0 && has_room(&self.nodes[gap - 1], text, fill) {
                self.nodes[gap - 1].push_back(text);
            } else {
                self.nodes.insert(gap, alone(text));
            }
            return true;
        }
        let cut = if side == Side::After { pack.next(at) } else { Some(at) };
        let Some(cut) = cut else { return true };
        let mut tail = pack.split_off(cut);
        if has_room(&self.nodes[node], text, fill) {
            self.nodes[node].push_back(text);
            self.nodes.insert(node + 1, tail);
        } else if has_room(&tail, text, fill) {
            tail.push_front(text);
            self.nodes.insert(node + 1, tail);
        } else {
            self.nodes.insert(node + 1, tail);
            self.nodes.insert(node + 1, alone(text));
        }
        self.merge_around(node, fill);
        true
    }

    /// Takes out `count` elements from number `start` on. Whole nodes go without being read; only
    /// the two at the edges are rewritten.
    pub fn remove_range(&mut self, start: usize, count: usize) {
        let mut left = count.min(self.count.saturating_sub(start));
        let Some((mut node, at)) = self.locate(start) else {
            return;
        };
        self.count -= left;
        let mut at = Some(at);
        while left > 0 {
            let Some(pack) = self.nodes.get_mut(node) else {
                return;
            };
            let before = pack.len();
            if at == pack.first() && before <= left {
                // Found once, then a run of nodes is dropped in a single move of the ring.
                let mut last = node;
                while let Some(pack) = self.nodes.get(last).filter(|pack| pack.len() <= left) {
                    left -= pack.len();
                    last += 1;
                }
                self.nodes.drain(node..last);
            } else {
                if let Some(at) = at {
                    pack.remove(at, left);
                }
                left -= before - pack.len();
                node += 1;
            }
            at = self.nodes.get(node).and_then(Listpack::first);
        }
    }

    /// Takes out up to `limit` elements equal to `text`, from the given end on. Returns how many.
    pub fn remove_equal(&mut self, text: &[u8], limit: usize, from: End) -> usize {
        let mut removed = 0;
        let mut visit = |pack: &mut Listpack| {
            removed += remove_equal_in(pack, text, limit - removed, from);
            removed < limit
        };
        match from {
            End::Head => self.nodes.iter_mut().all(&mut visit),
            End::Tail => self.nodes.iter_mut().rev().all(&mut visit),
        };
        self.nodes.retain(|pack| !pack.is_empty());
        self.count -= removed;
        removed
    }

    /// Node and position of element number `index`, walking nodes from the nearer end.
    fn locate(&self, index: usize) -> Option<(usize, Position)> {
        if index >= self.count {
            return None;
        }
        let mut offset = index;
        if index < self.count / 2 {
            for (number, pack) in self.nodes.iter().enumerate() {
                match offset.checked_sub(pack.len()) {
                    Some(rest) => offset = rest,
                    None => return Some((number, pack.seek(offset)?)),
                }
            }
        } else {
            let mut end = self.count;
            for (number, pack) in self.nodes.iter().enumerate().rev() {
                let start = end - pack.len();
                if index >= start {
                    return Some((number, pack.seek(index - start)?));
                }
                end = start;
            }
        }
        None
    }

    /// Joins the two halves of a cut with their outer neighbours where they fit together.
    fn merge_around(&mut self, node: usize, fill: i32) {
        for left in (node.saturating_sub(1)..=node + 2).rev() {
            let (Some(a), Some(b)) = (self.nodes.get(left), self.nodes.get(left + 1)) else {
                continue;
            };
            // One header and one end mark go.
            let bytes = a.byte_len() + b.byte_len() - 7;
            if !over_limit(fill, bytes, a.len() + b.len())
                && let Some(b) = self.nodes.remove(left + 1)
            {
                self.nodes[left].append(&b);
            }
        }
    }
}

/// Takes out up to `limit` elements of one listpack that equal `text`.
pub fn remove_equal_in(pack: &mut Listpack, text: &[u8], limit: usize, from: End) -> usize {
    let mut removed = 0;
    let mut at = if from == End::Head { pack.first() } else { pack.last() };
    while let Some(here) = at {
        if removed == limit {
            break;
        }
        let before = pack.prev(here);
        let hit = pack.get(here).is(text);
        let after = if hit {
            removed += 1;
            pack.remove(here, 1)
        } else {
            pack.next(here)
        };
        at = if from == End::Head { after } else { before };
    }
    removed
}

fn alone(text: &[u8]) -> Listpack {
    let mut pack = Listpack::new();
    pack.push_back(text);
    pack
}

fn has_room(node: &Listpack, text: &[u8], fill: i32) -> bool {
    !over_limit(fill, node.byte_len() + text.len() + ENTRY_OVERHEAD, node.len() + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(list: &Quicklist) -> Vec<Vec<u8>> {
        list.elements().map(|element| element.bytes().into_owned()).collect()
    }

    #[test]
    fn nodes_hold_eight_kilobytes_and_a_giant_sits_alone() {
        let mut list = Quicklist::default();
        for _ in 0..1000 {
            list.push(End::Tail, &[b'x'; 100], -2);
        }
        assert_eq!(list.node_count(), 13, "79 elements of 103 bytes to a node");
        list.push(End::Tail, &vec![b'y'; 100_000], -2);
        list.push(End::Tail, b"z", -2);
        assert_eq!(list.node_count(), 15);
        assert_eq!(list.len(), 1002);
    }

    #[test]
    fn a_positive_fill_counts_elements() {
        let mut list = Quicklist::default();
        for _ in 0..10 {
            list.push(End::Head, b"x", 3);
        }
        assert_eq!(list.node_count(), 4);
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_vector(
            fill in prop_oneof![Just(-1), Just(1), Just(3), Just(5)],
            ops in prop::collection::vec((0u8..9, any::<prop::sample::Index>(), "[ab]|[0-9]{1,4}|c{900}"), 0..80),
        ) {
            let mut list = Quicklist::default();
            let mut model: Vec<Vec<u8>> = Vec::new();
            for (op, index, text) in ops {
                let text = text.into_bytes();
                let at = if model.is_empty() { 0 } else { index.index(model.len()) };
                match op {
                    0 => { list.push(End::Head, &text, fill); model.insert(0, text); }
                    1 if !model.is_empty() => {
                        list.insert(at, Side::Before, &text, fill);
                        model.insert(at, text);
                    }
                    2 if !model.is_empty() => {
                        list.insert(at, Side::After, &text, fill);
                        model.insert(at + 1, text);
                    }
                    3 if !model.is_empty() => { list.set(at, &text); model[at] = text; }
                    4 => prop_assert_eq!(list.pop(End::Tail), model.pop()),
                    5 if !model.is_empty() => prop_assert_eq!(list.pop(End::Head), Some(model.remove(0))),
                    6 => {
                        list.remove_range(at, 3);
                        model.drain(at..model.len().min(at + 3));
                    }
                    7 => {
                        let removed = list.remove_equal(&text, 2, End::Tail);
                        for _ in 0..removed {
                            let found = model.iter().rposition(|other| *other == text);
                            model.remove(found.expect("the list had it"));
                        }
                        prop_assert!(removed == 2 || !model.contains(&text));
                    }
                    _ => { list.push(End::Tail, &text, fill); model.push(text); }
                }
                prop_assert_eq!(texts(&list), model.clone());
                prop_assert_eq!(list.len(), model.len());
                prop_assert!(list.nodes.iter().all(|node| !node.is_empty()));
                let from: Vec<_> = list.iter_from(at).map(|e| e.bytes().into_owned()).collect();
                prop_assert_eq!(&from[..], &model[at.min(model.len())..]);
            }
        }
    }
}
