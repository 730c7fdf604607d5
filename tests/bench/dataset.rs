//! The dataset that scans are measured on: many small keys of every type, and a few giants.

use super::lab::Connection;

/// Fills a server: `keys` mixed keys and six giants.
pub(crate) fn fill(connection: &mut Connection, keys: u64) {
    for n in 0..keys {
        small(connection, n);
    }
    giants(connection);
    connection.flush();
}

/// One small key. Of twenty, thirteen are strings, three hashes, two sorted sets, one a list, one a set;
/// one in five has a TTL.
fn small(connection: &mut Connection, n: u64) {
    let name = |prefix: &str| format!("{prefix}:{n}");
    let mut send = |args: &[&str]| connection.push(args);
    match n % 20 {
        0..12 => {
            let value = "v".repeat(20 + usize::try_from(n % 80).unwrap_or(0));
            let key = name("session");
            let with_ttl = ["SET", &key, &value, "EX", "86400"];
            send(if n.is_multiple_of(3) { &with_ttl } else { &with_ttl[..3] });
        }
        12..15 => {
            let mail = format!("{n}@example.org");
            send(&["HSET", &name("user"), "name", &n.to_string(), "age", "42", "mail", &mail]);
        }
        15..17 => send(&["ZADD", &name("rank"), "1", "a", "2", "b", "3", "c", "4", "d", "5", "e"]),
        17 => send(&["RPUSH", &name("queue"), "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]),
        18 => send(&["SADD", &name("tags"), "1", "2", "3", "4", "5", "6", "7", "8"]),
        _ => send(&["SET", &name("counter"), &n.to_string()]),
    }
}

fn giants(connection: &mut Connection) {
    let mut batches = |command: &str, key: &str, elements: u64, element: &dyn Fn(u64) -> Vec<String>| {
        for start in (0..elements).step_by(500) {
            let mut args = vec![command.to_owned(), key.to_owned()];
            args.extend((start..elements.min(start + 500)).flat_map(element));
            connection.push(&args);
        }
    };
    batches("SADD", "giant:set", 3_000_000, &|n| vec![format!("visitor-{n}")]);
    batches("RPUSH", "giant:list", 1_000_000, &|n| vec![n.to_string()]);
    batches("HSET", "giant:hash", 500_000, &|n| {
        vec![format!("field-{n}"), "a value of some length".to_owned()]
    });
    batches("ZADD", "giant:zset", 500_000, &|n| vec![n.to_string(), format!("player-{n}")]);
    for n in 0..200_000_u64 {
        connection.push(&["XADD", "giant:stream", "*", "event", &n.to_string()]);
    }
    connection.push(&[&b"SET"[..], b"giant:string", &vec![b'x'; 200 << 20]]);
}
