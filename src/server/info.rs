//! INFO: the numbers a server tells about itself, under the names Redis gives them.

use std::fmt::Write as _;
use std::fs;

use super::command::{Instance, Table};
use super::keyspace::{Keyspace, Policy};

/// The Redis version whose behaviour this server imitates.
pub(crate) const VERSION: &str = "7.2.4";

/// Sections in order; the second value says whether a plain INFO shows it.
const SECTIONS: &[(&str, bool)] = &[
    ("server", true),
    ("clients", true),
    ("memory", true),
    ("persistence", true),
    ("stats", true),
    ("replication", true),
    ("cpu", true),
    ("modules", true),
    ("commandstats", false),
    ("errorstats", true),
    ("latencystats", false),
    ("cluster", true),
    ("keyspace", true),
];

/// Writes the sections that were asked for; without any, those a plain INFO shows.
pub(crate) fn render(server: &Instance, keyspace: &Keyspace, wanted: &[String]) -> String {
    let asked = |name: &str| wanted.iter().any(|section| section == name);
    let mut text = String::new();
    for (name, by_default) in SECTIONS {
        let shown = if wanted.is_empty() || asked("default") {
            *by_default || asked(name)
        } else {
            asked(name) || asked("all") && *name != "modules" || asked("everything")
        };
        if !shown {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut section = Section { text: &mut text };
        section.title(name);
        match *name {
            "server" => server_section(&mut section, server),
            "clients" => clients_section(&mut section, server),
            "memory" => memory_section(&mut section, server, keyspace),
            "persistence" => persistence_section(&mut section, server, keyspace),
            "stats" => stats_section(&mut section, server, keyspace),
            "replication" => replication_section(&mut section, server),
            "cpu" => cpu_section(&mut section),
            "commandstats" => commandstats_section(&mut section, server),
            "errorstats" => errorstats_section(&mut section, server),
            "latencystats" => latencystats_section(&mut section, server),
            "cluster" => section.field("cluster_enabled", 0),
            "keyspace" => keyspace_section(&mut section, keyspace),
            _ => {}
        }
    }
    text
}

struct Section<'a> {
    text: &'a mut String,
}

impl Section<'_> {
    fn title(&mut self, name: &str) {
        let name = match name {
            "cpu" => "CPU".to_owned(),
            _ => name[..1].to_ascii_uppercase() + &name[1..],
        };
        // Writing to a String cannot fail.
        let _ = write!(self.text, "# {name}\r\n");
    }

    fn field(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    fn zeros(&mut self, names: &[&str]) {
        for name in names {
            self.field(name, 0);
        }
    }

    /// Writes bytes twice, once for people.
    fn bytes(&mut self, name: &str, bytes: usize) {
        self.field(name, bytes);
        self.field(&format!("{name}_human"), human(bytes));
    }
}

