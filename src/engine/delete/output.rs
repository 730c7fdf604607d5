//! Writes plans and results: rows for programs, tables and a summary for people.

use std::io::{self, Write};

use serde::Serialize;

use crate::engine::key::{Encoding, KeyName};
use crate::engine::report::TableStyle;
use crate::engine::report::grid::{Cell, Grid, GridRow, Painter, Side, Tone};
use crate::engine::report::words::{bytes, count, counted, elapsed, exact, latency_ms, safe, shorten, wait};

use super::audit::{KeyResult, rounded};
use super::event::KeyOutcome;
use super::lines::{Lines, RowForm};
use super::method::Method;
use super::plan::{Amount, LeftAlone, PlannedKey, Totals, WhyLeftAlone};
use super::report::DeleteReport;

/// Columns of the rows, in this order; new ones only at the end.
pub const DELETE_COLUMNS: [&str; 14] = [
    "db",
    "key",
    "key_encoding",
    "type",
    "encoding",
    "elements",
    "bytes",
    "method",
    "predicted_stall_ms",
    "del_stall_ms",
    "result",
    "detail",
    "slowest_chunk_ms",
    "victim_max_ms",
];

/// A line about one key.
#[derive(Debug, Clone, Copy)]
pub enum Row<'a> {
    /// It would be deleted.
    Planned(&'a PlannedKey),
    /// It is left alone.
    Left(&'a LeftAlone),
    /// This became of it.
    Outcome(&'a PlannedKey, &'a KeyOutcome),
}

#[derive(Serialize)]
struct Cells<'a> {
    db: u32,
    key: String,
    key_encoding: &'static str,
    r#type: Option<&'a str>,
    encoding: Option<&'a str>,
    elements: Option<u64>,
    bytes: Option<u64>,
    method: Option<&'static str>,
    predicted_stall_ms: Option<f64>,
    del_stall_ms: Option<f64>,
    result: &'static str,
    detail: Option<&'a str>,
    slowest_chunk_ms: Option<f64>,
    victim_max_ms: Option<f64>,
}

impl<'a> Cells<'a> {
    fn bare(db: u32, key: &KeyName, result: &'static str) -> Self {
        let (text, encoding) = key.to_text();
        Self {
            db,
            key: text.into_owned(),
            key_encoding: encoding.as_str(),
            r#type: None,
            encoding: None,
            elements: None,
            bytes: None,
            method: None,
            predicted_stall_ms: None,
            del_stall_ms: None,
            result,
            detail: None,
            slowest_chunk_ms: None,
            victim_max_ms: None,
        }
    }

    fn planned(key: &'a PlannedKey, result: &'static str) -> Self {
        Self {
            r#type: Some(key.kind.as_str()),
            encoding: key.encoding.as_ref().map(Encoding::as_str),
            elements: key.elements,
            bytes: key.bytes,
            method: Some(key.method.as_str()),
            predicted_stall_ms: Some(rounded(key.stall_ms)),
            del_stall_ms: key.del_stall_ms.map(rounded),
            detail: Some(&key.reason),
            ..Self::bare(key.db, &key.key, result)
        }
    }

    fn of(row: Row<'a>) -> Self {
        match row {
            Row::Planned(key) => Self::planned(key, "planned"),
            Row::Left(left) => {
                Self { detail: Some(&left.detail), ..Self::bare(left.db, &left.key, left.why.as_str()) }
            }
            Row::Outcome(key, outcome) => {
                let ms = |duration: std::time::Duration| rounded(duration.as_secs_f64() * 1e3);
                Self {
                    detail: outcome.detail.as_deref().or(Some(&key.reason)),
                    slowest_chunk_ms: outcome.slowest_chunk.map(ms),
                    victim_max_ms: outcome.victim_max.map(ms),
                    ..Self::planned(key, outcome.result.as_str())
                }
            }
        }
    }
}

/// Writes rows.
pub struct RowWriter<W: Write>(Lines<W>);

impl<W: Write> RowWriter<W> {
    /// Begins the rows.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(form: RowForm, output: W) -> io::Result<Self> {
        Lines::with_header(form, output, &DELETE_COLUMNS).map(Self)
    }

    /// Writes a row.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, row: Row<'_>) -> io::Result<()> {
        self.0.write(&Cells::of(row))
    }

    /// Hands on what is buffered.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Keys of a plan that are shown.
pub const SHOWN_MAX: usize = 20;
/// Keys that DEL would not stall for either, and that are shown all the same: what the rest looks like.
const SMALL_SHOWN_MAX: usize = 5;
/// A stall below this is nobody's business.
const UNNOTICED_MS: f64 = 0.05;
/// Keys left alone that are shown.
const LEFT_SHOWN_MAX: usize = 10;

/// What is shown of a plan: the worst of its keys, and some of those left alone.
#[derive(Debug, Clone, Default)]
pub struct Excerpt {
    worst: Vec<PlannedKey>,
    left: Vec<LeftAlone>,
}

