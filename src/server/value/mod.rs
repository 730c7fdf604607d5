//! The values: one file per type, encodings inside. Owns how a value lies in memory, what freeing it
//! takes and what it weighs; never sees a client, a key's name, a clock or the wire.

pub mod dict;
pub mod random;
pub mod siphash;
