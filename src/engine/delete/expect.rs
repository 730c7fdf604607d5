//! What a key was when the plan was made, and whether it still is that.
//!
//! The comparison exists twice: here, for servers without scripts, and in `script.rs` in Lua, where it is
//! one step with the act. A test runs both on the same keys.

use std::fmt;
use std::time::Duration;

use crate::engine::key::{Allocator, Encoding, Expiry, Kind};

/// Layouts that free alike. A key that changes from one to another is not the key of the plan any more,
/// while `listpack` for `ziplist` is the same thing under another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EncodingClass {
    /// One block of memory: strings, `intset`, `listpack` and its like.
    Block,
    /// A chain of blocks: `quicklist`.
    Nodes,
    /// An allocation or more for each element: `hashtable`, `skiplist`.
    Table,
    /// A radix tree of blocks: `stream`.
    Tree,
}

impl EncodingClass {
    /// Returns the class of an encoding. `None`: a newer one, about which nothing is known.
    pub fn of(encoding: &Encoding) -> Option<Self> {
        Some(match encoding {
            Encoding::Int
            | Encoding::Embstr
            | Encoding::Raw
            | Encoding::Ziplist
            | Encoding::Listpack
            | Encoding::ListpackEx
            | Encoding::Intset => Self::Block,
            Encoding::Quicklist => Self::Nodes,
            Encoding::Hashtable | Encoding::Skiplist => Self::Table,
            Encoding::Stream => Self::Tree,
            Encoding::SlicedArray | Encoding::Other(_) => return None,
        })
    }

    /// Returns the word that the script uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Nodes => "nodes",
            Self::Table => "table",
            Self::Tree => "tree",
        }
    }
}

/// How the size of a key is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// By STRLEN, LLEN, SCARD, ZCARD, HLEN or XLEN.
    Elements(u64),
    /// By MEMORY USAGE, with the same samples.
    Bytes(u64),
    /// Not at all: neither could be asked.
    Unknown,
}

/// What must still hold for a key to be deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// Its type.
    pub kind: Kind,
    /// Its layout; `None`: not known, not compared.
    pub class: Option<EncodingClass>,
    /// Its size.
    pub size: Size,
    /// By what part of its size it may have grown or shrunk.
    pub tolerance: f64,
    /// Whether it has a time to live; `None`: not known, not compared.
    pub has_ttl: Option<bool>,
    /// For how long nobody may have touched it.
    pub idle_min: Option<Duration>,
    /// It may be smaller by any part.
    pub may_be_smaller: bool,
    /// Bytes of memory by which the same value may differ from one look to the next.
    pub jitter_bytes: u64,
}

/// The malloc of glibc does not split a remainder of less than 32 bytes off (`MINSIZE`, malloc/malloc.c): the same name,
/// or the same value, may take that much more after it was written anew, as on a replica. jemalloc has size classes, and
/// no such whims.
const LIBC_JITTER_BYTES: u64 = 2 * 32;

impl Expected {
    /// Returns what to expect of a key that looked like this.
    pub fn new(
        kind: &Kind,
        encoding: Option<&Encoding>,
        elements: Option<u64>,
        bytes: Option<u64>,
        expiry: Expiry,
        tolerance: f64,
        idle_min: Option<Duration>,
    ) -> Self {
        let size = match (elements, bytes) {
            (Some(elements), _) if has_length(kind) => Size::Elements(elements),
            (_, Some(bytes)) => Size::Bytes(bytes),
            _ => Size::Unknown,
        };
        Self {
            kind: kind.clone(),
            class: encoding.and_then(EncodingClass::of),
            size,
            tolerance,
            has_ttl: has_ttl(expiry),
            idle_min,
            may_be_smaller: false,
            jitter_bytes: 0,
        }
    }

