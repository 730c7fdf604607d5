//! Every type and encoding, by every method.

use std::collections::BTreeSet;

use super::ground::{Deleted, in_db_0, keyspace, only_gone};
use crate::engine::cases::cases;
use crate::support::{Client, Exit, Lab, ServerKind, on_each_server};

/// A key that is to go.
struct Victim {
    key: String,
    kind: String,
    encoding: String,
}

/// Fills a server with every type and encoding that it has, and with neighbours, in this database and in
/// another one.
fn fill(kind: ServerKind, redis: &Client) -> Vec<Victim> {
    for case in cases(kind) {
        let elements = match case.encoding {
            "hashtable" | "skiplist" => 900,
            "stream" => 60,
            _ => 100,
        };
        case.make(redis, elements);
        redis.call(&["RENAME", "k", &format!("victim:{}", case.name.replace(' ', "-"))]);
    }
    redis.call(&["SETRANGE", "victim:large-string", "999999", "x"]);
    redis.pipeline((0..300).map(|n| ["PFADD".to_owned(), "victim:hyperloglog".to_owned(), n.to_string()]));
    redis.fill_list("victim:list-of-large-elements", 150, 20_000);
    redis.fill_zset("victim:zset", 3_000);
    redis.fill_set("victim:set", 3_000);
    // Compact and large: a page holds all of it, whatever COUNT says.
    redis.run("CONFIG SET set-max-intset-entries 100000");
    redis.pipeline((0..5_000).map(|n| ["SADD".to_owned(), "victim:large-intset".to_owned(), n.to_string()]));
    redis.run("CONFIG SET set-max-intset-entries 512");
    large_stream(redis);
    if matches!(kind, ServerKind::Redis82 | ServerKind::Valkey91 | ServerKind::Bundled) {
        // Fields past their time, which HLEN counts and HSCAN does not show.
        redis.run("DEBUG SET-ACTIVE-EXPIRE 0");
        redis.fill_hash("victim:hash-with-past-fields", 1_000);
        redis.pipeline((0..600).map(|n| {
            format!(
                "HPEXPIRE victim:hash-with-past-fields {} FIELDS 1 f{n}",
                if n < 500 { 1 } else { 9_000_000 }
            )
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
        }));
    }
    for (n, key) in redis.run("KEYS victim:*").items().iter().enumerate() {
        if n % 3 == 0 {
            redis.call(&[&b"EXPIRE"[..], key.bytes(), b"5000"]);
        }
    }
    for db in [3, 0] {
        redis.run(&format!("SELECT {db}"));
        redis.run("SET near:string v");
        redis.run("SET victim v-of-another-name EX 9000");
        redis.fill_hash("near:hash", 500);
        redis.fill_list("near:list", 500, 50);
        redis.fill_set("near:set", 500);
        redis.fill_zset("near:zset", 500);
        redis.fill_stream("near:stream", 500);
        redis.run("XGROUP CREATE near:stream g 0");
    }
    let keys = redis.run("KEYS victim:*");
    keys.items()
        .iter()
        .map(|key| Victim {
            key: key.text(),
            kind: redis.call(&[&b"TYPE"[..], key.bytes()]).text(),
            encoding: redis.call(&[&b"OBJECT"[..], b"ENCODING", key.bytes()]).text(),
        })
        .collect()
}

/// Few entries, an empty first group, and a second one with much that is pending.
fn large_stream(redis: &Client) {
    let key = "victim:stream-with-pending";
    redis.fill_stream(key, 3_000);
    for group in ["a", "b"] {
        redis.call(&["XGROUP", "CREATE", key, group, "0"]);
    }
    redis.call(&["XREADGROUP", "GROUP", "b", "someone", "COUNT", "2500", "STREAMS", key, ">"]);
    redis.call(&["XTRIM", key, "MAXLEN", "1000"]);
}

/// Deletes all victims by this method and checks everything; the closure says which types it cannot take.
fn by(
    lab: &Lab,
    kind: ServerKind,
    method: Option<&str>,
    user: Option<&str>,
    can_take: impl Fn(&Victim) -> bool,
) -> Deleted {
    let redis = lab.redis();
    let victims = fill(kind, &redis);
    let before = keyspace(&redis);
    let mut command = lab.delete(["--match", "victim:*", "--quarantine-db", "9"]);
    if let Some(method) = method {
        command = command.args(["--method", method]);
    }
    if let Some(user) = user {
        command = command.user(user);
    }
    let taken: BTreeSet<String> =
        victims.iter().filter(|victim| can_take(victim)).map(|victim| victim.key.clone()).collect();
    let whole = taken.len() == victims.len();
    let done = command.exits(if whole { Exit::Done } else { Exit::Partial });
    done.audit_is_sound();
    let after = keyspace(&redis);
    if method == Some("expire") {
        assert_eq!(done.with_result("expiring"), in_db_0(&taken), "{}", done.scene());
        assert_eq!(before.len(), after.len());
        for victim in &victims {
            let ttl = redis.call(&["TTL", &victim.key]).int();
            assert!((1..=1200).contains(&ttl), "{}: {ttl} s", victim.key);
            redis.call(&["PERSIST", &victim.key]).is(1);
        }
        return done;
    }
    only_gone(&before, &after, &in_db_0(&taken), &done.scene());
    assert_eq!(done.with_result("deleted"), in_db_0(&taken), "{}", done.scene());
    for victim in &victims {
        if !taken.contains(&victim.key) {
            done.left(&victim.key, "no-method");
            continue;
        }
        let row = done.became(&victim.key, "deleted");
        // Of a small key no more is asked than its type, its memory and its time to live.
        let is_small = row["elements"].is_null() && row["bytes"].as_u64() < Some(2_000_000);
        let encoding = if is_small { serde_json::Value::Null } else { (*victim.encoding).into() };
        assert_eq!((&row["type"], &row["encoding"]), (&(*victim.kind).into(), &encoding), "{row}");
        assert!(row["elements"].is_u64() || row["bytes"].is_u64(), "{row}");
        if let Some(method) = method {
            assert_eq!(row["method"], method, "{row}");
        }
        if row["method"] == "chunked" {
            assert!(row["chunks"].as_u64() >= Some(1), "{row}");
            assert!(row["slowest_chunk_ms"].is_number(), "{row}");
        }
    }
    let said = done.outcome.stderr();
    assert!(said.contains(&format!("{} keys deleted in", taken.len())), "{}", done.scene());
    done
}

