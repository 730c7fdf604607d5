//! Keys that change while they are looked at, and answers that a scan must be ready for.
//!
//! The proxy makes each of these happen at one certain moment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::support::{Action, Bigkeys, Client, Exit, Lab, Proxy, Scan, Value, on_each_server, once_before};

/// Prepares a scan through the proxy.
fn scan_through(lab: &Lab, proxy: &Proxy) -> Bigkeys {
    lab.scan_at(proxy.port(), ["--all-keys"])
}

/// Fills in keys of all kinds of which one is the victim of the test.
fn fill(redis: &Client) {
    for n in 0..50 {
        redis.run(&format!("SET string:{n} v"));
        redis.fill_hash(&format!("hash:{n}"), 3);
    }
    redis.fill_hash("victim", 1000);
}

/// Scans while the victim is deleted right before a command about it.
fn vanishes_before(lab: &Lab, command: &'static str) {
    fill(&lab.redis());
    let proxy = Proxy::start(
        lab.address(),
        once_before(
            lab.address(),
            move |request| request.is(command) && request.names("victim"),
            |redis| {
                redis.run("DEL victim").is(1);
            },
        ),
    );
    let scan = scan_through(lab, &proxy).document();
    assert!(!proxy.requests(command).is_empty(), "{command} was never asked");
    assert_eq!(scan.skipped("vanished"), 1, "{}", scan.outcome().scene());
    let found = scan.by_key();
    assert_eq!(found.len(), 100, "all others are there");
    assert!(!found.contains_key(&(0, b"victim".to_vec())));
}

