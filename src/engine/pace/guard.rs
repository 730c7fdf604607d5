//! Decides from round trips how fast to go. Reads no clock and sends nothing: the caller sends the PING
//! and passes the duration in.
//!
//! Above `latency_max` the pace halves at once; below it recovers by 2 % an observation, so that at 20
//! PINGs a second it takes about two seconds to double. Falling fast and rising slowly is what keeps a
//! shared budget stable (AIMD). Above `latency_abort` the run is over.

use std::time::Duration;

/// What the guard wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Go on, at this part of the full pace.
    Go {
        /// From [`Guard::FACTOR_MIN`] to 1.
        factor: f64,
    },
    /// Stop: another client waited this long.
    Stop(Duration),
}

/// Watches round trips.
#[derive(Debug, Clone)]
pub struct Guard {
    latency_max: Duration,
    latency_abort: Duration,
    factor: f64,
    calm: u32,
}

impl Guard {
    /// The slowest pace, as a part of the full one.
    pub const FACTOR_MIN: f64 = 1.0 / 256.0;
    /// Gain of an observation below `latency_max`.
    const RECOVERY: f64 = 1.02;
    /// Observations that must pass between two halvings: one stall is often seen by two PINGs.
    const HALVING_GAP: u32 = 2;

    /// Makes a guard that halves above `latency_max` and stops above `latency_abort`.
    pub fn new(latency_max: Duration, latency_abort: Duration) -> Self {
        Self { latency_max, latency_abort, factor: 1.0, calm: Self::HALVING_GAP }
    }

    /// Returns the round trip above which the pace halves.
    pub fn latency_max(&self) -> Duration {
        self.latency_max
    }

    /// Returns the round trip above which the run stops.
    pub fn latency_abort(&self) -> Duration {
        self.latency_abort
    }

    /// Takes a round trip and returns what follows.
    pub fn observe(&mut self, round_trip: Duration) -> Pace {
        if round_trip >= self.latency_abort {
            return Pace::Stop(round_trip);
        }
        if round_trip > self.latency_max {
            if self.calm >= Self::HALVING_GAP {
                self.factor = (self.factor / 2.0).max(Self::FACTOR_MIN);
            }
            self.calm = 0;
        } else {
            self.calm = self.calm.saturating_add(1);
            self.factor = (self.factor * Self::RECOVERY).min(1.0);
        }
        Pace::Go { factor: self.factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn guard() -> Guard {
        Guard::new(10 * MS, 250 * MS)
    }

    #[test]
    fn a_calm_server_is_scanned_at_full_pace() {
        let mut guard = guard();
        for _ in 0..100 {
            assert_eq!(guard.observe(MS), Pace::Go { factor: 1.0 });
        }
    }

    #[test]
    fn a_slow_answer_halves_and_recovery_is_slow() {
        let mut guard = guard();
        assert_eq!(guard.observe(11 * MS), Pace::Go { factor: 0.5 });
        let mut observations = 0;
        while guard.observe(MS) != (Pace::Go { factor: 1.0 }) {
            observations += 1;
        }
        assert!((30..40).contains(&observations), "{observations} observations to double");
    }

    #[test]
    fn the_same_stall_seen_twice_halves_once() {
        let mut guard = guard();
        guard.observe(40 * MS);
        assert_eq!(guard.observe(40 * MS), Pace::Go { factor: 0.5 });
    }

    #[test]
    fn the_pace_never_falls_to_nothing() {
        let mut guard = guard();
        let mut pace = Pace::Go { factor: 1.0 };
        for _ in 0..100 {
            guard.observe(MS);
            guard.observe(MS);
            pace = guard.observe(20 * MS);
        }
        assert_eq!(pace, Pace::Go { factor: Guard::FACTOR_MIN });
    }

    #[test]
    fn an_answer_at_the_abort_level_stops() {
        assert_eq!(guard().observe(250 * MS), Pace::Stop(250 * MS));
    }
}
