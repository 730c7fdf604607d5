//! From a configuration to a report.

use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime};

use crate::engine::event::{Event, Stop};
use crate::engine::key::{Access, Permission, Role, ServerProfile, SkipReason};
use crate::engine::live::{
    Canary, CanaryState, ConnectError, ConnectErrorKind, Keysizes, Link, LinkError, RefusalKind,
    databases_with_keys, dbsize, probe_server,
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

/// Scans one server.
///
/// `on_event` is called as the scan works, at least every 100 ms, and can end it; what was found until
/// then is in the report.
///
/// # Errors
/// When there is no result at all: no connection, no database, or SCAN itself refused.
pub async fn run(
    config: &ScanConfig,
    mut on_event: impl FnMut(Event<'_>) -> ControlFlow<Stop>,
) -> Result<ScanReport, ScanError> {
    let started_at = SystemTime::now();
    let started = Instant::now();
    let node = config.endpoint.address.to_string();

    let link = Link::open(&config.endpoint, "bigkeys").await.map_err(ScanError::Connect)?;
    wait_until_ready(config, &link).await?;
    let lost = |error: LinkError| ScanError::Lost { node: node.clone(), why: error.to_string() };
    let profile = probe_server(&link, node.clone()).await.map_err(lost)?;
    let guard = Guard::new(config.latency_max, config.latency_abort);
    let canary = Canary::start(&config.endpoint, guard).await.map_err(ScanError::Connect)?;
    let databases = databases(config, &link, &node).await?;
    let keysizes_before = Keysizes::read(&link).await.map_err(lost)?;
    let warnings = warnings(config, &profile);

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
    let keys_total = databases.iter().map(|(_, keys)| keys).sum();
    let mut walk = Walk::new(config, profile, link, canary, keys_total, &mut on_event);
    for &(db, keys) in &databases {
        if ended.is_some() {
            break;
        }
        ended = walk.database(db, keys).await.err();
    }
    if let Some(Ended::Refused { db, message }) = &ended
        && walk.keys_seen() == 0
    {
        return Err(if message.contains("DB index") || message.contains("SELECT") {
            ScanError::Database { node, db: *db, message: message.clone() }
        } else {
            ScanError::ScanRefused { node, message: message.clone() }
        });
    }

    let dbs: Vec<u32> = databases.iter().map(|(db, _)| *db).collect();
    // The top list and the closing counts are worth a little more time, unless somebody is waiting.
    let (mut keysizes_after, mut dbsize_after) = (None, None);
    if !matches!(ended, Some(Ended::Stopped(_) | Ended::Lost(_) | Ended::Guard(_))) {
        walk.measure_top_again(TOP_SAMPLES).await;
        keysizes_after = Keysizes::read(walk.link()).await.ok().flatten();
        dbsize_after = keys_of(&dbs, walk.link()).await;
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

/// Waits while the server answers LOADING, BUSY or MASTERDOWN, as long as we wait for any answer.
async fn wait_until_ready(config: &ScanConfig, link: &Link) -> Result<(), ScanError> {
    let failed = |kind| ScanError::Connect(ConnectError { address: config.endpoint.address.clone(), kind });
    let deadline = Instant::now() + config.endpoint.timeouts.command;
    let mut wait = NOT_READY_WAIT;
    loop {
        let reply = link.command(&redis::cmd("PING")).await.map_err(|error| {
            failed(match error {
                LinkError::TimedOut(_) => ConnectErrorKind::TimedOut("PING"),
                LinkError::Dropped(why) => ConnectErrorKind::Io(why),
            })
        })?;
        match reply {
            Err(refusal) if refusal.kind == RefusalKind::NotNow => {
                if Instant::now() + wait > deadline {
                    return Err(failed(ConnectErrorKind::NotReady(refusal.message)));
                }
            }
            _ => return Ok(()),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}

/// Returns the databases to scan, each with its number of keys.
async fn databases(config: &ScanConfig, link: &Link, node: &str) -> Result<Vec<(u32, u64)>, ScanError> {
    let lost = |error: LinkError| ScanError::Lost { node: node.to_owned(), why: error.to_string() };
    let with_keys = databases_with_keys(link).await.map_err(lost)?;
    let keys = |db: u32| with_keys.as_ref().and_then(|found| found.get(&db).copied());
    match &config.databases {
        Databases::Only(dbs) => Ok(dbs.iter().map(|&db| (db, keys(db).unwrap_or(0))).collect()),
        Databases::All => match &with_keys {
            Some(found) => Ok(found.iter().map(|(db, keys)| (*db, *keys)).collect()),
            None => every_database(link).await.map_err(lost),
        },
    }
}

/// Looks for databases one by one, where INFO is refused: until the server says that there is no such
/// one. Leaves database 0 selected.
async fn every_database(link: &Link) -> Result<Vec<(u32, u64)>, LinkError> {
    // `databases` in redis.conf has no bound of its own; 16 is its default.
    const DATABASES_MAX: u32 = 1024;
    let mut found = Vec::new();
    for db in 0..DATABASES_MAX {
        if link.command(redis::cmd("SELECT").arg(db)).await?.is_err() {
            break;
        }
        match dbsize(link).await? {
            Some(0) => {}
            keys => found.push((db, keys.unwrap_or(0))),
        }
    }
    if found.is_empty() {
        found.push((0, 0));
    }
    let _ = link.command(redis::cmd("SELECT").arg(0)).await?;
    Ok(found)
}

/// Counts the keys of some databases again. `None`: could not be asked.
async fn keys_of(dbs: &[u32], link: &Link) -> Option<u64> {
    let found = databases_with_keys(link).await.ok().flatten()?;
    Some(dbs.iter().map(|db| found.get(db).copied().unwrap_or(0)).sum())
}

/// Says what a person must know before the scan begins.
fn warnings(config: &ScanConfig, profile: &ServerProfile) -> Vec<String> {
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
        warnings.push(
            "DEBUG OBJECT is not allowed: --exact-lists has no effect, list nodes are estimated".to_owned(),
        );
    }
    warnings
}

/// Says what could not be asked, and what the report rests on instead.
fn fallbacks(profile: &ServerProfile) -> Vec<String> {
    let refused = |access: &Access| {
        matches!(profile.access.get(access), Some(Permission::Denied | Permission::Unsupported))
    };
    let instead = [
        (Access::MemoryUsage, "sizes are modelled from lengths and encodings"),
        (Access::ObjectEncoding, "effort and allocations are unknown wherever they depend on it"),
        (
            Access::ConfigGet,
            "what DEL, expiry and overwriting do rests on the defaults of this version, and is unknown where \
             that matters",
        ),
        (Access::Info, "version, role and allocator are unknown"),
        (Access::Xinfo, "what freeing a stream takes is unknown"),
        (Access::ClientNoTouch, "asking the length of a large key counted as an access to it"),
    ];
    instead
        .iter()
        .filter(|(access, _)| refused(access))
        .map(|(access, fallback)| format!("{} is refused or unknown here: {fallback}", access.as_str()))
        .collect()
}

struct Closing {
    started_at: SystemTime,
    elapsed: Duration,
    databases: Vec<(u32, u64)>,
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
    let dbsize_before = closing.databases.iter().map(|(_, keys)| keys).sum();
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
            Some(_) if done.keys_seen < dbsize_before => {
                Completeness::Sampled { keys: done.keys_seen, keys_total: dbsize_before }
            }
            _ if done.tally.skips.counts().iter().all(|(why, _)| *why == SkipReason::Vanished) => {
                Completeness::Complete
            }
            _ => Completeness::CompleteButSkipped,
        },
    };
    warnings.extend(fallbacks(&done.profile));
    if let Some(why) = &done.canary.blind {
        warnings.push(format!("the canary lost its connection and could not watch to the end: {why}"));
    }
    warnings.extend(done.warnings);
    let sort_by = done.tally.top.sort_by();
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
        maybe_counted_twice: done.maybe_counted_twice,
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

fn canary_summary(canary: &CanaryState, threshold: Duration) -> CanarySummary {
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
            Self::Refused { message, .. } => IncompleteReason::ScanRefused(message),
            Self::RestartedTooOften => IncompleteReason::RestartedTooOften,
        }
    }
}
