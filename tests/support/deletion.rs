//! What a deletion leaves behind: the keyspace before and after, and the audit, read with a reader that
//! shares nothing with `bigkeys`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Bigkeys, CALM, Client, Lab, Value};

/// Databases that the tests use.
const DATABASES: [u32; 3] = [0, 3, 9];

/// Keys by database and name, with all that they hold.
pub(crate) type Keyspace = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// Reads everything that a server holds.
#[track_caller]
pub(crate) fn snapshot(redis: &Client) -> Keyspace {
    let mut keyspace = Keyspace::new();
    for db in DATABASES {
        redis.call(&["SELECT", &db.to_string()]);
        for key in redis.run("KEYS *").items() {
            let name = key.bytes().to_vec();
            let content = content(redis, &name);
            keyspace.insert((db, name), content);
        }
    }
    redis.run("SELECT 0");
    keyspace
}

fn content(redis: &Client, key: &[u8]) -> Vec<u8> {
    let call = |words: &[&str], after: &[&str]| {
        let words: Vec<&[u8]> = words
            .iter()
            .map(|word| word.as_bytes())
            .chain([key])
            .chain(after.iter().map(|word| word.as_bytes()))
            .collect();
        redis.call(&words)
    };
    let kind = call(&["TYPE"], &[]).text();
    let value = match kind.as_str() {
        "string" => call(&["GET"], &[]),
        "list" => call(&["LRANGE"], &["0", "-1"]),
        "set" => sorted(&call(&["SMEMBERS"], &[]), 1),
        "zset" => call(&["ZRANGE"], &["0", "-1", "WITHSCORES"]),
        "hash" => sorted(&call(&["HGETALL"], &[]), 2),
        "stream" => Value::many(vec![call(&["XRANGE"], &["-", "+"]), call(&["XINFO", "GROUPS"], &[])]),
        other => panic!("a test made a key of the type {other}"),
    };
    let has_ttl = call(&["PTTL"], &[]).int() >= 0;
    let mut bytes = format!("{kind} {has_ttl} ").into_bytes();
    value.write(&mut bytes);
    bytes
}

/// Sorts what a server gives in no order, so many items at a time.
fn sorted(value: &Value, step: usize) -> Value {
    let mut items: Vec<_> = value.items().chunks(step).map(<[_]>::to_vec).collect();
    items.sort_by(|a, b| a[0].bytes().cmp(b[0].bytes()));
    Value::many(items.concat())
}

/// An audit, line by line: columns by name, those that are empty left out.
#[derive(Debug)]
pub(crate) struct AuditLog {
    rows: Vec<BTreeMap<String, String>>,
    text: String,
}

/// Results after which nothing is left to do.
const FINAL: [&str; 5] = ["deleted", "expiring", "gone", "changed", "denied"];

