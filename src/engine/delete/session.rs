//! One server while keys are deleted on it: the connection, the pace, the guard, and the reasons to wait.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::engine::event::Stop;
use crate::engine::key::{KeyName, ServerProfile};
use crate::engine::live::{
    Canary, Command, Endpoint, Link, LinkError, Refusal, RefusalKind, Reply, ServerState, WriteAccess,
    names_no_command, run_id, select,
};
use crate::engine::pace::Pacer;

use super::audit::{Audit, AuditRecord, RecordKind};
use super::config::{DeleteConfig, Limits};
use super::event::{DeleteEvent, DeleteProgress, KeyOutcome};
use super::execute::Place;
use super::hold::hold;
use super::plan::PlannedKey;
use super::resume::Bits;

/// Time between two progress events.
const TICK: Duration = Duration::from_millis(100);
/// Time between two looks at INFO.
const STATE_PERIOD: Duration = Duration::from_millis(250);
/// Part of the server's time that we take, at the most, under a rate limit.
const DUTY: f64 = 0.5;
/// First wait before a lost connection is made again; it doubles up to a second.
const RETRY_WAIT: Duration = Duration::from_millis(50);

/// Why a run ends before its plan does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// The listener wants it.
    Stopped(Stop),
    /// Another client waited this long.
    Guard(Duration),
    /// `--max-keys` is reached.
    KeysMax,
    /// `--max-bytes` is reached.
    BytesMax,
    /// `--deadline` is reached.
    Deadline,
    /// The connection is lost and did not come back.
    Lost(String),
    /// The server takes no writes any more: a replica by now, a full disk, no memory.
    Refused(String),
    /// The audit cannot be written: what cannot be written down is not done.
    Audit(String),
}

/// What a server that restarted means for the keys before.
const RESTARTED: &str =
    "the server restarted: keys that were deleted before may be back, if it had not saved that";

/// Whether a connection that was made again leads to the same process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SameServer {
    Yes,
    Restarted,
}

/// What the run speaks to.
pub(super) type Listener<'l> = dyn FnMut(DeleteEvent<'_>) -> ControlFlow<Stop> + 'l;

/// A command that was sent.
pub(super) struct Pending {
    sent_at: Instant,
    answer: JoinHandle<(Result<Reply, LinkError>, Instant)>,
}

/// Commands that were sent together.
pub(super) struct PendingAll {
    sent_at: Instant,
    answers: JoinHandle<(Result<Vec<Reply>, LinkError>, Instant)>,
}

/// The answer to one, and what it cost the server.
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) cost: Duration,
}

/// What all servers of a run share.
pub(super) struct Shared<'a> {
    pub(super) audit: RefCell<&'a mut Audit>,
    listener: RefCell<&'a mut Listener<'a>>,
    /// The budget of the whole run.
    pub(super) budget: Pacer,
    started: Instant,
    keys_total: u64,
    /// Keys whose outcome is known.
    keys: Cell<u64>,
    /// Keys and bytes that were begun.
    begun: Cell<(u64, u64)>,
    /// Why everybody stops.
    halt: RefCell<Option<Halt>>,
    /// Servers may change places: what one cannot do any more, another may.
    pub(super) may_change: bool,
    /// Keys that are another server's by now.
    pub(super) elsewhere: Cell<u64>,
    /// Keys whose outcome is told and that stay for a later run.
    pub(super) settled: RefCell<Bits>,
}

impl<'a> Shared<'a> {
    pub(super) fn new(
        config: &DeleteConfig,
        keys_total: u64,
        audit: &'a mut Audit,
        listener: &'a mut Listener<'a>,
        may_change: bool,
    ) -> Self {
        Self {
            audit: RefCell::new(audit),
            listener: RefCell::new(listener),
            budget: Pacer::new(config.rate),
            started: Instant::now(),
            keys_total,
            keys: Cell::new(0),
            begun: Cell::new((0, 0)),
            halt: RefCell::default(),
            may_change,
            elsewhere: Cell::new(0),
            settled: RefCell::default(),
        }
    }

