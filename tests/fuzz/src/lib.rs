//! What the fuzz targets share: a small server in this process, and a way to try a key from all sides.

#[path = "../../server/reply.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use the rest of it")]
mod reply;
mod try_key;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bigkeys::server::{Clock, Config, InProcess};

pub use try_key::{try_key, try_keys};

/// When all runs begin: the wall clock would make them differ.
const EPOCH_MS: u64 = 1_700_000_000_000;
/// What passes between two looks at the clock. Scripts and slices of time end by looking at it.
const TICK_US: u64 = 50;

/// A clock that moves when it is looked at, so that whoever waits for a time waits the same in every run.
#[derive(Debug, Default)]
pub struct TickingClock {
    elapsed_us: AtomicU64,
}

impl Clock for TickingClock {
    fn unix_ms(&self) -> u64 {
        EPOCH_MS + self.elapsed_us.load(Ordering::Relaxed) / 1000
    }

    fn monotonic_us(&self) -> u64 {
        self.elapsed_us.fetch_add(TICK_US, Ordering::Relaxed)
    }

    fn sleep(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // A sum that wraps would turn time back.
        let _ = self.elapsed_us.try_update(Ordering::Relaxed, Ordering::Relaxed, |elapsed_us| {
            Some(elapsed_us.saturating_add(us).min(u64::MAX / 2))
        });
    }
}

/// A server with one client, and small limits: nothing found with them needs more to be found.
#[derive(Debug)]
pub struct Target {
    server: InProcess,
    client: usize,
    clock: Arc<TickingClock>,
}

impl Target {
    /// Starts a server with no password.
    ///
    /// # Panics
    /// When a parameter is not known any more.
    pub fn start() -> Target {
        let clock = Arc::new(TickingClock::default());
        let config = Config { clock: Arc::clone(&clock) as _, seed: Some(1), ..Config::default() }
            .with("proto-max-bulk-len", "1mb")
            .with("maxmemory", "64mb")
            .with("busy-reply-threshold", "1")
            // Their code is reached by what is slow, and here nothing is.
            .with("slowlog-log-slower-than", "0")
            .with("latency-monitor-threshold", "1");
        let mut server = InProcess::new(&config).expect("good parameters");
        let client = server.connect();
        Target { server, client, clock }
    }

    /// Returns the server.
    pub fn server(&mut self) -> &mut InProcess {
        &mut self.server
    }

    /// Lets the client be another one, if the server has closed its connection.
    pub fn reconnect(&mut self) {
        self.client = self.server.connect();
    }

    /// Carries a command out.
    pub fn call<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Vec<u8> {
        self.server.call(self.client, words)
    }

    /// Carries out a command without arguments that hold spaces.
    pub fn run(&mut self, line: &str) -> Vec<u8> {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// Feeds bytes to the parser of the client.
    ///
    /// # Panics
    /// When what comes back is not a number of whole replies.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let replies = self.server.feed(self.client, bytes);
        let mut rest = &replies[..];
        while !rest.is_empty() {
            let decoded = reply::decode(rest);
            (_, rest) = decoded.unwrap_or_else(|| panic!("half a reply: {}", replies.escape_ascii()));
        }
        replies
    }

    /// Lets time pass, and the server do what it does then.
    pub fn pass(&mut self, time: Duration) {
        self.clock.sleep(time);
        self.server.cron();
        self.server.before_sleep();
    }
}
