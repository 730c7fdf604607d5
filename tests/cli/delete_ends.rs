//! How a deletion ends that somebody or something ends: SIGKILL at any moment, Ctrl-C, SIGTERM, a full
//! disk, a stdout that is gone.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{
    Action, Bigkeys, CALM, Client, Exit, Keyspace, Lab, Proxy, ServerKind, on_each_server, on_servers,
    snapshot,
};

/// Keys for batches, and one of each type that is taken apart; what else is there must stay.
fn fill(redis: &Client) {
    redis.run("FLUSHALL");
    redis.pipeline((0..400).map(|n| ["SET".to_owned(), format!("doomed:{n}"), "v".to_owned()]));
    redis.fill_set("doomed:set", 1000);
    redis.fill_hash("doomed:hash", 1000);
    redis.fill_zset("doomed:zset", 1000);
    redis.pipeline((0..50).map(|n| ["SET".to_owned(), format!("kept:{n}"), "v".to_owned()]));
    redis.fill_set("kept:set", 300);
    redis.run("SELECT 3");
    redis.fill_set("doomed:set", 20);
    redis.run("SELECT 0");
}

fn is_kept(((db, key), _): &(&(u32, Vec<u8>), &Vec<u8>)) -> bool {
    *db != 0 || !(key.starts_with(b"doomed:") || key.starts_with(b"bigkeys:tombstone:"))
}

/// Everything that no plan of these tests holds.
fn kept(keyspace: &Keyspace) -> Keyspace {
    keyspace.iter().filter(is_kept).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A generator of one's own, so that a run that fails can be had again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What a run does once its plan is made.
const WORK: [&str; 6] = ["EVAL", "SSCAN", "SREM", "HDEL", "ZREMRANGEBYRANK", "UNLINK"];

/// A proxy behind which the work takes its time, and the number of its commands so far.
fn counting(lab: &Lab) -> (Proxy, Arc<AtomicU64>) {
    let work = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&work);
    let proxy = Proxy::start(lab.address(), move |request| {
        if !WORK.iter().any(|words| request.is(words)) {
            return Action::Forward;
        }
        counter.fetch_add(1, Ordering::SeqCst);
        Action::Delay(Duration::from_millis(3))
    });
    (proxy, work)
}

/// Kills so many runs, each at a random moment of its work, and finishes each with --resume, which may be
/// killed as well.
fn survives_kills(kind: ServerKind, rounds: u64, seed: u64) {
    let lab = Lab::start(kind);
    let redis = lab.redis();
    let (proxy, work) = counting(&lab);
    let port = proxy.port();
    let mut random = Random(seed);
    let mut struck = 0;
    for round in 0..rounds {
        fill(&redis);
        let before = snapshot(&redis);
        let _ = fs::remove_file(lab.path("run.csv"));
        // Collections in pieces; or all by the method that fits, in batches.
        let in_batches = round % 3 == 2;
        let args = if in_batches {
            ["--match", "doomed:*", "--min-bytes", "1"]
        } else {
            ["--match", "doomed:[a-z]*", "--method", "chunked"]
        };
        let mut kill_after = |command: Bigkeys, commands: u64, micros: u64| {
            let mut running = command.start();
            // The plan has probes of its own.
            while running.is_running() && !lab.path("run.csv").exists() {
                thread::sleep(Duration::from_micros(200));
            }
            let from = work.load(Ordering::SeqCst);
            while running.is_running() && work.load(Ordering::SeqCst) < from + commands {
                thread::sleep(Duration::from_micros(200));
            }
            thread::sleep(Duration::from_micros(micros));
            let was_running = running.kill();
            struck += u64::from(was_running);
            let (code, killed) = (running.finish(), snapshot(&redis));
            assert_eq!(kept(&killed), kept(&before), "{}", code.scene());
            let _ = lab.audit();
        };
        let (commands, micros) = (random.below(if in_batches { 6 } else { 25 }), random.below(4000));
        let mut scene =
            format!("round {round} of seed {seed}, killed after {commands} commands and {micros} us");
        kill_after(lab.delete_at(port, args), commands, micros);
        if round % 4 == 0 {
            // The survey has its probes, too.
            let (commands, micros) = (4 + random.below(8), random.below(4000));
            scene = format!("{scene}, and again after {commands} and {micros} us");
            kill_after(lab.resume_at(port), commands, micros);
        }
        let resumed = lab.resume_at(lab.address().port()).arg("--any-node").exits(Exit::Done);
        let after = snapshot(&redis);
        assert_eq!(kept(&after), kept(&before), "{scene}\n{}", resumed.scene());
        let left: Vec<_> = after
            .iter()
            .filter(|entry| !is_kept(entry))
            .map(|((_, key), _)| String::from_utf8_lossy(key))
            .collect();
        let expected = if in_batches { 0 } else { 400 };
        assert_eq!(left.len(), expected, "{left:?} {scene}\n{}\n{}", lab.audit().text(), resumed.scene());
        assert!(!left.iter().any(|key| key.contains("tombstone")), "{scene}");
        let audit = lab.audit();
        assert_eq!(audit.rows("plan").count(), audit.count("deleted") + audit.count("gone"), "{scene}");
    }
    assert!(struck * 3 > rounds * 2, "only {struck} runs were still going on");
}

