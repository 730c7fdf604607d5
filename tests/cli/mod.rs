//! The binary as a user runs it.

#[cfg(feature = "server")]
mod bundled;
mod checkpoint;
mod connect;
mod delete_asks;
mod delete_ends;
mod delete_input;
mod ending;
mod formats;
mod terminal;
