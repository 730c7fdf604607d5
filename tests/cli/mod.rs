//! The binary as a user runs it.

#[cfg(feature = "server")]
mod bundled;
mod connect;
mod ending;
mod formats;
mod terminal;
