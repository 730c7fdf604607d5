//! Sets: SADD to SINTERCARD.

use super::collection_scan::{CollectionScan, empty_page, page};
use super::error::CommandError;
use super::sample::{Wanted, different};
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::keyspace::{Free, Selected};
use crate::server::resp::Args;
use crate::server::value::Value;
use crate::server::value::listpack::Element;
use crate::server::value::random::Random;
use crate::server::value::set::Set;

const READ_FAST: u32 = flag::READONLY | flag::FAST;
const STORE: u32 = flag::WRITE | flag::DENYOOM;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("sadd", -3, flag::WRITE | flag::DENYOOM | flag::FAST, Keys::ONE, "1.0.0", sadd),
    Command::new("srem", -3, flag::WRITE | flag::FAST, Keys::ONE, "1.0.0", srem),
    Command::new("scard", 2, READ_FAST, Keys::ONE, "1.0.0", scard).needs(need::ANY, need::ANY),
    Command::new("sismember", 3, READ_FAST, Keys::ONE, "1.0.0", sismember).needs(need::ANY, need::ANY),
    Command::new("smismember", -3, READ_FAST, Keys::ONE, "6.2.0", smismember),
    Command::new("smembers", 2, flag::READONLY, Keys::ONE, "1.0.0", smembers),
    Command::new("smove", 4, flag::WRITE | flag::FAST, Keys::TWO, "1.0.0", smove)
        .needs(need::BOTH, need::WRITE),
    Command::new("spop", -2, flag::WRITE | flag::FAST, Keys::ONE, "1.0.0", spop)
        .needs(need::BOTH, need::BOTH),
    Command::new("srandmember", -2, flag::READONLY, Keys::ONE, "1.0.0", srandmember),
    Command::new("sscan", -3, flag::READONLY, Keys::ONE, "2.8.0", sscan),
    Command::new("sinter", -2, flag::READONLY, Keys::ALL, "1.0.0", sinter),
    Command::new("sunion", -2, flag::READONLY, Keys::ALL, "1.0.0", sunion),
    Command::new("sdiff", -2, flag::READONLY, Keys::ALL, "1.0.0", sdiff),
    Command::new("sinterstore", -3, STORE, Keys::ALL, "1.0.0", sinterstore).needs(need::WRITE, need::READ),
    Command::new("sunionstore", -3, STORE, Keys::ALL, "1.0.0", sunionstore).needs(need::WRITE, need::READ),
    Command::new("sdiffstore", -3, STORE, Keys::ALL, "1.0.0", sdiffstore).needs(need::WRITE, need::READ),
    Command::new(
        "sintercard",
        -3,
        flag::READONLY | flag::MOVABLEKEYS,
        Keys::Counted { count_at: 1, dest: false },
        "7.0.0",
        sintercard,
    ),
];

fn sadd(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, count) = (args.at(1), args.len() - 2);
    let (seed, limits) = (ctx.db.keyspace.seed(), &ctx.server.settings.limits);
    let set = ctx.db.make_set(key, || Set::new(args.at(2), count, seed, limits))?;
    set.maybe_convert(count, limits);
    let added = args.iter().skip(2).filter(|member| set.add(member, limits)).count();
    if added > 0 {
        ctx.db.changed(key, added);
    }
    ctx.out.count(added);
    Ok(())
}

fn srem(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let removed = match ctx.db.write_set(key)? {
        Some(set) => args.iter().skip(2).filter(|member| set.remove(member)).count(),
        None => 0,
    };
    ctx.db.shrunk(key, removed);
    ctx.out.count(removed);
    Ok(())
}

fn scard(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = ctx.db.read_set(args.at(1))?.map_or(0, Set::len);
    ctx.out.count(len);
    Ok(())
}

fn sismember(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let found = ctx.db.read_set(args.at(1))?.is_some_and(|set| set.contains(args.at(2)));
    ctx.out.int(i64::from(found));
    Ok(())
}

fn smismember(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let set = ctx.db.read_set(args.at(1))?;
    ctx.out.array(args.len() - 2);
    for member in args.iter().skip(2) {
        ctx.out.int(i64::from(set.is_some_and(|set| set.contains(member))));
    }
    Ok(())
}

fn smembers(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match ctx.db.read_set(args.at(1))? {
        None => ctx.out.set(0),
        Some(set) => {
            ctx.out.set(set.len());
            set.members().for_each(|member| ctx.out.element(member));
        }
    }
    Ok(())
}