on_servers! {
    [bundled Bundled]
    fn a_run_that_is_killed_25_times_is_finished(kind) {
        survives_kills(kind, 25, 0x9e37_79b9_7f4a_7c15);
    }
}

on_servers! {
    [redis_7_0 Redis70]
    fn a_run_that_is_killed_25_times_more_is_finished(kind) {
        survives_kills(kind, 25, 0xd1b5_4a32_d192_ed03);
    }
}

on_servers! {
    [redis_6_2 Redis62, redis_8_2 Redis82, valkey_8_1 Valkey81, valkey_9_1 Valkey91]
    fn a_run_that_is_killed_is_finished(kind) {
        survives_kills(kind, 3, 0x2545_f491_4f6c_dd1d);
    }
}

/// Returns the names in the lab's folder that nobody but `bigkeys` makes.
fn files(lab: &Lab) -> Vec<String> {
    let names = fs::read_dir(lab.path("")).expect("the folder is there");
    let names = names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("bigkeys") || name.starts_with("run")).collect()
}

/// A proxy that holds each answer to these words back, so that a run is long enough to be interrupted.
fn slow(lab: &Lab, words: &'static str) -> Proxy {
    Proxy::start(lab.address(), move |request| {
        if request.is(words) { Action::Delay(Duration::from_millis(30)) } else { Action::Forward }
    })
}

fn wait_for(proxy: &Proxy, words: &str, count: usize) {
    while proxy.requests(words).len() < count {
        thread::sleep(Duration::from_millis(1));
    }
}

