//! Consumer groups: XGROUP, XACK, XPENDING, XCLAIM, XAUTOCLAIM.

use super::error::CommandError;
use super::stream::{range_end, range_start, strict_id, write_entry};
use super::table::{Command, Keys, flag};
use super::{Context, Outcome, help};
use crate::server::resp::{Args, Reply};
use crate::server::value::stream::group::Pending;
use crate::server::value::stream::{Group, Stream, StreamId};

const CHANGE: u32 = flag::WRITE;
const GROW: u32 = flag::WRITE | flag::DENYOOM;

pub(super) const COMMANDS: &[Command] = &[
    Command::container("xgroup", "5.0.0"),
    Command::new("xgroup|create", -5, GROW, Keys::SECOND, "5.0.0", create),
    Command::new("xgroup|setid", -5, CHANGE, Keys::SECOND, "5.0.0", set_id),
    Command::new("xgroup|destroy", 4, CHANGE, Keys::SECOND, "5.0.0", destroy),
    Command::new("xgroup|createconsumer", 5, GROW, Keys::SECOND, "6.2.0", create_consumer),
    Command::new("xgroup|delconsumer", 5, CHANGE, Keys::SECOND, "5.0.0", delete_consumer),
    Command::new("xgroup|help", 2, flag::LOADING | flag::STALE, Keys::None, "5.0.0", group_help),
    Command::new("xack", -4, flag::WRITE | flag::FAST, Keys::ONE, "5.0.0", xack),
    Command::new("xpending", -3, flag::READONLY, Keys::ONE, "5.0.0", xpending),
    Command::new("xclaim", -6, flag::WRITE | flag::FAST, Keys::ONE, "5.0.0", xclaim),
    Command::new("xautoclaim", -6, flag::WRITE | flag::FAST, Keys::ONE, "6.2.0", xautoclaim),
];

/// What XAUTOCLAIM looks at unless it is told, and how many entries it looks at for each it may claim.
const AUTOCLAIM_COUNT: usize = 100;
const AUTOCLAIM_ATTEMPTS: usize = 10;

fn group_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "XGROUP",
        &[
            ("CREATE <key> <groupname> <id|$> [option]", "Create a new consumer group."),
            ("CREATECONSUMER <key> <groupname> <consumer>", "Create a new consumer in the specified group."),
            ("DELCONSUMER <key> <groupname> <consumer>", "Remove the specified consumer."),
            ("DESTROY <key> <groupname>", "Remove the specified group."),
            (
                "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
                "Set the current group ID and entries_read counter.",
            ),
        ],
    )
}

pub(super) fn no_group(key: &[u8], group: &[u8]) -> CommandError {
    CommandError::with(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        String::from_utf8_lossy(group),
        String::from_utf8_lossy(key)
    ))
}

const KEY_REQUIRED: CommandError = CommandError::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
     option to create an empty stream automatically.",
);

fn create(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, name) = (args.at(2), args.at(3));
    let (mut make_stream, mut entries_read) = (false, None);
    let mut at = 5;
    while at < args.len() {
        if args.is(at, "mkstream") {
            make_stream = true;
            at += 1;
        } else if args.is(at, "entriesread") && at + 1 < args.len() {
            entries_read = read_count(args, at + 1)?;
            at += 2;
        } else {
            return Err(CommandError::subcommand(args));
        }
    }
    let stream = ctx.db.write_stream(key)?;
    if stream.is_none() && !make_stream {
        return Err(KEY_REQUIRED);
    }
    let last = stream.map_or(StreamId::MIN, |stream| stream.last_id);
    let id = if args.at(4) == b"$" { last } else { range_start_id(args.at(4))? };
    let stream = ctx.db.make_stream(key, Stream::new)?;
    if stream.groups.contains_key(name) {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    stream.groups.insert(name.into(), Group::new(id, entries_read));
    ctx.db.changed(key, 1);
    ctx.out.ok();
    Ok(())
}

/// Reads an ID where `-` and `+` are also fine.
fn range_start_id(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        text => strict_id(text, 0),
    }
}

fn read_count(args: Args<'_>, at: usize) -> Result<Option<u64>, CommandError> {
    match args.int(at)? {
        -1 => Ok(None),
        count => u64::try_from(count)
            .map(Some)
            .map_err(|_| CommandError::new("ERR value for ENTRIESREAD must be positive or -1")),
    }
}

