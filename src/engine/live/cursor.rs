//! SCAN, a page at a time.
//!
//! A cursor is an opaque unsigned 64-bit number: it may lie above 2^63, and an empty page with a
//! cursor other than 0 is not the end. Only 0 ends. A cursor means something on one server process
//! alone, since the hash seed is new with each start.

use serde::{Deserialize, Serialize};

use redis::{Cmd, Value};

use crate::engine::key::{KeyName, Kind};

use super::reply::{bytes, text};

/// Where a scan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cursor(pub u64);

impl Cursor {
    /// Both the first cursor and the one that says that the scan is over.
    pub const START: Self = Self(0);

    /// Returns a cursor in a random place: SCAN takes any number, and masks it to the size of its table.
    pub fn random() -> Self {
        Self(super::random::random())
    }
}

/// What to ask of each SCAN call besides the cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanRequest {
    /// `MATCH`
    pub glob: Option<Vec<u8>>,
    /// `TYPE` (Redis >= 6.0)
    pub kind: Option<Kind>,
}

impl ScanRequest {
    /// Returns the command for one page.
    pub fn command(&self, cursor: Cursor, count: u32) -> Cmd {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor.0);
        if let Some(glob) = &self.glob {
            command.arg("MATCH").arg(glob);
        }
        command.arg("COUNT").arg(count);
        if let Some(kind) = &self.kind {
            command.arg("TYPE").arg(kind.as_str());
        }
        command
    }
}

/// One page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPage {
    /// Where to go on; [`Cursor::START`] is the end.
    pub next: Cursor,
    /// The keys of this page, as many as the server liked to give.
    pub keys: Vec<KeyName>,
}

impl ScanPage {
    /// Reads the answer of SCAN. `None`: this is no answer that SCAN gives.
    pub fn from_reply(value: Value) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let [cursor, keys] = <[Value; 2]>::try_from(parts).ok()?;
        let next = match cursor {
            Value::Int(number) => Cursor(u64::try_from(number).ok()?),
            other => Cursor(text(&other)?.parse().ok()?),
        };
        let Value::Array(keys) = keys else { return None };
        let keys = keys.into_iter().map(|key| bytes(key).map(KeyName::new)).collect::<Option<_>>()?;
        Some(Self { next, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_above_two_to_the_63_is_kept() {
        let reply = Value::Array(vec![
            Value::BulkString(b"18446744073709551615".to_vec()),
            Value::Array(vec![Value::BulkString(b"\xff\0".to_vec())]),
        ]);
        let page = ScanPage::from_reply(reply).expect("a page");
        assert_eq!(page.next, Cursor(u64::MAX));
        assert_eq!(page.keys, [KeyName::from(&b"\xff\0"[..])]);
    }

    #[test]
    fn an_answer_that_is_no_page_is_refused() {
        for value in
            [Value::Nil, Value::Int(0), Value::Array(vec![]), Value::Array(vec![Value::Nil, Value::Nil])]
        {
            assert_eq!(ScanPage::from_reply(value), None);
        }
    }
}
