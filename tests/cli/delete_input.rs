//! Files of keys and audits as people, spreadsheets and accidents leave them: what cannot be read is an
//! error that says where, and then nothing is deleted.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use crate::support::{Action, Bigkeys, CALM, Client, Exit, Lab, Proxy, on_each_server, on_servers, snapshot};

fn delete(lab: &Lab) -> Bigkeys {
    lab.bigkeys(["delete", "--safe", "--yes", "--rate", "max", "--audit", "run.csv"]).args(CALM)
}

fn scanned(lab: &Lab, format: &str, pattern: &str) -> Vec<u8> {
    let command =
        lab.bigkeys(["scan", "--all-keys", "--rate", "max", "--format", format, "--match", pattern]);
    command.args(CALM).exits(Exit::Done).stdout_bytes().to_vec()
}

fn fill(redis: &Client) {
    redis.run("FLUSHALL");
    redis.fill_hash("doomed:hash", 300);
    redis.fill_set("doomed:set", 300);
    redis.run("SET doomed:1 v");
    redis.run("SET doomed:12 v");
    redis.run("SET kept v");
    redis.run("SELECT 3");
    redis.run("SET doomed:1 v");
    redis.run("SELECT 0");
}

on_each_server! {
    fn a_file_that_cannot_be_read_deletes_nothing(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        fill(&redis);
        let before = snapshot(&redis);
        let csv = String::from_utf8(scanned(&lab, "csv", "doomed:*")).expect("CSV is UTF-8");
        let ndjson = scanned(&lab, "ndjson", "doomed:*");
        let last = csv.trim_end().rfind('\n').expect("rows");
        let utf16: Vec<u8> = std::iter::once(0xfeff).chain(csv.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        let elsewhere = csv.replace(&format!(":{}", lab.address().port()), ":1");
        let cases: Vec<(&str, Vec<u8>, &str)> = vec![
            ("nothing", Vec::new(), "the file is empty"),
            ("other columns", "name,size\nkept,1\n".into(), "no column `key`"),
            ("no header", csv.lines().skip(1).collect::<Vec<_>>().join("\n").into(), "no column `key`"),
            ("cut in a row", csv[..last + 30].into(), "cells, but the header has"),
            ("cut in a line of JSON", ndjson[..ndjson.len() / 2].to_vec(), "line "),
            ("a document", scanned(&lab, "json", "doomed:*"), "JSON document"),
            ("UTF-16", utf16, "UTF-16"),
            ("UTF-16 without a mark", "key\n".encode_utf16().flat_map(u16::to_le_bytes).collect(), "no column `key`"),
            ("a program", [&b"\x7fELF\x02\x01\x01\0"[..], &[0xf3; 4000]].concat(), "no column `key`"),
            ("noise behind a header", [&b"key,db\n"[..], &[0, 0xff, 0xfe, b'\n'].repeat(500)].concat(), "line 2"),
            ("another server's", elsewhere.into(), "was found on 127.0.0.1:1"),
            ("a number as a spreadsheet has it", "key,elements\ndoomed:hash,3.00E+02\n".into(), "is no whole number"),
            ("no name", "key,db\n,0\n".into(), "which key is meant"),
            ("an open quote", "key,db\n\"doomed:1,0\ndoomed:12,0\n".into(), "line 2"),
            ("a database that is none", "key,db\ndoomed:1,-1\n".into(), "column `db`"),
            ("a database too far", "key,db\ndoomed:1,4000000000\n".into(), ""),
            ("a bad row at the end", [csv.as_bytes(), b"kept\n"].concat(), "cells, but the header has"),
        ];
        for (name, bytes, message) in cases {
            fs::write(lab.path("keys"), &bytes).expect("the lab's folder is writable");
            let outcome = delete(&lab).args(["--from", "keys"]).exits(Exit::Failed).stderr_has(message).never_says("panicked");
            assert!(outcome.stderr().contains("error:"), "{name}: {}", outcome.scene());
            assert_eq!(snapshot(&redis), before, "{name}: {}", outcome.scene());
            assert!(!lab.path("run.csv").exists(), "{name}: {}", outcome.scene());
        }
        drop(delete(&lab).args(["--from", "no-such-file"]).exits(Exit::Failed).stderr_has("no-such-file"));
    }

    fn a_file_that_a_person_edited_deletes_what_it_names(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let formula = "=cmd|' /C calc'!A0";
        fill(&redis);
        let csv = String::from_utf8(scanned(&lab, "csv", "doomed:*")).expect("CSV is UTF-8");
        let (header, rows) = csv.split_once('\n').expect("a header");
        let rows: Vec<_> = rows.lines().collect();
        let of = |key: &str| *rows.iter().find(|row| row.contains(key)).expect("the row is there");
        let mut backwards = rows.clone();
        backwards.reverse();
        let node = lab.address();
        let elsewhere = csv.replace(&format!(":{}", node.port()), ":1");
        for (text, args, expected) in [
            (format!("\u{feff}{header}\r\n{}\r\n", backwards.join("\r\n")), &[][..], &["doomed:1", "doomed:12", "doomed:hash", "doomed:set", "3/doomed:1"][..]),
            (format!("{header}\n{}\n", of("doomed:set")), &[], &["doomed:set"]),
            (format!("{header}\n{0}\n{0}\n{0}\n", of("doomed:set")), &[], &["doomed:set"]),
            ("key;db;mine\ndoomed:1;0;x\n;;\n".to_owned(), &[], &["doomed:1"]),
            ("mine\tkey\n\tdoomed:12\n".to_owned(), &[], &["doomed:12"]),
            // Without a database they are where --db says.
            ("key\ndoomed:1\n".to_owned(), &["--db", "3"], &["3/doomed:1"]),
            ("db,key\n3,doomed:1\n0,doomed:12\n".to_owned(), &[], &["3/doomed:1", "doomed:12"]),
            (format!("key\n\"{formula}\"\n"), &[], &[formula]),
            (format!("key,key_encoding\n\"\"\"{formula}\"\"\",quoted\n"), &[], &[formula]),
            ("{\"key\":\"doomed:1\",\"new\":[]}\n{\"key\":\"doomed:1\",\"db\":3}".to_owned(), &[], &["3/doomed:1", "doomed:1"]),
            (elsewhere, &["--any-node", "--type", "hash"], &["doomed:hash"]),
            // A name that is a pattern, or a flag, is a name.
            ("key\ndoomed:*\n--all\n".to_owned(), &[], &[]),
            (format!("{header}\n"), &[], &[]),
        ].into_iter().skip(kind as usize % 3).step_by(3) {
            fill(&redis);
            redis.call(&["SET", formula, "v"]);
            redis.call(&["SET", "=cmd", "v"]);
            let mut left = snapshot(&redis);
            for name in expected {
                let (db, key) = name.strip_prefix("3/").map_or((0, *name), |key| (3, key));
                assert!(left.remove(&(db, key.as_bytes().to_vec())).is_some(), "{name}");
            }
            let _ = fs::remove_file(lab.path("run.csv"));
            let command = args.iter().fold(delete(&lab).args(["--from", "-"]), crate::support::Bigkeys::arg);
            let outcome = command.stdin(text.clone()).exits(Exit::Done);
            assert_eq!(snapshot(&redis), left, "{text}\n{}", outcome.scene());
        }
    }

    fn every_name_survives_the_way_from_scan_to_delete(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        let doomed: [&[u8]; 20] = [
            b"", b"\0", b"\n", b"\r\n", b" ", b" a", b"a ", b",", b"a,b", b"\"", b"\"a\"", b"'a'", b"\xff\xfe", b"=1+1",
            b"-1", b"@a", b"\t=1", b"plain\nkey,1", "\u{feff}a".as_bytes(), b"\\x00",
        ];
        let kept: [&[u8]; 12] = [
            b"\0\0", b"a", b"  a", b"b", b"x00", b"\xff", b"1+1", b"'=1+1", b"quoted", b"\\n", b"\"\"", "\u{e9}".as_bytes(),
        ];
        for (format, way) in [("csv", "unlink"), ("ndjson", "unlink"), ("csv", "chunked")].into_iter().skip(kind as usize % 3).take(1) {
            redis.run("FLUSHALL");
            let _ = fs::remove_file(lab.path("run.csv"));
            for key in kept {
                redis.call(&[&b"SADD"[..], key, b"m"]);
            }
            let neighbours = snapshot(&redis);
            for key in doomed {
                redis.pipeline((0..150).map(|n| [b"SADD".to_vec(), key.to_vec(), format!("m{n}").into_bytes()]));
            }
            // All that have more than one member.
            let scan = lab.bigkeys(["scan", "--all-keys", "--rate", "max", "--min-elements", "2", "--format", format]).args(CALM);
            let list = scan.exits(Exit::Done).stdout_bytes().to_vec();
            let outcome = delete(&lab).args(["--from", "-", "--method", way]).stdin(list).exits(Exit::Done);
            assert_eq!(snapshot(&redis), neighbours, "{format} {way}\n{}", outcome.scene());
            assert_eq!(lab.audit().count("deleted"), doomed.len());
        }
    }

    fn an_audit_that_makes_no_sense_deletes_nothing(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.fill_set("kept:set", 1500);
        redis.run("SET kept v");
        let kept = snapshot(&redis);
        redis.fill_set("doomed:a", 1500);
        redis.fill_set("doomed:b", 1500);
        // A run that was killed in the middle of its first key.
        let proxy = Proxy::start(lab.address(), |request| if request.is("SREM") { Action::Hang } else { Action::Forward });
        let mut running = lab.delete_at(proxy.port(), ["--match", "doomed:*", "--method", "chunked"]).start();
        while proxy.requests("SREM").is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(running.kill());
        let audit = fs::read_to_string(lab.path("run.csv")).expect("it is there");
        let before = snapshot(&redis);
        let node = format!("127.0.0.1:{}", proxy.port());
        let lines: Vec<_> = audit.lines().collect();
        let plan = lines.iter().position(|line| line.starts_with("plan,")).expect("a plan");
        let with = |at: usize, line: &str| {
            let mut lines = lines.clone();
            lines[at] = line;
            lines.join("\n") + "\n"
        };
        for (name, text, exit, message) in [
            ("empty", String::new(), Exit::Failed, "no audit"),
            ("a list of keys", "key\nkept\n".to_owned(), Exit::Failed, "no audit"),
            ("only a header", format!("{}\n", lines[0]), Exit::Failed, "no audit"),
            ("without its first row", format!("{}\n{}\n", lines[0], lines[2..].join("\n")), Exit::Failed, "no audit"),
            ("noise", "\u{0}\u{1}\u{fffd}\n\n".repeat(100), Exit::Failed, "no audit"),
            ("noise in the middle", with(plan, "\u{0}\u{1}"), Exit::Failed, "line "),
            ("an unknown record", with(plan, &lines[plan].replace("plan,", "purge,")), Exit::Failed, "line "),
            ("an unknown method", with(plan, &lines[plan].replace(",chunked,", ",vanish,")), Exit::Failed, "line "),
            ("a name that is none", with(plan, &lines[plan].replace(",plain,", ",quoted,")), Exit::Failed, "line "),
            ("a number that is none", with(plan, &lines[plan].replace(",1500,", ",many,")), Exit::Failed, "line "),
            ("another server's", audit.replace(&node, "10.0.0.1:6379"), Exit::Usage, "the run was on 10.0.0.1:6379"),
        ] {
            assert_ne!(text, audit, "{name}: nothing was edited");
            fs::write(lab.path("bad.csv"), &text).expect("the lab's folder is writable");
            let outcome = lab.bigkeys_bare(["delete", "--safe", "--yes", "--resume", "bad.csv", "--port"]).arg(proxy.port().to_string());
            let outcome = outcome.exits(exit).stderr_has(message).never_says("panicked");
            assert_eq!(snapshot(&redis), before, "{name}: {}", outcome.scene());
            assert_eq!(fs::read_to_string(lab.path("bad.csv")).expect("it is there"), text, "{name}: it was written to");
        }
        drop(lab.bigkeys(["delete", "--safe", "--yes", "--resume", "no-such.csv"]).exits(Exit::Failed).stderr_has("no-such.csv"));

        // A tombstone of another name is not believed: what is not of the plan stays.
        let intent = lines.iter().position(|line| line.starts_with("intent,")).expect("an intent");
        let (at, _) = lines[intent].match_indices("bigkeys:tombstone:").next().expect("a tombstone");
        let end = at + lines[intent][at..].find('"').expect("it is quoted");
        let edited = format!("{}kept:set{}", &lines[intent][..at], &lines[intent][end..]);
        fs::write(lab.path("run.csv"), with(intent, &edited)).expect("the lab's folder is writable");
        let outcome = lab.bigkeys_bare(["delete", "--safe", "--yes", "--any-node", "--resume", "run.csv", "--port"]);
        let outcome = outcome.arg(lab.address().port().to_string()).exits(Exit::Done);
        assert_eq!(snapshot(&redis), kept, "{}", outcome.scene());
    }
}

/// Runs a command, and returns how it ended and the most memory that it ever used, in MiB.
#[track_caller]
fn in_memory(command: Bigkeys, expected: Exit) -> u64 {
    let running = command.start();
    let mut peak = 0;
    while let Some(kib) = running.memory_kib_max() {
        peak = kib.max(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(running.finish().exits(expected));
    peak >> 10
}

on_servers! {
    [redis_7_0 Redis70]
    fn a_million_rows_take_no_memory(kind) {
        if !fs::exists("/proc/self/status").unwrap_or(false) {
            return;
        }
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.run("DEBUG POPULATE 30000 key 10");
        // Every fiftieth row is a key that is there.
        let name = |n: u32| if n.is_multiple_of(50) { format!("key:{}", n / 50) } else { format!("no-such-key:{n:07}") };
        let csv = (0..1_000_000).fold("db,key,key_encoding\n".to_owned(), |mut text, n| {
            let _ = writeln!(text, "0,{},plain", name(n));
            text
        });
        fs::write(lab.path("keys.csv"), csv).expect("the lab's folder is writable");
        let ndjson = (0..100_000).fold(String::new(), |mut text, n| {
            let _ = writeln!(text, "{{\"db\":0,\"key\":\"{}\",\"key_encoding\":\"plain\"}}", name(n));
            text
        });
        fs::write(lab.path("keys.ndjson"), ndjson).expect("the lab's folder is writable");
        let peak = in_memory(delete(&lab).args(["--from", "keys.csv", "--format", "table"]), Exit::Done);
        assert!((4..64).contains(&peak), "{peak} MiB");
        assert_eq!(redis.run("DBSIZE").int(), 10_000);
        let peak = in_memory(lab.bigkeys(["delete", "--rate", "max", "--format", "table", "--from", "keys.ndjson"]).args(CALM), Exit::Done);
        assert!((4..64).contains(&peak), "{peak} MiB");
    }
}
