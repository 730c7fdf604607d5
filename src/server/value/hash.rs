//! Hashes: field and value side by side in one blob, then a hash table. Fields may have a time to
//! live; the clock is an argument.
//!
//! # Fields that expire
//!
//! With the first TTL a listpack of pairs becomes one of triplets (`listpackex`): field, value, time;
//! 0 is none. It is kept sorted by time with the immortal ones last, so that what is due is always at
//! the front. A table keeps the times of its mortal fields in a second, smaller table.
//!
//! A field that is due is invisible at once and taken out later: by the next write to the hash or by
//! [`Hash::reap`]. Until then [`Hash::len`] counts it, as HLEN does in Redis.

use super::dict::Dict;
use super::limits::Limits;
use super::listpack::{Element, Listpack, Position};
use super::random::Random;
use super::siphash::HashSeed;

/// How the fields are stored.
#[derive(Clone, Debug)]
pub enum HashEncoding {
    /// Pairs in one blob, in the order of insertion.
    Listpack(Listpack),
    /// Triplets in one blob, those due first in front.
    ListpackEx(Listpack),
    /// A hash table, and when the mortal fields are due.
    Table(Box<HashTable>),
}

/// The two halves of a large hash.
#[derive(Clone, Debug)]
pub struct HashTable {
    /// Field to value.
    pub fields: Dict<Box<[u8]>, Box<[u8]>>,
    /// Field to milliseconds since 1970, mortal fields only.
    pub due: Dict<Box<[u8]>, i64>,
    /// Where the next reaping goes on among them.
    reap_cursor: u64,
}

/// A hash value.
#[derive(Clone, Debug)]
pub struct Hash {
    encoding: HashEncoding,
    seed: HashSeed,
}

impl Hash {
    /// Makes an empty hash.
    pub fn new(seed: HashSeed) -> Self {
        Self { encoding: HashEncoding::Listpack(Listpack::new()), seed }
    }

    /// Wraps an encoding that was read from a file, converted if it is over the limits.
    pub fn from_encoding(encoding: HashEncoding, seed: HashSeed, limits: &Limits) -> Self {
        let mut hash = Self { encoding, seed };
        let too_long = match &hash.encoding {
            HashEncoding::Listpack(pack) | HashEncoding::ListpackEx(pack) => {
                pack.iter().any(|e| e.text_len() > limits.hash_max_listpack_value)
            }
            HashEncoding::Table(_) => false,
        };
        if too_long || hash.len() > limits.hash_max_listpack_entries {
            hash.convert_to_table(hash.len());
        }
        hash
    }

    /// Returns how the fields are stored.
    pub fn inside(&self) -> &HashEncoding {
        &self.encoding
    }

