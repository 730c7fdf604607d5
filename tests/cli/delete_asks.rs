//! What a deletion wants before it begins: a yes, an audit, and a place for it.

use std::fs;
use std::path::Path;

use crate::support::{CALM, Client, Exit, Keyspace, Lab, on_each_server, on_servers, snapshot};

use super::terminal::answers_on_a_terminal;

fn fill(redis: &Client) -> Keyspace {
    redis.fill_set("doomed:set", 300);
    redis.pipeline((0..3).map(|n| ["SET".to_owned(), format!("doomed:{n}"), "v".to_owned()]));
    redis.pipeline((0..150).map(|n| ["SET".to_owned(), format!("many:{n}"), "v".to_owned()]));
    redis.run("SET kept v");
    snapshot(redis)
}

/// Returns the audits and what was left of them.
fn files(lab: &Lab) -> Vec<String> {
    let names = fs::read_dir(lab.path("")).expect("the folder is there");
    let names = names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("bigkeys") || name.ends_with("csv")).collect()
}

on_each_server! {
    fn nobody_to_ask_is_a_usage_error_and_nothing_is_deleted(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let before = fill(&redis);
        let delete = |args: &[&str]| {
            args.iter().fold(lab.bigkeys(["delete", "--rate", "max"]).args(CALM), crate::support::Bigkeys::arg)
        };
        drop(delete(&["--match", "doomed:*", "--safe"]).exits(Exit::Usage).stderr_has("--yes"));
        drop(delete(&["--from", "-", "--safe"]).stdin("key\ndoomed:1\n").exits(Exit::Usage).stderr_has("--yes"));
        // A preview, in whichever way it is asked for.
        let preview = delete(&["--match", "doomed:*"]).exits(Exit::Done).stderr_has("nothing was deleted").stdout_has("doomed:set");
        assert_eq!(preview.stdout().matches(",planned,").count(), 4, "{}", preview.scene());
        drop(delete(&["--match", "doomed:*", "--safe", "--yes", "--dry-run"]).exits(Exit::Done).stdout_has("doomed:set"));
        drop(delete(&["--match", "doomed:*", "--safe", "--dry-run"]).exits(Exit::Done).stdout_has("doomed:set"));
        drop(delete(&["doomed:1", "--yes"]).exits(Exit::Usage));
        drop(delete(&["--match", "*", "--safe", "--yes"]).exits(Exit::Usage).stderr_has("--all"));
        drop(delete(&["--safe", "--yes"]).exits(Exit::Usage));
        assert_eq!(snapshot(&redis), before);
        assert_eq!(files(&lab), Vec::<String>::new());
    }

    fn an_audit_has_a_name_of_its_own_and_overwrites_nothing(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let before = fill(&redis);
        let delete = |key: &str| lab.bigkeys(["delete", "--safe", "--yes", "--rate", "max"]).args(CALM).arg(key);
        fs::write(lab.path("mine.csv"), "yesterday's").expect("the lab's folder is writable");
        for audit in ["mine.csv", "no/such/folder/audit.csv", "/dev/full", "."] {
            let outcome = delete("doomed:0").args(["--audit", audit]).exits(Exit::Failed).stderr_has("--audit");
            assert_eq!(snapshot(&redis), before, "{}", outcome.scene());
        }
        assert_eq!(fs::read_to_string(lab.path("mine.csv")).expect("it is there"), "yesterday's");
        assert_eq!(files(&lab), ["mine.csv"]);

        let outcome = delete("doomed:0").exits(Exit::Done);
        let names: Vec<_> = files(&lab).into_iter().filter(|name| name != "mine.csv").collect();
        let [name] = &names[..] else { panic!("one audit: {names:?}") };
        assert!(name.starts_with("bigkeys-audit-2") && Path::new(&name).extension().is_some_and(|suffix| suffix == "csv"), "{name}");
        assert!(outcome.stderr().contains(name.as_str()), "{}", outcome.scene());
        let audit = crate::support::AuditLog::read(&lab.path(name));
        assert_eq!(audit.results()["doomed:0"], "deleted");

        drop(delete("doomed:1").args(["--audit", "mine.ndjson"]).exits(Exit::Done));
        let audit = crate::support::AuditLog::read(&lab.path("mine.ndjson"));
        assert_eq!(audit.results()["doomed:1"], "deleted");
        assert_eq!(audit.rows("run").next().expect("a first row")["node"], lab.address().to_string());
        assert_eq!(snapshot(&redis).len(), before.len() - 2);
        // A selection that is empty leaves no audit behind.
        drop(delete("doomed:1").args(["--audit", "none.csv"]).exits(Exit::Done));
        assert!(!lab.path("none.csv").exists());
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn only_a_clear_yes_on_a_terminal_deletes(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let before = fill(&redis);
        let port = lab.address().port().to_string();
        let asks = |pattern: &str, prompt: &str, types: &str| {
            let mut args = vec!["delete", "--safe", "--no-progress", "--rate", "max", "--match", pattern, "--audit", "run.csv", "--port", &port];
            args.extend(CALM);
            answers_on_a_terminal(&lab, "", &args, prompt, types)
        };
        for (pattern, prompt, types, code) in [
            ("doomed:*", "[y/N]", "n\n", 0),
            ("doomed:*", "[y/N]", "\n", 0),
            ("doomed:*", "[y/N]", "\u{4}", 0),
            ("doomed:*", "[y/N]", "\u{3}", 130),
            ("many:*", "number of keys", "y\n", 0),
            ("many:*", "number of keys", "149\n", 0),
        ] {
            let Some((exit, shown)) = asks(pattern, prompt, types) else { return };
            assert_eq!(exit, Some(code), "{pattern} {types:?}: {shown}");
            assert!(shown.contains(prompt), "{pattern} {types:?}: {shown}");
            assert_eq!(snapshot(&redis), before, "{pattern} {types:?}: {shown}");
            assert_eq!(files(&lab), Vec::<String>::new(), "{pattern} {types:?}: {shown}");
        }
        let Some((exit, shown)) = asks("doomed:*", "[y/N]", "y\n") else { return };
        assert_eq!(exit, Some(0), "{shown}");
        // The totals come before the question.
        assert!(shown.find("4 keys").expect("totals") < shown.find("[y/N]").expect("a question"), "{shown}");
        assert!(shown.contains("4 keys deleted"), "{shown}");
        assert_eq!(lab.audit().count("deleted"), 4);
        fs::remove_file(lab.path("run.csv")).expect("it is there");
        let Some((exit, shown)) = asks("many:*", "number of keys", "150\n") else { return };
        assert_eq!(exit, Some(0), "{shown}");
        assert_eq!(snapshot(&redis).len(), 1);
    }
}
