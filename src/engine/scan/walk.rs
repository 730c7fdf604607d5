//! Walks a database, page by page, with the server always busy and never flooded.
//!
//! Four things are in flight at a time, each a step behind the one before it:
//!
//! ```text
//! turn n:   SCAN page n+1 | census of page n | details of page n-1 | lists and streams of page n-2
//! ```
//!
//! SCAN goes first in each turn, so its measured time is its own and COUNT can follow it. A request is
//! a pipeline that only reads, so when the connection breaks it is simply sent again on the next one:
//! the cursor is kept, and nothing is counted before its replies are whole. If the server restarted
//! meanwhile (another `run_id`), its cursors mean nothing, and the database begins again with the tally
//! it had.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use redis::{Pipeline, Value};
use tokio::task::JoinHandle;

use crate::engine::event::{Event, Progress, Stop};
use crate::engine::key::{
    Access, BytesBasis, Encoding, Expiry, KeyFacts, KeyName, Kind, ListNodes, Measured, NodesBasis,
    ServerProfile, SkipReason, Skipped,
};
use crate::engine::live::{
    Canary, CanaryState, CensusFacts, Cursor, Inspector, Link, LinkError, Refusal, RefusalKind, ScanPage,
    ScanRequest, read_groups, read_ql_nodes, run_id, wants_groups,
};
use crate::engine::pace::Pace;
use crate::engine::risk::quicklist::ListProbePlan;
use crate::engine::risk::{AllocationsBasis, Effect, Effects, Level, Policy, Verdict, judge};
use crate::engine::tally::{Finding, Tally};

use super::config::{Count, ScanConfig};
use super::keysizes::KeysizesFound;
use super::list_probe;
use super::pacer::Pacer;
use super::select::Selector;
use super::window::SeenWindow;

type Reply = Result<Value, Refusal>;

/// Time between two looks at the guard and two progress events.
const TICK: Duration = Duration::from_millis(100);
/// First wait before a lost connection is made again; it doubles up to [`RETRY_WAIT_MAX`].
const RETRY_WAIT: Duration = Duration::from_millis(50);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);
/// Restarts of the server that a scan puts up with.
const RESTARTS_MAX: u32 = 3;
/// Pace while the canary has no connection and nobody watches, as a part of the full one.
const BLIND_FACTOR: f64 = 0.25;
/// Lists whose ends are read at a time: 2 MiB of elements in the usual case, 16 MiB at the worst.
const LISTS_AT_A_TIME: usize = 16;
/// COUNT of a SCAN at a random cursor: small, so that a sample comes from many places.
const SAMPLE_COUNT: u32 = 20;

/// Why a walk ended before the end.
#[derive(Debug)]
pub(super) enum Ended {
    /// The listener wants it.
    Stopped(Stop),
    /// Another client waited this long.
    Guard(Duration),
    /// The connection is lost and did not come back.
    Lost(String),
    /// The server answers an error to SCAN or SELECT.
    Refused { db: u32, message: String },
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

/// A walk through the databases of one server.
pub(super) struct Walk<'a, F> {
    config: &'a ScanConfig,
    on_event: &'a mut F,
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
    keys_total: u64,
    ticked_at: Instant,
    rates: Rates,
    factor: f64,
    not_ready_since: Option<Instant>,
    sums: Sums,
    slowdowns: u64,
    reconnects: u32,
    restarts: u32,
    round_trips: u64,
    maybe_counted_twice: Option<String>,
    warnings: Vec<String>,
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
    pub(super) profile: ServerProfile,
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
    pub(super) warnings: Vec<String>,
}

/// A pipeline that was sent.
struct Request {
    pipeline: Arc<Pipeline>,
    generation: u64,
    answer: JoinHandle<(Result<Vec<Reply>, LinkError>, Duration)>,
}

/// A page whose census was asked.
struct CensusStage {
    keys: Vec<KeyName>,
    requests: Vec<Request>,
}

