//! Strings: SET with all its options, ranges, counters.

use super::error::CommandError;
use super::expire::{deadline_ms, set_deadline};
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::keyspace::{Free, Selected};
use crate::server::number::format_sum;
use crate::server::resp::{Args, Reply};
use crate::server::value::Value;
use crate::server::value::string::StringValue;

const READ: u32 = flag::READONLY | flag::FAST;
const WRITE: u32 = flag::WRITE | flag::DENYOOM;
const FAST: u32 = WRITE | flag::FAST;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("get", 2, READ, Keys::ONE, "1.0.0", get),
    Command::new("set", -3, WRITE, Keys::ONE, "1.0.0", set).needs_by(set_need),
    Command::new("setnx", 3, FAST, Keys::ONE, "1.0.0", setnx),
    Command::new("setex", 4, WRITE, Keys::ONE, "2.0.0", |ctx, args| setex(ctx, args, "setex", 1000)),
    Command::new("psetex", 4, WRITE, Keys::ONE, "2.6.0", |ctx, args| setex(ctx, args, "psetex", 1)),
    Command::new("getset", 3, FAST, Keys::ONE, "1.0.0", getset).needs(need::BOTH, need::BOTH),
    Command::new("getdel", 2, flag::WRITE | flag::FAST, Keys::ONE, "6.2.0", getdel)
        .needs(need::BOTH, need::BOTH),
    Command::new("getex", -2, flag::WRITE | flag::FAST, Keys::ONE, "6.2.0", getex)
        .needs(need::BOTH, need::BOTH),
    Command::new("mget", -2, READ, Keys::ALL, "1.0.0", mget),
    Command::new("mset", -3, WRITE, Keys::PAIRS, "1.0.1", mset),
    Command::new("msetnx", -3, WRITE, Keys::PAIRS, "1.0.1", msetnx),
    Command::new("append", 3, FAST, Keys::ONE, "2.0.0", append),
    Command::new("strlen", 2, READ, Keys::ONE, "2.2.0", strlen).needs(need::ANY, need::ANY),
    Command::new("setrange", 4, WRITE, Keys::ONE, "2.2.0", setrange),
    Command::new("getrange", 4, flag::READONLY, Keys::ONE, "2.4.0", getrange),
    Command::new("substr", 4, flag::READONLY, Keys::ONE, "1.0.0", getrange),
    Command::new("incr", 2, FAST, Keys::ONE, "1.0.0", |ctx, args| increment(ctx, args.at(1), 1))
        .needs(need::BOTH, need::BOTH),
    Command::new("decr", 2, FAST, Keys::ONE, "1.0.0", |ctx, args| increment(ctx, args.at(1), -1))
        .needs(need::BOTH, need::BOTH),
    Command::new("incrby", 3, FAST, Keys::ONE, "1.0.0", incrby).needs(need::BOTH, need::BOTH),
    Command::new("decrby", 3, FAST, Keys::ONE, "1.0.0", decrby).needs(need::BOTH, need::BOTH),
    Command::new("incrbyfloat", 3, FAST, Keys::ONE, "2.6.0", incrbyfloat).needs(need::BOTH, need::BOTH),
];

/// Returns the string for reading.
pub(super) fn read<'a>(
    db: &'a mut Selected<'_>,
    key: &[u8],
) -> Result<Option<&'a StringValue>, CommandError> {
    match db.lookup_read(key) {
        None => Ok(None),
        Some(Value::String(string)) => Ok(Some(string)),
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}

/// Returns the string for changing.
pub(super) fn write<'a>(
    db: &'a mut Selected<'_>,
    key: &[u8],
) -> Result<Option<&'a mut StringValue>, CommandError> {
    match db.lookup_write(key) {
        None => Ok(None),
        Some(Value::String(string)) => Ok(Some(string)),
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}

fn put(out: &mut Reply, string: Option<&StringValue>) {
    match string {
        None => out.nil(),
        Some(StringValue::Int(value)) => out.bulk_int(*value),
        Some(string) => out.bulk(&string.bytes()),
    }
}

fn stored(bytes: &[u8]) -> Value {
    Value::String(StringValue::encode(bytes.to_vec()))
}

