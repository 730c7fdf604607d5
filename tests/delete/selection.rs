//! Which keys are meant, and which are left alone whatever was meant.

use std::fs;

use super::ground::{in_db_0, keyspace, only_gone};
use crate::support::{CALM, Exit, Lab, on_each_real_server, on_each_server};

on_each_server! {
    fn everything_and_nothing_are_refused_unless_meant(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        for n in 0..20 {
            redis.run(&format!("SET k:{n} v"));
        }
        let before = keyspace(&redis);
        for args in [&[][..], &["--match", "*"], &["--match", "**"], &["--match", "*", "--match", "*"]] {
            let mut command = lab.bigkeys(["delete", "--safe", "--yes"]).args(CALM);
            for arg in args {
                command = command.arg(arg);
            }
            command.exits(Exit::Usage).stderr_has("--all");
        }
        assert_eq!(keyspace(&redis), before);
        lab.delete(["--match", "*", "--type", "hash"]).exits(Exit::Done);
        lab.delete(["--match", "*", "--exclude", "k:1*"]).exits(Exit::Done);
        assert_eq!(keyspace(&redis).len(), 11);
        let done = lab.delete(["--all"]).exits(Exit::Done);
        assert_eq!(done.with_result("deleted").len(), 11);
        assert_eq!(keyspace(&redis).len(), 0);
    }

    fn framework_keys_are_protected_unless_they_are_named(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let frameworks = ["bull:mail:wait", "celery", "resque:queue:low", "spring:session:1", "lock:x", "bigkeys:tombstone:{1}:a:0"];
        for key in frameworks.iter().chain(&["mine:1", "mine:2", "mine:keep"]) {
            redis.call(&["SET", key, "v"]);
        }
        let before = keyspace(&redis);
        let done = lab.delete(["--all", "--protect", "mine:k*"]).exits(Exit::Partial);
        for key in frameworks.iter().chain(&["mine:keep"]) {
            done.left(key, "protected");
        }
        only_gone(&before, &keyspace(&redis), &in_db_0(["mine:1", "mine:2"]), &done.scene());

        // Out of a file they are as protected as out of a pattern.
        let file = lab.path("plan.csv");
        fs::write(&file, format!("key\n{}\n", frameworks.join("\n"))).expect("writable");
        let done = lab.delete(["--from"]).arg(&file).exits(Exit::Partial);
        for key in frameworks {
            done.left(key, "protected");
        }

        // What is named is meant; what --protect says holds even so.
        let done = lab.delete(["celery", "mine:keep", "--protect", "mine:k*"]).exits(Exit::Partial);
        done.became("celery", "deleted");
        done.left("mine:keep", "protected");
        let done = lab.delete(["--match", "bull:*", "--unprotect"]).exits(Exit::Done);
        done.became("bull:mail:wait", "deleted");
    }

    fn names_are_bytes(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let odd: [&[u8]; 10] = [
            b"", b" ", b"*", b"-x", b"{", b"{}a", b"a\nb", b"\xff\x00\xfe{", b"\"quoted\"", "\u{e9}".as_bytes(),
        ];
        for key in odd {
            redis.call(&[b"SADD", key, b"1", b"2", b"a"]);
        }
        redis.run("SADD a b");
        let before = keyspace(&redis);
        let list = lab.bigkeys(["scan", "--all-keys", "--format", "csv"]).args(CALM).stdout();
        let file = lab.path("plan.csv");
        let rows: Vec<&str> = list.lines().collect();
        fs::write(&file, rows.join("\n")).expect("writable");
        let done = lab.delete(["--method", "chunked", "--exclude", "a", "--from"]).arg(&file).exits(Exit::Done);
        let gone = odd.iter().map(|key| (0, key.to_vec())).collect();
        only_gone(&before, &keyspace(&redis), &gone, &done.scene());
        // On the command line, quoted as redis-cli quotes.
        for key in odd {
            redis.call(&[b"SADD", key, b"1", b"2", b"a"]);
        }
        let before = keyspace(&redis);
        let named = lab.delete([r#""""#, r#"" ""#, "*", r#""a\nb""#, r#""\xff\x00\xfe{""#, "{"]).exits(Exit::Done);
        let gone = [&b""[..], b" ", b"*", b"a\nb", b"\xff\x00\xfe{", b"{"].iter().map(|key| (0, key.to_vec())).collect();
        only_gone(&before, &keyspace(&redis), &gone, &named.scene());
    }

    fn a_pattern_stays_in_its_database(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        for db in [0, 3, 7] {
            redis.run(&format!("SELECT {db}"));
            redis.run("MSET k:1 v k:2 v near v");
        }
        redis.run("SELECT 0");
        let places = |dbs: &[u64], keys: &[&str]| {
            dbs.iter().flat_map(|db| keys.iter().map(|key| (*db, key.as_bytes().to_vec()))).collect()
        };
        let before = keyspace(&redis);
        let done = lab.delete(["--match", "k:1"]).exits(Exit::Done);
        only_gone(&before, &keyspace(&redis), &places(&[0], &["k:1"]), &done.scene());
        let before = keyspace(&redis);
        let done = lab.delete(["--match", "k:1", "--db", "7"]).exits(Exit::Done);
        only_gone(&before, &keyspace(&redis), &places(&[7], &["k:1"]), &done.scene());
        let before = keyspace(&redis);
        let done = lab.delete(["k:2", "--db", "7"]).exits(Exit::Done);
        only_gone(&before, &keyspace(&redis), &places(&[7], &["k:2"]), &done.scene());
        let before = keyspace(&redis);
        let done = lab.delete(["--match", "k:*", "--all-dbs"]).exits(Exit::Done);
        let mut gone: std::collections::BTreeSet<_> = places(&[3], &["k:1", "k:2"]);
        gone.insert((0, b"k:2".to_vec()));
        only_gone(&before, &keyspace(&redis), &gone, &done.scene());
    }

    fn on_a_server_that_counts_frequency_nobody_knows_what_is_idle(kind) {
        let lab = Lab::with(kind, |_, options| options.config("maxmemory-policy allkeys-lfu").config("maxmemory 500mb"));
        let redis = lab.redis();
        redis.fill_hash("h", 1_000);
        redis.run("SET s v");
        let before = keyspace(&redis);
        let done = lab.delete(["--all", "--idle-over", "1s"]).exits(Exit::Partial);
        for key in ["h", "s"] {
            done.left(key, "unknown");
        }
        only_gone(&before, &keyspace(&redis), &std::collections::BTreeSet::new(), &done.scene());
    }

    fn filters_and_names_work_together(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_hash("large", 3_000);
        redis.fill_hash("small", 3);
        redis.run("SET string v");
        redis.run("EXPIRE small 100");
        let before = keyspace(&redis);
        let done = lab.delete(["large", "small", "string", "--type", "hash", "--min-elements", "100"]).exits(Exit::Done);
        only_gone(&before, &keyspace(&redis), &in_db_0(["large"]), &done.scene());
        let before = keyspace(&redis);
        let done = lab.delete(["--ttl", "<1h"]).exits(Exit::Done);
        only_gone(&before, &keyspace(&redis), &in_db_0(["small"]), &done.scene());
    }
}

on_each_real_server! {
    fn in_a_cluster_batches_and_tombstones_stay_in_their_slots(kind) {
        let lab = Lab::with(kind, |_, options| options.config("cluster-enabled yes"));
        let redis = lab.redis();
        let slots: Vec<String> = ["CLUSTER", "ADDSLOTS"].into_iter().map(str::to_owned).chain((0..16384).map(|slot| slot.to_string())).collect();
        redis.call(&slots).is("OK");
        while redis.run("CLUSTER INFO").text().contains("cluster_state:fail") {}
        for n in 0..50 {
            redis.run(&format!("SET small:{n} v"));
            redis.run(&format!("SET small:{{same}}:{n} v"));
        }
        let odd = ["big:{", "big:}", "big:{}x", "big:{a}b", "big:a{b", "big:}{", "big:{{a}}", "big:x{}{y}"];
        for key in odd {
            redis.fill_set(key, 2_000);
        }
        redis.fill_set("near", 100);
        let done = lab.delete(["--match", "small:*", "--match", "big:*", "--method", "unlink", "--type", "string"]).exits(Exit::Done);
        assert_eq!(done.with_result("deleted").len(), 100, "{}", done.scene());
        let mut chunked = lab.delete(["--method", "chunked"]);
        for key in odd {
            chunked = chunked.arg(key);
        }
        let done = chunked.exits(Exit::Done);
        assert_eq!(done.with_result("deleted"), in_db_0(odd), "{}", done.scene());
        done.audit_is_sound();
        assert_eq!(keyspace(&redis).into_keys().collect::<std::collections::BTreeSet<_>>(), in_db_0(["near"]));
        // A database of a cluster is its only one.
        let done = lab.delete(["near", "--method", "quarantine", "--quarantine-db", "9"]).exits(Exit::Partial);
        done.left("near", "no-method");
    }

    fn a_replica_is_refused(kind) {
        let primary = Lab::with(kind, |_, options| options.config("repl-diskless-sync no"));
        primary.redis().run("SET k v");
        let replica = Lab::with(kind, |_, options| {
            options.config(format!("replicaof 127.0.0.1 {}", primary.address().port())).config("repl-diskless-sync no")
        });
        let redis = replica.redis();
        while redis.info("master_link_status") != "up" {}
        for writable in ["yes", "no"] {
            redis.run(&format!("CONFIG SET replica-read-only {writable}"));
            let done = replica.delete(["k"]).exits(Exit::Failed);
            done.outcome.stderr_has("is a replica");
            assert_eq!(done.rows.len(), 0, "there is no audit of what was not begun");
        }
        replica.bigkeys(["delete", "k"]).args(CALM).exits(Exit::Done);
        redis.run("EXISTS k").is(1);
    }
}
