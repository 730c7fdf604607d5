//! DUMP and RESTORE of one value, SAVE and BGSAVE of all.

use super::error::CommandError;
use super::table::{Command, Keys, category, flag};
use super::{Context, Outcome};
use crate::server::info;
use crate::server::keyspace::Free;
use crate::server::rdb::{self, Home, RdbErrorKind, SaveOptions};
use crate::server::resp::Args;

const SAVES: u32 = flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("dump", 2, flag::READONLY, Keys::ONE, "2.6.0", dump).also(category::KEYSPACE),
    Command::new("restore", -4, flag::WRITE | flag::DENYOOM, Keys::ONE, "2.6.0", restore)
        .also(category::KEYSPACE | category::DANGEROUS),
    Command::new("save", 1, SAVES | flag::NO_MULTI, Keys::None, "1.0.0", save),
    Command::new("bgsave", -1, SAVES, Keys::None, "1.0.0", bgsave),
];

fn dump(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match ctx.db.lookup_read(args.at(1)) {
        Some(value) => ctx.out.bulk(&rdb::dump(value)),
        None => ctx.out.nil(),
    }
    Ok(())
}

/// RESTORE's options.
#[derive(Default)]
struct RestoreOptions {
    replace: bool,
    absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl RestoreOptions {
    fn parse(args: Args<'_>) -> Result<RestoreOptions, CommandError> {
        let mut options = RestoreOptions::default();
        let mut at = 4;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if args.is(at, "replace") {
                options.replace = true;
            } else if args.is(at, "absttl") {
                options.absolute = true;
            } else if args.is(at, "idletime") && has_value {
                let idle = u64::try_from(args.int(at + 1)?);
                options.idle_s =
                    Some(idle.map_err(|_| CommandError::new("ERR Invalid IDLETIME value, must be >= 0"))?);
                at += 1;
            } else if args.is(at, "freq") && has_value {
                let frequency = u8::try_from(args.int(at + 1)?)
                    .map_err(|_| CommandError::new("ERR Invalid FREQ value, must be >= 0 and <= 255"))?;
                options.frequency = Some(frequency);
                at += 1;
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

fn restore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = RestoreOptions::parse(args)?;
    let key = args.at(1);
    if !options.replace && ctx.db.lookup_write(key).is_some() {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl =
        u64::try_from(args.int(2)?).map_err(|_| CommandError::new("ERR Invalid TTL value, must be >= 0"))?;
    let home = Home { seed: ctx.db.keyspace.seed(), limits: &ctx.server.settings.limits };
    let value = rdb::restore(args.at(3), home).map_err(|error| match error.kind {
        RdbErrorKind::Checksum | RdbErrorKind::Version(_) => {
            CommandError::new("ERR DUMP payload version or checksum are wrong")
        }
        _ => CommandError::new("ERR Bad data format"),
    })?;

    let now_ms = ctx.db.now_ms();
    let deadline = (ttl > 0).then(|| if options.absolute { ttl } else { ttl.saturating_add(now_ms) });
    ctx.db.delete(key, Free::ForServer);
    if deadline.is_none_or(|at_ms| at_ms > now_ms) {
        ctx.db.set(key, value);
        if let Some(at_ms) = deadline {
            ctx.db.set_deadline(key, at_ms);
        }
        ctx.db.set_access(key, options.idle_s, options.frequency);
        ctx.db.note_change(key, 1);
    }
    ctx.out.ok();
    Ok(())
}

fn save(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    save_now(ctx)?;
    ctx.out.ok();
    Ok(())
}

/// Saves before it answers. Redis forks and lets the child write; without a fork the only honest
/// snapshot is one that nobody changes meanwhile.
fn bgsave(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 || (args.len() == 2 && !args.is(1, "schedule")) {
        return Err(CommandError::SYNTAX);
    }
    save_now(ctx)?;
    ctx.out.simple("Background saving started");
    Ok(())
}

/// DEBUG RELOAD: whether a file that was saved gives back what was there.
pub(super) fn reload(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    const FAILED: &str = "ERR Error trying to load the RDB dump, check server logs.";
    let (mut saves, mut flushes) = (true, true);
    for at in 2..args.len() {
        match args.lower(at).as_str() {
            "nosave" => saves = false,
            // What is there is overwritten in either case: one of two values has to go.
            "noflush" | "merge" => flushes = false,
            _ => return Err("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.".into()),
        }
    }
    if saves {
        save_now(ctx)?;
    }
    if flushes {
        for index in 0..ctx.db.keyspace.dbs().len() {
            ctx.db.keyspace.flush(index, false);
        }
    }
    let path = ctx.server.settings.db_path();
    ctx.server.load_file(ctx.db.keyspace, &path).map_err(|_| CommandError::new(FAILED))?;
    ctx.db.keyspace.dirty = 0;
    ctx.out.ok();
    Ok(())
}

fn save_now(ctx: &mut Context<'_>) -> Outcome {
    let settings = &ctx.server.settings;
    let path = settings.db_path();
    let options = SaveOptions { redis_version: info::VERSION, compress: settings.rdb_compression };
    if let Err(error) = rdb::save_file(ctx.db.keyspace, &path, options) {
        return Err(format!("ERR cannot save to {}: {error}", path.display()).into());
    }
    ctx.server.last_save_s = ctx.server.unix_s();
    ctx.db.keyspace.dirty = 0;
    Ok(())
}
