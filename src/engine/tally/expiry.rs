//! When keys go: by time to live, and in storms.
//!
//! A storm is many keys, or many allocations, due within one second: a nightly batch that wrote
//! everything with the same TTL. Times are rounded to the nearest second and not down: `EXPIREAT` takes
//! whole seconds, and `now + PTTL` misses them by a few milliseconds either way. Rounded down, one
//! storm would be torn into two.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::engine::key::Expiry;

use super::stored::{COUNT_MAX, StoredExpiry};
use super::{CensusRow, Finding};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A range of times to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TtlBucket {
    /// Less than a minute.
    Minute,
    /// Less than an hour.
    Hour,
    /// Less than a day.
    Day,
    /// Less than a week.
    Week,
    /// Less than 30 days.
    Month,
    /// 30 days or more.
    Longer,
    /// No TTL: it stays until somebody deletes or evicts it.
    Never,
    /// Not asked, or refused.
    Unknown,
}

impl TtlBucket {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Longer,
        Self::Never,
        Self::Unknown,
    ];

    /// Returns the bucket of an expiry.
    pub fn of(expiry: Expiry) -> Self {
        match expiry {
            Expiry::Unknown => Self::Unknown,
            Expiry::Never => Self::Never,
            Expiry::In(ttl) => match ttl.as_secs() {
                0..60 => Self::Minute,
                60..HOUR => Self::Hour,
                HOUR..DAY => Self::Day,
                s if s < 7 * DAY => Self::Week,
                s if s < 30 * DAY => Self::Month,
                _ => Self::Longer,
            },
        }
    }

    /// Returns the words used in the outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "under 1m",
            Self::Hour => "under 1h",
            Self::Day => "under 1d",
            Self::Week => "under 7d",
            Self::Month => "under 30d",
            Self::Longer => "30d or more",
            Self::Never => "no TTL",
            Self::Unknown => "unknown",
        }
    }
}

/// Keys that are due within the same second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storm {
    /// The second.
    pub due_at: SystemTime,
    /// Keys, at least.
    pub keys: u64,
    /// Allocations to free, at least.
    pub allocations: u64,
}

/// When keys go, as a report shows it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExpirySummary {
    /// Sums by time to live; those with keys only.
    pub buckets: Vec<(TtlBucket, CensusRow)>,
    /// The worst seconds, worst first.
    pub storms: Vec<Storm>,
    /// Keys with a TTL that were left out of the search for storms, to bound its memory. Not 0: the
    /// counts of `storms` are lower bounds.
    pub keys_unwatched: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    keys: u64,
    allocations: u64,
}

/// Counts keys by time to live and by the second in which they are due. Bounded.
#[derive(Debug, Clone, Default)]
pub struct ExpiryTally {
    buckets: [CensusRow; TtlBucket::ALL.len()],
    /// By seconds since 1970.
    seconds: HashMap<u64, Second>,
    keys_unwatched: u64,
}

impl ExpiryTally {
    /// Seconds watched at a time: about 2 MB. When they are full, the lighter half is forgotten: a
    /// storm has many keys all over the keyspace and is among the heavier half soon.
    pub const SECONDS_MAX: usize = 1 << 16;
    /// Keys from which a second is a storm: the active expire cycle takes tens of milliseconds for them.
    pub const STORM_KEYS_MIN: u64 = 10_000;
    /// Allocations from which a second with two keys or more is a storm.
    pub const STORM_ALLOCATIONS_MIN: u64 = 100_000;

    /// Counts a key in.
    pub fn add(&mut self, finding: &Finding) {
        let expiry = finding.facts.expiry;
        self.buckets[TtlBucket::of(expiry) as usize].add(finding);
        let Expiry::In(ttl) = expiry else {
            return;
        };
        let Some(due) = due_second(finding.facts.observed_at, ttl) else {
            self.keys_unwatched += 1;
            return;
        };
        if self.seconds.len() >= Self::SECONDS_MAX && !self.seconds.contains_key(&due) {
            self.forget_the_lighter_half();
        }
        let second = self.seconds.entry(due).or_default();
        second.keys += 1;
        second.allocations = second.allocations.saturating_add(finding.verdict.allocations.unwrap_or(0));
    }

