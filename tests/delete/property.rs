//! For any keyspace and any plan: what is gone is the plan without what was skipped. And for any key and any
//! expectation: the script on the server and the comparison in Rust say the same.

use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::ground::keyspace;
use crate::support::{CALM, Client, Exit, Lab, Proxy, ServerKind, on_each_server, once_before};

/// Cases of the property about whole runs.
const KEYSPACES: usize = 2;
/// Keys of the property about comparisons; each is checked in three ways on each server.
const KEYS: usize = 250;

fn runner() -> TestRunner {
    // Always the same cases: a failure is there again the next time.
    TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn draw<S: Strategy>(runner: &mut TestRunner, strategy: &S) -> S::Value {
    strategy.new_tree(runner).expect("nothing is filtered out").current()
}

#[derive(Debug, Clone)]
struct Key {
    db: u8,
    name: Vec<u8>,
    kind: usize,
    elements: usize,
    long: bool,
    ttl: bool,
}

fn a_name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "(a|b|lock:|queue:|session:)[0-9]{1,2}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..12),
        "[{}*?\\[\\]\\\\\"', \n=a]{1,6}".prop_map(String::into_bytes),
    ]
}

fn a_key() -> impl Strategy<Value = Key> {
    let elements = prop_oneof![1..20_usize, 60..70_usize, 100..700_usize];
    (0..3_u8, a_name(), 0..6_usize, elements, any::<bool>(), any::<bool>())
        .prop_map(|(db, name, kind, elements, long, ttl)| Key { db, name, kind, elements, long, ttl })
}

fn make(redis: &Client, key: &Key) {
    redis.run(&format!("SELECT {}", key.db));
    redis.call(&[b"DEL", &key.name[..]]);
    let element =
        |n: usize| if key.long { format!("{n:080}").into_bytes() } else { n.to_string().into_bytes() };
    let words: &[&[u8]] = match key.kind {
        0 => &[b"SET"],
        1 => &[b"RPUSH"],
        2 => &[b"SADD"],
        3 => &[b"ZADD"],
        4 => &[b"HSET"],
        _ => &[b"XADD"],
    };
    let count = if key.kind == 0 { 1 } else { key.elements };
    redis.pipeline((0..count).map(|n| {
        let mut command: Vec<Vec<u8>> = vec![words[0].to_vec(), key.name.clone()];
        match key.kind {
            0 => command.push(element(key.elements).repeat(key.elements)),
            1 | 2 => command.push(element(n)),
            3 | 4 => command.extend([n.to_string().into_bytes(), element(n)]),
            _ => command.extend([format!("{}-1", n + 1).into_bytes(), b"f".to_vec(), element(n)]),
        }
        command
    }));
    if key.ttl {
        redis.call(&[b"EXPIRE", &key.name[..], b"5000"]);
    }
    redis.run("SELECT 0");
}

/// How the keys are selected.
fn a_selection() -> impl Strategy<Value = Vec<&'static str>> {
    prop_oneof![
        Just(vec!["--all"]),
        Just(vec!["--all", "--all-dbs"]),
        Just(vec!["--match", "[ab]*", "--all-dbs"]),
        Just(vec!["--type", "set", "--type", "hash", "--db", "1"]),
        Just(vec!["--min-elements", "65", "--all-dbs"]),
        Just(vec!["--match", "*", "--exclude", "*1*", "--all-dbs"]),
        Just(vec!["--from", "plan.csv"]),
        Just(vec!["--from", "plan.ndjson"]),
        Just(vec!["--ttl", "none", "--all-dbs"]),
    ]
}

fn an_option() -> impl Strategy<Value = Vec<&'static str>> {
    prop_oneof![
        Just(vec![]),
        Just(vec!["--protect", "*2*"]),
        Just(vec!["--unprotect"]),
        Just(vec!["--max-keys", "7"]),
        Just(vec!["--max-bytes", "20K"]),
        Just(vec!["--method", "chunked"]),
        Just(vec!["--method", "pad"]),
        Just(vec!["--method", "quarantine", "--quarantine-db", "9"]),
    ]
}

