//! The hash table under the keyspace, sets, hashes and sorted sets. Owns entries and their order in
//! memory; knows nothing of types, expiry or the wire, and never reads a clock.
//!
//! # Two tables
//!
//! A table of a million buckets cannot be rebuilt inside one command: that would be the very stall
//! this program is about. So a resize only allocates the second table, and from then on every
//! access moves one bucket across, front to back. Until the old table is empty both are alive:
//! lookups try both, inserts go to the new one. Nobody waits for more than one bucket (and at most
//! ten empty ones that are skipped on the way).
//!
//! # The cursor
//!
//! SCAN is stateless: all there is between two calls is a number in the client's hand, while the
//! table may double, halve, or be half-way between. The promise is that whatever stays in the
//! table from start to end is returned at least once. It rests on two facts:
//!
//! - Sizes are powers of two and a bucket is the low bits of the hash. When a table doubles, bucket
//!   `b` of `2^n` splits into `b` and `b + 2^n`: same low bits, one more on top.
//! - The cursor counts *from the top bit down*: reverse the bits, add one, reverse back. So what a
//!   cursor has finished with is a set of low-bit patterns. Those read the same in a table of any
//!   size: split, they are finished in both halves; merged, both halves were finished or the merged
//!   bucket is still ahead.
//!
//! With 8 buckets the order is 0 4 2 6 1 5 3 7. Had the table 4 buckets, it would be 0 2 1 3: the
//! same walk, each step standing for two. While rehashing, one step emits a bucket of the smaller
//! table and all buckets of the larger one that it splits into.
//!
//! The price: an entry may be returned twice (after a shrink, the merged bucket has a half we have
//! seen), and a step costs `large / small` buckets when a table shrinks by a lot.
//!
//! # The cost of dropping
//!
//! Each entry is a heap node of its own, plus one allocation for the key, as in Redis. Dropping a
//! table of a million entries is two million frees with cold caches in between, in whatever thread
//! drops it. That is deliberate: it is what UNLINK exists for.

use super::random::Random;
use super::siphash::HashSeed;

/// The smallest table there is; an empty dict has none.
const INITIAL_BUCKETS: usize = 4;
/// A table is shrunk when less than this part of its buckets is filled.
const MIN_FILL_PERCENT: usize = 10;
/// Empty buckets that one rehash step may skip before it gives up, so that a sparse table cannot
/// turn a step into a walk.
const EMPTY_VISITS: usize = 10;

type Bucket<K, V> = Option<Box<Entry<K, V>>>;

#[derive(Clone, Debug)]
struct Entry<K, V> {
    next: Bucket<K, V>,
    key: K,
    value: V,
}

#[derive(Clone, Debug)]
struct Table<K, V> {
    buckets: Vec<Bucket<K, V>>,
    used: usize,
}

/// A hash table from byte strings to `V`, resized a bucket at a time.
#[derive(Clone, Debug)]
pub struct Dict<K, V> {
    /// The table in use, and while rehashing the one being filled.
    tables: [Table<K, V>; 2],
    /// The next bucket of `tables[0]` to move; all before it are empty.
    rehash_at: Option<usize>,
    seed: HashSeed,
}

impl<K, V> Table<K, V> {
    const fn empty() -> Self {
        Self { buckets: Vec::new(), used: 0 }
    }

    #[allow(clippy::cast_possible_truncation, reason = "masked to the table size on the same line")]
    fn slot(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn push(&mut self, hash: u64, mut entry: Box<Entry<K, V>>) {
        let slot = self.slot(hash);
        entry.next = self.buckets[slot].take();
        self.buckets[slot] = Some(entry);
        self.used += 1;
    }
}

impl<K: Clone, V: Clone> Table<K, V> {
    fn with_buckets(count: usize) -> Self {
        // `vec![None; n]` of a nullable pointer is calloc: the kernel hands out zero pages as they
        // are touched, so a new table of 16 MB costs nothing now. (This is why `Clone` is asked for.)
        Self { buckets: vec![None; count], used: 0 }
    }
}

impl<K, V> Dict<K, V> {
    /// Makes an empty dict; it allocates nothing until the first insert.
    pub const fn new(seed: HashSeed) -> Self {
        Self { tables: [Table::empty(), Table::empty()], rehash_at: None, seed }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.tables[0].used + self.tables[1].used
    }

