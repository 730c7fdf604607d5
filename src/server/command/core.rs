//! The server without its sockets: everything commands can reach, and what time does to it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::CommandError;
use super::acl::Acl;
use super::acl_log::AclLog;
use super::latency::LatencyMonitor;
use super::meanwhile::{Busy, Meanwhile, Verdict};
use super::names::Names;
use super::script::Scripts;
use super::session::{ClientId, ClientIds, Session, Sessions};
use super::setup::Setup;
use super::slowlog::SlowLog;
use super::stats::Stats;
use crate::server::clock::Clock;
use crate::server::config::{Config, Settings};
use crate::server::fault::Faults;
use crate::server::keyspace::{Cycle, Keyspace, Settings as KeyspaceSettings};
use crate::server::rdb::{self, RdbError};
use crate::server::value::random::Random;

/// The state beside the keyspace.
pub(crate) struct Instance {
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) acl: Acl,
    pub(crate) acl_log: AclLog,
    pub(crate) names: Names,
    pub(crate) sessions: Sessions,
    pub(crate) stats: Stats,
    pub(crate) slowlog: SlowLog,
    pub(crate) latency: LatencyMonitor,
    pub(crate) scripts: Scripts,
    /// Who looks after the other clients while a script runs for too long.
    pub(crate) meanwhile: Option<Rc<dyn Meanwhile>>,
    pub(crate) pause: Option<Pause>,
    pub(crate) run_id: String,
    pub(crate) replication_id: String,
    pub(crate) started_us: u64,
    pub(crate) last_save_s: u64,
    /// Someone asked for an end; the event loop sees to it.
    pub(crate) shutdown: bool,
    /// Clients with something to close or send; the event loop sees to them.
    pub(crate) attention: Vec<ClientId>,
    pub(crate) client_ids: ClientIds,
    cron_runs: u64,
}

/// CLIENT PAUSE.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    pub(crate) until_us: u64,
    pub(crate) writes_only: bool,
}

/// State and keyspace together.
pub(crate) struct Core {
    pub(crate) server: Instance,
    pub(crate) keyspace: Keyspace,
}

/// What Redis has allocated before the first key: the number that `used_memory` starts from.
pub(crate) const STARTUP_BYTES: usize = 876_112;

/// What a connection costs beyond its buffers.
const CLIENT_BYTES: usize = 1_800;

/// How long fields that are due may keep the thread in each period.
const FIELD_SLICE_US: u64 = 5_000;

impl Core {
    /// Sets up an empty server.
    pub(crate) fn new(config: &Config, setup: Setup, faults: Arc<Faults>) -> Core {
        let clock = Arc::clone(&config.clock);
        let now_ms = clock.unix_ms();
        let mut random = Random::new(config.seed.unwrap_or(now_ms ^ clock.monotonic_us() << 20));
        let Setup { settings, acl, names } = setup;
        let databases = usize::try_from(settings.databases).unwrap_or(16);
        let (run_id, replication_id) = (hex40(&mut random), hex40(&mut random));
        let mut core = Core {
            keyspace: Keyspace::new(databases, random, now_ms),
            server: Instance {
                settings,
                faults,
                acl,
                acl_log: AclLog::default(),
                names,
                sessions: Sessions::default(),
                stats: Stats::default(),
                slowlog: SlowLog::default(),
                latency: LatencyMonitor::default(),
                scripts: Scripts::default(),
                meanwhile: None,
                pause: None,
                run_id,
                replication_id,
                started_us: clock.monotonic_us(),
                last_save_s: now_ms / 1000,
                shutdown: false,
                attention: Vec::new(),
                client_ids: ClientIds::default(),
                cron_runs: 0,
                clock,
            },
        };
        core.server.apply_settings(&mut core.keyspace);
        core
    }

