//! BITFIELD: integers of any width inside a string.

use super::error::CommandError;
use super::string::{raw_bytes, read, write};
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::number::parse_integer;
use crate::server::resp::Args;
use crate::server::value::string::StringValue;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("bitfield", -2, flag::WRITE | flag::DENYOOM, Keys::ONE, "3.2.0", bitfield)
        .needs_by(bitfield_need),
    Command::new("bitfield_ro", -2, flag::READONLY | flag::FAST, Keys::ONE, "6.0.0", bitfield_ro),
];

/// `i5` or `u8`: up to 64 bits with a sign and 63 without, so that each value fits a reply.
#[derive(Debug, Clone, Copy)]
struct IntType {
    signed: bool,
    bits: u32,
}

/// What to do with a value that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Get,
    Set(i64, Overflow),
    IncrBy(i64, Overflow),
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    int: IntType,
    /// The first bit.
    at: usize,
    action: Action,
}

impl IntType {
    fn parse(text: &[u8]) -> Result<IntType, CommandError> {
        const REFUSED: CommandError = CommandError::new(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        );
        let (signed, max) = match text.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(REFUSED),
        };
        let bits = parse_integer(&text[1..]).and_then(|bits| u32::try_from(bits).ok());
        let bits = bits.filter(|bits| (1..=max).contains(bits)).ok_or(REFUSED)?;
        Ok(IntType { signed, bits })
    }

    fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn max(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    /// Brings `value` into the range of the type, or refuses to.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i128> {
        if (self.min()..=self.max()).contains(&value) {
            return Some(value);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(value.clamp(self.min(), self.max())),
            Overflow::Wrap => Some((value - self.min()).rem_euclid(1 << self.bits) + self.min()),
        }
    }

    fn read(self, bytes: &[u8], at: usize) -> i128 {
        let bit = |bit: usize| bytes.get(bit / 8).is_some_and(|byte| byte << (bit % 8) & 0x80 != 0);
        let bits = (at..at + self.bits as usize).fold(0, |value, at| value << 1 | i128::from(bit(at)));
        if bits > self.max() { bits - (1 << self.bits) } else { bits }
    }

    /// Writes a value that fits into bytes that are there.
    fn write(self, bytes: &mut [u8], at: usize, value: i128) {
        for index in 0..self.bits as usize {
            let on = value >> (self.bits as usize - 1 - index) & 1 != 0;
            let (byte, mask) = ((at + index) / 8, 0x80 >> ((at + index) % 8));
            bytes[byte] = if on { bytes[byte] | mask } else { bytes[byte] & !mask };
        }
    }
}

impl Operation {
    /// Returns the reply, and what is to be written.
    fn run(self, bytes: &[u8]) -> (Option<i128>, Option<i128>) {
        let before = self.int.read(bytes, self.at);
        match self.action {
            Action::Get => (Some(before), None),
            Action::Set(value, overflow) => {
                // To an unsigned field a negative number is a very large one.
                let value =
                    if self.int.signed { i128::from(value) } else { i128::from(value.cast_unsigned()) };
                let after = self.int.fit(value, overflow);
                (after.map(|_| before), after)
            }
            Action::IncrBy(by, overflow) => {
                let after = self.int.fit(before + i128::from(by), overflow);
                (after, after)
            }
        }
    }
}

/// Parses a position in bits, or with `#` in widths of the field.
fn offset(ctx: &Context<'_>, text: &[u8], int: IntType) -> Result<usize, CommandError> {
    const REFUSED: CommandError = CommandError::new("ERR bit offset is not an integer or out of range");
    let (text, unit) = match text {
        [b'#', text @ ..] => (text, int.bits as usize),
        text => (text, 1),
    };
    let at = parse_integer(text).and_then(|at| usize::try_from(at).ok()).and_then(|at| at.checked_mul(unit));
    let max = usize::try_from(ctx.server.settings.bulk_len_max).unwrap_or(usize::MAX);
    at.filter(|at| at / 8 < max).ok_or(REFUSED)
}

