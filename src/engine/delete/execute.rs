//! Carries a plan out, key by key: intent to the disk, check and act, outcome.

use std::time::{Duration, Instant};

use crate::engine::key::{Access, Expiry, KeyName, Role, ServerProfile};
use crate::engine::live::{
    Canary, Command, ConnectError, DELETE_INTERVAL, Link, LinkError, Monitors, Reply, ServerState,
    WriteAccess,
};
use crate::engine::pace::Guard;
use crate::engine::report::server_version;
use crate::engine::risk::LAZYFREE_THRESHOLD;
use crate::engine::scan::canary_summary;

use super::audit::{Audit, AuditError, AuditRecord, KeyResult, RecordKind, rounded};
use super::chunked::{End, TakenApart, Target, take_apart};
use super::config::DeleteConfig;
use super::event::{DeleteEvent, KeyOutcome};
use super::expect::Expected;
use super::lazy_expire::LazyExpire;
use super::method::{Method, list_pad_bytes};
use super::plan::{Amount, PlannedKey};
use super::recheck::{self, Acted, Confirmed, is_eval_refusal};
use super::report::{DeleteReport, MemoryBack, Seen};
use super::resume::Begun;
use super::script::{self, Act, Done};
use super::session::{Halt, Listener, Meaning, Pending, Session, meaning};
use super::sizer::ChunkSizer;
use super::tombstone::tombstone;

/// Small keys whose intent is one line, and one write to the disk.
const BATCH_KEYS_MAX: usize = 10_000;
/// Bytes of their names.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Small keys in one script. 100 000 in one UNLINK block everybody for 50 ms; a thousand, with their checks,
/// for two.
const SCRIPT_KEYS_MAX: u64 = 1_000;
/// Times that the same thing is tried over a connection that breaks.
const ATTEMPTS_MAX: u32 = 4;
/// The server counts idle time in whole seconds, by a clock that it reads ten times a second.
const IDLE_RESOLUTION: Duration = Duration::from_secs(2);
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

