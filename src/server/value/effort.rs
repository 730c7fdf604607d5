//! How much work freeing a value is, as Redis guesses it. The guess decides between freeing here and
//! handing over to the background thread, so it is imitated with its blind spots: a string of 512 MB
//! counts 1, and of a stream's groups only the first is asked how much it has pending.

use super::Value;
use super::hash::HashEncoding;
use super::list::List;
use super::set::SetEncoding;
use super::zset::ZsetEncoding;

/// A value of this effort or less is freed by the thread that drops it.
pub const LAZYFREE_THRESHOLD: usize = 64;

impl Value {
    /// Returns the effort of freeing: allocations, roughly.
    pub fn free_effort(&self) -> usize {
        match self {
            Self::String(_) => 1,
            Self::List(list) => match &**list {
                List::Listpack(_) => 1,
                List::Quicklist(list) => list.node_count(),
            },
            Self::Set(set) => match set.inside() {
                SetEncoding::Table(table) => table.len(),
                SetEncoding::Intset(_) | SetEncoding::Listpack(_) => 1,
            },
            Self::Zset(zset) => match zset.inside() {
                ZsetEncoding::Skiplist(indexed) => indexed.order.len(),
                ZsetEncoding::Listpack(_) => 1,
            },
            Self::Hash(hash) => match hash.inside() {
                HashEncoding::Table(table) => table.fields.len(),
                HashEncoding::Listpack(_) | HashEncoding::ListpackEx(_) => 1,
            },
            Self::Stream(stream) => {
                let first = stream.groups.values().next();
                let groups = first.map_or(0, |group| stream.groups.len() * (1 + group.pending.len()));
                stream.nodes().nodes() + groups
            }
        }
    }
}
