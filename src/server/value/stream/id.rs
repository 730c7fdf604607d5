//! Stream IDs: milliseconds and a number within them.

use std::fmt;

use crate::server::value::rax::Key;

/// The ID of a stream entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Milliseconds since 1970, as a rule.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl StreamId {
    /// `0-0`, which no entry has.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The last ID there can be.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Makes an ID.
    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// Returns the ID as a key of a radix tree: big-endian, so that bytes sort as IDs do.
    pub fn key(self) -> Key {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// Reads an ID back from a key.
    #[allow(clippy::cast_possible_truncation, reason = "each half is 64 bits")]
    pub fn from_key(key: &Key) -> Self {
        let word = u128::from_be_bytes(*key);
        Self { ms: (word >> 64) as u64, seq: word as u64 }
    }

    /// Returns the next ID.
    pub fn next(self) -> Option<Self> {
        u128::from_be_bytes(self.key()).checked_add(1).map(|word| Self::from_key(&word.to_be_bytes()))
    }

    /// Returns the ID before this one.
    pub fn prev(self) -> Option<Self> {
        u128::from_be_bytes(self.key()).checked_sub(1).map(|word| Self::from_key(&word.to_be_bytes()))
    }

    /// Reads `ms-seq`, or `ms` alone with `missing_seq` for the other half.
    pub fn parse(text: &[u8], missing_seq: u64) -> Option<Self> {
        let mut halves = text.splitn(2, |byte| *byte == b'-');
        let ms = parse_u64(halves.next()?)?;
        let seq = halves.next().map_or(Some(missing_seq), parse_u64)?;
        Some(Self { ms, seq })
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// Reads an unsigned integer of digits only, leading zeros allowed.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_and_sorted() {
        assert_eq!(StreamId::parse(b"5-3", 0), Some(StreamId::new(5, 3)));
        assert_eq!(StreamId::parse(b"5", 7), Some(StreamId::new(5, 7)));
        for text in ["", "-", "5-", "-3", "5-3-1", "a", "5-*", "18446744073709551616"] {
            assert_eq!(StreamId::parse(text.as_bytes(), 0), None, "{text:?}");
        }
        assert_eq!(StreamId::new(1, u64::MAX).next(), Some(StreamId::new(2, 0)));
        assert_eq!(StreamId::new(2, 0).prev(), Some(StreamId::new(1, u64::MAX)));
        assert_eq!(StreamId::MAX.next(), None);
        assert!(StreamId::new(1, 9).key() < StreamId::new(2, 0).key());
    }
}
