//! JSON: one document, written as findings come.
//!
//! `{"schema_version":1,"findings":[ ... ],"summary":{ ... }}`: findings first, since they are not kept,
//! and one on each line, so that `grep` and `diff` work on it too.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use crate::engine::key::{Permission, Role, ServerProfile};
use crate::engine::risk::Level;
use crate::engine::tally::{CensusRow, Finding, Storm};

use super::footer::fallback;
use super::model::{Completeness, IncompleteReason, LatencySummary, ScanReport};
use super::row::{Row, address, milliseconds, rfc3339, server_version, word};
use super::{FindingWriter, SCHEMA_VERSION};

/// Writes findings as one JSON document. A document that does not parse was cut off.
pub struct JsonWriter<W: Write> {
    output: W,
    findings: u64,
}

impl<W: Write> JsonWriter<W> {
    /// Makes a writer and writes the beginning. It writes small pieces: give it a buffer.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn new(mut output: W) -> io::Result<Self> {
        write!(output, "{{\"schema_version\":{SCHEMA_VERSION},\"findings\":[")?;
        Ok(Self { output, findings: 0 })
    }

    /// Makes a writer that goes on after so many findings of another.
    pub fn go_on(output: W, findings: u64) -> Self {
        Self { output, findings }
    }
}

impl<W: Write> FindingWriter for JsonWriter<W> {
    fn write(&mut self, finding: &Finding, server: &ServerProfile) -> io::Result<()> {
        self.output.write_all(if self.findings == 0 { b"\n" } else { b",\n" })?;
        self.findings = self.findings.saturating_add(1);
        serde_json::to_writer(&mut self.output, &Row::new(finding, server))?;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn finish(&mut self, report: &ScanReport) -> io::Result<()> {
        self.output.write_all(b"\n],\n\"summary\":")?;
        serde_json::to_writer(&mut self.output, &SummaryView::new(report))?;
        self.output.write_all(b"}\n")?;
        self.output.flush()
    }
}

/// Everything but the findings: the names of `docs/output.md`. Units are in the names.
#[derive(Serialize)]
pub(super) struct SummaryView<'a> {
    completeness: CompletenessView<'a>,
    started_at: Option<String>,
    elapsed_s: f64,
    keys_seen: u64,
    keys_matched: u64,
    duplicates: u64,
    maybe_counted_twice: Option<&'a str>,
    dbsize_before: Option<u64>,
    dbsize_after: Option<u64>,
    dbs: &'a [u32],
    levels: LevelsView,
    skipped: Vec<SkippedView<'a>>,
    skipped_examples: Vec<SkippedExampleView<'a>>,
    sort_by: &'static str,
    top: Vec<TopView<'a>>,
    census: Vec<CensusView<'a>>,
    prefixes: Vec<PrefixView>,
    ttl: Vec<TtlView>,
    expiry_storms: Vec<StormView>,
    expiry_keys_unwatched: u64,
    canary: CanaryView,
    pace: PaceView,
    keysizes: Vec<KeysizesView<'a>>,
    servers: Vec<ServerView<'a>>,
    clusters: Vec<ClusterView<'a>>,
    failed_targets: Vec<FailedTargetView<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct ClusterView<'a> {
    target: &'a str,
    slots_wanted: u32,
    slots_covered: u32,
    slots_moved: u32,
    slots_missing: &'a str,
    why: &'a str,
}

#[derive(Serialize)]
struct FailedTargetView<'a> {
    target: &'a str,
    why: &'a str,
}

#[derive(Serialize)]
struct CompletenessView<'a> {
    status: &'static str,
    reason: Option<&'static str>,
    detail: Option<Cow<'a, str>>,
    keys: Option<u64>,
    keys_total: Option<u64>,
}

#[derive(Serialize)]
struct LevelsView {
    none: u64,
    low: u64,
    medium: u64,
    high: u64,
    critical: u64,
    unknown: u64,
}

#[derive(Serialize)]
struct SkippedView<'a> {
    why: &'a str,
    keys: u64,
}

#[derive(Serialize)]
struct SkippedExampleView<'a> {
    why: &'static str,
    db: u32,
    key: Cow<'a, str>,
    key_encoding: &'static str,
    detail: Option<&'a str>,
}

#[derive(Serialize)]
struct TopView<'a> {
    #[serde(flatten)]
    row: Row<'a>,
    reasons: &'a [String],
}

#[derive(Serialize)]
struct SumsView {
    keys: u64,
    bytes: u64,
    keys_unsized: u64,
    elements: u64,
    keys_uncounted: u64,
    allocations: u64,
    keys_unjudged: u64,
}

#[derive(Serialize)]
struct CensusView<'a> {
    /// Null for what came after the rows were full.
    #[serde(rename = "type")]
    kind: Option<Cow<'a, str>>,
    encoding: Option<Cow<'a, str>>,
    #[serde(flatten)]
    sums: SumsView,
}