/// Carries a plan of so many keys out.
///
/// # Errors
/// When not even the first key can be come to. Whatever happens later is in the report, and in the audit.
pub async fn execute(
    config: &DeleteConfig,
    run_id: &str,
    place: Place,
    keys_total: u64,
    todos: impl Iterator<Item = Result<Todo, AuditError>>,
    audit: &mut Audit,
    on_event: &mut Listener<'_>,
) -> Result<DeleteReport, ExecuteError> {
    let started = Instant::now();
    let Place { mut profile, access } = place;
    if profile.role == Role::Replica {
        return Err(ExecuteError::Replica(profile.node));
    }
    let lost = |error: LinkError| ExecuteError::Lost(error.to_string());
    let link = Link::open(&config.endpoint, "bigkeys").await.map_err(ExecuteError::Connect)?;
    let guard = Guard::new(config.latency_max, config.latency_abort);
    let canary =
        Canary::start(&config.endpoint, guard, DELETE_INTERVAL).await.map_err(ExecuteError::Connect)?;
    let monitors_before = Monitors::read(&link).await.map_err(lost)?;
    let state_before = ServerState::read(&link).await.map_err(lost)?;
    let mut begin = AuditRecord::new(RecordKind::Begin, run_id);
    begin.node = Some(profile.node.clone());
    begin.server_version = Some(server_version(&profile));
    begin.server_run_id.clone_from(&profile.run_id);
    audit.write(&begin).map_err(|error| ExecuteError::Audit(error.to_string()))?;
    let switched = if config.lazy_expire_while_running {
        let switched = LazyExpire::switch_on(&link, audit, run_id).await.map_err(ExecuteError::LazyExpire)?;
        profile.lazyfree.expire = Some(true);
        switched
    } else {
        None
    };
    // Needs the same lifetime as the rest of what the session borrows.
    let mut forward = |event: DeleteEvent<'_>| on_event(event);
    let session =
        Session::new(config, run_id, profile, access, keys_total, audit, link, canary, &mut forward);
    let mut run = Run {
        session,
        results: [0; KeyResult::ALL.len()],
        by_method: [Amount::default(); Method::ALL.len()],
        bytes_begun: 0,
        keys_begun: 0,
        sizer: ChunkSizer::new(100, 1, SCRIPT_KEYS_MAX),
    };
    let mut warnings = Vec::new();
    let ended = run.through(todos).await;
    let halt = match ended {
        Ok(()) => None,
        Err(Ended::Halt(halt)) => Some(halt),
        Err(Ended::Plan(error)) => {
            warnings.push(format!("the plan cannot be read to its end: {error}"));
            Some(Halt::Audit(error.to_string()))
        }
    };
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
    let mut end = AuditRecord::new(RecordKind::End, run_id);
    end = end.saying(&halt.as_ref().map_or_else(|| "done".to_owned(), Halt::to_string));
    if session.write_through(&end).is_err() {
        warnings.push("the end of the run could not be written to the audit".to_owned());
    }
    let canary = session.canary().state();
    if let Some(why) = &canary.blind {
        warnings.push(format!("the canary lost its connection and could not watch to the end: {why}"));
    }
    Ok(DeleteReport {
        run_id: run_id.to_owned(),
        keys_planned: keys_total,
        results,
        by_method,
        canary: canary_summary(&canary, config.latency_max),
        halt,
        elapsed: started.elapsed(),
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
        switched.put_back_at(&session.config.endpoint).await?;
    }
    let record = LazyExpire::is_back(&session.run_id);
    session.write_through(&record).map_err(|halt| halt.to_string())
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

/// Why the plan was not gone through.
enum Ended {
    Halt(Halt),
    Plan(AuditError),
}

impl From<Halt> for Ended {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

struct Run<'a> {
    session: Session<'a>,
    results: [u64; KeyResult::ALL.len()],
    by_method: [Amount; Method::ALL.len()],
    keys_begun: u64,
    bytes_begun: u64,
    sizer: ChunkSizer,
}

impl Run<'_> {
    async fn through(&mut self, todos: impl Iterator<Item = Result<Todo, AuditError>>) -> Result<(), Ended> {
        let mut batch: Vec<PlannedKey> = Vec::new();
        let mut bytes = 0;
        for todo in todos {
            let todo = todo.map_err(Ended::Plan)?;
            let within = self.within_limits(&todo.planned);
            let joins = within.is_ok() && self.can_batch(&todo);
            let continues = batch.first().is_none_or(|first| {
                first.db == todo.planned.db
                    && first.method == todo.planned.method
                    && (!self.session.profile.cluster || first.key.slot() == todo.planned.key.slot())
            });
            if !joins || !continues || batch.len() >= BATCH_KEYS_MAX || bytes >= BATCH_BYTES_MAX {
                self.batch(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            within?;
            if joins {
                bytes += todo.planned.key.as_bytes().len();
                batch.push(todo.planned);
            } else {
                self.one(&todo).await?;
            }
        }
        self.batch(batch).await?;
        Ok(())
    }

    fn within_limits(&mut self, planned: &PlannedKey) -> Result<(), Halt> {
        let limits = self.session.config.limits;
        let bytes = self.bytes_begun.saturating_add(planned.bytes.unwrap_or(0));
        if limits.keys_max.is_some_and(|max| self.keys_begun >= max) {
            return Err(Halt::KeysMax);
        }
        if limits.bytes_max.is_some_and(|max| bytes > max) {
            return Err(Halt::BytesMax);
        }
        self.keys_begun += 1;
        self.bytes_begun = bytes;
        Ok(())
    }

    /// Returns whether a key is so small that many of them go in one script.
    fn can_batch(&self, todo: &Todo) -> bool {
        let planned = &todo.planned;
        self.session.access.eval
            && todo.begun.is_none()
            && matches!(planned.method, Method::Unlink | Method::Del)
            && planned.stall_ms < 0.1
            && planned.free_effort.is_none_or(|effort| effort <= LAZYFREE_THRESHOLD)
    }

    fn expected(&self, planned: &PlannedKey) -> Expected {
        let config = self.session.config;
        let idle_min = config.filter.idle_over.map(|idle| {
            if self.session.profile.allows(Access::ClientNoTouch) {
                return idle;
            }
            // The plan's own look counted as a use. Since then, there should have been none.
            let since = planned.observed_at.elapsed().unwrap_or_default();
            idle.min(since.saturating_sub(IDLE_RESOLUTION))
        });
        planned.expected(config.tolerance, idle_min)
    }

    // ---- many small keys

    /// Deletes small keys, a script for a few hundred. What became of one lot is written down while the server
    /// has the next.
    async fn batch(&mut self, mut batch: Vec<PlannedKey>) -> Result<(), Halt> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
        let mut intent = AuditRecord::new(RecordKind::Intent, &self.session.run_id);
        intent.seq = Some(first.seq);
        intent.seq_to = Some(last.seq);
        intent.db = Some(first.db);
        intent.method = Some(first.method.as_str().to_owned());
        intent = intent.saying(&format!("{} small keys", batch.len()));
        // Before the intent: a run that is stopped here has not begun them.
        self.session.gate().await?;
        self.session.write_through(&intent)?;
        // The script says only once what it expects of keys that stand together.
        batch.sort_by(|one, other| {
            let alike = |key: &PlannedKey| (key.bytes, key.elements, super::expect::has_ttl(key.expiry));
            one.kind.as_str().cmp(other.kind.as_str()).then_with(|| alike(one).cmp(&alike(other)))
        });
        self.session.canary().take_max();
        let mut rest = &batch[..];
        let mut under_way: Option<Lot<'_>> = None;
        let mut halt = None;
        loop {
            // Made while the server has the one before; sent when that is answered, so that others have their turn.
            let next = if halt.is_none() { self.next_lot(&mut rest) } else { None };
            let settled = match under_way.take() {
                Some(lot) => self.settle(lot).await?,
                None if next.is_none() => break,
                None => None,
            };
            if let Some(next) = next {
                match self.session.gate().await {
                    Ok(()) => under_way = Some(self.sent(next)),
                    Err(why) => halt = Some(why),
                }
            }
            if let Some(settled) = settled
                && let Err(why) = self.write_down(settled)
            {
                halt.get_or_insert(why);
            }
        }
        halt.map_or(Ok(()), Err)
    }

    /// Cuts the next lot off.
    fn next_lot<'b>(&self, rest: &mut &'b [PlannedKey]) -> Option<Lot<'b>> {
        let size = usize::try_from(self.sizer.size()).unwrap_or(1).min(rest.len());
        let (keys, after) = rest.split_at(size);
        *rest = after;
        (!keys.is_empty()).then(|| self.lot(keys))
    }

    fn lot<'b>(&self, keys: &'b [PlannedKey]) -> Lot<'b> {
        let expected: Vec<Expected> = keys.iter().map(|planned| self.expected(planned)).collect();
        let act = if keys[0].method == Method::Del { Act::Del } else { Act::Unlink };
        let names = keys.iter().map(|planned| &planned.key);
        let command = script::check_and_act(&act, names.zip(&expected));
        Lot { keys, expected, command, began: Instant::now(), pending: None }
    }

    /// Sends a lot. The connection must be in its database, or is put there when it is settled.
    fn sent<'b>(&mut self, mut lot: Lot<'b>) -> Lot<'b> {
        lot.began = Instant::now();
        if self.session.access.eval && self.session.is_in(lot.keys[0].db) {
            lot.pending = Some(self.session.launch(lot.command.clone()));
        }
        lot
    }

    /// Waits for what became of a lot. `None`: it was cut into pieces, and all is written down.
    async fn settle<'b>(&mut self, mut lot: Lot<'b>) -> Result<Option<Settled<'b>>, Halt> {
        let mut attempt = 1;
        let (done, cost) = loop {
            let failure = match self.reply_to(&mut lot).await {
                Ok(Some((Err(refusal), _))) if meaning(&refusal.message) == Meaning::NotNow => {
                    self.session.not_now(lot.began, &refusal.message).await?;
                    continue;
                }
                // A script that names one key which is closed to us is refused as a whole.
                Ok(Some((Err(refusal), _)))
                    if lot.keys.len() > 1 && meaning(&refusal.message) == Meaning::Denied =>
                {
                    let (first, second) = lot.keys.split_at(lot.keys.len() / 2);
                    for half in [first, second] {
                        let half = self.lot(half);
                        if let Some(settled) = Box::pin(self.settle(half)).await? {
                            self.write_down(settled)?;
                        }
                    }
                    return Ok(None);
                }
                Ok(Some((reply, cost))) => {
                    let expected: Vec<&Expected> = lot.expected.iter().collect();
                    break (script::read(reply, &expected), cost);
                }
                // EVAL is not to be had after all.
                Ok(None) => {
                    for planned in lot.keys {
                        Box::pin(self.one(&Todo { planned: planned.clone(), begun: None })).await?;
                    }
                    return Ok(None);
                }
                Err(error) => error,
            };
            if attempt == ATTEMPTS_MAX {
                return Err(Halt::Lost(failure.to_string()));
            }
            attempt += 1;
            self.session.reconnect(&failure).await?;
        };
        self.sizer.observe(lot.keys.len() as u64, cost);
        self.session.rest(cost).await;
        let shared = KeyOutcome {
            result: KeyResult::Deleted,
            detail: None,
            chunks: 0,
            slowest_chunk: Some(cost),
            elapsed: lot.began.elapsed(),
            victim_max: self.session.canary().take_max(),
        };
        Ok(Some(Settled { keys: lot.keys, done, shared, is_repeat: attempt > 1 }))
    }

    /// Returns the reply to a lot, which is sent if it was not. `None`: EVAL is not to be had.
    async fn reply_to(&mut self, lot: &mut Lot<'_>) -> Result<Option<(Reply, Duration)>, LinkError> {
        let pending = match lot.pending.take() {
            Some(pending) => pending,
            None if !self.session.access.eval => return Ok(None),
            None => {
                if let Err(refusal) = self.session.select(lot.keys[0].db).await? {
                    return Ok(Some((Err(refusal), Duration::ZERO)));
                }
                self.session.launch(lot.command.clone())
            }
        };
        let answer = self.session.answer(pending).await?;
        match answer.reply {
            Err(refusal) if is_eval_refusal(&refusal) => {
                self.session.access.eval = false;
                Ok(None)
            }
            reply => Ok(Some((reply, answer.cost))),
        }
    }

    /// Writes down what became of a lot: all of it, whoever wants to stop meanwhile.
    fn write_down(&mut self, settled: Settled<'_>) -> Result<(), Halt> {
        let Settled { keys, done, shared, is_repeat } = settled;
        let mut halt = None;
        for (planned, done) in keys.iter().zip(done) {
            let (result, detail) = match done {
                Done::Acted => (KeyResult::Deleted, None),
                done => {
                    let (result, detail, ends) = told(&done.into(), is_repeat);
                    halt = halt.or(ends);
                    (result, Some(detail))
                }
            };
            if let Err(why) = self.outcome(planned, &KeyOutcome { result, detail, ..shared.clone() }) {
                halt = halt.or(Some(why));
            }
        }
        self.session.flush()?;
        halt.map_or(Ok(()), Err)
    }

    // ---- one key

    async fn one(&mut self, todo: &Todo) -> Result<(), Halt> {
        let planned = &todo.planned;
        self.session.gate().await?;
        // A run that is resumed looks where it put the key, whatever is allowed by now. The name is worked out
        // again: what an audit says could be any key's.
        let is_renamed = todo.begun.as_ref().map_or(self.session.access.rename, |begun| begun.is_renamed);
        let grave = (planned.method == Method::Chunked && is_renamed)
            .then(|| tombstone(&planned.key, &self.session.run_id, planned.seq));
        self.intent(planned, grave.as_ref())?;
        self.session.canary().take_max();
        let began = Instant::now();
        let is_begun = todo.begun.as_ref().is_some_and(|begun| !begun.is_renamed);
        let mut deletion = OneKey {
            planned,
            is_resumed: todo.begun.is_some(),
            grave,
            apart: TakenApart::default(),
            is_begun,
        };
        let (result, detail, halt) = deletion.through(self).await;
        let outcome = KeyOutcome {
            result,
            detail,
            chunks: deletion.apart.chunks,
            slowest_chunk: (deletion.apart.chunks > 0).then_some(deletion.apart.slowest),
            elapsed: began.elapsed(),
            victim_max: self.session.canary().take_max(),
        };
        self.session.progress.taking_apart = None;
        let told = self.outcome(planned, &outcome);
        self.session.flush()?;
        told?;
        halt.map_or(Ok(()), Err)
    }

    fn intent(&mut self, planned: &PlannedKey, grave: Option<&KeyName>) -> Result<(), Halt> {
        let mut intent = AuditRecord::new(RecordKind::Intent, &self.session.run_id).of(planned);
        intent.reason = Some(planned.reason.clone());
        intent.tombstone = grave.map(KeyName::quoted);
        self.session.write_through(&intent)
    }

    fn outcome(&mut self, planned: &PlannedKey, outcome: &KeyOutcome) -> Result<(), Halt> {
        let ms = |duration: Duration| rounded(duration.as_secs_f64() * 1e3);
        let mut record = AuditRecord::new(RecordKind::Outcome, &self.session.run_id).of(planned);
        record.result = Some(outcome.result);
        record.detail.clone_from(&outcome.detail);
        record.chunks = (outcome.chunks > 0).then_some(outcome.chunks);
        record.slowest_chunk_ms = outcome.slowest_chunk.map(ms);
        record.elapsed_ms = Some(ms(outcome.elapsed));
        record.victim_max_ms = outcome.victim_max.map(ms);
        self.session.write(&record)?;
        self.results[outcome.result as usize] += 1;
        if matches!(outcome.result, KeyResult::Deleted | KeyResult::Expiring) {
            self.by_method[planned.method as usize].add(planned.bytes);
        }
        self.session.progress.keys += 1;
        self.session.emit(DeleteEvent::Outcome(planned, outcome))
    }
}