on_each_server! {
    fn a_key_that_is_deleted_before_its_size_is_asked(kind) {
        vanishes_before(&Lab::start(kind), "MEMORY USAGE");
    }

    fn a_key_that_is_deleted_before_its_type_is_asked(kind) {
        vanishes_before(&Lab::start(kind), "TYPE");
    }

    fn a_key_that_is_deleted_before_its_details_are_asked(kind) {
        vanishes_before(&Lab::start(kind), "OBJECT ENCODING");
        vanishes_before(&Lab::start(kind), "PTTL");
        vanishes_before(&Lab::start(kind), "HLEN");
    }

    fn a_key_that_expires_under_our_eyes(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        // Reaped by whoever looks: nobody else does.
        lab.redis().run("DEBUG SET-ACTIVE-EXPIRE 0");
        let proxy = Proxy::start(
            lab.address(),
            once_before(lab.address(), |request| request.is("TYPE") && request.names("victim"), |redis| {
                redis.run("PEXPIRE victim 1").is(1);
                // MEMORY USAGE sees what is past its TTL, so it cannot tell when it is over. The clock can.
                let over = redis.run("PTTL victim").int();
                thread::sleep(std::time::Duration::from_millis(u64::try_from(over).unwrap_or(0) + 2));
            }),
        );
        let scan = scan_through(&lab, &proxy).document();
        assert_eq!(scan.skipped("vanished"), 1, "{}", scan.outcome().scene());
        assert_eq!(scan.by_key().len(), 100);
    }

    fn a_key_that_changes_its_type_before_its_length_is_asked(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let proxy = Proxy::start(
            lab.address(),
            once_before(lab.address(), |request| request.is("HLEN") && request.names("victim"), |redis| {
                redis.run("SET victim other").is("OK");
            }),
        );
        // It is looked at once more, as what it is now.
        let scan = scan_through(&lab, &proxy).document();
        assert_eq!(scan.finding("victim")["type"], "string");
        assert_eq!(scan.by_key().len(), 101);
        assert_eq!(scan.summary("/keys_seen"), 101);
        assert_eq!(scan.summary("/completeness/status"), "complete");
    }

    fn a_key_that_changes_its_type_each_time_is_skipped_and_counted(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let redis = lab.redis();
        let proxy = Proxy::start(lab.address(), move |request| {
            if request.names("victim") && request.is("HLEN") {
                redis.run("SET victim other").is("OK");
            } else if request.names("victim") && request.is("STRLEN") {
                redis.run("DEL victim");
                redis.run("HSET victim f v");
            }
            Action::Forward
        });
        let scan = scan_through(&lab, &proxy).exits(Exit::Partial).document();
        assert_eq!(scan.skipped("changed type"), 1, "{}", scan.outcome().scene());
        assert_eq!(scan.summary("/keys_seen"), 101);
        assert_eq!(scan.summary("/completeness/status"), "complete_but_skipped");
    }

    fn a_key_that_becomes_another_of_the_same_kind_is_measured_as_it_is_then(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let proxy = Proxy::start(
            lab.address(),
            once_before(lab.address(), |request| request.is("MEMORY USAGE") && request.names("victim"), |redis| {
                redis.fill_hash("victim", 2000);
            }),
        );
        let scan = scan_through(&lab, &proxy).document();
        assert_eq!(scan.finding("victim")["elements"], 2000);
    }

    fn a_refusal_of_one_key_skips_that_key_alone(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let proxy = Proxy::start(lab.address(), |request| {
            if request.is("TYPE") && request.names("victim") {
                return Action::error("NOPERM this user has no permissions to access one of the keys used as arguments");
            }
            Action::Forward
        });
        let scan = scan_through(&lab, &proxy).exits(Exit::Partial).document();
        assert_eq!(scan.skipped("no permission"), 1, "{}", scan.outcome().scene());
        assert_eq!(scan.by_key().len(), 100);
    }

    fn empty_pages_with_a_live_cursor_do_not_end_a_scan(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        // Every page is preceded by an empty one, under the same cursor.
        let mut empty = true;
        let proxy = Proxy::start(lab.address(), move |request| {
            if !request.is("SCAN") {
                return Action::Forward;
            }
            empty = !empty;
            if empty || request.words[1] == b"0" {
                return Action::Forward;
            }
            let again = request.words[1].clone();
            Action::Reply(Value::many(vec![Value::bulk(again), Value::many(Vec::new())]))
        });
        let scan = lab.scan_at(proxy.port(), ["--all-keys", "--count", "10"]).document();
        assert_eq!(scan.by_key().len(), 101);
        assert_eq!(scan.summary("/completeness/status"), "complete");
    }

    fn a_key_on_two_pages_is_counted_once(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let proxy = Proxy::start(lab.address(), |request| {
            if !request.is("SCAN") {
                return Action::Forward;
            }
            Action::Edit(Box::new(|page| {
                let (cursor, mut keys) = (page.items()[0].clone(), page.items()[1].items().to_vec());
                keys.extend([Value::bulk("victim"), Value::bulk("victim")]);
                Value::many(vec![cursor, Value::many(keys)])
            }))
        });
        let scan = lab.scan_at(proxy.port(), ["--all-keys", "--count", "10"]).document();
        assert_eq!(scan.by_key().len(), 101);
        assert_eq!(scan.summary("/keys_seen"), 101);
        let pages = proxy.requests("SCAN").len() as u64;
        assert!(pages > 5, "{pages} pages");
        assert_eq!(scan.summary("/duplicates"), 2 * pages);
    }

    fn cursors_above_two_to_the_63_come_back_as_they_were(kind) {
        const HIGH: u64 = 1 << 63;
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let server = lab.address();
        // The proxy answers SCAN itself: it hands the server's cursor on with the highest bit set.
        let side = Client::connect(server);
        let proxy = Proxy::start(server, move |request| {
            if !request.is("SCAN") {
                return Action::Forward;
            }
            let given: u64 = String::from_utf8_lossy(&request.words[1]).parse().expect("an unsigned 64-bit cursor");
            let page = side.call(&["SCAN", &(given & !HIGH).to_string(), "COUNT", "10"]);
            let next: u64 = page.items()[0].text().parse().expect("a cursor");
            let next = if next == 0 { 0 } else { next | HIGH };
            Action::Reply(Value::many(vec![Value::bulk(next.to_string()), page.items()[1].clone()]))
        });
        let scan = lab.scan_at(proxy.port(), ["--all-keys"]).document();
        assert_eq!(scan.by_key().len(), 101);
        assert!(proxy.requests("SCAN").len() > 5);
    }

    fn half_a_million_keys_are_scanned_while_others_write(kind) {
        const STAY: u64 = 500_000;
        const WORTH_A_ROW: usize = 5000;
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.run(&format!("DEBUG POPULATE {STAY} stay 10"));
        redis.pipeline((0..WORTH_A_ROW).map(|n| {
            let members = (0..70).map(|m| format!("{m:080}"));
            ["SADD".to_owned(), format!("row:{n}")].into_iter().chain(members).collect::<Vec<_>>()
        }));
        // Others add, change and delete keys of their own all the while, so that tables grow and shrink.
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let others = {
            let (stop, rounds, address) = (Arc::clone(&stop), Arc::clone(&rounds), lab.address());
            thread::spawn(move || {
                let redis = Client::connect(address);
                while !stop.load(Ordering::SeqCst) {
                    let round = rounds.fetch_add(1, Ordering::SeqCst);
                    let come = |n: u64| format!("come:{}", round * 500 + n);
                    redis.pipeline((0..500).map(|n| ["SET".to_owned(), come(n), "v".to_owned()]));
                    redis.pipeline((0..500).map(|n| ["UNLINK".to_owned(), come(n)]));
                    redis.pipeline((0..100).map(|n| {
                        ["APPEND".to_owned(), format!("stay:{}", (round * 100 + n) % STAY), "x".to_owned()]
                    }));
                }
            })
        };
        let scan = lab.scan([]).document();
        stop.store(true, Ordering::SeqCst);
        others.join().expect("they do not fail");
        let rounds = rounds.load(Ordering::SeqCst);
        assert!(rounds > 10, "nobody wrote while the scan ran");

        // Rows first: each key that stays from start to end is found, and once.
        let rows: BTreeSet<_> = scan.by_key().into_keys().map(|(_, key)| key).collect();
        let expected: BTreeSet<_> = (0..WORTH_A_ROW).map(|n| format!("row:{n}").into_bytes()).collect();
        assert!(rows == expected, "{} rows for {WORTH_A_ROW} keys", rows.len());
        // Then numbers: all that stay, and of those that come and go what happened to be there.
        let strings: u64 = census(&scan, "string");
        assert!((STAY..=STAY + 500 * rounds).contains(&strings), "{strings} strings");
        assert_eq!(census(&scan, "set"), WORTH_A_ROW as u64);
        let skipped = scan.skipped("vanished");
        assert_eq!(scan.summary("/keys_seen"), strings + WORTH_A_ROW as u64 + skipped);
        assert_eq!(scan.summary("/completeness/status"), "complete");
    }
}

fn census(scan: &Scan, kind: &str) -> u64 {
    let rows = scan.summary("/census").as_array().expect("rows");
    rows.iter().filter(|row| row["type"] == kind).filter_map(|row| row["keys"].as_u64()).sum()
}
