//! A scan's JSON document, for tests that look into it.

use std::collections::BTreeMap;
use std::path::Path;

use bigkeys::engine::key::KeyName;
use serde_json::Value;

use super::{Bigkeys, Exit, Lab, Outcome};

/// Limits of the guard that no machine reaches by being slow: what the guard does has tests of its own.
pub(crate) const CALM: [&str; 4] = ["--max-latency", "30s", "--abort-latency", "60s"];

impl Lab {
    /// Prepares a scan of this lab's server as fast as it goes, with the result as JSON.
    pub(crate) fn scan<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        self.scan_at(self.address().port(), args)
    }

    /// Like [`Lab::scan`], on another port: that of a proxy.
    pub(crate) fn scan_at<const N: usize>(&self, port: u16, args: [&str; N]) -> Bigkeys {
        Bigkeys::scan(self.dir(), port, args)
    }
}

impl Bigkeys {
    /// Prepares a scan of the server at this port, which runs in `dir`: as fast as it goes, as JSON.
    pub(crate) fn scan<const N: usize>(dir: &Path, port: u16, args: [&str; N]) -> Self {
        Self::new(dir, ["scan", "--format", "json", "--rate", "max", "--port"])
            .arg(port.to_string())
            .args(CALM)
            .args(args)
    }

    /// Runs the scan, which must be whole, and reads its document.
    #[track_caller]
    pub(crate) fn document(self) -> Scan {
        self.exits(Exit::Done).document()
    }
}

impl Outcome {
    /// Reads stdout as a scan's JSON document.
    #[track_caller]
    pub(crate) fn document(self) -> Scan {
        let document = serde_json::from_slice(self.stdout_bytes())
            .unwrap_or_else(|error| panic!("stdout is no JSON document: {error}\n{}", self.scene()));
        Scan { document, outcome: self }
    }
}

/// A document and the run that wrote it.
#[derive(Debug)]
pub(crate) struct Scan {
    document: Value,
    outcome: Outcome,
}

impl Scan {
    pub(crate) fn findings(&self) -> &[Value] {
        self.document["findings"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the findings by database and name.
    ///
    /// # Panics
    /// When one key was reported twice.
    #[track_caller]
    pub(crate) fn by_key(&self) -> BTreeMap<(u64, Vec<u8>), &Value> {
        let mut found = BTreeMap::new();
        for finding in self.findings() {
            let key = (finding["db"].as_u64().expect("a database is a number"), key_of(finding));
            let before = found.insert(key, finding);
            assert!(before.is_none(), "a key was reported twice: {finding}\n{}", self.outcome.scene());
        }
        found
    }

    /// Returns the finding of a key in database 0.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub(crate) fn finding(&self, key: &str) -> &Value {
        self.findings()
            .iter()
            .find(|finding| finding["db"] == 0 && key_of(finding) == key.as_bytes())
            .unwrap_or_else(|| panic!("there is no finding of {key:?}\n{}", self.outcome.scene()))
    }

    /// Returns a part of the summary by its JSON pointer.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub(crate) fn summary(&self, pointer: &str) -> &Value {
        self.document["summary"]
            .pointer(pointer)
            .unwrap_or_else(|| panic!("the summary has no {pointer}\n{}", self.outcome.scene()))
    }

    /// Returns how many keys were skipped for this reason.
    pub(crate) fn skipped(&self, why: &str) -> u64 {
        let reasons = self.summary("/skipped").as_array().expect("a list of reasons");
        reasons
            .iter()
            .filter(|reason| reason["why"] == why)
            .filter_map(|reason| reason["keys"].as_u64())
            .sum()
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}

/// Returns the bytes of a finding's name.
#[track_caller]
pub(crate) fn key_of(finding: &Value) -> Vec<u8> {
    let text = finding["key"].as_str().expect("a key is text");
    let name = match finding["key_encoding"].as_str() {
        Some("plain") => KeyName::new(text.as_bytes()),
        Some("quoted") => KeyName::parse_quoted(text).expect("a quoted key can be read back"),
        other => panic!("unknown key_encoding {other:?}"),
    };
    name.as_bytes().to_vec()
}