#[derive(Serialize)]
struct PrefixView {
    /// Null for keys without prefix and for the rest.
    prefix: Option<String>,
    place: &'static str,
    depth: usize,
    #[serde(flatten)]
    sums: SumsView,
}

#[derive(Serialize)]
struct TtlView {
    ttl: &'static str,
    #[serde(flatten)]
    sums: SumsView,
}

#[derive(Serialize)]
struct StormView {
    due_at: Option<String>,
    keys: u64,
    allocations: u64,
}

#[derive(Serialize)]
struct LatencyView {
    count: u64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    over_threshold: u64,
}

#[derive(Serialize)]
struct CanaryView {
    threshold_ms: Option<f64>,
    before: LatencyView,
    during: LatencyView,
}

#[derive(Serialize)]
struct PaceView {
    rate_limit_per_s: Option<f64>,
    commands: u64,
    round_trips: u64,
    slowdowns: u64,
    reconnects: u32,
}

#[derive(Serialize)]
struct KeysizesView<'a> {
    db: u32,
    #[serde(rename = "type")]
    kind: &'a str,
    at_least: u64,
    expected_before: u64,
    expected_after: Option<u64>,
    found: u64,
    holds: bool,
}

#[derive(Serialize)]
struct ServerView<'a> {
    node: Cow<'a, str>,
    server_version: String,
    role: Option<&'static str>,
    cluster: bool,
    run_id: Option<&'a str>,
    maxmemory_policy: Option<&'a str>,
    used_memory_bytes: Option<u64>,
    lazyfree_lazy_user_del: Option<bool>,
    lazyfree_lazy_expire: Option<bool>,
    lazyfree_lazy_server_del: Option<bool>,
    lazyfree_lazy_eviction: Option<bool>,
    access: Vec<AccessView>,
}

#[derive(Serialize)]
struct AccessView {
    command: &'static str,
    permission: &'static str,
    /// What stands in for it, where it may not be called.
    fallback: Option<&'static str>,
}

impl From<&CensusRow> for SumsView {
    fn from(row: &CensusRow) -> Self {
        Self {
            keys: row.keys,
            bytes: row.bytes,
            keys_unsized: row.keys_unsized,
            elements: row.elements,
            keys_uncounted: row.keys_uncounted,
            allocations: row.allocations,
            keys_unjudged: row.keys_unjudged,
        }
    }
}

impl From<&LatencySummary> for LatencyView {
    /// Without round trips there are no percentiles: null and not 0.
    fn from(latency: &LatencySummary) -> Self {
        let ms = |duration: std::time::Duration| {
            if latency.count == 0 { None } else { milliseconds(duration.as_secs_f64() * 1e3) }
        };
        Self {
            count: latency.count,
            p50_ms: ms(latency.p50),
            p99_ms: ms(latency.p99),
            max_ms: ms(latency.max),
            over_threshold: latency.over_threshold,
        }
    }
}

impl From<&Storm> for StormView {
    fn from(storm: &Storm) -> Self {
        Self { due_at: rfc3339(storm.due_at), keys: storm.keys, allocations: storm.allocations }
    }
}

impl<'a> CompletenessView<'a> {
    fn new(completeness: &'a Completeness) -> Self {
        let (mut reason, mut detail, mut keys, mut keys_total) = (None, None, None, None);
        match completeness {
            Completeness::Complete | Completeness::CompleteButSkipped => {}
            Completeness::Sampled { keys: measured, keys_total: total } => {
                (keys, keys_total) = (Some(*measured), *total);
            }
            Completeness::Partial(why) => {
                reason = Some(why.as_str());
                detail = match why {
                    IncompleteReason::Guard(waited) => {
                        Some(format!("the canary waited {:.3} ms", waited.as_secs_f64() * 1e3).into())
                    }
                    IncompleteReason::ConnectionLost(said) | IncompleteReason::ScanRefused(said) => {
                        Some(said.as_str().into())
                    }
                    _ => None,
                };
            }
        }
        Self { status: completeness.as_str(), reason, detail, keys, keys_total }
    }
}

impl<'a> ServerView<'a> {
    fn new(server: &'a ServerProfile) -> Self {
        Self {
            node: address(&server.node),
            server_version: server_version(server),
            role: match server.role {
                Role::Primary => Some("primary"),
                Role::Replica => Some("replica"),
                Role::Unknown => None,
            },
            cluster: server.cluster,
            run_id: server.run_id.as_deref(),
            maxmemory_policy: server.maxmemory_policy.as_deref(),
            used_memory_bytes: server.used_memory_bytes,
            lazyfree_lazy_user_del: server.lazyfree.user_del,
            lazyfree_lazy_expire: server.lazyfree.expire,
            lazyfree_lazy_server_del: server.lazyfree.server_del,
            lazyfree_lazy_eviction: server.lazyfree.eviction,
            access: server
                .access
                .iter()
                .map(|(access, permission): (_, &Permission)| AccessView {
                    command: access.as_str(),
                    fallback: (*permission != Permission::Allowed).then(|| fallback(*access)),
                    permission: permission.as_str(),
                })
                .collect(),
        }
    }
}

