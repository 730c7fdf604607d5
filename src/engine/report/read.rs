//! Reads back what CSV and NDJSON outputs say, perhaps after a person edited them.
//!
//! Columns are found by name, in any order, and those that are not known are ignored. A spreadsheet
//! may have saved the file: a byte order mark, `;` or tabs between columns, CRLF and empty rows are
//! all taken. What decides which key is meant is never guessed: a row that cannot be read is an error
//! that says where it is and what to do.

use std::fmt;
use std::io::{self, BufRead, Read};

use serde::Deserialize;

use crate::engine::key::{Encoding, KeyEncoding, KeyName, Kind, ParseKeyError};

use super::SCHEMA_VERSION;
use super::row::NEVER;

/// A row of a scan's output. Cells that are empty, and columns that are missing, are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedKey {
    /// Line in the file on which the row begins, from 1.
    pub line: u64,
    /// Address of the server.
    pub node: Option<String>,
    /// Logical database.
    pub db: Option<u32>,
    /// Cluster slot.
    pub slot: Option<u16>,
    /// The name.
    pub key: KeyName,
    /// Type.
    pub kind: Option<Kind>,
    /// Encoding.
    pub encoding: Option<Encoding>,
    /// Elements.
    pub elements: Option<u64>,
    /// Memory, in bytes.
    pub bytes: Option<u64>,
    /// The server's own estimate of the cost of freeing it.
    pub free_effort: Option<u64>,
    /// Allocations.
    pub allocations: Option<u64>,
    /// Whether it had a TTL when it was scanned.
    pub has_ttl: Option<bool>,
    /// When it was measured: RFC 3339, as it was written.
    pub observed_at: Option<String>,
}

