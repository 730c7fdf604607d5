//! Ctrl-C and SIGTERM: the first asks the run to finish what is in flight, the second ends the process.
//!
//! A thread of its own listens, because the run's thread may be blocked where no signal is looked at:
//! in a write to a pipe that nobody reads. A second Ctrl-C must work there too.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::exit::Exit;

/// Whether somebody wants the run to end.
#[derive(Debug, Clone, Default)]
pub(super) struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requested: AtomicBool,
    ends_at_once: AtomicBool,
    notify: Notify,
    leftovers: Mutex<Vec<PathBuf>>,
}

impl Interrupt {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system gives no thread or no signal handler.
    pub(super) fn listen() -> io::Result<Self> {
        let interrupt = Self::default();
        let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut ctrl_c, mut terminate) = {
            let _guard = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let state = Arc::clone(&interrupt.0);
        thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async move {
                loop {
                    let received = tokio::select! {
                        received = ctrl_c.recv() => received,
                        received = terminate.recv() => received,
                    };
                    if received.is_none() {
                        return;
                    }
                    if state.request() || state.ends_at_once.load(Ordering::SeqCst) {
                        state.end_now();
                    }
                }
            });
        })?;
        Ok(interrupt)
    }

    /// Returns whether the run should end.
    pub(super) fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::SeqCst)
    }

    /// Waits until the run should end.
    pub(super) async fn requested(&self) {
        while !self.is_requested() {
            self.0.notify.notified().await;
        }
    }

    /// Asks for the end as the first signal does.
    #[cfg(test)]
    pub(super) fn request(&self) {
        self.0.request();
    }

    /// From now on the first signal ends the process, or does not any more.
    pub(super) fn ends_at_once(&self, at_once: bool) {
        self.0.ends_at_once.store(at_once, Ordering::SeqCst);
    }

    /// Names a temporary file to remove if the process has to end at once.
    pub(super) fn remove_on_exit(&self, path: PathBuf) {
        self.0.leftovers.lock().unwrap_or_else(PoisonError::into_inner).push(path);
    }
}

impl State {
    /// Asks the run to end, and returns whether it was asked before.
    fn request(&self) -> bool {
        let again = self.requested.swap(true, Ordering::SeqCst);
        // Wakes the one waiter, or is kept for it.
        self.notify.notify_one();
        again
    }

    fn end_now(&self) -> ! {
        for path in self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = std::fs::remove_file(path);
        }
        std::process::exit(i32::from(Exit::Interrupted.code()));
    }
}
