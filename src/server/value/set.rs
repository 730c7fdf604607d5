//! Sets: sorted integers in one blob, then any members in one blob, then a hash table.

use super::dict::Dict;
use super::intset::Intset;
use super::limits::Limits;
use super::listpack::{Element, Listpack};
use super::random::Random;
use super::siphash::HashSeed;
use super::string::decimal_digits;
use crate::server::number::parse_integer;

/// No intset is larger, whatever the configuration says.
const INTSET_CEILING: usize = 1 << 30;

/// The hash table of a set.
pub type SetTable = Dict<Box<[u8]>, ()>;

/// How the members are stored.
#[derive(Clone, Debug)]
pub enum SetEncoding {
    /// Only integers, sorted.
    Intset(Intset),
    /// Anything small, in the order of insertion.
    Listpack(Listpack),
    /// A hash table.
    Table(Box<SetTable>),
}

/// A set value.
#[derive(Clone, Debug)]
pub struct Set {
    encoding: SetEncoding,
    seed: HashSeed,
}

impl Set {
    /// Makes an empty set fit for `first` and about `count` members.
    pub fn new(first: &[u8], count: usize, seed: HashSeed, limits: &Limits) -> Self {
        let encoding = if parse_integer(first).is_some() && count <= max_intset(limits) {
            SetEncoding::Intset(Intset::new())
        } else if count <= limits.set_max_listpack_entries {
            SetEncoding::Listpack(Listpack::new())
        } else {
            let mut table = Dict::new(seed);
            table.reserve(count);
            SetEncoding::Table(Box::new(table))
        };
        Self { encoding, seed }
    }

    /// Makes an empty intset, which anything can grow out of.
    pub fn empty(seed: HashSeed) -> Self {
        Self { encoding: SetEncoding::Intset(Intset::new()), seed }
    }

    /// Wraps an encoding that was read from a file, converted if it is over the limits.
    pub fn from_encoding(encoding: SetEncoding, seed: HashSeed, limits: &Limits) -> Self {
        let mut set = Self { encoding, seed };
        let over = match &set.encoding {
            SetEncoding::Intset(ints) => ints.len() > max_intset(limits),
            SetEncoding::Listpack(pack) => {
                pack.len() > limits.set_max_listpack_entries
                    || pack.iter().any(|e| e.text_len() > limits.set_max_listpack_value)
            }
            SetEncoding::Table(_) => false,
        };
        if over {
            set.convert_to_table(set.len());
        }
        set
    }

    /// Returns how the members are stored.
    pub fn inside(&self) -> &SetEncoding {
        &self.encoding
    }

    /// Returns what OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        match &self.encoding {
            SetEncoding::Intset(_) => "intset",
            SetEncoding::Listpack(_) => "listpack",
            SetEncoding::Table(_) => "hashtable",
        }
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        match &self.encoding {
            SetEncoding::Intset(ints) => ints.len(),
            SetEncoding::Listpack(pack) => pack.len(),
            SetEncoding::Table(table) => table.len(),
        }
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Becomes a table if `count` members about to be added are past the limits of a blob anyway.
    pub fn maybe_convert(&mut self, count: usize, limits: &Limits) {
        let over = match &self.encoding {
            SetEncoding::Intset(_) => count > max_intset(limits),
            SetEncoding::Listpack(_) => count > limits.set_max_listpack_entries,
            SetEncoding::Table(_) => false,
        };
        if over {
            self.convert_to_table(count);
        }
    }

    /// Adds a member; tells whether it is new.
    pub fn add(&mut self, member: &[u8], limits: &Limits) -> bool {
        match &mut self.encoding {
            SetEncoding::Table(table) => {
                return table.insert_if_absent(member, || member.into(), ());
            }
            SetEncoding::Listpack(pack) => {
                if pack.find(pack.first(), member, 0).is_some() {
                    return false;
                }
                if pack.len() < limits.set_max_listpack_entries
                    && member.len() <= limits.set_max_listpack_value
                    && pack.has_room(member.len())
                {
                    pack.push_back(member);
                    return true;
                }
                self.convert_to_table(self.len() + 1);
            }
            SetEncoding::Intset(ints) => match parse_integer(member) {
                Some(value) => {
                    let new = ints.insert(value);
                    if ints.len() > max_intset(limits) {
                        self.convert_to_table(self.len() + 1);
                    }
                    return new;
                }
                None => self.outgrow_intset(member, limits),
            },
        }
        match &mut self.encoding {
            SetEncoding::Listpack(pack) => pack.push_back(member),
            SetEncoding::Table(table) => {
                table.insert(member.into(), ());
            }
            SetEncoding::Intset(_) => unreachable!("the intset was left for a wider encoding"),
        }
        true
    }

    /// Takes a member out; tells whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.encoding {
            SetEncoding::Table(table) => table.remove(member).is_some(),
            SetEncoding::Intset(ints) => parse_integer(member).is_some_and(|value| ints.remove(value)),
            SetEncoding::Listpack(pack) => {
                let found = pack.find(pack.first(), member, 0);
                if let Some(at) = found {
                    pack.remove(at, 1);
                }
                found.is_some()
            }
        }
    }

    /// Tells whether `member` is there.
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.encoding {
            SetEncoding::Table(table) => table.contains(member),
            SetEncoding::Intset(ints) => parse_integer(member).is_some_and(|value| ints.contains(value)),
            SetEncoding::Listpack(pack) => pack.find(pack.first(), member, 0).is_some(),
        }
    }

    /// Walks the members in the order they are stored.
    pub fn members(&self) -> Box<dyn Iterator<Item = Element<'_>> + '_> {
        match &self.encoding {
            SetEncoding::Intset(ints) => Box::new(ints.iter().map(Element::Int)),
            SetEncoding::Listpack(pack) => Box::new(pack.iter()),
            SetEncoding::Table(table) => Box::new(table.iter().map(|(member, ())| Element::Str(member))),
        }
    }

    /// Picks a member.
    pub fn random(&self, random: &mut Random) -> Option<Element<'_>> {
        match &self.encoding {
            SetEncoding::Table(table) => table.random(random).map(|(member, ())| Element::Str(member)),
            SetEncoding::Intset(ints) if ints.is_empty() => None,
            SetEncoding::Intset(ints) => Some(Element::Int(ints.at(random.below(ints.len())))),
            SetEncoding::Listpack(pack) => Some(pack.get(pack.seek(random.below(pack.len()))?)),
        }
    }

    /// Takes out a random member.
    pub fn pop_random(&mut self, random: &mut Random) -> Option<Vec<u8>> {
        let member = self.random(random)?.bytes().into_owned();
        self.remove(&member);
        Some(member)
    }

    /// Emits members from `cursor` on and returns the next cursor. A blob is emitted whole.
    pub fn scan(&self, cursor: u64, count: usize, mut emit: impl FnMut(Element<'_>)) -> u64 {
        match &self.encoding {
            SetEncoding::Table(table) => {
                table.scan_some(cursor, count, |member, ()| emit(Element::Str(member)))
            }
            SetEncoding::Intset(_) | SetEncoding::Listpack(_) => {
                self.members().for_each(emit);
                0
            }
        }
    }

    fn outgrow_intset(&mut self, member: &[u8], limits: &Limits) {
        let SetEncoding::Intset(ints) = &self.encoding else {
            return;
        };
        // The longest text is that of the smallest or the largest integer.
        let ends = [ints.iter().next(), ints.iter().next_back()];
        let longest = ends.into_iter().flatten().map(decimal_digits).max().unwrap_or(0);
        if ints.len() < limits.set_max_listpack_entries
            && member.len().max(longest) <= limits.set_max_listpack_value
        {
            let mut pack = Listpack::new();
            for value in ints.iter() {
                pack.push_back_integer(value);
            }
            self.encoding = SetEncoding::Listpack(pack);
        } else {
            self.convert_to_table(self.len() + 1);
        }
    }

    fn convert_to_table(&mut self, count: usize) {
        let mut table = Dict::new(self.seed);
        table.reserve(count.max(self.len()));
        for member in self.members() {
            table.insert(member.bytes().into(), ());
        }
        self.encoding = SetEncoding::Table(Box::new(table));
    }
}