fn set_id(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, name) = (args.at(2), args.at(3));
    let mut entries_read = None;
    if args.len() > 5 {
        if args.len() != 7 || !args.is(5, "entriesread") {
            return Err(CommandError::subcommand(args));
        }
        entries_read = read_count(args, 6)?;
    }
    let stream = ctx.db.write_stream(key)?.ok_or(KEY_REQUIRED)?;
    let last = stream.last_id;
    let group = stream.groups.get_mut(name).ok_or_else(|| no_group(key, name))?;
    group.last_id = if args.at(4) == b"$" { last } else { range_start_id(args.at(4))? };
    group.entries_read = entries_read;
    ctx.db.changed(key, 1);
    ctx.out.ok();
    Ok(())
}

fn destroy(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(2);
    let stream = ctx.db.write_stream(key)?.ok_or(KEY_REQUIRED)?;
    // Freed here, however much is pending: no lazyfree setting covers groups.
    let removed = stream.groups.remove(args.at(3)).is_some();
    if removed {
        ctx.db.changed(key, 1);
    }
    ctx.out.int(i64::from(removed));
    Ok(())
}

fn create_consumer(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, name, now_ms) = (args.at(2), args.at(3), ctx.db.now_ms());
    let stream = ctx.db.write_stream(key)?.ok_or(KEY_REQUIRED)?;
    let group = stream.groups.get_mut(name).ok_or_else(|| no_group(key, name))?;
    let added = group.add_consumer(args.at(4), now_ms);
    if added {
        ctx.db.changed(key, 1);
    }
    ctx.out.int(i64::from(added));
    Ok(())
}

fn delete_consumer(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, name) = (args.at(2), args.at(3));
    let stream = ctx.db.write_stream(key)?.ok_or(KEY_REQUIRED)?;
    let group = stream.groups.get_mut(name).ok_or_else(|| no_group(key, name))?;
    let pending = group.remove_consumer(args.at(4));
    if pending.is_some() {
        ctx.db.changed(key, 1);
    }
    ctx.out.count(pending.unwrap_or(0));
    Ok(())
}

fn xack(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let key = args.at(1);
    let Some(group) = ctx.db.write_stream(key)?.and_then(|stream| stream.groups.get_mut(args.at(2))) else {
        ctx.out.int(0);
        return Ok(());
    };
    let ids: Vec<StreamId> = args.iter().skip(3).map(|text| strict_id(text, 0)).collect::<Result<_, _>>()?;
    let acknowledged = ids.into_iter().filter(|id| group.acknowledge(*id)).count();
    if acknowledged > 0 {
        ctx.db.changed(key, acknowledged);
    }
    ctx.out.count(acknowledged);
    Ok(())
}

fn no_key_or_group(key: &[u8], group: &[u8]) -> CommandError {
    CommandError::with(format!(
        "NOGROUP No such key '{}' or consumer group '{}'",
        String::from_utf8_lossy(key),
        String::from_utf8_lossy(group)
    ))
}

fn xpending(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, name, now_ms) = (args.at(1), args.at(2), ctx.db.now_ms());
    let idle_given = args.len() > 3 && args.is(3, "idle");
    let at = if idle_given { 5 } else { 3 };
    let extended = args.len() != 3;
    if extended && (args.len() < at + 3 || args.len() > at + 4) {
        return Err(CommandError::SYNTAX);
    }
    let (mut min_idle, mut count, mut range) = (0, 0, (StreamId::MIN, StreamId::MAX));
    if extended {
        if idle_given {
            min_idle = u64::try_from(args.int(4)?).unwrap_or(0);
        }
        count = usize::try_from(args.int(at + 2)?).unwrap_or(0);
        range = (range_start(args.at(at))?, range_end(args.at(at + 1))?);
    }
    let group = ctx.db.read_stream(key)?.and_then(|stream| stream.groups.get(name));
    let group = group.ok_or_else(|| no_key_or_group(key, name))?;
    if !extended {
        summary(ctx.out, group);
        return Ok(());
    }
    let consumer = args.get(at + 3);
    let found: Vec<_> = group
        .pending_from(range.0, consumer)
        .take_while(|(id, _)| *id <= range.1)
        .map(|(id, pending)| (id, pending, now_ms.saturating_sub(pending.delivered_ms)))
        .filter(|(_, _, idle)| *idle >= min_idle)
        .take(count)
        .collect();
    ctx.out.array(found.len());
    for (id, pending, idle) in found {
        ctx.out.array(4);
        ctx.out.text(&id.to_string());
        ctx.out.bulk(&pending.consumer);
        ctx.out.int(clamp(idle));
        ctx.out.int(clamp(pending.deliveries));
    }
    Ok(())
}

