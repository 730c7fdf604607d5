//! Carries a plan out, on all servers that hold its keys.
//!
//! On one server that is all. Behind Sentinel and in a cluster, servers may change places while keys are deleted: a
//! slot moves, a replica takes over. What a server cannot do any more is left to the next round, which asks anew who
//! holds what and goes on from the audit, as `--resume` would.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::engine::key::{Role, ServerProfile, SlotSet};
use crate::engine::live::{
    Canary, CanaryState, ConnectError, DELETE_INTERVAL, Link, LinkError, Monitors, ServerState, WriteAccess,
};
use crate::engine::pace::Guard;
use crate::engine::report::server_version;
use crate::engine::scan::{CanarySums, ScanError};

use super::audit::{Audit, AuditError, AuditRecord, KeyResult, RecordKind};
use super::config::DeleteConfig;
use super::event::DeleteEvent;
use super::lazy_expire::LazyExpire;
use super::method::Method;
use super::plan::{Amount, PlannedKey};
use super::report::{DeleteReport, MemoryBack, Seen};
use super::resume::{Begun, Unfinished, planned};
use super::run::{Ended, Run};
use super::servers::{Server, Servers, survey};
use super::session::{Halt, Listener, Session, Shared};

/// Time between two rounds: an election takes seconds.
const ROUND_WAIT: Duration = Duration::from_millis(500);
/// How many timeouts for commands (15 s by default) a replacement for a lost server is waited for: Sentinel calls a
/// server down after 30 s (`down-after-milliseconds`), a cluster after 15 s (`cluster-node-timeout`).
const PATIENCE_TIMEOUTS: u32 = 2;
/// And how long an election takes after that.
const ELECTION: Duration = Duration::from_secs(5);
/// Time between two looks at how much waits for the background thread.
const MEMORY_PERIOD: Duration = Duration::from_millis(100);

/// A key of the plan that is still to be deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Todo {
    /// What the plan says of it.
    pub planned: PlannedKey,
    /// How far an earlier run came with it.
    pub begun: Option<Begun>,
}

/// Why a deletion did not even begin.
#[derive(Debug)]
pub enum ExecuteError {
    /// There is no connection.
    Connect(ConnectError),
    /// It cannot be found out who takes writes.
    Servers(ScanError),
    /// The connection was lost before the first key.
    Lost(String),
    /// The server is a replica.
    Replica(String),
    /// The plan cannot be read back.
    Plan(AuditError),
    /// The audit cannot be written.
    Audit(String),
    /// `lazyfree-lazy-expire` cannot be switched on.
    LazyExpire(String),
}

impl std::fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(f),
            Self::Servers(error) => error.fmt(f),
            Self::Lost(why) => write!(f, "lost the server before the first key: {why}"),
            Self::Replica(node) => write!(f, "{node} is a replica: keys are deleted on its primary"),
            Self::Plan(error) => write!(f, "cannot read the plan back: {error}"),
            Self::Audit(why) => write!(f, "cannot write the audit: {why}"),
            Self::LazyExpire(why) => write!(f, "cannot switch lazyfree-lazy-expire on: {why}"),
        }
    }
}

impl std::error::Error for ExecuteError {}

/// The server that a plan was made for.
pub struct Place {
    /// What it is.
    pub profile: ServerProfile,
    /// What may be sent.
    pub access: WriteAccess,
}

