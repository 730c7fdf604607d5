//! The audit: what was planned, begun and done, in a file that only grows.
//!
//! ```text
//! run      who, where, with what
//! plan     one for each key, before anything happens      skip   one for each key left alone
//! begin    the server, right before the first intent
//! intent   synced to the disk before the first write to a key (or to a batch of small ones)
//! outcome  after it        hold, setting   what the run waited for, what it changed and put back
//! end      how the run ended
//! ```
//!
//! The plan is in the same file, so that a run that was killed can be finished from it and from nothing
//! else: what has no final outcome is still to be done. A crash may cut the last line off in its middle; it
//! is dropped when the file is opened again.

use std::borrow::Cow;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::engine::key::{Encoding, Expiry, KeyEncoding, KeyName, Kind};

use super::lines::{BUFFER_BYTES, Lines, RowForm};
use super::method::Method;
use super::plan::{LeftAlone, PlannedKey};

/// What a line of the audit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordKind {
    /// The first line: who, where, with what.
    Run,
    /// A run goes on that was cut off.
    Resume,
    /// A key that will be deleted.
    Plan,
    /// A key that will not.
    Skip,
    /// The plan is about to be carried out: on which server.
    Begin,
    /// A write is about to be made.
    Intent,
    /// What became of a key.
    Outcome,
    /// The run waits.
    Hold,
    /// A setting of the server was changed.
    Setting,
    /// The run is over.
    End,
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyResult {
    /// It is gone, and this run did it.
    Deleted,
    /// It has a time to live now.
    Expiring,
    /// It was gone when its turn came.
    Gone,
    /// It is not the key of the plan any more, and was left alone.
    Changed,
    /// The server did not let us.
    Denied,
    /// Something failed; the key is as it was.
    Failed,
    /// It was begun and is not done: the tombstone, or the key in place, holds the rest.
    Unfinished,
}

impl KeyResult {
    /// All of them, as the reports list them.
    pub const ALL: [Self; 7] = [
        Self::Deleted,
        Self::Expiring,
        Self::Gone,
        Self::Changed,
        Self::Denied,
        Self::Failed,
        Self::Unfinished,
    ];

    /// Returns the word used in outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Expiring => "expiring",
            Self::Gone => "gone",
            Self::Changed => "changed",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Unfinished => "unfinished",
        }
    }

    /// Returns whether nothing is left to do.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Unfinished | Self::Failed)
    }
}

/// A line of the audit. Which cells are filled depends on what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// What it is.
    pub record: RecordKind,
    /// When it was written: RFC 3339.
    pub at: String,
    /// The run.
    pub run_id: String,
    /// Number of the key within the plan.
    pub seq: Option<u64>,
    /// Last key of a batch, where the line stands for several.
    pub seq_to: Option<u64>,
    /// Address of the server.
    pub node: Option<String>,
    /// Database.
    pub db: Option<u32>,
    /// Name, as text.
    pub key: Option<String>,
    /// How the name is written: `plain` or `quoted`.
    pub key_encoding: Option<String>,
    /// Type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Encoding.
    pub encoding: Option<String>,
    /// Elements.
    pub elements: Option<u64>,
    /// Memory, in bytes.
    pub bytes: Option<u64>,
    /// Time to live, in milliseconds; `never` where there is none.
    pub ttl_ms: Option<String>,
    /// The server's estimate of the work of freeing it.
    pub free_effort: Option<u64>,
    /// How many frees that really is.
    pub allocations: Option<u64>,
    /// Method.
    pub method: Option<String>,
    /// Prediction for the method, in milliseconds.
    pub predicted_stall_ms: Option<f64>,
    /// Prediction for DEL, in milliseconds.
    pub del_stall_ms: Option<f64>,
    /// Why this method, or why not at all.
    pub reason: Option<String>,
    /// Name under which the key is taken apart, quoted.
    pub tombstone: Option<String>,
    /// What became of it.
    pub result: Option<KeyResult>,
    /// What there is to say.
    pub detail: Option<String>,
    /// Chunks.
    pub chunks: Option<u64>,
    /// Time of the slowest chunk, in milliseconds.
    pub slowest_chunk_ms: Option<f64>,
    /// Time that the key took, in milliseconds.
    pub elapsed_ms: Option<f64>,
    /// The longest that the canary waited meanwhile, in milliseconds.
    pub victim_max_ms: Option<f64>,
    /// Who runs it.
    pub operator: Option<String>,
    /// From where.
    pub host: Option<String>,
    /// Version of this program.
    pub bigkeys_version: Option<String>,
    /// Product and version of the server.
    pub server_version: Option<String>,
    /// The server's `run_id`.
    pub server_run_id: Option<String>,
    /// What the run was told, as far as it decides about keys: JSON.
    pub settings: Option<String>,
}

