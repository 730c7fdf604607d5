//! What the engine says as it works. It speaks through a callback and never prints.

use std::time::Duration;

use super::key::{KeyName, Kind, Skipped};
use super::scan::Checkpoint;
use super::tally::Finding;

/// How far a scan is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Database being scanned.
    pub db: u32,
    /// Keys seen so far, over all databases.
    pub keys: u64,
    /// Keys there were in the scanned databases when the scan began. `None`: could not be asked.
    pub keys_total: Option<u64>,
    /// Commands per second, over the last while.
    pub commands_per_second: f64,
    /// Keys per second, over the last while.
    pub keys_per_second: f64,
    /// The key with the most allocations so far.
    pub biggest: Option<(KeyName, Kind, u64)>,
    /// How far each server is; empty where there is only one.
    pub nodes: Vec<NodeProgress>,
}

/// How far a scan is on one of several servers.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeProgress {
    /// Address.
    pub node: String,
    /// Keys seen so far.
    pub keys: u64,
    /// Keys there were. `None`: could not be asked.
    pub keys_total: Option<u64>,
    /// Keys per second, over the last while.
    pub keys_per_second: f64,
    /// Nothing more is asked of it.
    pub is_done: bool,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// A server was probed, and the scan begins there. The first is number 0 of the findings, and so on.
    Started(&'a super::key::ServerProfile),
    /// Ten times a second: how far the scan is.
    Progress(Progress),
    /// A finding passed the filters. Streaming outputs write it; it is not kept.
    Finding(&'a Finding),
    /// A key was seen but could not be measured.
    Skipped(&'a Skipped),
    /// The guard slowed the scan down.
    SlowedDown {
        /// The canary's round trip that did it.
        latency: Duration,
        /// The pace from now on, in commands per second.
        commands_per_second: f64,
    },
    /// The connection is gone and is being made again.
    Reconnecting {
        /// Which attempt this is, from 1.
        attempt: u32,
        /// How long until it is made.
        wait: Duration,
        /// What happened to the old one.
        why: String,
    },
    /// The server restarted, so its cursors mean nothing now: the database is scanned from the start.
    Restarted {
        /// The database that begins again.
        db: u32,
    },
    /// All that was found so far is counted in this.
    Checkpoint(&'a Checkpoint),
    /// The checkpoint is of no use here: all findings come anew.
    BegunAnew,
    /// Something that a person should read.
    Warning(String),
}

/// What the listener wants of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A person asked (Ctrl-C): report what was found so far.
    Interrupted,
    /// An output cannot be written any more.
    OutputFailed,
    /// The reader of the output is gone (a closed pipe): end quietly.
    OutputClosed,
}