    /// Tells whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of buckets, those of both tables while rehashing.
    pub fn buckets(&self) -> usize {
        self.tables[0].buckets.len() + self.tables[1].buckets.len()
    }

    /// Returns the bucket counts of the two tables; the second is 0 unless rehashing.
    pub fn table_sizes(&self) -> (usize, usize) {
        (self.tables[0].buckets.len(), self.tables[1].buckets.len())
    }

    /// Tells whether a resize is under way.
    pub fn is_rehashing(&self) -> bool {
        self.rehash_at.is_some()
    }

    /// Returns the seed of this dict.
    pub fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Returns the bytes in the bucket arrays and the entry nodes, without what keys and values own.
    pub fn table_bytes(&self) -> usize {
        self.buckets() * size_of::<Bucket<K, V>>() + self.len() * size_of::<Entry<K, V>>()
    }

    /// Returns the entries in bucket order, the table in use first.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter { tables: [&self.tables[0].buckets, &self.tables[1].buckets], table: 0, slot: 0, entry: None }
    }

    /// Picks an entry: a random bucket that is not empty, then a random entry of its chain. Not
    /// quite uniform, as in Redis: a lonely entry is likelier than one of a long chain.
    pub fn random(&self, random: &mut Random) -> Option<(&K, &V)> {
        if self.is_empty() {
            return None;
        }
        let skip = self.rehash_at.unwrap_or(0);
        let old = self.tables[0].buckets.len();
        loop {
            // The first `skip` buckets of the old table are known to be empty.
            let at = skip + random.below(self.buckets() - skip);
            let head = if at < old { &self.tables[0].buckets[at] } else { &self.tables[1].buckets[at - old] };
            if head.is_some() {
                let length = chain(head).count();
                return chain(head).nth(random.below(length)).map(|entry| (&entry.key, &entry.value));
            }
        }
    }

    /// Visits a run of neighbouring buckets from a random start until `count` entries were seen or
    /// ten times as many buckets walked. Cheap and a little correlated: for sampling, not for
    /// fairness.
    pub fn sample(&self, count: usize, random: &mut Random) -> Vec<(&K, &V)> {
        let wanted = count.min(self.len());
        let mut found = Vec::with_capacity(wanted);
        if wanted == 0 {
            return found;
        }
        let (old, total) = (self.tables[0].buckets.len(), self.buckets());
        let mut at = random.below(total);
        for _ in 0..total.min(count.saturating_mul(10)) {
            let head = if at < old { &self.tables[0].buckets[at] } else { &self.tables[1].buckets[at - old] };
            for entry in chain(head) {
                found.push((&entry.key, &entry.value));
                if found.len() == wanted {
                    return found;
                }
            }
            at = (at + 1) % total;
        }
        found
    }

    /// Emits the bucket under `cursor` and returns the next cursor, 0 at the end. See the module's
    /// essay for the promise. Any cursor is valid: what a client made up is masked to the table.
    #[allow(clippy::cast_possible_truncation, reason = "masked to the table size on the same line")]
    pub fn scan(&self, cursor: u64, mut emit: impl FnMut(&K, &V)) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let mut emit_bucket = |table: &Table<K, V>, cursor: u64, mask: u64| {
            for entry in chain(&table.buckets[(cursor & mask) as usize]) {
                emit(&entry.key, &entry.value);
            }
        };
        let [old, new] = &self.tables;
        if !self.is_rehashing() {
            let mask = old.buckets.len() as u64 - 1;
            emit_bucket(old, cursor, mask);
            return advance(cursor, mask);
        }
        let (small, large) = if old.buckets.len() <= new.buckets.len() { (old, new) } else { (new, old) };
        let (small_mask, large_mask) = (small.buckets.len() as u64 - 1, large.buckets.len() as u64 - 1);
        emit_bucket(small, cursor, small_mask);
        let mut cursor = cursor;
        loop {
            emit_bucket(large, cursor, large_mask);
            cursor = advance(cursor, large_mask);
            // All expansions are done when the bits that only the large table uses wrapped to 0.
            if cursor & (small_mask ^ large_mask) == 0 {
                return cursor;
            }
        }
    }
}

impl<K, V> Dict<K, V> {
    /// Scans until `count` entries were emitted, ten times as many buckets walked, or the end
    /// reached. The second bound keeps a sparse table from turning one call into a stall.
    pub fn scan_some(&self, mut cursor: u64, count: usize, mut emit: impl FnMut(&K, &V)) -> u64 {
        let mut emitted = 0;
        for _ in 0..count.saturating_mul(10) {
            cursor = self.scan(cursor, |key, value| {
                emitted += 1;
                emit(key, value);
            });
            if cursor == 0 || emitted >= count {
                break;
            }
        }
        cursor
    }
}