/// Why a file cannot be read as a list of keys.
#[derive(Debug)]
pub enum ReadError {
    /// The file itself cannot be read.
    Io(io::Error),
    /// There is no header and no line.
    Empty,
    /// The header has no column `key`; these are its columns.
    NoKeyColumn(Vec<String>),
    /// Two columns have the same name.
    ColumnTwice(String),
    /// It is the JSON document and not NDJSON.
    JsonDocument,
    /// It is UTF-16, as some spreadsheets save "Unicode text".
    Utf16,
    /// The file was written by a newer version.
    NewerSchema {
        /// Line.
        line: u64,
        /// Its schema version.
        version: u64,
    },
    /// The line has another number of cells than the header, or is no CSV at all.
    BadRow {
        /// Line.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// A line of NDJSON is no JSON object of the right shape.
    BadJson {
        /// Line.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// A cell is not what its column needs.
    BadCell {
        /// Line.
        line: u64,
        /// Column.
        column: &'static str,
        /// What it holds, shortened and escaped.
        found: String,
        /// What is wrong.
        what: String,
    },
    /// A line is longer than [`FindingReader::LINE_BYTES_MAX`].
    LineTooLong {
        /// Line.
        line: u64,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Empty => f.write_str("the file is empty: not even a header"),
            Self::NoKeyColumn(columns) => {
                write!(f, "line 1: the header has no column `key` (columns: {})", columns.join(", "))
            }
            Self::ColumnTwice(column) => write!(f, "line 1: the header has the column `{column}` twice"),
            Self::JsonDocument => f.write_str("this is a JSON document, not one object a line"),
            Self::Utf16 => f.write_str("the file is UTF-16 and not UTF-8"),
            Self::NewerSchema { line, version } => {
                write!(f, "line {line}: schema version {version}; this bigkeys reads up to {SCHEMA_VERSION}")
            }
            Self::BadRow { line, what } | Self::BadJson { line, what } => write!(f, "line {line}: {what}"),
            Self::BadCell { line, column, found, what } => {
                write!(f, "line {line}, column `{column}`: {found} {what}")
            }
            Self::LineTooLong { line } => {
                write!(f, "line {line} is longer than {} MiB", FindingReader::LINE_BYTES_MAX >> 20)
            }
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl ReadError {
    /// Returns what to try, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Io(_) => return None,
            Self::Empty => "write one with `bigkeys scan --format csv`",
            Self::NoKeyColumn(_) => "keep the header row as `bigkeys scan` wrote it; other columns may go",
            Self::ColumnTwice(_) => "delete one of the two columns",
            Self::JsonDocument => {
                "scan with `--format ndjson` or `--format csv`, or turn it into NDJSON: \
                                   jq -c '.findings[]' FILE"
            }
            Self::Utf16 => "save it as `CSV UTF-8`",
            Self::NewerSchema { .. } => "use the bigkeys that wrote it, or scan again",
            Self::BadRow { .. } => {
                "a key with a comma or a quote must stay in double quotes, as it was written"
            }
            Self::BadJson { .. } => "each line is one JSON object with at least `key` and `key_encoding`",
            Self::BadCell { column: "key" | "key_encoding", .. } => {
                "an empty name is written `\"\"` with key_encoding `quoted`; copy names as `bigkeys scan` \
                 writes them"
            }
            Self::BadCell { .. } => {
                "a spreadsheet may have reformatted it: format the column as a whole number, or empty the \
                 cell (empty means unknown)"
            }
            Self::LineTooLong { .. } => "is it really an output of `bigkeys scan`?",
        })
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads rows, CSV or NDJSON: the first character tells.
pub struct FindingReader<R: BufRead = Box<dyn BufRead>> {
    rows: Rows<R>,
    completeness: Option<String>,
    failed: bool,
}

enum Rows<R: BufRead> {
    Csv { reader: Box<csv::Reader<BeforeRest<R>>>, columns: Columns, record: csv::ByteRecord },
    Ndjson { input: BeforeRest<R>, line: u64, buffer: Vec<u8> },
}

impl FindingReader {
    /// Bytes of one line of NDJSON: room for a key of 10 MB with every byte escaped.
    pub const LINE_BYTES_MAX: usize = 64 << 20;
}

impl<R: BufRead> FindingReader<R> {
    /// Makes a reader and reads the header, where there is one.
    ///
    /// # Errors
    /// When the input cannot be read, is empty, or has no column `key`.
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let start = first_bytes(&mut input)?;
        if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") {
            return Err(ReadError::Utf16);
        }
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        let rows = match first {
            None => return Err(ReadError::Empty),
            Some(b'{') => Rows::Ndjson { input: joined(start, input), line: 0, buffer: Vec::new() },
            Some(_) => csv_rows(start, input)?,
        };
        Ok(Self { rows, completeness: None, failed: false })
    }

    /// Returns what the summary says of the scan (`complete`, `partial`, ...), once it was read. CSV has
    /// no summary, and NDJSON that was cut off has none either.
    pub fn completeness(&self) -> Option<&str> {
        self.completeness.as_deref()
    }

    /// Returns whether a summary is to be expected at the end.
    pub fn is_ndjson(&self) -> bool {
        matches!(self.rows, Rows::Ndjson { .. })
    }

    fn read(&mut self) -> Result<Option<ListedKey>, ReadError> {
        match &mut self.rows {
            Rows::Csv { reader, columns, record } => read_csv(reader, columns, record),
            Rows::Ndjson { input, line, buffer } => read_ndjson(input, line, buffer, &mut self.completeness),
        }
    }
}

impl<R: BufRead> Iterator for FindingReader<R> {
    type Item = Result<ListedKey, ReadError>;

    /// Returns the next row. After an error there is no next one.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let row = self.read();
        self.failed = row.is_err();
        row.transpose()
    }
}

/// What was looked at already, and the rest behind it.
type BeforeRest<R> = io::BufReader<io::Chain<io::Cursor<Vec<u8>>, R>>;

fn joined<R: BufRead>(start: Vec<u8>, rest: R) -> BeforeRest<R> {
    io::BufReader::with_capacity(64 << 10, io::Cursor::new(start).chain(rest))
}

