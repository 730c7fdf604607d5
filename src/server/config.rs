//! Settings: what the embedder chooses at the start, and what CONFIG GET and SET know by name.
//! Parameters are data; what a change sets in motion is the caller's business.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::clock::{Clock, SystemClock};
use super::keyspace::Policy;
use super::value::limits::Limits;

/// How to start a server.
#[derive(Clone)]
pub struct Config {
    /// Where to listen; port 0 lets the system choose. `None` listens on no TCP port.
    pub listen: Option<SocketAddr>,
    /// A Unix socket to listen on as well. The file is created at start and removed at the end.
    pub unix_socket: Option<PathBuf>,
    /// Parameters under their Redis names, as a configuration file would set them.
    pub parameters: Vec<(String, String)>,
    /// Users beside the default one, or instead of it: names, and rules as ACL SETUSER takes them.
    pub users: Vec<(String, Vec<String>)>,
    /// Commands under another name, or, where that is empty, under none.
    pub renamed_commands: Vec<(String, String)>,
    /// What tells the time.
    pub clock: Arc<dyn Clock>,
    /// Seeds hashing and sampling, so that a run can be repeated. `None` takes one from the clock.
    pub seed: Option<u64>,
    /// End cleanly on SIGTERM and SIGINT. An embedder that handles signals itself leaves it off.
    pub handle_signals: bool,
    /// An RDB file to start from.
    pub load: Option<PathBuf>,
    /// Start from the file that SAVE writes, if it is there and `load` names no other.
    pub load_saved: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            unix_socket: None,
            parameters: Vec::new(),
            users: Vec::new(),
            renamed_commands: Vec::new(),
            clock: Arc::new(SystemClock::new()),
            seed: None,
            handle_signals: false,
            load: None,
            load_saved: false,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Parameters may hold a password.
        f.debug_struct("Config").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl Config {
    /// Adds a parameter under its Redis name.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Config {
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// The settings in force.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "one per yes/no parameter of Redis")]
pub(crate) struct Settings {
    pub(crate) port: i64,
    pub(crate) bind: String,
    pub(crate) unix_socket: String,
    pub(crate) databases: i64,
    pub(crate) requirepass: String,
    pub(crate) maxclients: i64,
    pub(crate) timeout_s: i64,
    pub(crate) hz: i64,
    pub(crate) maxmemory: i64,
    pub(crate) policy: Policy,
    pub(crate) maxmemory_samples: i64,
    pub(crate) lazy_eviction: bool,
    pub(crate) lazy_expire: bool,
    pub(crate) lazy_server_del: bool,
    pub(crate) lazy_user_del: bool,
    pub(crate) lazy_user_flush: bool,
    pub(crate) replica_lazy_flush: bool,
    pub(crate) active_expire_effort: i64,
    pub(crate) active_rehashing: bool,
    pub(crate) slowlog_slower_than_us: i64,
    pub(crate) slowlog_max_len: i64,
    pub(crate) latency_threshold_ms: i64,
    pub(crate) latency_tracking: bool,
    pub(crate) acl_log_max_len: i64,
    pub(crate) bulk_len_max: i64,
    pub(crate) query_buffer_max: i64,
    pub(crate) output_buffer_limit: String,
    pub(crate) busy_reply_threshold_ms: i64,
    pub(crate) list_compress_depth: i64,
    pub(crate) dir: String,
    pub(crate) db_filename: String,
    pub(crate) save: String,
    pub(crate) rdb_compression: bool,
    pub(crate) key_load_delay_us: i64,
    pub(crate) loading_interval_bytes: i64,
    pub(crate) enable_debug: DebugAccess,
    pub(crate) limits: Limits,
}

/// `enable-debug-command`: a sandbox allows DEBUG to local clients, where Redis says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DebugAccess {
    No,
    Yes,
    Local,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            port: 0,
            bind: "127.0.0.1".to_owned(),
            unix_socket: String::new(),
            databases: 16,
            requirepass: String::new(),
            maxclients: 10_000,
            timeout_s: 0,
            hz: 10,
            maxmemory: 0,
            policy: Policy::NoEviction,
            maxmemory_samples: 5,
            lazy_eviction: false,
            lazy_expire: false,
            lazy_server_del: false,
            lazy_user_del: false,
            lazy_user_flush: false,
            replica_lazy_flush: false,
            active_expire_effort: 1,
            active_rehashing: true,
            slowlog_slower_than_us: 10_000,
            slowlog_max_len: 128,
            latency_threshold_ms: 0,
            latency_tracking: true,
            acl_log_max_len: 128,
            bulk_len_max: 512 * 1024 * 1024,
            query_buffer_max: 1024 * 1024 * 1024,
            // Redis has no limit for normal clients. A sandbox shares a laptop with its clients.
            output_buffer_limit: "normal 1073741824 268435456 60 slave 268435456 67108864 60 \
                 pubsub 33554432 8388608 60"
                .to_owned(),
            busy_reply_threshold_ms: 5000,
            list_compress_depth: 0,
            dir: ".".to_owned(),
            db_filename: "dump.rdb".to_owned(),
            save: String::new(),
            rdb_compression: true,
            key_load_delay_us: 0,
            loading_interval_bytes: 2 * 1024 * 1024,
            enable_debug: DebugAccess::Local,
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// Returns the file that SAVE writes.
    pub(crate) fn db_path(&self) -> PathBuf {
        Path::new(&self.dir).join(&self.db_filename)
    }

    /// Returns the hard limit on the reply buffer of a normal client, in bytes.
    pub(crate) fn reply_buffer_max(&self) -> usize {
        let mut words = self.output_buffer_limit.split_whitespace();
        words.find(|word| *word == "normal");
        let hard = words.next().and_then(|word| parse_memory(word.as_bytes())).unwrap_or(0);
        if hard <= 0 { usize::MAX } else { usize::try_from(hard).unwrap_or(usize::MAX) }
    }
}

/// Where a parameter's value is and what it may be.
enum Kind {
    Bool(fn(&mut Settings) -> &mut bool),
    Int(i64, i64, fn(&mut Settings) -> &mut i64),
    Count(usize, fn(&mut Settings) -> &mut usize),
    Node(fn(&mut Settings) -> &mut i32),
    Memory(fn(&mut Settings) -> &mut i64),
    MemoryCount(fn(&mut Settings) -> &mut usize),
    Text(fn(&mut Settings) -> &mut String),
    BufferLimits(fn(&mut Settings) -> &mut String),
    Policy(fn(&mut Settings) -> &mut Policy),
    Debug(fn(&mut Settings) -> &mut DebugAccess),
    /// Known by name, fixed in value: it can be read, and set to what it is.
    Fixed(&'static str),
}

struct Parameter {
    name: &'static str,
    alias: Option<&'static str>,
    mutable: bool,
    kind: Kind,
}

const fn parameter(name: &'static str, kind: Kind) -> Parameter {
    Parameter { name, alias: None, mutable: true, kind }
}

impl Parameter {
    /// The name it had before Redis 7.0, which still works.
    const fn alias(mut self, alias: &'static str) -> Parameter {
        self.alias = Some(alias);
        self
    }