fn smove(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (source, target, member) = (args.at(1), args.at(2), args.at(3));
    let Some(set) = ctx.db.write_set(source)? else {
        ctx.out.int(0);
        return Ok(());
    };
    let there = set.contains(member);
    ctx.db.write_set(target)?;
    if !there || source == target {
        ctx.out.int(i64::from(there));
        return Ok(());
    }
    if let Some(set) = ctx.db.write_set(source)? {
        set.remove(member);
    }
    ctx.db.shrunk(source, 1);
    let (seed, limits) = (ctx.db.keyspace.seed(), &ctx.server.settings.limits);
    ctx.db.make_set(target, || Set::new(member, 1, seed, limits))?.add(member, limits);
    ctx.db.changed(target, 1);
    ctx.out.int(1);
    Ok(())
}

fn spop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::SYNTAX);
    }
    let (key, mut random) = (args.at(1), ctx.db.fork_random());
    if args.len() == 2 {
        match ctx.db.write_set(key)?.and_then(|set| set.pop_random(&mut random)) {
            Some(member) => {
                ctx.out.bulk(&member);
                ctx.db.shrunk(key, 1);
            }
            None => ctx.out.nil(),
        }
        return Ok(());
    }
    let count = args.positive(2)?;
    let Some(set) = ctx.db.write_set(key)? else {
        ctx.out.set(0);
        return Ok(());
    };
    let count = count.min(set.len());
    ctx.out.set(count);
    if count == set.len() {
        set.members().for_each(|member| ctx.out.element(member));
        ctx.db.delete(key, Free::ForServer);
        return Ok(());
    }
    for _ in 0..count {
        if let Some(member) = set.pop_random(&mut random) {
            ctx.out.bulk(&member);
        }
    }
    ctx.db.shrunk(key, count);
    Ok(())
}

fn srandmember(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::SYNTAX);
    }
    let (key, mut random) = (args.at(1), ctx.db.fork_random());
    if args.len() == 2 {
        match ctx.db.read_set(key)?.and_then(|set| set.random(&mut random)) {
            Some(member) => ctx.out.element(member),
            None => ctx.out.nil(),
        }
        return Ok(());
    }
    let wanted = Wanted::parse(args, 2)?;
    let Some(set) = ctx.db.read_set(key)? else {
        ctx.out.array(0);
        return Ok(());
    };
    match wanted {
        Wanted::Repeats(count) => {
            ctx.out.array(count);
            for _ in 0..count {
                if let Some(member) = set.random(&mut random) {
                    ctx.out.element(member);
                }
            }
        }
        Wanted::Different(count) => {
            let all = || set.members().map(|member| member.bytes().into_owned()).collect();
            let draw = |random: &mut Random| set.random(random).map(|member| member.bytes().into_owned());
            let drawn = different(count, set.len(), &mut random, all, draw);
            ctx.out.array(drawn.len());
            for member in &drawn {
                ctx.out.bulk(member);
            }
        }
    }
    Ok(())
}

fn sscan(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    CollectionScan::cursor(args)?;
    let Some(set) = ctx.db.read_set(args.at(1))? else {
        empty_page(ctx.out);
        return Ok(());
    };
    let scan = CollectionScan::parse(args, false)?;
    page(ctx.out, |out| {
        let mut emitted = 0;
        let cursor = set.scan(scan.cursor, scan.count, |member| {
            if scan.wants(member) {
                out.element(member);
                emitted += 1;
            }
        });
        (cursor, emitted)
    });
    Ok(())
}

/// What two or more sets make.
#[derive(Clone, Copy)]
enum Algebra {
    Intersection,
    Union,
    Difference,
}

fn sinter(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_combined(ctx, args, Algebra::Intersection)
}

fn sunion(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_combined(ctx, args, Algebra::Union)
}

fn sdiff(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_combined(ctx, args, Algebra::Difference)
}

fn sinterstore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store_combined(ctx, args, Algebra::Intersection)
}

fn sunionstore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store_combined(ctx, args, Algebra::Union)
}

fn sdiffstore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store_combined(ctx, args, Algebra::Difference)
}

fn reply_combined(ctx: &mut Context<'_>, args: Args<'_>, algebra: Algebra) -> Outcome {
    let result = combine(ctx, &keys_from(args, 1), algebra)?;
    ctx.out.set(result.len());
    result.members().for_each(|member| ctx.out.element(member));
    Ok(())
}

