//! The smallest rule that lets a user scan.
//!
//! A server refuses a rule that names a command it does not have, so the rule holds what every server
//! from 6.0 on knows, and what newer ones have besides is told apart.

use crate::engine::key::KeyName;

use super::config::{Databases, ScanConfig};

/// What each scan sends, on servers of any age. None of them writes.
const COMMANDS: [&str; 19] = [
    "ping",
    "info",
    "scan",
    "type",
    "pttl",
    "memory|usage",
    "object|encoding",
    "object|idletime",
    "object|freq",
    "strlen",
    "llen",
    "scard",
    "zcard",
    "hlen",
    "xlen",
    "lindex",
    "lrange",
    "xinfo|stream",
    "xinfo|groups",
];

/// What helps, and what a scan can do without: a name in CLIENT LIST, buffers that are not evicted, and the
/// settings.
const HELPFUL: [&str; 3] = ["client|setname", "client|no-evict", "config|get"];

/// What newer servers have besides, and since when.
const NEWER: [(&str, &str); 3] = [
    ("client|no-touch", "from 7.2"),
    ("vcard", "from Redis 8.0, for vector sets"),
    ("arcount", "from Redis 8.8, for arrays"),
];

/// Which keys a rule is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AclKeys<'a> {
    /// Every key.
    All,
    /// Those that match one of these.
    Globs(&'a [Vec<u8>]),
    /// These.
    Names(&'a [KeyName]),
}

/// Returns the patterns of a rule. All keys, where one of them cannot be written: a rule has no way to quote
/// a blank.
pub(crate) fn acl_key_patterns(keys: AclKeys<'_>) -> Vec<String> {
    let writable = |bytes: &[u8]| {
        let is_writable =
            !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_graphic() && !b"\"'".contains(byte));
        is_writable.then(|| String::from_utf8_lossy(bytes).into_owned())
    };
    let patterns: Option<Vec<String>> = match keys {
        AclKeys::All => None,
        AclKeys::Globs(globs) => globs.iter().map(|glob| Some(format!("~{}", writable(glob)?))).collect(),
        AclKeys::Names(names) => {
            names.iter().map(|name| Some(format!("~{}", literal(&writable(name.as_bytes())?)))).collect()
        }
    };
    patterns.filter(|patterns| !patterns.is_empty()).unwrap_or_else(|| vec!["~*".into()])
}

/// Returns the glob that matches this name and no other.
fn literal(name: &str) -> String {
    let mut glob = String::with_capacity(name.len());
    for character in name.chars() {
        if "*?[]\\".contains(character) {
            glob.push('\\');
        }
        glob.push(character);
    }
    glob
}

/// Returns what a scan sends that reads, on servers of any age.
pub(crate) fn acl_reading_commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.into_iter().chain(HELPFUL)
}

/// Returns the smallest rule that lets a user do this scan, as arguments of `ACL SETUSER`.
pub fn acl_rule(config: &ScanConfig) -> String {
    let mut words = vec!["resetkeys".to_owned(), "-@all".to_owned()];
    words.extend(acl_key_patterns(AclKeys::Globs(&config.filter.globs)));
    words.extend(acl_reading_commands().map(|command| format!("+{command}")));
    if config.targets.iter().any(|target| target.databases != Databases::Only(vec![0])) {
        words.push("+select".into());
    }
    if config.exact_lists {
        words.push("+debug|object".into());
    }
    words.join(" ")
}

/// Returns what to know about the rule of [`acl_rule`].
pub fn acl_remarks() -> Vec<String> {
    let newer = NEWER.map(|(command, since)| format!("+{command} ({since})")).join(", ");
    vec![
        format!("where the server has them, add {newer}"),
        "for a cluster, add +cluster|slots, +cluster|nodes and +readonly; Sentinels have users of their own, who need \
         +sentinel"
            .to_owned(),
        "from 7.0 on, %R~ instead of ~ says that keys are only read".to_owned(),
        "before it scans, bigkeys tries what else this user may call; where the rule denies that, the server \
         notes it in its ACL LOG"
            .to_owned(),
        "without a permission the scan still runs: it says which it missed, and leaves unknown what it could not ask"
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_the_keys_that_were_meant_or_for_all() {
        let names = |names: &[&str]| names.iter().map(|name| KeyName::from(*name)).collect::<Vec<_>>();
        let patterns = |keys: &[&str]| acl_key_patterns(AclKeys::Names(&names(keys)));
        assert_eq!(patterns(&["a:1", "b*[x]?"]), ["~a:1", "~b\\*\\[x\\]\\?"]);
        assert_eq!(patterns(&["a:1", "with a blank"]), ["~*"]);
        assert_eq!(patterns(&["\u{e9}"]), ["~*"]);
        assert_eq!(acl_key_patterns(AclKeys::Globs(&[b"a:*".to_vec()])), ["~a:*"]);
        assert_eq!(acl_key_patterns(AclKeys::Globs(&[])), ["~*"]);
        assert_eq!(acl_key_patterns(AclKeys::All), ["~*"]);
    }
}
