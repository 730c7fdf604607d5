//! How much a key would hurt.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How much a key would hurt, from the cost of freeing it on the command thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Nobody would notice.
    None,
    /// More than the server itself frees inline.
    Low,
    /// Milliseconds.
    Medium,
    /// Tens of milliseconds.
    High,
    /// A stall that people notice.
    Critical,
}

impl Level {
    /// All levels, lowest first.
    pub const ALL: [Self; 5] = [Self::None, Self::Low, Self::Medium, Self::High, Self::Critical];

    /// Returns the word used in flags and outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Allocations above which a key reaches a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Above this: low. 64 is the server's own `LAZYFREE_THRESHOLD`.
    pub low: u64,
    /// From here on: medium.
    pub medium: u64,
    /// From here on: high.
    pub high: u64,
    /// From here on: critical.
    pub critical: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { low: 64, medium: 10_000, high: 100_000, critical: 1_000_000 }
    }
}
