//! One database: a table of keys and a table of deadlines. Knows nothing of time passing, of other
//! databases, or of who is asking.

use super::object::Object;
use crate::server::value::Value;
use crate::server::value::dict::Dict;
use crate::server::value::siphash::HashSeed;
use crate::server::value::size_class::{sds, usable};

/// A key's bytes.
pub(crate) type Key = Box<[u8]>;

/// Two hash tables. A key with a deadline is in both, under a copy of its name.
#[derive(Debug)]
pub(crate) struct Db {
    pub(super) keys: Dict<Key, Object>,
    pub(super) expires: Dict<Key, u64>,
    /// Hashes that have, or had, fields with a TTL.
    mortal_hashes: Dict<Key, ()>,
    /// Where the next round over them goes on.
    mortal_cursor: u64,
    /// Where the active expire cycle goes on.
    pub(super) expire_cursor: u64,
    /// Average TTL in milliseconds as the expire cycle estimates it.
    pub(super) avg_ttl_ms: u64,
    /// Footprint of keys and values; the tables themselves are asked.
    bytes: usize,
}

/// Redis' table entry: key, value, next.
const ENTRY: usize = 24;

impl Db {
    pub(crate) fn new(seed: HashSeed) -> Db {
        Db {
            keys: Dict::new(seed),
            expires: Dict::new(seed),
            mortal_hashes: Dict::new(seed),
            mortal_cursor: 0,
            expire_cursor: 0,
            avg_ttl_ms: 0,
            bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the number of keys that have a deadline.
    pub(crate) fn volatile_len(&self) -> usize {
        self.expires.len()
    }

    pub(crate) fn avg_ttl_ms(&self) -> u64 {
        self.avg_ttl_ms
    }

    /// Returns what keys, values and tables take, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.keys.table_bytes() + self.expires.table_bytes();
        self.bytes + tables + (self.keys.len() + self.expires.len()) * usable(ENTRY)
    }

    /// Returns what MEMORY STATS counts for the main table: it takes entries for 24 bytes, and the headers of
    /// the values for a part of it.
    pub(crate) fn main_overhead_bytes(&self) -> usize {
        self.keys.table_bytes() + self.keys.len() * (ENTRY + 16)
    }

    pub(crate) fn expires_overhead_bytes(&self) -> usize {
        self.expires.table_bytes() + self.expires.len() * ENTRY
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Object> {
        self.keys.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Object> {
        self.keys.get_mut(key)
    }

    pub(crate) fn deadline(&self, key: &[u8]) -> Option<u64> {
        if self.expires.is_empty() { None } else { self.expires.get(key).copied() }
    }

    pub(super) fn set_deadline(&mut self, key: &[u8], at_ms: u64) {
        match self.expires.get_mut(key) {
            Some(deadline) => *deadline = at_ms,
            None => {
                self.expires.insert(key.into(), at_ms);
            }
        }
    }

    pub(super) fn clear_deadline(&mut self, key: &[u8]) -> bool {
        !self.expires.is_empty() && self.expires.remove(key).is_some()
    }

    /// Remembers a hash that has fields with a TTL.
    fn note_mortal_hash(&mut self, key: &[u8]) {
        self.mortal_hashes.insert_if_absent(key, || key.into(), ());
    }

    /// Returns the next hashes to look at for fields that are due.
    pub(super) fn some_mortal_hashes(&mut self, count: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        let from = self.mortal_cursor;
        self.mortal_cursor = self.mortal_hashes.scan_some(from, count, |key, ()| keys.push(key.clone()));
        keys
    }

    pub(super) fn forget_mortal_hash(&mut self, key: &[u8]) {
        self.mortal_hashes.remove(key);
    }

    /// Puts `object` under `key`, keeping its deadline, and returns what was there.
    pub(super) fn put(&mut self, key: &[u8], object: Object) -> Option<Object> {
        self.bytes += object.weight();
        if has_mortal_fields(&object) {
            self.note_mortal_hash(key);
        }
        if let Some(slot) = self.keys.get_mut(key) {
            let old = std::mem::replace(slot, object);
            self.bytes = self.bytes.saturating_sub(old.weight());
            return Some(old);
        }
        self.bytes += key_bytes(key);
        self.keys.insert(key.into(), object);
        None
    }

    /// Walks keys, values and deadlines, those that are due included.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Key, &Value, Option<u64>)> {
        self.keys.iter().map(|(key, object)| (key, &object.value, self.deadline(key)))
    }

    /// Takes `key` out with its deadline.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<(Object, Option<u64>)> {
        let deadline = if self.expires.is_empty() { None } else { self.expires.remove(key) };
        let (_, object) = self.keys.remove(key)?;
        self.bytes = self.bytes.saturating_sub(object.weight() + key_bytes(key));
        Some((object, deadline.map(|(_, at_ms)| at_ms)))
    }

    /// Measures the value under `key` again.
    pub(super) fn weigh(&mut self, key: &[u8]) {
        if let Some(object) = self.keys.get_mut(key) {
            let (before, after) = object.weigh();
            self.bytes = (self.bytes + after).saturating_sub(before);
            if has_mortal_fields(object) {
                self.note_mortal_hash(key);
            }
        }
    }

    /// Says how full the table of deadlines is: (entries, buckets).
    pub(super) fn volatile_fill(&self) -> (usize, usize) {
        (self.expires.len(), self.expires.buckets())
    }
}

fn has_mortal_fields(object: &Object) -> bool {
    matches!(&object.value, Value::Hash(hash) if hash.has_mortal_fields())
}

fn key_bytes(key: &[u8]) -> usize {
    sds(key.len())
}

/// Returns what MEMORY USAGE adds to a value for its key.
pub(crate) fn key_overhead(key: &[u8]) -> usize {
    sds(key.len()) + ENTRY
}