/// Reads the first line, within bounds, without a byte order mark.
fn first_bytes(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    loop {
        input.by_ref().take(64 << 10).read_until(b'\n', &mut start)?;
        let blank = start.iter().all(u8::is_ascii_whitespace);
        // Lines in front of the first one that says anything, up to a bound.
        if !blank || start.len() > 64 << 10 || input.fill_buf()?.is_empty() {
            break;
        }
    }
    if start.starts_with(b"\xef\xbb\xbf") {
        start.drain(..3);
    }
    Ok(start)
}

/// Where the columns are that we read.
struct Columns {
    names: Vec<String>,
}

impl Columns {
    fn get<'a>(&self, record: &'a csv::ByteRecord, name: &str) -> Option<&'a [u8]> {
        let cell = record.get(self.names.iter().position(|column| column == name)?)?;
        (!cell.is_empty()).then_some(cell)
    }
}

fn csv_rows<R: BufRead>(start: Vec<u8>, input: R) -> Result<Rows<R>, ReadError> {
    let header_end = start.iter().position(|&byte| byte == b'\n').unwrap_or(start.len());
    let header = &start[..header_end];
    // Header names hold no separator, so the one that is there is the separator.
    let delimiter = *[b',', b';', b'\t'].iter().find(|byte| header.contains(byte)).unwrap_or(&b',');
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .from_reader(joined(start, input));
    let mut record = csv::ByteRecord::new();
    if !reader.read_byte_record(&mut record).map_err(from_csv)? {
        return Err(ReadError::Empty);
    }
    let names: Vec<String> =
        record.iter().map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase()).collect();
    if !names.iter().any(|name| name == "key") {
        return Err(ReadError::NoKeyColumn(names.iter().map(|name| shown(name.as_bytes())).collect()));
    }
    for (index, name) in names.iter().enumerate() {
        if !name.is_empty() && names[..index].contains(name) {
            return Err(ReadError::ColumnTwice(shown(name.as_bytes())));
        }
    }
    Ok(Rows::Csv { reader: Box::new(reader), columns: Columns { names }, record })
}

fn read_csv<R: BufRead>(
    reader: &mut csv::Reader<BeforeRest<R>>,
    columns: &Columns,
    record: &mut csv::ByteRecord,
) -> Result<Option<ListedKey>, ReadError> {
    loop {
        if !reader.read_byte_record(record).map_err(from_csv)? {
            return Ok(None);
        }
        // Spreadsheets leave rows of nothing but separators behind.
        if record.iter().any(|cell| !cell.is_empty()) {
            break;
        }
    }
    let line = record.position().map_or(0, csv::Position::line);
    if record.len() != columns.names.len() {
        let what = format!("{} cells, but the header has {}", record.len(), columns.names.len());
        return Err(ReadError::BadRow { line, what });
    }
    let row = CellRow { line, columns, record };
    if let Some(version) = row.number::<u64>("schema_version")?
        && version > u64::from(SCHEMA_VERSION)
    {
        return Err(ReadError::NewerSchema { line, version });
    }
    let ttl_ms = row.number::<u64>("ttl_ms")?;
    let expires_at = row.text("expires_at")?;
    Ok(Some(ListedKey {
        line,
        node: row.text("node")?.map(|node| unquote(line, "node", &node)).transpose()?,
        db: row.number("db")?,
        slot: row.number("slot")?,
        key: row.key()?,
        kind: row
            .text("type")?
            .map(|word| unquote(line, "type", &word))
            .transpose()?
            .and_then(|word| Kind::from_type_reply(&word)),
        encoding: row
            .text("encoding")?
            .map(|word| unquote(line, "encoding", &word))
            .transpose()?
            .map(|word| Encoding::from_reply(&word)),
        elements: row.number("elements")?,
        bytes: row.number("bytes")?,
        free_effort: row.number("free_effort")?,
        allocations: row.number("allocations")?,
        has_ttl: has_ttl(ttl_ms.is_some(), expires_at.as_deref()),
        observed_at: row.text("observed_at")?,
    }))
}

