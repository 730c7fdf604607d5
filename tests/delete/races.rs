//! Keys that change between the scan, the plan, the check and the act.
//!
//! The proxy makes each of these happen at one certain moment.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::ground::{Deleted, in_db_0, keyspace, only_gone};
use crate::support::{
    Action, CALM, Client, Exit, Lab, Proxy, Request, ServerKind, on_each_server, once_before,
};

const CHANGES: [(&str, &str, &str); 10] = [
    // key, what becomes of it, what is said
    ("grows", "changed", "changed since the plan (1000 -> 2000 fields)"),
    ("shrinks", "changed", "changed since the plan (1000 -> 500 fields)"),
    ("type", "changed", "changed since the plan (hash -> string)"),
    ("encoding", "changed", "changed since the plan (its encoding is hashtable now)"),
    ("goes", "gone", "it is gone already"),
    ("comes-back-larger", "changed", "changed since the plan (1000 -> 3000 fields)"),
    ("gains-ttl", "changed", "changed since the plan (it has a time to live now)"),
    ("loses-ttl", "changed", "changed since the plan (it has no time to live any more)"),
    ("comes-back", "deleted", ""),
    ("stays", "deleted", ""),
];

fn fill(redis: &Client) {
    for (key, ..) in CHANGES {
        redis.fill_hash(key, if key == "encoding" { 20 } else { 1_000 });
    }
    redis.run("EXPIRE loses-ttl 1000");
    redis.fill_hash("near", 1_000);
}

fn change(redis: &Client) {
    redis.fill_hash("grows", 2_000);
    redis.pipeline((0..500).map(|n| ["HDEL".to_owned(), "shrinks".to_owned(), format!("f{n}")]));
    redis.run("SET type other");
    redis.call(&["HSET", "encoding", "f1", &"v".repeat(100)]);
    redis.run("DEL goes comes-back-larger comes-back");
    redis.fill_hash("comes-back-larger", 3_000);
    redis.fill_hash("comes-back", 1_000);
    redis.run("EXPIRE gains-ttl 1000");
    redis.run("PERSIST loses-ttl");
}

/// Checks all of [`CHANGES`]: the changed keys are as somebody else left them.
fn all_are_noticed(redis: &Client, done: &Deleted) {
    done.audit_is_sound();
    for (key, result, words) in CHANGES {
        let row = done.became(key, result);
        assert!(row["detail"].as_str().unwrap_or_default().contains(words), "{row}\n{}", done.scene());
    }
    let left: BTreeSet<_> = keyspace(redis).into_keys().collect();
    let changed = CHANGES.iter().filter(|(_, result, _)| *result == "changed").map(|(key, ..)| *key);
    assert_eq!(left, in_db_0(changed.chain(["near"])), "{}", done.scene());
    redis.run("HLEN grows").is(2_000);
    redis.run("GET type").is("other");
}

/// Deletes all the keys, which change right before the first of these commands once the plan is made.
fn changed_before(kind: ServerKind, rules: &str, command: &'static str, method: &str) -> (Lab, Deleted) {
    let lab = Lab::with(kind, |_, options| options.config(format!("user limited on >pw ~* +@all {rules}")));
    fill(&lab.redis());
    let proxy = Proxy::start(lab.address(), once_before(lab.address(), once_planned(command), change));
    let mut deletion =
        lab.deletion_at(proxy.port(), ["--method", method, "--min-elements", "1"]).user("limited");
    for (key, ..) in CHANGES {
        deletion = deletion.arg(key);
    }
    (lab, deletion.exits(Exit::Partial))
}