fn get(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    put(ctx.out, read(&mut ctx.db, args.at(1))?);
    Ok(())
}

/// With GET the old value is told.
fn set_need(args: Args<'_>) -> u8 {
    if (3..args.len()).any(|at| args.is(at, "GET")) { need::BOTH } else { need::WRITE }
}

/// What SET and GETEX say about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiry {
    /// Amount, unit in milliseconds, and whether it counts from now.
    Set {
        at: usize,
        unit_ms: i64,
        relative: bool,
    },
    Keep,
    Persist,
}

impl Expiry {
    /// Reads EX, PX, EXAT or PXAT, whose amount follows at `at + 1`.
    fn parse(args: Args<'_>, at: usize) -> Option<Expiry> {
        let (unit_ms, relative) = match args.lower(at).as_str() {
            "ex" => (1000, true),
            "px" => (1, true),
            "exat" => (1000, false),
            "pxat" => (1, false),
            _ => return None,
        };
        (at + 1 < args.len()).then_some(Expiry::Set { at: at + 1, unit_ms, relative })
    }

    /// Returns the deadline, if one is to be set.
    fn deadline(self, args: Args<'_>, now_ms: u64, command: &str) -> Result<Option<i64>, CommandError> {
        let Expiry::Set { at, unit_ms, relative } = self else {
            return Ok(None);
        };
        let amount = args.int(at)?;
        if amount <= 0 {
            return Err(CommandError::invalid_expire(command));
        }
        deadline_ms(amount, unit_ms, if relative { now_ms } else { 0 }, command).map(Some)
    }
}

#[derive(Debug, Default)]
struct SetOptions {
    only_new: bool,
    only_existing: bool,
    get: bool,
    expiry: Option<Expiry>,
}

impl SetOptions {
    fn parse(args: Args<'_>) -> Result<SetOptions, CommandError> {
        let mut options = SetOptions::default();
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "NX") && !options.only_existing {
                options.only_new = true;
            } else if args.is(at, "XX") && !options.only_new {
                options.only_existing = true;
            } else if args.is(at, "GET") {
                options.get = true;
            } else if args.is(at, "KEEPTTL") && options.expiry.is_none() {
                options.expiry = Some(Expiry::Keep);
            } else if let (Some(expiry), None) = (Expiry::parse(args, at), options.expiry) {
                options.expiry = Some(expiry);
                at += 1;
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

fn set(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, value) = (args.at(1), args.at(2));
    let options = if args.len() == 3 { SetOptions::default() } else { SetOptions::parse(args)? };
    let deadline = match options.expiry {
        Some(expiry) => expiry.deadline(args, ctx.db.now_ms(), "set")?,
        None => None,
    };
    if options.get {
        put(ctx.out, read(&mut ctx.db, key)?);
    }
    if options.only_new || options.only_existing {
        let exists = ctx.db.lookup_write(key).is_some();
        if exists == options.only_new {
            if !options.get {
                ctx.out.nil();
            }
            return Ok(());
        }
    } else {
        ctx.db.expire_if_due(key);
    }
    if options.expiry == Some(Expiry::Keep) {
        ctx.db.overwrite(key, stored(value));
    } else {
        ctx.db.set(key, stored(value));
    }
    if let Some(at_ms) = deadline.and_then(|deadline| u64::try_from(deadline).ok()) {
        ctx.db.set_deadline(key, at_ms);
    }
    ctx.db.note_change(key, 1);
    if !options.get {
        ctx.out.ok();
    }
    Ok(())
}

fn setnx(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let free = ctx.db.lookup_write(args.at(1)).is_none();
    if free {
        ctx.db.set(args.at(1), stored(args.at(2)));
        ctx.db.note_change(args.at(1), 1);
    }
    ctx.out.bool_int(free);
    Ok(())
}

fn setex(ctx: &mut Context<'_>, args: Args<'_>, name: &str, unit_ms: i64) -> Outcome {
    let expiry = Expiry::Set { at: 2, unit_ms, relative: true };
    let deadline = expiry.deadline(args, ctx.db.now_ms(), name)?;
    let key = args.at(1);
    ctx.db.expire_if_due(key);
    ctx.db.set(key, stored(args.at(3)));
    if let Some(at_ms) = deadline.and_then(|deadline| u64::try_from(deadline).ok()) {
        ctx.db.set_deadline(key, at_ms);
    }
    ctx.db.note_change(key, 1);
    ctx.out.ok();
    Ok(())
}

fn getset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    put(ctx.out, read(&mut ctx.db, args.at(1))?);
    ctx.db.set(args.at(1), stored(args.at(2)));
    ctx.db.note_change(args.at(1), 1);
    Ok(())
}

