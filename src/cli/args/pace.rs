//! How fast to go, and when to stop.

use std::time::Duration;

use clap::Args;

use crate::engine::scan::Count;

use super::value::{Rate, parse_count_u32, parse_duration_not_zero, parse_rate, parse_scan_count};

/// How fast to go, and when to stop.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Pace and guard")]
pub struct PaceArgs {
    /// Commands per second: 500/s, 10k/s, max
    ///
    /// It holds for all commands of the scan and for the whole run; `max` is no limit. The latency guard
    /// works in either case.
    #[arg(long, value_name = "RATE", default_value = "10k/s", value_parser = parse_rate)]
    pub rate: Rate,

    /// Keys per SCAN call: auto or a number
    ///
    /// `auto` adapts it to the measured time of the last call. A fixed number
    /// above 10k blocks the server for milliseconds a call, and needs --i-know-this-blocks.
    #[arg(long, value_name = "COUNT", default_value = "auto", value_parser = parse_scan_count)]
    pub count: Count,

    /// Slow down above this latency
    ///
    /// It is the round trip of a PING on a second connection, sent some 20 times a second. Above this the pace
    /// halves, and recovers slowly.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration_not_zero)]
    pub max_latency: Duration,

    /// Stop above this latency, exit 4
    ///
    /// The partial result is written, and marked.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_duration_not_zero)]
    pub abort_latency: Duration,

    /// Elements that MEMORY USAGE samples in each key
    ///
    /// More is closer to the truth and blocks the server for longer; above 1000, and for 0 (all elements: 0.7 s for a million members),
    /// --i-know-this-blocks is needed.
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = parse_count_u32)]
    pub samples: u32,

    /// Allow settings that block the server
    ///
    /// Values of --samples and --count with which single commands block the server: for a replica that nobody
    /// reads.
    #[arg(long)]
    pub i_know_this_blocks: bool,
}
