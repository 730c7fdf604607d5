//! The report that a person reads: what hurts first, whether the result is whole last.
//!
//! Every text that a server or a key brought along goes through `KeyName::to_text` or `words::safe`
//! before it reaches the page, and no line is wider than the page.

use std::io::{self, Write};
use std::time::SystemTime;

use crate::engine::key::{BytesBasis, Expiry, Flavour, KeyFacts, Kind, Role, ServerProfile};
use crate::engine::risk::{AllocationsBasis, Effect, Effects, Level};
use crate::engine::tally::{CensusRow, Finding, PrefixRow, SortBy};

use super::footer::write_footer;
use super::grid::{Cell, Grid, GridRow, Painter, Side, Tone, wrap};
use super::row::word;
use super::words::{bytes, count, counted, exact, safe, shorten, ttl, wait};
use super::{Completeness, FindingWriter, ScanReport};

/// How a table looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStyle {
    /// Columns of the page; at least [`TableStyle::WIDTH_MIN`].
    pub width: usize,
    /// Whether to colour with ANSI escapes.
    pub colour: bool,
    /// Whether to say why for each of the top keys.
    pub verbose: bool,
}

impl TableStyle {
    /// A table in a file: no colour.
    pub const FILE: Self = Self { width: 120, colour: false, verbose: false };
    /// Narrower than this nothing lines up.
    pub const WIDTH_MIN: usize = 60;
    /// From here on each key fits on one line.
    const WIDTH_OF_ONE_LINE: usize = 118;
}

impl Default for TableStyle {
    fn default() -> Self {
        Self { width: 80, ..Self::FILE }
    }
}

/// Rows of the census that a person reads; the rest is added up.
const CENSUS_ROWS: usize = 16;

/// Writes the report at the end; findings pass by, since the report holds the worst.
pub struct TableWriter<W: Write> {
    output: W,
    style: TableStyle,
}

impl<W: Write> TableWriter<W> {
    /// Makes a writer. It writes small pieces: give it a buffer.
    pub fn new(output: W, style: TableStyle) -> Self {
        Self { output, style }
    }
}

impl<W: Write> FindingWriter for TableWriter<W> {
    fn write(&mut self, _finding: &Finding, _server: &ServerProfile) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn finish(&mut self, report: &ScanReport) -> io::Result<()> {
        let mut page = Page {
            output: &mut self.output,
            width: self.style.width.max(TableStyle::WIDTH_MIN),
            verbose: self.style.verbose,
            painter: Painter { colour: self.style.colour },
        };
        write_headline(&mut page, report)?;
        write_top(&mut page, report)?;
        write_census(&mut page, report)?;
        write_prefixes(&mut page, report)?;
        write_footer(&mut page, report)?;
        self.output.flush()
    }
}

/// Where sections are written to.
pub(super) struct Page<'a, W: Write> {
    pub(super) output: &'a mut W,
    pub(super) width: usize,
    pub(super) verbose: bool,
    pub(super) painter: Painter,
}

impl<W: Write> Page<'_, W> {
    pub(super) fn blank(&mut self) -> io::Result<()> {
        writeln!(self.output)
    }

    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.output, "{}", self.painter.paint(Tone::Heading, text))
    }

    /// Writes wrapped text; lines after the first begin at `indent`.
    pub(super) fn text(&mut self, tone: Tone, indent: usize, text: &str) -> io::Result<()> {
        for (index, line) in wrap(text, self.width - indent).iter().enumerate() {
            let pad = if index == 0 { 0 } else { indent };
            writeln!(self.output, "{:pad$}{}", "", self.painter.paint(tone, line))?;
        }
        Ok(())
    }

    /// Writes a label and wrapped text beside it.
    pub(super) fn entry(&mut self, label: &str, tone: Tone, text: &str) -> io::Result<()> {
        const LABEL: usize = 13;
        for (index, line) in wrap(text, self.width - LABEL).iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            let pad = LABEL - super::words::width(label);
            let label = self.painter.paint(Tone::Dim, label);
            writeln!(self.output, "{label}{:pad$}{}", "", self.painter.paint(tone, line))?;
        }
        Ok(())
    }

    fn grid(&mut self, grid: &Grid) -> io::Result<()> {
        grid.write(self.output, self.width, &self.painter)
    }
}

