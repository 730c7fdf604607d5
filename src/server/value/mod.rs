//! The values: one file per type, encodings inside. Owns how a value lies in memory, what freeing it
//! takes and what it weighs; never sees a client, a key's name, a clock or the wire.

pub mod dict;
pub mod hash;
pub mod intset;
pub mod limits;
pub mod list;
pub mod listpack;
pub mod number;
pub mod quicklist;
pub mod random;
pub mod set;
pub mod siphash;
pub mod size_class;
pub mod string;
