//! CLIENT: who is connected, and what is done about it.

use super::connection::deadline_us;
use super::core::Pause;
use super::error::CommandError;
use super::session::{ReplyMode, Session};
use super::table::{Command, Keys, flag};
use super::{Context, Outcome, help};
use crate::server::number::parse_integer;
use crate::server::resp::Args;

const ANYONE: u32 = flag::NOSCRIPT | flag::LOADING | flag::STALE;
const ADMIN: u32 = flag::ADMINISTRATION;

pub(super) const COMMANDS: &[Command] = &[
    Command::container("client", "2.4.0"),
    Command::new("client|id", 2, ANYONE, Keys::None, "5.0.0", id),
    Command::new("client|info", 2, ANYONE, Keys::None, "6.2.0", info),
    Command::new("client|list", -2, ADMIN, Keys::None, "2.4.0", list),
    Command::new("client|kill", -3, ADMIN, Keys::None, "2.4.0", kill),
    Command::new("client|getname", 2, ANYONE, Keys::None, "2.6.9", get_name),
    Command::new("client|setname", 3, ANYONE, Keys::None, "2.6.9", set_name),
    Command::new("client|setinfo", 4, ANYONE, Keys::None, "7.2.0", set_info),
    Command::new("client|no-evict", 3, ADMIN, Keys::None, "7.0.0", no_evict),
    Command::new("client|no-touch", 3, ANYONE, Keys::None, "7.2.0", no_touch),
    Command::new("client|reply", 3, ANYONE, Keys::None, "3.2.0", reply),
    Command::new("client|pause", -3, ADMIN, Keys::None, "2.9.50", pause),
    Command::new("client|unpause", 2, ADMIN, Keys::None, "6.2.0", unpause),
    Command::new("client|unblock", -3, ADMIN, Keys::None, "5.0.0", unblock),
    Command::new("client|getredir", 2, ANYONE, Keys::None, "6.0.0", get_redir),
    Command::new("client|help", 2, flag::LOADING | flag::STALE, Keys::None, "5.0.0", client_help),
];

fn id(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.int(i64::try_from(ctx.session.id).unwrap_or(0));
    Ok(())
}

fn info(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let line = ctx.session.describe(ctx.server.clock.monotonic_us());
    ctx.out.verbatim(format!("{line}\n").as_bytes());
    Ok(())
}

fn list(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut wanted: Option<Vec<u64>> = None;
    match args.len() {
        2 => {}
        4 if args.is(2, "TYPE") => {
            if !is_normal(args, 3)? {
                wanted = Some(Vec::new());
            }
        }
        4.. if args.is(2, "ID") => {
            let ids = (3..args.len()).map(|at| u64::try_from(args.int(at)?).map_err(|_| INVALID_ID));
            wanted = Some(ids.collect::<Result<_, _>>().map_err(|_| INVALID_ID)?);
        }
        _ => return Err(CommandError::SYNTAX),
    }
    let now_us = ctx.server.clock.monotonic_us();
    let mut sessions: Vec<&Session> = ctx.server.sessions.iter().chain([&*ctx.session]).collect();
    sessions.sort_by_key(|session| session.id);
    sessions.retain(|session| wanted.as_ref().is_none_or(|ids| ids.contains(&session.id)));
    let lines: String = sessions.iter().map(|session| session.describe(now_us) + "\n").collect();
    ctx.out.verbatim(lines.as_bytes());
    Ok(())
}

const INVALID_ID: CommandError = CommandError::new("ERR Invalid client ID");

/// There are only normal clients here; says whether those are meant.
fn is_normal(args: Args<'_>, at: usize) -> Result<bool, CommandError> {
    match args.lower(at).as_str() {
        "normal" => Ok(true),
        "master" | "replica" | "slave" | "pubsub" => Ok(false),
        _ => Err(CommandError::with(format!("ERR Unknown client type '{}'", args.text(at)))),
    }
}

fn kill(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 3 {
        let addr = args.text(2);
        if kill_where(ctx, false, |session| session.addr == addr) == 0 {
            return Err("ERR No such client".into());
        }
        ctx.out.ok();
        return Ok(());
    }
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::SYNTAX);
    }
    let (mut skip_me, mut any) = (true, true);
    let (mut wanted_id, mut addr, mut local_addr, mut user) = (None, None, None, None);
    for at in (2..args.len()).step_by(2) {
        let value = at + 1;
        match args.lower(at).as_str() {
            "id" => {
                let id =
                    parse_integer(args.at(value)).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                wanted_id = Some(id.ok_or("ERR client-id should be greater than 0")?);
            }
            "type" => any &= is_normal(args, value)?,
            "addr" => addr = Some(args.text(value)),
            "laddr" => local_addr = Some(args.text(value)),
            "user" => {
                let name = args.text(value);
                if ctx.server.acl.user(&name).is_none() {
                    return Err(CommandError::with(format!("ERR No such user '{name}'")));
                }
                user = Some(name);
            }
            "skipme" => {
                skip_me = match args.lower(value).as_str() {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(CommandError::SYNTAX),
                };
            }
            _ => return Err(CommandError::SYNTAX),
        }
    }
    let killed = kill_where(ctx, skip_me, |session| {
        any && wanted_id.is_none_or(|id| session.id == id)
            && addr.as_ref().is_none_or(|addr| session.addr == *addr)
            && local_addr.as_ref().is_none_or(|addr| session.local_addr == *addr)
            && user.as_ref().is_none_or(|user| session.user.as_ref() == Some(user))
    });
    ctx.out.count(killed);
    Ok(())
}

