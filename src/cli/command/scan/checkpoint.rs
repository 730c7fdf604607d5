//! The file of `--checkpoint`: how far the scan is, what it was told, and what the output files hold.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::cli::args::{ResumeArgs, ScanArgs};
use crate::cli::error::{CommandError, ErrorKind};
use crate::engine::report::{Format, OutputError, Sink, WrittenFile};
use crate::engine::scan::{Checkpoint, Checkpoints, ScanConfig, TargetKind};

/// Of the form of the file. Another one is refused.
const VERSION: u32 = 1;

/// Two tallies of 10 MB each and 10 000 names in the top list, of which few are longer than 10 kB.
const BYTES_MAX: u64 = 256 << 20;

/// What is in the file, after a first line with the version and the length: so a file that was cut off is told.
#[derive(Debug, Serialize, Deserialize)]
struct Content<C> {
    /// What the scan was told: by flag.
    told: BTreeMap<String, String>,
    files: Vec<WrittenFile>,
    checkpoint: C,
}

/// What was resumed.
#[derive(Debug)]
pub(super) struct Resumed {
    pub(super) checkpoint: Checkpoint,
    files: Vec<WrittenFile>,
}

impl Resumed {
    /// Adds an output file, after what it holds already.
    pub(super) fn add_file(&self, path: &Path, sink: &mut Sink<'_>) -> Result<(), OutputError> {
        match self.files.iter().find(|held| held.path == path) {
            Some(held) => sink.go_on_with(held),
            // A pipe or a device, of which nothing is kept.
            None if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) => sink.add_file(path),
            None => Err(OutputError {
                path: Some(path.to_owned()),
                source: io::Error::other(
                    "the checkpoint holds nothing of it: it could not be written then, either",
                ),
            }),
        }
    }
}

/// Where checkpoints are written.
#[derive(Debug)]
pub(super) struct CheckpointFile {
    path: PathBuf,
    told: BTreeMap<String, String>,
}

/// Settles what was typed: where checkpoints go, and what to go on from.
pub(super) fn settle(
    args: &ScanArgs,
    config: &mut ScanConfig,
    stdout: Format,
) -> Result<(Option<CheckpointFile>, Option<Resumed>), CommandError> {
    let ResumeArgs { checkpoint, resume_scan, checkpoint_period } = &args.resume;
    let Some(path) = checkpoint.as_ref().or(resume_scan.as_ref()) else { return Ok((None, None)) };
    let is_one = matches!(&config.targets[..], [target] if matches!(target.kind, TargetKind::Auto | TargetKind::OneNode));
    if !is_one {
        return Err(CommandError::usage("--checkpoint and --resume-scan are for one server")
            .hint("leave them out, or scan one server after the other"));
    }
    let told = told(args, config, stdout);
    let resumed = match resume_scan {
        Some(from) => Some(read(from, &told)?),
        None => None,
    };
    if resume_scan.as_ref() != Some(path) && fs::symlink_metadata(path).is_ok() {
        let text = format!("the checkpoint `{}` is there already", path.display());
        return Err(CommandError::usage(text)
            .hint("--resume-scan goes on from it; remove it, or name another file, to begin anew"));
    }
    // Better now than in some seconds.
    temporary_beside(path).map_err(|error| {
        CommandError::usage(format!("cannot write the checkpoint `{}`", path.display())).because(error)
    })?;
    let of_engine = resumed.as_ref().map(|resumed: &Resumed| Box::new(resumed.checkpoint.clone()));
    config.checkpoints = Some(Checkpoints { period: *checkpoint_period, resumed: of_engine });
    Ok((Some(CheckpointFile { path: path.clone(), told }), resumed))
}

