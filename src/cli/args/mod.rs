//! Flags as plain data: what was typed and nothing more. `command` settles terminal, environment and
//! defaults that depend on them.
//!
//! Each flag has a line for `-h` (the first line of its comment), the whole story for `--help` (the
//! rest), a value name and a heading; `docs/usage.md` is generated from here, and a test compares.

#[allow(clippy::doc_markdown, reason = "these comments are help texts, where backticks are noise")]
mod connect;
#[allow(
    clippy::doc_markdown,
    clippy::struct_excessive_bools,
    reason = "help texts; each flag is a switch of its own"
)]
mod delete;
mod filter;
mod generate;
#[allow(
    clippy::doc_markdown,
    clippy::struct_excessive_bools,
    reason = "help texts; each flag is a switch of its own"
)]
mod output;
mod pace;
mod scan;
mod serve;
mod url;
mod value;

use clap::{Parser, Subcommand};

pub use connect::{ConnectArgs, DeploymentArgs, HostPort, TlsArgs, UrlText};
pub use delete::{DeleteArgs, DeleteFormat, MethodArgs, RunArgs, SelectionArgs};
pub use filter::FilterArgs;
pub use generate::CompletionsArgs;
pub use output::{ConsoleArgs, OutputArgs, ProgressStyle};
pub use pace::PaceArgs;
pub use scan::{DepthArgs, ResumeArgs, ScanArgs};
pub use serve::ServeArgs;
pub use url::{HOST_DEFAULT, PORT_DEFAULT, ServerUrl, UrlError};
pub(crate) use url::{parse_host, redact};
pub use value::{Glob, Key, Rate, ValueError};

/// Finds the keys that would stall a Redis or Valkey server, and says why
///
/// What decides how long a server stalls when a key is deleted or expires is the number of allocations
/// to free: not its elements, and not its bytes. bigkeys ranks keys by that, says what DEL, UNLINK, expiry
/// and overwriting would do on this server, and takes care not to be noticed while it looks.
#[derive(Debug, Parser)]
#[command(name = "bigkeys", version, max_term_width = 100, subcommand_required = true)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done in part, 4 stopped by the latency guard, \
                        5 --fail-on level reached, 130 interrupted."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find, measure, judge and report the keys of a live server; reads only
    ///
    /// Walks the keyspace with SCAN at a bounded rate, measures the keys page by page, and reports those
    /// that would stall the server when they are deleted, expire or are overwritten.
    ///
    /// It changes nothing. One side effect cannot be avoided: a key that is past its TTL and not yet
    /// reaped is freed by the server when anybody looks it up, a scan included; where
    /// `lazyfree-lazy-expire` is `no`, the scan says so. A scan reads INFO before it reads a key.
    Scan(Box<ScanArgs>),
    /// Preview a deletion; with --safe, carry it out so that nobody notices
    ///
    /// Looks at the keys that are named, found by the filters, or listed in a file that `scan` wrote, and says of
    /// each how it would be deleted, why so, and how long everybody would wait. That is all, unless --safe
    /// is given. Then it asks, and deletes each key with the method that nobody notices, after one more
    /// look right before it; what changed meanwhile is left alone. Everything is written to an audit
    /// file, from which a run that was cut off can be finished.
    ///
    /// A filter whose condition cannot be tested for a key (the size where MEMORY USAGE is refused, say) leaves
    /// the key alone.
    Delete(Box<DeleteArgs>),
    /// Show what a scan finds, on the bundled server: no Redis needed
    ///
    /// Starts the bundled server inside this process on a free loopback port, fills it with a sample
    /// keyspace (a set of 3 million members, a list that only looks large, an expiry storm and more), and
    /// runs the real scan over the wire.
    Demo,
    /// Run the bundled server on its own, until Ctrl-C
    ///
    /// A sandbox to try things on. It speaks to redis-cli and to any client library, has the encodings and
    /// stalls of the real one, and can start from an RDB file. It is no product to run in production.
    Serve(ServeArgs),
    /// Print a completion script for a shell
    ///
    /// For bash, for example: `bigkeys completions bash > ~/.local/share/bash-completion/completions/bigkeys`
    Completions(CompletionsArgs),
    /// Print the manual page, as roff
    ///
    /// For example: `bigkeys man > ~/.local/share/man/man1/bigkeys.1`
    Man,
}

#[cfg(test)]
mod tests;
