//! What is judged of one key.

use serde::{Deserialize, Serialize};

use super::Level;

/// How the number of allocations is known; the `allocations_basis` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AllocationsBasis {
    /// Follows from counts that the server told.
    Counted,
    /// Rests on an estimate (quicklist nodes).
    Estimated,
    /// Cannot be known.
    Unknown,
}

impl AllocationsBasis {
    /// Returns the word used in the outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Estimated => "estimated",
            Self::Unknown => "unknown",
        }
    }
}

/// Where the freeing would happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// On the command thread: everybody waits.
    Inline,
    /// On the background thread.
    Background,
    /// Nothing would be freed (a key without TTL does not expire; a replica does not free).
    None,
    /// Depends on something that could not be found out.
    Unknown,
}

impl Effect {
    /// Returns the word used in the outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Background => "background",
            Self::None => "none",
            Self::Unknown => "unknown",
        }
    }
}

/// Where the value would be freed, by what removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    /// By `DEL`.
    pub del: Effect,
    /// By `UNLINK`.
    pub unlink: Effect,
    /// By its expiry.
    pub expire: Effect,
    /// By overwriting (`SET`, `RENAME` over it).
    pub overwrite: Effect,
}

/// What is judged of one key on one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The server's own estimate (`lazyfreeGetFreeEffort`). `None`: unknown, never 0.
    pub free_effort: Option<u64>,
    /// How many frees really happen.
    pub allocations: Option<u64>,
    /// How that is known.
    pub allocations_basis: AllocationsBasis,
    /// How much it would hurt. `None`: unknown.
    pub level: Option<Level>,
    /// Where it would be freed.
    pub effects: Effects,
    /// Prediction: how long everybody waits if it is freed on the command thread, in milliseconds.
    pub predicted_stall_ms: Option<f64>,
    /// Why, in words for a person; a sentence each.
    pub reasons: Vec<String>,
}