/// Keys whose details were asked.
struct DetailStage {
    keys: Vec<(KeyName, Kind, Option<Measured>)>,
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
        profile: ServerProfile,
        link: Link,
        canary: Canary,
        keys_total: u64,
        on_event: &'a mut F,
    ) -> Self {
        let request = config.filter.scan_request(profile.version);
        let inspector = Inspector::new(&profile, config.memory_samples);
        let policy = Policy { server: profile, thresholds: config.thresholds };
        let selector = Selector::new(config, &policy, inspector.measures_memory());
        let network = canary.state().before.quantile(0.5);
        Self {
            exact_lists: config.exact_lists && policy.server.allows(Access::DebugObject),
            request,
            policy,
            inspector,
            link,
            generation: 0,
            canary,
            pacer: Pacer::new(config.rate),
            count: CountTuner::new(config.count, network),
            window: SeenWindow::new(),
            db: 0,
            keys_total,
            ticked_at: Instant::now(),
            rates: Rates::default(),
            factor: 1.0,
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
            warnings: Vec::new(),
            config,
            on_event,
        }
    }

    pub(super) fn config(&self) -> &'a ScanConfig {
        self.config
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn keys_seen(&self) -> u64 {
        self.sums.keys_seen
    }

    /// Walks one database to its end.
    pub(super) async fn database(&mut self, db: u32, keys: u64) -> Result<(), Ended> {
        self.db = db;
        let sums_before = self.sums.clone();
        loop {
            match self.pages(keys).await {
                Ok(()) => return Ok(()),
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
                }
            }
        }
    }

    /// Asks MEMORY USAGE of the top list again, with more samples: people act on those sizes.
    pub(super) async fn measure_top_again(&mut self, samples: u32) {
        if !self.inspector.measures_memory() || self.config.memory_samples >= samples {
            return;
        }
        let empty = crate::engine::tally::TopList::new(self.config.top, self.config.sort_by);
        let mut findings = std::mem::replace(&mut self.sums.tally.top, empty).into_sorted();
        let is_sampled =
            |finding: &Finding| finding.facts.size.is_some_and(|size| size.basis == BytesBasis::Sampled);
        // One SELECT and one pipeline a database: the connection is in one database at a time.
        let mut dbs: Vec<u32> =
            findings.iter().filter(|finding| is_sampled(finding)).map(|f| f.facts.db).collect();
        dbs.sort_unstable();
        dbs.dedup();
        for db in dbs {
            let mut pipeline = redis::pipe();
            pipeline.cmd("SELECT").arg(db);
            for finding in findings.iter().filter(|finding| finding.facts.db == db && is_sampled(finding)) {
                self.inspector.ask_memory(&mut pipeline, &finding.facts.key, samples);
            }
            self.pacer.admit(pipeline.len()).await;
            let Ok(replies) = self.link.pipeline(&pipeline).await else { break };
            let again = findings.iter_mut().filter(|finding| finding.facts.db == db && is_sampled(finding));
            for (finding, reply) in again.zip(replies.into_iter().skip(1)) {
                if let Ok(Value::Int(bytes)) = reply
                    && let Ok(bytes) = u64::try_from(bytes)
                {
                    finding.facts.size = Some(Measured { bytes, basis: BytesBasis::Sampled });
                    finding.verdict = judge(&finding.facts, &self.policy);
                }
            }
        }
        for finding in &findings {
            self.sums.tally.top.offer(finding);
        }
    }

    pub(super) fn finish(self) -> Done {
        let (commands, canary) = (self.pacer.with(|quota| quota.spent()), self.canary.state());
        Done {
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
            warnings: self.warnings,
        }
    }

    async fn pages(&mut self, keys: u64) -> Result<(), Interruption> {
        self.window.clear();
        self.select_database().await?;
        let mut route = Route::new(self.config.sample_keys, keys, self.keys_total);
        let mut census: Option<CensusStage> = None;
        let mut details: Option<DetailStage> = None;
        let mut extras: Option<ExtraStage> = None;
        let first = self.ask_page(route.start()).await?;
        let mut page = Some(self.take_page(first).await?);
        loop {
            let mut next_page = None;
            let mut next_census = None;
            if let Some(page) = page.take() {
                let keys = self.fresh_keys(page.keys);
                if let Some(cursor) = route.next(page.next, keys.len()) {
                    next_page = Some(self.ask_page(cursor).await?);
                }
                next_census = self.ask_census(keys).await?;
            }
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
            if page.is_none() && census.is_none() && details.is_none() && extras.is_none() {
                return Ok(());
            }
        }
    }

    async fn select_database(&mut self) -> Result<(), Interruption> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("SELECT").arg(self.db);
        let request = self.send(pipeline).await?;
        let (replies, _) = self.settle(request).await?;
        match replies.into_iter().next() {
            // Servers of one database may not know SELECT, or refuse it.
            Some(Err(refusal)) if self.db != 0 => {
                Err(Ended::Refused { db: self.db, message: format!("SELECT: {}", refusal.message) }.into())
            }
            _ => Ok(()),
        }
    }

    // ---- SCAN

    async fn ask_page(&mut self, cursor: Cursor) -> Result<Request, Interruption> {
        let mut pipeline = redis::pipe();
        let count = if self.config.sample_keys.is_some() { SAMPLE_COUNT } else { self.count.count() };
        pipeline.add_command(self.request.command(cursor, count));
        self.send(pipeline).await
    }

    async fn take_page(&mut self, request: Request) -> Result<ScanPage, Interruption> {
        let (replies, elapsed) = self.settle(request).await?;
        self.count.observe(elapsed);
        let refused = |message: String| Interruption::from(Ended::Refused { db: self.db, message });
        match replies.into_iter().next() {
            Some(Ok(value)) => ScanPage::from_reply(value)
                .ok_or_else(|| refused("the answer is no page of keys with a cursor".to_owned())),
            Some(Err(refusal)) => Err(refused(refusal.message)),
            None => Err(refused("no answer".to_owned())),
        }
    }

    /// Leaves out what was seen before and what the filter does not want by its name.
    fn fresh_keys(&mut self, keys: Vec<KeyName>) -> Vec<KeyName> {
        keys.into_iter()
            .filter(|key| {
                if !self.window.is_new(key) {
                    self.sums.duplicates += 1;
                    return false;
                }
                self.sums.keys_seen += 1;
                self.config.filter.name_passes(key)
            })
            .collect()
    }

    // ---- census: TYPE and MEMORY USAGE of every key

    async fn ask_census(&mut self, keys: Vec<KeyName>) -> Result<Option<CensusStage>, Interruption> {
        if keys.is_empty() {
            return Ok(None);
        }
        let keys_per_piece = (self.pacer.burst() / self.inspector.census_commands_per_key()).max(1);
        let mut requests = Vec::new();
        for piece in keys.chunks(keys_per_piece) {
            requests.push(self.send(self.inspector.census_pipeline(piece)).await?);
        }
        Ok(Some(CensusStage { keys, requests }))
    }

    async fn take_census(&mut self, stage: CensusStage) -> Result<Option<DetailStage>, Interruption> {
        let replies = self.settle_all(stage.requests).await?;
        let observed_at = SystemTime::now();
        let facts: Vec<CensusFacts> = self.inspector.read_census(replies).collect();
        let mut wanted = Vec::new();
        for (key, facts) in stage.keys.into_iter().zip(facts) {
            match facts {
                CensusFacts::Skipped(why, detail) => self.skip(key, why, detail)?,
                CensusFacts::Seen { kind, size } => {
                    if !self.config.filter.census_passes(&kind, size.map(|size| size.bytes)) {
                        continue;
                    }
                    if self.sums.selector.wants(&kind, size) {
                        wanted.push((key, kind, size));
                    } else {
                        self.count_small(key, kind, size, observed_at);
                    }
                }
            }
        }
        self.ask_details(wanted).await
    }

    /// Counts a key that cannot matter: nothing more is asked of it, and it is in no list.
    fn count_small(&mut self, key: KeyName, kind: Kind, size: Option<Measured>, observed_at: SystemTime) {
        if self.config.filter.filters_details() {
            return;
        }
        self.sums.keys_matched += 1;
        let facts = KeyFacts {
            db: self.db,
            slot: None,
            key,
            kind,
            encoding: None,
            elements: None,
            size,
            list_nodes: None,
            stream: None,
            expiry: Expiry::Unknown,
            idle: None,
            freq: None,
            observed_at,
        };
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
        self.sums.tally.count(&Finding { server: 0, facts, verdict });
    }

    // ---- details: encoding, length, TTL, idle time of those that may matter

    async fn ask_details(
        &mut self,
        keys: Vec<(KeyName, Kind, Option<Measured>)>,
    ) -> Result<Option<DetailStage>, Interruption> {
        if keys.is_empty() {
            return Ok(None);
        }
        let mut pieces = Pieces::new(self.pacer.burst());
        for (key, kind, _) in &keys {
            self.inspector.ask_details(pieces.room(), key, kind);
        }
        let requests = self.send_all(pieces).await?;
        Ok(Some(DetailStage { keys, requests }))
    }

    async fn take_details(&mut self, stage: DetailStage) -> Result<Option<ExtraStage>, Interruption> {
        let mut replies = self.settle_all(stage.requests).await?.into_iter();
        let observed_at = SystemTime::now();
        let (mut extras, mut lists) = (Vec::new(), Vec::new());
        for (key, kind, size) in stage.keys {
            let of_key: Vec<Reply> = replies.by_ref().take(self.inspector.detail_commands(&kind)).collect();
            match self.inspector.read_details(self.db, key, kind, size, of_key, observed_at) {
                Err((key, (why, detail))) => self.skip(key, why, detail)?,
                Ok(facts) if facts.encoding == Some(Encoding::Quicklist) && !self.exact_lists => {
                    lists.push(facts);
                }
                Ok(facts) if wants_groups(&facts) || facts.encoding == Some(Encoding::Quicklist) => {
                    extras.push(facts);
                }
                Ok(facts) => self.found(facts)?,
            }
        }
        let asked = self.ask_extras(extras).await?;
        self.estimate_lists(lists).await?;
        Ok(asked)
    }

    // ---- extras: list nodes where DEBUG OBJECT counts them, and the groups of streams

    async fn ask_extras(&mut self, keys: Vec<KeyFacts>) -> Result<Option<ExtraStage>, Interruption> {
        if keys.is_empty() {
            return Ok(None);
        }
        let mut pieces = Pieces::new(self.pacer.burst());
        for facts in &keys {
            let (command, subcommand) =
                if facts.kind == Kind::Stream { ("XINFO", "GROUPS") } else { ("DEBUG", "OBJECT") };
            pieces.room().cmd(command).arg(subcommand).arg(facts.key.as_bytes());
        }
        let requests = self.send_all(pieces).await?;
        Ok(Some(ExtraStage { keys, requests }))
    }

    async fn take_extras(&mut self, stage: ExtraStage) -> Result<(), Interruption> {
        let replies = self.settle_all(stage.requests).await?;
        for (mut facts, reply) in stage.keys.into_iter().zip(replies) {
            if facts.kind == Kind::Stream {
                read_groups(&mut facts, reply);
            } else {
                facts.list_nodes =
                    read_ql_nodes(reply).map(|nodes| ListNodes { nodes, basis: NodesBasis::Exact });
            }
            self.found(facts)?;
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
            list_probe::ask_ends(pieces.room(), &facts.key);
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
            list_probe::ask(pieces.room(), &facts.key, plan);
        }
        let mut answers = self.ask_all(pieces).await?.into_iter();
        for (facts, plan) in lists.iter_mut().zip(&plans) {
            facts.list_nodes = list_probe::read(facts, plan, &mut answers, &self.policy.server);
        }
        Ok(lists)
    }

    async fn ask_all(&mut self, pieces: Pieces) -> Result<Vec<Reply>, Interruption> {
        let requests = self.send_all(pieces).await?;
        self.settle_all(requests).await
    }

    // ---- results

    /// Judges a key of which all is known that will be.
    fn found(&mut self, facts: KeyFacts) -> Result<(), Ended> {
        self.sums.keysizes.add(&facts);
        let verdict = judge(&facts, &self.policy);
        let finding = Finding { server: 0, facts, verdict };
        let filter = &self.config.filter;
        if !filter.finding_passes(&finding) {
            return Ok(());
        }
        self.sums.keys_matched += 1;
        self.sums.tally.add(&finding);
        let is_reported = self.config.all_keys
            || filter.asks_for_more_than_level()
            || finding.verdict.level != Some(Level::None);
        if is_reported { self.emit(Event::Finding(&finding)) } else { Ok(()) }
    }

    fn skip(&mut self, key: KeyName, why: SkipReason, detail: Option<Box<str>>) -> Result<(), Ended> {
        let skipped = Skipped { db: self.db, key, why, detail };
        self.sums.tally.skip(&skipped);
        self.emit(Event::Skipped(&skipped))
    }

    // ---- requests

    async fn send_all(&mut self, pieces: Pieces) -> Result<Vec<Request>, Interruption> {
        let mut requests = Vec::new();
        for pipeline in pieces.finish() {
            requests.push(self.send(pipeline).await?);
        }
        Ok(requests)
    }

    /// Waits for the budget and sends.
    async fn send(&mut self, pipeline: Pipeline) -> Result<Request, Interruption> {
        let (pacer, commands) = (self.pacer.clone(), pipeline.len());
        self.watch(pacer.admit(commands)).await?;
        Ok(self.launch(Arc::new(pipeline)))
    }

    fn launch(&mut self, pipeline: Arc<Pipeline>) -> Request {
        self.round_trips += 1;
        let (link, pipeline_there) = (self.link.clone(), Arc::clone(&pipeline));
        let answer = tokio::spawn(async move {
            let sent_at = Instant::now();
            let replies = link.pipeline(&pipeline_there).await;
            (replies, sent_at.elapsed())
        });
        Request { pipeline, generation: self.generation, answer }
    }

    async fn settle_all(&mut self, requests: Vec<Request>) -> Result<Vec<Reply>, Interruption> {
        let mut replies = Vec::new();
        for request in requests {
            replies.extend(self.settle(request).await?.0);
        }
        Ok(replies)
    }

    /// Waits for the answer to a request, and sends it again as often as it takes: after a lost
    /// connection, and while the server says that it is not ready.
    async fn settle(&mut self, mut request: Request) -> Result<(Vec<Reply>, Duration), Interruption> {
        loop {
            let (outcome, elapsed) = match self.watch(&mut request.answer).await? {
                Ok(answer) => answer,
                Err(error) => (Err(LinkError::Dropped(error.to_string())), Duration::ZERO),
            };
            match outcome {
                Ok(replies) => {
                    let not_now = replies.iter().find_map(|reply| match reply {
                        Err(refusal) if refusal.kind == RefusalKind::NotNow => Some(refusal.message.clone()),
                        _ => None,
                    });
                    let Some(why) = not_now else {
                        self.not_ready_since = None;
                        return Ok((replies, elapsed));
                    };
                    self.wait_until_ready(&why).await?;
                }
                Err(error) if request.generation == self.generation => self.reconnect(error).await?,
                // Another request has seen to the connection already.
                Err(_) => {}
            }
            let commands = request.pipeline.len();
            let pacer = self.pacer.clone();
            self.watch(pacer.admit(commands)).await?;
            request = self.launch(request.pipeline);
        }
    }

    /// Waits a little while the server answers LOADING or BUSY; gives up after the command timeout.
    async fn wait_until_ready(&mut self, why: &str) -> Result<(), Interruption> {
        let since = *self.not_ready_since.get_or_insert_with(Instant::now);
        if since.elapsed() > self.config.endpoint.timeouts.command {
            return Err(Ended::Lost(why.to_owned()).into());
        }
        self.watch(tokio::time::sleep(TICK)).await
    }

    /// Makes the connection again, with growing pauses, for as long as we wait for any answer.
    async fn reconnect(&mut self, error: LinkError) -> Result<(), Interruption> {
        self.reconnects += 1;
        let since = Instant::now();
        let mut wait = RETRY_WAIT;
        let mut why = error.to_string();
        for attempt in 1.. {
            self.emit(Event::Reconnecting { attempt, wait, why: why.clone() })?;
            self.watch(tokio::time::sleep(wait)).await?;
            let config = self.config;
            match self.watch(Link::open(&config.endpoint, "bigkeys")).await? {
                Ok(link) => {
                    if self.is_same_server(&link).await {
                        self.link = link;
                        self.generation += 1;
                        return Box::pin(self.select_database()).await;
                    }
                    self.link = link;
                    self.generation += 1;
                    return Err(Interruption::Restarted);
                }
                Err(error) => why = error.to_string(),
            }
            if since.elapsed() > config.endpoint.timeouts.command {
                break;
            }
            wait = (wait * 2).min(RETRY_WAIT_MAX);
        }
        Err(Ended::Lost(why).into())
    }

    async fn is_same_server(&mut self, link: &Link) -> bool {
        let Some(before) = &self.policy.server.run_id else {
            self.maybe_counted_twice = Some(
                "the connection was lost once, and INFO is refused: whether the server restarted, and its \
                 cursors with it, is not known"
                    .to_owned(),
            );
            return true;
        };
        match run_id(link).await {
            Ok(Some(now)) => {
                let same = now == *before;
                self.policy.server.run_id = Some(now);
                same
            }
            // The next request will tell.
            _ => true,
        }
    }

    // ---- watching

    /// Waits, looking after the guard, the listener and the progress meanwhile.
    async fn watch<T>(&mut self, future: impl Future<Output = T>) -> Result<T, Interruption> {
        let mut future = pin!(future);
        loop {
            match tokio::time::timeout(TICK, &mut future).await {
                Ok(value) => return Ok(value),
                Err(_) => self.tick()?,
            }
        }
    }

    fn tick(&mut self) -> Result<(), Ended> {
        let canary = self.canary.pace();
        let factor = match canary {
            Pace::Stop(latency) => return Err(Ended::Guard(latency)),
            Pace::Go { factor } if self.canary.is_blind() => factor.min(BLIND_FACTOR),
            Pace::Go { factor } => factor,
        };
        let fell = factor < self.factor;
        self.factor = factor;
        self.pacer.with(|quota| quota.scale(factor));
        if fell {
            self.slowdowns += 1;
            let latency = self.canary.last();
            let commands_per_second = self.pacer.with(|quota| quota.rate()).unwrap_or(f64::INFINITY);
            self.emit(Event::SlowedDown { latency, commands_per_second })?;
        }
        let now = Instant::now();
        let elapsed = now.duration_since(self.ticked_at);
        if elapsed < TICK {
            return Ok(());
        }
        self.ticked_at = now;
        self.rates.observe(self.sums.keys_seen, self.pacer.with(|quota| quota.spent()), elapsed);
        let biggest = self.sums.tally.top.worst().and_then(|finding| {
            Some((finding.facts.key.clone(), finding.facts.kind.clone(), finding.verdict.allocations?))
        });
        let progress = Progress {
            db: self.db,
            keys: self.sums.keys_seen,
            keys_total: self.keys_total,
            commands_per_second: self.rates.commands,
            keys_per_second: self.rates.keys,
            biggest,
        };
        self.emit(Event::Progress(progress))
    }

    fn emit(&mut self, event: Event<'_>) -> Result<(), Ended> {
        match (self.on_event)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(stop) => Err(Ended::Stopped(stop)),
        }
    }
}