    /// Returns what OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        match &self.encoding {
            HashEncoding::Listpack(_) => "listpack",
            HashEncoding::ListpackEx(_) => "listpackex",
            HashEncoding::Table(_) => "hashtable",
        }
    }

    /// Returns the number of fields, with those that are due and not yet taken out.
    pub fn len(&self) -> usize {
        match &self.encoding {
            HashEncoding::Listpack(pack) => pack.len() / 2,
            HashEncoding::ListpackEx(pack) => pack.len() / 3,
            HashEncoding::Table(table) => table.fields.len(),
        }
    }

    /// Tells whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Becomes a table if `texts` about to be stored are too many or too long for a blob.
    pub fn maybe_convert<T: AsRef<[u8]>>(&mut self, texts: &[T], limits: &Limits) {
        if matches!(self.encoding, HashEncoding::Table(_)) {
            return;
        }
        let fields = texts.len() / 2;
        let too_long = texts.iter().any(|text| text.as_ref().len() > limits.hash_max_listpack_value);
        if too_long || fields > limits.hash_max_listpack_entries {
            self.convert_to_table(fields.max(self.len()));
        }
    }

    /// Returns the value of a field that is not due.
    pub fn get(&self, field: &[u8], now_ms: i64) -> Option<Element<'_>> {
        match &self.encoding {
            HashEncoding::Table(table) => {
                let HashTable { fields, due, .. } = &**table;
                let value = fields.get(field)?;
                let dead = !due.is_empty() && due.get(field).is_some_and(|at| *at <= now_ms);
                (!dead).then_some(Element::Str(value))
            }
            HashEncoding::Listpack(pack) => {
                let at = pack.find(pack.first(), field, 1)?;
                Some(pack.get(pack.next(at)?))
            }
            HashEncoding::ListpackEx(pack) => {
                let at = pack.find(pack.first(), field, 2)?;
                let value = pack.next(at)?;
                let due = pack.get(pack.next(value)?).integer().unwrap_or(0);
                (due == 0 || due > now_ms).then(|| pack.get(value))
            }
        }
    }

    /// Sets a field, dropping its TTL; tells whether the field is new.
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        let new = self.put(field, value, limits);
        if !new {
            self.persist(field);
        }
        new
    }

    /// Sets a field and leaves its TTL alone; tells whether the field is new.
    pub fn set_keeping_ttl(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        self.put(field, value, limits)
    }

    /// Takes a field out; tells whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.encoding {
            HashEncoding::Table(table) => {
                let HashTable { fields, due, .. } = &mut **table;
                if !due.is_empty() {
                    due.remove(field);
                }
                fields.remove(field).is_some()
            }
            HashEncoding::Listpack(pack) => remove_group(pack, field, 2),
            HashEncoding::ListpackEx(pack) => remove_group(pack, field, 3),
        }
    }

    /// Walks fields and values, without those that are due.
    pub fn pairs(&self, now_ms: i64) -> Box<dyn Iterator<Item = (Element<'_>, Element<'_>)> + '_> {
        match &self.encoding {
            HashEncoding::Table(table) => Box::new(
                table
                    .fields
                    .iter()
                    .filter(move |(field, _)| !is_due(&table.due, field, now_ms))
                    .map(|(field, value)| (Element::Str(field), Element::Str(value))),
            ),
            HashEncoding::Listpack(pack) => {
                let mut elements = pack.iter();
                Box::new(std::iter::from_fn(move || Some((elements.next()?, elements.next()?))))
            }
            HashEncoding::ListpackEx(pack) => Box::new(
                triplets(pack)
                    .filter(move |(_, _, due)| *due == 0 || *due > now_ms)
                    .map(|(field, value, _)| (field, value)),
            ),
        }
    }

    /// Picks a field that is not due. Gives up after a while among due ones.
    pub fn random(&self, random: &mut Random, now_ms: i64) -> Option<(Element<'_>, Element<'_>)> {
        match &self.encoding {
            HashEncoding::Table(table) => {
                let HashTable { fields, due, .. } = &**table;
                let mut pick = || fields.random(random);
                let mut found = pick()?;
                for _ in 0..100 {
                    if !is_due(due, found.0, now_ms) {
                        return Some((Element::Str(found.0), Element::Str(found.1)));
                    }
                    found = pick()?;
                }
                self.pairs(now_ms).next()
            }
            HashEncoding::Listpack(_) | HashEncoding::ListpackEx(_) => {
                let live = self.pairs(now_ms).count();
                self.pairs(now_ms).nth(random.below(live))
            }
        }
    }

    /// Emits fields and values from `cursor` on and returns the next cursor. A blob is emitted whole.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        now_ms: i64,
        mut emit: impl FnMut(Element<'_>, Element<'_>),
    ) -> u64 {
        match &self.encoding {
            HashEncoding::Table(table) => {
                let HashTable { fields, due, .. } = &**table;
                fields.scan_some(cursor, count, |field, value| {
                    if !is_due(due, field, now_ms) {
                        emit(Element::Str(field), Element::Str(value));
                    }
                })
            }
            HashEncoding::Listpack(_) | HashEncoding::ListpackEx(_) => {
                self.pairs(now_ms).for_each(|(field, value)| emit(field, value));
                0
            }
        }
    }

    /// Returns when a field is due; `None` without such a field, `Some(None)` when it is immortal.
    pub fn due(&self, field: &[u8]) -> Option<Option<i64>> {
        match &self.encoding {
            HashEncoding::Table(table) => {
                let HashTable { fields, due, .. } = &**table;
                fields.get(field)?;
                Some(due.get(field).copied())
            }
            HashEncoding::Listpack(pack) => pack.find(pack.first(), field, 1).map(|_| None),
            HashEncoding::ListpackEx(pack) => {
                let value = pack.next(pack.find(pack.first(), field, 2)?)?;
                let due = pack.get(pack.next(value)?).integer().unwrap_or(0);
                Some((due != 0).then_some(due))
            }
        }
    }

    /// Lets a field be due at `at_ms`; tells whether the field is there.
    pub fn expire_at(&mut self, field: &[u8], at_ms: i64) -> bool {
        if let HashEncoding::Listpack(pack) = &self.encoding {
            if pack.find(pack.first(), field, 1).is_none() {
                return false;
            }
            self.encoding = HashEncoding::ListpackEx(with_times(pack));
        }
        match &mut self.encoding {
            HashEncoding::Table(table) => {
                let HashTable { fields, due, .. } = &mut **table;
                if !fields.contains(field) {
                    return false;
                }
                due.insert(field.into(), at_ms);
                true
            }
            HashEncoding::ListpackEx(pack) => move_group(pack, field, at_ms),
            HashEncoding::Listpack(_) => false,
        }
    }

    /// Makes a field immortal; tells whether it was mortal.
    pub fn persist(&mut self, field: &[u8]) -> bool {
        if !matches!(self.due(field), Some(Some(_))) {
            return false;
        }
        match &mut self.encoding {
            HashEncoding::Table(table) => table.due.remove(field).is_some(),
            HashEncoding::ListpackEx(pack) => move_group(pack, field, 0),
            HashEncoding::Listpack(_) => false,
        }
    }

    /// Tells whether any field is mortal.
    pub fn has_mortal_fields(&self) -> bool {
        match &self.encoding {
            HashEncoding::Table(table) => !table.due.is_empty(),
            HashEncoding::Listpack(_) => false,
            HashEncoding::ListpackEx(pack) => triplets(pack).next().is_some_and(|(_, _, due)| due != 0),
        }
    }

    /// Returns when the next field is due. O(mortal fields) for a table.
    pub fn next_due(&self) -> Option<i64> {
        match &self.encoding {
            HashEncoding::Table(table) => table.due.iter().map(|(_, at)| *at).min(),
            HashEncoding::Listpack(_) => None,
            HashEncoding::ListpackEx(pack) => {
                triplets(pack).next().map(|(_, _, due)| due).filter(|due| *due != 0)
            }
        }
    }

    /// Takes a field out if it is due; tells whether it was.
    pub fn drop_if_due(&mut self, field: &[u8], now_ms: i64) -> bool {
        self.has_mortal_fields()
            && matches!(self.due(field), Some(Some(at)) if at <= now_ms)
            && self.remove(field)
    }

    /// Takes out fields that are due, looking at about `limit` mortal ones from where the last call
    /// stopped; returns how many went.
    pub fn reap(&mut self, now_ms: i64, limit: usize) -> usize {
        match &mut self.encoding {
            HashEncoding::Table(table) => {
                let mut dead = Vec::new();
                table.reap_cursor = table.due.scan_some(table.reap_cursor, limit, |field, at| {
                    if *at <= now_ms {
                        dead.push(field.clone());
                    }
                });
                for field in &dead {
                    table.due.remove(field);
                    table.fields.remove(field);
                }
                dead.len()
            }
            HashEncoding::Listpack(_) => 0,
            HashEncoding::ListpackEx(pack) => {
                let dead =
                    triplets(pack).take_while(|(_, _, due)| *due != 0 && *due <= now_ms).take(limit).count();
                if let Some(first) = pack.first() {
                    pack.remove(first, dead * 3);
                }
                dead
            }
        }
    }

    fn put(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        let longest = field.len().max(value.len());
        let room = match &self.encoding {
            HashEncoding::Table(_) => true,
            HashEncoding::Listpack(pack) | HashEncoding::ListpackEx(pack) => {
                longest <= limits.hash_max_listpack_value && pack.has_room(field.len() + value.len())
            }
        };
        if !room {
            self.convert_to_table(self.len() + 1);
        }
        let new = match &mut self.encoding {
            HashEncoding::Table(table) => {
                return table.fields.insert_or_replace(field, value.into());
            }
            HashEncoding::Listpack(pack) => put_group(pack, field, value, 2),
            HashEncoding::ListpackEx(pack) => put_group(pack, field, value, 3),
        };
        if self.len() > limits.hash_max_listpack_entries {
            self.convert_to_table(self.len());
        }
        new
    }

    fn convert_to_table(&mut self, count: usize) {
        let mut fields = Dict::new(self.seed);
        fields.reserve(count);
        let mut due = Dict::new(self.seed);
        match &self.encoding {
            HashEncoding::Table(_) => return,
            HashEncoding::Listpack(_) => {
                for (field, value) in self.pairs(0) {
                    fields.insert(field.bytes().into(), value.bytes().into());
                }
            }
            HashEncoding::ListpackEx(pack) => {
                for (field, value, at) in triplets(pack) {
                    if at != 0 {
                        due.insert(field.bytes().into(), at);
                    }
                    fields.insert(field.bytes().into(), value.bytes().into());
                }
            }
        }
        self.encoding = HashEncoding::Table(Box::new(HashTable { fields, due, reap_cursor: 0 }));
    }
}

