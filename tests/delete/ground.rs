//! A deletion as a test runs it, its audit, and the keyspace before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::support::{Bigkeys, CALM, Client, Cluster, Exit, Lab, Outcome, key_of};

impl Lab {
    /// Prepares a deletion that acts, as fast as it goes, with an audit of its own.
    pub(crate) fn delete<const N: usize>(&self, args: [&str; N]) -> Deletion {
        self.deletion_at(self.address().port(), args)
    }

    /// Like [`Lab::delete`], on another port: that of a proxy.
    pub(crate) fn deletion_at<const N: usize>(&self, port: u16, args: [&str; N]) -> Deletion {
        Deletion::new(self.dir(), port, args)
    }
}

impl Cluster {
    /// Prepares a deletion that acts, like [`Lab::delete`], told of the first node that is up.
    pub(crate) fn delete<const N: usize>(&self, args: [&str; N]) -> Deletion {
        Deletion::new(self.dir(), self.first_port(), args)
    }

    /// Reads everything that the masters hold.
    ///
    /// # Panics
    /// When two of them hold the same key.
    #[track_caller]
    pub(crate) fn keyspace(&self) -> Keyspace {
        let mut all = Keyspace::new();
        for master in self.masters() {
            for (place, content) in keyspace(&self.redis(master)) {
                assert!(all.insert(place.clone(), content).is_none(), "two masters hold {place:?}");
            }
        }
        all
    }
}

/// A deletion that has not run yet.
pub(crate) struct Deletion {
    command: Bigkeys,
    audit: PathBuf,
}

impl Deletion {
    /// Prepares a deletion that acts at this port, and runs in `dir`.
    pub(crate) fn new<const N: usize>(dir: &Path, port: u16, args: [&str; N]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("audit-{}.ndjson", NUMBER.fetch_add(1, Ordering::Relaxed));
        let act =
            ["delete", "--safe", "--yes", "--rate", "max", "--format", "ndjson", "--audit", &name, "--port"];
        let command = Bigkeys::new(dir, act).arg(port.to_string()).args(CALM).args(args);
        Self { command, audit: dir.join(&name) }
    }

    pub(crate) fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.command = self.command.args(args);
        self
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command = self.command.arg(arg);
        self
    }

    /// Runs as this user, whose password is `pw`.
    pub(crate) fn user(mut self, name: &str) -> Self {
        self.command = self.command.args(["--user", name]).env("REDISCLI_AUTH", "pw");
        self
    }

    #[track_caller]
    pub(crate) fn exits(self, expected: Exit) -> Deleted {
        self.exits_with([expected])
    }

    /// Runs it, and checks that it ends in one of these ways.
    #[track_caller]
    pub(crate) fn exits_with<const N: usize>(self, expected: [Exit; N]) -> Deleted {
        let outcome = self.command.start().finish().exits_with(expected);
        let read = |text: String| -> Vec<Value> {
            text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
        };
        let rows = read(fs::read_to_string(&self.audit).unwrap_or_default());
        let said = read(outcome.stdout());
        Deleted { outcome, rows, said }
    }
}

/// A deletion that has ended, with the rows of its audit.
pub(crate) struct Deleted {
    pub(crate) outcome: Outcome,
    pub(crate) rows: Vec<Value>,
    /// The rows on stdout.
    pub(crate) said: Vec<Value>,
}

impl Deleted {
    /// Returns the rows of this kind.
    pub(crate) fn rows(&self, record: &str) -> Vec<&Value> {
        self.rows.iter().filter(|row| row["record"] == record).collect()
    }

    /// Returns the row of this kind about a key in database 0.
    #[track_caller]
    pub(crate) fn row(&self, record: &str, key: &str) -> &Value {
        let found: Vec<_> = self
            .rows(record)
            .into_iter()
            .filter(|row| row["db"] == 0 && name(row) == key.as_bytes())
            .collect();
        assert_eq!(found.len(), 1, "{record} rows about {key}\n{}", self.scene());
        found[0]
    }

