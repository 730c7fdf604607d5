//! `INFO keysizes` against what the scan found.

use std::collections::BTreeMap;

use crate::engine::key::{KeyFacts, Kind};
use crate::engine::live::Keysizes;
use crate::engine::report::KeysizesCheck;
use crate::engine::tally::COUNT_MAX;

use super::select::STRING_BYTES_LOOKED_AT;

/// The sizes that are checked. Powers of two, since the server's bins are; and large enough that every
/// such key was looked at closely.
const COLLECTION_ELEMENTS: [u64; 2] = [1 << 10, 1 << 20];
const NAMES: [&str; 5] = ["strings", "lists", "sets", "zsets", "hashes"];
const STRING_BYTES: [u64; 1] = [STRING_BYTES_LOOKED_AT];

/// Counts keys by database, type and size, as the server does.
#[derive(Debug, Clone, Default)]
pub(super) struct KeysizesFound {
    found: BTreeMap<(u32, &'static str, u64), u64>,
}

impl KeysizesFound {
    pub(super) fn add(&mut self, facts: &KeyFacts) {
        let (Some(name), Some(elements)) = (histogram_name(&facts.kind), facts.elements) else { return };
        for &size in sizes(name) {
            if elements >= size {
                *self.found.entry((facts.db, name, size)).or_default() += 1;
            }
        }
    }

    /// Returns what a checkpoint holds of it.
    pub(super) fn store(&self) -> Vec<(u32, String, u64, u64)> {
        let all = self.found.iter();
        all.map(|(&(db, name, size), &keys)| (db, name.to_owned(), size, keys)).collect()
    }

    /// Takes it from a checkpoint. `None`: that is none which this build wrote.
    pub(super) fn restore(stored: &[(u32, String, u64, u64)]) -> Option<Self> {
        let mut found = BTreeMap::new();
        for (db, name, size, keys) in stored {
            let name = *NAMES.iter().find(|known| *known == name)?;
            if *keys > COUNT_MAX || !sizes(name).contains(size) {
                return None;
            }
            found.insert((*db, name, *size), *keys);
        }
        Some(Self { found })
    }

    /// Adds those of another server.
    pub(super) fn merge(&mut self, other: Self) {
        for (place, keys) in other.found {
            *self.found.entry(place).or_default() += keys;
        }
    }

    /// Lists every size of which the server, or the scan, knows a key.
    pub(super) fn check(
        &self,
        before: Option<&Keysizes>,
        after: Option<&Keysizes>,
        dbs: &[u32],
    ) -> Vec<KeysizesCheck> {
        let Some(before) = before else { return Vec::new() };
        let mut checks = Vec::new();
        for &db in dbs {
            for name in NAMES {
                for &size in sizes(name) {
                    let expected = |keysizes: &Keysizes| {
                        let row = keysizes.rows.iter().find(|row| row.db == db && row.kind == name);
                        row.map_or(0, |row| row.keys_at_least(size))
                    };
                    let check = KeysizesCheck {
                        db,
                        kind: name.to_owned(),
                        at_least: size,
                        expected_before: expected(before),
                        expected_after: after.map(expected),
                        found: self.found.get(&(db, name, size)).copied().unwrap_or(0),
                    };
                    if check.found > 0 || check.expected_before > 0 {
                        checks.push(check);
                    }
                }
            }
        }
        checks
    }
}

fn histogram_name(kind: &Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::String => "strings",
        Kind::List => "lists",
        Kind::Set => "sets",
        Kind::Zset => "zsets",
        Kind::Hash => "hashes",
        Kind::Stream | Kind::VectorSet | Kind::Array | Kind::Other(_) => return None,
    })
}

fn sizes(name: &str) -> &'static [u64] {
    if name == "strings" { &STRING_BYTES } else { &COLLECTION_ELEMENTS }
}
