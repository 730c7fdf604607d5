//! What a key holds, as `TYPE` says it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of a value, by the word that `TYPE` answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Kind {
    /// `string`
    String,
    /// `list`
    List,
    /// `set`
    Set,
    /// `zset`
    Zset,
    /// `hash`
    Hash,
    /// `stream`
    Stream,
    /// `vectorset`, Redis >= 8.0: a module type that is always freed inline.
    VectorSet,
    /// `array`, Redis >= 8.8
    Array,
    /// A module's type, or one newer than this build, by its name.
    Other(Box<str>),
}

impl Kind {
    /// Reads the answer of `TYPE`. `none` is no kind: the key is gone.
    pub fn from_type_reply(word: &str) -> Option<Self> {
        Some(match word {
            "none" => return None,
            "string" => Self::String,
            "list" => Self::List,
            "set" => Self::Set,
            "zset" => Self::Zset,
            "hash" => Self::Hash,
            "stream" => Self::Stream,
            "vectorset" => Self::VectorSet,
            "array" => Self::Array,
            other => Self::Other(other.into()),
        })
    }

    /// Returns the word that `TYPE` answers, and that `SCAN ... TYPE` takes.
    pub fn as_str(&self) -> &str {
        match self {
            Self::String => "string",
            Self::List => "list",
            Self::Set => "set",
            Self::Zset => "zset",
            Self::Hash => "hash",
            Self::Stream => "stream",
            Self::VectorSet => "vectorset",
            Self::Array => "array",
            Self::Other(name) => name,
        }
    }

    /// Returns the command that answers the number of elements, where there is one that only reads a
    /// counter. For a string it is `STRLEN`, which answers bytes.
    pub fn length_command(&self) -> Option<&'static str> {
        match self {
            Self::String => Some("STRLEN"),
            Self::List => Some("LLEN"),
            Self::Set => Some("SCARD"),
            Self::Zset => Some("ZCARD"),
            Self::Hash => Some("HLEN"),
            Self::Stream => Some("XLEN"),
            Self::VectorSet => Some("VCARD"),
            Self::Array => Some("ARCOUNT"),
            Self::Other(_) => None,
        }
    }

    /// Returns what one element of this kind is called, in the plural.
    pub fn element_noun(&self) -> &'static str {
        match self {
            Self::String => "bytes",
            Self::Set | Self::Zset => "members",
            Self::Hash => "fields",
            Self::Stream => "entries",
            Self::VectorSet => "vectors",
            Self::List | Self::Array | Self::Other(_) => "elements",
        }
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.as_str().to_owned()
    }
}

impl TryFrom<String> for Kind {
    type Error = &'static str;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        Self::from_type_reply(&word).ok_or("`none` is no type")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
