//! Tells keys that SCAN returns a second time, in bounded memory.
//!
//! SCAN walks the buckets with the bits of the cursor reversed. When a table grows or shrinks half way,
//! the buckets that a bucket is split into, or folded from, are its neighbours in that order. So what
//! SCAN repeats after a shrink are keys of the buckets it has just been through, and a window over the
//! last [`WINDOW_KEYS`] keys sees them. A table that shrinks by more than that in one step could still
//! repeat older ones; a scan during which the number of keys passed a power of two says so in its report.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use crate::engine::key::KeyName;

/// Keys that the window remembers, by a 64-bit hash each: about 2 MB.
pub(super) const WINDOW_KEYS: usize = 65_536;

/// The last keys seen.
pub(super) struct SeenWindow {
    hasher: RandomState,
    order: VecDeque<u64>,
    seen: HashSet<u64, BuildHasherDefault<AlreadyHashed>>,
}

impl SeenWindow {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            order: VecDeque::with_capacity(WINDOW_KEYS),
            seen: HashSet::with_capacity_and_hasher(WINDOW_KEYS, BuildHasherDefault::default()),
        }
    }

    /// Remembers a key and returns whether it is new. Two names with one 64-bit hash would be
    /// taken for one: for a key that is 65 536 in 2^64, or 4 in 10^15.
    pub(super) fn is_new(&mut self, key: &KeyName) -> bool {
        let hash = self.hasher.hash_one(key.as_bytes());
        if !self.seen.insert(hash) {
            return false;
        }
        if self.order.len() == WINDOW_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        self.order.push_back(hash);
        true
    }

    /// Forgets everything: the next database has keys of the same names.
    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.seen.clear();
    }
}

/// The set holds hashes: hashing them again would only take time.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 is hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_seen_twice_is_told_within_the_window() {
        let mut window = SeenWindow::new();
        let key = |number: usize| KeyName::from(format!("key:{number}").as_str());
        for number in 0..WINDOW_KEYS {
            assert!(window.is_new(&key(number)));
        }
        assert!(!window.is_new(&key(1)), "still remembered");
        assert!(window.is_new(&key(WINDOW_KEYS)), "pushes the oldest out");
        assert!(window.is_new(&key(0)), "forgotten: the memory is bounded");
        assert_eq!(window.seen.len(), WINDOW_KEYS);
    }
}
