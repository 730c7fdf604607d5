//! What MEMORY USAGE says of a value: the arithmetic of Redis 7.0 over our own structures.
//!
//! # Whose bytes
//!
//! We answer for the server that we imitate. Its structures have the sizes below and its allocator
//! rounds up to size classes; ours differ in details that no client should see. Counts, buckets,
//! nodes and heights are real.
//!
//! # Told and taken
//!
//! MEMORY USAGE does not say what is allocated: it forgets that a table entry of 24 bytes takes 32, and
//! guesses radix trees six times too high. `used_memory` is what the allocator handed out. So there are two
//! sets of sizes for one walk over the value.
//!
//! # Sampling
//!
//! Elements are not all weighed: the first `samples` of them are, in the order of the encoding, and
//! their mean stands for the rest. That is how Redis does it, and how it goes wrong: a sorted set
//! whose lowest members are tiny and whose highest are huge reports a fraction of its size.

use super::Value;
use super::dict::Dict;
use super::hash::{Hash, HashEncoding};
use super::list::List;
use super::rax::Rax;
use super::set::{Set, SetEncoding};
use super::size_class::{sds, usable};
use super::stream::Stream;
use super::string::StringValue;
use super::zset::{Zset, ZsetEncoding};

/// Object header.
const OBJECT: usize = 16;
const BUCKET: usize = 8;
const QUICKLIST: usize = 40;
const QUICKLIST_NODE: usize = 32;
const ZSET: usize = 16;
const SKIPLIST: usize = 32;
const SKIPLIST_NODE: usize = 24;
const SKIPLIST_LEVEL: usize = 16;
/// The head of a skiplist has all 32 levels.
const SKIPLIST_HEAD: usize = usable(SKIPLIST_NODE + 32 * SKIPLIST_LEVEL);
/// The wrapper of a `listpackex`: hash meta data, key pointer, blob pointer.
const LISTPACK_EX: usize = usable(40);
/// What a field with a TTL costs beside its entry: expiry and its place in the bucket.
const FIELD_TTL: usize = 16;

const STREAM: usize = 80;
const GROUP: usize = 40;
const CONSUMER: usize = 24;
/// The last node of a stream is allocated for its full size at once.
const STREAM_NODE_PREALLOCATED: usize = 4096;

/// Sizes on which MEMORY USAGE and the allocator do not agree.
struct Sizes {
    dict: usize,
    dict_entry: usize,
    /// An entry that waits for XACK.
    pending: usize,
    rax_key: usize,
    rax_node: usize,
}

/// What MEMORY USAGE adds up. For a radix tree that is the guess of Redis up to 8.2: an ID for each key, and a
/// header of 4 bytes and 30 pointers for each node.
const TOLD: Sizes = Sizes { dict: 56, dict_entry: 24, pending: 24, rax_key: 16, rax_node: 4 + 30 * 8 };

/// What the allocator hands out. A radix node has a header of 4 bytes, its bytes, and a pointer to each child;
/// trees of IDs have 29 bytes of that to a node (`used_memory` of Redis 7.0.15 by pending entries, recorded in
/// `server_memory.csv`).
const TAKEN: Sizes =
    Sizes { dict: usable(56), dict_entry: usable(24), pending: usable(24), rax_key: 0, rax_node: 29 };

impl Value {
    /// Returns what MEMORY USAGE says of the value, without its key. `samples` elements are weighed; 0
    /// weighs all of them.
    pub fn memory_usage(&self, samples: usize) -> usize {
        self.weigh(&TOLD, if samples == 0 { usize::MAX } else { samples })
    }

    /// Returns the bytes that are allocated for the value, without its key, going by `samples` elements.
    pub(crate) fn allocated_bytes(&self, samples: usize) -> usize {
        self.weigh(&TAKEN, samples)
    }

    fn weigh(&self, sizes: &Sizes, samples: usize) -> usize {
        match self {
            Self::String(string) => string_bytes(string),
            Self::List(list) => list_bytes(list, samples),
            Self::Set(set) => set_bytes(set, sizes, samples),
            Self::Zset(zset) => zset_bytes(zset, sizes, samples),
            Self::Hash(hash) => hash_bytes(hash, sizes, samples),
            Self::Stream(stream) => stream_bytes(stream, sizes, samples),
        }
    }
}

