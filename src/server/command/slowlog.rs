//! SLOWLOG: the commands that held the thread longest. It measures execution only: what waits in
//! a queue, and what cron frees, never shows here.

use std::collections::VecDeque;

use super::error::CommandError;
use super::table::{Command, Keys, flag};
use super::{Context, Outcome, help};
use crate::server::resp::Args;

pub(super) const COMMANDS: &[Command] = &[
    Command::container("slowlog", "2.2.12"),
    Command::new("slowlog|get", -2, flag::ADMIN | flag::LOADING | flag::STALE, Keys::None, "2.2.12", get),
    Command::new("slowlog|len", 2, flag::ADMIN | flag::LOADING | flag::STALE, Keys::None, "2.2.12", len),
    Command::new("slowlog|reset", 2, flag::ADMIN | flag::LOADING | flag::STALE, Keys::None, "2.2.12", reset),
    Command::new("slowlog|help", 2, flag::LOADING | flag::STALE, Keys::None, "6.2.0", slowlog_help),
];

/// Arguments and bytes of each that an entry keeps.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

/// One slow command.
#[derive(Debug)]
struct Entry {
    id: i64,
    unix_s: u64,
    took_us: u64,
    args: Vec<Vec<u8>>,
    addr: String,
    client: String,
}

/// The log, newest first.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    entries: VecDeque<Entry>,
    next_id: i64,
}

impl SlowLog {
    pub(crate) fn push(
        &mut self,
        args: Args<'_>,
        unix_s: u64,
        took_us: u64,
        from: (&str, &str),
        max_len: i64,
    ) {
        self.entries.push_front(Entry {
            id: self.next_id,
            unix_s,
            took_us,
            args: clip(args),
            addr: from.0.to_owned(),
            client: from.1.to_owned(),
        });
        self.next_id += 1;
        self.entries.truncate(usize::try_from(max_len).unwrap_or(usize::MAX));
    }
}

fn clip(args: Args<'_>) -> Vec<Vec<u8>> {
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let mut clipped: Vec<Vec<u8>> = args
        .iter()
        .take(shown)
        .map(|arg| {
            if arg.len() <= ARG_BYTES_MAX {
                return arg.to_vec();
            }
            let more = format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX);
            [&arg[..ARG_BYTES_MAX], more.as_bytes()].concat()
        })
        .collect();
    if shown < args.len() {
        clipped.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    clipped
}

fn get(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let wanted = match args.len() {
        2 => 10,
        3 => {
            let count = args.int(2).ok().filter(|count| *count >= -1);
            count.ok_or("ERR count should be greater than or equal to -1")?
        }
        _ => return Err(CommandError::SYNTAX),
    };
    let entries = &ctx.server.slowlog.entries;
    let shown = usize::try_from(wanted).map_or(entries.len(), |wanted| wanted.min(entries.len()));
    ctx.out.array(shown);
    for entry in entries.iter().take(shown) {
        ctx.out.array(6);
        ctx.out.int(entry.id);
        ctx.out.int(i64::try_from(entry.unix_s).unwrap_or(0));
        ctx.out.int(i64::try_from(entry.took_us).unwrap_or(0));
        ctx.out.array(entry.args.len());
        for arg in &entry.args {
            ctx.out.bulk(arg);
        }
        ctx.out.text(&entry.addr);
        ctx.out.text(&entry.client);
    }
    Ok(())
}

fn len(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.count(ctx.server.slowlog.entries.len());
    Ok(())
}

fn reset(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.server.slowlog.entries.clear();
    ctx.out.ok();
    Ok(())
}

fn slowlog_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "SLOWLOG",
        &[
            (
                "GET [<count>]",
                "Returns the newest entries (default: 10, -1 means all): id, time, microseconds, arguments, client address, client name.",
            ),
            ("LEN", "Returns the number of entries."),
            ("RESET", "Empties the log."),
        ],
    )
}
