//! Hashes: HSET to HSCAN. Fields with a TTL are in [`super::hash_ttl`].

use super::collection_scan::{CollectionScan, empty_page, page};
use super::error::CommandError;
use super::sample::{Wanted, different};
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::keyspace::Selected;
use crate::server::number::{format_sum, parse_double, parse_integer};
use crate::server::resp::{Args, Proto, Reply};
use crate::server::value::hash::Hash;
use crate::server::value::listpack::Element;
use crate::server::value::random::Random;

const PUT: u32 = flag::WRITE | flag::DENYOOM | flag::FAST;
const READ_FAST: u32 = flag::READONLY | flag::FAST;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("hset", -4, PUT, Keys::ONE, "2.0.0", hset),
    Command::new("hmset", -4, PUT, Keys::ONE, "2.0.0", hmset),
    Command::new("hsetnx", 4, PUT, Keys::ONE, "2.0.0", hsetnx),
    Command::new("hget", 3, READ_FAST, Keys::ONE, "2.0.0", hget),
    Command::new("hmget", -3, READ_FAST, Keys::ONE, "2.0.0", hmget),
    Command::new("hgetall", 2, flag::READONLY, Keys::ONE, "2.0.0", hgetall),
    Command::new("hkeys", 2, flag::READONLY, Keys::ONE, "2.0.0", hkeys),
    Command::new("hvals", 2, flag::READONLY, Keys::ONE, "2.0.0", hvals),
    Command::new("hlen", 2, READ_FAST, Keys::ONE, "2.0.0", hlen).needs(need::ANY, need::ANY),
    Command::new("hstrlen", 3, READ_FAST, Keys::ONE, "3.2.0", hstrlen).needs(need::ANY, need::ANY),
    Command::new("hexists", 3, READ_FAST, Keys::ONE, "2.0.0", hexists).needs(need::ANY, need::ANY),
    Command::new("hdel", -3, flag::WRITE | flag::FAST, Keys::ONE, "2.0.0", hdel),
    Command::new("hincrby", 4, PUT, Keys::ONE, "2.0.0", hincrby).needs(need::BOTH, need::BOTH),
    Command::new("hincrbyfloat", 4, PUT, Keys::ONE, "2.6.0", hincrbyfloat).needs(need::BOTH, need::BOTH),
    Command::new("hrandfield", -2, flag::READONLY, Keys::ONE, "6.2.0", hrandfield),
    Command::new("hscan", -3, flag::READONLY, Keys::ONE, "2.8.0", hscan),
];

impl Selected<'_> {
    /// Returns the time as hashes count it.
    pub(super) fn field_now(&self) -> i64 {
        i64::try_from(self.now_ms()).unwrap_or(i64::MAX)
    }
}

fn hset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let added = set_pairs(ctx, args, "hset")?;
    ctx.out.count(added);
    Ok(())
}

fn hmset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_pairs(ctx, args, "hmset")?;
    ctx.out.ok();
    Ok(())
}

fn set_pairs(ctx: &mut Context<'_>, args: Args<'_>, name: &str) -> Result<usize, CommandError> {
    if args.len() % 2 == 1 {
        return Err(CommandError::wrong_arity(name));
    }
    let key = args.at(1);
    let texts: Vec<&[u8]> = args.iter().skip(2).collect();
    let (seed, now_ms, limits) = (ctx.db.keyspace.seed(), ctx.db.field_now(), &ctx.server.settings.limits);
    let hash = ctx.db.make_hash(key, || Hash::new(seed))?;
    hash.maybe_convert(&texts, limits);
    let mut added = 0;
    for pair in texts.chunks_exact(2) {
        hash.drop_if_due(pair[0], now_ms);
        added += usize::from(hash.set(pair[0], pair[1], limits));
    }
    ctx.db.changed(key, texts.len() / 2);
    Ok(added)
}