fn getdel(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let string = read(&mut ctx.db, args.at(1))?;
    put(ctx.out, string);
    ctx.db.delete(args.at(1), Free::ForServer);
    Ok(())
}

fn getex(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let expiry = match args.len() {
        2 => None,
        3 if args.is(2, "PERSIST") => Some(Expiry::Persist),
        4 => Some(Expiry::parse(args, 2).ok_or(CommandError::SYNTAX)?),
        _ => return Err(CommandError::SYNTAX),
    };
    let string = read(&mut ctx.db, key)?;
    let found = string.is_some();
    put(ctx.out, string);
    let Some(expiry) = expiry.filter(|_| found) else {
        return Ok(());
    };
    if let Some(deadline) = expiry.deadline(args, ctx.db.now_ms(), "getex")? {
        set_deadline(ctx, key, deadline);
    } else if ctx.db.clear_deadline(key) {
        ctx.db.note_change(key, 1);
    }
    Ok(())
}

fn mget(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ctx.out.array(args.len() - 1);
    for key in args.iter().skip(1) {
        // What is not a string is as good as not there.
        put(ctx.out, read(&mut ctx.db, key).unwrap_or(None));
    }
    Ok(())
}

fn pairs<'a>(args: Args<'a>, name: &str) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])>, CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::wrong_arity(name));
    }
    Ok((1..args.len()).step_by(2).map(move |at| (args.at(at), args.at(at + 1))))
}

fn mset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    for (key, value) in pairs(args, "mset")? {
        ctx.db.expire_if_due(key);
        ctx.db.set(key, stored(value));
        ctx.db.note_change(key, 1);
    }
    ctx.out.ok();
    Ok(())
}

fn msetnx(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut keys = pairs(args, "msetnx")?;
    let free = keys.all(|(key, _)| ctx.db.lookup_write(key).is_none());
    if free {
        for (key, value) in pairs(args, "msetnx")? {
            ctx.db.set(key, stored(value));
            ctx.db.note_change(key, 1);
        }
    }
    ctx.out.bool_int(free);
    Ok(())
}

/// Refuses a string that would be longer than a client may send in one piece.
pub(super) fn check_len(ctx: &Context<'_>, offset: usize, len: usize) -> Outcome {
    let max = usize::try_from(ctx.server.settings.bulk_len_max).unwrap_or(usize::MAX);
    match offset.checked_add(len) {
        Some(total) if total <= max => Ok(()),
        _ => Err(CommandError::TOO_LONG),
    }
}

fn append(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, tail) = (args.at(1), args.at(2));
    let old_len = write(&mut ctx.db, key)?.map(|string| string.len());
    let Some(old_len) = old_len else {
        ctx.db.set(key, stored(tail));
        ctx.db.note_change(key, 1);
        ctx.out.count(tail.len());
        return Ok(());
    };
    check_len(ctx, old_len, tail.len())?;
    if let Some(string) = write(&mut ctx.db, key)? {
        string.make_raw().extend_from_slice(tail);
    }
    ctx.db.changed(key, 1);
    ctx.out.count(old_len + tail.len());
    Ok(())
}

fn strlen(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = read(&mut ctx.db, args.at(1))?.map_or(0, StringValue::len);
    ctx.out.count(len);
    Ok(())
}

fn setrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, patch) = (args.at(1), args.at(3));
    let offset =
        usize::try_from(args.int(2)?).map_err(|_| CommandError::new("ERR offset is out of range"))?;
    let old_len = write(&mut ctx.db, key)?.map(|string| string.len());
    if patch.is_empty() {
        ctx.out.count(old_len.unwrap_or(0));
        return Ok(());
    }
    check_len(ctx, offset, patch.len())?;
    let bytes = raw_bytes(ctx, key, old_len.is_some())?;
    let end = offset + patch.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(patch);
    let len = bytes.len();
    ctx.db.changed(key, 1);
    ctx.out.count(len);
    Ok(())
}

