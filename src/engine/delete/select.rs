//! From a selection to a plan: every key is looked at, judged, and given a method, or left alone with a
//! reason.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::engine::event::{Event, Stop};
use crate::engine::key::{
    Access, Allocator, Encoding, Expiry, KeyName, Kind, Role, ServerProfile, SkipReason,
};
use crate::engine::live::{Link, LinkError, WriteAccess, probe_writes};
use crate::engine::report::{
    Completeness, FindingReader, IncompleteReason, ListedKey, ReadError, ScanReport,
};
use crate::engine::scan::{
    Count, Databases, KeySource, Preference, ScanConfig, ScanError, Target, look, run,
};
use crate::engine::tally::{Finding, SortBy};

use super::config::DeleteConfig;
use super::expect::{Expected, Seen, has_ttl};
use super::method::{choose, expiry_stall_ms};
use super::plan::{LeftAlone, PlannedKey, Totals, WhyLeftAlone};
use super::servers::{Server, Servers};

/// Keys that are looked at together.
const PAGE_KEYS: usize = 500;
/// Bytes of their names.
const PAGE_BYTES: usize = 1 << 20;
/// Databases that one file may name: each is a temporary file.
const FILE_DATABASES_MAX: usize = 64;
/// Servers that one file may name: a cluster has 1000 at the most.
const FILE_NODES_MAX: usize = 4096;
/// `MEMORY USAGE ... SAMPLES`: what the script asks too, so that the sizes can be compared.
const SAMPLES: u32 = 5;

/// Which keys somebody means.
pub enum Selection {
    /// These, by name, with their database.
    Keys(Vec<(u32, KeyName)>),
    /// Those in a file that a scan wrote; rows without a database are of this one.
    File(Box<dyn BufRead>, u32),
    /// Those that the filter finds.
    Filter,
}

/// Why there is no plan.
#[derive(Debug)]
pub enum SelectError {
    /// The keys could not be looked at.
    Scan(ScanError),
    /// The connection was lost.
    Lost(String),
    /// The server is a replica, and keys are to be deleted.
    Replica(String),
    /// The file of keys cannot be read.
    File(ReadError),
    /// A row of the file is another server's.
    OtherNode {
        /// Line.
        line: u64,
        /// Its server.
        listed: String,
        /// Ours.
        node: String,
    },
    /// The file names more databases than can be kept apart.
    TooManyDatabases {
        /// Line.
        line: u64,
    },
    /// The file names more servers than any cluster has.
    TooManyNodes {
        /// Line.
        line: u64,
    },
    /// A temporary file cannot be written or read.
    Spool(io::Error),
    /// The plan could not be written down.
    Output(io::Error),
    /// The look did not come to its end: a plan that is not whole is none.
    Incomplete(String),
    /// The guard stopped it.
    Guard(std::time::Duration),
    /// A person stopped it.
    Stopped,
}

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scan(error) => error.fmt(f),
            Self::Lost(why) => write!(f, "lost the server while the plan was made: {why}"),
            Self::Replica(node) => write!(f, "{node} is a replica: keys are deleted on its primary"),
            Self::File(error) => error.fmt(f),
            Self::OtherNode { line, listed, node } => {
                write!(f, "line {line} was found on {listed}, and this is {node}: nothing is deleted")
            }
            Self::TooManyDatabases { line } => {
                write!(f, "line {line}: more than {FILE_DATABASES_MAX} databases in one file")
            }
            Self::TooManyNodes { line } => {
                write!(f, "line {line}: more than {FILE_NODES_MAX} servers in one file")
            }
            Self::Spool(error) => write!(f, "cannot use a temporary file: {error}"),
            Self::Output(error) => write!(f, "cannot write the plan: {error}"),
            Self::Incomplete(why) => write!(f, "the plan is not whole, and nothing is deleted: {why}"),
            Self::Guard(latency) => write!(
                f,
                "stopped by the latency guard while the plan was made: a PING took {:.0} ms",
                latency.as_secs_f64() * 1e3
            ),
            Self::Stopped => f.write_str("interrupted while the plan was made"),
        }
    }
}

impl std::error::Error for SelectError {}

/// A line of the plan.
pub enum PlanLine<'a> {
    /// This key will be deleted.
    Planned(&'a PlannedKey),
    /// This one will not.
    Left(&'a LeftAlone),
}

/// A plan that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The server.
    pub profile: ServerProfile,
    /// What may be sent to it.
    pub access: WriteAccess,
    /// Sums.
    pub totals: Totals,
    /// What a person should read.
    pub warnings: Vec<String>,
}

