//! The `bit` library of scripts: operations on 32-bit numbers, as `LuaBitOp` defines them.

use mlua::{Lua, MultiValue, Table, Value};

use super::library;

pub(super) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let add = |name: &'static str, run: fn(&[i32]) -> i32, arguments: usize| {
        let function = lua.create_function(move |lua, args: MultiValue| {
            let numbers = numbers(lua, name, &args, arguments)?;
            Ok(f64::from(run(&numbers)))
        })?;
        table.raw_set(name, function)
    };
    add("tobit", |n| n[0], 1)?;
    add("bnot", |n| !n[0], 1)?;
    add("bswap", |n| n[0].swap_bytes(), 1)?;
    add("band", |n| n.iter().fold(-1, |all, n| all & n), 1)?;
    add("bor", |n| n.iter().fold(0, |all, n| all | n), 1)?;
    add("bxor", |n| n.iter().fold(0, |all, n| all ^ n), 1)?;
    // Of a distance only the lower five bits count.
    add("lshift", |n| n[0].wrapping_shl(n[1].cast_unsigned()), 2)?;
    add("rshift", |n| n[0].cast_unsigned().wrapping_shr(n[1].cast_unsigned()).cast_signed(), 2)?;
    add("arshift", |n| n[0].wrapping_shr(n[1].cast_unsigned()), 2)?;
    add("rol", |n| n[0].rotate_left(n[1].cast_unsigned() & 31), 2)?;
    add("ror", |n| n[0].rotate_right(n[1].cast_unsigned() & 31), 2)?;
    table.raw_set(
        "tohex",
        lua.create_function(|lua, args: MultiValue| {
            let numbers = numbers(lua, "tohex", &args, 1)?;
            let digits = numbers.get(1).copied().unwrap_or(8);
            let hex = format!("{:08x}", numbers[0]);
            let hex = if digits < 0 { hex.to_ascii_uppercase() } else { hex };
            let shown = usize::try_from(digits.unsigned_abs()).unwrap_or(8).min(8);
            Ok(hex[8 - shown..].to_owned())
        })?,
    )?;
    Ok(table)
}

/// Reads the arguments, of which there must be `least`.
fn numbers(lua: &Lua, name: &str, args: &MultiValue, least: usize) -> mlua::Result<Vec<i32>> {
    (0..args.len().max(least))
        .map(|at| {
            let value = args.get(at).unwrap_or(&Value::Nil);
            let number = lua.coerce_number(value.clone())?.ok_or_else(|| {
                let got = if at < args.len() { value.type_name() } else { "no value" };
                let at = at + 1;
                library::error(lua, &format!("bad argument #{at} to '{name}' (number expected, got {got})"))
            })?;
            Ok(wrap(number))
        })
        .collect()
}

/// Rounds a number to an integer and keeps its lower 32 bits.
fn wrap(number: f64) -> i32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 and 2^32 by then")]
    let low = number.round_ties_even().rem_euclid(4_294_967_296.0) as u32;
    low.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_to_32_bits() {
        for (number, wrapped) in [
            (4_294_967_295.0, -1),
            (-1.0, -1),
            (2_147_483_648.0, i32::MIN),
            (2.5, 2),
            (3.5, 4),
            (1_099_511_627_781.5, 6),
            (f64::NAN, 0),
            (f64::INFINITY, 0),
        ] {
            assert_eq!(wrap(number), wrapped, "{number}");
        }
    }
}
