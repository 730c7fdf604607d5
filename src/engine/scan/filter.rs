//! Which keys are wanted, tested as early as each condition can be.

use crate::engine::key::{Expiry, KeyName, Kind, Version};
use crate::engine::live::ScanRequest;
use crate::engine::risk::Level;
use crate::engine::tally::Finding;

use super::config::{Filter, TtlFilter};
use super::glob::glob_matches;

impl Filter {
    /// Returns whether nothing is filtered out.
    pub fn is_empty(&self) -> bool {
        !self.filters_names() && self.kinds.is_empty() && self.bytes_min.is_none() && !self.filters_details()
    }

    /// Returns whether a key is reported for what it is, and not for its level alone.
    pub fn asks_for_more_than_level(&self) -> bool {
        self.bytes_min.is_some() || self.filters_details()
    }

    fn filters_names(&self) -> bool {
        !self.globs.is_empty() || !self.exclude_globs.is_empty() || self.regex.is_some()
    }

    /// Returns whether a condition needs what only the details tell.
    pub(super) fn filters_details(&self) -> bool {
        !self.encodings.is_empty()
            || self.elements_min.is_some()
            || self.allocations_min.is_some()
            || self.level_min.is_some()
            || self.ttl.is_some()
            || self.idle_over.is_some()
    }

    /// Returns whether a condition can only be tested when the details of every key are asked, however
    /// small the key is.
    pub(super) fn needs_details_of_small_keys(&self) -> bool {
        !self.encodings.is_empty()
            || self.ttl.is_some()
            || self.idle_over.is_some()
            || self.elements_min.is_some()
            || self.allocations_min.is_some_and(|minimum| minimum <= 64)
            || self.level_min == Some(Level::None)
    }

    /// Returns what the server itself can filter: one pattern, and one type.
    pub(super) fn scan_request(&self, version: Version) -> ScanRequest {
        let glob = match &self.globs[..] {
            [glob] => Some(glob.clone()),
            _ => None,
        };
        // SCAN ... TYPE came with 6.0. An unknown type is an error on Valkey and an empty scan on
        // Redis, so only types that every server knows are passed on.
        let kind = match &self.kinds[..] {
            [kind @ (Kind::String | Kind::List | Kind::Set | Kind::Zset | Kind::Hash | Kind::Stream)]
                if version >= Version::new(6, 0, 0) =>
            {
                Some(kind.clone())
            }
            _ => None,
        };
        ScanRequest { glob, kind }
    }

    /// Tests the name.
    pub(super) fn name_passes(&self, key: &KeyName) -> bool {
        let name = key.as_bytes();
        // A single pattern was the server's work already.
        (self.globs.len() <= 1 || self.globs.iter().any(|glob| glob_matches(glob, name)))
            && !self.exclude_globs.iter().any(|glob| glob_matches(glob, name))
            && self.regex.as_ref().is_none_or(|regex| regex.is_match(name))
    }

    /// Tests a name that the server was not asked to match.
    pub(super) fn named_passes(&self, key: &KeyName) -> bool {
        let matches = match &self.globs[..] {
            [glob] => glob_matches(glob, key.as_bytes()),
            _ => true,
        };
        matches && self.name_passes(key)
    }

    /// Returns which condition a finding passes only because what it asks for could not be found out.
    ///
    /// A scan shows such keys rather than hide them. Who deletes must leave them alone.
    pub fn passes_unknown(&self, finding: &Finding) -> Option<&'static str> {
        let facts = &finding.facts;
        let level = finding.verdict.level;
        [
            (self.bytes_min.is_some() && !facts.has_measured_size(), "size"),
            (!self.encodings.is_empty() && facts.encoding.is_none(), "encoding"),
            (self.elements_min.is_some() && facts.elements.is_none(), "number of elements"),
            (
                self.allocations_min.is_some() && finding.verdict.allocations.is_none(),
                "number of allocations",
            ),
            (self.level_min.is_some_and(|minimum| minimum > Level::None) && level.is_none(), "level"),
            (self.ttl.is_some() && facts.expiry == Expiry::Unknown, "time to live"),
            (self.idle_over.is_some() && facts.idle.is_none(), "idle time"),
        ]
        .into_iter()
        .find_map(|(is_unknown, what)| is_unknown.then_some(what))
    }

    /// Tests what the census tells.
    pub(super) fn census_passes(&self, kind: &Kind, bytes: Option<u64>) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(kind)) && at_least(bytes, self.bytes_min)
    }

    /// Tests the rest. What is not known passes: it is shown rather than hidden.
    pub(super) fn finding_passes(&self, finding: &Finding) -> bool {
        let facts = &finding.facts;
        let encoding_passes = self.encodings.is_empty()
            || facts.encoding.as_ref().is_none_or(|encoding| self.encodings.contains(encoding));
        let ttl_passes = match (self.ttl, facts.expiry) {
            (None, _) | (_, Expiry::Unknown) => true,
            (Some(TtlFilter::Never), expiry) => expiry == Expiry::Never,
            (Some(TtlFilter::Under(limit)), Expiry::In(ttl)) => ttl < limit,
            (Some(TtlFilter::Over(limit)), Expiry::In(ttl)) => ttl > limit,
            (Some(_), Expiry::Never) => false,
        };
        encoding_passes
            && ttl_passes
            && at_least(facts.bytes(), self.bytes_min)
            && at_least(facts.elements, self.elements_min)
            && at_least(finding.verdict.allocations, self.allocations_min)
            && self.level_min.is_none_or(|minimum| finding.verdict.level.is_none_or(|level| level >= minimum))
            && self.idle_over.is_none_or(|minimum| facts.idle.is_none_or(|idle| idle > minimum))
    }
}

fn at_least(value: Option<u64>, minimum: Option<u64>) -> bool {
    match (value, minimum) {
        (Some(value), Some(minimum)) => value >= minimum,
        _ => true,
    }
}
