//! Unions, intersections and differences of sorted sets. Plain sets take part with a score of 1.

use std::collections::HashMap;

use super::error::CommandError;
use super::set::limit_option;
use super::table::{Command, Keys, flag, need};
use super::zset::{Shape, scored};
use super::zset_range::store;
use super::{Context, Outcome};
use crate::server::resp::Args;
use crate::server::value::Value;
use crate::server::value::listpack::Element;
use crate::server::value::zset::Zset;

const READ: u32 = flag::READONLY | flag::MOVABLEKEYS;
const STORE: u32 = flag::WRITE | flag::DENYOOM | flag::MOVABLEKEYS;
const FROM_FIRST: Keys = Keys::Counted { count_at: 1, dest: false };
const FROM_SECOND: Keys = Keys::Counted { count_at: 2, dest: true };

pub(super) const COMMANDS: &[Command] = &[
    Command::new("zunion", -3, READ, FROM_FIRST, "6.2.0", zunion),
    Command::new("zinter", -3, READ, FROM_FIRST, "6.2.0", zinter),
    Command::new("zdiff", -3, READ, FROM_FIRST, "6.2.0", zdiff),
    Command::new("zunionstore", -4, STORE, FROM_SECOND, "2.0.0", zunionstore).needs(need::WRITE, need::READ),
    Command::new("zinterstore", -4, STORE, FROM_SECOND, "2.0.0", zinterstore).needs(need::WRITE, need::READ),
    Command::new("zdiffstore", -4, STORE, FROM_SECOND, "6.2.0", zdiffstore).needs(need::WRITE, need::READ),
    Command::new("zintercard", -3, READ, FROM_FIRST, "7.0.0", zintercard),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Algebra {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            // The infinities cancel out to 0, which is what Redis makes of it.
            Aggregate::Sum => Some(a + b).filter(|sum| !sum.is_nan()).unwrap_or(0.0),
            Aggregate::Min => a.min(b),
            Aggregate::Max => a.max(b),
        }
    }
}

fn zunion(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_combined(ctx, args, Algebra::Union, "zunion")
}

fn zinter(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_combined(ctx, args, Algebra::Intersection, "zinter")
}

fn zdiff(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_combined(ctx, args, Algebra::Difference, "zdiff")
}

fn zunionstore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store_combined(ctx, args, Algebra::Union, "zunionstore")
}

fn zinterstore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store_combined(ctx, args, Algebra::Intersection, "zinterstore")
}

fn zdiffstore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    store_combined(ctx, args, Algebra::Difference, "zdiffstore")
}

fn reply_combined(ctx: &mut Context<'_>, args: Args<'_>, algebra: Algebra, name: &str) -> Outcome {
    let (result, with_scores) = combine(ctx, args, 1, algebra, name)?;
    let shape = if with_scores { Shape::Pairs } else { Shape::Members };
    scored(ctx.out, result.len(), shape, result.members());
    Ok(())
}

fn store_combined(ctx: &mut Context<'_>, args: Args<'_>, algebra: Algebra, name: &str) -> Outcome {
    let (result, _) = combine(ctx, args, 2, algebra, name)?;
    store(ctx, args.at(1), result);
    Ok(())
}

/// Reads how many keys follow argument `at`.
fn numkeys(args: Args<'_>, at: usize, name: &str) -> Result<usize, CommandError> {
    let numkeys = usize::try_from(args.int(at)?).ok().filter(|n| *n > 0);
    let numkeys =
        numkeys.ok_or_else(|| format!("ERR at least 1 input key is needed for '{name}' command"))?;
    if numkeys > args.len() - at - 1 { Err(CommandError::SYNTAX) } else { Ok(numkeys) }
}

/// A source as members and scores, weight applied.
type Source = Vec<(Vec<u8>, f64)>;