fn tone_of(level: Option<Level>) -> Tone {
    match level {
        None => Tone::Unknown,
        Some(Level::Critical) => Tone::Alarm,
        Some(Level::High) => Tone::Danger,
        Some(Level::Medium) => Tone::Warning,
        Some(Level::Low) => Tone::Plain,
        Some(Level::None) => Tone::Dim,
    }
}

fn write_headline(page: &mut Page<'_, impl Write>, report: &ScanReport) -> io::Result<()> {
    for (index, server) in report.servers.iter().enumerate() {
        // Of several servers each has a number, which the keys refer to.
        let number = if report.servers.len() > 1 { format!("{}: ", index + 1) } else { String::new() };
        let mut parts = vec![format!("{number}{} at {}", server_name(server), safe(&server.node))];
        parts.push(
            match server.role {
                Role::Primary => "primary",
                Role::Replica => "replica",
                Role::Unknown => "role unknown",
            }
            .to_owned(),
        );
        if report.servers.len() == 1 {
            let dbs =
                if report.dbs.len() > 1 { format!(" in {} dbs", report.dbs.len()) } else { String::new() };
            if let Some(keys) = report.dbsize_after.or(report.dbsize_before) {
                parts.push(format!("{}{dbs}", counted(keys, "key")));
            }
        }
        if let Some(used) = server.used_memory_bytes {
            parts.push(format!("{} used", bytes(used)));
        }
        page.text(Tone::Strong, 2, &parts.join(", "))?;
    }
    let news = news(report);
    if !news.is_empty() {
        page.blank()?;
    }
    for (tone, text) in news {
        page.text(tone, 2, &text)?;
    }
    Ok(())
}

fn server_name(server: &ServerProfile) -> String {
    let flavour = match &server.flavour {
        Flavour::Other(name) => safe(name).into_owned(),
        known => known.to_string(),
    };
    format!("{flavour} {}", server.version)
}

/// What a tired engineer must know first.
fn news(report: &ScanReport) -> Vec<(Tone, String)> {
    let mut news = Vec::new();
    if let Some(text) = super::footer::partial(&report.completeness) {
        news.push((Tone::Alarm, format!("PARTIAL RESULT: {text}")));
    }
    if let Completeness::Sampled { keys, keys_total } = report.completeness {
        let text = format!(
            "SAMPLE: {} of {} keys were measured.",
            exact(keys),
            keys_total.map_or("an unknown number of".to_owned(), exact)
        );
        news.push((Tone::Warning, text));
    }
    let whole = matches!(report.completeness, Completeness::Complete | Completeness::CompleteButSkipped);
    let [_, _, medium, high, critical, unknown] = report.levels;
    let shouting: Vec<String> = [(critical, "critical"), (high, "high"), (medium, "medium")]
        .into_iter()
        .filter(|(keys, _)| *keys > 0)
        .map(|(keys, level)| format!("{} {level}", exact(keys)))
        .collect();
    let unknown = if unknown > 0 { format!(", {} of unknown cost", exact(unknown)) } else { String::new() };
    if shouting.is_empty() {
        let text = if report.keys_matched == 0 {
            "No key was measured.".to_owned()
        } else {
            let scope = if whole { "" } else { " among the keys seen" };
            format!("No key of medium level or above{scope}{unknown}.")
        };
        let tone = if unknown.is_empty() && whole { Tone::Good } else { Tone::Unknown };
        news.push((tone, text));
    } else {
        let tone = if critical > 0 { Tone::Alarm } else { Tone::Warning };
        let keys = if critical + high + medium == 1 { "key" } else { "keys" };
        news.push((tone, format!("{} {keys}{unknown}.", shouting.join(", "))));
    }
    let loud = || report.top.iter().filter(|finding| finding.verdict.level >= Some(Level::Medium));
    let stall = |finding: &&Finding| finding.verdict.predicted_stall_ms.filter(|ms| ms.is_finite());
    let worst = loud()
        .filter(|finding| finding.verdict.effects.del == Effect::Inline)
        .max_by(|a, b| stall(a).unwrap_or(0.0).total_cmp(&stall(b).unwrap_or(0.0)));
    if let Some(ms) = worst.as_ref().and_then(stall) {
        let key = key_text(&worst.expect("it has a stall").facts, 40);
        news.push((Tone::Plain, format!("DEL of {key} would stop every client for about {}.", wait(ms))));
    }
    let bombs = loud().filter(|finding| finding.verdict.effects.expire == Effect::Inline);
    let due = |finding: &&Finding| match finding.facts.expiry {
        Expiry::In(ttl) => Some(ttl),
        _ => None,
    };
    let bombs: Vec<&Finding> = bombs.filter(|finding| due(finding).is_some()).collect();
    if let Some(next) = bombs.iter().copied().min_by_key(|finding| due(finding)) {
        let stall = stall(&next).map_or("an unknown time".to_owned(), |ms| format!("about {}", wait(ms)));
        let left = due(&next).map(ttl).unwrap_or_default();
        let others = match bombs.len() {
            1 => String::new(),
            n => format!(" {} more of the top keys will do so later.", n - 1),
        };
        let key = key_text(&next.facts, 40);
        let text =
            format!("{key} expires in {left}, on the command thread: everybody waits {stall}.{others}");
        news.push((Tone::Danger, text));
    }
    let stubborn: Vec<&Finding> =
        loud().filter(|finding| finding.verdict.effects.unlink == Effect::Inline).collect();
    if let Some(first) = stubborn.first() {
        let key = key_text(&first.facts, 40);
        let others = match stubborn.len() {
            1 => String::new(),
            n => format!(" and {} more of the top keys", n - 1),
        };
        let text =
            format!("UNLINK does not help with {key}{others}: the server frees it inline all the same.");
        news.push((Tone::Danger, text));
    }
    for storm in report.expiry.storms.iter().take(1) {
        let text = format!(
            "Expiry storm: {} with {} are due within the same second, {}; give their TTLs some jitter.",
            counted(storm.keys, "key"),
            counted(storm.allocations, "allocation"),
            moment(storm.due_at),
        );
        news.push((Tone::Warning, text));
    }
    news
}

