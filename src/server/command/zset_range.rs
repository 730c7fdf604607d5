//! Ranges of sorted sets by rank, score and bytes: reading, counting, storing, removing.

use std::ops::Range;

use super::error::CommandError;
use super::table::{Command, Keys, flag, need};
use super::typed::resolve_range;
use super::zset::{Shape, scored};
use super::{Context, Outcome};
use crate::server::keyspace::Free;
use crate::server::number::parse_double;
use crate::server::resp::Args;
use crate::server::value::Value;
use crate::server::value::zset::{LexBound, ScoreBound, Zset};

const READ: u32 = flag::READONLY;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("zrange", -4, READ, Keys::ONE, "1.2.0", zrange),
    Command::new("zrevrange", -4, READ, Keys::ONE, "1.2.0", zrevrange),
    Command::new("zrangebyscore", -4, READ, Keys::ONE, "1.0.5", zrangebyscore),
    Command::new("zrevrangebyscore", -4, READ, Keys::ONE, "2.2.0", zrevrangebyscore),
    Command::new("zrangebylex", -4, READ, Keys::ONE, "2.8.9", zrangebylex),
    Command::new("zrevrangebylex", -4, READ, Keys::ONE, "2.8.9", zrevrangebylex),
    Command::new("zrangestore", -5, flag::WRITE | flag::DENYOOM, Keys::TWO, "6.2.0", zrangestore)
        .needs(need::WRITE, need::READ),
    Command::new("zcount", 4, READ | flag::FAST, Keys::ONE, "2.0.0", zcount),
    Command::new("zlexcount", 4, READ | flag::FAST, Keys::ONE, "2.8.9", zlexcount),
    Command::new("zremrangebyrank", 4, flag::WRITE, Keys::ONE, "2.0.0", zremrangebyrank),
    Command::new("zremrangebyscore", 4, flag::WRITE, Keys::ONE, "1.2.0", zremrangebyscore),
    Command::new("zremrangebylex", 4, flag::WRITE, Keys::ONE, "2.8.9", zremrangebylex),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// What a range command fixes by its name, and what it leaves to options.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    reverse: Option<bool>,
    /// The result is stored, not sent: no WITHSCORES.
    store: bool,
}

/// A range that has been read and checked, and how to show it.
struct Query {
    bounds: Bounds,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    /// Negative is no limit.
    limit: i64,
}

enum Bounds {
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Lex(LexBound, LexBound),
}

impl Bounds {
    /// Reads both ends from arguments `at` and `at + 1`. In reverse the higher end comes first,
    /// except for ranks, which are counted from the top instead.
    fn parse(args: Args<'_>, at: usize, by: By, reverse: bool) -> Result<Bounds, CommandError> {
        let (min, max) = if reverse && by != By::Rank { (at + 1, at) } else { (at, at + 1) };
        match by {
            By::Rank => Ok(Bounds::Ranks(args.int(min)?, args.int(max)?)),
            By::Score => {
                let parse = |index| {
                    score_bound(args.at(index)).ok_or(CommandError::new("ERR min or max is not a float"))
                };
                Ok(Bounds::Scores(parse(min)?, parse(max)?))
            }
            By::Lex => {
                let wrong = CommandError::new("ERR min or max not valid string range item");
                let parse = |index| lex_bound(args.at(index)).ok_or(wrong.clone());
                Ok(Bounds::Lex(parse(min)?, parse(max)?))
            }
        }
    }

    fn ranks(&self, zset: &Zset, reverse: bool) -> Range<usize> {
        match self {
            Bounds::Ranks(start, stop) => {
                let len = zset.len();
                let range = resolve_range(*start, *stop, len);
                if reverse { len - range.end..len - range.start } else { range }
            }
            Bounds::Scores(min, max) => zset.ranks_by_score(*min, *max),
            Bounds::Lex(min, max) => zset.ranks_by_lex(min, max),
        }
    }
}

impl Query {
    fn parse(args: Args<'_>, at: usize, form: Form) -> Result<Query, CommandError> {
        let (mut by, mut reverse) = (form.by, form.reverse);
        let (mut with_scores, mut limit) = (false, None);
        let mut option = at + 2;
        while option < args.len() {
            if !form.store && args.is(option, "withscores") {
                with_scores = true;
            } else if args.is(option, "limit") && option + 2 < args.len() {
                limit = Some((args.int(option + 1)?, args.int(option + 2)?));
                option += 2;
            } else if form.reverse.is_none() && args.is(option, "rev") {
                reverse = Some(true);
            } else if form.by.is_none() && by.is_none() && args.is(option, "bylex") {
                by = Some(By::Lex);
            } else if form.by.is_none() && by.is_none() && args.is(option, "byscore") {
                by = Some(By::Score);
            } else {
                return Err(CommandError::SYNTAX);
            }
            option += 1;
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if limit.is_some() && by == By::Rank {
            return Err(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
                    .into(),
            );
        }
        if with_scores && by == By::Lex {
            return Err("ERR syntax error, WITHSCORES not supported in combination with BYLEX".into());
        }
        let (offset, limit) = limit.unwrap_or((0, -1));
        Ok(Query { bounds: Bounds::parse(args, at, by, reverse)?, reverse, with_scores, offset, limit })
    }

    /// Resolves the query against a sorted set, LIMIT included.
    fn ranks(&self, zset: &Zset) -> Range<usize> {
        let ranks = self.bounds.ranks(zset, self.reverse);
        let Ok(offset) = usize::try_from(self.offset) else {
            return 0..0;
        };
        let left = ranks.len().saturating_sub(offset);
        let count = usize::try_from(self.limit).map_or(left, |limit| limit.min(left));
        if self.reverse {
            let end = ranks.end.saturating_sub(offset);
            end - count..end
        } else {
            let start = ranks.start + offset.min(ranks.len());
            start..start + count
        }
    }
}

fn zrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(ctx, args, Form { by: None, reverse: None, store: false })
}

