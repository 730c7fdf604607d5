//! The flags of `scan`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::engine::scan::Count;

use super::value::{parse_count_from_one, parse_count_u32, parse_duration_not_zero, parse_scan_count};
use super::{ConnectArgs, ConsoleArgs, FilterArgs, OutputArgs, PaceArgs};

/// What was typed after `bigkeys scan`.
#[derive(Debug, Clone, Args)]
pub struct ScanArgs {
    /// Where the server is.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Which keys are wanted.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// How fast to go.
    #[command(flatten)]
    pub pace: PaceArgs,
    /// What is written.
    #[command(flatten)]
    pub output: OutputArgs,
    /// What is said beside it.
    #[command(flatten)]
    pub console: ConsoleArgs,
    /// How to go on another time.
    #[command(flatten)]
    pub resume: ResumeArgs,
    /// What is peculiar to `scan`.
    #[command(flatten)]
    pub depth: DepthArgs,
}

/// How to go on another time.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Resuming")]
pub struct ResumeArgs {
    /// Keep a file from which the scan can be resumed
    ///
    /// It holds how far the scan is and all that it counted so far, is written anew every few seconds, and is removed
    /// when the scan is whole. It must not exist yet. Nothing is written to the server. For one server or one
    /// node of a cluster.
    #[arg(long, value_name = "FILE", conflicts_with = "sample")]
    pub checkpoint: Option<PathBuf>,

    /// Go on with the scan of this checkpoint
    ///
    /// With the same address, filters and outputs as before. Files named with -o go on where they were, and in the
    /// end hold what an undisturbed scan would have written; stdout has only what comes from here on. If the server restarted, or is another one, its
    /// cursors mean nothing: the scan says so and begins anew. The checkpoint is kept up in the same file, or the one
    /// that --checkpoint names.
    #[arg(long, value_name = "FILE", conflicts_with = "sample")]
    pub resume_scan: Option<PathBuf>,

    /// Time between two checkpoints
    ///
    /// For each, the scan lets what is in flight come in: some round trips.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, default_value = "5s", value_parser = parse_duration_not_zero)]
    pub checkpoint_period: Duration,
}

/// How closely to look.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Server side")]
pub struct DepthArgs {
    /// Measure about so many keys at random, not all
    ///
    /// They are found at random cursors. The report then says that it is a sample; the biggest keys may be
    /// missing from it.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = parse_count_from_one)]
    pub sample: Option<u64>,

    /// Keys per SCAN call: auto or a number
    ///
    /// `auto` adapts it to the measured time of the last call. A fixed number
    /// above 10k blocks the server for milliseconds a call, and needs --i-know-this-blocks.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, default_value = "auto", value_parser = parse_scan_count)]
    pub count: Count,

    /// Elements that MEMORY USAGE samples in each key
    ///
    /// More is closer to the truth and blocks the server for longer; above 1000, and for 0 (all elements: 0.7 s for a million members),
    /// --i-know-this-blocks is needed.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, default_value = "5", value_parser = parse_count_u32)]
    pub samples: u32,

    /// Allow settings that block the server
    ///
    /// Values of --samples and --count with which single commands block the server: for a replica that nobody
    /// reads.
    #[arg(long)]
    pub i_know_this_blocks: bool,

    /// Count list nodes exactly, with DEBUG OBJECT
    ///
    /// Where the server and this user's permissions allow it, and for lists up to 1 MiB: DEBUG OBJECT serialises
    /// the whole value, 1 to 2 ms a MiB during which the server answers nobody. With --i-know-this-blocks, for
    /// lists of any size. The others are estimated, and marked so.
    #[arg(long)]
    pub exact_lists: bool,

    /// Print the smallest ACL rule that this scan needs, and exit
    ///
    /// It is the rule for these flags, as arguments of ACL SETUSER. No server is asked.
    #[arg(long)]
    pub print_acl: bool,
}
