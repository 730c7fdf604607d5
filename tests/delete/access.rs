//! Users who may not call everything.

use std::collections::BTreeSet;

use super::ground::{Deletion, in_db_0, keyspace, only_gone};
use crate::support::{Bigkeys, Exit, Lab, ServerKind, on_each_real_server, on_each_server};

/// A server with a user `limited`, some keys to go, and some to stay.
fn lab(kind: ServerKind, rules: &str) -> Lab {
    let lab = Lab::with(kind, |_, options| options.config(format!("user limited on >pw {rules}")));
    fill(&lab);
    lab
}

fn fill(lab: &Lab) {
    let redis = lab.redis();
    for prefix in ["go", "stay"] {
        redis.fill_hash(&format!("{prefix}:hash"), 3_000);
        redis.fill_set(&format!("{prefix}:set"), 3_000);
        redis.fill_list(&format!("{prefix}:list"), 3_000, 100);
        redis.fill_zset(&format!("{prefix}:zset"), 3_000);
        redis.run(&format!("SET {prefix}:string v EX 1000"));
        redis.fill_stream(&format!("{prefix}:stream"), 1_000);
        redis.run(&format!("XGROUP CREATE {prefix}:stream g 0"));
        redis.run(&format!("XREADGROUP GROUP g c COUNT 500 STREAMS {prefix}:stream >"));
    }
}

const GO: [&str; 6] = ["go:hash", "go:set", "go:list", "go:zset", "go:string", "go:stream"];
const COLLECTIONS: [&str; 5] = ["go:hash", "go:set", "go:list", "go:zset", "go:stream"];

