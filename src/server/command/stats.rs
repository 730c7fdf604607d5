//! Counters of commands and connections: what INFO shows and CONFIG RESETSTAT clears.

use std::collections::BTreeMap;

use super::histogram::Histogram;
use super::table::Entry;

/// One command's numbers.
#[derive(Debug, Default)]
pub(crate) struct CommandStats {
    pub(crate) calls: u64,
    pub(crate) usec: u64,
    /// Refused before it ran.
    pub(crate) rejected: u64,
    /// Ran and answered with an error.
    pub(crate) failed: u64,
    pub(crate) latency: Option<Histogram>,
}

/// All numbers.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// By command id.
    commands: Vec<CommandStats>,
    /// By error code.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) total_errors: u64,
    pub(crate) total_commands: u64,
    pub(crate) connections: u64,
    pub(crate) rejected_connections: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) query_limit_disconnections: u64,
    pub(crate) output_limit_disconnections: u64,
    pub(crate) peak_memory: usize,
    pub(crate) cycles: u64,
    pub(crate) rate: Rate,
}

/// Codes kept apart; a script can make up any number of them.
const ERROR_CODES_MAX: usize = 128;

impl Stats {
    pub(crate) fn called(&mut self, entry: &Entry, took_us: u64, failed: bool, track: bool) {
        let stats = self.command_mut(entry.id);
        stats.calls += 1;
        stats.usec += took_us;
        stats.failed += u64::from(failed);
        if track {
            stats.latency.get_or_insert_default().record(took_us);
        }
        self.total_commands += 1;
    }

    pub(crate) fn rejected(&mut self, entry: &Entry) {
        self.command_mut(entry.id).rejected += 1;
    }

    pub(crate) fn error(&mut self, code: &[u8]) {
        self.total_errors += 1;
        let code = String::from_utf8_lossy(code);
        if self.errors.len() < ERROR_CODES_MAX || self.errors.contains_key(&*code) {
            *self.errors.entry(code.into_owned()).or_default() += 1;
        }
    }

    pub(crate) fn command(&self, id: usize) -> Option<&CommandStats> {
        self.commands.get(id).filter(|stats| stats.calls > 0 || stats.rejected > 0)
    }

    fn command_mut(&mut self, id: usize) -> &mut CommandStats {
        if id >= self.commands.len() {
            self.commands.resize_with(id + 1, CommandStats::default);
        }
        &mut self.commands[id]
    }

    /// Forgets everything but the peak, as CONFIG RESETSTAT does.
    pub(crate) fn reset(&mut self) {
        let kept = (self.peak_memory, self.cycles);
        *self = Stats::default();
        (self.peak_memory, self.cycles) = kept;
    }
}

/// What happened in the last second, sampled by cron.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    last: Option<(u64, [u64; 3])>,
    samples: std::collections::VecDeque<[u64; 3]>,
}

/// Redis averages over sixteen samples.
const RATE_SAMPLES: usize = 16;

impl Rate {
    /// Takes a sample of the running totals: commands, bytes in, bytes out.
    pub(crate) fn sample(&mut self, now_us: u64, totals: [u64; 3]) {
        if let Some((then_us, before)) = self.last {
            let elapsed = now_us.saturating_sub(then_us).max(1);
            let per_second: [u64; 3] =
                std::array::from_fn(|i| totals[i].saturating_sub(before[i]) * 1_000_000 / elapsed);
            if self.samples.len() == RATE_SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back(per_second);
        }
        self.last = Some((now_us, totals));
    }

    /// Returns the average per second of commands, bytes in and bytes out.
    pub(crate) fn per_second(&self) -> [u64; 3] {
        let count = u64::try_from(self.samples.len()).unwrap_or(1).max(1);
        std::array::from_fn(|i| self.samples.iter().map(|sample| sample[i]).sum::<u64>() / count)
    }
}
