//! Sorted sets: adding, looking up, popping, scanning. Ranges are in [`super::zset_range`], unions and
//! the like in [`super::zset_algebra`].

#![allow(clippy::float_cmp, reason = "a score has changed if its bits have")]

use super::collection_scan::{CollectionScan, empty_page, page};
use super::error::CommandError;
use super::list::MultiPop;
use super::sample::{Wanted, different};
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::resp::{Args, Proto, Reply};
use crate::server::value::listpack::Element;
use crate::server::value::quicklist::End;
use crate::server::value::random::Random;
use crate::server::value::zset::Zset;

const PUT: u32 = flag::WRITE | flag::DENYOOM | flag::FAST;
const READ_FAST: u32 = flag::READONLY | flag::FAST;
const TAKE: u32 = flag::WRITE | flag::FAST;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("zadd", -4, PUT, Keys::ONE, "1.2.0", zadd),
    Command::new("zincrby", 4, PUT, Keys::ONE, "1.2.0", zincrby).needs(need::BOTH, need::BOTH),
    Command::new("zrem", -3, TAKE, Keys::ONE, "1.2.0", zrem),
    Command::new("zcard", 2, READ_FAST, Keys::ONE, "1.2.0", zcard).needs(need::ANY, need::ANY),
    Command::new("zscore", 3, READ_FAST, Keys::ONE, "1.2.0", zscore),
    Command::new("zmscore", -3, READ_FAST, Keys::ONE, "6.2.0", zmscore),
    Command::new("zrank", -3, READ_FAST, Keys::ONE, "2.0.0", zrank),
    Command::new("zrevrank", -3, READ_FAST, Keys::ONE, "2.0.0", zrevrank),
    Command::new("zpopmin", -2, TAKE, Keys::ONE, "5.0.0", zpopmin).needs(need::BOTH, need::BOTH),
    Command::new("zpopmax", -2, TAKE, Keys::ONE, "5.0.0", zpopmax).needs(need::BOTH, need::BOTH),
    Command::new(
        "zmpop",
        -4,
        flag::WRITE | flag::MOVABLEKEYS,
        Keys::Counted { count_at: 1, dest: false },
        "7.0.0",
        zmpop,
    )
    .needs(need::BOTH, need::BOTH),
    Command::new("zrandmember", -2, flag::READONLY, Keys::ONE, "6.2.0", zrandmember),
    Command::new("zscan", -3, flag::READONLY, Keys::ONE, "2.8.0", zscan),
];

/// The options of ZADD.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "one per keyword")]
struct AddOptions {
    /// NX: only new members.
    only_new: bool,
    /// XX: only members that are there.
    only_old: bool,
    /// GT: only to a higher score.
    only_up: bool,
    /// LT: only to a lower score.
    only_down: bool,
    /// CH: count changes too.
    count_changed: bool,
    /// INCR: add to the score and reply with it.
    increment: bool,
}

fn zadd(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut options = AddOptions::default();
    let mut at = 2;
    while at < args.len() {
        let option = match &*args.lower(at) {
            "nx" => &mut options.only_new,
            "xx" => &mut options.only_old,
            "gt" => &mut options.only_up,
            "lt" => &mut options.only_down,
            "ch" => &mut options.count_changed,
            "incr" => &mut options.increment,
            _ => break,
        };
        *option = true;
        at += 1;
    }
    add(ctx, args, at, &options)
}

fn zincrby(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(ctx, args, 2, &AddOptions { increment: true, ..AddOptions::default() })
}

