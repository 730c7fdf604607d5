//! Judges facts. Pure: no I/O, no clock, and the same facts always give the same verdict.
//!
//! In reading order: [`free_effort`] is what the server thinks of a value, [`allocations`] what freeing it
//! really takes, `effects` where that would happen, `stall` how long, and [`judge`] puts it into words.
//! [`may_matter`] says beforehand which keys cannot be worth the questions. docs/risk-model.md has the
//! reasons and the measurements.

mod allocations;
mod assume;
mod candidate;
mod effects;
mod effort;
mod judge;
mod level;
mod policy;
pub mod quicklist;
#[cfg(test)]
pub(in crate::engine) mod samples;
mod stall;
mod verdict;
mod words;

pub use allocations::{Allocations, allocations};
pub use candidate::may_matter;
pub use effort::{LAZYFREE_THRESHOLD, free_effort};
pub use judge::{judge, level};
pub use level::{Level, Thresholds};
pub use policy::Policy;
pub use verdict::{AllocationsBasis, Effect, Effects, Verdict};
