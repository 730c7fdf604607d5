//! How fast to go, and when to stop.

use std::time::Duration;

use clap::Args;

use super::value::{Rate, parse_duration_not_zero, parse_rate};

/// How fast to go, and when to stop.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Pace and guard")]
pub struct PaceArgs {
    /// Commands per second: 500/s, 10k/s, max
    ///
    /// It holds for all commands and for the whole run; `max` is no limit. The latency guard
    /// works in either case.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, default_value = "10k/s", value_parser = parse_rate)]
    pub rate: Rate,

    /// Commands per second on each server of several
    ///
    /// The budget of --rate is shared by all servers; this bounds what any one of them gets of it.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, default_value = "max", value_parser = parse_rate)]
    pub rate_per_node: Rate,

    /// Slow down above this latency
    ///
    /// It is the round trip of a PING on a second connection, sent some 20 times a second. Above this the pace
    /// halves, and recovers slowly.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, default_value = "10ms", value_parser = parse_duration_not_zero)]
    pub max_latency: Duration,

    /// Stop above this latency, exit 4
    ///
    /// The partial result is written, and marked.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, default_value = "250ms", value_parser = parse_duration_not_zero)]
    pub abort_latency: Duration,
}
