//! All facts of a keyspace with every type and encoding, against what the server itself says.

use std::collections::BTreeMap;

use bigkeys::engine::key::{Expiry, KeyFacts};

use super::cases::cases;
use super::observe;
use crate::support::{Client, Lab, Scan, ServerKind, on_each_real_server, on_each_server, on_servers};

/// An hour, in milliseconds.
const HOUR_MS: u64 = 3_600_000;

/// Fills database 0 with a key for each case of the oracle and some large ones; returns the names.
fn fill(kind: ServerKind, redis: &Client) -> Vec<String> {
    let mut names = Vec::new();
    for case in cases(kind) {
        redis.run("DEL k");
        case.make(redis, 66);
        redis.call(&["RENAME", "k", case.name]);
        names.push(case.name.to_owned());
    }
    redis.fill_hash("big:hash", 20_000);
    redis.fill_set("big:set", 20_000);
    redis.fill_zset("big:zset", 20_000);
    redis.fill_list("big:list", 20_000, 100);
    redis.fill_stream("big:stream", 20_000);
    redis.run("XGROUP CREATE big:stream empty 0");
    redis.run("XGROUP CREATE big:stream full 0");
    redis.run("XREADGROUP GROUP full someone COUNT 5000 STREAMS big:stream >");
    redis.call(&["SETRANGE", "big:string", "9999999", "x"]);
    redis.run("PFADD counter a b c");
    names.extend(["hash", "set", "zset", "list", "stream", "string"].map(|name| format!("big:{name}")));
    names.push("counter".to_owned());
    for name in names.iter().step_by(3) {
        redis.call(&["PEXPIRE", name, &HOUR_MS.to_string()]);
    }
    names
}

/// Compares a finding with the facts, field by field, and returns what differs.
fn differences(name: &str, finding: &serde_json::Value, facts: &KeyFacts) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |field: &str, expected: serde_json::Value| {
        if finding[field] != expected {
            wrong.push(format!("{name}: {field} is {} and should be {expected}", finding[field]));
        }
    };
    same("type", facts.kind.as_str().into());
    same("encoding", facts.encoding.as_ref().expect("asked for").as_str().into());
    same("elements", facts.elements.into());
    same("bytes", facts.bytes().into());
    match facts.expiry {
        Expiry::In(_) => {
            let ttl = finding["ttl_ms"].as_u64().unwrap_or_default();
            if !(HOUR_MS - 120_000..=HOUR_MS).contains(&ttl) {
                wrong.push(format!("{name}: ttl_ms is {}", finding["ttl_ms"]));
            }
        }
        _ => same("expires_at", "never".into()),
    }
    wrong
}

fn compare(scan: &Scan, redis: &Client, names: &[String]) {
    let found = scan.by_key();
    assert_eq!(found.len(), names.len(), "one row for each key\n{}", scan.outcome().scene());
    let wrong: Vec<_> = names
        .iter()
        .flat_map(|name| differences(name, scan.finding(name), &observe::facts(redis, name)))
        .collect();
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), scan.outcome().scene());
}