fn add(ctx: &mut Context<'_>, args: Args<'_>, at: usize, options: &AddOptions) -> Outcome {
    let rest = args.len() - at;
    if rest == 0 || rest % 2 == 1 {
        return Err(CommandError::SYNTAX);
    }
    if options.only_new && options.only_old {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if (options.only_up && options.only_down) || (options.only_new && (options.only_up || options.only_down))
    {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if options.increment && rest > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    // All scores are read before anything is added: the command does all or nothing.
    let pairs: Vec<(f64, &[u8])> = (at..args.len())
        .step_by(2)
        .map(|index| Ok((args.double(index)?, args.at(index + 1))))
        .collect::<Result<_, CommandError>>()?;

    let key = args.at(1);
    if ctx.db.write_zset(key)?.is_none() && options.only_old {
        if options.increment {
            ctx.out.nil();
        } else {
            ctx.out.int(0);
        }
        return Ok(());
    }
    let (seed, limits) = (ctx.db.keyspace.seed(), &ctx.server.settings.limits);
    let zset = ctx.db.make_zset(key, || {
        let mut zset = Zset::new(seed);
        zset.maybe_convert(pairs.len(), pairs[0].1.len(), limits);
        zset
    })?;
    let (mut added, mut changed, mut reply) = (0, 0, None);
    for (given, member) in pairs {
        let old = zset.score(member);
        let score = if options.increment { old.unwrap_or(0.0) + given } else { given };
        if score.is_nan() {
            ctx.db.delete_if_empty(key);
            return Err("ERR resulting score is not a number (NaN)".into());
        }
        let wanted = match old {
            None => !options.only_old,
            Some(old) => {
                let refused = options.only_new
                    || (options.only_up && score <= old)
                    || (options.only_down && score >= old);
                !refused
            }
        };
        if wanted {
            zset.set(member, score, limits);
            added += usize::from(old.is_none());
            changed += usize::from(old.is_some_and(|old| old != score));
            reply = Some(score);
        }
    }
    ctx.db.shrunk(key, added + changed);
    match (options.increment, reply) {
        (true, Some(score)) => ctx.out.double(score),
        (true, None) => ctx.out.nil(),
        (false, _) => ctx.out.count(if options.count_changed { added + changed } else { added }),
    }
    Ok(())
}

fn zrem(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let removed = match ctx.db.write_zset(key)? {
        Some(zset) => args.iter().skip(2).filter(|member| zset.remove(member).is_some()).count(),
        None => 0,
    };
    ctx.db.shrunk(key, removed);
    ctx.out.count(removed);
    Ok(())
}

fn zcard(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = ctx.db.read_zset(args.at(1))?.map_or(0, Zset::len);
    ctx.out.count(len);
    Ok(())
}

fn zscore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let score = ctx.db.read_zset(args.at(1))?.and_then(|zset| zset.score(args.at(2)));
    score_or_nil(ctx.out, score);
    Ok(())
}

fn zmscore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let zset = ctx.db.read_zset(args.at(1))?;
    ctx.out.array(args.len() - 2);
    for member in args.iter().skip(2) {
        score_or_nil(ctx.out, zset.and_then(|zset| zset.score(member)));
    }
    Ok(())
}

fn score_or_nil(out: &mut Reply, score: Option<f64>) {
    match score {
        Some(score) => out.double(score),
        None => out.nil(),
    }
}

fn zrank(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    rank(ctx, args, "zrank", false)
}

fn zrevrank(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    rank(ctx, args, "zrevrank", true)
}

fn rank(ctx: &mut Context<'_>, args: Args<'_>, name: &str, reverse: bool) -> Outcome {
    if args.len() > 4 {
        return Err(CommandError::wrong_arity(name));
    }
    let with_score = args.is(3, "withscore");
    if args.len() == 4 && !with_score {
        return Err(CommandError::SYNTAX);
    }
    let zset = ctx.db.read_zset(args.at(1))?;
    let found = zset.and_then(|zset| Some((zset.len(), zset.rank(args.at(2))?)));
    let Some((len, (rank, score))) = found else {
        if with_score {
            ctx.out.nil_array();
        } else {
            ctx.out.nil();
        }
        return Ok(());
    };
    if with_score {
        ctx.out.array(2);
    }
    ctx.out.count(if reverse { len - 1 - rank } else { rank });
    if with_score {
        ctx.out.double(score);
    }
    Ok(())
}

fn zpopmin(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, false)
}

fn zpopmax(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, true)
}

fn pop(ctx: &mut Context<'_>, args: Args<'_>, max: bool) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::SYNTAX);
    }
    let count = if args.len() == 3 { Some(args.positive(2)?) } else { None };
    let key = args.at(1);
    if ctx.db.write_zset(key)?.is_none() {
        ctx.out.array(0);
        return Ok(());
    }
    // Without a count the reply is flat in both protocols.
    let shape = if count.is_some() { Shape::Pairs } else { Shape::Flat };
    pop_scored(ctx, key, max, count.unwrap_or(1), shape)
}

