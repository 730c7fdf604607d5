//! `bigkeys demo`: the real scan and the real deletion on a real server, with nothing installed.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use tokio::runtime::{self, Runtime};

use crate::cli::args::{Cli, Command};
use crate::cli::bundled::{Bundled, BundledOptions};
use crate::cli::console::{self, Console, TakeBack};
use crate::cli::error::{CommandError, ErrorKind};
use crate::cli::exit::Exit;
use crate::cli::surroundings::Surroundings;
use crate::engine::live::{
    Address, Canary, Command as ServerCommand, Credentials, Endpoint, Link, ServerState, Timeouts,
};
use crate::engine::pace::Guard;

/// The key of the sample that is deleted in three ways.
const SUBJECT: &str = "visitors:2026";

/// Time between two PINGs of the client that waits.
const PING_INTERVAL: Duration = Duration::from_millis(1);

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
    let Command::Scan(args) = parse(&typed)? else { return Ok(Exit::Failed) };
    let exit = super::scan(&args, around, console)?;

    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(failed("cannot start the runtime"))?;
    let folder = tempfile::tempdir().map_err(failed("cannot make a temporary folder"))?;
    let mut witness = Witness::start(&runtime, address)?;
    console.note(&format!(
        "deleting `{SUBJECT}` in three ways, while another client sends a PING every millisecond"
    ));
    let mut waits = Vec::new();
    for word in ["DEL", "UNLINK"] {
        waits.push((word, witness.waits_for(word, SUBJECT)?));
        bundled.seed_again(address, SUBJECT).map_err(failed("cannot fill the bundled server"))?;
    }
    let audit = folder.path().join("audit.csv").display().to_string();
    let typed = [
        "bigkeys", "delete", SUBJECT, "--safe", "--yes", "-p", &port, "--audit", &audit, "--format", "csv",
        "--quiet",
    ];
    let Command::Delete(args) = parse(&typed)? else { return Ok(Exit::Failed) };
    let quiet = Console::new(args.console, around);
    witness.forget();
    let deletion =
        super::delete::delete_to(&args, around, &quiet, Box::new(std::io::sink()), &TakeBack::default())?;
    if deletion != Exit::Done {
        return Ok(deletion);
    }
    waits.push(("bigkeys delete --safe", witness.longest()));
    let mut text = format!("\nWhat another client waited at the most while `{SUBJECT}` went by\n");
    for (way, wait) in waits {
        let wait = wait.map_or_else(|| "?".to_owned(), |wait| format!("{:.1}", wait.as_secs_f64() * 1e3));
        let _ = writeln!(text, "  {way:<22} {wait:>7} ms");
    }
    console::print(text.as_bytes())?;
    console.note("now with your own: `bigkeys scan --host HOST -p PORT -o keys.csv` reads only, and keeps to 10 000 commands a second");
    console.note("then edit keys.csv, and look at `bigkeys delete --from keys.csv`: it only previews, unless you add --safe");
    console.note("`bigkeys scan --print-acl` prints the smallest ACL rule it needs; `bigkeys serve` keeps a sandbox running");
    Ok(exit)
}

fn parse(typed: &[&str]) -> Result<Command, CommandError> {
    Ok(Cli::try_parse_from(typed).map_err(|error| CommandError::usage(error.to_string()))?.command)
}

/// Another client: it sends a PING every millisecond, and remembers the longest wait.
struct Witness<'r> {
    runtime: &'r Runtime,
    link: Link,
    canary: Canary,
}

impl<'r> Witness<'r> {
    fn start(runtime: &'r Runtime, address: SocketAddr) -> Result<Self, CommandError> {
        let endpoint = Endpoint {
            address: Address::Tcp { host: address.ip().to_string(), port: address.port() },
            credentials: Credentials::default(),
            tls: None,
            timeouts: Timeouts::default(),
            reads_replica: false,
        };
        // It only looks on.
        let guard = Guard::new(Duration::MAX, Duration::MAX);
        let (link, canary) = runtime
            .block_on(async {
                let link = Link::open(&endpoint, "bigkeys-demo").await?;
                Ok((link, Canary::start(&endpoint, guard, PING_INTERVAL).await?))
            })
            .map_err(|error: crate::engine::live::ConnectError| {
                CommandError::new(ErrorKind::Delete).because(error)
            })?;
        Ok(Self { runtime, link, canary })
    }

    /// Deletes a key with this command, and returns what was waited for it.
    fn waits_for(&mut self, command: &str, key: &str) -> Result<Option<Duration>, CommandError> {
        self.forget();
        self.run(&[command, key])?;
        Ok(self.longest())
    }

    fn run(&self, words: &[&str]) -> Result<(), CommandError> {
        let failed = |why: String| CommandError::new(ErrorKind::Delete).because(std::io::Error::other(why));
        let reply = self.runtime.block_on(self.link.run(&ServerCommand::new(words)));
        reply
            .map_err(|error| failed(error.to_string()))?
            .map(|_| ())
            .map_err(|refusal| failed(refusal.message))
    }

    /// Waits until nothing of before is under way, and begins anew.
    fn forget(&mut self) {
        self.runtime.block_on(async {
            for _ in 0..1000 {
                let state = ServerState::read(&self.link).await.ok().flatten();
                let pending = state.and_then(|state| state.number("lazyfree_pending_objects"));
                if pending.unwrap_or(0) == 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(20 * PING_INTERVAL).await;
        });
        self.canary.take_max();
    }

    /// Returns the longest wait since then, once the PING that is under way has come back.
    fn longest(&self) -> Option<Duration> {
        self.runtime.block_on(async { tokio::time::sleep(20 * PING_INTERVAL).await });
        self.canary.take_max()
    }
}
