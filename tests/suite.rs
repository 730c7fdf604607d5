//! All integration tests, in one crate.

#[cfg(feature = "server")]
mod server;
