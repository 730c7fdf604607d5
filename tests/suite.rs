//! All integration tests, in one crate.
//!
//! They use the binaries and the public surface of each room, and real servers (`tests/run` installs
//! them). `support` is the laboratory; the other folders follow the rooms.

mod cli;
mod cluster;
mod delete;
mod engine;
#[cfg(feature = "server")]
mod server;
mod support;