    /// Checks what became of a planned key.
    #[track_caller]
    pub(crate) fn became(&self, key: &str, result: &str) -> &Value {
        let row = self.row("outcome", key);
        assert_eq!(row["result"], result, "{row}\n{}", self.scene());
        row
    }

    /// Checks that a key was left out of the plan, for this reason.
    #[track_caller]
    pub(crate) fn left(&self, key: &str, why: &str) -> &Value {
        // A run that plans nothing has no audit; stdout tells it always.
        let found: Vec<_> =
            self.said.iter().filter(|row| row["db"] == 0 && name(row) == key.as_bytes()).collect();
        assert!(found.len() == 1 && found[0]["result"] == why, "{found:?} for {key}\n{}", self.scene());
        if !self.rows.is_empty() {
            assert_eq!(self.row("skip", key)["reason"], why, "{}", self.scene());
        }
        found[0]
    }

    /// Returns the keys of all rows of this kind.
    pub(crate) fn keys(&self, record: &str) -> BTreeSet<(u64, Vec<u8>)> {
        self.rows(record).into_iter().map(place).collect()
    }

    /// Returns the keys with this outcome.
    pub(crate) fn with_result(&self, result: &str) -> BTreeSet<(u64, Vec<u8>)> {
        self.rows("outcome").into_iter().filter(|row| row["result"] == result).map(place).collect()
    }

    /// Checks what holds for every audit: who, where and with what first; the plan before the first act; an
    /// intent before each outcome; one outcome for each key of the plan; the end last.
    #[track_caller]
    pub(crate) fn audit_is_sound(&self) {
        let kind = |row: &Value| row["record"].as_str().expect("each row says what it is").to_owned();
        let scene = || {
            format!(
                "{}\n{}",
                self.scene(),
                self.rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
            )
        };
        let run = self.rows.first().expect("an audit has rows");
        assert_eq!(kind(run), "run");
        assert!(run["bigkeys_version"].is_string() && run["node"].is_string(), "{run}");
        let begin = self.rows("begin")[0];
        assert!(begin["server_version"].as_str().is_some_and(|text| text.contains('.')), "{begin}");
        assert_eq!(kind(self.rows.last().expect("not empty")), "end", "{}", scene());
        let run_id = run["run_id"].as_str().expect("a run has an id");
        let (mut planned, mut intended, mut done) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        for row in &self.rows {
            assert_eq!(row["run_id"], run_id);
            assert!(row["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{row}");
            let seq = row["seq"].as_u64();
            match (kind(row).as_str(), seq) {
                ("plan", Some(seq)) => {
                    assert!(intended.is_empty(), "the plan comes before anything happens\n{}", scene());
                    for fact in ["key", "type", "method", "reason", "ttl_ms", "predicted_stall_ms"] {
                        assert!(!row[fact].is_null(), "{fact}: {row}");
                    }
                    assert!(planned.insert(seq, place(row)).is_none(), "{row}");
                }
                ("intent", Some(seq)) => {
                    let last = row["seq_to"].as_u64().unwrap_or(seq);
                    intended.extend(seq..=last);
                }
                ("outcome", Some(seq)) => {
                    assert!(intended.contains(&seq), "an outcome without an intent: {row}\n{}", scene());
                    assert_eq!(planned.get(&seq), Some(&place(row)), "{row}");
                    assert!(done.insert(seq), "two outcomes: {row}\n{}", scene());
                    assert!(row["elapsed_ms"].is_number(), "{row}");
                    // Empty where no PING came back in so short a time: that is not 0.
                    let victim_max = &row["victim_max_ms"];
                    assert!(victim_max.is_null() || victim_max.as_f64() > Some(0.0), "{row}");
                }
                _ => {}
            }
        }
    }

    pub(crate) fn scene(&self) -> String {
        self.outcome.scene()
    }
}

fn name(row: &Value) -> Vec<u8> {
    if row["key"].is_string() { key_of(row) } else { Vec::new() }
}

fn place(row: &Value) -> (u64, Vec<u8>) {
    (row["db"].as_u64().unwrap_or(u64::MAX), name(row))
}

/// Everything in a server: by database and name, what is there and whether it has a time to live.
pub(crate) type Keyspace = BTreeMap<(u64, Vec<u8>), Content>;

/// A key's type, whether it has a time to live, and all that it holds, in an order of our own.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) kind: String,
    pub(crate) has_ttl: bool,
    items: Vec<String>,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} (ttl: {})", self.kind, self.items.len(), self.has_ttl)
    }
}

