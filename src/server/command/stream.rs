//! Streams: adding, ranges, deleting, trimming. Reading and groups are in [`super::stream_read`] and
//! [`super::stream_group`].

use super::error::CommandError;
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::resp::{Args, Reply};
use crate::server::value::limits::Limits;
use crate::server::value::stream::{Entry, Keep, Stream, StreamId, Trim};

const READ: u32 = flag::READONLY;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("xadd", -5, flag::WRITE | flag::DENYOOM | flag::FAST, Keys::ONE, "5.0.0", xadd),
    Command::new("xlen", 2, READ | flag::FAST, Keys::ONE, "5.0.0", xlen).needs(need::ANY, need::ANY),
    Command::new("xrange", -4, READ, Keys::ONE, "5.0.0", xrange),
    Command::new("xrevrange", -4, READ, Keys::ONE, "5.0.0", xrevrange),
    Command::new("xdel", -3, flag::WRITE | flag::FAST, Keys::ONE, "5.0.0", xdel),
    Command::new("xtrim", -4, flag::WRITE, Keys::ONE, "5.0.0", xtrim),
    Command::new("xsetid", -3, flag::WRITE | flag::DENYOOM | flag::FAST, Keys::ONE, "5.0.0", xsetid),
];

/// Without LIMIT an approximate trim takes out this many full nodes' worth.
const TRIM_LIMIT_NODES: u64 = 100;
const TRIM_LIMIT_MAX: u64 = 1_000_000;
/// The limit when nodes have none.
const TRIM_LIMIT_UNBOUNDED_NODES: u64 = 10_000;

/// The ID that XADD was given.
#[derive(Clone, Copy)]
enum NewId {
    /// `*`
    Now,
    /// `ms-*`
    Within(u64),
    Exactly(StreamId),
}

/// The options that XADD and XTRIM share.
#[derive(Default)]
struct TrimOptions {
    keep: Option<Keep>,
    approximate: bool,
    limit: Option<u64>,
}

impl TrimOptions {
    /// Takes the option at `at` if it is one of these, and returns where the next one is.
    fn take(&mut self, args: Args<'_>, at: usize) -> Result<Option<usize>, CommandError> {
        let has_value = at + 1 < args.len();
        let (max_len, min_id) = (args.is(at, "maxlen") && has_value, args.is(at, "minid") && has_value);
        if max_len || min_id {
            if self.keep.is_some() {
                return Err(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible".into()
                );
            }
            let marked = at + 2 < args.len() && matches!(args.at(at + 1), b"~" | b"=");
            self.approximate = marked && args.at(at + 1) == b"~";
            let value = if marked { at + 2 } else { at + 1 };
            self.keep = Some(if max_len {
                let count = u64::try_from(args.int(value)?);
                Keep::Newest(count.map_err(|_| CommandError::new("ERR The MAXLEN argument must be >= 0."))?)
            } else {
                Keep::From(strict_id(args.at(value), 0)?)
            });
            return Ok(Some(value + 1));
        }
        if args.is(at, "limit") && has_value {
            let limit = u64::try_from(args.int(at + 1)?);
            self.limit = Some(limit.map_err(|_| CommandError::new("ERR The LIMIT argument must be >= 0."))?);
            return Ok(Some(at + 2));
        }
        Ok(None)
    }

    fn finish(self, limits: &Limits) -> Result<Option<Trim>, CommandError> {
        if self.keep.is_none() && self.limit.is_some_and(|limit| limit > 0) {
            return Err(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy".into()
            );
        }
        if self.limit.is_some() && !self.approximate {
            return Err("ERR syntax error, LIMIT cannot be used without the special ~ option".into());
        }
        let limit = match self.limit {
            Some(limit) => limit,
            None if self.approximate => match limits.stream_node_max_entries as u64 {
                0 => TRIM_LIMIT_UNBOUNDED_NODES,
                entries => entries.saturating_mul(TRIM_LIMIT_NODES).min(TRIM_LIMIT_MAX),
            },
            None => 0,
        };
        Ok(self.keep.map(|keep| Trim { keep, approximate: self.approximate, limit }))
    }
}

