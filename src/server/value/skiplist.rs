//! The skiplist: members in the order of score, then bytes. Owns order and ranks; the way from a
//! member to its score is the dict beside it in [`super::zset`].
//!
//! # The idea
//!
//! A sorted linked list with fast lanes. Every node is on level 0; of the nodes on a level, one in
//! four is on the next as well. A search runs along the top lane until the next node would be too
//! far, steps down a lane, and goes on: O(log n) on average, with no rebalancing ever.
//!
//! Each link knows how many nodes it jumps (its span). Adding up spans on the way down gives ranks,
//! so that every question we are asked comes down to one: *how many nodes come before the first
//! that is not before X?* ([`Skiplist::partition_point`]). Ranges by score, by bytes and by rank are
//! then all ranges of ranks.
//!
//! # Without pointers
//!
//! Redis links nodes by address. Here a node is a `Box` in a slot and links are slot numbers; a free
//! list hands slots out again. Each node is still an allocation of its own, plus one for a tower in
//! a quarter of them, so freeing costs what it costs in Redis: one free per node, plus those of
//! member and dict entry. What differs: the array of slots doubles now and then, which copies 8 bytes
//! per node (a millisecond at a million), and it is kept until the value goes.

#![allow(clippy::float_cmp, reason = "scores are compared exactly: equal bits, equal rank")]

use std::sync::Arc;

use super::random::Random;

const MAX_HEIGHT: usize = 32;
/// No node.
const NIL: u32 = u32::MAX;
/// Where every lane starts.
const HEAD: u32 = u32::MAX - 1;

/// A member. Shared with the dict, as Redis shares the string.
pub type Member = Arc<[u8]>;

#[derive(Clone, Copy, Debug)]
struct Link {
    to: u32,
    /// Nodes from here to `to`; to the end of the list if `to` is `NIL`.
    span: u32,
}

#[derive(Clone, Debug)]
struct Node {
    member: Member,
    score: f64,
    back: u32,
    ground: Link,
    /// Links of level 1 and up; most nodes have none.
    tower: Option<Box<[Link]>>,
}

/// Members by score and bytes.
#[derive(Clone, Debug)]
pub struct Skiplist {
    slots: Vec<Option<Box<Node>>>,
    free: Vec<u32>,
    head: [Link; MAX_HEIGHT],
    height: usize,
    tail: u32,
    len: usize,
    random: Random,
}

