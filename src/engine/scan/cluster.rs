//! The scan of a cluster: until every slot was scanned from beginning to end while one shard held it.
//!
//! SCAN is never redirected: each node tells its own keys. So a slot that moves to a node which was past that
//! place already would be missed, and one that moves the other way would be seen twice. Rounds see to it:
//!
//! ```text
//! who holds what -> one server of each shard scans what is left of its slots, all at the same time
//!                -> who holds what now -> a slot is covered when the same shard held it before and after, it
//!                   was not on its way at either time, and no key of it was found to be elsewhere
//! ```
//!
//! What is left goes to the next round: slots that moved, and those of a server that was lost. What a lost
//! server had told is forgotten, so that nothing is counted twice; keys of slots that moved may be, and the report
//! says of how many slots.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::engine::event::Event;
use crate::engine::key::{KeyName, SkipReason, Skipped, SlotSet};
use crate::engine::live::{Address, ClusterMap, Endpoint, Link, slots_in_migration};
use crate::engine::pace::Pacer;
use crate::engine::report::Coverage;

use super::chorus::Chorus;
use super::config::{Databases, Preference, ScanConfig, Target};
use super::deployment::Deployment;
use super::error::ScanError;
use super::glob::glob_slot;
use super::node::{NodePlan, NodeScan, enter_node, scan_node};
use super::run::KeySource;
use super::walk::Ended;

/// Rounds in which a slot is scanned.
const ROUNDS_MAX: u32 = 8;
/// Time between two rounds, when a slot could not be scanned in the last one.
const ROUND_WAIT: Duration = Duration::from_millis(500);
/// How long an election takes once `cluster-node-timeout` is over. That is 15 s by default, as is the time that we
/// wait for an answer.
const ELECTION: Duration = Duration::from_secs(5);
/// Times that a named key is looked for, each time where the cluster says that it is.
const LOOKS_MAX: u32 = 5;

/// A shard's part of a round.
struct Part {
    /// The id of the server that is asked.
    id: String,
    address: Address,
    reads_replica: bool,
    slots: SlotSet,
}

/// Scans a cluster, or looks at named keys of it.
pub(super) async fn scan(
    config: &ScanConfig,
    target: &Target,
    map: ClusterMap,
    named: Option<&mut dyn KeySource>,
    budget: &Pacer,
    chorus: &Chorus<'_, '_>,
) -> Result<Deployment, ScanError> {
    let mut cluster = Cluster::new(config, target, map);
    match named {
        Some(source) => cluster.look(source, budget, chorus).await,
        None => cluster.cover(budget, chorus).await,
    }
}

struct Cluster<'a> {
    config: &'a ScanConfig,
    target: &'a Target,
    map: ClusterMap,
    /// Slots on their way to another node.
    in_migration: SlotSet,
    /// Servers that did not do what was asked of them, and why.
    failed: Vec<(Address, String)>,
}

impl<'a> Cluster<'a> {
    fn new(config: &'a ScanConfig, target: &'a Target, map: ClusterMap) -> Self {
        Self { config, target, map, in_migration: SlotSet::default(), failed: Vec::new() }
    }

