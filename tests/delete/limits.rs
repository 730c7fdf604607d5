//! Hard stops, and a setting that is put back.

use super::ground::{in_db_0, keyspace};
use crate::support::{Action, Exit, Lab, Proxy, on_each_server};

fn setting(lab: &Lab) -> String {
    lab.redis().run("CONFIG GET lazyfree-lazy-expire").items()[1].text()
}

on_each_server! {
    fn so_many_keys_and_no_more(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        for n in 0..50 {
            redis.run(&format!("SET small:{n} v"));
        }
        for n in 0..5 {
            redis.fill_hash(&format!("large:{n}"), 500);
        }
        let done = lab.delete(["--match", "small:*", "--max-keys", "20"]).exits(Exit::Partial);
        assert_eq!(done.with_result("deleted").len(), 20, "{}", done.scene());
        assert_eq!(done.keys("plan").len(), 50, "the plan is whole, and lists the rest");
        assert_eq!(keyspace(&redis).len(), 35);
        let done = done.outcome.stderr_has("--max-keys is reached").stderr_has("30 keys of the plan not come to");
        done.stderr_has("--resume");
        let done = lab.delete(["--match", "large:*", "--method", "chunked", "--max-keys", "3"]).exits(Exit::Partial);
        assert_eq!(done.with_result("deleted").len(), 3, "{}", done.scene());
        let done = lab.delete(["--match", "large:*", "--max-keys", "2"]).exits(Exit::Done);
        assert_eq!(done.with_result("deleted").len(), 2);
    }

    fn so_many_bytes_and_no_more(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        for n in 0..10 {
            redis.call(&["SETRANGE", &format!("k:{n}"), "99999", "x"]);
        }
        let done = lab.delete(["--match", "k:*", "--max-bytes", "350K"]).exits(Exit::Partial);
        let bytes: u64 = done.rows("outcome").iter().filter_map(|row| row["bytes"].as_u64()).sum();
        assert!(bytes <= 350 << 10 && bytes > 200 << 10, "{bytes}");
        assert_eq!(done.with_result("deleted").len() + keyspace(&redis).len(), 10);
        done.outcome.stderr_has("--max-bytes is reached");
    }

    fn a_deadline_ends_a_chunked_key_where_it_can_be_gone_on_with(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_set("a", 5_000);
        redis.fill_set("b", 5_000);
        // Each chunk takes long, so that time is up in the first key.
        let proxy = Proxy::start(lab.address(), |request| {
            if request.is("SREM") { Action::Delay(std::time::Duration::from_millis(60)) } else { Action::Forward }
        });
        let done = lab.deletion_at(proxy.port(), ["a", "b", "--method", "chunked", "--deadline", "300ms"]).exits(Exit::Partial);
        assert_eq!(done.with_result("unfinished"), in_db_0(["a"]), "{}", done.scene());
        let row = done.became("a", "unfinished");
        assert!(row["detail"].as_str().is_some_and(|text| text.contains("the rest is in \"bigkeys:tombstone:")), "{row}");
        assert_eq!(redis.run("EXISTS a").int(), 0);
        assert_eq!(redis.run("SCARD b").int(), 5_000);
        done.outcome.stderr_has("--deadline is reached").stderr_has("1 key of the plan not come to");
        // The rest is under the name that the audit tells.
        let left: Vec<_> = keyspace(&redis).into_keys().filter(|(_, key)| key.starts_with(b"bigkeys:tombstone:")).collect();
        assert_eq!(left.len(), 1);
    }

    fn lazy_expire_is_put_back(kind) {
        let lab = Lab::with(kind, |_, options| options.config("lazyfree-lazy-expire no"));
        let redis = lab.redis();
        redis.fill_set("a", 1_000);
        redis.run("EXPIRE a 1000");
        let server = lab.address();
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let (kept, side) = (std::sync::Arc::clone(&seen), crate::support::Client::connect(server));
        let proxy = Proxy::start(server, move |request| {
            if request.is("SREM") {
                let now = side.run("CONFIG GET lazyfree-lazy-expire").items()[1].text();
                kept.lock().expect("no panic").push(now);
            }
            Action::Forward
        });
        let args = ["a", "--method", "chunked", "--lazy-expire-while-running"];
        let done = lab.deletion_at(proxy.port(), args).exits(Exit::Done);
        assert!(seen.lock().expect("no panic").iter().all(|now| now == "yes"));
        assert!(!seen.lock().expect("no panic").is_empty());
        assert_eq!(setting(&lab), "no");
        // What it was, and that it is that again.
        let settings: Vec<_> = done.rows("setting").iter().map(|row| row["detail"].clone()).collect();
        assert_eq!(settings, [serde_json::json!("no"), serde_json::Value::Null]);
        // Where it is on already, nothing is done.
        redis.run("CONFIG SET lazyfree-lazy-expire yes");
        redis.run("SET b v");
        let done = lab.delete(["b", "--lazy-expire-while-running"]).exits(Exit::Done);
        assert_eq!(done.rows("setting").len(), 0);
        assert_eq!(setting(&lab), "yes");
    }

    fn where_the_setting_may_not_be_changed_nothing_is_deleted(kind) {
        let lab = Lab::with(kind, |_, options| {
            options.config("lazyfree-lazy-expire no").config("user limited on >pw ~* +@all -config")
        });
        let redis = lab.redis();
        redis.run("SET a v");
        lab.delete(["a", "--lazy-expire-while-running"]).user("limited").exits(Exit::Failed).outcome.stderr_has("lazyfree-lazy-expire");
        redis.run("EXISTS a").is(1);
        assert_eq!(setting(&lab), "no");
    }
}
