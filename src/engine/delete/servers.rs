//! The servers on which a plan is carried out: the one that was named, the primary of a group behind Sentinel, or
//! the primaries of a cluster.

use crate::engine::key::SlotSet;
use crate::engine::live::{Address, ClusterMap, Endpoint, Link, LinkError, probe_server, probe_writes};
use crate::engine::scan::{ScanError, TargetKind, ask_sentinels};

use super::config::DeleteConfig;
use super::execute::Place;

/// A server that takes writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    /// The slots that it holds; all keys where absent.
    pub(super) slots: Option<SlotSet>,
}

/// All servers of what was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Servers {
    pub(super) primaries: Vec<Server>,
    /// Where else its keys may have been seen: replicas.
    pub(super) others: Vec<Address>,
    /// Primaries can change while keys are deleted.
    pub(super) may_change: bool,
}

impl Servers {
    /// Finds out who takes writes.
    ///
    /// # Errors
    /// When nobody can be asked.
    pub(super) async fn find(config: &DeleteConfig) -> Result<Self, ScanError> {
        let endpoint = &config.endpoint;
        if let TargetKind::Sentinel { name, others } = &config.kind {
            let view = ask_sentinels(endpoint, name, others, &config.address_rules).await?;
            let primary = Server { endpoint: endpoint.at(view.primary), slots: None };
            return Ok(Self { primaries: vec![primary], others: view.replicas, may_change: true });
        }
        let alone = Self {
            primaries: vec![Server { endpoint: endpoint.clone(), slots: None }],
            others: Vec::new(),
            may_change: false,
        };
        if config.kind == TargetKind::OneNode {
            return Ok(alone);
        }
        let link = Link::open(endpoint, "bigkeys").await.map_err(ScanError::Connect)?;
        let lost =
            |error: LinkError| ScanError::Lost { node: endpoint.address.to_string(), why: error.to_string() };
        match ClusterMap::read(&link, &endpoint.address, &config.address_rules).await.map_err(lost)? {
            Ok(map) if !map.shards.is_empty() => Ok(Self::of(&map, endpoint)),
            _ if config.kind == TargetKind::Cluster => {
                Err(ScanError::NoCluster { node: endpoint.address.to_string() })
            }
            _ => Ok(alone),
        }
    }

    fn of(map: &ClusterMap, endpoint: &Endpoint) -> Self {
        let primaries = map
            .shards
            .iter()
            .map(|shard| Server {
                endpoint: endpoint.at(shard.primary.address.clone()),
                slots: Some(shard.slots.clone()),
            })
            .collect();
        let others = map.shards.iter().flat_map(|shard| &shard.replicas);
        let others = others.map(|node| node.address.clone()).chain([endpoint.address.clone()]).collect();
        Self { primaries, others, may_change: true }
    }

    /// Returns whether a scan's row of this node may be one of these servers' keys.
    pub(super) fn knows(&self, node: &str) -> bool {
        let primaries = self.primaries.iter().map(|server| &server.endpoint.address);
        primaries.chain(&self.others).any(|address| address.to_string() == node)
    }
}

/// Finds out what a server is and what may be sent to it.
///
/// # Errors
/// When there is no connection.
pub(super) async fn survey(endpoint: &Endpoint) -> Result<Place, ScanError> {
    let node = endpoint.address.to_string();
    let lost = |error: LinkError| ScanError::Lost { node: node.clone(), why: error.to_string() };
    let link = Link::open(endpoint, "bigkeys").await.map_err(ScanError::Connect)?;
    let profile = probe_server(&link, node.clone()).await.map_err(lost)?.profile;
    // A probe may leave a connection that is not as it was.
    let link = Link::open(endpoint, "bigkeys").await.map_err(ScanError::Connect)?;
    let access = probe_writes(&link).await.map_err(lost)?;
    Ok(Place { profile, access })
}
