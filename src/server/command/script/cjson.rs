//! The `cjson` library of scripts. Reading is left to `serde_json`; writing is not, because strings are bytes,
//! and a table is an array or an object by its keys.

use mlua::{Lua, Table, Value};

use super::library;

/// How deep tables may nest, as deep as `serde_json` reads. Redis allows 1000; a level takes 2 KB of stack here in
/// a debug build.
const DEPTH_MAX: usize = 128;
/// The longest text: a table that holds another one twice may be far longer written than kept.
const TEXT_BYTES_MAX: usize = 512 * 1024 * 1024;
/// An array of more than `SPARSE_MIN` may be at most `SPARSE_RATIO` times as long as it has elements.
const SPARSE_MIN: usize = 10;
const SPARSE_RATIO: usize = 2;

pub(super) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set(
        "encode",
        lua.create_function(|lua, value: Value| {
            let mut text = Vec::new();
            write(lua, &value, &mut text, 0).map_err(|why| library::error(lua, &why))?;
            lua.create_string(text)
        })?,
    )?;
    table.raw_set(
        "decode",
        lua.create_function(|lua, text: mlua::LuaString| {
            let parsed = serde_json::from_slice(&text.as_bytes());
            let parsed: serde_json::Value =
                parsed.map_err(|why| library::error(lua, &format!("Expected JSON but found: {why}")))?;
            to_lua(lua, &parsed)
        })?,
    )?;
    Ok(table)
}

fn to_lua(lua: &Lua, value: &serde_json::Value) -> mlua::Result<Value> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::Null => Value::NULL,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (at, item) in items.iter().enumerate() {
                table.raw_set(at + 1, to_lua(lua, item)?)?;
            }
            Value::Table(table)
        }
        Json::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (name, field) in fields {
                table.raw_set(lua.create_string(name)?, to_lua(lua, field)?)?;
            }
            Value::Table(table)
        }
    })
}

fn write(lua: &Lua, value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), String> {
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        null if *null == Value::NULL => out.extend_from_slice(b"null"),
        Value::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::String(text) => write_string(&text.as_bytes(), out),
        Value::Integer(_) | Value::Number(_) => out.extend_from_slice(&number_text(lua, value)?),
        Value::Table(_) if out.len() > TEXT_BYTES_MAX => {
            return Err("Cannot serialise table: the text is too long".to_owned());
        }
        Value::Table(_) if depth >= DEPTH_MAX => {
            return Err(format!("Cannot serialise, excessive nesting ({})", depth + 1));
        }
        Value::Table(table) => match array_len(table)? {
            Some(len) => {
                out.push(b'[');
                for at in 1..=len {
                    if at > 1 {
                        out.push(b',');
                    }
                    let item: Value = table.raw_get(at).map_err(|why| why.to_string())?;
                    write(lua, &item, out, depth + 1)?;
                }
                out.push(b']');
            }
            None => write_object(lua, table, out, depth)?,
        },
        other => return Err(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
    Ok(())
}

fn write_object(lua: &Lua, table: &Table, out: &mut Vec<u8>, depth: usize) -> Result<(), String> {
    out.push(b'{');
    let mut first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|why| why.to_string())?;
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        match &key {
            Value::String(text) => write_string(&text.as_bytes(), out),
            Value::Integer(_) | Value::Number(_) => write_string(&number_text(lua, &key)?, out),
            _ => return Err("Cannot serialise table: table key must be a number or string".to_owned()),
        }
        out.push(b':');
        write(lua, &value, out, depth + 1)?;
    }
    out.push(b'}');
    Ok(())
}

/// Returns the length of the array that a table is: all its keys are positive integers. An empty table is an
/// object.
fn array_len(table: &Table) -> Result<Option<usize>, String> {
    let (mut count, mut max) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair.map_err(|why| why.to_string())?;
        let Some(at) = key.as_usize().filter(|at| *at > 0) else {
            return Ok(None);
        };
        (count, max) = (count + 1, max.max(at));
    }
    if max > SPARSE_MIN && max > count * SPARSE_RATIO {
        return Err("Cannot serialise table: excessively sparse array".to_owned());
    }
    Ok((count > 0).then_some(max))
}

/// Writes a number with the 14 digits that Lua shows.
fn number_text(lua: &Lua, number: &Value) -> Result<Vec<u8>, String> {
    if matches!(number, Value::Number(number) if !number.is_finite()) {
        return Err("Cannot serialise number: must not be NaN or Inf".to_owned());
    }
    let text = lua.coerce_string(number.clone()).map_err(|why| why.to_string())?;
    Ok(text.map(|text| text.as_bytes().to_vec()).unwrap_or_default())
}

fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..=0x1f | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}
