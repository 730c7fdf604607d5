//! The scan of one server: connects, probes, and walks one database after the other.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::engine::event::{Event, Stop};
use crate::engine::key::{Access, Role, ServerProfile, SlotSet};
use crate::engine::live::{
    Canary, ConnectError, ConnectErrorKind, Endpoint, Keysizes, Link, LinkError, Probe, SCAN_INTERVAL,
    ServerState, databases_with_keys, dbsize, is_ready, probe_server, select,
};
use crate::engine::pace::{Guard, Pacer};

use super::checkpoint::Identity;
use super::chorus::Chorus;
use super::config::{Databases, ScanConfig};
use super::error::ScanError;
use super::run::KeySource;
use super::walk::{Done, Ended, Place, Walk};

/// `MEMORY USAGE ... SAMPLES` for the keys of the top list, whose sizes people act on.
const TOP_SAMPLES: u32 = 100;
/// First wait before a server that is not ready is asked again; it doubles up to a second.
const NOT_READY_WAIT: Duration = Duration::from_millis(100);
/// Probes of a server that says `BUSY` in the middle of one.
const PROBES_MAX: u32 = 5;

/// A database and its number of keys, where that could be asked.
pub(super) type Database = (u32, Option<u64>);

/// A server that was connected to and probed.
pub(super) struct Ready {
    pub(super) link: Link,
    pub(super) profile: ServerProfile,
}

/// What to scan of a server.
pub(super) struct NodePlan {
    pub(super) endpoint: Endpoint,
    pub(super) databases: Databases,
    /// Only keys of these slots; all keys where absent.
    pub(super) slots: Option<SlotSet>,
    /// `--sample`: this server's part of it.
    pub(super) sample_keys: Option<u64>,
    pub(super) rate: Option<f64>,
}

/// The scan of a server, whole or not.
pub(super) struct NodeScan {
    pub(super) done: Done,
    /// Why it is not whole.
    pub(super) ended: Option<Ended>,
    pub(super) databases: Vec<Database>,
    pub(super) dbsize_after: Option<u64>,
    pub(super) keysizes_before: Option<Keysizes>,
    pub(super) keysizes_after: Option<Keysizes>,
}

/// A server whose scan has begun.
pub(super) struct Entered<'c, F> {
    pub(super) walk: Walk<'c, F>,
    node: String,
    server: usize,
    databases: Vec<Database>,
    keysizes_before: Option<Keysizes>,
}