/// Who hears of each line of a plan.
pub type OnLine<'l> = dyn FnMut(PlanLine<'_>) -> io::Result<()> + 'l;

/// Makes a plan. Nothing is written to the server. Lines go to `on_line` as they are made.
///
/// `acts`: the plan is to be carried out, so that a replica is refused.
///
/// # Errors
/// When not every key of the selection could be looked at: a plan is whole or none.
pub async fn plan(
    config: &DeleteConfig,
    selection: Selection,
    acts: bool,
    on_line: &mut OnLine<'_>,
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<Stop>,
) -> Result<Planned, SelectError> {
    let node = config.endpoint.address.to_string();
    let is_named = matches!(selection, Selection::Keys(_));
    // A bad file is told before any server is asked.
    let file = match selection {
        Selection::File(input, db) => Some(Names::of_file(input, db)?),
        Selection::Keys(keys) => Some(Names::of_keys(keys)),
        Selection::Filter => None,
    };
    let servers = Servers::find(config).await.map_err(SelectError::Scan)?;
    let mut names = file;
    if let Some(names) = &names
        && !config.any_node
    {
        names.are_of(&servers, &node)?;
    }
    let Some(first) = servers.primaries.first() else { return Err(SelectError::Stopped) };
    let access = probe(first).await?;
    let databases = match &names {
        Some(names) => Databases::Only(names.databases()),
        None => config.databases.clone(),
    };
    let scan = scan_config(config, databases, servers.may_change);
    let pending = names.as_ref().map(|names| std::rc::Rc::clone(&names.pending));
    let mut planner = Planner {
        config,
        access,
        is_named,
        profiles: Vec::new(),
        totals: Totals::default(),
        worse: 0,
        worse_example: None,
        expiring: 0,
        expiring_ms_max: 0.0,
        on_line,
        failed: None,
        pending,
    };
    let mut is_replica = false;
    let mut hear = |event: Event<'_>| {
        match &event {
            Event::Started(profile) => {
                // In a cluster and behind Sentinel, replicas may be looked at; keys are deleted elsewhere.
                is_replica = profile.role == Role::Replica && !servers.may_change;
                planner.profiles.push((*profile).clone());
            }
            Event::Finding(finding) => planner.finding(finding),
            Event::Skipped(skipped) => {
                planner.skipped(&skipped.key, skipped.db, skipped.why, skipped.detail.as_deref());
            }
            _ => {}
        }
        if planner.failed.is_some() || (acts && is_replica) {
            return ControlFlow::Break(Stop::OutputFailed);
        }
        on_event(event)
    };
    let report = match &mut names {
        None => run(&scan, &mut hear).await,
        Some(names) if names.is_empty() => look(&scan, &mut Nothing, &mut hear).await,
        Some(names) => look(&scan, names, &mut hear).await,
    };
    if acts && is_replica {
        return Err(SelectError::Replica(node));
    }
    let Planner { profiles, totals, failed, expiring, expiring_ms_max, worse, worse_example, .. } = planner;
    if let Some(error) = failed {
        return Err(SelectError::Output(error));
    }
    let report = report.map_err(SelectError::Scan)?;
    if let Some(names) = &mut names
        && let Some(error) = names.failed.take()
    {
        return Err(SelectError::Spool(error));
    }
    whole(&report)?;
    let profile = profiles.into_iter().next().or_else(|| report.servers.first().cloned());
    let profile = profile.ok_or(SelectError::Stopped)?;
    let mut warnings = Vec::new();
    if let Some(example) = worse_example {
        let keys = if worse == 1 { "one key has".to_owned() } else { format!("{worse} keys have") };
        warnings.push(format!("--method: {keys} a better one; {example}"));
    }
    if expiring > 0 {
        warnings.push(format!(
            "{expiring} of these keys have a time to live, and lazyfree-lazy-expire is no: one that expires under \
             our hands stalls everybody for up to {expiring_ms_max:.0} ms; --lazy-expire-while-running prevents it"
        ));
    }
    if acts && !profile.allows(Access::Info) {
        warnings.push(
            "INFO is refused: nobody knows whether the server is loading, forking or behind with its replicas, \
             and nothing is held back for that; a PING still tells what others wait"
                .to_owned(),
        );
    }
    if names.as_ref().is_some_and(|names| names.is_cut) {
        warnings.push("the file says that its scan was partial: other keys may match as well".to_owned());
    }
    Ok(Planned { profile, access, totals, warnings })
}

