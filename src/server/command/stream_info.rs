//! XINFO: what a stream, its groups and their consumers look like from inside.

use super::error::CommandError;
use super::stream::{entries, write_entry};
use super::stream_group::clamp;
use super::table::{Command, Keys, flag};
use super::{Context, Outcome, help};
use crate::server::resp::{Args, Reply};
use crate::server::value::stream::group::Consumer;
use crate::server::value::stream::{Entry, Group, Stream, StreamId};

const READ: u32 = flag::READONLY;

pub(super) const COMMANDS: &[Command] = &[
    Command::container("xinfo", "5.0.0"),
    Command::new("xinfo|stream", -3, READ, Keys::SECOND, "5.0.0", stream),
    Command::new("xinfo|groups", 3, READ, Keys::SECOND, "5.0.0", groups),
    Command::new("xinfo|consumers", 4, READ, Keys::SECOND, "5.0.0", consumers),
    Command::new("xinfo|help", 2, flag::LOADING | flag::STALE, Keys::None, "5.0.0", info_help),
];

/// Entries and pending entries that FULL shows unless it is told.
const FULL_COUNT: usize = 10;

fn info_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "XINFO",
        &[
            ("CONSUMERS <key> <groupname>", "Show consumers of <groupname>."),
            ("GROUPS <key>", "Show the stream consumer groups."),
            ("STREAM <key> [FULL [COUNT <count>]", "Show information about the stream."),
        ],
    )
}

fn stream(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, full) = (args.at(2), args.len() > 3);
    let mut count = FULL_COUNT;
    if full {
        let counted = args.len() == 6 && args.is(4, "count");
        if !args.is(3, "full") || !(args.len() == 4 || counted) {
            return Err(CommandError::subcommand(args));
        }
        if counted {
            // 0 is no limit, and what is negative is the default.
            count = usize::try_from(args.int(5)?).unwrap_or(FULL_COUNT);
        }
    }
    let stream = ctx.db.read_stream(key)?.ok_or(CommandError::NO_SUCH_KEY)?;
    let out = &mut *ctx.out;
    out.map(if full { 9 } else { 10 });
    out.text("length");
    out.int(clamp(stream.len()));
    out.text("radix-tree-keys");
    out.count(stream.nodes().len());
    out.text("radix-tree-nodes");
    out.count(stream.nodes().nodes());
    for (name, id) in [("last-generated-id", stream.last_id), ("max-deleted-entry-id", stream.max_deleted_id)]
    {
        out.text(name);
        out.text(&id.to_string());
    }
    out.text("entries-added");
    out.int(clamp(stream.entries_added));
    out.text("recorded-first-entry-id");
    out.text(&stream.first_id.to_string());
    if full {
        write_full(out, stream, if count == 0 { usize::MAX } else { count });
        return Ok(());
    }
    out.text("groups");
    out.count(stream.groups.len());
    out.text("first-entry");
    edge_entry(out, |visit| {
        stream.range(StreamId::MIN, StreamId::MAX, visit);
    });
    out.text("last-entry");
    edge_entry(out, |visit| {
        stream.range_back(StreamId::MIN, StreamId::MAX, visit);
    });
    Ok(())
}

fn edge_entry(out: &mut Reply, walk: impl FnOnce(&mut dyn FnMut(&Entry<'_>) -> bool)) {
    let mut found = false;
    walk(&mut |entry| {
        write_entry(out, entry);
        found = true;
        false
    });
    if !found {
        out.nil();
    }
}

fn write_full(out: &mut Reply, stream: &Stream, count: usize) {
    out.text("entries");
    entries(out, |visit| {
        let mut left = count;
        stream.range(StreamId::MIN, StreamId::MAX, |entry| {
            visit(entry);
            left -= 1;
            left > 0
        });
    });
    out.text("groups");
    out.array(stream.groups.len());
    for (name, group) in &stream.groups {
        out.map(7);
        out.text("name");
        out.bulk(name);
        out.text("last-delivered-id");
        out.text(&group.last_id.to_string());
        write_progress(out, stream, group);
        out.text("pel-count");
        out.count(group.pending.len());
        out.text("pel");
        let shown: Vec<_> = group.pending_from(StreamId::MIN, None).take(count).collect();
        out.array(shown.len());
        for (id, pending) in shown {
            out.array(4);
            out.text(&id.to_string());
            out.bulk(&pending.consumer);
            out.int(clamp(pending.delivered_ms));
            out.int(clamp(pending.deliveries));
        }
        out.text("consumers");
        out.array(group.consumers.len());
        for (name, consumer) in &group.consumers {
            write_full_consumer(out, group, name, consumer, count);
        }
    }
}

fn write_full_consumer(out: &mut Reply, group: &Group, name: &[u8], consumer: &Consumer, count: usize) {
    out.map(5);
    out.text("name");
    out.bulk(name);
    out.text("seen-time");
    out.int(clamp(consumer.seen_ms));
    out.text("active-time");
    out.int(consumer.active_ms.map_or(-1, clamp));
    out.text("pel-count");
    out.count(consumer.pending.len());
    out.text("pel");
    let shown: Vec<_> = group.pending_from(StreamId::MIN, Some(name)).take(count).collect();
    out.array(shown.len());
    for (id, pending) in shown {
        out.array(3);
        out.text(&id.to_string());
        out.int(clamp(pending.delivered_ms));
        out.int(clamp(pending.deliveries));
    }
}

/// Writes how far a group has read and how much is left, where that can be told.
fn write_progress(out: &mut Reply, stream: &Stream, group: &Group) {
    out.text("entries-read");
    match group.entries_read {
        Some(read) => out.int(clamp(read)),
        None => out.nil(),
    }
    out.text("lag");
    match lag(stream, group) {
        Some(lag) => out.int(lag),
        None => out.nil(),
    }
}

fn lag(stream: &Stream, group: &Group) -> Option<i64> {
    if stream.entries_added == 0 {
        return Some(0);
    }
    let counted = group.entries_read.filter(|_| !stream.has_holes(group.last_id, StreamId::MAX));
    let read = counted.or_else(|| stream.distance_from_start(group.last_id))?;
    Some(clamp(stream.entries_added) - clamp(read))
}

fn groups(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let stream = ctx.db.read_stream(args.at(2))?.ok_or(CommandError::NO_SUCH_KEY)?;
    let out = &mut *ctx.out;
    out.array(stream.groups.len());
    for (name, group) in &stream.groups {
        out.map(6);
        out.text("name");
        out.bulk(name);
        out.text("consumers");
        out.count(group.consumers.len());
        out.text("pending");
        out.count(group.pending.len());
        out.text("last-delivered-id");
        out.text(&group.last_id.to_string());
        write_progress(out, stream, group);
    }
    Ok(())
}

fn consumers(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, name, now_ms) = (args.at(2), args.at(3), ctx.db.now_ms());
    let stream = ctx.db.read_stream(key)?.ok_or(CommandError::NO_SUCH_KEY)?;
    let group = stream.groups.get(name).ok_or_else(|| super::stream_group::no_group(key, name))?;
    let out = &mut *ctx.out;
    out.array(group.consumers.len());
    for (name, consumer) in &group.consumers {
        out.map(4);
        out.text("name");
        out.bulk(name);
        out.text("pending");
        out.count(consumer.pending.len());
        out.text("idle");
        out.int(clamp(now_ms.saturating_sub(consumer.seen_ms)));
        out.text("inactive");
        out.int(consumer.active_ms.map_or(-1, |active| clamp(now_ms.saturating_sub(active))));
    }
    Ok(())
}
