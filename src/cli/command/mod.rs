//! The commands, one file each, and what they share.

mod connect;
mod delete;
mod demo;
mod generate;
mod scan;
mod serve;

pub(super) use delete::delete;
pub(super) use demo::demo;
pub(super) use generate::{completions, man};
pub(super) use scan::scan;
pub(super) use serve::serve;
