//! The commands, one file each, and what they share.

mod connect;
mod generate;
mod scan;

pub(super) use generate::{completions, man};
pub(super) use scan::scan;
