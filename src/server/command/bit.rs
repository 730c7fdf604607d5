//! Strings as bit fields. Bit 0 is the highest bit of the first byte.

use std::borrow::Cow;

use super::error::CommandError;
use super::string::{clamp_range, raw_bytes, read, write};
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::keyspace::Free;
use crate::server::number::parse_integer;
use crate::server::resp::Args;
use crate::server::value::Value;
use crate::server::value::string::StringValue;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("setbit", 4, flag::WRITE | flag::DENYOOM, Keys::ONE, "2.2.0", setbit)
        .needs(need::BOTH, need::BOTH),
    Command::new("getbit", 3, flag::READONLY | flag::FAST, Keys::ONE, "2.2.0", getbit),
    Command::new("bitcount", -2, flag::READONLY, Keys::ONE, "2.6.0", bitcount),
    Command::new("bitpos", -3, flag::READONLY, Keys::ONE, "2.8.7", bitpos),
    Command::new(
        "bitop",
        -4,
        flag::WRITE | flag::DENYOOM,
        Keys::Range { first: 2, last: -1, step: 1 },
        "2.6.0",
        bitop,
    )
    .needs(need::WRITE, need::READ),
];

/// Parses a bit's position; the string it needs must not be longer than a string may be.
fn offset(ctx: &Context<'_>, text: &[u8]) -> Result<(usize, u8), CommandError> {
    const REFUSED: CommandError = CommandError::new("ERR bit offset is not an integer or out of range");
    let bit = parse_integer(text).and_then(|bit| usize::try_from(bit).ok()).ok_or(REFUSED)?;
    let max = usize::try_from(ctx.server.settings.bulk_len_max).unwrap_or(usize::MAX);
    if bit / 8 >= max {
        return Err(REFUSED);
    }
    Ok((bit / 8, 0x80 >> (bit % 8)))
}