impl Excerpt {
    /// Takes a planned key.
    pub fn add(&mut self, key: &PlannedKey) {
        let weight = |key: &PlannedKey| (key.del_stall_ms.unwrap_or(f64::INFINITY), key.bytes.unwrap_or(0));
        let is_lighter = |other: &PlannedKey| weight(other) >= weight(key);
        let at = self.worst.iter().take_while(|other| is_lighter(other)).count();
        if at < SHOWN_MAX {
            self.worst.insert(at, key.clone());
            self.worst.truncate(SHOWN_MAX);
        }
    }

    /// Leaves out most of those that nobody would notice by any method.
    fn worth_showing(&self) -> &[PlannedKey] {
        let noticed =
            self.worst.iter().take_while(|key| key.del_stall_ms.is_none_or(|ms| ms >= UNNOTICED_MS));
        let shown = noticed.count().max(SMALL_SHOWN_MAX).min(self.worst.len());
        &self.worst[..shown]
    }

    /// Takes a key that is left alone.
    pub fn leave(&mut self, left: &LeftAlone) {
        if self.left.len() < LEFT_SHOWN_MAX {
            self.left.push(left.clone());
        }
    }
}

/// Writes a line for each method that has keys.
fn write_methods(
    output: &mut impl Write,
    indent: &str,
    by_method: &[Amount; Method::ALL.len()],
) -> io::Result<()> {
    for (method, amount) in Method::ALL.iter().zip(by_method) {
        if amount.keys > 0 {
            let keys = counted(amount.keys, "key");
            writeln!(output, "{indent}{:<11} {keys:>12}  {:>10}", method.as_str(), memory_of(*amount))?;
        }
    }
    Ok(())
}

/// Says how much memory some keys take. What is not known is not nothing.
fn memory_of(amount: Amount) -> String {
    match amount.size_unknown {
        0 => bytes(amount.bytes),
        keys if keys == amount.keys => "unknown size".to_owned(),
        keys => format!("at least {} ({} of unknown size)", bytes(amount.bytes), counted(keys, "key")),
    }
}

/// A stall from here on is shown in red.
const NOTICED_MS: f64 = 10.0;
/// Columns of the terminal that a key's name may take.
const KEY_COLUMNS: usize = 36;

/// Writes a plan for people.
///
/// # Errors
/// When it cannot be written.
pub fn write_plan(
    output: &mut impl Write,
    style: TableStyle,
    excerpt: &Excerpt,
    totals: &Totals,
) -> io::Result<()> {
    let painter = Painter { colour: style.colour };
    if totals.keys == 0 {
        writeln!(output, "{}", painter.paint(Tone::Strong, "No key would be deleted."))?;
    } else {
        let mut grid = Grid::new(
            vec![
                ("key", Side::Left),
                ("type", Side::Left),
                ("size", Side::Right),
                ("method", Side::Left),
                ("stall", Side::Right),
                ("by DEL", Side::Right),
            ],
            0,
        );
        let shown = excerpt.worth_showing();
        for key in shown {
            grid.push(GridRow {
                cells: plan_cells(key),
                beneath: vec![Cell::new(Tone::Dim, format!("  {}", key.reason))],
            });
        }
        grid.write(output, style.width, &painter)?;
        let more = totals.keys.saturating_sub(shown.len() as u64);
        if more > 0 {
            writeln!(output, "... and {} more", counted(more, "key"))?;
        }
        writeln!(output)?;
        write_methods(output, "", &totals.by_method)?;
        let del_stall = match totals.del_stall_unknown {
            0 => wait(totals.del_stall_ms),
            keys => format!("at least {} ({} not known)", wait(totals.del_stall_ms), counted(keys, "key")),
        };
        writeln!(
            output,
            "{}: {} of memory; nobody should wait longer than {}, where DEL of each would take {} in all",
            painter.paint(Tone::Strong, &counted(totals.keys, "key")),
            memory_of(Amount::sum(&totals.by_method)),
            wait(totals.stall_ms_max),
            del_stall,
        )?;
    }
    write_left(output, &painter, &excerpt.left, totals)
}

fn plan_cells(key: &PlannedKey) -> Vec<Cell> {
    let size = match (key.elements, key.bytes) {
        (_, Some(size)) => bytes(size),
        (Some(elements), None) => count(elements),
        (None, None) => "?".to_owned(),
    };
    let (name, _) = key.key.to_text();
    let name = if key.db == 0 { name.into_owned() } else { format!("{name} (db {})", key.db) };
    let del_tone =
        if key.del_stall_ms.is_some_and(|ms| ms < NOTICED_MS) { Tone::Plain } else { Tone::Danger };
    vec![
        Cell::new(Tone::Strong, name),
        key.kind.as_str().into(),
        size.into(),
        key.method.as_str().into(),
        wait(key.stall_ms).into(),
        Cell::new(del_tone, key.del_stall_ms.map_or_else(|| "?".to_owned(), wait)),
    ]
}