    pub(super) fn emit(&self, event: DeleteEvent<'_>) -> Result<(), Halt> {
        match (self.listener.borrow_mut())(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(stop) => Err(Halt::Stopped(stop)),
        }
    }

    /// Counts a key in, if the limits of the run let it.
    pub(super) fn begin(&self, limits: &Limits, bytes: u64) -> Result<(), Halt> {
        let (keys_begun, bytes_begun) = self.begun.get();
        let bytes_begun = bytes_begun.saturating_add(bytes);
        if limits.keys_max.is_some_and(|max| keys_begun >= max) {
            return Err(Halt::KeysMax);
        }
        if limits.bytes_max.is_some_and(|max| bytes_begun > max) {
            return Err(Halt::BytesMax);
        }
        self.begun.set((keys_begun + 1, bytes_begun));
        Ok(())
    }

    /// Counts a key out again that is another server's.
    pub(super) fn leave_to_another(&self, bytes: u64) {
        let (keys, all) = self.begun.get();
        self.begun.set((keys.saturating_sub(1), all.saturating_sub(bytes)));
        self.elsewhere.set(self.elsewhere.get() + 1);
    }

    /// Tells all others why one of them ended, where it is a reason for them too.
    pub(super) fn end(&self, halt: &Halt) {
        if !halt.is_of_one_server() {
            self.halt.borrow_mut().get_or_insert_with(|| halt.clone());
        }
    }

    /// Returns why everybody stops.
    pub(super) fn halted(&self) -> Option<Halt> {
        self.halt.borrow().clone()
    }
}

impl Halt {
    /// Returns whether another server of the deployment could still go on.
    pub(super) fn is_of_one_server(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Refused(_))
    }
}