/// Returns a moment to the second, in UTC.
pub(super) fn moment(time: SystemTime) -> String {
    super::row::rfc3339(time)
        .map_or("beyond the year 9999".to_owned(), |text| format!("{} {} UTC", &text[..10], &text[11..19]))
}

/// Returns a key for running text.
pub(super) fn key_text(facts: &KeyFacts, columns: usize) -> String {
    let (text, _) = facts.key.to_text();
    let key = shorten(&text, columns);
    // A quoted name brings quotes of its own.
    if text.starts_with('"') { key.into_owned() } else { format!("`{key}`") }
}

fn write_top(page: &mut Page<'_, impl Write>, report: &ScanReport) -> io::Result<()> {
    if report.top.is_empty() {
        return Ok(());
    }
    let order = match report.sort_by {
        SortBy::Allocations => "level and allocations",
        SortBy::Bytes => "bytes",
        SortBy::Elements => "elements",
        SortBy::Stall => "predicted stall",
    };
    page.blank()?;
    let shown = &report.top[..worth_showing(report)];
    let title = if shown.len() == 1 { "Top key".to_owned() } else { format!("Top {} keys", shown.len()) };
    page.heading(&format!("{title} by {order}"))?;
    let many = report.dbs.iter().any(|&db| db != 0) || report.servers.len() > 1;
    let grid = if page.width >= TableStyle::WIDTH_OF_ONE_LINE {
        one_line_grid(page, report, shown, many)
    } else {
        two_line_grid(page, report, shown, many)
    };
    page.grid(&grid)?;
    let more = (report.top.len() - shown.len()) as u64;
    if more > 0 {
        page.text(Tone::Dim, 2, &format!("{} more would not be noticed (level none)", exact(more)))?;
    }
    for line in legend(report).iter().filter(|line| !line.is_empty()) {
        page.text(Tone::Dim, 2, line)?;
    }
    Ok(())
}