/// Reads all of it.
pub(crate) fn keyspace(redis: &Client) -> Keyspace {
    let info = redis.run("INFO keyspace").text();
    let databases: Vec<u64> =
        info.lines().filter_map(|line| line.strip_prefix("db")?.split_once(':')?.0.parse().ok()).collect();
    let mut found = Keyspace::new();
    for db in databases {
        redis.run(&format!("SELECT {db}"));
        for key in redis.run("KEYS *").items() {
            let key = key.bytes();
            found.insert((db, key.to_vec()), content(redis, key));
        }
    }
    if !found.is_empty() {
        redis.run("SELECT 0");
    }
    found
}

fn content(redis: &Client, key: &[u8]) -> Content {
    let kind = redis.call(&[&b"TYPE"[..], key]).text();
    let read: &[&[u8]] = match kind.as_str() {
        "string" => &[b"GET", key],
        "list" => &[b"LRANGE", key, b"0", b"-1"],
        "set" => &[b"SMEMBERS", key],
        "hash" => &[b"HGETALL", key],
        "zset" => &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
        "stream" => &[b"XRANGE", key, b"-", b"+"],
        _ => &[b"DUMP", key],
    };
    let mut items = match redis.call(read) {
        crate::support::Value::Many(_, Some(items)) => items.iter().map(|item| format!("{item:?}")).collect(),
        one => vec![one.bytes().escape_ascii().to_string()],
    };
    match kind.as_str() {
        "set" => items.sort(),
        "hash" => {
            let mut pairs: Vec<_> = items.chunks_exact(2).map(<[String]>::concat).collect();
            pairs.sort();
            items = pairs;
        }
        "stream" => items.push(format!("{:?}", redis.call(&[&b"XINFO"[..], b"GROUPS", key]))),
        _ => {}
    }
    let has_ttl = redis.call(&[&b"PTTL"[..], key]).int() != -1;
    Content { kind, has_ttl, items }
}

/// Checks that of what was there before, all is as it was but for these keys, which are gone; and that
/// nothing is new.
#[track_caller]
pub(crate) fn only_gone(before: &Keyspace, after: &Keyspace, gone: &BTreeSet<(u64, Vec<u8>)>, scene: &str) {
    let show = |keys: Vec<&(u64, Vec<u8>)>| {
        keys.iter().map(|(db, key)| format!("{db}/{}", key.escape_ascii())).collect::<Vec<_>>().join(" ")
    };
    let lost: Vec<_> =
        before.keys().filter(|key| !after.contains_key(*key) && !gone.contains(*key)).collect();
    assert!(lost.is_empty(), "gone and not meant: {}\n{scene}", show(lost));
    let stayed: Vec<_> = gone.iter().filter(|key| after.contains_key(*key)).collect();
    assert!(stayed.is_empty(), "still there: {}\n{scene}", show(stayed));
    let new: Vec<_> = after.keys().filter(|key| !before.contains_key(*key)).collect();
    assert!(new.is_empty(), "left behind: {}\n{scene}", show(new));
    let changed: Vec<_> =
        after.iter().filter(|(key, now)| before[*key] != **now).map(|(key, _)| key).collect();
    assert!(changed.is_empty(), "changed: {}\n{scene}", show(changed));
}

/// Returns a set of names in database 0.
pub(crate) fn in_db_0<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> BTreeSet<(u64, Vec<u8>)> {
    keys.into_iter().map(|key| (0, key.as_ref().as_bytes().to_vec())).collect()
}
