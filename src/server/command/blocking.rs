//! Commands that wait for an element: BLPOP and its kin for lists and sorted sets.
//!
//! A command that finds nothing leaves word with its session: until when it waits, what it says if
//! nothing comes, and the command to try again. The event loop tries whenever something has changed,
//! in the order in which clients began to wait. Trying is running the command like any other, so what
//! a waiter does when its turn comes is what it would have done at once.
//!
//! Inside MULTI or a script nothing waits: nothing found is nothing found.

use super::connection::deadline_us;
use super::error::CommandError;
use super::list::{MultiPop, end_at, move_one, pop_many, pop_one};
use super::session::Blocked;
use super::table::{Command, Keys, flag, need};
use super::zset::{Shape, min_or_max, pop_scored};
use super::{Context, Outcome};
use crate::server::resp::{Args, OwnedArgs, Reply};
use crate::server::value::quicklist::End;

const POP: u32 = flag::WRITE | flag::BLOCKING;
const MOVE: u32 = flag::WRITE | flag::DENYOOM | flag::BLOCKING;
/// All arguments but the last, which is the timeout.
const KEYS: Keys = Keys::Range { first: 1, last: -2, step: 1 };
const COUNTED: Keys = Keys::Counted { count_at: 2, dest: false };

pub(super) const LIST_COMMANDS: &[Command] = &[
    Command::new("blpop", -3, POP, KEYS, "2.0.0", blpop).needs(need::BOTH, need::BOTH),
    Command::new("brpop", -3, POP, KEYS, "2.0.0", brpop).needs(need::BOTH, need::BOTH),
    Command::new("blmove", 6, MOVE, Keys::TWO, "6.2.0", blmove).needs(need::BOTH, need::WRITE),
    Command::new("brpoplpush", 4, MOVE, Keys::TWO, "2.2.0", brpoplpush).needs(need::BOTH, need::WRITE),
    Command::new("blmpop", -5, POP | flag::MOVABLEKEYS, COUNTED, "7.0.0", blmpop)
        .needs(need::BOTH, need::BOTH),
];

pub(super) const ZSET_COMMANDS: &[Command] = &[
    Command::new("bzpopmin", -3, POP | flag::FAST, KEYS, "5.0.0", bzpopmin).needs(need::BOTH, need::BOTH),
    Command::new("bzpopmax", -3, POP | flag::FAST, KEYS, "5.0.0", bzpopmax).needs(need::BOTH, need::BOTH),
    Command::new("bzmpop", -5, POP | flag::MOVABLEKEYS, COUNTED, "7.0.0", bzmpop)
        .needs(need::BOTH, need::BOTH),
];

impl Context<'_> {
    /// Lets the client wait and try `again`, for `timeout_ms` or, if that is 0, for ever.
    pub(super) fn block(&mut self, timeout_ms: u64, again: OwnedArgs) {
        let mut nothing = Reply::new(self.out.proto());
        nothing.nil_array();
        if self.nested {
            self.out.raw(nothing.bytes());
            return;
        }
        let until_us = (timeout_ms > 0).then(|| deadline_us(self.server, timeout_ms));
        self.session.blocked = Some(Blocked { until_us, reply: nothing.take(), again: Some(again) });
    }
}

/// Reads a timeout in seconds, fractions allowed, into milliseconds.
fn timeout_ms(args: Args<'_>, index: usize) -> Result<u64, CommandError> {
    const NOT_A_TIME: CommandError = CommandError::new("ERR timeout is not a float or out of range");
    let seconds = args.double(index).map_err(|_| NOT_A_TIME)?;
    if seconds < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    let ms = (seconds * 1000.0).ceil();
    if ms > i64::MAX as f64 {
        return Err("ERR timeout is out of range".into());
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked on both sides just above"
    )]
    let ms = ms as u64;
    Ok(ms)
}

fn blpop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, End::Head)
}

fn brpop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, End::Tail)
}

fn pop(ctx: &mut Context<'_>, args: Args<'_>, end: End) -> Outcome {
    let timeout = timeout_ms(args, args.len() - 1)?;
    for key in args.iter().take(args.len() - 1).skip(1) {
        if let Some(text) = pop_one(ctx, key, end)? {
            ctx.out.array(2);
            ctx.out.bulk(key);
            ctx.out.bulk(&text);
            return Ok(());
        }
    }
    ctx.block(timeout, args.to_owned());
    Ok(())
}

fn blmove(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (end_at(args, 3)?, end_at(args, 4)?);
    move_or_block(ctx, args, from, to)
}

fn brpoplpush(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    move_or_block(ctx, args, End::Tail, End::Head)
}

fn move_or_block(ctx: &mut Context<'_>, args: Args<'_>, from: End, to: End) -> Outcome {
    let timeout = timeout_ms(args, args.len() - 1)?;
    match move_one(ctx, args.at(1), args.at(2), from, to)? {
        Some(text) => ctx.out.bulk(&text),
        None if ctx.nested => ctx.out.nil(),
        None => ctx.block(timeout, args.to_owned()),
    }
    Ok(())
}

fn blmpop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let timeout = timeout_ms(args, 1)?;
    let pop = MultiPop::parse(args, 2)?;
    for key in pop.keys(args) {
        if ctx.db.write_list(key)?.is_some() {
            ctx.out.array(2);
            ctx.out.bulk(key);
            return pop_many(ctx, key, pop.end, pop.count);
        }
    }
    ctx.block(timeout, args.to_owned());
    Ok(())
}

fn bzpopmin(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop_member(ctx, args, false)
}

fn bzpopmax(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop_member(ctx, args, true)
}

fn pop_member(ctx: &mut Context<'_>, args: Args<'_>, max: bool) -> Outcome {
    let timeout = timeout_ms(args, args.len() - 1)?;
    for key in args.iter().take(args.len() - 1).skip(1) {
        if ctx.db.write_zset(key)?.is_some() {
            ctx.out.array(3);
            ctx.out.bulk(key);
            return pop_scored(ctx, key, max, 1, Shape::Bare);
        }
    }
    ctx.block(timeout, args.to_owned());
    Ok(())
}

fn bzmpop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let timeout = timeout_ms(args, 1)?;
    let pop = MultiPop::parse_with(args, 2, min_or_max)?;
    for key in pop.keys(args) {
        if ctx.db.write_zset(key)?.is_some() {
            ctx.out.array(2);
            ctx.out.bulk(key);
            return pop_scored(ctx, key, pop.end == End::Tail, pop.count, Shape::AlwaysPairs);
        }
    }
    ctx.block(timeout, args.to_owned());
    Ok(())
}