on_each_server! {
    fn every_fact_of_every_type_and_encoding(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let names = fill(kind, &redis);
        // All elements are looked at, so that both sides say the same number of bytes.
        let scan = lab.scan(["--all-keys", "--exact-lists", "--samples", "0", "--i-know-this-blocks"]).document();
        compare(&scan, &redis, &names);
        for name in &names {
            let facts = observe::facts(&redis, name);
            let finding = scan.finding(name);
            // What the effort rests on was read too: exact nodes, and the stream's tree and groups.
            if let Some(nodes) = facts.list_nodes {
                assert_eq!(finding["free_effort"], nodes.nodes, "{finding}");
                assert_eq!(finding["allocations_basis"], "counted", "{finding}");
            }
            if let Some(stream) = facts.stream {
                let effort = stream.radix_tree_nodes + stream.groups * (1 + stream.first_group_pending);
                assert_eq!(finding["free_effort"], effort, "{finding}");
            }
            // A module samples for itself, whatever SAMPLES says.
            let basis = if finding["type"] == "vectorset" { "sampled" } else { "measured" };
            assert_eq!(finding["bytes_basis"], basis, "{finding}");
        }
        assert_eq!(scan.summary("/keys_seen"), names.len());
        assert_eq!(scan.summary("/completeness/status"), "complete");
    }

    fn without_all_keys_the_census_is_whole_and_the_giants_are_found(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let names = fill(kind, &redis);
        let scan = lab.scan([]).document();
        let mut types: BTreeMap<String, u64> = BTreeMap::new();
        for name in &names {
            *types.entry(observe::facts(&redis, name).kind.as_str().to_owned()).or_default() += 1;
        }
        let mut census: BTreeMap<String, u64> = BTreeMap::new();
        for row in scan.summary("/census").as_array().expect("rows") {
            let word = row["type"].as_str().expect("every type here is known").to_owned();
            *census.entry(word).or_default() += row["keys"].as_u64().expect("a count");
        }
        assert_eq!(census, types);
        for (name, effort) in [("big:hash", 20_000), ("big:set", 20_000), ("big:zset", 20_000)] {
            assert_eq!(scan.finding(name)["free_effort"], effort);
            assert_eq!(scan.finding(name)["unlink_effect"], "background");
            assert_eq!(scan.finding(name)["del_effect"], if kind.is_valkey() { "background" } else { "inline" });
        }
        let string = scan.finding("big:string");
        assert_eq!((&string["free_effort"], &string["unlink_effect"]), (&1.into(), &"inline".into()));
        assert_eq!(string["elements"], 10_000_000);
        assert_eq!(string["bytes_basis"], "measured");
        // A stream's pending entries of all groups are freed, whatever the effort says.
        let stream = scan.finding("big:stream");
        assert!(stream["allocations"].as_u64() > Some(5000), "{stream}");
        assert!(stream["free_effort"].as_u64() < Some(5000), "{stream}");
    }

    fn nodes_of_lists_are_estimated_and_said_to_be(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_list("list:100", 20_000, 100);
        redis.fill_list("list:1000", 5_000, 1000);
        redis.fill_list("list:9000", 500, 9000);
        let scan = lab.scan([]).document();
        for name in ["list:100", "list:1000", "list:9000"] {
            let finding = scan.finding(name);
            assert_eq!(finding["allocations_basis"], "estimated", "{finding}");
            let estimated = finding["free_effort"].as_f64().expect("an effort");
            #[allow(clippy::cast_precision_loss)]
            let real = observe::list_nodes(&redis, name) as f64;
            assert!((estimated / real - 1.0).abs() < 0.25, "{name}: {estimated} for {real}");
        }
    }

    fn idle_times_and_frequencies(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_hash("hash", 1000);
        let dump = redis.run("DUMP hash").bytes().to_vec();
        let restore = |key: &str, option: &str, value: &str| {
            redis.call(&[b"RESTORE", key.as_bytes(), b"0", &dump, option.as_bytes(), value.as_bytes()]);
        };
        restore("idle", "IDLETIME", "100000");
        let scan = lab.scan(["--all-keys"]).document();
        assert_eq!(scan.finding("idle")["freq"], serde_json::Value::Null);
        let idle = scan.finding("idle")["idle_s"].as_u64();
        assert!((100_000..100_100).contains(&idle.expect("an idle time")), "{idle:?}");
        // Where the server cannot be told otherwise, the scan itself was an access.
        redis.run("DEL idle");
        restore("idle", "IDLETIME", "100000");
        let filtered = lab.scan(["--idle-over", "1d"]).document();
        assert_eq!(filtered.by_key().len(), 1, "{}", filtered.outcome().scene());

        redis.run("CONFIG SET maxmemory-policy allkeys-lfu");
        restore("often", "FREQ", "200");
        let scan = lab.scan(["--all-keys"]).document();
        assert_eq!(scan.finding("often")["freq"], 200);
        assert_eq!(scan.finding("often")["idle_s"], serde_json::Value::Null);
    }

    fn looking_does_not_count_as_an_access_where_the_server_can_be_told(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_hash("hash", 1000);
        let dump = redis.run("DUMP hash").bytes().to_vec();
        redis.call(&[&b"RESTORE"[..], b"idle", b"0", &dump, b"IDLETIME", b"100000"]);
        // The details of this one are asked for, the length among them.
        assert_eq!(lab.scan(["--all-keys"]).document().finding("idle")["elements"], 1000);
        let after = redis.run("OBJECT IDLETIME idle").int();
        let can_be_told = !matches!(kind, ServerKind::Redis62 | ServerKind::Redis70);
        assert_eq!(after >= 100_000, can_be_told, "{after}");
    }

    fn the_profile_is_the_servers(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let flavour = if kind.is_valkey() { "Valkey" } else { "Redis" };
        let scan = lab.scan([]).document();
        assert_eq!(scan.summary("/servers/0/server_version"), &format!("{flavour} {}", kind.version()));
        assert_eq!(scan.summary("/servers/0/role"), "primary");
        assert_eq!(scan.summary("/servers/0/run_id"), &redis.info("run_id"));
        for (name, lazy) in [("user_del", kind.is_valkey()), ("expire", kind.is_valkey()), ("server_del", kind.is_valkey())] {
            assert_eq!(scan.summary(&format!("/servers/0/lazyfree_lazy_{name}")), lazy, "{name}");
        }
        let access = scan.summary("/servers/0/access").as_array().expect("a list").clone();
        let permission = |command: &str| {
            let entry = access.iter().find(|entry| entry["command"] == command);
            entry.unwrap_or_else(|| panic!("{command} was not probed"))["permission"].clone()
        };
        for command in ["MEMORY USAGE", "OBJECT ENCODING", "OBJECT IDLETIME", "CONFIG GET", "DEBUG OBJECT", "XINFO", "UNLINK", "EVAL"] {
            assert_eq!(permission(command), "allowed", "{command}");
        }
        assert_eq!(permission("OBJECT FREQ"), "not applicable");
        let no_touch = !matches!(kind, ServerKind::Redis62 | ServerKind::Redis70);
        assert_eq!(permission("CLIENT NO-TOUCH"), if no_touch { "allowed" } else { "unsupported" });
        assert_eq!(permission("CLIENT NO-EVICT"), if kind == ServerKind::Redis62 { "unsupported" } else { "allowed" });
        // Probing writes nothing and leaves nothing.
        assert_eq!(redis.run("DBSIZE").int(), 0);
    }
}