    /// Adds those of another server.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            mine.merge(theirs);
        }
        for (&due, theirs) in &other.seconds {
            if self.seconds.len() >= Self::SECONDS_MAX && !self.seconds.contains_key(&due) {
                self.forget_the_lighter_half();
            }
            let mine = self.seconds.entry(due).or_default();
            mine.keys += theirs.keys;
            mine.allocations = mine.allocations.saturating_add(theirs.allocations);
        }
        self.keys_unwatched += other.keys_unwatched;
    }

    fn forget_the_lighter_half(&mut self) {
        let mut weights: Vec<(u64, u64)> =
            self.seconds.values().map(|second| (second.allocations, second.keys)).collect();
        let middle = weights.len() / 2;
        let limit = *weights.select_nth_unstable(middle).1;
        // Of those that weigh just as much as the middle, only as many go as make half.
        let lighter = self.seconds.values().filter(|s| (s.allocations, s.keys) < limit).count();
        let mut equals_to_drop = middle.saturating_sub(lighter).max(1);
        let unwatched = &mut self.keys_unwatched;
        self.seconds.retain(|_, second| {
            let weight = (second.allocations, second.keys);
            let equal_goes = weight == limit && equals_to_drop > 0;
            if equal_goes {
                equals_to_drop -= 1;
            }
            let stays = weight >= limit && !equal_goes;
            if !stays {
                *unwatched += second.keys;
            }
            stays
        });
    }

    /// Returns what a checkpoint holds of it.
    pub(super) fn store(&self) -> StoredExpiry {
        let seconds =
            self.seconds.iter().map(|(&due, second)| (due, second.keys, second.allocations)).collect();
        StoredExpiry { buckets: self.buckets, seconds, keys_unwatched: self.keys_unwatched }
    }

    /// Takes it from a checkpoint. `None`: that is none which this build wrote.
    pub(super) fn restore(stored: StoredExpiry) -> Option<Self> {
        let is_time = |due: u64| UNIX_EPOCH.checked_add(Duration::from_secs(due)).is_some();
        let is_sound = stored.seconds.len() <= Self::SECONDS_MAX
            && stored.seconds.iter().all(|&(due, keys, _)| is_time(due) && keys <= COUNT_MAX);
        is_sound.then(|| Self {
            buckets: stored.buckets,
            seconds: stored
                .seconds
                .into_iter()
                .map(|(due, keys, allocations)| (due, Second { keys, allocations }))
                .collect(),
            keys_unwatched: stored.keys_unwatched,
        })
    }

    /// Returns the sums, with at most so many storms.
    pub fn summary(&self, storms_max: usize) -> ExpirySummary {
        let is_storm = |second: &Second| {
            second.keys >= Self::STORM_KEYS_MIN
                || (second.keys > 1 && second.allocations >= Self::STORM_ALLOCATIONS_MIN)
        };
        let mut storms: Vec<Storm> = self
            .seconds
            .iter()
            .filter(|(_, second)| is_storm(second))
            .map(|(&due, second)| Storm {
                due_at: UNIX_EPOCH + Duration::from_secs(due),
                keys: second.keys,
                allocations: second.allocations,
            })
            .collect();
        storms.sort_unstable_by(|a, b| {
            (b.allocations, b.keys).cmp(&(a.allocations, a.keys)).then(a.due_at.cmp(&b.due_at))
        });
        storms.truncate(storms_max);
        let buckets = TtlBucket::ALL.into_iter().zip(self.buckets).filter(|(_, row)| row.keys > 0).collect();
        ExpirySummary { buckets, storms, keys_unwatched: self.keys_unwatched }
    }
}

/// Returns the second nearest to the moment at which a key is due. A TTL may be any 64-bit number of
/// milliseconds, so the sum may not be a time at all.
fn due_second(observed_at: SystemTime, ttl: Duration) -> Option<u64> {
    let due = observed_at.duration_since(UNIX_EPOCH).ok()?.checked_add(ttl)?;
    let second = due.checked_add(Duration::from_millis(500))?.as_secs();
    UNIX_EPOCH.checked_add(Duration::from_secs(second)).map(|_| second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tally::sample::finding;

    fn due_in(ttl_ms: u64, allocations: u64) -> Finding {
        finding("k").allocations(allocations).expiry(Expiry::In(Duration::from_millis(ttl_ms))).build()
    }

    #[test]
    fn keys_due_at_one_second_are_one_storm_though_their_ttl_was_read_milliseconds_apart() {
        let mut tally = ExpiryTally::default();
        // Observed at ...000.123 s: 877 ms more make a whole second.
        for n in 0..1000 {
            tally.add(&due_in(600_877 + n % 7 - 3, 200));
        }
        let summary = tally.summary(5);
        assert_eq!(summary.storms.len(), 1);
        assert_eq!((summary.storms[0].keys, summary.storms[0].allocations), (1000, 200_000));
        assert_eq!(summary.buckets.len(), 1);
        assert_eq!(summary.buckets[0].0, TtlBucket::Hour);
        assert_eq!(summary.keys_unwatched, 0);
    }

    #[test]
    fn one_big_key_is_no_storm_and_two_are() {
        let mut tally = ExpiryTally::default();
        tally.add(&due_in(5_000, 900_000));
        assert!(tally.summary(5).storms.is_empty());
        tally.add(&due_in(5_001, 1));
        assert_eq!(tally.summary(5).storms[0].keys, 2);
    }

    #[test]
    fn memory_is_bounded_and_what_is_left_out_is_said() {
        let mut tally = ExpiryTally::default();
        for n in 0..200_000 {
            tally.add(&due_in(n * 1000, 1));
            tally.add(&due_in(77_000, 5));
        }
        assert!(tally.seconds.len() <= ExpiryTally::SECONDS_MAX);
        let summary = tally.summary(5);
        assert_eq!(summary.storms[0].keys, 200_001, "the storm survives all pruning");
        assert!(summary.keys_unwatched > 0);
        let watched: u64 = tally.seconds.values().map(|second| second.keys).sum();
        assert_eq!(watched + summary.keys_unwatched, 400_000);
    }

    #[test]
    fn any_ttl_is_taken() {
        let mut tally = ExpiryTally::default();
        tally.add(&finding("k").expiry(Expiry::In(Duration::MAX)).build());
        tally.add(&finding("k").expiry(Expiry::Never).build());
        tally.add(&finding("k").expiry(Expiry::Unknown).build());
        let buckets: Vec<_> = tally.summary(5).buckets.iter().map(|(bucket, _)| *bucket).collect();
        assert_eq!(buckets, [TtlBucket::Longer, TtlBucket::Never, TtlBucket::Unknown]);
    }
}
