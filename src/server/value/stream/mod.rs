//! Streams: entries in a tree of listpacks, and the groups that read them.

mod entries;
pub mod group;
pub mod id;
pub mod node;

pub use entries::{Keep, Stream, Trim};
pub use group::Group;
pub use id::StreamId;
pub use node::Entry;