fn summary(out: &mut Reply, group: &Group) {
    out.array(4);
    out.count(group.pending.len());
    let (Some((first, _)), Some((last, _))) = (group.pending.first(), group.pending.last()) else {
        out.nil();
        out.nil();
        out.nil_array();
        return;
    };
    out.text(&StreamId::from_key(&first).to_string());
    out.text(&StreamId::from_key(&last).to_string());
    let busy: Vec<_> = group.consumers.iter().filter(|(_, consumer)| !consumer.pending.is_empty()).collect();
    out.array(busy.len());
    for (name, consumer) in busy {
        out.array(2);
        out.bulk(name);
        out.text(&consumer.pending.len().to_string());
    }
}

/// The options of XCLAIM behind the IDs.
#[derive(Default)]
struct Claim {
    /// When the entries count as delivered; now unless said otherwise.
    delivered_ms: Option<u64>,
    deliveries: Option<u64>,
    /// Also what is not pending.
    force: bool,
    just_id: bool,
    last_id: Option<StreamId>,
}

impl Claim {
    fn parse(args: Args<'_>, mut at: usize, now_ms: u64) -> Result<Claim, CommandError> {
        let mut claim = Claim::default();
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if args.is(at, "force") {
                claim.force = true;
            } else if args.is(at, "justid") {
                claim.just_id = true;
            } else if args.is(at, "idle") && has_value {
                let idle = number(args, at + 1, "ERR Invalid IDLE option argument for XCLAIM")?;
                claim.delivered_ms = Some(now_ms.saturating_add_signed(-idle));
                at += 1;
            } else if args.is(at, "time") && has_value {
                let time = number(args, at + 1, "ERR Invalid TIME option argument for XCLAIM")?;
                claim.delivered_ms = Some(u64::try_from(time).unwrap_or(0));
                at += 1;
            } else if args.is(at, "retrycount") && has_value {
                let count = number(args, at + 1, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.deliveries = u64::try_from(count).ok();
                at += 1;
            } else if args.is(at, "lastid") && has_value {
                claim.last_id = Some(strict_id(args.at(at + 1), 0)?);
                at += 1;
            } else {
                let option = String::from_utf8_lossy(args.at(at)).into_owned();
                return Err(format!("ERR Unrecognized XCLAIM option '{option}'").into());
            }
            at += 1;
        }
        // A time to come would make an entry that never gets idle.
        claim.delivered_ms = claim.delivered_ms.map(|time| time.min(now_ms));
        Ok(claim)
    }
}

fn number(args: Args<'_>, at: usize, wrong: &'static str) -> Result<i64, CommandError> {
    args.int(at).map_err(|_| CommandError::new(wrong))
}

fn xclaim(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, name, consumer, now_ms) = (args.at(1), args.at(2), args.at(3), ctx.db.now_ms());
    let group = ctx.db.write_stream(key)?.and_then(|stream| stream.groups.get_mut(name));
    group.ok_or_else(|| no_key_or_group(key, name))?;
    let min_idle =
        u64::try_from(number(args, 4, "ERR Invalid min-idle-time argument for XCLAIM")?).unwrap_or(0);
    let mut ids = Vec::new();
    let mut at = 5;
    while let Some(id) = args.get(at).and_then(|text| StreamId::parse(text, 0)) {
        ids.push(id);
        at += 1;
    }
    let claim = Claim::parse(args, at, now_ms)?;
    if ids.is_empty() {
        return Err(strict_id(b"", 0).err().unwrap_or(CommandError::SYNTAX));
    }

    let Some(stream) = ctx.db.write_stream(key)? else {
        return Ok(());
    };
    if let Some(group) = stream.groups.get_mut(name) {
        group.last_id = group.last_id.max(claim.last_id.unwrap_or(StreamId::MIN));
        group.see(consumer, now_ms);
    }
    let mut claimed = Vec::new();
    for id in ids {
        let there = stream.contains(id);
        let Some(group) = stream.groups.get_mut(name) else {
            break;
        };
        if !there {
            // Pending, but deleted from the stream: nothing to give to anybody any more.
            group.acknowledge(id);
            continue;
        }
        let (idle, before) = match group.pending.get(&id.key()) {
            Some(Pending { delivered_ms, deliveries, .. }) => {
                (now_ms.saturating_sub(*delivered_ms), *deliveries)
            }
            None if claim.force => (u64::MAX, 0),
            None => continue,
        };
        if idle < min_idle {
            continue;
        }
        let deliveries = claim.deliveries.unwrap_or(before + u64::from(!claim.just_id));
        group.assign(id, consumer, claim.delivered_ms.unwrap_or(now_ms), deliveries);
        group.activate(consumer, now_ms);
        claimed.push(id);
    }
    write_claimed(ctx.out, stream, &claimed, claim.just_id);
    ctx.db.changed(key, claimed.len().max(1));
    Ok(())
}

