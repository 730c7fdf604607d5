//! Ways of making a value of `n` elements, for every type and encoding that a server has.

use super::observe;
use crate::support::{Client, ServerKind};

/// Longer than every `*-max-listpack-value`, so that one such element makes a table of the value.
const LONG: usize = 80;

/// Makes the value at `k`.
type Make = Box<dyn Fn(&Client, u64)>;

/// A way of making the value of `k`, and the encoding that must come of it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) encoding: &'static str,
    /// What the server's effort must be, by how the value is made. `None`: ask the server (streams).
    pub(crate) effort: Option<fn(u64) -> u64>,
    make: Make,
}

impl Case {
    /// Makes the value at `k`, which must not exist.
    pub(crate) fn make(&self, redis: &Client, n: u64) {
        (self.make)(redis, n);
    }

    fn new(
        name: &'static str,
        encoding: &'static str,
        effort: Option<fn(u64) -> u64>,
        make: impl Fn(&Client, u64) + 'static,
    ) -> Self {
        Self { name, encoding, effort, make: Box::new(make) }
    }

    /// A value that grows by one element a command; `element` gets the index and `n`.
    fn grown(
        name: &'static str,
        encoding: &'static str,
        effort: fn(u64) -> u64,
        command: &'static str,
        element: fn(u64, u64) -> Vec<String>,
    ) -> Self {
        Self::new(name, encoding, Some(effort), move |redis, n| grow(redis, n, command, |i| element(i, n)))
    }
}

fn grow(redis: &Client, n: u64, command: &str, element: impl Fn(u64) -> Vec<String>) {
    let words = || command.split(' ').map(str::to_owned);
    redis.pipeline((0..n).map(|i| words().chain(element(i)).collect::<Vec<_>>()));
}

fn one(_: u64) -> u64 {
    1
}

fn all(n: u64) -> u64 {
    n
}

fn long(n: u64) -> String {
    format!("x{n:0LONG$}")
}

/// Returns all cases of a server.
pub(crate) fn cases(kind: ServerKind) -> Vec<Case> {
    let mut cases = strings();
    cases.extend(sets(kind));
    cases.extend(hashes(kind));
    cases.extend(zsets(kind));
    cases.extend(lists(kind));
    cases.extend(streams());
    if kind == ServerKind::Redis82 {
        cases.push(Case::grown("vector set", "raw", one, "VADD k VALUES 2", |i, _| {
            vec![i.to_string(), "1".to_owned(), format!("e{i}")]
        }));
    }
    cases
}

fn strings() -> Vec<Case> {
    let string = |name, encoding, value: fn(u64) -> String| {
        Case::new(name, encoding, Some(one), move |redis, n| redis.call(&["SET", "k", &value(n)]).is("OK"))
    };
    vec![
        string("int", "int", |n| n.to_string()),
        string("embstr", "embstr", |n| format!("s{n}")),
        string("raw", "raw", |n| "x".repeat(200 * usize::try_from(n).expect("a small number"))),
    ]
}

/// Returns whether sets of short words and lists of one node are compact: from Redis 7.2 on.
fn has_compact_sets(kind: ServerKind) -> bool {
    !matches!(kind, ServerKind::Redis62 | ServerKind::Redis70)
}

fn compact(kind: ServerKind) -> &'static str {
    if kind == ServerKind::Redis62 { "ziplist" } else { "listpack" }
}

fn sets(kind: ServerKind) -> Vec<Case> {
    let (encoding, effort): (_, fn(u64) -> u64) =
        if has_compact_sets(kind) { ("listpack", one) } else { ("hashtable", all) };
    vec![
        Case::grown("set of integers", "intset", one, "SADD k", |i, _| vec![i.to_string()]),
        Case::grown("set of words", encoding, effort, "SADD k", |i, _| vec![format!("m{i}")]),
        Case::grown("set of long words", "hashtable", all, "SADD k", |i, _| vec![long(i)]),
    ]
}

