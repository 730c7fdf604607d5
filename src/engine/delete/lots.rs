//! Many small keys: a script for a few hundred of them, or, in a cluster, one for those of each slot.

use std::time::{Duration, Instant};

use crate::engine::live::{Command, LinkError, Refusal, RefusalKind, Reply, reply_text};

use super::audit::{AuditRecord, KeyResult, RecordKind};
use super::event::KeyOutcome;
use super::execute::Todo;
use super::expect::{Expected, has_ttl};
use super::method::Method;
use super::plan::PlannedKey;
use super::recheck::is_eval_refusal;
use super::run::{ATTEMPTS_MAX, Run, told};
use super::script::{self, Act, Done};
use super::session::{Halt, Meaning, PendingAll, is_kept_from_scripts, meaning};

/// Small keys that go together.
struct Lot<'b> {
    keys: &'b [PlannedKey],
    /// What must still hold for each.
    expected: Vec<Expected>,
    /// What became of each, as far as it is known.
    done: Vec<Option<Done>>,
    /// The scripts that are still to be answered: which keys each of them is for.
    scripts: Vec<std::ops::Range<usize>>,
    began: Instant,
    /// `None`: it is not on its way.
    pending: Option<PendingAll>,
}

/// What became of them.
struct Settled<'b> {
    keys: &'b [PlannedKey],
    done: Vec<Option<Done>>,
    /// Those that the script could not look at.
    by_itself: Vec<&'b PlannedKey>,
    /// What all of them have in common.
    shared: KeyOutcome,
    /// The connection broke, and something was sent again.
    is_repeat: bool,
}

