//! Users who may not call everything: what is refused has a fallback, and is named.

use serde_json::Value::Null;

use crate::support::{Action, Bigkeys, Exit, Lab, Proxy, Scan, ServerKind, on_each_server};

/// A server with a user `limited`, whose rules come after `~* +@all`.
fn lab(kind: ServerKind, rules: &str) -> Lab {
    let lab = Lab::with(kind, |_, options| options.config(format!("user limited on >pw ~* +@all {rules}")));
    let redis = lab.redis();
    redis.fill_hash("big:hash", 5000);
    redis.fill_list("big:list", 20_000, 100);
    redis.run("SET small v");
    redis.call(&["SETRANGE", "big:string", "9999999", "x"]);
    redis.run("EXPIRE big:hash 3600");
    lab
}

fn limited(lab: &Lab) -> Bigkeys {
    lab.scan(["--all-keys", "--user", "limited"]).env("REDISCLI_AUTH", "pw")
}

fn permission(scan: &Scan, command: &str) -> serde_json::Value {
    let access = scan.summary("/servers/0/access").as_array().expect("a list");
    access.iter().find(|entry| entry["command"] == command).expect("it was probed")["permission"].clone()
}

/// Checks that the report says what stands in for a command that was refused.
fn warns(scan: &Scan, of: &str) {
    let access = scan.summary("/servers/0/access").as_array().expect("a list");
    let entry = access.iter().find(|entry| entry["command"] == of).expect("it was probed");
    assert!(entry["fallback"].is_string(), "no fallback is named for {of}\n{}", scan.outcome().scene());
}

