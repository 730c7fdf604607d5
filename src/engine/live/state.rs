//! How a server is doing: what INFO, LATENCY and SLOWLOG say while we work on it.

use std::collections::BTreeMap;

use redis::Value;

use super::capability::parse_info;
use super::link::{Link, LinkError};
use super::reply::{count, field, text};

/// The parts of INFO that say whether a server should be left in peace for a while.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerState {
    fields: BTreeMap<String, String>,
}

impl ServerState {
    /// Asks the server. `None`: INFO is refused.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn read(link: &Link) -> Result<Option<Self>, LinkError> {
        let mut pipeline = redis::pipe();
        // One section a call is all that servers before 7.0 take.
        for section in ["server", "memory", "persistence", "replication"] {
            pipeline.cmd("INFO").arg(section);
        }
        let mut fields = BTreeMap::new();
        for reply in link.pipeline(&pipeline).await? {
            let Some(body) = reply.ok().as_ref().and_then(text) else { return Ok(None) };
            fields.extend(parse_info(&body));
        }
        Ok(Some(Self { fields }))
    }

    /// Makes a state out of INFO's text.
    pub fn from_info(body: &str) -> Self {
        Self { fields: parse_info(body) }
    }

    /// Returns a field's text.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    /// Returns a field that is a number.
    pub fn number(&self, field: &str) -> Option<u64> {
        self.text(field)?.parse().ok()
    }

    /// Returns the lines of replicas: `ip=...,port=...,state=online,offset=...,lag=0`, as pairs.
    pub fn replicas(&self) -> impl Iterator<Item = BTreeMap<&str, &str>> {
        self.fields
            .iter()
            .filter(|(name, _)| {
                name.strip_prefix("slave")
                    .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
            })
            .map(|(_, line)| line.split(',').filter_map(|pair| pair.split_once('=')).collect())
    }
}

/// What the server's own instruments say, to be compared with what they said before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Monitors {
    /// Events of LATENCY LATEST: when (unix seconds) and how long (milliseconds) the last one was.
    /// `None`: refused.
    pub latency: Option<BTreeMap<String, (u64, u64)>>,
    /// Whether the latency monitor records anything. `None`: the setting cannot be read.
    pub latency_is_on: Option<bool>,
    /// The entries of SLOWLOG GET, newest first: id, microseconds, command. `None`: refused.
    pub slowlog: Option<Vec<(u64, u64, String)>>,
}

/// The setting that switches the latency monitor on.
const LATENCY_THRESHOLD: &str = "latency-monitor-threshold";
/// Entries of SLOWLOG that are read: the server's own default length.
const SLOWLOG_ENTRIES: u32 = 128;

impl Monitors {
    /// Asks the server.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn read(link: &Link) -> Result<Self, LinkError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("LATENCY").arg("LATEST");
        pipeline.cmd("CONFIG").arg("GET").arg(LATENCY_THRESHOLD);
        pipeline.cmd("SLOWLOG").arg("GET").arg(SLOWLOG_ENTRIES);
        let mut replies = link.pipeline(&pipeline).await?.into_iter().map(Result::ok);
        let mut next = || replies.next().flatten();
        let latency = next().as_ref().and_then(latency_latest);
        let latency_is_on = next()
            .and_then(|setting| field(&setting, LATENCY_THRESHOLD).and_then(count))
            .map(|threshold| threshold != 0);
        let slowlog = next().as_ref().and_then(slowlog_entries);
        Ok(Self { latency, latency_is_on, slowlog })
    }
}

fn latency_latest(value: &Value) -> Option<BTreeMap<String, (u64, u64)>> {
    let Value::Array(rows) = value else { return None };
    let row = |row: &Value| {
        let Value::Array(cells) = row else { return None };
        Some((text(cells.first()?)?, (count(cells.get(1)?)?, count(cells.get(2)?)?)))
    };
    Some(rows.iter().filter_map(row).collect())
}

fn slowlog_entries(value: &Value) -> Option<Vec<(u64, u64, String)>> {
    let Value::Array(rows) = value else { return None };
    let row = |row: &Value| {
        let Value::Array(cells) = row else { return None };
        let Value::Array(words) = cells.get(3)? else { return None };
        Some((count(cells.first()?)?, count(cells.get(2)?)?, text(words.first()?)?))
    };
    Some(rows.iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_lines_of_pairs_and_not_other_fields_of_that_beginning() {
        let state = ServerState::from_info(
            "connected_slaves:1\r\nslave_expires_tracked_keys:0\r\n\
             slave0:ip=10.0.0.2,port=6379,state=online,offset=12,lag=1\r\n",
        );
        let replicas: Vec<_> = state.replicas().collect();
        assert_eq!(replicas.len(), 1);
        assert_eq!(replicas[0]["lag"], "1");
    }
}