    /// It can only be set at the start.
    const fn immutable(mut self) -> Parameter {
        self.mutable = false;
        self
    }
}

const INT_MAX: i64 = i32::MAX as i64;

/// All parameters. The order is that of `CONFIG GET *`.
const PARAMETERS: &[Parameter] = &[
    parameter("port", Kind::Int(0, 65535, |s| &mut s.port)).immutable(),
    parameter("bind", Kind::Text(|s| &mut s.bind)).immutable(),
    parameter("unixsocket", Kind::Text(|s| &mut s.unix_socket)).immutable(),
    parameter("databases", Kind::Int(1, INT_MAX, |s| &mut s.databases)).immutable(),
    parameter("requirepass", Kind::Text(|s| &mut s.requirepass)),
    parameter("maxclients", Kind::Int(1, 4_294_967_295, |s| &mut s.maxclients)),
    parameter("timeout", Kind::Int(0, INT_MAX, |s| &mut s.timeout_s)),
    parameter("hz", Kind::Int(0, INT_MAX, |s| &mut s.hz)),
    parameter("maxmemory", Kind::Memory(|s| &mut s.maxmemory)),
    parameter("maxmemory-policy", Kind::Policy(|s| &mut s.policy)),
    parameter("maxmemory-samples", Kind::Int(1, INT_MAX, |s| &mut s.maxmemory_samples)),
    parameter("maxmemory-eviction-tenacity", Kind::Fixed("10")),
    parameter("lazyfree-lazy-eviction", Kind::Bool(|s| &mut s.lazy_eviction)),
    parameter("lazyfree-lazy-expire", Kind::Bool(|s| &mut s.lazy_expire)),
    parameter("lazyfree-lazy-server-del", Kind::Bool(|s| &mut s.lazy_server_del)),
    parameter("lazyfree-lazy-user-del", Kind::Bool(|s| &mut s.lazy_user_del)),
    parameter("lazyfree-lazy-user-flush", Kind::Bool(|s| &mut s.lazy_user_flush)),
    parameter("replica-lazy-flush", Kind::Bool(|s| &mut s.replica_lazy_flush)).alias("slave-lazy-flush"),
    parameter("active-expire-effort", Kind::Int(1, 10, |s| &mut s.active_expire_effort)),
    parameter("activerehashing", Kind::Bool(|s| &mut s.active_rehashing)),
    parameter("slowlog-log-slower-than", Kind::Int(-1, i64::MAX, |s| &mut s.slowlog_slower_than_us)),
    parameter("slowlog-max-len", Kind::Int(0, i64::MAX, |s| &mut s.slowlog_max_len)),
    parameter("latency-monitor-threshold", Kind::Int(0, i64::MAX, |s| &mut s.latency_threshold_ms)),
    parameter("latency-tracking", Kind::Bool(|s| &mut s.latency_tracking)),
    parameter("latency-tracking-info-percentiles", Kind::Fixed("50 99 99.9")),
    parameter("acllog-max-len", Kind::Int(0, i64::MAX, |s| &mut s.acl_log_max_len)),
    parameter("proto-max-bulk-len", Kind::Memory(|s| &mut s.bulk_len_max)),
    parameter("client-query-buffer-limit", Kind::Memory(|s| &mut s.query_buffer_max)),
    parameter("client-output-buffer-limit", Kind::BufferLimits(|s| &mut s.output_buffer_limit)),
    parameter("busy-reply-threshold", Kind::Int(0, i64::MAX, |s| &mut s.busy_reply_threshold_ms))
        .alias("lua-time-limit"),
    parameter("list-max-listpack-size", Kind::Node(|s| &mut s.limits.list_max_listpack_size))
        .alias("list-max-ziplist-size"),
    parameter("list-compress-depth", Kind::Int(0, INT_MAX, |s| &mut s.list_compress_depth)),
    parameter("set-max-intset-entries", Kind::Count(1 << 30, |s| &mut s.limits.set_max_intset_entries)),
    parameter("set-max-listpack-entries", Kind::Count(COUNT_MAX, |s| &mut s.limits.set_max_listpack_entries)),
    parameter("set-max-listpack-value", Kind::Count(COUNT_MAX, |s| &mut s.limits.set_max_listpack_value)),
    parameter(
        "hash-max-listpack-entries",
        Kind::Count(COUNT_MAX, |s| &mut s.limits.hash_max_listpack_entries),
    )
    .alias("hash-max-ziplist-entries"),
    parameter("hash-max-listpack-value", Kind::MemoryCount(|s| &mut s.limits.hash_max_listpack_value))
        .alias("hash-max-ziplist-value"),
    parameter(
        "zset-max-listpack-entries",
        Kind::Count(COUNT_MAX, |s| &mut s.limits.zset_max_listpack_entries),
    )
    .alias("zset-max-ziplist-entries"),
    parameter("zset-max-listpack-value", Kind::MemoryCount(|s| &mut s.limits.zset_max_listpack_value))
        .alias("zset-max-ziplist-value"),
    parameter("stream-node-max-bytes", Kind::MemoryCount(|s| &mut s.limits.stream_node_max_bytes)),
    parameter("stream-node-max-entries", Kind::Count(COUNT_MAX, |s| &mut s.limits.stream_node_max_entries)),
    parameter("hll-sparse-max-bytes", Kind::MemoryCount(|s| &mut s.limits.hll_sparse_max_bytes)),
    parameter("dir", Kind::Text(|s| &mut s.dir)),
    parameter("dbfilename", Kind::Text(|s| &mut s.db_filename)),
    parameter("save", Kind::Text(|s| &mut s.save)),
    parameter("enable-debug-command", Kind::Debug(|s| &mut s.enable_debug)).immutable(),
    parameter("appendonly", Kind::Fixed("no")),
    parameter("appendfilename", Kind::Fixed("appendonly.aof")).immutable(),
    parameter("appenddirname", Kind::Fixed("appendonlydir")).immutable(),
    parameter("appendfsync", Kind::Fixed("everysec")),
    parameter("no-appendfsync-on-rewrite", Kind::Fixed("no")),
    parameter("auto-aof-rewrite-percentage", Kind::Fixed("100")),
    parameter("auto-aof-rewrite-min-size", Kind::Fixed("67108864")),
    parameter("aof-load-truncated", Kind::Fixed("yes")),
    parameter("aof-use-rdb-preamble", Kind::Fixed("yes")),
    parameter("aof-timestamp-enabled", Kind::Fixed("no")),
    parameter("aof-rewrite-incremental-fsync", Kind::Fixed("yes")),
    parameter("rdb-save-incremental-fsync", Kind::Fixed("yes")),
    parameter("rdb-del-sync-files", Kind::Fixed("no")),
    parameter("daemonize", Kind::Fixed("no")).immutable(),
    parameter("pidfile", Kind::Fixed("")).immutable(),
    parameter("logfile", Kind::Fixed("")).immutable(),
    parameter("always-show-logo", Kind::Fixed("no")).immutable(),
    parameter("oom-score-adj", Kind::Fixed("no")),
    parameter("oom-score-adj-values", Kind::Fixed("0 200 800")),
    parameter("disable-thp", Kind::Fixed("yes")).immutable(),
    parameter("repl-diskless-sync", Kind::Fixed("yes")),
    parameter("repl-diskless-sync-delay", Kind::Fixed("5")),
    parameter("repl-diskless-sync-max-replicas", Kind::Fixed("0")),
    parameter("repl-diskless-load", Kind::Fixed("disabled")),
    parameter("repl-disable-tcp-nodelay", Kind::Fixed("no")),
    parameter("replica-priority", Kind::Fixed("100")).alias("slave-priority"),
    parameter("replica-serve-stale-data", Kind::Fixed("yes")).alias("slave-serve-stale-data"),
    parameter("activedefrag", Kind::Fixed("no")),
    parameter("cluster-enabled", Kind::Fixed("no")).immutable(),
    parameter("dynamic-hz", Kind::Fixed("yes")),
    parameter("io-threads", Kind::Fixed("1")).immutable(),
    parameter("jemalloc-bg-thread", Kind::Fixed("yes")),
    parameter("lfu-decay-time", Kind::Fixed("1")),
    parameter("lfu-log-factor", Kind::Fixed("10")),
    parameter("loglevel", Kind::Fixed("notice")),
    parameter("maxmemory-clients", Kind::Fixed("0")),
    parameter("notify-keyspace-events", Kind::Fixed("")),
    parameter("protected-mode", Kind::Fixed("yes")),
    parameter("rdbcompression", Kind::Bool(|s| &mut s.rdb_compression)),
    parameter("key-load-delay", Kind::Int(0, INT_MAX, |s| &mut s.key_load_delay_us)),
    parameter(
        "loading-process-events-interval-bytes",
        Kind::Int(1024, INT_MAX, |s| &mut s.loading_interval_bytes),
    ),
    parameter("rdbchecksum", Kind::Fixed("yes")).immutable(),
    parameter("repl-backlog-size", Kind::Fixed("1048576")),
    parameter("replica-read-only", Kind::Fixed("yes")).alias("slave-read-only"),
    parameter("stop-writes-on-bgsave-error", Kind::Fixed("yes")),
    parameter("tcp-backlog", Kind::Fixed("511")).immutable(),
    parameter("tcp-keepalive", Kind::Fixed("300")),
];

/// A parameter as docs/compatibility.md shows it.
#[cfg(test)]
pub(super) struct ParameterDoc {
    pub(super) name: &'static str,
    pub(super) alias: Option<&'static str>,
    pub(super) default: String,
    pub(super) settable: &'static str,
}

#[cfg(test)]
pub(super) fn parameters() -> impl Iterator<Item = ParameterDoc> {
    let mut settings = Settings::default();
    PARAMETERS.iter().map(move |parameter| ParameterDoc {
        name: parameter.name,
        alias: parameter.alias,
        default: parameter.kind.text(&mut settings),
        settable: match (&parameter.kind, parameter.mutable) {
            (Kind::Fixed(_), _) => "no: it is what it is",
            (_, false) => "at the start",
            (_, true) => "any time",
        },
    })
}

const COUNT_MAX: usize = usize::MAX >> 1;

/// Why a parameter was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConfigError {
    Unknown,
    Invalid(String),
}

impl Settings {
    /// Returns the parameters that match, in order, under every name that does.
    pub(crate) fn matching(&mut self, wanted: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        for parameter in PARAMETERS {
            for name in [Some(parameter.name), parameter.alias].into_iter().flatten() {
                if wanted(name) {
                    found.push((name, parameter.kind.text(self)));
                }
            }
        }
        found
    }

