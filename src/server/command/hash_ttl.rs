//! Fields with a time to live: HEXPIRE, HTTL, HPERSIST and their kin, as Redis has them since 7.4.

use super::error::CommandError;
use super::table::{Command, Keys, flag};
use super::{Context, Outcome};
use crate::server::resp::Args;
use crate::server::value::hash::Hash;

const PUT: u32 = flag::WRITE | flag::FAST;
const READ: u32 = flag::READONLY | flag::FAST;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("hexpire", -6, PUT, Keys::ONE, "7.4.0", hexpire),
    Command::new("hpexpire", -6, PUT, Keys::ONE, "7.4.0", hpexpire),
    Command::new("hexpireat", -6, PUT, Keys::ONE, "7.4.0", hexpireat),
    Command::new("hpexpireat", -6, PUT, Keys::ONE, "7.4.0", hpexpireat),
    Command::new("httl", -5, READ, Keys::ONE, "7.4.0", httl),
    Command::new("hpttl", -5, READ, Keys::ONE, "7.4.0", hpttl),
    Command::new("hexpiretime", -5, READ, Keys::ONE, "7.4.0", hexpiretime),
    Command::new("hpexpiretime", -5, READ, Keys::ONE, "7.4.0", hpexpiretime),
    Command::new("hpersist", -5, flag::WRITE | flag::FAST, Keys::ONE, "7.4.0", hpersist),
];

/// The latest time a field can be due: Redis keeps 48 bits and two of them free.
const LATEST_MS: i64 = (1 << 46) - 1;

/// What HEXPIRE and HPERSIST say of each field.
mod answer {
    pub(super) const NO_FIELD: i64 = -2;
    pub(super) const NO_TTL: i64 = -1;
    pub(super) const UNMET: i64 = 0;
    pub(super) const DONE: i64 = 1;
    pub(super) const GONE: i64 = 2;
}

/// How a time is spelled.
#[derive(Clone, Copy)]
struct Spelling {
    name: &'static str,
    unit_ms: i64,
    relative: bool,
}

fn hexpire(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire(ctx, args, Spelling { name: "hexpire", unit_ms: 1000, relative: true })
}

fn hpexpire(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire(ctx, args, Spelling { name: "hpexpire", unit_ms: 1, relative: true })
}

fn hexpireat(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire(ctx, args, Spelling { name: "hexpireat", unit_ms: 1000, relative: false })
}

fn hpexpireat(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    expire(ctx, args, Spelling { name: "hpexpireat", unit_ms: 1, relative: false })
}

/// When a new time may replace the old one.
#[derive(Clone, Copy)]
enum Condition {
    Always,
    IfNone,
    IfAny,
    IfLater,
    IfSooner,
}

impl Condition {
    fn parse(args: Args<'_>, index: usize) -> Option<Condition> {
        let words = [
            ("nx", Condition::IfNone),
            ("xx", Condition::IfAny),
            ("gt", Condition::IfLater),
            ("lt", Condition::IfSooner),
        ];
        words.into_iter().find(|(word, _)| args.is(index, word)).map(|(_, condition)| condition)
    }

    fn is_met(self, old: Option<i64>, new: i64) -> bool {
        match (self, old) {
            (Condition::Always, _)
            | (Condition::IfNone | Condition::IfSooner, None)
            | (Condition::IfAny, Some(_)) => true,
            (Condition::IfNone, Some(_)) | (Condition::IfAny | Condition::IfLater, None) => false,
            (Condition::IfLater, Some(old)) => new > old,
            (Condition::IfSooner, Some(old)) => new < old,
        }
    }
}

