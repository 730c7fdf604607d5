//! Scripts: EVAL and its kin. `vm` holds the Lua state and its fences, `convert` turns replies into
//! Lua values and back, `watch` looks at the clock while a script runs.

mod bit;
mod cjson;
mod convert;
mod library;
mod vm;
mod watch;

pub(crate) use vm::Scripts;

use super::digest::sha1_hex;
use super::error::CommandError;
use super::table::{Command, Keys, flag};
use super::{Context, Outcome, help};
use crate::server::resp::Args;

const RUNS: u32 =
    flag::NOSCRIPT | flag::STALE | flag::SKIP_MONITOR | flag::NO_MANDATORY_KEYS | flag::MOVABLEKEYS;
const KEYS: Keys = Keys::Counted { count_at: 2, dest: false };

pub(super) const COMMANDS: &[Command] = &[
    Command::new("eval", -3, RUNS, KEYS, "2.6.0", |ctx, args| eval(ctx, args, false)),
    Command::new("eval_ro", -3, RUNS | flag::READONLY, KEYS, "7.0.0", |ctx, args| eval(ctx, args, true)),
    Command::new("evalsha", -3, RUNS, KEYS, "2.6.0", |ctx, args| evalsha(ctx, args, false)),
    Command::new("evalsha_ro", -3, RUNS | flag::READONLY, KEYS, "7.0.0", |ctx, args| {
        evalsha(ctx, args, true)
    }),
    Command::container("script", "2.6.0"),
    Command::new("script|load", 3, flag::NOSCRIPT | flag::STALE, Keys::None, "2.6.0", load),
    Command::new("script|exists", -3, flag::NOSCRIPT, Keys::None, "2.6.0", exists),
    Command::new("script|flush", -2, flag::NOSCRIPT, Keys::None, "2.6.0", flush),
    Command::new("script|kill", 2, flag::NOSCRIPT | flag::ALLOW_BUSY, Keys::None, "2.6.0", kill),
    Command::new("script|help", 2, flag::LOADING | flag::STALE, Keys::None, "5.0.0", script_help),
];

fn eval(ctx: &mut Context<'_>, args: Args<'_>, read_only: bool) -> Outcome {
    check_numkeys(args)?;
    let source = args.at(1);
    let sha = sha1_hex(source);
    with_scripts(ctx, |ctx, scripts| {
        scripts.load(&sha, source)?;
        scripts.run(ctx, &sha, args, read_only)
    })
}

fn evalsha(ctx: &mut Context<'_>, args: Args<'_>, read_only: bool) -> Outcome {
    check_numkeys(args)?;
    let sha = args.lower(1);
    with_scripts(ctx, |ctx, scripts| {
        if !scripts.has(&sha) {
            return Err("NOSCRIPT No matching script. Please use EVAL.".into());
        }
        scripts.run(ctx, &sha, args, read_only)
    })
}

fn check_numkeys(args: Args<'_>) -> Outcome {
    let count = args.int(2)?;
    match usize::try_from(count) {
        Err(_) => Err("ERR Number of keys can't be negative".into()),
        Ok(count) if count > args.len() - 3 => {
            Err("ERR Number of keys can't be greater than number of args".into())
        }
        Ok(_) => Ok(()),
    }
}

/// Takes the scripts out of the server while one of them uses the server.
fn with_scripts(
    ctx: &mut Context<'_>,
    act: impl FnOnce(&mut Context<'_>, &mut Scripts) -> Outcome,
) -> Outcome {
    let mut scripts = std::mem::take(&mut ctx.server.scripts);
    let outcome = act(ctx, &mut scripts);
    ctx.server.scripts = scripts;
    outcome
}

fn load(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let sha = sha1_hex(args.at(2));
    ctx.server.scripts.load(&sha, args.at(2))?;
    ctx.out.text(&sha);
    Ok(())
}

fn exists(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ctx.out.array(args.len() - 2);
    for at in 2..args.len() {
        let known = ctx.server.scripts.has(&args.lower(at));
        ctx.out.bool_int(known);
    }
    Ok(())
}

fn flush(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let known = args.len() == 2 || args.len() == 3 && (args.is(2, "SYNC") || args.is(2, "ASYNC"));
    if !known {
        return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
    }
    ctx.server.scripts.flush();
    ctx.out.ok();
    Ok(())
}

/// While a script runs, the loop answers SCRIPT KILL itself; when this is reached, none does.
fn kill(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err(CommandError::new("NOTBUSY No scripts in execution right now."))
}

fn script_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "SCRIPT",
        &[
            ("EXISTS <sha1> [...]", "Says which scripts are known."),
            ("FLUSH [ASYNC|SYNC]", "Forgets all scripts."),
            ("KILL", "Ends the script that runs, if it has written nothing yet."),
            ("LOAD <script>", "Compiles a script and returns its SHA-1."),
        ],
    )
}