impl Skiplist {
    /// Makes an empty list; `seed` decides the heights.
    pub fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            head: [Link { to: NIL, span: 0 }; MAX_HEIGHT],
            height: 1,
            tail: NIL,
            len: 0,
            random: Random::new(seed),
        }
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Walks members and heights, which is what a node's size follows from.
    pub fn heights(&self) -> impl Iterator<Item = (&Member, usize)> {
        self.nodes_from(self.head[0].to)
            .map(|node| (&node.member, 1 + node.tower.as_ref().map_or(0, |tower| tower.len())))
    }

    /// Adds a member that is not there yet.
    pub fn insert(&mut self, score: f64, member: Member) {
        let mut path = [HEAD; MAX_HEIGHT];
        let mut ranks = [0u32; MAX_HEIGHT];
        let (mut at, mut rank) = (HEAD, 0);
        for level in (0..self.height).rev() {
            loop {
                let link = self.link(at, level);
                if link.to == NIL || !precedes(self.node(link.to), score, &member) {
                    break;
                }
                rank += link.span;
                at = link.to;
            }
            path[level] = at;
            ranks[level] = rank;
        }
        let height = self.draw_height();
        for level in self.height..height {
            self.head[level] = Link { to: NIL, span: count(self.len) };
        }
        self.height = self.height.max(height);

        let mut tower = Vec::with_capacity(height - 1);
        let mut ground = Link { to: NIL, span: 0 };
        let slot = self.take_slot();
        for level in 0..height {
            let before = rank - ranks[level];
            let link = self.link_mut(path[level], level);
            let mine = Link { to: link.to, span: link.span - before };
            *link = Link { to: slot, span: before + 1 };
            if level == 0 {
                ground = mine;
            } else {
                tower.push(mine);
            }
        }
        for (level, &before) in path.iter().enumerate().take(self.height).skip(height) {
            self.link_mut(before, level).span += 1;
        }
        let back = if path[0] == HEAD { NIL } else { path[0] };
        if ground.to == NIL {
            self.tail = slot;
        } else {
            self.node_mut(ground.to).back = slot;
        }
        let tower = (!tower.is_empty()).then(|| tower.into_boxed_slice());
        self.slots[slot as usize] = Some(Box::new(Node { member, score, back, ground, tower }));
        self.len += 1;
    }

    /// Takes a member out, by its score; tells whether it was there.
    pub fn remove(&mut self, score: f64, member: &[u8]) -> bool {
        let (path, _) = self.path_to(|node| precedes(node, score, member));
        let slot = self.link(path[0], 0).to;
        if slot == NIL || self.node(slot).score != score || &*self.node(slot).member != member {
            return false;
        }
        self.unlink(slot, &path);
        true
    }

    /// Takes out `count` members from `rank` on and hands each to `gone`. O(log n + count).
    pub fn remove_ranks(&mut self, rank: usize, count: usize, mut gone: impl FnMut(Member)) {
        let path = self.path_to_rank(rank);
        for _ in 0..count {
            let slot = self.link(path[0], 0).to;
            if slot == NIL {
                break;
            }
            if let Some(node) = self.unlink(slot, &path) {
                gone(node.member);
            }
        }
    }

    /// Counts the members before the first for which `before` is false. `before` must be true for a
    /// prefix of the order and false for the rest.
    pub fn partition_point(&self, mut before: impl FnMut(f64, &[u8]) -> bool) -> usize {
        self.path_to(|node| before(node.score, &node.member)).1
    }

    /// Walks from `rank` to the end.
    pub fn iter_from(&self, rank: usize) -> impl Iterator<Item = (&Member, f64)> {
        let first = self.link(self.path_to_rank(rank)[0], 0).to;
        self.nodes_from(first).map(|node| (&node.member, node.score))
    }

    /// Walks from `rank` to the beginning; nothing if there is no such rank.
    pub fn iter_back_from(&self, rank: usize) -> impl Iterator<Item = (&Member, f64)> {
        let mut at =
            if rank + 1 == self.len { self.tail } else { self.link(self.path_to_rank(rank)[0], 0).to };
        std::iter::from_fn(move || {
            let node = (at != NIL).then(|| self.node(at))?;
            at = node.back;
            Some((&node.member, node.score))
        })
    }

    fn nodes_from(&self, mut at: u32) -> impl Iterator<Item = &Node> {
        std::iter::from_fn(move || {
            let node = (at != NIL).then(|| self.node(at))?;
            at = node.ground.to;
            Some(node)
        })
    }

    /// Returns for each level the last node that is `before`, and how many nodes are.
    fn path_to(&self, mut before: impl FnMut(&Node) -> bool) -> ([u32; MAX_HEIGHT], usize) {
        let mut path = [HEAD; MAX_HEIGHT];
        let (mut at, mut rank) = (HEAD, 0);
        for level in (0..self.height).rev() {
            loop {
                let link = self.link(at, level);
                if link.to == NIL || !before(self.node(link.to)) {
                    break;
                }
                rank += link.span as usize;
                at = link.to;
            }
            path[level] = at;
        }
        (path, rank)
    }

    fn path_to_rank(&self, rank: usize) -> [u32; MAX_HEIGHT] {
        let mut path = [HEAD; MAX_HEIGHT];
        let (mut at, mut left) = (HEAD, rank);
        for level in (0..self.height).rev() {
            loop {
                let link = self.link(at, level);
                if link.to == NIL || link.span as usize > left {
                    break;
                }
                left -= link.span as usize;
                at = link.to;
            }
            path[level] = at;
        }
        path
    }

    fn unlink(&mut self, slot: u32, path: &[u32; MAX_HEIGHT]) -> Option<Node> {
        let node = *self.slots[slot as usize].take()?;
        for (level, &before) in path.iter().enumerate().take(self.height) {
            let mine = match level {
                0 => Some(node.ground),
                _ => node.tower.as_ref().and_then(|tower| tower.get(level - 1)).copied(),
            };
            let link = self.link_mut(before, level);
            match mine.filter(|_| link.to == slot) {
                Some(mine) => *link = Link { to: mine.to, span: link.span + mine.span - 1 },
                None => link.span -= 1,
            }
        }
        if node.ground.to == NIL {
            self.tail = node.back;
        } else {
            self.node_mut(node.ground.to).back = node.back;
        }
        while self.height > 1 && self.head[self.height - 1].to == NIL {
            self.height -= 1;
        }
        self.free.push(slot);
        self.len -= 1;
        Some(node)
    }

    fn draw_height(&mut self) -> usize {
        // Two bits a level: both zero, once in four times, lifts the node one lane up.
        let lifts = self.random.next_u64().trailing_zeros() / 2;
        (lifts as usize + 1).min(MAX_HEIGHT)
    }

    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            count(self.slots.len() - 1)
        })
    }

    fn node(&self, slot: u32) -> &Node {
        self.slots[slot as usize].as_deref().expect("links lead to slots in use")
    }

    fn node_mut(&mut self, slot: u32) -> &mut Node {
        self.slots[slot as usize].as_deref_mut().expect("links lead to slots in use")
    }

    fn link(&self, at: u32, level: usize) -> Link {
        match at {
            HEAD => self.head[level],
            at if level == 0 => self.node(at).ground,
            at => self.node(at).tower.as_ref().expect("a node reached on a lane has a tower")[level - 1],
        }
    }

    fn link_mut(&mut self, at: u32, level: usize) -> &mut Link {
        match at {
            HEAD => &mut self.head[level],
            at if level == 0 => &mut self.node_mut(at).ground,
            at => {
                let tower = self.node_mut(at).tower.as_mut();
                &mut tower.expect("a node reached on a lane has a tower")[level - 1]
            }
        }
    }
}