fn hsetnx(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, field) = (args.at(1), args.at(2));
    let (seed, now_ms, limits) = (ctx.db.keyspace.seed(), ctx.db.field_now(), &ctx.server.settings.limits);
    let hash = ctx.db.make_hash(key, || Hash::new(seed))?;
    let absent = hash.get(field, now_ms).is_none();
    if absent {
        hash.drop_if_due(field, now_ms);
        hash.maybe_convert(&[field, args.at(3)], limits);
        hash.set(field, args.at(3), limits);
        ctx.db.changed(key, 1);
    }
    ctx.out.int(i64::from(absent));
    Ok(())
}

fn hget(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now_ms = ctx.db.field_now();
    match ctx.db.read_hash(args.at(1))?.and_then(|hash| hash.get(args.at(2), now_ms)) {
        Some(value) => ctx.out.element(value),
        None => ctx.out.nil(),
    }
    Ok(())
}

fn hmget(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now_ms = ctx.db.field_now();
    let hash = ctx.db.read_hash(args.at(1))?;
    ctx.out.array(args.len() - 2);
    for field in args.iter().skip(2) {
        match hash.and_then(|hash| hash.get(field, now_ms)) {
            Some(value) => ctx.out.element(value),
            None => ctx.out.nil(),
        }
    }
    Ok(())
}

fn hgetall(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now_ms = ctx.db.field_now();
    let Some(hash) = ctx.db.read_hash(args.at(1))? else {
        ctx.out.map(0);
        return Ok(());
    };
    ctx.out.map(live_len(hash, now_ms));
    for (field, value) in hash.pairs(now_ms) {
        ctx.out.element(field);
        ctx.out.element(value);
    }
    Ok(())
}

fn hkeys(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_halves(ctx, args, true)
}

fn hvals(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_halves(ctx, args, false)
}

fn reply_halves(ctx: &mut Context<'_>, args: Args<'_>, fields: bool) -> Outcome {
    let now_ms = ctx.db.field_now();
    let Some(hash) = ctx.db.read_hash(args.at(1))? else {
        ctx.out.array(0);
        return Ok(());
    };
    ctx.out.array(live_len(hash, now_ms));
    for (field, value) in hash.pairs(now_ms) {
        ctx.out.element(if fields { field } else { value });
    }
    Ok(())
}

/// Counts the fields that a walk will find; only hashes with mortal fields have to be walked.
fn live_len(hash: &Hash, now_ms: i64) -> usize {
    if hash.has_mortal_fields() { hash.pairs(now_ms).count() } else { hash.len() }
}

fn hlen(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = ctx.db.read_hash(args.at(1))?.map_or(0, Hash::len);
    ctx.out.count(len);
    Ok(())
}

fn hstrlen(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now_ms = ctx.db.field_now();
    let value = ctx.db.read_hash(args.at(1))?.and_then(|hash| hash.get(args.at(2), now_ms));
    ctx.out.count(value.map_or(0, Element::text_len));
    Ok(())
}

fn hexists(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now_ms = ctx.db.field_now();
    let found = ctx.db.read_hash(args.at(1))?.is_some_and(|hash| hash.get(args.at(2), now_ms).is_some());
    ctx.out.int(i64::from(found));
    Ok(())
}

fn hdel(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, now_ms) = (args.at(1), ctx.db.field_now());
    let (mut removed, mut reaped) = (0, 0);
    if let Some(hash) = ctx.db.write_hash(key)? {
        for field in args.iter().skip(2) {
            if hash.drop_if_due(field, now_ms) {
                reaped += 1;
            } else if hash.remove(field) {
                removed += 1;
            }
        }
    }
    ctx.db.shrunk(key, removed + reaped);
    ctx.out.count(removed);
    Ok(())
}

fn hincrby(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = args.int(3)?;
    let sum = change_number(ctx, args, |old| {
        let old = old.map_or(Some(0), parse_integer).ok_or("ERR hash value is not an integer")?;
        let sum = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
        Ok(sum.to_string())
    })?;
    ctx.out.int(parse_integer(sum.as_bytes()).unwrap_or(0));
    Ok(())
}

