//! One value as DUMP gives it and RESTORE takes it: type, body, version, checksum.

use super::crc64::crc64;
use super::error::{RdbError, RdbErrorKind};
use super::load::{self, Home};
use super::read::Reader;
use super::write::Writer;
use super::{VERSION, VERSION_FIELD_TTL, VERSION_MAX, kind, save};
use crate::server::value::Value;

/// Version and checksum.
const FOOTER: usize = 10;

/// Returns the bytes of a value.
pub(crate) fn dump(value: &Value) -> Vec<u8> {
    let mut out = Writer::new(true);
    let kind = save::kind_of(value);
    out.u8(kind);
    save::value(&mut out, value);
    let mortal = matches!(kind, kind::HASH_TTL | kind::HASH_LISTPACK_TTL);
    let version = if mortal { VERSION_FIELD_TTL } else { VERSION };
    out.raw(&version.to_le_bytes());
    let crc = crc64(0, out.bytes());
    out.u64_le(crc);
    out.into_bytes()
}

/// Reads a value back.
///
/// # Errors
/// Fails on a newer version or a wrong checksum, and on anything that does not add up.
pub(crate) fn restore(payload: &[u8], home: Home<'_>) -> Result<Value, RdbError> {
    let checksum = RdbError { offset: payload.len() as u64, kind: RdbErrorKind::Checksum };
    let Some((body, footer)) = payload.len().checked_sub(FOOTER).map(|at| payload.split_at(at)) else {
        return Err(checksum);
    };
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    if version > VERSION_MAX {
        return Err(RdbError { offset: body.len() as u64, kind: RdbErrorKind::Version(version) });
    }
    // Unlike in a file, a checksum of zero is not taken for none.
    let (signed, crc) = payload.split_at(payload.len() - 8);
    if crc != crc64(0, signed).to_le_bytes() {
        return Err(checksum);
    }
    let mut input = Reader::new(body);
    let kind = input.u8()?;
    load::value(&mut input, kind, home)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::value::hash::Hash;
    use crate::server::value::limits::Limits;
    use crate::server::value::list::List;
    use crate::server::value::quicklist::End;
    use crate::server::value::set::Set;
    use crate::server::value::siphash::HashSeed;
    use crate::server::value::stream::{Group, Stream, StreamId};
    use crate::server::value::string::StringValue;
    use crate::server::value::zset::Zset;

    /// One value of every type and encoding.
    fn values() -> Vec<Value> {
        let (limits, seed) = (Limits::default(), HashSeed::default());
        let mut values: Vec<Value> = ["", "x", "12", "-70000", "12345678901", &"ab".repeat(500)]
            .into_iter()
            .map(|text| StringValue::encode(text.into()).into())
            .collect();
        for count in [3u32, 600, 3000] {
            let mut list = List::new();
            let mut numbers = Set::new(b"0", 1, seed, &limits);
            let mut words = Set::new(b"w", 1, seed, &limits);
            let mut hash = Hash::new(seed);
            let mut zset = Zset::new(seed);
            let mut stream = Stream::new();
            for n in 0..count {
                let text = format!("element:{n}");
                list.push_all(End::Tail, &[&text], &limits);
                numbers.add((n * 1000).to_string().as_bytes(), &limits);
                words.add(text.as_bytes(), &limits);
                hash.set(text.as_bytes(), b"value", &limits);
                zset.set(text.as_bytes(), f64::from(n) / 3.0, &limits);
                stream.append(StreamId::new(u64::from(n) + 1, 0), &["field", &text], &limits);
            }
            let mut mortal = hash.clone();
            mortal.expire_at(b"element:1", 5_000_000_000_000);
            mortal.expire_at(b"element:2", 4_000_000_000_000);
            stream.delete(StreamId::new(2, 0));
            let mut group = Group::new(StreamId::new(3, 0), None);
            group.add_consumer(b"alice", 77);
            group.assign(StreamId::new(1, 0), b"alice", 99, 3);
            stream.groups.insert((*b"readers").into(), group);
            values.extend([
                list.into(),
                numbers.into(),
                words.into(),
                hash.into(),
                mortal.into(),
                zset.into(),
                stream.into(),
            ]);
        }
        values
    }

    #[test]
    fn every_encoding_comes_back_as_it_was() {
        let limits = Limits::default();
        let home = Home { seed: HashSeed::default(), limits: &limits };
        for value in values() {
            let bytes = dump(&value);
            let back = restore(&bytes, home).unwrap_or_else(|error| panic!("{}: {error}", value.encoding()));
            assert_eq!(back.encoding(), value.encoding());
            let (again, first) = (dump(&back), bytes);
            // Tables come back in the order of another table size; what is sorted is the same bytes.
            assert_eq!(again.len(), first.len(), "{} {}", value.type_name(), value.encoding());
        }
    }

    #[test]
    fn cut_and_flipped_dumps_are_refused_or_harmless() {
        let limits = Limits::default();
        let home = Home { seed: HashSeed::default(), limits: &limits };
        for value in values().into_iter().take(13) {
            let bytes = dump(&value);
            let step = (bytes.len() / 300).max(1);
            for at in (0..bytes.len()).step_by(step) {
                assert!(restore(&bytes[..at], home).is_err());
                let mut broken = bytes.clone();
                broken[at] ^= 1 << (at % 8);
                let body = broken.len() - 8;
                assert!(restore(&broken, home).is_err() || at >= body, "the checksum finds one flip");
                // Past the checksum: whatever is read must be usable.
                let crc = crc64(0, &broken[..body]);
                broken[body..].copy_from_slice(&crc.to_le_bytes());
                if let Ok(value) = restore(&broken, home) {
                    dump(&value);
                    value.memory_usage(0);
                }
            }
        }
    }

    /// Does to a value what commands do: what was let in must bear it.
    fn exercise(value: Value) {
        let limits = Limits::default();
        value.memory_usage(0);
        value.free_effort();
        let bytes = dump(&value);
        let home = Home { seed: HashSeed::default(), limits: &limits };
        restore(&bytes, home).expect("what we write we read");
        match value {
            Value::String(mut string) => string.make_raw().push(0),
            Value::List(mut list) => {
                list.elements().rev().for_each(drop);
                list.insert(list.len() / 2, crate::server::value::quicklist::Side::After, b"new", &limits);
                list.remove_equal(b"element:1", 2, End::Tail, &limits);
                while list.pop(End::Head).is_some() {}
            }
            Value::Set(mut set) => {
                set.scan(0, 1000, |_| ());
                set.add(b"new", &limits);
                let mut random = crate::server::value::random::Random::new(1);
                while set.pop_random(&mut random).is_some() {}
            }
            Value::Hash(mut hash) => {
                hash.scan(0, 1000, 0, |_, _| ());
                hash.set(b"element:1", b"new", &limits);
                hash.expire_at(b"element:2", 5);
                hash.reap(i64::MAX, usize::MAX);
                hash.pairs(0).for_each(drop);
            }
            Value::Zset(mut zset) => {
                zset.scan(0, 1000, |_, _| ());
                zset.set(b"element:1", -1.0, &limits);
                zset.range(0..zset.len(), true).for_each(drop);
                zset.remove_ranks(0..zset.len());
                assert!(zset.is_empty());
            }
            Value::Stream(mut stream) => {
                stream.range_back(StreamId::MIN, StreamId::MAX, |_| true);
                stream.delete(StreamId::new(3, 0));
                if let Some(next) = stream.last_id.next() {
                    stream.append(next, &["a", "b"], &limits);
                }
                for group in stream.groups.values_mut() {
                    group.acknowledge(StreamId::new(1, 0));
                    group.remove_consumer(b"alice");
                }
                let keep = crate::server::value::stream::Keep::Newest(1);
                stream.trim(crate::server::value::stream::Trim { keep, approximate: false, limit: 0 });
            }
        }
    }

    proptest! {
        /// Bytes changed at will and signed again are refused, or are a value like any other.
        #[test]
        fn forged_dumps_do_no_harm(
            which in 0usize..16,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            static DUMPS: std::sync::LazyLock<Vec<Vec<u8>>> =
                std::sync::LazyLock::new(|| values().iter().take(16).map(dump).collect());
            let mut bytes = DUMPS[which % DUMPS.len()].clone();
            bytes.truncate(bytes.len() - 8);
            for (at, byte) in changes {
                // Heads matter more than the middle of a long body.
                let span = bytes.len().min(200);
                bytes[at.index(span)] = byte;
            }
            if let Some(cut) = cut {
                let at = cut.index(bytes.len());
                bytes.drain(at..(at + 1).min(bytes.len()));
            }
            let crc = crc64(0, &bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
            let limits = Limits::default();
            if let Ok(value) = restore(&bytes, Home { seed: HashSeed::default(), limits: &limits }) {
                exercise(value);
            }
        }
    }

    #[test]
    fn r3_a_counter_that_nobody_can_have_reached_is_refused() {
        let limits = Limits::default();
        let home = Home { seed: HashSeed::default(), limits: &limits };
        let dump_with = |added: u64, read: Option<u64>, deliveries: u64| {
            let mut stream = Stream::new();
            stream.append(StreamId::new(1, 0), &["a", "b"], &limits);
            stream.entries_added = added;
            let mut group = Group::new(StreamId::new(1, 0), read);
            group.add_consumer(b"me", 1);
            group.assign(StreamId::new(1, 0), b"me", 1, deliveries);
            stream.groups.insert((*b"g").into(), group);
            dump(&stream.into())
        };
        let most = u64::MAX / 2;
        assert!(restore(&dump_with(most, Some(most), most), home).is_ok());
        assert!(restore(&dump_with(most, None, most), home).is_ok());
        let beyond = [(most + 1, None, 1), (u64::MAX, None, 1), (1, Some(most + 1), 1), (1, None, u64::MAX)];
        for (added, read, deliveries) in beyond {
            let restored = restore(&dump_with(added, read, deliveries), home);
            assert!(matches!(restored, Err(RdbError { kind: RdbErrorKind::Corrupt(_), .. })));
        }
    }
}
