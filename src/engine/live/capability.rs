//! Finds out what a server is and what this user may call. Nothing is written, and no live value is
//! looked at.
//!
//! Reading commands are tried on a key that does not exist. For the two that would act (`UNLINK`,
//! `EVAL`) the server's own check is used: inside `MULTI` it refuses at once what the user may not
//! call, and `DISCARD` throws the rest away. Nothing is sent unless `MULTI` was granted, and the key
//! named there is random, so even a proxy that forgets the `MULTI` has nothing to delete.

use std::collections::BTreeMap;

use redis::{Pipeline, Value};

use super::link::{Link, LinkError};
use super::random::random;
use super::reply::{Refusal, RefusalKind, Reply, count, field, text};
use crate::engine::key::{
    Access, Allocator, EncodingLimits, Flavour, Lazyfree, ListNodeLimit, Permission, Role, ServerProfile,
    Version,
};

/// Settings that the verdicts and the report use, by pattern: one pattern a call is all that Redis 6
/// takes.
const CONFIG_PATTERNS: [&str; 8] = [
    "lazyfree-lazy-*",
    "list-compress-depth",
    "*-max-listpack-*",
    "*-max-ziplist-*",
    "set-max-intset-entries",
    "stream-node-max-*",
    "databases",
    "maxmemory-policy",
];

/// What a probe gives.
#[derive(Debug, Clone)]
pub struct Probe {
    /// What was found out.
    pub profile: ServerProfile,
    /// Whether the server was not ready for part of it (`LOADING`, `BUSY`), so that it should be asked again.
    pub is_hasty: bool,
    /// Whether the connection is as it was. Not where MULTI is granted and DISCARD refused: then it must
    /// be thrown away.
    pub link_is_clean: bool,
}

/// Probes a server.
///
/// # Errors
/// When the connection breaks. A refusal is no error but a finding.
pub async fn probe_server(link: &Link, node: String) -> Result<Probe, LinkError> {
    let probe_key = format!("bigkeys:probe:{:016x}{:016x}", random(), random());
    let info = info(link).await?;
    let mut access = BTreeMap::new();
    access.insert(
        Access::Info,
        match &info {
            Ok(_) => Permission::Allowed,
            Err(refusal) => permission(refusal),
        },
    );
    let mut fields = info.unwrap_or_default();
    if !fields.contains_key("redis_version") {
        fields.extend(hello(link).await?);
    }
    let config = config(link).await?;
    access.insert(
        Access::ConfigGet,
        match &config {
            Ok(_) => Permission::Allowed,
            Err(refusal) => permission(refusal),
        },
    );
    let settings = config.unwrap_or_default();
    let policy = fields.get("maxmemory_policy").or_else(|| settings.get("maxmemory-policy")).cloned();
    access.extend(reading_access(link, &probe_key, policy.as_deref()).await?);
    let is_hasty = access.values().any(|permission| *permission == Permission::Unknown);
    let (acting, link_is_clean) = acting_access(link, &probe_key).await?;
    access.extend(acting);

    let (flavour, version) = identity(&fields);
    let number = |name: &str| fields.get(name).and_then(|value| value.parse::<u64>().ok());
    let profile = ServerProfile {
        node,
        flavour,
        version,
        run_id: fields.get("run_id").cloned(),
        role: match fields.get("role").map(String::as_str) {
            Some("master") => Role::Primary,
            Some("slave" | "replica") => Role::Replica,
            _ => Role::Unknown,
        },
        cluster: fields.get("cluster_enabled").is_some_and(|value| value == "1")
            || fields.get("redis_mode").is_some_and(|mode| mode == "cluster"),
        allocator: match fields.get("mem_allocator").map(String::as_str) {
            Some(name) if name.starts_with("jemalloc") => Allocator::Jemalloc,
            Some("libc") => Allocator::Libc,
            _ => Allocator::Unknown,
        },
        maxmemory_policy: policy,
        used_memory_bytes: number("used_memory"),
        databases: settings.get("databases").and_then(|value| value.parse().ok()),
        lazyfree: lazyfree(&settings),
        limits: limits(settings),
        access,
    };
    Ok(Probe { profile, is_hasty, link_is_clean })
}

/// Asks whether the server serves: `Err` says why not (`LOADING`, `BUSY`).
///
/// # Errors
/// When the connection breaks.
pub async fn is_ready(link: &Link) -> Result<Result<(), String>, LinkError> {
    match link.command(&redis::cmd("PING")).await? {
        Err(refusal) if refusal.kind == RefusalKind::NotNow => Ok(Err(refusal.message)),
        _ => Ok(Ok(())),
    }
}

/// Selects a database; a refusal says why not.
///
/// # Errors
/// When the connection breaks.
pub async fn select(link: &Link, db: u32) -> Result<Result<(), Refusal>, LinkError> {
    Ok(link.command(redis::cmd("SELECT").arg(db)).await?.map(|_| ()))
}

