//! Everything that can be done with a key, whatever it holds. What the server believed when it took the value
//! is put to the test here: a blob that does not add up breaks whoever walks it.

use std::time::Duration;

use crate::Target;
use crate::reply::{Reply, decode};

/// Keys that are tried in one database; a file of a thousand says no more than one of ten.
const KEYS_MAX: usize = 10;

/// Reads first, as a value that was changed may have been made whole; `K` is the key, `G` a consumer group.
const ANY: &[&str] = &[
    "OBJECT ENCODING K",
    "OBJECT FREQ K",
    "MEMORY USAGE K SAMPLES 0",
    "DEBUG OBJECT K",
    "COPY K copied REPLACE",
    "PTTL K",
];
const STRING: &[&str] = &[
    "GET K",
    "STRLEN K",
    "GETRANGE K -5 3",
    "BITCOUNT K",
    "BITPOS K 1",
    "BITFIELD K GET i64 3 SET u7 9 1 INCRBY i5 0 9",
    "LCS K K LEN",
    "PFCOUNT K",
    "PFCOUNT K other",
    "PFADD K a b c",
    "PFMERGE other K",
    "INCRBY K 7",
    "INCRBYFLOAT K 0.1",
    "SETBIT K 77 1",
    "APPEND K x",
    "SETRANGE K 3 abc",
];
const LIST: &[&str] = &[
    "LLEN K",
    "LRANGE K 0 -1",
    "LINDEX K -2",
    "LPOS K 1 RANK -1 COUNT 0",
    "LSET K 0 a",
    "LINSERT K AFTER a b",
    "LPUSH K 1 2",
    "RPUSH K 70000 x",
    "LREM K -1 1",
    "LMOVE K K LEFT RIGHT",
    "LTRIM K 1 -2",
    "LPOP K 2",
    "RPOP K",
];
const SET: &[&str] = &[
    "SCARD K",
    "SMEMBERS K",
    "SSCAN K 0 COUNT 100",
    "SMISMEMBER K 1 a",
    "SRANDMEMBER K 3",
    "SRANDMEMBER K -3",
    "SINTER K K",
    "SUNIONSTORE other K",
    "SDIFF K other",
    "SADD K 1",
    "SADD K 70000 a",
    "SREM K 1",
    "SPOP K",
];
const ZSET: &[&str] = &[
    "ZCARD K",
    "ZRANGE K 0 -1 WITHSCORES",
    "ZSCAN K 0 COUNT 100",
    "ZRANGE K +inf -inf BYSCORE REV LIMIT 1 3",
    "ZRANGE K - + BYLEX",
    "ZCOUNT K 0 5",
    "ZLEXCOUNT K [a (b",
    "ZRANK K a",
    "ZMSCORE K a 1",
    "ZRANDMEMBER K 3 WITHSCORES",
    "ZUNIONSTORE other 2 K K WEIGHTS 1 2",
    "ZADD K 1 a 2.5 b",
    "ZINCRBY K 1 a",
    "ZREM K b",
    "ZREMRANGEBYRANK K 1 1",
    "ZPOPMIN K",
    "ZPOPMAX K",
];
const HASH: &[&str] = &[
    "HLEN K",
    "HGETALL K",
    "HSCAN K 0 COUNT 100",
    "HMGET K a 1",
    "HSTRLEN K a",
    "HRANDFIELD K 3 WITHVALUES",
    "HPTTL K FIELDS 1 a",
    "HSET K a 1 b x",
    "HINCRBY K a 2",
    "HEXPIRE K 10 FIELDS 2 a b",
    "HPERSIST K FIELDS 1 b",
    "HDEL K b",
];
const STREAM: &[&str] = &[
    "XLEN K",
    "XRANGE K - +",
    "XREVRANGE K + - COUNT 2",
    "XINFO STREAM K FULL COUNT 0",
    "XREAD STREAMS K 0",
    "XADD K * a 1",
    "XGROUP CREATE K new 0",
    "XREADGROUP GROUP new me STREAMS K >",
    "XDEL K 1-1 0-1",
    "XTRIM K MAXLEN 1",
    "XSETID K 18446744073709551615-18446744073709551615",
];
const GROUP: &[&str] = &[
    "XINFO CONSUMERS K G",
    "XPENDING K G",
    "XPENDING K G - + 10",
    "XREADGROUP GROUP G me COUNT 2 STREAMS K >",
    "XREADGROUP GROUP G me STREAMS K 0",
    "XCLAIM K G me 0 1-1 0-1 JUSTID",
    "XAUTOCLAIM K G me 0 0",
    "XACK K G 1-1 0-1",
    "XGROUP SETID K G 0",
    "XGROUP DELCONSUMER K G me",
];
/// The last words: time has passed, and the value is freed.
const END: &[&str] = &["EXPIRE K 100", "TYPE K", "UNLINK K copied other"];

