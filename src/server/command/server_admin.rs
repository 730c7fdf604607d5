//! CONFIG, DEBUG, INFO and what else looks after a server.

use std::time::Duration;

use super::dataset_digest::Digest;
use super::error::CommandError;
use super::table::{Command, Keys, category, flag};
use super::{Context, Outcome, glob, help, persistence, string};
use crate::server::config::{ConfigError, DebugAccess, canonical_name};
use crate::server::fault::{Fault, FaultAction};
use crate::server::info;
use crate::server::keyspace::Key;
use crate::server::number::parse_integer;
use crate::server::rdb::dump;
use crate::server::resp::Args;
use crate::server::value::Value;
use crate::server::value::list::List;
use crate::server::value::listpack::Listpack;
use crate::server::value::string::StringValue;

const ADMIN: u32 = flag::ADMINISTRATION;
const ANYTIME: u32 = flag::LOADING | flag::STALE;

pub(super) const COMMANDS: &[Command] = &[
    Command::container("config", "2.0.0"),
    Command::new("config|get", -3, ADMIN, Keys::None, "2.0.0", config_get),
    Command::new("config|set", -4, ADMIN, Keys::None, "2.0.0", config_set),
    Command::new("config|resetstat", 2, ADMIN, Keys::None, "2.0.0", config_resetstat),
    Command::new("config|rewrite", 2, ADMIN, Keys::None, "2.8.0", config_rewrite),
    Command::new("config|help", 2, ANYTIME, Keys::None, "5.0.0", config_help),
    Command::new("info", -1, ANYTIME, Keys::None, "1.0.0", info_command).also(category::DANGEROUS),
    Command::new("role", 1, flag::NOSCRIPT | ANYTIME | flag::FAST, Keys::None, "2.8.12", role)
        .also(category::ADMIN | category::DANGEROUS),
    Command::new("time", 1, ANYTIME | flag::FAST, Keys::None, "2.6.0", time),
    Command::new("dbsize", 1, flag::READONLY | flag::FAST, Keys::None, "1.0.0", dbsize)
        .also(category::KEYSPACE),
    Command::new("flushdb", -1, flag::WRITE, Keys::None, "1.0.0", flushdb)
        .also(category::KEYSPACE | category::DANGEROUS),
    Command::new("flushall", -1, flag::WRITE, Keys::None, "1.0.0", flushall)
        .also(category::KEYSPACE | category::DANGEROUS),
    Command::new("swapdb", 3, flag::WRITE | flag::FAST, Keys::None, "4.0.0", swapdb)
        .also(category::KEYSPACE | category::DANGEROUS),
    Command::new("lastsave", 1, ANYTIME | flag::FAST, Keys::None, "1.0.0", lastsave)
        .also(category::ADMIN | category::DANGEROUS),
    Command::new("shutdown", -1, ADMIN | flag::NO_MULTI | flag::ALLOW_BUSY, Keys::None, "1.0.0", shutdown),
    Command::new("debug", -2, ADMIN, Keys::None, "1.0.0", debug),
    Command::new("lolwut", -1, flag::READONLY | flag::FAST, Keys::None, "5.0.0", lolwut),
];

fn config_get(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let wanted = |name: &str| {
        args.iter().skip(2).any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    };
    let found = ctx.server.settings.matching(wanted);
    ctx.out.map(found.len());
    for (name, value) in found {
        ctx.out.text(name);
        ctx.out.text(&value);
    }
    Ok(())
}

/// Sets all of the parameters or none of them.
fn config_set(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::wrong_arity("config|set"));
    }
    let mut settings = ctx.server.settings.clone();
    let mut seen = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let name = args.text(at);
        let unknown = || {
            CommandError::with(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"))
        };
        let canonical = canonical_name(&name).ok_or_else(unknown)?;
        let failed = |why: &str| {
            let text = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}");
            CommandError::with(text)
        };
        if seen.contains(&canonical) {
            return Err(failed("duplicate parameter"));
        }
        seen.push(canonical);
        settings.set(&name, args.at(at + 1), false).map_err(|error| match error {
            ConfigError::Unknown => unknown(),
            ConfigError::Invalid(why) => failed(&why),
        })?;
    }
    ctx.server.settings = settings;
    ctx.server.apply_settings(ctx.db.keyspace);
    if seen.contains(&"requirepass") {
        let password = ctx.server.settings.requirepass.clone();
        ctx.server.acl.require_password(&password);
    }
    ctx.out.ok();
    Ok(())
}

