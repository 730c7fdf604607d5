//! What a deletion did.

use std::time::Duration;

use crate::engine::live::Monitors;
use crate::engine::report::CanarySummary;

use super::audit::KeyResult;
use super::method::Method;
use super::plan::Amount;
use super::session::Halt;

/// What a deletion did.
#[derive(Debug, Clone, PartialEq)]
pub struct DeleteReport {
    /// The run.
    pub run_id: String,
    /// Keys of the plan that this run had before it.
    pub keys_planned: u64,
    /// Keys by what became of them.
    pub results: [u64; KeyResult::ALL.len()],
    /// Keys and memory that are gone, by method.
    pub by_method: [Amount; Method::ALL.len()],
    /// What the canary waited.
    pub canary: CanarySummary,
    /// Why the run ended before its plan did.
    pub halt: Option<Halt>,
    /// Time that it took.
    pub elapsed: Duration,
    /// Time in which the server was left in peace.
    pub held: Duration,
    /// Commands sent.
    pub commands: u64,
    /// The slowest command of ours.
    pub slowest_command: Duration,
    /// Times that the guard slowed the run down.
    pub slowdowns: u64,
    /// Connections made again.
    pub reconnects: u32,
    /// What the server's own instruments saw.
    pub seen: Seen,
    /// How the memory came back, where that was waited for.
    pub memory: Option<MemoryBack>,
    /// What a person should read.
    pub warnings: Vec<String>,
}

impl DeleteReport {
    /// Returns how many keys had this result.
    pub fn count(&self, result: KeyResult) -> u64 {
        self.results[result as usize]
    }

    /// Returns how many keys of the plan were not come to.
    pub fn left(&self) -> u64 {
        self.keys_planned.saturating_sub(self.results.iter().sum())
    }

    /// Returns whether a resumed run would have something to do. What was changed or denied is settled.
    pub fn can_be_resumed(&self) -> bool {
        let open = |result: &KeyResult| !result.is_final() && self.count(*result) > 0;
        self.left() > 0 || KeyResult::ALL.iter().any(open)
    }

    /// Returns whether everything that was planned is done: a key that went by itself is done too.
    pub fn is_whole(&self) -> bool {
        use KeyResult::{Changed, Denied, Failed, Unfinished};
        self.halt.is_none()
            && self.left() == 0
            && [Changed, Denied, Failed, Unfinished].iter().all(|result| self.count(*result) == 0)
    }
}

/// What LATENCY and SLOWLOG saw since the start. `None`: refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Events that are new, with milliseconds.
    pub latency: Option<Vec<(String, u64)>>,
    /// Whether the latency monitor records anything.
    pub latency_is_on: Option<bool>,
    /// Commands that are new in the slow log, with microseconds; the slowest first.
    pub slowlog: Option<Vec<(String, u64)>>,
}

impl Seen {
    /// Adds what another server saw. What one of them refuses is not known of both.
    #[must_use]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.latency = self.latency.zip(other.latency).map(|(mut mine, theirs)| {
            mine.extend(theirs);
            mine
        });
        self.latency_is_on = match (self.latency_is_on, other.latency_is_on) {
            (Some(mine), Some(theirs)) => Some(mine && theirs),
            _ => None,
        };
        self.slowlog = self.slowlog.zip(other.slowlog).map(|(mut mine, theirs)| {
            mine.extend(theirs);
            mine.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
            mine
        });
        self
    }

    /// Compares what was said before and after.
    pub fn between(before: &Monitors, after: &Monitors) -> Self {
        let latency = match (&before.latency, &after.latency) {
            (Some(before), Some(after)) => Some(
                after
                    .iter()
                    .filter(|(event, latest)| before.get(*event) != Some(latest))
                    .map(|(event, (_, ms))| (event.clone(), *ms))
                    .collect(),
            ),
            _ => None,
        };
        let slowlog = match (&before.slowlog, &after.slowlog) {
            (Some(before), Some(after)) => {
                let last = before.iter().map(|(id, ..)| *id).max();
                let mut new: Vec<(String, u64)> = after
                    .iter()
                    .filter(|(id, ..)| last.is_none_or(|last| *id > last))
                    .map(|(_, us, command)| (command.clone(), *us))
                    .collect();
                new.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
                Some(new)
            }
            _ => None,
        };
        Self { latency, latency_is_on: after.latency_is_on, slowlog }
    }
}

/// How the memory came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBack {
    /// `used_memory` before the run, in bytes.
    pub used_before: Option<u64>,
    /// And in the end.
    pub used_after: Option<u64>,
    /// Values that still wait for the background thread; `None`: not told.
    pub pending_objects: Option<u64>,
    /// How long it was waited for.
    pub waited: Duration,
}

impl MemoryBack {
    /// Adds the memory of another server.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        let add = |mine: Option<u64>, theirs: Option<u64>| Some(mine?.saturating_add(theirs?));
        Self {
            used_before: add(self.used_before, other.used_before),
            used_after: add(self.used_after, other.used_after),
            pending_objects: add(self.pending_objects, other.pending_objects),
            waited: self.waited.max(other.waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_what_is_new_since_the_start_is_told() {
        let latest = |rows: &[(&str, (u64, u64))]| {
            Some(rows.iter().map(|(event, at)| ((*event).to_owned(), *at)).collect::<BTreeMap<_, _>>())
        };
        let before = Monitors {
            latency: latest(&[("command", (10, 300)), ("fork", (5, 20))]),
            latency_is_on: Some(true),
            slowlog: Some(vec![(7, 12_000, "KEYS".to_owned())]),
        };
        let after = Monitors {
            latency: latest(&[("command", (11, 40)), ("fork", (5, 20))]),
            latency_is_on: Some(true),
            slowlog: Some(vec![
                (9, 15_000, "DEL".to_owned()),
                (8, 40_000, "EVAL".to_owned()),
                (7, 12_000, "KEYS".to_owned()),
            ]),
        };
        let seen = Seen::between(&before, &after);
        assert_eq!(seen.latency, Some(vec![("command".to_owned(), 40)]));
        assert_eq!(seen.slowlog, Some(vec![("EVAL".to_owned(), 40_000), ("DEL".to_owned(), 15_000)]));
        assert_eq!(Seen::between(&Monitors::default(), &after).latency, None);
    }
}
