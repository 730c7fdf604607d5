//! What verdicts depend on besides the facts: this server, and where the levels begin.

use crate::engine::key::ServerProfile;

use super::Thresholds;

/// The server that a key lives on, and where the levels begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The server.
    pub server: ServerProfile,
    /// Where the levels begin.
    pub thresholds: Thresholds,
}