/// A server while keys are deleted on it.
pub(super) struct Session<'a> {
    pub(super) config: &'a DeleteConfig,
    pub(super) run_id: String,
    pub(super) profile: ServerProfile,
    pub(super) access: WriteAccess,
    pub(super) shared: &'a Shared<'a>,
    pub(super) endpoint: Endpoint,
    link: Link,
    canary: Canary,
    pacer: Pacer,
    /// What a round trip takes when nobody is in the way.
    network: Duration,
    db: Option<u32>,
    ticked_at: Instant,
    state_at: Option<Instant>,
    replied_at: Instant,
    /// What is being taken apart, and how many elements of how many are gone.
    pub(super) taking_apart: Option<(KeyName, u64, Option<u64>)>,
    /// The name under which the server has our script. `None`: it has not.
    pub(super) script_sha: Option<String>,
    pub(super) commands: u64,
    pub(super) slowest_command: Duration,
    pub(super) held: Duration,
    pub(super) slowdowns: u64,
    pub(super) reconnects: u32,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        config: &'a DeleteConfig,
        run_id: &str,
        shared: &'a Shared<'a>,
        endpoint: Endpoint,
        place: Place,
        link: Link,
        canary: Canary,
    ) -> Self {
        let network = canary.state().before.quantile(0.5);
        let now = Instant::now();
        Self {
            config,
            run_id: run_id.to_owned(),
            profile: place.profile,
            access: place.access,
            shared,
            endpoint,
            link,
            canary,
            pacer: shared.budget.for_server(config.rate_per_node),
            network,
            db: None,
            ticked_at: now,
            state_at: None,
            replied_at: now,
            taking_apart: None,
            script_sha: None,
            commands: 0,
            slowest_command: Duration::ZERO,
            held: Duration::ZERO,
            slowdowns: 0,
            reconnects: 0,
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn canary(&self) -> &Canary {
        &self.canary
    }

    pub(super) fn emit(&mut self, event: DeleteEvent<'_>) -> Result<(), Halt> {
        self.shared.emit(event)
    }

    /// Tells the listener what became of a key.
    pub(super) fn emit_outcome(&mut self, planned: &PlannedKey, outcome: &KeyOutcome) -> Result<(), Halt> {
        self.shared.keys.set(self.shared.keys.get() + 1);
        self.emit(DeleteEvent::Outcome(planned, outcome))
    }

    /// Passes when the next write may be made; waits while it may not.
    ///
    /// # Errors
    /// When the run should end.
    pub(super) async fn gate(&mut self) -> Result<(), Halt> {
        self.tick(false)?;
        self.hold_back().await?;
        self.pacer.clone().admit(1).await;
        self.tick(false)
    }

    /// Looks at the guard, the deadline and the listener.
    fn tick(&mut self, now: bool) -> Result<(), Halt> {
        if self.pacer.follow(self.canary.pace()).map_err(Halt::Guard)? {
            self.slowdowns += 1;
            let latency = self.canary.last();
            self.emit(DeleteEvent::SlowedDown(latency))?;
        }
        if self.config.limits.deadline.is_some_and(|deadline| self.shared.started.elapsed() >= deadline) {
            return Err(Halt::Deadline);
        }
        if now || self.ticked_at.elapsed() >= TICK {
            self.ticked_at = Instant::now();
            let progress = DeleteProgress {
                keys: self.shared.keys.get(),
                keys_total: self.shared.keys_total,
                taking_apart: self.taking_apart.clone(),
                canary: self.canary.last(),
            };
            self.emit(DeleteEvent::Progress(progress))?;
        }
        self.shared.halted().map_or(Ok(()), Err)
    }

    /// Waits as long as the server should be left in peace.
    async fn hold_back(&mut self) -> Result<(), Halt> {
        if self.state_at.is_some_and(|at| at.elapsed() < STATE_PERIOD) {
            return Ok(());
        }
        let mut since: Option<(Instant, String)> = None;
        loop {
            let why = match ServerState::read(&self.link).await {
                Ok(state) => state.as_ref().and_then(hold),
                // The next command will find out.
                Err(_) => None,
            };
            self.state_at = Some(Instant::now());
            let Some(why) = why else { break };
            if since.as_ref().is_none_or(|(_, told)| *told != why) {
                self.emit(DeleteEvent::Held(&why))?;
                let record = AuditRecord::new(RecordKind::Hold, &self.run_id).saying(&why);
                self.write(&record)?;
                let begun = since.as_ref().map_or_else(Instant::now, |(begun, _)| *begun);
                since = Some((begun, why));
            }
            let until = Instant::now() + STATE_PERIOD;
            while Instant::now() < until {
                tokio::time::sleep(TICK.min(STATE_PERIOD)).await;
                self.tick(true)?;
            }
        }
        if let Some((begun, _)) = since {
            self.held += begun.elapsed();
            self.emit(DeleteEvent::Released(begun.elapsed()))?;
        }
        Ok(())
    }

    /// Sends a command; its answer is to be waited for with [`Session::answer`], in the order of sending.
    pub(super) fn launch(&mut self, command: Command) -> Pending {
        self.commands += 1;
        let link = self.link.clone();
        let sent_at = Instant::now();
        let answer = tokio::spawn(async move {
            let reply = link.run(&command).await;
            (reply, Instant::now())
        });
        Pending { sent_at, answer }
    }

    /// Sends commands together; their answers are waited for with [`Session::answers`].
    pub(super) fn launch_all(&mut self, commands: Vec<Command>) -> PendingAll {
        self.commands += commands.len() as u64;
        let link = self.link.clone();
        let sent_at = Instant::now();
        let answers = tokio::spawn(async move {
            let replies = link.run_all(&commands).await;
            (replies, Instant::now())
        });
        PendingAll { sent_at, answers }
    }

    /// Waits for the answers, and returns them with the cost of all.
    pub(super) async fn answers(&mut self, pending: PendingAll) -> Result<(Vec<Reply>, Duration), LinkError> {
        let (replies, at) = match pending.answers.await {
            Ok(done) => done,
            Err(error) => (Err(LinkError::Dropped(error.to_string())), Instant::now()),
        };
        let cost = self.cost(pending.sent_at, at);
        Ok((replies?, cost))
    }

    /// Works out what the server took for what was sent then and answered now.
    fn cost(&mut self, sent_at: Instant, at: Instant) -> Duration {
        // The server began with it when it came, or when it was done with the one before.
        let queued = self.replied_at > sent_at;
        let from = sent_at.max(self.replied_at);
        let round_trip = at.saturating_duration_since(from);
        let cost = if queued { round_trip } else { round_trip.saturating_sub(self.network) };
        self.replied_at = self.replied_at.max(at);
        cost
    }

    /// Waits for an answer. Never cut short: what was sent is done, and has to be written down.
    pub(super) async fn answer(&mut self, pending: Pending) -> Result<Answer, LinkError> {
        let (reply, at) = match pending.answer.await {
            Ok(done) => done,
            Err(error) => (Err(LinkError::Dropped(error.to_string())), Instant::now()),
        };
        let cost = self.cost(pending.sent_at, at);
        self.slowest_command = self.slowest_command.max(cost);
        Ok(Answer { reply: reply?, cost })
    }

    /// Sends a command and waits for its answer.
    pub(super) async fn run(&mut self, command: Command) -> Result<Answer, LinkError> {
        let pending = self.launch(command);
        self.answer(pending).await
    }

    /// Rests after a command of this cost, so that others get their part of the server.
    pub(super) async fn rest(&mut self, cost: Duration) {
        let duty =
            if self.config.rate.is_none() { 1.0 } else { DUTY } * self.pacer.with(|quota| quota.factor());
        let rest = cost.mul_f64((1.0 / duty - 1.0).clamp(0.0, 256.0));
        if rest > Duration::ZERO {
            tokio::time::sleep(rest.min(Duration::from_secs(1))).await;
        }
    }

    /// Sees to it that the connection is in this database.
    pub(super) async fn select(&mut self, db: u32) -> Result<Result<(), Refusal>, LinkError> {
        if self.db == Some(db) {
            return Ok(Ok(()));
        }
        let selected = select(&self.link, db).await?;
        // Servers of one database may not know SELECT; a connection that never selected another is in 0.
        let is_needless =
            |refusal: &Refusal| db == 0 && self.db.is_none() && refusal.kind != RefusalKind::NotNow;
        if selected.as_ref().is_err_and(|refusal| !is_needless(refusal)) {
            return Ok(selected);
        }
        self.db = Some(db);
        Ok(Ok(()))
    }

    /// Returns whether the connection is in this database for sure.
    pub(super) fn is_in(&self, db: u32) -> bool {
        self.db == Some(db)
    }

    /// Forgets which database the connection is in: after a script that went elsewhere and failed, say.
    pub(super) fn forget_database(&mut self) {
        self.db = None;
    }

    /// Makes a lost connection again.
    ///
    /// # Errors
    /// When it does not come back within the timeout for commands, or the run should end.
    pub(super) async fn reconnect(&mut self, error: &LinkError) -> Result<SameServer, Halt> {
        self.reconnects += 1;
        self.db = None;
        let endpoint = &self.endpoint.clone();
        self.script_sha = None;
        let since = Instant::now();
        let (mut wait, mut why) = (RETRY_WAIT, error.to_string());
        loop {
            self.emit(DeleteEvent::Reconnecting(&why))?;
            tokio::time::sleep(wait).await;
            self.tick(true)?;
            match Link::open(endpoint, "bigkeys").await {
                Ok(link) => match run_id(&link).await {
                    Ok(run_id) => {
                        self.link = link;
                        let before = std::mem::replace(&mut self.profile.run_id, run_id);
                        return self.is_the_same(before.as_deref());
                    }
                    Err(error) => why = error.to_string(),
                },
                Err(error) => why = error.to_string(),
            }
            if since.elapsed() > endpoint.timeouts.command {
                return Err(Halt::Lost(why));
            }
            wait = (wait * 2).min(Duration::from_secs(1));
        }
    }

    /// Finds out whether the server is the process that it was, and tells everybody if it is not.
    fn is_the_same(&mut self, run_id_before: Option<&str>) -> Result<SameServer, Halt> {
        let now = self.profile.run_id.as_deref();
        if run_id_before.is_none() || now.is_none() || run_id_before == now {
            return Ok(SameServer::Yes);
        }
        let record = AuditRecord::new(RecordKind::Hold, &self.run_id).saying(RESTARTED);
        self.write(&record)?;
        self.emit(DeleteEvent::Warning(RESTARTED))?;
        Ok(SameServer::Restarted)
    }

    /// Waits a little while the server says that it is not ready.
    pub(super) async fn not_now(&mut self, since: Instant, why: &str) -> Result<(), Halt> {
        if since.elapsed() > self.endpoint.timeouts.command {
            return Err(Halt::Refused(why.to_owned()));
        }
        tokio::time::sleep(TICK).await;
        self.tick(true)
    }

    /// Writes a line of the audit.
    pub(super) fn write(&mut self, record: &AuditRecord) -> Result<(), Halt> {
        self.shared.audit.borrow_mut().write(record).map_err(|error| Halt::Audit(error.to_string()))
    }

    /// Hands what was written to the audit to the system: it outlives this process.
    pub(super) fn flush(&mut self) -> Result<(), Halt> {
        self.shared.audit.borrow_mut().flush().map_err(|error| Halt::Audit(error.to_string()))
    }

    /// Writes a line of the audit, and everything before it, to the disk.
    pub(super) fn write_through(&mut self, record: &AuditRecord) -> Result<(), Halt> {
        self.write(record)?;
        self.shared.audit.borrow_mut().sync().map_err(|error| Halt::Audit(error.to_string()))
    }

    /// Says what is being taken apart, and how far it is.
    pub(super) fn taking_apart(&mut self, key: &KeyName, gone: u64, total: Option<u64>) {
        match &mut self.taking_apart {
            // A name may have megabytes; it is the same for each chunk of a key.
            Some((_, so_far, _)) => *so_far = gone,
            none => *none = Some((key.clone(), gone, total)),
        }
    }
}

/// What a refusal means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// This key is closed to us.
    Denied,
    /// Another server of the cluster has it.
    Elsewhere,
    /// Ask again later.
    NotNow,
    /// No write will succeed.
    NoWrites,
    /// Something else, for this key.
    Failed,
}

