//! Which servers a deployment has, as its servers and its Sentinels tell it.
//!
//! A cluster is read from `CLUSTER SLOTS`, which every version has and which names each node as clients
//! should reach it; whether slots are on their way to another node, only each primary's own line of `CLUSTER
//! NODES` tells. Sources: the Redis cluster specification, and the pages of these two commands.

use std::collections::BTreeMap;

use redis::Value;

use super::endpoint::Address;
use super::link::{Link, LinkError};
use super::reply::{Refusal, count, field, text};
use super::state::ServerState;
use crate::engine::key::SlotSet;

/// `--map-address FROM=TO`: where a server is reached that tells another address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressRule {
    /// The host that is told.
    pub from_host: String,
    /// The port that is told; any when absent.
    pub from_port: Option<u16>,
    /// The host to connect to.
    pub to_host: String,
    /// The port to connect to; the one that is told when absent.
    pub to_port: Option<u16>,
}

/// Finds the first rule that fits what a server tells.
fn reached_at(rules: &[AddressRule], host: &str, port: u16) -> Address {
    let fits = |rule: &&AddressRule| {
        rule.from_host.eq_ignore_ascii_case(host) && rule.from_port.is_none_or(|from| from == port)
    };
    match rules.iter().find(fits) {
        Some(rule) => Address::Tcp { host: rule.to_host.clone(), port: rule.to_port.unwrap_or(port) },
        None => Address::Tcp { host: host.to_owned(), port },
    }
}

/// A server of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its id: what it keeps when its address changes.
    pub id: String,
    /// Where to reach it.
    pub address: Address,
}

/// A primary, its replicas, and the slots that they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Its slots.
    pub slots: SlotSet,
    /// Who takes writes.
    pub primary: ClusterNode,
    /// Who repeats them. Those that are known to have failed are left out.
    pub replicas: Vec<ClusterNode>,
}

/// Who holds what in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterMap {
    /// The shards, by the id of their primary.
    pub shards: Vec<Shard>,
}

/// Nodes of a cluster: the specification recommends 1000 at the most.
const NODES_MAX: usize = 4096;

impl ClusterMap {
    /// Asks a server of the cluster. A refusal is what it said.
    ///
    /// `asked` is where that server was reached: a node that does not know its own address is meant by it.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn read(
        link: &Link,
        asked: &Address,
        rules: &[AddressRule],
    ) -> Result<Result<Self, Refusal>, LinkError> {
        let reply = link.command(redis::cmd("CLUSTER").arg("SLOTS")).await?;
        Ok(reply.map(|value| Self::parse(&value, asked, rules)))
    }

    fn parse(value: &Value, asked: &Address, rules: &[AddressRule]) -> Self {
        let mut shards: BTreeMap<String, Shard> = BTreeMap::new();
        let Value::Array(ranges) = value else { return Self::default() };
        for range in ranges {
            let Value::Array(parts) = range else { continue };
            let [first, last, primary, replicas @ ..] = &parts[..] else { continue };
            let slot = |value| count(value).and_then(|slot| u16::try_from(slot).ok());
            let (Some(first), Some(last)) = (slot(first), slot(last)) else { continue };
            let Some(primary) = cluster_node(primary, asked, rules) else { continue };
            if shards.len() == NODES_MAX {
                break;
            }
            let shard = shards.entry(primary.id.clone()).or_insert_with(|| Shard {
                slots: SlotSet::default(),
                primary,
                replicas: replicas
                    .iter()
                    .take(NODES_MAX)
                    .filter_map(|node| cluster_node(node, asked, rules))
                    .collect(),
            });
            shard.slots.insert_range(first, last);
        }
        Self { shards: shards.into_values().collect() }
    }

    /// Returns the shard that holds a slot.
    pub fn shard_of(&self, slot: u16) -> Option<&Shard> {
        self.shards.iter().find(|shard| shard.slots.contains(slot))
    }

    /// Returns the slots that this server's shard holds, as primary or replica.
    pub fn slots_beside(&self, id: &str) -> SlotSet {
        let mut slots = SlotSet::default();
        for shard in &self.shards {
            if shard.primary.id == id || shard.replicas.iter().any(|replica| replica.id == id) {
                slots.extend(&shard.slots);
            }
        }
        slots
    }

    /// Returns the slots that are held by anybody.
    pub fn slots(&self) -> SlotSet {
        let mut slots = SlotSet::default();
        for shard in &self.shards {
            slots.extend(&shard.slots);
        }
        slots
    }

    /// Returns where all servers are reached, primaries first.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        let primaries = self.shards.iter().map(|shard| &shard.primary);
        let replicas = self.shards.iter().flat_map(|shard| &shard.replicas);
        primaries.chain(replicas).map(|node| &node.address)
    }
}

/// Reads `[host, port, id, [name, value, ...]]`.
fn cluster_node(value: &Value, asked: &Address, rules: &[AddressRule]) -> Option<ClusterNode> {
    let Value::Array(parts) = value else { return None };
    let port = parts.get(1).and_then(count).and_then(|port| u16::try_from(port).ok())?;
    let told = parts.first().and_then(text).unwrap_or_default();
    let host = match told.as_str() {
        // It does not know; where it was asked is as good as it gets.
        "" => match asked {
            Address::Tcp { host, .. } => host.clone(),
            Address::Unix(_) => "127.0.0.1".to_owned(),
        },
        // Host names are preferred, and it has none.
        "?" => parts.get(3).and_then(|more| field(more, "ip")).and_then(text)?,
        told => told.to_owned(),
    };
    let address = reached_at(rules, &host, port);
    let id = parts.get(2).and_then(text).unwrap_or_else(|| format!("{host}:{port}"));
    Some(ClusterNode { id, address })
}

