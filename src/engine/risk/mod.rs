//! Judges facts. Pure: no I/O, no clock, and the same facts always give the same verdict.

mod level;
mod policy;
mod verdict;

pub use level::{Level, Thresholds};
pub use policy::Policy;
pub use verdict::{AllocationsBasis, Effect, Effects, Verdict};
