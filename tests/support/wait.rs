//! Waiting for a state. Nothing in here waits for a time.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// How long a state may take to be reached before that is a failure: long enough for a failover that has to be
/// tried again on a busy machine.
const REACHED_MAX: Duration = Duration::from_mins(1);

/// Looks every few milliseconds until there is an answer, and returns it.
///
/// # Panics
/// With what was last in the way, when there is none after a minute.
#[track_caller]
pub(crate) fn wait_for<T, E: Display>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + REACHED_MAX;
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) => assert!(Instant::now() < deadline, "waited in vain for {what}: {why}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}