fn xadd(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut options = TrimOptions::default();
    let mut create = true;
    let mut at = 2;
    let mut id = None;
    while at < args.len() {
        if args.at(at) == b"*" {
            id = Some(NewId::Now);
        } else if let Some(next) = options.take(args, at)? {
            at = next;
            continue;
        } else if args.is(at, "nomkstream") {
            create = false;
            at += 1;
            continue;
        } else {
            id = Some(new_id(args.at(at))?);
        }
        break;
    }
    let trim = options.finish(&ctx.server.settings.limits)?;
    let texts: Vec<&[u8]> = args.iter().skip(at + 1).collect();
    let Some(id) = id.filter(|_| !texts.is_empty() && texts.len().is_multiple_of(2)) else {
        return Err(CommandError::wrong_arity("xadd"));
    };
    if matches!(id, NewId::Exactly(StreamId::MIN)) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }

    let (key, now_ms) = (args.at(1), ctx.db.now_ms());
    // Before the stream is made: a refused ID must not leave an empty stream behind.
    let last = match ctx.db.write_stream(key)? {
        None if !create => {
            ctx.out.nil();
            return Ok(());
        }
        stream => stream.map_or(StreamId::MIN, |stream| stream.last_id),
    };
    if last == StreamId::MAX {
        return Err("ERR The stream has exhausted the last possible ID, unable to add more items".into());
    }
    let id = resolve_new_id(id, last, now_ms)
        .ok_or("ERR The ID specified in XADD is equal or smaller than the target stream top item")?;
    let stream = ctx.db.make_stream(key, Stream::new)?;
    stream.append(id, &texts, &ctx.server.settings.limits);
    let trimmed = trim.map_or(0, |trim| stream.trim(trim));
    ctx.db.changed(key, 1 + usize::try_from(trimmed).unwrap_or(0));
    ctx.out.text(&id.to_string());
    Ok(())
}

fn new_id(text: &[u8]) -> Result<NewId, CommandError> {
    match text.strip_suffix(b"-*") {
        Some(ms) if !ms.contains(&b'-') => Ok(NewId::Within(strict_id(ms, 0)?.ms)),
        _ => Ok(NewId::Exactly(strict_id(text, 0)?)),
    }
}

/// Returns the ID of a new entry, or `None` if it would not be above the last one.
fn resolve_new_id(id: NewId, last: StreamId, now_ms: u64) -> Option<StreamId> {
    match id {
        NewId::Now if now_ms > last.ms => Some(StreamId::new(now_ms, 0)),
        // A clock that stands still or was put back must not stop the stream.
        NewId::Now => last.next(),
        NewId::Within(ms) if ms > last.ms => Some(StreamId::new(ms, 0)),
        NewId::Within(ms) if ms == last.ms => Some(StreamId::new(ms, last.seq.checked_add(1)?)),
        NewId::Within(_) => None,
        NewId::Exactly(id) => Some(id).filter(|id| *id > last),
    }
}

fn xlen(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let len = ctx.db.read_stream(args.at(1))?.map_or(0, Stream::len);
    ctx.out.int(i64::try_from(len).unwrap_or(i64::MAX));
    Ok(())
}

fn xrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(ctx, args, false)
}

fn xrevrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    range(ctx, args, true)
}

fn range(ctx: &mut Context<'_>, args: Args<'_>, reverse: bool) -> Outcome {
    let (start, end) = if reverse { (3, 2) } else { (2, 3) };
    let (start, end) = (range_start(args.at(start))?, range_end(args.at(end))?);
    let mut count = None;
    let mut at = 4;
    while at < args.len() {
        if !args.is(at, "count") || at + 1 >= args.len() {
            return Err(CommandError::SYNTAX);
        }
        count = Some(usize::try_from(args.int(at + 1)?.max(0)).unwrap_or(usize::MAX));
        at += 2;
    }
    let Some(stream) = ctx.db.read_stream(args.at(1))? else {
        ctx.out.array(0);
        return Ok(());
    };
    if count == Some(0) {
        ctx.out.nil_array();
        return Ok(());
    }
    entries(ctx.out, |visit| {
        let mut left = count.unwrap_or(usize::MAX);
        let visit = |entry: &Entry<'_>| {
            visit(entry);
            left -= 1;
            left > 0
        };
        if reverse {
            stream.range_back(start, end, visit);
        } else {
            stream.range(start, end, visit);
        }
    });
    Ok(())
}

