//! A scan asks its details of candidates only. Whatever looking at everything finds, it has to find too.

use std::collections::BTreeSet;

use super::cases::cases;
use crate::support::{Client, Lab, Scan, ServerKind, on_each_server};

/// Sizes on both sides of what becomes worth a row, whatever an element costs in allocations.
const SIZES: [u64; 14] = [16, 20, 21, 22, 31, 32, 33, 34, 63, 64, 65, 66, 100, 200];

/// Makes a key of each case and size.
fn fill(kind: ServerKind, redis: &Client, what: &str) {
    for case in cases(kind) {
        for n in SIZES {
            // Some cases have a least size: a tree has nodes before it has groups.
            if case.encoding == "stream" && n < 31 {
                continue;
            }
            redis.run("DEL k");
            case.make(redis, n);
            redis.call(&["RENAME", "k", &format!("{what}: {} at {n}", case.name)]);
        }
    }
}

/// Makes the leanest values there are: one byte an element, and a table from the first element on.
fn fill_lean(kind: ServerKind, redis: &Client) {
    let set = |setting: &str, value: &str| redis.run(&format!("CONFIG SET {setting} {value}")).is("OK");
    set("hash-max-ziplist-entries", "0");
    set("zset-max-ziplist-entries", "0");
    set("set-max-intset-entries", "0");
    set("list-max-ziplist-size", "1");
    set("stream-node-max-entries", "1");
    if !matches!(kind, ServerKind::Redis62 | ServerKind::Redis70) {
        set("set-max-listpack-entries", "0");
    }
    let element = |i: u8| vec![b'!' + i];
    let integer = |i: u8| i.to_string().into_bytes();
    for n in SIZES.map(|n| u8::try_from(n).expect("small")).into_iter().filter(|n| *n < 94) {
        let key = |what: &str| format!("lean {what} at {n}").into_bytes();
        for (what, element) in [("bytes", &element as &dyn Fn(u8) -> Vec<u8>), ("integers", &integer)] {
            let call = |words: Vec<Vec<u8>>| drop(redis.call(&words));
            for i in 0..n {
                call(vec![b"SADD".to_vec(), key(&format!("set of {what}")), element(i)]);
                call(vec![b"HSET".to_vec(), key(&format!("hash of {what}")), element(i), b"".to_vec()]);
                call(vec![b"ZADD".to_vec(), key(&format!("zset of {what}")), b"0".to_vec(), element(i)]);
                call(vec![b"RPUSH".to_vec(), key(&format!("list of {what}")), element(i)]);
            }
        }
        for i in 1..=n {
            redis.call(&[&b"XADD"[..], &key("stream"), format!("{i}-0").as_bytes(), b"f", b""]);
        }
        // Nothing but pending entries: the stream itself is empty.
        let pending = key("stream of pending entries");
        redis.call(&[&b"XGROUP"[..], b"CREATE", &pending, b"g", b"0", b"MKSTREAM"]);
        for i in 1..=n {
            redis.call(&[&b"XADD"[..], &pending, format!("{i}-0").as_bytes(), b"f", b""]);
        }
        redis.call(&[&b"XREADGROUP"[..], b"GROUP", b"g", b"c", b"STREAMS", &pending, b">"]);
        redis.call(&[&b"XTRIM"[..], &pending, b"MAXLEN", b"0"]);
        // Nothing but groups.
        for i in 0..n {
            redis.call(&[
                &b"XGROUP"[..],
                b"CREATE",
                &key("stream of groups"),
                &element(i),
                b"0",
                b"MKSTREAM",
            ]);
        }
    }
    // Small elements where MEMORY USAGE looks, large ones where it does not.
    for i in 0..40_u32 {
        let value = if i < 10 { String::new() } else { "x".repeat(100_000) };
        redis.call(&["HSET", "biased hash", &i.to_string(), &value]);
        redis.call(&["ZADD", "biased zset", &i.to_string(), &format!("{i}{value}")]);
        redis.call(&["RPUSH", "biased list", &value]);
    }
}

/// Returns the keys that are worth a row.
fn notable(scan: &Scan) -> BTreeSet<String> {
    scan.by_key()
        .into_iter()
        .filter(|(_, finding)| finding["risk"] != "none")
        .map(|((_, key), _)| String::from_utf8(key).expect("these names are text"))
        .collect()
}

on_each_server! {
    fn a_scan_misses_nothing_that_looking_at_everything_finds(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(kind, &redis, "default");
        fill_lean(kind, &redis);
        let all = notable(&lab.scan(["--all-keys", "--exact-lists"]).document());
        let found = notable(&lab.scan(["--exact-lists"]).document());
        assert!(all.len() > 100, "the keyspace is worth scanning: {}", all.len());
        let missed: Vec<_> = all.difference(&found).collect();
        assert!(missed.is_empty(), "{} of {} missed: {missed:#?}", missed.len(), all.len());
        // Where sizes cannot be asked, nothing is left out for being small.
        redis.run("ACL SETUSER limited on >pw ~* +@all -memory");
        let blind = lab.scan(["--user", "limited"]).env("REDISCLI_AUTH", "pw").document();
        for row in blind.summary("/census").as_array().expect("rows") {
            assert_eq!(row["keys_uncounted"], 0, "{row}");
        }
    }
}