/// Puts into words what was not an act; also whether the run ends with it.
fn told(acted: &Acted, is_repeat: bool) -> (KeyResult, String, Option<Halt>) {
    match acted {
        Acted::Confirmed(_) => (KeyResult::Deleted, String::new(), None),
        Acted::Changed(change @ super::expect::Change::Gone) if is_repeat => {
            (KeyResult::Gone, format!("{change}: the connection broke as it was being deleted"), None)
        }
        Acted::Changed(change @ super::expect::Change::Gone) => (KeyResult::Gone, change.to_string(), None),
        Acted::Changed(change) => (KeyResult::Changed, change.to_string(), None),
        Acted::Taken => (KeyResult::Failed, "the name of its tombstone is taken".to_owned(), None),
        Acted::Occupied(keys) => {
            (KeyResult::Failed, format!("the database for quarantine is not empty ({keys} keys)"), None)
        }
        Acted::Refused(message) => match meaning(message) {
            Meaning::Denied => (KeyResult::Denied, format!("the server said: {message}"), None),
            Meaning::NoWrites => (
                KeyResult::Failed,
                format!("the server said: {message}"),
                Some(Halt::Refused(message.clone())),
            ),
            Meaning::NotNow | Meaning::Failed => {
                (KeyResult::Failed, format!("the server said: {message}"), None)
            }
        },
    }
}