/// Returns the bytes of a string for changing in place; makes an empty one if there is none.
pub(super) fn raw_bytes<'a>(
    ctx: &'a mut Context<'_>,
    key: &[u8],
    exists: bool,
) -> Result<&'a mut Vec<u8>, CommandError> {
    if !exists {
        ctx.db.set(key, Value::String(StringValue::Raw(Vec::new())));
    }
    let string = write(&mut ctx.db, key)?;
    string.map(StringValue::make_raw).ok_or(CommandError::NO_SUCH_KEY)
}

/// Cuts `start..=end`, both possibly counted from the end, to what is there.
pub(super) fn clamp_range(start: i64, end: i64, len: usize) -> Option<(usize, usize)> {
    let len_i64 = i64::try_from(len).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let from_end = |at: i64| {
        if at < 0 { at.saturating_add(len_i64).max(0) } else { at }
    };
    let (start, end) = (from_end(start), from_end(end).min(len_i64 - 1));
    if start > end || len == 0 {
        return None;
    }
    Some((usize::try_from(start).ok()?, usize::try_from(end).ok()?))
}

fn getrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (start, end) = (args.int(2)?, args.int(3)?);
    let string = read(&mut ctx.db, args.at(1))?;
    let bytes = string.map(StringValue::bytes).unwrap_or_default();
    match clamp_range(start, end, bytes.len()) {
        Some((start, end)) => ctx.out.bulk(&bytes[start..=end]),
        None => ctx.out.bulk(b""),
    }
    Ok(())
}

fn increment(ctx: &mut Context<'_>, key: &[u8], by: i64) -> Outcome {
    const OVERFLOW: CommandError = CommandError::new("ERR increment or decrement would overflow");
    let string = write(&mut ctx.db, key)?;
    let exists = string.is_some();
    let sum = match string {
        None => by,
        Some(string) => {
            let value = string.integer().ok_or(CommandError::NOT_AN_INTEGER)?;
            let sum = value.checked_add(by).ok_or(OVERFLOW)?;
            *string = StringValue::Int(sum);
            sum
        }
    };
    if exists {
        ctx.db.changed(key, 1);
    } else {
        ctx.db.set(key, Value::String(StringValue::Int(sum)));
        ctx.db.note_change(key, 1);
    }
    ctx.out.int(sum);
    Ok(())
}

fn incrby(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    increment(ctx, args.at(1), args.int(2)?)
}

fn decrby(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = args.int(2)?.checked_neg().ok_or("ERR decrement would overflow")?;
    increment(ctx, args.at(1), by)
}

/// Redis adds in 80-bit floats and prints 17 decimals; doubles printed at their shortest agree
/// with that for everything but the last digits of long fractions.
fn incrbyfloat(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let string = write(&mut ctx.db, key)?;
    let current = match string {
        None => 0.0,
        Some(string) => super::args::parse_double(&string.bytes()).ok_or(CommandError::NOT_A_FLOAT)?,
    };
    let sum = current + args.double(2)?;
    if !sum.is_finite() {
        return Err("ERR increment would produce NaN or Infinity".into());
    }
    let text = format_sum(sum).into_bytes();
    ctx.db.overwrite(key, Value::String(StringValue::unparsed(text.clone())));
    ctx.db.note_change(key, 1);
    ctx.out.bulk(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_what_is_there() {
        for ((start, end, len), range) in [
            ((0, -1, 5), Some((0, 4))),
            ((-3, -1, 5), Some((2, 4))),
            ((-100, 1, 5), Some((0, 1))),
            ((3, 100, 5), Some((3, 4))),
            ((4, 3, 5), None),
            ((5, 9, 5), None),
            ((-1, -3, 5), None),
            ((0, 0, 0), None),
            ((i64::MIN, i64::MAX, 2), Some((0, 1))),
        ] {
            assert_eq!(clamp_range(start, end, len), range, "{start} {end} {len}");
        }
    }
}
