//! A made-up scan for tests: everything that a report can show.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::engine::key::{
    Access, Allocator, BytesBasis, Encoding, EncodingLimits, Expiry, Flavour, KeyName, Kind, Lazyfree,
    Measured, Permission, Role, ServerProfile, SkipReason, Skipped, Version,
};
use crate::engine::risk::{AllocationsBasis, Effect, Level};
use crate::engine::tally::sample::finding;
use crate::engine::tally::{Finding, SortBy, Tally};

use super::{
    CanarySummary, Completeness, KeysizesCheck, LatencySummary, PaceSummary, ScanReport, SkipSummary,
};

pub(crate) fn server() -> ServerProfile {
    let mut access: BTreeMap<Access, Permission> =
        Access::ALL.into_iter().map(|access| (access, Permission::Allowed)).collect();
    access.insert(Access::DebugObject, Permission::Denied);
    access.insert(Access::ConfigGet, Permission::Denied);
    access.insert(Access::ObjectFreq, Permission::NotApplicable);
    access.insert(Access::ClientNoTouch, Permission::Unsupported);
    ServerProfile {
        node: "10.0.3.17:6379".into(),
        flavour: Flavour::Redis,
        version: Version::new(7, 0, 15),
        run_id: Some("5f2c6b1e".into()),
        role: Role::Primary,
        cluster: false,
        allocator: Allocator::Jemalloc,
        maxmemory_policy: Some("noeviction".into()),
        used_memory_bytes: Some(3_221_225_472),
        databases: Some(16),
        lazyfree: Lazyfree { expire: Some(false), user_del: Some(false), ..Lazyfree::default() },
        limits: EncodingLimits::default(),
        access,
    }
}

fn observed_at() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_790_000_000_123)
}

struct Made {
    key: KeyName,
    kind: Kind,
    encoding: Encoding,
    elements: u64,
    allocations: u64,
    bytes: u64,
    ttl_s: Option<u64>,
    stall_ms: f64,
}

fn make(made: Made) -> Finding {
    let mut finding = finding(made.key).allocations(made.allocations).build();
    finding.facts.kind = made.kind;
    finding.facts.encoding = Some(made.encoding);
    finding.facts.elements = Some(made.elements);
    finding.facts.size = Some(Measured { bytes: made.bytes, basis: BytesBasis::Sampled });
    finding.facts.expiry = made.ttl_s.map_or(Expiry::Never, |s| Expiry::In(Duration::from_secs(s)));
    finding.facts.observed_at = observed_at();
    finding.verdict.predicted_stall_ms = Some(made.stall_ms);
    finding.verdict.free_effort = Some(made.elements);
    finding.verdict.effects.expire = if made.ttl_s.is_some() { Effect::Inline } else { Effect::None };
    if made.elements <= 64 {
        finding.verdict.effects.unlink = Effect::Inline;
    }
    finding
}

