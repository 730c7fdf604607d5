//! Round trips in bounded memory.

use std::time::Duration;

use hdrhistogram::Histogram as Hdr;

/// Percentiles of round trips, from 1 us to 1 min with three digits, and the exact maximum.
#[derive(Debug, Clone)]
pub struct Histogram {
    inner: Hdr<u32>,
    threshold: Duration,
    over_threshold: u64,
    max: Duration,
}

/// Round trips above this are recorded as this; the maximum stays exact.
const LONGEST_US: u64 = 60_000_000;

impl Histogram {
    /// Makes an empty one that also counts what is above a threshold.
    #[expect(clippy::missing_panics_doc, reason = "the bounds are constants, and valid")]
    pub fn new(threshold: Duration) -> Self {
        let inner =
            Hdr::new_with_bounds(1, LONGEST_US, 3).expect("1 us to 1 min with 3 digits is a valid range");
        Self { inner, threshold, over_threshold: 0, max: Duration::ZERO }
    }

    /// Records a round trip.
    pub fn record(&mut self, round_trip: Duration) {
        let us = u64::try_from(round_trip.as_micros()).unwrap_or(LONGEST_US);
        self.inner.saturating_record(us.clamp(1, LONGEST_US));
        self.max = self.max.max(round_trip);
        self.over_threshold += u64::from(round_trip > self.threshold);
    }

    /// Adds the round trips of another server.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.inner.add(&other.inner);
        self.over_threshold += other.over_threshold;
        self.max = self.max.max(other.max);
    }

    /// Returns the number of round trips.
    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// Returns the round trip that this part of all (0 to 1) does not exceed; zero when there are none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.inner.value_at_quantile(quantile)).min(self.max)
    }

    /// Returns the longest round trip.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Returns how many were above the threshold.
    pub fn over_threshold(&self) -> u64 {
        self.over_threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_one_off_stall_shows_in_max_and_not_in_p99() {
        let mut histogram = Histogram::new(Duration::from_millis(10));
        for _ in 0..999 {
            histogram.record(Duration::from_micros(100));
        }
        histogram.record(Duration::from_millis(120));
        assert_eq!(histogram.quantile(0.99), Duration::from_micros(100));
        assert_eq!(histogram.max(), Duration::from_millis(120));
        assert_eq!(histogram.over_threshold(), 1);
    }
}
