//! Broken connections, restarts, and servers that are not ready: the scan goes on, or says where it ended.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::{Action, Client, Exit, Lab, Proxy, Request, Scan, ServerKind, on_each_server};

const KEYS: usize = 2000;

fn fill(redis: &Client) {
    redis.pipeline((0..KEYS).map(|n| ["SET".to_owned(), format!("key:{n}"), "v".to_owned()]));
}

/// Checks that every key was found once.
fn is_whole(scan: &Scan) {
    assert_eq!(scan.by_key().len(), KEYS, "{}", scan.outcome().scene());
    assert_eq!(scan.summary("/keys_seen"), KEYS);
    assert_eq!(scan.summary("/completeness/status"), "complete");
}

/// Returns a hook that does something to the n-th command that begins with these words.
fn nth(
    words: &'static str,
    n: usize,
    mut action: impl FnMut() -> Action + Send + 'static,
) -> impl FnMut(&Request) -> Action + Send + 'static {
    let mut seen = 0;
    move |request| {
        if request.is(words) {
            seen += 1;
            if seen == n {
                return action();
            }
        }
        Action::Forward
    }
}

/// Scans through the proxy in small pages.
fn scan_in_pages(lab: &Lab, proxy: &Proxy) -> Scan {
    lab.scan_at(proxy.port(), ["--all-keys", "--count", "100"]).document()
}

/// Returns the cursors that SCAN was asked with, in turn.
fn cursors(proxy: &Proxy) -> Vec<Vec<u8>> {
    proxy.requests("SCAN").into_iter().map(|request| request.words[1].clone()).collect()
}

/// Drops the connection at a command; the scan must go on where it was.
fn goes_on_after_a_drop(kind: ServerKind, words: &'static str, n: usize) {
    let lab = Lab::start(kind);
    fill(&lab.redis());
    let proxy = Proxy::start(lab.address(), nth(words, n, || Action::Drop));
    let scan = scan_in_pages(&lab, &proxy);
    is_whole(&scan);
    assert_eq!(scan.summary("/pace/reconnects"), 1, "{}", scan.outcome().scene());
    let asked = cursors(&proxy);
    let starts = asked.iter().filter(|cursor| *cursor == b"0").count();
    assert_eq!(starts, if words == "SCAN" && n == 1 { 2 } else { 1 }, "it goes on from the same cursor");
    let distinct: BTreeSet<_> = asked.iter().collect();
    assert!(asked.len() <= distinct.len() + 2, "at most what was in flight is asked again");
    // Work and canary, and the one that was made again. Never one a page.
    assert_eq!(proxy.connections(), 3);
}

