//! Made-up findings for tests.

use std::time::{Duration, SystemTime};

use crate::engine::key::{BytesBasis, Encoding, Expiry, KeyFacts, KeyName, Kind, Measured};
use crate::engine::risk::{AllocationsBasis, Effect, Effects, Level, Verdict};

use super::Finding;

/// Begins a finding: a hash of 10 fields, in db 0 of server 0, without TTL.
pub(crate) fn finding(key: impl Into<KeyName>) -> FindingBuilder {
    FindingBuilder(Finding {
        server: 0,
        facts: KeyFacts {
            db: 0,
            slot: None,
            key: key.into(),
            kind: Kind::Hash,
            encoding: Some(Encoding::Hashtable),
            elements: Some(10),
            size: Some(Measured { bytes: 640, basis: BytesBasis::Sampled }),
            list_nodes: None,
            stream: None,
            expiry: Expiry::Never,
            idle: None,
            freq: None,
            observed_at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_790_000_000_123),
        },
        verdict: Verdict {
            free_effort: Some(10),
            allocations: Some(30),
            allocations_basis: AllocationsBasis::Counted,
            level: Some(Level::None),
            effects: Effects {
                del: Effect::Inline,
                unlink: Effect::Background,
                expire: Effect::None,
                overwrite: Effect::Inline,
            },
            predicted_stall_ms: Some(0.004),
            reasons: Vec::new(),
        },
    })
}

/// A finding in the making.
pub(crate) struct FindingBuilder(Finding);

impl FindingBuilder {
    pub(crate) fn db(mut self, db: u32) -> Self {
        self.0.facts.db = db;
        self
    }

    /// Sets the allocations, with the level and the stall that follow.
    pub(crate) fn allocations(mut self, allocations: u64) -> Self {
        let level = match allocations {
            0..=64 => Level::None,
            65..10_000 => Level::Low,
            10_000..100_000 => Level::Medium,
            100_000..1_000_000 => Level::High,
            _ => Level::Critical,
        };
        self.0.verdict.allocations = Some(allocations);
        self.0.verdict.level = Some(level);
        self.0.verdict.predicted_stall_ms = Some(allocations as f64 * 120e-6);
        self
    }

    pub(crate) fn level(mut self, level: Level) -> Self {
        self.0.verdict.level = Some(level);
        self
    }

    pub(crate) fn unjudged(mut self) -> Self {
        self.0.verdict.allocations = None;
        self.0.verdict.allocations_basis = AllocationsBasis::Unknown;
        self.0.verdict.free_effort = None;
        self.0.verdict.level = None;
        self.0.verdict.predicted_stall_ms = None;
        self
    }

    pub(crate) fn expiry(mut self, expiry: Expiry) -> Self {
        self.0.facts.expiry = expiry;
        self
    }

    pub(crate) fn build(self) -> Finding {
        self.0
    }
}
