//! What was measured of one key, and how each number is known.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Encoding, KeyName, Kind};

/// How a size in bytes is known; the `bytes_basis` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BytesBasis {
    /// The server counts it: a string, a compact blob, or any native type on Redis >= 8.4.
    Measured,
    /// `MEMORY USAGE` extrapolated from a few elements. The sample is biased, not random.
    Sampled,
    /// `MEMORY USAGE` was refused; the size comes from the length and a model of the encoding.
    Modelled,
}

impl BytesBasis {
    /// Returns the word used in the outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Sampled => "sampled",
            Self::Modelled => "modelled",
        }
    }
}

/// A number of bytes with its basis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Size, in bytes.
    pub bytes: u64,
    /// How the size is known.
    pub basis: BytesBasis,
}

/// How a list's number of quicklist nodes is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodesBasis {
    /// `DEBUG OBJECT` said it (`ql_nodes`).
    Exact,
    /// Worked out from element sizes, the node limit and `MEMORY USAGE`.
    Estimated,
}

/// A list's quicklist nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListNodes {
    /// Number of nodes.
    pub nodes: u64,
    /// How the number is known.
    pub basis: NodesBasis,
}

/// What `XINFO STREAM` and `XINFO GROUPS` say of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamFacts {
    /// `radix-tree-nodes`: nodes of the tree of entries.
    pub radix_tree_nodes: u64,
    /// `radix-tree-keys`: listpacks in the tree.
    pub radix_tree_keys: u64,
    /// Number of consumer groups.
    pub groups: u64,
    /// Pending entries of the group that sorts first by name: the only one the server's effort sees.
    pub first_group_pending: u64,
    /// Pending entries of all groups: what really has to be freed.
    pub pending: u64,
    /// Consumers of all groups.
    pub consumers: u64,
}

/// When a key goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Expiry {
    /// Not asked, or refused.
    #[default]
    Unknown,
    /// The key has no TTL.
    Never,
    /// The key has this long to live, counted from `observed_at`.
    In(Duration),
}

/// Everything that was measured of one key. Unknown is `None`, never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyFacts {
    /// Logical database.
    pub db: u32,
    /// Cluster slot, in a cluster.
    pub slot: Option<u16>,
    /// The name.
    pub key: KeyName,
    /// What it holds, as `TYPE` said.
    pub kind: Kind,
    /// How it is laid out. `None`: not asked, or refused.
    pub encoding: Option<Encoding>,
    /// Elements (bytes of content for a string). `None`: not asked, refused, or the type has no count.
    pub elements: Option<u64>,
    /// Memory of key and value.
    pub size: Option<Measured>,
    /// For a `quicklist`: its nodes.
    pub list_nodes: Option<ListNodes>,
    /// For a stream: its tree and groups.
    pub stream: Option<StreamFacts>,
    /// When it expires.
    pub expiry: Expiry,
    /// Time since the last access (`OBJECT IDLETIME`), in whole seconds.
    pub idle: Option<Duration>,
    /// Logarithmic access counter (`OBJECT FREQ`), under an LFU policy.
    pub freq: Option<u8>,
    /// When the facts were read. What is known of a key is old by the time one acts on it.
    pub observed_at: SystemTime,
}

impl KeyFacts {
    /// Makes facts of which only type and size are known yet.
    pub fn unasked(
        db: u32,
        key: KeyName,
        kind: Kind,
        size: Option<Measured>,
        observed_at: SystemTime,
    ) -> Self {
        Self {
            db,
            slot: None,
            key,
            kind,
            encoding: None,
            elements: None,
            size,
            list_nodes: None,
            stream: None,
            expiry: Expiry::Unknown,
            idle: None,
            freq: None,
            observed_at,
        }
    }

    /// Returns the size in bytes, where it is known.
    pub fn bytes(&self) -> Option<u64> {
        self.size.map(|size| size.bytes)
    }

    /// Returns whether the size is good enough to delete for. A modelled one supposes how large elements are,
    /// which is only good enough to be shown.
    pub fn has_measured_size(&self) -> bool {
        self.size.is_some_and(|size| size.basis != BytesBasis::Modelled || self.kind == Kind::String)
    }
}

/// Why a key that SCAN returned was not measured. Each is counted apart and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SkipReason {
    /// It expired or was deleted between SCAN and inspection.
    Vanished,
    /// It changed its type between two of our commands.
    ChangedType,
    /// `NOPERM`: this user may not look at it.
    NoPermission,
    /// `MOVED` or `ASK`: another node owns it.
    Moved,
    /// The server answered an error that is none of the above.
    ServerError,
}

impl SkipReason {
    /// All reasons, in the order in which they are shown.
    pub const ALL: [Self; 5] =
        [Self::Vanished, Self::ChangedType, Self::NoPermission, Self::Moved, Self::ServerError];

    /// Returns the words used in the outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vanished => "vanished",
            Self::ChangedType => "changed type",
            Self::NoPermission => "no permission",
            Self::Moved => "moved",
            Self::ServerError => "server error",
        }
    }
}

/// A key that was seen and could not be measured: data, not an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Logical database.
    pub db: u32,
    /// The name.
    pub key: KeyName,
    /// Why.
    pub why: SkipReason,
    /// What the server said, where it said anything.
    pub detail: Option<Box<str>>,
}
