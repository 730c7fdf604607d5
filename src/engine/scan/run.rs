//! From a configuration to a report.

use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime};

use crate::engine::event::{Event, Stop};
use crate::engine::key::{Access, KeyName, Role, ServerProfile, SkipReason};
use crate::engine::live::{
    Canary, CanaryState, ConnectError, ConnectErrorKind, Keysizes, Link, LinkError, Probe, SCAN_INTERVAL,
    databases_with_keys, dbsize, is_ready, probe_server, select,
};
use crate::engine::pace::{Guard, Histogram};
use crate::engine::report::{
    CanarySummary, Completeness, IncompleteReason, LatencySummary, PaceSummary, ScanReport, SkipSummary,
};

use super::config::{Databases, ScanConfig};
use super::error::ScanError;
use super::walk::{Ended, Walk};

/// Prefixes that the report lists.
const PREFIXES_SHOWN: usize = 20;
/// Expiry storms that the report lists.
const STORMS_SHOWN: usize = 5;
/// `MEMORY USAGE ... SAMPLES` for the keys of the top list, whose sizes people act on.
const TOP_SAMPLES: u32 = 100;
/// First wait before a server that is not ready is asked again; it doubles up to a second.
const NOT_READY_WAIT: Duration = Duration::from_millis(100);
/// Probes of a server that says `BUSY` in the middle of one.
const PROBES_MAX: u32 = 5;

/// A database and its number of keys, where that could be asked.
type Database = (u32, Option<u64>);