/// Cuts commands into pipelines of a burst each.
struct Pieces {
    burst: usize,
    full: Vec<Pipeline>,
    filling: Pipeline,
}

impl Pieces {
    fn new(burst: usize) -> Self {
        Self { burst, full: Vec::new(), filling: redis::pipe() }
    }

    /// Returns the pipeline that takes the next key's commands.
    fn room(&mut self) -> &mut Pipeline {
        if self.filling.len() >= self.burst {
            self.full.push(std::mem::replace(&mut self.filling, redis::pipe()));
        }
        &mut self.filling
    }

    fn finish(mut self) -> Vec<Pipeline> {
        if !self.filling.is_empty() {
            self.full.push(self.filling);
        }
        self.full
    }
}

/// Where SCAN goes next: on to the end, or to random places until the sample is full.
enum Route {
    Whole,
    Sample { keys_left: u64, pages_left: u64 },
}

impl Route {
    fn new(sample_keys: Option<u64>, keys: u64, keys_total: u64) -> Self {
        let Some(sample_keys) = sample_keys.filter(|sample| *sample < keys_total) else { return Self::Whole };
        // Each database gives its part. In u128, since both factors may be any u64.
        let part = (u128::from(sample_keys) * u128::from(keys)).div_ceil(u128::from(keys_total.max(1)));
        let keys_left = u64::try_from(part).unwrap_or(u64::MAX);
        // A table that is nearly empty gives few keys a page, and the same ones again.
        Self::Sample { keys_left, pages_left: keys_left.saturating_mul(4).saturating_add(16) }
    }