impl<K: AsRef<[u8]>, V> Dict<K, V> {
    /// Returns the value under `key`. Moves no bucket; [`Dict::get_mut`] does.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        self.get_entry(key).map(|(_, value)| value)
    }

    /// Returns the stored key and its value.
    pub fn get_entry(&self, key: &[u8]) -> Option<(&K, &V)> {
        let hash = self.seed.hash(key);
        self.tables
            .iter()
            .filter(|table| table.used > 0)
            .flat_map(|table| chain(&table.buckets[table.slot(hash)]))
            .find(|entry| entry.key.as_ref() == key)
            .map(|entry| (&entry.key, &entry.value))
    }

    /// Tells whether `key` is there.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// Returns the value under `key` for changing, and moves the resize on by one bucket.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.rehash_step();
        let hash = self.seed.hash(key);
        self.find_mut(hash, key)
    }

    fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut V> {
        for table in self.tables.iter_mut().filter(|table| table.used > 0) {
            let slot = table.slot(hash);
            let mut next = table.buckets[slot].as_deref_mut();
            while let Some(entry) = next {
                if entry.key.as_ref() == key {
                    return Some(&mut entry.value);
                }
                next = entry.next.as_deref_mut();
            }
        }
        None
    }

    /// Moves the next filled bucket to the new table, if a resize is under way.
    pub fn rehash_step(&mut self) {
        if self.is_rehashing() {
            self.rehash_buckets(1);
        }
    }

    /// Moves buckets, a hundred between two questions, for as long as `go_on` says so. Returns
    /// whether there is more to move. The caller owns the clock.
    pub fn rehash_while(&mut self, mut go_on: impl FnMut() -> bool) -> bool {
        while self.is_rehashing() {
            self.rehash_buckets(100);
            if !go_on() {
                break;
            }
        }
        self.is_rehashing()
    }

    fn rehash_buckets(&mut self, count: usize) {
        let Some(mut at) = self.rehash_at else { return };
        let mut skips = count * EMPTY_VISITS;
        let [old, new] = &mut self.tables;
        for _ in 0..count {
            if old.used == 0 {
                break;
            }
            while old.buckets[at].is_none() {
                at += 1;
                skips -= 1;
                if skips == 0 {
                    self.rehash_at = Some(at);
                    return;
                }
            }
            let mut next = old.buckets[at].take();
            while let Some(mut entry) = next {
                next = entry.next.take();
                old.used -= 1;
                new.push(self.seed.hash(entry.key.as_ref()), entry);
            }
            at += 1;
        }
        self.rehash_at = if old.used == 0 {
            // The old array is freed here, inline, as Redis does.
            *old = std::mem::replace(new, Table::empty());
            None
        } else {
            Some(at)
        };
    }
}