on_each_server! {
    fn a_connection_that_drops_goes_on_from_the_same_cursor(kind) {
        goes_on_after_a_drop(kind, "SCAN", 1);
        goes_on_after_a_drop(kind, "SCAN", 7);
        goes_on_after_a_drop(kind, "TYPE", 555);
        goes_on_after_a_drop(kind, "PTTL", 1111);
    }

    fn the_database_is_selected_again_after_a_drop(kind) {
        let lab = Lab::start(kind);
        lab.redis().run("SET decoy v");
        let redis = lab.redis();
        redis.run("SELECT 5");
        fill(&redis);
        let proxy = Proxy::start(lab.address(), nth("SCAN", 6, || Action::Drop));
        let scan = lab.scan_at(proxy.port(), ["--all-keys", "--count", "100", "--db", "5"]).document();
        is_whole(&scan);
        assert!(scan.by_key().keys().all(|(db, _)| *db == 5));
    }

    fn a_user_is_logged_in_again_after_a_drop(kind) {
        let lab = Lab::with(kind, |_, options| options.config("user reader on >pw ~* +@all").config("requirepass other"));
        let redis = lab.redis();
        redis.run("AUTH other");
        fill(&redis);
        let proxy = Proxy::start(lab.address(), nth("SCAN", 6, || Action::Drop));
        let command = lab.scan_at(proxy.port(), ["--all-keys", "--count", "100", "--user", "reader"]);
        is_whole(&command.env("REDISCLI_AUTH", "pw").document());
        assert_eq!(proxy.requests("AUTH reader pw").len(), 3, "once for each connection");
    }

    fn connections_that_an_operator_kills_are_made_again(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let address = lab.address();
        // The canary's connection goes too.
        let proxy = Proxy::start(address, nth("SCAN", 6, move || {
            assert!(Client::connect(address).run("CLIENT KILL TYPE normal SKIPME yes").int() >= 2);
            Action::Forward
        }));
        let scan = scan_in_pages(&lab, &proxy);
        is_whole(&scan);
        assert_eq!(scan.summary("/pace/reconnects"), 1, "{}", scan.outcome().scene());
    }

    fn a_connection_that_stays_silent_is_given_up_and_made_again(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let proxy = Proxy::start(lab.address(), nth("SCAN", 5, || Action::Hang));
        let scan = lab.scan_at(proxy.port(), ["--all-keys", "--count", "100", "--timeout", "500ms"]).document();
        is_whole(&scan);
        // A slow machine may miss the half second once more.
        assert!(scan.summary("/pace/reconnects").as_u64() >= Some(1), "{}", scan.outcome().scene());
    }

    fn a_server_that_stays_away_ends_the_scan_in_part(kind) {
        let mut lab = Lab::start(kind);
        fill(&lab.redis());
        let reached = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reached);
        let proxy = Proxy::start(lab.address(), move |request| {
            // From the sixth page on, the pages come slowly enough for the server to be killed meanwhile.
            if request.is("SCAN") && counter.fetch_add(1, Ordering::SeqCst) >= 5 {
                return Action::Delay(Duration::from_millis(50));
            }
            Action::Forward
        });
        let command = lab.scan_at(proxy.port(), ["--all-keys", "--count", "100", "--timeout", "1s"]);
        let running = command.start();
        while reached.load(Ordering::SeqCst) < 6 {
            thread::yield_now();
        }
        lab.server_mut().kill();
        let scan = running.finish().exits(Exit::Partial).document();
        assert_eq!(scan.summary("/completeness/status"), "partial");
        assert_eq!(scan.summary("/completeness/reason"), "connection_lost");
        let found = scan.by_key().len();
        assert!((100..KEYS).contains(&found), "what was found until then is written: {found}");
    }

    fn a_server_that_restarts_is_scanned_again_from_the_start(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        // What each of them starts from again.
        lab.redis().run("SAVE").is("OK");
        let port = lab.address().port();
        let lab = Arc::new(Mutex::new(lab));
        // The proxy's threads outlive the test: a lab that they own would never be dropped, and its server
        // would stay.
        let (hand, address) = (Arc::downgrade(&lab), lab.lock().expect("nobody panicked").address());
        let proxy = Proxy::start(address, nth("SCAN", 6, move || {
            let lab = hand.upgrade().expect("the test goes on");
            lab.lock().expect("nobody panicked").server_mut().restart();
            Action::Forward
        }));
        let command = lab.lock().expect("nobody panicked").scan_at(proxy.port(), ["--all-keys", "--count", "100"]);
        let outcome = command.exits(Exit::Done);
        let scan = outcome.document();
        assert_eq!(lab.lock().expect("nobody panicked").address().port(), port);
        assert_eq!(scan.summary("/keys_seen"), KEYS, "{}", scan.outcome().scene());
        assert_eq!(scan.summary("/completeness/status"), "complete");
        // Rows stream, so those of before the restart may come again. Every key is there.
        let keys: BTreeSet<_> = scan.findings().iter().map(crate::support::key_of).collect();
        assert_eq!(keys.len(), KEYS);
        assert!(scan.summary("/maybe_counted_twice").is_string(), "{}", scan.outcome().scene());
        assert_eq!(cursors(&proxy).iter().filter(|cursor| *cursor == b"0").count(), 2);
        let census: u64 = scan.summary("/census").as_array().expect("rows").iter().filter_map(|row| row["keys"].as_u64()).sum();
        assert_eq!(census, KEYS as u64, "the census counts each key once");
    }

    fn a_server_that_is_loading_is_waited_for(kind) {
        let lab = loading_lab(kind);
        let reload = start_reload(lab.address());
        let scan = lab.scan(["--all-keys"]).document();
        reload.join().expect("the reload does not fail");
        assert_eq!(scan.by_key().len(), 200, "{}", scan.outcome().scene());
        assert_eq!(scan.summary("/completeness/status"), "complete");
    }

    fn a_server_that_loads_for_too_long_is_an_error_that_says_so(kind) {
        let lab = loading_lab(kind);
        let reload = start_reload(lab.address());
        let outcome = lab.scan(["--timeout", "500ms"]).exits(Exit::Failed);
        drop(outcome.stderr_has("LOADING").stderr_has(&lab.address().to_string()).stderr_has("hint:"));
        reload.join().expect("the reload does not fail");
    }

    fn a_reload_in_the_middle_of_a_scan_is_waited_for(kind) {
        let lab = loading_lab(kind);
        let address = lab.address();
        let proxy = Proxy::start(address, nth("SCAN", 4, move || {
            start_reload(address);
            Action::Forward
        }));
        let scan = lab.scan_at(proxy.port(), ["--all-keys", "--count", "10"]).document();
        assert_eq!(scan.by_key().len(), 200, "{}", scan.outcome().scene());
        assert_eq!(scan.summary("/completeness/status"), "complete");
        assert_eq!(scan.summary("/pace/reconnects"), 0);
    }

    fn a_server_that_is_busy_with_a_script_is_waited_for(kind) {
        let lab = busy_lab(kind);
        fill(&lab.redis());
        let script = start_script(lab.address());
        let command = lab.scan(["--all-keys"]).start();
        // Long enough for the scan to have met BUSY; it may not have begun, and then it waits all the same.
        let killer = lab.redis();
        thread::sleep(Duration::from_millis(300));
        killer.run("SCRIPT KILL").is("OK");
        script.join().expect("the script's client does not fail");
        is_whole(&command.finish().exits(Exit::Done).document());
    }

    fn a_script_in_the_middle_of_a_scan_is_waited_for(kind) {
        let lab = busy_lab(kind);
        fill(&lab.redis());
        let address = lab.address();
        let proxy = Proxy::start(address, nth("SCAN", 6, move || {
            let script = start_script(address);
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(300));
                Client::connect(address).run("SCRIPT KILL").is("OK");
                script.join().expect("the script's client does not fail");
            });
            Action::Forward
        }));
        is_whole(&scan_in_pages(&lab, &proxy));
    }

    fn a_script_that_never_ends_is_an_error_that_says_so(kind) {
        let lab = busy_lab(kind);
        let script = start_script(lab.address());
        let outcome = lab.scan(["--timeout", "500ms"]).exits(Exit::Failed);
        drop(outcome.stderr_has("BUSY").stderr_has(&lab.address().to_string()).stderr_has("hint:"));
        lab.redis().run("SCRIPT KILL").is("OK");
        script.join().expect("the script's client does not fail");
    }

    fn the_guard_stops_a_scan_that_another_client_would_feel(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        // Every PING after the baseline takes half a second: what another client waits.
        let scanning = Arc::new(AtomicUsize::new(0));
        let proxy = Proxy::start(lab.address(), move |request| {
            if request.is("SCAN") && scanning.fetch_add(1, Ordering::SeqCst) >= 5 {
                return Action::Delay(Duration::from_millis(20));
            }
            if request.is("PING") && scanning.load(Ordering::SeqCst) > 0 {
                return Action::Delay(Duration::from_millis(500));
            }
            Action::Forward
        });
        let port = proxy.port().to_string();
        let command = lab.bigkeys_bare(["scan", "--format", "json", "--all-keys", "--rate", "max", "--count", "10", "--port", &port]);
        let scan = command.exits(Exit::Guard).document();
        assert_eq!(scan.summary("/completeness/status"), "partial");
        assert_eq!(scan.summary("/completeness/reason"), "guard");
        assert!((1..KEYS).contains(&scan.by_key().len()), "{}", scan.outcome().scene());
    }

    fn the_guard_slows_a_scan_down_and_lets_it_finish(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let slow = Arc::new(AtomicUsize::new(0));
        let proxy = Proxy::start(lab.address(), move |request| {
            if request.is("SCAN") {
                slow.fetch_add(1, Ordering::SeqCst);
                return Action::Delay(Duration::from_millis(10));
            }
            if request.is("PING") && slow.load(Ordering::SeqCst) > 3 {
                return Action::Delay(Duration::from_millis(100));
            }
            Action::Forward
        });
        let scan = lab
            .bigkeys_bare(["scan", "--format", "json", "--all-keys", "--rate", "20k/s", "--count", "50", "--verbose", "--abort-latency", "30s", "--port"])
            .arg(proxy.port().to_string())
            .document();
        is_whole(&scan);
        assert!(scan.summary("/pace/slowdowns").as_u64() > Some(0), "{}", scan.outcome().scene());
        assert!(scan.summary("/canary/during/max_ms").as_f64() > Some(99.0));
        assert!(scan.summary("/canary/before/p50_ms").as_f64() < Some(99.0));
    }
}