    fn start(&self) -> Cursor {
        match self {
            Self::Whole => Cursor::START,
            Self::Sample { .. } => Cursor::random(),
        }
    }

    /// Returns the cursor after a page; `None` is the end.
    fn next(&mut self, cursor: Cursor, keys: usize) -> Option<Cursor> {
        match self {
            Self::Whole => (cursor != Cursor::START).then_some(cursor),
            Self::Sample { keys_left, pages_left } => {
                *keys_left = keys_left.saturating_sub(keys as u64);
                *pages_left = pages_left.saturating_sub(1);
                (*keys_left > 0 && *pages_left > 0).then(Cursor::random)
            }
        }
    }
}

/// Adapts COUNT to what the last SCAN took.
struct CountTuner {
    count: u32,
    is_fixed: bool,
    network: Duration,
}

impl CountTuner {
    const START: u32 = 100;
    const MIN: u32 = 10;
    /// A page holds about this many keys at the most, which bounds what a turn keeps in memory.
    const MAX: u32 = 1000;
    /// A call that takes the server longer than this is too long.
    const SLOW: Duration = Duration::from_millis(4);
    /// A call below this may grow.
    const FAST: Duration = Duration::from_millis(2);

    fn new(count: Count, network: Duration) -> Self {
        match count {
            Count::Auto => Self { count: Self::START, is_fixed: false, network },
            Count::Fixed(count) => Self { count, is_fixed: true, network },
        }
    }

