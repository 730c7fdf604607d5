//! What happens to keys beside commands: expiry, freeing, eviction, and SCAN's promise.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bigkeys::server::{Config, InProcess, ManualClock};
use proptest::prelude::*;

use super::reply::{Reply, decode};
use super::script::split_words;

/// An in-process server, one client, and a clock that only the test moves.
struct Bench {
    server: InProcess,
    clock: Arc<ManualClock>,
    client: usize,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(&[])
    }

    fn with(parameters: &[(&str, &str)]) -> Bench {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let mut config = Config { clock: clock.clone(), seed: Some(7), ..Config::default() };
        for (name, value) in parameters {
            config = config.with(name, value);
        }
        let mut server = InProcess::new(&config).expect("good parameters");
        let client = server.connect();
        Bench { server, clock, client }
    }

    fn run(&mut self, line: &str) -> Reply {
        let words = split_words(line).expect("a well-formed line");
        let bytes = self.server.call(self.client, &words);
        decode(&bytes).unwrap_or_else(|| panic!("no reply to {line}")).0
    }

    fn int(&mut self, line: &str) -> i64 {
        match self.run(line) {
            Reply::Int(value) => value,
            other => panic!("{line}: {other}"),
        }
    }

    /// Reads a number out of INFO.
    fn info(&mut self, field: &str) -> i64 {
        let Reply::Bulk(text) = self.run("INFO everything") else { panic!("no INFO") };
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {field} in INFO"))
    }

    /// Makes a set whose members are not integers: a table when there are more than 128.
    fn fill_set(&mut self, key: &str, members: usize) {
        for chunk in (0..members).collect::<Vec<_>>().chunks(500) {
            let members = chunk.iter().fold(String::new(), |line, i| format!("{line} member:{i}"));
            self.run(&format!("SADD {key}{members}"));
        }
    }

    /// The freeing thread is not ours to step; it is waited for.
    fn wait_for_lazyfree(&mut self) {
        for _ in 0..1000 {
            if self.info("lazyfree_pending_objects") == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("still freeing");
    }
}

#[test]
fn unlink_frees_in_the_background_above_64_steps_and_del_never_by_default() {
    let mut bench = Bench::with(&[("set-max-listpack-entries", "0")]);
    for (members, command, freed) in
        [(64, "UNLINK s", 0), (65, "UNLINK s", 1), (65, "DEL s", 1), (65, "UNLINK s", 2)]
    {
        bench.fill_set("s", members);
        assert_eq!(bench.int(command), 1);
        bench.wait_for_lazyfree();
        assert_eq!(bench.info("lazyfreed_objects"), freed, "{command} of {members}");
    }
    bench.run("CONFIG SET lazyfree-lazy-user-del yes");
    bench.fill_set("s", 65);
    bench.run("DEL s");
    bench.wait_for_lazyfree();
    assert_eq!(bench.info("lazyfreed_objects"), 3);
    bench.run("CONFIG RESETSTAT");
    assert_eq!(bench.info("lazyfreed_objects"), 0);
}

#[test]
fn overwriting_follows_the_setting_for_the_server_itself() {
    let mut bench = Bench::new();
    for (setting, freed) in [("no", 0), ("yes", 3)] {
        bench.run(&format!("CONFIG SET lazyfree-lazy-server-del {setting}"));
        for command in ["SET s x", "RENAME other s", "COPY other s REPLACE"] {
            bench.run("DEL s");
            bench.run("SET other 1");
            bench.fill_set("s", 200);
            bench.run(command);
        }
        bench.wait_for_lazyfree();
        assert_eq!(bench.info("lazyfreed_objects"), freed);
    }
}

#[test]
fn flushing_asynchronously_counts_keys() {
    let mut bench = Bench::new();
    bench.run("DEBUG POPULATE 500");
    bench.run("FLUSHALL ASYNC");
    assert_eq!(bench.int("DBSIZE"), 0);
    bench.wait_for_lazyfree();
    assert_eq!(bench.info("lazyfreed_objects"), 500);
}

