//! The values: one file per type, encodings inside. Owns how a value lies in memory, what freeing it
//! takes and what it weighs; never sees a client, a key's name, a clock or the wire.

pub mod dict;
mod effort;
mod footprint;
pub mod hash;
mod held;
pub mod hyperloglog;
pub mod intset;
pub mod limits;
pub mod list;
pub mod listpack;
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
pub use held::Value;