on_each_server! {
    fn whatever_is_refused_another_way_is_found(kind) {
        for rules in [
            "-eval -multi",
            "-eval -watch -multi -exec -discard",
            "-info -config -latency -slowlog -client -memory -object",
            "-unlink -multi",
        ] {
            let lab = lab(kind, &format!("~* +@all {rules}"));
            let redis = lab.redis();
            let before = keyspace(&redis);
            let done = lab.delete(["--match", "go:*"]).user("limited");
            let exit = if rules == "-unlink -multi" { Exit::Partial } else { Exit::Done };
            let done = done.exits(exit);
            done.audit_is_sound();
            let gone = done.with_result("deleted");
            if exit == Exit::Done {
                assert_eq!(gone, in_db_0(GO), "{rules}\n{}", done.scene());
            } else {
                // It was to be found out: what could not be is counted, and nothing else is touched.
                assert_eq!(done.with_result("denied").len() + gone.len(), GO.len(), "{}", done.scene());
            }
            only_gone(&before, &keyspace(&redis), &gone, &format!("{rules}\n{}", done.scene()));
        }
    }

    fn chunks_need_neither_scripts_nor_a_second_name(kind) {
        for rules in [
            "-eval -watch -multi",
            "-renamenx -eval",
            "-renamenx -eval -watch -multi",
            "-persist",
            "-persist -eval",
            "-unlink -multi",
        ] {
            let lab = lab(kind, &format!("~* +@all {rules}"));
            let redis = lab.redis();
            for key in COLLECTIONS {
                redis.call(&["EXPIRE", key, "1000"]);
            }
            let before = keyspace(&redis);
            let mut deletion = lab.delete(["--method", "chunked"]).user("limited");
            for key in COLLECTIONS {
                deletion = deletion.arg(key);
            }
            let done = deletion.exits(Exit::Done);
            done.audit_is_sound();
            for key in COLLECTIONS {
                let detail = done.became(key, "deleted")["detail"].as_str().unwrap_or_default().to_owned();
                assert_eq!(detail.contains("in place"), rules.contains("renamenx"), "{rules}: {detail}");
                let is_open = rules.contains("-eval") && rules.contains("-watch");
                assert_eq!(detail.contains("neither"), is_open, "{rules}: {detail}");
            }
            only_gone(&before, &keyspace(&redis), &in_db_0(COLLECTIONS), &format!("{rules}\n{}", done.scene()));
        }
    }

    fn keys_that_are_closed_are_counted_and_left_alone(kind) {
        // Read all, write some: the plan sees them, the act is refused.
        let rules = if kind == ServerKind::Redis62 { "~go:* +@all" } else { "~go:* %R~stay:* +@all" };
        for (method, keys) in [("unlink", &GO[..]), ("chunked", &COLLECTIONS[..]), ("pad", &COLLECTIONS[..4])] {
            let lab = lab(kind, rules);
            let redis = lab.redis();
            let before = keyspace(&redis);
            let mut deletion = lab.delete(["--method", method]).user("limited");
            for key in keys {
                deletion = deletion.arg(key).arg(key.replace("go", "stay"));
            }
            let done = deletion.exits(Exit::Partial);
            for key in keys {
                done.became(key, "deleted");
                let closed = key.replace("go", "stay");
                if kind == ServerKind::Redis62 {
                    done.left(&closed, "denied");
                } else {
                    done.became(&closed, "denied");
                }
            }
            only_gone(&before, &keyspace(&redis), &in_db_0(keys), &done.scene());
            let left = keys.len();
            let said: Vec<_> = done.outcome.stderr().split_whitespace().map(str::to_owned).collect();
            let expected = if kind == ServerKind::Redis62 {
                [left.to_string(), "left".to_owned(), "alone".to_owned()]
            } else {
                ["denied".to_owned(), left.to_string(), "keys".to_owned()]
            };
            assert!(said.windows(3).any(|words| words == expected), "{expected:?}\n{}", done.scene());
        }
    }

    fn a_tombstone_that_may_not_be_made_is_not_needed(kind) {
        // `bigkeys:tombstone:*` is closed.
        let lab = lab(kind, "~go:* +@all");
        let redis = lab.redis();
        let before = keyspace(&redis);
        let done = lab.delete(["go:set", "go:stream", "--method", "chunked"]).user("limited").exits(Exit::Done);
        only_gone(&before, &keyspace(&redis), &in_db_0(["go:set", "go:stream"]), &done.scene());
    }

    fn without_any_way_to_write_nothing_happens(kind) {
        let lab = lab(kind, "~* +@all -@write");
        let redis = lab.redis();
        let before = keyspace(&redis);
        let done = lab.delete(["--match", "go:*"]).user("limited").exits(Exit::Partial);
        assert_eq!(done.with_result("deleted"), BTreeSet::new(), "{}", done.scene());
        only_gone(&before, &keyspace(&redis), &BTreeSet::new(), &done.scene());
    }

    fn without_memory_a_filter_by_bytes_leaves_keys_alone(kind) {
        let lab = lab(kind, "~* +@all -memory");
        let redis = lab.redis();
        redis.fill_list("go:odd", 5, 100);
        let before = keyspace(&redis);
        // Only the size of a string is known without it.
        let done = lab.delete(["--match", "go:*", "--min-bytes", "1"]).user("limited").exits(Exit::Partial);
        for key in COLLECTIONS.iter().chain(&["go:odd"]) {
            done.left(key, "unknown");
        }
        only_gone(&before, &keyspace(&redis), &in_db_0(["go:string"]), &done.scene());
    }

    fn without_memory_a_limit_in_bytes_leaves_keys_alone_whose_size_is_not_known(kind) {
        let lab = lab(kind, "~* +@all -memory");
        let redis = lab.redis();
        let before = keyspace(&redis);
        let done = lab.delete(["--match", "go:*", "--max-bytes", "1g"]).user("limited").exits(Exit::Partial);
        for key in COLLECTIONS {
            done.left(key, "unknown");
        }
        only_gone(&before, &keyspace(&redis), &in_db_0(["go:string"]), &done.scene());
    }

    fn a_run_without_a_result_writes_not_even_a_header(kind) {
        let lab = lab(kind, "~* +@all -scan");
        let run = lab.bigkeys(["delete", "--match", "go:*", "--format", "csv", "--user", "limited"]);
        let outcome = run.env("REDISCLI_AUTH", "pw").exits(Exit::Failed).stderr_has("SCAN");
        assert_eq!(outcome.stdout(), "");
    }

    fn a_quarantine_that_may_not_flush_moves_nothing(kind) {
        let lab = lab(kind, "~* +@all -flushdb");
        let redis = lab.redis();
        let before = keyspace(&redis);
        let deletion = lab.delete(["go:string", "go:set", "--method", "quarantine", "--quarantine-db", "9"]);
        let done = deletion.user("limited").exits(Exit::Partial);
        for key in ["go:string", "go:set"] {
            done.became(key, "denied");
        }
        only_gone(&before, &keyspace(&redis), &BTreeSet::new(), &done.scene());
    }
}

on_each_real_server! {
    fn a_quarantine_that_may_not_move_deletes_nothing(kind) {
        let lab = Lab::with(kind, |_, options| options.config("rename-command MOVE \"\""));
        fill(&lab);
        let redis = lab.redis();
        let before = keyspace(&redis);
        let done = lab.delete(["go:string", "--method", "quarantine", "--quarantine-db", "9"]).exits(Exit::Partial);
        done.became("go:string", "denied");
        only_gone(&before, &keyspace(&redis), &BTreeSet::new(), &done.scene());
    }

    fn commands_that_were_renamed_away_are_done_without(kind) {
        for commands in [&["UNLINK", "EVAL", "RENAMENX"][..], &["WATCH", "EVAL"]] {
            let lab = Lab::with(kind, |_, options| {
                commands.iter().fold(options, |options, command| options.config(format!("rename-command {command} \"\"")))
            });
            fill(&lab);
            let redis = lab.redis();
            let before = keyspace(&redis);
            let done = lab.delete(["--match", "go:*"]).exits(Exit::Done);
            only_gone(&before, &keyspace(&redis), &in_db_0(GO), &format!("{commands:?}\n{}", done.scene()));
            let before = keyspace(&redis);
            let done = lab.delete(["stay:set", "stay:hash", "--method", "chunked"]).exits(Exit::Done);
            only_gone(&before, &keyspace(&redis), &in_db_0(["stay:set", "stay:hash"]), &format!("{commands:?}\n{}", done.scene()));
        }
    }
}

