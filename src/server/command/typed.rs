//! Look-ups that know which type they want, and small things that the value families share.

use std::ops::Range;

use super::error::CommandError;
use crate::server::keyspace::Selected;
use crate::server::resp::Reply;
use crate::server::value::Value;
use crate::server::value::hash::Hash;
use crate::server::value::list::List;
use crate::server::value::listpack::Element;
use crate::server::value::random::Random;
use crate::server::value::set::Set;
use crate::server::value::stream::Stream;
use crate::server::value::zset::Zset;

/// Declares the doors to one type: for reading, for changing, for changing what may have to be made.
macro_rules! doors {
    ($type:ident, $read:ident, $write:ident, $make:ident) => {
        impl Selected<'_> {
            pub(super) fn $read(&mut self, key: &[u8]) -> Result<Option<&$type>, CommandError> {
                match self.lookup_read(key) {
                    None => Ok(None),
                    Some(Value::$type(value)) => Ok(Some(value)),
                    Some(_) => Err(CommandError::WRONG_TYPE),
                }
            }

            pub(super) fn $write(&mut self, key: &[u8]) -> Result<Option<&mut $type>, CommandError> {
                match self.lookup_write(key) {
                    None => Ok(None),
                    Some(Value::$type(value)) => Ok(Some(value)),
                    Some(_) => Err(CommandError::WRONG_TYPE),
                }
            }

            pub(super) fn $make(
                &mut self,
                key: &[u8],
                make: impl FnOnce() -> $type,
            ) -> Result<&mut $type, CommandError> {
                if self.$write(key)?.is_none() {
                    self.set(key, Value::from(make()));
                }
                // It has just been looked up or put there.
                self.$write(key)?.ok_or(CommandError::NO_SUCH_KEY)
            }
        }
    };
}

doors!(List, read_list, write_list, make_list);
doors!(Set, read_set, write_set, make_set);
doors!(Hash, read_hash, write_hash, make_hash);
doors!(Zset, read_zset, write_zset, make_zset);
doors!(Stream, read_stream, write_stream, make_stream);

impl Selected<'_> {
    /// Returns a generator of its own for a command that holds on to a value.
    pub(super) fn fork_random(&mut self) -> Random {
        Random::new(self.keyspace.random.next_u64())
    }

    /// Notes a change that may have emptied the collection.
    pub(super) fn shrunk(&mut self, key: &[u8], changes: usize) {
        if changes > 0 {
            self.changed(key, changes);
            self.delete_if_empty(key);
        }
    }
}

impl Reply {
    /// Writes an element of a collection.
    pub(super) fn element(&mut self, element: Element<'_>) {
        match element {
            Element::Int(value) => self.bulk_int(value),
            Element::Str(bytes) => self.bulk(bytes),
        }
    }
}

/// Resolves two inclusive indexes, negative ones counted from the end, against a length.
pub(super) fn resolve_range(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_end = |index: i64| {
        if index < 0 { index.saturating_add(len).max(-1) } else { index }
    };
    let start = from_end(start).max(0);
    let end = from_end(stop).saturating_add(1).min(len);
    let [start, end] = [start, end.max(0)].map(|index| usize::try_from(index).unwrap_or(0));
    if start < end { start..end } else { 0..0 }
}

/// Resolves one index, negative ones counted from the end.
pub(super) fn resolve_index(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let index = if index < 0 { index.checked_add(len)? } else { index };
    usize::try_from(index).ok().filter(|_| index < len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_resolve_as_in_redis() {
        let cases = [
            ((0, -1), 0..5),
            ((-3, -2), 2..4),
            ((-100, 1), 0..2),
            ((3, 1), 0..0),
            ((5, 9), 0..0),
            ((0, -6), 0..0),
            ((2, 100), 2..5),
            ((i64::MIN, i64::MAX), 0..5),
        ];
        for ((start, stop), range) in cases {
            assert_eq!(resolve_range(start, stop, 5), range, "{start} {stop}");
        }
        assert_eq!(resolve_index(-1, 5), Some(4));
        assert_eq!(resolve_index(-6, 5), None);
        assert_eq!(resolve_index(5, 5), None);
    }
}
