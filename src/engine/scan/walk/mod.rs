//! Walks a database, page by page, with the server always busy and never flooded.
//!
//! Four things are in flight at a time, each a step behind the one before it:
//!
//! ```text
//! turn n:   SCAN page n+1 | census of page n | details of page n-1 | lists and streams of page n-2
//! ```
//!
//! SCAN goes first in each turn, so that little else is in what it took, and COUNT can follow it. A request is
//! a batch that only reads, so when the connection breaks it is simply sent again on the next one:
//! the cursor is kept, and nothing is counted before its replies are whole. If the server restarted
//! meanwhile (another `run_id`), its cursors mean nothing, and the database begins again with the tally
//! it had.

mod checkpoint;
mod count;
mod named;
mod pieces;
mod rates;
mod requests;
mod route;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::engine::event::{Event, Stop};
use crate::engine::key::{
    Access, BytesBasis, Encoding, KeyFacts, KeyName, Kind, ListNodes, Measured, NodesBasis, ServerProfile,
    SkipReason, Skipped, SlotSet,
};
use crate::engine::live::{
    Batch, Canary, CanaryState, CensusFacts, Cursor, Endpoint, Inspector, Link, Reply, ScanPage, ScanRequest,
    probe_server, read_count, read_groups, read_ql_nodes, wants_groups,
};
use crate::engine::pace::Pacer;
use crate::engine::risk::quicklist::ListProbePlan;
use crate::engine::risk::{AllocationsBasis, Effect, Effects, Level, Policy, Verdict, judge};
use crate::engine::tally::{Finding, Tally};

use self::checkpoint::Keeper;
use self::count::CountTuner;
use self::pieces::Pieces;
use self::rates::Rates;
use self::requests::Request;
use self::route::{Circular, Route};
use super::config::ScanConfig;
use super::keysizes::KeysizesFound;
use super::list_probe;
use super::select::Selector;
use super::window::SeenWindow;

/// Time between two looks at the guard and two progress events.
const TICK: Duration = Duration::from_millis(100);
/// Restarts of the server that a scan puts up with.
const RESTARTS_MAX: u32 = 3;
/// Lists whose ends are read at a time: 2 MiB of elements in the usual case.
const LISTS_AT_A_TIME: usize = 16;
/// COUNT of a SCAN at a random cursor: small, so that a sample comes from many places.
const SAMPLE_COUNT: u32 = 20;
/// Keys that changed their type under our eyes and are looked at once more, in one database.
const SECOND_LOOKS_MAX: usize = 10_000;

/// Why a walk ended before the end.
#[derive(Debug)]
pub(super) enum Ended {
    /// The listener wants it.
    Stopped(Stop),
    /// Another client waited this long.
    Guard(Duration),
    /// The connection is lost and did not come back.
    Lost(String),
    /// The server answers an error to SCAN.
    Refused(String),
    /// The server answers an error to SELECT.
    NoDatabase { db: u32, message: String },
    /// It restarted more than [`RESTARTS_MAX`] times.
    RestartedTooOften,
}

/// Why the walk through a database cannot just go on.
enum Interruption {
    Ended(Ended),
    /// The server is another process now.
    Restarted,
}