fn is_due(due: &Dict<Box<[u8]>, i64>, field: &[u8], now_ms: i64) -> bool {
    !due.is_empty() && due.get(field).is_some_and(|at| *at <= now_ms)
}

/// Walks field, value and time (0: none) of a `listpackex`.
pub fn triplets(pack: &Listpack) -> impl Iterator<Item = (Element<'_>, Element<'_>, i64)> {
    let mut elements = pack.iter();
    std::iter::from_fn(move || {
        Some((elements.next()?, elements.next()?, elements.next()?.integer().unwrap_or(0)))
    })
}

fn with_times(pairs: &Listpack) -> Listpack {
    let mut pack = Listpack::new();
    for (number, element) in pairs.iter().enumerate() {
        pack.push_back(&element.bytes());
        if number % 2 == 1 {
            pack.push_back_integer(0);
        }
    }
    pack
}

/// Replaces the value of `field`, or appends a group of 2 or 3 elements.
fn put_group(pack: &mut Listpack, field: &[u8], value: &[u8], size: usize) -> bool {
    let found = pack.find(pack.first(), field, size - 1).and_then(|at| pack.next(at));
    if let Some(at) = found {
        pack.replace(at, value);
        return false;
    }
    pack.push_back(field);
    pack.push_back(value);
    if size == 3 {
        pack.push_back_integer(0);
    }
    true
}