fn max_intset(limits: &Limits) -> usize {
    limits.set_max_intset_entries.min(INTSET_CEILING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[&str]) -> Set {
        let mut set = Set::new(members[0].as_bytes(), 1, HashSeed::default(), &Limits::default());
        for member in members {
            set.add(member.as_bytes(), &Limits::default());
        }
        set
    }

    #[test]
    fn encodings_follow_the_members() {
        assert_eq!(set(&["1", "2"]).encoding(), "intset");
        assert_eq!(set(&["1", "a"]).encoding(), "listpack");
        assert_eq!(set(&["a", "1"]).encoding(), "listpack");
        assert_eq!(set(&["1", &"x".repeat(65)]).encoding(), "hashtable");
        assert_eq!(set(&["a", &"x".repeat(64)]).encoding(), "listpack");
        assert_eq!(set(&["1", "01"]).encoding(), "listpack");
    }

    #[test]
    fn thresholds_are_met_exactly() {
        let limits = Limits::default();
        let mut ints = Set::new(b"0", 1, HashSeed::default(), &limits);
        for n in 0..512 {
            ints.add(n.to_string().as_bytes(), &limits);
        }
        assert_eq!(ints.encoding(), "intset");
        ints.add(b"512", &limits);
        assert_eq!((ints.encoding(), ints.len()), ("hashtable", 513));

        let mut words = Set::new(b"w", 1, HashSeed::default(), &limits);
        for n in 0..128 {
            words.add(format!("w{n}").as_bytes(), &limits);
        }
        assert_eq!(words.encoding(), "listpack");
        assert!(!words.add(b"w5", &limits));
        assert_eq!(words.encoding(), "listpack");
        assert!(words.add(b"w128", &limits));
        assert_eq!((words.encoding(), words.len()), ("hashtable", 129));
    }

    #[test]
    fn all_encodings_answer_alike() {
        for mut set in
            [set(&["1", "2", "3"]), set(&["1", "2", "3", "x"]), set(&["1", "2", "3", &"x".repeat(70)])]
        {
            let len = set.len();
            assert!(set.contains(b"2") && !set.contains(b"4") && !set.contains(b"02"));
            assert!(set.remove(b"2") && !set.remove(b"2"));
            assert_eq!(set.members().count(), len - 1);
            let mut seen = 0;
            assert_eq!(set.scan(0, 100, |_| seen += 1), 0);
            assert_eq!(seen, len - 1);
            let mut random = Random::new(1);
            while let Some(member) = set.pop_random(&mut random) {
                assert!(!set.contains(&member));
            }
            assert!(set.is_empty());
        }
    }
}
