//! The vocabulary: what a key is called, what it holds, and what was measured of it.
//!
//! No I/O and no clock: everything here is plain data that the other folders pass around.

mod encoding;
mod facts;
mod kind;
mod name;
mod profile;
mod slot;
mod slots;

pub use encoding::Encoding;
pub use facts::{
    BytesBasis, Expiry, KeyFacts, ListNodes, Measured, NodesBasis, SkipReason, Skipped, StreamFacts,
};
pub use kind::Kind;
pub use name::{KeyEncoding, KeyName, ParseKeyError};
pub use profile::{
    Access, Allocator, EncodingLimits, Flavour, Lazyfree, ListNodeLimit, Permission, Role, ServerProfile,
    Version,
};
pub use slot::SLOTS;
pub use slots::SlotSet;