fn string_bytes(string: &StringValue) -> usize {
    match string {
        StringValue::Int(_) => OBJECT,
        // One allocation: object, 3 bytes of string header, text, NUL.
        StringValue::Embstr(bytes) => usable(OBJECT + 3 + bytes.len() + 1),
        StringValue::Raw(bytes) => OBJECT + sds(bytes.capacity()),
    }
}

fn list_bytes(list: &List, samples: usize) -> usize {
    let (head, tail) = match list {
        // 7.0 has no list of a single listpack yet: a quicklist of one node weighs the same job.
        List::Listpack(pack) => (std::slice::from_ref(pack), &[][..]),
        List::Quicklist(list) => list.nodes(),
    };
    let nodes = head.iter().chain(tail);
    let sizes = nodes.map(|pack| QUICKLIST_NODE + usable(pack.byte_len()));
    OBJECT + QUICKLIST + extrapolate(sizes, samples, head.len() + tail.len())
}

fn set_bytes(set: &Set, sizes: &Sizes, samples: usize) -> usize {
    match set.inside() {
        SetEncoding::Intset(ints) => OBJECT + usable(ints.byte_len()),
        SetEncoding::Listpack(pack) => OBJECT + usable(pack.byte_len()),
        SetEncoding::Table(table) => {
            let members = table.iter().map(|(member, ())| sizes.dict_entry + sds(member.len()));
            OBJECT + sizes.dict_bytes(table) + extrapolate(members, samples, table.len())
        }
    }
}

fn hash_bytes(hash: &Hash, sizes: &Sizes, samples: usize) -> usize {
    match hash.inside() {
        HashEncoding::Listpack(pack) => OBJECT + usable(pack.byte_len()),
        HashEncoding::ListpackEx(pack) => OBJECT + LISTPACK_EX + usable(pack.byte_len()),
        HashEncoding::Table(table) => {
            let fields = &table.fields;
            let entries =
                fields.iter().map(|(field, value)| sizes.dict_entry + sds(field.len()) + sds(value.len()));
            let mortal = table.due.len() * FIELD_TTL;
            OBJECT + sizes.dict_bytes(fields) + extrapolate(entries, samples, fields.len()) + mortal
        }
    }
}

fn zset_bytes(zset: &Zset, sizes: &Sizes, samples: usize) -> usize {
    match zset.inside() {
        ZsetEncoding::Listpack(pack) => OBJECT + usable(pack.byte_len()),
        ZsetEncoding::Skiplist(indexed) => {
            let members = indexed.order.heights().map(|(member, height)| {
                sds(member.len()) + sizes.dict_entry + usable(SKIPLIST_NODE + height * SKIPLIST_LEVEL)
            });
            let members = extrapolate(members, samples, indexed.order.len());
            OBJECT + ZSET + SKIPLIST + SKIPLIST_HEAD + sizes.dict_bytes(&indexed.scores) + members
        }
    }
}

fn stream_bytes(stream: &Stream, sizes: &Sizes, samples: usize) -> usize {
    let nodes = stream.nodes();
    let mut bytes = OBJECT + STREAM + sizes.rax_bytes(nodes);
    if let Some((_, last)) = nodes.last() {
        let full = nodes.iter().take(nodes.len() - 1).map(|(_, pack)| usable(pack.byte_len()));
        bytes += extrapolate(full, samples, nodes.len() - 1);
        bytes += usable(last.byte_len().max(STREAM_NODE_PREALLOCATED));
    }
    for group in stream.groups.values() {
        bytes += GROUP + sizes.rax_bytes(&group.pending) + sizes.pending * group.pending.len();
        for (name, consumer) in &group.consumers {
            bytes += CONSUMER + name.len() + sizes.rax_bytes(&consumer.pending);
        }
    }
    bytes
}

impl Sizes {
    fn rax_bytes<V>(&self, tree: &Rax<V>) -> usize {
        24 + self.rax_key * tree.len() + self.rax_node * tree.nodes()
    }

    fn dict_bytes<K, V>(&self, dict: &Dict<K, V>) -> usize {
        self.dict + BUCKET * dict.buckets()
    }
}

/// Weighs the first `samples` and lets their mean stand for all `count`.
fn extrapolate(sizes: impl Iterator<Item = usize>, samples: usize, count: usize) -> usize {
    let (mut sum, mut seen) = (0u128, 0u128);
    for size in sizes.take(samples) {
        sum += size as u128;
        seen += 1;
    }
    usize::try_from(sum * count as u128 / seen.max(1)).unwrap_or(usize::MAX)
}