fn store_combined(ctx: &mut Context<'_>, args: Args<'_>, algebra: Algebra) -> Outcome {
    let target = args.at(1);
    let result = combine(ctx, &keys_from(args, 2), algebra)?;
    let len = result.len();
    if result.is_empty() {
        ctx.db.delete(target, Free::ForServer);
    } else {
        ctx.db.set(target, Value::from(result));
        ctx.db.changed(target, 1);
    }
    ctx.out.count(len);
    Ok(())
}

/// Combines sets into a new one, which takes the encoding that its members call for.
fn combine(ctx: &mut Context<'_>, keys: &[&[u8]], algebra: Algebra) -> Result<Set, CommandError> {
    let (seed, limits) = (ctx.db.keyspace.seed(), &ctx.server.settings.limits);
    let mut result = Set::empty(seed);
    match algebra {
        Algebra::Union => {
            for key in keys {
                if let Some(set) = ctx.db.read_set(key)? {
                    for member in set.members() {
                        result.add(&member.bytes(), limits);
                    }
                }
            }
        }
        Algebra::Intersection => {
            let found = lookup_all(&mut ctx.db, keys)?;
            let views: Option<Vec<&Set>> =
                found.iter().map(|key| key.and_then(|key| peek_set(&ctx.db, key))).collect();
            intersect(views.unwrap_or_default(), |member| {
                result.add(&member.bytes(), limits);
                true
            });
        }
        Algebra::Difference => {
            let found = lookup_all(&mut ctx.db, keys)?;
            let mut views = found.iter().map(|key| key.and_then(|key| peek_set(&ctx.db, key)));
            if let Some(first) = views.next().flatten() {
                let others: Vec<&Set> = views.flatten().collect();
                for member in first.members() {
                    let text = member.bytes();
                    if !others.iter().any(|other| other.contains(&text)) {
                        result.add(&text, limits);
                    }
                }
            }
        }
    }
    Ok(result)
}

/// Looks every key up, so that each is checked, expired and counted; `None` for those not there.
fn lookup_all<'a>(db: &mut Selected<'_>, keys: &[&'a [u8]]) -> Result<Vec<Option<&'a [u8]>>, CommandError> {
    keys.iter().map(|key| Ok(db.read_set(key)?.map(|_| *key))).collect()
}

fn keys_from(args: Args<'_>, index: usize) -> Vec<&[u8]> {
    args.iter().skip(index).collect()
}

/// Returns a set that has been looked up a moment ago.
fn peek_set<'a>(db: &'a Selected<'_>, key: &[u8]) -> Option<&'a Set> {
    match &db.peek(key)?.value {
        Value::Set(set) => Some(set),
        _ => None,
    }
}

/// Walks the smallest set and emits what all others have too, until `emit` says stop.
fn intersect(mut sets: Vec<&Set>, mut emit: impl FnMut(Element<'_>) -> bool) {
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else {
        return;
    };
    for member in smallest.members() {
        let text = member.bytes();
        if others.iter().all(|other| other.contains(&text)) && !emit(member) {
            return;
        }
    }
}

fn sintercard(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let numkeys = args.positive(1).ok().filter(|n| *n > 0).ok_or("ERR numkeys should be greater than 0")?;
    if numkeys > args.len() - 2 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let limit = limit_option(args, 2 + numkeys)?;
    let keys: Vec<&[u8]> = args.iter().skip(2).take(numkeys).collect();
    let found = lookup_all(&mut ctx.db, &keys)?;
    let views: Option<Vec<&Set>> =
        found.iter().map(|key| key.and_then(|key| peek_set(&ctx.db, key))).collect();
    let mut count = 0;
    intersect(views.unwrap_or_default(), |_| {
        count += 1;
        count != limit
    });
    ctx.out.count(count);
    Ok(())
}

/// Reads `[LIMIT n]` from argument `at` to the end.
pub(super) fn limit_option(args: Args<'_>, mut at: usize) -> Result<usize, CommandError> {
    let mut limit = 0;
    while at < args.len() {
        if !args.is(at, "limit") || at + 1 >= args.len() {
            return Err(CommandError::SYNTAX);
        }
        limit = args.positive(at + 1).map_err(|_| CommandError::new("ERR LIMIT can't be negative"))?;
        at += 2;
    }
    Ok(limit)
}
