//! What is at an address: a server, a cluster, or a group behind Sentinel.

use crate::engine::key::Role;
use crate::engine::live::{
    Address, AddressRule, ClusterMap, ConnectErrorKind, Endpoint, Link, SentinelView, ServerState,
    ask_sentinel, replicas_of,
};
use crate::engine::pace::Pacer;
use crate::engine::report::Coverage;

use super::chorus::Chorus;
use super::cluster;
use super::config::{Preference, ScanConfig, Target, TargetKind};
use super::error::ScanError;
use super::node::{NodePlan, NodeScan, Ready, get_ready, scan_node};
use super::run::KeySource;
use super::walk::Ended;

/// Failovers of a group that one scan follows.
const FAILOVERS_MAX: usize = 3;

/// The scan of a server, a cluster or a group.
#[derive(Default)]
pub(super) struct Deployment {
    pub(super) scans: Vec<NodeScan>,
    pub(super) coverage: Option<Coverage>,
    pub(super) maybe_counted_twice: Option<String>,
}

impl From<NodeScan> for Deployment {
    fn from(scan: NodeScan) -> Self {
        Self { scans: vec![scan], ..Self::default() }
    }
}

/// Scans whatever is there, or looks at named keys of it.
pub(super) async fn scan_target(
    config: &ScanConfig,
    target: &Target,
    named: Option<&mut dyn KeySource>,
    budget: &Pacer,
    chorus: &Chorus<'_, '_>,
) -> Result<Deployment, ScanError> {
    if let TargetKind::Sentinel { name, others } = &target.kind {
        return group(config, target, name, others, named, budget, chorus).await;
    }
    let ready = get_ready(&target.endpoint).await?;
    let node = || target.endpoint.address.to_string();
    if target.kind == TargetKind::Cluster && !ready.profile.cluster {
        return Err(ScanError::NoCluster { node: node() });
    }
    if ready.profile.cluster && target.kind != TargetKind::OneNode {
        if config.checkpoints.is_some() {
            return Err(ScanError::NoCheckpoints { node: node() });
        }
        let read = ClusterMap::read(&ready.link, &target.endpoint.address, &config.address_rules).await;
        let map = read.map_err(|error| ScanError::Lost { node: node(), why: error.to_string() })?;
        let why = match map {
            Ok(map) if !map.shards.is_empty() => {
                return cluster::scan(config, target, map, named, budget, chorus).await;
            }
            Ok(_) => "it names no slots".to_owned(),
            Err(refusal) => refusal.message,
        };
        let _ = chorus.warn(format!(
            "{} is a node of a cluster and does not say who else is in it ({why}): only its own keys are scanned",
            node()
        ));
    } else if ready.profile.cluster {
        let _ = chorus.warn(format!("{} is one node of a cluster: only its own keys are scanned", node()));
    }
    one_server(config, target, ready, named, budget, chorus).await.map(Deployment::from)
}

async fn one_server(
    config: &ScanConfig,
    target: &Target,
    ready: Ready,
    named: Option<&mut dyn KeySource>,
    budget: &Pacer,
    chorus: &Chorus<'_, '_>,
) -> Result<NodeScan, ScanError> {
    let is_replica = ready.profile.role == Role::Replica;
    let elsewhere = match config.preference {
        Preference::Replica if !is_replica && !ready.profile.cluster => {
            a_replica(config, target, &ready).await
        }
        Preference::Primary if is_replica => its_primary(&ready.link).await,
        _ => None,
    };
    let (endpoint, ready) = match elsewhere {
        Some(address) => {
            let endpoint = target.endpoint.at(address);
            let ready = get_ready(&endpoint).await?;
            (endpoint, Some(ready))
        }
        // READONLY is said when a connection is made.
        None if is_replica && ready.profile.cluster => {
            (Endpoint { reads_replica: true, ..target.endpoint.clone() }, None)
        }
        None => {
            if config.preference == Preference::Replica && !is_replica {
                let _ = chorus.warn(format!(
                    "{} has no replica that is in step: the primary itself is scanned",
                    target.endpoint.address
                ));
            }
            (target.endpoint.clone(), Some(ready))
        }
    };
    scan_node(config, plan(config, target, endpoint), ready, named, budget, chorus).await
}

fn plan(config: &ScanConfig, target: &Target, endpoint: Endpoint) -> NodePlan {
    NodePlan {
        endpoint,
        databases: target.databases.clone(),
        slots: None,
        sample_keys: config.sample_keys,
        rate: config.rate_per_node,
    }
}