/// A server whose data take about a second to load, and that answers LOADING meanwhile.
fn loading_lab(kind: ServerKind) -> Lab {
    // While they load, servers look at their clients every 2 MB, and at what is set here from 7.0 on.
    let lab = Lab::with(kind, |_, options| {
        let options = options.config("rdbcompression no");
        if kind == ServerKind::Redis62 {
            options
        } else {
            options.config("loading-process-events-interval-bytes 100000")
        }
    });
    let redis = lab.redis();
    redis.run("DEBUG POPULATE 200 key 100000");
    redis.run("CONFIG SET key-load-delay 5000");
    lab
}

/// Starts a reload and returns once the server answers LOADING.
fn start_reload(address: SocketAddr) -> thread::JoinHandle<()> {
    let reload = thread::spawn(move || Client::connect(address).run("DEBUG RELOAD").is("OK"));
    let redis = Client::connect(address);
    while !redis.try_call(&["PING"]).error_text().is_some_and(|error| error.starts_with("LOADING")) {
        thread::yield_now();
    }
    reload
}

/// A server that answers BUSY soon after a script began.
fn busy_lab(kind: ServerKind) -> Lab {
    Lab::with(kind, |_, options| options.config("lua-time-limit 20"))
}

/// Starts a script that never ends and returns once the server answers BUSY.
fn start_script(address: SocketAddr) -> thread::JoinHandle<()> {
    let script = thread::spawn(move || {
        let reply = Client::connect(address).try_call(&["EVAL", "while true do end", "0"]);
        assert!(reply.error_text().is_some(), "an endless script ended: {reply:?}");
    });
    let redis = Client::connect(address);
    while !redis.try_call(&["PING"]).error_text().is_some_and(|error| error.starts_with("BUSY")) {
        thread::yield_now();
    }
    script
}