on_each_server! {
    fn ctrl_c_and_sigterm_finish_the_chunk_and_the_rest_can_be_resumed(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        for (signal, words, args) in [
            ("INT", "SREM", ["--match", "doomed:set", "--method", "chunked"]),
            ("TERM", "ZREMRANGEBYRANK", ["--match", "doomed:zset", "--method", "chunked"]),
            ("INT", "EVAL", ["--match", "doomed:*", "--min-bytes", "1"]),
        ].into_iter().skip(kind as usize % 3).take(1) {
            fill(&redis);
            // More than a few chunks.
            redis.fill_set("doomed:set", 8000);
            redis.fill_zset("doomed:zset", 8000);
            let before = snapshot(&redis);
            let _ = fs::remove_file(lab.path("run.csv"));
            let proxy = slow(&lab, words);
            let running = lab.delete_at(proxy.port(), args).start();
            // The probes of the plan send EVAL, too.
            let probes = if words == "EVAL" { 2 } else { 0 };
            wait_for(&proxy, words, probes + 1);
            running.signal(signal);
            let outcome = running.finish().exits(Exit::Interrupted).stderr_has("interrupted").stderr_has("--resume run.csv");
            let audit = lab.audit();
            assert_eq!(audit.rows("end").last().expect("an end")["detail"], "interrupted", "{}", outcome.scene());
            if words != "EVAL" {
                assert_eq!(audit.count("unfinished"), 1, "{}", outcome.scene());
            }
            // What was done is written down: every planned key that is gone has an outcome.
            let now = snapshot(&redis);
            let results = audit.results();
            for row in audit.rows("plan") {
                if !now.contains_key(&(0, row["key"].clone().into_bytes())) {
                    assert!(results.contains_key(row["key"].as_str()), "{} is gone without a word\n{}", row["key"], outcome.scene());
                }
            }
            let planned = audit.rows("plan").count();
            let resumed = lab.resume_at(lab.address().port()).arg("--any-node").exits(Exit::Done);
            let after = snapshot(&redis);
            assert_eq!(kept(&after), kept(&before), "{}", resumed.scene());
            assert_eq!(after.len(), before.len() - planned, "{}", resumed.scene());
        }
    }

    fn ctrl_c_while_the_plan_is_made_leaves_nothing_behind(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        let before = snapshot(&redis);
        let proxy = Proxy::start(lab.address(), |request| {
            if request.is("TYPE") || request.is("PTTL") { Action::Hang } else { Action::Forward }
        });
        for signal in ["INT", "TERM"] {
            let asked = proxy.requests("SCAN").len();
            let running = lab.delete_at(proxy.port(), ["--match", "doomed:*", "--timeout", "60s"]).start();
            wait_for(&proxy, "SCAN", asked + 1);
            running.signal(signal);
            let outcome = running.finish().exits(Exit::Interrupted);
            assert_eq!(files(&lab), Vec::<String>::new(), "{}", outcome.scene());
            assert_eq!(snapshot(&redis), before);
        }
    }

    fn a_run_is_finished_as_it_was_told_and_by_one_at_a_time(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_set("doomed:a", 8000);
        redis.fill_set("doomed:b", 1000);
        let proxy = slow(&lab, "SREM");
        let args = ["doomed:a", "doomed:b", "--method", "chunked", "--tolerance", "60%"];
        let running = lab.delete_at(proxy.port(), args).start();
        wait_for(&proxy, "SREM", 1);
        let resume = || lab.bigkeys(["delete", "--safe", "--yes", "--resume", "run.csv", "--any-node"]).args(CALM);
        resume().exits(Exit::Failed).stderr_has("another bigkeys is writing to it");
        running.interrupt();
        running.finish().exits(Exit::Interrupted);
        // Within the tolerance of that run, and beyond the one that is the default.
        redis.pipeline((0..400).map(|n| ["SADD".to_owned(), "doomed:b".to_owned(), format!("more-{n}")]));
        for flags in [["--tolerance", "5%"], ["--idle-over", "1d"], ["--expire-after", "1h"]] {
            resume().args(flags).exits(Exit::Usage).stderr_has("--resume");
        }
        resume().exits(Exit::Done);
        redis.run("DBSIZE").is(0);
    }

    fn a_second_ctrl_c_ends_at_once(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        let before = snapshot(&redis);
        let proxy = Proxy::start(lab.address(), |request| if request.is("SREM") { Action::Hang } else { Action::Forward });
        let running = lab.delete_at(proxy.port(), ["--match", "doomed:set", "--method", "chunked", "--timeout", "60s"]).start();
        wait_for(&proxy, "SREM", 1);
        running.interrupt();
        thread::sleep(Duration::from_millis(100));
        running.interrupt();
        let outcome = running.finish().exits(Exit::Interrupted);
        assert_eq!(kept(&snapshot(&redis)), kept(&before), "{}", outcome.scene());
        drop(lab.bigkeys(["delete", "--safe", "--yes", "--resume", "run.csv", "--any-node"]).args(CALM).exits(Exit::Done));
        assert_eq!(snapshot(&redis).len(), before.len() - 1);
    }

    fn a_reader_that_leaves_stops_no_deletion_half_way(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        for format in ["csv", "ndjson", "table"].into_iter().skip(kind as usize % 3).take(1) {
            fill(&redis);
            let before = snapshot(&redis);
            let _ = fs::remove_file(lab.path("run.csv"));
            let preview = || {
                let args = ["delete", "--match", "doomed:*", "--min-bytes", "1", "--rate", "max", "--format", format];
                lab.bigkeys(args).args(CALM).unread()
            };
            drop(preview().exits(Exit::Done).never_says("error").never_says("panicked"));
            assert_eq!(snapshot(&redis), before, "a preview deletes nothing");
            let acts = preview().args(["--safe", "--yes", "--audit", "run.csv"]);
            drop(acts.exits(Exit::Done).never_says("error").never_says("panicked"));
            assert_eq!(lab.audit().count("deleted"), 403);
            assert_eq!(snapshot(&redis), kept(&before));
        }
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn a_disk_that_is_full_stops_before_the_next_write(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let port = lab.address().port().to_string();
        // In blocks of 512 bytes: full while the plan is written, or at some line after it.
        for blocks in [1, 150, 190, 230] {
            fill(&redis);
            let before = snapshot(&redis);
            let _ = fs::remove_file(lab.path("run.csv"));
            let script = format!(
                "trap '' XFSZ; ulimit -f {blocks}; exec {} delete --match 'doomed:*' --min-bytes 1 --safe --yes --rate max \
                 --max-latency 30s --abort-latency 60s --audit run.csv --port {port} >/dev/null",
                env!("CARGO_BIN_EXE_bigkeys")
            );
            let output = Command::new("sh").args(["-c", &script]).current_dir(lab.path("")).output().expect("there is a shell");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!stderr.contains("panicked"), "{blocks}: {stderr}");
            assert_eq!(kept(&snapshot(&redis)), kept(&before), "{blocks}: {stderr}");
            if !lab.path("run.csv").exists() {
                assert_eq!(output.status.code(), Some(1), "{blocks}: {stderr}");
                assert!(stderr.contains("too large"), "{blocks}: {stderr}");
                assert_eq!(snapshot(&redis), before, "{blocks}: {stderr}");
                assert_eq!(files(&lab), Vec::<String>::new(), "{blocks}: {stderr}");
                continue;
            }
            let _ = lab.audit();
            if output.status.code() != Some(0) {
                assert_eq!(output.status.code(), Some(1), "{blocks}: {stderr}");
                assert!(stderr.contains("audit"), "{blocks}: {stderr}");
            }
            drop(lab.resume_at(lab.address().port()).exits(Exit::Done));
            assert_eq!(snapshot(&redis), kept(&before), "{blocks}: {stderr}");
        }
    }
}

