//! Time and randomness, passed in so that tests can move the one and repeat the other.
//! Nothing else in the server reads a clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the server gets the time from.
pub trait Clock: Send + Sync {
    /// Returns the wall clock: milliseconds since the Unix epoch. TTLs are measured against it.
    fn unix_ms(&self) -> u64;

    /// Returns microseconds since some fixed moment; never goes backwards. Durations come from it.
    fn monotonic_us(&self) -> u64;

    /// Blocks the calling thread, as `DEBUG SLEEP` and the delay fault do.
    fn sleep(&self, time: Duration);
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Returns a clock whose monotonic reading starts at zero now.
    #[allow(clippy::disallowed_methods, reason = "this file owns the clock")]
    pub fn new() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn unix_ms(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    #[allow(clippy::disallowed_methods, reason = "this file owns the clock")]
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A clock that stands still until a test moves it; sleeping on it moves it too.
#[derive(Debug)]
pub struct ManualClock {
    epoch_ms: u64,
    elapsed_us: AtomicU64,
}

impl ManualClock {
    /// Returns a clock that says `unix_ms` until it is moved.
    pub fn at(unix_ms: u64) -> ManualClock {
        ManualClock { epoch_ms: unix_ms, elapsed_us: AtomicU64::new(0) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.elapsed_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn unix_ms(&self) -> u64 {
        self.epoch_ms + self.monotonic_us() / 1000
    }

    fn monotonic_us(&self) -> u64 {
        self.elapsed_us.load(Ordering::Relaxed)
    }

    fn sleep(&self, time: Duration) {
        self.advance(time);
    }
}

/// SplitMix64: small, seedable, and good enough to pick a key with. Not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn seeded(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns forty hexadecimal digits, as run and replication ids are.
    pub(crate) fn hex40(&mut self) -> String {
        let digits = format!("{:016x}{:016x}{:016x}", self.next(), self.next(), self.next());
        digits[..40].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::at(1_000);
        assert_eq!(clock.unix_ms(), 1_000);
        clock.advance(Duration::from_millis(250));
        clock.sleep(Duration::from_millis(50));
        assert_eq!((clock.unix_ms(), clock.monotonic_us()), (1_300, 300_000));
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b) = (Rng::seeded(7), Rng::seeded(7));
        assert_eq!((a.next(), a.hex40()), (b.next(), b.hex40()));
        assert_eq!(a.hex40().len(), 40);
    }
}
