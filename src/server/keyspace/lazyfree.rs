//! The thread that frees. What is sent here is no longer in the keyspace; dropping it is all that
//! is left to do, and for a million-member set that takes far longer than a command may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::db::Db;
use crate::server::value::Value;

/// Values whose freeing takes more steps than this go to the thread; the rest is freed on the
/// spot, because handing over costs about as much. A constant in every version of Redis.
pub(crate) const EFFORT_THRESHOLD: usize = 64;

/// Something to drop.
#[allow(dead_code, reason = "nothing is done with it but dropping it")]
pub(super) enum Garbage {
    Value(Value),
    Db(Box<Db>),
}

/// What the main thread keeps of the freeing thread. Dropping it waits for the thread to finish.
#[derive(Debug, Default)]
pub(crate) struct LazyFree {
    worker: Option<Worker>,
    counters: Arc<Counters>,
}

/// The thread, started when there is something to free for the first time.
#[derive(Debug)]
struct Worker {
    queue: Sender<(Garbage, u64)>,
    /// `None` if the system gave none: the channel is closed then, and everything is freed on the spot.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counters {
    pending: AtomicU64,
    freed: AtomicU64,
}

impl Worker {
    fn start(counters: Arc<Counters>) -> Worker {
        let (queue, garbage) = channel::<(Garbage, u64)>();
        let thread = std::thread::Builder::new().name("lazyfree".to_owned()).spawn(move || {
            for (item, objects) in garbage {
                drop(item);
                counters.pending.fetch_sub(objects, Ordering::Relaxed);
                counters.freed.fetch_add(objects, Ordering::Relaxed);
            }
        });
        Worker { queue, thread: thread.ok() }
    }
}

impl LazyFree {
    /// Hands `value` over if that is worth it, else drops it here.
    pub(super) fn value(&mut self, value: Value) {
        if value.free_effort() > EFFORT_THRESHOLD {
            self.send(Garbage::Value(value), 1);
        }
    }

    /// Hands over a whole database; it counts as its number of keys.
    pub(super) fn db(&mut self, db: Box<Db>) {
        let keys = u64::try_from(db.len()).unwrap_or(u64::MAX);
        self.send(Garbage::Db(db), keys);
    }

    fn send(&mut self, item: Garbage, objects: u64) {
        self.counters.pending.fetch_add(objects, Ordering::Relaxed);
        let worker = self.worker.get_or_insert_with(|| Worker::start(Arc::clone(&self.counters)));
        if worker.queue.send((item, objects)).is_err() {
            self.counters.pending.fetch_sub(objects, Ordering::Relaxed);
        }
    }

    /// Returns `lazyfree_pending_objects`.
    pub(crate) fn pending(&self) -> u64 {
        self.counters.pending.load(Ordering::Relaxed)
    }

    /// Returns `lazyfreed_objects`.
    pub(crate) fn freed(&self) -> u64 {
        self.counters.freed.load(Ordering::Relaxed)
    }

    pub(crate) fn reset_freed(&self) {
        self.counters.freed.store(0, Ordering::Relaxed);
    }
}

impl Drop for LazyFree {
    fn drop(&mut self) {
        if let Some(Worker { queue, thread: Some(thread) }) = self.worker.take() {
            drop(queue);
            // A panic over there has been reported already, and everything is going away.
            let _ = thread.join();
        }
    }
}
