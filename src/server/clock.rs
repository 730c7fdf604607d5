//! Time, passed in so that tests can move it. Nothing else in the server reads a clock.

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
}
