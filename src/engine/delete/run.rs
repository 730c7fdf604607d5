//! One server: its part of the plan, key by key. Intent to the disk, check and act, outcome.

use std::time::{Duration, Instant};

use crate::engine::key::{Access, Expiry, KeyName};
use crate::engine::live::{Command, LinkError};
use crate::engine::risk::LAZYFREE_THRESHOLD;

use super::audit::{AuditError, AuditRecord, KeyResult, RecordKind, rounded};
use super::chunked::{End, TakenApart, Target, take_apart};
use super::event::KeyOutcome;
use super::execute::Todo;
use super::expect::{Change, Expected};
use super::method::{Method, list_pad_bytes};
use super::plan::{Amount, PlannedKey};
use super::recheck::{self, Acted, Confirmed};
use super::script::Act;
use super::session::{Halt, Meaning, Session, meaning};
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
pub(super) const ATTEMPTS_MAX: u32 = 4;
/// The server counts idle time in whole seconds, by a clock that it reads ten times a second.
const IDLE_RESOLUTION: Duration = Duration::from_secs(2);

/// Why the plan was not gone through.
pub(super) enum Ended {
    Halt(Halt),
    Plan(AuditError),
}

impl From<Halt> for Ended {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

/// One server, while its keys are deleted.
pub(super) struct Run<'a> {
    pub(super) session: Session<'a>,
    pub(super) results: [u64; KeyResult::ALL.len()],
    pub(super) by_method: [Amount; Method::ALL.len()],
    pub(super) sizer: ChunkSizer,
}

impl<'a> Run<'a> {
    pub(super) fn new(session: Session<'a>) -> Self {
        Self {
            session,
            results: [0; KeyResult::ALL.len()],
            by_method: [Amount::default(); Method::ALL.len()],
            sizer: ChunkSizer::new(100, 1, SCRIPT_KEYS_MAX),
        }
    }