impl From<Ended> for Interruption {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

/// Where a walk is.
pub(super) struct Place {
    pub(super) endpoint: Endpoint,
    /// The server's number, by which findings name it.
    pub(super) server: usize,
    /// Only keys of these slots of a cluster; all keys where absent.
    pub(super) slots: Option<SlotSet>,
    pub(super) sample_keys: Option<u64>,
    pub(super) keys_total: Option<u64>,
    pub(super) pacer: Pacer,
}

/// A walk through the databases of one server.
pub(super) struct Walk<'a, F> {
    config: &'a ScanConfig,
    endpoint: Endpoint,
    server: usize,
    slots: Option<SlotSet>,
    sample_keys: Option<u64>,
    /// Slots of which a key is another server's by now.
    moved: SlotSet,
    /// Those keys, where they were named.
    moved_keys: Vec<KeyName>,
    is_named: bool,
    on_event: F,
    policy: Policy,
    inspector: Inspector,
    /// List nodes are counted (`DEBUG OBJECT`) and not estimated.
    exact_lists: bool,
    request: ScanRequest,
    link: Link,
    /// Counts the connections: a request of an older one has to be sent again.
    generation: u64,
    canary: Canary,
    pacer: Pacer,
    count: CountTuner,
    window: SeenWindow,
    db: u32,
    keys_total: Option<u64>,
    /// Keys that changed their type between two of our commands, to be looked at once more.
    again: Vec<KeyName>,
    /// Those that were.
    looked_again: HashSet<KeyName>,
    ticked_at: Instant,
    rates: Rates,
    not_ready_since: Option<Instant>,
    sums: Sums,
    slowdowns: u64,
    reconnects: u32,
    restarts: u32,
    round_trips: u64,
    maybe_counted_twice: Option<String>,
    /// Checkpoints are made.
    keeper: Option<Box<Keeper>>,
}

/// What a database adds to; put back when the database begins again.
#[derive(Clone)]
struct Sums {
    tally: Tally,
    selector: Selector,
    keysizes: KeysizesFound,
    keys_seen: u64,
    keys_matched: u64,
    duplicates: u64,
}

/// The result of a walk.
pub(super) struct Done {
    pub(super) server: usize,
    pub(super) profile: ServerProfile,
    /// Slots of which a key was another server's when it was looked at.
    pub(super) moved: SlotSet,
    pub(super) tally: Tally,
    pub(super) keysizes: KeysizesFound,
    pub(super) canary: CanaryState,
    pub(super) keys_seen: u64,
    pub(super) keys_matched: u64,
    pub(super) duplicates: u64,
    pub(super) commands: u64,
    pub(super) round_trips: u64,
    pub(super) slowdowns: u64,
    pub(super) reconnects: u32,
    pub(super) maybe_counted_twice: Option<String>,
}

/// A page whose census was asked.
struct CensusStage {
    keys: Vec<KeyName>,
    requests: Vec<Request>,
}

/// A key that may matter, by its type and size.
type Candidate = (KeyName, Kind, Option<Measured>);

/// Keys whose details were asked.
struct DetailStage {
    keys: Vec<Candidate>,
    /// How many commands each took.
    commands: Vec<usize>,
    requests: Vec<Request>,
}

/// Lists and streams of which one more thing was asked.
struct ExtraStage {
    keys: Vec<KeyFacts>,
    requests: Vec<Request>,
}

