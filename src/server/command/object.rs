//! OBJECT and MEMORY: how a value is kept, how long it was left alone, what it weighs.

use super::core::STARTUP_BYTES;
use super::error::CommandError;
use super::table::{Command, Keys, category, flag, need};
use super::{Context, Outcome, help};
use crate::server::info::resident_bytes;
use crate::server::keyspace::{Object, key_overhead};
use crate::server::resp::Args;

const READ: u32 = flag::READONLY;

pub(super) const COMMANDS: &[Command] = &[
    Command::container("object", "2.2.3"),
    Command::new("object|encoding", 3, READ, Keys::SECOND, "2.2.3", encoding)
        .needs(need::ANY, need::ANY)
        .also(category::KEYSPACE),
    Command::new("object|idletime", 3, READ, Keys::SECOND, "2.2.3", idletime)
        .needs(need::ANY, need::ANY)
        .also(category::KEYSPACE),
    Command::new("object|freq", 3, READ, Keys::SECOND, "4.0.0", freq)
        .needs(need::ANY, need::ANY)
        .also(category::KEYSPACE),
    Command::new("object|refcount", 3, READ, Keys::SECOND, "2.2.3", refcount)
        .needs(need::ANY, need::ANY)
        .also(category::KEYSPACE),
    Command::new("object|help", 2, flag::LOADING | flag::STALE, Keys::None, "6.2.0", object_help)
        .also(category::KEYSPACE),
    Command::container("memory", "4.0.0"),
    Command::new("memory|usage", -3, READ, Keys::SECOND, "4.0.0", usage).needs(need::ANY, need::ANY),
    Command::new("memory|stats", 2, 0, Keys::None, "4.0.0", stats),
    Command::new("memory|doctor", 2, 0, Keys::None, "4.0.0", doctor),
    Command::new("memory|purge", 2, 0, Keys::None, "4.0.0", purge),
    Command::new("memory|malloc-stats", 2, 0, Keys::None, "4.0.0", malloc_stats),
    Command::new("memory|help", 2, flag::LOADING | flag::STALE, Keys::None, "4.0.0", memory_help),
];

/// Looks a key up for OBJECT; says nil when it is not there.
fn look<'a>(ctx: &'a mut Context<'_>, args: Args<'_>) -> Option<&'a Object> {
    if ctx.db.lookup_quiet(args.at(2)).is_none() {
        ctx.out.nil();
    }
    ctx.db.peek(args.at(2))
}

fn encoding(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if let Some(object) = look(ctx, args) {
        let encoding = object.value.encoding();
        ctx.out.text(encoding);
    }
    Ok(())
}

fn idletime(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now_ms = ctx.db.now_ms();
    let Some(access) = look(ctx, args).map(|object| object.access) else {
        return Ok(());
    };
    if ctx.db.keyspace.settings.policy.is_lfu() {
        return Err("ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
                    switching between policies at runtime LRU and LFU data will take some time to adjust."
            .into());
    }
    ctx.out.int(i64::try_from(access.idle_s(now_ms)).unwrap_or(0));
    Ok(())
}

fn freq(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now_ms = ctx.db.now_ms();
    let Some(access) = look(ctx, args).map(|object| object.access) else {
        return Ok(());
    };
    if !ctx.db.keyspace.settings.policy.is_lfu() {
        return Err(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
                    that when switching between policies at runtime LRU and LFU data will take some time to \
                    adjust."
                .into(),
        );
    }
    ctx.out.int(i64::from(access.frequency(now_ms)));
    Ok(())
}

fn refcount(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    // Redis shares the integers up to 9999, and then says so.
    let shared = look(ctx, args).map(|object| is_shared(&object.value));
    match shared {
        None => {}
        Some(true) => ctx.out.int(i64::from(i32::MAX)),
        Some(false) => ctx.out.int(1),
    }
    Ok(())
}

fn is_shared(value: &crate::server::value::Value) -> bool {
    use crate::server::value::Value;
    use crate::server::value::string::StringValue;
    matches!(value, Value::String(StringValue::Int(0..=9999)))
}

