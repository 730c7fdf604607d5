//! Other clients: threads that loop GET on one hot key, each on a blocking socket of its own, and time each
//! reply.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::lab::{Connection, Server};

/// How many.
pub(crate) const VICTIMS: usize = 4;
/// Replies later than this are counted.
const LATE: Duration = Duration::from_millis(10);
/// Time before and after what is measured, and the least in all: a stall that is one in ten thousand replies
/// must show as such.
pub(crate) const MARGIN: Duration = Duration::from_millis(500);
const WINDOW: Duration = Duration::from_secs(2);

/// What they waited, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    pub(crate) replies: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) late: f64,
}

/// Makes the hot key, has clients read it, and acts meanwhile. Half a second before and after are watched as
/// well, and two seconds at least. `ready` is called when the clients are connected and nobody watches yet.
pub(crate) fn watch<T>(server: &Server, ready: impl FnOnce(), act: impl FnOnce() -> T) -> (Waits, T) {
    let (watching, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let connections: Vec<Connection> = (0..VICTIMS).map(|_| server.connect()).collect();
    server.connect().run("SET hot value");
    thread::scope(|scope| {
        let (watching, done) = (&watching, &done);
        let victims: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(move || victim(connection, watching, done)))
            .collect();
        ready();
        watching.store(true, Ordering::Relaxed);
        let started = Instant::now();
        thread::sleep(MARGIN);
        let result = act();
        thread::sleep(MARGIN.max(WINDOW.saturating_sub(started.elapsed())));
        watching.store(false, Ordering::Relaxed);
        done.store(true, Ordering::Relaxed);
        let waits = victims.into_iter().flat_map(|victim| victim.join().expect("a victim ends")).collect();
        (summary(waits), result)
    })
}

/// Loops GET; keeps the waits that began or ended while someone was watching.
fn victim(mut connection: Connection, watching: &AtomicBool, done: &AtomicBool) -> Vec<Duration> {
    let mut waits = Vec::with_capacity(1 << 16);
    while !done.load(Ordering::Relaxed) {
        let watched = watching.load(Ordering::Relaxed);
        let started = Instant::now();
        connection.run_unheard("GET hot");
        if watched || watching.load(Ordering::Relaxed) {
            waits.push(started.elapsed());
        }
    }
    waits
}

fn summary(mut waits: Vec<Duration>) -> Waits {
    waits.sort_unstable();
    let at = |part: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = (part * (waits.len() - 1) as f64) as usize;
        waits[index].as_micros() as f64
    };
    Waits {
        replies: waits.len(),
        p50: at(0.5),
        p99: at(0.99),
        max: at(1.0),
        late: waits.iter().filter(|wait| **wait > LATE).count() as f64,
    }
}
