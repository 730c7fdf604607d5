//! ACL: users, their rules, and what would happen if.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;

use super::acl::{Acl, Denial};
use super::acl_log;
use super::error::CommandError;
use super::table::{Command, Keys, Table, category, flag};
use super::{Context, Outcome, client_admin, help};
use crate::server::resp::Args;

const ANYONE: u32 = flag::NOSCRIPT | flag::LOADING | flag::STALE;
const ADMIN: u32 = flag::ADMINISTRATION;

pub(super) const COMMANDS: &[Command] = &[
    Command::container("acl", "6.0.0"),
    Command::new("acl|whoami", 2, ANYONE, Keys::None, "6.0.0", whoami),
    Command::new("acl|list", 2, ADMIN, Keys::None, "6.0.0", list),
    Command::new("acl|users", 2, ADMIN, Keys::None, "6.0.0", users),
    Command::new("acl|getuser", 3, ADMIN, Keys::None, "6.0.0", get_user),
    Command::new("acl|setuser", -3, ADMIN, Keys::None, "6.0.0", set_user),
    Command::new("acl|deluser", -3, ADMIN, Keys::None, "6.0.0", delete_users),
    Command::new("acl|cat", -2, ANYONE, Keys::None, "6.0.0", categories),
    Command::new("acl|dryrun", -4, ADMIN, Keys::None, "7.0.0", dry_run),
    Command::new("acl|log", -2, ADMIN, Keys::None, "6.0.0", acl_log::log),
    Command::new("acl|genpass", -2, ANYONE, Keys::None, "6.0.0", generate_password),
    Command::new("acl|load", 2, ADMIN, Keys::None, "6.0.0", no_file),
    Command::new("acl|save", 2, ADMIN, Keys::None, "6.0.0", no_file),
    Command::new("acl|help", 2, flag::LOADING | flag::STALE, Keys::None, "6.0.0", acl_help),
];

fn whoami(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    match &ctx.session.user {
        Some(user) => ctx.out.text(user),
        None => ctx.out.nil(),
    }
    Ok(())
}

fn list(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let lines: Vec<String> = ctx.server.acl.users().map(|(name, user)| user.describe(name)).collect();
    ctx.out.array(lines.len());
    for line in lines {
        ctx.out.text(&line);
    }
    Ok(())
}

fn users(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let names: Vec<&str> = ctx.server.acl.users().map(|(name, _)| name).collect();
    ctx.out.array(names.len());
    for name in names {
        ctx.out.text(name);
    }
    Ok(())
}

fn get_user(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let out = &mut *ctx.out;
    let Some(user) = ctx.server.acl.user(&args.text(2)) else {
        out.nil_array();
        return Ok(());
    };
    out.map(6);
    out.text("flags");
    let flags = user.flags();
    out.set(flags.len());
    for flag in flags {
        out.text(flag);
    }
    out.text("passwords");
    out.array(user.passwords().len());
    for hash in user.passwords() {
        out.text(hash);
    }
    for (name, value) in
        [("commands", user.command_text()), ("keys", user.key_text()), ("channels", user.channel_text())]
    {
        out.text(name);
        out.text(&value);
    }
    out.text("selectors");
    out.array(0);
    Ok(())
}

fn set_user(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let name = args.text(2);
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '\0') {
        return Err("ERR Usernames can't contain spaces or null characters".into());
    }
    let rules: Vec<String> = (3..args.len()).map(|at| args.text(at)).collect();
    ctx.server.acl.set_user(&name, &rules).map_err(|why| CommandError::with(format!("ERR {why}")))?;
    ctx.out.ok();
    Ok(())
}

fn delete_users(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let names: Vec<String> = (2..args.len()).map(|at| args.text(at)).collect();
    if names.iter().any(|name| name == Acl::DEFAULT) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    let mut removed = 0;
    for name in names {
        if ctx.server.acl.remove_user(&name) {
            removed += 1;
            client_admin::kill_where(ctx, false, |session| session.user.as_deref() == Some(&name));
        }
    }
    ctx.out.int(removed);
    Ok(())
}

fn categories(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let names: Vec<&str> = match args.len() {
        2 => category::NAMES.iter().map(|(_, name)| *name).collect(),
        3 => {
            let name = args.text(2);
            let wanted = category::by_name(&name);
            let wanted =
                wanted.ok_or_else(|| CommandError::with(format!("ERR Unknown category '{name}'")))?;
            let table = Table::get().entries().iter();
            table.filter(|entry| entry.categories & wanted != 0).map(|entry| entry.command.name).collect()
        }
        _ => return Err(CommandError::wrong_arity("acl|cat")),
    };
    ctx.out.array(names.len());
    for name in names {
        ctx.out.text(name);
    }
    Ok(())
}

fn dry_run(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let user = args.text(2);
    if ctx.server.acl.user(&user).is_none() {
        return Err(CommandError::with(format!("ERR User '{user}' not found")));
    }
    let command = args.from(3);
    let entry = ctx
        .server
        .names
        .resolve(command)
        .map_err(|_| CommandError::with(format!("ERR Command '{}' not found", args.text(3))))?;
    let name = entry.command.name;
    if !entry.command.accepts(command.len()) {
        return Err(CommandError::wrong_arity(name));
    }
    match ctx.server.acl.check(&user, entry, command) {
        Ok(()) => ctx.out.ok(),
        Err(Denial::Command) => {
            ctx.out.text(&format!("User {user} has no permissions to run the '{name}' command"));
        }
        Err(Denial::Key(key)) => {
            let key = String::from_utf8_lossy(&key).into_owned();
            ctx.out.text(&format!("User {user} has no permissions to access the '{key}' key"));
        }
    }
    Ok(())
}

/// Makes a password that nobody can guess; this is no matter for the seeded generator.
fn generate_password(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    const BITS_MAX: i64 = 4096;
    let bits = match args.len() {
        2 => 256,
        3 => args.int(2)?,
        _ => return Err(CommandError::subcommand(args)),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
                    number up to 4096"
                .into(),
        );
    }
    let digits = usize::try_from(bits).unwrap_or(0).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    let random = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    random.map_err(|error| CommandError::with(format!("ERR no random numbers: {error}")))?;
    let mut password = String::new();
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(password, "{byte:02x}");
    }
    password.truncate(digits);
    ctx.out.text(&password);
    Ok(())
}

fn no_file(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err("ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the \
         ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) \
         in order to store users in the Redis configuration."
        .into())
}

fn acl_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "ACL",
        &[
            ("CAT [<category>]", "Returns the categories, or the commands in one."),
            ("DELUSER <username> [...]", "Removes users and ends their connections."),
            ("DRYRUN <username> <command> [<arg> ...]", "Says whether the user could run this."),
            ("GENPASS [<bits>]", "Returns a password made at random (default: 256 bits)."),
            ("GETUSER <username>", "Returns a user's rules."),
            ("LIST", "Returns each user as a line of rules."),
            ("LOG [<count>|RESET]", "Returns who was denied what (default: 10 entries), or forgets it."),
            ("SETUSER <username> <rule> [...]", "Makes or changes a user."),
            ("USERS", "Returns the names of all users."),
            ("WHOAMI", "Returns the user of this connection."),
        ],
    )
}