impl<'a> SummaryView<'a> {
    pub(super) fn new(report: &'a ScanReport) -> Self {
        let [none, low, medium, high, critical, unknown] = report.levels;
        debug_assert_eq!(Level::ALL.len() + 1, report.levels.len());
        Self {
            completeness: CompletenessView::new(&report.completeness),
            started_at: rfc3339(report.started_at),
            elapsed_s: (report.elapsed.as_secs_f64() * 1e3).round() / 1e3,
            keys_seen: report.keys_seen,
            keys_matched: report.keys_matched,
            duplicates: report.duplicates,
            maybe_counted_twice: report.maybe_counted_twice.as_deref(),
            dbsize_before: report.dbsize_before,
            dbsize_after: report.dbsize_after,
            dbs: &report.dbs,
            levels: LevelsView { none, low, medium, high, critical, unknown },
            skipped: report
                .skipped
                .counts
                .iter()
                .map(|&(why, keys)| SkippedView { why: why.as_str(), keys })
                .collect(),
            skipped_examples: report.skipped.examples.iter().map(skipped_example).collect(),
            sort_by: report.sort_by.as_str(),
            top: report.top.iter().filter_map(|finding| top(finding, report)).collect(),
            census: census(report),
            prefixes: prefixes(report),
            ttl: report
                .expiry
                .buckets
                .iter()
                .map(|(bucket, row)| TtlView { ttl: bucket.as_str(), sums: row.into() })
                .collect(),
            expiry_storms: report.expiry.storms.iter().map(StormView::from).collect(),
            expiry_keys_unwatched: report.expiry.keys_unwatched,
            canary: CanaryView {
                threshold_ms: milliseconds(report.canary.threshold.as_secs_f64() * 1e3),
                before: (&report.canary.before).into(),
                during: (&report.canary.during).into(),
            },
            pace: PaceView {
                rate_limit_per_s: report.pace.rate_limit.filter(|rate| rate.is_finite()),
                commands: report.pace.commands,
                round_trips: report.pace.round_trips,
                slowdowns: report.pace.slowdowns,
                reconnects: report.pace.reconnects,
            },
            keysizes: report
                .keysizes
                .iter()
                .map(|check| KeysizesView {
                    db: check.db,
                    kind: &check.kind,
                    at_least: check.at_least,
                    expected_before: check.expected_before,
                    expected_after: check.expected_after,
                    found: check.found,
                    holds: check.holds(),
                })
                .collect(),
            servers: report.servers.iter().map(ServerView::new).collect(),
            clusters: report
                .coverage
                .iter()
                .map(|coverage| ClusterView {
                    target: &coverage.target,
                    slots_wanted: coverage.slots_wanted,
                    slots_covered: coverage.slots_covered,
                    slots_moved: coverage.slots_moved,
                    slots_missing: &coverage.missing,
                    why: &coverage.why,
                })
                .collect(),
            failed_targets: report
                .failures
                .iter()
                .map(|failure| FailedTargetView { target: &failure.target, why: &failure.why })
                .collect(),
            warnings: &report.warnings,
        }
    }
}

fn skipped_example(skipped: &crate::engine::key::Skipped) -> SkippedExampleView<'_> {
    let (key, key_encoding) = skipped.key.to_text();
    SkippedExampleView {
        why: skipped.why.as_str(),
        db: skipped.db,
        key,
        key_encoding: key_encoding.as_str(),
        detail: skipped.detail.as_deref(),
    }
}

fn top<'a>(finding: &'a Finding, report: &'a ScanReport) -> Option<TopView<'a>> {
    let server = report.servers.get(finding.server)?;
    Some(TopView { row: Row::new(finding, server), reasons: &finding.verdict.reasons })
}

fn census(report: &ScanReport) -> Vec<CensusView<'_>> {
    let rows = report.census.rows.iter().map(|((kind, encoding), row)| CensusView {
        kind: Some(word(kind.as_str())),
        encoding: encoding.as_ref().map(|encoding| word(encoding.as_str())),
        sums: row.into(),
    });
    let other = &report.census.other;
    let other = (other.keys > 0).then(|| CensusView { kind: None, encoding: None, sums: other.into() });
    rows.chain(other).collect()
}

fn prefixes(report: &ScanReport) -> Vec<PrefixView> {
    let prefixes = &report.prefixes;
    let rows = prefixes.rows.iter().map(|row| PrefixView {
        prefix: Some(crate::engine::key::KeyName::from(row.prefix.as_slice()).to_text().0.into_owned()),
        place: "prefix",
        depth: row.depth,
        sums: (&row.sums).into(),
    });
    let beside = [("without", &prefixes.without), ("rest", &prefixes.rest)].into_iter();
    let beside = beside.filter(|(_, row)| row.keys > 0).map(|(place, row)| PrefixView {
        prefix: None,
        place,
        depth: 0,
        sums: row.into(),
    });
    rows.chain(beside).collect()
}