/// One row of CSV with its columns' names.
struct CellRow<'a> {
    line: u64,
    columns: &'a Columns,
    record: &'a csv::ByteRecord,
}

impl CellRow<'_> {
    fn text(&self, column: &'static str) -> Result<Option<String>, ReadError> {
        let Some(cell) = self.columns.get(self.record, column) else {
            return Ok(None);
        };
        match std::str::from_utf8(cell) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(bad_cell(self.line, column, cell, "is not UTF-8")),
        }
    }

    fn number<T: TryFrom<u64>>(&self, column: &'static str) -> Result<Option<T>, ReadError> {
        let Some(cell) = self.columns.get(self.record, column) else {
            return Ok(None);
        };
        let digits = std::str::from_utf8(cell).ok().map(str::trim);
        let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|text| text.parse::<u64>().ok()).and_then(|n| T::try_from(n).ok());
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(bad_cell(self.line, column, cell, "is no whole number within bounds")),
        }
    }

    fn key(&self) -> Result<KeyName, ReadError> {
        let cell = self.columns.get(self.record, "key").unwrap_or_default();
        let encoding = self.text("key_encoding")?;
        let Ok(text) = std::str::from_utf8(cell) else {
            return Err(bad_cell(self.line, "key", cell, "is not UTF-8"));
        };
        key_name(self.line, text, encoding.as_deref())
    }
}

/// A line of NDJSON, as far as it is read.
#[derive(Deserialize)]
struct JsonLine {
    record: Option<String>,
    schema_version: Option<u64>,
    completeness: Option<JsonCompleteness>,
    node: Option<String>,
    db: Option<u32>,
    slot: Option<u16>,
    key: Option<String>,
    key_encoding: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    encoding: Option<String>,
    elements: Option<u64>,
    bytes: Option<u64>,
    free_effort: Option<u64>,
    allocations: Option<u64>,
    ttl_ms: Option<u64>,
    expires_at: Option<String>,
    observed_at: Option<String>,
}

#[derive(Deserialize)]
struct JsonCompleteness {
    status: String,
}

fn read_ndjson<R: BufRead>(
    input: &mut BeforeRest<R>,
    line: &mut u64,
    buffer: &mut Vec<u8>,
    completeness: &mut Option<String>,
) -> Result<Option<ListedKey>, ReadError> {
    loop {
        buffer.clear();
        let limit = FindingReader::LINE_BYTES_MAX as u64;
        if input.by_ref().take(limit).read_until(b'\n', buffer)? == 0 {
            return Ok(None);
        }
        *line += 1;
        let line = *line;
        if buffer.len() == FindingReader::LINE_BYTES_MAX && buffer.last() != Some(&b'\n') {
            return Err(ReadError::LineTooLong { line });
        }
        if buffer.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let row: JsonLine = match serde_json::from_slice(buffer) {
            Ok(row) => row,
            Err(_) if line == 1 && is_document(buffer) => return Err(ReadError::JsonDocument),
            Err(error) => {
                // serde_json counts lines of its own: ours is the one that helps.
                let what = error.to_string();
                let what = what.split(" at line ").next().unwrap_or_default().to_owned();
                return Err(ReadError::BadJson { line, what: escaped(what.as_bytes()) });
            }
        };
        if is_document(buffer) && row.key.is_none() {
            return Err(ReadError::JsonDocument);
        }
        if let Some(version) = row.schema_version.filter(|&version| version > u64::from(SCHEMA_VERSION)) {
            return Err(ReadError::NewerSchema { line, version });
        }
        match row.record.as_deref() {
            None | Some("finding") => return json_row(line, row).map(Some),
            Some("summary") => *completeness = row.completeness.map(|completeness| completeness.status),
            Some(_) => {}
        }
    }
}

