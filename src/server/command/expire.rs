//! Deadlines: setting, reading and removing them.

use super::error::CommandError;
use super::table::{Command, Keys, flag};
use super::{Context, Outcome};
use crate::server::resp::Args;

const WRITE: u32 = flag::WRITE | flag::FAST;
const READ: u32 = flag::READONLY | flag::FAST;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("expire", -3, WRITE, Keys::ONE, "1.0.0", |ctx, args| {
        expire(ctx, args, "expire", 1000, true)
    }),
    Command::new("pexpire", -3, WRITE, Keys::ONE, "2.6.0", |ctx, args| expire(ctx, args, "pexpire", 1, true)),
    Command::new("expireat", -3, WRITE, Keys::ONE, "1.2.0", |ctx, args| {
        expire(ctx, args, "expireat", 1000, false)
    }),
    Command::new("pexpireat", -3, WRITE, Keys::ONE, "2.6.0", |ctx, args| {
        expire(ctx, args, "pexpireat", 1, false)
    }),
    Command::new("ttl", 2, READ, Keys::ONE, "1.0.0", |ctx, args| ttl(ctx, args, 1000, true)),
    Command::new("pttl", 2, READ, Keys::ONE, "2.6.0", |ctx, args| ttl(ctx, args, 1, true)),
    Command::new("expiretime", 2, READ, Keys::ONE, "7.0.0", |ctx, args| ttl(ctx, args, 1000, false)),
    Command::new("pexpiretime", 2, READ, Keys::ONE, "7.0.0", |ctx, args| ttl(ctx, args, 1, false)),
    Command::new("persist", 2, WRITE, Keys::ONE, "2.2.0", persist),
];

/// When a deadline may be set, depending on the one there is.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "four independent options of one command")]
struct Conditions {
    none_yet: bool,
    some_already: bool,
    later: bool,
    sooner: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Conditions, CommandError> {
        let mut conditions = Conditions::default();
        for at in 3..args.len() {
            match args.lower(at).as_str() {
                "nx" => conditions.none_yet = true,
                "xx" => conditions.some_already = true,
                "gt" => conditions.later = true,
                "lt" => conditions.sooner = true,
                _ => {
                    return Err(CommandError::with([b"ERR Unsupported option ", args.at(at)].concat()));
                }
            }
        }
        let Conditions { none_yet, some_already, later, sooner } = conditions;
        if none_yet && (some_already || later || sooner) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if later && sooner {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(conditions)
    }

    /// No deadline counts as one that never comes.
    fn allow(&self, current: Option<i64>, new: i64) -> bool {
        !(self.none_yet && current.is_some()
            || self.some_already && current.is_none()
            || self.later && current.is_none_or(|current| new <= current)
            || self.sooner && current.is_some_and(|current| new >= current))
    }
}

/// Turns an amount of time into a deadline in Unix milliseconds, as all expiring commands do.
pub(super) fn deadline_ms(
    amount: i64,
    unit_ms: i64,
    relative_to_ms: u64,
    command: &str,
) -> Result<i64, CommandError> {
    let base = i64::try_from(relative_to_ms).unwrap_or(i64::MAX);
    let deadline = amount.checked_mul(unit_ms).and_then(|ms| ms.checked_add(base));
    deadline.ok_or_else(|| CommandError::invalid_expire(command))
}

fn expire(ctx: &mut Context<'_>, args: Args<'_>, name: &str, unit_ms: i64, relative: bool) -> Outcome {
    let key = args.at(1);
    let amount = args.int(2)?;
    let conditions = Conditions::parse(args)?;
    let now_ms = ctx.db.now_ms();
    let deadline = deadline_ms(amount, unit_ms, if relative { now_ms } else { 0 }, name)?;
    if ctx.db.lookup_write(key).is_none() {
        ctx.out.int(0);
        return Ok(());
    }
    let current = ctx.db.deadline(key).map(|at_ms| i64::try_from(at_ms).unwrap_or(i64::MAX));
    if !conditions.allow(current, deadline) {
        ctx.out.int(0);
        return Ok(());
    }
    set_deadline(ctx, key, deadline);
    ctx.out.int(1);
    Ok(())
}

/// Sets a deadline; one that has passed deletes the key now, as an expiry would.
pub(super) fn set_deadline(ctx: &mut Context<'_>, key: &[u8], deadline: i64) {
    match u64::try_from(deadline) {
        Ok(at_ms) if at_ms > ctx.db.now_ms() => {
            ctx.db.set_deadline(key, at_ms);
            ctx.db.changed(key, 1);
        }
        _ => ctx.db.delete_as_expired(key),
    }
}

fn ttl(ctx: &mut Context<'_>, args: Args<'_>, unit_ms: u64, relative: bool) -> Outcome {
    let key = args.at(1);
    let found = ctx.db.lookup_quiet(key).is_some();
    let reply = match ctx.db.deadline(key) {
        _ if !found => -2,
        None => -1,
        Some(at_ms) => {
            let ms = if relative { at_ms.saturating_sub(ctx.db.now_ms()) } else { at_ms };
            // Seconds are rounded to the nearest.
            i64::try_from((ms + unit_ms / 2) / unit_ms).unwrap_or(i64::MAX)
        }
    };
    ctx.out.int(reply);
    Ok(())
}

fn persist(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let cleared = ctx.db.lookup_write(key).is_some() && ctx.db.clear_deadline(key);
    if cleared {
        ctx.db.changed(key, 1);
    }
    ctx.out.bool_int(cleared);
    Ok(())
}