impl CheckpointFile {
    /// Writes a checkpoint: under another name, and in place of the last one when it is whole.
    pub(super) fn write(&self, checkpoint: &Checkpoint, files: Vec<WrittenFile>) -> io::Result<()> {
        let content = Content { told: self.told.clone(), files, checkpoint };
        let body = serde_json::to_vec(&content)?;
        let mut file = temporary_beside(&self.path)?;
        writeln!(file, "bigkeys-checkpoint {VERSION} {}", body.len())?;
        file.write_all(&body)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        if let Ok(folder) = File::open(folder_of(&self.path)) {
            // Some file systems cannot, and the file is good anyway.
            let _ = folder.sync_all();
        }
        Ok(())
    }

    /// Removes it: the scan is whole.
    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Names of keys are nobody else's business: as tempfile makes it, only its owner may read it.
fn temporary_beside(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(".bigkeys-").suffix(".checkpoint").tempfile_in(folder_of(path))
}

/// Reads a checkpoint of a scan that was told the same.
fn read(path: &Path, told: &BTreeMap<String, String>) -> Result<Resumed, CommandError> {
    let failed = |why: io::Error| CommandError::new(ErrorKind::Input(path.to_owned())).because(why);
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(failed)?.take(BYTES_MAX + 1);
    file.read_to_end(&mut bytes).map_err(failed)?;
    let content = parse(&bytes).map_err(|why| {
        failed(io::Error::new(io::ErrorKind::InvalidData, why)).hint("begin anew, with --checkpoint")
    })?;
    let mut names: Vec<&String> = told.keys().chain(content.told.keys()).collect();
    names.sort_unstable();
    for name in names {
        let (then, now) = (content.told.get(name), told.get(name));
        if then != now {
            let shown = |value: Option<&String>| value.map_or("nothing", String::as_str).to_owned();
            let text =
                format!("{name} differs from the checkpoint: {} now, {} then", shown(now), shown(then));
            return Err(CommandError::usage(text).hint("a scan goes on with the flags that it began with"));
        }
    }
    Ok(Resumed { checkpoint: content.checkpoint, files: content.files })
}

fn parse(bytes: &[u8]) -> Result<Content<Checkpoint>, String> {
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("it is larger than {} MiB, and no checkpoint is", BYTES_MAX >> 20));
    }
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it is no checkpoint, or was cut off")?;
    let head = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
    let words: Vec<&str> = head.split(' ').collect();
    let ["bigkeys-checkpoint", version, length] = words[..] else {
        return Err("it is no checkpoint".to_owned());
    };
    if version != VERSION.to_string() {
        return Err("it was written by another version of bigkeys".to_owned());
    }
    let body = &bytes[end + 1..];
    if length != body.len().to_string() {
        return Err("it was cut off, or is damaged".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| format!("it is damaged: {error}"))
}