/// Writes an array of the entries that `walk` visits.
pub(super) fn entries(out: &mut Reply, walk: impl FnOnce(&mut dyn FnMut(&Entry<'_>))) -> usize {
    let mut written = out.part(out.proto());
    let mut count = 0;
    walk(&mut |entry| {
        write_entry(&mut written, entry);
        count += 1;
    });
    out.array(count);
    out.raw(written.bytes());
    count
}

/// Writes an entry: its ID, and fields and values in one array.
pub(super) fn write_entry(out: &mut Reply, entry: &Entry<'_>) {
    out.array(2);
    out.text(&entry.id.to_string());
    out.array(entry.pairs.len() * 2);
    for (field, value) in &entry.pairs {
        out.element(*field);
        out.element(*value);
    }
}

fn xdel(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let ids: Vec<StreamId> = args.iter().skip(2).map(|text| strict_id(text, 0)).collect::<Result<_, _>>()?;
    let key = args.at(1);
    let deleted = match ctx.db.write_stream(key)? {
        Some(stream) => ids.into_iter().filter(|id| stream.delete(*id)).count(),
        None => 0,
    };
    if deleted > 0 {
        ctx.db.changed(key, deleted);
    }
    ctx.out.count(deleted);
    Ok(())
}

fn xtrim(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut options = TrimOptions::default();
    let mut at = 2;
    while at < args.len() {
        at = options.take(args, at)?.ok_or(CommandError::SYNTAX)?;
    }
    let trim = options.finish(&ctx.server.settings.limits)?;
    let trim = trim.ok_or("ERR syntax error, XTRIM must be called with MAXLEN or MINID")?;
    let key = args.at(1);
    let deleted = ctx.db.write_stream(key)?.map_or(0, |stream| stream.trim(trim));
    if deleted > 0 {
        ctx.db.changed(key, usize::try_from(deleted).unwrap_or(usize::MAX));
    }
    ctx.out.int(i64::try_from(deleted).unwrap_or(i64::MAX));
    Ok(())
}

fn xsetid(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let id = strict_id(args.at(2), 0)?;
    let (mut added, mut max_deleted) = (None, None);
    let mut at = 3;
    while at < args.len() {
        if at + 1 < args.len() && args.is(at, "entriesadded") {
            let count = u64::try_from(args.int(at + 1)?);
            added = Some(count.map_err(|_| CommandError::new("ERR entries_added must be positive"))?);
        } else if at + 1 < args.len() && args.is(at, "maxdeletedid") {
            let deleted = strict_id(args.at(at + 1), 0)?;
            if id < deleted {
                return Err(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id".into(),
                );
            }
            max_deleted = Some(deleted);
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 2;
    }
    let key = args.at(1);
    let stream = ctx.db.write_stream(key)?.ok_or(CommandError::NO_SUCH_KEY)?;
    if id < stream.max_deleted_id {
        return Err("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id".into());
    }
    if !stream.is_empty() {
        let mut top = StreamId::MIN;
        stream.range_back(StreamId::MIN, StreamId::MAX, |entry| {
            top = entry.id;
            false
        });
        if id < top {
            return Err("ERR The ID specified in XSETID is smaller than the target stream top item".into());
        }
        if added.is_some_and(|added| added < stream.len()) {
            return Err(
                "ERR The entries_added specified in XSETID is smaller than the target stream length".into()
            );
        }
    }
    stream.last_id = id;
    stream.entries_added = added.unwrap_or(stream.entries_added);
    stream.max_deleted_id = max_deleted.filter(|id| *id != StreamId::MIN).unwrap_or(stream.max_deleted_id);
    ctx.db.changed(key, 1);
    ctx.out.ok();
    Ok(())
}

const INVALID_ID: CommandError =
    CommandError::new("ERR Invalid stream ID specified as stream command argument");

/// Reads an ID; `-` and `+` are not taken.
pub(super) fn strict_id(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    StreamId::parse(text, missing_seq).ok_or(INVALID_ID)
}

/// Reads the lower end of a range: an ID, `-`, `+`, or `(ID` for what comes after.
pub(super) fn range_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', text @ ..] => strict_id(text, 0)?.next().ok_or("ERR invalid start ID for the interval".into()),
        text => edge(text, 0),
    }
}

/// Reads the upper end of a range: as the lower one, but `ms` alone means its last entry.
pub(super) fn range_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', text @ ..] => {
            strict_id(text, u64::MAX)?.prev().ok_or("ERR invalid end ID for the interval".into())
        }
        text => edge(text, u64::MAX),
    }
}

fn edge(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        text => strict_id(text, missing_seq),
    }
}
