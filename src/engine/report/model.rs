//! The result of a scan as plain data, before any format.

use std::time::{Duration, SystemTime};

use crate::engine::key::{ServerProfile, SkipReason, Skipped};
use crate::engine::tally::{Census, ExpirySummary, Finding, PrefixSummary, SkipTally, SortBy};

/// Round trips of the canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatencySummary {
    /// Round trips measured.
    pub count: u64,
    /// Median.
    pub p50: Duration,
    /// 99th percentile. A one-off stall is invisible here.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
    /// Those over `--max-latency`.
    pub over_threshold: u64,
}

/// What another client waited, before the scan and during it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CanarySummary {
    /// The baseline.
    pub before: LatencySummary,
    /// While the scan ran.
    pub during: LatencySummary,
    /// `--max-latency`.
    pub threshold: Duration,
}

/// How fast it went, and what held it back.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PaceSummary {
    /// `--rate`, in commands per second. `None`: no limit.
    pub rate_limit: Option<f64>,
    /// Commands that the scan sent (the canary's not among them).
    pub commands: u64,
    /// Pipelines and calls: round trips.
    pub round_trips: u64,
    /// Times the guard slowed the scan down.
    pub slowdowns: u64,
    /// Times the connection was made again.
    pub reconnects: u32,
}

/// Keys that were seen and could not be measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SkipSummary {
    /// How many for each reason.
    pub counts: Vec<(SkipReason, u64)>,
    /// The first few of each reason, as examples.
    pub examples: Vec<Skipped>,
}

impl SkipSummary {
    /// Returns how many keys were skipped.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

impl From<&SkipTally> for SkipSummary {
    fn from(tally: &SkipTally) -> Self {
        Self { counts: tally.counts(), examples: tally.examples().to_vec() }
    }
}

/// Why a result is not whole.
#[derive(Debug, Clone, PartialEq)]
pub enum IncompleteReason {
    /// Ctrl-C.
    Interrupted,
    /// The guard stopped the run: the canary waited this long.
    Guard(Duration),
    /// The server could not be reached again.
    ConnectionLost(String),
    /// The server answered an error to SCAN itself.
    ScanRefused(String),
    /// A database could not be selected; the others were scanned.
    DatabaseRefused(String),
    /// The server restarted too often.
    RestartedTooOften,
    /// An output could not be written.
    OutputFailed,
    /// These slots of a cluster were not covered.
    SlotsNotCovered {
        /// As Redis writes them: `0-5460 7000`.
        slots: String,
        /// Why.
        why: String,
    },
    /// So many of several servers and clusters gave nothing.
    TargetsFailed(usize),
}

impl IncompleteReason {
    /// Returns the word used in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::Guard(_) => "guard",
            Self::ConnectionLost(_) => "connection_lost",
            Self::ScanRefused(_) => "scan_refused",
            Self::DatabaseRefused(_) => "database_refused",
            Self::RestartedTooOften => "restarted_too_often",
            Self::OutputFailed => "output_failed",
            Self::SlotsNotCovered { .. } => "slots_not_covered",
            Self::TargetsFailed(_) => "targets_failed",
        }
    }
}

/// Whether the result covers the keyspace.
#[derive(Debug, Clone, PartialEq)]
pub enum Completeness {
    /// Every cursor came back to 0, and every key seen was measured.
    Complete,
    /// Every cursor came back to 0, but some keys could not be measured.
    CompleteButSkipped,
    /// `--sample`: so many keys out of so many.
    Sampled {
        /// Keys measured.
        keys: u64,
        /// Keys there are. `None`: could not be asked.
        keys_total: Option<u64>,
    },
    /// It ended before.
    Partial(IncompleteReason),
}

impl Completeness {
    /// Returns the word used in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::CompleteButSkipped => "complete_but_skipped",
            Self::Sampled { .. } => "sampled",
            Self::Partial(_) => "partial",
        }
    }
}

/// `INFO keysizes` against what the scan found: keys with at least so many elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysizesCheck {
    /// Database.
    pub db: u32,
    /// Type, by the word in `INFO keysizes` (`sets`, `zsets`, ...).
    pub kind: String,
    /// At least so many elements (bytes for strings).
    pub at_least: u64,
    /// Keys that the server counted before the scan.
    pub expected_before: u64,
    /// Keys that the server counted after the scan. `None`: could not be asked again.
    pub expected_after: Option<u64>,
    /// Keys that the scan found.
    pub found: u64,
}

impl KeysizesCheck {
    /// Returns whether what was found lies between the server's two counts.
    pub fn holds(&self) -> bool {
        let after = self.expected_after.unwrap_or(self.expected_before);
        let (low, high) = (self.expected_before.min(after), self.expected_before.max(after));
        (low..=high).contains(&self.found)
    }
}

/// What of a cluster was scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// The address by which the cluster was named.
    pub target: String,
    /// Slots that were wanted: all 16384, or the one that a pattern fixes.
    pub slots_wanted: u32,
    /// Slots that were scanned from beginning to end while one shard held them.
    pub slots_covered: u32,
    /// Slots that moved meanwhile and were scanned again.
    pub slots_moved: u32,
    /// Those that were not covered, as Redis writes them.
    pub missing: String,
    /// Why not; empty where none is missing.
    pub why: String,
}

impl Coverage {
    /// Returns whether all were.
    pub fn is_whole(&self) -> bool {
        self.slots_covered == self.slots_wanted
    }
}

/// A server or cluster of which nothing could be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetFailure {
    /// Its address.
    pub target: String,
    /// Why.
    pub why: String,
}

/// The result of a scan.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanReport {
    /// When it began.
    pub started_at: SystemTime,
    /// How long it took.
    pub elapsed: Duration,
    /// The servers, with what each could do.
    pub servers: Vec<ServerProfile>,
    /// Databases that were scanned.
    pub dbs: Vec<u32>,
    /// Keys seen (each once, within the bounds of de-duplication).
    pub keys_seen: u64,
    /// Keys that passed the filters. Equal to `keys_measured` without filters.
    pub keys_matched: u64,
    /// Keys that SCAN returned again and that were not counted again.
    pub duplicates: u64,
    /// `DBSIZE` of the scanned databases, before and after.
    pub dbsize_before: Option<u64>,
    /// See `dbsize_before`. `None`: could not be asked again.
    pub dbsize_after: Option<u64>,
    /// Whether some keys may be counted twice, and why.
    pub maybe_counted_twice: Option<String>,
    /// Counts by type and encoding.
    pub census: Census,
    /// The heaviest prefixes.
    pub prefixes: PrefixSummary,
    /// When keys go, and expiry storms, among the keys whose TTL is known.
    pub expiry: ExpirySummary,
    /// The worst keys, worst first.
    pub top: Vec<Finding>,
    /// What "worst" means.
    pub sort_by: SortBy,
    /// Keys by level, in the order of [`crate::engine::risk::Level::ALL`], then unknown.
    pub levels: [u64; 6],
    /// Keys that could not be measured.
    pub skipped: SkipSummary,
    /// What another client waited.
    pub canary: CanarySummary,
    /// How fast it went.
    pub pace: PaceSummary,
    /// Whether it is whole.
    pub completeness: Completeness,
    /// `INFO keysizes` against what was found; empty where the server has none.
    pub keysizes: Vec<KeysizesCheck>,
    /// For each cluster, what of it was covered.
    pub coverage: Vec<Coverage>,
    /// Servers and clusters of which nothing could be had.
    pub failures: Vec<TargetFailure>,
    /// Things that a person should read.
    pub warnings: Vec<String>,
}
