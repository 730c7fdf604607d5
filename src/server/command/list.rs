//! Lists: LPUSH to LMPOP. The ones that wait are in [`super::blocking`].

use super::error::CommandError;
use super::table::{Command, Keys, flag, need};
use super::typed::{resolve_index, resolve_range};
use super::{Context, Outcome};
use crate::server::resp::Args;
use crate::server::value::list::List;
use crate::server::value::quicklist::{End, Side};

const PUSH: u32 = flag::WRITE | flag::DENYOOM | flag::FAST;
const POP: u32 = flag::WRITE | flag::FAST;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("lpush", -3, PUSH, Keys::ONE, "1.0.0", lpush),
    Command::new("rpush", -3, PUSH, Keys::ONE, "1.0.0", rpush),
    Command::new("lpushx", -3, PUSH, Keys::ONE, "2.2.0", lpushx),
    Command::new("rpushx", -3, PUSH, Keys::ONE, "2.2.0", rpushx),
    Command::new("lpop", -2, POP, Keys::ONE, "1.0.0", lpop).needs(need::BOTH, need::BOTH),
    Command::new("rpop", -2, POP, Keys::ONE, "1.0.0", rpop).needs(need::BOTH, need::BOTH),
    Command::new("llen", 2, flag::READONLY | flag::FAST, Keys::ONE, "1.0.0", llen)
        .needs(need::ANY, need::ANY),
    Command::new("lrange", 4, flag::READONLY, Keys::ONE, "1.0.0", lrange),
    Command::new("lindex", 3, flag::READONLY, Keys::ONE, "1.0.0", lindex),
    Command::new("lset", 4, flag::WRITE | flag::DENYOOM, Keys::ONE, "1.0.0", lset),
    Command::new("linsert", 5, flag::WRITE | flag::DENYOOM, Keys::ONE, "2.2.0", linsert),
    Command::new("lrem", 4, flag::WRITE, Keys::ONE, "1.0.0", lrem),
    Command::new("ltrim", 4, flag::WRITE, Keys::ONE, "1.0.0", ltrim),
    Command::new("lpos", -3, flag::READONLY, Keys::ONE, "6.0.6", lpos),
    Command::new("lmove", 5, flag::WRITE | flag::DENYOOM, Keys::TWO, "6.2.0", lmove)
        .needs(need::BOTH, need::WRITE),
    Command::new("rpoplpush", 3, flag::WRITE | flag::DENYOOM, Keys::TWO, "1.2.0", rpoplpush)
        .needs(need::BOTH, need::WRITE),
    Command::new(
        "lmpop",
        -4,
        flag::WRITE | flag::MOVABLEKEYS,
        Keys::Counted { count_at: 1, dest: false },
        "7.0.0",
        lmpop,
    )
    .needs(need::BOTH, need::BOTH),
];

fn lpush(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push(ctx, args, End::Head, true)
}

fn rpush(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push(ctx, args, End::Tail, true)
}

fn lpushx(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push(ctx, args, End::Head, false)
}

fn rpushx(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push(ctx, args, End::Tail, false)
}

fn push(ctx: &mut Context<'_>, args: Args<'_>, end: End, create: bool) -> Outcome {
    let key = args.at(1);
    let texts: Vec<&[u8]> = args.iter().skip(2).collect();
    if !create && ctx.db.write_list(key)?.is_none() {
        ctx.out.int(0);
        return Ok(());
    }
    let list = ctx.db.make_list(key, List::new)?;
    list.push_all(end, &texts, &ctx.server.settings.limits);
    ctx.out.count(list.len());
    ctx.db.changed(key, texts.len());
    Ok(())
}

fn lpop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, End::Head, "lpop")
}

fn rpop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, End::Tail, "rpop")
}

fn pop(ctx: &mut Context<'_>, args: Args<'_>, end: End, name: &str) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::wrong_arity(name));
    }
    let key = args.at(1);
    if args.len() == 2 {
        match pop_one(ctx, key, end)? {
            Some(text) => ctx.out.bulk(&text),
            None => ctx.out.nil(),
        }
        return Ok(());
    }
    let count = args.positive(2)?;
    if ctx.db.write_list(key)?.is_none() {
        ctx.out.nil_array();
        return Ok(());
    }
    pop_many(ctx, key, end, count)
}

/// Takes one element from an end of the list, and the key with the last one.
pub(super) fn pop_one(ctx: &mut Context<'_>, key: &[u8], end: End) -> Result<Option<Vec<u8>>, CommandError> {
    let Some(list) = ctx.db.write_list(key)? else {
        return Ok(None);
    };
    let text = list.pop(end);
    list.maybe_revert(&ctx.server.settings.limits);
    ctx.db.shrunk(key, 1);
    Ok(text)
}