impl<K: AsRef<[u8]> + Clone, V: Clone> Dict<K, V> {
    /// Puts `value` under `key` and returns the value that was there. An existing key object stays.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.rehash_step();
        let hash = self.seed.hash(key.as_ref());
        if let Some(old) = self.find_mut(hash, key.as_ref()) {
            return Some(std::mem::replace(old, value));
        }
        self.insert_new(hash, key, value);
        None
    }

    /// Puts `value` under `key`, replacing what was there; tells whether the key is new. Unlike
    /// [`Dict::insert`] it makes a key object only when it needs one.
    pub fn insert_or_replace(&mut self, key: &[u8], value: V) -> bool
    where
        K: for<'a> From<&'a [u8]>,
    {
        self.rehash_step();
        let hash = self.seed.hash(key);
        if let Some(old) = self.find_mut(hash, key) {
            *old = value;
            return false;
        }
        self.insert_new(hash, K::from(key), value);
        true
    }

    /// Puts `value` under `key` unless the key is there; tells whether it did. `make_key` runs only
    /// when needed, so that a hit allocates nothing.
    pub fn insert_if_absent(&mut self, key: &[u8], make_key: impl FnOnce() -> K, value: V) -> bool {
        self.rehash_step();
        let hash = self.seed.hash(key);
        if self.find_mut(hash, key).is_some() {
            return false;
        }
        self.insert_new(hash, make_key(), value);
        true
    }

    /// Takes the entry under `key` out. Starts a shrink when the table has become sparse.
    pub fn remove(&mut self, key: &[u8]) -> Option<(K, V)> {
        self.rehash_step();
        let hash = self.seed.hash(key);
        let entry = self
            .tables
            .iter_mut()
            .filter(|table| table.used > 0)
            .find_map(|table| table.unlink(hash, key))?;
        self.shrink_if_sparse();
        Some((entry.key, entry.value))
    }

    /// Makes room for `count` entries at once, so that a load does not rehash on the way. Does
    /// nothing while a resize is under way or when there is room.
    pub fn reserve(&mut self, count: usize) {
        if !self.is_rehashing() && count > self.tables[0].buckets.len() {
            self.resize(count);
        }
    }

    /// Starts a shrink when fewer than one bucket in ten would be filled.
    pub fn shrink_if_sparse(&mut self) {
        let size = self.tables[0].buckets.len();
        if !self.is_rehashing() && size > INITIAL_BUCKETS && self.len() * 100 < size * MIN_FILL_PERCENT {
            self.resize(self.len());
        }
    }

    fn insert_new(&mut self, hash: u64, key: K, value: V) {
        let used = self.len();
        if !self.is_rehashing() && used >= self.tables[0].buckets.len() {
            self.resize(used + 1);
        }
        let target = usize::from(self.is_rehashing());
        self.tables[target].push(hash, Box::new(Entry { next: None, key, value }));
    }

    fn resize(&mut self, count: usize) {
        let size = count.max(INITIAL_BUCKETS).next_power_of_two();
        if size == self.tables[0].buckets.len() {
            return;
        }
        let table = Table::with_buckets(size);
        if self.tables[0].used == 0 {
            self.tables[0] = table;
        } else {
            self.tables[1] = table;
            self.rehash_at = Some(0);
        }
    }
}

impl<K: AsRef<[u8]>, V> Table<K, V> {
    fn unlink(&mut self, hash: u64, key: &[u8]) -> Option<Box<Entry<K, V>>> {
        let slot = self.slot(hash);
        let mut link = &mut self.buckets[slot];
        while link.as_ref()?.key.as_ref() != key {
            link = &mut link.as_mut()?.next;
        }
        let mut entry = link.take()?;
        *link = entry.next.take();
        self.used -= 1;
        Some(entry)
    }
}

/// The entries of a [`Dict`], bucket by bucket.
#[derive(Debug)]
pub struct Iter<'a, K, V> {
    tables: [&'a [Bucket<K, V>]; 2],
    table: usize,
    slot: usize,
    entry: Option<&'a Entry<K, V>>,
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while self.entry.is_none() {
            let buckets = self.tables.get(self.table)?;
            if let Some(bucket) = buckets.get(self.slot) {
                self.slot += 1;
                self.entry = bucket.as_deref();
            } else {
                self.table += 1;
                self.slot = 0;
            }
        }
        let entry = self.entry?;
        self.entry = entry.next.as_deref();
        Some((&entry.key, &entry.value))
    }
}

impl<'a, K, V> IntoIterator for &'a Dict<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

fn chain<K, V>(head: &Bucket<K, V>) -> impl Iterator<Item = &Entry<K, V>> {
    std::iter::successors(head.as_deref(), |entry| entry.next.as_deref())
}

