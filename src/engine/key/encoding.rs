//! How a value is laid out in memory, as `OBJECT ENCODING` says it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The encoding of a value, by the word that `OBJECT ENCODING` answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Encoding {
    /// `int`: a string that is a 64-bit integer.
    Int,
    /// `embstr`: a short string in one allocation with its object.
    Embstr,
    /// `raw`: a string in an allocation of its own; modules answer this too.
    Raw,
    /// `ziplist`: the compact blob of Redis <= 6.2.
    Ziplist,
    /// `listpack`: the compact blob of Redis >= 7.0.
    Listpack,
    /// `listpackex`: a listpack hash with field TTLs, Redis >= 7.4.
    ListpackEx,
    /// `intset`: a sorted array of integers.
    Intset,
    /// `quicklist`: a linked list of compact blobs.
    Quicklist,
    /// `hashtable`: at least one allocation for each element.
    Hashtable,
    /// `skiplist`: skiplist and hash table side by side.
    Skiplist,
    /// `stream`: a radix tree of listpacks.
    Stream,
    /// `sliced-array`, Redis >= 8.8.
    SlicedArray,
    /// An encoding this build does not know, by its name.
    Other(Box<str>),
}

impl Encoding {
    /// Reads the answer of `OBJECT ENCODING`.
    pub fn from_reply(word: &str) -> Self {
        match word {
            "int" => Self::Int,
            "embstr" => Self::Embstr,
            "raw" => Self::Raw,
            "ziplist" => Self::Ziplist,
            "listpack" => Self::Listpack,
            "listpackex" => Self::ListpackEx,
            "intset" => Self::Intset,
            "quicklist" => Self::Quicklist,
            "hashtable" => Self::Hashtable,
            "skiplist" => Self::Skiplist,
            "stream" => Self::Stream,
            "sliced-array" => Self::SlicedArray,
            other => Self::Other(other.into()),
        }
    }

    /// Returns the word that `OBJECT ENCODING` answers.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Int => "int",
            Self::Embstr => "embstr",
            Self::Raw => "raw",
            Self::Ziplist => "ziplist",
            Self::Listpack => "listpack",
            Self::ListpackEx => "listpackex",
            Self::Intset => "intset",
            Self::Quicklist => "quicklist",
            Self::Hashtable => "hashtable",
            Self::Skiplist => "skiplist",
            Self::Stream => "stream",
            Self::SlicedArray => "sliced-array",
            Self::Other(name) => name,
        }
    }
}

impl From<Encoding> for String {
    fn from(encoding: Encoding) -> Self {
        encoding.as_str().to_owned()
    }
}

impl From<String> for Encoding {
    fn from(word: String) -> Self {
        Self::from_reply(&word)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