fn json_row(line: u64, row: JsonLine) -> Result<ListedKey, ReadError> {
    let Some(key) = row.key else {
        return Err(ReadError::BadJson { line, what: "the object has no `key`".to_owned() });
    };
    Ok(ListedKey {
        line,
        node: row.node.map(|node| unquote(line, "node", &node)).transpose()?,
        db: row.db,
        slot: row.slot,
        key: key_name(line, &key, row.key_encoding.as_deref())?,
        kind: row
            .kind
            .map(|word| unquote(line, "type", &word))
            .transpose()?
            .and_then(|word| Kind::from_type_reply(&word)),
        encoding: row
            .encoding
            .map(|word| unquote(line, "encoding", &word))
            .transpose()?
            .map(|word| Encoding::from_reply(&word)),
        elements: row.elements,
        bytes: row.bytes,
        free_effort: row.free_effort,
        allocations: row.allocations,
        has_ttl: has_ttl(row.ttl_ms.is_some(), row.expires_at.as_deref()),
        observed_at: row.observed_at,
    })
}

/// Returns whether a line begins our JSON document.
fn is_document(line: &[u8]) -> bool {
    let head = &line[..line.len().min(200)];
    head.windows(b"\"findings\"".len()).any(|window| window == b"\"findings\"")
        || head.iter().all(|byte| byte.is_ascii_whitespace() || *byte == b'{')
}

fn has_ttl(ttl: bool, expires_at: Option<&str>) -> Option<bool> {
    match expires_at {
        Some(NEVER) => Some(false),
        Some(_) => Some(true),
        None => ttl.then_some(true),
    }
}

/// Reads a name. Without `key_encoding` it is read as a person types it: quoted if it begins with a
/// double quote.
fn key_name(line: u64, text: &str, encoding: Option<&str>) -> Result<KeyName, ReadError> {
    let bad = |what: &str| Err(bad_cell(line, "key", text.as_bytes(), what));
    let parsed: Result<KeyName, ParseKeyError> = match encoding {
        _ if text.is_empty() => return bad("is empty: which key is meant?"),
        // An unclosed quote swallows the lines below it, and a space slips in behind a comma. Our own
        // outputs quote such names, so here they are mistakes, and the name would be another key's.
        _ if text.contains(char::is_control) => {
            return bad("holds a line break or another control character: such a name is written quoted");
        }
        _ if text.trim().len() != text.len() => {
            return bad("begins or ends with white space: such a name is written quoted");
        }
        None => KeyName::parse(text),
        Some(word) if word == KeyEncoding::Plain.as_str() => Ok(KeyName::from(text)),
        Some(word) if word == KeyEncoding::Quoted.as_str() => KeyName::parse_quoted(text),
        Some(other) => {
            return Err(bad_cell(line, "key_encoding", other.as_bytes(), "is neither `plain` nor `quoted`"));
        }
    };
    parsed.or_else(|error| bad(&format!("is no key: {error}")))
}

/// Reads a word that may have been quoted to be safe.
fn unquote(line: u64, column: &'static str, text: &str) -> Result<String, ReadError> {
    match KeyName::parse(text) {
        Ok(name) => Ok(String::from_utf8_lossy(name.as_bytes()).into_owned()),
        Err(error) => Err(bad_cell(line, column, text.as_bytes(), &error.to_string())),
    }
}

fn bad_cell(line: u64, column: &'static str, found: &[u8], what: &str) -> ReadError {
    ReadError::BadCell { line, column, found: format!("`{}`", shown(found)), what: what.to_owned() }
}

/// Returns a cell for an error message: escaped, and not a megabyte of it.
fn shown(cell: &[u8]) -> String {
    const BYTES_MAX: usize = 60;
    let head = escaped(&cell[..cell.len().min(BYTES_MAX)]);
    if cell.len() > BYTES_MAX { format!("{head}...") } else { head }
}

/// Returns text for a terminal: as it is where it is printable ASCII, else quoted.
fn escaped(text: &[u8]) -> String {
    match std::str::from_utf8(text) {
        Ok(plain) if text.iter().all(|byte| (0x20..=0x7e).contains(byte)) => plain.to_owned(),
        _ => KeyName::from(text).quoted(),
    }
}

