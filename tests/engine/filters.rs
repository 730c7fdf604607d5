//! Filters: the same keys come out whether the server or the engine does the choosing.

use std::collections::BTreeSet;

use crate::support::{Client, Lab, on_each_server};

fn fill(redis: &Client) {
    for n in 0..20 {
        redis.run(&format!("SET cart:{n} v"));
        redis.run(&format!("SET session:{n} v EX 100"));
        redis.run(&format!("SET token:{n} v EX 1000000"));
    }
    redis.fill_hash("cart:hash", 2000);
    redis.fill_set("cart:set", 200);
    redis.fill_zset("session:zset", 20_000);
    redis.fill_list("queue:list", 1000, 1000);
    redis.call(&["SETRANGE", "blob", "199999", "x"]);
    redis.run("EXPIRE cart:hash 100");
    redis.call(&[&b"SADD"[..], b"\xff\x00binary", b"m"]);
}

on_each_server! {
    fn filters_let_through_what_they_say(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let scan = |args: &[&str]| -> BTreeSet<String> {
            let command = args.iter().fold(lab.scan(["--all-keys"]), crate::support::Bigkeys::arg);
            let document = command.document();
            let keys: BTreeSet<_> = document.by_key().into_keys().map(|(_, key)| key.escape_ascii().to_string()).collect();
            assert_eq!(document.summary("/keys_matched"), keys.len(), "{args:?}");
            keys
        };
        let names = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|&name| name.to_owned()).collect() };
        let numbered = |prefixes: &[&str]| -> BTreeSet<String> {
            prefixes.iter().flat_map(|prefix| (0..20).map(move |n| format!("{prefix}:{n}"))).collect()
        };
        let with = |mut set: BTreeSet<String>, more: &[&str]| { set.extend(names(more)); set };
        let giants = ["cart:hash", "cart:set", "session:zset", "queue:list", "blob"];

        assert_eq!(scan(&[]).len(), 66);
        assert_eq!(scan(&["--match", "cart:*"]), with(numbered(&["cart"]), &["cart:hash", "cart:set"]));
        assert_eq!(scan(&["--match", "cart:[hs]*", "--match", "blob"]), names(&["cart:hash", "cart:set", "blob"]));
        assert_eq!(scan(&["--exclude", "*:[0-9]*"]), with(names(&giants), &["\\xff\\x00binary"]));
        assert_eq!(scan(&["--match", "cart:*", "--exclude", "cart:1*"]).len(), 22 - 11);
        assert_eq!(scan(&["--match", "\"\\xff\\x00*\""]), names(&["\\xff\\x00binary"]));
        assert_eq!(scan(&["--regex", "^(cart|queue):[a-z]+$"]), names(&["cart:hash", "cart:set", "queue:list"]));
        assert_eq!(scan(&["--regex", "(?-u:\\xff)"]), names(&["\\xff\\x00binary"]));
        assert_eq!(scan(&["--type", "hash"]), names(&["cart:hash"]));
        assert_eq!(scan(&["--type", "hash,zset"]), names(&["cart:hash", "session:zset"]));
        assert_eq!(scan(&["--encoding", "skiplist"]), names(&["session:zset"]));
        assert_eq!(scan(&["--min-elements", "1000"]), names(&["cart:hash", "session:zset", "queue:list", "blob"]));
        assert_eq!(scan(&["--min-bytes", "100KB"]), names(&["session:zset", "queue:list", "blob"]).into_iter().chain(scan(&["--match", "cart:hash", "--min-bytes", "100KB"])).collect());
        assert_eq!(scan(&["--min-allocs", "10k"]), names(&["session:zset"]));
        assert_eq!(scan(&["--risk", "medium"]), names(&["session:zset"]));
        assert_eq!(scan(&["--ttl", "<1h"]), with(numbered(&["session"]), &["cart:hash"]));
        assert_eq!(scan(&["--ttl", ">7d"]), numbered(&["token"]));
        assert_eq!(scan(&["--ttl", "none", "--match", "cart:*"]), with(numbered(&["cart"]), &["cart:set"]));
        assert_eq!(scan(&["--type", "set", "--match", "cart:*", "--min-elements", "100"]), names(&["cart:set"]));
        assert_eq!(scan(&["--match", "nothing:*"]), names(&[]));
    }

    fn a_sample_says_that_it_is_one(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.run("DEBUG POPULATE 20000 key 10");
        let scan = lab.scan(["--sample", "2000"]).document();
        assert_eq!(scan.summary("/completeness/status"), "sampled");
        assert_eq!(scan.summary("/completeness/keys_total"), 20_000);
        let seen = scan.summary("/keys_seen").as_u64().expect("a count");
        assert!((2000..3000).contains(&seen), "{seen}");
        // A sample as large as the keyspace is all of it.
        assert_eq!(lab.scan(["--sample", "30000"]).document().summary("/keys_seen"), 20_000);
    }
}