/// Asks a primary which of its slots are on their way: to it or from it. None where it does not say.
///
/// # Errors
/// When the connection breaks.
pub async fn slots_in_migration(link: &Link) -> Result<SlotSet, LinkError> {
    let reply = link.command(redis::cmd("CLUSTER").arg("NODES")).await?;
    Ok(reply.ok().as_ref().and_then(text).map(|body| migration_of(&body)).unwrap_or_default())
}

/// Reads `[93-<-id]` and `[77->-id]` from a server's own line.
fn migration_of(body: &str) -> SlotSet {
    body.lines()
        .filter(|line| line.split(' ').nth(2).is_some_and(|flags| flags.split(',').any(|f| f == "myself")))
        .flat_map(|line| line.split(' ').skip(8))
        .filter_map(|word| word.strip_prefix('[')?.split('-').next()?.parse::<u16>().ok())
        .collect()
}

/// Asks a primary for its replicas that are in step, by INFO.
///
/// # Errors
/// When the connection breaks.
pub async fn replicas_of(link: &Link, rules: &[AddressRule]) -> Result<Vec<Address>, LinkError> {
    let Some(state) = ServerState::read(link).await? else { return Ok(Vec::new()) };
    let mut replicas: Vec<Address> = state
        .replicas()
        .filter(|replica| replica.get("state") == Some(&"online"))
        .filter_map(|replica| Some(reached_at(rules, replica.get("ip")?, replica.get("port")?.parse().ok()?)))
        .collect();
    replicas.truncate(NODES_MAX);
    Ok(replicas)
}

/// What a Sentinel says of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentinelView {
    /// Who takes writes.
    pub primary: Address,
    /// Who repeats them, and is up.
    pub replicas: Vec<Address>,
}

/// Asks a Sentinel for a group by its name. `Ok(Ok(None))`: it knows none of that name.
///
/// # Errors
/// When the connection breaks.
pub async fn ask_sentinel(
    link: &Link,
    name: &str,
    rules: &[AddressRule],
) -> Result<Result<Option<SentinelView>, Refusal>, LinkError> {
    let reply = link.command(redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name)).await?;
    let primary = match reply {
        Ok(Value::Array(parts)) => parts,
        Ok(_) => return Ok(Ok(None)),
        Err(refusal) => return Ok(Err(refusal)),
    };
    let words: Vec<String> = primary.iter().filter_map(text).collect();
    let [host, port] = &words[..] else { return Ok(Ok(None)) };
    let Ok(port) = port.parse() else { return Ok(Ok(None)) };
    let primary = reached_at(rules, host, port);
    // `SLAVES` is what versions before 5.0 call it, and all others still know.
    let reply = link.command(redis::cmd("SENTINEL").arg("SLAVES").arg(name)).await?;
    let mut replicas = Vec::new();
    if let Ok(Value::Array(rows)) = reply {
        for row in rows.iter().take(NODES_MAX) {
            let word = |name: &str| field(row, name).and_then(text);
            let is_up = word("flags").is_some_and(|flags| flags == "slave")
                && word("master-link-status").is_none_or(|status| status == "ok");
            if let (true, Some(host), Some(Ok(port))) = (is_up, word("ip"), word("port").map(|p| p.parse())) {
                replicas.push(reached_at(rules, &host, port));
            }
        }
    }
    Ok(Ok(Some(SentinelView { primary, replicas })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn node(host: Value, port: i64, id: &str, more: Vec<Value>) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk(id), Value::Array(more)])
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn a_map_has_a_shard_for_each_primary_whatever_its_ranges() {
        let a = || node(bulk("10.0.0.1"), 7001, "aa", vec![]);
        let b = node(Value::Nil, 7002, "bb", vec![]);
        let replica = node(bulk("?"), 7003, "cc", vec![bulk("ip"), bulk("10.0.0.3")]);
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let value = Value::Array(vec![
            range(0, 99, vec![a(), replica]),
            range(100, 8_000, vec![b]),
            range(8_001, 8_001, vec![a()]),
            Value::Nil,
            range(-1, 70_000, vec![a()]),
        ]);
        let rules = [AddressRule {
            from_host: "10.0.0.1".to_owned(),
            from_port: None,
            to_host: "127.0.0.1".to_owned(),
            to_port: Some(1),
        }];
        let map = ClusterMap::parse(&value, &tcp("gate", 7000), &rules);
        assert_eq!(map.shards.len(), 2);
        assert_eq!(map.shards[0].slots.to_string(), "0-99 8001");
        assert_eq!(map.shards[0].primary.address, tcp("127.0.0.1", 1));
        assert_eq!(map.shards[0].replicas[0].address, tcp("10.0.0.3", 7003));
        assert_eq!(map.shards[1].primary.address, tcp("gate", 7002), "it does not know its own address");
        assert_eq!(map.slots_beside("cc").to_string(), "0-99 8001");
        assert_eq!(map.shard_of(100).map(|shard| shard.primary.id.as_str()), Some("bb"));
        assert_eq!(map.slots().len(), 8_002);
    }

    #[test]
    fn slots_on_their_way_are_in_the_line_of_the_server_itself() {
        let body = "aa 10.0.0.1:1@2 master - 0 1 1 connected 0-5 [7->-bb]\n\
                    bb 10.0.0.2:1@2,host myself,master - 0 1 1 connected 6-9 [93-<-aa] [77->-cc]\n";
        assert_eq!(migration_of(body).to_string(), "77 93");
        assert!(migration_of("").is_empty());
    }
}
