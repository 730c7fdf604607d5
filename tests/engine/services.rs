//! Services and proxies that keep commands to themselves, each as a line of a table: what it refuses, and
//! with which words. `docs/services.md` has the sources, and what is not known.

use serde_json::Value as Json;

use crate::delete::ground::{Deletion, in_db_0, keyspace, only_gone};
use crate::support::{Action, Exit, Lab, Proxy, Request, Scan, ServerKind, Value, on_each_server};

/// How a service says no.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// As a server says it whose `rename-command` took the command away.
    Unknown,
    /// As an ACL says it.
    NoPermission,
    /// As Upstash says it.
    NotAvailable,
    /// As Envoy says it: without a code.
    Unsupported,
    /// Not at all: twemproxy closes the connection.
    Nothing,
}

/// A service as its documentation describes it.
struct Service {
    refuses: &'static [&'static str],
    says: Says,
}

const ELASTICACHE: Service = Service { refuses: &["CONFIG", "DEBUG"], says: Says::Unknown };

const ELASTICACHE_SERVERLESS: Service = Service {
    refuses: &[
        "MEMORY",
        "OBJECT",
        "CONFIG",
        "DEBUG",
        "CLIENT NO-TOUCH",
        "CLIENT NO-EVICT",
        "SLOWLOG",
        "LATENCY",
        "MOVE",
    ],
    says: Says::Unknown,
};

const MEMORYDB: Service = Service { refuses: &["CONFIG", "DEBUG", "ACL SETUSER"], says: Says::Unknown };

const AZURE: Service = Service { refuses: &["CONFIG", "DEBUG"], says: Says::Unknown };

const AZURE_ENTERPRISE: Service = Service { refuses: &["DEBUG", "MOVE"], says: Says::Unknown };

const MEMORYSTORE: Service = Service { refuses: &["CLIENT", "CONFIG", "DEBUG"], says: Says::Unknown };

const MEMORYSTORE_VALKEY: Service =
    Service { refuses: &["CONFIG GET", "DEBUG", "CLIENT NO-EVICT"], says: Says::NoPermission };

const UPSTASH: Service = Service {
    refuses: &[
        "INFO",
        "MEMORY",
        "OBJECT",
        "CONFIG",
        "DEBUG",
        "CLIENT",
        "XINFO STREAM",
        "SLOWLOG",
        "LATENCY",
        "MOVE",
    ],
    says: Says::NotAvailable,
};

/// What is left where each of them refuses something: names, types and lengths.
const ENVOY: Service = Service {
    refuses: &[
        "SCAN", "INFO", "HELLO", "SELECT", "DBSIZE", "MEMORY", "OBJECT", "CONFIG", "DEBUG", "CLIENT",
        "XINFO", "SLOWLOG", "LATENCY", "MULTI", "WATCH", "RENAMENX", "SCRIPT", "CLUSTER",
    ],
    says: Says::Unsupported,
};

const TWEMPROXY: Service = Service {
    refuses: &["SCAN", "INFO", "SELECT", "MEMORY", "OBJECT", "CONFIG", "DEBUG", "CLIENT", "MULTI", "WATCH"],
    says: Says::Nothing,
};

impl Service {
    /// Starts it in front of a server.
    fn start(&'static self, lab: &Lab) -> Proxy {
        Proxy::start(lab.address(), |request| match self.refuses.iter().find(|command| request.is(command)) {
            Some(command) => self.refusal(request, command),
            None => Action::Forward,
        })
    }

    fn refusal(&self, request: &Request, command: &str) -> Action {
        let word = |index: usize| String::from_utf8_lossy(&request.words[index]).into_owned();
        match self.says {
            Says::Unknown => {
                let args = request.words.iter().skip(1).map(|arg| format!("'{}' ", arg.escape_ascii()));
                Action::error(&format!(
                    "ERR unknown command '{}', with args beginning with: {}",
                    word(0),
                    args.collect::<String>()
                ))
            }
            Says::NoPermission => {
                let name = command.to_lowercase().replace(' ', "|");
                Action::error(&format!("NOPERM User default has no permissions to run the '{name}' command"))
            }
            Says::NotAvailable => Action::error(&format!(
                "ERR Command is not available: '{}'. See https://upstash.com/docs/redis/overall/rediscompatibility for details",
                word(0).to_uppercase()
            )),
            Says::Unsupported => Action::error(&format!("unsupported command '{}'", word(0))),
            Says::Nothing => Action::Drop,
        }
    }
}

