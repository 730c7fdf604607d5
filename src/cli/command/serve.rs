//! `bigkeys serve`: the bundled server on its own, until Ctrl-C.

use std::io::ErrorKind as IoErrorKind;

use crate::cli::args::ServeArgs;
use crate::cli::bundled::{Bundled, BundledOptions};
use crate::cli::console::Console;
use crate::cli::error::{CommandError, ErrorKind};
use crate::cli::exit::Exit;

/// Where Redis listens, and clients look for it.
const PORT: u16 = 6379;

/// Runs `bigkeys serve`.
pub(in crate::cli) fn serve(
    args: &ServeArgs,
    bundled: Option<&dyn Bundled>,
    console: &Console,
) -> Result<Exit, CommandError> {
    let bundled = bundled.ok_or_else(not_built_in)?;
    // A file may have a password or users: there the server itself looks.
    let open = args.password_file.is_none() && args.config.is_none();
    if let Some(address) = args.bind.filter(|address| open && !address.is_loopback()) {
        return Err(CommandError::usage(format!(
            "--bind {address} lets others in, and there is no password"
        ))
        .hint("add --password-file FILE, or leave --bind out to listen on loopback only"));
    }
    let mut warnings = Vec::new();
    let password = match &args.password_file {
        Some(path) => Some(super::connect::read_password(path, &mut warnings)?.reveal().to_owned()),
        None => None,
    };
    for warning in &warnings {
        console.warn(warning);
    }
    let options = BundledOptions {
        config: args.config.clone(),
        bind: args.bind,
        // The file has a port, or the same default.
        port: args.port.or(if args.config.is_none() { Some(PORT) } else { None }),
        dir: args.dir.clone(),
        load: args.load.clone(),
        password,
    };
    let served = bundled.serve(&options, &mut |addresses| {
        console.note(&format!(
            "the bundled server listens on {addresses}; Ctrl-C ends it, and what it holds is gone"
        ));
    });
    served.map(|()| Exit::Done).map_err(|error| {
        let in_use = error.kind() == IoErrorKind::AddrInUse;
        let failed = CommandError::new(ErrorKind::Serve(options.port)).because(error);
        if in_use { failed.hint("choose another --port; 0 takes a free one") } else { failed }
    })
}

/// The error of a build without the server room.
pub(super) fn not_built_in() -> CommandError {
    CommandError::usage("this bigkeys was built without the bundled server")
        .hint("build it with its default features: `cargo install --path .`")
}
