//! The values: one file per type, encodings inside. Owns how a value lies in memory, what freeing it
//! takes and what it weighs; never sees a client, a key's name, a clock or the wire.

pub mod dict;
mod effort;
mod footprint;
pub mod hash;
pub mod hyperloglog;
pub mod intset;
pub mod limits;
pub mod list;
pub mod listpack;
pub mod number;
pub mod quicklist;
pub mod random;
pub mod rax;
pub mod set;
pub mod siphash;
pub mod size_class;
pub mod skiplist;
pub mod stream;
pub mod string;
pub mod zset;

pub use effort::LAZYFREE_THRESHOLD;
use hash::Hash;
use list::List;
use set::Set;
use stream::Stream;
use string::StringValue;
use zset::Zset;

/// What a key holds. Small itself: everything but a string is one pointer away.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string, and what is kept in strings: numbers, bitmaps, `HyperLogLog`.
    String(StringValue),
    /// A list.
    List(Box<List>),
    /// A set.
    Set(Box<Set>),
    /// A sorted set.
    Zset(Box<Zset>),
    /// A hash.
    Hash(Box<Hash>),
    /// A stream.
    Stream(Box<Stream>),
}

impl Value {
    /// Returns what TYPE says.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Zset(_) => "zset",
            Self::Hash(_) => "hash",
            Self::Stream(_) => "stream",
        }
    }

    /// Returns what OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::String(string) => string.encoding(),
            Self::List(list) => list.encoding(),
            Self::Set(set) => set.encoding(),
            Self::Zset(zset) => zset.encoding(),
            Self::Hash(hash) => hash.encoding(),
            Self::Stream(_) => "stream",
        }
    }

    /// Tells whether this is a collection without elements, which no key may hold. Streams may be empty.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::String(_) | Self::Stream(_) => false,
            Self::List(list) => list.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::Zset(zset) => zset.is_empty(),
            Self::Hash(hash) => hash.is_empty(),
        }
    }
}

impl From<StringValue> for Value {
    fn from(value: StringValue) -> Self {
        Self::String(value)
    }
}

impl From<List> for Value {
    fn from(value: List) -> Self {
        Self::List(Box::new(value))
    }
}

impl From<Set> for Value {
    fn from(value: Set) -> Self {
        Self::Set(Box::new(value))
    }
}

impl From<Zset> for Value {
    fn from(value: Zset) -> Self {
        Self::Zset(Box::new(value))
    }
}

impl From<Hash> for Value {
    fn from(value: Hash) -> Self {
        Self::Hash(Box::new(value))
    }
}

impl From<Stream> for Value {
    fn from(value: Stream) -> Self {
        Self::Stream(Box::new(value))
    }
}