/// Scans one server.
///
/// `on_event` is called as the scan walks, ten times a second or more, and can end it; what was found until
/// then is in the report.
///
/// # Errors
/// When there is no result at all: no connection, no database, or SCAN itself refused.
pub async fn run(
    config: &ScanConfig,
    on_event: impl FnMut(Event<'_>) -> ControlFlow<Stop>,
) -> Result<ScanReport, ScanError> {
    walk(config, None, on_event).await
}

/// Names keys to look at, a page at a time.
pub trait KeySource {
    /// Returns the next keys of a database, a few hundred at the most; `None`: there are no more in it.
    fn next_page(&mut self, db: u32) -> Option<Vec<KeyName>>;
}

/// Looks at named keys as a scan looks at those that it finds. The databases must be named in the
/// configuration.
///
/// # Errors
/// As [`run`].
pub async fn look(
    config: &ScanConfig,
    keys: &mut dyn KeySource,
    on_event: impl FnMut(Event<'_>) -> ControlFlow<Stop>,
) -> Result<ScanReport, ScanError> {
    walk(config, Some(keys), on_event).await
}

async fn walk(
    config: &ScanConfig,
    mut named: Option<&mut dyn KeySource>,
    mut on_event: impl FnMut(Event<'_>) -> ControlFlow<Stop>,
) -> Result<ScanReport, ScanError> {
    let started_at = SystemTime::now();
    let started = Instant::now();
    let node = config.endpoint.address.to_string();
    let lost = |error: LinkError| ScanError::Lost { node: node.clone(), why: error.to_string() };

    let (link, profile) = get_ready(config, &node).await?;
    let guard = Guard::new(config.latency_max, config.latency_abort);
    let canary = Canary::start(&config.endpoint, guard, SCAN_INTERVAL).await.map_err(ScanError::Connect)?;
    let (databases, mut warnings) = databases(config, &link).await.map_err(lost)?;
    let keysizes_before = Keysizes::read(&link).await.map_err(lost)?;
    warnings.extend(warnings_of(config, &profile));

    let mut ended = match on_event(Event::Started(&profile)) {
        ControlFlow::Continue(()) => None,
        ControlFlow::Break(stop) => Some(Ended::Stopped(stop)),
    };
    for warning in &warnings {
        if ended.is_none()
            && let ControlFlow::Break(stop) = on_event(Event::Warning(warning.clone()))
        {
            ended = Some(Ended::Stopped(stop));
        }
    }
    let mut walk = Walk::new(config, profile, link, canary, sum(&databases), &mut on_event);
    let mut not_selected = None;
    for &(db, keys) in &databases {
        if ended.is_some() {
            break;
        }
        let walked = match &mut named {
            Some(source) => walk.named(db, &mut **source).await,
            None => walk.database(db, keys).await,
        };
        match walked {
            Ok(()) => {}
            // The others can still be had.
            Err(Ended::NoDatabase { db, message }) => {
                warnings.push(format!("database {db} cannot be selected, and was not scanned: {message}"));
                not_selected = Some(Ended::NoDatabase { db, message });
            }
            Err(why) => ended = Some(why),
        }
    }
    if ended.is_none() {
        ended = walk.measure_top_again(TOP_SAMPLES).await.err().or(not_selected);
    }
    if walk.keys_seen() == 0 {
        match &ended {
            Some(Ended::NoDatabase { db, message }) if databases.len() == 1 => {
                return Err(ScanError::Database { node, db: *db, message: message.clone() });
            }
            Some(Ended::Refused(message)) => {
                return Err(ScanError::ScanRefused { node, message: message.clone() });
            }
            _ => {}
        }
    }

    // The closing counts are worth a round trip, unless somebody is waiting.
    let (mut keysizes_after, mut dbsize_after) = (None, None);
    if matches!(ended, None | Some(Ended::NoDatabase { .. })) {
        keysizes_after = Keysizes::read(walk.link()).await.ok().flatten();
        dbsize_after = keys_of(&databases, walk.link()).await;
    }
    let closing = Closing {
        started_at,
        elapsed: started.elapsed(),
        databases,
        dbsize_after,
        keysizes_before,
        keysizes_after,
    };
    Ok(report(walk, ended, warnings, &closing))
}

/// Connects to a server that serves, and finds out what it is.
async fn get_ready(config: &ScanConfig, node: &str) -> Result<(Link, ServerProfile), ScanError> {
    let lost = |error: LinkError| ScanError::Lost { node: node.to_owned(), why: error.to_string() };
    let open = || Link::open(&config.endpoint, "bigkeys");
    let mut link = open().await.map_err(ScanError::Connect)?;
    let mut probes = 1;
    loop {
        wait_until_ready(config, &link).await?;
        let Probe { profile, is_hasty, link_is_clean } =
            probe_server(&link, node.to_owned()).await.map_err(lost)?;
        if !link_is_clean {
            link = open().await.map_err(ScanError::Connect)?;
        }
        if !is_hasty || probes == PROBES_MAX {
            return Ok((link, profile));
        }
        probes += 1;
        tokio::time::sleep(NOT_READY_WAIT).await;
    }
}

/// Waits while the server answers LOADING, BUSY or alike, as long as we wait for any answer.
async fn wait_until_ready(config: &ScanConfig, link: &Link) -> Result<(), ScanError> {
    let failed = |kind| ScanError::Connect(ConnectError { address: config.endpoint.address.clone(), kind });
    let since = Instant::now();
    let mut wait = NOT_READY_WAIT;
    loop {
        let answer = is_ready(link).await.map_err(|error| {
            failed(match error {
                LinkError::TimedOut(_) => ConnectErrorKind::TimedOut("PING"),
                LinkError::Dropped(why) => ConnectErrorKind::Io(why),
            })
        })?;
        let Err(why) = answer else { return Ok(()) };
        if since.elapsed() + wait > config.endpoint.timeouts.command {
            return Err(failed(ConnectErrorKind::NotReady(why)));
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}

/// Returns the databases to scan, and what to say of those that cannot be found out.
async fn databases(config: &ScanConfig, link: &Link) -> Result<(Vec<Database>, Vec<String>), LinkError> {
    let with_keys = databases_with_keys(link).await?;
    match (&config.databases, &with_keys) {
        (Databases::Only(dbs), Some(found)) => {
            Ok((dbs.iter().map(|db| (*db, Some(found.get(db).copied().unwrap_or(0)))).collect(), Vec::new()))
        }
        (Databases::Only(dbs), None) => {
            let mut counted = Vec::with_capacity(dbs.len());
            for &db in dbs {
                let keys = if select(link, db).await?.is_ok() { dbsize(link).await? } else { None };
                counted.push((db, keys));
            }
            Ok((counted, Vec::new()))
        }
        (Databases::All, Some(found)) => {
            Ok((found.iter().map(|(db, keys)| (*db, Some(*keys))).collect(), Vec::new()))
        }
        (Databases::All, None) => every_database(link).await,
    }
}

/// Looks for databases one by one, where INFO is refused: until the server says that there is no such
/// one.
async fn every_database(link: &Link) -> Result<(Vec<Database>, Vec<String>), LinkError> {
    // `databases` in redis.conf has no bound of its own; 16 is its default.
    const DATABASES_MAX: u32 = 1024;
    let mut found = Vec::new();
    for db in 0..DATABASES_MAX {
        if let Err(refusal) = select(link, db).await? {
            if db > 1 || refusal.message.contains("out of range") {
                break;
            }
            let warning = format!(
                "INFO and SELECT are refused ({}): only database 0 is scanned, and whether others hold keys is not \
                 known",
                refusal.message
            );
            return Ok((vec![(0, dbsize(link).await?)], vec![warning]));
        }
        match dbsize(link).await? {
            Some(0) => {}
            keys => found.push((db, keys)),
        }
    }
    if found.is_empty() {
        found.push((0, Some(0)));
    }
    Ok((found, Vec::new()))
}

/// Counts the keys of some databases again. `None`: could not be asked.
async fn keys_of(databases: &[Database], link: &Link) -> Option<u64> {
    let found = databases_with_keys(link).await.ok().flatten()?;
    let again: Vec<Database> =
        databases.iter().map(|(db, _)| (*db, Some(found.get(db).copied().unwrap_or(0)))).collect();
    sum(&again)
}

/// Adds the keys of databases up; `None` when one of them is not known.
fn sum(databases: &[Database]) -> Option<u64> {
    databases.iter().try_fold(0_u64, |sum, (_, keys)| keys.map(|keys| sum.saturating_add(keys)))
}

/// Says what a person must know before the scan begins.
fn warnings_of(config: &ScanConfig, profile: &ServerProfile) -> Vec<String> {
    let mut warnings = Vec::new();
    if profile.role != Role::Replica && profile.lazyfree.expire == Some(false) {
        warnings.push(
            "this primary has lazyfree-lazy-expire no: a key past its TTL is freed on the command thread by \
             whoever looks it up, SCAN included; `CONFIG SET lazyfree-lazy-expire yes`, or scan a replica"
                .to_owned(),
        );
    }
    if profile.cluster {
        warnings.push("this is one node of a cluster: only the keys of this node are scanned".to_owned());
    }
    if config.exact_lists && !profile.allows(Access::DebugObject) {
        warnings.push("DEBUG OBJECT is not allowed: list nodes are estimated, not counted".to_owned());
    }
    warnings
}

struct Closing {
    started_at: SystemTime,
    elapsed: Duration,
    databases: Vec<Database>,
    dbsize_after: Option<u64>,
    keysizes_before: Option<Keysizes>,
    keysizes_after: Option<Keysizes>,
}

fn report<F>(
    walk: Walk<'_, F>,
    ended: Option<Ended>,
    mut warnings: Vec<String>,
    closing: &Closing,
) -> ScanReport
where
    F: FnMut(Event<'_>) -> ControlFlow<Stop>,
{
    let dbs: Vec<u32> = closing.databases.iter().map(|(db, _)| *db).collect();
    let dbsize_before = sum(&closing.databases);
    let config = walk.config();
    let checks_keysizes = ended.is_none() && config.filter.is_empty() && config.sample_keys.is_none();
    let done = walk.finish();
    let keysizes = if checks_keysizes {
        done.keysizes.check(closing.keysizes_before.as_ref(), closing.keysizes_after.as_ref(), &dbs)
    } else {
        Vec::new()
    };
    let completeness = match ended {
        Some(ended) => Completeness::Partial(ended.reason()),
        None => match config.sample_keys {
            Some(_) if dbsize_before.is_none_or(|total| done.keys_seen < total) => {
                Completeness::Sampled { keys: done.keys_seen, keys_total: dbsize_before }
            }
            _ if done.tally.skips.counts().iter().all(|(why, _)| *why == SkipReason::Vanished) => {
                Completeness::Complete
            }
            _ => Completeness::CompleteButSkipped,
        },
    };
    if let Some(why) = &done.canary.blind {
        warnings.push(format!("the canary lost its connection and could not watch to the end: {why}"));
    }
    let sort_by = done.tally.top.sort_by();
    let resized = table_was_resized(dbsize_before, closing.dbsize_after).then(|| {
        "the number of keys passed a power of two: the key table was resized during the scan, and a key that \
         SCAN repeated much later may be counted twice"
            .to_owned()
    });
    ScanReport {
        started_at: closing.started_at,
        elapsed: closing.elapsed,
        servers: vec![done.profile],
        dbs,
        keys_seen: done.keys_seen,
        keys_matched: done.keys_matched,
        duplicates: done.duplicates,
        dbsize_before,
        dbsize_after: closing.dbsize_after,
        maybe_counted_twice: done.maybe_counted_twice.or(resized),
        census: done.tally.census,
        levels: done.tally.levels.0,
        prefixes: done.tally.prefixes.heaviest(PREFIXES_SHOWN, sort_by),
        expiry: done.tally.expiry.summary(STORMS_SHOWN),
        sort_by,
        skipped: SkipSummary::from(&done.tally.skips),
        top: done.tally.top.into_sorted(),
        canary: canary_summary(&done.canary, config.latency_max),
        pace: PaceSummary {
            rate_limit: config.rate,
            commands: done.commands,
            round_trips: done.round_trips,
            slowdowns: done.slowdowns,
            reconnects: done.reconnects,
        },
        completeness,
        keysizes,
        warnings,
    }
}

/// A key table has a power of two of buckets, and grows when it holds that many keys.
fn table_was_resized(keys_before: Option<u64>, keys_after: Option<u64>) -> bool {
    let power = |keys: u64| keys.checked_ilog2();
    matches!((keys_before, keys_after), (Some(before), Some(after)) if power(before) != power(after))
}

pub(crate) fn canary_summary(canary: &CanaryState, threshold: Duration) -> CanarySummary {
    let summary = |histogram: &Histogram| LatencySummary {
        count: histogram.count(),
        p50: histogram.quantile(0.5),
        p99: histogram.quantile(0.99),
        max: histogram.max(),
        over_threshold: histogram.over_threshold(),
    };
    CanarySummary { before: summary(&canary.before), during: summary(&canary.during), threshold }
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