fn config_resetstat(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.server.stats.reset();
    let keyspace = &mut *ctx.db.keyspace;
    keyspace.stats = crate::server::keyspace::Stats::default();
    keyspace.lazyfree.reset_freed();
    keyspace.active_expire.time_cap_reached = 0;
    ctx.out.ok();
    Ok(())
}

fn config_rewrite(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err("ERR The server is running without a config file".into())
}

fn config_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "CONFIG",
        &[
            ("GET <pattern> [...]", "Returns the parameters that match, with their values."),
            ("SET <directive> <value> [...]", "Sets parameters, all or none."),
            ("RESETSTAT", "Forgets the statistics of INFO."),
            ("REWRITE", "Refused: there is no configuration file."),
        ],
    )
}

fn info_command(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let sections: Vec<String> = (1..args.len()).map(|at| args.lower(at)).collect();
    let text = info::render(ctx.server, ctx.db.keyspace, &sections);
    ctx.out.verbatim(text.as_bytes());
    Ok(())
}

fn role(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.array(3);
    ctx.out.text("master");
    ctx.out.int(0);
    ctx.out.array(0);
    Ok(())
}

fn time(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let ms = ctx.server.clock.unix_ms();
    ctx.out.array(2);
    ctx.out.text(&(ms / 1000).to_string());
    ctx.out.text(&(ms % 1000 * 1000).to_string());
    Ok(())
}

fn dbsize(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.count(ctx.db.len());
    Ok(())
}

/// Reads the ASYNC or SYNC of a flush; without either the setting decides.
fn flushes_lazily(ctx: &Context<'_>, args: Args<'_>) -> Result<bool, CommandError> {
    match args.len() {
        1 => Ok(ctx.db.keyspace.settings.lazy_user_flush),
        2 if args.is(1, "ASYNC") => Ok(true),
        2 if args.is(1, "SYNC") => Ok(false),
        _ => Err(CommandError::SYNTAX),
    }
}

fn flushdb(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let lazy = flushes_lazily(ctx, args)?;
    ctx.db.keyspace.flush(ctx.db.index, lazy);
    ctx.out.ok();
    Ok(())
}

fn flushall(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let lazy = flushes_lazily(ctx, args)?;
    for index in 0..ctx.db.keyspace.dbs().len() {
        ctx.db.keyspace.flush(index, lazy);
    }
    ctx.out.ok();
    Ok(())
}

fn swapdb(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let first = parse_integer(args.at(1)).ok_or("ERR invalid first DB index")?;
    let second = parse_integer(args.at(2)).ok_or("ERR invalid second DB index")?;
    let index = |index: i64| ctx.server.db_index(index.to_string().as_bytes());
    let (first, second) = (index(first)?, index(second)?);
    ctx.db.keyspace.swap(first, second);
    ctx.out.ok();
    Ok(())
}

fn lastsave(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.int(i64::try_from(ctx.server.last_save_s).unwrap_or(0));
    Ok(())
}

/// Ends the server. Nothing is saved: `save` has no points by default.
fn shutdown(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    for at in 1..args.len() {
        if !["NOSAVE", "SAVE", "NOW", "FORCE", "ABORT"].iter().any(|word| args.is(at, word)) {
            return Err(CommandError::SYNTAX);
        }
    }
    if args.is(1, "ABORT") {
        return Err("ERR No shutdown in progress.".into());
    }
    ctx.server.shutdown = true;
    // As in Redis there is no reply: the connection ends.
    ctx.session.killed = true;
    Ok(())
}

fn lolwut(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.verbatim(format!("Redis ver. {}\n", info::VERSION).as_bytes());
    Ok(())
}