    /// Goes through keys of this server.
    pub(super) async fn through(
        &mut self,
        todos: impl Iterator<Item = Result<Todo, AuditError>>,
    ) -> Result<(), Ended> {
        let mut batch: Vec<PlannedKey> = Vec::new();
        let mut bytes = 0;
        for todo in todos {
            let todo = todo.map_err(Ended::Plan)?;
            let limits = &self.session.config.limits;
            let within = self.session.shared.begin(limits, todo.planned.bytes.unwrap_or(0));
            let joins = within.is_ok() && self.can_batch(&todo);
            let continues = batch
                .first()
                .is_none_or(|first| first.db == todo.planned.db && first.method == todo.planned.method);
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

    /// Returns whether a key is so small that many of them go in one script.
    fn can_batch(&self, todo: &Todo) -> bool {
        let planned = &todo.planned;
        self.session.access.eval
            && todo.begun.is_none()
            && matches!(planned.method, Method::Unlink | Method::Del)
            && planned.stall_ms < 0.1
            && planned.free_effort.is_none_or(|effort| effort <= LAZYFREE_THRESHOLD)
    }

    pub(super) fn expected(&self, planned: &PlannedKey) -> Expected {
        let config = self.session.config;
        let idle_min = config.filter.idle_over.map(|idle| {
            if self.session.profile.allows(Access::ClientNoTouch) {
                return idle;
            }
            // The plan's own look counted as a use. Since then, there should have been none.
            let since = planned.observed_at.elapsed().unwrap_or_default();
            idle.min(since.saturating_sub(IDLE_RESOLUTION))
        });
        planned.expected(config.tolerance, idle_min).with_allocator(self.session.profile.allocator)
    }

    pub(super) async fn one(&mut self, todo: &Todo) -> Result<(), Halt> {
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
        let settled = deletion.through(self).await;
        self.session.taking_apart = None;
        let (result, detail, halt) = match settled {
            // Somebody else can still do it, and the audit says how far it is.
            Some((_, _, Some(halt))) if self.session.shared.may_change && halt.is_of_one_server() => {
                self.session.shared.leave_to_another(planned.bytes.unwrap_or(0));
                return Err(halt);
            }
            None => {
                self.session.shared.leave_to_another(planned.bytes.unwrap_or(0));
                return Ok(());
            }
            Some(settled) => settled,
        };
        let outcome = KeyOutcome {
            result,
            detail,
            chunks: deletion.apart.chunks,
            slowest_chunk: (deletion.apart.chunks > 0).then_some(deletion.apart.slowest),
            elapsed: began.elapsed(),
            victim_max: self.session.canary().take_max(),
        };
        let told = self.outcome(planned, &outcome);
        self.session.flush()?;
        told?;
        halt.map_or(Ok(()), Err)
    }

    fn intent(&mut self, planned: &PlannedKey, grave: Option<&KeyName>) -> Result<(), Halt> {
        let mut intent = AuditRecord::new(RecordKind::Intent, &self.session.run_id).of(planned);
        intent.reason = Some(planned.reason.clone());
        intent.tombstone = grave.map(KeyName::quoted);
        intent.node = self.session.shared.may_change.then(|| self.session.profile.node.clone());
        self.session.write_through(&intent)
    }

    pub(super) fn outcome(&mut self, planned: &PlannedKey, outcome: &KeyOutcome) -> Result<(), Halt> {
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
        if !outcome.result.is_final() {
            self.session.shared.settled.borrow_mut().set(planned.seq);
        }
        self.session.emit_outcome(planned, outcome)
    }
}

/// Puts into words what was not an act; also whether the run ends with it.
pub(super) fn told(acted: &Acted, is_repeat: bool) -> (KeyResult, String, Option<Halt>) {
    match acted {
        Acted::Confirmed(_) => (KeyResult::Deleted, String::new(), None),
        Acted::Changed(change @ Change::Gone) if is_repeat => {
            (KeyResult::Gone, format!("{change}: the connection broke as it was being deleted"), None)
        }
        Acted::Changed(change @ Change::Gone) => (KeyResult::Gone, change.to_string(), None),
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
            Meaning::NotNow | Meaning::Elsewhere | Meaning::Failed => {
                (KeyResult::Failed, format!("the server said: {message}"), None)
            }
        },
    }
}

/// What became of a key, what there is to say, and whether the run ends with it.
type Ending = (KeyResult, Option<String>, Option<Halt>);

/// How it ended to take a key apart.
enum Apart {
    Ended(Ending),
    /// From the check again.
    Again,
    /// Another server has it.
    Elsewhere,
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
    /// Returns what became of it. `None`: another server has it.
    async fn through(&mut self, run: &mut Run<'_>) -> Option<Ending> {
        let since = Instant::now();
        let mut attempt = 1;
        loop {
            let lost = match self.attempt(run).await {
                Ok(Acted::Confirmed(confirmed)) if self.planned.method == Method::Chunked => {
                    match self.take_apart(run, &confirmed).await {
                        Apart::Ended(end) => return Some(end),
                        Apart::Elsewhere => return None,
                        // The server restarted, and may have forgotten the tombstone: from the check again.
                        Apart::Again => continue,
                    }
                }
                Ok(Acted::Confirmed(confirmed)) => {
                    run.session.rest(confirmed.cost).await;
                    let result = if self.planned.method == Method::Expire {
                        KeyResult::Expiring
                    } else {
                        KeyResult::Deleted
                    };
                    return Some((result, confirmed.window.map(window_words), None));
                }
                Ok(Acted::Refused(message)) if meaning(&message) == Meaning::Elsewhere => return None,
                Ok(Acted::Refused(message)) if meaning(&message) == Meaning::NotNow => {
                    if let Err(halt) = run.session.not_now(since, &message).await {
                        return Some((
                            KeyResult::Failed,
                            Some(format!("the server said: {message}")),
                            Some(halt),
                        ));
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
                        return Some((
                            KeyResult::Failed,
                            Some(format!("the server said: {message}")),
                            Some(halt),
                        ));
                    }
                    continue;
                }
                // Ours, as far as anybody can tell: the answer was lost with the connection.
                Ok(Acted::Changed(Change::Ttl { gained: true }))
                    if self.planned.method == Method::Expire && (attempt > 1 || self.is_resumed) =>
                {
                    let words = "it has a time to live: the connection broke as it was given one";
                    return Some((KeyResult::Expiring, Some(words.to_owned()), None));
                }
                Ok(acted) => {
                    if matches!(self.planned.method, Method::Quarantine) {
                        run.session.forget_database();
                    }
                    let (result, detail, halt) = told(&acted, attempt > 1);
                    return Some((result, Some(detail), halt));
                }
                Err(error) => error,
            };
            if attempt == ATTEMPTS_MAX {
                let halt = Halt::Lost(lost.to_string());
                return Some((KeyResult::Unfinished, Some(halt.to_string()), Some(halt)));
            }
            attempt += 1;
            if let Err(halt) = run.session.reconnect(&lost).await {
                return Some((KeyResult::Unfinished, Some(halt.to_string()), Some(halt)));
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

    async fn take_apart(&mut self, run: &mut Run<'_>, confirmed: &Confirmed) -> Apart {
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
        Apart::Ended(match apart.end {
            Some(End::Restarted) => return Apart::Again,
            Some(End::Refused(message)) if meaning(&message) == Meaning::Elsewhere => {
                return Apart::Elsewhere;
            }
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