fn precedes(node: &Node, score: f64, member: &[u8]) -> bool {
    node.score < score || (node.score == score && *node.member < *member)
}

/// A node count as links keep it. Four billion members would need 400 GB before this saturates.
fn count(nodes: usize) -> u32 {
    u32::try_from(nodes).unwrap_or(HEAD - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(list: &Skiplist) -> Vec<(f64, Vec<u8>)> {
        list.iter_from(0).map(|(member, score)| (score, member.to_vec())).collect()
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_sorted_vector(ops in prop::collection::vec((0u8..8, -3i8..4, 0u8..40), 0..300)) {
            let mut list = Skiplist::new(42);
            let mut model: Vec<(f64, Vec<u8>)> = Vec::new();
            for (op, score, member) in ops {
                let (score, member) = (f64::from(score), vec![member]);
                match op {
                    0..=4 => if !model.iter().any(|(_, other)| *other == member) {
                        list.insert(score, member.clone().into());
                        model.push((score, member));
                        model.sort_by(|a, b| a.partial_cmp(b).expect("no nan here"));
                    },
                    5 | 6 => {
                        let there = model.iter().position(|entry| *entry == (score, member.clone()));
                        prop_assert_eq!(list.remove(score, &member), there.is_some());
                        if let Some(at) = there { model.remove(at); }
                    }
                    _ => {
                        let rank = usize::from(member[0] / 2).min(model.len());
                        let mut gone = Vec::new();
                        list.remove_ranks(rank, 3, |member| gone.push(member.to_vec()));
                        let end = model.len().min(rank + 3);
                        let expected: Vec<_> = model.drain(rank..end).map(|(_, member)| member).collect();
                        prop_assert_eq!(gone, expected);
                    }
                }
                prop_assert_eq!(order(&list), model.clone());
                prop_assert_eq!(list.len(), model.len());
                let point = list.partition_point(|s, _| s < score);
                prop_assert_eq!(point, model.iter().filter(|(s, _)| *s < score).count());
                for (rank, entry) in model.iter().enumerate() {
                    let (member, score) = list.iter_from(rank).next().expect("rank is below len");
                    prop_assert_eq!((score, member.to_vec()), entry.clone());
                    prop_assert_eq!(list.iter_back_from(rank).count(), rank + 1);
                }
            }
        }
    }

    #[test]
    fn ten_thousand_stay_in_order() {
        let mut list = Skiplist::new(1);
        let mut random = Random::new(2);
        for n in 0..10_000u32 {
            list.insert(
                f64::from(u32::try_from(random.below(1000)).unwrap_or(0)),
                n.to_be_bytes().to_vec().into(),
            );
        }
        assert!(order(&list).is_sorted());
        assert!(list.height > 4 && list.height < 16, "height {}", list.height);
        list.remove_ranks(0, 10_000, drop);
        assert!(list.is_empty() && list.height == 1 && list.tail == NIL);
    }
}
