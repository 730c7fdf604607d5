//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use super::error::CommandError;
use super::session::Transaction;
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::resp::Args;

const ALWAYS: u32 = flag::NOSCRIPT | flag::LOADING | flag::STALE;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("multi", 1, ALWAYS | flag::FAST | flag::ALLOW_BUSY, Keys::None, "1.2.0", multi),
    Command::new("exec", 1, ALWAYS | flag::SKIP_SLOWLOG, Keys::None, "1.2.0", exec),
    Command::new("discard", 1, ALWAYS | flag::FAST | flag::ALLOW_BUSY, Keys::None, "2.0.0", discard_command),
    Command::new("watch", -2, ALWAYS | flag::FAST | flag::ALLOW_BUSY, Keys::ALL, "2.2.0", watch)
        .needs(need::ANY, need::ANY),
    Command::new("unwatch", 1, ALWAYS | flag::FAST | flag::ALLOW_BUSY, Keys::None, "2.2.0", unwatch_command),
];

/// Commands one transaction may hold: a client that never sends EXEC must not fill the memory.
const QUEUE_MAX: usize = 1 << 20;

fn multi(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if ctx.session.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    ctx.session.transaction = Some(Transaction::default());
    ctx.out.ok();
    Ok(())
}

fn exec(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let transaction = ctx.session.transaction.take().ok_or("ERR EXEC without MULTI")?;
    let spoiled = ctx.db.keyspace.watches.is_touched(ctx.session.id) || watches_a_due_key(ctx);
    unwatch(ctx);
    if transaction.aborted || transaction.queue.len() > QUEUE_MAX {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    if spoiled {
        ctx.out.nil_array();
        return Ok(());
    }
    ctx.out.array(transaction.queue.len());
    let nested = std::mem::replace(&mut ctx.nested, true);
    for (entry, args) in &transaction.queue {
        // The user's rights may have changed since the command was queued.
        let user = ctx.session.user.clone().unwrap_or_default();
        match ctx.server.acl.check(&user, entry, args.as_args()) {
            Ok(()) => {
                ctx.call(entry, args.as_args());
            }
            Err(denial) => {
                ctx.note_denial(&denial, entry, "multi");
                ctx.out.error(super::dispatch::denied(&denial, &user, entry).text());
            }
        }
    }
    ctx.nested = nested;
    Ok(())
}

/// A key that expired while it was watched has changed, even if nobody reaped it.
fn watches_a_due_key(ctx: &mut Context<'_>) -> bool {
    let keyspace = &mut *ctx.db.keyspace;
    ctx.session.watched.iter().any(|(db, key)| keyspace.select(*db).is_due(key))
}

fn discard_command(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if ctx.session.transaction.is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    discard(ctx);
    ctx.out.ok();
    Ok(())
}

/// Forgets the transaction and what it watches.
pub(super) fn discard(ctx: &mut Context<'_>) {
    ctx.session.transaction = None;
    unwatch(ctx);
}

fn watch(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if ctx.session.transaction.is_some() {
        return Err(CommandError::new("ERR WATCH inside MULTI is not allowed"));
    }
    for key in args.iter().skip(1) {
        let watched = (ctx.session.db, key.into());
        if !ctx.session.watched.contains(&watched) {
            // A key that is due already must not count as changed when it is reaped.
            ctx.db.expire_if_due(key);
            ctx.db.keyspace.watches.watch(ctx.session.id, ctx.session.db, key);
            ctx.session.watched.push(watched);
        }
    }
    ctx.out.ok();
    Ok(())
}

fn unwatch_command(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    unwatch(ctx);
    ctx.out.ok();
    Ok(())
}

pub(super) fn unwatch(ctx: &mut Context<'_>) {
    let watched = std::mem::take(&mut ctx.session.watched);
    ctx.db.keyspace.watches.unwatch(ctx.session.id, &watched);
}
