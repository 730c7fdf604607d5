//! Scans that stop half way and go on another time: what they find in the end is what one scan finds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Action, Bigkeys, Client, Exit, Lab, Proxy, key_of, on_each_server, on_servers};

/// Keys in two databases: small ones, and some that matter.
fn fill(redis: &Client) {
    for db in ["0", "3"] {
        redis.run(&format!("SELECT {db}")).is("OK");
        redis.pipeline((0..1000).map(|n| ["SET".to_owned(), format!("user:{n}:name"), "v".repeat(n % 300)]));
        for n in 0..30 {
            redis.fill_hash(&format!("table:{n}"), 300 + 10 * n);
        }
        redis.fill_hash("strange:\u{1F600} \n,\"", 20_000);
    }
    redis.run("SELECT 0").is("OK");
}

/// A proxy behind which each page takes its time, and the pages so far.
fn slow(lab: &Lab) -> (Proxy, Arc<AtomicUsize>) {
    let pages = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&pages);
    let proxy = Proxy::start(lab.address(), move |request| {
        if request.is("SCAN") {
            counter.fetch_add(1, Ordering::SeqCst);
            return Action::Delay(Duration::from_millis(10));
        }
        Action::Forward
    });
    (proxy, pages)
}

#[track_caller]
fn wait_for(pages: &AtomicUsize, count: usize) {
    let since = Instant::now();
    while pages.load(Ordering::SeqCst) < count {
        assert!(since.elapsed() < Duration::from_mins(1), "the scan does not get there");
        thread::sleep(Duration::from_millis(1));
    }
}

const FLAGS: [&str; 9] = [
    "--all-keys",
    "--count",
    "40",
    "--checkpoint-period",
    "1ms",
    "-o",
    "out/scan.csv",
    "-o",
    "out/scan.json",
];

/// A scan that keeps checkpoints, or goes on from one.
fn scan(lab: &Lab, port: u16, flag: &str) -> Bigkeys {
    lab.scan_at(port, FLAGS).args(["--db", "0,3", flag, "out/checkpoint"])
}

/// What a scan found, without what depends on the moment.
#[derive(Debug, PartialEq)]
struct Found {
    keys_seen: Value,
    keys_matched: Value,
    census: Value,
    levels: Value,
    prefixes: Value,
    top: Vec<Value>,
    findings: BTreeMap<(u64, Vec<u8>), Value>,
    csv: Vec<String>,
}

