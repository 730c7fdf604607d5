//! The binary as a user runs it.

mod connect;
mod ending;
mod formats;
mod terminal;