fn what_is_gone_is_the_plan_without_the_skipped(kind: ServerKind, lab: &Lab, runner: &mut TestRunner) {
    let redis = lab.redis();
    let keys = draw(runner, &proptest::collection::vec(a_key(), 10..60));
    for key in &keys {
        make(&redis, key);
    }
    for format in ["csv", "ndjson"] {
        let rows = lab.bigkeys(["scan", "--all-keys", "--all-dbs", "--format", format]).args(CALM).stdout();
        fs::write(lab.path(&format!("plan.{format}")), rows).expect("writable");
    }
    // Some change after the scan, and some between the plan and the act.
    for key in keys.iter().step_by(5) {
        make(&redis, &Key { elements: key.elements * 3, ..key.clone() });
    }
    let (selection, option) = (draw(runner, &a_selection()), draw(runner, &an_option()));
    let changing: Vec<Key> = keys.iter().skip(2).step_by(7).cloned().collect();
    let before = keyspace(&redis);
    let mut begun = false;
    let proxy = Proxy::start(
        lab.address(),
        once_before(
            lab.address(),
            move |request| {
                begun |= request.is("LATENCY LATEST");
                begun && request.is("EVAL")
            },
            move |redis| {
                for key in &changing {
                    make(redis, &Key { kind: (key.kind + 1) % 6, ttl: !key.ttl, ..key.clone() });
                }
            },
        ),
    );
    let mut deletion = lab.deletion_at(proxy.port(), ["--any-node"]);
    if !selection.contains(&"--from") {
        deletion = lab.deletion_at(proxy.port(), []);
    }
    for arg in selection.iter().chain(&option) {
        deletion = deletion.arg(arg);
    }
    let done = deletion.exits_with([Exit::Done, Exit::Partial]);
    done.audit_is_sound();
    let after = keyspace(&redis);
    let scene = format!("{kind:?} {selection:?} {option:?}\n{}", done.scene());
    let (planned, gone) = (done.keys("plan"), done.with_result("deleted"));
    assert!(gone.is_subset(&planned), "{scene}");
    let skipped: BTreeSet<_> = done.keys("skip").into_iter().filter(|key| !planned.contains(key)).collect();
    assert!(skipped.iter().all(|key| after.contains_key(key) || !before.contains_key(key)), "{scene}");
    let outcomes = done.keys("outcome");
    let stopped = option[..].iter().any(|word| word.starts_with("--max"));
    assert!(outcomes == planned || (stopped && outcomes.is_subset(&planned)), "{scene}");
    // What somebody made meanwhile is no loss of ours: it is compared by name alone.
    for place in before.keys().chain(after.keys()) {
        assert_eq!(
            after.contains_key(place),
            !gone.contains(place),
            "{}/{}\n{scene}",
            place.0,
            place.1.escape_ascii()
        );
    }
    if done.rows("outcome").iter().all(|row| row["result"] == "deleted")
        && !outcomes.is_empty()
        && planned == gone
    {
        let untouched: BTreeSet<_> = before.keys().filter(|key| !gone.contains(*key)).cloned().collect();
        assert!(untouched.iter().all(|key| after.contains_key(key)), "{scene}");
    }
    redis.run("FLUSHALL");
}

on_each_server! {
    fn what_is_gone_is_the_plan_minus_the_skipped(kind) {
        let mut runner = runner();
        let lab = Lab::start(kind);
        // The bundled server is the quickest; the real ones show that it is no special case.
        let cases = if kind == ServerKind::Bundled { 4 * KEYSPACES } else { KEYSPACES };
        for _ in 0..cases {
            what_is_gone_is_the_plan_without_the_skipped(kind, &lab, &mut runner);
        }
    }

    fn the_script_and_the_comparison_agree(kind) {
        let lab = Lab::with(kind, |_, options| {
            options.config("user script on >pw ~* +@all").config("user watch on >pw ~* +@all -eval").config("user look on >pw ~* +@all -eval -watch -multi -exec")
        });
        let mut runner = runner();
        let redis = lab.redis();
        let mut keys: Vec<(Key, Key)> = (0..KEYS).map(|n| {
            let key = Key { db: 0, name: format!("k{n}").into_bytes(), ..draw(&mut runner, &a_key()) };
            let other = Key { name: key.name.clone(), db: 0, ..draw(&mut runner, &a_key()) };
            let percent = draw(&mut runner, &prop_oneof![Just(100), Just(100), 85..116_usize, Just(0)]);
            let later = match draw(&mut runner, &(0..6)) {
                0 => other,
                1 => Key { ttl: !key.ttl, ..key.clone() },
                2 => Key { long: !key.long, ..key.clone() },
                _ => Key { elements: (key.elements * percent / 100).max(1), ..key.clone() },
            };
            (key, later)
        }).collect();
        keys.dedup_by(|a, b| a.0.name == b.0.name);
        let verdicts = ["script", "watch", "look"].map(|user| {
            redis.run("FLUSHALL");
            for (key, _) in &keys {
                make(&redis, key);
            }
            let later: Vec<Key> = keys.iter().map(|(_, later)| later.clone()).collect();
            let mut begun = false;
            let proxy = Proxy::start(lab.address(), once_before(lab.address(), move |request| {
                begun |= request.is("LATENCY LATEST");
                begun && ["EVAL", "WATCH", "TYPE"].iter().any(|word| request.is(word))
            }, move |redis| later.iter().for_each(|key| make(redis, key))));
            let done = lab.deletion_at(proxy.port(), ["--all", "--unprotect", "--method", "unlink", "--min-elements", "1"]).user(user).exits(Exit::Partial);
            done.audit_is_sound();
            keys.iter().map(|(key, _)| {
                let name = String::from_utf8_lossy(&key.name).into_owned();
                let row = done.row("outcome", &name);
                let window = row["detail"].as_str().is_some_and(|text| text.contains("neither EVAL nor WATCH"));
                (name, row["result"].clone(), if window { serde_json::Value::Null } else { row["detail"].clone() })
            }).collect::<Vec<_>>()
        });
        let [script, watch, look] = verdicts;
        assert_eq!(script, watch);
        assert_eq!(script, look);
        // The property says something only where both happen, and often.
        for result in ["deleted", "changed"] {
            let count = script.iter().filter(|(_, was, _)| was == result).count();
            assert!(count > KEYS / 10, "{count} {result}");
        }
    }
}
