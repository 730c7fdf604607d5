//! What is written, and where to.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::engine::report::Format;
use crate::engine::risk::{Level, Thresholds};
use crate::engine::tally::SortBy;

use super::value::{format_parser, level_parser, parse_levels, parse_top, sort_parser};

/// How progress is shown on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ProgressStyle {
    /// A bar on a terminal, else nothing
    #[default]
    Auto,
    /// A bar
    Bar,
    /// A line every few seconds, for logs
    Plain,
    /// Nothing
    None,
}

/// What is written, and where to.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Form of stdout [default: table on a terminal, else csv]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
    pub format: Option<Format>,

    /// Also write a file; .csv .json .ndjson .txt, repeatable
    ///
    /// The suffix names the form: .csv, .json, .ndjson (or .jsonl), or .txt for the table. The file appears under its name when it is whole, and never in
    /// part; an interrupted scan still writes it, marked as partial.
    #[arg(short, long = "output", value_name = "FILE")]
    pub outputs: Vec<PathBuf>,

    /// Length of the top list
    ///
    /// It is the list of the worst keys, in the table and in JSON; at most 10 000.
    #[arg(long, value_name = "COUNT", default_value = "20", value_parser = parse_top)]
    pub top: usize,

    /// Order of the top list: allocs, bytes, elements, stall
    ///
    /// What makes a key worse than another: its allocations, bytes or elements, or the predicted stall.
    #[arg(long, value_name = "ORDER", default_value = "allocs", value_parser = sort_parser(), hide_possible_values = true)]
    pub sort: SortBy,

    /// Ask everything of every key, and report every key
    ///
    /// Without it, encoding, length, TTL and so on are asked of the candidates alone, and only they get rows. It
    /// takes several times as many commands.
    #[arg(long)]
    pub all_keys: bool,

    /// Where the levels begin: low,medium,high,critical
    ///
    /// In numbers of allocations. The first is the most that the server itself frees inline with UNLINK.
    #[arg(long, value_name = "COUNTS", default_value = "64,10k,100k,1M", value_parser = parse_levels)]
    pub levels: Thresholds,

    /// Exit 5 if a key reaches this level
    ///
    /// For cron and CI. Only keys that pass the filters count, and a scan that is not whole exits with its own
    /// code all the same.
    #[arg(long, value_name = "LEVEL", value_parser = level_parser(Level::Low))]
    pub fail_on: Option<Level>,
}

/// What is said beside the result, on stderr.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Messages")]
pub struct ConsoleArgs {
    /// Say nothing but results and errors
    ///
    /// No progress, no warnings, no notes.
    #[arg(short, long, conflicts_with_all = ["verbose", "progress"])]
    pub quiet: bool,

    /// Say what the server can do and what is going on
    ///
    /// Version, permissions and settings of the server, slow-downs, and each key that was skipped.
    #[arg(short, long)]
    pub verbose: bool,

    /// Progress on stderr: auto, bar, plain, none
    ///
    /// `auto` is a bar when stderr is a terminal and nothing when it is not;
    /// `plain` is a line every few seconds, for logs.
    #[arg(
        long,
        value_name = "STYLE",
        default_value = "auto",
        conflicts_with = "no_progress",
        hide_possible_values = true
    )]
    pub progress: ProgressStyle,

    /// No progress, as --progress none
    #[arg(long)]
    pub no_progress: bool,

    /// No colour [env: NO_COLOR]
    ///
    /// TERM=dumb says the same, and files and pipes never have any.
    #[arg(long)]
    pub no_color: bool,
}
