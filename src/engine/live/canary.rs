//! A PING every so often on a connection of its own: what another client waits.
//!
//! The canary runs on a thread of its own. On the scan's thread it would wait for our own parsing and
//! measure us instead of the server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::endpoint::Endpoint;
use super::link::{Link, LinkError};
use crate::engine::pace::{Guard, Histogram, Pace};

/// Time between two PINGs while a scan runs.
pub const SCAN_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two PINGs while keys are deleted: a stall of a few milliseconds has to be seen, and told
/// which key it belongs to.
pub const DELETE_INTERVAL: Duration = Duration::from_millis(5);
/// PINGs that make the baseline.
const BASELINE_PINGS: u32 = 20;
/// Time between two PINGs of the baseline.
const BASELINE_INTERVAL: Duration = Duration::from_millis(10);
/// Pace while the canary has no connection and nobody watches, as a part of the full one.
const BLIND_FACTOR: f64 = 0.25;
/// First wait before a broken canary connection is made again; it doubles up to a second.
const RECONNECT_WAIT: Duration = Duration::from_millis(50);

/// What the canary has seen.
#[derive(Debug, Clone)]
pub struct CanaryState {
    /// Round trips before the scan.
    pub before: Histogram,
    /// Round trips since.
    pub during: Histogram,
    /// What the guard wants now.
    pub pace: Pace,
    /// The last round trip.
    pub last: Duration,
    /// The longest one since [`Canary::take_max`]. `None`: there was none.
    pub recent_max: Option<Duration>,
    /// Why there are no round trips, while there are none.
    pub blind: Option<String>,
}

/// A running canary. Dropping it ends its thread.
pub struct Canary {
    state: Arc<Mutex<CanaryState>>,
    shutdown: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Canary {
    /// Measures the baseline on a connection of its own, then goes on in a thread, with so much time between
    /// two PINGs.
    ///
    /// # Errors
    /// When the first connection cannot be made, or the thread cannot be started.
    pub async fn start(
        endpoint: &Endpoint,
        guard: Guard,
        interval: Duration,
    ) -> Result<Self, super::ConnectError> {
        let state = Arc::new(Mutex::new(CanaryState {
            before: Histogram::new(guard.latency_max()),
            during: Histogram::new(guard.latency_max()),
            pace: Pace::Go { factor: 1.0 },
            last: Duration::ZERO,
            recent_max: None,
            blind: None,
        }));
        let (shutdown, shutdown_signal) = tokio::sync::oneshot::channel();
        let (ready, ready_signal) = tokio::sync::oneshot::channel();
        let shared = Arc::clone(&state);
        let endpoint_there = endpoint.clone();
        let spawned = std::thread::Builder::new().name("bigkeys-canary".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(async move {
                    tokio::select! {
                        () = sing(&endpoint_there, guard, interval, &shared, ready) => {}
                        _ = shutdown_signal => {}
                    }
                }),
                Err(error) => {
                    let _ = ready.send(Err(super::ConnectError {
                        address: endpoint_there.address,
                        kind: super::ConnectErrorKind::Io(error.to_string()),
                    }));
                }
            }
        });
        let thread_failed = |why: String| super::ConnectError {
            address: endpoint.address.clone(),
            kind: super::ConnectErrorKind::Io(why),
        };
        let thread = spawned.map_err(|error| thread_failed(format!("cannot start the canary: {error}")))?;
        ready_signal.await.map_err(|_| thread_failed("the canary ended early".to_owned()))??;
        Ok(Self { state, shutdown: Some(shutdown), thread: Some(thread) })
    }

    /// Returns what the guard wants now; while nobody watches, at most a quarter of the asked rate.
    pub fn pace(&self) -> Pace {
        let state = self.lock();
        match state.pace {
            Pace::Go { factor } if state.blind.is_some() => Pace::Go { factor: factor.min(BLIND_FACTOR) },
            pace => pace,
        }
    }

    /// Returns the last round trip.
    pub fn last(&self) -> Duration {
        self.lock().last
    }

    /// Returns the longest round trip since it was asked last. `None`: there was none.
    pub fn take_max(&self) -> Option<Duration> {
        self.lock().recent_max.take()
    }

    /// Returns a copy of everything seen so far.
    pub fn state(&self) -> CanaryState {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CanaryState> {
        // A panic elsewhere does not make numbers wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        drop(self.shutdown.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Ready = tokio::sync::oneshot::Sender<Result<(), super::ConnectError>>;

async fn sing(
    endpoint: &Endpoint,
    mut guard: Guard,
    interval: Duration,
    state: &Mutex<CanaryState>,
    ready: Ready,
) {
    let edit = |change: &mut dyn FnMut(&mut CanaryState)| {
        change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let mut link = match Link::open(endpoint, "bigkeys-canary").await {
        Ok(link) => link,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    for _ in 0..BASELINE_PINGS {
        let Some(round_trip) = ping(&link, endpoint.timeouts.command).await else { break };
        edit(&mut |state| state.before.record(round_trip));
        tokio::time::sleep(BASELINE_INTERVAL).await;
    }
    let _ = ready.send(Ok(()));

    let mut reconnect_wait = RECONNECT_WAIT;
    loop {
        // No need to wait for an answer that is already too late to go on with.
        if let Some(round_trip) = ping(&link, guard.latency_abort()).await {
            reconnect_wait = RECONNECT_WAIT;
            let pace = guard.observe(round_trip);
            edit(&mut |state| {
                state.during.record(round_trip);
                state.last = round_trip;
                state.recent_max = state.recent_max.max(Some(round_trip));
                // A stop stays: the run is over, whatever comes after.
                if !matches!(state.pace, Pace::Stop(_)) {
                    state.pace = pace;
                }
                state.blind = None;
            });
            tokio::time::sleep(interval.saturating_sub(round_trip)).await;
            continue;
        }
        edit(&mut |state| state.blind = Some("the connection of the canary is lost".to_owned()));
        match Link::open(endpoint, "bigkeys-canary").await {
            Ok(new) => link = new,
            Err(error) => {
                edit(&mut |state| state.blind = Some(error.to_string()));
                tokio::time::sleep(reconnect_wait).await;
                reconnect_wait = (reconnect_wait * 2).min(Duration::from_secs(1));
            }
        }
    }
}

/// Sends a PING and returns its round trip; after `patience` without an answer, that much. `None`: the
/// connection is gone, which is no latency.
async fn ping(link: &Link, patience: Duration) -> Option<Duration> {
    let started = Instant::now();
    match tokio::time::timeout(patience, link.command(&redis::cmd("PING"))).await {
        // Any answer will do, a refusal too: it took the server as long.
        Ok(Ok(_)) => Some(started.elapsed()),
        // Slow, and not gone: at least this long.
        Ok(Err(LinkError::TimedOut(after))) => Some(after),
        Ok(Err(LinkError::Dropped(_))) => None,
        Err(_) => Some(patience),
    }
}