/// Returns how many of the top keys a person wants to see. Behind the keys that hurt, rows of keys that
/// nobody would notice push those off the screen; a few remain, as a scale.
fn worth_showing(report: &ScanReport) -> usize {
    const ROWS_MIN: usize = 5;
    if !matches!(report.sort_by, SortBy::Allocations | SortBy::Stall) {
        return report.top.len();
    }
    let is_harmless = |finding: &Finding| finding.verdict.level == Some(Level::None);
    let worth = report.top.iter().rposition(|finding| !is_harmless(finding)).map_or(0, |last| last + 1);
    worth.max(ROWS_MIN).min(report.top.len())
}

/// One line for each key.
fn one_line_grid(page: &Page<'_, impl Write>, report: &ScanReport, shown: &[Finding], many: bool) -> Grid {
    let mut columns = vec![("LEVEL", Side::Left), ("KEY", Side::Left)];
    if many {
        let has_slots = shown.iter().any(|finding| finding.facts.slot.is_some());
        let title = match report.servers.len() {
            0 | 1 => "DB",
            _ if has_slots => "NODE/SLOT/DB",
            _ => "NODE/DB",
        };
        columns.push((title, Side::Right));
    }
    columns.extend([
        ("TYPE", Side::Left),
        ("ELEMS", Side::Right),
        ("ALLOCS", Side::Right),
        ("BYTES", Side::Right),
        ("TTL", Side::Right),
        ("DEL", Side::Left),
        ("UNLINK", Side::Left),
        ("EXPIRY", Side::Left),
        ("STALL", Side::Right),
    ]);
    let mut grid = Grid::new(columns, 1);
    for finding in shown {
        let (facts, effects) = (&finding.facts, &finding.verdict.effects);
        let mut cells = vec![level_cell(finding), key_cell(finding)];
        if many {
            cells.push(place(finding, report).into());
        }
        cells.push(type_text(facts).into());
        cells.push(elements_cell(facts));
        cells.push(allocations_cell(finding));
        cells.push(bytes_cell(facts));
        cells.push(ttl_cell(facts.expiry));
        cells
            .extend([effects.del, effects.unlink, effects.expire].map(|effect| effect_cell(effect, finding)));
        cells.push(stall_cell(finding));
        grid.push(GridRow { cells, beneath: reasons(page, finding, 10) });
    }
    grid
}

/// Two lines for each key, where the page is narrow: the name keeps its room.
fn two_line_grid(page: &Page<'_, impl Write>, report: &ScanReport, shown: &[Finding], many: bool) -> Grid {
    let columns = vec![
        ("LEVEL", Side::Left),
        ("ALLOCS", Side::Right),
        ("BYTES", Side::Right),
        ("STALL", Side::Right),
        ("TTL", Side::Right),
        ("KEY", Side::Left),
    ];
    let mut grid = Grid::new(columns, 5);
    for finding in shown {
        let facts = &finding.facts;
        let mut parts = vec![type_text(facts)];
        if facts.kind != Kind::String {
            parts.push(elements_text(facts));
        }
        if many {
            let node = if report.servers.len() > 1 {
                format!("node {} ", finding.server + 1)
            } else {
                String::new()
            };
            let slot = facts.slot.map(|slot| format!("slot {slot} ")).unwrap_or_default();
            parts.push(format!("{node}{slot}db {}", facts.db));
        }
        parts.extend(effects_text(finding.verdict.effects));
        let mut beneath = vec![Cell::new(Tone::Dim, format!("  {}", parts.join(" \u{b7} ")))];
        beneath.extend(reasons(page, finding, 4));
        let cells = vec![
            level_cell(finding),
            allocations_cell(finding),
            bytes_cell(facts),
            stall_cell(finding),
            ttl_cell(facts.expiry),
            key_cell(finding),
        ];
        grid.push(GridRow { cells, beneath });
    }
    grid
}

/// Returns elements with their noun: `3.00M members`, `1 entry`, `? elements`.
fn elements_text(facts: &KeyFacts) -> String {
    let noun = facts.kind.element_noun();
    match facts.elements {
        None => format!("? {noun}"),
        Some(1) if noun == "entries" => "1 entry".to_owned(),
        Some(1) => format!("1 {}", noun.trim_end_matches('s')),
        Some(elements) => format!("{} {noun}", count(elements)),
    }
}

