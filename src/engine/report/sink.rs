//! Fans findings out to several outputs: stdout and files.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::engine::key::ServerProfile;
use crate::engine::tally::Finding;

use super::{
    Completeness, CsvWriter, FindingWriter, Format, JsonWriter, NdjsonWriter, OutputFile, ScanReport,
    TableStyle, TableWriter,
};

/// Why an output could not be written.
#[derive(Debug)]
pub struct OutputError {
    /// The file; none for stdout.
    pub path: Option<PathBuf>,
    /// What happened.
    pub source: io::Error,
}

impl OutputError {
    /// Returns whether the reader of stdout is gone (`bigkeys scan | head`): no error, end quietly.
    pub fn is_closed_pipe(&self) -> bool {
        self.path.is_none() && self.source.kind() == io::ErrorKind::BrokenPipe
    }
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "cannot write `{}`: {}", path.display(), self.source),
            None => write!(f, "cannot write to stdout: {}", self.source),
        }
    }
}

// The source is in the text already; giving it again would print it twice.
impl std::error::Error for OutputError {}

/// Where findings go.
///
/// An output that fails is closed, and the others go on: a full disk must not cost the report on
/// stdout. The error comes back from the call in which it happened, and once more from
/// [`Sink::finish`], so that a run that lost an output never ends well.
#[derive(Default)]
pub struct Sink<'w> {
    outputs: Vec<Output<'w>>,
    failures: Vec<OutputError>,
    stream_closed: bool,
    /// A checkpoint names the temporary files.
    is_settled: bool,
}

struct Output<'w> {
    writer: Box<dyn FindingWriter + 'w>,
    file: Option<SharedFile>,
    rows: u64,
}

/// What a file holds, as a checkpoint names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Where it is to be in the end.
    pub path: PathBuf,
    /// Its temporary name, in the same folder.
    pub temporary_name: String,
    /// How much of it counts.
    pub bytes: u64,
    /// Findings in it.
    pub rows: u64,
}

impl<'w> Sink<'w> {
    /// Makes a sink without outputs: it takes findings and writes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds stdout, or whatever stands for it. Give it a buffer.
    ///
    /// # Errors
    /// When the beginning of the format cannot be written.
    pub fn add_stream(
        &mut self,
        format: Format,
        stream: impl Write + 'w,
        style: TableStyle,
    ) -> Result<(), OutputError> {
        let writer = writer(format, stream, style).map_err(|source| OutputError { path: None, source })?;
        self.outputs.push(Output { writer, file: None, rows: 0 });
        Ok(())
    }