fn from_csv(error: csv::Error) -> ReadError {
    let line = error.position().map_or(0, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) => ReadError::Io(error),
        other => ReadError::BadRow { line, what: format!("{other:?}") },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::report::sample::{findings, report, server};
    use crate::engine::report::{CsvWriter, FindingWriter, Format, JsonWriter, NdjsonWriter, ScanReport};
    use crate::engine::tally::Finding;
    use crate::engine::tally::sample::finding;

    /// Made once: the properties write hundreds of outputs.
    static REPORT: LazyLock<ScanReport> = LazyLock::new(report);

    fn written(format: Format, findings: &[Finding]) -> Vec<u8> {
        let mut output = Vec::new();
        let mut writer: Box<dyn FindingWriter> = match format {
            Format::Csv => Box::new(CsvWriter::new(&mut output).unwrap()),
            Format::Json => Box::new(JsonWriter::new(&mut output).unwrap()),
            Format::Ndjson => Box::new(NdjsonWriter::new(&mut output)),
            Format::Table => unreachable!("a table is not read back"),
        };
        for finding in findings {
            writer.write(finding, &server()).unwrap();
        }
        writer.finish(&REPORT).unwrap();
        drop(writer);
        output
    }

    fn read(bytes: &[u8]) -> Result<Vec<ListedKey>, ReadError> {
        FindingReader::new(bytes)?.collect()
    }

    /// The keys of a JSON document, as any reader of JSON sees them.
    fn json_keys(document: &[u8]) -> Vec<KeyName> {
        let document: serde_json::Value = serde_json::from_slice(document).unwrap();
        let rows = document["findings"].as_array().unwrap();
        rows.iter()
            .map(|row| {
                let text = row["key"].as_str().unwrap();
                key_name(1, text, row["key_encoding"].as_str()).unwrap()
            })
            .collect()
    }

    fn assert_keys_survive(names: &[KeyName]) {
        let findings: Vec<Finding> = names.iter().map(|name| finding(name.clone()).build()).collect();
        for format in [Format::Csv, Format::Ndjson] {
            let keys: Vec<KeyName> =
                read(&written(format, &findings)).unwrap().into_iter().map(|row| row.key).collect();
            assert_eq!(keys, names, "{format:?}");
        }
        assert_eq!(json_keys(&written(Format::Json, &findings)), names);
    }

    #[test]
    fn odd_names_survive_every_format() {
        let names: [&[u8]; 20] = [
            b"",
            b"\0",
            b"\n",
            b"\r\n",
            b",",
            b"\"",
            b"\"\"",
            b"\xff\xfe",
            b"=1+1",
            b"+1",
            b"-1",
            b"@x",
            b"\t=1",
            b"plain",
            b"quoted",
            b"a;b",
            b"007",
            "\u{feff}a".as_bytes(),
            "\u{7528}\u{6237}".as_bytes(),
            b"{",
        ];
        assert_keys_survive(&names.map(KeyName::from));
    }

    #[test]
    fn a_name_of_a_megabyte_survives_every_format() {
        let bytes: Vec<u8> = (0..=u8::MAX).map(|n| n.wrapping_mul(7)).cycle().take(1 << 20).collect();
        assert_keys_survive(&[KeyName::new(bytes), KeyName::new(vec![b'x'; 1 << 20])]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn any_names_survive_every_format(
            names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8),
        ) {
            assert_keys_survive(&names.into_iter().map(KeyName::new).collect::<Vec<_>>());
        }

        #[test]
        fn names_of_troublesome_characters_survive(
            names in proptest::collection::vec("[\\x00\\n\\r\\t ,;\"'=+@\\\\a-c\\-\u{feff}\u{202e}]{0,6}", 0..8),
        ) {
            assert_keys_survive(&names.iter().map(|name| KeyName::from(name.as_str())).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&[b"key,db\n".as_slice(), &bytes].concat());
            let _ = read(&[b"{\"key\":".as_slice(), &bytes].concat());
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let findings = findings();
        for format in [Format::Csv, Format::Ndjson] {
            let rows = read(&written(format, &findings)).unwrap();
            assert_eq!(rows.len(), findings.len());
            for (row, finding) in rows.iter().zip(&findings) {
                let facts = &finding.facts;
                assert_eq!(row.node.as_deref(), Some("10.0.3.17:6379"));
                assert_eq!((row.db, &row.key, row.slot), (Some(facts.db), &facts.key, facts.slot));
                assert_eq!((row.kind.as_ref(), &row.encoding), (Some(&facts.kind), &facts.encoding));
                assert_eq!((row.elements, row.bytes), (facts.elements, facts.bytes()));
                assert_eq!(row.allocations, finding.verdict.allocations);
                let has_ttl = match facts.expiry {
                    crate::engine::key::Expiry::Unknown => None,
                    crate::engine::key::Expiry::Never => Some(false),
                    crate::engine::key::Expiry::In(_) => Some(true),
                };
                assert_eq!(row.has_ttl, has_ttl);
            }
        }
    }

    #[test]
    fn the_summary_tells_whether_the_scan_was_whole() {
        let ndjson = written(Format::Ndjson, &findings());
        let mut reader = FindingReader::new(ndjson.as_slice()).unwrap();
        assert!(reader.is_ndjson());
        assert!(reader.by_ref().all(|row| row.is_ok()));
        assert_eq!(reader.completeness(), Some("complete_but_skipped"));
        let cut = &ndjson[..ndjson.len() / 2];
        let mut reader = FindingReader::new(&cut[..=cut.iter().rposition(|&b| b == b'\n').unwrap()]).unwrap();
        assert!(reader.by_ref().all(|row| row.is_ok()));
        assert_eq!(reader.completeness(), None);
    }

    #[test]
    fn no_cell_begins_a_formula() {
        let mut hostile_server = server();
        hostile_server.node = "=HYPERLINK(\"http://x\")".into();
        hostile_server.flavour = crate::engine::key::Flavour::Other("@x".into());
        let mut findings: Vec<Finding> =
            ["=1", "+1", "-1", "@1", "\t1", "\r1", "\u{ff1d}1"].map(|key| finding(key).build()).into();
        for (finding, word) in findings.iter_mut().zip(["=1", "+1", "-1", "@1", "\t1", "\r1", "|x"]) {
            finding.facts.kind = Kind::Other(word.into());
            finding.facts.encoding = Some(Encoding::Other(word.into()));
        }
        let mut output = Vec::new();
        let mut writer = CsvWriter::new(&mut output).unwrap();
        for finding in &findings {
            writer.write(finding, &hostile_server).unwrap();
        }
        writer.finish(&REPORT).unwrap();
        drop(writer);
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(output.as_slice());
        for record in reader.records() {
            for cell in &record.unwrap() {
                let first = cell.chars().next();
                assert!(!first.is_some_and(|c| "=+-@\t\r\u{ff1d}".contains(c)), "{cell:?}");
            }
        }
        let rows = read(&output).unwrap();
        assert_eq!(rows[0].node.as_deref(), Some("=HYPERLINK(\"http://x\")"));
        assert_eq!(rows[4].kind, Some(Kind::Other("\t1".into())));
    }

    #[test]
    fn what_a_spreadsheet_saves_is_read() {
        for text in [
            "\u{feff}Key;Extra;DB\r\ncart:1;;0\r\n;;\r\n\"\"\"=1\"\"\";x;3\r\n",
            "db\tkey\n0\tcart:1\n3\t\"\"\"=1\"\"\"\n\n",
            "note,db,key,key_encoding\n,0,cart:1,plain\n,3,\"\"\"=1\"\"\",quoted\n",
            "{\"db\":0,\"key\":\"cart:1\",\"new\":[1]}\n\n{\"db\":3,\"key\":\"\\\"=1\\\"\",\"key_encoding\":\"quoted\"}",
        ] {
            let rows = read(text.as_bytes()).unwrap();
            let keys: Vec<_> = rows.iter().map(|row| (row.db, row.key.as_bytes())).collect();
            assert_eq!(keys, [(Some(0), b"cart:1".as_slice()), (Some(3), b"=1")], "{text}");
        }
        assert_eq!(read(b"key\na\nb\n").unwrap().len(), 2, "a list of names is enough");
    }

    #[test]
    fn errors_say_where_and_what_to_do() {
        for (text, message) in [
            ("", "the file is empty: not even a header"),
            ("\n \n", "the file is empty: not even a header"),
            ("db,type\n0,set\n", "line 1: the header has no column `key` (columns: db, type)"),
            ("key,db,key\na,0,b\n", "line 1: the header has the column `key` twice"),
            (
                "key,elements\na,1\nb,1.00E+06\n",
                "line 3, column `elements`: `1.00E+06` is no whole number within bounds",
            ),
            ("key,db\na,-1\n", "line 2, column `db`: `-1` is no whole number within bounds"),
            ("key,db\na,0\nb,c,0\n", "line 3: 3 cells, but the header has 2"),
            ("key,db\n,0\n", "line 2, column `key`: `` is empty: which key is meant?"),
            (
                "key\n\"a\nb\n",
                "line 2, column `key`: `\"a\\nb\\n\"` holds a line break or another control character: such a name is \
                 written quoted",
            ),
            (
                "db,key\n0, a\n",
                "line 2, column `key`: ` a` begins or ends with white space: such a name is written quoted",
            ),
            (
                "key,key_encoding\na,hex\n",
                "line 2, column `key_encoding`: `hex` is neither `plain` nor `quoted`",
            ),
            (
                "key,key_encoding\na,quoted\n",
                "line 2, column `key`: `a` is no key: the key is marked `quoted` but does not begin with a double quote",
            ),
            ("key,schema_version\na,2\n", "line 2: schema version 2; this bigkeys reads up to 1"),
            ("{\"key\":\"a\"}\n{\"key\":1}\n", "line 2: invalid type: integer `1`, expected a string"),
            ("{\"key\":\"a\"}\n{\"db\":1}\n", "line 2: the object has no `key`"),
            ("{\"schema_version\":1,\"findings\":[\n", "this is a JSON document, not one object a line"),
            ("{\n  \"schema_version\": 1,\n", "this is a JSON document, not one object a line"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(error.hint().is_some(), "{message}");
        }
        assert!(matches!(read(b"\xff\xfek\0e\0y\0\n\0"), Err(ReadError::Utf16)));
        let document = written(Format::Json, &findings());
        assert!(matches!(read(&document), Err(ReadError::JsonDocument)));
    }

    #[test]
    fn each_field_of_the_summary_is_documented() {
        let docs = include_str!("../../../docs/output.md");
        let document: serde_json::Value = serde_json::from_slice(&written(Format::Json, &[])).unwrap();
        for name in document["summary"].as_object().unwrap().keys() {
            let named = [format!("`{name}`"), format!("`{name}[]`"), format!("`{name}.")];
            assert!(named.iter().any(|named| docs.contains(named.as_str())), "docs/output.md lacks `{name}`");
        }
    }

    #[test]
    fn columns_are_the_fields_in_their_order() {
        let finding = finding("k").build();
        let csv = String::from_utf8(written(Format::Csv, std::slice::from_ref(&finding))).unwrap();
        assert_eq!(csv.lines().next().unwrap(), super::super::COLUMNS.join(","));
        let ndjson = String::from_utf8(written(Format::Ndjson, &[finding])).unwrap();
        let mut at = 0;
        for column in super::super::COLUMNS {
            at += ndjson[at..].find(&format!("\"{column}\":")).expect(column);
        }
        assert!(ndjson.starts_with("{\"record\":\"finding\",\"node\":"));
        assert!(ndjson.lines().last().unwrap().starts_with("{\"record\":\"summary\",\"schema_version\":1,"));
    }
}