on_servers! {
    [redis_6_2 Redis62, redis_8_2 Redis82, valkey_9_1 Valkey91, bundled Bundled]
    fn lazy_expire_is_put_back_after_ctrl_c_and_by_resume_after_a_kill(kind) {
        let lab = Lab::with(kind, |_, options| options.config("lazyfree-lazy-expire no"));
        let redis = lab.redis();
        let setting = || redis.run("CONFIG GET lazyfree-lazy-expire").field("lazyfree-lazy-expire").text();
        let args = ["--match", "doomed:set", "--method", "chunked", "--lazy-expire-while-running"];
        let proxy = slow(&lab, "SREM");

        fill(&redis);
        let running = lab.delete_at(proxy.port(), args).start();
        wait_for(&proxy, "SREM", 2);
        assert_eq!(setting(), "yes", "while it runs");
        running.interrupt();
        let outcome = running.finish().exits(Exit::Interrupted);
        assert_eq!(setting(), "no", "{}", outcome.scene());
        drop(lab.resume_at(lab.address().port()).arg("--any-node").exits(Exit::Done).never_says("lazyfree-lazy-expire"));

        fill(&redis);
        fs::remove_file(lab.path("run.csv")).expect("it is there");
        let asked = proxy.requests("SREM").len();
        let mut running = lab.delete_at(proxy.port(), args).start();
        wait_for(&proxy, "SREM", asked + 2);
        assert!(running.kill());
        assert_eq!(setting(), "yes", "nobody could put it back");
        drop(lab.resume_at(lab.address().port()).arg("--any-node").exits(Exit::Done).stderr_has("lazyfree-lazy-expire is no again"));
        assert_eq!(setting(), "no");
        // And only once: somebody may want it on by now.
        redis.run("CONFIG SET lazyfree-lazy-expire yes");
        drop(lab.resume_at(lab.address().port()).arg("--any-node").exits(Exit::Done).never_says("lazyfree-lazy-expire"));
        assert_eq!(setting(), "yes");

        // After an end as usual, too; and where it is on already it is left alone.
        redis.run("CONFIG SET lazyfree-lazy-expire no");
        fill(&redis);
        fs::remove_file(lab.path("run.csv")).expect("it is there");
        drop(lab.delete_at(lab.address().port(), args).exits(Exit::Done));
        assert_eq!(setting(), "no");
    }
}