/// Returns bytes as Redis shows them to people: `1.50K`, `2.00M`.
fn human(bytes: usize) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64;
    for unit in ["B", "K", "M", "G"] {
        if value < 1024.0 {
            return format!("{value:.2}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.2}T")
}

fn server_section(section: &mut Section<'_>, server: &Instance) {
    let uptime_s = server.clock.monotonic_us().saturating_sub(server.started_us) / 1_000_000;
    section.field("redis_version", VERSION);
    section.field("redis_git_sha1", "00000000");
    section.field("redis_git_dirty", 0);
    section.field("redis_build_id", concat!("bigkeys-", env!("CARGO_PKG_VERSION")));
    section.field("redis_mode", "standalone");
    section.field("os", std::env::consts::OS);
    section.field("arch_bits", usize::BITS);
    section.field("monotonic_clock", "POSIX clock_gettime");
    section.field("multiplexing_api", "mio");
    section.field("process_id", std::process::id());
    section.field("process_supervised", "no");
    section.field("run_id", &server.run_id);
    section.field("tcp_port", server.settings.port);
    section.field("server_time_usec", server.clock.unix_ms() * 1000);
    section.field("uptime_in_seconds", uptime_s);
    section.field("uptime_in_days", uptime_s / 86_400);
    section.field("hz", server.hz());
    section.field("configured_hz", server.settings.hz);
    section.field("lru_clock", (server.clock.unix_ms() / 1000) & 0xff_ffff);
    section.field("executable", std::env::current_exe().unwrap_or_default().display());
    section.field("config_file", "");
    section.field("io_threads_active", 0);
}

fn clients_section(section: &mut Section<'_>, server: &Instance) {
    let sessions = &server.sessions;
    let largest = |of: fn(&super::command::Session) -> usize| sessions.iter().map(of).max().unwrap_or(0);
    // The one that asks is not among them.
    section.field("connected_clients", sessions.len() + 1);
    section.field("cluster_connections", 0);
    section.field("maxclients", server.settings.maxclients);
    section.field("client_recent_max_input_buffer", largest(|session| session.query_bytes));
    section.field("client_recent_max_output_buffer", largest(|session| session.reply_bytes));
    section.field("blocked_clients", sessions.iter().filter(|session| session.blocked.is_some()).count());
    section.zeros(&["tracking_clients", "clients_in_timeout_table", "total_blocking_keys"]);
}

fn memory_section(section: &mut Section<'_>, server: &Instance, keyspace: &Keyspace) {
    let used = server.used_memory(keyspace);
    let peak = server.stats.peak_memory.max(used);
    let rss = resident_bytes().unwrap_or(used);
    let clients = server.clients_memory();
    let tables: usize =
        keyspace.dbs().iter().map(|db| db.main_overhead_bytes() + db.expires_overhead_bytes()).sum();
    let startup = super::command::STARTUP_BYTES;
    let overhead = startup + clients + tables;
    let dataset = used.saturating_sub(overhead);
    let percent = |part: usize, whole: usize| format!("{:.2}%", part as f64 / whole.max(1) as f64 * 100.0);
    section.bytes("used_memory", used);
    section.bytes("used_memory_rss", rss);
    section.bytes("used_memory_peak", peak);
    section.field("used_memory_peak_perc", percent(used, peak));
    section.field("used_memory_overhead", overhead);
    section.field("used_memory_startup", startup);
    section.field("used_memory_dataset", dataset);
    section.field("used_memory_dataset_perc", percent(dataset, used.saturating_sub(startup)));
    section.field("allocator_allocated", used);
    section.field("allocator_active", rss);
    section.field("allocator_resident", rss);
    section.bytes("total_system_memory", system_memory_bytes().unwrap_or(0));
    section.bytes("used_memory_lua", server.scripts.memory_bytes());
    section.field("used_memory_vm_eval", server.scripts.memory_bytes());
    section.field("used_memory_scripts_eval", 0);
    section.field("number_of_cached_scripts", server.scripts.len());
    section.field("number_of_functions", 0);
    section.field("number_of_libraries", 0);
    section.bytes("maxmemory", usize::try_from(server.settings.maxmemory).unwrap_or(0));
    let policy = Policy::NAMES.iter().find(|(_, policy)| *policy == server.settings.policy);
    section.field("maxmemory_policy", policy.map_or("noeviction", |(name, _)| name));
    section.field("allocator_frag_ratio", "1.00");
    section.field("allocator_frag_bytes", 0);
    section.field("mem_fragmentation_ratio", format!("{:.2}", rss as f64 / used as f64));
    section
        .field("mem_fragmentation_bytes", i64::try_from(rss).unwrap_or(0) - i64::try_from(used).unwrap_or(0));
    section.zeros(&[
        "mem_not_counted_for_evict",
        "mem_replication_backlog",
        "mem_total_replication_buffers",
        "mem_clients_slaves",
    ]);
    section.field("mem_clients_normal", clients);
    section.zeros(&["mem_cluster_links", "mem_aof_buffer"]);
    section.field("mem_allocator", "libc");
    section.field("active_defrag_running", 0);
    section.field("lazyfree_pending_objects", keyspace.lazyfree.pending());
    section.field("lazyfreed_objects", keyspace.lazyfree.freed());
}

fn persistence_section(section: &mut Section<'_>, server: &Instance, keyspace: &Keyspace) {
    section.zeros(&[
        "loading",
        "async_loading",
        "current_cow_peak",
        "current_cow_size",
        "current_cow_size_age",
    ]);
    section.field("current_fork_perc", "0.00");
    section.zeros(&["current_save_keys_processed", "current_save_keys_total"]);
    section.field("rdb_changes_since_last_save", keyspace.dirty);
    section.field("rdb_bgsave_in_progress", 0);
    section.field("rdb_last_save_time", server.last_save_s);
    section.field("rdb_last_bgsave_status", "ok");
    section.field("rdb_last_bgsave_time_sec", -1);
    section.field("rdb_current_bgsave_time_sec", -1);
    section.zeros(&[
        "rdb_saves",
        "rdb_last_cow_size",
        "rdb_last_load_keys_expired",
        "rdb_last_load_keys_loaded",
        "aof_enabled",
        "aof_rewrite_in_progress",
        "aof_rewrite_scheduled",
    ]);
    section.field("aof_last_rewrite_time_sec", -1);
    section.field("aof_current_rewrite_time_sec", -1);
    section.field("aof_last_bgrewrite_status", "ok");
    section.field("aof_last_write_status", "ok");
    section.zeros(&["aof_last_cow_size", "module_fork_in_progress", "module_fork_last_cow_size"]);
}

fn stats_section(section: &mut Section<'_>, server: &Instance, keyspace: &Keyspace) {
    let stats = &server.stats;
    let [commands, bytes_in, bytes_out] = stats.rate.per_second();
    let kilo = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    section.field("total_connections_received", stats.connections);
    section.field("total_commands_processed", stats.total_commands);
    section.field("instantaneous_ops_per_sec", commands);
    section.field("total_net_input_bytes", stats.input_bytes);
    section.field("total_net_output_bytes", stats.output_bytes);
    section.zeros(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"]);
    section.field("instantaneous_input_kbps", kilo(bytes_in));
    section.field("instantaneous_output_kbps", kilo(bytes_out));
    section.field("rejected_connections", stats.rejected_connections);
    section.zeros(&["sync_full", "sync_partial_ok", "sync_partial_err"]);
    section.field("expired_keys", keyspace.stats.expired);
    section.field("expired_stale_perc", format!("{:.2}", keyspace.active_expire.stale_percent));
    section.field("expired_time_cap_reached_count", keyspace.active_expire.time_cap_reached);
    section.field("expire_cycle_cpu_milliseconds", 0);
    section.field("evicted_keys", keyspace.stats.evicted);
    section.zeros(&["evicted_clients", "total_eviction_exceeded_time", "current_eviction_exceeded_time"]);
    section.field("keyspace_hits", keyspace.stats.hits);
    section.field("keyspace_misses", keyspace.stats.misses);
    section.zeros(&[
        "pubsub_channels",
        "pubsub_patterns",
        "pubsubshard_channels",
        "latest_fork_usec",
        "total_forks",
    ]);
    section.zeros(&["migrate_cached_sockets", "slave_expires_tracked_keys", "active_defrag_hits"]);
    section.zeros(&["tracking_total_keys", "tracking_total_items", "unexpected_error_replies"]);
    section.field("total_error_replies", stats.total_errors);
    section.field("client_query_buffer_limit_disconnections", stats.query_limit_disconnections);
    section.field("client_output_buffer_limit_disconnections", stats.output_limit_disconnections);
    section.field("eventloop_cycles", stats.cycles);
}

fn replication_section(section: &mut Section<'_>, server: &Instance) {
    section.field("role", "master");
    section.field("connected_slaves", 0);
    section.field("master_failover_state", "no-failover");
    section.field("master_replid", &server.replication_id);
    section.field("master_replid2", "0".repeat(40));
    section.field("master_repl_offset", 0);
    section.field("second_repl_offset", -1);
    section.field("repl_backlog_active", 0);
    section.field("repl_backlog_size", 1_048_576);
    section.field("repl_backlog_first_byte_offset", 0);
    section.field("repl_backlog_histlen", 0);
}

/// The command thread's share is asked of the thread that answers, which is the command thread.
fn cpu_section(section: &mut Section<'_>) {
    let process = cpu_seconds("/proc/self/stat").unwrap_or_default();
    let thread = cpu_seconds("/proc/thread-self/stat").unwrap_or_default();
    section.field("used_cpu_sys", format!("{:.6}", process.1));
    section.field("used_cpu_user", format!("{:.6}", process.0));
    section.field("used_cpu_sys_children", "0.000000");
    section.field("used_cpu_user_children", "0.000000");
    section.field("used_cpu_sys_main_thread", format!("{:.6}", thread.1));
    section.field("used_cpu_user_main_thread", format!("{:.6}", thread.0));
}

fn commandstats_section(section: &mut Section<'_>, server: &Instance) {
    for entry in Table::get().entries() {
        let Some(stats) = server.stats.command(entry.id) else {
            continue;
        };
        let per_call = stats.usec as f64 / stats.calls.max(1) as f64;
        section.field(
            &format!("cmdstat_{}", entry.command.name),
            format!(
                "calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                stats.calls, stats.usec, stats.rejected, stats.failed
            ),
        );
    }
}

fn errorstats_section(section: &mut Section<'_>, server: &Instance) {
    for (code, count) in &server.stats.errors {
        section.field(&format!("errorstat_{code}"), format!("count={count}"));
    }
}

fn latencystats_section(section: &mut Section<'_>, server: &Instance) {
    for entry in Table::get().entries() {
        let latency = server.stats.command(entry.id).and_then(|stats| stats.latency.as_ref());
        if let Some(latency) = latency {
            let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| latency.percentile(percent));
            section.field(
                &format!("latency_percentiles_usec_{}", entry.command.name),
                format!("p50={p50}.000,p99={p99}.000,p99.9={p999}.000"),
            );
        }
    }
}

fn keyspace_section(section: &mut Section<'_>, keyspace: &Keyspace) {
    for (index, db) in keyspace.dbs().iter().enumerate().filter(|(_, db)| db.len() > 0) {
        section.field(
            &format!("db{index}"),
            format!("keys={},expires={},avg_ttl={}", db.len(), db.volatile_len(), db.avg_ttl_ms()),
        );
    }
}

/// Reads user and system time from a `stat` file of Linux; other systems have none.
fn cpu_seconds(path: &str) -> Option<(f64, f64)> {
    // Ticks are hundredths of a second on every Linux we know.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string(path).ok()?;
    // The name is in parentheses and may hold anything; fields are counted from behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times =
        fields.split_whitespace().skip(11).map(|ticks| ticks.parse::<f64>().unwrap_or(0.0) / TICKS);
    Some((times.next()?, times.next()?))
}

/// Reads the resident set size, on Linux.
pub(crate) fn resident_bytes() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    kilobytes(&status, "VmRSS:")
}

fn system_memory_bytes() -> Option<usize> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

fn kilobytes(text: &str, label: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
}