fn expire(ctx: &mut Context<'_>, args: Args<'_>, spelling: Spelling) -> Outcome {
    let (key, now_ms) = (args.at(1), ctx.db.field_now());
    ctx.db.write_hash(key)?;
    let given = args.int(2)?;
    if given < 0 {
        return Err("ERR invalid expire time, must be >= 0".into());
    }
    let base = if spelling.relative { now_ms } else { 0 };
    let due = given.checked_mul(spelling.unit_ms).and_then(|ms| ms.checked_add(base));
    let due =
        due.filter(|due| *due <= LATEST_MS).ok_or_else(|| CommandError::invalid_expire(spelling.name))?;
    let condition = Condition::parse(args, 3);
    let word = if condition.is_some() { 4 } else { 3 };
    let fields = fields(args, word, "ERR Parameter `numFields` should be greater than 0")?;
    let condition = condition.unwrap_or(Condition::Always);

    let mut changes = 0;
    let Some(hash) = ctx.db.write_hash(key)? else {
        return missing(ctx, fields.len());
    };
    ctx.out.array(fields.len());
    for field in fields.iter() {
        let dropped = hash.drop_if_due(field, now_ms);
        changes += usize::from(dropped);
        let answer = match hash.due(field) {
            None => answer::NO_FIELD,
            Some(old) if !condition.is_met(old, due) => answer::UNMET,
            Some(_) if due <= now_ms => {
                hash.remove(field);
                answer::GONE
            }
            Some(_) => {
                hash.expire_at(field, due);
                answer::DONE
            }
        };
        changes += usize::from(answer > answer::UNMET);
        ctx.out.int(answer);
    }
    ctx.db.shrunk(key, changes);
    Ok(())
}

fn httl(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_times(ctx, args, |due, now_ms| (due - now_ms + 999) / 1000)
}

fn hpttl(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_times(ctx, args, |due, now_ms| due - now_ms)
}

fn hexpiretime(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_times(ctx, args, |due, _| (due + 999) / 1000)
}

fn hpexpiretime(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_times(ctx, args, |due, _| due)
}

fn reply_times(ctx: &mut Context<'_>, args: Args<'_>, show: fn(i64, i64) -> i64) -> Outcome {
    let now_ms = ctx.db.field_now();
    let hash = ctx.db.read_hash(args.at(1))?;
    let fields = fields(args, 2, "ERR Number of fields must be a positive integer")?;
    ctx.out.array(fields.len());
    for field in fields.iter() {
        ctx.out.int(match hash.and_then(|hash| hash.due(field)) {
            None => answer::NO_FIELD,
            Some(None) => answer::NO_TTL,
            Some(Some(due)) if due <= now_ms => answer::NO_FIELD,
            Some(Some(due)) => show(due, now_ms),
        });
    }
    Ok(())
}

fn hpersist(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, now_ms) = (args.at(1), ctx.db.field_now());
    ctx.db.write_hash(key)?;
    let fields = fields(args, 2, "ERR Number of fields must be a positive integer")?;
    let Some(hash) = ctx.db.write_hash(key)? else {
        return missing(ctx, fields.len());
    };
    let mut changes = 0;
    ctx.out.array(fields.len());
    for field in fields.iter() {
        changes += usize::from(hash.drop_if_due(field, now_ms));
        let answer = persist(hash, field);
        changes += usize::from(answer == answer::DONE);
        ctx.out.int(answer);
    }
    ctx.db.shrunk(key, changes);
    Ok(())
}

fn persist(hash: &mut Hash, field: &[u8]) -> i64 {
    match hash.due(field) {
        None => answer::NO_FIELD,
        Some(None) => answer::NO_TTL,
        Some(Some(_)) => {
            hash.persist(field);
            answer::DONE
        }
    }
}

fn missing(ctx: &mut Context<'_>, fields: usize) -> Outcome {
    ctx.out.array(fields);
    (0..fields).for_each(|_| ctx.out.int(answer::NO_FIELD));
    Ok(())
}

/// Reads `FIELDS numfields field ...` from argument `at` to the end.
fn fields<'a>(args: Args<'a>, at: usize, not_positive: &'static str) -> Result<Args<'a>, CommandError> {
    if !args.is(at, "fields") {
        return Err("ERR Mandatory argument FIELDS is missing or not at the right position".into());
    }
    if at + 1 >= args.len() {
        return Err(CommandError::SYNTAX);
    }
    let count = args.positive(at + 1).ok().filter(|n| *n > 0).ok_or(CommandError::new(not_positive))?;
    if count != args.len() - at - 2 {
        return Err("ERR The `numfields` parameter must match the number of arguments".into());
    }
    Ok(args.from(at + 2))
}