fn is_collection(victim: &Victim) -> bool {
    matches!(victim.kind.as_str(), "list" | "set" | "zset" | "hash")
}

fn lab_without(kind: ServerKind, rules: &str) -> Lab {
    Lab::with(kind, |_, options| options.config(format!("user limited on >pw ~* +@all {rules}")))
}

on_each_server! {
    fn by_the_method_that_it_chooses(kind) {
        let done = by(&Lab::start(kind), kind, None, None, |_| true);
        let chunked = done.became("victim:stream-with-pending", "deleted");
        assert!(chunked["method"] == "chunked" || chunked["predicted_stall_ms"].as_f64() < Some(1.0), "{chunked}");
    }

    fn by_unlink(kind) {
        by(&Lab::start(kind), kind, Some("unlink"), None, |_| true);
    }

    fn by_pad(kind) {
        let lab = Lab::start(kind);
        by(&lab, kind, Some("pad"), None, is_collection);
    }

    fn chunked(kind) {
        let lab = Lab::start(kind);
        by(&lab, kind, Some("chunked"), None, |victim| is_collection(victim) || victim.kind == "stream");
    }

    fn by_quarantine(kind) {
        by(&Lab::start(kind), kind, Some("quarantine"), None, |_| true);
    }

    fn by_expire(kind) {
        by(&Lab::start(kind), kind, Some("expire"), None, |_| true);
    }

    fn without_unlink(kind) {
        let lab = lab_without(kind, "-unlink");
        let done = by(&lab, kind, None, Some("limited"), |_| true);
        for row in done.rows("outcome") {
            assert!(["del", "chunked", "quarantine"].iter().any(|method| row["method"] == *method), "{row}");
        }
        assert!(done.rows("outcome").iter().any(|row| row["method"] == "del"), "{}", done.scene());
    }

    fn chunked_without_unlink_and_rename(kind) {
        let lab = lab_without(kind, "-unlink -renamenx");
        by(&lab, kind, Some("chunked"), Some("limited"), |victim| is_collection(victim) || victim.kind == "stream");
    }

    fn a_method_that_is_worse_is_said_to_be(kind) {
        let lab = Lab::start(kind);
        lab.redis().fill_set("set", 3_000);
        let done = lab.delete(["set", "--method", "chunked"]).exits(Exit::Done);
        drop(done.outcome.stderr_has("--method: one key has a better one; set: unlink would be better here"));
    }

    fn chunked_without_unlink_and_del(kind) {
        // Whatever goes with its last element needs neither.
        let lab = lab_without(kind, "-unlink -del");
        let redis = lab.redis();
        redis.fill_set("set", 3_000);
        redis.fill_hash("hash", 3_000);
        let done = lab.delete(["set", "hash", "--method", "chunked"]).user("limited").exits(Exit::Done);
        assert_eq!(keyspace(&redis).len(), 0, "{}", done.scene());
    }

    fn a_padded_key_is_freed_in_the_background(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        for key in ["h1", "h2"] {
            redis.pipeline((0..40).map(|n| ["HSET".to_owned(), key.to_owned(), n.to_string(), "x".repeat(100_000)]));
        }
        redis.fill_list("list", 40, 60_000);
        let before: u64 = redis.info("lazyfreed_objects").parse().expect("a number");
        lab.delete(["h1", "h2", "list", "--method", "pad", "--wait-memory"]).exits(Exit::Done);
        let after: u64 = redis.info("lazyfreed_objects").parse().expect("a number");
        assert_eq!(after - before, 3);
    }

    fn the_rest_of_large_elements_is_not_left_to_one_unlink(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_list("list", 60, 60_000);
        let score = |n: usize| vec!["ZADD".to_owned(), "zset".to_owned(), n.to_string(), format!("{n:060000}")];
        redis.pipeline((0..60).map(score));
        let done = lab.delete(["list", "zset", "--method", "chunked"]).exits(Exit::Done);
        for key in ["list", "zset"] {
            assert!(done.became(key, "deleted")["chunks"].as_u64() >= Some(4), "{}", done.scene());
        }
        assert_eq!(keyspace(&redis).len(), 0);
    }

    fn expire_never_makes_a_key_live_longer(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.run("SET soon v EX 100");
        redis.run("SET never v");
        lab.delete(["soon", "never", "--method", "expire", "--expire-after", "1h"]).exits(Exit::Done);
        assert!((1..=100).contains(&redis.run("TTL soon").int()));
        assert!((3590..=7200).contains(&redis.run("TTL never").int()));
    }

    fn quarantine_leaves_a_database_alone_that_is_in_use(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.run("SELECT 9");
        redis.run("SET precious v");
        redis.run("SELECT 0");
        redis.run("SET k v");
        let before = keyspace(&redis);
        let done = lab.delete(["k", "--method", "quarantine", "--quarantine-db", "9"]).exits(Exit::Partial);
        assert!(done.became("k", "failed")["detail"].as_str().is_some_and(|text| text.contains("not empty")));
        only_gone(&before, &keyspace(&redis), &BTreeSet::new(), &done.scene());
    }
}
