//! The intset: sorted integers in one allocation, all as wide as the widest one needs. Owns the byte
//! format of Redis: `u32 width (2, 4, 8) | u32 count | values`, little-endian.

const HEADER: usize = 8;

/// A sorted set of integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intset {
    bytes: Vec<u8>,
}

impl Default for Intset {
    fn default() -> Self {
        Self::new()
    }
}

impl Intset {
    /// Makes an empty intset.
    pub fn new() -> Self {
        Self { bytes: vec![2, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// Takes bytes from a file or a client, or `None` if they are not an intset, sorted and without
    /// duplicates.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let (width, rest) = bytes.split_first_chunk::<4>()?;
        let (count, values) = rest.split_first_chunk::<4>()?;
        let width = usize::try_from(u32::from_le_bytes(*width)).ok()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        if !matches!(width, 2 | 4 | 8) || values.len() != count.checked_mul(width)? {
            return None;
        }
        let set = Self { bytes };
        set.iter().is_sorted_by(|a, b| a < b).then_some(set)
    }

    /// Returns the bytes as they stand in an RDB file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the size of the whole blob.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of integers.
    pub fn len(&self) -> usize {
        (self.bytes.len() - HEADER) / self.width()
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the integer at `index` in sorted order; the caller keeps `index` below `len`.
    pub fn at(&self, index: usize) -> i64 {
        let width = self.width();
        read(&self.bytes[HEADER + index * width..][..width])
    }

    /// Walks the integers in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + '_ {
        self.bytes[HEADER..].chunks_exact(self.width()).map(read)
    }

    /// Tells whether `value` is there.
    pub fn contains(&self, value: i64) -> bool {
        self.search(value).is_ok()
    }

    /// Adds `value`; tells whether it was new. O(n) moves, and a rewrite when it is wider than all.
    pub fn insert(&mut self, value: i64) -> bool {
        let width = width_of(value);
        if width > self.width() {
            // Wider than every other means: before or after all of them.
            let mut bytes = Vec::with_capacity(HEADER + (self.len() + 1) * width);
            bytes.extend_from_slice(&[if width == 4 { 4 } else { 8 }, 0, 0, 0]);
            bytes.extend_from_slice(&[0; 4]);
            let front = (value < 0).then_some(value);
            let back = (value >= 0).then_some(value);
            for value in front.into_iter().chain(self.iter()).chain(back) {
                bytes.extend_from_slice(&value.to_le_bytes()[..width]);
            }
            self.bytes = bytes;
            self.write_count();
            return true;
        }
        let Err(index) = self.search(value) else {
            return false;
        };
        let width = self.width();
        let at = HEADER + index * width;
        let len = self.bytes.len();
        self.bytes.resize(len + width, 0);
        self.bytes.copy_within(at..len, at + width);
        self.bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        self.write_count();
        true
    }

    /// Takes `value` out; tells whether it was there.
    pub fn remove(&mut self, value: i64) -> bool {
        let Ok(index) = self.search(value) else {
            return false;
        };
        let width = self.width();
        let at = HEADER + index * width;
        self.bytes.drain(at..at + width);
        self.write_count();
        true
    }

    fn width(&self) -> usize {
        usize::from(self.bytes[0])
    }

    fn write_count(&mut self) {
        let count = u32::try_from(self.len()).unwrap_or(u32::MAX);
        self.bytes[4..HEADER].copy_from_slice(&count.to_le_bytes());
    }

    /// Binary search: where it is, or where it would go.
    fn search(&self, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.at(middle).cmp(&value) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }
}

fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

fn read(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|top| *top >= 0x80);
    let mut word = if negative { [0xff; 8] } else { [0; 8] };
    word[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_widens_for_good() {
        let mut set = Intset::new();
        assert!(set.insert(5) && set.insert(-3) && !set.insert(5));
        assert_eq!(set.byte_len(), 8 + 2 * 2);
        assert!(set.insert(70_000));
        assert_eq!(set.byte_len(), 8 + 3 * 4);
        assert!(set.insert(i64::MIN));
        assert!(set.remove(i64::MIN) && !set.remove(i64::MIN));
        assert_eq!(set.byte_len(), 8 + 3 * 8);
        assert!(set.iter().eq([-3, 5, 70_000]));
    }

    #[test]
    fn disorder_is_refused() {
        assert!(Intset::from_bytes(vec![2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 1, 0]).is_none());
        assert!(Intset::from_bytes(vec![3, 0, 0, 0, 0, 0, 0, 0]).is_none());
        assert!(Intset::from_bytes(vec![2, 0, 0, 0, 9, 0, 0, 0]).is_none());
        assert!(Intset::from_bytes(vec![2, 0, 0, 0, 1, 0, 0, 0, 1, 0]).is_some());
    }

    proptest! {
        #[test]
        fn it_agrees_with_std(ops in prop::collection::vec((any::<bool>(), prop_oneof![-50i64..50, -100_000i64..100_000, any::<i64>()]), 0..200)) {
            let (mut set, mut model) = (Intset::new(), BTreeSet::new());
            for (insert, n) in ops {
                if insert {
                    prop_assert_eq!(set.insert(n), model.insert(n));
                } else {
                    prop_assert_eq!(set.remove(n), model.remove(&n));
                }
                prop_assert_eq!(set.contains(n), model.contains(&n));
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert!(Intset::from_bytes(set.bytes).is_some());
        }
    }
}
