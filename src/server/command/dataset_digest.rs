//! DEBUG DIGEST: one number for everything there is, the same wherever the data are the same.
//!
//! As Redis computes it, so that digests of both can be compared: what has an order is mixed in, and
//! what has none is added by exclusive or. Encodings, idle times and how long is left do not count.

use super::digest::sha1;
use crate::server::keyspace::{Db, Keyspace};
use crate::server::number::format_double;
use crate::server::value::Value;
use crate::server::value::hash::Hash;
use crate::server::value::stream::StreamId;

/// Twenty bytes, all zero for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Digest([u8; 20]);

impl Digest {
    /// Returns the digest of all databases.
    pub(super) fn of_dataset(keyspace: &Keyspace) -> Digest {
        let mut whole = Digest::default();
        for (index, db) in (0u32..).zip(keyspace.dbs()).filter(|(_, db)| db.len() > 0) {
            whole.mix(&index.to_be_bytes());
            whole.add_keys(db);
        }
        whole
    }

    /// Returns the digest of one value; its key's name is no part of it.
    pub(super) fn of_value(value: &Value, expires: bool) -> Digest {
        let mut digest = Digest::default();
        digest.mix_value(value, expires);
        digest
    }

    pub(super) fn hex(self) -> String {
        self.0.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    fn add_keys(&mut self, db: &Db) {
        for (key, value, deadline) in db.entries() {
            let mut digest = Digest::default();
            digest.mix(key);
            digest.mix_value(value, deadline.is_some());
            self.add(&digest.0);
        }
    }

    fn mix_value(&mut self, value: &Value, expires: bool) {
        self.mix(&type_number(value).to_be_bytes());
        match value {
            Value::String(string) => self.mix(&string.bytes()),
            Value::List(list) => list.elements().for_each(|element| self.mix(&element.bytes())),
            Value::Set(set) => set.members().for_each(|member| self.add(&member.bytes())),
            Value::Zset(zset) => zset.members().for_each(|(member, score)| {
                self.add(&Digest::of_parts([&member.bytes(), format_double(score).as_bytes()]).0);
            }),
            Value::Hash(hash) => self.add_fields(hash),
            Value::Stream(stream) => stream.range(StreamId::MIN, StreamId::MAX, |entry| {
                self.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                for (field, value) in &entry.pairs {
                    self.mix(&field.bytes());
                    self.mix(&value.bytes());
                }
                true
            }),
        }
        if expires {
            self.add(b"!!expire!!");
        }
    }

    fn add_fields(&mut self, hash: &Hash) {
        for (field, value) in hash.pairs(0) {
            let mut digest = Digest::of_parts([&field.bytes(), &value.bytes()]);
            if hash.due(&field.bytes()).flatten().is_some() {
                digest.add(b"!!hexpire!!");
            }
            self.add(&digest.0);
        }
    }

    fn of_parts(parts: [&[u8]; 2]) -> Digest {
        let mut digest = Digest::default();
        for part in parts {
            digest.mix(part);
        }
        digest
    }

    /// Takes in what comes in no order: twice the same leaves nothing.
    fn add(&mut self, bytes: &[u8]) {
        for (byte, other) in self.0.iter_mut().zip(sha1(bytes)) {
            *byte ^= other;
        }
    }

    /// Takes in what comes next.
    fn mix(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = sha1(&self.0);
    }
}

/// Returns the number that Redis gives a type.
fn type_number(value: &Value) -> u32 {
    match value {
        Value::String(_) => 0,
        Value::List(_) => 1,
        Value::Set(_) => 2,
        Value::Zset(_) => 3,
        Value::Hash(_) => 4,
        Value::Stream(_) => 6,
    }
}