// The bundled server has no replication.
on_each_real_server! {
    fn a_replica_says_so_and_expires_nothing(kind) {
        let primary = Lab::start(kind);
        let replica = Lab::with(kind, |_, options| {
            options.config(format!("replicaof 127.0.0.1 {}", primary.address().port())).config("repl-diskless-sync-delay 0")
        });
        primary.redis().fill_set("set", 1000);
        primary.redis().run("PEXPIRE set 3600000");
        let redis = replica.redis();
        while redis.run("EXISTS set").int() == 0 {
            std::thread::yield_now();
        }
        let scan = replica.scan([]).document();
        assert_eq!(scan.summary("/servers/0/role"), "replica");
        assert_eq!(scan.finding("set")["elements"], 1000);
        assert_eq!(scan.finding("set")["expire_effect"], "none");
        assert_eq!(primary.scan([]).document().summary("/servers/0/role"), "primary");
    }
}

on_servers! {
    [redis_8_2 Redis82]
    fn what_info_keysizes_counts_was_found(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        for n in 0..7 {
            redis.fill_hash(&format!("hash:{n}"), 3000);
            redis.fill_set(&format!("set:{n}"), 100 << n);
        }
        let scan = lab.scan([]).document();
        let checks = scan.summary("/keysizes").as_array().expect("a list").clone();
        assert!(!checks.is_empty(), "{}", scan.outcome().scene());
        for check in &checks {
            assert_eq!(check["holds"], true, "{check}");
            assert_eq!(check["found"], check["expected_before"], "{check}");
        }
        let hashes = checks.iter().find(|check| check["type"] == "hashes").expect("hashes were counted");
        assert_eq!(hashes["found"], 7, "{hashes}");
    }
}
