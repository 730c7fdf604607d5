//! The preview writes nothing, to the server or to the disk.

use std::fs;

use super::ground::{keyspace, only_gone};
use crate::support::{CALM, Client, Exit, Lab, Outcome, on_each_real_server, on_each_server};

fn fill(redis: &Client) {
    redis.fill_hash("hash", 5_000);
    redis.fill_set("set", 300);
    redis.fill_list("list", 3_000, 100);
    redis.fill_zset("zset", 2_000);
    redis.fill_stream("stream", 500);
    redis.run("XGROUP CREATE stream g 0");
    redis.run("SET string v EX 1000");
}

fn previews(lab: &Lab) -> Vec<Outcome> {
    let preview = |last: &[&str]| {
        let mut command = lab.bigkeys(["delete"]).args(CALM);
        for arg in last {
            command = command.arg(arg);
        }
        command.exits(Exit::Done)
    };
    let csv = lab.bigkeys(["scan", "--all-keys", "--format", "csv"]).args(CALM).stdout();
    let rows = csv.lines().count();
    assert_eq!(rows, 7, "{csv}");
    let file = lab.path("plan.csv");
    fs::write(&file, csv).expect("the lab's folder is writable");
    let file = file.to_str().expect("UTF-8").to_owned();
    let done = vec![
        preview(&["--match", "*", "--all"]),
        preview(&["hash", "string", "nowhere"]),
        preview(&["--from", &file]),
        preview(&["--from", &file, "--method", "chunked"]),
        preview(&["--match", "*", "--all", "--safe", "--dry-run"]),
        preview(&["--all", "--method", "expire", "--lazy-expire-while-running", "--max-keys", "1"]),
    ];
    fs::remove_file(file).expect("it was made");
    done
}

on_each_server! {
    fn a_preview_leaves_the_server_and_the_disk_as_they_are(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        let before = keyspace(&redis);
        let dirty = redis.info("rdb_changes_since_last_save");
        let files = || {
            let mut names: Vec<_> = fs::read_dir(lab.path("")).expect("a folder").map(|entry| entry.expect("readable").file_name()).collect();
            names.sort();
            names
        };
        let files_before = files();
        let all = previews(&lab);
        assert_eq!(redis.info("rdb_changes_since_last_save"), dirty);
        only_gone(&before, &keyspace(&redis), &std::collections::BTreeSet::new(), &all[0].scene());
        assert_eq!(files(), files_before);
        for preview in &all {
            assert!(preview.stdout().contains("planned"), "{}", preview.scene());
        }
    }

    fn a_preview_says_what_would_happen_and_why(kind) {
        let lab = Lab::start(kind);
        fill(&lab.redis());
        let command = lab.bigkeys(["delete", "hash", "list", "nowhere", "--format", "table"]).args(CALM);
        let outcome = command.exits(Exit::Done);
        let shown = outcome.stdout();
        for text in ["hash", "unlink", "freed in the background", "2 keys", "1 gone", "there is no such key"] {
            assert!(shown.contains(text), "{text:?}\n{}", outcome.scene());
        }
        outcome.stderr_has("nothing was deleted: add --safe");
    }
}

on_each_real_server! {
    fn a_preview_sends_nothing_but_reads(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        let watcher = lab.redis();
        watcher.run("MONITOR").is("OK");
        previews(&lab);
        redis.run("ECHO the-end-of-it");
        let mut seen = std::collections::BTreeSet::new();
        loop {
            let line = watcher.receive().text();
            if line.contains("the-end-of-it") {
                break;
            }
            // 1700000000.123456 [0 127.0.0.1:1234] "config" "get"
            let words: Vec<String> = line.split('"').skip(1).step_by(2).map(str::to_ascii_lowercase).collect();
            assert!(words[0] != "config" || words[1] == "get", "{line}");
            seen.insert(words[0].clone());
        }
        assert!(seen.contains("scan") && seen.contains("memory"), "MONITOR saw {seen:?}");
        for command in &seen {
            let about = redis.call(&["COMMAND", "INFO", command]);
            let flags = format!("{:?}", about.items()[0].items()[2]);
            assert!(!flags.contains("write") && command != "eval", "{command} is {flags}");
        }
    }
}