/// The findings of the made-up scan, giants first.
#[expect(clippy::too_many_lines, reason = "a table of made-up keys")]
pub(crate) fn findings() -> Vec<Finding> {
    let giant = |key: &str, kind, encoding, elements, allocations, bytes, ttl_s, stall_ms| {
        make(Made { key: key.into(), kind, encoding, elements, allocations, bytes, ttl_s, stall_ms })
    };
    let mut session = giant(
        "session:index:all",
        Kind::Set,
        Encoding::Hashtable,
        3_000_000,
        6_000_002,
        269_484_032,
        Some(8040),
        361.2,
    );
    session.verdict.reasons = vec![
        "DEL frees 6000002 allocations on the command thread (lazyfree-lazy-user-del no)".into(),
        "it expires in 2h 14m, and lazyfree-lazy-expire is no: everybody waits then".into(),
    ];
    let mut blob = giant(
        "report:export:2026-11-29T23:00:00Z:full:customers-and-orders.parquet",
        Kind::String,
        Encoding::Raw,
        536_870_912,
        2,
        536_870_976,
        Some(3600 * 24 * 45),
        84.0,
    );
    blob.facts.size = Some(Measured { bytes: 536_870_976, basis: BytesBasis::Measured });
    blob.verdict.level = Some(Level::Critical);
    blob.verdict.effects.unlink = Effect::Inline;
    blob.verdict.free_effort = Some(1);
    blob.verdict.reasons = vec!["one block of 512 MiB: UNLINK unmaps it on the command thread".into()];
    let mut queue = giant(
        "queue:mail:{eu-west}:pending",
        Kind::List,
        Encoding::Quicklist,
        1_250_000,
        2_442,
        20_004_864,
        None,
        1.3,
    );
    queue.verdict.allocations_basis = AllocationsBasis::Estimated;
    let mut module =
        giant("doc:catalog", Kind::Other("ReJSON-RL".into()), Encoding::Raw, 0, 0, 73_400_320, None, 0.0);
    module.facts.elements = None;
    module.verdict.allocations = None;
    module.verdict.allocations_basis = AllocationsBasis::Unknown;
    module.verdict.level = None;
    module.verdict.free_effort = None;
    module.verdict.predicted_stall_ms = None;
    module.verdict.effects.unlink = Effect::Unknown;
    module.verdict.reasons = vec!["a module frees this type, and nothing tells how".into()];
    let mut hostile =
        giant("x", Kind::Zset, Encoding::Skiplist, 250_000, 750_003, 30_408_704, Some(59), 95.4);
    hostile.facts.key = KeyName::new(&b"\x1b[2J\x00=cmd|' /C calc'!A0\xff\xfe"[..]);
    let mut findings = vec![
        session,
        blob,
        giant(
            "leaderboard:global",
            Kind::Zset,
            Encoding::Skiplist,
            1_000_000,
            3_000_003,
            121_634_816,
            None,
            380.0,
        ),
        hostile,
        giant(
            "\u{7528}\u{6237}:\u{7d22}\u{5f15}:\u{5168}\u{90e8}",
            Kind::Hash,
            Encoding::Hashtable,
            90_000,
            270_001,
            14_400_000,
            None,
            33.0,
        ),
        queue,
        module,
        giant(
            "app:feature-flags:by-tenant",
            Kind::Hash,
            Encoding::Hashtable,
            999,
            2_998,
            120_000,
            None,
            0.36,
        ),
    ];
    for n in 0..3000u64 {
        let key = format!("user:{n}:profile");
        let ttl = (n % 3 == 0).then_some(86_400);
        findings.push(match ttl {
            None => giant(&key, Kind::Hash, Encoding::Listpack, 12, 2, 240, ttl, 0.001),
            Some(_) => giant(&key, Kind::Hash, Encoding::Hashtable, 66, 200, 7_000, ttl, 0.024),
        });
    }
    for n in 0..1000u64 {
        let mut cheap =
            giant(&format!("cache:page:{n}"), Kind::String, Encoding::Raw, 800, 2, 900, None, 0.001);
        // Cheap first: only candidates are asked for their encoding and TTL.
        cheap.facts.encoding = None;
        cheap.facts.expiry = Expiry::Unknown;
        findings.push(cheap);
    }
    findings
}

/// The report of the made-up scan.
pub(crate) fn report() -> ScanReport {
    let findings = findings();
    let mut tally = Tally::new(8, SortBy::Allocations);
    for finding in &findings {
        tally.add(finding);
    }
    for n in 0..17 {
        let key = format!("tmp:{n}").as_str().into();
        tally.skip(&Skipped { db: 0, key, why: SkipReason::Vanished, detail: None });
    }
    tally.skip(&Skipped {
        db: 3,
        key: "secret:1".into(),
        why: SkipReason::NoPermission,
        detail: Some("NOPERM this user has no permissions to access one of the keys".into()),
    });
    let latency = |p50, p99, max, over| LatencySummary {
        count: 400,
        p50: Duration::from_micros(p50),
        p99: Duration::from_micros(p99),
        max: Duration::from_micros(max),
        over_threshold: over,
    };
    ScanReport {
        started_at: observed_at() - Duration::from_secs(21),
        elapsed: Duration::from_millis(20_870),
        servers: vec![server()],
        dbs: vec![0, 3],
        keys_seen: findings.len() as u64 + 18,
        keys_matched: findings.len() as u64,
        duplicates: 7,
        dbsize_before: Some(4030),
        dbsize_after: Some(4021),
        maybe_counted_twice: None,
        census: tally.census.clone(),
        prefixes: tally.prefixes.heaviest(8, SortBy::Allocations),
        expiry: tally.expiry.summary(3),
        levels: tally.levels.0,
        skipped: SkipSummary::from(&tally.skips),
        top: tally.top.into_sorted(),
        sort_by: SortBy::Allocations,
        canary: CanarySummary {
            before: latency(92, 310, 1_204, 0),
            during: latency(118, 1_950, 12_400, 1),
            threshold: Duration::from_millis(10),
        },
        pace: PaceSummary {
            rate_limit: Some(10_000.0),
            commands: 12_123,
            round_trips: 131,
            slowdowns: 1,
            reconnects: 0,
        },
        completeness: Completeness::CompleteButSkipped,
        keysizes: vec![
            KeysizesCheck {
                db: 0,
                kind: "sets".into(),
                at_least: 1_048_576,
                expected_before: 1,
                expected_after: Some(1),
                found: 1,
            },
            KeysizesCheck {
                db: 0,
                kind: "strings".into(),
                at_least: 67_108_864,
                expected_before: 2,
                expected_after: None,
                found: 1,
            },
        ],
        coverage: Vec::new(),
        failures: Vec::new(),
        warnings: vec![
            "this is a primary with lazyfree-lazy-expire no: a scan that touches an expired key frees it on the \
             command thread; scan a replica where there is one"
                .into(),
        ],
    }
}
