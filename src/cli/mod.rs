//! The front desk: words in, words out. It decides nothing about keys.
//!
//! [`args`] is what was typed, `command` carries it out, `console` is the only place that prints,
//! [`error`] and [`exit`] are how a run ends.

pub mod args;
pub mod bundled;
mod command;
mod consent;
mod console;
pub mod error;
pub mod exit;
mod hint;
mod interrupt;
mod progress;
mod surroundings;

use std::ffi::OsString;

use clap::Parser;

use args::{Cli, Command};
use bundled::Bundled;
use console::Console;
use exit::Exit;
use surroundings::Surroundings;

/// Carries out a command line, the program's name first, and says how it ended. `bundled` is the server
/// that `demo` and `serve` run, in a build that has it.
///
/// It may end the process itself in one case: a second Ctrl-C.
pub fn run(
    command_line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    bundled: Option<&dyn Bundled>,
) -> Exit {
    let around = Surroundings::look();
    let cli = match Cli::try_parse_from(command_line) {
        Ok(cli) => cli,
        Err(refusal) => return console::answer(&refusal, &around),
    };
    let console = match &cli.command {
        Command::Scan(args) => Console::new(args.console, &around),
        Command::Delete(args) => Console::new(args.console, &around),
        Command::Demo | Command::Serve(_) | Command::Completions(_) | Command::Man => Console::plain(&around),
    };
    let done = match &cli.command {
        Command::Scan(args) => command::scan(args, &around, &console),
        Command::Delete(args) => command::delete(args, &around, &console),
        Command::Demo => command::demo(bundled, &around, &console),
        Command::Serve(args) => command::serve(args, bundled, &console),
        Command::Completions(args) => command::completions(args),
        Command::Man => command::man(),
    };
    done.unwrap_or_else(|error| {
        console.error(&error);
        error.exit()
    })
}