    /// Loads the file that the server starts from, if there is one.
    ///
    /// # Errors
    /// Says what is wrong with the file, and where.
    pub(crate) fn load(&mut self, config: &Config) -> Result<(), String> {
        let saved = Some(self.server.settings.db_path()).filter(|path| config.load_saved && path.exists());
        let Some(path) = config.load.clone().or(saved) else {
            return Ok(());
        };
        match self.server.load_file(&mut self.keyspace, &path) {
            Err(error) if !self.server.shutdown => Err(format!("cannot load `{}`: {error}", path.display())),
            _ => Ok(()),
        }
    }

    /// Makes a session for a new client.
    pub(crate) fn connect(&mut self, addr: String, local_addr: String) -> Box<Session> {
        let id = self.server.client_ids.take();
        self.admit(id, addr, local_addr)
    }

    /// Makes a session for a client that has its number already.
    pub(crate) fn admit(&mut self, id: ClientId, addr: String, local_addr: String) -> Box<Session> {
        self.server.stats.connections += 1;
        let mut session = Session::new(id, self.server.clock.monotonic_us());
        session.addr = addr;
        session.local_addr = local_addr;
        session.user = self.server.acl.is_open().then(|| Acl::DEFAULT.to_owned());
        Box::new(session)
    }

    /// Forgets what a client leaves behind.
    pub(crate) fn disconnect(&mut self, session: &mut Session) {
        let watched = std::mem::take(&mut session.watched);
        self.keyspace.watches.unwatch(session.id, &watched);
    }

    /// Does what is due `hz` times a second.
    pub(crate) fn cron(&mut self) {
        let clock = Arc::clone(&self.server.clock);
        self.keyspace.now_ms = clock.unix_ms();
        self.expire(Cycle::Slow);
        let start_us = clock.monotonic_us();
        // Fields get a slice of their own, so that they and keys cannot starve each other.
        self.keyspace.expire_fields(|| clock.monotonic_us() < start_us + FIELD_SLICE_US);
        if self.server.settings.active_rehashing {
            let start_us = clock.monotonic_us();
            // One millisecond of each period, as `activerehashing` allows itself.
            self.keyspace.rehash_while(|| clock.monotonic_us() < start_us + 1000);
        }
        let used = self.used_memory();
        let stats = &mut self.server.stats;
        stats.peak_memory = stats.peak_memory.max(used);
        stats.cycles += 1;
        let totals = [stats.total_commands, stats.input_bytes, stats.output_bytes];
        stats.rate.sample(clock.monotonic_us(), totals);
        self.server.cron_runs += 1;
    }

    /// Does what is due before the thread sleeps.
    pub(crate) fn before_sleep(&mut self) {
        self.expire(Cycle::Fast);
    }

    /// Runs a slice of active expiry; one that reaped something counts as a latency event.
    fn expire(&mut self, cycle: Cycle) {
        let clock = Arc::clone(&self.server.clock);
        let (reaped, start_us) = (self.keyspace.stats.expired, clock.monotonic_us());
        self.keyspace.active_expire(cycle, self.server.hz(), &*clock);
        if self.keyspace.stats.expired != reaped {
            self.server.note_latency("expire-cycle", clock.monotonic_us() - start_us);
        }
    }

    /// Returns `used_memory`: keys and values by the sizes of their structures, and buffers.
    pub(crate) fn used_memory(&self) -> usize {
        self.server.used_memory(&self.keyspace)
    }
}

impl Instance {
    pub(crate) fn hz(&self) -> u64 {
        // Redis takes any number here and keeps within 1 and 500.
        u64::try_from(self.settings.hz).unwrap_or(10).clamp(1, 500)
    }

    pub(crate) fn cron_period(&self) -> Duration {
        Duration::from_millis(1000 / self.hz())
    }