fn timeless(finding: &Value) -> Value {
    let fields = finding.as_object().expect("an object").iter();
    let steady =
        fields.filter(|(name, _)| !["observed_at", "idle_s", "freq", "node"].contains(&name.as_str()));
    steady.map(|(name, value)| (name.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Reads both files. No key may be in one of them twice.
fn found(lab: &Lab) -> Found {
    let json = fs::read(lab.path("out/scan.json")).expect("the file is there");
    let json: Value = serde_json::from_slice(&json).expect("a whole document");
    let mut findings = BTreeMap::new();
    for finding in json["findings"].as_array().expect("a list") {
        let key = (finding["db"].as_u64().expect("a number"), key_of(finding));
        assert!(findings.insert(key, timeless(finding)).is_none(), "twice: {finding}");
    }
    let mut csv: Vec<String> = csv::Reader::from_path(lab.path("out/scan.csv"))
        .expect("the file is there")
        .records()
        .map(|row| {
            let row = row.expect("a whole row");
            // Database, key, type, elements, bytes.
            [1, 3, 5, 7, 8].map(|column| row[column].to_owned()).join("|")
        })
        .collect();
    csv.sort();
    let summary = &json["summary"];
    Found {
        keys_seen: summary["keys_seen"].clone(),
        keys_matched: summary["keys_matched"].clone(),
        census: summary["census"].clone(),
        levels: summary["levels"].clone(),
        prefixes: summary["prefixes"].clone(),
        top: summary["top"].as_array().expect("a list").iter().map(timeless).collect(),
        findings,
        csv,
    }
}

/// Fills a server, and returns what an undisturbed scan of it finds.
fn undisturbed(lab: &Lab) -> Found {
    fill(&lab.redis());
    fs::create_dir(lab.path("out")).expect("the lab's folder is writable");
    drop(scan(lab, lab.address().port(), "--checkpoint").exits(Exit::Done));
    assert_eq!(names(&lab.path("out")), ["scan.csv", "scan.json"], "the checkpoint of a whole scan goes");
    let found = found(lab);
    assert_eq!((found.findings.len(), found.csv.len()), (2062, 2062));
    fs::remove_file(lab.path("out/scan.csv")).expect("it is there");
    fs::remove_file(lab.path("out/scan.json")).expect("it is there");
    found
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Starts a scan, and stops it with this signal once it has asked for so many pages more.
fn stopped(lab: &Lab, proxy: &Proxy, pages: &AtomicUsize, flag: &str, more: usize, signal: &str) {
    let begun = pages.load(Ordering::SeqCst);
    let running = scan(lab, proxy.port(), flag).start();
    wait_for(pages, begun + more);
    running.signal(signal);
    let outcome = running.finish();
    let outcome = if signal == "KILL" { outcome } else { outcome.exits(Exit::Interrupted) };
    assert_ne!(outcome.code(), Some(0), "{}", outcome.scene());
    assert!(lab.path("out/checkpoint").exists(), "{}", outcome.scene());
}

on_each_server! {
    fn a_scan_that_was_interrupted_goes_on_to_the_same_end(kind) {
        let lab = Lab::start(kind);
        let expected = undisturbed(&lab);
        let before = lab.redis().run("DBSIZE").int();
        let (proxy, pages) = slow(&lab);
        for signals in [["INT", "INT"], ["KILL", "KILL"], ["INT", "KILL"]] {
            stopped(&lab, &proxy, &pages, "--checkpoint", 7, signals[0]);
            stopped(&lab, &proxy, &pages, "--resume-scan", 17, signals[1]);
            stopped(&lab, &proxy, &pages, "--resume-scan", 9, signals[0]);
            let outcome = scan(&lab, proxy.port(), "--resume-scan").exits(Exit::Done);
            let outcome = outcome.stderr_has("goes on from a checkpoint");
            assert_eq!(found(&lab), expected, "{signals:?}");
            // stdout cannot be taken back: it has what came since.
            let rest = outcome.document();
            assert!(rest.findings().len() < 2062, "{}", rest.findings().len());
            assert_eq!(rest.summary("/keys_seen"), 2062);
            let left = names(&lab.path("out"));
            let held = left.iter().filter(|name| !name.starts_with(".bigkeys-")).count();
            assert_eq!(held, 2, "{left:?}");
            fs::remove_dir_all(lab.path("out")).expect("it is there");
            fs::create_dir(lab.path("out")).expect("the lab's folder is writable");
        }
        let redis = lab.redis();
        assert_eq!(redis.run("DBSIZE").int(), before);
        for command in ["set", "del", "unlink", "expire", "hset"] {
            let stats = redis.run("INFO commandstats").text();
            let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
            let by_fill = ["set", "hset"].contains(&command);
            assert_eq!(line.is_some(), by_fill, "{line:?}");
        }
    }

    fn an_interrupted_scan_still_writes_what_it_found(kind) {
        let lab = Lab::start(kind);
        let expected = undisturbed(&lab);
        let (proxy, pages) = slow(&lab);
        stopped(&lab, &proxy, &pages, "--checkpoint", 12, "INT");
        let part = found(&lab);
        assert!((100..2062).contains(&part.findings.len()), "{}", part.findings.len());
        drop(scan(&lab, proxy.port(), "--resume-scan").exits(Exit::Done));
        assert_eq!(found(&lab), expected);
        assert_eq!(names(&lab.path("out")), ["scan.csv", "scan.json"], "no temporary file stays");
    }

    fn a_server_that_restarted_or_is_another_is_scanned_anew(kind) {
        let mut lab = Lab::start(kind);
        let expected = undisturbed(&lab);
        let (proxy, pages) = slow(&lab);
        stopped(&lab, &proxy, &pages, "--checkpoint", 14, "INT");
        // It comes back empty: another server, as far as anybody can tell.
        lab.server_mut().restart();
        fill(&lab.redis());
        lab.redis().run("SET only:here now").is("OK");
        let outcome = scan(&lab, proxy.port(), "--resume-scan").exits(Exit::Done);
        let outcome = outcome.stderr_has("run_id changed");
        let document = outcome.document();
        assert!(document.summary("/warnings").to_string().contains("scanned anew"));
        let anew = found(&lab);
        assert_eq!(anew.keys_seen, 2063);
        assert_eq!(anew.findings.len(), 2063, "nothing of before, and nothing twice");
        assert_eq!(anew.csv.len(), 2063);
        // Sampled sizes are others: a restarted server hashes with another seed.
        assert_eq!(anew.top[0]["key"], expected.top[0]["key"]);
        assert_eq!(anew.top.len(), expected.top.len());
    }

    fn a_connection_that_is_lost_for_good_can_be_gone_on_from(kind) {
        let mut lab = Lab::start(kind);
        fill(&lab.redis());
        fs::create_dir(lab.path("out")).expect("the lab's folder is writable");
        let (proxy, pages) = slow(&lab);
        let running = scan(&lab, proxy.port(), "--checkpoint").args(["--timeout", "1s"]).start();
        wait_for(&pages, 12);
        lab.server_mut().kill();
        let outcome = running.finish().exits(Exit::Partial);
        drop(outcome.stderr_has("--resume-scan out/checkpoint"));
        assert!(lab.path("out/checkpoint").exists());
        lab.server_mut().restart();
        fill(&lab.redis());
        drop(scan(&lab, proxy.port(), "--resume-scan").exits(Exit::Done).stderr_has("run_id changed"));
        assert_eq!(found(&lab).findings.len(), 2062);
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn what_does_not_fit_the_checkpoint_is_refused_before_anything_is_sent(kind) {
        let lab = Lab::start(kind);
        drop(undisturbed(&lab));
        let (proxy, pages) = slow(&lab);
        stopped(&lab, &proxy, &pages, "--checkpoint", 12, "KILL");
        let connections = proxy.connections();
        let resume = || scan(&lab, proxy.port(), "--resume-scan");
        let refused = |command: Bigkeys, text: &str| drop(command.exits(Exit::Usage).stderr_has(text));
        refused(resume().args(["--match", "user:*"]), "--match differs");
        refused(resume().args(["--type", "hash"]), "--type differs");
        refused(resume().args(["--top", "5"]), "--top differs");
        refused(resume().args(["--sort", "bytes"]), "--sort differs");
        refused(resume().args(["--levels", "1,2,3,4"]), "--levels differs");
        refused(resume().args(["-o", "out/more.csv"]), "-o differs");
        refused(resume().args(["--sample", "10"]), "--sample");
        refused(scan(&lab, proxy.port(), "--checkpoint"), "is there already");
        refused(lab.scan_at(lab.address().port(), FLAGS).args(["--db", "0,3", "--resume-scan", "out/checkpoint"]), "address differs");
        assert_eq!(proxy.connections(), connections, "nothing is sent");

        let whole = fs::read(lab.path("out/checkpoint")).expect("it is there");
        for length in (0..whole.len()).step_by(whole.len() / 25) {
            fs::write(lab.path("out/checkpoint"), &whole[..length]).expect("it can be written");
            drop(resume().exits(Exit::Failed).stderr_has("cannot read `out/checkpoint`").never_says("panicked"));
        }
        drop(lab.scan([]).args(["--resume-scan", "out/none"]).exits(Exit::Failed));
        fs::write(lab.path("out/checkpoint"), &whole).expect("it can be written");

        // What was written before must be there, and as long as it was.
        let temporary = names(&lab.path("out")).into_iter().filter(|name| name.starts_with(".bigkeys-"));
        let temporary: Vec<_> = temporary.map(|name| lab.path("out").join(name)).collect();
        // A kill may have left a checkpoint in the making.
        let temporary: Vec<_> = temporary.into_iter().filter(|path| path.extension() == Some("tmp".as_ref())).collect();
        assert_eq!(temporary.len(), 2);
        let held = fs::read(&temporary[0]).expect("it is there");
        fs::write(&temporary[0], &held[..10]).expect("it can be written");
        drop(resume().start().finish().exits_with([Exit::Failed, Exit::Usage]).stderr_has("cut off"));
        fs::remove_file(&temporary[0]).expect("it is there");
        drop(resume().start().finish().exits_with([Exit::Failed, Exit::Usage]).stderr_has("what was written before"));
        // A name that leads elsewhere is not followed.
        let name = temporary[0].file_name().expect("it has one").to_string_lossy().into_owned();
        fs::write(lab.path("precious"), "untouched").expect("it can be written");
        let text = String::from_utf8(whole).expect("it is text");
        let (first, body) = text.split_once('\n').expect("two lines");
        let body = body.replace(&name, "../precious");
        let words = first.rsplit_once(' ').expect("words").0;
        fs::write(lab.path("out/checkpoint"), format!("{words} {}\n{body}", body.len())).expect("it can be written");
        drop(resume().start().finish().exits_with([Exit::Failed, Exit::Usage]).stderr_has("did not make"));
        assert_eq!(fs::read_to_string(lab.path("precious")).expect("it is there"), "untouched");
    }

}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn a_filter_and_one_database_are_kept(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        fs::create_dir(lab.path("out")).expect("the lab's folder is writable");
        let (proxy, pages) = slow(&lab);
        let scan = |flag: &str| {
            let scan = lab.scan_at(proxy.port(), FLAGS).args(["--db", "3", "--match", "table:*", "--min-elements", "400"]);
            scan.args([flag, "out/checkpoint"])
        };
        let running = scan("--checkpoint").start();
        wait_for(&pages, 9);
        running.interrupt();
        drop(running.finish().exits(Exit::Interrupted));
        drop(scan("--resume-scan").exits(Exit::Done));
        let found = found(&lab);
        assert_eq!(found.keys_seen, 30);
        assert_eq!(found.keys_matched, 20);
        assert!(found.findings.keys().all(|(db, _)| *db == 3));
    }
}
