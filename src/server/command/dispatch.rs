//! From arguments to a reply: find the command, check what must be checked, queue it or run it,
//! and keep the books.

use super::acl::Denial;
use super::core::Core;
use super::error::CommandError;
use super::session::{ReplyMode, Session};
use super::table::{Entry, flag};
use super::{Context, Outcome};
use crate::server::fault::FaultAction;
use crate::server::keyspace::Free;
use crate::server::resp::{Args, Reply};
use crate::server::value::Value;
use crate::server::value::string::StringValue;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It has been answered, or its reply was not wanted.
    Done,
    /// Clients are paused: ask again later with the same request.
    Postponed,
}

impl Core {
    /// Carries one request out for one client.
    pub(crate) fn execute(&mut self, session: &mut Session, out: &mut Reply, args: Args<'_>) -> Flow {
        if args.len() == 0 {
            return Flow::Done;
        }
        let (start, mode) = (out.len(), session.reply_mode);
        self.keyspace.now_ms = self.server.clock.unix_ms();
        session.active_us = self.server.clock.monotonic_us();
        let mut db = self.keyspace.select(session.db);
        db.no_touch = session.no_touch;
        let mut ctx =
            Context { server: &mut self.server, db, session, out, nested: false, page_faults: Vec::new() };
        let flow = ctx.request(args);
        if flow == Flow::Done {
            mute(session, out, start, mode);
        }
        flow
    }
}

impl Core {
    /// Runs the command that a client waits with once more, its reply going to `out`. Says whether
    /// the wait is over.
    pub(crate) fn try_again(&mut self, session: &mut Session, out: &mut Reply) -> bool {
        let Some(mut blocked) = session.blocked.take() else {
            return true;
        };
        let Some(again) = blocked.again.take() else {
            session.blocked = Some(blocked);
            return false;
        };
        let start = out.len();
        let flow = self.execute(session, out, again.as_args());
        // A key that became something else meanwhile is no reason to stop waiting.
        let refused = out.bytes()[start..].starts_with(b"-WRONGTYPE");
        if flow == Flow::Done && session.blocked.is_none() && !refused {
            return true;
        }
        // The time it may wait runs from when it began to.
        out.truncate(start);
        blocked.again = Some(again);
        session.blocked = Some(blocked);
        false
    }
}

/// Drops the reply if CLIENT REPLY says so.
fn mute(session: &mut Session, out: &mut Reply, start: usize, before: ReplyMode) {
    let spoken = match (before, session.reply_mode) {
        (ReplyMode::On, ReplyMode::On) => return,
        // CLIENT REPLY ON answers for itself.
        (ReplyMode::Off, ReplyMode::On) => true,
        (ReplyMode::SkipNext, ReplyMode::SkipNext) => {
            session.reply_mode = ReplyMode::On;
            false
        }
        _ => false,
    };
    if !spoken {
        out.truncate(start);
    }
}