/// Tries some of the keys of the selected database.
pub fn try_keys(target: &mut Target) {
    // A file may have made a large table with nothing in it.
    if target.run("DBSIZE") == b":0\r\n" {
        return;
    }
    for key in array(&target.run("KEYS *")).into_iter().take(KEYS_MAX) {
        if let Reply::Bulk(key) = key {
            try_key(target, &key);
        }
    }
}

/// Tries one key.
///
/// # Panics
/// When the server does not take back its own dump.
pub fn try_key(target: &mut Target, key: &[u8]) {
    let Some((Reply::Simple(kind), _)) = decode(&target.call(&[b"TYPE", key])) else {
        panic!("no type of {}", key.escape_ascii());
    };
    run_all(target, ANY, key, b"");
    check_dump(target, key);
    match kind.as_str() {
        "string" => run_all(target, STRING, key, b""),
        "list" => run_all(target, LIST, key, b""),
        "set" => run_all(target, SET, key, b""),
        "zset" => run_all(target, ZSET, key, b""),
        "hash" => run_all(target, HASH, key, b""),
        "stream" => try_stream(target, key),
        // Its time came between the listing and now.
        "none" => {}
        other => panic!("an unknown type: {other}"),
    }
    check_dump(target, key);
    target.pass(Duration::from_secs(20));
    run_all(target, END, key, b"");
}

fn try_stream(target: &mut Target, key: &[u8]) {
    for group in array(&target.call(&[&b"XINFO"[..], b"GROUPS", key])) {
        // `name` comes first.
        if let Reply::Array(fields) = group
            && let Some(Reply::Bulk(name)) = fields.get(1)
        {
            run_all(target, GROUP, key, name);
        }
    }
    run_all(target, STREAM, key, b"");
}

fn run_all(target: &mut Target, lines: &[&str], key: &[u8], group: &[u8]) {
    for line in lines {
        let words: Vec<&[u8]> = line
            .split(' ')
            .map(|word| match word {
                "K" => key,
                "G" => group,
                other => other.as_bytes(),
            })
            .collect();
        let reply = target.call(&words);
        assert!(decode(&reply).is_some_and(|(_, rest)| rest.is_empty()), "{line}: {}", reply.escape_ascii());
        for mistake in [&b"-ERR unknown command"[..], b"-ERR wrong number of arguments"] {
            assert!(!reply.starts_with(mistake), "{line}: {}", reply.escape_ascii());
        }
    }
}

/// What DUMP gives RESTORE must take, and it must be the same again.
fn check_dump(target: &mut Target, key: &[u8]) {
    let Some((Reply::Bulk(dump), _)) = decode(&target.call(&[b"DUMP", key])) else {
        return;
    };
    let reply = target.call(&[&b"RESTORE"[..], b"copied", b"0", &dump, b"REPLACE"]);
    // Tables that a file asked for may fill all there is.
    if reply.starts_with(b"-OOM ") {
        return;
    }
    assert_eq!(reply, b"+OK\r\n", "{} gives {}", key.escape_ascii(), dump.escape_ascii());
    for command in ["TYPE", "STRLEN", "LLEN", "SCARD", "ZCARD", "HLEN", "XLEN"] {
        let original = target.call(&[command.as_bytes(), key]);
        let copy = target.call(&[command.as_bytes(), b"copied"]);
        assert_eq!(original, copy, "{command} {}", key.escape_ascii());
    }
}

fn array(reply: &[u8]) -> Vec<Reply> {
    match decode(reply) {
        Some((Reply::Array(items), _)) => items,
        _ => Vec::new(),
    }
}