    /// Sets one parameter. `starting` lifts the ban on those that cannot change later.
    ///
    /// # Errors
    /// Says what Redis would about the name or the value.
    pub(crate) fn set(&mut self, name: &str, value: &[u8], starting: bool) -> Result<(), ConfigError> {
        let parameter = find(name).ok_or(ConfigError::Unknown)?;
        if !parameter.mutable && !starting {
            return Err(ConfigError::Invalid("can't set immutable config".to_owned()));
        }
        parameter.kind.set(self, value).map_err(ConfigError::Invalid)
    }
}

/// Returns the name a parameter goes by today, if it is known.
pub(crate) fn canonical_name(name: &str) -> Option<&'static str> {
    find(name).map(|parameter| parameter.name)
}

fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| {
        let same = |known: &str| known.eq_ignore_ascii_case(name);
        same(parameter.name) || parameter.alias.is_some_and(same)
    })
}

impl Kind {
    fn text(&self, settings: &mut Settings) -> String {
        match self {
            Kind::Bool(field) => if *field(settings) { "yes" } else { "no" }.to_owned(),
            Kind::Int(_, _, field) | Kind::Memory(field) => field(settings).to_string(),
            Kind::Count(_, field) | Kind::MemoryCount(field) => field(settings).to_string(),
            Kind::Node(field) => field(settings).to_string(),
            Kind::Text(field) | Kind::BufferLimits(field) => field(settings).clone(),
            Kind::Policy(field) => {
                let policy = *field(settings);
                let named = Policy::NAMES.iter().find(|(_, known)| *known == policy);
                named.map_or("noeviction", |(name, _)| name).to_owned()
            }
            Kind::Debug(field) => match field(settings) {
                DebugAccess::No => "no",
                DebugAccess::Yes => "yes",
                DebugAccess::Local => "local",
            }
            .to_owned(),
            Kind::Fixed(value) => (*value).to_owned(),
        }
    }