    /// Adds a file; its suffix names the format.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn add_file(&mut self, path: impl Into<PathBuf>) -> Result<(), OutputError> {
        let path = path.into();
        if self
            .outputs
            .iter()
            .any(|output| output.file.as_ref().and_then(SharedFile::path).as_ref() == Some(&path))
        {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it is named twice");
            return Err(OutputError { path: Some(path), source });
        }
        let add = || -> io::Result<Output<'w>> {
            let file = OutputFile::create(&path)?;
            let format = file.format();
            let file = SharedFile(Rc::new(RefCell::new(Some(file))));
            let writer = writer(format, file.clone(), TableStyle::FILE)?;
            Ok(Output { writer, file: Some(file), rows: 0 })
        };
        match add() {
            Ok(output) => self.outputs.push(output),
            Err(source) => return Err(OutputError { path: Some(path), source }),
        }
        Ok(())
    }

    /// Adds a file of which a run before this one wrote a part.
    ///
    /// # Errors
    /// When that part is not there.
    pub fn go_on_with(&mut self, held: &WrittenFile) -> Result<(), OutputError> {
        let file = OutputFile::go_on(&held.path, &held.temporary_name, held.bytes)
            .map_err(|source| OutputError { path: Some(held.path.clone()), source })?;
        let format = file.format();
        let file = SharedFile(Rc::new(RefCell::new(Some(file))));
        let writer: Box<dyn FindingWriter + 'w> = match format {
            Format::Table => Box::new(TableWriter::new(file.clone(), TableStyle::FILE)),
            Format::Csv => Box::new(CsvWriter::go_on(file.clone())),
            Format::Json => Box::new(JsonWriter::go_on(file.clone(), held.rows)),
            Format::Ndjson => Box::new(NdjsonWriter::new(file.clone())),
        };
        self.outputs.push(Output { writer, file: Some(file), rows: held.rows });
        self.is_settled = true;
        Ok(())
    }

    /// Begins the files anew: what was written before this run is void. Nothing may have been written in it.
    ///
    /// # Errors
    /// As [`Sink::write`].
    pub fn begin_anew(&mut self) -> Result<(), OutputError> {
        self.each(|output| {
            let Some(file) = &output.file else { return Ok(()) };
            let format = {
                let mut held = file.0.borrow_mut();
                let Some(held) = held.as_mut() else { return Ok(()) };
                held.begin_anew()?;
                held.format()
            };
            output.writer = writer(format, file.clone(), TableStyle::FILE)?;
            output.rows = 0;
            Ok(())
        })
    }

    /// Writes all findings to the disk, and returns what the files hold. From now on the temporary files stay.
    ///
    /// # Errors
    /// As [`Sink::write`].
    pub fn settle(&mut self) -> Result<Vec<WrittenFile>, OutputError> {
        let mut written = Vec::new();
        self.each(|output| {
            output.writer.flush()?;
            let Some(file) = &output.file else { return Ok(()) };
            let mut held = file.0.borrow_mut();
            let Some(held) = held.as_mut() else { return Ok(()) };
            if let Some((temporary_name, bytes)) = held.settle()? {
                let path = held.path().to_owned();
                written.push(WrittenFile { path, temporary_name, bytes, rows: output.rows });
            }
            Ok(())
        })?;
        self.is_settled = true;
        Ok(written)
    }

    /// Returns the temporary files behind the outputs. They go with the sink; a process that has to end at
    /// once, without dropping anything, should remove them.
    pub fn temporary_files(&self) -> Vec<PathBuf> {
        let files = self.outputs.iter().filter_map(|output| output.file.as_ref());
        files.filter_map(|file| Some(file.0.borrow().as_ref()?.temporary_path()?.to_owned())).collect()
    }

    /// Returns whether anything would still be written.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Writes a finding to all outputs.
    ///
    /// # Errors
    /// The first output that failed just now; it is closed, and the others have the finding. A closed
    /// pipe is an error only when no other output is left.
    pub fn write(&mut self, finding: &Finding, server: &ServerProfile) -> Result<(), OutputError> {
        self.each(|output| {
            output.rows = output.rows.saturating_add(1);
            output.writer.write(finding, server)
        })
    }

    /// Hands on what is buffered: to be called now and then, so that a pipe flows.
    ///
    /// # Errors
    /// As [`Sink::write`].
    pub fn flush(&mut self) -> Result<(), OutputError> {
        self.each(|output| output.writer.flush())
    }

    /// Writes the report to all outputs and gives the files their names. A sink that is dropped instead
    /// leaves no file.
    ///
    /// Where a checkpoint names the temporary files and the scan is not whole, they stay beside those that get
    /// the good names.
    ///
    /// # Errors
    /// Every output that failed, now or before. A closed pipe is none.
    pub fn finish(mut self, report: &ScanReport) -> Result<(), Vec<OutputError>> {
        let _ = self.each(|output| output.writer.finish(report));
        for output in self.outputs {
            let Some(shared) = output.file else {
                continue;
            };
            let Some(file) = shared.0.borrow_mut().take() else {
                continue;
            };
            let path = file.path().to_owned();
            let goes_on = self.is_settled && matches!(report.completeness, Completeness::Partial(_));
            let persisted = if goes_on { file.persist_copy() } else { file.persist() };
            if let Err(source) = persisted {
                self.failures.push(OutputError { path: Some(path), source });
            }
        }
        if self.failures.is_empty() { Ok(()) } else { Err(self.failures) }
    }

    fn each(&mut self, mut act: impl FnMut(&mut Output<'w>) -> io::Result<()>) -> Result<(), OutputError> {
        let mut first = None;
        let (failures, stream_closed) = (&mut self.failures, &mut self.stream_closed);
        self.outputs.retain_mut(|output| {
            let Err(source) = act(output) else {
                return true;
            };
            let path = output.file.as_ref().and_then(SharedFile::path);
            let error = OutputError { path, source };
            if error.is_closed_pipe() {
                *stream_closed = true;
            } else {
                let again = io::Error::new(error.source.kind(), error.source.to_string());
                first.get_or_insert(OutputError { path: error.path.clone(), source: again });
                failures.push(error);
            }
            false
        });
        if let Some(error) = first {
            return Err(error);
        }
        if self.stream_closed && self.outputs.is_empty() {
            return Err(OutputError { path: None, source: io::ErrorKind::BrokenPipe.into() });
        }
        Ok(())
    }
}

