//! Active expiry: reaping keys that nobody asks for, a slice of time at a time.
//!
//! Twenty keys of the table of deadlines are looked at. If more than a tenth of them were due,
//! there are probably many more, so it goes on with the next twenty; if fewer, the memory they
//! hold is not worth the time. Either way a cycle ends when its slice is used up: a quarter of
//! the cron period for the slow cycle, a millisecond for the fast one that runs before sleeping
//! when the last slow cycle ran out of time. Walking with the table's cursor rather than at
//! random makes sure that every key is looked at some day.
//!
//! What it cannot do: look at the clock while one value is freed. A million-member set whose
//! time has come is dropped whole, however long that takes, unless `lazyfree-lazy-expire` is on.
//! The clock is read every sixteenth round, as in Redis, so small values overrun a little too.

use super::Keyspace;
use super::db::{Db, Key};
use crate::server::clock::Clock;

const KEYS_PER_LOOP: usize = 20;
const ACCEPTABLE_STALE_PERCENT: usize = 10;
const SLOW_TIME_PERCENT: u64 = 25;
const FAST_DURATION_US: u64 = 1000;
/// Buckets walked per key wanted: a sparse table must not turn a slice into a walk.
const BUCKETS_PER_KEY: usize = 20;

/// Which of the two cycles runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cycle {
    /// From cron, `hz` times a second.
    Slow,
    /// Before sleeping.
    Fast,
}

/// What the cycle remembers between its slices.
#[derive(Debug)]
pub(crate) struct ActiveExpire {
    /// DEBUG SET-ACTIVE-EXPIRE turns it off.
    pub(crate) enabled: bool,
    /// `active-expire-effort`, 1 to 10.
    pub(crate) effort: u64,
    next_db: usize,
    ran_out_of_time: bool,
    last_fast_us: u64,
    /// `expired_stale_perc`, a running average.
    pub(crate) stale_percent: f64,
    /// `expired_time_cap_reached_count`
    pub(crate) time_cap_reached: u64,
}

impl Default for ActiveExpire {
    fn default() -> ActiveExpire {
        ActiveExpire {
            enabled: true,
            effort: 1,
            next_db: 0,
            ran_out_of_time: false,
            last_fast_us: 0,
            stale_percent: 0.0,
            time_cap_reached: 0,
        }
    }
}

/// The limits of one slice, from the effort and the cron frequency.
struct Slice {
    keys_per_loop: usize,
    acceptable_stale_percent: usize,
    end_us: u64,
}

/// While a table shrinks, one step of its cursor walks all the old buckets that become one: a
/// thousand and more of them after a storm of expiries.
fn buckets_per_step(db: &Db) -> usize {
    let (old, new) = db.expires.table_sizes();
    old.checked_div(new).unwrap_or(1).max(1)
}

impl Keyspace {
    /// Runs one slice of the cycle.
    pub(crate) fn active_expire(&mut self, cycle: Cycle, hz: u64, clock: &dyn Clock) {
        if !self.active_expire.enabled {
            return;
        }
        let start_us = clock.monotonic_us();
        let effort = self.active_expire.effort.clamp(1, 10) - 1;
        let effort_keys = usize::try_from(effort).unwrap_or(0);
        let acceptable = ACCEPTABLE_STALE_PERCENT - effort_keys;
        let fast_us = FAST_DURATION_US + FAST_DURATION_US / 4 * effort;
        let budget_us = match cycle {
            Cycle::Slow => (SLOW_TIME_PERCENT + 2 * effort) * 1_000_000 / hz.max(1) / 100,
            Cycle::Fast => {
                let stale = self.active_expire.stale_percent;
                let needed = self.active_expire.ran_out_of_time || stale >= acceptable as f64;
                if !needed || start_us < self.active_expire.last_fast_us + fast_us * 2 {
                    return;
                }
                self.active_expire.last_fast_us = start_us;
                fast_us
            }
        };
        let slice = Slice {
            keys_per_loop: KEYS_PER_LOOP + KEYS_PER_LOOP / 4 * effort_keys,
            acceptable_stale_percent: acceptable,
            end_us: start_us + budget_us.max(1),
        };
        self.active_expire.ran_out_of_time = false;
        let (mut sampled, mut expired) = (0, 0);
        for _ in 0..self.dbs.len() {
            if self.active_expire.ran_out_of_time {
                break;
            }
            let db = self.active_expire.next_db % self.dbs.len();
            self.active_expire.next_db = self.active_expire.next_db.wrapping_add(1);
            let (db_sampled, db_expired) = self.expire_db(db, &slice, clock);
            sampled += db_sampled;
            expired += db_expired;
        }
        if self.active_expire.ran_out_of_time {
            self.active_expire.time_cap_reached += 1;
        }
        let current = if sampled == 0 { 0.0 } else { expired as f64 / sampled as f64 * 100.0 };
        self.active_expire.stale_percent = current * 0.05 + self.active_expire.stale_percent * 0.95;
    }

    /// Works on one database until little is stale there or time is up.
    fn expire_db(&mut self, db: usize, slice: &Slice, clock: &dyn Clock) -> (usize, usize) {
        let (mut all_sampled, mut all_expired) = (0, 0);
        for round in 1_u32.. {
            let (filled, buckets) = self.dbs[db].volatile_fill();
            // Below one percent the walk costs more than it finds; a resize will come.
            if filled == 0 || (buckets > 16 && filled * 100 / buckets < 1) {
                self.dbs[db].avg_ttl_ms = if filled == 0 { 0 } else { self.dbs[db].avg_ttl_ms };
                break;
            }
            self.now_ms = clock.unix_ms();
            let (sampled, due) = self.sample_deadlines(db, slice.keys_per_loop.min(filled));
            for key in &due {
                self.expire_now(db, key);
                self.stats.expired_active += 1;
            }
            all_sampled += sampled;
            all_expired += due.len();
            // The clock is not free either, unless the rounds are dear.
            let look = round % 16 == 0 || buckets_per_step(&self.dbs[db]) > 64;
            if look && clock.monotonic_us() > slice.end_us {
                self.active_expire.ran_out_of_time = true;
                break;
            }
            if sampled > 0 && due.len() * 100 / sampled <= slice.acceptable_stale_percent {
                break;
            }
        }
        (all_sampled, all_expired)
    }

    /// Looks at the next deadlines: how many, and which keys are due.
    fn sample_deadlines(&mut self, db: usize, wanted: usize) -> (usize, Vec<Key>) {
        let now_ms = self.now_ms;
        let db = &mut self.dbs[db];
        let mut due = Vec::new();
        let (mut sampled, mut live, mut live_ttl_ms) = (0, 0, 0);
        for _ in 0..(wanted * BUCKETS_PER_KEY / buckets_per_step(db)).max(1) {
            db.expire_cursor = db.expires.scan(db.expire_cursor, |key, at_ms| {
                sampled += 1;
                if *at_ms < now_ms {
                    due.push(key.clone());
                } else {
                    live += 1;
                    live_ttl_ms += at_ms - now_ms;
                }
            });
            if sampled >= wanted {
                break;
            }
        }
        if let Some(average) = live_ttl_ms.checked_div(live) {
            let known = if db.avg_ttl_ms == 0 { average } else { db.avg_ttl_ms };
            db.avg_ttl_ms = known / 50 * 49 + average / 50;
        }
        (sampled, due)
    }
}
