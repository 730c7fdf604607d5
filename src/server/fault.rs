//! Faults on demand, for tests: a server that is slow, busy, moved, forbidden, or cut off in the
//! middle of a reply, at the very command where the test wants it.
//!
//! Faults are set through [`Faults`] by whoever holds the server's handle, or with
//! `DEBUG FAULT ADD` by a client. A server without faults pays one atomic load per command.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultAction {
    /// The command thread sleeps before the command: everyone waits.
    Delay(Duration),
    /// The connection is cut once this many more bytes of replies have been sent.
    DropAfter(usize),
    /// The command is not run and answered with this error: its code and text.
    Error(String),
    /// SCAN and its kind answer with this cursor in place of their own.
    Cursor(u64),
    /// SCAN and its kind return no elements, and the cursor they would have returned.
    EmptyPage,
    /// SCAN and its kind return each element twice.
    Duplicate,
    /// The command's keys are deleted before it runs.
    Vanish,
    /// The command's keys become strings before it runs.
    Retype,
}

impl FaultAction {
    /// Returns the error reply that a server gives in this state: `LOADING`, `BUSY`, `NOPERM`,
    /// `MOVED`, `ASK`, `READONLY`, `UNKNOWN`, `OOM`, `MASTERDOWN`, `CLUSTERDOWN` or `TRYAGAIN`.
    pub fn error(state: &str, command: &str) -> Option<FaultAction> {
        let text = match state.to_ascii_uppercase().as_str() {
            "LOADING" => "LOADING Redis is loading the dataset in memory".to_owned(),
            "BUSY" => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
                    .to_owned()
            }
            "NOPERM" => {
                format!("NOPERM this user has no permissions to run the '{command}' command")
            }
            "MOVED" => "MOVED 3999 127.0.0.1:6381".to_owned(),
            "ASK" => "ASK 3999 127.0.0.1:6381".to_owned(),
            "READONLY" => "READONLY You can't write against a read only replica.".to_owned(),
            "UNKNOWN" => format!("ERR unknown command '{command}', with args beginning with: "),
            "OOM" => "OOM command not allowed when used memory > 'maxmemory'.".to_owned(),
            "MASTERDOWN" => {
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.".to_owned()
            }
            "CLUSTERDOWN" => "CLUSTERDOWN The cluster is down".to_owned(),
            "TRYAGAIN" => "TRYAGAIN Multiple keys request during rehashing of slot".to_owned(),
            _ => return None,
        };
        Some(FaultAction::Error(text))
    }
}

/// When something goes wrong, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The command, or `container|subcommand`, in lower case; `*` is any but DEBUG.
    pub command: String,
    /// Only where this is one of the command's keys.
    pub key: Option<Vec<u8>>,
    /// Matching calls that still go well before the first that does not.
    pub skip: u64,
    /// Calls that go wrong before the fault is over; `None` is for ever.
    pub times: Option<u64>,
    /// What happens.
    pub action: FaultAction,
}

impl Fault {
    /// Returns a fault that strikes at each call of `command`.
    pub fn new(command: &str, action: FaultAction) -> Fault {
        Fault { command: command.to_ascii_lowercase(), key: None, skip: 0, times: None, action }
    }

    /// Limits it to the next `times` calls.
    #[must_use]
    pub fn times(self, times: u64) -> Fault {
        Fault { times: Some(times), ..self }
    }

    /// Lets `calls` matching calls pass first.
    #[must_use]
    pub fn after(self, calls: u64) -> Fault {
        Fault { skip: calls, ..self }
    }

    /// Limits it to one key.
    #[must_use]
    pub fn on_key(self, key: impl Into<Vec<u8>>) -> Fault {
        Fault { key: Some(key.into()), ..self }
    }

    fn matches(&self, command: &str, has_key: impl FnOnce(&[u8]) -> bool) -> bool {
        let named = if self.command == "*" {
            command != "debug"
        } else {
            // A container's name means all its subcommands.
            command == self.command || command.split('|').next() == Some(&self.command)
        };
        named && self.key.as_deref().is_none_or(has_key)
    }
}

/// The faults in force, shared between the server and whoever sets them.
#[derive(Debug, Default)]
pub struct Faults {
    armed: AtomicBool,
    rules: Mutex<Vec<Fault>>,
}

impl Faults {
    /// Adds a fault; several may strike the same call.
    pub fn add(&self, fault: Fault) {
        self.lock().push(fault);
        self.armed.store(true, Ordering::Release);
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.lock().clear();
        self.armed.store(false, Ordering::Release);
    }

    /// Returns the faults in force.
    pub fn list(&self) -> Vec<Fault> {
        self.lock().clone()
    }

    /// Returns what goes wrong with this call, and uses it up. The replica command `debug` is
    /// never struck by `*`, so that a test can always clear its faults.
    pub(crate) fn strike(&self, command: &str, has_key: impl Fn(&[u8]) -> bool) -> Vec<FaultAction> {
        if !self.armed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut rules = self.lock();
        let mut actions = Vec::new();
        for rule in rules.iter_mut().filter(|rule| rule.matches(command, &has_key)) {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            actions.push(rule.action.clone());
            if let Some(times) = &mut rule.times {
                *times = times.saturating_sub(1);
            }
        }
        rules.retain(|rule| rule.times != Some(0));
        self.armed.store(!rules.is_empty(), Ordering::Release);
        actions
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Fault>> {
        // A list of rules is whole after any of the operations above, panic or not.
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_where_and_as_often_as_it_was_told() {
        let faults = Faults::default();
        assert!(faults.strike("get", |_| true).is_empty());
        faults.add(Fault::new("GET", FaultAction::Vanish).on_key("a").after(1).times(2));
        let strike = |key: &str| !faults.strike("get", |wanted| wanted == key.as_bytes()).is_empty();
        assert_eq!(
            [strike("b"), strike("a"), strike("a"), strike("a"), strike("a")],
            [false, false, true, true, false]
        );
        assert!(faults.list().is_empty());
    }

    #[test]
    fn a_star_spares_debug_and_a_container_means_its_subcommands() {
        let faults = Faults::default();
        faults.add(Fault::new("*", FaultAction::Vanish));
        assert!(faults.strike("debug", |_| true).is_empty());
        assert_eq!(faults.strike("get", |_| true).len(), 1);
        faults.clear();
        faults.add(Fault::new("memory", FaultAction::EmptyPage));
        assert_eq!(faults.strike("memory|usage", |_| true), [FaultAction::EmptyPage]);
    }
}