    fn count(&self) -> u32 {
        self.count
    }

    fn observe(&mut self, round_trip: Duration) {
        if self.is_fixed {
            return;
        }
        let elapsed = round_trip.saturating_sub(self.network);
        if elapsed > Self::SLOW {
            self.count = (self.count / 2).max(Self::MIN);
        } else if elapsed < Self::FAST {
            self.count = (self.count + self.count / 4).min(Self::MAX);
        }
    }
}

/// Keys and commands per second, smoothed over about a second.
#[derive(Default)]
struct Rates {
    keys: f64,
    commands: f64,
    keys_before: u64,
    commands_before: u64,
}

impl Rates {
    fn observe(&mut self, keys: u64, commands: u64, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let weight = (seconds / (seconds + 1.0)).max(if self.commands == 0.0 { 1.0 } else { 0.0 });
        let blend = |old: f64, new: f64| old + (new - old) * weight;
        self.keys = blend(self.keys, keys.saturating_sub(self.keys_before) as f64 / seconds);
        self.commands = blend(self.commands, commands.saturating_sub(self.commands_before) as f64 / seconds);
        (self.keys_before, self.commands_before) = (keys, commands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_falls_fast_and_stays_in_its_bounds() {
        let mut tuner = CountTuner::new(Count::Auto, Duration::from_millis(1));
        for _ in 0..100 {
            tuner.observe(Duration::from_millis(1));
        }
        assert_eq!(tuner.count(), CountTuner::MAX);
        tuner.observe(Duration::from_millis(20));
        assert_eq!(tuner.count(), CountTuner::MAX / 2);
        for _ in 0..100 {
            tuner.observe(Duration::from_millis(20));
        }
        assert_eq!(tuner.count(), CountTuner::MIN);
    }

    #[test]
    fn a_fixed_count_stays() {
        let mut tuner = CountTuner::new(Count::Fixed(7), Duration::ZERO);
        tuner.observe(Duration::from_secs(1));
        assert_eq!(tuner.count(), 7);
    }

    #[test]
    fn an_empty_page_is_not_the_end() {
        let mut route = Route::new(None, 10, 10);
        assert_eq!(route.next(Cursor(5), 0), Some(Cursor(5)));
        assert_eq!(route.next(Cursor(0), 3), None);
    }

    #[test]
    fn a_sample_ends_when_it_is_full_or_when_nothing_new_comes() {
        let mut route = Route::new(Some(100), 1000, 1000);
        assert!(route.next(Cursor(1), 60).is_some());
        assert!(route.next(Cursor(0), 39).is_some(), "cursor 0 does not end a sample");
        assert!(route.next(Cursor(1), 1).is_none());
        let mut route = Route::new(Some(1), 10, 10);
        let pages = std::iter::from_fn(|| route.next(Cursor(1), 0)).count();
        assert_eq!(pages, 19);
    }
}