fn debug(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let local = ctx.session.addr.starts_with("127.")
        || !ctx.session.addr.contains(':')
        || ctx.session.addr.starts_with("[::1]")
        || ctx.session.addr.starts_with('/');
    let allowed = match ctx.server.settings.enable_debug {
        DebugAccess::Yes => true,
        DebugAccess::Local => local,
        DebugAccess::No => false,
    };
    if !allowed {
        return Err(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you \
                    can run it from a local connection, otherwise you need to set this option in the \
                    configuration file, and then restart the server."
                .into(),
        );
    }
    match (args.lower(1).as_str(), args.len()) {
        ("object", 3) => debug_object(ctx, args),
        ("sleep", 3) => debug_sleep(ctx, args),
        ("set-active-expire", 3) => {
            ctx.db.keyspace.active_expire.enabled = parse_integer(args.at(2)) != Some(0);
            ctx.out.ok();
            Ok(())
        }
        ("digest", 2) => {
            ctx.out.simple(&Digest::of_dataset(ctx.db.keyspace).hex());
            Ok(())
        }
        ("digest-value", 2..) => debug_digest_value(ctx, args),
        ("reload", 2..) => persistence::reload(ctx, args),
        ("populate", 3..=5) => populate(ctx, args),
        ("fault", 3..) => fault(ctx, args),
        ("error", 3) => Err(CommandError::with(args.at(2))),
        ("help", 2) => debug_help(ctx),
        _ => Err(CommandError::with(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try DEBUG HELP.",
            args.text(1)
        ))),
    }
}

fn debug_digest_value(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ctx.out.array(args.len() - 2);
    for key in args.iter().skip(2) {
        let expires = ctx.db.deadline(key).is_some();
        let digest = ctx.db.lookup_read(key).map(|value| Digest::of_value(value, expires));
        ctx.out.simple(&digest.unwrap_or_default().hex());
    }
    Ok(())
}

fn debug_object(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now_ms = ctx.db.now_ms();
    let object = ctx.db.peek(args.at(2)).ok_or(CommandError::NO_SUCH_KEY)?;
    let mut line = format!(
        "Value at:0x7f0000000000 refcount:1 encoding:{} serializedlength:{} lru:{} lru_seconds_idle:{}",
        object.value.encoding(),
        // What DUMP gives less the type in front, and version and checksum behind: as dear as in Redis.
        dump(&object.value).len().saturating_sub(1 + 2 + 8),
        object.access.raw(),
        object.access.idle_s(now_ms),
    );
    line += &list_details(&object.value, ctx.server.settings.limits.list_max_listpack_size);
    ctx.out.simple(&line);
    Ok(())
}

/// What Redis adds for a quicklist: the one place where the number of its nodes can be seen.
fn list_details(value: &Value, node_max: i32) -> String {
    let Value::List(list) = value else {
        return String::new();
    };
    let List::Quicklist(list) = &**list else {
        return String::new();
    };
    let (head, tail) = list.nodes();
    let nodes = head.len() + tail.len();
    let bytes: usize = head.iter().chain(tail).map(Listpack::byte_len).sum();
    let average = list.len() as f64 / nodes.max(1) as f64;
    format!(
        " ql_nodes:{nodes} ql_avg_node:{average:.2} ql_listpack_max:{node_max} ql_compressed:0 \
         ql_uncompressed_size:{bytes}"
    )
}

fn debug_sleep(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    // Like strtod, what is not a number is zero.
    let seconds: f64 = args.text(2).parse().unwrap_or(0.0);
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    ctx.server.clock.sleep(time);
    ctx.out.ok();
    Ok(())
}

