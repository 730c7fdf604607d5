//! `--targets FILE`: many servers, each with settings of its own. Secrets are named, not written down.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cli::args::{ConnectArgs, ServerUrl};
use crate::cli::error::{CommandError, ErrorKind};
use crate::cli::surroundings::Surroundings;

use super::{Given, Whence};

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Servers and clusters in one file.
const TARGETS_MAX: usize = 1_000;

/// A target, as if it had been typed.
pub(super) struct Typed {
    pub(super) args: ConnectArgs,
    pub(super) around: Surroundings,
    url: String,
}

impl Typed {
    pub(super) fn url(&self) -> Given<'_> {
        Given { text: &self.url, whence: Whence::File }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetsFile {
    #[serde(default)]
    target: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    url: String,
    user: Option<String>,
    password_env: Option<String>,
    password_file: Option<PathBuf>,
    db: Option<Dbs>,
    #[serde(default)]
    cluster: bool,
    #[serde(default)]
    one_node: bool,
    sentinel: Option<String>,
    cacert: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    sni: Option<String>,
    #[serde(default)]
    insecure: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Dbs {
    One(u32),
    Several(Vec<u32>),
}

/// Reads the file.
pub(super) fn read(
    path: &Path,
    args: &ConnectArgs,
    around: &Surroundings,
    warnings: &mut Vec<String>,
) -> Result<Vec<Typed>, CommandError> {
    let unreadable = |error| CommandError::new(ErrorKind::Input(path.to_owned())).because(error);
    let file = fs::File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(wrong(path, &format!("it has {bytes} bytes, and {FILE_BYTES_MAX} are the most")));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let is_toml = path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("toml"));
    let targets =
        if is_toml { from_toml(path, &text, args, around)? } else { from_lines(&text, args, around) };
    if targets.is_empty() {
        return Err(wrong(path, "it names no target"));
    }
    if targets.len() > TARGETS_MAX {
        return Err(wrong(path, &format!("it names more than {TARGETS_MAX} targets")));
    }
    let holds_password = |typed: &Typed| ServerUrl::parse(&typed.url).is_ok_and(|url| url.password.is_some());
    if targets.iter().any(holds_password)
        && let Some(warning) = super::too_open(&file, path)
    {
        warnings.push(format!("{warning}, and there are passwords in it"));
    }
    Ok(targets)
}

fn from_lines(text: &str, args: &ConnectArgs, around: &Surroundings) -> Vec<Typed> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| Typed { args: args.clone(), around: around.clone(), url: line.to_owned() })
        .collect()
}

fn from_toml(
    path: &Path,
    text: &str,
    args: &ConnectArgs,
    around: &Surroundings,
) -> Result<Vec<Typed>, CommandError> {
    let file: TargetsFile = toml::from_str(text).map_err(|error| {
        // Its own words repeat the line, and that may hold a password.
        let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
        wrong(path, &format!("line {line}: {}", error.message()))
    })?;
    file.target
        .into_iter()
        .enumerate()
        .map(|(index, entry)| typed(path, index, entry, args, around))
        .collect()
}

fn typed(
    path: &Path,
    index: usize,
    entry: Entry,
    args: &ConnectArgs,
    around: &Surroundings,
) -> Result<Typed, CommandError> {
    let wrong = |why: &str| wrong(path, &format!("target {}: {why}", index + 1));
    let (mut args, mut around) = (args.clone(), around.clone());
    if [entry.cluster, entry.one_node, entry.sentinel.is_some()].iter().filter(|is| **is).count() > 1 {
        return Err(wrong("cluster, one_node and sentinel exclude one another"));
    }
    match (entry.password_env, entry.password_file) {
        (Some(_), Some(_)) => return Err(wrong("password_env and password_file exclude one another")),
        (Some(name), None) => {
            let password = around
                .variable(&name)
                .ok_or_else(|| wrong("the environment variable of password_env is not set"))?;
            (around.auth, args.password_file, args.askpass) = (Some(password), None, false);
        }
        (None, Some(file)) => (args.password_file, args.askpass) = (Some(file), false),
        (None, None) => {}
    }
    if entry.user.is_some() {
        args.user = entry.user;
    }
    if let Some(dbs) = entry.db {
        args.db = match dbs {
            Dbs::One(db) => vec![db],
            Dbs::Several(dbs) => dbs,
        };
        args.all_dbs = false;
    }
    args.deployment.cluster = entry.cluster;
    args.deployment.one_node = entry.one_node;
    args.deployment.sentinel = entry.sentinel;
    let tls = &mut args.tls;
    for (typed, said) in
        [(&mut tls.cacert, entry.cacert), (&mut tls.cert, entry.cert), (&mut tls.key, entry.key)]
    {
        if said.is_some() {
            *typed = said;
        }
    }
    if entry.sni.is_some() {
        tls.sni = entry.sni;
    }
    tls.insecure |= entry.insecure;
    if tls.cert.is_some() != tls.key.is_some() {
        return Err(wrong("cert and key go together"));
    }
    Ok(Typed { args, around, url: entry.url })
}

fn wrong(path: &Path, why: &str) -> CommandError {
    CommandError::usage(format!("cannot use `{}`: {why}", path.display()))
        .hint("a .toml file has a [[target]] with a url for each, any other file a URL on each line")
}
