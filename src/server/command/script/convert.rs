//! Between replies and Lua values, by Redis' rules: a nil is `false`, a status is `{ok=..}`, an
//! error `{err=..}`, a number loses its fraction, an array ends at its first nil.

use mlua::{Lua, Table, Value};

use crate::server::resp::Reply;

/// How deep a reply may nest: a table may contain itself.
const DEPTH_MAX: usize = 128;

/// Turns one reply, as written in RESP2 by our own writer, into a Lua value.
pub(super) fn to_lua(lua: &Lua, reply: &mut &[u8]) -> mlua::Result<Value> {
    let end = reply.windows(2).position(|pair| pair == b"\r\n").unwrap_or(reply.len());
    let (line, rest) = reply.split_at(end);
    *reply = rest.get(2..).unwrap_or_default();
    let (marker, text) = line.split_first().unwrap_or((&b'_', b""));
    let number = || std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok()).unwrap_or(-1);
    match marker {
        b'+' => field(lua, "ok", text),
        b'-' => field(lua, "err", text),
        b':' => {
            #[allow(clippy::cast_precision_loss, reason = "numbers in Lua 5.1 are doubles")]
            let number = number() as f64;
            Ok(Value::Number(number))
        }
        b'$' => match usize::try_from(number()) {
            Ok(len) if len <= reply.len() => {
                let (bytes, rest) = reply.split_at(len);
                *reply = rest.get(2..).unwrap_or_default();
                Ok(Value::String(lua.create_string(bytes)?))
            }
            _ => Ok(Value::Boolean(false)),
        },
        b'*' => match usize::try_from(number()) {
            Ok(len) => {
                let table = lua.create_table()?;
                for at in 1..=len {
                    table.raw_set(at, to_lua(lua, reply)?)?;
                }
                Ok(Value::Table(table))
            }
            Err(_) => Ok(Value::Boolean(false)),
        },
        _ => Ok(Value::Boolean(false)),
    }
}

fn field(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// Writes a Lua value as a reply.
pub(super) fn to_reply(value: &Value, out: &mut Reply) {
    write_value(value, out, 0);
}

fn write_value(value: &Value, out: &mut Reply, depth: usize) {
    match value {
        Value::String(text) => out.bulk(&text.as_bytes()),
        Value::Integer(number) => out.int(*number),
        #[allow(clippy::cast_possible_truncation, reason = "that is the rule: the fraction is lost")]
        Value::Number(number) => out.int(*number as i64),
        Value::Boolean(true) => out.int(1),
        Value::Table(_) if depth >= DEPTH_MAX => out.error(b"ERR reached lua stack limit"),
        Value::Table(table) => write_table(table, out, depth),
        _ => out.nil(),
    }
}

fn write_table(table: &Table, out: &mut Reply, depth: usize) {
    if let Ok(Value::String(text)) = table.raw_get("err") {
        out.error(&error_text(&text.as_bytes()));
        return;
    }
    if let Ok(Value::String(text)) = table.raw_get("ok") {
        out.simple(&String::from_utf8_lossy(&text.as_bytes()).replace(['\r', '\n'], " "));
        return;
    }
    let place = out.defer();
    let mut len = 0;
    loop {
        match table.raw_get::<Value>(len + 1) {
            Ok(Value::Nil) | Err(_) => break,
            Ok(value) => write_value(&value, out, depth + 1),
        }
        len += 1;
    }
    out.array_at(&place, len);
}

/// An error's text without the dash that some scripts put in front.
pub(super) fn error_text(text: &[u8]) -> Vec<u8> {
    text.strip_prefix(b"-").unwrap_or(text).to_vec()
}