    /// Returns the same, for a server with this allocator.
    #[must_use]
    pub(super) fn with_allocator(mut self, allocator: Allocator) -> Self {
        self.jitter_bytes = if allocator == Allocator::Jemalloc { 0 } else { LIBC_JITTER_BYTES };
        self
    }

    /// Returns the smallest and the largest size that is still the same key.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        let (Size::Elements(size) | Size::Bytes(size)) = self.size else { return None };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rounded down; saturates"
        )]
        let slack = (size as f64 * self.tolerance.max(0.0)) as u64;
        let slack = if matches!(self.size, Size::Bytes(_)) { slack.max(self.jitter_bytes) } else { slack };
        let min = if self.may_be_smaller { 0 } else { size.saturating_sub(slack) };
        Some((min, size.saturating_add(slack)))
    }

    /// Compares with what is there now.
    ///
    /// # Errors
    /// With what changed.
    pub fn compare(&self, seen: &Seen) -> Result<(), Change> {
        if let Some(idle_min) = self.idle_min {
            match seen.idle {
                Some(idle) if idle >= idle_min => {}
                idle => return Err(Change::Touched { idle }),
            }
        }
        if seen.kind != self.kind {
            return Err(Change::Kind { was: self.kind.clone(), now: seen.kind.clone() });
        }
        if let (Some(was), Some(encoding)) = (self.class, &seen.encoding)
            && EncodingClass::of(encoding) != Some(was)
        {
            return Err(Change::Class { now: encoding.as_str().into() });
        }
        if let Some((min, max)) = self.bounds()
            && let Some(now) = seen.size
            && !(min..=max).contains(&now)
        {
            return Err(self.size_change(now));
        }
        match (self.has_ttl, seen.has_ttl) {
            (Some(was), Some(now)) if was != now => Err(Change::Ttl { gained: now }),
            _ => Ok(()),
        }
    }

    /// Returns the same, for a key of which a part is gone already.
    #[must_use]
    pub(super) fn at_most(mut self) -> Self {
        self.may_be_smaller = true;
        self
    }

    pub(super) fn size_change(&self, now: u64) -> Change {
        let (was, noun) = match self.size {
            Size::Elements(was) => (was, self.kind.element_noun()),
            Size::Bytes(was) => (was, "bytes of memory"),
            Size::Unknown => (0, ""),
        };
        Change::Size { was, now, noun }
    }
}

/// Returns whether a length command tells the size of this type, in the script too.
pub(super) fn has_length(kind: &Kind) -> bool {
    matches!(kind, Kind::String | Kind::List | Kind::Set | Kind::Zset | Kind::Hash | Kind::Stream)
}

/// Returns whether there is a time to live; `None`: not known.
pub(super) fn has_ttl(expiry: Expiry) -> Option<bool> {
    match expiry {
        Expiry::Unknown => None,
        Expiry::Never => Some(false),
        Expiry::In(_) => Some(true),
    }
}

/// What is there now, as far as it was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its type.
    pub kind: Kind,
    /// Its encoding.
    pub encoding: Option<Encoding>,
    /// Its size, in the unit that was expected.
    pub size: Option<u64>,
    /// Whether it has a time to live.
    pub has_ttl: Option<bool>,
    /// For how long nobody touched it.
    pub idle: Option<Duration>,
}