fn hashes(kind: ServerKind) -> Vec<Case> {
    let short = |i, _| vec![format!("f{i}"), "v".to_owned()];
    let table = |i, _| vec![format!("f{i}"), long(i)];
    let mut cases = vec![
        Case::grown("hash, compact", compact(kind), one, "HSET k", short),
        Case::grown("hash, table", "hashtable", all, "HSET k", table),
        // The last field makes a table of what was compact: nothing has settled yet.
        Case::grown("hash, table, just converted", "hashtable", all, "HSET k", |i, n| {
            vec![format!("f{i}"), if i + 1 == n { long(i) } else { "v".to_owned() }]
        }),
        Case::new("hash, table, shrunk from 1000", "hashtable", Some(all), |redis, n| {
            redis.fill_hash("k", 1000);
            grow(redis, 1000 - n, "HDEL k", |i| vec![format!("f{i}")]);
        }),
    ];
    let with_ttl = move |name, encoding, effort: fn(u64) -> u64, element: fn(u64, u64) -> Vec<String>| {
        Case::new(name, encoding, Some(effort), move |redis, n| {
            grow(redis, n, "HSET k", |i| element(i, n));
            redis.run("HEXPIRE k 10000 FIELDS 1 f1");
        })
    };
    if matches!(kind, ServerKind::Redis82 | ServerKind::Bundled) {
        cases.push(with_ttl("hash, compact, a field with a TTL", "listpackex", one, short));
    }
    if matches!(kind, ServerKind::Redis82 | ServerKind::Valkey91 | ServerKind::Bundled) {
        cases.push(with_ttl("hash, table, a field with a TTL", "hashtable", all, table));
    }
    cases
}

fn zsets(kind: ServerKind) -> Vec<Case> {
    vec![
        Case::grown("zset, compact", compact(kind), one, "ZADD k", |i, _| {
            vec![i.to_string(), format!("m{i}")]
        }),
        Case::grown("zset, skiplist", "skiplist", all, "ZADD k", |i, _| vec![i.to_string(), long(i)]),
    ]
}

fn lists(kind: ServerKind) -> Vec<Case> {
    let of_one_node = if has_compact_sets(kind) { "listpack" } else { "quicklist" };
    let of_nodes = |name, per_node: u64| {
        Case::new(name, "quicklist", Some(all), move |redis, nodes| {
            // The old name is understood by all of them.
            redis.run(&format!("CONFIG SET list-max-ziplist-size {per_node}"));
            grow(redis, nodes * per_node, "RPUSH k", |i| vec![format!("e{i}")]);
            redis.run("CONFIG SET list-max-ziplist-size -2");
        })
    };
    vec![
        Case::grown("list of one node", of_one_node, one, "RPUSH k", |i, _| vec![i.to_string()]),
        of_nodes("list of n nodes, one element each", 1),
        of_nodes("list of n nodes, three elements each", 3),
        Case::grown("list of n nodes, elements larger than a node", "quicklist", all, "RPUSH k", |i, _| {
            vec![format!("{i:09000}")]
        }),
    ]
}

fn streams() -> Vec<Case> {
    let stream = |name, make: fn(&Client, u64)| Case::new(name, "stream", None, make);
    vec![
        stream("stream of n radix nodes", stream_of_nodes),
        stream("stream, one group with pending entries", |redis, n| {
            redis.run("XGROUP CREATE k g $ MKSTREAM");
            redis.fill_stream("k", 80);
            // nodes + 1 x (1 + pending) is n.
            let nodes = observe::stream(redis, "k").radix_tree_nodes;
            read_pending(redis, "g", n - nodes - 1);
        }),
        stream("stream, an empty first group and a second one full", |redis, n| {
            redis.run("XGROUP CREATE k b $ MKSTREAM");
            redis.run("XGROUP CREATE k a $");
            redis.fill_stream("k", 90);
            read_pending(redis, "b", n);
        }),
        stream("stream, a full first group and a second one empty", |redis, n| {
            redis.run("XGROUP CREATE k b $ MKSTREAM");
            redis.run("XGROUP CREATE k a $");
            redis.fill_stream("k", 90);
            // nodes + 2 x (1 + pending), as near to n as it gets.
            let nodes = observe::stream(redis, "k").radix_tree_nodes;
            read_pending(redis, "a", (n - nodes) / 2 - 1);
        }),
        stream("stream, groups made and destroyed", |redis, n| {
            stream_of_nodes(redis, n);
            redis.run("XGROUP CREATE k g 0");
            redis.run("XGROUP DESTROY k g");
        }),
    ]
}

/// Makes a stream whose tree has so many nodes, or the fewest above that.
fn stream_of_nodes(redis: &Client, nodes: u64) {
    redis.run("CONFIG SET stream-node-max-entries 1");
    for id in 1.. {
        redis.run(&format!("XADD k {id}-0 f v"));
        if observe::stream(redis, "k").radix_tree_nodes >= nodes {
            break;
        }
    }
    redis.run("CONFIG SET stream-node-max-entries 100");
}

/// Lets a consumer of the group read so many entries and acknowledge none.
fn read_pending(redis: &Client, group: &str, count: u64) {
    if count > 0 {
        redis.run(&format!("XREADGROUP GROUP {group} someone COUNT {count} STREAMS k >"));
    }
}