/// What a run was told, as far as it decides about keys. A run that is finished later is held to the same.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// By what part a key may grow or shrink.
    pub tolerance: f64,
    /// For how long nobody may have used a key, in seconds.
    pub idle_over_s: Option<u64>,
    /// The empty database through which big strings go.
    pub quarantine_db: Option<u32>,
    /// Time to live that the method `expire` gives, in milliseconds.
    pub expire_after_ms: u64,
}

impl RunSettings {
    /// Returns what the audit says of them.
    pub fn to_json(self) -> Option<String> {
        serde_json::to_string(&self).ok()
    }
}

/// The columns, in order: the fields of [`AuditRecord`].
const COLUMNS: [&str; 33] = [
    "record",
    "at",
    "run_id",
    "seq",
    "seq_to",
    "node",
    "db",
    "key",
    "key_encoding",
    "type",
    "encoding",
    "elements",
    "bytes",
    "ttl_ms",
    "free_effort",
    "allocations",
    "method",
    "predicted_stall_ms",
    "del_stall_ms",
    "reason",
    "tombstone",
    "result",
    "detail",
    "chunks",
    "slowest_chunk_ms",
    "elapsed_ms",
    "victim_max_ms",
    "operator",
    "host",
    "bigkeys_version",
    "server_version",
    "server_run_id",
    "settings",
];

impl AuditRecord {
    /// Makes an empty line of a run.
    pub fn new(record: RecordKind, run_id: &str) -> Self {
        Self {
            record,
            at: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            run_id: run_id.to_owned(),
            seq: None,
            seq_to: None,
            node: None,
            db: None,
            key: None,
            key_encoding: None,
            kind: None,
            encoding: None,
            elements: None,
            bytes: None,
            ttl_ms: None,
            free_effort: None,
            allocations: None,
            method: None,
            predicted_stall_ms: None,
            del_stall_ms: None,
            reason: None,
            tombstone: None,
            result: None,
            detail: None,
            chunks: None,
            slowest_chunk_ms: None,
            elapsed_ms: None,
            victim_max_ms: None,
            operator: None,
            host: None,
            bigkeys_version: None,
            server_version: None,
            server_run_id: None,
            settings: None,
        }
    }

    /// Fills in what is known of a planned key.
    #[must_use]
    pub fn of(mut self, key: &PlannedKey) -> Self {
        self.seq = Some(key.seq);
        self = self.named(key.db, &key.key);
        self.kind = Some(key.kind.as_str().to_owned());
        self.encoding = key.encoding.as_ref().map(|encoding| encoding.as_str().to_owned());
        self.elements = key.elements;
        self.bytes = key.bytes;
        self.ttl_ms = match key.expiry {
            Expiry::Unknown => None,
            Expiry::Never => Some(NEVER.to_owned()),
            Expiry::In(ttl) => Some(ttl.as_millis().to_string()),
        };
        self.free_effort = key.free_effort;
        self.allocations = key.allocations;
        self.method = Some(key.method.as_str().to_owned());
        self
    }

    /// Makes the line of a planned key.
    pub fn plan(run_id: &str, key: &PlannedKey) -> Self {
        let mut record = Self::new(RecordKind::Plan, run_id).of(key);
        record.predicted_stall_ms = Some(rounded(key.stall_ms));
        record.del_stall_ms = key.del_stall_ms.map(rounded);
        record.reason = Some(key.reason.clone());
        record
    }

    /// Makes the line of a key that is left alone.
    pub fn skip(run_id: &str, left: &LeftAlone) -> Self {
        let mut record = Self::new(RecordKind::Skip, run_id).named(left.db, &left.key);
        record.reason = Some(left.why.as_str().to_owned());
        record.detail = Some(left.detail.clone());
        record
    }

    /// Says what there is to say.
    #[must_use]
    pub fn saying(mut self, detail: &str) -> Self {
        self.detail = Some(detail.to_owned());
        self
    }