/// Small keys that go in one script.
struct Lot<'b> {
    keys: &'b [PlannedKey],
    /// What must still hold for each.
    expected: Vec<Expected>,
    command: Command,
    began: Instant,
    /// `None`: it is not on its way.
    pending: Option<Pending>,
}

/// What became of them.
struct Settled<'b> {
    keys: &'b [PlannedKey],
    done: Vec<Done>,
    /// What all of them have in common.
    shared: KeyOutcome,
    /// The connection broke, and the script was sent again.
    is_repeat: bool,
}

/// The deletion of one key by itself.
struct OneKey<'p> {
    planned: &'p PlannedKey,
    is_resumed: bool,
    /// The tombstone; `None`: in place, or no such method.
    grave: Option<KeyName>,
    apart: TakenApart,
    /// A part of it may be gone, in place.
    is_begun: bool,
}

impl OneKey<'_> {
    async fn through(&mut self, run: &mut Run<'_>) -> (KeyResult, Option<String>, Option<Halt>) {
        let since = Instant::now();
        let mut attempt = 1;
        loop {
            let lost = match self.attempt(run).await {
                Ok(Acted::Confirmed(confirmed)) if self.planned.method == Method::Chunked => {
                    match self.take_apart(run, &confirmed).await {
                        Some(end) => return end,
                        // The server restarted, and may have forgotten the tombstone: from the check again.
                        None => continue,
                    }
                }
                Ok(Acted::Confirmed(confirmed)) => {
                    run.session.rest(confirmed.cost).await;
                    let result = if self.planned.method == Method::Expire {
                        KeyResult::Expiring
                    } else {
                        KeyResult::Deleted
                    };
                    return (result, confirmed.window.map(window_words), None);
                }
                Ok(Acted::Refused(message)) if meaning(&message) == Meaning::NotNow => {
                    if let Err(halt) = run.session.not_now(since, &message).await {
                        return (KeyResult::Failed, Some(format!("the server said: {message}")), Some(halt));
                    }
                    continue;
                }
                // RENAME is not for us: in place then.
                Ok(Acted::Refused(message))
                    if self.grave.is_some() && !self.is_resumed && meaning(&message) == Meaning::Denied =>
                {
                    self.grave = None;
                    // For --resume: nothing is under that name, and the key itself shrinks.
                    if let Err(halt) = run.intent(self.planned, None) {
                        return (KeyResult::Failed, Some(format!("the server said: {message}")), Some(halt));
                    }
                    continue;
                }
                Ok(acted) => {
                    if matches!(self.planned.method, Method::Quarantine) {
                        run.session.forget_database();
                    }
                    let (result, detail, halt) = told(&acted, attempt > 1);
                    return (result, Some(detail), halt);
                }
                Err(error) => error,
            };
            if attempt == ATTEMPTS_MAX {
                let halt = Halt::Lost(lost.to_string());
                return (KeyResult::Unfinished, Some(halt.to_string()), Some(halt));
            }
            attempt += 1;
            if let Err(halt) = run.session.reconnect(&lost).await {
                return (KeyResult::Unfinished, Some(halt.to_string()), Some(halt));
            }
        }
    }

    async fn attempt(&self, run: &mut Run<'_>) -> Result<Acted, LinkError> {
        let planned = self.planned;
        if let Err(refusal) = run.session.select(planned.db).await? {
            return Ok(Acted::Refused(refusal.message));
        }
        // After a lost connection, or in a run that is resumed, it may have been renamed already.
        if let Some(grave) = &self.grave
            && planned.method == Method::Chunked
            && exists(&mut run.session, grave).await?
        {
            return Ok(Acted::Confirmed(Confirmed::tombstone_found_again()));
        }
        let mut expected = run.expected(planned);
        if self.is_begun && planned.method == Method::Chunked {
            // It was begun in place: fewer elements than planned are what we left of it.
            expected = expected.at_most();
        }
        let act = match planned.method {
            Method::Unlink => Act::Unlink,
            Method::Del => Act::Del,
            Method::Pad => Act::Pad {
                member: format!("bigkeys:pad:{}:", run.session.run_id),
                list_element_bytes: list_pad_bytes(run.session.profile.limits.list_node),
            },
            Method::Quarantine => Act::Quarantine {
                db: planned.db,
                empty_db: run.session.config.methods.quarantine_db.unwrap_or(planned.db),
            },
            Method::Expire => Act::Expire { after: jittered(run.session.config.expire_after, planned) },
            Method::Chunked => match &self.grave {
                Some(grave) => Act::Rename {
                    tombstone: grave,
                    persist: run.session.profile.lazyfree.expire != Some(true),
                },
                None => Act::Check,
            },
        };
        recheck::act(&mut run.session, &planned.key, &expected, &act).await
    }

    async fn take_apart(
        &mut self,
        run: &mut Run<'_>,
        confirmed: &Confirmed,
    ) -> Option<(KeyResult, Option<String>, Option<Halt>)> {
        let planned = self.planned;
        let target = Target {
            name: self.grave.as_ref().unwrap_or(&planned.key),
            in_place: self.grave.is_none(),
            shown: &planned.key,
            db: planned.db,
            kind: &planned.kind,
            elements: planned.elements,
            bytes: planned.bytes,
        };
        let apart = take_apart(&mut run.session, &target, confirmed).await;
        self.is_begun |= self.grave.is_none();
        self.apart.chunks += apart.chunks;
        self.apart.removed += apart.removed;
        self.apart.slowest = self.apart.slowest.max(apart.slowest);
        let place = match &self.grave {
            Some(grave) => format!("the rest is in {}", grave.quoted()),
            None => "the rest is in place".to_owned(),
        };
        Some(match apart.end {
            Some(End::Restarted) => return None,
            None if self.grave.is_none() => {
                let mut words = "taken apart in place: RENAME is not to be had".to_owned();
                if !run.session.access.eval && !run.session.access.transactions {
                    words.push_str("; neither are EVAL and WATCH, so that the check was a step of its own");
                }
                (KeyResult::Deleted, Some(words), None)
            }
            None => (KeyResult::Deleted, confirmed.window.map(window_words), None),
            Some(End::Halt(halt)) => (KeyResult::Unfinished, Some(format!("{halt}; {place}")), Some(halt)),
            Some(End::Refused(message))
                if self.grave.is_none()
                    && self.apart.removed == 0
                    && meaning(&message) == Meaning::Denied =>
            {
                (KeyResult::Denied, Some(format!("the server said: {message}")), None)
            }
            Some(End::Refused(message)) => {
                (KeyResult::Unfinished, Some(format!("the server said: {message}; {place}")), None)
            }
            Some(End::Rest(left)) => (
                KeyResult::Unfinished,
                Some(format!("{left} elements are still there, too many for a last DEL; {place}")),
                None,
            ),
        })
    }
}

fn window_words(window: Duration) -> String {
    format!(
        "neither EVAL nor WATCH is to be had: between the check and the act lay {:.1} ms",
        window.as_secs_f64() * 1e3
    )
}

async fn exists(session: &mut Session<'_>, key: &KeyName) -> Result<bool, LinkError> {
    let answer = session.run(Command::new(&["TYPE"]).arg(key.as_bytes())).await?;
    let word = answer.reply.ok().as_ref().and_then(crate::engine::live::reply_text);
    Ok(word.is_some_and(|word| word != "none"))
}

/// Spreads keys over as much time again, so that they do not all expire in one second. The same key of the
/// same plan always gets the same time.
///
/// A key that goes sooner by itself keeps its time: it would otherwise live longer because of us.
fn jittered(after: Duration, planned: &PlannedKey) -> Duration {
    // The golden ratio spreads consecutive numbers evenly.
    let part = (planned.seq as f64 * 0.618_033_988_749_895).fract();
    let spread = after + after.mul_f64(part);
    match planned.expiry {
        Expiry::In(ttl) => spread.min(ttl),
        Expiry::Never | Expiry::Unknown => spread,
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