    async fn cover(&mut self, budget: &Pacer, chorus: &Chorus<'_, '_>) -> Result<Deployment, ScanError> {
        let wanted = match &self.config.filter.globs[..] {
            [glob] => glob_slot(glob).map_or_else(SlotSet::all, |slot| [slot].into_iter().collect()),
            _ => SlotSet::all(),
        };
        let (mut covered, mut moved) = (SlotSet::default(), SlotSet::default());
        let mut scans: Vec<NodeScan> = Vec::new();
        // Scans that did not come to their end, for when nobody else can do it.
        let mut unfinished: Vec<(NodeScan, SlotSet)> = Vec::new();
        let mut first_error = None;
        let mut stuck_since: Option<Instant> = None;
        self.in_migration = self.slots_in_migration().await;
        for round in 1.. {
            let parts = self.parts(&wanted.without(&covered));
            let sample_keys = self.config.sample_keys.map(|keys| keys.div_ceil(parts.len().max(1) as u64));
            let each = parts.iter().map(|part| {
                let plan = self.plan(part, sample_keys);
                scan_node(self.config, plan, None, None, budget, chorus)
            });
            let scanned = join_all(each).await;
            let in_migration_before = self.in_migration.clone();
            // Where nobody tells who holds what by now, nothing is covered for sure.
            let is_known = self.look_around().await;
            let before = covered.len();
            for (part, scan) in parts.iter().zip(scanned) {
                match scan {
                    Ok(mut scan) if scan.ended.is_none() => {
                        let held =
                            if is_known { self.map.slots_beside(&part.id) } else { SlotSet::default() };
                        let stayed = part
                            .slots
                            .and(&held)
                            .without(&scan.done.moved)
                            .without(&in_migration_before)
                            .without(&self.in_migration);
                        moved.extend(&part.slots.without(&stayed));
                        scan.done.tally.top.retain(|finding| stayed.contains(finding.facts.key.slot()));
                        covered.extend(&stayed);
                        unfinished.retain(|(_, slots)| slots.and(&stayed).is_empty());
                        scans.push(scan);
                    }
                    Ok(scan) => {
                        if let Some(Ended::Lost(why)) = &scan.ended {
                            self.failed.push((part.address.clone(), why.clone()));
                        }
                        unfinished.push((scan, part.slots.clone()));
                    }
                    Err(error) => {
                        self.failed.push((part.address.clone(), error.to_string()));
                        first_error.get_or_insert(error);
                    }
                }
            }
            let missing = wanted.without(&covered);
            if missing.is_empty() || round == ROUNDS_MAX || self.config.sample_keys.is_some() {
                break;
            }
            if covered.len() > before {
                stuck_since = None;
            }
            let since = *stuck_since.get_or_insert_with(Instant::now);
            if chorus.stopped().is_some() || !self.can_go_on(&missing, since, chorus).await {
                break;
            }
        }
        for (scan, _) in &mut unfinished {
            // What is covered by now was told by somebody else.
            scan.done.tally.top.retain(|finding| !covered.contains(finding.facts.key.slot()));
        }
        scans.extend(unfinished.into_iter().map(|(scan, _)| scan));
        if scans.is_empty() {
            return Err(first_error.unwrap_or_else(|| ScanError::Lost {
                node: self.target.endpoint.address.to_string(),
                why: "no shard of the cluster could be reached".to_owned(),
            }));
        }
        let missing = wanted.without(&covered);
        let is_sample = self.config.sample_keys.is_some();
        if is_sample && let Some(error) = &first_error {
            let _ = chorus.warn(format!("{error}: its keys are not in the sample"));
        }
        let coverage = (!is_sample).then(|| Coverage {
            target: self.target.endpoint.address.to_string(),
            slots_wanted: wanted.len(),
            slots_covered: covered.len(),
            slots_moved: moved.and(&covered).len(),
            missing: missing.to_string(),
            why: self.why_missing(&missing),
        });
        if !missing.is_empty() {
            // Told as a whole, and not shard by shard.
            for scan in &mut scans {
                scan.ended.take_if(|ended| matches!(ended, Ended::Lost(_)));
            }
        }
        let maybe_counted_twice = (!moved.is_empty()).then(|| {
            format!("{} slots moved between nodes during the scan, and were scanned again", moved.len())
        });
        Ok(Deployment { scans, coverage, maybe_counted_twice })
    }

    /// Divides slots among servers, one of each shard.
    fn parts(&self, wanted: &SlotSet) -> Vec<Part> {
        let mut parts = Vec::new();
        for shard in &self.map.shards {
            let slots = shard.slots.and(wanted).without(&self.in_migration);
            if slots.is_empty() {
                continue;
            }
            let replica = match self.config.preference {
                Preference::Primary => None,
                Preference::Auto | Preference::Replica => {
                    shard.replicas.iter().find(|replica| !self.has_failed(&replica.address))
                }
            };
            let server = replica.unwrap_or(&shard.primary);
            parts.push(Part {
                id: server.id.clone(),
                address: server.address.clone(),
                reads_replica: replica.is_some(),
                slots,
            });
        }
        parts
    }

    fn plan(&self, part: &Part, sample_keys: Option<u64>) -> NodePlan {
        NodePlan {
            endpoint: Endpoint {
                reads_replica: part.reads_replica,
                ..self.target.endpoint.at(part.address.clone())
            },
            databases: self.target.databases.clone(),
            slots: Some(part.slots.clone()),
            sample_keys,
            rate: self.config.rate_per_node,
        }
    }

    /// Finds out anew who holds what. Returns whether anybody tells; if not, everything stays as it was.
    async fn look_around(&mut self) -> bool {
        let named = &self.target.endpoint.address;
        let addresses: Vec<Address> = self.map.addresses().chain([named]).cloned().collect();
        for address in addresses {
            let endpoint = self.target.endpoint.at(address.clone());
            let Ok(link) = Link::open(&endpoint, "bigkeys").await else { continue };
            if let Ok(Ok(map)) = ClusterMap::read(&link, &address, &self.config.address_rules).await
                && !map.shards.is_empty()
            {
                self.map = map;
                self.in_migration = self.slots_in_migration().await;
                return true;
            }
        }
        false
    }

    /// Asks every primary which of its slots are on their way.
    async fn slots_in_migration(&self) -> SlotSet {
        let each = self.map.shards.iter().map(|shard| async {
            let endpoint = self.target.endpoint.at(shard.primary.address.clone());
            let link = Link::open(&endpoint, "bigkeys").await.ok()?;
            slots_in_migration(&link).await.ok()
        });
        let mut slots = SlotSet::default();
        for found in join_all(each).await.into_iter().flatten() {
            slots.extend(&found);
        }
        slots
    }