fn hincrbyfloat(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = args.double(3)?;
    if !by.is_finite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let sum = change_number(ctx, args, |old| {
        let old = old.map_or(Some(0.0), parse_double).ok_or("ERR hash value is not a float")?;
        let sum = old + by;
        if sum.is_finite() {
            Ok(format_sum(sum))
        } else {
            Err("ERR increment would produce NaN or Infinity".into())
        }
    })?;
    ctx.out.text(&sum);
    Ok(())
}

/// Replaces the number in a field by what `change` makes of it. The TTL of the field stays.
fn change_number(
    ctx: &mut Context<'_>,
    args: Args<'_>,
    change: impl FnOnce(Option<&[u8]>) -> Result<String, CommandError>,
) -> Result<String, CommandError> {
    let (key, field) = (args.at(1), args.at(2));
    let (seed, now_ms, limits) = (ctx.db.keyspace.seed(), ctx.db.field_now(), &ctx.server.settings.limits);
    let old =
        ctx.db.write_hash(key)?.and_then(|hash| hash.get(field, now_ms)).map(|old| old.bytes().into_owned());
    // Nothing is made before the number is known to be one.
    let new = change(old.as_deref())?;
    let hash = ctx.db.make_hash(key, || Hash::new(seed))?;
    hash.drop_if_due(field, now_ms);
    hash.set_keeping_ttl(field, new.as_bytes(), limits);
    ctx.db.changed(key, 1);
    Ok(new)
}

fn hrandfield(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, now_ms, mut random) = (args.at(1), ctx.db.field_now(), ctx.db.fork_random());
    if args.len() == 2 {
        match ctx.db.read_hash(key)?.and_then(|hash| hash.random(&mut random, now_ms)) {
            Some((field, _)) => ctx.out.element(field),
            None => ctx.out.nil(),
        }
        return Ok(());
    }
    let wanted = Wanted::parse(args, 2)?;
    let with_values = args.is(3, "withvalues");
    if args.len() > 4 || (args.len() == 4 && !with_values) {
        return Err(CommandError::SYNTAX);
    }
    let Some(hash) = ctx.db.read_hash(key)? else {
        ctx.out.array(0);
        return Ok(());
    };
    let live = live_len(hash, now_ms);
    let announce = |out: &mut Reply, count: usize| {
        let flat = with_values && out.proto() == Proto::Resp2;
        out.array(if flat { count * 2 } else { count });
    };
    let write = |out: &mut Reply, field: Element<'_>, value: Element<'_>| {
        if with_values && out.proto() == Proto::Resp3 {
            out.array(2);
        }
        out.element(field);
        if with_values {
            out.element(value);
        }
    };
    match wanted {
        Wanted::Repeats(count) => {
            let count = if live == 0 { 0 } else { count };
            announce(ctx.out, count);
            for _ in 0..count {
                if let Some((field, value)) = hash.random(&mut random, now_ms) {
                    write(ctx.out, field, value);
                }
            }
        }
        Wanted::Different(count) => {
            let own = |(field, value): (Element<'_>, Element<'_>)| {
                (field.bytes().into_owned(), value.bytes().into_owned())
            };
            let draw = |random: &mut Random| hash.random(random, now_ms).map(own);
            let drawn = different(count, live, &mut random, || hash.pairs(now_ms).map(own).collect(), draw);
            announce(ctx.out, drawn.len());
            for (field, value) in &drawn {
                write(ctx.out, Element::Str(field), Element::Str(value));
            }
        }
    }
    Ok(())
}

fn hscan(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    CollectionScan::cursor(args)?;
    let now_ms = ctx.db.field_now();
    let Some(hash) = ctx.db.read_hash(args.at(1))? else {
        empty_page(ctx.out);
        return Ok(());
    };
    let scan = CollectionScan::parse(args, true)?;
    page(ctx.out, |out| {
        let mut emitted = 0;
        let cursor = hash.scan(scan.cursor, scan.count, now_ms, |field, value| {
            if scan.wants(field) {
                out.element(field);
                emitted += 1;
                if !scan.no_values {
                    out.element(value);
                    emitted += 1;
                }
            }
        });
        (cursor, emitted)
    });
    Ok(())
}