    fn set(&self, settings: &mut Settings, value: &[u8]) -> Result<(), String> {
        match self {
            Kind::Bool(field) => {
                *field(settings) = match value.to_ascii_lowercase().as_slice() {
                    b"yes" => true,
                    b"no" => false,
                    _ => return Err("argument must be 'yes' or 'no'".to_owned()),
                };
            }
            Kind::Int(min, max, field) => *field(settings) = integer(value, *min, *max)?,
            Kind::Count(max, field) => {
                let max = i64::try_from(*max).unwrap_or(i64::MAX);
                *field(settings) = usize::try_from(integer(value, 0, max)?).unwrap_or(usize::MAX);
            }
            Kind::Node(field) => {
                let size = integer(value, i64::from(i32::MIN), i64::from(i32::MAX))?;
                *field(settings) = i32::try_from(size).unwrap_or(-2);
            }
            Kind::Memory(field) => *field(settings) = memory(value)?,
            Kind::MemoryCount(field) => {
                *field(settings) = usize::try_from(memory(value)?).unwrap_or(usize::MAX);
            }
            Kind::Text(field) => *field(settings) = String::from_utf8_lossy(value).into_owned(),
            Kind::BufferLimits(field) => {
                let limits = field(settings);
                *limits = buffer_limits(limits, &String::from_utf8_lossy(value))?;
            }
            Kind::Policy(field) => {
                let named =
                    Policy::NAMES.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(value));
                let Some((_, policy)) = named else {
                    return Err(one_of(Policy::NAMES.iter().map(|(name, _)| *name)));
                };
                *field(settings) = *policy;
            }
            Kind::Debug(field) => {
                *field(settings) = match value.to_ascii_lowercase().as_slice() {
                    b"no" => DebugAccess::No,
                    b"yes" => DebugAccess::Yes,
                    b"local" => DebugAccess::Local,
                    _ => return Err(one_of(["no", "yes", "local"])),
                };
            }
            Kind::Fixed(only) => return fixed(only, value),
        }
        Ok(())
    }
}

