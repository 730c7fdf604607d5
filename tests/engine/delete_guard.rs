//! The guard and the reasons to wait: others come first.

use std::thread;
use std::time::Duration;

use crate::support::{
    Action, Client, Exit, Lab, Proxy, Value, on_each_real_server, on_each_server, on_servers, snapshot,
};

const CHUNKED: [&str; 4] = ["--match", "doomed:*", "--method", "chunked"];

fn fill(redis: &Client) {
    redis.fill_set("kept:set", 300);
    redis.fill_set("doomed:set", 3000);
}

/// Changes what INFO says, as often as `times` says.
fn edits_info(lab: &Lab, section: &'static str, line: &'static str, times: usize) -> Proxy {
    let (mut told, audit) = (0, lab.path("run.csv"));
    Proxy::start(lab.address(), move |request| {
        // The plan looks, too.
        if !request.is(&format!("INFO {section}")) || !audit.exists() || told == times {
            return Action::Forward;
        }
        told += 1;
        Action::Edit(Box::new(move |info| {
            let (field, _) = line.split_once(':').expect("a field");
            let text = info.text();
            let mut lines: Vec<_> =
                text.lines().filter(|own| !own.starts_with(&format!("{field}:"))).collect();
            lines.push(line);
            Value::bulk(lines.join("\r\n"))
        }))
    })
}

on_each_server! {
    fn reasons_to_wait_hold_the_run_and_are_told(kind) {
        let reasons = [
            ("memory", "lazyfree_pending_objects:99999", "99999 values wait"),
            ("replication", "slave0:ip=10.0.0.7,port=6380,state=online,offset=0,lag=12", "the replica 10.0.0.7:6380 has not answered for 12 s"),
            ("persistence", "rdb_bgsave_in_progress:1", "a background save is running"),
        ];
        let (section, line, words) = reasons[kind as usize % 3];
            let lab = Lab::start(kind);
            let redis = lab.redis();
            fill(&redis);
            let before = snapshot(&redis);
            let proxy = edits_info(&lab, section, line, 4);
            let outcome = lab.delete_at(proxy.port(), CHUNKED).exits(Exit::Done);
            let outcome = outcome.stderr_has(&format!("waiting: {words}")).stderr_has("going on after").stderr_has("left in peace");
            // The same reason is told once.
            assert_eq!(outcome.stderr().matches("waiting:").count(), 1, "{}", outcome.scene());
            let audit = lab.audit();
            let holds: Vec<_> = audit.rows("hold").collect();
            assert_eq!(holds.len(), 1, "{}", audit.text());
            assert!(holds[0]["detail"].contains(words), "{holds:?}");
            assert_eq!(snapshot(&redis).len(), before.len() - 1);
    }

    fn the_summary_says_what_the_server_itself_saw(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        redis.run("CONFIG SET latency-monitor-threshold 0");
        let port = lab.address().port();
        let outcome = lab.delete_at(port, CHUNKED).args(["--wait-memory", "10s"]).exits(Exit::Done);
        let outcome = outcome.stderr_has("CONFIG SET latency-monitor-threshold").stderr_has("SLOWLOG: ").stderr_has("used_memory: ");
        drop(outcome.never_says("still wait"));

        redis.fill_set("doomed:set", 3000);
        std::fs::remove_file(lab.path("run.csv")).expect("it is there");
        redis.run("CONFIG SET latency-monitor-threshold 10");
        redis.run("CONFIG SET slowlog-log-slower-than 10000");
        let address = lab.address();
        let mut sleeps = Some(());
        let proxy = Proxy::start(address, move |request| {
            if request.is("SREM") && sleeps.take().is_some() {
                Client::connect(address).run("DEBUG SLEEP 0.03");
            }
            Action::Forward
        });
        let outcome = lab.delete_at(proxy.port(), CHUNKED).exits(Exit::Done);
        let outcome = outcome.stderr_has("LATENCY: command ").stderr_has("SLOWLOG: ").stderr_has("the slowest DEBUG");
        drop(outcome.never_says("the monitor is off"));
    }
}

on_each_real_server! {
    fn a_real_background_save_is_waited_for(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        redis.pipeline((0..50).map(|n| ["SET".to_owned(), format!("kept:{n}"), "v".to_owned()]));
        let before = snapshot(&redis);
        // 30 ms for each key: a second and a half.
        redis.run("CONFIG SET rdb-key-save-delay 30000");
        redis.run("BGSAVE");
        let outcome = lab.delete_at(lab.address().port(), CHUNKED).exits(Exit::Done);
        let outcome = outcome.stderr_has("waiting: a background save is running");
        assert_eq!(lab.audit().rows("hold").count(), 1, "{}", outcome.scene());
        assert_eq!(redis.info("rdb_bgsave_in_progress"), "0", "nothing was deleted before it was over");
        assert_eq!(snapshot(&redis).len(), before.len() - 1);
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn a_canary_that_waits_slows_the_run_down(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let proxy = Proxy::start(lab.address(), {
            let mut pings = 0;
            move |request| {
                pings += usize::from(request.is("PING"));
                // Behind the baselines of plan and run.
                if request.is("PING") && pings > 45 { return Action::Delay(Duration::from_millis(60)); }
                if request.is("SREM") { return Action::Delay(Duration::from_millis(10)); }
                Action::Forward
            }
        });
        let run = lab.bigkeys_bare(["delete", "--safe", "--yes", "-v", "--rate", "max", "--audit", "run.csv", "--port"]);
        let run = run.arg(proxy.port().to_string()).args(["--max-latency", "25ms", "--abort-latency", "60s"]);
        let outcome = run.args(CHUNKED).exits(Exit::Done).stderr_has("slowing down");
        assert!(outcome.stderr().contains("over 25.0:"), "{}", outcome.scene());
    }
}

on_servers! {
    [redis_6_2 Redis62, valkey_9_1 Valkey91, bundled Bundled]
    fn a_stall_above_the_abort_level_stops_the_run(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        let before = snapshot(&redis);
        let address = lab.address();
        let mut seen = 0;
        // Somebody else's slow command.
        let proxy = Proxy::start(address, move |request| {
            seen += usize::from(request.is("SREM"));
            if request.is("SREM") && seen == 2 {
                thread::spawn(move || Client::connect(address).run("DEBUG SLEEP 1.5"));
                thread::sleep(Duration::from_millis(100));
            }
            Action::Forward
        });
        let run = lab.bigkeys_bare(["delete", "--safe", "--yes", "--rate", "max", "--audit", "run.csv", "--port"]);
        let run = run.arg(proxy.port().to_string()).args(["--max-latency", "300ms", "--abort-latency", "600ms"]);
        let outcome = run.args(CHUNKED).exits(Exit::Guard).stderr_has("the guard").stderr_has("--resume run.csv");
        let audit = lab.audit();
        assert_eq!(audit.results()["doomed:set"], "unfinished", "{}", outcome.scene());
        let end = &audit.rows("end").last().expect("an end")["detail"];
        assert!(end.contains("guard"), "{end}");
        // How long others waited stands beside the key.
        let waited = &audit.rows("outcome").last().expect("an outcome")["victim_max_ms"];
        assert!(waited.parse::<f64>().expect("a number") >= 600.0, "{waited}");
        drop(lab.resume_at(proxy.port()).exits(Exit::Done));
        assert_eq!(snapshot(&redis).len(), before.len() - 1);
    }
}
