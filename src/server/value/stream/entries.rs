//! The stream itself: a radix tree of listpacks by ID. Owns appending, ranges, deletion and trimming;
//! what a command makes of missing IDs or keys is not known here.

use std::collections::BTreeMap;

use super::group::Group;
use super::id::StreamId;
use super::node::{self, Entry};
use crate::server::value::limits::Limits;
use crate::server::value::listpack::Listpack;
use crate::server::value::rax::Rax;

/// Nodes stop growing here even if the configuration sets no limit.
const NODE_MAX_BYTES: usize = 1 << 30;

/// A stream value.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    nodes: Rax<Listpack>,
    len: u64,
    /// The largest ID ever added.
    pub last_id: StreamId,
    /// The ID of the first entry, `0-0` when there is none.
    pub first_id: StreamId,
    /// The largest ID ever deleted.
    pub max_deleted_id: StreamId,
    /// Entries ever added.
    pub entries_added: u64,
    /// Consumer groups by name.
    pub groups: BTreeMap<Box<[u8]>, Group>,
}

/// What to cut from the front of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest so many entries.
    Newest(u64),
    /// Entries from this ID on.
    From(StreamId),
}

/// How far a trim goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// What to keep.
    pub keep: Keep,
    /// Only whole nodes go (`~`).
    pub approximate: bool,
    /// At most so many entries go; 0 is no limit.
    pub limit: u64,
}

impl Stream {
    /// Makes an empty stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Tells whether there is no entry. Such a stream may well exist.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the tree of listpacks.
    pub fn nodes(&self) -> &Rax<Listpack> {
        &self.nodes
    }

    /// Puts a node in as a file has it; `None` if it is not one or is there already.
    pub fn load_node(&mut self, first: StreamId, pack: Listpack) -> Option<()> {
        if !node::is_sound(&pack, first) {
            return None;
        }
        self.len += node::counts(&pack).0 as u64;
        self.nodes.insert(&first.key(), pack).is_none().then_some(())
    }

    /// Adds an entry of alternating fields and values. The caller has seen to it that `id` is above
    /// `last_id`.
    pub fn append<T: AsRef<[u8]>>(&mut self, id: StreamId, texts: &[T], limits: &Limits) {
        let bytes: usize = texts.iter().map(|text| text.as_ref().len()).sum();
        let last = self.nodes.last().map(|(key, pack)| (key, has_room(pack, bytes, limits)));
        match last {
            Some((key, true)) => {
                if let Some(pack) = self.nodes.get_mut(&key) {
                    node::append(pack, StreamId::from_key(&key), id, texts);
                }
            }
            _ => {
                self.nodes.insert(&id.key(), node::create(texts));
            }
        }
        self.len += 1;
        self.entries_added += 1;
        self.last_id = id;
        if self.len == 1 {
            self.first_id = id;
        }
    }

