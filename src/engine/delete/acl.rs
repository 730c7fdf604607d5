//! The smallest rule that lets a user delete.

use crate::engine::key::KeyName;
use crate::engine::scan::{AclKeys, Databases, acl_key_patterns, acl_reading_commands};

use super::config::DeleteConfig;
use super::method::Method;
use super::tombstone::TOMBSTONE_PREFIX;

/// Check and act in one step: by a script, or between WATCH and EXEC. The second is also how the server is
/// asked which of the others this user may call.
const ONE_STEP: [&str; 6] = ["eval", "watch", "unwatch", "multi", "exec", "discard"];

/// What each deletion may end with; DEL where UNLINK is not to be had.
const REMOVE: [&str; 2] = ["unlink", "del"];

/// Adding throw-away members, and taking them back where the key is not deleted after all.
const PAD: [&str; 8] = ["rpush", "sadd", "zadd", "hset", "ltrim", "srem", "zrem", "hdel"];

/// Taking apart under another name.
const CHUNKED: [&str; 13] = [
    "renamenx",
    "persist",
    "sscan",
    "srem",
    "hscan",
    "hkeys",
    "hdel",
    "zremrangebyrank",
    "ltrim",
    "xtrim",
    "xpending",
    "xack",
    "xgroup|destroy",
];

/// Through an empty database.
const QUARANTINE: [&str; 4] = ["select", "dbsize", "move", "flushdb"];

/// What the server's own instruments saw of the run.
const HELPFUL: [&str; 2] = ["latency|latest", "slowlog|get"];

/// Which keys a deletion names.
#[derive(Debug, Clone, Copy)]
pub enum Named<'a> {
    /// Those that it finds by its filters.
    ByFilter,
    /// These, in one database.
    Keys(&'a [KeyName], u32),
    /// Those in a file, whatever they are.
    InFile,
}

/// Returns the smallest rule that lets a user do this deletion, as arguments of `ACL SETUSER`.
pub fn acl_rule(config: &DeleteConfig, named: Named<'_>) -> String {
    let keys = match named {
        Named::ByFilter => AclKeys::Globs(&config.filter.globs),
        Named::Keys(keys, _) => AclKeys::Names(keys),
        Named::InFile => AclKeys::All,
    };
    let mut words = vec!["resetkeys".to_owned(), "-@all".to_owned()];
    let mut patterns = acl_key_patterns(keys);
    let mut commands: Vec<&str> = acl_reading_commands().filter(|command| *command != "scan").collect();
    if matches!(named, Named::ByFilter) {
        commands.push("scan");
    }
    commands.extend(HELPFUL);
    let is_in_0 = match named {
        Named::ByFilter => config.databases == Databases::Only(vec![0]),
        Named::Keys(_, db) => db == 0,
        Named::InFile => false,
    };
    if !is_in_0 {
        commands.push("select");
    }
    let methods = &config.methods;
    let may = |method| methods.forced.is_none_or(|forced| forced == method);
    commands.extend(ONE_STEP);
    if methods.forced == Some(Method::Expire) {
        commands.push("pexpire");
    } else {
        commands.extend(REMOVE);
    }
    if may(Method::Pad) {
        commands.extend(PAD);
    }
    if may(Method::Chunked) {
        commands.extend(CHUNKED);
        patterns.push(format!("~{TOMBSTONE_PREFIX}*"));
    }
    if methods.quarantine_db.is_some() && may(Method::Quarantine) {
        commands.extend(QUARANTINE);
    }
    if config.lazy_expire_while_running {
        commands.push("config|set");
    }
    let mut told = std::collections::HashSet::new();
    commands.retain(|command| told.insert(*command));
    words.extend(patterns);
    words.extend(commands.into_iter().map(|command| format!("+{command}")));
    words.join(" ")
}

/// Returns what to know about the rule of [`acl_rule`].
pub fn acl_remarks() -> Vec<String> {
    vec![
        "it is the rule for these flags, --safe or not; a preview needs no more than `bigkeys scan --print-acl`"
            .to_owned(),
        "where the server has it, add +client|no-touch (from 7.2)".to_owned(),
        "for a cluster, add +cluster|slots, +cluster|nodes, +readonly, +script|load and +evalsha".to_owned(),
        "without a permission the deletion looks for another way, and says in the audit which it took".to_owned(),
    ]
}