/// Groups commands by where they free: `inline: DEL, expiry`, `backgr: UNLINK`.
fn effects_text(effects: Effects) -> Vec<String> {
    let commands = [(effects.del, "DEL"), (effects.unlink, "UNLINK"), (effects.expire, "expiry")];
    [(Effect::Inline, "inline"), (Effect::Background, "backgr"), (Effect::Unknown, "unknown")]
        .into_iter()
        .filter_map(|(effect, word)| {
            let those: Vec<&str> =
                commands.iter().filter(|(held, _)| *held == effect).map(|(_, name)| *name).collect();
            (!those.is_empty()).then(|| format!("{word}: {}", those.join(" ")))
        })
        .collect()
}

fn reasons(page: &Page<'_, impl Write>, finding: &Finding, indent: usize) -> Vec<Cell> {
    if !page.verbose {
        return Vec::new();
    }
    let mut cells = Vec::new();
    for reason in &finding.verdict.reasons {
        for (index, line) in wrap(&safe(reason), page.width - indent - 2).into_iter().enumerate() {
            let bullet = if index == 0 { "- " } else { "  " };
            cells.push(Cell::new(Tone::Dim, format!("{:indent$}{bullet}{line}", "")));
        }
    }
    cells
}

fn level_cell(finding: &Finding) -> Cell {
    let level = finding.verdict.level;
    Cell::new(tone_of(level), level.map_or("unknown", Level::as_str))
}

fn key_cell(finding: &Finding) -> Cell {
    let (text, _) = finding.facts.key.to_text();
    // The grid shortens to its column; no page is wider than this.
    Cell::new(Tone::Strong, shorten(&text, 1000))
}

/// Returns the database, with the server's number (and the slot of a cluster) in front where there are several.
fn place(finding: &Finding, report: &ScanReport) -> String {
    if report.servers.len() > 1 {
        let slot = finding.facts.slot.map(|slot| format!("{slot}/")).unwrap_or_default();
        format!("{}/{slot}{}", finding.server + 1, finding.facts.db)
    } else {
        finding.facts.db.to_string()
    }
}

/// Returns type and encoding, each once: `set hashtable`, `stream`.
fn type_text(facts: &KeyFacts) -> String {
    const COLUMNS_MAX: usize = 20;
    let kind = word(facts.kind.as_str());
    let text = match &facts.encoding {
        Some(encoding) if encoding.as_str() != facts.kind.as_str() => {
            format!("{kind} {}", word(encoding.as_str()))
        }
        _ => kind.into_owned(),
    };
    shorten(&text, COLUMNS_MAX).into_owned()
}

fn unknown() -> Cell {
    Cell::new(Tone::Unknown, "?")
}

fn elements_cell(facts: &KeyFacts) -> Cell {
    match facts.elements {
        // A string has no elements; its bytes are in the next column but one.
        _ if facts.kind == Kind::String => Cell::new(Tone::Dim, "-"),
        Some(elements) => count(elements).into(),
        None => unknown(),
    }
}

fn allocations_cell(finding: &Finding) -> Cell {
    let verdict = &finding.verdict;
    let mark = if verdict.allocations_basis == AllocationsBasis::Estimated { "~" } else { "" };
    verdict.allocations.map_or_else(unknown, |allocations| format!("{mark}{}", count(allocations)).into())
}

fn bytes_cell(facts: &KeyFacts) -> Cell {
    facts.size.map_or_else(unknown, |size| format!("{}{}", basis_mark(size.basis), bytes(size.bytes)).into())
}

fn basis_mark(basis: BytesBasis) -> &'static str {
    match basis {
        BytesBasis::Measured => "",
        BytesBasis::Sampled => "~",
        BytesBasis::Modelled => "\u{2248}",
    }
}

fn ttl_cell(expiry: Expiry) -> Cell {
    match expiry {
        Expiry::Unknown => unknown(),
        Expiry::Never => Cell::new(Tone::Dim, "none"),
        Expiry::In(left) => ttl(left).into(),
    }
}

/// Inline is loud only where it hurts: the server frees a small key inline, and rightly so.
fn effect_cell(effect: Effect, finding: &Finding) -> Cell {
    match effect {
        Effect::Inline if finding.verdict.level >= Some(Level::Medium) => Cell::new(Tone::Danger, "inline"),
        Effect::Inline => "inline".into(),
        Effect::Background => Cell::new(Tone::Good, "backgr"),
        Effect::None => Cell::new(Tone::Dim, "-"),
        Effect::Unknown => unknown(),
    }
}

