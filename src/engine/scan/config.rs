//! What a scan is told.

use std::time::Duration;

use regex::bytes::Regex;

use crate::engine::key::{Encoding, Kind};
use crate::engine::live::{Address, AddressRule, Endpoint};
use crate::engine::risk::{Level, Thresholds};
use crate::engine::tally::SortBy;

use super::checkpoint::Checkpoint;

/// Which databases to scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Databases {
    /// Every database that holds keys.
    All,
    /// These.
    Only(Vec<u32>),
}

/// What is at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetKind {
    /// A server; if it says that it is of a cluster, the cluster.
    Auto,
    /// This server and no other.
    OneNode,
    /// A node of a cluster, and an error if it is none.
    Cluster,
    /// Sentinels, which know the group by this name. They are asked in turn.
    Sentinel {
        /// `sentinel monitor NAME`
        name: String,
        /// The Sentinels after the first.
        others: Vec<Address>,
    },
}

/// What to scan: one server, cluster or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// How to get in.
    pub endpoint: Endpoint,
    /// Which databases.
    pub databases: Databases,
    /// What is there.
    pub kind: TargetKind,
}

/// Which servers of a deployment to scan, where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// Replicas in a cluster and behind Sentinel; else the server that was named.
    #[default]
    Auto,
    /// Replicas, if there are any.
    Replica,
    /// Primaries.
    Primary,
}

/// `--ttl`: which time to live a key must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TtlFilter {
    /// None at all.
    Never,
    /// Less than this.
    Under(Duration),
    /// More than this.
    Over(Duration),
}

/// Which keys are wanted. All conditions must hold; those left empty always do.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Globs (Redis's own), one of which must match.
    pub globs: Vec<Vec<u8>>,
    /// Globs, none of which may match.
    pub exclude_globs: Vec<Vec<u8>>,
    /// Regular expression on the bytes of the name.
    pub regex: Option<Regex>,
    /// Types, one of which it must be.
    pub kinds: Vec<Kind>,
    /// Encodings, one of which it must have.
    pub encodings: Vec<Encoding>,
    /// At least so many bytes of memory.
    pub bytes_min: Option<u64>,
    /// At least so many elements.
    pub elements_min: Option<u64>,
    /// At least so many allocations.
    pub allocations_min: Option<u64>,
    /// At least this level. An unknown level passes: what is not known is shown.
    pub level_min: Option<Level>,
    /// Time to live.
    pub ttl: Option<TtlFilter>,
    /// Not accessed for longer than this.
    pub idle_over: Option<Duration>,
}

/// Elements asked of each SCAN call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Adapted to the measured time of the last call.
    Auto,
    /// Always this.
    Fixed(u32),
}

/// Whether the scan can go on another time.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    /// Time between two of them.
    pub period: Duration,
    /// Where to go on.
    pub resumed: Option<Box<Checkpoint>>,
}

/// Everything that a scan is told.
#[derive(Debug, Clone)]
pub struct ScanConfig {
    /// The servers, clusters and groups.
    pub targets: Vec<Target>,
    /// Primaries or replicas.
    pub preference: Preference,
    /// Where servers are reached that tell another address.
    pub address_rules: Vec<AddressRule>,
    /// Which keys.
    pub filter: Filter,
    /// `--all-keys`: ask everything of every key, and report every key.
    pub all_keys: bool,
    /// Every key that matches is an [`crate::engine::event::Event::Finding`], with its time to live, however
    /// small it is: for those who act on what is found.
    pub finds_every_match: bool,
    /// `--sample N`: measure about so many keys, at random cursors.
    pub sample_keys: Option<u64>,
    /// Commands per second, on all servers together; `None` is no limit.
    pub rate: Option<f64>,
    /// Commands per second on each server; `None` is no limit.
    pub rate_per_node: Option<f64>,
    /// Elements asked of each SCAN call.
    pub count: Count,
    /// Canary round trip above which the pace halves.
    pub latency_max: Duration,
    /// Canary round trip above which the run stops.
    pub latency_abort: Duration,
    /// `MEMORY USAGE ... SAMPLES`; 0 (all elements) only where the operator insists.
    pub memory_samples: u32,
    /// `--exact-lists`: count quicklist nodes with DEBUG OBJECT where that is allowed.
    pub exact_lists: bool,
    /// Lists above this size are estimated all the same: DEBUG OBJECT serialises the whole value.
    pub exact_list_bytes_max: u64,
    /// Length of the top list.
    pub top: usize,
    /// Its order.
    pub sort_by: SortBy,
    /// Where the levels begin.
    pub thresholds: Thresholds,
    /// `--checkpoint`: of one server, and of all of its keys.
    pub checkpoints: Option<Checkpoints>,
}
