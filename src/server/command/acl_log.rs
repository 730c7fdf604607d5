//! ACL LOG: who was denied what.

use std::collections::VecDeque;

use super::acl::Denial;
use super::error::CommandError;
use super::table::Entry as CommandEntry;
use super::{Context, Outcome};
use crate::server::resp::Args;

/// The same denial within this time is counted, not logged again.
const GROUPING_MS: u64 = 60_000;

/// Bytes of a key that an entry keeps: 128 entries with keys of 512 MB would be too much.
const OBJECT_BYTES_MAX: usize = 1024;

/// One kind of denial.
#[derive(Debug)]
struct Entry {
    id: i64,
    count: i64,
    what: Refusal,
    created_ms: u64,
    updated_ms: u64,
    /// The client as CLIENT LIST shows it, the last time.
    client: String,
}

/// What makes two denials the same.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    reason: &'static str,
    context: &'static str,
    object: Vec<u8>,
    user: String,
}

/// The log, newest first.
#[derive(Debug, Default)]
pub(crate) struct AclLog {
    entries: VecDeque<Entry>,
    next_id: i64,
}

impl AclLog {
    fn note(&mut self, what: Refusal, client: String, now_ms: u64, max_len: i64) {
        let same = |entry: &Entry| entry.what == what && now_ms < entry.updated_ms + GROUPING_MS;
        let known = self.entries.iter().position(same).and_then(|at| self.entries.remove(at));
        if let Some(known) = known {
            self.entries.push_front(Entry { count: known.count + 1, updated_ms: now_ms, client, ..known });
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(Entry { id, count: 1, what, created_ms: now_ms, updated_ms: now_ms, client });
        self.entries.truncate(usize::try_from(max_len).unwrap_or(usize::MAX));
    }
}

impl Context<'_> {
    /// Logs that the user of this connection may not run `entry`.
    pub(super) fn note_denial(&mut self, denial: &Denial, entry: &CommandEntry, context: &'static str) {
        let (reason, object) = match denial {
            Denial::Command => ("command", entry.command.name.as_bytes().to_vec()),
            Denial::Key(key) => ("key", key[..key.len().min(OBJECT_BYTES_MAX)].to_vec()),
        };
        let user = self.session.user.clone().unwrap_or_default();
        self.log_refusal(Refusal { reason, context, object, user });
    }

    /// Logs that somebody failed to become `user`.
    pub(super) fn note_failed_login(&mut self, command: &[u8], user: &str) {
        let (object, user) = (command.to_vec(), user.to_owned());
        self.log_refusal(Refusal { reason: "auth", context: "toplevel", object, user });
    }

    fn log_refusal(&mut self, what: Refusal) {
        let client = self.session.describe(self.server.clock.monotonic_us());
        let now_ms = self.server.clock.unix_ms();
        self.server.acl_log.note(what, client, now_ms, self.server.settings.acl_log_max_len);
    }
}

pub(super) fn log(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::subcommand(args));
    }
    if args.is(2, "RESET") {
        ctx.server.acl_log.entries.clear();
        ctx.out.ok();
        return Ok(());
    }
    let wanted = if args.len() == 3 { usize::try_from(args.int(2)?).unwrap_or(0) } else { 10 };
    let now_ms = ctx.server.clock.unix_ms();
    let (entries, out) = (&ctx.server.acl_log.entries, &mut *ctx.out);
    let shown = wanted.min(entries.len());
    out.array(shown);
    for entry in entries.iter().take(shown) {
        out.map(10);
        out.text("count");
        out.int(entry.count);
        for (name, value) in [("reason", entry.what.reason), ("context", entry.what.context)] {
            out.text(name);
            out.text(value);
        }
        out.text("object");
        out.bulk(&entry.what.object);
        out.text("username");
        out.text(&entry.what.user);
        out.text("age-seconds");
        out.double(now_ms.saturating_sub(entry.updated_ms) as f64 / 1000.0);
        out.text("client-info");
        out.text(&entry.client);
        let wide = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        for (name, value) in [
            ("entry-id", entry.id),
            ("timestamp-created", wide(entry.created_ms)),
            ("timestamp-last-updated", wide(entry.updated_ms)),
        ] {
            out.text(name);
            out.int(value);
        }
    }
    Ok(())
}
