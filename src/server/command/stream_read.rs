//! XREAD and XREADGROUP: what is new, for one reader or for the members of a group.

use super::error::CommandError;
use super::stream::{entries, strict_id, write_entry};
use super::table::{Command, Keys, flag, need};
use super::{Context, Outcome};
use crate::server::resp::{Args, Proto, Reply};
use crate::server::value::stream::{Entry, Stream, StreamId};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "xread",
        -4,
        flag::READONLY | flag::BLOCKING | flag::MOVABLEKEYS,
        Keys::Streams,
        "5.0.0",
        xread,
    ),
    Command::new(
        "xreadgroup",
        -7,
        flag::WRITE | flag::BLOCKING | flag::MOVABLEKEYS,
        Keys::Streams,
        "5.0.0",
        xreadgroup,
    )
    .needs(need::READ, need::READ),
];

/// The arguments of both commands.
struct ReadOptions<'a> {
    count: usize,
    no_ack: bool,
    /// Milliseconds to wait for an entry; 0 is for ever.
    block_ms: Option<u64>,
    /// Where the IDs begin.
    ids_at: usize,
    /// Group and consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    keys: Args<'a>,
    /// As many IDs as keys.
    ids: Args<'a>,
    streams: usize,
}

impl<'a> ReadOptions<'a> {
    fn parse(args: Args<'a>, name: &str) -> Result<ReadOptions<'a>, CommandError> {
        let in_group = name == "xreadgroup";
        let (mut count, mut no_ack, mut group, mut block_ms) = (usize::MAX, false, None, None);
        let mut at = 1;
        while at < args.len() {
            let more = args.len() - 1 - at;
            if args.is(at, "block") && more > 0 {
                let timeout = args
                    .int(at + 1)
                    .map_err(|_| CommandError::new("ERR timeout is not an integer or out of range"))?;
                let timeout = u64::try_from(timeout);
                block_ms = Some(timeout.map_err(|_| CommandError::new("ERR timeout is negative"))?);
                at += 2;
            } else if args.is(at, "count") && more > 0 {
                // Zero and less mean no limit.
                count = usize::try_from(args.int(at + 1)?).ok().filter(|n| *n > 0).unwrap_or(usize::MAX);
                at += 2;
            } else if args.is(at, "streams") && more > 0 {
                if !more.is_multiple_of(2) {
                    let what = if in_group { "an ID or '>'" } else { "an ID or '$'" };
                    return Err(format!(
                        "ERR Unbalanced '{name}' list of streams: for each stream key {what} must be specified."
                    )
                    .into());
                }
                if in_group && group.is_none() {
                    return Err("ERR Missing GROUP option for XREADGROUP".into());
                }
                let streams = more / 2;
                let ids_at = at + 1 + streams;
                let (keys, ids) = (args.from(at + 1), args.from(ids_at));
                return Ok(ReadOptions { count, no_ack, block_ms, ids_at, group, keys, ids, streams });
            } else if args.is(at, "group") && more > 1 {
                if !in_group {
                    return Err(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead."
                            .into(),
                    );
                }
                group = Some((args.at(at + 1), args.at(at + 2)));
                at += 3;
            } else if args.is(at, "noack") {
                if !in_group {
                    return Err(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead."
                            .into(),
                    );
                }
                no_ack = true;
                at += 1;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Err(CommandError::SYNTAX)
    }
}

/// A reply of streams that have something, announced only when all are known.
struct Found {
    written: Reply,
    streams: usize,
}

impl Found {
    fn new(out: &Reply) -> Found {
        Found { written: out.part(out.proto()), streams: 0 }
    }

    /// Begins the part of one stream.
    fn stream(&mut self, key: &[u8]) -> &mut Reply {
        self.streams += 1;
        if self.written.proto() == Proto::Resp2 {
            self.written.array(2);
        }
        self.written.bulk(key);
        &mut self.written
    }

    fn finish(self, out: &mut Reply) {
        match (self.streams, out.proto()) {
            (0, _) => return out.nil_array(),
            (streams, Proto::Resp2) => out.array(streams),
            (streams, Proto::Resp3) => out.map(streams),
        }
        out.raw(self.written.bytes());
    }
}

fn xread(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = ReadOptions::parse(args, "xread")?;
    let mut after = Vec::with_capacity(options.streams);
    for index in 0..options.streams {
        let stream = ctx.db.read_stream(options.keys.at(index))?;
        after.push(match options.ids.at(index) {
            b"$" => stream.map_or(StreamId::MIN, |stream| stream.last_id),
            b"+" => {
                // The last entry that is there, again and again.
                stream.and_then(last_entry).and_then(StreamId::prev).unwrap_or(StreamId::MAX)
            }
            b">" => {
                return Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option."
                    .into());
            }
            text => strict_id(text, 0)?,
        });
    }
    let mut found = Found::new(ctx.out);
    for (index, after) in after.iter().copied().enumerate() {
        let key = options.keys.at(index);
        let Some(stream) = ctx.db.read_stream(key)? else {
            continue;
        };
        let Some(start) = after.next().filter(|_| stream.last_id > after && !stream.is_empty()) else {
            continue;
        };
        if !has_entry_from(stream, start) {
            continue;
        }
        entries(found.stream(key), |visit| {
            walk(stream, start, options.count, visit);
        });
    }
    if let (0, Some(timeout_ms)) = (found.streams, options.block_ms) {
        // `$` means the last entry as of now, also when it is tried again.
        let fixed = after.iter().map(|id| id.to_string().into_bytes());
        let words = args.iter().take(options.ids_at).map(<[u8]>::to_vec);
        ctx.block(timeout_ms, words.chain(fixed).collect());
        return Ok(());
    }
    found.finish(ctx.out);
    Ok(())
}

fn xreadgroup(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = ReadOptions::parse(args, "xreadgroup")?;
    let (group_name, consumer) = options.group.ok_or("ERR Missing GROUP option for XREADGROUP")?;
    let now_ms = ctx.db.now_ms();
    // `None` stands for `>`: what nobody in the group has had yet.
    let mut after = Vec::with_capacity(options.streams);
    for index in 0..options.streams {
        let key = options.keys.at(index);
        let known = ctx.db.write_stream(key)?.is_some_and(|stream| stream.groups.contains_key(group_name));
        if !known {
            return Err(format!(
                "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
                String::from_utf8_lossy(key),
                String::from_utf8_lossy(group_name)
            )
            .into());
        }
        after.push(match options.ids.at(index) {
            b">" => None,
            b"$" => {
                return Err("ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history \
                     of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would \
                     just return an empty result set."
                    .into());
            }
            b"+" => {
                return Err("ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history \
                     of this consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would \
                     just return an empty result set."
                    .into());
            }
            text => Some(strict_id(text, 0)?),
        });
    }
    let mut found = Found::new(ctx.out);
    for (index, after) in after.into_iter().enumerate() {
        let key = options.keys.at(index);
        let Some(stream) = ctx.db.write_stream(key)? else {
            continue;
        };
        let reader = (group_name, consumer);
        if let Some(after) = after {
            history(stream, reader, after, &options, now_ms, found.stream(key));
        } else {
            let delivered = deliver(stream, reader, &options, now_ms, &mut found, key);
            if delivered > 0 {
                ctx.db.changed(key, delivered);
            }
        }
    }
    if let (0, Some(timeout_ms)) = (found.streams, options.block_ms) {
        ctx.block(timeout_ms, args.to_owned());
        return Ok(());
    }
    found.finish(ctx.out);
    Ok(())
}

/// Writes what a consumer has pending; entries that are gone from the stream keep their ID only.
fn history(
    stream: &mut Stream,
    (group_name, consumer): (&[u8], &[u8]),
    after: StreamId,
    options: &ReadOptions<'_>,
    now_ms: u64,
    out: &mut Reply,
) {
    if let Some(group) = stream.groups.get_mut(group_name) {
        group.see(consumer, now_ms);
    }
    let Some(group) = stream.groups.get(group_name) else {
        return out.array(0);
    };
    let ids: Vec<StreamId> = match after.next() {
        Some(start) => {
            group.pending_from(start, Some(consumer)).map(|(id, _)| id).take(options.count).collect()
        }
        None => Vec::new(),
    };
    out.array(ids.len());
    for id in ids {
        if stream.with_entry(id, |entry| write_entry(out, entry)) {
            // Being read again is being delivered again.
            if let Some(group) = stream.groups.get_mut(group_name)
                && let Some(pending) = group.pending.get_mut(&id.key())
            {
                pending.delivered_ms = now_ms;
                pending.deliveries += 1;
            }
        } else {
            out.array(2);
            out.text(&id.to_string());
            out.nil_array();
        }
    }
}

/// Gives new entries to a consumer and writes them; returns how many.
fn deliver(
    stream: &mut Stream,
    (group, consumer): (&[u8], &[u8]),
    options: &ReadOptions<'_>,
    now_ms: u64,
    found: &mut Found,
    key: &[u8],
) -> usize {
    let Some(seen) = stream.groups.get_mut(group) else {
        return 0;
    };
    seen.see(consumer, now_ms);
    let Some(start) = seen.last_id.next() else {
        return 0;
    };
    if !has_entry_from(stream, start) {
        return 0;
    }
    let mut ids = Vec::new();
    entries(found.stream(key), |visit| {
        walk(stream, start, options.count, &mut |entry: &Entry<'_>| {
            ids.push(entry.id);
            visit(entry);
        });
    });
    // How many entries the group has read: counted up while nothing is missing, else worked out.
    let mut read = stream.groups.get(group).and_then(|group| group.entries_read);
    for id in &ids {
        let holes = stream.has_holes(*id, StreamId::MAX);
        read = match read {
            Some(read) if !holes => Some(read + 1),
            _ => stream.distance_from_start(*id),
        };
    }
    if let Some(group) = stream.groups.get_mut(group) {
        group.entries_read = read;
        group.last_id = ids.last().copied().unwrap_or(group.last_id);
        group.activate(consumer, now_ms);
        if !options.no_ack {
            for id in &ids {
                group.assign(*id, consumer, now_ms, 1);
            }
        }
    }
    ids.len()
}

fn walk(stream: &Stream, start: StreamId, count: usize, visit: &mut dyn FnMut(&Entry<'_>)) {
    let mut left = count;
    stream.range(start, StreamId::MAX, |entry| {
        visit(entry);
        left -= 1;
        left > 0
    });
}

fn has_entry_from(stream: &Stream, start: StreamId) -> bool {
    let mut found = false;
    stream.range(start, StreamId::MAX, |_| {
        found = true;
        false
    });
    found
}

fn last_entry(stream: &Stream) -> Option<StreamId> {
    let mut last = None;
    stream.range_back(StreamId::MIN, StreamId::MAX, |entry| {
        last = Some(entry.id);
        false
    });
    last
}
