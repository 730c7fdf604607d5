//! The bundled server: a Redis in Rust that stalls like the real one.
//!
//! One thread runs commands, another frees what UNLINK hands it. Reading order: `event_loop` turns,
//! `client` reads and writes, `exchange` has requests carried out, `resp` knows the wire, `command` runs,
//! `keyspace` keeps, `value` holds.

mod client;
mod clock;
mod command;
#[cfg(test)]
mod compatibility;
mod config;
mod config_file;
mod event_loop;
mod exchange;
mod fault;
mod in_process;
mod info;
mod keyspace;
mod net;
mod number;
mod rdb;
mod resp;
pub mod seed;
pub mod value;

pub use clock::{Clock, ManualClock, SystemClock};
pub use config::Config;
pub use config_file::ConfigFileError;
pub use event_loop::{Handle, Server};
pub use fault::{Fault, FaultAction, Faults};
pub use in_process::InProcess;