async fn probe(server: &Server) -> Result<WriteAccess, SelectError> {
    let lost = |error: LinkError| SelectError::Lost(error.to_string());
    let link = Link::open(&server.endpoint, "bigkeys")
        .await
        .map_err(|error| SelectError::Scan(ScanError::Connect(error)))?;
    probe_writes(&link).await.map_err(lost)
}

fn whole(report: &ScanReport) -> Result<(), SelectError> {
    let Completeness::Partial(reason) = &report.completeness else { return Ok(()) };
    Err(match reason {
        IncompleteReason::Interrupted | IncompleteReason::OutputFailed => SelectError::Stopped,
        IncompleteReason::Guard(latency) => SelectError::Guard(*latency),
        IncompleteReason::ConnectionLost(why)
        | IncompleteReason::ScanRefused(why)
        | IncompleteReason::SlotsNotCovered { why, .. }
        | IncompleteReason::DatabaseRefused(why) => SelectError::Incomplete(why.clone()),
        IncompleteReason::TargetsFailed(_) => {
            SelectError::Incomplete("a server could not be reached".to_owned())
        }
        IncompleteReason::RestartedTooOften => {
            SelectError::Incomplete("the server restarted too often".to_owned())
        }
    })
}

fn scan_config(config: &DeleteConfig, databases: Databases, may_change: bool) -> ScanConfig {
    ScanConfig {
        checkpoints: None,
        targets: vec![Target { endpoint: config.endpoint.clone(), databases, kind: config.kind.clone() }],
        // What is compared right before the act is what a primary says.
        preference: match config.preference {
            Preference::Auto if may_change => Preference::Primary,
            chosen => chosen,
        },
        address_rules: config.address_rules.clone(),
        filter: config.filter.clone(),
        all_keys: false,
        finds_every_match: true,
        sample_keys: None,
        rate: config.rate,
        rate_per_node: config.rate_per_node,
        count: Count::Auto,
        latency_max: config.latency_max,
        latency_abort: config.latency_abort,
        memory_samples: SAMPLES,
        exact_lists: false,
        exact_list_bytes_max: 0,
        // The plan has a list of its own.
        top: 1,
        sort_by: SortBy::Allocations,
        thresholds: config.thresholds,
    }
}

/// Judges what is found, key by key.
struct Planner<'a, 'l> {
    config: &'a DeleteConfig,
    access: WriteAccess,
    is_named: bool,
    /// The servers that were looked at, by their numbers.
    profiles: Vec<ServerProfile>,
    totals: Totals,
    /// Keys that get a worse method than they could have, and what is said of the first.
    worse: u64,
    worse_example: Option<String>,
    /// Keys that expire with a stall, and the longest of those.
    expiring: u64,
    expiring_ms_max: f64,
    on_line: &'a mut OnLine<'l>,
    failed: Option<io::Error>,
    pending: Option<Pending>,
}

impl Planner<'_, '_> {
    fn finding(&mut self, finding: &Finding) {
        let Some(profile) = self.profiles.get(finding.server) else { return };
        let facts = &finding.facts;
        let listed = self.pending.as_ref().and_then(|pending| pending.borrow_mut().remove(&facts.key));
        let verdict = &finding.verdict;
        let why = if let Some(what) = self.config.protection.covers(&facts.key, self.is_named) {
            Some((WhyLeftAlone::Protected, what))
        } else if let Some(what) = self.config.filter.passes_unknown(finding) {
            Some((
                WhyLeftAlone::Unknown,
                format!("its {what} could not be found out, and a filter asks for it"),
            ))
        } else if self.config.limits.bytes_max.is_some() && !facts.has_measured_size() {
            Some((
                WhyLeftAlone::Unknown,
                "its size could not be found out, and --max-bytes asks for it".to_owned(),
            ))
        } else {
            let change = listed
                .as_ref()
                .and_then(|listed| listed.change(finding, self.config.tolerance, profile.allocator));
            change.map(|words| (WhyLeftAlone::Changed, words))
        };
        let line = match why {
            Some(why) => Err(why),
            None => choose(facts, verdict, profile, &self.access, &self.config.methods)
                .map_err(|words| (WhyLeftAlone::NoMethod, words)),
        };
        match line {
            Ok(choice) => {
                if let Some(warning) = &choice.warning {
                    self.worse += 1;
                    self.worse_example.get_or_insert_with(|| format!("{}: {warning}", facts.key));
                }
                if let Some(ms) = expiry_stall_ms(facts, verdict) {
                    self.expiring += 1;
                    self.expiring_ms_max = self.expiring_ms_max.max(ms);
                }
                let planned = PlannedKey::new(self.totals.keys, facts.clone(), verdict, choice);
                self.totals.add(&planned);
                self.line(PlanLine::Planned(&planned));
            }
            Err((why, detail)) => self.leave(facts.db, facts.key.clone(), why, detail),
        }
    }