fn fixed(only: &str, value: &[u8]) -> Result<(), String> {
    let same_size = || parse_memory(value).is_some_and(|size| parse_memory(only.as_bytes()) == Some(size));
    if only.as_bytes().eq_ignore_ascii_case(value) || same_size() {
        return Ok(());
    }
    if matches!(only, "yes" | "no") && !matches!(value.to_ascii_lowercase().as_slice(), b"yes" | b"no") {
        return Err("argument must be 'yes' or 'no'".to_owned());
    }
    Err(format!("the bundled server only knows '{only}'"))
}

/// Puts limits of client classes into those there are: quadruples of class, hard and soft limit, seconds.
fn buffer_limits(limits: &str, changes: &str) -> Result<String, String> {
    let mut limits: Vec<String> = limits.split_whitespace().map(str::to_owned).collect();
    let changes: Vec<&str> = changes.split_whitespace().collect();
    let (quadruples, []) = changes.as_chunks::<4>() else {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    };
    for [class, hard, soft, seconds] in quadruples {
        let class = class.to_ascii_lowercase();
        let class = if class == "replica" { "slave" } else { &class };
        let Some(at) = limits.iter().step_by(4).position(|known| known == class) else {
            return Err("Invalid client class specified in buffer limit configuration.".to_owned());
        };
        let sizes = (parse_memory(hard.as_bytes()), parse_memory(soft.as_bytes()), seconds.parse::<u32>());
        let (Some(hard), Some(soft), Ok(seconds)) = sizes else {
            let why = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
            return Err(why.to_owned());
        };
        limits.splice(at * 4 + 1..at * 4 + 4, [hard, soft, seconds.into()].map(|number| number.to_string()));
    }
    Ok(limits.join(" "))
}

fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    format!("argument(s) must be one of the following: {}", names.join(", "))
}

fn integer(value: &[u8], min: i64, max: i64) -> Result<i64, String> {
    let number = super::number::parse_integer(value).ok_or("argument couldn't be parsed into an integer")?;
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(format!("argument must be between {min} and {max} inclusive"))
    }
}

fn memory(value: &[u8]) -> Result<i64, String> {
    parse_memory(value).ok_or_else(|| "argument must be a memory value".to_owned())
}

/// Parses `100`, `10kb`, `1g` and the like.
fn parse_memory(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?.to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: i64 = match unit {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1024,
        "m" => 1_000_000,
        "mb" => 1024 * 1024,
        "g" => 1_000_000_000,
        "gb" => 1024 * 1024 * 1024,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_set_by_either_name() {
        let mut settings = Settings::default();
        settings.set("Hash-Max-Ziplist-Entries", b"7", false).expect("a known parameter");
        let found = settings.matching(|name| name.starts_with("hash-max-") && name.ends_with("entries"));
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(_, value)| value == "7"));
    }

    #[test]
    fn refusals_use_the_words_of_redis() {
        let mut settings = Settings::default();
        for (name, value, why) in [
            ("maxmemory", "x", "argument must be a memory value"),
            ("hz", "x", "argument couldn't be parsed into an integer"),
            ("maxclients", "0", "argument must be between 1 and 4294967295 inclusive"),
            ("appendonly", "maybe", "argument must be 'yes' or 'no'"),
            ("databases", "17", "can't set immutable config"),
        ] {
            let refusal = settings.set(name, value.as_bytes(), false);
            assert_eq!(refusal, Err(ConfigError::Invalid(why.to_owned())), "{name} {value}");
        }
        assert_eq!(settings.set("no-such", b"1", false), Err(ConfigError::Unknown));
    }

    #[test]
    fn memory_has_two_kinds_of_kilo() {
        for (text, bytes) in
            [("10", Some(10)), ("1k", Some(1000)), ("1KB", Some(1024)), ("2gb", Some(2 << 30))]
        {
            assert_eq!(parse_memory(text.as_bytes()), bytes);
        }
        for text in ["", "-1", "1x", "99999999999gb"] {
            assert_eq!(parse_memory(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn every_default_can_be_set_to_itself() {
        let mut settings = Settings::default();
        for (name, value) in settings.matching(|_| true) {
            assert_eq!(settings.set(name, value.as_bytes(), true), Ok(()), "{name}");
        }
    }
}
