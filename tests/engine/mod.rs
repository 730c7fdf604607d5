//! The engine against real servers.

mod bench;