#[test]
fn whoever_looks_up_a_key_past_its_deadline_reaps_it() {
    for (command, reaps) in [
        ("TYPE s", true),
        ("EXISTS s", true),
        ("TTL s", true),
        ("OBJECT ENCODING s", true),
        ("SCAN 0 COUNT 100", true),
        ("SCAN 0 COUNT 100 TYPE string", true),
        ("SCAN 0 COUNT 100 MATCH x*", false),
        ("UNLINK s", true),
        ("MEMORY USAGE s", false),
        ("KEYS *", false),
        ("DBSIZE", false),
    ] {
        let mut bench = Bench::new();
        bench.run("DEBUG SET-ACTIVE-EXPIRE 0");
        bench.fill_set("s", 200);
        bench.run("PEXPIRE s 10");
        bench.clock.advance(Duration::from_millis(20));
        bench.server.cron();
        assert_eq!(bench.int("DBSIZE"), 1);
        bench.run(command);
        assert_eq!(bench.int("DBSIZE"), i64::from(!reaps), "{command}");
        // As on stock Redis: on the spot, even for UNLINK.
        assert_eq!(bench.info("lazyfreed_objects"), 0, "{command}");
    }
}

#[test]
fn unlink_of_a_key_past_its_deadline_returns_0_and_can_be_lazy_by_the_expire_setting() {
    let mut bench = Bench::with(&[("lazyfree-lazy-expire", "yes")]);
    bench.run("DEBUG SET-ACTIVE-EXPIRE 0");
    bench.fill_set("s", 200);
    bench.run("PEXPIRE s 10");
    bench.clock.advance(Duration::from_millis(20));
    assert_eq!(bench.int("UNLINK s"), 0);
    bench.wait_for_lazyfree();
    assert_eq!((bench.info("lazyfreed_objects"), bench.info("expired_keys")), (1, 1));
}

#[test]
fn cron_reaps_what_nobody_asks_for() {
    let mut bench = Bench::new();
    for i in 0..1000 {
        bench.run(&format!("SET due:{i} x PX 10"));
        bench.run(&format!("SET live:{i} x PX 1000000"));
    }
    bench.clock.advance(Duration::from_millis(20));
    for _ in 0..100 {
        bench.server.cron();
    }
    // It stops when a tenth of what it looks at is due, so a few may be left for a while.
    let left = bench.int("DBSIZE") - 1000;
    assert!((0..300).contains(&left), "{left} left");
    assert_eq!(bench.info("expired_keys"), 1000 - left);
}

#[test]
fn without_an_eviction_policy_writes_are_refused_and_reads_are_not() {
    let mut bench = Bench::new();
    bench.run("SET a 1");
    bench.run("CONFIG SET maxmemory 1");
    let refusal = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(bench.run("SET b 1"), Reply::Error(refusal.to_owned()));
    assert_eq!(bench.run("GET a"), Reply::Bulk(b"1".to_vec()));
    assert_eq!(bench.int("DEL a"), 1);
}

#[test]
fn eviction_takes_the_least_recently_used_or_the_first_to_expire() {
    for (policy, stays) in [("allkeys-lru", "hot"), ("volatile-ttl", "late")] {
        let mut bench = Bench::with(&[("maxmemory-policy", policy), ("maxmemory-samples", "64")]);
        let filler = "x".repeat(1000);
        for i in 0..50 {
            bench.run(&format!("SET early:{i} {filler} EX {}", 100 + i));
        }
        bench.run("SET late x EX 100000");
        bench.run("SET hot x EX 10");
        bench.clock.advance(Duration::from_secs(5));
        bench.run("GET hot");
        let used = bench.info("used_memory");
        bench.run(&format!("CONFIG SET maxmemory {}", used - 20_000));
        bench.run("SET new x EX 100000");
        assert!(bench.info("evicted_keys") >= 10, "{policy}");
        assert_eq!(bench.int(&format!("EXISTS {stays}")), 1, "{policy}");
        assert!(bench.info("used_memory") <= used - 19_000, "{policy}");
    }
}