/// Takes up to `count` elements from an end and writes them as an array.
pub(super) fn pop_many(ctx: &mut Context<'_>, key: &[u8], end: End, count: usize) -> Outcome {
    let Some(list) = ctx.db.write_list(key)? else {
        return Ok(());
    };
    let count = count.min(list.len());
    ctx.out.array(count);
    for _ in 0..count {
        if let Some(text) = list.pop(end) {
            ctx.out.bulk(&text);
        }
    }
    list.maybe_revert(&ctx.server.settings.limits);
    ctx.db.shrunk(key, count);
    Ok(())
}

fn llen(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = ctx.db.read_list(args.at(1))?.map_or(0, List::len);
    ctx.out.count(len);
    Ok(())
}

fn lrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (start, stop) = (args.int(2)?, args.int(3)?);
    let Some(list) = ctx.db.read_list(args.at(1))? else {
        ctx.out.array(0);
        return Ok(());
    };
    let range = resolve_range(start, stop, list.len());
    ctx.out.array(range.len());
    for element in list.iter_from(range.start).take(range.len()) {
        ctx.out.element(element);
    }
    Ok(())
}

fn lindex(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let list = ctx.db.read_list(args.at(1))?;
    let Some(list) = list else {
        ctx.out.nil();
        return Ok(());
    };
    match resolve_index(args.int(2)?, list.len()).and_then(|index| list.get(index)) {
        Some(element) => ctx.out.element(element),
        None => ctx.out.nil(),
    }
    Ok(())
}

fn lset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let list = ctx.db.write_list(key)?.ok_or(CommandError::NO_SUCH_KEY)?;
    let index = args.int(2)?;
    let index = resolve_index(index, list.len()).ok_or(CommandError::INDEX_OUT_OF_RANGE)?;
    list.set(index, args.at(3), &ctx.server.settings.limits);
    ctx.db.changed(key, 1);
    ctx.out.ok();
    Ok(())
}

fn linsert(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let side = if args.is(2, "before") {
        Side::Before
    } else if args.is(2, "after") {
        Side::After
    } else {
        return Err(CommandError::SYNTAX);
    };
    let key = args.at(1);
    let Some(list) = ctx.db.write_list(key)? else {
        ctx.out.int(0);
        return Ok(());
    };
    let Some(index) = list.elements().position(|element| element.is(args.at(3))) else {
        ctx.out.int(-1);
        return Ok(());
    };
    list.insert(index, side, args.at(4), &ctx.server.settings.limits);
    ctx.out.count(list.len());
    ctx.db.changed(key, 1);
    Ok(())
}

fn lrem(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, count) = (args.at(1), args.int(2)?);
    let Some(list) = ctx.db.write_list(key)? else {
        ctx.out.int(0);
        return Ok(());
    };
    let limit =
        if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let from = if count < 0 { End::Tail } else { End::Head };
    let removed = list.remove_equal(args.at(3), limit, from, &ctx.server.settings.limits);
    ctx.db.shrunk(key, removed);
    ctx.out.count(removed);
    Ok(())
}

fn ltrim(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, start, stop) = (args.at(1), args.int(2)?, args.int(3)?);
    if let Some(list) = ctx.db.write_list(key)? {
        let len = list.len();
        let keep = resolve_range(start, stop, len);
        let limits = &ctx.server.settings.limits;
        list.remove_range(keep.end, len - keep.end, limits);
        list.remove_range(0, keep.start, limits);
        ctx.db.shrunk(key, len - keep.len());
    }
    ctx.out.ok();
    Ok(())
}