/// Carries the plan of an audit out, or what is left of it.
///
/// `place`: the server that the plan was made for, if there is only one.
///
/// # Errors
/// When not even the first key can be come to. Whatever happens later is in the report, and in the audit.
pub async fn execute(
    config: &DeleteConfig,
    run_id: &str,
    place: Option<Place>,
    keys_total: u64,
    mut unfinished: Option<Unfinished>,
    audit: &mut Audit,
    on_event: &mut Listener<'_>,
) -> Result<DeleteReport, ExecuteError> {
    let started = Instant::now();
    let path = audit.path().to_owned();
    let mut servers = Servers::find(config).await.map_err(ExecuteError::Servers)?;
    // Needs the same lifetime as the rest of what the run borrows.
    let mut forward = |event: DeleteEvent<'_>| on_event(event);
    let shared = Shared::new(config, keys_total, audit, &mut forward, servers.may_change);
    let mut sums = Sums::new(config);
    let mut place = place.filter(|_| !servers.may_change);
    let mut stuck_since: Option<Instant> = None;
    loop {
        shared.elsewhere.set(0);
        let before = sums.keys();
        let unfinished_now = unfinished.as_ref();
        let (path, shared_now) = (&path, &shared);
        let each = servers.primaries.iter().map(|server| {
            let place = place.take();
            async move {
                let todos = todos(path, unfinished_now, server.slots.as_ref(), shared_now)?;
                one_server(config, run_id, server, place, todos, shared_now).await
            }
        });
        let mut lost = None;
        let mut first_error = None;
        for done in join_all(each).await {
            match done {
                Ok(done) => lost = sums.add(done).or(lost),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        // A server that cannot be reached may be replaced by another; where there is only one, it is the end.
        let is_final = |error: &ExecuteError| {
            !servers.may_change || matches!(error, ExecuteError::LazyExpire(_) | ExecuteError::Audit(_))
        };
        if let Some(error) = first_error.take_if(|error| sums.is_empty() && is_final(error)) {
            return Err(error);
        }
        lost = lost.or(first_error.as_ref().map(|error| Halt::Lost(error.to_string())));
        if shared.halted().is_some() || (lost.is_none() && shared.elsewhere.get() == 0) {
            break;
        }
        if sums.keys() > before {
            stuck_since = None;
        }
        let since = *stuck_since.get_or_insert_with(Instant::now);
        let patience = config.endpoint.timeouts.command * PATIENCE_TIMEOUTS + ELECTION;
        if !servers.may_change || since.elapsed() > patience {
            if sums.is_empty()
                && let Some(error) = first_error
            {
                return Err(error);
            }
            sums.halt = lost.or_else(|| {
                Some(Halt::Lost(format!("{} keys are being moved to another server", shared.elsewhere.get())))
            });
            break;
        }
        tokio::time::sleep(ROUND_WAIT).await;
        if let Ok(found) = Servers::find(config).await {
            servers = found;
        }
        match Unfinished::read(path) {
            Ok(rest) => unfinished = Some(rest),
            Err(error) => {
                sums.halt = Some(Halt::Audit(error.to_string()));
                break;
            }
        }
    }
    let halt = shared.halted().or(sums.halt.take());
    let mut end = AuditRecord::new(RecordKind::End, run_id);
    end = end.saying(&halt.as_ref().map_or_else(|| "done".to_owned(), Halt::to_string));
    let written = {
        let mut audit = shared.audit.borrow_mut();
        audit.write(&end).and_then(|()| audit.sync())
    };
    if written.is_err() {
        sums.warnings.push("the end of the run could not be written to the audit".to_owned());
    }
    Ok(sums.report(run_id, keys_total, halt, started.elapsed()))
}

/// Goes through what is still to be done on a server.
fn todos<'t>(
    path: &std::path::Path,
    unfinished: Option<&Unfinished>,
    slots: Option<&'t SlotSet>,
    shared: &'t Shared<'_>,
) -> Result<Box<dyn Iterator<Item = Result<Todo, AuditError>> + 't>, ExecuteError> {
    let all: Box<dyn Iterator<Item = Result<Todo, AuditError>>> = match unfinished {
        Some(unfinished) => Box::new(unfinished.todos(path).map_err(ExecuteError::Plan)?),
        None => Box::new(planned(path).map_err(ExecuteError::Plan)?),
    };
    Ok(Box::new(all.filter(move |todo| {
        todo.as_ref().map_or(true, |todo| {
            slots.is_none_or(|slots| slots.contains(todo.planned.key.slot()))
                && !shared.settled.borrow().has(todo.planned.seq)
        })
    })))
}

/// What one server did in one round.
struct ServerDone {
    results: [u64; KeyResult::ALL.len()],
    by_method: [Amount; Method::ALL.len()],
    canary: CanaryState,
    /// Why it ended before its keys did.
    halt: Option<Halt>,
    held: Duration,
    commands: u64,
    slowest_command: Duration,
    slowdowns: u64,
    reconnects: u32,
    seen: Seen,
    memory: Option<MemoryBack>,
    warnings: Vec<String>,
}

