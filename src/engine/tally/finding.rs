//! A key's facts with their verdict.

use serde::{Deserialize, Serialize};

use crate::engine::key::KeyFacts;
use crate::engine::risk::Verdict;

/// What was measured of a key and what follows from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Index into [`crate::engine::report::ScanReport::servers`]: where it lives.
    #[serde(skip)]
    pub server: usize,
    /// What was measured.
    pub facts: KeyFacts,
    /// What follows on this server.
    pub verdict: Verdict,
}
