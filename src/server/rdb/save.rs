//! Values into bytes. Compact encodings go as the blobs they are; the rest element by element.

use super::kind;
use super::write::Writer;
use crate::server::value::Value;
use crate::server::value::hash::{Hash, HashEncoding};
use crate::server::value::list::List;
use crate::server::value::listpack::Listpack;
use crate::server::value::set::{Set, SetEncoding};
use crate::server::value::stream::{Group, Stream, StreamId};
use crate::server::value::zset::{Zset, ZsetEncoding};

/// The container of a list node: a listpack, as opposed to one plain element.
const PACKED: u64 = 2;

/// Returns the type that `value` is saved as.
pub(super) fn kind_of(value: &Value) -> u8 {
    match value {
        Value::String(_) => kind::STRING,
        Value::List(_) => kind::LIST_QUICKLIST_2,
        Value::Set(set) => match set.inside() {
            SetEncoding::Intset(_) => kind::SET_INTSET,
            SetEncoding::Listpack(_) => kind::SET_LISTPACK,
            SetEncoding::Table(_) => kind::SET,
        },
        Value::Zset(zset) => match zset.inside() {
            ZsetEncoding::Listpack(_) => kind::ZSET_LISTPACK,
            ZsetEncoding::Skiplist(_) => kind::ZSET_2,
        },
        Value::Hash(hash) => match hash.inside() {
            HashEncoding::Listpack(_) => kind::HASH_LISTPACK,
            HashEncoding::ListpackEx(_) => kind::HASH_LISTPACK_TTL,
            HashEncoding::Table(table) if table.due.is_empty() => kind::HASH,
            HashEncoding::Table(_) => kind::HASH_TTL,
        },
        Value::Stream(_) => kind::STREAM_3,
    }
}

/// Writes what comes behind the type.
pub(super) fn value(out: &mut Writer, value: &Value) {
    match value {
        Value::String(string) => out.string(&string.bytes()),
        Value::List(value) => list(out, value),
        Value::Set(value) => set(out, value),
        Value::Zset(value) => zset(out, value),
        Value::Hash(value) => hash(out, value),
        Value::Stream(value) => stream(out, value),
    }
}

fn list(out: &mut Writer, list: &List) {
    let (head, tail) = match list {
        List::Listpack(pack) => (std::slice::from_ref(pack), &[][..]),
        List::Quicklist(list) => list.nodes(),
    };
    out.count(head.len() + tail.len());
    for pack in head.iter().chain(tail) {
        out.len(PACKED);
        out.blob(pack.as_bytes());
    }
}

fn set(out: &mut Writer, set: &Set) {
    match set.inside() {
        SetEncoding::Intset(ints) => out.blob(ints.as_bytes()),
        SetEncoding::Listpack(pack) => out.blob(pack.as_bytes()),
        SetEncoding::Table(table) => {
            out.count(table.len());
            for (member, ()) in &**table {
                out.string(member);
            }
        }
    }
}

fn zset(out: &mut Writer, zset: &Zset) {
    match zset.inside() {
        ZsetEncoding::Listpack(pack) => out.blob(pack.as_bytes()),
        ZsetEncoding::Skiplist(_) => {
            out.count(zset.len());
            // Highest first, so that loading inserts at the front, which is the cheapest place.
            for (member, score) in zset.range(0..zset.len(), true) {
                out.string(&member.bytes());
                out.double(score);
            }
        }
    }
}

fn hash(out: &mut Writer, hash: &Hash) {
    match hash.inside() {
        HashEncoding::Listpack(pack) => out.blob(pack.as_bytes()),
        HashEncoding::ListpackEx(pack) => {
            out.i64_le(hash.next_due().unwrap_or(0));
            out.blob(pack.as_bytes());
        }
        HashEncoding::Table(table) => {
            let first = hash.next_due();
            if let Some(first) = first {
                out.i64_le(first);
            }
            out.count(table.fields.len());
            for (field, value) in &table.fields {
                if let Some(first) = first {
                    let due = table.due.get(field).map(|due| due - first + 1);
                    out.len(due.and_then(|due| u64::try_from(due).ok()).unwrap_or(0));
                }
                out.string(field);
                out.string(value);
            }
        }
    }
}

fn stream(out: &mut Writer, stream: &Stream) {
    out.count(stream.nodes().len());
    for (key, pack) in stream.nodes().iter() {
        out.blob(&key);
        out.blob(Listpack::as_bytes(pack));
    }
    out.len(stream.len());
    id(out, stream.last_id);
    id(out, stream.first_id);
    id(out, stream.max_deleted_id);
    out.len(stream.entries_added);
    out.count(stream.groups.len());
    for (name, value) in &stream.groups {
        out.string(name);
        group(out, value);
    }
}

fn group(out: &mut Writer, group: &Group) {
    id(out, group.last_id);
    // An unknown count is -1, which a length can only say as the largest number.
    out.len(group.entries_read.unwrap_or(u64::MAX));
    out.count(group.pending.len());
    for (key, pending) in group.pending.iter() {
        out.raw(&key);
        out.u64_le(pending.delivered_ms);
        out.len(pending.deliveries);
    }
    out.count(group.consumers.len());
    for (name, consumer) in &group.consumers {
        out.string(name);
        out.u64_le(consumer.seen_ms);
        out.u64_le(consumer.active_ms.unwrap_or(u64::MAX));
        out.count(consumer.pending.len());
        for (key, ()) in consumer.pending.iter() {
            out.raw(&key);
        }
    }
}

fn id(out: &mut Writer, id: StreamId) {
    out.len(id.ms);
    out.len(id.seq);
}
