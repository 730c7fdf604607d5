//! What a deletion says as it works.

use std::time::Duration;

use crate::engine::event::Event;
use crate::engine::key::KeyName;

use super::audit::KeyResult;
use super::plan::PlannedKey;

/// How far a deletion is.
#[derive(Debug, Clone, PartialEq)]
pub struct DeleteProgress {
    /// Keys whose outcome is known.
    pub keys: u64,
    /// Keys of the plan.
    pub keys_total: u64,
    /// What is being taken apart, and how many elements of how many are gone.
    pub taking_apart: Option<(KeyName, u64, Option<u64>)>,
    /// The canary's last round trip.
    pub canary: Duration,
}

/// What became of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyOutcome {
    /// The result.
    pub result: KeyResult,
    /// What there is to say.
    pub detail: Option<String>,
    /// Chunks that it took.
    pub chunks: u64,
    /// The slowest of them, or the script that the key went with. `None`: it went in one command.
    pub slowest_chunk: Option<Duration>,
    /// Time that it took.
    pub elapsed: Duration,
    /// The longest that the canary waited meanwhile. `None`: no PING came back in so short a time.
    pub victim_max: Option<Duration>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum DeleteEvent<'a> {
    /// While the plan is made: what the scan says.
    Scan(Event<'a>),
    /// Ten times a second while keys are deleted: how far it is, and an opportunity to stop.
    Progress(DeleteProgress),
    /// A key's outcome is known.
    Outcome(&'a PlannedKey, &'a KeyOutcome),
    /// The server is left in peace for a while.
    Held(&'a str),
    /// The reason is gone, after so long.
    Released(Duration),
    /// The guard slowed the run down: the canary waited so long.
    SlowedDown(Duration),
    /// The connection is gone and is being made again.
    Reconnecting(&'a str),
    /// Something that a person should read.
    Warning(&'a str),
}