fn lpos(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (mut rank, mut count, mut max_len) = (1i64, None, 0usize);
    let mut at = 3;
    while at < args.len() {
        if at + 1 >= args.len() {
            return Err(CommandError::SYNTAX);
        }
        if args.is(at, "rank") {
            rank = args.int(at + 1)?;
            if rank == 0 {
                return Err(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                     or use negative to start from the end of the list"
                        .into(),
                );
            }
            if rank == i64::MIN {
                return Err("ERR value is out of range, value must between -9223372036854775807 and \
                     9223372036854775807"
                    .into());
            }
        } else if args.is(at, "count") {
            count =
                Some(args.positive(at + 1).map_err(|_| CommandError::new("ERR COUNT can't be negative"))?);
        } else if args.is(at, "maxlen") {
            max_len = args.positive(at + 1).map_err(|_| CommandError::new("ERR MAXLEN can't be negative"))?;
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 2;
    }
    let Some(list) = ctx.db.read_list(args.at(1))? else {
        if count.is_some() {
            ctx.out.array(0);
        } else {
            ctx.out.nil();
        }
        return Ok(());
    };
    let (len, text) = (list.len(), args.at(2));
    let elements: Box<dyn Iterator<Item = _>> =
        if rank < 0 { Box::new(list.elements().rev()) } else { list.iter_from(0) };
    let looked_at = if max_len == 0 { usize::MAX } else { max_len };
    let skipped = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let wanted = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let hits = elements.take(looked_at).enumerate().filter(|(_, element)| element.is(text));
    let places: Vec<usize> = hits
        .skip(skipped)
        .take(wanted)
        .map(|(index, _)| if rank < 0 { len - 1 - index } else { index })
        .collect();
    if count.is_some() {
        ctx.out.array(places.len());
        for place in places {
            ctx.out.count(place);
        }
    } else if let Some(place) = places.first() {
        ctx.out.count(*place);
    } else {
        ctx.out.nil();
    }
    Ok(())
}

fn lmove(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (end_at(args, 3)?, end_at(args, 4)?);
    reply_moved(ctx, args, from, to)
}

fn rpoplpush(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    reply_moved(ctx, args, End::Tail, End::Head)
}

fn reply_moved(ctx: &mut Context<'_>, args: Args<'_>, from: End, to: End) -> Outcome {
    match move_one(ctx, args.at(1), args.at(2), from, to)? {
        Some(text) => ctx.out.bulk(&text),
        None => ctx.out.nil(),
    }
    Ok(())
}

/// Moves an element from one list to another, which may be the same.
pub(super) fn move_one(
    ctx: &mut Context<'_>,
    source: &[u8],
    target: &[u8],
    from: End,
    to: End,
) -> Result<Option<Vec<u8>>, CommandError> {
    if ctx.db.write_list(source)?.is_none() {
        return Ok(None);
    }
    // The target is checked before anything is taken.
    ctx.db.write_list(target)?;
    if source == target
        && let Some(list) = ctx.db.write_list(source)?
    {
        let text = list.pop(from);
        if let Some(text) = &text {
            list.push_all(to, &[text], &ctx.server.settings.limits);
        }
        ctx.db.changed(source, 1);
        return Ok(text);
    }
    let Some(text) = pop_one(ctx, source, from)? else {
        return Ok(None);
    };
    let list = ctx.db.make_list(target, List::new)?;
    list.push_all(to, &[&text], &ctx.server.settings.limits);
    ctx.db.changed(target, 1);
    Ok(Some(text))
}

fn lmpop(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pop = MultiPop::parse(args, 1)?;
    for key in pop.keys(args) {
        if ctx.db.write_list(key)?.is_some() {
            ctx.out.array(2);
            ctx.out.bulk(key);
            return pop_many(ctx, key, pop.end, pop.count);
        }
    }
    ctx.out.nil_array();
    Ok(())
}

/// The arguments that LMPOP, ZMPOP and their blocking forms share.
pub(super) struct MultiPop {
    first_key: usize,
    keys: usize,
    pub(super) end: End,
    pub(super) count: usize,
}

impl MultiPop {
    /// Reads `numkeys key ... LEFT|RIGHT [COUNT n]` from argument `at` on.
    pub(super) fn parse(args: Args<'_>, at: usize) -> Result<MultiPop, CommandError> {
        MultiPop::parse_with(args, at, end_at)
    }

    /// The same with another way to name an end: sorted sets say MIN and MAX.
    pub(super) fn parse_with(
        args: Args<'_>,
        at: usize,
        end_at: fn(Args<'_>, usize) -> Result<End, CommandError>,
    ) -> Result<MultiPop, CommandError> {
        let greater = |what: &str| CommandError::with(format!("ERR {what} should be greater than 0"));
        let keys = args.positive(at).ok().filter(|n| *n > 0).ok_or_else(|| greater("numkeys"))?;
        let word = at.checked_add(keys + 1).filter(|word| *word < args.len()).ok_or(CommandError::SYNTAX)?;
        let end = end_at(args, word)?;
        let mut count = None;
        let mut option = word + 1;
        while option < args.len() {
            if count.is_some() || !args.is(option, "count") || option + 1 >= args.len() {
                return Err(CommandError::SYNTAX);
            }
            count = Some(args.positive(option + 1).ok().filter(|n| *n > 0).ok_or_else(|| greater("count"))?);
            option += 2;
        }
        Ok(MultiPop { first_key: at + 1, keys, end, count: count.unwrap_or(1) })
    }

    pub(super) fn keys<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
        args.iter().skip(self.first_key).take(self.keys)
    }
}

/// Reads LEFT or RIGHT.
pub(super) fn end_at(args: Args<'_>, index: usize) -> Result<End, CommandError> {
    if args.is(index, "left") {
        Ok(End::Head)
    } else if args.is(index, "right") {
        Ok(End::Tail)
    } else {
        Err(CommandError::SYNTAX)
    }
}