impl AuditLog {
    /// Reads an audit, and checks that it makes sense as a whole, however the run ended.
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let text = String::from_utf8(bytes).expect("an audit is UTF-8");
        let is_csv = path.extension().is_none_or(|suffix| suffix == "csv");
        // What a kill left of a last line is no line.
        let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
        let rows = if is_csv {
            let mut cells = csv_rows(whole).into_iter();
            let header = cells.next().unwrap_or_default();
            cells
                .map(|row| {
                    assert_eq!(row.len(), header.len(), "a row of another length: {row:?}");
                    header.iter().cloned().zip(row).filter(|(_, cell)| !cell.is_empty()).collect()
                })
                .collect()
        } else {
            whole.lines().map(json_row).collect()
        };
        let log = Self { rows, text };
        log.is_consistent();
        log
    }

    pub(crate) fn rows<'a>(&'a self, record: &'a str) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
        self.rows.iter().filter(move |row| row["record"] == record)
    }

    /// Returns the last result of each key, by its name as it is written.
    pub(crate) fn results(&self) -> BTreeMap<&str, &str> {
        self.rows("outcome").map(|row| (row["key"].as_str(), row["result"].as_str())).collect()
    }

    /// Returns how many keys have this as their last result.
    pub(crate) fn count(&self, result: &str) -> usize {
        let last: BTreeMap<_, _> = self.rows("outcome").map(|row| (&row["seq"], &row["result"])).collect();
        last.values().filter(|word| **word == result).count()
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    #[track_caller]
    fn is_consistent(&self) {
        let mut planned = BTreeMap::new();
        let mut begun = BTreeSet::new();
        let mut done = BTreeSet::new();
        let mut is_planning = true;
        for (index, row) in self.rows.iter().enumerate() {
            let number = |column: &str| row.get(column).and_then(|cell| cell.parse::<u64>().ok());
            let seq = || number("seq").unwrap_or_else(|| panic!("a row without its number: {row:?}"));
            let record = row["record"].as_str();
            assert_eq!(index == 0, record == "run", "`run` is the first row, and only that: {row:?}");
            is_planning &= ["run", "plan", "skip"].contains(&record);
            match record {
                "plan" => {
                    assert!(is_planning, "a plan after the first act: {row:?}");
                    assert_eq!(seq(), planned.len() as u64, "plans are numbered in turn: {row:?}");
                    planned.insert(seq(), (row["db"].clone(), row["key"].clone()));
                }
                "intent" => {
                    for seq in seq()..=number("seq_to").unwrap_or(seq()) {
                        assert!(planned.contains_key(&seq), "an intent without a plan: {row:?}");
                        begun.insert(seq);
                    }
                }
                "outcome" => {
                    let key = (row["db"].clone(), row["key"].clone());
                    assert_eq!(planned.get(&seq()), Some(&key), "an outcome of another key: {row:?}");
                    assert!(begun.contains(&seq()), "an outcome without an intent: {row:?}");
                    assert!(!done.contains(&seq()), "an outcome after the last: {row:?}");
                    if FINAL.contains(&row["result"].as_str()) {
                        done.insert(seq());
                    } else {
                        assert!(["failed", "unfinished"].contains(&row["result"].as_str()), "{row:?}");
                    }
                }
                "run" | "skip" | "begin" | "hold" | "setting" | "resume" | "end" => {}
                other => panic!("an audit has no rows `{other}`: {row:?}"),
            }
        }
    }
}

fn json_row(line: &str) -> BTreeMap<String, String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let cells = object.into_iter().filter(|(_, value)| !value.is_null());
    cells.map(|(name, value)| (name, value.as_str().map_or(value.to_string(), str::to_owned))).collect()
}

/// Reads CSV as RFC 4180 has it.
fn csv_rows(text: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let cell = row.last_mut().expect("a row has a cell");
        match c {
            '"' if is_quoted && chars.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => row.push(String::new()),
            '\n' if !is_quoted => rows.push(std::mem::replace(&mut row, vec![String::new()])),
            _ => cell.push(c),
        }
    }
    assert!(!is_quoted, "a quote is never closed");
    rows
}

impl Lab {
    /// Prepares a deletion that acts, as fast as it goes, through this port, with `run.csv` as its audit.
    pub(crate) fn delete_at<const N: usize>(&self, port: u16, args: [&str; N]) -> Bigkeys {
        self.delete_paced(port, "max", args)
    }

    /// Like [`Lab::delete_at`], with so many commands a second.
    pub(crate) fn delete_paced<const N: usize>(&self, port: u16, rate: &str, args: [&str; N]) -> Bigkeys {
        self.acts_at(port, rate).args(["--audit", "run.csv"]).args(args)
    }

    /// Prepares the end of a run whose audit is `run.csv`.
    pub(crate) fn resume_at(&self, port: u16) -> Bigkeys {
        self.resume_paced(port, "max")
    }

    /// Like [`Lab::resume_at`], with so many commands a second.
    pub(crate) fn resume_paced(&self, port: u16, rate: &str) -> Bigkeys {
        self.acts_at(port, rate).args(["--resume", "run.csv"])
    }

    fn acts_at(&self, port: u16, rate: &str) -> Bigkeys {
        let command = self.bigkeys_bare(["delete", "--safe", "--yes", "--rate", rate, "--port"]);
        command.arg(port.to_string()).args(CALM)
    }

    /// Reads `run.csv`.
    #[track_caller]
    pub(crate) fn audit(&self) -> AuditLog {
        AuditLog::read(&self.path("run.csv"))
    }
}
