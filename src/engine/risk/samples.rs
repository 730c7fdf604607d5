//! Facts and servers for the tests of this folder, and of those that act on verdicts.

use std::time::{Duration, SystemTime};

use crate::engine::key::{
    Allocator, BytesBasis, Encoding, EncodingLimits, Expiry, Flavour, KeyFacts, KeyName, Kind, Lazyfree,
    ListNodes, Measured, NodesBasis, Role, ServerProfile, StreamFacts, Version,
};

use super::{Policy, Thresholds};

pub(in crate::engine) fn redis(major: u16, minor: u16, patch: u16) -> ServerProfile {
    server(Flavour::Redis, Version::new(major, minor, patch), false)
}

pub(in crate::engine) fn valkey(major: u16, minor: u16, patch: u16) -> ServerProfile {
    server(Flavour::Valkey, Version::new(major, minor, patch), major >= 8)
}

fn server(flavour: Flavour, version: Version, lazy: bool) -> ServerProfile {
    ServerProfile {
        node: "127.0.0.1:6379".to_owned(),
        flavour,
        version,
        run_id: None,
        role: Role::Primary,
        cluster: false,
        allocator: Allocator::Jemalloc,
        maxmemory_policy: None,
        used_memory_bytes: None,
        databases: Some(16),
        lazyfree: all_lazyfree(Some(lazy)),
        limits: EncodingLimits::default(),
        access: std::collections::BTreeMap::new(),
    }
}

pub(in crate::engine) fn all_lazyfree(value: Option<bool>) -> Lazyfree {
    Lazyfree { user_del: value, expire: value, server_del: value, eviction: value, user_flush: value }
}

pub(in crate::engine) fn policy(server: ServerProfile) -> Policy {
    Policy { server, thresholds: Thresholds::default() }
}

pub(in crate::engine) fn key(kind: Kind) -> KeyFacts {
    KeyFacts {
        db: 0,
        slot: None,
        key: KeyName::new(*b"key"),
        kind,
        encoding: None,
        elements: None,
        size: None,
        list_nodes: None,
        stream: None,
        expiry: Expiry::Never,
        idle: None,
        freq: None,
        observed_at: SystemTime::UNIX_EPOCH,
    }
}

pub(in crate::engine) fn collection(kind: Kind, encoding: Encoding, elements: u64) -> KeyFacts {
    KeyFacts { encoding: Some(encoding), elements: Some(elements), ..key(kind) }
}

pub(in crate::engine) fn list(nodes: u64, elements: u64) -> KeyFacts {
    KeyFacts {
        list_nodes: Some(ListNodes { nodes, basis: NodesBasis::Exact }),
        ..collection(Kind::List, Encoding::Quicklist, elements)
    }
}

pub(in crate::engine) fn string(bytes: u64) -> KeyFacts {
    sized(collection(Kind::String, Encoding::Raw, bytes), bytes)
}

pub(in crate::engine) fn stream(facts: StreamFacts) -> KeyFacts {
    KeyFacts { stream: Some(facts), ..collection(Kind::Stream, Encoding::Stream, 0) }
}

pub(in crate::engine) fn sized(facts: KeyFacts, bytes: u64) -> KeyFacts {
    KeyFacts { size: Some(Measured { bytes, basis: BytesBasis::Sampled }), ..facts }
}

pub(in crate::engine) fn expiring(facts: KeyFacts, seconds: u64) -> KeyFacts {
    KeyFacts { expiry: Expiry::In(Duration::from_secs(seconds)), ..facts }
}