fn stall_cell(finding: &Finding) -> Cell {
    match finding.verdict.predicted_stall_ms.filter(|ms| ms.is_finite()) {
        Some(ms) => Cell::new(tone_of(finding.verdict.level), wait(ms)),
        None => unknown(),
    }
}

/// Explains the columns, and the marks that occur and no others.
fn legend(report: &ScanReport) -> [String; 2] {
    let has_basis = |basis| report.top.iter().any(|f| f.facts.size.is_some_and(|size| size.basis == basis));
    let estimated = report.top.iter().any(|f| f.verdict.allocations_basis == AllocationsBasis::Estimated);
    let mut marks = Vec::new();
    match (has_basis(BytesBasis::Sampled), estimated) {
        (true, true) => marks.push("~ bytes from a sample, estimated allocations"),
        (true, false) => marks.push("~ bytes from a sample"),
        (false, true) => marks.push("~ estimated"),
        (false, false) => {}
    }
    if has_basis(BytesBasis::Modelled) {
        marks.push("\u{2248} bytes from a model");
    }
    let has_unknown = |finding: &Finding| {
        let Finding { facts, verdict, .. } = finding;
        let effects = verdict.effects;
        verdict.allocations.is_none()
            || verdict.predicted_stall_ms.is_none()
            || facts.size.is_none()
            || facts.expiry == Expiry::Unknown
            || (facts.elements.is_none() && facts.kind != Kind::String)
            || [effects.del, effects.unlink, effects.expire].contains(&Effect::Unknown)
    };
    if report.top.iter().any(has_unknown) {
        marks.push("? unknown");
    }
    let stall = "STALL: predicted wait of all clients if the key is freed inline".to_owned();
    [stall, marks.join("; ")]
}

/// Returns a sum of which some parts may be unknown: `?`, `>=12.3k` or `12.3k`.
fn sum(total: u64, keys_unknown: u64, keys: u64, show: fn(u64) -> String) -> Cell {
    match keys_unknown {
        0 => show(total).into(),
        n if n >= keys => unknown(),
        _ => format!("\u{2265}{}", show(total)).into(),
    }
}

fn sums_cells(row: &CensusRow) -> [Cell; 3] {
    [
        exact(row.keys).into(),
        sum(row.allocations, row.keys_unjudged, row.keys, count),
        sum(row.bytes, row.keys_unsized, row.keys, bytes),
    ]
}

fn write_census(page: &mut Page<'_, impl Write>, report: &ScanReport) -> io::Result<()> {
    let census = &report.census;
    let total = census.total();
    if total.keys == 0 {
        return Ok(());
    }
    page.blank()?;
    page.heading("By type and encoding")?;
    let mut grid = Grid::new(
        vec![
            ("TYPE", Side::Left),
            ("ENCODING", Side::Left),
            ("KEYS", Side::Right),
            ("ALLOCS", Side::Right),
            ("BYTES", Side::Right),
            ("ELEMENTS", Side::Right),
        ],
        0,
    );
    let mut rows: Vec<_> = census.rows.iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse((row.allocations, row.bytes, row.keys)));
    let mut other = census.other;
    for (index, ((kind, encoding), row)) in rows.into_iter().enumerate() {
        if index >= CENSUS_ROWS {
            other.merge(row);
            continue;
        }
        let elements = match kind {
            Kind::String => Cell::new(Tone::Dim, "-"),
            _ => sum(row.elements, row.keys_uncounted, row.keys, count),
        };
        let encoding = match encoding {
            Some(encoding) => shorten(&word(encoding.as_str()), 20).into_owned().into(),
            None => Cell::new(Tone::Dim, "not asked"),
        };
        let mut cells = vec![word(kind.as_str()).into_owned().into(), encoding];
        cells.extend(sums_cells(row));
        cells.push(elements);
        grid.row(cells);
    }
    for (name, row) in [("(others)", &other), ("total", &total)] {
        if row.keys > 0 {
            let tone = if name == "total" { Tone::Strong } else { Tone::Plain };
            let mut cells = vec![Cell::new(tone, name), Cell::default()];
            cells.extend(sums_cells(row).map(|cell| Cell { tone: tone_over(tone, cell.tone), ..cell }));
            grid.row(cells);
        }
    }
    page.grid(&grid)?;
    let is_mixed = |unknown: u64| unknown > 0 && unknown < total.keys;
    if is_mixed(total.keys_unjudged) || is_mixed(total.keys_unsized) {
        page.text(Tone::Dim, 2, "\u{2265} at least: of some keys it is unknown")?;
    }
    Ok(())
}

