//! SCAN, and what HSCAN, SSCAN and ZSCAN share with it: options, limits, and the reply.
//!
//! A call stops once COUNT elements were visited, or after ten times as many buckets: a table
//! that is nearly empty must not make one call walk all of it. Whole buckets are returned, so a
//! page may hold more than COUNT.

use super::error::CommandError;
use super::table::{Command, Keys, flag};
use super::{Context, Outcome, glob};
use crate::server::fault::FaultAction;
use crate::server::keyspace::Key;
use crate::server::resp::Args;

pub(super) const COMMANDS: &[Command] =
    &[Command::new("scan", -2, flag::READONLY, Keys::None, "2.8.0", scan)];

/// Buckets that may be walked for each element asked for.
pub(super) const BUCKETS_PER_ELEMENT: usize = 10;

/// What a client asked of one page.
#[derive(Debug)]
pub(super) struct ScanOptions {
    pub(super) cursor: u64,
    pub(super) count: usize,
    pattern: Option<Vec<u8>>,
    type_name: Option<String>,
    /// HSCAN NOVALUES.
    pub(super) no_values: bool,
}

impl ScanOptions {
    /// Parses the cursor at `at` and what follows. `for_keys` allows TYPE, `for_hash` NOVALUES.
    pub(super) fn parse(
        args: Args<'_>,
        at: usize,
        for_keys: bool,
        for_hash: bool,
    ) -> Result<ScanOptions, CommandError> {
        let mut options = ScanOptions {
            cursor: parse_cursor(args.at(at))?,
            count: 10,
            pattern: None,
            type_name: None,
            no_values: false,
        };
        let mut at = at + 1;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if has_value && args.is(at, "COUNT") {
                let count = args.int(at + 1)?;
                options.count =
                    usize::try_from(count).ok().filter(|count| *count > 0).ok_or(CommandError::SYNTAX)?;
            } else if has_value && args.is(at, "MATCH") {
                // A pattern that matches all is no pattern.
                options.pattern = Some(args.at(at + 1).to_vec()).filter(|pattern| pattern != b"*");
            } else if for_keys && has_value && args.is(at, "TYPE") {
                options.type_name = Some(args.lower(at + 1));
            } else if for_hash && args.is(at, "NOVALUES") {
                options.no_values = true;
                at += 1;
                continue;
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 2;
        }
        Ok(options)
    }

    /// Says whether MATCH lets this element through.
    pub(super) fn matches(&self, element: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, element))
    }

    /// Returns how many buckets this page may walk.
    pub(super) fn buckets_max(&self) -> usize {
        self.count.saturating_mul(BUCKETS_PER_ELEMENT)
    }
}

fn parse_cursor(text: &[u8]) -> Result<u64, CommandError> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let cursor = std::str::from_utf8(text).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    cursor.ok_or(CommandError::new("ERR invalid cursor"))
}

fn scan(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = ScanOptions::parse(args, 1, true, false)?;
    let (mut cursor, mut visited): (u64, Vec<Key>) = (options.cursor, Vec::new());
    for _ in 0..options.buckets_max() {
        cursor = ctx.db.scan(cursor, |key| visited.push(key.into()));
        if cursor == 0 || visited.len() >= options.count {
            break;
        }
    }
    let mut page: Vec<Key> = Vec::with_capacity(visited.len());
    for key in visited {
        // MATCH first: what it filters out is not looked up, so it is not reaped either.
        if !options.matches(&key) || ctx.db.expire_if_due(&key) {
            continue;
        }
        let of_type = options
            .type_name
            .as_ref()
            .is_none_or(|wanted| ctx.db.peek(&key).is_some_and(|object| object.value.type_name() == wanted));
        if of_type {
            page.push(key);
        }
    }
    reply(ctx, cursor, &page, 1);
    Ok(())
}

/// Writes a page. `width` items belong together: field and value, member and score.
pub(super) fn reply<T: AsRef<[u8]>>(ctx: &mut Context<'_>, mut cursor: u64, items: &[T], width: usize) {
    let mut copies = 1;
    for fault in std::mem::take(&mut ctx.page_faults) {
        match fault {
            FaultAction::Cursor(wanted) => cursor = wanted,
            FaultAction::EmptyPage => copies = 0,
            FaultAction::Duplicate => copies = 2,
            _ => {}
        }
    }
    ctx.out.array(2);
    ctx.out.text(&cursor.to_string());
    ctx.out.array(items.len() * copies);
    for group in items.chunks(width.max(1)) {
        for _ in 0..copies {
            for item in group {
                ctx.out.bulk(item.as_ref());
            }
        }
    }
}
