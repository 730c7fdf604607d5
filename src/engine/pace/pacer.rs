//! Lets commands through, within the quota and the guard's pace.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Pace, Quota};

/// A shared quota that waits. That of one server of several may lie within that of the whole run.
#[derive(Clone)]
pub struct Pacer {
    quota: Arc<Mutex<Quota>>,
    run: Option<Arc<Mutex<Quota>>>,
}

/// Longest nap: the guard may change the pace, and a person may stop the run, while we wait.
const NAP_MAX: Duration = Duration::from_millis(100);

impl Pacer {
    /// Makes a pacer of so many commands per second; `None` is no limit.
    pub fn new(rate: Option<f64>) -> Self {
        Self { quota: Arc::new(Mutex::new(Quota::new(rate))), run: None }
    }

    /// Makes a pacer for one server of this run: it has a rate and a guard of its own, and takes from the
    /// run's budget too.
    #[must_use]
    pub fn for_server(&self, rate: Option<f64>) -> Self {
        Self { run: Some(Arc::clone(&self.quota)), ..Self::new(rate) }
    }

    /// Waits until so many commands may be sent.
    pub async fn admit(&self, commands: usize) {
        admit(&self.quota, commands).await;
        if let Some(run) = &self.run {
            admit(run, commands).await;
        }
    }

    /// Returns how many commands may go in one piece.
    pub fn burst(&self) -> usize {
        let own = self.with(|quota| quota.burst());
        let run = self.run.as_ref().map_or(own, |run| with(run, |quota| quota.burst()));
        own.min(run) as usize
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

    /// Works on the quota: the server's own, where there is one.
    pub fn with<T>(&self, work: impl FnOnce(&mut Quota) -> T) -> T {
        with(&self.quota, work)
    }
}

async fn admit(quota: &Mutex<Quota>, commands: usize) {
    let mut left = u32::try_from(commands).unwrap_or(u32::MAX);
    while left > 0 {
        // A pipeline may be a little longer than a burst, and bursts shrink when the pace falls.
        let (wait, taken) = with(quota, |quota| {
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

fn with<T>(quota: &Mutex<Quota>, work: impl FnOnce(&mut Quota) -> T) -> T {
    // A panic elsewhere does not make a budget wrong.
    work(&mut quota.lock().unwrap_or_else(PoisonError::into_inner))
}