/// How members and scores are laid out in a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Members only.
    Members,
    /// Member, score, member, score.
    Flat,
    /// Flat for RESP2, pairs for RESP3.
    Pairs,
    /// Pairs in both.
    AlwaysPairs,
    /// Flat, behind a header that is there already.
    Bare,
}

/// Writes members, with or without scores.
pub(super) fn scored<'a>(
    out: &mut Reply,
    len: usize,
    shape: Shape,
    members: impl Iterator<Item = (Element<'a>, f64)>,
) {
    let paired = match shape {
        Shape::Members | Shape::Flat | Shape::Bare => false,
        Shape::Pairs => out.proto() == Proto::Resp3,
        Shape::AlwaysPairs => true,
    };
    let flat = shape != Shape::Members && !paired;
    if shape != Shape::Bare {
        out.array(if flat { len * 2 } else { len });
    }
    for (member, score) in members.take(len) {
        if paired {
            out.array(2);
        }
        out.element(member);
        if shape != Shape::Members {
            out.double(score);
        }
    }
}

/// Takes members from an end and writes them.
pub(super) fn pop_scored(
    ctx: &mut Context<'_>,
    key: &[u8],
    max: bool,
    count: usize,
    shape: Shape,
) -> Outcome {
    let Some(zset) = ctx.db.write_zset(key)? else {
        return Ok(());
    };
    let len = zset.len();
    let count = count.min(len);
    let ranks = if max { len - count..len } else { 0..count };
    scored(ctx.out, count, shape, zset.range(ranks.clone(), max));
    zset.remove_ranks(ranks);
    ctx.db.shrunk(key, count);
    Ok(())
}

fn zmpop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pop = MultiPop::parse_with(args, 1, min_or_max)?;
    for key in pop.keys(args) {
        if ctx.db.write_zset(key)?.is_some() {
            ctx.out.array(2);
            ctx.out.bulk(key);
            return pop_scored(ctx, key, pop.end == End::Tail, pop.count, Shape::AlwaysPairs);
        }
    }
    ctx.out.nil_array();
    Ok(())
}

/// Reads MIN or MAX as the end to pop from.
pub(super) fn min_or_max(args: Args<'_>, index: usize) -> Result<End, CommandError> {
    if args.is(index, "min") {
        Ok(End::Head)
    } else if args.is(index, "max") {
        Ok(End::Tail)
    } else {
        Err(CommandError::SYNTAX)
    }
}

fn zrandmember(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, mut random) = (args.at(1), ctx.db.fork_random());
    if args.len() == 2 {
        match ctx.db.read_zset(key)?.and_then(|zset| zset.random(&mut random)) {
            Some((member, _)) => ctx.out.element(member),
            None => ctx.out.nil(),
        }
        return Ok(());
    }
    let wanted = Wanted::parse(args, 2)?;
    let with_scores = args.is(3, "withscores");
    if args.len() > 4 || (args.len() == 4 && !with_scores) {
        return Err(CommandError::SYNTAX);
    }
    let Some(zset) = ctx.db.read_zset(key)? else {
        ctx.out.array(0);
        return Ok(());
    };
    let shape = if with_scores { Shape::Pairs } else { Shape::Members };
    match wanted {
        Wanted::Repeats(count) => {
            let drawn = (0..count).filter_map(|_| zset.random(&mut random));
            scored(ctx.out, count, shape, drawn);
        }
        Wanted::Different(count) => {
            let own = |(member, score): (Element<'_>, f64)| (member.bytes().into_owned(), score.to_bits());
            let draw = |random: &mut Random| zset.random(random).map(own);
            let drawn = different(count, zset.len(), &mut random, || zset.members().map(own).collect(), draw);
            let members = drawn.iter().map(|(member, bits)| (Element::Str(member), f64::from_bits(*bits)));
            scored(ctx.out, drawn.len(), shape, members);
        }
    }
    Ok(())
}

fn zscan(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    CollectionScan::cursor(args)?;
    let Some(zset) = ctx.db.read_zset(args.at(1))? else {
        empty_page(ctx.out);
        return Ok(());
    };
    let scan = CollectionScan::parse(args, false)?;
    page(ctx.out, |out| {
        let mut emitted = 0;
        let cursor = zset.scan(scan.cursor, scan.count, |member, score| {
            if scan.wants(member) {
                out.element(member);
                out.text(&zset.scan_score(score));
                emitted += 2;
            }
        });
        (cursor, emitted)
    });
    Ok(())
}
