//! Lets commands through, within the quota and the guard's pace.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Pace, Quota};

/// A shared quota that waits.
#[derive(Clone)]
pub struct Pacer {
    quota: Arc<Mutex<Quota>>,
}

/// Longest nap: the guard may change the pace, and a person may stop the run, while we wait.
const NAP_MAX: Duration = Duration::from_millis(100);

impl Pacer {
    /// Makes a pacer of so many commands per second; `None` is no limit.
    pub fn new(rate: Option<f64>) -> Self {
        Self { quota: Arc::new(Mutex::new(Quota::new(rate))) }
    }

    /// Waits until so many commands may be sent.
    pub async fn admit(&self, commands: usize) {
        let mut left = u32::try_from(commands).unwrap_or(u32::MAX);
        while left > 0 {
            // A pipeline may be a little longer than a burst, and bursts shrink when the pace falls.
            let (wait, taken) = self.with(|quota| {
                let part = left.min(quota.burst());
                (quota.take(part), part)
            });
            if wait.is_zero() {
                left -= taken;
            } else {
                tokio::time::sleep(wait.min(NAP_MAX)).await;
            }
        }
    }

    /// Returns how many commands may go in one piece.
    pub fn burst(&self) -> usize {
        self.with(|quota| quota.burst()) as usize
    }

    /// Takes the guard's pace over. Returns whether it is slower than before.
    ///
    /// # Errors
    /// With the latency, when the guard wants the run to stop.
    pub fn follow(&self, pace: Pace) -> Result<bool, Duration> {
        match pace {
            Pace::Stop(latency) => Err(latency),
            Pace::Go { factor } => Ok(self.with(|quota| quota.scale(factor))),
        }
    }

    /// Works on the quota.
    pub fn with<T>(&self, work: impl FnOnce(&mut Quota) -> T) -> T {
        // A panic elsewhere does not make a budget wrong.
        work(&mut self.quota.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