/// Connects to a server and takes it into the chorus.
///
/// # Errors
/// When it cannot be reached.
pub(super) async fn enter_node<'c>(
    config: &'c ScanConfig,
    plan: NodePlan,
    ready: Option<Ready>,
    budget: &Pacer,
    chorus: &'c Chorus<'_, '_>,
) -> Result<Entered<'c, impl FnMut(Event<'_>) -> ControlFlow<Stop>>, ScanError> {
    let node = plan.endpoint.address.to_string();
    let lost = |error: LinkError| ScanError::Lost { node: node.clone(), why: error.to_string() };
    let Ready { link, profile } = match ready {
        Some(ready) => ready,
        None => get_ready(&plan.endpoint).await?,
    };
    let guard = Guard::new(config.latency_max, config.latency_abort);
    let canary = Canary::start(&plan.endpoint, guard, SCAN_INTERVAL).await.map_err(ScanError::Connect)?;
    let (mut databases, warnings) = databases(&plan.databases, &link).await.map_err(lost)?;
    let mut keysizes_before = Keysizes::read(&link).await.map_err(lost)?;
    let state =
        if profile.role == Role::Replica { ServerState::read(&link).await.map_err(lost)? } else { None };
    let lag = state.as_ref().and_then(|state| behind(&node, state));

    let server = chorus.enter(&profile);
    for warning in warnings.into_iter().chain(lag).chain(warnings_of(config, &profile)) {
        let _ = chorus.warn(warning);
    }
    let resumed = config.checkpoints.as_ref().and_then(|checkpoints| checkpoints.resumed.as_deref());
    let mismatch = resumed.and_then(|resumed| resumed.server.is_not(&Identity::of(&profile)));
    let resumed = resumed.filter(|_| mismatch.is_none());
    if let Some(why) = mismatch {
        let _ =
            chorus.warn(format!("the checkpoint cannot be gone on from, everything is scanned anew: {why}"));
        let _ = chorus.say(Event::BegunAnew);
    }
    if let Some(resumed) = resumed {
        let _ = chorus.warn(format!(
            "this scan goes on from a checkpoint: {} keys were counted before, and the times and the pace are \
             of what came after",
            resumed.keys_seen()
        ));
        // As they were then, and those that came since.
        databases.retain(|(db, _)| resumed.databases.iter().all(|(held, _)| held != db));
        databases.splice(0..0, resumed.databases.iter().copied());
        keysizes_before.clone_from(&resumed.keysizes_before);
    }
    let place = Place {
        endpoint: plan.endpoint,
        server,
        slots: plan.slots,
        sample_keys: plan.sample_keys,
        keys_total: sum(&databases),
        pacer: budget.for_server(plan.rate),
    };
    let hear = move |event: Event<'_>| chorus.hear(server, event);
    let mut walk = Walk::new(config, place, profile, link, canary, hear);
    if let Some(checkpoints) = &config.checkpoints {
        walk.keep_checkpoints(checkpoints.period, databases.clone(), keysizes_before.clone());
    }
    if let Some(resumed) = resumed {
        walk.go_on_from(resumed).ok_or(ScanError::BadCheckpoint)?;
    }
    Ok(Entered { walk, node, server, databases, keysizes_before })
}

/// Scans a server, or looks at named keys of it.
///
/// # Errors
/// When there is no result at all.
pub(super) async fn scan_node(
    config: &ScanConfig,
    plan: NodePlan,
    ready: Option<Ready>,
    mut named: Option<&mut dyn KeySource>,
    budget: &Pacer,
    chorus: &Chorus<'_, '_>,
) -> Result<NodeScan, ScanError> {
    let mut entered = enter_node(config, plan, ready, budget, chorus).await?;
    let mut ended = chorus.stopped().map(Ended::Stopped);
    let mut not_selected = None;
    let walk = &mut entered.walk;
    for &(db, keys) in &entered.databases {
        if ended.is_some() {
            break;
        }
        if walk.is_done(db) {
            continue;
        }
        let walked = match &mut named {
            Some(source) => walk.named(db, &mut **source).await,
            // On the heap: it is large, and every future around it would be.
            None => Box::pin(walk.database(db, keys)).await,
        };
        match walked {
            Ok(()) => {}
            // The others can still be had.
            Err(Ended::NoDatabase { db, message }) => {
                let warning = format!("database {db} cannot be selected, and was not scanned: {message}");
                let _ = chorus.warn(warning);
                not_selected = Some(Ended::NoDatabase { db, message });
            }
            Err(why) => ended = Some(why),
        }
    }
    if ended.is_none() {
        ended = walk.measure_top_again(TOP_SAMPLES).await.err().or(not_selected);
    }
    if walk.keys_seen() == 0 {
        let nothing = match &ended {
            Some(Ended::NoDatabase { db, message }) if entered.databases.len() == 1 => {
                Some(ScanError::Database { node: entered.node.clone(), db: *db, message: message.clone() })
            }
            Some(Ended::Refused(message)) => {
                Some(ScanError::ScanRefused { node: entered.node.clone(), message: message.clone() })
            }
            _ => None,
        };
        if let Some(nothing) = nothing {
            chorus.leave(entered.server, false);
            return Err(nothing);
        }
    }
    Ok(entered.finish(ended, chorus).await)
}