fn zrevrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(ctx, args, Form { by: Some(By::Rank), reverse: Some(true), store: false })
}

fn zrangebyscore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(ctx, args, Form { by: Some(By::Score), reverse: Some(false), store: false })
}

fn zrevrangebyscore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(ctx, args, Form { by: Some(By::Score), reverse: Some(true), store: false })
}

fn zrangebylex(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(ctx, args, Form { by: Some(By::Lex), reverse: Some(false), store: false })
}

fn zrevrangebylex(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(ctx, args, Form { by: Some(By::Lex), reverse: Some(true), store: false })
}

fn range(ctx: &mut Context<'_>, args: Args<'_>, form: Form) -> Outcome {
    let query = Query::parse(args, 2, form)?;
    let shape = if query.with_scores { Shape::Pairs } else { Shape::Members };
    match ctx.db.read_zset(args.at(1))? {
        None => ctx.out.array(0),
        Some(zset) => {
            let ranks = query.ranks(zset);
            scored(ctx.out, ranks.len(), shape, zset.range(ranks, query.reverse));
        }
    }
    Ok(())
}

fn zrangestore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let query = Query::parse(args, 3, Form { by: None, reverse: None, store: true })?;
    let (seed, limits) = (ctx.db.keyspace.seed(), &ctx.server.settings.limits);
    let mut result = Zset::new(seed);
    if let Some(zset) = ctx.db.read_zset(args.at(2))? {
        let ranks = query.ranks(zset);
        result.maybe_convert(ranks.len(), 0, limits);
        for (member, score) in zset.range(ranks, query.reverse) {
            result.set(&member.bytes(), score, limits);
        }
    }
    store(ctx, args.at(1), result);
    Ok(())
}

/// Puts a computed sorted set under a key, or removes the key if it is empty; replies with its length.
pub(super) fn store(ctx: &mut Context<'_>, key: &[u8], result: Zset) {
    let len = result.len();
    if result.is_empty() {
        ctx.db.delete(key, Free::ForServer);
    } else {
        ctx.db.set(key, Value::from(result));
        ctx.db.changed(key, 1);
    }
    ctx.out.count(len);
}

fn zcount(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    count(ctx, args, By::Score)
}

fn zlexcount(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    count(ctx, args, By::Lex)
}

fn count(ctx: &mut Context<'_>, args: Args<'_>, by: By) -> Outcome {
    let bounds = Bounds::parse(args, 2, by, false)?;
    let count = ctx.db.read_zset(args.at(1))?.map_or(0, |zset| bounds.ranks(zset, false).len());
    ctx.out.count(count);
    Ok(())
}

fn zremrangebyrank(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    remove(ctx, args, By::Rank)
}

fn zremrangebyscore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    remove(ctx, args, By::Score)
}

fn zremrangebylex(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    remove(ctx, args, By::Lex)
}

fn remove(ctx: &mut Context<'_>, args: Args<'_>, by: By) -> Outcome {
    let bounds = Bounds::parse(args, 2, by, false)?;
    let key = args.at(1);
    let removed = ctx.db.write_zset(key)?.map_or(0, |zset| {
        let ranks = bounds.ranks(zset, false);
        zset.remove_ranks(ranks)
    });
    ctx.db.shrunk(key, removed);
    ctx.out.count(removed);
    Ok(())
}

fn score_bound(text: &[u8]) -> Option<ScoreBound> {
    let inner = text.strip_prefix(b"(");
    Some(ScoreBound { score: parse_double(inner.unwrap_or(text))?, exclusive: inner.is_some() })
}

fn lex_bound(text: &[u8]) -> Option<LexBound> {
    match text {
        b"-" => Some(LexBound::Min),
        b"+" => Some(LexBound::Max),
        [b'[', bound @ ..] => Some(LexBound::Inclusive(bound.into())),
        [b'(', bound @ ..] => Some(LexBound::Exclusive(bound.into())),
        _ => None,
    }
}
