//! A finding as flat fields: the columns of CSV and the names of JSON are one list.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::engine::key::{Expiry, Flavour, KeyName, ServerProfile};
use crate::engine::risk::AllocationsBasis;
use crate::engine::tally::Finding;

use super::SCHEMA_VERSION;

/// The columns, in their order. New ones only at the end; see `docs/output.md`.
pub const COLUMNS: [&str; 26] = [
    "node",
    "db",
    "slot",
    "key",
    "key_encoding",
    "type",
    "encoding",
    "elements",
    "bytes",
    "bytes_basis",
    "free_effort",
    "allocations",
    "allocations_basis",
    "risk",
    "del_effect",
    "unlink_effect",
    "expire_effect",
    "overwrite_effect",
    "predicted_stall_ms",
    "ttl_ms",
    "expires_at",
    "idle_s",
    "freq",
    "observed_at",
    "server_version",
    "schema_version",
];

/// One finding. The order of the fields is [`COLUMNS`].
#[derive(Debug, Serialize)]
pub(super) struct Row<'a> {
    pub(super) node: Cow<'a, str>,
    pub(super) db: u32,
    pub(super) slot: Option<u16>,
    pub(super) key: Cow<'a, str>,
    pub(super) key_encoding: &'static str,
    #[serde(rename = "type")]
    pub(super) kind: Cow<'a, str>,
    pub(super) encoding: Option<Cow<'a, str>>,
    pub(super) elements: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) bytes_basis: Option<&'static str>,
    pub(super) free_effort: Option<u64>,
    pub(super) allocations: Option<u64>,
    pub(super) allocations_basis: Option<&'static str>,
    pub(super) risk: Option<&'static str>,
    pub(super) del_effect: &'static str,
    pub(super) unlink_effect: &'static str,
    pub(super) expire_effect: &'static str,
    pub(super) overwrite_effect: &'static str,
    pub(super) predicted_stall_ms: Option<f64>,
    pub(super) ttl_ms: Option<u64>,
    pub(super) expires_at: Option<String>,
    pub(super) idle_s: Option<u64>,
    pub(super) freq: Option<u8>,
    pub(super) observed_at: Option<String>,
    pub(super) server_version: String,
    pub(super) schema_version: u32,
}

impl<'a> Row<'a> {
    pub(super) fn new(finding: &'a Finding, server: &'a ServerProfile) -> Self {
        let Finding { facts, verdict, .. } = finding;
        let (key, key_encoding) = facts.key.to_text();
        let (ttl_ms, expires_at) = match facts.expiry {
            Expiry::Unknown => (None, None),
            Expiry::Never => (None, Some(NEVER.to_owned())),
            Expiry::In(ttl) => (
                Some(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
                facts.observed_at.checked_add(ttl).and_then(rfc3339),
            ),
        };
        let has_basis = verdict.allocations_basis != AllocationsBasis::Unknown;
        Self {
            node: address(&server.node),
            db: facts.db,
            slot: facts.slot,
            key,
            key_encoding: key_encoding.as_str(),
            kind: word(facts.kind.as_str()),
            encoding: facts.encoding.as_ref().map(|encoding| word(encoding.as_str())),
            elements: facts.elements,
            bytes: facts.bytes(),
            bytes_basis: facts.size.map(|size| size.basis.as_str()),
            free_effort: verdict.free_effort,
            allocations: verdict.allocations,
            allocations_basis: has_basis.then(|| verdict.allocations_basis.as_str()),
            risk: verdict.level.map(crate::engine::risk::Level::as_str),
            del_effect: verdict.effects.del.as_str(),
            unlink_effect: verdict.effects.unlink.as_str(),
            expire_effect: verdict.effects.expire.as_str(),
            overwrite_effect: verdict.effects.overwrite.as_str(),
            predicted_stall_ms: verdict.predicted_stall_ms.and_then(milliseconds),
            ttl_ms,
            expires_at,
            idle_s: facts.idle.map(|idle| idle.as_secs()),
            freq: facts.freq,
            observed_at: rfc3339(facts.observed_at),
            server_version: server_version(server),
            schema_version: SCHEMA_VERSION,
        }
    }
}

/// What `expires_at` says of a key without TTL. `ttl_ms` is then empty, so that it is a plain number
/// wherever it is anything, and `ttl_ms < 3600000` does not find keys that never go.
pub(super) const NEVER: &str = "never";

/// Returns a server's word (a type, an encoding) as it is where that is safe, else quoted Redis style.
pub(super) fn word(text: &str) -> Cow<'_, str> {
    let letters = |byte: u8| byte.is_ascii_lowercase();
    if !text.is_empty() && text.bytes().all(letters) && text != "true" && text != "false" {
        return Cow::Borrowed(text);
    }
    Cow::Owned(KeyName::from(text).to_text().0.into_owned())
}