    /// Calls `visit` for entries from `start` to `end` (both inside) until it returns false.
    pub fn range(&self, start: StreamId, end: StreamId, mut visit: impl FnMut(&Entry<'_>) -> bool) {
        // The node that `start` falls into begins at or before it.
        let first = self.nodes.last_up_to(&start.key()).map_or(start, |(key, _)| StreamId::from_key(&key));
        let mut next = Some(first);
        while let Some((key, pack)) = next.and_then(|id| self.nodes.first_from(&id.key())) {
            let first = StreamId::from_key(&key);
            if first > end {
                return;
            }
            for entry in node::entries(pack, first) {
                if entry.id > end || (entry.id >= start && !visit(&entry)) {
                    return;
                }
            }
            next = first.next();
        }
    }

    /// Calls `visit` for entries from `end` back to `start` (both inside) until it returns false.
    pub fn range_back(&self, start: StreamId, end: StreamId, mut visit: impl FnMut(&Entry<'_>) -> bool) {
        let mut next = Some(end);
        while let Some((key, pack)) = next.and_then(|id| self.nodes.last_up_to(&id.key())) {
            let first = StreamId::from_key(&key);
            let entries: Vec<_> = node::entries(pack, first).collect();
            for entry in entries.iter().rev() {
                if entry.id < start || (entry.id <= end && !visit(entry)) {
                    return;
                }
            }
            next = first.prev();
        }
    }

    /// Calls `visit` with the entry of an ID; tells whether there is one.
    pub fn with_entry(&self, id: StreamId, mut visit: impl FnMut(&Entry<'_>)) -> bool {
        let mut found = false;
        self.range(id, id, |entry| {
            visit(entry);
            found = true;
            false
        });
        found
    }

    /// Tells whether there is an entry of that ID.
    pub fn contains(&self, id: StreamId) -> bool {
        self.with_entry(id, |_| ())
    }

    /// Deletes an entry; tells whether it was there.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some(key) = self.nodes.last_up_to(&id.key()).map(|(key, _)| key) else {
            return false;
        };
        let Some(pack) = self.nodes.get_mut(&key) else {
            return false;
        };
        let Some(was_last) = node::delete(pack, StreamId::from_key(&key), id) else {
            return false;
        };
        if was_last {
            self.nodes.remove(&key);
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        if id == self.first_id || self.len == 0 {
            self.find_first();
        }
        true
    }

    /// Cuts entries from the front; returns how many. Whole nodes go unread; only an exact trim
    /// rewrites the node at the edge.
    pub fn trim(&mut self, trim: Trim) -> u64 {
        let mut deleted = 0;
        while let Some((key, pack)) = self.nodes.first() {
            let first = StreamId::from_key(&key);
            if matches!(trim.keep, Keep::Newest(keep) if self.len <= keep) {
                break;
            }
            let live = node::counts(pack).0 as u64;
            if trim.limit != 0 && deleted + live > trim.limit {
                break;
            }
            let whole = match trim.keep {
                Keep::Newest(keep) => self.len - live >= keep,
                Keep::From(id) => node::last_id(pack, first).is_some_and(|last| last < id),
            };
            if whole {
                self.nodes.remove(&key);
                self.len -= live;
                deleted += live;
                continue;
            }
            if !trim.approximate {
                deleted += self.trim_inside(trim.keep, first);
            }
            break;
        }
        if deleted > 0 {
            self.find_first();
        }
        deleted
    }

    /// Tells whether an entry between two IDs may have been deleted, so that counting by difference
    /// would be wrong.
    pub fn has_holes(&self, start: StreamId, end: StreamId) -> bool {
        self.len != 0
            && self.max_deleted_id != StreamId::MIN
            && start <= self.max_deleted_id
            && self.max_deleted_id <= end
    }

    /// Returns how many entries were ever added up to `id`, or `None` when that cannot be told.
    pub fn distance_from_start(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id {
            return Some(self.entries_added);
        }
        match id.cmp(&self.last_id) {
            std::cmp::Ordering::Equal => return Some(self.entries_added),
            std::cmp::Ordering::Greater => return None,
            std::cmp::Ordering::Less => {}
        }
        if self.max_deleted_id == StreamId::MIN || self.max_deleted_id < self.first_id {
            // Nothing is missing behind the first entry.
            if id < self.first_id {
                return Some(self.entries_added.saturating_sub(self.len));
            }
            if id == self.first_id {
                return Some(self.entries_added.saturating_sub(self.len) + 1);
            }
        }
        None
    }

    fn trim_inside(&mut self, keep: Keep, first: StreamId) -> u64 {
        let doomed: Vec<StreamId> = match (keep, self.nodes.get(&first.key())) {
            (_, None) => Vec::new(),
            (Keep::Newest(keep), Some(pack)) => {
                let count = usize::try_from(self.len - keep).unwrap_or(usize::MAX);
                node::entries(pack, first).take(count).map(|entry| entry.id).collect()
            }
            (Keep::From(id), Some(pack)) => {
                node::entries(pack, first).map(|entry| entry.id).take_while(|other| *other < id).collect()
            }
        };
        let Some(pack) = self.nodes.get_mut(&first.key()) else {
            return 0;
        };
        let mut emptied = false;
        for id in &doomed {
            emptied = node::delete(pack, first, *id).unwrap_or(false);
        }
        if emptied {
            self.nodes.remove(&first.key());
        }
        self.len -= doomed.len() as u64;
        doomed.len() as u64
    }

    /// Sets `first_id` to what the first entry says.
    pub fn find_first(&mut self) {
        let mut first = StreamId::MIN;
        self.range(StreamId::MIN, StreamId::MAX, |entry| {
            first = entry.id;
            false
        });
        self.first_id = first;
    }
}

fn has_room(pack: &Listpack, bytes: usize, limits: &Limits) -> bool {
    let max_bytes = match limits.stream_node_max_bytes {
        0 => NODE_MAX_BYTES,
        bytes => bytes.min(NODE_MAX_BYTES),
    };
    let (live, deleted) = node::counts(pack);
    let max_entries = limits.stream_node_max_entries;
    pack.byte_len() + bytes < max_bytes && (max_entries == 0 || live + deleted < max_entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(count: u64) -> Stream {
        let mut stream = Stream::new();
        for ms in 1..=count {
            stream.append(StreamId::new(ms, 0), &["field", "value"], &Limits::default());
        }
        stream
    }

    fn ids(stream: &Stream, start: u64, end: u64) -> Vec<u64> {
        let mut ids = Vec::new();
        stream.range(StreamId::new(start, 0), StreamId::new(end, 0), |entry| {
            ids.push(entry.id.ms);
            true
        });
        let mut back = Vec::new();
        stream.range_back(StreamId::new(start, 0), StreamId::new(end, 0), |entry| {
            back.push(entry.id.ms);
            true
        });
        back.reverse();
        assert_eq!(ids, back);
        ids
    }

    #[test]
    fn nodes_hold_a_hundred_entries() {
        let stream = stream(1000);
        assert_eq!(stream.nodes().len(), 10);
        assert_eq!(ids(&stream, 95, 105), (95..=105).collect::<Vec<_>>());
        assert_eq!(ids(&stream, 0, u64::MAX).len(), 1000);
    }

    #[test]
    fn a_node_goes_with_its_last_entry() {
        let mut stream = stream(200);
        for ms in 1..=100 {
            assert!(stream.delete(StreamId::new(ms, 0)) && !stream.delete(StreamId::new(ms, 0)));
        }
        assert_eq!((stream.nodes().len(), stream.len()), (1, 100));
        assert_eq!(stream.first_id, StreamId::new(101, 0));
        assert_eq!(stream.max_deleted_id, StreamId::new(100, 0));
    }

    #[test]
    fn trims_are_exact_or_by_the_node() {
        let trim = |keep, approximate, limit| Trim { keep, approximate, limit };
        let mut some = stream(1000);
        assert_eq!(some.trim(trim(Keep::Newest(550), true, 0)), 400);
        assert_eq!(some.trim(trim(Keep::Newest(550), false, 0)), 50);
        assert_eq!((some.len(), some.first_id.ms), (550, 451));
        assert_eq!(some.trim(trim(Keep::From(StreamId::new(701, 0)), true, 0)), 250);
        assert_eq!(some.trim(trim(Keep::From(StreamId::new(750, 0)), false, 0)), 49);
        assert_eq!(some.trim(trim(Keep::Newest(0), true, 100)), 51);
        assert_eq!(some.trim(trim(Keep::Newest(0), false, 0)), 200);
        assert_eq!((some.len(), some.first_id, some.nodes().nodes()), (0, StreamId::MIN, 1));
        assert_eq!(some.last_id.ms, 1000);
    }
}