on_each_server! {
    fn without_memory_sizes_are_modelled(kind) {
        let lab = lab(kind, "-memory");
        let scan = limited(&lab).document();
        assert_eq!(permission(&scan, "MEMORY USAGE"), "denied");
        warns(&scan, "MEMORY USAGE");
        assert_eq!(scan.by_key().len(), 4);
        let hash = scan.finding("big:hash");
        assert_eq!((&hash["elements"], &hash["free_effort"]), (&5000.into(), &5000.into()));
        assert_eq!(hash["bytes_basis"], "modelled");
        let string = scan.finding("big:string");
        assert_eq!(string["bytes_basis"], "modelled");
        assert!(string["bytes"].as_u64() >= Some(10_000_000), "{string}");
        assert_eq!(scan.summary("/completeness/status"), "complete", "a fallback is no gap");
    }

    fn without_memory_the_giants_are_found_all_the_same(kind) {
        let lab = lab(kind, "-memory");
        let scan = lab.scan(["--user", "limited"]).env("REDISCLI_AUTH", "pw").document();
        assert_eq!(scan.finding("big:hash")["elements"], 5000);
        assert_eq!(scan.finding("big:list")["elements"], 20_000);
        assert_eq!(scan.finding("big:string")["elements"], 10_000_000);
    }

    fn without_object_nothing_is_made_up(kind) {
        let lab = lab(kind, "-object");
        let scan = limited(&lab).document();
        assert_eq!(permission(&scan, "OBJECT ENCODING"), "denied");
        warns(&scan, "OBJECT ENCODING");
        assert_eq!(scan.by_key().len(), 4);
        let hash = scan.finding("big:hash");
        assert_eq!((&hash["encoding"], &hash["idle_s"], &hash["freq"]), (&Null, &Null, &Null));
        assert_eq!(hash["elements"], 5000);
        // 5000 fields are past every default threshold; but thresholds can be set. Unknown or right.
        assert!(hash["free_effort"].is_null() || hash["free_effort"] == 5000, "{hash}");
        assert_eq!(scan.finding("big:string")["free_effort"], 1, "a string's effort needs no encoding");
    }

    fn without_config_effects_rest_on_defaults_or_are_unknown(kind) {
        let lab = lab(kind, "-config");
        let scan = limited(&lab).document();
        assert_eq!(permission(&scan, "CONFIG GET"), "denied");
        warns(&scan, "CONFIG GET");
        let hash = scan.finding("big:hash");
        assert_eq!(hash["unlink_effect"], "background", "UNLINK needs no setting");
        let lazy = if kind.is_valkey() { "background" } else { "inline" };
        for effect in ["del_effect", "expire_effect", "overwrite_effect"] {
            assert!(hash[effect] == "unknown" || hash[effect] == lazy, "{effect}: {hash}");
        }
        assert_eq!(scan.summary("/servers/0/lazyfree_lazy_user_del"), &Null);
    }

    fn without_debug_exact_lists_are_estimated(kind) {
        let lab = lab(kind, "-debug");
        let scan = limited(&lab).arg("--exact-lists").document();
        assert_eq!(permission(&scan, "DEBUG OBJECT"), "denied");
        warns(&scan, "DEBUG OBJECT");
        assert_eq!(scan.finding("big:list")["allocations_basis"], "estimated");
        // DEBUG OBJECT serialises: 2 MB are counted only where somebody insists.
        let careful = lab.scan(["--all-keys", "--exact-lists"]).document();
        assert_eq!(careful.finding("big:list")["allocations_basis"], "estimated");
        let exact = lab.scan(["--all-keys", "--exact-lists", "--i-know-this-blocks"]).document();
        assert_eq!(exact.finding("big:list")["allocations_basis"], "counted");
    }

    fn without_info_the_scan_still_works(kind) {
        let lab = lab(kind, "-info");
        let scan = limited(&lab).document();
        assert_eq!(permission(&scan, "INFO"), "denied");
        warns(&scan, "INFO");
        assert_eq!(scan.by_key().len(), 4);
    }

    fn without_info_nobody_knows_whether_the_server_restarted(kind) {
        let lab = lab(kind, "-info");
        let redis = lab.redis();
        redis.pipeline((0..1000).map(|n| ["SET".to_owned(), format!("key:{n}"), "v".to_owned()]));
        let mut pages = 0;
        let proxy = Proxy::start(lab.address(), move |request| {
            pages += usize::from(request.is("SCAN"));
            if pages == 4 {
                pages += 1;
                return Action::Drop;
            }
            Action::Forward
        });
        let command = lab.scan_at(proxy.port(), ["--all-keys", "--count", "100", "--user", "limited"]);
        let scan = command.env("REDISCLI_AUTH", "pw").document();
        assert_eq!(scan.by_key().len(), 1004);
        assert!(scan.summary("/maybe_counted_twice").is_string(), "{}", scan.outcome().scene());
    }

    fn commands_that_were_renamed_away_have_the_same_fallbacks(kind) {
        let lab = Lab::with(kind, |_, options| {
            ["MEMORY", "CONFIG", "DEBUG", "XINFO", "EVAL"]
                .iter()
                .fold(options, |options, command| options.config(format!("rename-command {command} \"\"")))
        });
        let redis = lab.redis();
        redis.fill_hash("big:hash", 5000);
        redis.fill_stream("big:stream", 1000);
        let scan = lab.scan(["--all-keys", "--exact-lists"]).document();
        for command in ["MEMORY USAGE", "CONFIG GET", "DEBUG OBJECT", "XINFO", "EVAL"] {
            assert_eq!(permission(&scan, command), "unsupported", "{command}");
        }
        assert_eq!(scan.finding("big:hash")["bytes_basis"], "modelled");
        assert_eq!(scan.finding("big:hash")["free_effort"], 5000);
        // Neither radix nodes nor groups can be known.
        let stream = scan.finding("big:stream");
        assert_eq!((&stream["elements"], &stream["free_effort"]), (&1000.into(), &Null), "{stream}");
    }

    fn without_all_of_them_the_scan_still_works(kind) {
        let lab = lab(kind, "-memory -object -config -debug -info -xinfo -client -unlink -eval");
        let scan = limited(&lab).document();
        assert_eq!(scan.by_key().len(), 4);
        assert_eq!(scan.finding("big:hash")["elements"], 5000);
        assert_eq!(permission(&scan, "UNLINK"), "denied");
        assert_eq!(permission(&scan, "EVAL"), "denied");
    }

    fn without_scan_there_is_nothing_to_do(kind) {
        let lab = lab(kind, "-scan");
        let outcome = limited(&lab).exits(Exit::Failed).stderr_has("SCAN").stderr_has("--print-acl");
        assert_eq!(outcome.stdout(), "", "{}", outcome.scene());
    }

    fn keys_that_a_user_may_not_read_are_skipped_and_counted(kind) {
        let lab = Lab::with(kind, |_, options| options.config("user limited on >pw ~mine:* +@all"));
        let redis = lab.redis();
        for n in 0..10 {
            redis.fill_hash(&format!("mine:{n}"), 100);
            redis.fill_hash(&format!("theirs:{n}"), 100);
        }
        let scan = limited(&lab).exits(Exit::Partial).document();
        assert_eq!(scan.skipped("no permission"), 10, "{}", scan.outcome().scene());
        assert_eq!(scan.by_key().len(), 10);
        assert!(scan.by_key().keys().all(|(_, key)| key.starts_with(b"mine:")));
        // The probe took no key's refusal for the command's.
        assert_eq!(permission(&scan, "MEMORY USAGE"), "allowed");
    }

    fn the_printed_acl_rule_is_enough(kind) {
        let lab = lab(kind, "");
        let rule = lab.bigkeys_bare(["scan", "--print-acl"]).stdout();
        let redis = lab.redis();
        let words: Vec<&str> = rule.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_whitespace).collect();
        // Either the rule alone, or with the `ACL SETUSER name` in front of it.
        let words = match words.iter().position(|word| word.eq_ignore_ascii_case("SETUSER")) {
            Some(at) => words[at + 2..].to_vec(),
            None => words,
        };
        let rule = words.into_iter().filter(|word| !word.starts_with('>')).collect::<Vec<_>>();
        let mut command = vec!["ACL", "SETUSER", "scanner", "reset", "on", ">pw"];
        command.extend(&rule);
        redis.call(&command).is("OK");
        let scan = lab.scan(["--all-keys", "--user", "scanner"]).env("REDISCLI_AUTH", "pw").document();
        for command in ["MEMORY USAGE", "OBJECT ENCODING", "OBJECT IDLETIME", "CONFIG GET", "XINFO", "INFO"] {
            assert_ne!(permission(&scan, command), "denied", "{command} by {rule:?}");
        }
        assert_eq!(scan.by_key().len(), 4);
        assert_eq!(scan.finding("big:hash")["free_effort"], 5000);
        // It is a rule for reading.
        redis.call(&["AUTH", "scanner", "pw"]);
        assert!(redis.try_call(&["SET", "k", "v"]).error_text().is_some(), "{rule:?}");
        assert!(redis.try_call(&["GET", "small"]).error_text().is_some(), "{rule:?}");
    }
}