/// Picks this command, once the plan is made and is being carried out.
fn once_planned(command: &'static str) -> impl FnMut(&Request) -> bool + Send + 'static {
    let mut begun = false;
    move |request| {
        // Asked before the first key, and by nobody who only plans.
        begun |= request.is("LATENCY LATEST");
        begun && request.is(command)
    }
}

on_each_server! {
    fn between_plan_and_script_in_a_batch(kind) {
        let (lab, done) = changed_before(kind, "", "EVAL", "unlink");
        all_are_noticed(&lab.redis(), &done);
    }

    fn between_plan_and_script_by_chunks(kind) {
        let (lab, done) = changed_before(kind, "", "EVAL", "chunked");
        all_are_noticed(&lab.redis(), &done);
    }

    fn between_plan_and_watch(kind) {
        let (lab, done) = changed_before(kind, "-eval", "WATCH", "unlink");
        all_are_noticed(&lab.redis(), &done);
    }

    fn between_plan_and_look_where_there_is_neither(kind) {
        let (lab, done) = changed_before(kind, "-eval -watch -multi -exec", "TYPE", "chunked");
        all_are_noticed(&lab.redis(), &done);
        assert!(done.became("stays", "deleted")["detail"].as_str().is_some_and(|text| text.contains("neither EVAL nor WATCH")));
    }

    fn between_watch_and_exec(kind) {
        for method in ["unlink", "pad", "chunked", "expire"] {
            let lab = Lab::with(kind, |_, options| options.config("user limited on >pw ~* +@all -eval"));
            let redis = lab.redis();
            redis.fill_hash("victim", 1_000);
            redis.fill_hash("near", 1_000);
            let proxy = Proxy::start(
                lab.address(),
                once_before(lab.address(), |request| request.is("EXEC"), |redis| {
                    redis.run("HSET victim f1 another");
                }),
            );
            let before = keyspace(&redis).len();
            let done = lab.deletion_at(proxy.port(), ["victim", "--method", method]).user("limited").exits(Exit::Partial);
            let row = done.became("victim", "changed");
            assert!(row["detail"].as_str().is_some_and(|text| text.contains("wrote to it while it was checked")), "{row}");
            assert_eq!(keyspace(&redis).len(), before, "{}", done.scene());
            redis.run("HGET victim f1").is("another");
        }
    }

    fn a_key_that_somebody_used_is_not_idle(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        let counts_our_looks = matches!(kind, ServerKind::Redis62 | ServerKind::Redis70);
        thread::sleep(Duration::from_millis(3_100));
        let proxy = Proxy::start(
            lab.address(),
            once_before(lab.address(), once_planned("LATENCY"), move |redis| {
                // So long that a use of somebody else's can be told from the plan's own look.
                if counts_our_looks {
                    thread::sleep(Duration::from_millis(4_300));
                }
                redis.run("HGET grows f1");
            }),
        );
        let done = lab.deletion_at(proxy.port(), ["grows", "stays", "--idle-over", "2s"]).exits(Exit::Partial);
        assert!(done.became("grows", "changed")["detail"].as_str().is_some_and(|text| text.contains("--idle-over")));
        done.became("stays", "deleted");
        // The filter itself.
        let done = lab.delete(["grows", "shrinks", "--idle-over", "2s"]).exits(Exit::Done);
        done.became("shrinks", "deleted");
        redis.run("EXISTS grows").is(1);
    }

    fn between_scan_and_plan(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        for format in ["csv", "ndjson"] {
            redis.run("FLUSHALL");
            fill(&redis);
            let rows = lab.bigkeys(["scan", "--all-keys", "--exclude", "near", "--format", format]).args(CALM).stdout();
            let file = lab.path("plan");
            fs::write(&file, rows).expect("writable");
            change(&redis);
            let done = lab.delete(["--min-elements", "1", "--from"]).arg(&file).exits(Exit::Partial);
            done.audit_is_sound();
            for (key, result, words) in CHANGES {
                match result {
                    "deleted" => { done.became(key, "deleted"); }
                    "gone" => { done.left(key, "gone"); }
                    _ => {
                        let row = done.left(key, "changed");
                        assert_eq!(row["detail"], words, "{}", done.scene());
                    }
                }
            }
            let left: BTreeSet<_> = keyspace(&redis).into_keys().collect();
            let changed = CHANGES.iter().filter(|(_, result, _)| *result == "changed").map(|(key, ..)| *key);
            assert_eq!(left, in_db_0(changed.chain(["near"])), "{}", done.scene());
        }
    }

    fn who_writes_to_the_name_meanwhile_keeps_everything(kind) {
        let lab = Lab::start(kind);
        for (fill, first, add) in [
            (Client::fill_set as fn(&Client, &str, usize), "SREM", "SADD"),
            (Client::fill_hash, "HDEL", "HSET"),
            (Client::fill_zset, "ZREMRANGEBYRANK", "ZADD"),
        ] {
            let redis = lab.redis();
            redis.run("FLUSHALL");
            fill(&redis, "victim", 20_000);
            // The key has its other name by the time of the first chunk. From here on, somebody adds.
            let stop = Arc::new(AtomicBool::new(false));
            let (ended, address) = (Arc::clone(&stop), lab.address());
            let mut writer = None;
            let handle = Arc::new(std::sync::Mutex::new(None));
            let keep = Arc::clone(&handle);
            let proxy = Proxy::start(address, move |request: &Request| {
                if request.is(first) && writer.is_none() {
                    assert!(!request.names("victim"), "the chunk is cut from the key itself");
                    writer = Some(());
                    let stop = Arc::clone(&ended);
                    let thread = thread::spawn(move || {
                        let redis = Client::connect(address);
                        let mut n = 0;
                        while !stop.load(Ordering::SeqCst) || n == 0 {
                            let name = format!("new{n}");
                            let words = if add == "SADD" { vec![add, "victim", &name] } else { vec![add, "victim", if add == "ZADD" { "1" } else { "f" }, &name] };
                            redis.call(&words);
                            n += 1;
                        }
                        n
                    });
                    *keep.lock().expect("no panic") = Some(thread);
                }
                Action::Forward
            });
            let done = lab.deletion_at(proxy.port(), ["victim", "--method", "chunked"]).exits(Exit::Done);
            stop.store(true, Ordering::SeqCst);
            let writer = handle.lock().expect("no panic").take().expect("there were chunks");
            let written: i64 = writer.join().expect("it does not fail");
            done.became("victim", "deleted");
            let (count, expected) = match add {
                "SADD" => (redis.run("SCARD victim").int(), written),
                "ZADD" => (redis.run("ZCARD victim").int(), written),
                _ => (redis.run("HLEN victim").int(), 1),
            };
            assert_eq!(count, expected, "{add}: what was written is there, and nothing of the old");
            assert_eq!(keyspace(&redis).len(), 1);
        }
    }

    fn who_writes_to_a_key_that_is_taken_apart_in_place_does_not_keep_it_from_ending(kind) {
        let lab = Lab::with(kind, |_, options| options.config("user limited on >pw ~* +@all -renamenx"));
        let redis = lab.redis();
        redis.fill_set("victim", 20_000);
        redis.fill_set("near", 1_000);
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, address) = (Arc::clone(&stop), lab.address());
        let writer = thread::spawn(move || {
            let redis = Client::connect(address);
            for n in 0.. {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                redis.call(&["SADD", "victim", &format!("new{}", n % 1_000)]);
            }
        });
        let done = lab.delete(["victim", "--method", "chunked"]).user("limited").exits(Exit::Done);
        stop.store(true, Ordering::SeqCst);
        writer.join().expect("it does not fail");
        assert!(done.became("victim", "deleted")["detail"].as_str().is_some_and(|text| text.contains("in place")));
        for n in [0, 1, 10_000, 19_999] {
            redis.run(&format!("SISMEMBER victim m{n}")).is(0);
        }
        redis.run("SCARD near").is(1_000);
    }

    fn what_others_made_of_a_name_after_its_last_chunk_is_theirs(kind) {
        let lab = Lab::with(kind, |_, options| options.config("user limited on >pw ~* +@all -renamenx"));
        let redis = lab.redis();
        redis.fill_set("victim", 2_000);
        // Right before the first look at what is left, the name is somebody else's.
        let proxy = Proxy::start(
            lab.address(),
            {
                let mut removed = false;
                once_before(lab.address(), move |request| {
                    removed |= request.is("SREM");
                    removed && request.is("SCARD")
                }, |redis| {
                    redis.run("DEL victim");
                    redis.run("SET victim theirs");
                })
            },
        );
        lab.deletion_at(proxy.port(), ["victim", "--method", "chunked"]).user("limited").exits(Exit::Partial);
        redis.run("GET victim").is("theirs");
    }

    fn a_tombstone_that_is_taken_is_not_touched(kind) {
        for rules in ["", "-eval", "-eval -watch -multi -exec"] {
            let lab = Lab::with(kind, |_, options| options.config(format!("user limited on >pw ~* +@all {rules}")));
            let redis = lab.redis();
            redis.fill_set("victim", 1_000);
            let (mut done_it, side) = (false, lab.redis());
            let proxy = Proxy::start(lab.address(), move |request| {
                let name = request.words.iter().find(|word| word.starts_with(b"bigkeys:tombstone:"));
                if let Some(name) = name && (request.is("EVAL") || request.is("RENAMENX")) && !done_it {
                    done_it = true;
                    side.call(&[&b"SADD"[..], name, b"theirs"]);
                }
                Action::Forward
            });
            let done = lab.deletion_at(proxy.port(), ["victim", "--method", "chunked"]).user("limited").exits(Exit::Partial);
            let row = done.became("victim", "failed");
            assert!(row["detail"].as_str().is_some_and(|text| text.contains("taken")), "{row}\n{}", done.scene());
            redis.run("SCARD victim").is(1_000);
            assert_eq!(keyspace(&redis).len(), 2, "{}", done.scene());
        }
    }

    fn nothing_is_written_when_nothing_holds(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        let proxy = Proxy::start(
            lab.address(),
            once_before(lab.address(), once_planned("EVAL"), |redis| {
                redis.fill_hash("stays", 5_000);
            }),
        );
        let before = { redis.fill_hash("stays", 5_000); let all = keyspace(&redis); redis.run("DEL stays"); redis.fill_hash("stays", 1_000); all };
        let done = lab.deletion_at(proxy.port(), ["stays"]).exits(Exit::Partial);
        only_gone(&before, &keyspace(&redis), &BTreeSet::new(), &done.scene());
    }
}
