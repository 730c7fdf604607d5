//! The flags of `scan`.

use clap::Args;

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
    /// What is peculiar to `scan`.
    #[command(flatten)]
    pub depth: DepthArgs,
}

/// How closely to look.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Server side")]
pub struct DepthArgs {
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