const KEYS: [&str; 7] = ["go:hash", "go:set", "go:list", "go:zset", "go:stream", "go:string", "go:giant"];

fn lab(kind: ServerKind) -> Lab {
    let lab = Lab::start(kind);
    let redis = lab.redis();
    for prefix in ["go", "stay"] {
        redis.fill_hash(&format!("{prefix}:hash"), 3_000);
        redis.fill_set(&format!("{prefix}:set"), 3_000);
        redis.fill_list(&format!("{prefix}:list"), 3_000, 100);
        redis.fill_zset(&format!("{prefix}:zset"), 3_000);
        redis.fill_stream(&format!("{prefix}:stream"), 1_000);
        redis.run(&format!("SET {prefix}:string v EX 1000"));
        redis.call(&["SETRANGE", &format!("{prefix}:giant"), "2999999", "x"]);
    }
    lab
}

fn permission<'s>(scan: &'s Scan, command: &str) -> &'s Json {
    let access = scan.summary("/servers/0/access").as_array().expect("a list");
    let entry = access.iter().find(|entry| entry["command"] == command).expect("it was probed");
    &entry["permission"]
}

/// Scans through a service. Every key is there, no figure is 0, and each says how it is known.
#[track_caller]
fn scan(lab: &Lab, service: &'static Service, bytes_basis: &[&str]) -> Scan {
    let proxy = service.start(lab);
    let scan = lab.scan_at(proxy.port(), ["--all-keys"]).document();
    assert_eq!(scan.by_key().len(), 2 * KEYS.len(), "{}", scan.outcome().scene());
    assert_eq!(
        scan.summary("/completeness/status"),
        "complete",
        "what is refused has a fallback, and is no gap"
    );
    for (key, elements) in
        [("go:hash", 3_000), ("go:list", 3_000), ("go:stream", 1_000), ("go:giant", 3_000_000)]
    {
        let finding = scan.finding(key);
        assert_eq!(finding["elements"], elements, "{finding}");
        for figure in ["bytes", "allocations", "free_effort"] {
            assert_ne!(finding[figure], 0, "what is not known is not 0: {finding}");
        }
        let basis = finding["bytes_basis"].as_str().expect("it says how it is known");
        assert!(bytes_basis.contains(&basis), "{basis} is not of {bytes_basis:?}: {finding}");
        assert!(finding["bytes"].as_u64() > Some(elements), "{finding}");
    }
    scan
}

/// What a deletion is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Pattern,
    Names,
}

/// Deletes through a service: all that was meant is gone, and nothing else.
#[track_caller]
fn delete(lab: &Lab, service: &'static Service) {
    delete_but(lab, service, Which::Pattern, &[]);
}

/// The same, where some keys are left alone for want of a method.
#[track_caller]
fn delete_but(lab: &Lab, service: &'static Service, which: Which, left: &[&str]) {
    let redis = lab.redis();
    let before = keyspace(&redis);
    let proxy = service.start(lab);
    let mut deletion = lab.deletion_at(proxy.port(), []);
    deletion = match which {
        Which::Pattern => deletion.args(["--match", "go:*"]),
        Which::Names => KEYS.iter().fold(deletion, Deletion::arg),
    };
    let done = deletion.exits(if left.is_empty() { Exit::Done } else { Exit::Partial });
    for key in left {
        done.left(key, "no-method");
    }
    let gone = in_db_0(KEYS.iter().filter(|key| !left.contains(key)));
    assert_eq!(done.with_result("deleted"), gone, "{}", done.scene());
    only_gone(&before, &keyspace(&redis), &gone, &done.scene());
}

const MEASURED: [&str; 2] = ["measured", "sampled"];
const MODELLED: [&str; 1] = ["modelled"];