fn write_claimed(out: &mut Reply, stream: &Stream, ids: &[StreamId], just_id: bool) {
    out.array(ids.len());
    for id in ids {
        if just_id {
            out.text(&id.to_string());
        } else {
            stream.with_entry(*id, |entry| write_entry(out, entry));
        }
    }
}

fn xautoclaim(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, name, consumer, now_ms) = (args.at(1), args.at(2), args.at(3), ctx.db.now_ms());
    let min_idle =
        u64::try_from(number(args, 4, "ERR Invalid min-idle-time argument for XAUTOCLAIM")?).unwrap_or(0);
    let start = range_start(args.at(5))?;
    let (mut count, mut just_id) = (AUTOCLAIM_COUNT, false);
    let mut at = 6;
    while at < args.len() {
        if args.is(at, "count") && at + 1 < args.len() {
            let most = i64::MAX / 16;
            let given = args.int(at + 1)?;
            if !(1..=most).contains(&given) {
                return Err("ERR COUNT must be > 0".into());
            }
            count = usize::try_from(given).unwrap_or(AUTOCLAIM_COUNT);
            at += 2;
        } else if args.is(at, "justid") {
            just_id = true;
            at += 1;
        } else {
            return Err(CommandError::SYNTAX);
        }
    }
    let stream = ctx.db.write_stream(key)?.ok_or_else(|| no_key_or_group(key, name))?;
    let group = stream.groups.get_mut(name).ok_or_else(|| no_key_or_group(key, name))?;
    group.see(consumer, now_ms);

    // Bounded by what is looked at, not only by what is claimed.
    let looked_at: Vec<_> = group
        .pending_from(start, None)
        .take(count.saturating_mul(AUTOCLAIM_ATTEMPTS))
        .map(|(id, pending)| (id, now_ms.saturating_sub(pending.delivered_ms), pending.deliveries))
        .collect();
    let (mut claimed, mut gone, mut last) = (Vec::new(), Vec::new(), None);
    for (id, idle, deliveries) in looked_at {
        if claimed.len() + gone.len() == count {
            break;
        }
        last = Some(id);
        if !stream.contains(id) {
            gone.push(id);
        } else if idle >= min_idle {
            claimed.push((id, deliveries + u64::from(!just_id)));
        }
    }
    if let Some(group) = stream.groups.get_mut(name) {
        for id in &gone {
            group.acknowledge(*id);
        }
        for (id, deliveries) in &claimed {
            group.assign(*id, consumer, now_ms, *deliveries);
            group.activate(consumer, now_ms);
        }
    }
    let group = stream.groups.get(name);
    let next = last.and_then(StreamId::next).and_then(|next| group?.pending_from(next, None).next());
    ctx.out.array(3);
    ctx.out.text(&next.map_or(StreamId::MIN, |(id, _)| id).to_string());
    let ids: Vec<StreamId> = claimed.iter().map(|(id, _)| *id).collect();
    write_claimed(ctx.out, stream, &ids, just_id);
    ctx.out.array(gone.len());
    for id in &gone {
        ctx.out.text(&id.to_string());
    }
    ctx.db.changed(key, claimed.len() + gone.len());
    Ok(())
}

pub(super) fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
