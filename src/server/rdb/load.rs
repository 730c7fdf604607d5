//! Bytes into values. Every blob is walked before it is believed: lengths, order, duplicates.

use std::collections::HashSet;
use std::io::Read;

use super::error::{RdbError, RdbErrorKind};
use super::read::Reader;
use super::{kind, legacy};
use crate::server::number::parse_double;
use crate::server::value::Value;
use crate::server::value::hash::{Hash, HashEncoding};
use crate::server::value::intset::Intset;
use crate::server::value::limits::Limits;
use crate::server::value::list::List;
use crate::server::value::listpack::Listpack;
use crate::server::value::quicklist::{End, Quicklist};
use crate::server::value::set::{Set, SetEncoding};
use crate::server::value::siphash::HashSeed;
use crate::server::value::stream::{Group, Stream, StreamId};
use crate::server::value::string::StringValue;
use crate::server::value::zset::Zset;

/// What a value needs to know of the server it is loaded into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home<'a> {
    pub(crate) seed: HashSeed,
    pub(crate) limits: &'a Limits,
}

/// Reads what comes behind the type.
pub(super) fn value<R: Read>(input: &mut Reader<R>, kind: u8, home: Home<'_>) -> Result<Value, RdbError> {
    let value = match kind {
        kind::STRING => Value::from(StringValue::encode(input.string()?)),
        kind::LIST | kind::LIST_ZIPLIST | kind::LIST_QUICKLIST | kind::LIST_QUICKLIST_2 => {
            Value::from(list(input, kind, home)?)
        }
        kind::SET | kind::SET_INTSET | kind::SET_LISTPACK => Value::from(set(input, kind, home)?),
        kind::ZSET | kind::ZSET_2 | kind::ZSET_ZIPLIST | kind::ZSET_LISTPACK => {
            Value::from(zset(input, kind, home)?)
        }
        kind::HASH | kind::HASH_ZIPMAP | kind::HASH_ZIPLIST | kind::HASH_LISTPACK => {
            Value::from(hash(input, kind, home)?)
        }
        kind::HASH_TTL | kind::HASH_LISTPACK_TTL => Value::from(mortal_hash(input, kind, home)?),
        kind::STREAM | kind::STREAM_2 | kind::STREAM_3 => Value::from(stream(input, kind)?),
        unknown => return Err(input.error(RdbErrorKind::UnknownType(unknown))),
    };
    if value.is_empty() { Err(input.corrupt("empty collection")) } else { Ok(value) }
}

fn list<R: Read>(input: &mut Reader<R>, kind: u8, home: Home<'_>) -> Result<List, RdbError> {
    if matches!(kind, kind::LIST | kind::LIST_ZIPLIST) {
        let elements = if kind == kind::LIST { strings(input, 1)? } else { ziplist(input)? };
        let mut list = List::new();
        for element in elements {
            list.push_all(End::Tail, &[element], home.limits);
        }
        return Ok(list);
    }
    let mut list = Quicklist::default();
    for _ in 0..input.count()? {
        if kind == kind::LIST_QUICKLIST {
            let mut pack = Listpack::new();
            ziplist(input)?.iter().for_each(|element| pack.push_back(element));
            list.push_node(pack);
            continue;
        }
        match input.len()? {
            1 => {
                let mut pack = Listpack::new();
                pack.push_back(&input.string()?);
                list.push_node(pack);
            }
            2 => list.push_node(listpack(input)?),
            _ => return Err(input.corrupt("list node")),
        }
    }
    let mut list = List::Quicklist(list);
    list.maybe_revert_whole(home.limits);
    Ok(list)
}

fn set<R: Read>(input: &mut Reader<R>, kind: u8, home: Home<'_>) -> Result<Set, RdbError> {
    let encoding = match kind {
        kind::SET_INTSET => {
            let ints = Intset::from_bytes(input.string()?);
            SetEncoding::Intset(ints.ok_or_else(|| input.corrupt("intset"))?)
        }
        kind::SET_LISTPACK => {
            let pack = listpack(input)?;
            check_different(input, &pack, 1)?;
            SetEncoding::Listpack(pack)
        }
        _ => {
            let mut set: Option<Set> = None;
            let count = input.count()?;
            for _ in 0..count {
                let member = input.string()?;
                // The first member chooses the encoding together with how many will follow.
                let set =
                    set.get_or_insert_with(|| Set::new(&member, count.min(1 << 20), home.seed, home.limits));
                if !set.add(&member, home.limits) {
                    return Err(input.corrupt("set: a member twice"));
                }
            }
            return set.ok_or_else(|| input.corrupt("empty collection"));
        }
    };
    Ok(Set::from_encoding(encoding, home.seed, home.limits))
}

