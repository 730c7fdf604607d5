//! What will be done to which key. A plan is complete before anything happens, and acting on it chooses
//! nothing new except to skip or to stop.

use std::time::{Duration, SystemTime};

use crate::engine::key::{Encoding, Expiry, KeyFacts, KeyName, Kind};
use crate::engine::risk::Verdict;

use super::expect::Expected;
use super::method::{Choice, Method, del_stall_ms};

/// One key of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedKey {
    /// Number within the plan, from 0.
    pub seq: u64,
    /// Database.
    pub db: u32,
    /// Name.
    pub key: KeyName,
    /// Type.
    pub kind: Kind,
    /// Encoding.
    pub encoding: Option<Encoding>,
    /// Elements; for a string, its bytes.
    pub elements: Option<u64>,
    /// Memory, in bytes.
    pub bytes: Option<u64>,
    /// Time to live.
    pub expiry: Expiry,
    /// The server's own estimate of the work of freeing it.
    pub free_effort: Option<u64>,
    /// How many frees that really is.
    pub allocations: Option<u64>,
    /// How it will be removed.
    pub method: Method,
    /// Why so.
    pub reason: String,
    /// Prediction for this method, in milliseconds.
    pub stall_ms: f64,
    /// Prediction for DEL, in milliseconds. `None`: not known.
    pub del_stall_ms: Option<f64>,
    /// When it was looked at.
    pub observed_at: SystemTime,
}

impl PlannedKey {
    /// Plans a key that was measured, judged, and given a method.
    pub fn new(seq: u64, facts: KeyFacts, verdict: &Verdict, choice: Choice) -> Self {
        Self {
            seq,
            db: facts.db,
            kind: facts.kind.clone(),
            encoding: facts.encoding.clone(),
            elements: facts.elements,
            bytes: facts.bytes(),
            expiry: facts.expiry,
            free_effort: verdict.free_effort,
            allocations: verdict.allocations,
            method: choice.method,
            reason: choice.reason,
            stall_ms: choice.stall_ms,
            del_stall_ms: del_stall_ms(verdict),
            observed_at: facts.observed_at,
            key: facts.key,
        }
    }

    /// Returns what must still hold when it is deleted.
    pub fn expected(&self, tolerance: f64, idle_min: Option<Duration>) -> Expected {
        Expected::new(
            &self.kind,
            self.encoding.as_ref(),
            self.elements,
            self.bytes,
            self.expiry,
            tolerance,
            idle_min,
        )
    }
}

/// A key that the selection named and the plan leaves alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftAlone {
    /// Database.
    pub db: u32,
    /// Name.
    pub key: KeyName,
    /// Why.
    pub why: WhyLeftAlone,
    /// In words.
    pub detail: String,
}

/// Kinds of reasons to leave a key alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WhyLeftAlone {
    /// It does not exist (any more).
    Gone,
    /// It is protected.
    Protected,
    /// It is not what it was when it was listed or planned.
    Changed,
    /// No method is safe enough.
    NoMethod,
    /// What a filter asks for could not be found out.
    Unknown,
    /// The server refused.
    Denied,
}

impl WhyLeftAlone {
    /// All of them, as the reports list them.
    pub const ALL: [Self; 6] =
        [Self::Gone, Self::Protected, Self::Changed, Self::NoMethod, Self::Unknown, Self::Denied];

    /// Returns the word used in outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Protected => "protected",
            Self::Changed => "changed",
            Self::NoMethod => "no-method",
            Self::Unknown => "unknown",
            Self::Denied => "denied",
        }
    }
}

/// A number of keys and their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Keys.
    pub keys: u64,
    /// The memory of those whose size is known, in bytes.
    pub bytes: u64,
    /// Keys whose size is not known.
    pub size_unknown: u64,
}

impl Amount {
    /// Counts a key in.
    pub fn add(&mut self, bytes: Option<u64>) {
        self.keys += 1;
        match bytes {
            Some(bytes) => self.bytes = self.bytes.saturating_add(bytes),
            None => self.size_unknown += 1,
        }
    }

    /// Adds another sum.
    pub(super) fn merge(&mut self, more: Self) {
        *self = Self::sum(&[*self, more]);
    }

    /// Adds several up.
    pub fn sum(all: &[Self]) -> Self {
        all.iter().fold(Self::default(), |sum, more| Self {
            keys: sum.keys + more.keys,
            bytes: sum.bytes.saturating_add(more.bytes),
            size_unknown: sum.size_unknown + more.size_unknown,
        })
    }
}

/// Sums over a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Totals {
    /// Keys planned.
    pub keys: u64,
    /// Keys and their memory by method.
    pub by_method: [Amount; Method::ALL.len()],
    /// Keys left alone, by reason.
    pub left_alone: [u64; WhyLeftAlone::ALL.len()],
    /// The longest predicted stall, in milliseconds.
    pub stall_ms_max: f64,
    /// The sum of what DEL of each would stall, as far as that is known, in milliseconds.
    pub del_stall_ms: f64,
    /// Keys of which it is not known.
    pub del_stall_unknown: u64,
}

impl Totals {
    /// Counts a key in.
    pub fn add(&mut self, key: &PlannedKey) {
        self.keys += 1;
        self.by_method[key.method as usize].add(key.bytes);
        self.stall_ms_max = self.stall_ms_max.max(key.stall_ms);
        match key.del_stall_ms {
            Some(ms) => self.del_stall_ms += ms,
            None => self.del_stall_unknown += 1,
        }
    }

    /// Counts a key that is left alone.
    pub fn leave(&mut self, why: WhyLeftAlone) {
        self.left_alone[why as usize] += 1;
    }

    /// Returns how many keys are there and left alone.
    pub fn skipped(&self) -> u64 {
        let gone = self.left_alone[WhyLeftAlone::Gone as usize];
        self.left_alone.iter().sum::<u64>() - gone
    }
}