/// Adds one to the bits of `cursor` under `mask`, counting from the top.
fn advance(cursor: u64, mask: u64) -> u64 {
    // With the bits above the mask set, the carry out of the reversed low end falls into our top bit.
    (cursor | !mask).reverse_bits().wrapping_add(1).reverse_bits()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    type Numbers = Dict<Box<[u8]>, u32>;

    fn key(n: u32) -> Box<[u8]> {
        n.to_string().into_bytes().into()
    }

    fn filled(count: u32) -> Numbers {
        let mut dict = Dict::new(HashSeed::new(7, 11));
        for n in 0..count {
            assert_eq!(dict.insert(key(n), n), None);
        }
        dict
    }

    #[test]
    fn what_goes_in_is_found_through_growth() {
        let mut dict = filled(10_000);
        assert_eq!(dict.len(), 10_000);
        for n in 0..10_000 {
            assert_eq!(dict.get(&key(n)), Some(&n));
            assert_eq!(dict.get_mut(&key(n)), Some(&mut { n }));
        }
        assert_eq!(dict.get(b"10000"), None);
        assert_eq!(dict.insert(key(5), 50), Some(5));
        assert_eq!(dict.iter().count(), 10_000);
    }

    #[test]
    fn a_resize_is_spread_over_accesses() {
        let mut dict = filled(1024);
        dict.rehash_while(|| true);
        assert_eq!(dict.table_sizes(), (1024, 0));
        dict.insert(key(1024), 0);
        assert_eq!(dict.table_sizes(), (1024, 2048));
        let mut accesses = 0;
        while dict.is_rehashing() {
            dict.get_mut(b"none");
            accesses += 1;
        }
        assert!(accesses > 500, "the table moved in {accesses} accesses");
        assert_eq!(dict.table_sizes(), (2048, 0));
    }

    #[test]
    fn it_shrinks_under_a_tenth() {
        let mut dict = filled(4096);
        dict.rehash_while(|| true);
        for n in 0..3687 {
            assert_eq!(dict.remove(&key(n)), Some((key(n), n)));
        }
        assert!(dict.is_rehashing(), "409 of 4096 is under a tenth");
        dict.rehash_while(|| true);
        assert_eq!(dict.table_sizes(), (512, 0));
        assert_eq!(dict.remove(b"0"), None);
        assert_eq!(dict.len(), 409);
    }

    #[test]
    fn an_emptied_dict_can_be_used_again() {
        let mut dict = filled(100);
        for n in 0..100 {
            dict.remove(&key(n));
        }
        assert!(dict.is_empty());
        assert_eq!(dict.scan(0, |_, _| panic!("nothing to emit")), 0);
        assert_eq!(dict.random(&mut Random::new(1)), None);
        dict.insert(key(1), 1);
        assert_eq!(dict.get(b"1"), Some(&1));
    }

    #[test]
    fn the_cursor_counts_from_the_top_bit() {
        let mut order = vec![0];
        while advance(order[order.len() - 1], 7) != 0 {
            order.push(advance(order[order.len() - 1], 7));
        }
        assert_eq!(order, [0, 4, 2, 6, 1, 5, 3, 7]);
    }

    #[test]
    fn random_reaches_every_entry() {
        let dict = filled(50);
        let mut random = Random::new(3);
        let seen: HashSet<u32> =
            (0..5000).filter_map(|_| dict.random(&mut random)).map(|(_, n)| *n).collect();
        assert_eq!(seen.len(), 50);
        assert_eq!(dict.sample(10, &mut random).len(), 10);
    }

    proptest! {
        /// SCAN's guarantee: what is there from start to end is returned, whatever happens between.
        #[test]
        fn scan_returns_whatever_stays(
            stay in 1u32..300,
            steps in prop::collection::vec((0u8..4, 1u32..800), 0..40),
        ) {
            let mut dict = filled(stay);
            let (mut low, mut high) = (stay, stay);
            let mut seen = HashSet::new();
            let mut cursor = 0;
            let mut steps = steps.into_iter();
            loop {
                cursor = dict.scan(cursor, |_, n| { seen.insert(*n); });
                if cursor == 0 {
                    break;
                }
                match steps.next() {
                    Some((0 | 1, count)) => for _ in 0..count {
                        dict.insert(key(high), high);
                        high += 1;
                    },
                    Some((2, count)) => for _ in 0..count.saturating_mul(3) {
                        if low < high {
                            dict.remove(&key(low));
                            low += 1;
                        }
                    },
                    Some(_) => { dict.rehash_while(|| true); },
                    None => {}
                }
            }
            for n in 0..stay {
                prop_assert!(seen.contains(&n), "{n} was there all the time and never returned");
            }
        }

        #[test]
        fn it_agrees_with_std(ops in prop::collection::vec((any::<bool>(), 0u32..200), 0..600)) {
            let mut dict = Numbers::new(HashSeed::default());
            let mut model = std::collections::HashMap::new();
            for (at, (insert, n)) in ops.into_iter().enumerate() {
                let at = u32::try_from(at).unwrap_or(0);
                if insert {
                    prop_assert_eq!(dict.insert(key(n), at), model.insert(n, at));
                } else {
                    prop_assert_eq!(dict.remove(&key(n)).map(|(_, v)| v), model.remove(&n));
                }
                prop_assert_eq!(dict.len(), model.len());
            }
            prop_assert_eq!(dict.iter().count(), model.len());
        }
    }
}