fn setbit(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let (byte, mask) = offset(ctx, args.at(2))?;
    let on = match parse_integer(args.at(3)) {
        Some(bit @ 0..=1) => bit == 1,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let exists = write(&mut ctx.db, key)?.is_some();
    let bytes = raw_bytes(ctx, key, exists)?;
    if bytes.len() <= byte {
        bytes.resize(byte + 1, 0);
    }
    let before = bytes[byte] & mask != 0;
    bytes[byte] = if on { bytes[byte] | mask } else { bytes[byte] & !mask };
    ctx.db.changed(key, 1);
    ctx.out.bool_int(before);
    Ok(())
}

fn getbit(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (byte, mask) = offset(ctx, args.at(2))?;
    let string = read(&mut ctx.db, args.at(1))?;
    let bytes = string.map(StringValue::bytes).unwrap_or_default();
    let bit = bytes.get(byte).is_some_and(|byte| byte & mask != 0);
    ctx.out.bool_int(bit);
    Ok(())
}

/// A range of bits: the first and the last one.
type Bits = (usize, usize);

/// Reads `start end [BYTE|BIT]` at `at` and cuts it to the string.
fn bit_range(args: Args<'_>, at: usize, len: usize) -> Result<Option<Bits>, CommandError> {
    let (start, end) = (args.int(at)?, args.int(at + 1)?);
    let in_bits = match args.get(at + 2) {
        None => false,
        Some(_) if args.is(at + 2, "BIT") => true,
        Some(_) if args.is(at + 2, "BYTE") => false,
        Some(_) => return Err(CommandError::SYNTAX),
    };
    let units = if in_bits { len * 8 } else { len };
    let range = clamp_range(start, end, units);
    Ok(range.map(|(start, end)| if in_bits { (start, end) } else { (start * 8, end * 8 + 7) }))
}

fn bitcount(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let string = read(&mut ctx.db, args.at(1))?;
    let bytes = string.map(StringValue::bytes).unwrap_or_default();
    let range = match args.len() {
        2 => (!bytes.is_empty()).then(|| (0, bytes.len() * 8 - 1)),
        4 | 5 => bit_range(args, 2, bytes.len())?,
        _ => return Err(CommandError::SYNTAX),
    };
    let count = range.map_or(0, |(first, last)| count_ones(&bytes, first, last));
    ctx.out.count(count);
    Ok(())
}

fn count_ones(bytes: &[u8], first: usize, last: usize) -> usize {
    let (head, tail) = edge_masks(first, last);
    let range = &bytes[first / 8..=last / 8];
    let ones = |byte: u8| byte.count_ones() as usize;
    match range {
        [only] => ones(only & head & tail),
        [start, middle @ .., end] => {
            ones(start & head) + middle.iter().map(|byte| ones(*byte)).sum::<usize>() + ones(end & tail)
        }
        [] => 0,
    }
}

/// Returns which bits of the first and of the last byte belong to a range.
fn edge_masks(first: usize, last: usize) -> (u8, u8) {
    (0xff >> (first % 8), 0xff << (7 - last % 8))
}

fn bitpos(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let wanted = match args.int(2)? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    if args.len() > 6 {
        return Err(CommandError::SYNTAX);
    }
    let string = read(&mut ctx.db, args.at(1))?;
    let exists = string.is_some();
    let bytes = string.map(StringValue::bytes).unwrap_or_default();
    let open_ended = args.len() < 5;
    let range = match args.len() {
        3 => (!bytes.is_empty()).then(|| (0, bytes.len() * 8 - 1)),
        4 => {
            let range = clamp_range(args.int(3)?, -1, bytes.len());
            range.map(|(start, end)| (start * 8, end * 8 + 7))
        }
        _ => bit_range(args, 3, bytes.len())?,
    };
    let found = match range {
        // A key that is not there is all zeros, without an end.
        None => (!exists && !wanted).then_some(0),
        Some((first, last)) => find(&bytes, first, last, wanted)
            // Behind the string there are only zeros, unless an end was given.
            .or_else(|| (!wanted && open_ended).then_some(bytes.len() * 8)),
    };
    ctx.out.int(found.map_or(-1, |bit| i64::try_from(bit).unwrap_or(i64::MAX)));
    Ok(())
}

fn find(bytes: &[u8], first: usize, last: usize, wanted: bool) -> Option<usize> {
    let (head, tail) = edge_masks(first, last);
    for (at, byte) in bytes.iter().enumerate().take(last / 8 + 1).skip(first / 8) {
        let mut candidates = if wanted { *byte } else { !byte };
        if at == first / 8 {
            candidates &= head;
        }
        if at == last / 8 {
            candidates &= tail;
        }
        if candidates != 0 {
            return Some(at * 8 + candidates.leading_zeros() as usize);
        }
    }
    None
}

fn bitop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let combine: fn(u8, u8) -> u8 = match args.lower(1).as_str() {
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        "xor" => |a, b| a ^ b,
        "not" if args.len() != 4 => {
            return Err("ERR BITOP NOT must be called with a single source key.".into());
        }
        "not" => |a, _| !a,
        _ => return Err(CommandError::SYNTAX),
    };
    let target = args.at(2);
    let mut sources = Vec::new();
    for key in args.iter().skip(3) {
        let string = read(&mut ctx.db, key)?;
        sources.push(string.map(|string| Cow::into_owned(string.bytes())).unwrap_or_default());
    }
    let len = sources.iter().map(Vec::len).max().unwrap_or(0);
    let byte = |source: &Vec<u8>, at: usize| source.get(at).copied().unwrap_or(0);
    let result: Vec<u8> = (0..len)
        .map(|at| {
            let first = byte(&sources[0], at);
            if sources.len() == 1 {
                return if args.is(1, "NOT") { combine(first, 0) } else { first };
            }
            sources[1..].iter().fold(first, |all, source| combine(all, byte(source, at)))
        })
        .collect();
    if result.is_empty() {
        ctx.db.delete(target, Free::ForServer);
    } else {
        ctx.db.expire_if_due(target);
        ctx.db.set(target, Value::String(StringValue::unparsed(result)));
        ctx.db.note_change(target, 1);
    }
    ctx.out.count(len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bits_start_and_end_inside_bytes() {
        let bytes = [0b1111_0000, 0xff, 0b0000_1111];
        assert_eq!(count_ones(&bytes, 0, 23), 16);
        assert_eq!(count_ones(&bytes, 2, 5), 2);
        assert_eq!(count_ones(&bytes, 3, 20), 10);
        assert_eq!(find(&bytes, 0, 23, false), Some(4));
        assert_eq!(find(&bytes, 4, 23, true), Some(8));
        assert_eq!(find(&bytes, 16, 18, true), None);
    }
}
