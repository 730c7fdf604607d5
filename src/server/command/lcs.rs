//! LCS: the longest common subsequence of two strings, by the textbook's table.

use super::error::CommandError;
use super::string::read;
use super::table::{Command, Keys, flag};
use super::{Context, Outcome};
use crate::server::resp::Args;
use crate::server::value::string::StringValue;

pub(super) const COMMANDS: &[Command] = &[Command::new("lcs", -3, flag::READONLY, Keys::TWO, "7.0.0", lcs)];

#[derive(Debug, Default)]
struct Options {
    len: bool,
    indexes: bool,
    match_len: bool,
    match_len_min: usize,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, CommandError> {
        let mut options = Options::default();
        let mut at = 3;
        while at < args.len() {
            match args.lower(at).as_str() {
                "idx" => options.indexes = true,
                "len" => options.len = true,
                "withmatchlen" => options.match_len = true,
                "minmatchlen" if at + 1 < args.len() => {
                    at += 1;
                    options.match_len_min = usize::try_from(args.int(at)?).unwrap_or(0);
                }
                _ => return Err(CommandError::SYNTAX),
            }
            at += 1;
        }
        if options.indexes && options.len {
            return Err("ERR If you want both the length and indexes, please just use IDX.".into());
        }
        Ok(options)
    }
}

/// For each pair of prefixes the length of what they have in common.
struct LengthTable {
    lengths: Vec<u32>,
    width: usize,
}

impl LengthTable {
    /// The table has a cell for each pair of prefixes, so it may be far larger than the strings.
    fn new(a: &[u8], b: &[u8], bytes_max: usize) -> Result<LengthTable, CommandError> {
        let width = b.len() + 1;
        let cells = (a.len() + 1).checked_mul(width).filter(|cells| *cells <= bytes_max / size_of::<u32>());
        let cells =
            cells.ok_or("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")?;
        let mut table = LengthTable { lengths: vec![0; cells], width };
        for (i, left) in a.iter().enumerate() {
            for (j, right) in b.iter().enumerate() {
                let length = if left == right {
                    table.at(i, j) + 1
                } else {
                    table.at(i, j + 1).max(table.at(i + 1, j))
                };
                table.lengths[(i + 1) * width + j + 1] = length;
            }
        }
        Ok(table)
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.lengths[i * self.width + j]
    }
}

/// A run that both strings have: where it starts in each, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

/// Returns the common runs, the last one first.
fn matches(a: &[u8], b: &[u8], table: &LengthTable) -> Vec<Match> {
    let mut found: Vec<Match> = Vec::new();
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] != b[j - 1] {
            // A tie goes to the left one of the second string, as in Redis.
            if table.at(i - 1, j) > table.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
            continue;
        }
        match found.last_mut() {
            Some(run) if (run.a, run.b) == (i, j) => *run = Match { a: i - 1, b: j - 1, len: run.len + 1 },
            _ => found.push(Match { a: i - 1, b: j - 1, len: 1 }),
        }
        (i, j) = (i - 1, j - 1);
    }
    found
}

fn lcs(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut text = |at: usize| match read(&mut ctx.db, args.at(at)) {
        Ok(string) => Ok(string.map(StringValue::bytes).unwrap_or_default().into_owned()),
        Err(_) => Err(CommandError::new("ERR The specified keys must contain string values")),
    };
    let (a, b) = (text(1)?, text(2)?);
    let options = Options::parse(args)?;
    let bytes_max = usize::try_from(ctx.server.settings.bulk_len_max).unwrap_or(usize::MAX);
    let table = LengthTable::new(&a, &b, bytes_max)?;
    let len = i64::from(table.at(a.len(), b.len()));
    if options.len {
        ctx.out.int(len);
        return Ok(());
    }
    let mut runs = matches(&a, &b, &table);
    if !options.indexes {
        let common: Vec<u8> = runs.iter().rev().flat_map(|run| &a[run.a..run.a + run.len]).copied().collect();
        ctx.out.bulk(&common);
        return Ok(());
    }
    runs.retain(|run| run.len >= options.match_len_min);
    ctx.out.map(2);
    ctx.out.text("matches");
    ctx.out.array(runs.len());
    for run in runs {
        ctx.out.array(2 + usize::from(options.match_len));
        for start in [run.a, run.b] {
            ctx.out.array(2);
            ctx.out.count(start);
            ctx.out.count(start + run.len - 1);
        }
        if options.match_len {
            ctx.out.count(run.len);
        }
    }
    ctx.out.text("len");
    ctx.out.int(len);
    Ok(())
}
