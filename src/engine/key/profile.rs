//! What is known of a server: version, settings that decide verdicts, and what this user may call.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Whose server it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flavour {
    /// Redis.
    Redis,
    /// Valkey: lazyfree settings default to yes from 8.0.
    Valkey,
    /// Something that speaks the protocol, by the name it gives itself.
    Other(Box<str>),
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis => f.write_str("Redis"),
            Self::Valkey => f.write_str("Valkey"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// A version, `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Version {
    /// Major.
    pub major: u16,
    /// Minor.
    pub minor: u16,
    /// Patch.
    pub patch: u16,
}

impl Version {
    /// Makes a version.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// Reads `7.0.15` or `7.2`; text behind a number (`8.0.0-rc1`) is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            part[..digits].parse::<u16>().ok()
        });
        let major = parts.next()??;
        let minor = parts.next().flatten().unwrap_or(0);
        let patch = parts.next().flatten().unwrap_or(0);
        Some(Self { major, minor, patch })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What a node is in its replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// `master`
    Primary,
    /// `slave`: hides keys past their TTL but never frees them.
    Replica,
    /// Could not be asked.
    Unknown,
}

/// `mem_allocator`: decides the size classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocator {
    /// jemalloc, with size classes.
    Jemalloc,
    /// libc, with `malloc_usable_size`.
    Libc,
    /// Not told.
    Unknown,
}

/// The `lazyfree-lazy-*` settings. `None`: CONFIG was refused and nothing else tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lazyfree {
    /// `lazyfree-lazy-user-del`: DEL behaves as UNLINK.
    pub user_del: Option<bool>,
    /// `lazyfree-lazy-expire`: expiry behaves as UNLINK.
    pub expire: Option<bool>,
    /// `lazyfree-lazy-server-del`: overwriting behaves as UNLINK.
    pub server_del: Option<bool>,
    /// `lazyfree-lazy-eviction`: eviction behaves as UNLINK.
    pub eviction: Option<bool>,
    /// `lazyfree-lazy-user-flush`.
    pub user_flush: Option<bool>,
}

/// How large a quicklist node may grow: `list-max-listpack-size` (`list-max-ziplist-size`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListNodeLimit {
    /// Negative values -1 to -5: 4, 8, 16, 32, 64 KiB.
    Bytes(u32),
    /// Positive values: elements, with 8 KiB at the most.
    Elements(u32),
}

impl ListNodeLimit {
    /// Reads the setting; 0 behaves as 1, and below -5 as -5.
    pub fn from_setting(value: i64) -> Self {
        match value {
            0 => Self::Elements(1),
            1.. => Self::Elements(u32::try_from(value).unwrap_or(u32::MAX)),
            -1 => Self::Bytes(4 << 10),
            -2 => Self::Bytes(8 << 10),
            -3 => Self::Bytes(16 << 10),
            -4 => Self::Bytes(32 << 10),
            _ => Self::Bytes(64 << 10),
        }
    }
}

impl Default for ListNodeLimit {
    fn default() -> Self {
        Self::from_setting(-2)
    }
}

/// The thresholds at which a compact encoding becomes a table; defaults where CONFIG was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncodingLimits {
    /// `list-max-listpack-size`.
    pub list_node: ListNodeLimit,
    /// The settings as the server told them, by their own names.
    pub settings: BTreeMap<String, String>,
}

/// Something that `bigkeys` would like to ask of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// `MEMORY USAGE`
    MemoryUsage,
    /// `OBJECT ENCODING`
    ObjectEncoding,
    /// `OBJECT IDLETIME`
    ObjectIdletime,
    /// `OBJECT FREQ`
    ObjectFreq,
    /// `CONFIG GET`
    ConfigGet,
    /// `DEBUG OBJECT`
    DebugObject,
    /// `XINFO`
    Xinfo,
    /// `UNLINK`
    Unlink,
    /// `EVAL`
    Eval,
    /// `CLIENT NO-TOUCH`
    ClientNoTouch,
    /// `CLIENT NO-EVICT`
    ClientNoEvict,
    /// `INFO`
    Info,
}

impl Access {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 12] = [
        Self::MemoryUsage,
        Self::ObjectEncoding,
        Self::ObjectIdletime,
        Self::ObjectFreq,
        Self::ConfigGet,
        Self::DebugObject,
        Self::Xinfo,
        Self::Unlink,
        Self::Eval,
        Self::ClientNoTouch,
        Self::ClientNoEvict,
        Self::Info,
    ];

    /// Returns the command's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryUsage => "MEMORY USAGE",
            Self::ObjectEncoding => "OBJECT ENCODING",
            Self::ObjectIdletime => "OBJECT IDLETIME",
            Self::ObjectFreq => "OBJECT FREQ",
            Self::ConfigGet => "CONFIG GET",
            Self::DebugObject => "DEBUG OBJECT",
            Self::Xinfo => "XINFO",
            Self::Unlink => "UNLINK",
            Self::Eval => "EVAL",
            Self::ClientNoTouch => "CLIENT NO-TOUCH",
            Self::ClientNoEvict => "CLIENT NO-EVICT",
            Self::Info => "INFO",
        }
    }
}

/// Whether this user may call something on this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// It answered.
    Allowed,
    /// ACL or a managed service refuses it.
    Denied,
    /// The server does not know it (too old, renamed, or another product).
    Unsupported,
    /// It works only under a setting that is not on (`OBJECT FREQ` without an LFU policy).
    NotApplicable,
    /// It could not be found out without writing or blocking.
    Unknown,
}

impl Permission {
    /// Returns the word used in the outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
            Self::NotApplicable => "not applicable",
            Self::Unknown => "unknown",
        }
    }
}

/// What the capability probe found out about one server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerProfile {
    /// Address as it was asked for, for people.
    pub node: String,
    /// Redis, Valkey, or another.
    pub flavour: Flavour,
    /// Its own version (for Valkey `valkey_version`, not the compatibility one).
    pub version: Version,
    /// `run_id`: changes when the process restarts, and with it every cursor loses its meaning.
    pub run_id: Option<String>,
    /// Primary or replica.
    pub role: Role,
    /// Whether it is a cluster node.
    pub cluster: bool,
    /// Allocator.
    pub allocator: Allocator,
    /// `maxmemory_policy`.
    pub maxmemory_policy: Option<String>,
    /// `used_memory`, in bytes, when the probe ran.
    pub used_memory_bytes: Option<u64>,
    /// Number of logical databases.
    pub databases: Option<u32>,
    /// Lazyfree settings, from CONFIG.
    pub lazyfree: Lazyfree,
    /// Encoding thresholds.
    pub limits: EncodingLimits,
    /// What may be called.
    pub access: BTreeMap<Access, Permission>,
}

impl ServerProfile {
    /// Returns whether the server is known to answer this.
    pub fn allows(&self, access: Access) -> bool {
        self.access.get(&access) == Some(&Permission::Allowed)
    }

    /// Returns whether `MEMORY USAGE` counts instead of sampling: Redis >= 8.4, for native types.
    pub fn memory_usage_is_exact(&self) -> bool {
        self.flavour == Flavour::Redis && self.version >= Version::new(8, 4, 0)
    }
}
