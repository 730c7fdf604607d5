//! How a run ends: exit codes, Ctrl-C, closed pipes, and files that are whole or not there.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Action, CALM, Client, Exit, Lab, Proxy, Value, on_each_server, on_servers};

fn fill(redis: &Client) {
    redis.pipeline((0..3000).map(|n| ["SET".to_owned(), format!("key:{n}"), "v".to_owned()]));
    redis.fill_hash("hash:200", 200);
    redis.pipeline(
        (0..200).map(|n| ["HSET".to_owned(), "table:200".to_owned(), format!("f{n}"), "v".repeat(80)]),
    );
    redis.fill_hash("table:20000", 20_000);
}

/// A proxy behind which the scan takes its time from the sixth page on, and the pages so far.
fn slow(lab: &Lab) -> (Proxy, Arc<AtomicUsize>) {
    let pages = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&pages);
    let proxy = Proxy::start(lab.address(), move |request| {
        if request.is("SCAN") && counter.fetch_add(1, Ordering::SeqCst) >= 5 {
            return Action::Delay(Duration::from_millis(100));
        }
        Action::Forward
    });
    (proxy, pages)
}

fn wait_for(pages: &AtomicUsize, count: usize) {
    while pages.load(Ordering::SeqCst) < count {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the names in the lab's folder that the server did not put there.
fn files(lab: &Lab) -> Vec<String> {
    let names = fs::read_dir(lab.path("out")).expect("the folder is there");
    let mut names: Vec<_> =
        names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

on_each_server! {
    fn fail_on_says_five_when_the_level_is_reached(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let scan = |level: &'static str| lab.scan(["--fail-on", level]);
        drop(scan("low").exits(Exit::LevelReached));
        // 20 000 fields are 40 000 allocations and more: above 10 000, below 100 000.
        let outcome = scan("medium").exits(Exit::LevelReached);
        assert_eq!(outcome.document().finding("table:20000")["risk"], "medium");
        drop(scan("high").exits(Exit::Done));
        drop(scan("critical").exits(Exit::Done));
        // Filters come first: of the keys that are wanted none is that bad.
        drop(lab.scan(["--fail-on", "low", "--match", "key:*"]).exits(Exit::Done));
        drop(lab.scan(["--fail-on", "critical", "--levels", "1,2,3,4"]).exits(Exit::LevelReached));
    }

    fn ctrl_c_writes_what_was_found_and_exits_130(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        fs::create_dir(lab.path("out")).expect("the lab's folder is writable");
        let (proxy, pages) = slow(&lab);
        let running = lab.scan_at(proxy.port(), ["--all-keys", "--count", "50", "-o", "out/scan.csv", "-o", "out/scan.json"]).start();
        wait_for(&pages, 7);
        running.interrupt();
        let scan = running.finish().exits(Exit::Interrupted).document();
        assert_eq!(scan.summary("/completeness/status"), "partial");
        assert_eq!(scan.summary("/completeness/reason"), "interrupted");
        let found = scan.by_key().len();
        assert!((100..3003).contains(&found), "{found}");
        // The files are there, whole in themselves, and say that the scan was not.
        assert_eq!(files(&lab), ["scan.csv", "scan.json"]);
        // CSV has rows and nothing else, so there the exit code has to say it.
        let csv = fs::read_to_string(lab.path("out/scan.csv")).expect("the file is text");
        assert_eq!(csv.lines().count(), found + 1, "a header and the rows that stdout has");
        let json: serde_json::Value = serde_json::from_slice(&fs::read(lab.path("out/scan.json")).expect("the file is there")).expect("a document");
        assert_eq!(json["summary"]["completeness"]["reason"], "interrupted");
    }

    fn ctrl_c_before_the_first_answer_ends_at_once(kind) {
        let lab = Lab::start(kind);
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let proxy = Proxy::start(lab.address(), move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            Action::Hang
        });
        let running = lab.scan_at(proxy.port(), ["--connect-timeout", "60s"]).start();
        wait_for(&asked, 1);
        running.interrupt();
        let started = std::time::Instant::now();
        drop(running.finish().exits(Exit::Interrupted));
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }

    fn ctrl_c_does_not_wait_for_a_server_that_hangs(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        fs::create_dir(lab.path("out")).expect("the lab's folder is writable");
        let pages = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&pages);
        let proxy = Proxy::start(lab.address(), move |request| {
            if request.is("SCAN") && counter.fetch_add(1, Ordering::SeqCst) >= 5 {
                return Action::Hang;
            }
            Action::Forward
        });
        let args = ["--all-keys", "--count", "50", "--timeout", "60s", "-o", "out/scan.ndjson"];
        let running = lab.scan_at(proxy.port(), args).start();
        wait_for(&pages, 6);
        running.interrupt();
        let started = std::time::Instant::now();
        let scan = running.finish().exits(Exit::Interrupted).document();
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert_eq!(scan.summary("/completeness/reason"), "interrupted");
        assert_eq!(files(&lab), ["scan.ndjson"]);
    }

    fn a_reader_that_leaves_is_a_quiet_zero(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        for format in ["csv", "ndjson", "table"] {
            let scan = lab.bigkeys(["scan", "--all-keys", "--rate", "max", "--format", format]).args(CALM);
            drop(scan.unread().exits(Exit::Done).never_says("error").never_says("panicked"));
        }
    }

    fn files_appear_whole_or_not_at_all(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        fs::create_dir(lab.path("out")).expect("the lab's folder is writable");
        fs::write(lab.path("out/scan.csv"), "yesterday's").expect("the lab's folder is writable");
        let (proxy, pages) = slow(&lab);
        let running = lab.scan_at(proxy.port(), ["--all-keys", "--count", "50", "-o", "out/scan.csv"]).start();
        wait_for(&pages, 7);
        let meanwhile = fs::read_to_string(lab.path("out/scan.csv")).expect("the file is there");
        assert_eq!(meanwhile, "yesterday's", "the old file stays until the new one is whole");
        drop(running.finish().exits(Exit::Done));
        let csv = fs::read_to_string(lab.path("out/scan.csv")).expect("the file is there");
        assert!(csv.lines().count() > 3000, "{csv:.300}");
        assert_eq!(files(&lab), ["scan.csv"], "no temporary file stays");
    }

    fn a_scan_that_cannot_begin_leaves_the_old_file_alone(kind) {
        let lab = Lab::start(kind);
        fs::create_dir(lab.path("out")).expect("the lab's folder is writable");
        fs::write(lab.path("out/scan.csv"), "yesterday's").expect("the lab's folder is writable");
        let port = crate::support::free_port().to_string();
        drop(lab.bigkeys_bare(["scan", "--port", &port, "-o", "out/scan.csv"]).exits(Exit::Failed));
        assert_eq!(fs::read_to_string(lab.path("out/scan.csv")).expect("the file is there"), "yesterday's");
        assert_eq!(files(&lab), ["scan.csv"]);
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn a_disk_that_is_full_is_a_failure_and_costs_no_other_output(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        fs::create_dir(lab.path("out")).expect("the lab's folder is writable");
        let full = fs::File::options().write(true).open("/dev/full").expect("Linux has a full device");
        let output = Command::new(env!("CARGO_BIN_EXE_bigkeys"))
            .args(["scan", "--all-keys", "--rate", "max", "--format", "csv", "-o", "out/scan.json", "--port"])
            .arg(lab.address().port().to_string())
            .args(CALM)
            .current_dir(lab.path(""))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .expect("the binary can be started");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("stdout"), "{stderr}");
        let json = fs::read(lab.path("out/scan.json")).expect("the other output is there");
        let document: serde_json::Value = serde_json::from_slice(&json).expect("a whole document");
        assert_eq!(document["summary"]["keys_seen"], 3003);
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn what_makes_no_sense_is_refused_before_anything_is_sent(kind) {
        let lab = Lab::start(kind);
        let proxy = Proxy::start(lab.address(), |_| Action::Reply(Value::error("ERR nobody should ask")));
        let port = proxy.port();
        let refused = |args: &[&str], text: &str| {
            let command = args.iter().fold(lab.scan_at(port, []), crate::support::Bigkeys::arg);
            drop(command.exits(Exit::Usage).stderr_has(text));
        };
        refused(&["--no-such-flag"], "--no-such-flag");
        refused(&["--samples", "0"], "--i-know-this-blocks");
        refused(&["--risk", "terrible"], "critical");
        refused(&["--fail-on", "0"], "critical");
        refused(&["-o", "scan.docx"], ".csv");
        refused(&["-o", "nowhere/scan.csv"], "nowhere");
        refused(&["--db", "-1"], "--db");
        refused(&["--max-latency", "never"], "--max-latency");
        refused(&["--regex", "("], "regex");
        refused(&["--ttl", "soon"], "ttl");
        assert_eq!(proxy.connections(), 0, "a wrong command line connects to nothing");
        drop(lab.bigkeys_bare([]).exits(Exit::Usage));
        drop(lab.bigkeys_bare(["--version"]).exits(Exit::Done).stdout_has(env!("CARGO_PKG_VERSION")));
        drop(lab.bigkeys_bare(["scan", "--help"]).exits(Exit::Done).stdout_has("--max-latency"));
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn stderr_is_quiet_when_it_should_be(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let quiet = lab.scan(["--quiet"]).exits(Exit::Done);
        assert_eq!(quiet.stderr(), "", "{}", quiet.scene());
        // No terminal, no bar: not one carriage return or escape.
        let outcome = lab.scan([]).exits(Exit::Done);
        assert!(!outcome.stderr().contains(['\r', '\u{1b}']), "{}", outcome.scene());
        let verbose = lab.scan(["--verbose"]).exits(Exit::Done).stderr_has(kind.version());
        drop(verbose.stderr_has("MEMORY USAGE"));
        let (proxy, _) = slow(&lab);
        let plain = lab.scan_at(proxy.port(), ["--count", "100", "--progress", "plain"]).start();
        plain.wait_for_stderr("keys/s");
        drop(plain.finish().exits(Exit::Done));
    }
}
