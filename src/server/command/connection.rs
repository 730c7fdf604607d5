//! Who a client is and how it talks: HELLO, AUTH, SELECT, PING and the like.

use super::acl::Acl;
use super::core::Instance;
use super::error::CommandError;
use super::session::{Blocked, ReplyMode};
use super::table::{Command, Keys, flag};
use super::{Context, Outcome, client_admin, transaction};
use crate::server::info::VERSION;
use crate::server::number::parse_integer;
use crate::server::resp::{Args, Proto};

const ALWAYS: u32 = flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST;
const BEFORE_AUTH: u32 = ALWAYS | flag::NO_AUTH | flag::ALLOW_BUSY;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("auth", -2, BEFORE_AUTH, Keys::None, "1.0.0", auth),
    Command::new("hello", -1, BEFORE_AUTH, Keys::None, "6.0.0", hello),
    Command::new("quit", -1, BEFORE_AUTH, Keys::None, "1.0.0", quit),
    Command::new("reset", 1, BEFORE_AUTH, Keys::None, "6.2.0", reset),
    Command::new("ping", -1, flag::FAST, Keys::None, "1.0.0", ping),
    Command::new("echo", 2, flag::LOADING | flag::STALE | flag::FAST, Keys::None, "1.0.0", echo),
    Command::new("select", 2, flag::LOADING | flag::STALE | flag::FAST, Keys::None, "1.0.0", select),
    Command::new("wait", 3, flag::BLOCKING, Keys::None, "3.0.0", wait),
];

const WRONGPASS: CommandError =
    CommandError::new("WRONGPASS invalid username-password pair or user is disabled.");

fn auth(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (user, password) = match args.len() {
        2 => {
            if ctx.server.acl.is_open() {
                return Err(
                    "ERR AUTH <password> called without any password configured for the default user. \
                            Are you sure your configuration is correct?"
                        .into(),
                );
            }
            (Acl::DEFAULT.to_owned(), args.at(1))
        }
        3 => (args.text(1), args.at(2)),
        _ => return Err(CommandError::SYNTAX),
    };
    login(ctx, args.at(0), user, password)?;
    ctx.out.ok();
    Ok(())
}

fn login(ctx: &mut Context<'_>, command: &[u8], user: String, password: &[u8]) -> Outcome {
    if !ctx.server.acl.authenticate(&user, password) {
        ctx.note_failed_login(command, &user);
        return Err(WRONGPASS);
    }
    ctx.session.user = Some(user);
    Ok(())
}

fn hello(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let proto = match args.get(1) {
        None => ctx.out.proto(),
        Some(version) => match parse_integer(version) {
            Some(2) => Proto::Resp2,
            Some(3) => Proto::Resp3,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
        },
    };
    let (mut credentials, mut name) = (None, None);
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "AUTH") && more >= 2 {
            credentials = Some((args.text(at + 1), args.at(at + 2)));
            at += 3;
        } else if args.is(at, "SETNAME") && more >= 1 {
            name = Some(client_admin::valid_name(args.at(at + 1))?);
            at += 2;
        } else {
            return Err(CommandError::with(format!("ERR Syntax error in HELLO option '{}'", args.text(at))));
        }
    }
    if let Some((user, password)) = credentials {
        login(ctx, args.at(0), user, password)?;
    }
    if ctx.session.user.is_none() {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                    <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                    RESP protocol version at the same time"
                .into(),
        );
    }
    if let Some(name) = name {
        ctx.session.name = name;
    }
    set_proto(ctx, proto);
    introduce(ctx);
    Ok(())
}

fn set_proto(ctx: &mut Context<'_>, proto: Proto) {
    ctx.out.set_proto(proto);
    ctx.session.resp = if proto == Proto::Resp3 { 3 } else { 2 };
}

fn introduce(ctx: &mut Context<'_>) {
    let out = &mut *ctx.out;
    out.map(7);
    for (name, value) in [("server", "redis"), ("version", VERSION)] {
        out.text(name);
        out.text(value);
    }
    out.text("proto");
    out.int(i64::from(ctx.session.resp));
    out.text("id");
    out.int(i64::try_from(ctx.session.id).unwrap_or(0));
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        out.text(name);
        out.text(value);
    }
    out.text("modules");
    out.array(0);
}

fn quit(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.session.close_after_reply = true;
    ctx.out.ok();
    Ok(())
}

fn reset(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    transaction::discard(ctx);
    ctx.session.user = ctx.server.acl.is_open().then(|| Acl::DEFAULT.to_owned());
    ctx.session.name.clear();
    ctx.session.no_evict = false;
    ctx.session.no_touch = false;
    ctx.session.reply_mode = ReplyMode::On;
    choose_db(ctx, 0);
    set_proto(ctx, Proto::Resp2);
    ctx.out.simple("RESET");
    Ok(())
}

fn ping(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        1 => ctx.out.simple("PONG"),
        2 => ctx.out.bulk(args.at(1)),
        _ => return Err(CommandError::wrong_arity("ping")),
    }
    Ok(())
}

fn echo(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ctx.out.bulk(args.at(1));
    Ok(())
}

fn select(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let index = ctx.server.db_index(args.at(1))?;
    choose_db(ctx, index);
    ctx.out.ok();
    Ok(())
}

/// Selects a database for this command and all that follow.
pub(super) fn choose_db(ctx: &mut Context<'_>, index: usize) {
    ctx.session.db = index;
    ctx.db.index = index;
}

/// There are no replicas: nothing acknowledges, so waiting for one lasts as long as it may.
fn wait(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let replicas = args.int(1)?;
    let timeout_ms = parse_integer(args.at(2)).ok_or("ERR timeout is not an integer or out of range")?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| CommandError::new("ERR timeout is negative"))?;
    if replicas <= 0 || ctx.nested {
        ctx.out.int(0);
        return Ok(());
    }
    let until_us = (timeout_ms > 0).then(|| deadline_us(ctx.server, timeout_ms));
    ctx.session.blocked = Some(Blocked { until_us, reply: b":0\r\n".to_vec(), again: None });
    Ok(())
}

/// Returns the monotonic time `ms` from now.
pub(super) fn deadline_us(server: &Instance, ms: u64) -> u64 {
    server.clock.monotonic_us().saturating_add(ms.saturating_mul(1000))
}
