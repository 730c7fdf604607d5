//! `bigkeys demo`: the real scan of a real server, with nothing installed.

use clap::Parser;

use crate::cli::args::{Cli, Command};
use crate::cli::bundled::{Bundled, BundledOptions};
use crate::cli::console::Console;
use crate::cli::error::{CommandError, ErrorKind};
use crate::cli::exit::Exit;
use crate::cli::surroundings::Surroundings;

/// Runs `bigkeys demo`.
pub(in crate::cli) fn demo(
    bundled: Option<&dyn Bundled>,
    around: &Surroundings,
    console: &Console,
) -> Result<Exit, CommandError> {
    let bundled = bundled.ok_or_else(super::serve::not_built_in)?;
    let failed = |what| move |error| CommandError::new(ErrorKind::System(what)).because(error);
    let address =
        bundled.start(&BundledOptions::default()).map_err(failed("cannot start the bundled server"))?;
    console.note(&format!(
        "the bundled server listens on {address} and is being filled: a shop, three years old"
    ));
    bundled.seed(address).map_err(failed("cannot fill the bundled server"))?;
    let port = address.port().to_string();
    // The same words that anybody would type, so that the demo can do nothing that a scan cannot.
    let typed = ["bigkeys", "scan", "-p", &port, "--rate", "max", "--format", "table"];
    console.note(&typed.join(" "));
    let cli = Cli::try_parse_from(typed).map_err(|error| CommandError::usage(error.to_string()))?;
    let Command::Scan(args) = cli.command else { return Ok(Exit::Failed) };
    let exit = super::scan(&args, around, console)?;
    console.note("now with your own: `bigkeys scan --host HOST -p PORT` reads only, and keeps to 10 000 commands a second");
    console.note("`bigkeys scan --print-acl` prints the smallest ACL rule it needs; `bigkeys serve` keeps a sandbox running");
    Ok(exit)
}
