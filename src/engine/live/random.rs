//! Numbers that nobody can guess, for probes and samples.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a number that nobody can guess, from the standard library's random hasher keys.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