/// What decides about the result, by flag.
fn told(args: &ScanArgs, config: &ScanConfig, stdout: Format) -> BTreeMap<String, String> {
    let filter = &config.filter;
    let mut told = BTreeMap::new();
    let mut tell = |flag: &str, value: String| {
        told.insert(flag.to_owned(), value);
    };
    let globs = |globs: &[Vec<u8>]| {
        globs.iter().map(|glob| glob.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
    };
    for target in &config.targets {
        tell("the address", target.endpoint.address.to_string());
        tell("--db", format!("{:?}", target.databases));
        tell("--one-node", (target.kind == TargetKind::OneNode).to_string());
    }
    tell("--prefer-replica or --prefer-primary", format!("{:?}", config.preference));
    tell("--match", globs(&filter.globs));
    tell("--exclude", globs(&filter.exclude_globs));
    tell("--regex", filter.regex.as_ref().map_or(String::new(), |regex| regex.as_str().to_owned()));
    tell("--type", format!("{:?}", filter.kinds));
    tell("--encoding", format!("{:?}", filter.encodings));
    tell("--min-bytes", format!("{:?}", filter.bytes_min));
    tell("--min-elements", format!("{:?}", filter.elements_min));
    tell("--min-allocs", format!("{:?}", filter.allocations_min));
    tell("--risk", format!("{:?}", filter.level_min));
    tell("--ttl", format!("{:?}", filter.ttl));
    tell("--idle-over", format!("{:?}", filter.idle_over));
    tell("--all-keys", config.all_keys.to_string());
    tell("--samples", config.memory_samples.to_string());
    tell("--exact-lists", format!("{} up to {} bytes", config.exact_lists, config.exact_list_bytes_max));
    tell("--top", config.top.to_string());
    tell("--sort", config.sort_by.as_str().to_owned());
    tell("--levels", format!("{:?}", config.thresholds));
    tell("--format", format!("{stdout:?}"));
    tell("-o", format!("{:?}", args.output.outputs));
    told
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn row() -> Value {
        json!({"keys": 1, "bytes": u64::MAX, "keys_unsized": 0, "elements": 0, "keys_uncounted": 0,
               "allocations": 0, "keys_unjudged": 0})
    }

    fn sums() -> Value {
        let node = |parent: usize, segment: &str| json!({"parent": parent, "segment": segment, "total": row(), "direct": row(), "other": row()});
        json!({
            "tally": {
                "census": {"rows": [["hash", "hashtable", row()], ["x-module", null, row()]], "other": row()},
                "levels": [1, 0, 0, 0, 0, 0],
                "top": [],
                "prefixes": [node(0, "\"\""), node(0, "\"a\\x00:\"")],
                "expiry": {"buckets": vec![row(); 8], "seconds": [[1, 2, 3]], "keys_unwatched": 0},
                "skips": {"counts": [0, 0, 0, 0, 0], "examples": []},
            },
            "largest": [5], "keysizes": [], "keys_seen": 1, "keys_matched": 1, "duplicates": 0,
        })
    }

    fn content() -> Value {
        json!({
            "told": {"--db": "All"},
            "files": [],
            "checkpoint": {
                "server": {"node": "h:1", "run_id": "r", "role": "Primary"},
                "databases": [[0, 5]],
                "done": [],
                "begun": {"db": 0, "cursor": u64::MAX, "sums_before": sums()},
                "sums": sums(),
                "keysizes_before": null,
                "maybe_counted_twice": null,
            },
        })
    }

    fn written(body: &str) -> Vec<u8> {
        format!("bigkeys-checkpoint {VERSION} {}\n{body}", body.len()).into_bytes()
    }

    #[test]
    fn a_checkpoint_comes_back_as_it_was() {
        let read = parse(&written(&content().to_string())).expect("it is whole");
        let again = serde_json::to_value(&read).expect("it can be written");
        assert_eq!(again, content());
        assert_eq!(read.checkpoint.keys_seen(), 1);
    }

    #[test]
    fn a_checkpoint_cut_off_anywhere_is_refused() {
        let whole = written(&content().to_string());
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn what_no_scan_writes_is_refused() {
        let deep = "[".repeat(1 << 20);
        assert!(parse(&written(&deep)).is_err_and(|why| why.starts_with("it is damaged")));
        let other = b"bigkeys-checkpoint 999 0\n";
        assert!(parse(other).is_err_and(|why| why.contains("another version")));
        for wrong in [&b"\n"[..], b"\xff\n", b"bigkeys-checkpoint 1 18446744073709551616\n{}", b"a,b\n1,2\n"]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        let places = [
            "/checkpoint/sums/tally/levels/0",
            "/checkpoint/sums/tally/skips/counts/4",
            "/checkpoint/sums/tally/census/other/keys",
            "/checkpoint/sums/tally/prefixes/1/total/keys_unjudged",
            "/checkpoint/sums/tally/expiry/keys_unwatched",
        ];
        for place in places {
            let mut content = content();
            *content.pointer_mut(place).expect("it is there") = json!(u64::MAX);
            assert!(parse(&written(&content.to_string())).is_err(), "{place}");
        }
    }
}