impl<F> Entered<'_, F>
where
    F: FnMut(Event<'_>) -> ControlFlow<Stop>,
{
    /// Ends the scan of this server.
    pub(super) async fn finish(self, ended: Option<Ended>, chorus: &Chorus<'_, '_>) -> NodeScan {
        let Self { walk, server, databases, keysizes_before, .. } = self;
        // The closing counts are worth a round trip, unless somebody is waiting.
        let (mut keysizes_after, mut dbsize_after) = (None, None);
        if matches!(ended, None | Some(Ended::NoDatabase { .. })) {
            keysizes_after = Keysizes::read(walk.link()).await.ok().flatten();
            dbsize_after = keys_of(&databases, walk.link()).await;
        }
        let done = walk.finish();
        chorus.leave(server, true);
        if matches!(ended, Some(Ended::Guard(_))) {
            // Whoever stalls one server of a deployment stops at all of them.
            chorus.stop();
        }
        if let Some(why) = &done.canary.blind {
            let _ =
                chorus.warn(format!("the canary lost its connection and could not watch to the end: {why}"));
        }
        NodeScan { done, ended, databases, dbsize_after, keysizes_before, keysizes_after }
    }
}

/// Connects to a server that serves, and finds out what it is.
pub(super) async fn get_ready(endpoint: &Endpoint) -> Result<Ready, ScanError> {
    let node = endpoint.address.to_string();
    let lost = |error: LinkError| ScanError::Lost { node: node.clone(), why: error.to_string() };
    let open = || Link::open(endpoint, "bigkeys");
    let mut link = open().await.map_err(ScanError::Connect)?;
    let mut probes = 1;
    loop {
        wait_until_ready(endpoint, &link).await?;
        let Probe { profile, is_hasty, link_is_clean } =
            probe_server(&link, node.clone()).await.map_err(lost)?;
        if !link_is_clean {
            link = open().await.map_err(ScanError::Connect)?;
        }
        if !is_hasty || probes == PROBES_MAX {
            return Ok(Ready { link, profile });
        }
        probes += 1;
        tokio::time::sleep(NOT_READY_WAIT).await;
    }
}

/// Waits while the server answers LOADING, BUSY or alike, as long as we wait for any answer.
async fn wait_until_ready(endpoint: &Endpoint, link: &Link) -> Result<(), ScanError> {
    let failed = |kind| ScanError::Connect(ConnectError { address: endpoint.address.clone(), kind });
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
        if since.elapsed() + wait > endpoint.timeouts.command {
            return Err(failed(ConnectErrorKind::NotReady(why)));
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}

/// Returns the databases to scan, and what to say of those that cannot be found out.
async fn databases(asked: &Databases, link: &Link) -> Result<(Vec<Database>, Vec<String>), LinkError> {
    let with_keys = databases_with_keys(link).await?;
    match (asked, &with_keys) {
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
pub(super) fn sum(databases: &[Database]) -> Option<u64> {
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
    if config.exact_lists && !profile.allows(Access::DebugObject) {
        warnings.push("DEBUG OBJECT is not allowed: list nodes are estimated, not counted".to_owned());
    }
    warnings
}

/// Says so when what a replica holds is not what its primary holds.
fn behind(node: &str, state: &ServerState) -> Option<String> {
    if state.text("master_link_status") == Some("down") {
        let since = state.number("master_link_down_since_seconds");
        let since = since.map(|seconds| format!(" since {seconds} s")).unwrap_or_default();
        return Some(format!("{node} is a replica whose primary is gone{since}: what it holds may be old"));
    }
    let silent = state.number("master_last_io_seconds_ago").filter(|seconds| *seconds > SILENT_S_MAX)?;
    Some(format!("{node} is a replica that has not heard of its primary for {silent} s: it may lag behind"))
}

/// A primary says something every `repl-ping-replica-period`, 10 s if nobody changed it.
const SILENT_S_MAX: u64 = 10;
