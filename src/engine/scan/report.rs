//! From the scans of servers to one report.

use std::time::{Duration, Instant, SystemTime};

use crate::engine::key::{ServerProfile, SkipReason};
use crate::engine::live::{CanaryState, Keysizes, KeysizesRow};
use crate::engine::pace::Histogram;
use crate::engine::report::{
    CanarySummary, Completeness, Coverage, IncompleteReason, LatencySummary, PaceSummary, ScanReport,
    SkipSummary, TargetFailure,
};
use crate::engine::tally::Tally;

use super::config::ScanConfig;
use super::deployment::Deployment;
use super::keysizes::KeysizesFound;
use super::node::{NodeScan, sum};
use super::walk::Ended;
use crate::engine::event::Stop;

/// Prefixes that the report lists.
const PREFIXES_SHOWN: usize = 20;
/// Expiry storms that the report lists.
const STORMS_SHOWN: usize = 5;

/// All that is known when the last server is done.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) scans: Vec<NodeScan>,
    /// For each cluster, what of it was covered.
    pub(super) coverage: Vec<Coverage>,
    /// Servers and clusters of which nothing could be had.
    pub(super) failures: Vec<TargetFailure>,
    /// All servers, by the numbers that findings have.
    pub(super) servers: Vec<ServerProfile>,
    pub(super) warnings: Vec<String>,
    /// Keys may be counted twice for a reason that is no single server's.
    pub(super) maybe_counted_twice: Option<String>,
}

impl Outcome {
    pub(super) fn add(&mut self, deployment: Deployment) {
        self.scans.extend(deployment.scans);
        self.coverage.extend(deployment.coverage);
        if deployment.maybe_counted_twice.is_some() {
            self.maybe_counted_twice = deployment.maybe_counted_twice;
        }
    }
}

pub(super) fn report(
    config: &ScanConfig,
    outcome: Outcome,
    started_at: SystemTime,
    started: Instant,
) -> ScanReport {
    let Outcome { scans, coverage, failures, mut servers, warnings, mut maybe_counted_twice } = outcome;
    let mut tally = Tally::new(config.top, config.sort_by);
    let mut canary = CanarySums::new(config.latency_max);
    let mut pace = PaceSummary { rate_limit: config.rate, ..PaceSummary::default() };
    let (mut keys_seen, mut keys_matched, mut duplicates) = (0, 0, 0);
    let (mut before, mut after) = (Some(0_u64), Some(0_u64));
    let mut dbs = Vec::new();
    let mut reasons = Vec::new();
    let mut sizes = Sizes::new(config);
    let add = |sum: &mut Option<u64>, keys: Option<u64>| {
        *sum = sum.zip(keys).map(|(sum, keys)| sum.saturating_add(keys));
    };
    for scan in scans {
        let NodeScan { done, ended, databases, dbsize_after, keysizes_before, keysizes_after, .. } = scan;
        let keys_before = sum(&databases);
        add(&mut before, keys_before);
        add(&mut after, dbsize_after);
        if table_was_resized(keys_before, dbsize_after) {
            maybe_counted_twice.get_or_insert_with(|| RESIZED.to_owned());
        }
        if let Some(why) = done.maybe_counted_twice {
            maybe_counted_twice = Some(why);
        }
        dbs.extend(databases.iter().map(|(db, _)| *db));
        sizes.add(done.keysizes, keysizes_before, keysizes_after, ended.is_none());
        reasons.extend(ended.map(Ended::reason));
        tally.merge(done.tally);
        canary.add(&done.canary);
        keys_seen += done.keys_seen;
        keys_matched += done.keys_matched;
        duplicates += done.duplicates;
        pace.commands += done.commands;
        pace.round_trips += done.round_trips;
        pace.slowdowns += done.slowdowns;
        pace.reconnects += done.reconnects;
        // As it was at the end: it may have restarted.
        if let Some(server) = servers.get_mut(done.server) {
            *server = done.profile;
        }
    }
    dbs.sort_unstable();
    dbs.dedup();
    reasons.extend(coverage.iter().filter(|coverage| !coverage.is_whole()).map(|coverage| {
        IncompleteReason::SlotsNotCovered { slots: coverage.missing.clone(), why: coverage.why.clone() }
    }));
    if !failures.is_empty() {
        reasons.push(IncompleteReason::TargetsFailed(failures.len()));
    }
    let keysizes = if reasons.is_empty() && coverage.iter().all(|coverage| coverage.slots_moved == 0) {
        sizes.check(&dbs)
    } else {
        Vec::new()
    };
    let completeness = match reasons.into_iter().max_by_key(gravity) {
        Some(reason) => Completeness::Partial(reason),
        None => match config.sample_keys {
            Some(_) if before.is_none_or(|total| keys_seen < total) => {
                Completeness::Sampled { keys: keys_seen, keys_total: before }
            }
            _ if tally.skips.counts().iter().all(|(why, _)| *why == SkipReason::Vanished) => {
                Completeness::Complete
            }
            _ => Completeness::CompleteButSkipped,
        },
    };
    let sort_by = tally.top.sort_by();
    ScanReport {
        started_at,
        elapsed: started.elapsed(),
        servers,
        dbs,
        keys_seen,
        keys_matched,
        duplicates,
        dbsize_before: before,
        dbsize_after: after,
        maybe_counted_twice,
        census: tally.census,
        levels: tally.levels.0,
        prefixes: tally.prefixes.heaviest(PREFIXES_SHOWN, sort_by),
        expiry: tally.expiry.summary(STORMS_SHOWN),
        sort_by,
        skipped: SkipSummary::from(&tally.skips),
        top: tally.top.into_sorted(),
        canary: canary.summary(),
        pace,
        completeness,
        keysizes,
        coverage,
        failures,
        warnings,
    }
}

