//! What the key table holds: a value, when it was last used, and what it weighs.

use crate::server::value::Value;

/// One key's value and what eviction needs to know of it.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) value: Value,
    pub(crate) access: Access,
    /// The value's last known footprint in units of 16 bytes, so that it fits beside `access`.
    weight: u32,
}

/// One unit of [`Object`]'s weight: footprints are multiples of the smallest size class.
const WEIGHT_UNIT: usize = 16;

impl Object {
    pub(crate) fn new(value: Value, access: Access) -> Object {
        let mut object = Object { value, access, weight: 0 };
        object.weigh();
        object
    }

    /// Measures the value again and returns its footprint before and after.
    pub(crate) fn weigh(&mut self) -> (usize, usize) {
        let before = self.weight();
        let units = self.value.allocated_bytes(SAMPLES).div_ceil(WEIGHT_UNIT);
        self.weight = u32::try_from(units).unwrap_or(u32::MAX);
        (before, self.weight())
    }

    /// Returns the footprint at the last measurement, in bytes.
    pub(crate) fn weight(&self) -> usize {
        usize::try_from(self.weight).unwrap_or(usize::MAX).saturating_mul(WEIGHT_UNIT)
    }
}

/// Elements looked at to weigh a collection, as MEMORY USAGE does by default.
const SAMPLES: usize = 5;

/// When a value was last used: seconds (LRU), or minutes and a logarithmic counter (LFU).
///
/// Which of the two it is follows from the eviction policy, as in Redis; right after a switch
/// the numbers mean little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access(u32);

/// A new key starts here, so that it is not evicted at once.
const LFU_INITIAL: u32 = 5;
/// Above this the counter grows ever more slowly; 10 is Redis' `lfu-log-factor`.
const LFU_LOG_FACTOR: u32 = 10;

impl Access {
    pub(crate) fn new(now_ms: u64, lfu: bool) -> Access {
        if lfu { Access(minutes(now_ms) << 8 | LFU_INITIAL) } else { Access(seconds(now_ms)) }
    }

    /// Notes a use. `luck` is a random number: a frequent key's counter seldom moves.
    pub(crate) fn touch(&mut self, now_ms: u64, lfu: bool, luck: impl FnOnce() -> u32) {
        if !lfu {
            self.0 = seconds(now_ms);
            return;
        }
        let counter = self.frequency(now_ms);
        let base = counter.saturating_sub(LFU_INITIAL);
        let grows = counter < 255 && luck().is_multiple_of(base * LFU_LOG_FACTOR + 1);
        self.0 = minutes(now_ms) << 8 | (counter + u32::from(grows));
    }

    /// Makes the value look unused for so long, as RESTORE is told.
    pub(crate) fn set_idle(&mut self, now_ms: u64, idle_s: u64) {
        self.0 = seconds(now_ms).saturating_sub(u32::try_from(idle_s).unwrap_or(u32::MAX));
    }

    /// Makes the value look used so often, as RESTORE is told.
    pub(crate) fn set_frequency(&mut self, now_ms: u64, frequency: u8) {
        self.0 = minutes(now_ms) << 8 | u32::from(frequency);
    }

    pub(crate) fn idle_s(self, now_ms: u64) -> u64 {
        u64::from(seconds(now_ms).saturating_sub(self.0))
    }

    /// Returns the LFU counter, one lower for each minute without a use.
    pub(crate) fn frequency(self, now_ms: u64) -> u32 {
        let elapsed = minutes(now_ms).wrapping_sub(self.0 >> 8) & 0xffff;
        (self.0 & 0xff).saturating_sub(elapsed)
    }

    pub(crate) fn raw(self) -> u32 {
        self.0
    }
}

fn seconds(now_ms: u64) -> u32 {
    u32::try_from(now_ms / 1000).unwrap_or(u32::MAX)
}

fn minutes(now_ms: u64) -> u32 {
    u32::try_from((now_ms / 60_000) & 0xffff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_counts_from_the_last_use() {
        let mut access = Access::new(10_000, false);
        assert_eq!(access.idle_s(75_000), 65);
        access.touch(70_000, false, || 0);
        assert_eq!(access.idle_s(75_000), 5);
    }

    #[test]
    fn frequency_grows_with_luck_and_decays_by_the_minute() {
        let mut access = Access::new(0, true);
        for _ in 0..10 {
            access.touch(0, true, || 0);
        }
        assert_eq!(access.frequency(0), 15);
        access.touch(0, true, || 1);
        assert_eq!(access.frequency(0), 15);
        assert_eq!(access.frequency(4 * 60_000), 11);
    }
}