/// Returns a replica of this primary that can be reached.
async fn a_replica(config: &ScanConfig, target: &Target, ready: &Ready) -> Option<Address> {
    let replicas = replicas_of(&ready.link, &config.address_rules).await.ok()?;
    for address in replicas {
        if Link::open(&target.endpoint.at(address.clone()), "bigkeys").await.is_ok() {
            return Some(address);
        }
    }
    None
}

async fn its_primary(link: &Link) -> Option<Address> {
    let state = ServerState::read(link).await.ok().flatten()?;
    let host = state.text("master_host")?.to_owned();
    let port = u16::try_from(state.number("master_port")?).ok()?;
    Some(Address::Tcp { host, port })
}

// ---- Sentinel

async fn group(
    config: &ScanConfig,
    target: &Target,
    name: &str,
    others: &[Address],
    mut named: Option<&mut dyn KeySource>,
    budget: &Pacer,
    chorus: &Chorus<'_, '_>,
) -> Result<Deployment, ScanError> {
    let mut out_of_reach: Vec<Address> = Vec::new();
    let mut begun_again = None;
    let mut failovers = 0;
    loop {
        let view = ask_sentinels(&target.endpoint, name, others, &config.address_rules).await?;
        let address = choice(config.preference, &view, &out_of_reach);
        let plan = plan(config, target, target.endpoint.at(address.clone()));
        let named_now: Option<&mut dyn KeySource> = match &mut named {
            Some(source) => Some(&mut **source),
            None => None,
        };
        let is_named = named_now.is_some();
        let scanned = scan_node(config, plan, None, named_now, budget, chorus).await;
        let may_go_on = failovers < FAILOVERS_MAX && !is_named && chorus.stopped().is_none();
        failovers += 1;
        match scanned {
            Ok(scan) if may_go_on && matches!(scan.ended, Some(Ended::Lost(_))) => {
                chorus.leave(scan.done.server, false);
                let _ = chorus.warn(format!("{address} is gone: `{name}` is scanned from the start"));
                begun_again = Some(format!(
                    "{address} was lost half way: rows that were streamed before that may appear again (the \
                     totals and the top list count each key once)"
                ));
            }
            Err(error @ (ScanError::Connect(_) | ScanError::Lost { .. })) if may_go_on => {
                let _ = chorus.warn(format!("{error}: another server of `{name}` is tried"));
            }
            scanned => {
                return Ok(Deployment { maybe_counted_twice: begun_again, ..scanned?.into() });
            }
        }
        out_of_reach.push(address);
    }
}

/// Chooses a server of a group; one that was lost before only when there is no other.
fn choice(preference: Preference, view: &SentinelView, lost: &[Address]) -> Address {
    let replicas = view.replicas.iter().filter(|_| preference != Preference::Primary);
    let mut candidates = replicas.chain([&view.primary]);
    candidates.find(|address| !lost.contains(address)).unwrap_or(&view.primary).clone()
}

/// Asks the Sentinels in turn who is who.
///
/// # Errors
/// When none of them knows the group, with what each of them said.
pub(crate) async fn ask_sentinels(
    endpoint: &Endpoint,
    name: &str,
    others: &[Address],
    rules: &[AddressRule],
) -> Result<SentinelView, ScanError> {
    let mut said = Vec::new();
    for address in [&endpoint.address].into_iter().chain(others) {
        let link = match open_sentinel(&endpoint.at(address.clone())).await {
            Ok(link) => link,
            Err(error) => {
                said.push(error.to_string());
                continue;
            }
        };
        match ask_sentinel(&link, name, rules).await {
            Ok(Ok(Some(view))) => return Ok(view),
            Ok(Ok(None)) => said.push(format!("{address} knows no group of this name")),
            Ok(Err(refusal)) => said.push(format!("{address}: {refusal}")),
            Err(error) => said.push(format!("{address}: {error}")),
        }
    }
    Err(ScanError::Sentinel { name: name.to_owned(), said: said.join("; ") })
}

/// Sentinels often have no password where the servers behind them have one.
async fn open_sentinel(endpoint: &Endpoint) -> Result<Link, crate::engine::live::ConnectError> {
    match Link::open(endpoint, "bigkeys").await {
        Err(error)
            if matches!(error.kind, ConnectErrorKind::NoPasswordSet | ConnectErrorKind::WrongPassword) =>
        {
            let open =
                Endpoint { credentials: crate::engine::live::Credentials::default(), ..endpoint.clone() };
            // What is told is why the password was refused.
            Link::open(&open, "bigkeys").await.map_err(|_| error)
        }
        opened => opened,
    }
}