/// Asks for the `run_id`, to see whether a server is still the process it was.
///
/// # Errors
/// When the connection breaks.
pub async fn run_id(link: &Link) -> Result<Option<String>, LinkError> {
    let reply = link.command(redis::cmd("INFO").arg("server")).await?;
    Ok(reply.ok().and_then(|value| text(&value)).and_then(|body| parse_info(&body).remove("run_id")))
}

/// Returns the databases that hold keys with their number of keys, by `INFO keyspace`. `None`: refused.
///
/// # Errors
/// When the connection breaks.
pub async fn databases_with_keys(link: &Link) -> Result<Option<BTreeMap<u32, u64>>, LinkError> {
    let reply = link.command(redis::cmd("INFO").arg("keyspace")).await?;
    let Some(body) = reply.ok().and_then(|value| text(&value)) else { return Ok(None) };
    // Anything else (an odd proxy, a `QUEUED`) does not say that there are no keys.
    if !body.lines().any(|line| line.trim_end() == "# Keyspace") {
        return Ok(None);
    }
    let databases = parse_info(&body)
        .into_iter()
        .filter_map(|(name, value)| {
            let db = name.strip_prefix("db")?.parse().ok()?;
            let keys = value.split(',').find_map(|part| part.strip_prefix("keys="))?.parse().ok()?;
            Some((db, keys))
        })
        .collect();
    Ok(Some(databases))
}

/// Asks for the number of keys in the selected database. `None`: refused.
///
/// # Errors
/// When the connection breaks.
pub async fn dbsize(link: &Link) -> Result<Option<u64>, LinkError> {
    Ok(link.command(&redis::cmd("DBSIZE")).await?.ok().as_ref().and_then(count))
}

async fn info(link: &Link) -> Result<Result<BTreeMap<String, String>, Refusal>, LinkError> {
    let reply = link.command(&redis::cmd("INFO")).await?;
    Ok(reply.map(|value| parse_info(&text(&value).unwrap_or_default())))
}

/// `HELLO` tells the product and its version to users who may not call INFO (Redis >= 6.0).
async fn hello(link: &Link) -> Result<BTreeMap<String, String>, LinkError> {
    let mut fields = BTreeMap::new();
    if let Ok(value) = link.command(&redis::cmd("HELLO")).await? {
        let word = |name: &str| field(&value, name).and_then(text);
        let server = word("server").unwrap_or_default();
        if let Some(version) = word("version") {
            fields.insert(
                if server == "redis" { "redis_version".to_owned() } else { format!("{server}_version") },
                version,
            );
        }
        fields.insert("server_name".to_owned(), server);
        fields.extend(word("role").map(|role| ("role".to_owned(), role)));
        fields.extend(word("mode").map(|mode| ("redis_mode".to_owned(), mode)));
    }
    Ok(fields)
}

/// Parses INFO's `name:value` lines; sections and anything else are passed over.
pub(super) fn parse_info(body: &str) -> BTreeMap<String, String> {
    body.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
        .collect()
}

/// Products that report a `redis_version` for compatibility, by the field with their own.
const OTHERS: [(&str, &str); 3] =
    [("dragonfly_version", "Dragonfly"), ("kvrocks_version", "Kvrocks"), ("keydb_version", "KeyDB")];

fn identity(fields: &BTreeMap<String, String>) -> (Flavour, Version) {
    let version = |name: &str| fields.get(name).and_then(|value| Version::parse(value));
    if let Some(version) = version("valkey_version") {
        return (Flavour::Valkey, version);
    }
    for (name, product) in OTHERS {
        if let Some(value) = fields.get(name) {
            let digits = value.trim_start_matches(|c: char| !c.is_ascii_digit());
            return (Flavour::Other(product.into()), Version::parse(digits).unwrap_or_default());
        }
    }
    match version("redis_version") {
        Some(version) => (Flavour::Redis, version),
        None => (Flavour::Other("unknown".into()), Version::default()),
    }
}

async fn config(link: &Link) -> Result<Result<BTreeMap<String, String>, Refusal>, LinkError> {
    let mut pipeline = redis::pipe();
    for pattern in CONFIG_PATTERNS {
        pipeline.cmd("CONFIG").arg("GET").arg(pattern);
    }
    let mut settings = BTreeMap::new();
    for reply in link.pipeline(&pipeline).await? {
        match reply {
            Ok(Value::Array(items)) => settings
                .extend(items.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))),
            Ok(Value::Map(pairs)) => {
                settings.extend(pairs.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))));
            }
            Ok(_) => {}
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    Ok(Ok(settings))
}