async fn one_server<'a>(
    config: &'a DeleteConfig,
    run_id: &str,
    server: &Server,
    place: Option<Place>,
    todos: impl Iterator<Item = Result<Todo, AuditError>>,
    shared: &'a Shared<'a>,
) -> Result<ServerDone, ExecuteError> {
    let endpoint = &server.endpoint;
    let mut place = match place {
        Some(place) => place,
        None => survey(endpoint).await.map_err(ExecuteError::Servers)?,
    };
    if place.profile.role == Role::Replica {
        return Err(ExecuteError::Replica(place.profile.node));
    }
    let lost = |error: LinkError| ExecuteError::Lost(error.to_string());
    let link = Link::open(endpoint, "bigkeys").await.map_err(ExecuteError::Connect)?;
    let guard = Guard::new(config.latency_max, config.latency_abort);
    let canary = Canary::start(endpoint, guard, DELETE_INTERVAL).await.map_err(ExecuteError::Connect)?;
    let monitors_before = Monitors::read(&link).await.map_err(lost)?;
    let state_before = ServerState::read(&link).await.map_err(lost)?;
    let mut begin = AuditRecord::new(RecordKind::Begin, run_id);
    begin.node = Some(place.profile.node.clone());
    begin.server_version = Some(server_version(&place.profile));
    begin.server_run_id.clone_from(&place.profile.run_id);
    shared.audit.borrow_mut().write(&begin).map_err(|error| ExecuteError::Audit(error.to_string()))?;
    let switched = if config.lazy_expire_while_running {
        let node = &place.profile.node;
        let switched = LazyExpire::switch_on(&link, &shared.audit, run_id, node).await;
        place.profile.lazyfree.expire = Some(true);
        switched.map_err(ExecuteError::LazyExpire)?
    } else {
        None
    };
    let session = Session::new(config, run_id, shared, endpoint.clone(), place, link, canary);
    let mut run = Run::new(session);
    let mut warnings = Vec::new();
    let halt = match run.through(todos).await {
        Ok(()) => None,
        Err(Ended::Halt(halt)) => Some(halt),
        Err(Ended::Plan(error)) => {
            warnings.push(format!("the plan cannot be read to its end: {error}"));
            Some(Halt::Audit(error.to_string()))
        }
    };
    if let Some(halt) = &halt {
        shared.end(halt);
    }
    let Run { mut session, results, by_method, .. } = run;
    if let Some(switched) = switched
        && let Err(why) = put_back(&switched, &mut session).await
    {
        warnings.push(format!(
            "lazyfree-lazy-expire could not be put back ({why}): CONFIG SET lazyfree-lazy-expire {}, or --resume",
            switched.before()
        ));
    }
    let memory = match config.wait_memory {
        Some(patience) if !matches!(halt, Some(Halt::Lost(_))) => {
            Some(memory_back(&session, state_before.as_ref(), patience).await)
        }
        _ => None,
    };
    let monitors_after = Monitors::read(session.link()).await.unwrap_or_default();
    let canary = session.canary().state();
    if let Some(why) = &canary.blind {
        warnings.push(format!("the canary lost its connection and could not watch to the end: {why}"));
    }
    Ok(ServerDone {
        results,
        by_method,
        canary,
        halt,
        held: session.held,
        commands: session.commands,
        slowest_command: session.slowest_command,
        slowdowns: session.slowdowns,
        reconnects: session.reconnects,
        seen: Seen::between(&monitors_before, &monitors_after),
        memory,
        warnings,
    })
}

async fn put_back(switched: &LazyExpire, session: &mut Session<'_>) -> Result<(), String> {
    if switched.put_back(session.link()).await.is_err() {
        // The connection may be what ended the run.
        switched.put_back_at(&session.endpoint).await?;
    }
    let record = LazyExpire::is_back(&session.run_id, &session.profile.node);
    session.write_through(&record).map_err(|halt| halt.to_string())
}