/// Returns a node's address as it is where that is safe, else quoted. An address may begin with a
/// digit: with its dots and its port no spreadsheet takes it for a number.
pub(super) fn address(text: &str) -> Cow<'_, str> {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b".:[]/_-%~ ".contains(&byte);
    let starts_well = text.bytes().next().is_some_and(|byte| byte != b'-' && byte != b' ');
    if starts_well
        && text.bytes().all(safe)
        && (text.contains([':', '/']) || !text.as_bytes()[0].is_ascii_digit())
    {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(KeyName::from(text).quoted())
    }
}

/// Returns `Redis 7.0.15`. Called for each row, so only what a server named itself is checked.
pub fn server_version(server: &ServerProfile) -> String {
    let text = format!("{} {}", server.flavour, server.version);
    match server.flavour {
        Flavour::Redis | Flavour::Valkey => text,
        Flavour::Other(_) => KeyName::from(text.as_str()).to_text().0.into_owned(),
    }
}

/// Returns a number of milliseconds with three decimals. What is no number is unknown.
pub(super) fn milliseconds(ms: f64) -> Option<f64> {
    ms.is_finite().then(|| (ms * 1000.0).round() / 1000.0)
}

/// Returns a moment as RFC 3339 in UTC with milliseconds. A TTL may lead beyond the year 9999, which
/// RFC 3339 cannot write.
pub(super) fn rfc3339(time: SystemTime) -> Option<String> {
    const YEAR_10000_S: u64 = 253_402_300_800;
    let since_1970 = time.duration_since(UNIX_EPOCH).ok()?;
    (since_1970.as_secs() < YEAR_10000_S).then(|| humantime::format_rfc3339_millis(time).to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn addresses_stay_readable_and_never_begin_a_formula() {
        for node in ["127.0.0.1:6379", "[::1]:7000", "redis.prod-1.internal:6379", "/run/redis/a.sock"] {
            assert_eq!(address(node), node);
        }
        for node in ["=cmd|' /C calc'!A0", "-1:2", "@x", "+1:6379", "\t=1", "", "a\nb", "12345"] {
            assert!(address(node).starts_with('"'), "{node:?}");
        }
    }

    #[test]
    fn each_column_is_documented() {
        let docs = include_str!("../../../docs/output.md");
        let mut at = 0;
        for column in COLUMNS {
            let row = format!("\n| `{column}` |");
            at += docs[at..]
                .find(&row)
                .unwrap_or_else(|| panic!("docs/output.md lacks `{column}`, or has it elsewhere"));
        }
    }

    #[test]
    fn a_server_cannot_smuggle_a_formula_in_as_a_type() {
        assert_eq!(word("hash"), "hash");
        assert_eq!(word("ReJSON-RL"), "ReJSON-RL");
        assert_eq!(word("=1+1"), "\"=1+1\"");
        assert_eq!(word("\u{1b}[2J"), "\"\\x1b[2J\"");
    }

    #[test]
    fn moments_that_rfc_3339_cannot_write_are_unknown() {
        let at = |secs| UNIX_EPOCH.checked_add(Duration::from_secs(secs)).and_then(rfc3339);
        assert_eq!(at(0).as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert_eq!(at(253_402_300_799).as_deref(), Some("9999-12-31T23:59:59.000Z"));
        assert_eq!(at(253_402_300_800), None);
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), None);
    }
}