fn zset<R: Read>(input: &mut Reader<R>, kind: u8, home: Home<'_>) -> Result<Zset, RdbError> {
    let mut zset = Zset::new(home.seed);
    if matches!(kind, kind::ZSET | kind::ZSET_2) {
        for _ in 0..input.count()? {
            let member = input.string()?;
            let score = if kind == kind::ZSET { input.text_double()? } else { input.double()? };
            if zset.set(&member, score, home.limits).is_some() {
                return Err(input.corrupt("sorted set: a member twice"));
            }
        }
        return Ok(zset);
    }
    let elements = match kind {
        kind::ZSET_ZIPLIST => ziplist(input)?,
        _ => listpack(input)?.iter().map(|element| element.bytes().into_owned()).collect(),
    };
    if elements.len() % 2 == 1 {
        return Err(input.corrupt("sorted set: a member without score"));
    }
    // Put in one by one: the order in the blob is not taken for granted.
    zset.maybe_convert(elements.len() / 2, 0, home.limits);
    for pair in elements.chunks_exact(2) {
        let score = parse_double(&pair[1]).ok_or_else(|| input.corrupt("score"))?;
        if zset.set(&pair[0], score, home.limits).is_some() {
            return Err(input.corrupt("sorted set: a member twice"));
        }
    }
    Ok(zset)
}

fn hash<R: Read>(input: &mut Reader<R>, kind: u8, home: Home<'_>) -> Result<Hash, RdbError> {
    if kind == kind::HASH_LISTPACK {
        let pack = listpack(input)?;
        check_different(input, &pack, 2)?;
        return Ok(Hash::from_encoding(HashEncoding::Listpack(pack), home.seed, home.limits));
    }
    let elements = match kind {
        kind::HASH => strings(input, 2)?,
        kind::HASH_ZIPMAP => {
            let blob = input.string()?;
            legacy::zipmap(&blob).ok_or_else(|| input.corrupt("zipmap"))?
        }
        _ => ziplist(input)?,
    };
    if elements.len() % 2 == 1 {
        return Err(input.corrupt("hash: a field without value"));
    }
    let mut hash = Hash::new(home.seed);
    hash.maybe_convert(&elements, home.limits);
    for pair in elements.chunks_exact(2) {
        if !hash.set(&pair[0], &pair[1], home.limits) {
            return Err(input.corrupt("hash: a field twice"));
        }
    }
    Ok(hash)
}

/// Reads a hash with fields that expire.
fn mortal_hash<R: Read>(input: &mut Reader<R>, kind: u8, home: Home<'_>) -> Result<Hash, RdbError> {
    let first = input.i64_le()?;
    let mut hash = Hash::new(home.seed);
    let mut put = |input: &Reader<R>, field: &[u8], value: &[u8], due: i64| {
        if !hash.set(field, value, home.limits) {
            return Err(input.corrupt("hash: a field twice"));
        }
        if due != 0 {
            hash.expire_at(field, due);
        }
        Ok(())
    };
    if kind == kind::HASH_LISTPACK_TTL {
        let pack = listpack(input)?;
        if pack.len() % 3 != 0 {
            return Err(input.corrupt("hash: a field without TTL"));
        }
        for (field, value, due) in crate::server::value::hash::triplets(&pack) {
            put(input, &field.bytes(), &value.bytes(), due)?;
        }
        return Ok(hash);
    }
    for _ in 0..input.count()? {
        // 0 is none, else the distance to the first that is due, plus one.
        let due = match input.len()? {
            0 => 0,
            distance => i64::try_from(distance - 1)
                .ok()
                .and_then(|distance| first.checked_add(distance))
                .ok_or_else(|| input.corrupt("TTL"))?,
        };
        let (field, value) = (input.string()?, input.string()?);
        put(input, &field, &value, due)?;
    }
    Ok(hash)
}