/// Ends the sessions that `is_meant` picks and returns how many. One's own still gets its reply.
pub(super) fn kill_where(ctx: &mut Context<'_>, skip_me: bool, is_meant: impl Fn(&Session) -> bool) -> usize {
    let mut killed = 0;
    for session in ctx.server.sessions.iter_mut().filter(|session| is_meant(session)) {
        session.killed = true;
        ctx.server.attention.push(session.id);
        killed += 1;
    }
    if !skip_me && is_meant(ctx.session) {
        ctx.session.close_after_reply = true;
        killed += 1;
    }
    killed
}

fn get_name(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if ctx.session.name.is_empty() {
        ctx.out.nil();
    } else {
        ctx.out.text(&ctx.session.name);
    }
    Ok(())
}

fn set_name(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ctx.session.name = valid_name(args.at(2))?;
    ctx.out.ok();
    Ok(())
}

/// Takes a client's name if it can stand in CLIENT LIST.
pub(super) fn valid_name(name: &[u8]) -> Result<String, CommandError> {
    printable(name)
        .ok_or(CommandError::new("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn printable(text: &[u8]) -> Option<String> {
    let plain = text.iter().all(u8::is_ascii_graphic);
    plain.then(|| String::from_utf8_lossy(text).into_owned())
}

fn set_info(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let attribute = args.lower(2);
    let refused = || {
        CommandError::with(format!("ERR {attribute} cannot contain spaces, newlines or special characters."))
    };
    match attribute.as_str() {
        "lib-name" => ctx.session.lib_name = printable(args.at(3)).ok_or_else(refused)?,
        "lib-ver" => ctx.session.lib_ver = printable(args.at(3)).ok_or_else(refused)?,
        _ => {
            return Err(CommandError::with(format!("ERR Unrecognized option '{}'", args.text(2))));
        }
    }
    ctx.out.ok();
    Ok(())
}

fn switch(args: Args<'_>) -> Result<bool, CommandError> {
    match args.lower(2).as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(CommandError::SYNTAX),
    }
}

fn no_evict(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ctx.session.no_evict = switch(args)?;
    ctx.out.ok();
    Ok(())
}

fn no_touch(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ctx.session.no_touch = switch(args)?;
    ctx.out.ok();
    Ok(())
}

fn reply(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ctx.session.reply_mode = match args.lower(2).as_str() {
        "on" => ReplyMode::On,
        "off" => ReplyMode::Off,
        "skip" if ctx.session.reply_mode == ReplyMode::Off => ReplyMode::Off,
        "skip" => ReplyMode::SkipNext,
        _ => return Err(CommandError::SYNTAX),
    };
    ctx.out.ok();
    Ok(())
}

fn pause(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let writes_only = match args.len() {
        3 => false,
        4 if args.is(3, "WRITE") => true,
        4 if args.is(3, "ALL") => false,
        _ => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
    };
    let ms = parse_integer(args.at(2)).ok_or("ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| CommandError::new("ERR timeout is negative"))?;
    ctx.server.pause = Some(Pause { until_us: deadline_us(ctx.server, ms), writes_only });
    ctx.out.ok();
    Ok(())
}

fn unpause(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.server.pause = None;
    ctx.out.ok();
    Ok(())
}

fn unblock(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let id = u64::try_from(args.int(2)?).unwrap_or(0);
    let error = match args.get(3) {
        None => false,
        Some(_) if args.is(3, "TIMEOUT") => false,
        Some(_) if args.is(3, "ERROR") => true,
        Some(_) => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
    };
    let mut unblocked = false;
    for session in ctx.server.sessions.iter_mut().filter(|session| session.id == id) {
        if let Some(blocked) = &mut session.blocked {
            blocked.until_us = Some(0);
            if error {
                blocked.reply = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n".to_vec();
            }
            unblocked = true;
        }
    }
    ctx.out.bool_int(unblocked);
    Ok(())
}

fn get_redir(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.int(-1);
    Ok(())
}

fn client_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "CLIENT",
        &[
            ("GETNAME", "Returns the name of this connection."),
            ("ID", "Returns the number of this connection."),
            ("INFO", "Returns a line about this connection."),
            ("KILL <ip:port>", "Ends the connection from that address."),
            (
                "KILL <option> <value> [...]",
                "Ends connections: ID, ADDR, LADDR, TYPE, USER, SKIPME (default yes).",
            ),
            ("LIST [TYPE <type> | ID <id> ...]", "Returns a line about each connection."),
            ("NO-EVICT (ON|OFF)", "Keeps this connection from being evicted."),
            ("NO-TOUCH (ON|OFF)", "Lets commands of this connection leave access times alone."),
            ("PAUSE <timeout> [WRITE|ALL]", "Makes commands wait for that many milliseconds."),
            ("REPLY (ON|OFF|SKIP)", "Says whether this connection wants replies."),
            ("SETINFO (LIB-NAME|LIB-VER) <value>", "Notes the client library."),
            ("SETNAME <name>", "Names this connection."),
            ("UNBLOCK <id> [TIMEOUT|ERROR]", "Ends a client's wait."),
            ("UNPAUSE", "Ends the pause."),
        ],
    )
}