    /// Returns it without what would break its line, or what a spreadsheet would compute: what a server or the
    /// environment said may hold anything.
    fn in_one_line(&self) -> Cow<'_, Self> {
        let breaks = |text: &Option<String>| {
            text.as_deref()
                .is_some_and(|text| text.contains(char::is_control) || text.starts_with(FORMULA_STARTS))
        };
        let Self { kind, encoding, reason, detail, operator, host, server_version, server_run_id, .. } = self;
        if ![kind, encoding, reason, detail, operator, host, server_version, server_run_id]
            .into_iter()
            .any(breaks)
        {
            return Cow::Borrowed(self);
        }
        let mut record = self.clone();
        for text in [
            &mut record.kind,
            &mut record.encoding,
            &mut record.reason,
            &mut record.detail,
            &mut record.operator,
            &mut record.host,
            &mut record.server_version,
            &mut record.server_run_id,
        ] {
            *text = text.take().map(|text| cell(&text));
        }
        Cow::Owned(record)
    }

    fn named(mut self, db: u32, key: &KeyName) -> Self {
        let (text, encoding) = key.to_text();
        self.db = Some(db);
        self.key = Some(text.into_owned());
        self.key_encoding = Some(encoding.as_str().to_owned());
        self
    }

    /// Reads the name.
    pub fn key_name(&self) -> Option<KeyName> {
        let text = self.key.as_deref()?;
        match self.key_encoding.as_deref() {
            Some(word) if word == KeyEncoding::Quoted.as_str() => KeyName::parse_quoted(text).ok(),
            Some(word) if word == KeyEncoding::Plain.as_str() => Some(KeyName::from(text)),
            _ => None,
        }
    }

    /// Reads a planned key. `None`: the line does not say all that a plan must.
    pub fn planned(&self) -> Option<PlannedKey> {
        Some(PlannedKey {
            seq: self.seq?,
            db: self.db?,
            key: self.key_name()?,
            kind: Kind::from_type_reply(self.kind.as_deref()?)?,
            encoding: self.encoding.as_deref().map(Encoding::from_reply),
            elements: self.elements,
            bytes: self.bytes,
            expiry: match self.ttl_ms.as_deref() {
                None => Expiry::Unknown,
                Some(NEVER) => Expiry::Never,
                Some(ms) => Expiry::In(Duration::from_millis(ms.parse().ok()?)),
            },
            free_effort: self.free_effort,
            allocations: self.allocations,
            method: Method::from_word(self.method.as_deref()?)?,
            reason: self.reason.clone().unwrap_or_default(),
            stall_ms: self.predicted_stall_ms.unwrap_or(0.0),
            del_stall_ms: self.del_stall_ms,
            observed_at: humantime::parse_rfc3339(&self.at).ok()?,
        })
    }
}

/// What the column `ttl_ms` says of a key that never expires.
const NEVER: &str = "never";

/// Returns milliseconds with three digits behind the point.
pub(super) fn rounded(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}

/// What a spreadsheet takes for the beginning of a formula.
const FORMULA_STARTS: [char; 4] = ['=', '+', '-', '@'];

/// Returns text for one cell of one line: no control characters, and nothing that a spreadsheet computes.
fn cell(text: &str) -> String {
    let mut safe: String = text
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    if safe.starts_with(FORMULA_STARTS) {
        safe.insert(0, '\'');
    }
    safe
}

/// Returns the form that the name of an audit asks for.
fn form_of(path: &Path) -> RowForm {
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
    if matches!(suffix, "ndjson" | "jsonl" | "json") { RowForm::Ndjson } else { RowForm::Csv }
}

/// A plan in the making: a file beside the audit to be, which has no name of its own yet.
#[derive(Debug)]
pub struct PlanFile {
    lines: Lines<NamedTempFile>,
    form: RowForm,
    path: PathBuf,
}