fn write_left(
    output: &mut impl Write,
    painter: &Painter,
    left: &[LeftAlone],
    totals: &Totals,
) -> io::Result<()> {
    let sum: u64 = totals.left_alone.iter().sum();
    if sum == 0 {
        return Ok(());
    }
    let kinds: Vec<String> = WhyLeftAlone::ALL
        .iter()
        .zip(totals.left_alone)
        .filter(|(_, keys)| *keys > 0)
        .map(|(why, keys)| format!("{} {}", exact(keys), why.as_str()))
        .collect();
    writeln!(
        output,
        "\n{}: {}",
        painter.paint(Tone::Warning, &format!("{} left alone", counted(sum, "key"))),
        kinds.join(", ")
    )?;
    for left in left {
        let (name, _) = left.key.to_text();
        writeln!(output, "  {}: {}", shorten(&name, KEY_COLUMNS), safe(&left.detail))?;
    }
    let more = sum.saturating_sub(left.len() as u64);
    if more > 0 {
        writeln!(output, "  ... and {} more", exact(more))?;
    }
    Ok(())
}

/// Writes what a deletion did, for people.
///
/// # Errors
/// When it cannot be written.
pub fn write_report(output: &mut impl Write, style: TableStyle, report: &DeleteReport) -> io::Result<()> {
    let painter = Painter { colour: style.colour };
    let gone = Amount::sum(&report.by_method);
    writeln!(
        output,
        "{} in {}: {} of memory",
        painter.paint(Tone::Good, &format!("{} deleted", counted(gone.keys, "key"))),
        elapsed(report.elapsed),
        memory_of(gone)
    )?;
    write_methods(output, "  ", &report.by_method)?;
    for result in KeyResult::ALL {
        let keys = report.count(result);
        if keys > 0 && result != KeyResult::Deleted {
            writeln!(output, "  {:<11} {:>12}", result.as_str(), counted(keys, "key"))?;
        }
    }
    if report.left() > 0 {
        let text = format!("{} of the plan not come to", counted(report.left(), "key"));
        writeln!(output, "  {}", painter.paint(Tone::Warning, &text))?;
    }
    let canary = &report.canary;
    let threshold = latency_ms(canary.threshold);
    writeln!(output, "what another client waited, in ms (a PING every 5 ms):")?;
    for (when, summary) in [("before", canary.before), ("during", canary.during)] {
        writeln!(
            output,
            "  {when}  p50 {:>5}  p99 {:>5}  max {:>5}  over {threshold}: {} of {}",
            latency_ms(summary.p50),
            latency_ms(summary.p99),
            latency_ms(summary.max),
            exact(summary.over_threshold),
            exact(summary.count)
        )?;
    }
    writeln!(
        output,
        "our own commands: {}, the slowest {} ms",
        exact(report.commands),
        latency_ms(report.slowest_command)
    )?;
    if report.held > std::time::Duration::ZERO {
        writeln!(output, "the server was left in peace for {}", elapsed(report.held))?;
    }
    write_seen(output, report)?;
    if let Some(memory) = &report.memory {
        let size = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), bytes);
        let pending = match memory.pending_objects {
            Some(0) => String::new(),
            Some(pending) => format!("; {} still wait to be freed", counted(pending, "value")),
            None => "; whether values still wait to be freed is not told".to_owned(),
        };
        writeln!(
            output,
            "used_memory: {} -> {} after {}{pending}",
            size(memory.used_before),
            size(memory.used_after),
            elapsed(memory.waited)
        )?;
    }
    Ok(())
}

fn write_seen(output: &mut impl Write, report: &DeleteReport) -> io::Result<()> {
    let seen = &report.seen;
    match (&seen.latency, seen.latency_is_on) {
        (_, Some(false)) => writeln!(
            output,
            "LATENCY: the monitor is off; CONFIG SET latency-monitor-threshold 10 switches it on"
        )?,
        (None, _) => writeln!(output, "LATENCY: not allowed to look")?,
        (Some(events), _) if events.is_empty() => writeln!(output, "LATENCY: nothing new")?,
        (Some(events), _) => {
            let words: Vec<String> =
                events.iter().map(|(event, ms)| format!("{} {ms} ms", safe(event))).collect();
            writeln!(output, "LATENCY: {}", words.join(", "))?;
        }
    }
    match &seen.slowlog {
        None => writeln!(output, "SLOWLOG: not allowed to look"),
        Some(entries) if entries.is_empty() => writeln!(output, "SLOWLOG: nothing new"),
        Some(entries) => {
            let (command, us) = &entries[0];
            writeln!(
                output,
                "SLOWLOG: {} new, the slowest {} with {}",
                exact(entries.len() as u64),
                safe(command),
                wait(*us as f64 / 1e3)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_not_known_is_not_nothing() {
        let mut amount = Amount::default();
        amount.add(None);
        assert_eq!(memory_of(amount), "unknown size");
        amount.add(Some(2048));
        assert_eq!(memory_of(amount), "at least 2.00 KiB (1 key of unknown size)");
        let mut known = Amount::default();
        known.add(Some(2048));
        assert_eq!(memory_of(known), "2.00 KiB");
        assert_eq!(memory_of(Amount::sum(&[amount, known])), "at least 4.00 KiB (1 key of unknown size)");
    }
}