fn remove_group(pack: &mut Listpack, field: &[u8], size: usize) -> bool {
    let found = pack.find(pack.first(), field, size - 1);
    if let Some(at) = found {
        pack.remove(at, size);
    }
    found.is_some()
}

/// Gives `field` a new time and the place among the triplets that goes with it.
fn move_group(pack: &mut Listpack, field: &[u8], at_ms: i64) -> bool {
    let Some(at) = pack.find(pack.first(), field, 2) else {
        return false;
    };
    let Some(value) = pack.next(at).map(|at| pack.get(at).bytes().into_owned()) else {
        return false;
    };
    pack.remove(at, 3);
    let texts = [field, &value[..], &at_ms.to_string().into_bytes()[..]];
    match place_for(pack, at_ms) {
        // Inserted back to front, each before the one that follows it.
        Some(at) => texts.iter().rev().for_each(|text| pack.insert_before(at, text)),
        None => texts.iter().for_each(|text| pack.push_back(text)),
    }
    true
}

/// Finds the first triplet that is due later than `at_ms`, or `None` for the end.
fn place_for(pack: &Listpack, at_ms: i64) -> Option<Position> {
    if at_ms == 0 {
        return None;
    }
    let mut at = pack.first()?;
    loop {
        let time = pack.next(pack.next(at)?)?;
        let due = pack.get(time).integer().unwrap_or(0);
        if due == 0 || due > at_ms {
            return Some(at);
        }
        at = pack.next(time)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(fields: usize) -> Hash {
        let mut hash = Hash::new(HashSeed::default());
        for n in 0..fields {
            assert!(hash.set(format!("f{n}").as_bytes(), b"v", &Limits::default()));
        }
        hash
    }

    fn text(element: Option<Element<'_>>) -> Option<String> {
        element.map(|e| String::from_utf8_lossy(&e.bytes()).into_owned())
    }

    #[test]
    fn thresholds_are_met_exactly() {
        let limits = Limits::default();
        let mut small = hash(512);
        assert_eq!(small.encoding(), "listpack");
        small.set(b"f0", &[b'x'; 64], &limits);
        assert_eq!(small.encoding(), "listpack");
        small.set(b"f0", &[b'x'; 65], &limits);
        assert_eq!((small.encoding(), small.len()), ("hashtable", 512));
        assert_eq!(hash(513).encoding(), "hashtable");
    }

    #[test]
    fn a_ttl_makes_triplets_sorted_by_time() {
        let limits = Limits::default();
        let mut hash = hash(4);
        assert!(hash.expire_at(b"f2", 2000) && hash.expire_at(b"f3", 1000) && !hash.expire_at(b"no", 1));
        assert_eq!(hash.encoding(), "listpackex");
        let order: Vec<_> = hash.pairs(0).filter_map(|(field, _)| text(Some(field))).collect();
        assert_eq!(order, ["f3", "f2", "f0", "f1"]);
        assert_eq!(hash.due(b"f3"), Some(Some(1000)));
        assert_eq!(hash.due(b"f0"), Some(None));
        assert_eq!(hash.due(b"no"), None);
        hash.set(b"f3", b"again", &limits);
        assert_eq!(hash.due(b"f3"), Some(None), "HSET drops the TTL");
        hash.set_keeping_ttl(b"f2", b"7", &limits);
        assert_eq!(hash.due(b"f2"), Some(Some(2000)));
    }

    #[test]
    fn what_is_due_is_invisible_before_it_is_reaped() {
        for mut hash in [hash(3), hash(600)] {
            let len = hash.len();
            hash.expire_at(b"f1", 1000);
            assert_eq!(text(hash.get(b"f1", 999)), Some("v".to_owned()));
            assert_eq!(hash.get(b"f1", 1000), None);
            assert_eq!(hash.pairs(1000).count(), len - 1);
            let mut seen = 0;
            let mut cursor = hash.scan(0, 10, 1000, |_, _| seen += 1);
            while cursor != 0 {
                cursor = hash.scan(cursor, 10, 1000, |_, _| seen += 1);
            }
            assert!(seen >= len - 1);
            assert_eq!(hash.len(), len);
            assert_eq!(hash.next_due(), Some(1000));
            assert_eq!(hash.reap(1000, 10), 1);
            assert_eq!(hash.len(), len - 1);
            assert!(!hash.has_mortal_fields());
        }
    }

    #[test]
    fn growing_into_a_table_keeps_the_times() {
        let mut hash = hash(10);
        hash.expire_at(b"f5", 50);
        hash.set(b"big", &[b'x'; 100], &Limits::default());
        assert_eq!(hash.encoding(), "hashtable");
        assert_eq!(hash.due(b"f5"), Some(Some(50)));
        assert!(hash.persist(b"f5") && !hash.persist(b"f5"));
        assert!(hash.remove(b"f5") && !hash.remove(b"f5"));
        assert_eq!(hash.len(), 10);
    }
}
