//! Servers that restart, turn into replicas, refuse, or are full, in the middle of a deletion.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::support::{
    Action, AuditLog, Bigkeys, Client, Exit, Keyspace, Lab, Outcome, Proxy, Request, ServerKind,
    on_each_server, on_servers, snapshot,
};

fn fill(redis: &Client) {
    redis.fill_set("kept:set", 300);
    redis.pipeline((0..20).map(|n| ["SET".to_owned(), format!("kept:{n}"), "v".to_owned()]));
    redis.fill_hash("doomed:a", 1500);
    redis.fill_set("doomed:b", 1500);
    redis.fill_zset("doomed:c", 1500);
}

const CHUNKED: [&str; 4] = ["--match", "doomed:*", "--method", "chunked"];

/// Returns a hook that does something right before the n-th command that begins with these words.
fn before_nth(
    words: &'static str,
    n: usize,
    act: impl FnOnce() + Send + 'static,
) -> impl FnMut(&Request) -> Action + Send + 'static {
    let mut act = Some(act);
    let mut seen = 0;
    move |request| {
        if request.is(words) {
            seen += 1;
            if seen == n
                && let Some(act) = act.take()
            {
                act();
            }
        }
        Action::Forward
    }
}

/// A primary that does not wait for more replicas before it sends its data to the first.
fn replicating(kind: ServerKind) -> Lab {
    Lab::with(kind, |_, options| {
        if kind == ServerKind::Bundled { options } else { options.config("repl-diskless-sync-delay 0") }
    })
}

/// A lab that a proxy's hook may use too. The proxy's threads outlive the test, so they hold it weakly.
fn shared(lab: Lab) -> (Arc<Mutex<Lab>>, Weak<Mutex<Lab>>) {
    let lab = Arc::new(Mutex::new(lab));
    let weak = Arc::downgrade(&lab);
    (lab, weak)
}

fn restart(lab: &Weak<Mutex<Lab>>) {
    let lab = lab.upgrade().expect("the test goes on");
    lab.lock().expect("nobody panicked").server_mut().restart();
}

/// Restarts the server at the n-th command of these words, and returns the lab, the proxy, and how it ended.
fn restarts(lab: Lab, words: &'static str, n: usize) -> (Arc<Mutex<Lab>>, Proxy, Outcome) {
    let address = lab.address();
    let (lab, weak) = shared(lab);
    let proxy = Proxy::start(address, before_nth(words, n, move || restart(&weak)));
    let command = lab.lock().expect("nobody panicked").delete_at(proxy.port(), CHUNKED);
    (lab, proxy, command.start().finish().never_says("panicked"))
}

fn names(redis: &Client, pattern: &str) -> Vec<String> {
    let mut names: Vec<_> =
        redis.call(&["KEYS", pattern]).items().iter().map(crate::support::Value::text).collect();
    names.sort();
    names
}

/// Runs until the end what a run left over, and checks that everything is as it should be then.
#[track_caller]
fn resumes(lab: &Lab, port: u16, kept: &Keyspace) -> AuditLog {
    let resumed = lab.resume_at(port).exits(Exit::Done);
    assert_eq!(&snapshot(&lab.redis()), kept, "{}", resumed.scene());
    lab.audit()
}

