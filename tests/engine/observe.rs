//! What a server says of itself and of a key, asked for by the test's own client.
//!
//! The same vocabulary as the engine's, filled by other code: what the engine finds out is compared
//! with it, and what the engine judges is judged of it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bigkeys::engine::key::{
    Allocator, BytesBasis, Encoding, EncodingLimits, Expiry, Flavour, KeyFacts, KeyName, Kind, Lazyfree,
    ListNodes, Measured, NodesBasis, Role, ServerProfile, StreamFacts, Version,
};

use crate::support::{Client, ServerKind};

/// Returns the profile of a server of the bench, as far as verdicts need it.
pub(crate) fn profile(kind: ServerKind, redis: &Client) -> ServerProfile {
    let setting = |name: &str| {
        let reply = redis.call(&["CONFIG", "GET", name]);
        Some(reply.field(name).text() == "yes")
    };
    ServerProfile {
        node: "127.0.0.1".to_owned(),
        flavour: if kind.is_valkey() { Flavour::Valkey } else { Flavour::Redis },
        version: Version::parse(kind.version()).expect("the bench's versions are versions"),
        run_id: None,
        role: Role::Primary,
        cluster: false,
        allocator: if kind.is_valkey() { Allocator::Libc } else { Allocator::Jemalloc },
        maxmemory_policy: None,
        used_memory_bytes: None,
        databases: Some(16),
        lazyfree: Lazyfree {
            user_del: setting("lazyfree-lazy-user-del"),
            expire: setting("lazyfree-lazy-expire"),
            server_del: setting("lazyfree-lazy-server-del"),
            eviction: setting("lazyfree-lazy-eviction"),
            user_flush: setting("lazyfree-lazy-user-flush"),
        },
        limits: EncodingLimits::default(),
        access: BTreeMap::new(),
    }
}

/// Returns everything that the server tells of a key.
pub(crate) fn facts(redis: &Client, key: &str) -> KeyFacts {
    let kind = Kind::from_type_reply(&redis.call(&["TYPE", key]).text()).expect("the key exists");
    let encoding = Encoding::from_reply(&redis.call(&["OBJECT", "ENCODING", key]).text());
    let elements = kind.length_command().map(|command| count(redis.call(&[command, key]).int()));
    let bytes = count(redis.call(&["MEMORY", "USAGE", key, "SAMPLES", "0"]).int());
    let ttl = redis.call(&["PTTL", key]).int();
    KeyFacts {
        db: 0,
        slot: None,
        key: KeyName::new(key.as_bytes()),
        list_nodes: (encoding == Encoding::Quicklist)
            .then(|| ListNodes { nodes: list_nodes(redis, key), basis: NodesBasis::Exact }),
        stream: (kind == Kind::Stream).then(|| stream(redis, key)),
        kind,
        encoding: Some(encoding),
        elements,
        size: Some(Measured { bytes, basis: BytesBasis::Measured }),
        expiry: u64::try_from(ttl).map_or(Expiry::Never, |ms| Expiry::In(Duration::from_millis(ms))),
        idle: None,
        freq: None,
        observed_at: SystemTime::now(),
    }
}

/// Returns the nodes of a list that is a quicklist, from `DEBUG OBJECT`.
pub(crate) fn list_nodes(redis: &Client, key: &str) -> u64 {
    let text = redis.call(&["DEBUG", "OBJECT", key]).text();
    text.split(' ')
        .find_map(|word| word.strip_prefix("ql_nodes:"))
        .and_then(|nodes| nodes.parse().ok())
        .unwrap_or_else(|| panic!("no ql_nodes in {text}"))
}

/// Returns what XINFO says of a stream.
pub(crate) fn stream(redis: &Client, key: &str) -> StreamFacts {
    let stream = redis.call(&["XINFO", "STREAM", key]);
    let groups = redis.call(&["XINFO", "GROUPS", key]);
    let sum = |name: &str| groups.items().iter().map(|group| count(group.field(name).int())).sum();
    let first = groups.items().iter().min_by_key(|group| group.field("name").bytes().to_vec());
    StreamFacts {
        radix_tree_nodes: count(stream.field("radix-tree-nodes").int()),
        radix_tree_keys: count(stream.field("radix-tree-keys").int()),
        groups: groups.items().len() as u64,
        first_group_pending: first.map_or(0, |group| count(group.field("pending").int())),
        pending: sum("pending"),
        consumers: sum("consumers"),
    }
}

fn count(number: i64) -> u64 {
    u64::try_from(number).expect("a count is not negative")
}