on_each_server! {
    fn elasticache_keeps_config_to_itself(kind) {
        let lab = lab(kind);
        let found = scan(&lab, &ELASTICACHE, &MEASURED);
        assert_eq!(permission(&found, "CONFIG GET"), "unsupported");
        assert_eq!(permission(&found, "MEMORY USAGE"), "allowed");
        delete(&lab, &ELASTICACHE);
    }

    fn elasticache_serverless_has_lengths_and_no_sizes(kind) {
        let lab = lab(kind);
        let found = scan(&lab, &ELASTICACHE_SERVERLESS, &MODELLED);
        for command in ["MEMORY USAGE", "OBJECT ENCODING", "CONFIG GET", "DEBUG OBJECT", "CLIENT NO-TOUCH"] {
            assert_eq!(permission(&found, command), "unsupported", "{command}");
        }
        assert_eq!(found.finding("go:hash")["encoding"], Json::Null);
        delete(&lab, &ELASTICACHE_SERVERLESS);
    }

    fn memorydb_keeps_config_to_itself(kind) {
        let lab = lab(kind);
        let found = scan(&lab, &MEMORYDB, &MEASURED);
        assert_eq!(permission(&found, "CONFIG GET"), "unsupported");
        delete(&lab, &MEMORYDB);
    }

    fn azure_keeps_config_to_itself(kind) {
        let lab = lab(kind);
        let found = scan(&lab, &AZURE, &MEASURED);
        assert_eq!(permission(&found, "CONFIG GET"), "unsupported");
        delete(&lab, &AZURE);
    }

    fn azure_enterprise_has_one_database(kind) {
        let lab = lab(kind);
        scan(&lab, &AZURE_ENTERPRISE, &MEASURED);
        delete(&lab, &AZURE_ENTERPRISE);
    }

    fn memorystore_has_no_client_and_no_config(kind) {
        let lab = lab(kind);
        let found = scan(&lab, &MEMORYSTORE, &MEASURED);
        assert_eq!(permission(&found, "CLIENT NO-EVICT"), "unsupported");
        delete(&lab, &MEMORYSTORE);
    }

    fn memorystore_for_valkey_says_noperm(kind) {
        let lab = lab(kind);
        let found = scan(&lab, &MEMORYSTORE_VALKEY, &MEASURED);
        assert_eq!(permission(&found, "CONFIG GET"), "denied");
        delete(&lab, &MEMORYSTORE_VALKEY);
    }

    fn upstash_has_names_types_and_lengths(kind) {
        let lab = lab(kind);
        let found = scan(&lab, &UPSTASH, &MODELLED);
        for command in ["INFO", "MEMORY USAGE", "OBJECT ENCODING", "CONFIG GET", "XINFO"] {
            assert_eq!(permission(&found, command), "unsupported", "{command}");
        }
        assert_eq!(found.finding("go:stream")["free_effort"], Json::Null, "nobody tells the nodes of a stream");
        // What its groups hold is not known, and what UNLINK would do then.
        delete_but(&lab, &UPSTASH, Which::Pattern, &["go:stream"]);
    }

    fn envoy_has_no_scan_and_deletes_by_name(kind) {
        let lab = lab(kind);
        let proxy = ENVOY.start(&lab);
        for command in [lab.scan_at(proxy.port(), []), lab.bigkeys_bare(["delete", "--match", "go:*", "--port"]).arg(proxy.port().to_string())] {
            let outcome = command
                .exits(Exit::Failed)
                .stderr_has("unsupported command 'SCAN'")
                .stderr_has("scan the servers behind it");
            assert_eq!(outcome.stdout(), "");
        }
        delete_but(&lab, &ENVOY, Which::Names, &["go:stream"]);
    }

    fn twemproxy_closes_the_connection_and_is_told_from_a_server_that_is_down(kind) {
        let lab = lab(kind);
        let proxy = TWEMPROXY.start(&lab);
        let before = keyspace(&lab.redis());
        let port = proxy.port().to_string();
        for command in [lab.scan_at(proxy.port(), []), lab.bigkeys_bare(["delete", "go:hash", "--safe", "--yes", "--port"]).arg(port)] {
            let outcome = command
                .exits(Exit::Failed)
                .stderr_has("answers PING, and closes the connection at CLIENT")
                .stderr_has("connect to the servers behind it");
            assert_eq!(outcome.stdout(), "");
        }
        assert_eq!(keyspace(&lab.redis()), before);
    }

    // ElastiCache Serverless gives such cursors from the first page on.
    fn cursors_above_two_to_the_63_are_carried_on(kind) {
        const HIGH: u64 = 1 << 63;
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.pipeline((0..3_000).map(|n| ["SET".to_owned(), format!("key:{n}"), "v".to_owned()]));
        redis.fill_set("go:set", 3_000);
        redis.fill_hash("go:hash", 3_000);
        // The servers mask a cursor to the size of their table: what is above is ours to set.
        let high = |reply: Value| match reply {
            Value::Many(sign, Some(mut parts)) => {
                let cursor: u64 = String::from_utf8_lossy(parts[0].bytes()).parse().expect("a cursor is a number");
                if cursor != 0 {
                    parts[0] = Value::bulk((cursor | HIGH).to_string());
                }
                Value::Many(sign, Some(parts))
            }
            other => other,
        };
        let proxy = Proxy::start(lab.address(), move |request| {
            if ["SCAN", "SSCAN", "HSCAN"].iter().any(|command| request.is(command)) {
                return Action::Edit(Box::new(high));
            }
            Action::Forward
        });
        let scan = lab.scan_at(proxy.port(), ["--all-keys", "--count", "100"]).document();
        assert_eq!(scan.by_key().len(), 3_002, "{}", scan.outcome().scene());
        let asked = proxy.requests("SCAN").iter().filter(|request| request.words[1].len() == 19).count();
        assert!(asked > 5, "{asked} cursors came back as they were given");
        let done = lab.deletion_at(proxy.port(), ["go:set", "go:hash", "--method", "chunked"]).exits(Exit::Done);
        assert_eq!(done.with_result("deleted"), in_db_0(["go:set", "go:hash"]), "{}", done.scene());
        assert!(proxy.requests("SSCAN").iter().any(|request| request.words[2].len() == 19));
    }

    // <https://github.com/RobiNN1/phpCacheAdmin/issues/47>
    fn a_command_that_is_kept_from_scripts_is_sent_without(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.pipeline((0..50).map(|n| ["SADD".to_owned(), format!("go:{n}"), "a".to_owned()]));
        redis.run("SET stay v");
        let before = keyspace(&redis);
        // Where the script would ask for the size in bytes, it gets no further than that.
        let proxy = Proxy::start(lab.address(), |request| {
            let asks = request.is("EVAL") && request.names("b");
            if !asks {
                return Action::Forward;
            }
            let keys: i64 = String::from_utf8_lossy(&request.words[2]).parse().expect("a number of keys");
            let words = "ERR This Redis command is not allowed from script script: 0, on @user_script:4.";
            let number = |number: i64| Value::Line(b':', number.to_string().into());
            let each = (1..=keys).map(|at| Value::many(vec![number(at), Value::bulk("error"), Value::bulk(words)]));
            Action::Reply(Value::many(std::iter::once(number(0)).chain(each).collect()))
        });
        let done = lab.deletion_at(proxy.port(), ["--match", "go:*"]).exits(Exit::Done);
        done.audit_is_sound();
        assert!(!proxy.requests("WATCH").is_empty(), "each is checked and deleted in one step\n{}", done.scene());
        let gone = (0..50).map(|n| (0, format!("go:{n}").into_bytes())).collect();
        assert_eq!(done.with_result("deleted"), gone, "{}", done.scene());
        only_gone(&before, &keyspace(&redis), &gone, &done.scene());
    }

    fn only_ping_is_left_to_watch_by(kind) {
        let lab = lab(kind);
        for rules in ["-info", "-info -client -select", "-info -config -latency -slowlog -client -select -dbsize"] {
            let redis = lab.redis();
            let mut rule = vec!["ACL", "SETUSER", "limited", "reset", "on", ">pw", "~*", "+@all"];
            rule.extend(rules.split_whitespace());
            redis.call(&rule).is("OK");
            let scan = lab.scan(["--all-keys", "--user", "limited"]).env("REDISCLI_AUTH", "pw").document();
            assert!(scan.by_key().len() >= KEYS.len(), "{rules}\n{}", scan.outcome().scene());
            assert_eq!(permission(&scan, "INFO"), "denied");
            // Not `during`: a scan of a few keys may be over before the next PING.
            assert!(scan.summary("/canary/before/max_ms").as_f64() > Some(0.0), "PING still tells");
            let before = keyspace(&redis);
            let named = [KEYS[rules.len() % 3], KEYS[3 + rules.len() % 3]];
            let done = lab.delete(named).user("limited").exits_with([Exit::Done, Exit::Partial]);
            assert!(done.outcome.stderr().contains("INFO is refused"), "{}", done.scene());
            let there = named.iter().filter(|key| before.contains_key(&(0, key.as_bytes().to_vec())));
            let gone = in_db_0(&there.copied().collect::<Vec<_>>()[..]);
            assert_eq!(done.with_result("deleted"), gone, "{rules}\n{}", done.scene());
            only_gone(&before, &keyspace(&redis), &gone, &done.scene());
        }
    }
}