impl PlanFile {
    /// Begins a plan whose audit will have this path.
    ///
    /// # Errors
    /// When the file exists already, or its folder cannot be written to.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.exists() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the file exists, and an audit never overwrites one",
            ));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(".bigkeys-").suffix(".tmp").tempfile_in(folder)?;
        let form = form_of(path);
        Ok(Self { lines: Lines::with_header(form, file, &COLUMNS)?, form, path: path.to_owned() })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When the disk is full, say.
    pub fn write(&mut self, record: &AuditRecord) -> io::Result<()> {
        self.lines.write(&*record.in_one_line())
    }

    /// Returns the path of the temporary file.
    pub fn temporary_path(&self) -> &Path {
        self.lines.get_ref().path()
    }

    /// Syncs the plan to the disk, and gives the file its name: from here on it is the audit.
    ///
    /// # Errors
    /// When the file exists by now, or cannot be written.
    pub fn adopt(self) -> io::Result<Audit> {
        let file = self.lines.into_inner()?;
        file.as_file().sync_all()?;
        let file = file.persist_noclobber(&self.path).map_err(|error| error.error)?;
        lock(&file)?;
        Ok(Audit { lines: Lines::new(self.form, file), path: self.path })
    }
}

/// An audit that grows.
#[derive(Debug)]
pub struct Audit {
    lines: Lines<File>,
    path: PathBuf,
}

impl Audit {
    /// Opens an audit to go on with it. What a crash left of a last line is dropped.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn reopen(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        lock(&file)?;
        let whole = end_of_last_line(&mut file)?;
        file.set_len(whole)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { lines: Lines::new(form_of(path), file), path: path.to_owned() })
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line. It is on its way with [`Audit::flush`], and safe with [`Audit::sync`].
    ///
    /// # Errors
    /// When the disk is full, say.
    pub fn write(&mut self, record: &AuditRecord) -> io::Result<()> {
        self.lines.write(&*record.in_one_line())
    }

    /// Sees to it that everything is on the disk.
    ///
    /// # Errors
    /// When it is not.
    pub fn sync(&mut self) -> io::Result<()> {
        self.lines.flush()?;
        self.lines.get_ref().sync_data()
    }

    /// Hands everything to the system: it outlives this process, if not a power cut.
    ///
    /// # Errors
    /// When the disk is full, say.
    pub fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()
    }
}

/// Keeps a second run off the same audit. Where the file system has no locks, nobody is kept off.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another bigkeys is writing to it: a run is finished by one at a time",
        )),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Returns where the last whole line ends.
fn end_of_last_line(file: &mut File) -> io::Result<u64> {
    const BLOCK: u64 = 64 << 10;
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        let mut block = Vec::new();
        Read::by_ref(file).take(end - start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Why an audit cannot be read.
#[derive(Debug)]
pub enum AuditError {
    /// The file cannot be read.
    Io(io::Error),
    /// A line is not one that an audit has.
    BadLine {
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// It is not an audit, or has no plan.
    NoPlan,
}

impl std::fmt::Display for AuditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::BadLine { line, what } => write!(f, "line {line}: {what}"),
            Self::NoPlan => f.write_str("the file is no audit of `bigkeys delete`"),
        }
    }
}

impl std::error::Error for AuditError {}

impl From<io::Error> for AuditError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads an audit line by line, to the last whole line.
pub struct AuditReader {
    records: Records,
    line: u64,
}

enum Records {
    Csv(Box<csv::Reader<WholeLines<File>>>, csv::StringRecord),
    Ndjson(BufReader<WholeLines<File>>, Vec<u8>),
}

impl AuditReader {
    /// Bytes of one line: room for a key of 8 MB with every byte escaped.
    pub const LINE_BYTES_MAX: usize = 64 << 20;

    /// Opens an audit.
    ///
    /// # Errors
    /// When it cannot be opened, or is none.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let lines = WholeLines::new(File::open(path)?);
        let records = match form_of(path) {
            RowForm::Ndjson => Records::Ndjson(BufReader::with_capacity(BUFFER_BYTES, lines), Vec::new()),
            RowForm::Csv => {
                let mut builder = csv::ReaderBuilder::new();
                builder.has_headers(false).flexible(true).buffer_capacity(BUFFER_BYTES);
                Records::Csv(Box::new(builder.from_reader(lines)), csv::StringRecord::new())
            }
        };
        let mut reader = Self { records, line: 0 };
        if let Records::Csv(records, header) = &mut reader.records {
            let is_there = records.read_record(header).map_err(|_| AuditError::NoPlan)?;
            if !is_there || header.iter().ne(COLUMNS) {
                return Err(AuditError::NoPlan);
            }
            reader.line = 1;
        }
        Ok(reader)
    }

    /// Returns the number of the line that was read last, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    fn next_record(&mut self) -> Result<Option<AuditRecord>, AuditError> {
        self.line += 1;
        let line = self.line;
        let bad = |what: String| AuditError::BadLine { line, what };
        match &mut self.records {
            Records::Ndjson(lines, buffer) => {
                buffer.clear();
                if lines.read_until(b'\n', buffer)? == 0 {
                    return Ok(None);
                }
                serde_json::from_slice(buffer).map(Some).map_err(|error| bad(error.to_string()))
            }
            Records::Csv(records, record) => {
                match records.read_record(record) {
                    Ok(true) => {}
                    Ok(false) => return Ok(None),
                    Err(error) => {
                        return Err(match error.into_kind() {
                            csv::ErrorKind::Io(error) => AuditError::Io(error),
                            csv::ErrorKind::Utf8 { .. } => bad("it is not UTF-8".to_owned()),
                            other => bad(format!("{other:?}")),
                        });
                    }
                }
                if record.len() != COLUMNS.len() {
                    return Err(bad(format!("{} cells, and not {}", record.len(), COLUMNS.len())));
                }
                // By position: the header is the one that we write.
                record.deserialize(None).map(Some).map_err(|error| bad(error.to_string()))
            }
        }
    }
}