async fn reading_access(
    link: &Link,
    probe_key: &str,
    policy: Option<&str>,
) -> Result<Vec<(Access, Permission)>, LinkError> {
    let mut pipeline: Pipeline = redis::pipe();
    pipeline.cmd("MEMORY").arg("USAGE").arg(probe_key);
    pipeline.cmd("OBJECT").arg("ENCODING").arg(probe_key);
    pipeline.cmd("OBJECT").arg("IDLETIME").arg(probe_key);
    pipeline.cmd("OBJECT").arg("FREQ").arg(probe_key);
    pipeline.cmd("DEBUG").arg("OBJECT").arg(probe_key);
    pipeline.cmd("XINFO").arg("STREAM").arg(probe_key);
    pipeline.cmd("CLIENT").arg("NO-TOUCH").arg("ON");
    pipeline.cmd("CLIENT").arg("NO-EVICT").arg("ON");
    let subjects = [
        Access::MemoryUsage,
        Access::ObjectEncoding,
        Access::ObjectIdletime,
        Access::ObjectFreq,
        Access::DebugObject,
        Access::Xinfo,
        Access::ClientNoTouch,
        Access::ClientNoEvict,
    ];
    let lfu = policy.map(|policy| policy.contains("lfu"));
    let replies = link.pipeline(&pipeline).await?;
    Ok(subjects
        .into_iter()
        .zip(replies)
        .map(|(access, reply)| {
            let found = match reply {
                Ok(_) => Permission::Allowed,
                Err(refusal) => permission(&refusal),
            };
            // A server answers nil for a missing key before it looks at its policy.
            let useless = match access {
                Access::ObjectFreq => lfu == Some(false),
                Access::ObjectIdletime => lfu == Some(true),
                _ => false,
            };
            (access, if found == Permission::Allowed && useless { Permission::NotApplicable } else { found })
        })
        .collect())
}

async fn acting_access(link: &Link, probe_key: &str) -> Result<(Vec<(Access, Permission)>, bool), LinkError> {
    let unknown = vec![(Access::Unlink, Permission::Unknown), (Access::Eval, Permission::Unknown)];
    if !matches!(link.command(&redis::cmd("MULTI")).await?, Ok(Value::Okay)) {
        return Ok((unknown, true));
    }
    let mut pipeline = redis::pipe();
    pipeline.cmd("UNLINK").arg(probe_key);
    pipeline.cmd("EVAL").arg("return 0").arg(0);
    pipeline.cmd("DISCARD");
    let replies = link.pipeline(&pipeline).await?;
    let found = |reply: &Reply| match reply {
        Ok(value) if text(value).is_some_and(|word| word == "QUEUED") => Permission::Allowed,
        Ok(_) => Permission::Unknown,
        Err(refusal) => permission(refusal),
    };
    let link_is_clean = matches!(replies.last(), Some(Ok(Value::Okay)));
    let access =
        unknown.into_iter().zip(&replies).map(|((access, _), reply)| (access, found(reply))).collect();
    Ok((access, link_is_clean))
}

fn permission(refusal: &Refusal) -> Permission {
    match refusal.kind {
        RefusalKind::CommandDenied => Permission::Denied,
        RefusalKind::UnknownCommand => Permission::Unsupported,
        // The command itself was let through: the server went on to look at the key.
        RefusalKind::KeyDenied | RefusalKind::WrongType | RefusalKind::Moved => Permission::Allowed,
        RefusalKind::NotNow | RefusalKind::AuthNeeded => Permission::Unknown,
        RefusalKind::Other => {
            let message = refusal.message.to_ascii_lowercase();
            if message.contains("no such key") {
                Permission::Allowed
            } else if message.contains("lfu maxmemory policy") {
                Permission::NotApplicable
            } else if message.contains("syntax error") || message.contains("wrong number of arguments") {
                Permission::Unsupported
            } else {
                Permission::Unknown
            }
        }
    }
}

fn lazyfree(settings: &BTreeMap<String, String>) -> Lazyfree {
    let switch = |name: &str| settings.get(name).map(|value| value == "yes");
    Lazyfree {
        user_del: switch("lazyfree-lazy-user-del"),
        expire: switch("lazyfree-lazy-expire"),
        server_del: switch("lazyfree-lazy-server-del"),
        eviction: switch("lazyfree-lazy-eviction"),
        user_flush: switch("lazyfree-lazy-user-flush"),
    }
}

fn limits(settings: BTreeMap<String, String>) -> EncodingLimits {
    let list_node = settings
        .get("list-max-listpack-size")
        .or_else(|| settings.get("list-max-ziplist-size"))
        .and_then(|value| value.parse().ok())
        .map(ListNodeLimit::from_setting)
        .unwrap_or_default();
    EncodingLimits { list_node, settings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_is_known_by_its_own_version() {
        let body = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
        assert_eq!(identity(&parse_info(body)), (Flavour::Valkey, Version::new(9, 1, 2)));
    }

    #[test]
    fn a_server_that_names_no_version_is_unknown_and_not_redis_zero() {
        assert_eq!(identity(&BTreeMap::new()), (Flavour::Other("unknown".into()), Version::default()));
        let dragonfly = parse_info("redis_version:7.4.0\r\ndragonfly_version:df-v1.30.0\r\n");
        assert_eq!(identity(&dragonfly), (Flavour::Other("Dragonfly".into()), Version::new(1, 30, 0)));
    }

    #[test]
    fn a_key_that_is_denied_is_not_a_command_that_is_denied() {
        let refusal = |kind| Refusal { kind, message: String::new() };
        assert_eq!(permission(&refusal(RefusalKind::KeyDenied)), Permission::Allowed);
        assert_eq!(permission(&refusal(RefusalKind::CommandDenied)), Permission::Denied);
    }
}