    /// Waits until somebody can scan what is missing: a replica that was elected, a server that is back, a slot
    /// that has arrived. Returns whether there is somebody.
    async fn can_go_on(&mut self, missing: &SlotSet, since: Instant, chorus: &Chorus<'_, '_>) -> bool {
        let patience = self.target.endpoint.timeouts.command + ELECTION;
        // What nobody holds will not be held by waiting.
        while !missing.and(&self.map.slots()).is_empty() {
            for part in self.parts(missing) {
                let endpoint = self.plan(&part, None).endpoint;
                if !self.has_failed(&part.address) || Link::open(&endpoint, "bigkeys").await.is_ok() {
                    self.failed.retain(|(failed, _)| *failed != part.address);
                    return true;
                }
            }
            if since.elapsed() > patience {
                return false;
            }
            tokio::time::sleep(ROUND_WAIT).await;
            if chorus.still().is_break() {
                return false;
            }
            self.look_around().await;
        }
        false
    }

    // ---- named keys

    /// Looks at named keys, each where the cluster says that it is.
    async fn look(
        &mut self,
        source: &mut dyn KeySource,
        budget: &Pacer,
        chorus: &Chorus<'_, '_>,
    ) -> Result<Deployment, ScanError> {
        let config = self.config;
        let Databases::Only(dbs) = &self.target.databases else { return Ok(Deployment::default()) };
        let mut walks = Vec::new();
        let mut ended = None;
        'all: for &db in dbs {
            while let Some(mut keys) = source.next_page(db) {
                for look in 1.. {
                    let (mut moved, mut of_nobody) = (Vec::new(), Vec::new());
                    for (part, keys) in self.divide(keys, &mut of_nobody) {
                        let at = if let Some(at) = walks.iter().position(|(id, _)| *id == part.id) {
                            at
                        } else {
                            let plan = self.plan(&part, None);
                            walks.push((part.id, enter_node(config, plan, None, budget, chorus).await?));
                            walks.len() - 1
                        };
                        match walks[at].1.walk.page(db, keys).await {
                            Ok(more) => moved.extend(more),
                            Err(why) => {
                                ended = Some(why);
                                break 'all;
                            }
                        }
                    }
                    moved.extend(of_nobody);
                    if moved.is_empty() {
                        break;
                    }
                    if look == LOOKS_MAX {
                        for key in moved {
                            let detail = Some("its slot is being moved, or nobody holds it".into());
                            let skipped = Skipped { db, key, why: SkipReason::Moved, detail };
                            let _ = chorus.say(Event::Skipped(&skipped));
                        }
                        break;
                    }
                    tokio::time::sleep(ROUND_WAIT).await;
                    self.look_around().await;
                    keys = moved;
                }
            }
        }
        // No key at all: somebody has to say what kind of servers these are.
        if walks.is_empty()
            && let Some(part) = self.parts(&SlotSet::all()).into_iter().next()
        {
            let plan = self.plan(&part, None);
            walks.push((part.id, enter_node(config, plan, None, budget, chorus).await?));
        }
        let mut deployment = Deployment::default();
        for (_, entered) in walks {
            deployment.scans.push(entered.finish(ended.take(), chorus).await);
        }
        Ok(deployment)
    }

    /// Divides keys among the primaries that hold them.
    fn divide(&self, keys: Vec<KeyName>, of_nobody: &mut Vec<KeyName>) -> Vec<(Part, Vec<KeyName>)> {
        let mut parts: Vec<(Part, Vec<KeyName>)> = Vec::new();
        for key in keys {
            let slot = key.slot();
            let Some(shard) = self.map.shard_of(slot) else {
                of_nobody.push(key);
                continue;
            };
            if let Some((_, keys)) = parts.iter_mut().find(|(part, _)| part.id == shard.primary.id) {
                keys.push(key);
                continue;
            }
            let part = Part {
                id: shard.primary.id.clone(),
                address: shard.primary.address.clone(),
                reads_replica: false,
                slots: SlotSet::all(),
            };
            parts.push((part, vec![key]));
        }
        parts
    }

    // ---- words

    fn has_failed(&self, address: &Address) -> bool {
        self.failed.iter().any(|(failed, _)| failed == address)
    }

    fn why_missing(&self, missing: &SlotSet) -> String {
        if missing.is_empty() {
            return String::new();
        }
        let mut reasons = Vec::new();
        let nobodys = missing.without(&self.map.slots());
        if !nobodys.is_empty() {
            reasons.push(format!("no server holds {} of them", nobodys.len()));
        }
        let on_their_way = missing.and(&self.in_migration);
        if !on_their_way.is_empty() {
            reasons.push(format!("{} are being moved from one node to another", on_their_way.len()));
        }
        for (index, (address, why)) in self.failed.iter().enumerate() {
            let is_told = self.failed[..index].iter().any(|(told, _)| told == address);
            let holds_some = self.map.shards.iter().any(|shard| {
                !shard.slots.and(missing).is_empty()
                    && (shard.primary.address == *address
                        || shard.replicas.iter().any(|replica| replica.address == *address))
            });
            if !is_told && holds_some {
                let why = why.strip_prefix("cannot connect to ").unwrap_or(why);
                reasons.push(if why.contains(&address.to_string()) {
                    why.to_owned()
                } else {
                    format!("{address}: {why}")
                });
            }
        }
        if reasons.is_empty() {
            reasons.push("the scan ended before".to_owned());
        }
        reasons.join("; ")
    }
}