fn tone_over(row: Tone, cell: Tone) -> Tone {
    if cell == Tone::Plain { row } else { cell }
}

fn write_prefixes(page: &mut Page<'_, impl Write>, report: &ScanReport) -> io::Result<()> {
    let prefixes = &report.prefixes;
    if prefixes.rows.is_empty() {
        return Ok(());
    }
    page.blank()?;
    page.heading("By prefix")?;
    let mut grid = Grid::new(
        vec![("PREFIX", Side::Left), ("KEYS", Side::Right), ("ALLOCS", Side::Right), ("BYTES", Side::Right)],
        0,
    );
    let mut add = |name: Cell, row: &CensusRow| {
        let mut cells = vec![name];
        cells.extend(sums_cells(row));
        grid.row(cells);
    };
    for row in &prefixes.rows {
        add(prefix_text(row).into(), &row.sums);
    }
    for (name, row) in [("(other prefixes)", &prefixes.rest), ("(no prefix)", &prefixes.without)] {
        if row.keys > 0 {
            add(Cell::new(Tone::Dim, name), row);
        }
    }
    page.grid(&grid)?;
    let ids = prefixes.rows.iter().any(|row| row.prefix.contains(&b'*'));
    let nested = prefixes.rows.iter().any(|row| row.depth > 1);
    let legend: Vec<&str> = [(ids, "* stands for ids"), (nested, "indented: part of the line above")]
        .into_iter()
        .filter_map(|(occurs, text)| occurs.then_some(text))
        .collect();
    if legend.is_empty() { Ok(()) } else { page.text(Tone::Dim, 2, &legend.join("; ")) }
}