/// Reads the meaning out of the server's words; in a script, they are in the middle of a sentence.
pub(super) fn meaning(message: &str) -> Meaning {
    let has = |word: &str| message.contains(word);
    if message.starts_with("MOVED ") || message.starts_with("ASK ") {
        Meaning::Elsewhere
    } else if has("READONLY") || has("MISCONF") || has("NOREPLICAS") || has("NOAUTH") {
        Meaning::NoWrites
    } else if has("NOPERM")
        || has("ACL failure")
        || has("has no permissions")
        || has("can't run this command")
        || names_no_command(message)
    {
        Meaning::Denied
    } else if has("LOADING") || has("BUSY ") || has("MASTERDOWN") || has("TRYAGAIN") || has("CLUSTERDOWN") {
        Meaning::NotNow
    } else {
        Meaning::Failed
    }
}

/// Returns whether a script may not send a command that could be sent without one: some services keep MEMORY from
/// scripts.
pub(super) fn is_kept_from_scripts(message: &str) -> bool {
    message.to_ascii_lowercase().contains("not allowed from script")
}

/// Returns whether a refusal says that the command itself is not for this user or this server.
pub(super) fn is_command_refusal(refusal: &Refusal) -> bool {
    matches!(refusal.kind, RefusalKind::CommandDenied | RefusalKind::UnknownCommand)
}
