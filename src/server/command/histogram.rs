//! Latencies in bounded memory: sixteen linear steps in every power of two, so a value is known
//! to about six percent.

/// Steps per power of two.
const STEPS: usize = 16;
/// Powers of two above the first sixteen values; 2^36 us is nineteen hours.
const OCTAVES: usize = 32;

/// Counts of durations in microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; STEPS * (OCTAVES + 1)].into(), total: 0 }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, us: u64) {
        self.counts[slot(us)] += 1;
        self.total += 1;
    }

    /// Returns the value below which `percent` of the records are.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let wanted = (self.total as f64 * percent / 100.0).ceil();
        let mut seen = 0;
        for (slot, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen as f64 >= wanted {
                return upper(slot);
            }
        }
        0
    }

    /// Returns cumulative counts by power of two, as LATENCY HISTOGRAM shows them, without the
    /// steps at which nothing is added.
    pub(crate) fn by_power_of_two(&self) -> Vec<(u64, u64)> {
        let mut rows = Vec::new();
        let (mut limit, mut seen, mut shown) = (1, 0, 0);
        for (slot, count) in self.counts.iter().enumerate() {
            while upper(slot) > limit {
                if seen > shown {
                    rows.push((limit, seen));
                    shown = seen;
                }
                limit *= 2;
            }
            seen += count;
        }
        if seen > shown {
            rows.push((limit, seen));
        }
        rows
    }
}

fn slot(us: u64) -> usize {
    let small = usize::try_from(us).unwrap_or(usize::MAX);
    if small < STEPS {
        return small;
    }
    let octave = usize::try_from(us.ilog2()).unwrap_or(0) - 4;
    if octave >= OCTAVES {
        return STEPS * (OCTAVES + 1) - 1;
    }
    let step = usize::try_from(us >> octave).unwrap_or(0) - STEPS;
    STEPS * (octave + 1) + step
}

/// Returns the largest value of a slot.
fn upper(slot: usize) -> u64 {
    if slot < STEPS {
        return slot as u64;
    }
    let (octave, step) = (slot / STEPS - 1, slot % STEPS);
    (((STEPS + step + 1) as u64) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_six_percent() {
        let mut histogram = Histogram::default();
        for us in 1..=10_000 {
            histogram.record(us);
        }
        for (percent, exact) in [(50.0, 5000.0), (99.0, 9900.0), (99.9, 9990.0)] {
            let found = histogram.percentile(percent) as f64;
            assert!((found - exact).abs() / exact < 0.0625, "{percent}: {found}");
        }
    }

    #[test]
    fn slots_cover_all_durations() {
        for us in [0, 1, 15, 16, 17, 31, 32, 1000, 1 << 35, u64::MAX] {
            let slot = slot(us);
            assert!(upper(slot) >= us.min((1 << 36) - 1), "{us}");
        }
    }

    #[test]
    fn powers_of_two_accumulate() {
        let mut histogram = Histogram::default();
        for us in [1, 1, 3, 100] {
            histogram.record(us);
        }
        assert_eq!(histogram.by_power_of_two(), [(1, 2), (4, 3), (128, 4)]);
    }
}
