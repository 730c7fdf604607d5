//! Holds everything back: the quota of commands, and the guard that watches what others wait.

mod guard;
mod histogram;
mod pacer;
mod quota;

pub use guard::{Guard, Pace};
pub use histogram::Histogram;
pub use pacer::Pacer;
pub use quota::Quota;
