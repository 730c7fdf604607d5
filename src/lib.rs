//! `bigkeys` finds the keys that would stall a Redis or Valkey server, says what deleting or
//! expiring each of them would do, and removes them so that no other client notices.
//!
//! Three rooms, each a cargo feature, with walls the compiler checks:
//!
//! - [`engine`]: the library. It knows keys and never a terminal.
//! - [`server`]: the bundled server, our test oracle. It shares no code with the engine.
//! - [`cli`]: the front desk. Words in, words out; it decides nothing about keys.

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "server")]
pub mod server;