impl fmt::Debug for Sink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink")
            .field("outputs", &self.outputs.len())
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

fn writer<'w>(
    format: Format,
    output: impl Write + 'w,
    style: TableStyle,
) -> io::Result<Box<dyn FindingWriter + 'w>> {
    Ok(match format {
        Format::Table => Box::new(TableWriter::new(output, style)),
        Format::Csv => Box::new(CsvWriter::new(output)?),
        Format::Json => Box::new(JsonWriter::new(output)?),
        Format::Ndjson => Box::new(NdjsonWriter::new(output)),
    })
}

/// A file that its format's writer writes to and that the sink renames in the end.
#[derive(Clone)]
struct SharedFile(Rc<RefCell<Option<OutputFile>>>);

impl SharedFile {
    fn path(&self) -> Option<PathBuf> {
        self.0.borrow().as_ref().map(|file| file.path().to_owned())
    }
}

impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.borrow_mut().as_mut() {
            Some(file) => file.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().as_mut().map_or(Ok(()), Write::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::report::sample::{findings, report, server};

    /// Takes so many bytes and fails then.
    struct Full(usize, io::ErrorKind);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() > self.0 {
                return Err(self.1.into());
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn scan_into(sink: &mut Sink<'_>) -> Vec<OutputError> {
        findings().iter().filter_map(|finding| sink.write(finding, &server()).err()).collect()
    }

    #[test]
    fn every_output_gets_everything() {
        let folder = tempfile::tempdir().unwrap();
        let mut stdout = Vec::new();
        let mut sink = Sink::new();
        sink.add_stream(Format::Ndjson, &mut stdout, TableStyle::FILE).unwrap();
        for name in ["a.csv", "a.json", "a.ndjson", "a.txt"] {
            sink.add_file(folder.path().join(name)).unwrap();
        }
        assert!(scan_into(&mut sink).is_empty());
        sink.finish(&report()).unwrap();
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert_eq!(read("a.ndjson"), stdout);
        assert_eq!(String::from_utf8(read("a.csv")).unwrap().lines().count(), findings().len() + 1);
        let document: serde_json::Value = serde_json::from_slice(&read("a.json")).unwrap();
        assert_eq!(document["findings"].as_array().unwrap().len(), findings().len());
        assert_eq!(document["summary"]["completeness"]["status"], "complete_but_skipped");
        assert!(read("a.txt").starts_with(b"Redis 7.0.15"));
    }

    #[test]
    fn a_closed_pipe_is_quiet_and_the_files_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = Sink::new();
        sink.add_stream(Format::Ndjson, Full(1000, io::ErrorKind::BrokenPipe), TableStyle::FILE).unwrap();
        sink.add_file(folder.path().join("a.ndjson")).unwrap();
        assert!(scan_into(&mut sink).is_empty());
        sink.finish(&report()).unwrap();
        assert!(folder.path().join("a.ndjson").exists());
    }

    #[test]
    fn a_closed_pipe_with_nothing_else_to_write_is_told() {
        let mut sink = Sink::new();
        sink.add_stream(Format::Ndjson, Full(1000, io::ErrorKind::BrokenPipe), TableStyle::FILE).unwrap();
        let errors = scan_into(&mut sink);
        assert!(errors[0].is_closed_pipe());
        sink.finish(&report()).unwrap();
    }

    #[test]
    fn an_output_that_fails_is_named_and_the_others_go_on() {
        let mut stdout = Vec::new();
        let mut sink = Sink::new();
        sink.add_stream(Format::Ndjson, Full(1000, io::ErrorKind::StorageFull), TableStyle::FILE).unwrap();
        sink.add_stream(Format::Ndjson, &mut stdout, TableStyle::FILE).unwrap();
        let errors = scan_into(&mut sink);
        assert_eq!(errors.len(), 1);
        assert!(!errors[0].is_closed_pipe());
        assert_eq!(errors[0].to_string(), "cannot write to stdout: no storage space");
        assert_eq!(sink.finish(&report()).unwrap_err().len(), 1, "told again at the end");
        assert!(stdout.ends_with(b"}\n"));
    }

    #[test]
    fn errors_name_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/a.csv");
        let error = Sink::new().add_file(&path).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot write `{}`: ", path.display())));
    }

    #[test]
    fn a_dropped_sink_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = Sink::new();
        sink.add_file(folder.path().join("a.csv")).unwrap();
        assert_eq!(sink.temporary_files().len(), 1);
        assert!(sink.temporary_files()[0].exists());
        scan_into(&mut sink);
        drop(sink);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
