//! The budget of commands per second, by governor's GCRA.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota as Rate, RateLimiter};

/// A budget of commands per second. The pace of the guard scales it, and gives one where there is none.
pub struct Quota {
    /// What the operator allows; `None` is no limit.
    ceiling: Option<f64>,
    /// What holds now.
    rate: Option<f64>,
    /// The part of the full pace that the guard allows.
    factor: f64,
    limiter: Option<DefaultDirectRateLimiter>,
    spent: u64,
    /// Commands per second that were reached without a limit, to have something to halve.
    reached: Reached,
}

/// A burst is this much of the budget: smooth for the server, and few enough round trips for us.
const BURST: Duration = Duration::from_millis(50);
/// No burst is smaller, or a budget of 10 a second could not send a pipeline of one key.
const BURST_MIN: u32 = 8;
/// No burst is larger: a pipeline holds this many commands at the most.
pub(crate) const BURST_MAX: u32 = 1024;

impl Quota {
    /// Makes a budget of so many commands per second; `None` is no limit.
    pub fn new(ceiling: Option<f64>) -> Self {
        let mut quota = Self {
            ceiling,
            rate: None,
            factor: 1.0,
            limiter: None,
            spent: 0,
            reached: Reached::new(Instant::now()),
        };
        quota.set(ceiling);
        quota
    }

    /// Returns how many commands may go in one piece.
    pub fn burst(&self) -> u32 {
        self.rate.map_or(BURST_MAX, burst)
    }

    /// Returns the budget that holds now, in commands per second.
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Returns how many commands were taken in all.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Returns the part of the full pace that the guard allows.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Takes the guard's pace over: a part of the ceiling, or of what was reached without one. Returns whether
    /// that is less than before.
    pub fn scale(&mut self, factor: f64) -> bool {
        let is_slower = factor < self.factor;
        self.factor = factor;
        let full = self.ceiling.unwrap_or_else(|| self.reached.peak());
        let rate = if factor >= 1.0 { self.ceiling } else { Some((full * factor).max(1.0)) };
        // Not for every percent: making a limiter anew forgets what it owes. But back to the full pace always.
        let moved = match (rate, self.rate) {
            (Some(new), Some(old)) if factor < 1.0 => (new / old - 1.0).abs() > 0.05,
            (new, old) => new != old,
        };
        if moved {
            self.set(rate);
        }
        is_slower
    }

    /// Takes commands, at most [`Self::burst`], from the budget. Returns how long to wait before asking
    /// again; zero: they are taken, and may be sent.
    pub fn take(&mut self, commands: u32) -> Duration {
        let wait = self.wait_for(commands);
        if wait.is_zero() {
            self.spent += u64::from(commands);
            // Under a limit, what is reached is the limit.
            if self.rate.is_none() {
                self.reached.add(commands, Instant::now());
            }
        }
        wait
    }

    fn wait_for(&self, commands: u32) -> Duration {
        let (Some(limiter), Some(commands)) = (&self.limiter, NonZeroU32::new(commands)) else {
            return Duration::ZERO;
        };
        match limiter.check_n(commands) {
            Ok(Err(not_until)) => {
                not_until.wait_time_from(DefaultClock::default().now()).max(Duration::from_micros(1))
            }
            // Granted. (More than a burst can never be; callers keep to it.)
            Ok(Ok(())) | Err(_) => Duration::ZERO,
        }
    }

    fn set(&mut self, rate: Option<f64>) {
        let limits_already = self.limiter.is_some();
        self.rate = rate;
        self.limiter = rate.map(|rate| {
            let period = Duration::from_secs_f64(1.0 / rate.clamp(0.001, 1e9));
            let burst = NonZeroU32::new(burst(rate)).expect("a burst is at least BURST_MIN");
            let quota = Rate::with_period(period).expect("a clamped rate has a period above zero");
            let limiter = RateLimiter::direct(quota.allow_burst(burst));
            // A new limiter starts with a whole burst in hand; a pace that changes often would run on those.
            if limits_already {
                let _ = limiter.check_n(burst);
            }
            limiter
        });
    }
}

fn burst(rate: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped right after")]
    let commands = (rate * BURST.as_secs_f64()) as u32;
    commands.clamp(BURST_MIN, BURST_MAX)
}

/// Commands per second that were reached, over windows of a tenth of a second.
struct Reached {
    since: Instant,
    commands: u32,
    peak: f64,
}

/// Long enough for a few pipelines, short enough to know the pace when the guard first asks for half.
const REACHED_WINDOW: Duration = Duration::from_millis(100);
/// A faster window than the peak is believed at once; a slower one pulls the peak down by this part.
const REACHED_DECAY: f64 = 0.05;

impl Reached {
    fn new(now: Instant) -> Self {
        Self { since: now, commands: 0, peak: 0.0 }
    }

    fn add(&mut self, commands: u32, now: Instant) {
        self.commands = self.commands.saturating_add(commands);
        let elapsed = now.duration_since(self.since);
        if elapsed >= REACHED_WINDOW {
            let rate = f64::from(self.commands) / elapsed.as_secs_f64();
            self.peak = rate.max(self.peak + (rate - self.peak) * REACHED_DECAY);
            self.since = now;
            self.commands = 0;
        }
    }

    /// What was reached, or a production pace while that is not known yet.
    fn peak(&self) -> f64 {
        if self.peak > 0.0 { self.peak } else { 10_000.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_never_waits() {
        let mut quota = Quota::new(None);
        assert_eq!(quota.take(1024), Duration::ZERO);
        assert_eq!(quota.spent(), 1024);
    }

    #[test]
    fn what_must_wait_is_not_spent_yet() {
        let mut quota = Quota::new(Some(100.0));
        assert_eq!(quota.burst(), BURST_MIN);
        assert_eq!(quota.take(8), Duration::ZERO);
        assert!(quota.take(8) > Duration::from_millis(50));
        assert_eq!(quota.spent(), 8);
    }

    #[test]
    fn the_guard_gives_a_limit_where_there_was_none_and_takes_it_back() {
        let mut quota = Quota::new(None);
        quota.scale(0.5);
        assert_eq!(quota.rate(), Some(5_000.0));
        quota.scale(1.0);
        assert_eq!(quota.rate(), None);
    }
}
