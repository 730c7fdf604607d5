//! What can be wrong with an RDB file, and where.

use std::fmt;
use std::io;

/// An RDB file or dump that cannot be read or written.
#[derive(Debug)]
pub(crate) struct RdbError {
    /// Bytes read before it turned out.
    pub(crate) offset: u64,
    pub(crate) kind: RdbErrorKind,
}

/// What is wrong.
#[derive(Debug)]
pub(crate) enum RdbErrorKind {
    /// The file ends early, or cannot be read or written at all.
    Io(io::Error),
    /// It does not begin as an RDB file.
    NotRdb,
    /// A version from the future.
    Version(u16),
    /// A value type that is not known or cannot be held here.
    UnknownType(u8),
    /// The checksum at the end is another one.
    Checksum,
    /// A part that contradicts itself.
    Corrupt(&'static str),
    /// Whoever asked for it does not want it any more.
    Stopped,
}

impl fmt::Display for RdbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            RdbErrorKind::Io(error) => write!(f, "{error}")?,
            RdbErrorKind::NotRdb => f.write_str("not an RDB file")?,
            RdbErrorKind::Version(version) => write!(f, "RDB version {version} is not known")?,
            RdbErrorKind::UnknownType(kind) => write!(f, "unknown object type {kind}")?,
            RdbErrorKind::Checksum => f.write_str("wrong checksum")?,
            RdbErrorKind::Stopped => f.write_str("stopped")?,
            RdbErrorKind::Corrupt(what) => write!(f, "corrupt {what}")?,
        }
        write!(f, " at byte {}", self.offset)
    }
}

impl std::error::Error for RdbError {}

/// What goes wrong before the first byte, or at no byte in particular.
impl From<io::Error> for RdbError {
    fn from(error: io::Error) -> RdbError {
        RdbError { offset: 0, kind: RdbErrorKind::Io(error) }
    }
}