fn prefix_text(row: &PrefixRow) -> String {
    let text = crate::engine::key::KeyName::from(row.prefix.as_slice()).to_text().0.into_owned();
    format!("{:indent$}{}", "", shorten(&text, 60), indent = (row.depth - 1) * 2)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::report::IncompleteReason;
    use crate::engine::report::sample::{report, server};
    use crate::engine::report::words::width;
    use crate::engine::tally::sample::finding;

    fn rendered(report: &ScanReport, style: TableStyle) -> String {
        let mut output = Vec::new();
        TableWriter::new(&mut output, style).finish(report).unwrap();
        String::from_utf8(output).unwrap()
    }

    fn style(width: usize) -> TableStyle {
        TableStyle { width, colour: false, verbose: true }
    }

    /// Prints what a person sees: `cargo test look_at_it -- --nocapture`.
    #[test]
    fn look_at_it() {
        let colour = std::env::var_os("BIGKEYS_TEST_COLOUR").is_some();
        let mut partial = report();
        partial.completeness =
            Completeness::Partial(IncompleteReason::ConnectionLost("10.0.3.17:6379: timed out".into()));
        partial.dbsize_after = None;
        partial.canary.before = crate::engine::report::LatencySummary::default();
        partial.servers.push(server());
        partial.top[1].server = 1;
        let mut calm = report();
        calm.completeness = Completeness::Complete;
        calm.levels = [4008, 0, 0, 0, 0, 0];
        calm.top.truncate(1);
        calm.top[0].verdict.level = Some(Level::None);
        calm.skipped = crate::engine::report::SkipSummary::default();
        calm.expiry.storms.clear();
        for (report, width, verbose) in
            [(&partial, 80, true), (&calm, 80, false), (&report(), 80, false), (&report(), 120, true)]
        {
            eprintln!("{}", "=".repeat(width));
            eprint!("{}", rendered(report, TableStyle { width, colour, verbose }));
        }
    }

    #[test]
    fn no_line_is_wider_than_the_page() {
        for columns in [60, 72, 80, 100, 110, 120, 200] {
            for line in rendered(&report(), style(columns)).lines() {
                assert!(width(line) <= columns, "{columns}: {line}");
                assert_eq!(line, line.trim_end(), "no spaces at the end");
            }
        }
    }

    #[test]
    fn nothing_on_the_page_steers_the_terminal() {
        let mut report = report();
        let evil = "\u{1b}[2J\u{9b}31m\u{202e}\n\0";
        report.servers[0].node = evil.into();
        report.servers[0].flavour = Flavour::Other(evil.into());
        report.warnings = vec![evil.into()];
        report.maybe_counted_twice = Some(evil.into());
        report.completeness = Completeness::Partial(IncompleteReason::ConnectionLost(evil.into()));
        report.keysizes[0].kind = evil.into();
        report.skipped.examples[0].detail = Some(evil.into());
        report.skipped.examples[0].key = evil.into();
        report.prefixes.rows[0].prefix = evil.as_bytes().to_vec();
        let place = (Kind::Other(evil.into()), Some(crate::engine::key::Encoding::Other(evil.into())));
        report.census.rows.insert(place, CensusRow { keys: 1, ..CensusRow::default() });
        for finding in &mut report.top {
            finding.facts.kind = Kind::Other(evil.into());
            finding.facts.encoding = Some(crate::engine::key::Encoding::Other(evil.into()));
            finding.verdict.reasons = vec![evil.into()];
        }
        for columns in [80, 120] {
            let page = rendered(&report, style(columns));
            let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!page.contains(bad), "{page}");
        }
    }

    #[test]
    fn unknown_is_never_zero() {
        let mut report = report();
        report.top.retain(|finding| finding.verdict.allocations.is_none());
        let page = rendered(&report, style(120));
        let line =
            page.lines().find(|line| line.contains("doc:catalog") && line.contains("unknown")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        let expected = [
            "unknown",
            "doc:catalog",
            "0",
            "ReJSON-RL",
            "raw",
            "?",
            "?",
            "~70.0",
            "MiB",
            "none",
            "inline",
            "?",
            "-",
            "?",
        ];
        assert_eq!(cells, expected);
    }

    #[test]
    fn rows_of_harmless_keys_do_not_push_the_others_off_the_screen() {
        let mut report = report();
        let small = finding("small").build();
        report.top.truncate(2);
        report.top.extend(std::iter::repeat_n(small, 18));
        let page = rendered(&report, style(120));
        assert!(page.contains("Top 5 keys by level"), "{page}");
        assert!(page.contains("\n15 more would not be noticed (level none)\n"), "{page}");
        report.sort_by = SortBy::Bytes;
        assert!(rendered(&report, style(120)).contains("Top 20 keys by bytes"));
    }

    #[test]
    fn a_partial_result_says_so_first_and_last() {
        let mut report = report();
        report.completeness = Completeness::Partial(IncompleteReason::Guard(Duration::from_millis(312)));
        let page = rendered(&report, style(80));
        assert!(page.contains("PARTIAL RESULT: the latency guard stopped it: the canary waited 312 ms"));
        assert!(
            page.lines()
                .rev()
                .take(3)
                .any(|line| line.starts_with("result       partial: the latency guard"))
        );
    }

    #[test]
    fn an_empty_server_makes_a_short_page() {
        let mut empty = report();
        empty.top.clear();
        empty.census = crate::engine::tally::Census::default();
        empty.prefixes = crate::engine::tally::PrefixSummary::default();
        empty.expiry = crate::engine::tally::ExpirySummary::default();
        empty.levels = [0; 6];
        empty.keys_matched = 0;
        empty.servers = vec![server()];
        let page = rendered(&empty, style(80));
        assert!(page.contains("No key was measured."), "{page}");
        assert!(!page.contains("By type"), "{page}");
    }

    #[test]
    fn colour_adds_escapes_and_changes_no_text() {
        let coloured = rendered(&report(), TableStyle { colour: true, ..style(80) });
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some(start) = rest.find("\u{1b}[") {
            plain.push_str(&rest[..start]);
            let end = rest[start..].find('m').unwrap();
            rest = &rest[start + end + 1..];
        }
        plain.push_str(rest);
        assert_eq!(plain, rendered(&report(), style(80)));
    }
}