fn populate(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let count = args.positive(2)?;
    let prefix = args.get(3).unwrap_or(b"key");
    let size = if args.len() == 5 { args.positive(4)? } else { 0 };
    string::check_len(ctx, 0, size)?;
    if count > ctx.db.len() {
        ctx.db.reserve(count);
    }
    for number in 0..count {
        let key: Key = [prefix, b":", number.to_string().as_bytes()].concat().into();
        if ctx.db.peek(&key).is_some() {
            continue;
        }
        let mut text = format!("value:{number}").into_bytes();
        if size > 0 {
            text.resize(size, 0);
        }
        ctx.db.set(&key, Value::String(StringValue::unparsed(text)));
    }
    ctx.out.ok();
    Ok(())
}

/// `DEBUG FAULT ADD <command|*> <action> [argument] [TIMES n] [AFTER n] [KEY name]`, `CLEAR`, `LIST`.
fn fault(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args.lower(2).as_str(), args.len()) {
        ("clear", 3) => {
            ctx.server.faults.clear();
            ctx.out.ok();
        }
        ("list", 3) => {
            let faults = ctx.server.faults.list();
            ctx.out.array(faults.len());
            for fault in faults {
                ctx.out.text(&format!("{fault:?}"));
            }
        }
        ("add", 5..) => {
            let fault = parse_fault(args)?;
            ctx.server.faults.add(fault);
            ctx.out.ok();
        }
        _ => return Err(CommandError::SYNTAX),
    }
    Ok(())
}

fn parse_fault(args: Args<'_>) -> Result<Fault, CommandError> {
    let command = args.lower(3);
    let number = |at: usize| u64::try_from(args.int(at)?).map_err(|_| CommandError::NOT_POSITIVE);
    let size = |at: usize| args.positive(at);
    let (action, mut at) = match args.lower(4).as_str() {
        "delay" => (FaultAction::Delay(Duration::from_millis(number(5)?)), 6),
        "drop" => (FaultAction::DropAfter(size(5)?), 6),
        "error" => (FaultAction::Error(args.text(5)), 6),
        "cursor" => {
            let cursor = args.text(5).parse().map_err(|_| CommandError::NOT_AN_INTEGER)?;
            (FaultAction::Cursor(cursor), 6)
        }
        "empty-page" => (FaultAction::EmptyPage, 5),
        "duplicate" => (FaultAction::Duplicate, 5),
        "vanish" => (FaultAction::Vanish, 5),
        "retype" => (FaultAction::Retype, 5),
        state => (FaultAction::error(state, &command).ok_or(CommandError::SYNTAX)?, 5),
    };
    let mut fault = Fault::new(&command, action);
    while at + 1 < args.len() {
        match args.lower(at).as_str() {
            "times" => fault.times = Some(number(at + 1)?),
            "after" => fault.skip = number(at + 1)?,
            "key" => fault.key = Some(args.at(at + 1).to_vec()),
            _ => return Err(CommandError::SYNTAX),
        }
        at += 2;
    }
    if at != args.len() {
        return Err(CommandError::SYNTAX);
    }
    Ok(fault)
}

fn debug_help(ctx: &mut Context<'_>) -> Outcome {
    help(
        ctx,
        "DEBUG",
        &[
            ("DIGEST", "Returns a digest of everything there is."),
            ("DIGEST-VALUE <key> [...]", "Returns digests of values."),
            ("ERROR <string>", "Replies with this error."),
            (
                "FAULT ADD <command|*> <action> [<argument>] [TIMES <n>] [AFTER <n>] [KEY <name>]",
                "Makes calls of a command go wrong: delay <ms>, drop <bytes>, error <text>, cursor <n>, empty-page, duplicate, vanish, retype, loading, busy, noperm, moved, ask, readonly, unknown, oom.",
            ),
            ("FAULT CLEAR", "Makes them go well again."),
            ("FAULT LIST", "Returns the faults in force."),
            ("OBJECT <key>", "Shows how a value is kept."),
            ("POPULATE <count> [<prefix>] [<size>]", "Makes string keys named <prefix>:<number>."),
            ("RELOAD [MERGE] [NOFLUSH] [NOSAVE]", "Saves, forgets everything and loads it again."),
            ("SET-ACTIVE-EXPIRE <0|1>", "Turns active expiry off or on."),
            ("SLEEP <seconds>", "Holds the command thread."),
        ],
    )
}
