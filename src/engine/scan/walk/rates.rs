//! Keys and commands per second, smoothed over about a second.

use std::time::Duration;

/// Smoothed rates.
#[derive(Default)]
pub(super) struct Rates {
    pub(super) keys: f64,
    pub(super) commands: f64,
    keys_before: u64,
    commands_before: u64,
}

impl Rates {
    /// Takes the totals after some time.
    pub(super) fn observe(&mut self, keys: u64, commands: u64, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let weight = if self.commands == 0.0 { 1.0 } else { seconds / (seconds + 1.0) };
        let blend = |old: f64, new: f64| old + (new - old) * weight;
        self.keys = blend(self.keys, keys.saturating_sub(self.keys_before) as f64 / seconds);
        self.commands = blend(self.commands, commands.saturating_sub(self.commands_before) as f64 / seconds);
        (self.keys_before, self.commands_before) = (keys, commands);
    }
}
