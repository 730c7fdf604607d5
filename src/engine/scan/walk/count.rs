//! COUNT follows what the last SCAN took.

use std::time::Duration;

use crate::engine::scan::config::Count;

/// Adapts COUNT.
///
/// What is measured is the round trip of a SCAN, less that of an idle PING. Behind what else is in flight
/// on the connection it can only look longer than it is, so COUNT errs to the small side.
pub(super) struct CountTuner {
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
    /// Names of a page, in bytes, above which COUNT is halved: a page of megabyte names is large enough.
    const NAMES_BYTES: usize = 1 << 20;

    pub(super) fn new(count: Count, network: Duration) -> Self {
        match count {
            Count::Auto => Self { count: Self::START, is_fixed: false, network },
            Count::Fixed(count) => Self { count, is_fixed: true, network },
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Takes what a SCAN took, and how many bytes of names it gave.
    pub(super) fn observe(&mut self, round_trip: Duration, names_bytes: usize) {
        if self.is_fixed {
            return;
        }
        let elapsed = round_trip.saturating_sub(self.network);
        if elapsed > Self::SLOW || names_bytes > Self::NAMES_BYTES {
            self.count = (self.count / 2).max(Self::MIN);
        } else if elapsed < Self::FAST {
            self.count = (self.count + self.count / 4).min(Self::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn count_falls_fast_and_stays_in_its_bounds() {
        let mut tuner = CountTuner::new(Count::Auto, MS);
        for _ in 0..100 {
            tuner.observe(MS, 0);
        }
        assert_eq!(tuner.count(), CountTuner::MAX);
        tuner.observe(20 * MS, 0);
        assert_eq!(tuner.count(), CountTuner::MAX / 2);
        tuner.observe(MS, 64 << 20);
        assert_eq!(tuner.count(), CountTuner::MAX / 4);
        for _ in 0..100 {
            tuner.observe(20 * MS, 0);
        }
        assert_eq!(tuner.count(), CountTuner::MIN);
    }

    #[test]
    fn a_fixed_count_stays() {
        let mut tuner = CountTuner::new(Count::Fixed(7), Duration::ZERO);
        tuner.observe(1000 * MS, 0);
        assert_eq!(tuner.count(), 7);
    }
}