fn object_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "OBJECT",
        &[
            ("ENCODING <key>", "Returns how the value is kept."),
            ("FREQ <key>", "Returns the logarithm of how often the key is used (LFU policies only)."),
            ("IDLETIME <key>", "Returns the seconds since the key was last used."),
            ("REFCOUNT <key>", "Returns how many references the value has."),
        ],
    )
}

/// Looks through the window: nothing expires, nothing is touched, nothing is counted.
fn usage(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let samples = match args.len() {
        3 => 5,
        5 if args.is(3, "SAMPLES") => usize::try_from(args.int(4)?).map_err(|_| CommandError::SYNTAX)?,
        _ => return Err(CommandError::SYNTAX),
    };
    let key = args.at(2);
    match ctx.db.peek(key) {
        Some(object) => ctx.out.count(object.value.memory_usage(samples) + key_overhead(key)),
        None => ctx.out.nil(),
    }
    Ok(())
}

fn stats(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let used = ctx.server.used_memory(ctx.db.keyspace);
    let peak = ctx.server.stats.peak_memory.max(used);
    let rss = resident_bytes().unwrap_or(used);
    let clients = ctx.server.clients_memory();
    let dbs = ctx.db.keyspace.dbs();
    let tables: usize = dbs.iter().map(|db| db.main_overhead_bytes() + db.expires_overhead_bytes()).sum();
    let keys: usize = dbs.iter().map(super::super::keyspace::Db::len).sum();
    let overhead = STARTUP_BYTES + clients + tables;
    let dataset = used.saturating_sub(overhead);
    let net = used.saturating_sub(STARTUP_BYTES);
    let ratio = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;

    let out = &mut *ctx.out;
    let place = out.defer();
    let mut fields = 0;
    let counts = [
        ("peak.allocated", peak),
        ("total.allocated", used),
        ("startup.allocated", STARTUP_BYTES),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", clients),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
    ];
    for (name, value) in counts {
        out.text(name);
        out.count(value);
        fields += 1;
    }
    for (index, db) in dbs.iter().enumerate().filter(|(_, db)| db.len() > 0) {
        out.text(&format!("db.{index}"));
        out.map(3);
        out.text("overhead.hashtable.main");
        out.count(db.main_overhead_bytes());
        out.text("overhead.hashtable.expires");
        out.count(db.expires_overhead_bytes());
        out.text("overhead.hashtable.slot-to-keys");
        out.int(0);
        fields += 1;
    }
    let counts = [
        ("overhead.total", overhead),
        ("keys.count", keys),
        ("keys.bytes-per-key", net.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", dataset),
    ];
    for (name, value) in counts {
        out.text(name);
        out.count(value);
        fields += 1;
    }
    let doubles = [
        ("dataset.percentage", ratio(dataset, net) * 100.0),
        ("peak.percentage", ratio(used, peak) * 100.0),
        ("allocator-fragmentation.ratio", 1.0),
        ("allocator-rss.ratio", 1.0),
        ("rss-overhead.ratio", 1.0),
        ("fragmentation", ratio(rss, used)),
    ];
    for (name, value) in doubles {
        out.text(name);
        out.double(value);
        fields += 1;
    }
    for (name, value) in
        [("allocator.allocated", used), ("allocator.active", rss), ("allocator.resident", rss)]
    {
        out.text(name);
        out.count(value);
        fields += 1;
    }
    out.map_at(&place, fields);
    Ok(())
}

fn doctor(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.verbatim(b"The bundled server has no allocator of its own to look after.\n");
    Ok(())
}

fn purge(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.ok();
    Ok(())
}

fn malloc_stats(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.out.verbatim(b"Stats not supported for the current allocator");
    Ok(())
}

fn memory_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    help(
        ctx,
        "MEMORY",
        &[
            ("DOCTOR", "Returns what is wrong with memory, in words."),
            ("MALLOC-STATS", "Returns what the allocator says of itself."),
            ("PURGE", "Gives unused memory back, where the allocator can."),
            ("STATS", "Returns where memory goes."),
            (
                "USAGE <key> [SAMPLES <count>]",
                "Returns the bytes a key takes; SAMPLES elements are weighed (default 5, 0 is all).",
            ),
        ],
    )
}
