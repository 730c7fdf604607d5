//! All integration tests, in one crate.
