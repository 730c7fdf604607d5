//! What a scan needs to go on where it stopped: a cursor, and exactly what was counted up to it.
//!
//! With four things in flight, the cursor of the next page and the tally never belong together. So when a
//! checkpoint is due, no page is asked until all that is in flight is counted: some round trips every few
//! seconds. What is found after it is counted again by the scan that goes on.

use serde::{Deserialize, Serialize};

use crate::engine::key::{Role, ServerProfile};
use crate::engine::live::{Cursor, Keysizes};
use crate::engine::tally::{COUNT_MAX, StoredTally};

/// A scan of a server, as far as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Which server.
    pub(super) server: Identity,
    /// Its databases, with the keys that they held when the scan began.
    pub(super) databases: Vec<(u32, Option<u64>)>,
    /// Those that were scanned to their end.
    pub(super) done: Vec<u32>,
    /// The one that was begun.
    pub(super) begun: Option<Begun>,
    /// What was counted of all of them.
    pub(super) sums: StoredSums,
    pub(super) keysizes_before: Option<Keysizes>,
    pub(super) maybe_counted_twice: Option<String>,
}

/// A database that is not at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) db: u32,
    /// The page to go on with.
    pub(super) cursor: Cursor,
    /// What was counted of the databases before it: what stays, should the server restart.
    pub(super) sums_before: StoredSums,
}

/// What tells a server from another, and from itself after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    node: String,
    run_id: Option<String>,
    role: Role,
}

impl Identity {
    pub(super) fn of(profile: &ServerProfile) -> Self {
        Self { node: profile.node.clone(), run_id: profile.run_id.clone(), role: profile.role }
    }

    /// Says why cursors of this server mean nothing to that one.
    pub(super) fn is_not(&self, now: &Self) -> Option<&'static str> {
        if self.node != now.node {
            Some("it was of another server")
        } else if self.run_id.is_none() || now.run_id.is_none() {
            Some("the server does not tell its run_id, so it may have restarted")
        } else if self.run_id != now.run_id {
            Some("the server restarted, or is another one (its run_id changed)")
        } else if self.role != now.role {
            Some("the server changed its role, and with it perhaps all of its keys")
        } else {
            None
        }
    }
}

/// The sums of a walk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredSums {
    pub(super) tally: StoredTally,
    /// Sizes of the largest keys, which decide what is looked at closely.
    pub(super) largest: Vec<u64>,
    /// Database, type, size, keys.
    pub(super) keysizes: Vec<(u32, String, u64, u64)>,
    pub(super) keys_seen: u64,
    pub(super) keys_matched: u64,
    pub(super) duplicates: u64,
}

impl StoredSums {
    /// Returns whether the counts are some that can be added to.
    pub(super) fn is_sound(&self) -> bool {
        [self.keys_seen, self.keys_matched, self.duplicates].iter().all(|count| *count <= COUNT_MAX)
    }
}

impl Checkpoint {
    /// Returns how many keys were counted.
    pub fn keys_seen(&self) -> u64 {
        self.sums.keys_seen
    }
}