fn combine(
    ctx: &mut Context<'_>,
    args: Args<'_>,
    at: usize,
    algebra: Algebra,
    name: &str,
) -> Result<(Zset, bool), CommandError> {
    let numkeys = numkeys(args, at, name)?;
    let first = at + 1;
    let mut sources = Vec::with_capacity(numkeys);
    for index in first..first + numkeys {
        sources.push(source(ctx, args.at(index))?);
    }

    let (mut aggregate, mut with_scores) = (Aggregate::Sum, false);
    let mut option = first + numkeys;
    while option < args.len() {
        let left = args.len() - option;
        if algebra != Algebra::Difference && args.is(option, "weights") && left > numkeys {
            for (number, source) in sources.iter_mut().enumerate() {
                let weight = args.double(option + 1 + number);
                let weight = weight.map_err(|_| CommandError::new("ERR weight value is not a float"))?;
                for (_, score) in source {
                    *score = Some(*score * weight).filter(|score| !score.is_nan()).unwrap_or(0.0);
                }
            }
            option += numkeys + 1;
        } else if algebra != Algebra::Difference && args.is(option, "aggregate") && left > 1 {
            aggregate = match &*args.lower(option + 1) {
                "sum" => Aggregate::Sum,
                "min" => Aggregate::Min,
                "max" => Aggregate::Max,
                _ => return Err(CommandError::SYNTAX),
            };
            option += 2;
        } else if at == 1 && args.is(option, "withscores") {
            with_scores = true;
            option += 1;
        } else {
            return Err(CommandError::SYNTAX);
        }
    }

    let members = merge(sources, algebra, aggregate);
    let mut result = Zset::new(ctx.db.keyspace.seed());
    let limits = &ctx.server.settings.limits;
    let longest = members.keys().map(Vec::len).max().unwrap_or(0);
    result.maybe_convert(members.len(), longest, limits);
    for (member, score) in members {
        result.set(&member, score, limits);
    }
    Ok((result, with_scores))
}

fn merge(sources: Vec<Source>, algebra: Algebra, aggregate: Aggregate) -> HashMap<Vec<u8>, f64> {
    let mut sources = sources.into_iter();
    let mut result: HashMap<Vec<u8>, f64> = sources.next().unwrap_or_default().into_iter().collect();
    for source in sources {
        match algebra {
            Algebra::Union => {
                for (member, score) in source {
                    result
                        .entry(member)
                        .and_modify(|old| *old = aggregate.apply(*old, score))
                        .or_insert(score);
                }
            }
            Algebra::Intersection => {
                let other: HashMap<Vec<u8>, f64> = source.into_iter().collect();
                result.retain(|member, score| match other.get(member) {
                    Some(theirs) => {
                        *score = aggregate.apply(*score, *theirs);
                        true
                    }
                    None => false,
                });
            }
            Algebra::Difference => {
                for (member, _) in &source {
                    result.remove(member);
                }
            }
        }
    }
    result
}

fn source(ctx: &mut Context<'_>, key: &[u8]) -> Result<Source, CommandError> {
    let own = |member: Element<'_>| member.bytes().into_owned();
    match ctx.db.lookup_read(key) {
        None => Ok(Vec::new()),
        Some(Value::Zset(zset)) => Ok(zset.members().map(|(member, score)| (own(member), score)).collect()),
        Some(Value::Set(set)) => Ok(set.members().map(|member| (own(member), 1.0)).collect()),
        Some(_) => Err(CommandError::WRONG_TYPE),
    }
}

fn zintercard(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let numkeys = numkeys(args, 1, "zintercard")?;
    let mut sources = Vec::new();
    for index in 2..2 + numkeys {
        sources.push(source(ctx, args.at(index))?);
    }
    let limit = limit_option(args, 2 + numkeys)?;
    let count = merge(sources, Algebra::Intersection, Aggregate::Sum).len();
    ctx.out.count(if limit == 0 { count } else { count.min(limit) });
    Ok(())
}