impl Run<'_> {
    /// Deletes small keys. What became of one lot is written down while the server has the next.
    pub(super) async fn batch(&mut self, mut batch: Vec<PlannedKey>) -> Result<(), Halt> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
        let mut intent = AuditRecord::new(RecordKind::Intent, &self.session.run_id);
        intent.seq = Some(first.seq);
        intent.seq_to = Some(last.seq);
        intent.node = self.session.shared.may_change.then(|| self.session.profile.node.clone());
        intent.db = Some(first.db);
        intent.method = Some(first.method.as_str().to_owned());
        intent = intent.saying(&format!("{} small keys", batch.len()));
        // Before the intent: a run that is stopped here has not begun them.
        self.session.gate().await?;
        self.session.write_through(&intent)?;
        let is_cluster = self.session.profile.cluster;
        // A script is for one slot, and says only once what it expects of keys that stand together.
        batch.sort_by_cached_key(|key| {
            let slot = if is_cluster { key.key.slot() } else { 0 };
            (slot, key.kind.as_str().to_owned(), key.bytes, key.elements, has_ttl(key.expiry))
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
            let Some(mut settled) = settled else { continue };
            let by_itself = std::mem::take(&mut settled.by_itself);
            if let Err(why) = self.write_down(settled) {
                halt.get_or_insert(why);
            }
            for planned in by_itself {
                if halt.is_none() {
                    halt = Box::pin(self.one(&Todo { planned: planned.clone(), begun: None })).await.err();
                }
            }
        }
        halt.map_or(Ok(()), Err)
    }

    /// Cuts the next lot off.
    fn next_lot<'b>(&self, rest: &mut &'b [PlannedKey]) -> Option<Lot<'b>> {
        let size = usize::try_from(self.sizer.size()).unwrap_or(1).min(rest.len());
        let (keys, after) = rest.split_at(size);
        *rest = after;
        if keys.is_empty() {
            return None;
        }
        let mut scripts: Vec<std::ops::Range<usize>> = Vec::new();
        if self.session.profile.cluster {
            for (index, planned) in keys.iter().enumerate() {
                match scripts.last_mut() {
                    Some(last) if keys[last.start].key.slot() == planned.key.slot() => last.end = index + 1,
                    _ => scripts.push(index..index + 1),
                }
            }
        } else {
            scripts.push(0..keys.len());
        }
        let expected = keys.iter().map(|planned| self.expected(planned)).collect();
        Some(Lot {
            keys,
            expected,
            done: vec![None; keys.len()],
            scripts,
            began: Instant::now(),
            pending: None,
        })
    }

    fn commands(&self, lot: &Lot<'_>) -> Vec<Command> {
        let act = if lot.keys[0].method == Method::Del { Act::Del } else { Act::Unlink };
        let sha = self.session.script_sha.as_deref();
        lot.scripts
            .iter()
            .map(|range| {
                let names = lot.keys[range.clone()].iter().map(|planned| &planned.key);
                script::check_and_act(&act, names.zip(&lot.expected[range.clone()]), sha)
            })
            .collect()
    }

    /// Sends a lot. The connection must be in its database, or is put there when it is settled.
    fn sent<'b>(&mut self, mut lot: Lot<'b>) -> Lot<'b> {
        lot.began = Instant::now();
        let is_prepared = lot.scripts.len() == 1 || self.session.script_sha.is_some();
        if self.session.access.eval && is_prepared && self.session.is_in(lot.keys[0].db) {
            let commands = self.commands(&lot);
            lot.pending = Some(self.session.launch_all(commands));
        }
        lot
    }

    /// Waits for what became of a lot. `None`: its keys went one by one, and all is written down.
    async fn settle<'b>(&mut self, mut lot: Lot<'b>) -> Result<Option<Settled<'b>>, Halt> {
        let mut attempt = 1;
        let mut cost = Duration::ZERO;
        while !lot.scripts.is_empty() {
            let failure = match self.replies_to(&mut lot).await {
                Ok(Some((replies, took))) => {
                    cost += took;
                    if let Some(why) = take(&mut lot, replies) {
                        self.session.script_sha = None;
                        self.session.not_now(lot.began, &why).await?;
                    }
                    continue;
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
        }
        self.sizer.observe(lot.keys.len() as u64, cost);
        self.session.rest(cost).await;
        let mut by_itself = Vec::new();
        for (planned, done) in lot.keys.iter().zip(&mut lot.done) {
            // Nothing was done to it: the check comes first.
            if matches!(done, Some(Done::Refused(message)) if is_kept_from_scripts(message)) {
                self.session.access.eval = false;
                by_itself.push(planned);
                *done = Some(Done::ByItself);
            }
        }
        let shared = KeyOutcome {
            result: KeyResult::Deleted,
            detail: None,
            chunks: 0,
            slowest_chunk: Some(cost),
            elapsed: lot.began.elapsed(),
            victim_max: self.session.canary().take_max(),
        };
        Ok(Some(Settled { keys: lot.keys, done: lot.done, by_itself, shared, is_repeat: attempt > 1 }))
    }

    /// Returns the replies to the scripts of a lot, which are sent if they were not. `None`: EVAL is not to be had.
    async fn replies_to(&mut self, lot: &mut Lot<'_>) -> Result<Option<(Vec<Reply>, Duration)>, LinkError> {
        let pending = match lot.pending.take() {
            Some(pending) => pending,
            None if !self.session.access.eval => return Ok(None),
            None => {
                if let Err(refusal) = self.session.select(lot.keys[0].db).await? {
                    let refused = lot.scripts.iter().map(|_| Err(refusal.clone())).collect();
                    return Ok(Some((refused, Duration::ZERO)));
                }
                if lot.scripts.len() > 1 {
                    self.load_script().await?;
                }
                let commands = self.commands(lot);
                self.session.launch_all(commands)
            }
        };
        let (replies, cost) = self.session.answers(pending).await?;
        if replies.iter().any(|reply| reply.as_ref().is_err_and(is_eval_refusal)) {
            self.session.access.eval = false;
            return Ok(None);
        }
        Ok(Some((replies, cost)))
    }

    /// Gives the script to the server, so that it need not be sent for each slot. Where that is refused, it is.
    async fn load_script(&mut self) -> Result<(), LinkError> {
        if self.session.script_sha.is_none() {
            let answer = self.session.run(script::load()).await?;
            self.session.script_sha = answer.reply.ok().as_ref().and_then(reply_text);
        }
        Ok(())
    }

    /// Writes down what became of a lot: all of it, whoever wants to stop meanwhile.
    fn write_down(&mut self, settled: Settled<'_>) -> Result<(), Halt> {
        let Settled { keys, done, shared, is_repeat, .. } = settled;
        let mut halt = None;
        for (planned, done) in keys.iter().zip(done) {
            let (result, detail) = match done {
                Some(Done::Acted) => (KeyResult::Deleted, None),
                // Its turn comes.
                Some(Done::ByItself) => continue,
                // Another server's: it is found again there.
                None => {
                    self.session.shared.leave_to_another(planned.bytes.unwrap_or(0));
                    continue;
                }
                Some(done) => {
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
}

/// Takes the replies to the scripts of a lot. What has to be sent again stays in it; returns why, if the server is not
/// ready.
fn take(lot: &mut Lot<'_>, replies: Vec<Reply>) -> Option<String> {
    let mut not_now = None;
    let mut again = Vec::new();
    for (range, reply) in std::mem::take(&mut lot.scripts).into_iter().zip(replies) {
        match reply {
            Err(refusal) if is_forgotten(&refusal) || meaning(&refusal.message) == Meaning::NotNow => {
                not_now = Some(refusal.message);
                again.push(range);
            }
            Err(refusal) if meaning(&refusal.message) == Meaning::Elsewhere => {}
            // A script that names one key which is closed to us is refused as a whole.
            Err(refusal) if range.len() > 1 && meaning(&refusal.message) == Meaning::Denied => {
                let middle = range.start + range.len() / 2;
                again.extend([range.start..middle, middle..range.end]);
            }
            reply => {
                let expected: Vec<&Expected> = lot.expected[range.clone()].iter().collect();
                for (done, told) in lot.done[range].iter_mut().zip(script::read(reply, &expected)) {
                    *done = Some(told);
                }
            }
        }
    }
    lot.scripts = again;
    not_now
}

/// The server restarted, or somebody flushed its scripts.
fn is_forgotten(refusal: &Refusal) -> bool {
    refusal.kind == RefusalKind::Other && refusal.message.starts_with("NOSCRIPT")
}