fn stream<R: Read>(input: &mut Reader<R>, kind: u8) -> Result<Stream, RdbError> {
    let mut stream = Stream::new();
    for _ in 0..input.count()? {
        let key = input.string()?;
        let key = <[u8; 16]>::try_from(key).map_err(|_| input.corrupt("stream node key"))?;
        let pack = listpack(input)?;
        stream.load_node(StreamId::from_key(&key), pack).ok_or_else(|| input.corrupt("stream node"))?;
    }
    if input.len()? != stream.len() {
        return Err(input.corrupt("stream length"));
    }
    stream.last_id = id(input)?;
    if kind == kind::STREAM {
        // Older files do not say; this is what newer servers assume for them.
        stream.entries_added = stream.len();
        stream.find_first();
    } else {
        stream.first_id = id(input)?;
        stream.max_deleted_id = id(input)?;
        stream.entries_added = counter(input)?;
    }
    for _ in 0..input.count()? {
        let name = input.string()?;
        let value = group(input, kind)?;
        if stream.groups.insert(name.into(), value).is_some() {
            return Err(input.corrupt("stream: a group twice"));
        }
    }
    Ok(stream)
}

fn group<R: Read>(input: &mut Reader<R>, kind: u8) -> Result<Group, RdbError> {
    let last_id = id(input)?;
    let entries_read = if kind == kind::STREAM { None } else { known_counter(input)? };
    let mut group = Group::new(last_id, entries_read);
    let mut pending = std::collections::BTreeMap::new();
    for _ in 0..input.count()? {
        let key: [u8; 16] = input.array()?;
        let (delivered_ms, deliveries) = (input.u64_le()?, counter(input)?);
        if pending.insert(key, (delivered_ms, deliveries)).is_some() {
            return Err(input.corrupt("stream: an entry pending twice"));
        }
    }
    for _ in 0..input.count()? {
        let name = input.string()?;
        let seen_ms = input.u64_le()?;
        let active_ms = if kind == kind::STREAM_3 { input.u64_le()? } else { seen_ms };
        if !group.add_consumer(&name, seen_ms) {
            return Err(input.corrupt("stream: a consumer twice"));
        }
        if active_ms != u64::MAX {
            group.activate(&name, active_ms);
        }
        for _ in 0..input.count()? {
            let key: [u8; 16] = input.array()?;
            let entry = pending.remove(&key);
            let (delivered_ms, deliveries) =
                entry.ok_or_else(|| input.corrupt("stream: pending for a consumer only"))?;
            group.assign(StreamId::from_key(&key), &name, delivered_ms, deliveries);
        }
    }
    if pending.is_empty() { Ok(group) } else { Err(input.corrupt("stream: pending for no consumer")) }
}

/// Reads a number that is counted up. Nobody counts beyond what a reply can say, and those who add one need
/// not look.
fn counter<R: Read>(input: &mut Reader<R>) -> Result<u64, RdbError> {
    known_counter(input)?.ok_or_else(|| input.corrupt("stream: counter"))
}

/// Reads such a number, or -1, as a length says it, for one that is not known.
fn known_counter<R: Read>(input: &mut Reader<R>) -> Result<Option<u64>, RdbError> {
    match input.len()? {
        u64::MAX => Ok(None),
        count if i64::try_from(count).is_ok() => Ok(Some(count)),
        _ => Err(input.corrupt("stream: counter")),
    }
}

fn id<R: Read>(input: &mut Reader<R>) -> Result<StreamId, RdbError> {
    Ok(StreamId::new(input.len()?, input.len()?))
}

/// Reads `count * of` strings. Nothing is reserved: the count may be a lie.
fn strings<R: Read>(input: &mut Reader<R>, of: usize) -> Result<Vec<Vec<u8>>, RdbError> {
    let count = input.count()?.checked_mul(of).ok_or_else(|| input.corrupt("length"))?;
    (0..count).map(|_| input.string()).collect()
}

fn ziplist<R: Read>(input: &mut Reader<R>) -> Result<Vec<Vec<u8>>, RdbError> {
    let blob = input.string()?;
    legacy::ziplist(&blob).ok_or_else(|| input.corrupt("ziplist"))
}

fn listpack<R: Read>(input: &mut Reader<R>) -> Result<Listpack, RdbError> {
    let blob = input.string()?;
    Listpack::from_bytes(blob).ok_or_else(|| input.corrupt("listpack"))
}

/// Checks that a blob holds whole groups of `of` elements and that the first of each is different.
fn check_different<R>(input: &Reader<R>, pack: &Listpack, of: usize) -> Result<(), RdbError>
where
    R: Read,
{
    if !pack.len().is_multiple_of(of) {
        return Err(input.corrupt("listpack: half an entry"));
    }
    let mut seen = HashSet::new();
    if pack.iter().step_by(of).all(|element| seen.insert(element.bytes())) {
        Ok(())
    } else {
        Err(input.corrupt("listpack: an entry twice"))
    }
}
