//! Parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    bigkeys::cli::run(std::env::args_os()).into()
}
