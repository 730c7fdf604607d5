//! Commands on any key: they never look inside a value.

use super::error::CommandError;
use super::table::{Command, Keys, category, flag, need};
use super::{Context, Outcome, glob};
use crate::server::keyspace::Free;
use crate::server::resp::Args;

const READ: u32 = flag::READONLY | flag::FAST;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("del", -2, flag::WRITE, Keys::ALL, "1.0.0", del),
    Command::new("unlink", -2, flag::WRITE | flag::FAST, Keys::ALL, "4.0.0", unlink),
    Command::new("exists", -2, READ, Keys::ALL, "1.0.0", exists).needs(need::ANY, need::ANY),
    Command::new("touch", -2, READ, Keys::ALL, "3.2.1", touch).needs(need::ANY, need::ANY),
    Command::new("type", 2, READ, Keys::ONE, "1.0.0", type_command).needs(need::ANY, need::ANY),
    Command::new("keys", 2, flag::READONLY, Keys::None, "1.0.0", keys).also(category::DANGEROUS),
    Command::new("randomkey", 1, flag::READONLY, Keys::None, "1.0.0", randomkey),
    Command::new("rename", 3, flag::WRITE, Keys::TWO, "1.0.0", rename).needs(need::BOTH, need::WRITE),
    Command::new("renamenx", 3, flag::WRITE | flag::FAST, Keys::TWO, "1.0.0", renamenx)
        .needs(need::BOTH, need::WRITE),
    Command::new("move", 3, flag::WRITE | flag::FAST, Keys::ONE, "1.0.0", move_command)
        .needs(need::BOTH, need::BOTH),
    Command::new("copy", -3, flag::WRITE | flag::DENYOOM, Keys::TWO, "6.2.0", copy)
        .needs(need::READ, need::WRITE),
];

fn del(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    delete(ctx, args, Free::ForUser)
}

fn unlink(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    delete(ctx, args, Free::Lazily)
}

fn delete(ctx: &mut Context<'_>, args: Args<'_>, free: Free) -> Outcome {
    let deleted = args.iter().skip(1).filter(|key| ctx.db.delete(key, free)).count();
    ctx.out.count(deleted);
    Ok(())
}

fn exists(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let found = args.iter().skip(1).filter(|key| ctx.db.lookup_quiet(key).is_some()).count();
    ctx.out.count(found);
    Ok(())
}

fn touch(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    // The point of TOUCH is to be noted, NO-TOUCH or not.
    let no_touch = std::mem::replace(&mut ctx.db.no_touch, false);
    let found = args.iter().skip(1).filter(|key| ctx.db.lookup_read(key).is_some()).count();
    ctx.db.no_touch = no_touch;
    ctx.out.count(found);
    Ok(())
}

fn type_command(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let object = ctx.db.lookup_quiet(args.at(1));
    ctx.out.simple(object.map_or("none", |object| object.value.type_name()));
    Ok(())
}

/// Walks the whole database in one go: what SCAN is there to avoid.
fn keys(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pattern = args.at(1);
    let place = ctx.out.defer();
    let mut found = 0;
    for key in ctx.db.keys() {
        if (pattern == b"*" || glob::matches(pattern, key)) && !ctx.db.is_due(key) {
            ctx.out.bulk(key);
            found += 1;
        }
    }
    ctx.out.array_at(&place, found);
    Ok(())
}

fn randomkey(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    match ctx.db.random_key() {
        Some(key) => ctx.out.bulk(&key),
        None => ctx.out.nil(),
    }
    Ok(())
}

fn rename(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (args.at(1), args.at(2));
    if ctx.db.lookup_write(from).is_none() {
        return Err(CommandError::NO_SUCH_KEY);
    }
    if from != to {
        rename_over(ctx, from, to);
    }
    ctx.out.ok();
    Ok(())
}

fn renamenx(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (args.at(1), args.at(2));
    if ctx.db.lookup_write(from).is_none() {
        return Err(CommandError::NO_SUCH_KEY);
    }
    let free = from != to && ctx.db.lookup_write(to).is_none();
    if free {
        rename_over(ctx, from, to);
    }
    ctx.out.bool_int(free);
    Ok(())
}

/// Gives the value and its deadline another name. What had the name is freed.
fn rename_over(ctx: &mut Context<'_>, from: &[u8], to: &[u8]) {
    ctx.db.delete(to, Free::ForServer);
    let Some((object, deadline)) = ctx.db.take(from) else {
        return;
    };
    ctx.db.put_object(to, object);
    if let Some(at_ms) = deadline {
        ctx.db.set_deadline(to, at_ms);
    }
    ctx.db.changed(from, 1);
    ctx.db.changed(to, 0);
}

fn move_command(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let target = ctx.server.db_index(args.at(2))?;
    let source = ctx.db.index;
    if source == target {
        return Err(CommandError::SAME_OBJECT);
    }
    let free = ctx.db.keyspace.select(target).lookup_write(key).is_none();
    let taken = if free { ctx.db.take(key) } else { None };
    let moved = taken.is_some();
    if let Some((object, deadline)) = taken {
        ctx.db.changed(key, 1);
        let mut target = ctx.db.keyspace.select(target);
        target.put_object(key, object);
        if let Some(at_ms) = deadline {
            target.set_deadline(key, at_ms);
        }
        target.changed(key, 0);
    }
    ctx.out.bool_int(moved);
    Ok(())
}

fn copy(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (args.at(1), args.at(2));
    let (mut target, mut replace) = (ctx.db.index, false);
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "REPLACE") {
            replace = true;
        } else if args.is(at, "DB") && at + 1 < args.len() {
            target = ctx.server.db_index(args.at(at + 1))?;
            at += 1;
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 1;
    }
    if target == ctx.db.index && from == to {
        return Err(CommandError::SAME_OBJECT);
    }
    let Some(value) = ctx.db.lookup_read(from).cloned() else {
        ctx.out.int(0);
        return Ok(());
    };
    let deadline = ctx.db.deadline(from);
    let mut target = ctx.db.keyspace.select(target);
    let taken = target.lookup_write(to).is_some();
    if taken && !replace {
        ctx.out.int(0);
        return Ok(());
    }
    target.delete(to, Free::ForServer);
    target.set(to, value);
    if let Some(at_ms) = deadline {
        target.set_deadline(to, at_ms);
    }
    target.changed(to, 1);
    ctx.out.int(1);
    Ok(())
}
