//! What a deletion is told.

use std::time::Duration;

use crate::engine::live::{AddressRule, Endpoint};
use crate::engine::risk::Thresholds;
use crate::engine::scan::{Databases, Filter, Preference, TargetKind};

use super::audit::RunSettings;
use super::method::MethodOptions;
use super::protect::Protection;

/// Who runs it, for the audit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Operator {
    /// User name.
    pub name: Option<String>,
    /// Host name.
    pub host: Option<String>,
}

/// Where a run stops, whatever is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// After so many keys.
    pub keys_max: Option<u64>,
    /// Before a key that would bring the sum above so many bytes.
    pub bytes_max: Option<u64>,
    /// After so much time.
    pub deadline: Option<Duration>,
}

/// Everything that a deletion is told.
#[derive(Debug, Clone)]
pub struct DeleteConfig {
    /// The server, or one of the cluster, or a Sentinel.
    pub endpoint: Endpoint,
    /// What is there.
    pub kind: TargetKind,
    /// Where servers are reached that tell another address.
    pub address_rules: Vec<AddressRule>,
    /// On which servers keys are looked for. They are deleted on primaries.
    pub preference: Preference,
    /// Which databases, for a selection that scans.
    pub databases: Databases,
    /// Which keys, among those that the selection names or finds.
    pub filter: Filter,
    /// What is left alone.
    pub protection: Protection,
    /// How keys are removed.
    pub methods: MethodOptions,
    /// By what part a key may grow or shrink and still be the key of the plan.
    pub tolerance: f64,
    /// Rows of another server's scan are taken, too.
    pub any_node: bool,
    /// Where the run stops.
    pub limits: Limits,
    /// Time to live that the method `expire` gives, at least; each key gets up to twice as much.
    pub expire_after: Duration,
    /// Commands per second, on all servers together; `None` is no limit, and then they are kept busy.
    pub rate: Option<f64>,
    /// Commands per second on each server; `None` is no limit.
    pub rate_per_node: Option<f64>,
    /// Canary round trip above which the pace halves.
    pub latency_max: Duration,
    /// Canary round trip above which the run stops.
    pub latency_abort: Duration,
    /// Switch `lazyfree-lazy-expire` on for the run.
    pub lazy_expire_while_running: bool,
    /// Wait in the end, at most so long, until the background thread has freed everything.
    pub wait_memory: Option<Duration>,
    /// Where the levels begin.
    pub thresholds: Thresholds,
    /// Who runs it.
    pub operator: Operator,
}

impl DeleteConfig {
    /// Returns what a run that is finished later is held to.
    pub fn settings(&self) -> RunSettings {
        RunSettings {
            tolerance: self.tolerance,
            idle_over_s: self.filter.idle_over.map(|idle| idle.as_secs()),
            quarantine_db: self.methods.quarantine_db,
            expire_after_ms: u64::try_from(self.expire_after.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Takes over what an earlier run was told.
    pub fn take_settings(&mut self, settings: RunSettings) {
        // An audit is a file, and may say anything.
        if settings.tolerance.is_finite() {
            self.tolerance = settings.tolerance;
        }
        self.filter.idle_over = settings.idle_over_s.map(Duration::from_secs);
        self.methods.quarantine_db = settings.quarantine_db;
        self.expire_after = Duration::from_millis(settings.expire_after_ms.max(1));
    }
}