/// Passes on whole lines, and keeps what a crash left of the last one to itself.
struct WholeLines<R> {
    inner: R,
    buffer: Vec<u8>,
    /// What was passed on of the buffer, and where its last line ends.
    passed: usize,
    whole: usize,
}

impl<R: Read> WholeLines<R> {
    fn new(inner: R) -> Self {
        Self { inner, buffer: Vec::new(), passed: 0, whole: 0 }
    }

    /// Reads on until there is a whole line; there is none at the end.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.whole);
        (self.passed, self.whole) = (0, 0);
        while self.whole == 0 {
            let start = self.buffer.len();
            if start > AuditReader::LINE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            self.buffer.resize(start + BUFFER_BYTES, 0);
            let read = self.inner.read(&mut self.buffer[start..]);
            self.buffer.truncate(start + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Ok(());
            }
            let end = self.buffer[start..].iter().rposition(|byte| *byte == b'\n');
            self.whole = end.map_or(0, |at| start + at + 1);
        }
        Ok(())
    }
}

impl<R: Read> Read for WholeLines<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.passed == self.whole {
            self.fill()?;
        }
        let count = into.len().min(self.whole - self.passed);
        into[..count].copy_from_slice(&self.buffer[self.passed..self.passed + count]);
        self.passed += count;
        Ok(count)
    }
}

impl Iterator for AuditReader {
    type Item = Result<AuditRecord, AuditError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_of_a_line_is_kept_back() {
        for (text, whole) in [("a\nb\nc", "a\nb\n"), ("", ""), ("a", ""), ("a\n", "a\n"), ("\n\n", "\n\n")] {
            let mut passed = String::new();
            WholeLines::new(text.as_bytes()).read_to_string(&mut passed).unwrap();
            assert_eq!(passed, whole, "{text:?}");
        }
        let long = "x".repeat(3 * BUFFER_BYTES) + "\n" + &"y".repeat(2 * BUFFER_BYTES);
        let mut passed = String::new();
        WholeLines::new(long.as_bytes()).read_to_string(&mut passed).unwrap();
        assert_eq!(passed.len(), 3 * BUFFER_BYTES + 1);
    }

    #[test]
    fn columns_are_the_fields_in_their_order() {
        let record = serde_json::to_value(AuditRecord::new(RecordKind::End, "r")).unwrap();
        let fields: Vec<&str> = record.as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = COLUMNS.to_vec();
        columns.sort_unstable();
        assert_eq!(fields, columns);
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.serialize(AuditRecord::new(RecordKind::End, "r")).unwrap();
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        assert_eq!(text.lines().next(), Some(COLUMNS.join(",").as_str()));
    }

    #[test]
    fn whatever_a_server_says_stays_in_one_line() {
        // Redis 6.2 ends the errors of scripts with a line break.
        let mut record = AuditRecord::new(RecordKind::End, "r");
        record.detail = Some("MISCONF no\r\nwrites".to_owned());
        record.kind = Some("a\nb".to_owned());
        record.operator = Some("\n=cmd".to_owned());
        for form in [RowForm::Csv, RowForm::Ndjson] {
            let mut lines = Lines::new(form, Vec::new());
            lines.write(&*record.in_one_line()).unwrap();
            let line = String::from_utf8(lines.into_inner().unwrap()).unwrap();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(line.ends_with('\n'), "{line}");
        }
    }
}