    /// Carries settings over to where they act.
    pub(crate) fn apply_settings(&mut self, keyspace: &mut Keyspace) {
        let settings = &self.settings;
        keyspace.settings = KeyspaceSettings {
            lazy_eviction: settings.lazy_eviction,
            lazy_expire: settings.lazy_expire,
            lazy_server_del: settings.lazy_server_del,
            lazy_user_del: settings.lazy_user_del,
            lazy_user_flush: settings.lazy_user_flush,
            policy: settings.policy,
            maxmemory_samples: usize::try_from(settings.maxmemory_samples).unwrap_or(5),
        };
        keyspace.active_expire.effort = u64::try_from(settings.active_expire_effort).unwrap_or(1);
    }

    /// Loads a file over what is there; see [`Instance::load_from`].
    pub(crate) fn load_file(&mut self, keyspace: &mut Keyspace, path: &Path) -> Result<usize, RdbError> {
        self.load_from(keyspace, BufReader::new(File::open(path)?))
    }

    /// Loads a file over what is there, and returns how many keys it held that are not due. Other clients hear
    /// of it, once in so many bytes of the file.
    ///
    /// # Errors
    /// Says what is wrong with it, and where; what came before that has been loaded.
    pub(crate) fn load_from(&mut self, keyspace: &mut Keyspace, file: impl Read) -> Result<usize, RdbError> {
        let interval = u64::try_from(self.settings.loading_interval_bytes).unwrap_or(u64::MAX);
        let delay = Duration::from_micros(u64::try_from(self.settings.key_load_delay_us).unwrap_or(0));
        let mut look_at = interval;
        rdb::load(keyspace, file, &self.settings.limits, |offset| {
            if !delay.is_zero() {
                self.clock.sleep(delay);
            }
            if offset >= look_at {
                look_at = offset.saturating_add(interval);
                let verdict = self.meanwhile.as_ref().map(|meanwhile| meanwhile.serve(Busy::Loading));
                self.shutdown |= verdict == Some(Verdict::ShutDown);
            }
            !self.shutdown
        })
    }

    pub(crate) fn note_latency(&mut self, event: &'static str, took_us: u64) {
        // The threshold is off by default: ask it before asking for the time.
        if self.settings.latency_threshold_ms > 0 {
            let unix_s = self.clock.unix_ms() / 1000;
            self.latency.note(event, took_us, unix_s, self.settings.latency_threshold_ms);
        }
    }

    pub(crate) fn clients_memory(&self) -> usize {
        self.sessions.iter().map(|session| session.query_bytes + session.reply_bytes + CLIENT_BYTES).sum()
    }

    pub(crate) fn used_memory(&self, keyspace: &Keyspace) -> usize {
        STARTUP_BYTES + keyspace.memory_bytes() + self.clients_memory()
    }

    /// Returns the time of day in seconds.
    pub(crate) fn unix_s(&self) -> u64 {
        self.clock.unix_ms() / 1000
    }

    /// Says whether commands wait now, because of CLIENT PAUSE.
    pub(crate) fn is_paused(&mut self, writes: bool) -> bool {
        let Some(pause) = self.pause else {
            return false;
        };
        if self.clock.monotonic_us() >= pause.until_us {
            self.pause = None;
            return false;
        }
        writes || !pause.writes_only
    }

    /// Parses the index of a database.
    pub(crate) fn db_index(&self, text: &[u8]) -> Result<usize, CommandError> {
        let index = crate::server::number::parse_integer(text).ok_or(CommandError::NOT_AN_INTEGER)?;
        if (0..self.settings.databases).contains(&index) {
            usize::try_from(index).map_err(|_| CommandError::DB_OUT_OF_RANGE)
        } else {
            Err(CommandError::DB_OUT_OF_RANGE)
        }
    }
}

/// Returns forty hexadecimal digits, as run and replication ids are.
fn hex40(random: &mut Random) -> String {
    let [a, b, c] = std::array::from_fn(|_| random.next_u64());
    let mut digits = format!("{a:016x}{b:016x}{c:016x}");
    digits.truncate(40);
    digits
}
