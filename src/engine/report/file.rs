//! Output files that appear whole or not at all.
//!
//! The file is written under a temporary name beside its target, so that the rename at the end stays
//! within one file system and replaces the target in one step. Until then the target keeps what it
//! held: a cron job that is killed leaves yesterday's report and not half of today's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

use super::Format;

/// Bytes written at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// How the names of temporary files begin and end.
const PREFIX: &str = ".bigkeys-";
const SUFFIX: &str = ".tmp";

/// A file in the making. Dropped without [`OutputFile::persist`], it leaves nothing behind.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    format: Format,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// Written beside `path` and renamed at the end.
    Renamed { writer: BufWriter<NamedTempFile>, to: PathBuf },
    /// A pipe or a device: there is nothing to rename.
    Direct(BufWriter<File>),
}

impl OutputFile {
    /// Creates the temporary file; the format is what the suffix says.
    ///
    /// # Errors
    /// When the suffix names no format, or the folder cannot be written to. The path is not in the error:
    /// the caller knows it.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let format = Format::of_path(&path).ok_or_else(|| {
            let message = "the suffix names no format (known: .csv .json .ndjson .jsonl .txt)";
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let target = open(&path)?;
        Ok(Self { path, format, target })
    }

    /// Goes on with the temporary file of a run that did not come to its end, after so many bytes.
    ///
    /// # Errors
    /// When it is not there, is shorter than that, or is none that was made for this path.
    pub fn go_on(path: impl Into<PathBuf>, temporary_name: &str, bytes: u64) -> io::Result<Self> {
        let mut file = Self::create(path)?;
        let Target::Renamed { writer, to } = &mut file.target else { return Ok(file) };
        let wrong = |message| io::Error::new(io::ErrorKind::InvalidData, message);
        // The name comes from a file that anybody may have written: it must not lead anywhere else.
        let is_ours = temporary_name.starts_with(PREFIX)
            && temporary_name.ends_with(SUFFIX)
            && !temporary_name.contains(['/', '\\']);
        if !is_ours {
            return Err(wrong("the checkpoint names a temporary file that bigkeys did not make"));
        }
        let held = folder_of(to).join(temporary_name);
        let metadata = fs::symlink_metadata(&held).map_err(|error| {
            let message = format!("what was written before, `{}`: {error}", held.display());
            io::Error::new(error.kind(), message)
        })?;
        if !metadata.is_file() || metadata.len() < bytes {
            return Err(wrong("what was written before was cut off since"));
        }
        let mut reopened = OpenOptions::new().read(true).write(true).open(&held)?;
        reopened.set_len(bytes)?;
        reopened.seek(SeekFrom::Start(bytes))?;
        let mut reopened = NamedTempFile::from_parts(reopened, TempPath::try_from_path(held)?);
        reopened.disable_cleanup(true);
        *writer = BufWriter::with_capacity(BUFFER_BYTES, reopened);
        Ok(file)
    }

    /// Returns the name of the temporary file and how much it holds, all of which is on the disk then. A pipe has
    /// none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn settle(&mut self) -> io::Result<Option<(String, u64)>> {
        let Target::Renamed { writer, .. } = &mut self.target else { return Ok(None) };
        writer.flush()?;
        let file = writer.get_mut();
        // From now on somebody may go on with it.
        file.disable_cleanup(true);
        file.as_file().sync_data()?;
        let name = file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Some((name, file.as_file_mut().stream_position()?)))
    }

    /// Forgets what was written.
    ///
    /// # Errors
    /// When the file cannot be cut.
    pub fn begin_anew(&mut self) -> io::Result<()> {
        let Target::Renamed { writer, .. } = &mut self.target else { return Ok(()) };
        writer.flush()?;
        let file = writer.get_mut().as_file_mut();
        file.set_len(0)?;
        file.rewind()
    }

    /// Gives a copy the good name. The temporary file stays, for the run that goes on with it.
    ///
    /// # Errors
    /// When that fails; the target is then as it was.
    pub fn persist_copy(self) -> io::Result<()> {
        let Target::Renamed { writer, to } = self.target else { return self.persist() };
        let mut held = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        held.disable_cleanup(true);
        let mut copy = Self { path: self.path, format: self.format, target: open(&to)? };
        held.rewind()?;
        io::copy(held.as_file_mut(), &mut copy)?;
        copy.persist()
    }

    /// Returns the path as it was asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the temporary file behind it, which a process that has to end at once should remove.
    pub fn temporary_path(&self) -> Option<&Path> {
        match &self.target {
            Target::Renamed { writer, .. } => Some(writer.get_ref().path()),
            Target::Direct(_) => None,
        }
    }

    /// Returns the format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Writes what is left to the disk and gives the file its name.
    ///
    /// # Errors
    /// When that fails; the target is then as it was.
    pub fn persist(self) -> io::Result<()> {
        match self.target {
            Target::Direct(mut writer) => writer.flush(),
            Target::Renamed { writer, to } => {
                let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
                // Else a power cut after the rename could leave an empty file under the good name.
                file.as_file().sync_all()?;
                let folder = folder_of(&to).to_owned();
                file.persist(&to).map_err(|error| error.error)?;
                sync_folder(&folder);
                Ok(())
            }
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.target {
            Target::Renamed { writer, .. } => writer.write(bytes),
            Target::Direct(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Renamed { writer, .. } => writer.flush(),
            Target::Direct(writer) => writer.flush(),
        }
    }
}

fn open(path: &Path) -> io::Result<Target> {
    let existing = match fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
        let file = OpenOptions::new().write(true).open(path)?;
        return Ok(Target::Direct(BufWriter::with_capacity(BUFFER_BYTES, file)));
    }
    // Through a symbolic link the file it leads to is replaced, and the link stays.
    let to = if existing.is_some() { fs::canonicalize(path)? } else { path.to_owned() };
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As `open` would do: what the old file had, else what the umask leaves of rw-rw-rw-. A report that
        // only its writer may read is of no use to a metrics collector.
        let mode = existing.as_ref().map_or(0o666, |metadata| metadata.permissions().mode() & 0o777);
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    let file = builder.tempfile_in(folder_of(&to))?;
    Ok(Target::Renamed { writer: BufWriter::with_capacity(BUFFER_BYTES, file), to })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the rename itself survive a power cut. Some file systems cannot, and the file is good anyway.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn the_target_changes_only_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        fs::write(&path, "old").unwrap();
        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.persist().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names_in(folder.path()), ["a.csv"]);
    }

    #[test]
    fn abandoned_it_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = OutputFile::create(folder.path().join("a.json")).unwrap();
        file.write_all(b"{").unwrap();
        drop(file);
        assert!(names_in(folder.path()).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn links_and_modes_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.csv"), folder.path().join("link.csv"));
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut file = OutputFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.persist().unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_cannot_be_written_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |path: &Path| OutputFile::create(path).unwrap_err().kind();
        assert_eq!(kind(&folder.path().join("a.xlsx")), io::ErrorKind::InvalidInput);
        assert_eq!(kind(&folder.path().join("none/a.csv")), io::ErrorKind::NotFound);
        fs::create_dir(folder.path().join("d.csv")).unwrap();
        assert_eq!(kind(&folder.path().join("d.csv")), io::ErrorKind::IsADirectory);
    }
}