impl<'a, F> Walk<'a, F>
where
    F: FnMut(Event<'_>) -> ControlFlow<Stop>,
{
    pub(super) fn new(
        config: &'a ScanConfig,
        place: Place,
        profile: ServerProfile,
        link: Link,
        canary: Canary,
        on_event: F,
    ) -> Self {
        let request = config.filter.scan_request(profile.version);
        let inspector = inspector(config, &profile);
        let policy = Policy { server: profile, thresholds: config.thresholds };
        let selector = Selector::new(config, &policy, inspector.measures_memory());
        let network = canary.state().before.quantile(0.5);
        Self {
            endpoint: place.endpoint,
            server: place.server,
            slots: place.slots,
            sample_keys: place.sample_keys,
            moved: SlotSet::default(),
            moved_keys: Vec::new(),
            is_named: false,
            exact_lists: config.exact_lists && policy.server.allows(Access::DebugObject),
            request,
            policy,
            inspector,
            link,
            generation: 0,
            canary,
            pacer: place.pacer,
            count: CountTuner::new(config.count, network),
            window: SeenWindow::new(),
            db: 0,
            keys_total: place.keys_total,
            again: Vec::new(),
            looked_again: HashSet::new(),
            ticked_at: Instant::now(),
            rates: Rates::default(),
            not_ready_since: None,
            sums: Sums {
                tally: Tally::new(config.top, config.sort_by),
                selector,
                keysizes: KeysizesFound::default(),
                keys_seen: 0,
                keys_matched: 0,
                duplicates: 0,
            },
            slowdowns: 0,
            reconnects: 0,
            restarts: 0,
            round_trips: 0,
            maybe_counted_twice: None,
            keeper: None,
            config,
            on_event,
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn keys_seen(&self) -> u64 {
        self.sums.keys_seen
    }

    /// Walks one database to its end.
    pub(super) async fn database(&mut self, db: u32, keys: Option<u64>) -> Result<(), Ended> {
        self.db = db;
        let (sums_before, mut from) = match self.begun(db) {
            Some((cursor, sums_before)) => (sums_before, Some(cursor)),
            None => (self.sums.clone(), None),
        };
        if let Some(keeper) = &mut self.keeper {
            keeper.begin(&sums_before);
        }
        loop {
            match self.pages(keys, from.take()).await {
                Ok(()) => return self.done(db),
                Err(Interruption::Ended(ended)) => return Err(ended),
                Err(Interruption::Restarted) => {
                    self.restarts += 1;
                    if self.restarts > RESTARTS_MAX {
                        return Err(Ended::RestartedTooOften);
                    }
                    self.sums = sums_before.clone();
                    self.maybe_counted_twice = Some(
                        "the server restarted, and its cursors with it: rows that were streamed before that \
                         may appear again (the totals and the top list count each key once)"
                            .to_owned(),
                    );
                    self.emit(Event::Restarted { db })?;
                    self.probe_again().await;
                }
            }
        }
    }

    /// A server that restarted may be of another version, with other settings and another ACL.
    async fn probe_again(&mut self) {
        let node = self.policy.server.node.clone();
        // Where it fails, the next request will say why.
        if let Ok(probe) = probe_server(&self.link, node).await
            && probe.link_is_clean
        {
            self.inspector = inspector(self.config, &probe.profile);
            self.exact_lists = self.config.exact_lists && probe.profile.allows(Access::DebugObject);
            self.policy.server = probe.profile;
        }
    }

    /// Asks MEMORY USAGE of the top list again, with more samples: people act on those sizes.
    pub(super) async fn measure_top_again(&mut self, samples: u32) -> Result<(), Ended> {
        if !self.inspector.measures_memory() || self.config.memory_samples >= samples {
            return Ok(());
        }
        let is_biased =
            |finding: &Finding| finding.facts.size.is_some_and(|size| size.basis == BytesBasis::Sampled);
        let top = self.sums.tally.top.clone().into_sorted();
        let mut dbs: Vec<u32> = top.iter().filter(|finding| is_biased(finding)).map(|f| f.facts.db).collect();
        dbs.sort_unstable();
        dbs.dedup();
        for db in dbs {
            // The connection is in one database at a time.
            self.db = db;
            let findings: Vec<&Finding> = top.iter().filter(|f| f.facts.db == db && is_biased(f)).collect();
            match self.measure_again(&findings, samples).await {
                Ok(()) => {}
                Err(Interruption::Ended(ended)) => return Err(ended),
                // The sizes of before the restart stand.
                Err(Interruption::Restarted) => return Ok(()),
            }
        }
        Ok(())
    }

    async fn measure_again(&mut self, findings: &[&Finding], samples: u32) -> Result<(), Interruption> {
        self.select_database().await?;
        let mut pieces = Pieces::new(self.pacer.burst());
        for finding in findings {
            pieces.room(1).memory_usage(&finding.facts.key, u64::from(samples));
        }
        let replies = self.ask_all(pieces).await?;
        for (finding, reply) in findings.iter().zip(replies) {
            let Some(bytes) = read_count(reply) else { continue };
            let mut measured = (*finding).clone();
            measured.facts.size = Some(Measured { bytes, basis: BytesBasis::Sampled });
            measured.verdict = judge(&measured.facts, &self.policy);
            self.sums.tally.replace_top(finding, &measured);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Done {
        let (commands, canary) = (self.pacer.with(|quota| quota.spent()), self.canary.state());
        Done {
            server: self.server,
            moved: self.moved,
            profile: self.policy.server,
            tally: self.sums.tally,
            keysizes: self.sums.keysizes,
            canary,
            keys_seen: self.sums.keys_seen,
            keys_matched: self.sums.keys_matched,
            duplicates: self.sums.duplicates,
            commands,
            round_trips: self.round_trips,
            slowdowns: self.slowdowns,
            reconnects: self.reconnects,
            maybe_counted_twice: self.maybe_counted_twice,
        }
    }

    async fn pages(&mut self, keys: Option<u64>, from: Option<Cursor>) -> Result<(), Interruption> {
        self.window.clear();
        self.again.clear();
        self.looked_again.clear();
        self.select_database().await?;
        let mut route = match from {
            Some(cursor) => Route::from_cursor(cursor),
            None => Route::new(self.sample_keys, keys, self.keys_total),
        };
        // The page after a checkpoint, which waits until all before it is counted.
        let mut after_checkpoint = None;
        self.checkpoint(Some(route.start()))?;
        let mut census: Option<CensusStage> = None;
        let mut details: Option<DetailStage> = None;
        let mut extras: Option<ExtraStage> = None;
        let first = self.ask_page(route.start()).await?;
        let mut page = Some(self.take_page(first).await?);
        loop {
            let mut next_page = None;
            let mut keys = std::mem::take(&mut self.again);
            if let Some(page) = page.take() {
                let fresh = self.fresh_keys(page.keys);
                let next = route.next(page.next, fresh.len()).map_err(|Circular| {
                    Ended::Refused(
                        "it answers the cursor that it was asked with, and would never end".to_owned(),
                    )
                })?;
                if self.is_checkpoint_due() {
                    after_checkpoint = next;
                } else if let Some(cursor) = next {
                    next_page = Some(self.ask_page(cursor).await?);
                }
                keys.extend(fresh);
            }
            let next_census = self.ask_census(keys).await?;
            if let Some(stage) = extras.take() {
                self.take_extras(stage).await?;
            }
            if let Some(stage) = details.take() {
                extras = self.take_details(stage).await?;
            }
            if let Some(stage) = census.take() {
                details = self.take_census(stage).await?;
            }
            census = next_census;
            if let Some(request) = next_page {
                page = Some(self.take_page(request).await?);
            }
            self.tick()?;
            let is_idle = census.is_none() && details.is_none() && extras.is_none();
            if page.is_none() && is_idle && self.again.is_empty() {
                let Some(cursor) = after_checkpoint.take() else { return Ok(()) };
                self.checkpoint(Some(cursor))?;
                let request = self.ask_page(cursor).await?;
                page = Some(self.take_page(request).await?);
            }
        }
    }

    async fn select_database(&mut self) -> Result<(), Interruption> {
        let mut batch = Batch::default();
        batch.select(self.db);
        let request = self.send(batch).await?;
        match self.settle(request).await?.replies.into_iter().next() {
            // Servers of one database may not know SELECT, or refuse it.
            Some(Err(refusal)) if self.db != 0 => {
                Err(Ended::NoDatabase { db: self.db, message: refusal.message }.into())
            }
            _ => Ok(()),
        }
    }

    // ---- SCAN

    async fn ask_page(&mut self, cursor: Cursor) -> Result<Request, Interruption> {
        let count = if self.sample_keys.is_some() { SAMPLE_COUNT } else { self.count.count() };
        let mut batch = Batch::default();
        batch.scan(&self.request, cursor, count);
        self.send(batch).await
    }

    async fn take_page(&mut self, request: Request) -> Result<ScanPage, Interruption> {
        let answer = self.settle(request).await?;
        let refused = |message: String| Interruption::from(Ended::Refused(message));
        let page = match answer.replies.into_iter().next() {
            Some(Ok(value)) => ScanPage::from_reply(value)
                .ok_or_else(|| refused("the answer is no page of keys with a cursor".to_owned()))?,
            Some(Err(refusal)) => return Err(refused(refusal.message)),
            None => return Err(refused("no answer".to_owned())),
        };
        self.count.observe(answer.elapsed, page.keys.iter().map(|key| key.as_bytes().len()).sum());
        Ok(page)
    }

    /// Leaves out what was seen before and what the filter does not want by its name.
    fn fresh_keys(&mut self, keys: Vec<KeyName>) -> Vec<KeyName> {
        keys.into_iter()
            .filter(|key| {
                if !self.window.is_new(key) {
                    self.sums.duplicates += 1;
                    return false;
                }
                // Of another slot: whoever holds it now was asked, or will be.
                if self.slots.as_ref().is_some_and(|slots| !slots.contains(key.slot())) {
                    return false;
                }
                let is_wanted = self.config.filter.name_passes(key);
                self.sums.keys_seen += u64::from(!is_wanted);
                is_wanted
            })
            .collect()
    }

    // ---- census: TYPE and MEMORY USAGE of every key

    async fn ask_census(&mut self, keys: Vec<KeyName>) -> Result<Option<CensusStage>, Interruption> {
        if keys.is_empty() {
            return Ok(None);
        }
        let mut pieces = Pieces::new(self.pacer.burst());
        for key in &keys {
            self.inspector.ask_census(pieces.room(self.inspector.census_commands_per_key()), key);
        }
        let requests = self.send_all(pieces).await?;
        Ok(Some(CensusStage { keys, requests }))
    }

    async fn take_census(&mut self, stage: CensusStage) -> Result<Option<DetailStage>, Interruption> {
        let mut keys = stage.keys.into_iter();
        let mut wanted = Vec::new();
        for request in stage.requests {
            let answer = self.settle(request).await?;
            let facts: Vec<CensusFacts> = self.inspector.read_census(answer.replies).collect();
            for (key, facts) in keys.by_ref().take(facts.len()).zip(facts) {
                match facts {
                    CensusFacts::Skipped(why, detail) => self.skip(key, why, detail)?,
                    CensusFacts::Seen { kind, size, expiry } => {
                        if !self.config.filter.census_passes(&kind, size.map(|size| size.bytes)) {
                            self.sums.keys_seen += 1;
                        } else if self.sums.selector.wants(&kind, size) {
                            wanted.push((key, kind, size));
                        } else {
                            let mut facts = KeyFacts::unasked(self.db, key, kind, size, answer.at);
                            facts.expiry = expiry;
                            self.count_small(facts)?;
                        }
                    }
                }
            }
        }
        self.ask_details(wanted).await
    }

    /// Counts a key that cannot matter: nothing more is asked of it, and it is in no list.
    fn count_small(&mut self, facts: KeyFacts) -> Result<(), Ended> {
        self.sums.keys_seen += 1;
        if self.config.filter.filters_details() {
            return Ok(());
        }
        self.sums.keys_matched += 1;
        let unasked = Effect::Unknown;
        let verdict = Verdict {
            free_effort: None,
            allocations: None,
            allocations_basis: AllocationsBasis::Unknown,
            level: Some(Level::None),
            effects: Effects { del: unasked, unlink: unasked, expire: unasked, overwrite: unasked },
            predicted_stall_ms: None,
            reasons: Vec::new(),
        };
        let finding = Finding { server: self.server, facts, verdict };
        self.sums.tally.count(&finding);
        if self.config.finds_every_match { self.emit(Event::Finding(&finding)) } else { Ok(()) }
    }

    // ---- details: encoding, length, TTL, idle time of those that may matter

    async fn ask_details(&mut self, keys: Vec<Candidate>) -> Result<Option<DetailStage>, Interruption> {
        if keys.is_empty() {
            return Ok(None);
        }
        let mut pieces = Pieces::new(self.pacer.burst());
        let mut commands = Vec::with_capacity(keys.len());
        for (key, kind, _) in &keys {
            let batch = pieces.room(Inspector::DETAIL_COMMANDS_MAX);
            commands.push(self.inspector.ask_details(batch, key, kind));
        }
        let requests = self.send_all(pieces).await?;
        Ok(Some(DetailStage { keys, commands, requests }))
    }

    async fn take_details(&mut self, stage: DetailStage) -> Result<Option<ExtraStage>, Interruption> {
        let mut keys = stage.keys.into_iter().zip(stage.commands);
        let (mut extras, mut lists) = (Vec::new(), Vec::new());
        for request in stage.requests {
            let answer = self.settle(request).await?;
            let mut replies = answer.replies.into_iter().peekable();
            // No key's commands are cut in two: a batch ends where its last key does.
            while replies.peek().is_some()
                && let Some(((key, kind, size), commands)) = keys.next()
            {
                let of_key: Vec<Reply> = replies.by_ref().take(commands).collect();
                match self.inspector.read_details(self.db, key, kind, size, of_key, answer.at) {
                    Err((key, (SkipReason::ChangedType, _))) if self.may_look_again(&key) => {
                        self.again.push(key);
                    }
                    Err((key, (why, detail))) => self.skip(key, why, detail)?,
                    Ok(facts) if is_node_list(&facts) && !self.counts_nodes_of(&facts) => lists.push(facts),
                    Ok(facts) if is_node_list(&facts) || wants_groups(&facts) => extras.push(facts),
                    Ok(facts) => self.found(facts)?,
                }
            }
        }
        let asked = self.ask_extras(extras).await?;
        self.estimate_lists(lists).await?;
        Ok(asked)
    }

    /// A key that was overwritten with another type meanwhile is looked at once more, as what it is now.
    fn may_look_again(&mut self, key: &KeyName) -> bool {
        self.looked_again.len() < SECOND_LOOKS_MAX && self.looked_again.insert(key.clone())
    }

    // ---- extras: list nodes where DEBUG OBJECT counts them, and the groups of streams

    /// DEBUG OBJECT serialises the value: 1 to 2 ms a MiB (docs/benchmarks/, `debug_object.csv`), during which
    /// everybody waits.
    fn counts_nodes_of(&self, facts: &KeyFacts) -> bool {
        self.exact_lists && facts.bytes().is_some_and(|bytes| bytes <= self.config.exact_list_bytes_max)
    }

    async fn ask_extras(&mut self, keys: Vec<KeyFacts>) -> Result<Option<ExtraStage>, Interruption> {
        if keys.is_empty() {
            return Ok(None);
        }
        let mut pieces = Pieces::new(self.pacer.burst());
        for facts in &keys {
            let batch = pieces.room(1);
            if facts.kind == Kind::Stream { batch.groups(&facts.key) } else { batch.debug_object(&facts.key) }
        }
        let requests = self.send_all(pieces).await?;
        Ok(Some(ExtraStage { keys, requests }))
    }

    async fn take_extras(&mut self, stage: ExtraStage) -> Result<(), Interruption> {
        let mut keys = stage.keys.into_iter();
        for request in stage.requests {
            for (reply, mut facts) in self.settle(request).await?.replies.into_iter().zip(keys.by_ref()) {
                if facts.kind == Kind::Stream {
                    read_groups(&mut facts, reply);
                } else {
                    facts.list_nodes =
                        read_ql_nodes(reply).map(|nodes| ListNodes { nodes, basis: NodesBasis::Exact });
                }
                self.found(facts)?;
            }
        }
        Ok(())
    }

    // ---- list nodes, where they have to be estimated

    /// Reads the ends of lists, a few lists at a time: what comes back is data, not counts.
    async fn estimate_lists(&mut self, mut lists: Vec<KeyFacts>) -> Result<(), Interruption> {
        while !lists.is_empty() {
            let rest = lists.split_off(lists.len().min(LISTS_AT_A_TIME));
            let batch = std::mem::replace(&mut lists, rest);
            for facts in self.estimate_nodes_of(batch).await? {
                self.found(facts)?;
            }
        }
        Ok(())
    }

    async fn estimate_nodes_of(&mut self, mut lists: Vec<KeyFacts>) -> Result<Vec<KeyFacts>, Interruption> {
        let mut pieces = Pieces::new(self.pacer.burst());
        for facts in lists.iter().filter(|facts| list_probe::reads_ends(facts)) {
            list_probe::ask_ends(pieces.room(list_probe::ENDS), &facts.key);
        }
        let mut ends = self.ask_all(pieces).await?.into_iter();
        let plans: Vec<ListProbePlan> = lists
            .iter()
            .map(|facts| {
                let largest =
                    if list_probe::reads_ends(facts) { list_probe::read_ends(&mut ends) } else { 0 };
                list_probe::plan(facts, largest, &self.policy.server)
            })
            .collect();
        let mut pieces = Pieces::new(self.pacer.burst());
        for (facts, plan) in lists.iter().zip(&plans) {
            list_probe::ask(pieces.room(list_probe::commands(plan)), &facts.key, plan);
        }
        let mut answers = self.ask_all(pieces).await?.into_iter();
        for (facts, plan) in lists.iter_mut().zip(&plans) {
            facts.list_nodes = list_probe::read(facts, plan, &mut answers, &self.policy.server);
        }
        Ok(lists)
    }

    // ---- results

    /// Judges a key of which all is known that will be.
    fn found(&mut self, mut facts: KeyFacts) -> Result<(), Ended> {
        self.sums.keys_seen += 1;
        self.sums.keysizes.add(&facts);
        if self.policy.server.cluster {
            facts.slot = Some(facts.key.slot());
        }
        let verdict = judge(&facts, &self.policy);
        let finding = Finding { server: self.server, facts, verdict };
        let filter = &self.config.filter;
        if !filter.finding_passes(&finding) {
            return Ok(());
        }
        self.sums.keys_matched += 1;
        self.sums.tally.add(&finding);
        let is_reported = self.config.all_keys
            || self.config.finds_every_match
            || filter.asks_for_more_than_level()
            || finding.verdict.level != Some(Level::None);
        if is_reported { self.emit(Event::Finding(&finding)) } else { Ok(()) }
    }

    fn skip(&mut self, key: KeyName, why: SkipReason, detail: Option<Box<str>>) -> Result<(), Ended> {
        if why == SkipReason::Moved && self.slots.is_some() {
            // Whoever has it now is asked for the whole slot.
            self.moved.insert(key.slot());
            if self.is_named {
                self.moved_keys.push(key);
            }
            return Ok(());
        }
        self.sums.keys_seen += 1;
        let skipped = Skipped { db: self.db, key, why, detail };
        self.sums.tally.skip(&skipped);
        self.emit(Event::Skipped(&skipped))
    }
}

fn inspector(config: &ScanConfig, profile: &ServerProfile) -> Inspector {
    let inspector = Inspector::new(profile, config.memory_samples);
    if config.finds_every_match { inspector.with_ttl() } else { inspector }
}

/// Returns whether a list may be made of nodes. Where OBJECT ENCODING is refused, any list may.
fn is_node_list(facts: &KeyFacts) -> bool {
    facts.kind == Kind::List && matches!(facts.encoding, None | Some(Encoding::Quicklist))
}
