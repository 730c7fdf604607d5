//! What a scan sends, and what it leaves as it was.

use std::collections::BTreeSet;

use super::cases::cases;
use crate::support::{Action, CALM, Client, Lab, Proxy, ServerKind, on_each_server};

/// Everything that a scan may send outside of `MULTI` ... `DISCARD`: nothing here writes, and nothing
/// reads a value.
const HARMLESS: [&str; 30] = [
    "AUTH",
    "HELLO",
    "PING",
    "SELECT",
    "INFO",
    "DBSIZE",
    "CLIENT SETNAME",
    "CLIENT NO-TOUCH",
    "CLIENT NO-EVICT",
    "CONFIG GET",
    "COMMAND",
    "ROLE",
    "MULTI",
    "DISCARD",
    "SCAN",
    "TYPE",
    "PTTL",
    "MEMORY USAGE",
    "OBJECT ENCODING",
    "OBJECT IDLETIME",
    "OBJECT FREQ",
    "STRLEN",
    "LLEN",
    "SCARD",
    "ZCARD",
    "HLEN",
    "XLEN",
    "VCARD",
    "XINFO STREAM",
    "XINFO GROUPS",
];

fn fill(kind: ServerKind, redis: &Client) {
    for case in cases(kind) {
        redis.run("DEL k");
        case.make(redis, 66);
        redis.call(&["RENAME", "k", case.name]);
    }
    for n in 0..500 {
        redis.run(&format!("SET small:{n} v EX 10000"));
    }
    redis.fill_hash("big:hash", 5000);
    redis.fill_list("big:list", 20_000, 100);
}

on_each_server! {
    fn a_scan_changes_nothing_and_reads_no_value(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(kind, &redis);
        let digest = redis.run("DEBUG DIGEST").text();
        let proxy = Proxy::start(lab.address(), |_| Action::Forward);
        drop(lab.scan_at(proxy.port(), ["--all-keys", "--exact-lists"]).document());
        assert_eq!(redis.run("DEBUG DIGEST").text(), digest);

        let mut in_multi = false;
        let mut harmful = BTreeSet::new();
        for request in proxy.requests("") {
            if request.is("MULTI") {
                in_multi = true;
            } else if request.is("DISCARD") {
                in_multi = false;
            } else if !in_multi
                && !request.is("DEBUG OBJECT")
                && !HARMLESS.iter().any(|harmless| request.is(harmless))
                // Lists are estimated from elements that are looked at one by one.
                && !request.is("LINDEX")
                && !request.is("LRANGE")
            {
                harmful.insert(String::from_utf8_lossy(&request.words[0]).into_owned());
            }
        }
        assert!(harmful.is_empty(), "{harmful:?}");
        assert!(!in_multi, "a MULTI was never discarded");
        assert!(proxy.requests("EXEC").is_empty());
        // The two probes that would act name a key that nobody has.
        for request in proxy.requests("UNLINK") {
            assert!(request.words[1].starts_with(b"bigkeys:probe:"), "{request:?}");
        }
    }

    fn two_connections_serve_the_whole_scan(kind) {
        let lab = Lab::start(kind);
        fill(kind, &lab.redis());
        let proxy = Proxy::start(lab.address(), |_| Action::Forward);
        drop(lab.scan_at(proxy.port(), ["--all-keys", "--count", "10"]).document());
        assert_eq!(proxy.connections(), 2, "one for the work and one for the canary");
        let names: BTreeSet<_> = proxy.requests("CLIENT SETNAME").into_iter().map(|request| request.words[2].clone()).collect();
        assert!(names.iter().all(|name| name.starts_with(b"bigkeys")), "CLIENT LIST should say who we are");
    }

    fn a_key_that_cannot_matter_is_asked_its_size_and_its_type(kind) {
        let lab = Lab::start(kind);
        fill(kind, &lab.redis());
        let proxy = Proxy::start(lab.address(), |_| Action::Forward);
        // The keys that lead by size alone are looked at too; --top 0 wants none of them.
        let scan = lab.scan_at(proxy.port(), ["--top", "0"]).document();
        let about: Vec<_> = proxy.requests("").into_iter().filter(|request| request.names("small:7")).collect();
        // In this order: MEMORY USAGE alone does not free a key that is past its TTL.
        assert_eq!(about.len(), 2, "{about:?}");
        assert!(about[0].is("MEMORY USAGE") && about[1].is("TYPE"), "{about:?}");
        // And one that does is asked each thing once; the worst are measured again in the end.
        for command in ["TYPE", "OBJECT ENCODING", "PTTL", "HLEN"] {
            let asked = proxy.requests(command).into_iter().filter(|request| request.names("big:hash")).count();
            assert_eq!(asked, 1, "{command}");
        }
        assert_eq!(scan.finding("big:hash")["elements"], 5000);
    }

    fn the_rate_is_kept_at_the_server(kind) {
        const RATE: f64 = 2000.0;
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.pipeline((0..1500).map(|n| ["SET".to_owned(), format!("key:{n}"), "v".to_owned()]));
        let processed = || redis.info("total_commands_processed").parse::<f64>().expect("a number");
        let before = processed();
        let port = lab.address().port().to_string();
        let scan = lab.bigkeys_bare(["scan", "--format", "json", "--rate", "2k/s", "--port", &port]).args(CALM).document();
        let commands = processed() - before;
        let elapsed = scan.summary("/elapsed_s").as_f64().expect("a time");
        assert!(commands > 3000.0, "{commands} commands: two for each key and SCAN");
        // A slow machine sends less. The canary's PINGs and the probe are on top of the budget.
        let allowed = RATE * elapsed + elapsed / 0.05 + RATE * 0.1 + 100.0;
        assert!(commands <= allowed, "{commands} commands in {elapsed} s");
        assert!(elapsed > 1.0, "3000 commands at 2000 a second take longer than {elapsed} s");
    }

    fn expiry_that_blocks_is_warned_of(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_set("bomb", 20_000);
        redis.run("EXPIRE bomb 10000");
        for (setting, effect) in [("no", "inline"), ("yes", "background")] {
            redis.run(&format!("CONFIG SET lazyfree-lazy-expire {setting}"));
            let scan = lab.scan([]).document();
            assert_eq!(scan.finding("bomb")["expire_effect"], effect);
            let warned = scan.summary("/warnings").to_string().contains("lazyfree-lazy-expire");
            assert_eq!(warned, setting == "no", "{}", scan.outcome().scene());
        }
    }
}
