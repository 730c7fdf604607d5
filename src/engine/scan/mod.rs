//! The scan pipeline: a cursor, pages, facts, verdicts, a report.
//!
//! [`run`] connects, probes the server, lets the canary measure its baseline, and walks one database
//! after the other. What is in flight when is decided in `walk`, what is asked of which key in `select`;
//! both stay within the pace of `pacer`.

mod acl;
mod checkpoint;
mod chorus;
mod cluster;
mod config;
mod deployment;
mod error;
mod filter;
mod glob;
mod keysizes;
mod list_probe;
mod node;
mod report;
mod run;
mod select;
mod walk;
mod window;

pub(crate) use acl::{AclKeys, acl_key_patterns, acl_reading_commands};
pub use acl::{acl_remarks, acl_rule};
pub use checkpoint::Checkpoint;
pub use config::{
    Checkpoints, Count, Databases, Filter, Preference, ScanConfig, Target, TargetKind, TtlFilter,
};
pub(crate) use deployment::ask_sentinels;
pub use error::ScanError;
pub use glob::glob_matches;
pub(crate) use report::CanarySums;
pub use run::{KeySource, look, run};