const RESIZED: &str = "the number of keys passed a power of two: the key table was resized during the scan, and a \
                       key that SCAN repeated much later may be counted twice";

/// A key table has a power of two of buckets, and grows when it holds that many keys.
fn table_was_resized(keys_before: Option<u64>, keys_after: Option<u64>) -> bool {
    let power = |keys: u64| keys.checked_ilog2();
    matches!((keys_before, keys_after), (Some(before), Some(after)) if power(before) != power(after))
}

/// Which of several reasons is told: what somebody asked for, then what stopped everything.
fn gravity(reason: &IncompleteReason) -> u8 {
    match reason {
        IncompleteReason::Guard(_) => 7,
        IncompleteReason::OutputFailed => 6,
        IncompleteReason::Interrupted => 5,
        IncompleteReason::SlotsNotCovered { .. } => 4,
        IncompleteReason::TargetsFailed(_) => 3,
        IncompleteReason::RestartedTooOften => 2,
        IncompleteReason::ConnectionLost(_) | IncompleteReason::ScanRefused(_) => 1,
        IncompleteReason::DatabaseRefused(_) => 0,
    }
}

/// `INFO keysizes` of all servers together.
struct Sizes {
    found: KeysizesFound,
    before: Option<Keysizes>,
    after: Option<Keysizes>,
    is_whole: bool,
}

impl Sizes {
    fn new(config: &ScanConfig) -> Self {
        Self {
            found: KeysizesFound::default(),
            before: Some(Keysizes::default()),
            after: Some(Keysizes::default()),
            is_whole: config.filter.is_empty() && config.sample_keys.is_none(),
        }
    }

    fn add(
        &mut self,
        found: KeysizesFound,
        before: Option<Keysizes>,
        after: Option<Keysizes>,
        is_whole: bool,
    ) {
        self.is_whole &= is_whole;
        self.found.merge(found);
        let join = |sum: &mut Option<Keysizes>, more: Option<Keysizes>| {
            *sum = sum.take().zip(more).map(|(sum, more)| joined(sum, more));
        };
        join(&mut self.before, before);
        join(&mut self.after, after);
    }

    fn check(&self, dbs: &[u32]) -> Vec<crate::engine::report::KeysizesCheck> {
        if !self.is_whole {
            return Vec::new();
        }
        self.found.check(self.before.as_ref(), self.after.as_ref(), dbs)
    }
}

/// Rows of the same database and type add their bins up.
fn joined(mut sum: Keysizes, more: Keysizes) -> Keysizes {
    for row in more.rows {
        match sum.rows.iter_mut().find(|held| held.db == row.db && held.kind == row.kind) {
            Some(held) => held.bins.extend(row.bins),
            None => sum.rows.push(KeysizesRow { ..row }),
        }
    }
    sum
}

/// The canaries of all servers together.
#[derive(Debug, Clone)]
pub(crate) struct CanarySums {
    before: Histogram,
    during: Histogram,
    threshold: Duration,
}

impl CanarySums {
    pub(crate) fn new(threshold: Duration) -> Self {
        Self { before: Histogram::new(threshold), during: Histogram::new(threshold), threshold }
    }

    pub(crate) fn add(&mut self, canary: &CanaryState) {
        self.before.merge(&canary.before);
        self.during.merge(&canary.during);
    }

    pub(crate) fn summary(&self) -> CanarySummary {
        CanarySummary {
            before: latency(&self.before),
            during: latency(&self.during),
            threshold: self.threshold,
        }
    }
}

fn latency(histogram: &Histogram) -> LatencySummary {
    LatencySummary {
        count: histogram.count(),
        p50: histogram.quantile(0.5),
        p99: histogram.quantile(0.99),
        max: histogram.max(),
        over_threshold: histogram.over_threshold(),
    }
}

impl Ended {
    fn reason(self) -> IncompleteReason {
        match self {
            Self::Stopped(Stop::Interrupted) => IncompleteReason::Interrupted,
            Self::Stopped(Stop::OutputFailed | Stop::OutputClosed) => IncompleteReason::OutputFailed,
            Self::Guard(latency) => IncompleteReason::Guard(latency),
            Self::Lost(why) => IncompleteReason::ConnectionLost(why),
            Self::Refused(message) => IncompleteReason::ScanRefused(message),
            Self::NoDatabase { db, message } => {
                IncompleteReason::DatabaseRefused(format!("SELECT {db}: {message}"))
            }
            Self::RestartedTooOften => IncompleteReason::RestartedTooOften,
        }
    }
}