fn parse(ctx: &Context<'_>, args: Args<'_>) -> Result<Vec<Operation>, CommandError> {
    let mut overflow = Overflow::Wrap;
    let mut operations = Vec::new();
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        let word = args.lower(at);
        if word == "overflow" && more >= 1 {
            overflow = match args.lower(at + 1).as_str() {
                "wrap" => Overflow::Wrap,
                "sat" => Overflow::Saturate,
                "fail" => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            at += 2;
            continue;
        }
        let words = match word.as_str() {
            "get" if more >= 2 => 3,
            "set" | "incrby" if more >= 3 => 4,
            _ => return Err(CommandError::SYNTAX),
        };
        let int = IntType::parse(args.at(at + 1))?;
        let start = offset(ctx, args.at(at + 2), int)?;
        let action = match word.as_str() {
            "set" => Action::Set(args.int(at + 3)?, overflow),
            "incrby" => Action::IncrBy(args.int(at + 3)?, overflow),
            _ => Action::Get,
        };
        operations.push(Operation { int, at: start, action });
        at += words;
    }
    Ok(operations)
}

/// Reading a field needs less than changing one.
fn bitfield_need(args: Args<'_>) -> u8 {
    let changes = (2..args.len()).any(|at| args.is(at, "SET") || args.is(at, "INCRBY"));
    if changes { need::BOTH } else { need::READ }
}

fn put(ctx: &mut Context<'_>, value: Option<i128>) {
    match value.and_then(|value| i64::try_from(value).ok()) {
        Some(value) => ctx.out.int(value),
        None => ctx.out.nil(),
    }
}

fn bitfield_ro(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let operations = parse(ctx, args)?;
    if operations.iter().any(|operation| !matches!(operation.action, Action::Get)) {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    get(ctx, args.at(1), &operations)
}

fn get(ctx: &mut Context<'_>, key: &[u8], operations: &[Operation]) -> Outcome {
    let string = read(&mut ctx.db, key)?;
    let bytes = string.map(StringValue::bytes).unwrap_or_default();
    let values: Vec<_> = operations.iter().map(|operation| operation.run(&bytes).0).collect();
    ctx.out.array(values.len());
    for value in values {
        put(ctx, value);
    }
    Ok(())
}

fn bitfield(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let operations = parse(ctx, args)?;
    let writes = operations.iter().filter(|operation| !matches!(operation.action, Action::Get));
    let end = writes.map(|operation| operation.at + operation.int.bits as usize).max();
    let Some(end) = end else {
        return get(ctx, args.at(1), &operations);
    };
    let key = args.at(1);
    let exists = write(&mut ctx.db, key)?.is_some();
    let bytes = raw_bytes(ctx, key, exists)?;
    // The string grows for a write that overflows and fails, too.
    bytes.resize(bytes.len().max(end.div_ceil(8)), 0);
    let mut replies = Vec::with_capacity(operations.len());
    for operation in operations {
        let (reply, after) = operation.run(bytes);
        if let Some(after) = after {
            operation.int.write(bytes, operation.at, after);
        }
        replies.push(reply);
    }
    ctx.db.changed(key, 1);
    ctx.out.array(replies.len());
    for reply in replies {
        put(ctx, reply);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_brought_into_range_as_asked() {
        let (u8, i8) = (IntType { signed: false, bits: 8 }, IntType { signed: true, bits: 8 });
        let i64 = IntType { signed: true, bits: 64 };
        for (int, value, wrapped, saturated) in [
            (u8, 256, 0, 255),
            (u8, -1, 255, 0),
            (i8, 200, -56, 127),
            (i8, -300, -44, -128),
            (i64, i128::from(i64::MAX) + 1, i128::from(i64::MIN), i128::from(i64::MAX)),
        ] {
            assert_eq!(int.fit(value, Overflow::Wrap), Some(wrapped), "{value}");
            assert_eq!(int.fit(value, Overflow::Saturate), Some(saturated), "{value}");
            assert_eq!(int.fit(value, Overflow::Fail), None, "{value}");
        }
    }

    #[test]
    fn fields_may_lie_across_bytes() {
        let int = IntType { signed: true, bits: 13 };
        let mut bytes = [0xff; 4];
        for value in [-4096, -1, 0, 1, 4095] {
            int.write(&mut bytes, 5, value);
            assert_eq!(int.read(&bytes, 5), value);
            assert_eq!((bytes[0] >> 3, bytes[2] & 0x3f, bytes[3]), (0x1f, 0x3f, 0xff));
        }
    }
}
