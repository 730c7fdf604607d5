//! The arguments of SSCAN, HSCAN and ZSCAN, and the shape of their replies.

use super::error::CommandError;
use super::glob;
use crate::server::resp::{Args, Reply};
use crate::server::value::listpack::Element;

/// What a scan of a collection was asked for.
#[derive(Debug)]
pub(super) struct CollectionScan<'a> {
    pub(super) cursor: u64,
    pub(super) count: usize,
    pattern: Option<&'a [u8]>,
    /// HSCAN NOVALUES.
    pub(super) no_values: bool,
}

impl<'a> CollectionScan<'a> {
    /// Reads the cursor, which is looked at before the key is.
    pub(super) fn cursor(args: Args<'_>) -> Result<u64, CommandError> {
        let cursor = std::str::from_utf8(args.at(2)).ok().and_then(|text| text.parse().ok());
        cursor.ok_or(CommandError::new("ERR invalid cursor"))
    }

    /// Reads `key cursor [MATCH p] [COUNT n] [NOVALUES]`; the last one only for hashes. Only done
    /// for a key that is there: options of a scan over nothing are not looked at.
    pub(super) fn parse(args: Args<'a>, of_hash: bool) -> Result<CollectionScan<'a>, CommandError> {
        let cursor = CollectionScan::cursor(args)?;
        let mut scan = CollectionScan { cursor, count: 10, pattern: None, no_values: false };
        let mut at = 3;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if args.is(at, "count") && has_value {
                let count = args.int(at + 1)?;
                scan.count = usize::try_from(count).ok().filter(|n| *n > 0).ok_or(CommandError::SYNTAX)?;
                at += 2;
            } else if args.is(at, "match") && has_value {
                // `*` matches everything: not asking is cheaper.
                scan.pattern = Some(args.at(at + 1)).filter(|pattern| pattern != b"*");
                at += 2;
            } else if args.is(at, "novalues") {
                if !of_hash {
                    return Err("ERR NOVALUES option can only be used in HSCAN".into());
                }
                scan.no_values = true;
                at += 1;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(scan)
    }

    pub(super) fn wants(&self, element: Element<'_>) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, &element.bytes()))
    }
}

/// Writes the page of a scan: the next cursor, and what `fill` emits. `fill` gets the reply, writes
/// elements into it, and returns the next cursor and how many elements there were.
pub(super) fn page(out: &mut Reply, fill: impl FnOnce(&mut Reply) -> (u64, usize)) {
    let mut elements = out.part(out.proto());
    let (cursor, count) = fill(&mut elements);
    out.array(2);
    out.text(&cursor.to_string());
    out.array(count);
    out.raw(elements.bytes());
}

/// Writes the page of a scan over nothing.
pub(super) fn empty_page(out: &mut Reply) {
    page(out, |_| (0, 0));
}
