//! From a configuration to a report.

use std::ops::ControlFlow;
use std::time::{Instant, SystemTime};

use futures_util::StreamExt;
use futures_util::stream;

use crate::engine::event::{Event, Stop};
use crate::engine::key::KeyName;
use crate::engine::pace::Pacer;
use crate::engine::report::{ScanReport, TargetFailure};

use super::chorus::Chorus;
use super::config::ScanConfig;
use super::deployment::{Deployment, scan_target};
use super::error::ScanError;
use super::report::{Outcome, report};

/// Servers, clusters and groups that are scanned at a time.
const TARGETS_AT_A_TIME: usize = 8;

/// Scans servers.
///
/// `on_event` is called as the scan walks, ten times a second or more, and can end it; what was found until
/// then is in the report.
///
/// # Errors
/// When there is no result at all: no connection, no database, or SCAN itself refused. Of several servers,
/// when that is so for each of them.
pub async fn run(
    config: &ScanConfig,
    mut on_event: impl FnMut(Event<'_>) -> ControlFlow<Stop>,
) -> Result<ScanReport, ScanError> {
    scan(config, None, &mut on_event).await
}

/// Names keys to look at, a page at a time.
pub trait KeySource {
    /// Returns the next keys of a database, a few hundred at the most; `None`: there are no more in it.
    fn next_page(&mut self, db: u32) -> Option<Vec<KeyName>>;
}

/// Looks at named keys as a scan looks at those that it finds. The databases must be named in the
/// configuration, and there is one target.
///
/// # Errors
/// As [`run`].
pub async fn look(
    config: &ScanConfig,
    keys: &mut dyn KeySource,
    mut on_event: impl FnMut(Event<'_>) -> ControlFlow<Stop>,
) -> Result<ScanReport, ScanError> {
    scan(config, Some(keys), &mut on_event).await
}

async fn scan(
    config: &ScanConfig,
    named: Option<&mut dyn KeySource>,
    on_event: &mut (dyn FnMut(Event<'_>) -> ControlFlow<Stop> + '_),
) -> Result<ScanReport, ScanError> {
    let started_at = SystemTime::now();
    let started = Instant::now();
    let budget = Pacer::new(config.rate);
    let chorus = Chorus::new(on_event);
    let results: Vec<(usize, Result<Deployment, ScanError>)> = match (&config.targets[..], named) {
        ([target], named) => vec![(0, scan_target(config, target, named, &budget, &chorus).await)],
        (targets, _) => {
            let each = targets.iter().enumerate().map(|(index, target)| {
                let (budget, chorus) = (&budget, &chorus);
                async move { (index, scan_target(config, target, None, budget, chorus).await) }
            });
            stream::iter(each).buffer_unordered(TARGETS_AT_A_TIME).collect().await
        }
    };
    let mut outcome = Outcome::default();
    let mut errors = Vec::new();
    for (index, result) in results {
        match result {
            Ok(deployment) => outcome.add(deployment),
            Err(error) => errors.push((index, error)),
        }
    }
    if outcome.scans.is_empty()
        && let Some((_, error)) = errors.pop()
    {
        for (index, other) in errors {
            let target = &config.targets[index].endpoint.address;
            let _ = chorus.warn(format!("{target}: {other}"));
        }
        return Err(error);
    }
    outcome.failures = errors
        .into_iter()
        .map(|(index, error)| TargetFailure {
            target: config.targets[index].endpoint.address.to_string(),
            why: error.to_string(),
        })
        .collect();
    (outcome.servers, outcome.warnings) = chorus.into_parts();
    Ok(report(config, outcome, started_at, started))
}