/// The words of the rule that a command prints.
#[track_caller]
fn printed_rule(lab: &Lab, verb: &str, args: &[&str]) -> Vec<String> {
    let command = lab.bigkeys_bare([verb, "--print-acl"]);
    let rule = args.iter().fold(command, Bigkeys::arg).stdout();
    rule.split_whitespace().map(str::to_owned).collect()
}

/// Makes a user with exactly this rule.
#[track_caller]
fn user_with(lab: &Lab, name: &str, rule: &[String]) {
    let mut command = vec!["ACL", "SETUSER", name, "reset", "on", ">pw"];
    command.extend(rule.iter().map(String::as_str));
    lab.redis().call(&command).is("OK");
}

on_each_server! {
    fn the_printed_rule_is_enough_for_all_that_delete_does(kind) {
        let all = [&COLLECTIONS[..], &["go:string"]].concat();
        for (args, keys) in [
            (&["--match", "go:*"][..], &all[..]),
            (&["--method", "chunked", "--match", "go:*", "--min-elements", "2"], &COLLECTIONS),
            (&["--method", "pad", "go:hash", "go:set", "go:list", "go:zset"], &COLLECTIONS[..4]),
            (&["--method", "unlink", "--db", "0", "go:string", "go:stream"], &["go:string", "go:stream"]),
            (&["--method", "quarantine", "--quarantine-db", "9", "--match", "go:s*"], &["go:set", "go:string", "go:stream"]),
            (&["--method", "expire", "--expire-after", "1000s", "--match", "go:string"], &["go:string"]),
        ] {
            let lab = Lab::start(kind);
            fill(&lab);
            let redis = lab.redis();
            let rule = printed_rule(&lab, "delete", args);
            user_with(&lab, "deleter", &rule);
            let before = keyspace(&redis);
            let deletion = args.iter().fold(lab.delete([]).user("deleter"), Deletion::arg);
            let done = deletion.exits(Exit::Done);
            done.audit_is_sound();
            let result = if args.contains(&"expire") { "expiring" } else { "deleted" };
            assert_eq!(done.with_result(result), in_db_0(keys), "{rule:?}\n{}", done.scene());
            for row in done.rows("outcome") {
                let detail = row["detail"].as_str().unwrap_or_default();
                assert!(!detail.contains("not to be had"), "{rule:?}: {row}");
            }
            if result == "deleted" {
                only_gone(&before, &keyspace(&redis), &in_db_0(keys), &done.scene());
            }
            // It is a rule for these keys, and for deleting.
            let other = lab.redis();
            other.call(&["AUTH", "deleter", "pw"]);
            for command in [&["GET", "stay:string"][..], &["SET", "go:string", "w"], &["FLUSHALL"], &["KEYS", "*"], &["UNLINK", "stay:set"]] {
                assert!(other.try_call(command).error_text().is_some(), "{command:?} by {rule:?}");
            }
        }
    }

    fn the_rule_of_a_scan_deletes_nothing(kind) {
        let lab = Lab::start(kind);
        fill(&lab);
        let redis = lab.redis();
        user_with(&lab, "scanner", &printed_rule(&lab, "scan", &[]));
        let before = keyspace(&redis);
        for method in [&[][..], &["--method", "unlink"], &["--method", "chunked"], &["--method", "expire"]] {
            let deletion = lab.delete(["--match", "go:*"]).user("scanner");
            let done = method.iter().fold(deletion, Deletion::arg).exits(Exit::Partial);
            assert_eq!(done.with_result("deleted").len() + done.with_result("expiring").len(), 0, "{}", done.scene());
            assert_eq!(keyspace(&redis), before, "{method:?}\n{}", done.scene());
        }
        // A preview is for reading.
        let preview = lab.bigkeys(["delete", "--match", "go:*", "--rate", "max", "--user", "scanner"]);
        drop(preview.env("REDISCLI_AUTH", "pw").exits(Exit::Done).never_says("refuse"));
    }

    fn a_stream_whose_groups_are_closed_is_left_whole(kind) {
        let lab = lab(kind, "~* +@all -xinfo");
        let redis = lab.redis();
        let before = keyspace(&redis);
        for method in [&[][..], &["--method", "chunked"]] {
            let deletion = lab.delete(["go:stream"]).user("limited");
            let done = method.iter().fold(deletion, Deletion::arg).exits(Exit::Partial);
            done.left("go:stream", "no-method");
            assert_eq!(keyspace(&redis), before, "{}", done.scene());
        }
    }
}
