//! The flags of `delete`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use crate::engine::delete::Method;

use super::value::{
    Glob, Key, method_parser, parse_bytes, parse_count_from_one, parse_db, parse_duration,
    parse_duration_not_zero, parse_glob, parse_key, parse_percentage,
};
use super::{ConnectArgs, ConsoleArgs, FilterArgs, PaceArgs};

/// Form of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeleteFormat {
    /// For people
    Table,
    /// A row for each key
    Csv,
    /// A JSON object for each key
    Ndjson,
}

/// What was typed after `bigkeys delete`.
#[derive(Debug, Clone, Args)]
pub struct DeleteArgs {
    /// Which keys.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Which of them, or which of all.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// What is done with them.
    #[command(flatten)]
    pub run: RunArgs,
    /// How they are removed.
    #[command(flatten)]
    pub method: MethodArgs,
    /// How fast to go.
    #[command(flatten)]
    pub pace: PaceArgs,
    /// Where the server is.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// What is said beside the result.
    #[command(flatten)]
    pub console: ConsoleArgs,
}

/// Which keys somebody means.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Selection")]
pub struct SelectionArgs {
    /// Keys by name, plain or quoted as redis-cli quotes
    ///
    /// A name with bytes that a shell cannot type is quoted: `'"\x00\xff"'`. They are in the database that
    /// --db names, or in 0.
    #[arg(value_name = "KEY", value_parser = NonEmptyStringValueParser::new().try_map(|text| parse_key(&text)), conflicts_with = "from")]
    pub keys: Vec<Key>,

    /// Keys in a CSV or NDJSON that `scan` wrote; - is stdin
    ///
    /// Rows may have been removed, sorted and added, and columns too, as long as there is one named
    /// `key`. What the file says of a key is compared with what is there: a key that is another by now is
    /// left alone. One row that cannot be read, and nothing is deleted.
    #[arg(long, value_name = "FILE", group = "listed")]
    pub from: Option<PathBuf>,

    /// Take rows that were found on another server
    ///
    /// For a file that was scanned on a replica, or under another name of the same server; and with --resume,
    /// for a server that took over.
    #[arg(long, requires = "listed")]
    pub any_node: bool,

    /// Allow a selection that takes every key
    ///
    /// A `--match '*'` alone is more often a mistake than meant.
    #[arg(long)]
    pub all: bool,

    /// Leave keys alone whose name matches, repeatable
    ///
    /// Even if they are named exactly.
    #[arg(long, value_name = "GLOB", value_parser = NonEmptyStringValueParser::new().try_map(|text| parse_glob(&text)))]
    pub protect: Vec<Glob>,

    /// Do not protect the keys of well-known frameworks
    ///
    /// Queues and locks of Sidekiq, BullMQ, Celery and others are left alone unless they are named exactly;
    /// docs/deletion-safety.md lists the patterns.
    #[arg(long)]
    pub unprotect: bool,

    /// How much a key may grow or shrink meanwhile
    ///
    /// Between the scan, the plan and the deletion, in elements or bytes. Beyond it the key is left alone.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = parse_percentage)]
    pub tolerance: f64,
}

/// What is done with the keys.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Acting")]
pub struct RunArgs {
    /// Carry it out, after asking
    ///
    /// On a terminal it asks, with the totals shown; elsewhere it needs --yes.
    #[arg(long)]
    pub safe: bool,

    /// Do not ask
    #[arg(long, requires = "safe")]
    pub yes: bool,

    /// Only preview, whatever else is given
    #[arg(long)]
    pub dry_run: bool,

    /// Audit file [default: bigkeys-audit-TIME.csv]
    ///
    /// What was planned, begun and done. It is CSV, or NDJSON where it is named .ndjson; it never overwrites
    /// a file.
    #[arg(long, value_name = "FILE", requires = "safe")]
    pub audit: Option<PathBuf>,

    /// Finish a run that was cut off, from its audit
    ///
    /// Only what its plan held is deleted, and what is not the key of the plan any more is left alone. --tolerance,
    /// --idle-over, --quarantine-db and --expire-after are those of that run.
    #[arg(long, value_name = "FILE", group = "listed", conflicts_with_all = ["keys", "from", "audit", "tolerance", "quarantine_db", "expire_after"])]
    pub resume: Option<PathBuf>,

    /// Stop after so many keys, exit 3
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = parse_count_from_one)]
    pub max_keys: Option<u64>,

    /// Stop before more than so many bytes, exit 3
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_bytes)]
    pub max_bytes: Option<u64>,

    /// Stop after so much time, exit 3
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = parse_duration_not_zero)]
    pub deadline: Option<Duration>,

    /// Wait in the end until the memory is back
    ///
    /// Until nothing waits for the background thread any more, and at most so long.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s", value_parser = parse_duration)]
    pub wait_memory: Option<Duration>,

    /// Switch lazyfree-lazy-expire on for the run
    ///
    /// So that a key that expires while it is being deleted stalls nobody. The old value is put back in the
    /// end, after Ctrl-C too.
    #[arg(long)]
    pub lazy_expire_while_running: bool,

    /// Print the smallest ACL rule it needs, and exit
    ///
    /// It is the rule for these flags, with --safe or without, as arguments of ACL SETUSER. No server is asked.
    #[arg(long)]
    pub print_acl: bool,

    /// Form of stdout [default: table on a terminal, else csv]
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub format: Option<DeleteFormat>,
}

/// How keys are removed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Method")]
pub struct MethodArgs {
    /// One method for all: unlink, chunked, pad, expire
    ///
    /// Without it, each key gets the one that nobody notices: unlink, pad, chunked, or quarantine where
    /// --quarantine-db allows it. `del` is only for small keys where UNLINK is not to be had.
    #[arg(long, value_name = "METHOD", value_parser = method_parser(), hide_possible_values = true)]
    pub method: Option<Method>,

    /// Longest predicted stall that is accepted
    ///
    /// A key whose best method is predicted to stall everybody for longer is left alone.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, default_value = "10ms", value_parser = parse_duration)]
    pub max_stall: Duration,

    /// An empty database through which big strings go
    ///
    /// A string counts as little work whatever its size, and UNLINK frees it while everybody waits. In an
    /// empty database FLUSHDB ASYNC frees it in the background. The database is checked to be empty in the
    /// same step. Not in a cluster.
    #[arg(long, value_name = "DB", value_parser = parse_db)]
    pub quarantine_db: Option<u32>,

    /// Time to live that --method expire gives
    ///
    /// Each key gets this much and up to as much again, so that they do not all expire at once.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, default_value = "10m", value_parser = parse_duration_not_zero)]
    pub expire_after: Duration,
}
