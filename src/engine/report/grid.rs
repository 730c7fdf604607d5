//! Columns that line up, text that wraps, and colour.

use std::borrow::Cow;
use std::io::{self, Write};

use super::words::{shorten, width};

/// What a piece of text means; colour follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Heading,
    Strong,
    Dim,
    Good,
    Warning,
    Danger,
    Alarm,
    Unknown,
}

impl Tone {
    /// Returns the parameters of the SGR escape. The 16 colours of the terminal's own theme: these are
    /// the ones that its owner can read.
    fn code(self) -> Option<&'static str> {
        Some(match self {
            Self::Plain => return None,
            Self::Heading | Self::Strong => "1",
            Self::Dim => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Danger => "31",
            Self::Alarm => "1;31",
            Self::Unknown => "35",
        })
    }
}

/// Writes text with or without colour.
pub(crate) struct Painter {
    pub(crate) colour: bool,
}

impl Painter {
    pub(crate) fn paint<'a>(&self, tone: Tone, text: &'a str) -> Cow<'a, str> {
        match tone.code() {
            Some(code) if self.colour && !text.is_empty() => Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m")),
            _ => Cow::Borrowed(text),
        }
    }
}

/// A cell of a grid.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Cell {
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(Tone::Plain, text)
    }
}

/// Which side a column's text is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A row of cells, with lines beneath that belong to it and have no columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct GridRow {
    pub(crate) cells: Vec<Cell>,
    /// Painted whole, cut where the page ends.
    pub(crate) beneath: Vec<Cell>,
}

/// A table. Columns are as wide as their text; one of them takes what is left.
pub(crate) struct Grid {
    columns: Vec<(&'static str, Side)>,
    flexible: usize,
    rows: Vec<GridRow>,
}

/// Columns between columns.
const GAP: usize = 2;

/// The flexible column keeps this much, whatever the width.
const FLEXIBLE_MIN: usize = 8;

impl Grid {
    /// Makes a table; the column at the index `flexible` gives way.
    pub(crate) fn new(columns: Vec<(&'static str, Side)>, flexible: usize) -> Self {
        Self { columns, flexible, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: GridRow) {
        self.rows.push(row);
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.push(GridRow { cells, beneath: Vec::new() });
    }

    pub(crate) fn write(&self, output: &mut impl Write, page: usize, painter: &Painter) -> io::Result<()> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(title, _)| width(title)).collect();
        for row in &self.rows {
            for (index, cell) in row.cells.iter().enumerate() {
                // A megabyte of a key is not measured to find that it is too long.
                widths[index] = widths[index].max(width(&shorten(&cell.text, page)));
            }
        }
        let others: usize =
            widths.iter().enumerate().filter(|&(i, _)| i != self.flexible).map(|(_, w)| w + GAP).sum();
        let room = page.saturating_sub(others).max(FLEXIBLE_MIN);
        widths[self.flexible] = widths[self.flexible].min(room);
        let titles: Vec<Cell> = self.columns.iter().map(|(title, _)| Cell::new(Tone::Dim, *title)).collect();
        self.line(output, &titles, &widths, painter)?;
        for row in &self.rows {
            self.line(output, &row.cells, &widths, painter)?;
            for text in &row.beneath {
                writeln!(output, "{}", painter.paint(text.tone, &clip(&text.text, page)))?;
            }
        }
        Ok(())
    }

    fn line(
        &self,
        output: &mut impl Write,
        cells: &[Cell],
        widths: &[usize],
        painter: &Painter,
    ) -> io::Result<()> {
        let mut line = String::new();
        let mut owed = 0;
        for (index, cell) in cells.iter().enumerate() {
            let text = shorten(&cell.text, widths[index]);
            let pad = widths[index].saturating_sub(width(&text));
            let (before, after) = match self.columns[index].1 {
                Side::Left => (0, pad),
                Side::Right => (pad, 0),
            };
            // Spaces are owed until text follows: no line ends with them.
            if text.is_empty() {
                owed += pad + GAP;
            } else {
                line.extend(std::iter::repeat_n(' ', owed + before));
                line.push_str(&painter.paint(cell.tone, &text));
                owed = after + GAP;
            }
        }
        writeln!(output, "{line}")
    }
}

/// Cuts text at the end to so many columns.
pub(crate) fn clip(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut clipped = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > columns {
            break;
        }
        clipped.push(c);
    }
    clipped.push('\u{2026}');
    Cow::Owned(clipped)
}

/// Breaks text at spaces into lines of at most so many columns. A word that is longer is cut in pieces.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(FLEXIBLE_MIN);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let mut needed = width(word);
        if used > 0 && used + 1 + needed > columns {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.last_mut().expect("there is a line from the start");
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        let mut word = word;
        while used + needed > columns {
            let mut fits = 0;
            let mut taken = 0;
            for (at, c) in word.char_indices() {
                let c_width = width(c.encode_utf8(&mut [0; 4]));
                if used + taken + c_width > columns {
                    break;
                }
                taken += c_width;
                fits = at + c.len_utf8();
            }
            let (head, rest) = word.split_at(fits);
            lines.last_mut().expect("there is a line from the start").push_str(head);
            lines.push(String::new());
            word = rest;
            used = 0;
            needed = width(word);
        }
        lines.last_mut().expect("there is a line from the start").push_str(word);
        used += needed;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_at_words_and_long_words_are_cut() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghijkl mn", 8), ["abcdefgh", "ijkl mn"]);
        assert_eq!(wrap("", 8), [""]);
        for line in
            wrap("\u{7528}\u{6237}\u{7528}\u{6237}\u{7528} x \u{6237}\u{7528}\u{6237}\u{7528}\u{6237}", 9)
        {
            assert!(width(&line) <= 9);
        }
    }

    #[test]
    fn the_flexible_column_gives_way_and_no_line_ends_with_spaces() {
        let mut grid = Grid::new(vec![("KEY", Side::Left), ("KEYS", Side::Right), ("X", Side::Left)], 0);
        grid.row(vec!["a:very:long:key:that:does:not:fit".into(), "12".into(), Cell::default()]);
        grid.row(vec!["a".into(), "1234".into(), "y".into()]);
        let mut output = Vec::new();
        grid.write(&mut output, 24, &Painter { colour: false }).unwrap();
        let text = String::from_utf8(output).unwrap();
        assert_eq!(
            text,
            "KEY              KEYS  X\na:very:\u{2026}not:fit    12\na                1234  y\n"
        );
    }

    #[test]
    fn colour_is_only_there_when_asked_for() {
        assert_eq!(Painter { colour: false }.paint(Tone::Alarm, "x"), "x");
        assert_eq!(Painter { colour: true }.paint(Tone::Alarm, "x"), "\x1b[1;31mx\x1b[0m");
    }
}