#[test]
fn used_memory_returns_to_where_it_was() {
    let mut bench = Bench::new();
    let before = bench.info("used_memory");
    bench.run("DEBUG POPULATE 10000 key 100");
    bench.fill_set("s", 1000);
    bench.run("APPEND grown abc");
    bench.run("APPEND grown abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
    let full = bench.info("used_memory");
    assert!((1_500_000..3_500_000).contains(&(full - before)), "{}", full - before);
    for i in 0..10_000 {
        bench.run(&format!("DEL key:{i}"));
    }
    bench.run("DEL s grown");
    for _ in 0..200 {
        bench.clock.advance(Duration::from_millis(100));
        bench.server.cron();
    }
    let left = bench.info("used_memory") - before;
    assert!((0..20_000).contains(&left), "{left}");
}

#[test]
fn idle_time_counts_unless_the_client_does_not_touch() {
    let mut bench = Bench::new();
    bench.run("SET a 1");
    bench.clock.advance(Duration::from_secs(100));
    bench.run("CLIENT NO-TOUCH on");
    bench.run("GET a");
    assert_eq!(bench.int("OBJECT IDLETIME a"), 100);
    bench.run("CLIENT NO-TOUCH off");
    bench.run("TYPE a");
    assert_eq!(bench.int("OBJECT IDLETIME a"), 100);
    bench.run("GET a");
    assert_eq!(bench.int("OBJECT IDLETIME a"), 0);
}

#[test]
fn frequency_is_told_only_under_an_lfu_policy() {
    let mut bench = Bench::with(&[("maxmemory-policy", "allkeys-lfu")]);
    bench.run("SET a 1");
    for _ in 0..100 {
        bench.run("GET a");
    }
    assert!(bench.int("OBJECT FREQ a") > 5);
    assert!(matches!(bench.run("OBJECT IDLETIME a"), Reply::Error(_)));
}

#[test]
fn slow_commands_are_logged_and_noted_as_latency() {
    let mut bench = Bench::with(&[("latency-monitor-threshold", "50")]);
    bench.run("CLIENT SETNAME slow");
    bench.run("DEBUG SLEEP 0.2");
    let Reply::Array(entries) = bench.run("SLOWLOG GET") else { panic!("no entries") };
    let [Reply::Array(entry)] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(entry[2], Reply::Int(200_000));
    assert_eq!(entry[3], Reply::Array(["DEBUG", "SLEEP", "0.2"].map(|w| Reply::Bulk(w.into())).to_vec()));
    assert_eq!(entry[5], Reply::Bulk(b"slow".to_vec()));
    let latest = bench.run("LATENCY LATEST").to_string();
    assert_eq!(latest, "[[\"command\" 1700000000 200 200]]");
}

#[test]
fn replies_can_be_turned_off() {
    let mut bench = Bench::new();
    let mut silent = |line: &str| bench.server.call(bench.client, &split_words(line).expect("words"));
    assert!(silent("CLIENT REPLY OFF").is_empty());
    assert!(silent("SET a 1").is_empty());
    assert_eq!(silent("CLIENT REPLY ON"), b"+OK\r\n");
    assert!(silent("CLIENT REPLY SKIP").is_empty());
    assert!(silent("GET a").is_empty());
    assert_eq!(silent("GET a"), b"$1\r\n1\r\n");
}

#[derive(Debug, Clone)]
enum Change {
    Grow(u16),
    Shrink(u16),
    Expire,
    Page(u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (1..400_u16).prop_map(Change::Grow),
        (1..400_u16).prop_map(Change::Shrink),
        Just(Change::Expire),
        (1..30_u8).prop_map(Change::Page),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever stays from the first page to the last is returned, however the table grows,
    /// shrinks and expires meanwhile.
    #[test]
    fn scan_returns_whatever_stays(changes in proptest::collection::vec(change(), 1..60)) {
        let mut bench = Bench::new();
        let stay: BTreeSet<String> = (0..300).map(|i| format!("stay:{i}")).collect();
        for key in &stay {
            bench.run(&format!("SET {key} x"));
        }
        let (mut seen, mut cursor, mut next, mut oldest) = (BTreeSet::new(), "0".to_owned(), 0_u32, 0_u32);
        let mut page = |bench: &mut Bench, cursor: &str, count: u8| {
            let Reply::Array(parts) = bench.run(&format!("SCAN {cursor} COUNT {count}")) else { panic!() };
            let [Reply::Bulk(cursor), Reply::Array(keys)] = &parts[..] else { panic!() };
            for key in keys {
                let Reply::Bulk(key) = key else { panic!() };
                seen.insert(String::from_utf8_lossy(key).into_owned());
            }
            String::from_utf8_lossy(cursor).into_owned()
        };
        let mut over = false;
        for change in changes {
            match change {
                Change::Grow(count) => for _ in 0..count {
                    let ttl = if next % 3 == 0 { " PX 50" } else { "" };
                    bench.run(&format!("SET pass:{next} x{ttl}"));
                    next += 1;
                },
                Change::Shrink(count) => for _ in 0..count {
                    bench.run(&format!("DEL pass:{oldest}"));
                    oldest = (oldest + 1).min(next);
                },
                Change::Expire => {
                    bench.clock.advance(Duration::from_millis(60));
                    bench.server.cron();
                }
                Change::Page(count) if !over => {
                    cursor = page(&mut bench, &cursor, count);
                    over = cursor == "0";
                }
                Change::Page(_) => {}
            }
        }
        while !over {
            cursor = page(&mut bench, &cursor, 10);
            over = cursor == "0";
        }
        let missed: Vec<_> = stay.difference(&seen).collect();
        prop_assert!(missed.is_empty(), "missed {missed:?}");
    }
}