/// Why a key is not the key of the plan any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is gone.
    Gone,
    /// It holds something else.
    Kind {
        /// Before.
        was: Kind,
        /// Now.
        now: Kind,
    },
    /// It is laid out differently.
    Class {
        /// Its encoding now.
        now: Box<str>,
    },
    /// It grew or shrank beyond the tolerance.
    Size {
        /// Before.
        was: u64,
        /// Now.
        now: u64,
        /// Of what.
        noun: &'static str,
    },
    /// It gained or lost its time to live.
    Ttl {
        /// It has one now.
        gained: bool,
    },
    /// Somebody touched it more recently than allowed, or that cannot be told.
    Touched {
        /// For how long nobody did, where that is known.
        idle: Option<Duration>,
    },
    /// Somebody wrote to it between our look and our act.
    Meanwhile,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("it is gone already"),
            Self::Kind { was, now } => write!(f, "changed since the plan ({was} -> {now})"),
            Self::Class { now } => write!(f, "changed since the plan (its encoding is {now} now)"),
            Self::Size { was, now, noun } => write!(f, "changed since the plan ({was} -> {now} {noun})"),
            Self::Ttl { gained: true } => f.write_str("changed since the plan (it has a time to live now)"),
            Self::Ttl { gained: false } => {
                f.write_str("changed since the plan (it has no time to live any more)")
            }
            Self::Touched { idle: Some(idle) } => {
                write!(f, "somebody used it {} s ago, which is more recent than --idle-over", idle.as_secs())
            }
            Self::Touched { idle: None } => f.write_str("whether somebody used it lately cannot be told"),
            Self::Meanwhile => f.write_str("somebody wrote to it while it was checked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Expected {
        Expected {
            kind: Kind::Set,
            class: Some(EncodingClass::Table),
            size: Size::Elements(5_000),
            tolerance: 0.1,
            has_ttl: Some(false),
            idle_min: None,
            may_be_smaller: false,
            jitter_bytes: 0,
        }
    }

    fn seen() -> Seen {
        Seen {
            kind: Kind::Set,
            encoding: Some(Encoding::Hashtable),
            size: Some(5_000),
            has_ttl: Some(false),
            idle: None,
        }
    }

    #[test]
    fn a_key_within_its_tolerance_is_the_key_of_the_plan() {
        for size in [4_500, 5_000, 5_500] {
            assert_eq!(expected().compare(&Seen { size: Some(size), ..seen() }), Ok(()));
        }
    }

    #[test]
    fn each_change_is_told_in_words() {
        let cases = [
            (Seen { size: Some(50_000), ..seen() }, "changed since the plan (5000 -> 50000 members)"),
            (Seen { size: Some(4_499), ..seen() }, "changed since the plan (5000 -> 4499 members)"),
            (Seen { kind: Kind::Hash, ..seen() }, "changed since the plan (set -> hash)"),
            (
                Seen { encoding: Some(Encoding::Intset), ..seen() },
                "changed since the plan (its encoding is intset now)",
            ),
            (Seen { has_ttl: Some(true), ..seen() }, "changed since the plan (it has a time to live now)"),
        ];
        for (seen, words) in cases {
            assert_eq!(expected().compare(&seen).unwrap_err().to_string(), words);
        }
    }

    #[test]
    fn an_idle_time_that_cannot_be_told_is_not_idle_enough() {
        let expected = Expected { idle_min: Some(Duration::from_mins(1)), ..expected() };
        assert_eq!(expected.compare(&seen()), Err(Change::Touched { idle: None }));
        let idle = Some(Duration::from_secs(61));
        assert_eq!(expected.compare(&Seen { idle, ..seen() }), Ok(()));
    }

    #[test]
    fn what_malloc_adds_is_no_change_but_where_it_adds_nothing() {
        let bytes = Expected { size: Size::Bytes(40), ..expected() };
        assert_eq!(bytes.clone().with_allocator(Allocator::Jemalloc).bounds(), Some((36, 44)));
        assert_eq!(bytes.with_allocator(Allocator::Libc).bounds(), Some((0, 104)));
        let large = Expected { size: Size::Bytes(10_000), ..expected() }.with_allocator(Allocator::Libc);
        assert_eq!(large.bounds(), Some((9_000, 11_000)));
        assert_eq!(
            expected().with_allocator(Allocator::Libc).bounds(),
            Some((4_500, 5_500)),
            "elements are counted"
        );
    }

    #[test]
    fn without_tolerance_a_single_element_is_a_change() {
        let expected = Expected { tolerance: 0.0, ..expected() };
        assert_eq!(expected.bounds(), Some((5_000, 5_000)));
    }
}
