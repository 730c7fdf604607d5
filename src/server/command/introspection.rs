//! COMMAND: the table, told to clients.

use super::error::CommandError;
use super::table::{Command, Entry, Keys, Table, category, flag};
use super::{Context, Outcome, glob, help};
use crate::server::resp::{Args, Reply};

const ANYTIME: u32 = flag::LOADING | flag::STALE;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("command", -1, ANYTIME, Keys::None, "2.8.13", all).also(category::CONNECTION),
    Command::new("command|count", 2, ANYTIME, Keys::None, "2.8.13", count).also(category::CONNECTION),
    Command::new("command|docs", -2, ANYTIME, Keys::None, "7.0.0", docs).also(category::CONNECTION),
    Command::new("command|info", -2, ANYTIME, Keys::None, "2.8.13", info).also(category::CONNECTION),
    Command::new("command|list", -2, ANYTIME, Keys::None, "7.0.0", list).also(category::CONNECTION),
    Command::new("command|getkeys", -3, ANYTIME, Keys::None, "2.8.13", get_keys).also(category::CONNECTION),
    Command::container("module", "4.0.0"),
    Command::new("module|list", 2, flag::ADMIN | flag::NOSCRIPT, Keys::None, "4.0.0", no_modules),
    Command::new("module|help", 2, ANYTIME, Keys::None, "5.0.0", module_help),
    Command::new("command|help", 2, ANYTIME, Keys::None, "5.0.0", command_help).also(category::CONNECTION),
];

/// Returns what can be called here: commands that were renamed away are not told of.
fn entries<'a>(ctx: &Context<'a>) -> impl Iterator<Item = &'static Entry> + use<'a> {
    let gone = ctx.server.names.gone();
    Table::get().entries().iter().filter(move |entry| {
        let name = entry.command.name;
        !gone.contains(&name.split_once('|').map_or(name, |(container, _)| container))
    })
}

fn top_level<'a>(ctx: &Context<'a>) -> impl Iterator<Item = &'static Entry> + use<'a> {
    entries(ctx).filter(|entry| !entry.command.name.contains('|'))
}

fn all(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.array(top_level(ctx).count());
    for entry in top_level(ctx) {
        describe(ctx.out, entry);
    }
    Ok(())
}

fn count(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.count(top_level(ctx).count());
    Ok(())
}

fn info(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 2 {
        return all(ctx, args);
    }
    ctx.out.array(args.len() - 2);
    for name in args.iter().skip(2) {
        match ctx.server.names.find(name) {
            Some(entry) => describe(ctx.out, entry),
            None => ctx.out.nil_array(),
        }
    }
    Ok(())
}

/// Writes name, arity, flags, keys, categories, tips, key specifications, subcommands.
fn describe(out: &mut Reply, entry: &Entry) {
    let command = entry.command;
    out.array(10);
    out.text(command.name);
    out.int(i64::from(command.arity));
    let flags = command.flag_names();
    out.set(flags.len());
    for flag in flags {
        out.simple(flag);
    }
    let (first, last, step) = command.keys.legacy();
    for position in [first, last, step] {
        out.int(position);
    }
    let categories = names(category::NAMES, entry.categories);
    out.set(categories.len());
    for category in categories {
        out.simple(&format!("@{category}"));
    }
    out.array(0);
    key_specs(out, command);
    out.array(entry.subcommands.len());
    for sub in &entry.subcommands {
        describe(out, Table::get().entry(*sub));
    }
}

fn names<'a>(known: &[(u32, &'a str)], bits: u32) -> Vec<&'a str> {
    known.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

fn key_specs(out: &mut Reply, command: &Command) {
    let Keys::Range { first, last, step } = command.keys else {
        out.array(0);
        return;
    };
    let int = |value: usize| i64::try_from(value).unwrap_or(0);
    // Relative to the first key, or from the end.
    let relative = if last < 0 { last } else { last - isize::try_from(first).unwrap_or(0) };
    out.array(1);
    out.map(3);
    out.text("flags");
    out.set(1);
    out.simple(if command.has(flag::WRITE) { "RW" } else { "RO" });
    out.text("begin_search");
    out.map(2);
    out.text("type");
    out.text("index");
    out.text("spec");
    out.map(1);
    out.text("index");
    out.int(int(first));
    out.text("find_keys");
    out.map(2);
    out.text("type");
    out.text("range");
    out.text("spec");
    out.map(3);
    out.text("lastkey");
    out.int(i64::try_from(relative).unwrap_or(0));
    out.text("keystep");
    out.int(int(step));
    out.text("limit");
    out.int(0);
}

fn docs(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let entries: Vec<&Entry> = if args.len() == 2 {
        top_level(ctx).collect()
    } else {
        args.iter().skip(2).filter_map(|name| ctx.server.names.find(name)).collect()
    };
    ctx.out.map(entries.len());
    for entry in entries {
        document(ctx.out, entry);
    }
    Ok(())
}

fn document(out: &mut Reply, entry: &Entry) {
    out.text(entry.command.name);
    out.map(3 + usize::from(!entry.subcommands.is_empty()));
    // redis-cli prints whatever is at address 0 if there is none.
    out.text("summary");
    out.text("See the documentation of Redis.");
    out.text("since");
    out.text(entry.command.since);
    out.text("group");
    out.text(entry.group);
    if !entry.subcommands.is_empty() {
        out.text("subcommands");
        out.map(entry.subcommands.len());
        for sub in &entry.subcommands {
            document(out, Table::get().entry(*sub));
        }
    }
}

fn list(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let names: Vec<&str> = match args.len() {
        2 => top_level(ctx).map(|entry| entry.command.name).collect(),
        5 if args.is(2, "FILTERBY") => {
            let entries = entries(ctx);
            if args.is(3, "ACLCAT") {
                let wanted = category::by_name(&args.text(4)).unwrap_or(0);
                entries
                    .filter(|entry| entry.categories & wanted != 0)
                    .map(|entry| entry.command.name)
                    .collect()
            } else if args.is(3, "PATTERN") {
                let pattern = args.lower(4);
                entries
                    .filter(|entry| glob::matches(pattern.as_bytes(), entry.command.name.as_bytes()))
                    .map(|entry| entry.command.name)
                    .collect()
            } else if args.is(3, "MODULE") {
                Vec::new()
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        _ => return Err(CommandError::SYNTAX),
    };
    ctx.out.array(names.len());
    for name in names {
        ctx.out.text(name);
    }
    Ok(())
}

fn no_modules(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.array(0);
    Ok(())
}

fn module_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(ctx, "MODULE", &[("LIST", "Returns the modules: none can be loaded here.")])
}

fn get_keys(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let command = args.from(2);
    let entry =
        ctx.server.names.resolve(command).map_err(|_| CommandError::new("ERR Invalid command specified"))?;
    if !entry.command.accepts(command.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    if entry.command.keys == Keys::None {
        return Err("ERR The command has no key arguments".into());
    }
    let positions = entry.command.keys.positions(command);
    ctx.out.array(positions.len());
    for at in positions {
        ctx.out.bulk(command.at(at));
    }
    Ok(())
}

fn command_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "COMMAND",
        &[
            ("(no subcommand)", "Returns all commands."),
            ("COUNT", "Returns their number."),
            ("DOCS [<name> ...]", "Returns since when commands exist and where they belong."),
            ("GETKEYS <full-command>", "Returns the keys of a call."),
            ("INFO [<name> ...]", "Returns arity, flags, keys and categories."),
            ("LIST [FILTERBY (ACLCAT <cat>|PATTERN <glob>|MODULE <name>)]", "Returns names."),
        ],
    )
}
