//! `HyperLogLog`: PFADD, PFCOUNT, PFMERGE over strings that hold registers.

use super::error::CommandError;
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::resp::Args;
use crate::server::value::Value;
use crate::server::value::hyperloglog::{self, HllError, Registers};
use crate::server::value::string::StringValue;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("pfadd", -2, flag::WRITE | flag::DENYOOM | flag::FAST, Keys::ONE, "2.8.9", pfadd),
    // It writes the count it has worked out into the value, but replicas need not know.
    Command::new("pfcount", -2, flag::READONLY, Keys::ALL, "2.8.9", pfcount),
    Command::new("pfmerge", -2, flag::WRITE | flag::DENYOOM, Keys::ALL, "2.8.9", pfmerge)
        .needs(need::BOTH, need::READ),
];

impl From<HllError> for CommandError {
    fn from(error: HllError) -> CommandError {
        match error {
            HllError::WrongType => {
                CommandError::new("WRONGTYPE Key is not a valid HyperLogLog string value.")
            }
            HllError::Corrupt => CommandError::new("INVALIDOBJ Corrupted HLL object detected"),
        }
    }
}

fn pfadd(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let elements: Vec<&[u8]> = args.iter().skip(2).collect();
    let mut changed = false;
    if string(ctx, key)?.is_none() {
        ctx.db.set(key, Value::from(StringValue::unparsed(hyperloglog::empty())));
        changed = true;
    }
    if let Some(value) = string(ctx, key)? {
        // Checked before it is touched: a refusal must leave the encoding of the string alone.
        hyperloglog::decode_header(&value.bytes())?;
        let sparse_max_bytes = ctx.server.settings.limits.hll_sparse_max_bytes;
        let Some(Value::String(value)) = ctx.db.lookup_write(key) else {
            return Err(CommandError::WRONG_TYPE);
        };
        changed |= hyperloglog::add(value.make_raw(), &elements, sparse_max_bytes)?;
    }
    if changed {
        ctx.db.changed(key, 1);
    }
    ctx.out.int(i64::from(changed));
    Ok(())
}

fn pfcount(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 {
        let mut registers = Registers::default();
        for key in args.iter().skip(1) {
            if let Some(value) = string(ctx, key)? {
                registers.merge(&hyperloglog::decode(&value.bytes())?);
            }
        }
        ctx.out.int(i64::try_from(registers.count()).unwrap_or(i64::MAX));
        return Ok(());
    }
    let Some(value) = string(ctx, args.at(1))? else {
        ctx.out.int(0);
        return Ok(());
    };
    hyperloglog::decode_header(&value.bytes())?;
    let cached = hyperloglog::cached_count(&value.bytes());
    let count = match cached {
        Some(count) => count,
        None => hyperloglog::decode(&value.bytes())?.count(),
    };
    if cached.is_none()
        && let Some(Value::String(value)) = ctx.db.lookup_write(args.at(1))
    {
        hyperloglog::cache_count(value.make_raw(), count);
        ctx.db.changed(args.at(1), 1);
    }
    ctx.out.int(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

fn pfmerge(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut registers = Registers::default();
    let mut sparse = true;
    for key in args.iter().skip(1) {
        if let Some(value) = string(ctx, key)? {
            let bytes = value.bytes();
            registers.merge(&hyperloglog::decode(&bytes)?);
            sparse &= hyperloglog::is_sparse(&bytes);
        }
    }
    let key = args.at(1);
    let bytes = registers.encode(sparse, ctx.server.settings.limits.hll_sparse_max_bytes);
    ctx.db.overwrite(key, Value::from(StringValue::Raw(bytes)));
    ctx.db.changed(key, 1);
    ctx.out.ok();
    Ok(())
}

fn string<'a>(ctx: &'a mut Context<'_>, key: &[u8]) -> Result<Option<&'a StringValue>, CommandError> {
    match ctx.db.lookup_read(key) {
        None => Ok(None),
        Some(Value::String(value)) => Ok(Some(value)),
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}