    fn skipped(&mut self, key: &KeyName, db: u32, why: SkipReason, detail: Option<&str>) {
        if let Some(pending) = &self.pending {
            pending.borrow_mut().remove(key);
        } else if why == SkipReason::Vanished {
            // A scan meets keys that go by themselves; nobody named them.
            return;
        }
        let detail = detail.map_or_else(|| why.as_str().to_owned(), ToOwned::to_owned);
        match why {
            SkipReason::Vanished => {
                self.leave(db, key.clone(), WhyLeftAlone::Gone, "there is no such key".to_owned());
            }
            SkipReason::ChangedType => self.leave(db, key.clone(), WhyLeftAlone::Changed, detail),
            SkipReason::NoPermission | SkipReason::Moved | SkipReason::ServerError => {
                self.leave(db, key.clone(), WhyLeftAlone::Denied, detail);
            }
        }
    }

    fn leave(&mut self, db: u32, key: KeyName, why: WhyLeftAlone, detail: String) {
        self.totals.leave(why);
        self.line(PlanLine::Left(&LeftAlone { db, key, why, detail }));
    }

    fn line(&mut self, line: PlanLine<'_>) {
        if self.failed.is_none()
            && let Err(error) = (self.on_line)(line)
        {
            self.failed = Some(error);
        }
    }
}

/// What a file says of a key, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Listed {
    kind: Option<String>,
    encoding: Option<String>,
    elements: Option<u64>,
    bytes: Option<u64>,
    has_ttl: Option<bool>,
}

impl Listed {
    fn of(row: &ListedKey) -> Self {
        Self {
            kind: row.kind.as_ref().map(|kind| kind.as_str().to_owned()),
            encoding: row.encoding.as_ref().map(|encoding| encoding.as_str().to_owned()),
            elements: row.elements,
            bytes: row.bytes,
            has_ttl: row.has_ttl,
        }
    }

    /// Says what changed since the file was written.
    fn change(&self, finding: &Finding, tolerance: f64, allocator: Allocator) -> Option<String> {
        let facts = &finding.facts;
        let kind = self.kind.as_deref().and_then(Kind::from_type_reply);
        // Compared by what both sides know.
        let elements = facts.elements.and(self.elements);
        let bytes = facts.bytes().and(self.bytes);
        let encoding = self.encoding.as_deref().map(Encoding::from_reply);
        let mut expected = Expected::new(
            kind.as_ref().unwrap_or(&facts.kind),
            encoding.as_ref().filter(|_| facts.encoding.is_some()),
            elements,
            bytes,
            Expiry::Unknown,
            tolerance,
            None,
        )
        .with_allocator(allocator);
        expected.has_ttl = self.has_ttl;
        let size = match expected.size {
            super::expect::Size::Elements(_) => facts.elements,
            super::expect::Size::Bytes(_) => facts.bytes(),
            super::expect::Size::Unknown => None,
        };
        let seen = Seen {
            kind: facts.kind.clone(),
            encoding: facts.encoding.clone(),
            size,
            has_ttl: has_ttl(facts.expiry),
            idle: None,
        };
        expected.compare(&seen).err().map(|change| change.to_string())
    }
}

/// The keys that are being looked at, with what the file says of them.
type Pending = std::rc::Rc<RefCell<HashMap<KeyName, Listed>>>;

/// Named keys, by database, on disk: a file may have a million rows.
struct Names {
    spools: BTreeMap<u32, Spool>,
    /// The servers that the file names, each with its first line.
    nodes: BTreeMap<String, u64>,
    pending: Pending,
    is_cut: bool,
    failed: Option<io::Error>,
}

enum Spool {
    Writing(BufWriter<std::fs::File>),
    Reading(BufReader<std::fs::File>),
    Keys(std::vec::IntoIter<KeyName>),
}

/// A key that nobody said anything of.
const UNLISTED: Listed = Listed { kind: None, encoding: None, elements: None, bytes: None, has_ttl: None };

