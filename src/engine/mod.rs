//! The library: knows keys, never a terminal.
//!
//! Reading order: [`key`] is the vocabulary, [`live`] measures, [`risk`] judges, [`tally`] ranks and
//! adds up, [`report`] writes, [`pace`] holds everything back, and [`scan`] is the pipeline through
//! them all:
//!
//! ```text
//! Endpoint -> Cursor -> KeyBatch -> KeyFacts -> Verdict -> Finding -> Tally -> Report -> bytes
//! ```
//!
//! `scan` may use the rest; `report` uses `tally`, which uses `risk`, which uses `key`; `live` uses
//! `key` and `pace`. Never leftwards. Nothing here prints, reads the environment, or knows what a flag is.

pub mod delete;
pub mod event;
pub mod key;
pub mod live;
pub mod pace;
pub mod report;
pub mod risk;
pub mod scan;
pub mod tally;