impl Context<'_> {
    fn request(&mut self, args: Args<'_>) -> Flow {
        let entry = match self.server.names.resolve(args) {
            Ok(entry) => entry,
            Err(error) => {
                self.refuse(None, &error);
                return Flow::Done;
            }
        };
        self.session.last_command = entry.command.name;
        if let Err(error) = self.admit(entry, args) {
            if entry.command.name == "exec" {
                self.abort_exec(&error);
            } else {
                self.refuse(Some(entry), &error);
            }
            return Flow::Done;
        }
        if self.queues(entry) {
            if let Some(transaction) = &mut self.session.transaction {
                transaction.queue.push((entry, args.to_owned()));
                self.out.simple("QUEUED");
            }
            return Flow::Done;
        }
        let writes = entry.command.has(flag::WRITE) || entry.command.name == "exec";
        // Whoever may end the pause must get through.
        let unpausable = entry.command.name.starts_with("client|") || entry.command.name == "client";
        if !unpausable && self.server.is_paused(writes) {
            return Flow::Postponed;
        }
        match self.suffer(entry, args) {
            Ok(()) => {
                self.call(entry, args);
            }
            Err(error) => self.refuse(Some(entry), &error),
        }
        Flow::Done
    }

    /// Says whether MULTI holds this command back for EXEC.
    fn queues(&self, entry: &Entry) -> bool {
        const IMMEDIATE: [&str; 6] = ["exec", "discard", "multi", "watch", "quit", "reset"];
        self.session.transaction.is_some() && !IMMEDIATE.contains(&entry.command.name)
    }

    /// Checks arity, identity, permission and memory, in Redis' order.
    fn admit(&mut self, entry: &Entry, args: Args<'_>) -> Outcome {
        if !entry.command.accepts(args.len()) {
            return Err(CommandError::wrong_arity(entry.command.name));
        }
        match &self.session.user {
            None if !entry.command.has(flag::NO_AUTH) => {
                return Err(CommandError::new("NOAUTH Authentication required."));
            }
            None => {}
            Some(user) => {
                if let Err(denial) = self.server.acl.check(user, entry, args) {
                    let refusal = denied(&denial, user, entry);
                    let context = if self.session.transaction.is_some() { "multi" } else { "toplevel" };
                    self.note_denial(&denial, entry, context);
                    return Err(refusal);
                }
            }
        }
        self.make_room(entry)?;
        if self.session.transaction.is_some() && entry.command.has(flag::NO_MULTI) {
            return Err(CommandError::new("ERR Command not allowed inside a transaction"));
        }
        Ok(())
    }

    /// Evicts down to `maxmemory`, and refuses what would need more when that fails.
    pub(crate) fn make_room(&mut self, entry: &Entry) -> Outcome {
        let Ok(max @ 1..) = usize::try_from(self.server.settings.maxmemory) else {
            return Ok(());
        };
        let server = &*self.server;
        let fits = self.db.keyspace.evict_while(|keyspace| server.used_memory(keyspace) > max);
        if !fits && entry.command.has(flag::DENYOOM) {
            return Err(CommandError::new("OOM command not allowed when used memory > 'maxmemory'."));
        }
        Ok(())
    }

    /// Answers a request that will not run. In a transaction it spoils the rest.
    fn refuse(&mut self, entry: Option<&Entry>, error: &CommandError) {
        if let Some(entry) = entry {
            self.server.stats.rejected(entry);
        }
        self.server.stats.error(error.code());
        if let Some(transaction) = &mut self.session.transaction {
            transaction.aborted = true;
        }
        self.out.error(error.text());
    }

    /// EXEC itself was refused: the transaction ends, and the reason is passed on.
    fn abort_exec(&mut self, error: &CommandError) {
        let text = [b"EXECABORT Transaction discarded because of: ", error.text()].concat();
        super::transaction::discard(self);
        self.server.stats.error(b"EXECABORT");
        self.out.error(&text);
    }

    /// Runs a command and keeps the books. Replies with an error if the command returns one.
    /// Returns whether it went well.
    pub(crate) fn call(&mut self, entry: &Entry, args: Args<'_>) -> bool {
        let start = self.out.len();
        let start_us = self.server.clock.monotonic_us();
        let outcome = (entry.command.run)(self, args);
        let took_us = self.server.clock.monotonic_us().saturating_sub(start_us);
        if let Err(error) = &outcome {
            self.out.truncate(start);
            self.out.error(error.text());
            self.server.stats.error(error.code());
        }
        self.page_faults.clear();
        let track = self.server.settings.latency_tracking;
        self.server.stats.called(entry, took_us, outcome.is_err(), track);
        if self.server.settings.latency_threshold_ms > 0 {
            let event = if entry.command.has(flag::FAST) { "fast-command" } else { "command" };
            self.server.note_latency(event, took_us);
        }
        self.note_slow(entry, args, took_us);
        outcome.is_ok()
    }

    fn note_slow(&mut self, entry: &Entry, args: Args<'_>, took_us: u64) {
        let threshold = u64::try_from(self.server.settings.slowlog_slower_than_us);
        let slow = threshold.is_ok_and(|threshold| took_us >= threshold);
        if slow && !entry.command.has(flag::SKIP_SLOWLOG) {
            let unix_s = self.server.unix_s();
            let from = (self.session.addr.as_str(), self.session.name.as_str());
            self.server.slowlog.push(args, unix_s, took_us, from, self.server.settings.slowlog_max_len);
        }
    }

    /// Lets the faults strike that a test has set for this command.
    pub(super) fn suffer(&mut self, entry: &Entry, args: Args<'_>) -> Outcome {
        let keys = || entry.command.keys.positions(args).into_iter().map(|at| args.at(at));
        let actions = self.server.faults.strike(entry.command.name, |key| keys().any(|other| other == key));
        for action in actions {
            match action {
                FaultAction::Delay(time) => self.server.clock.sleep(time),
                FaultAction::DropAfter(bytes) => self.session.cut_after = Some(bytes),
                FaultAction::Error(text) => return Err(CommandError::with(text)),
                FaultAction::Vanish => {
                    for key in keys() {
                        self.db.delete(key, Free::Lazily);
                    }
                }
                FaultAction::Retype => {
                    for key in keys() {
                        self.db.overwrite(key, Value::String(StringValue::encode(b"retyped".to_vec())));
                    }
                }
                page => self.page_faults.push(page),
            }
        }
        Ok(())
    }
}

/// Writes why a user may not.
pub(super) fn denied(denial: &Denial, user: &str, entry: &Entry) -> CommandError {
    match denial {
        Denial::Command => {
            let name = entry.command.name;
            CommandError::with(format!("NOPERM User {user} has no permissions to run the '{name}' command"))
        }
        Denial::Key(_) => CommandError::new("NOPERM No permissions to access a key"),
    }
}