/// All servers and rounds together.
struct Sums {
    results: [u64; KeyResult::ALL.len()],
    by_method: [Amount; Method::ALL.len()],
    canary: CanarySums,
    halt: Option<Halt>,
    held: Duration,
    commands: u64,
    slowest_command: Duration,
    slowdowns: u64,
    reconnects: u32,
    seen: Option<Seen>,
    memory: Option<MemoryBack>,
    warnings: Vec<String>,
    servers: u32,
}

impl Sums {
    fn new(config: &DeleteConfig) -> Self {
        Self {
            results: [0; KeyResult::ALL.len()],
            by_method: [Amount::default(); Method::ALL.len()],
            canary: CanarySums::new(config.latency_max),
            halt: None,
            held: Duration::ZERO,
            commands: 0,
            slowest_command: Duration::ZERO,
            slowdowns: 0,
            reconnects: 0,
            seen: None,
            memory: None,
            warnings: Vec::new(),
            servers: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.servers == 0
    }

    /// Returns how many keys have an outcome.
    fn keys(&self) -> u64 {
        self.results.iter().sum()
    }

    /// Adds what a server did. Returns why it ended early, if another server may go on.
    fn add(&mut self, done: ServerDone) -> Option<Halt> {
        self.servers += 1;
        for (sum, more) in self.results.iter_mut().zip(done.results) {
            *sum += more;
        }
        for (sum, more) in self.by_method.iter_mut().zip(done.by_method) {
            sum.merge(more);
        }
        self.canary.add(&done.canary);
        self.held += done.held;
        self.commands += done.commands;
        self.slowest_command = self.slowest_command.max(done.slowest_command);
        self.slowdowns += done.slowdowns;
        self.reconnects += done.reconnects;
        self.seen = Some(match self.seen.take() {
            Some(seen) => seen.and(done.seen),
            None => done.seen,
        });
        self.memory = match (self.memory.take(), done.memory) {
            (Some(sum), Some(more)) => Some(sum.and(more)),
            (sum, more) => sum.or(more),
        };
        for warning in done.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        done.halt.filter(Halt::is_of_one_server)
    }

    fn report(self, run_id: &str, keys_planned: u64, halt: Option<Halt>, elapsed: Duration) -> DeleteReport {
        DeleteReport {
            run_id: run_id.to_owned(),
            keys_planned,
            results: self.results,
            by_method: self.by_method,
            canary: self.canary.summary(),
            halt,
            elapsed,
            held: self.held,
            commands: self.commands,
            slowest_command: self.slowest_command,
            slowdowns: self.slowdowns,
            reconnects: self.reconnects,
            seen: self.seen.unwrap_or_default(),
            memory: self.memory,
            warnings: self.warnings,
        }
    }
}

impl std::fmt::Display for Halt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped(_) => f.write_str("interrupted"),
            Self::Guard(latency) => {
                write!(f, "stopped by the guard: a PING took {:.1} ms", latency.as_secs_f64() * 1e3)
            }
            Self::KeysMax => f.write_str("--max-keys is reached"),
            Self::BytesMax => f.write_str("--max-bytes is reached"),
            Self::Deadline => f.write_str("--deadline is reached"),
            Self::Lost(why) => write!(f, "the connection was lost: {why}"),
            Self::Refused(why) => write!(f, "the server takes no writes: {why}"),
            Self::Audit(why) => write!(f, "the audit: {why}"),
        }
    }
}

/// Waits until nothing waits for the background thread any more, at most so long.
async fn memory_back(session: &Session<'_>, before: Option<&ServerState>, patience: Duration) -> MemoryBack {
    let since = Instant::now();
    loop {
        let state = ServerState::read(session.link()).await.ok().flatten();
        let number = |field: &str| state.as_ref().and_then(|state| state.number(field));
        let pending_objects = number("lazyfree_pending_objects");
        if pending_objects.is_none_or(|pending| pending == 0) || since.elapsed() >= patience {
            return MemoryBack {
                used_before: before.and_then(|state| state.number("used_memory")),
                used_after: number("used_memory"),
                pending_objects,
                waited: since.elapsed(),
            };
        }
        tokio::time::sleep(MEMORY_PERIOD).await;
    }
}