on_each_server! {
    fn a_server_that_restarts_with_an_older_dump_gives_nothing_away(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        // What it starts from again: every key is back under its own name then.
        lab.redis().run("SAVE").is("OK");
        let (lab, _proxy, outcome) = restarts(lab, "SREM", 2);
        let outcome = outcome.stderr_has("the server restarted");
        let lab = lab.lock().expect("nobody panicked");
        let audit = lab.audit();
        // What was deleted before the restart is back, and the warning says so; the key under our hands is not
        // taken for deleted because its tombstone is gone.
        let left = names(&lab.redis(), "*doomed:*");
        for key in &left {
            assert!(
                key.starts_with("doomed:") && ["doomed:a", "doomed:b", "doomed:c"].contains(&key.as_str()),
                "{left:?}\n{}", outcome.scene()
            );
        }
        let after_restart = audit.text().split("the server restarted").nth(1).expect("the audit says so");
        for key in ["doomed:a", "doomed:b", "doomed:c"] {
            let is_deleted_since = after_restart.lines().any(|line| line.starts_with("outcome,") && line.contains(key) && line.contains("deleted"));
            assert_eq!(is_deleted_since, !left.contains(&key.to_owned()), "{key} {left:?}\n{}", outcome.scene());
        }
        assert!(names(&lab.redis(), "bigkeys:*").is_empty());
        assert_eq!(names(&lab.redis(), "kept:*").len(), 21);
    }

    fn a_server_that_forgets_everything_leaves_nothing_to_do(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let (lab, _proxy, outcome) = restarts(lab, "SREM", 2);
        let outcome = outcome.exits(Exit::Done).stderr_has("the server restarted");
        let lab = lab.lock().expect("nobody panicked");
        assert_eq!(lab.audit().count("gone") + lab.audit().count("deleted"), 3, "{}", outcome.scene());
        assert!(lab.audit().count("gone") >= 1, "{}", outcome.scene());
    }

    fn a_server_that_stays_away_is_a_run_to_be_resumed(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        redis.run("SAVE").is("OK");
        let before = snapshot(&redis);
        let address = lab.address();
        let (lab, weak) = shared(lab);
        let proxy = Proxy::start(address, before_nth("ZREMRANGEBYRANK", 2, move || {
            let lab = weak.upgrade().expect("the test goes on");
            lab.lock().expect("nobody panicked").server_mut().kill();
        }));
        let args = ["--match", "doomed:c", "--method", "chunked", "--timeout", "300ms"];
        let command = lab.lock().expect("nobody panicked").delete_at(proxy.port(), args);
        let outcome = command.exits(Exit::Partial).never_says("panicked").stderr_has("--resume run.csv");
        let mut lab = lab.lock().expect("nobody panicked");
        let audit = lab.audit();
        assert_eq!(audit.results()["doomed:c"], "unfinished", "{}", outcome.scene());
        assert!(audit.rows("end").last().expect("an end")["detail"].contains("connection"), "{}", audit.text());
        lab.server_mut().restart();
        assert_eq!(snapshot(&lab.redis()), before, "the dump is from before the run");
        let mut kept = before;
        kept.remove(&(0, b"doomed:c".to_vec()));
        resumes(&lab, proxy.port(), &kept);
    }

    fn a_key_that_is_half_gone_in_place_is_unfinished_and_not_denied(kind) {
        let lab = Lab::with(kind, |_, options| options.config("user limited on >pw ~* +@all -renamenx"));
        let redis = lab.redis();
        redis.fill_set("kept:set", 300);
        let kept = snapshot(&redis);
        redis.fill_set("doomed:b", 6000);
        let address = lab.address();
        let proxy = Proxy::start(address, before_nth("SREM", 3, move || {
            Client::connect(address).call(&["ACL", "SETUSER", "limited", "-srem"]).is("OK");
        }));
        let limited = |run: Bigkeys| run.args(["--user", "limited"]).env("REDISCLI_AUTH", "pw");
        let outcome = limited(lab.delete_at(proxy.port(), CHUNKED)).exits(Exit::Partial);
        let left = redis.run("SCARD doomed:b").int();
        assert!(0 < left && left < 6000, "{left}\n{}", outcome.scene());
        assert_eq!(lab.audit().results().get("doomed:b"), Some(&"unfinished"), "{}", outcome.scene());
        redis.call(&["ACL", "SETUSER", "limited", "+srem"]).is("OK");
        drop(limited(lab.resume_at(proxy.port())).exits(Exit::Done));
        assert_eq!(snapshot(&redis), kept);
    }

    fn a_user_who_loses_a_command_half_way_is_told_so(kind) {
        // What is taken away, at which command, and what becomes of the key under our hands.
        for (index, (denied, at)) in [("-srem", "SSCAN"), ("-sscan", "SREM"), ("-unlink", "UNLINK"), ("-renamenx", "EVAL"), ("-eval", "EVAL"), ("-@all", "SSCAN")].into_iter().enumerate() {
            if index % 3 != kind as usize % 3 {
                continue;
            }
            let lab = Lab::with(kind, |_, options| options.config("user limited on >pw ~* +@all"));
            let redis = lab.redis();
            redis.fill_set("kept:set", 300);
            let kept = snapshot(&redis);
            redis.fill_set("doomed:b", 6000);
            let address = lab.address();
            let proxy = Proxy::start(address, before_nth(at, if at == "EVAL" { 3 } else { 2 }, move || {
                Client::connect(address).call(&["ACL", "SETUSER", "limited", denied]).is("OK");
            }));
            let run = lab.delete_at(proxy.port(), CHUNKED).args(["--user", "limited"]).env("REDISCLI_AUTH", "pw");
            let outcome = run.start().finish().never_says("panicked");
            let scene = format!("{denied} at {at}\n{}", outcome.scene());
            let audit = lab.audit();
            // EVAL and RENAMENX have ways around them, and the last DEL of what is small is as good as UNLINK.
            match outcome.code() {
                Some(0) => assert!(["-eval", "-renamenx", "-unlink"].contains(&denied), "{scene}"),
                Some(3) => assert_eq!(audit.count("unfinished") + audit.count("denied"), 1, "{scene}\n{}", audit.text()),
                other => panic!("{other:?}: {scene}"),
            }
            redis.call(&["ACL", "SETUSER", "limited", "+@all"]).is("OK");
            if outcome.code() == Some(3) {
                let resumed = lab.resume_at(proxy.port()).args(["--user", "limited"]).env("REDISCLI_AUTH", "pw").start().finish();
                assert_eq!(resumed.code(), Some(0), "{scene}\n{}", resumed.scene());
            }
            if audit.count("denied") == 0 {
                assert_eq!(snapshot(&redis), kept, "{scene}");
            }
        }
    }

    fn a_server_without_memory_still_lets_go(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        let kept = without_doomed(&redis);
        redis.fill_hash("padded", 20);
        let before_pad = snapshot(&redis)[&(0, b"padded".to_vec())].clone();
        redis.run("CONFIG SET maxmemory 1");
        redis.run("CONFIG SET maxmemory-policy noeviction");
        assert!(redis.try_call(&["SET", "x", "y"]).error_text().is_some_and(|text| text.contains("OOM")));
        // Padding adds members first: that is refused, and nothing of it stays.
        let outcome = lab.delete_at(lab.address().port(), ["padded", "--method", "pad"]).exits(Exit::Partial);
        assert_eq!(lab.audit().results()["padded"], "failed", "{}", outcome.scene());
        assert!(lab.audit().text().contains("OOM"), "{}", lab.audit().text());
        assert_eq!(snapshot(&redis)[&(0, b"padded".to_vec())], before_pad);
        // And later it is not.
        redis.run("CONFIG SET maxmemory 0");
        drop(lab.resume_at(lab.address().port()).exits(Exit::Done));
        redis.run("CONFIG SET maxmemory 1");
        std::fs::remove_file(lab.path("run.csv")).expect("it is there");
        let outcome = lab.delete_at(lab.address().port(), CHUNKED).exits(Exit::Done);
        assert_eq!(lab.audit().count("deleted"), 3, "{}", outcome.scene());
        assert_eq!(snapshot(&redis), kept);
    }

    fn a_server_that_is_busy_for_a_while_is_waited_for(kind) {
        for (words, args) in [("EVAL", &["--match", "doomed:*"][..]), ("EVAL", &CHUNKED[..]), ("SSCAN", &CHUNKED[..]), ("SREM", &CHUNKED[..])].into_iter().skip(kind as usize % 2).step_by(2) {
            let lab = Lab::start(kind);
            let redis = lab.redis();
            redis.fill_set("kept:set", 300);
            let kept = snapshot(&redis);
            redis.fill_set("doomed:b", if args.len() == 2 { 5 } else { 1000 });
            let mut seen = 0;
            let proxy = Proxy::start(lab.address(), move |request| {
                seen += usize::from(request.is(words));
                // The first two EVALs are probes.
                let first = if words == "EVAL" { 3 } else { 1 };
                if request.is(words) && (first..first + 3).contains(&seen) {
                    return Action::error(["BUSY Redis is busy running a script.", "LOADING Redis is loading the dataset in memory"][seen % 2]);
                }
                Action::Forward
            });
            let mut command = lab.delete_at(proxy.port(), []);
            for arg in args {
                command = command.arg(arg);
            }
            let outcome = command.exits(Exit::Done);
            assert_eq!(snapshot(&redis), kept, "{words}: {}", outcome.scene());
            assert_eq!(lab.audit().count("deleted"), 1);
        }
    }

    fn a_server_that_stays_busy_is_given_up(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        redis.run("SET doomed:small v");
        let before = snapshot(&redis);
        let mut seen = 0;
        let proxy = Proxy::start(lab.address(), move |request| {
            seen += usize::from(request.is("EVAL"));
            if request.is("EVAL") && seen >= 3 { Action::error("BUSY Redis is busy running a script.") } else { Action::Forward }
        });
        for (key, method) in [("doomed:small", "unlink"), ("doomed:b", "chunked")].into_iter().skip(kind as usize % 2).take(1) {
            let _ = std::fs::remove_file(lab.path("run.csv"));
            let command = lab.delete_at(proxy.port(), ["--timeout", "400ms", "--method", method, key]);
            let outcome = command.exits(Exit::Partial).stderr_has("BUSY");
            assert_eq!(snapshot(&redis), before, "{}", outcome.scene());
            let _ = lab.audit();
        }
    }

    fn a_failover_in_the_middle_ends_the_run_and_the_new_primary_finishes_it(kind) {
        let primary = replicating(kind);
        let redis = primary.redis();
        fill(&redis);
        let kept = without_doomed(&redis);
        let other = if kind == ServerKind::Bundled { None } else { Some(Lab::start(kind)) };
        let address = primary.address();
        // The bundled server has no replication: it says what a replica says.
        let proxy = match &other {
            None => Proxy::start(address, before_nth("SREM", 2, move || {
                for command in ["srem", "eval", "unlink", "sscan"] {
                    Client::connect(address).call(&["DEBUG", "FAULT", "ADD", command, "readonly"]).is("OK");
                }
            })),
            Some(other) => {
                let heir = other.address();
                other.redis().call(&["REPLICAOF", "127.0.0.1", &address.port().to_string()]).is("OK");
                while other.redis().info("master_link_status") != "up" {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Proxy::start(address, before_nth("SREM", 2, move || {
                    let (old, new) = (Client::connect(address), Client::connect(heir));
                    old.run("WAIT 1 5000");
                    new.run("REPLICAOF NO ONE").is("OK");
                    old.call(&["REPLICAOF", "127.0.0.1", &heir.port().to_string()]).is("OK");
                }))
            }
        };
        let outcome = primary.delete_at(proxy.port(), CHUNKED).exits(Exit::Partial).stderr_has("READONLY");
        assert_eq!(primary.audit().results().get("doomed:b"), Some(&"unfinished"), "{}", outcome.scene());
        let heir = other.as_ref().unwrap_or(&primary);
        if other.is_none() {
            redis.run("DEBUG FAULT CLEAR");
        }
        // Another server than then has to be meant.
        let port = heir.address().port();
        drop(primary.resume_at(port).exits(Exit::Usage).stderr_has("--any-node"));
        let resumed = primary.resume_at(port).arg("--any-node").exits(Exit::Done);
        assert_eq!(snapshot(&heir.redis()), kept, "{}\n{}", outcome.scene(), resumed.scene());
        let _ = primary.audit();
    }

    fn a_replica_is_refused_before_anything_is_written(kind) {
        if kind == ServerKind::Bundled {
            return;
        }
        let (primary, replica) = (replicating(kind), Lab::start(kind));
        fill(&primary.redis());
        replica.redis().call(&["REPLICAOF", "127.0.0.1", &primary.address().port().to_string()]).is("OK");
        while replica.redis().info("master_link_status") != "up" {
            std::thread::sleep(Duration::from_millis(20));
        }
        let outcome = replica.delete_at(replica.address().port(), CHUNKED).exits(Exit::Failed).stderr_has("is a replica");
        assert!(!replica.path("run.csv").exists(), "{}", outcome.scene());
        // A preview is for reading.
        drop(replica.bigkeys(["delete", "--match", "doomed:*", "--rate", "max"]).exits(Exit::Done));
    }
}

on_servers! {
    [redis_6_2 Redis62, redis_7_0 Redis70, redis_8_2 Redis82, valkey_8_1 Valkey81, valkey_9_1 Valkey91]
    fn a_server_that_cannot_save_takes_no_writes_until_it_can(kind) {
        let lab = Lab::with(kind, |_, options| {
            options.config("dbfilename in-the-way.rdb").config("stop-writes-on-bgsave-error yes")
        });
        let redis = lab.redis();
        fill(&redis);
        let kept = without_doomed(&redis);
        redis.call(&["CONFIG", "SET", "save", "100000 100000"]).is("OK");
        // A folder in the way of the file stops root, too.
        std::fs::create_dir(lab.path("in-the-way.rdb")).expect("the lab's folder is writable");
        let address = lab.address();
        let save = move |status: &str| {
            let redis = Client::connect(address);
            redis.run("BGSAVE");
            while redis.info("rdb_bgsave_in_progress") != "0" || redis.info("rdb_last_bgsave_status") != status {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let proxy = Proxy::start(address, before_nth("SREM", 2, move || save("err")));
        let outcome = lab.delete_at(proxy.port(), CHUNKED).exits(Exit::Partial).stderr_has("MISCONF");
        assert_eq!(lab.audit().results().get("doomed:b"), Some(&"unfinished"), "{}", outcome.scene());
        std::fs::remove_dir(lab.path("in-the-way.rdb")).expect("it is empty");
        save("ok");
        resumes(&lab, proxy.port(), &kept);

        // The same in a batch of small keys, and while a key is given its tombstone.
        redis.pipeline((0..10).map(|n| ["SET".to_owned(), format!("doomed:{n}"), "v".to_owned()]));
        redis.fill_set("doomed:b", 1500);
        std::fs::remove_file(lab.path("in-the-way.rdb")).expect("it was saved");
        std::fs::create_dir(lab.path("in-the-way.rdb")).expect("the lab's folder is writable");
        std::fs::remove_file(lab.path("run.csv")).expect("it is there");
        let proxy = Proxy::start(address, before_nth("EVAL", 3, move || save("err")));
        let args = ["--match", "doomed:*", "--min-bytes", "1"];
        let outcome = lab.delete_at(proxy.port(), args).exits(Exit::Partial).stderr_has("MISCONF");
        assert_eq!(lab.audit().count("deleted"), 0, "{}", outcome.scene());
        std::fs::remove_dir(lab.path("in-the-way.rdb")).expect("it is empty");
        save("ok");
        resumes(&lab, proxy.port(), &kept);
    }
}

/// What is there besides what is to be deleted.
fn without_doomed(redis: &Client) -> Keyspace {
    snapshot(redis).into_iter().filter(|((_, key), _)| !key.starts_with(b"doomed")).collect()
}
