//! Sets of cluster slots.

use std::fmt;

use super::slot::SLOTS;

const WORDS: usize = SLOTS as usize / 64;

/// A set of cluster slots: two kilobytes, whatever is in it.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet {
    words: Box<[u64; WORDS]>,
}

impl Default for SlotSet {
    fn default() -> Self {
        Self { words: Box::new([0; WORDS]) }
    }
}

impl SlotSet {
    /// Returns all 16384 slots.
    pub fn all() -> Self {
        Self { words: Box::new([u64::MAX; WORDS]) }
    }

    /// Adds a slot; what is no slot is left out.
    pub fn insert(&mut self, slot: u16) {
        if slot < SLOTS {
            self.words[usize::from(slot / 64)] |= 1 << (slot % 64);
        }
    }

    /// Adds the slots from one to another, both included.
    pub fn insert_range(&mut self, first: u16, last: u16) {
        for slot in first..=last.min(SLOTS - 1) {
            self.insert(slot);
        }
    }

    /// Returns whether a slot is in it.
    pub fn contains(&self, slot: u16) -> bool {
        slot < SLOTS && self.words[usize::from(slot / 64)] & (1 << (slot % 64)) != 0
    }

    /// Returns how many there are.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Returns those that are in this set and not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine & !theirs)
    }

    /// Returns those that are in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine & theirs)
    }

    /// Adds those of another set.
    pub fn extend(&mut self, other: &Self) {
        *self = self.combine(other, |mine, theirs| mine | theirs);
    }

    fn combine(&self, other: &Self, how: impl Fn(u64, u64) -> u64) -> Self {
        let mut combined = Self::default();
        for (word, (mine, theirs)) in combined.words.iter_mut().zip(self.words.iter().zip(&*other.words)) {
            *word = how(*mine, *theirs);
        }
        combined
    }

    /// Returns the slots in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (0..SLOTS).filter(|slot| self.contains(*slot))
    }

    /// Returns the runs of slots in order: first and last, both included.
    pub fn ranges(&self) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for slot in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }
}

impl FromIterator<u16> for SlotSet {
    fn from_iter<T: IntoIterator<Item = u16>>(slots: T) -> Self {
        let mut set = Self::default();
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

/// As Redis writes them: `0-5460 5462 7000-7002`.
impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges().into_iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            if first == last { write!(f, "{space}{first}")? } else { write!(f, "{space}{first}-{last}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_add_subtract_and_are_written_as_redis_does() {
        let mut set = SlotSet::default();
        assert!(set.is_empty());
        set.insert_range(0, 5_460);
        set.insert_range(16_380, 20_000);
        set.insert(7_000);
        set.insert(SLOTS);
        assert_eq!(set.to_string(), "0-5460 7000 16380-16383");
        assert_eq!(set.len(), 5_461 + 1 + 4);
        let rest = SlotSet::all().without(&set);
        assert_eq!(rest.to_string(), "5461-6999 7001-16379");
        assert!(rest.and(&set).is_empty());
        let mut both = rest;
        both.extend(&set);
        assert_eq!(both, SlotSet::all());
        assert_eq!(both.len(), 16_384);
        assert_eq!([3, 1, 2].into_iter().collect::<SlotSet>().ranges(), [(1, 3)]);
        assert!(set.contains(16_383) && !set.contains(u16::MAX));
    }
}