impl Names {
    fn of_keys(keys: Vec<(u32, KeyName)>) -> Self {
        let mut seen = HashSet::new();
        let mut by_db: BTreeMap<u32, Vec<KeyName>> = BTreeMap::new();
        for (db, key) in keys {
            if seen.insert((db, key.clone())) {
                by_db.entry(db).or_default().push(key);
            }
        }
        let spools = by_db.into_iter().map(|(db, keys)| (db, Spool::Keys(keys.into_iter()))).collect();
        Self { spools, nodes: BTreeMap::new(), pending: Pending::default(), is_cut: false, failed: None }
    }

    /// Reads a file to its end before anything else: one bad row, and nothing is deleted.
    fn of_file(input: Box<dyn BufRead>, db: u32) -> Result<Self, SelectError> {
        let mut rows = FindingReader::new(input).map_err(SelectError::File)?;
        let mut spools: BTreeMap<u32, Spool> = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        for row in rows.by_ref() {
            let row = row.map_err(SelectError::File)?;
            if let Some(node) = &row.node
                && !nodes.contains_key(node)
            {
                if nodes.len() == FILE_NODES_MAX {
                    return Err(SelectError::TooManyNodes { line: row.line });
                }
                nodes.insert(node.clone(), row.line);
            }
            let db = row.db.unwrap_or(db);
            if !spools.contains_key(&db) {
                if spools.len() == FILE_DATABASES_MAX {
                    return Err(SelectError::TooManyDatabases { line: row.line });
                }
                let file = tempfile::tempfile().map_err(SelectError::Spool)?;
                spools.insert(db, Spool::Writing(BufWriter::new(file)));
            }
            let Some(Spool::Writing(spool)) = spools.get_mut(&db) else { continue };
            let line = (row.key.quoted(), Listed::of(&row));
            serde_json::to_writer(&mut *spool, &line)
                .map_err(io::Error::from)
                .and_then(|()| spool.write_all(b"\n"))
                .map_err(SelectError::Spool)?;
        }
        let is_cut = rows.completeness().is_some_and(|word| word == "partial");
        let spools = spools
            .into_iter()
            .map(|(db, spool)| Ok((db, spool.rewind()?)))
            .collect::<io::Result<_>>()
            .map_err(SelectError::Spool)?;
        Ok(Self { spools, nodes, pending: Pending::default(), is_cut, failed: None })
    }

    /// Sees to it that no row is another server's.
    fn are_of(&self, servers: &Servers, node: &str) -> Result<(), SelectError> {
        let strangers = self.nodes.iter().filter(|(listed, _)| *listed != node && !servers.knows(listed));
        match strangers.min_by_key(|(_, line)| **line) {
            Some((listed, &line)) => {
                Err(SelectError::OtherNode { line, listed: listed.clone(), node: node.to_owned() })
            }
            None => Ok(()),
        }
    }

    fn databases(&self) -> Vec<u32> {
        if self.spools.is_empty() { vec![0] } else { self.spools.keys().copied().collect() }
    }

    fn is_empty(&self) -> bool {
        self.spools.is_empty()
    }
}

impl Spool {
    fn rewind(self) -> io::Result<Self> {
        match self {
            Self::Writing(writer) => {
                let mut file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.seek(SeekFrom::Start(0))?;
                Ok(Self::Reading(BufReader::new(file)))
            }
            other => Ok(other),
        }
    }

    fn next(&mut self) -> io::Result<Option<(KeyName, Listed)>> {
        match self {
            Self::Keys(keys) => Ok(keys.next().map(|key| (key, UNLISTED))),
            Self::Writing(_) => Ok(None),
            Self::Reading(reader) => {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(None);
                }
                let (quoted, listed): (String, Listed) = serde_json::from_str(&line)?;
                let key = KeyName::parse_quoted(&quoted).map_err(io::Error::other)?;
                Ok(Some((key, listed)))
            }
        }
    }
}

impl KeySource for Names {
    fn next_page(&mut self, db: u32) -> Option<Vec<KeyName>> {
        let mut pending = self.pending.borrow_mut();
        pending.clear();
        let spool = self.spools.get_mut(&db)?;
        let (mut page, mut bytes) = (Vec::new(), 0);
        while page.len() < PAGE_KEYS && bytes < PAGE_BYTES {
            match spool.next() {
                Ok(Some((key, listed))) => {
                    bytes += key.as_bytes().len();
                    // A row that a person copied is one key all the same.
                    if pending.insert(key.clone(), listed).is_none() {
                        page.push(key);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        (!page.is_empty()).then_some(page)
    }
}

/// No keys at all: a file of nothing but a header.
struct Nothing;

impl KeySource for Nothing {
    fn next_page(&mut self, _: u32) -> Option<Vec<KeyName>> {
        None
    }
}
