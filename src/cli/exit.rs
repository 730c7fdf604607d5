//! Exit codes: a promise, kept here and in `docs/exit-codes.md`.

use std::process::ExitCode;

use crate::engine::delete::{DeleteReport, Halt};
use crate::engine::event::Stop;
use crate::engine::key::SkipReason;
use crate::engine::report::{Completeness, IncompleteReason, ScanReport};
use crate::engine::risk::Level;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// 0: everything that was asked for.
    Done,
    /// 1: nothing that one could rely on.
    Failed,
    /// 2: the command line makes no sense.
    Usage,
    /// 3: the result is not whole.
    Partial,
    /// 4: the latency guard stopped the run.
    Guard,
    /// 5: a key reached the `--fail-on` level.
    FailOn,
    /// 130: Ctrl-C or SIGTERM, as shells number the former.
    Interrupted,
}

impl Exit {
    /// All of them, by code.
    pub const ALL: [Self; 7] =
        [Self::Done, Self::Failed, Self::Usage, Self::Partial, Self::Guard, Self::FailOn, Self::Interrupted];

    /// Returns the code that the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Partial => 3,
            Self::Guard => 4,
            Self::FailOn => 5,
            Self::Interrupted => 130,
        }
    }

    /// Decides on the end of a scan that gave a report.
    ///
    /// What cut the run short goes first, `--fail-on` last: of a scan that is not whole, "no key reached
    /// the level" would be a guess, and "some key did" is in the report either way. A script that
    /// reads 0 or 5 may so rely on a whole scan. Among the causes there is no choice to make: of several servers
    /// the report tells the gravest. The one exception is an output that cannot be written: it is a
    /// failure whatever else happened, because the result is not where it was asked to be.
    pub fn of_scan(report: &ScanReport, fail_on: Option<Level>) -> Self {
        match &report.completeness {
            Completeness::Partial(reason) => match reason {
                IncompleteReason::Interrupted => Self::Interrupted,
                IncompleteReason::Guard(_) => Self::Guard,
                IncompleteReason::OutputFailed => Self::Failed,
                IncompleteReason::ConnectionLost(_)
                | IncompleteReason::ScanRefused(_)
                | IncompleteReason::DatabaseRefused(_)
                | IncompleteReason::RestartedTooOften
                | IncompleteReason::SlotsNotCovered { .. }
                | IncompleteReason::TargetsFailed(_) => Self::Partial,
            },
            Completeness::CompleteButSkipped | Completeness::Sampled { .. }
                if keys_unreadable(report) > 0 =>
            {
                Self::Partial
            }
            Completeness::Complete | Completeness::CompleteButSkipped | Completeness::Sampled { .. } => {
                match fail_on {
                    Some(level) if keys_from_level(report, level) > 0 => Self::FailOn,
                    _ => Self::Done,
                }
            }
        }
    }
}

impl Exit {
    /// Decides on the end of a deletion: `skipped` keys of the selection were not planned at all.
    pub fn of_deletion(report: &DeleteReport, skipped: u64) -> Self {
        match &report.halt {
            Some(Halt::Stopped(Stop::Interrupted)) => Self::Interrupted,
            Some(Halt::Stopped(_) | Halt::Audit(_)) => Self::Failed,
            Some(Halt::Guard(_)) => Self::Guard,
            Some(Halt::KeysMax | Halt::BytesMax | Halt::Deadline | Halt::Lost(_) | Halt::Refused(_)) => {
                Self::Partial
            }
            None if report.is_whole() && skipped == 0 => Self::Done,
            None => Self::Partial,
        }
    }
}

/// Returns how many keys are there and could not be measured. One that vanished is not there: keys come
/// and go during any scan of a server that is in use, and a scan that says 3 every night says nothing.
fn keys_unreadable(report: &ScanReport) -> u64 {
    report.skipped.counts.iter().filter(|(why, _)| *why != SkipReason::Vanished).map(|(_, keys)| keys).sum()
}

/// Returns how many keys of the report reach the level. Those whose level is unknown do not.
pub(super) fn keys_from_level(report: &ScanReport, level: Level) -> u64 {
    Level::ALL.iter().zip(report.levels).filter(|(at, _)| **at >= level).map(|(_, keys)| keys).sum()
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::engine::report::sample;

    use super::*;

    /// A report that ended so, with so many keys at each level.
    fn report(completeness: Completeness, levels: [u64; 6], skipped: &[(SkipReason, u64)]) -> ScanReport {
        let mut report = ScanReport { levels, completeness, ..sample::report() };
        report.skipped.counts = skipped.to_vec();
        report
    }

    #[test]
    fn codes_are_those_of_the_page() {
        assert_eq!(Exit::ALL.map(Exit::code), [0, 1, 2, 3, 4, 5, 130]);
    }

    #[test]
    fn what_cut_a_scan_short_goes_before_what_it_found() {
        use Completeness::{Complete, CompleteButSkipped, Partial, Sampled};
        use IncompleteReason as Why;
        let sampled = Sampled { keys: 1, keys_total: Some(2) };
        let cases = [
            (Complete, Exit::Done, Exit::FailOn),
            (sampled, Exit::Partial, Exit::Partial),
            (CompleteButSkipped, Exit::Partial, Exit::Partial),
            (Partial(Why::Interrupted), Exit::Interrupted, Exit::Interrupted),
            (Partial(Why::Guard(Duration::from_secs(1))), Exit::Guard, Exit::Guard),
            (Partial(Why::ConnectionLost("gone".into())), Exit::Partial, Exit::Partial),
            (Partial(Why::ScanRefused("NOPERM".into())), Exit::Partial, Exit::Partial),
            (Partial(Why::RestartedTooOften), Exit::Partial, Exit::Partial),
            (Partial(Why::OutputFailed), Exit::Failed, Exit::Failed),
        ];
        for (completeness, without, with) in cases {
            let skipped = [(SkipReason::Vanished, 5), (SkipReason::NoPermission, 1)];
            let report = report(completeness, [9, 0, 0, 1, 0, 3], &skipped);
            assert_eq!(Exit::of_scan(&report, None), without, "{:?}", report.completeness);
            assert_eq!(Exit::of_scan(&report, Some(Level::High)), with, "{:?}", report.completeness);
        }
    }

    #[test]
    fn keys_that_vanished_leave_a_scan_whole() {
        let report = report(Completeness::CompleteButSkipped, [0; 6], &[(SkipReason::Vanished, 5)]);
        assert_eq!(Exit::of_scan(&report, None), Exit::Done);
    }

    #[test]
    fn a_level_is_reached_from_itself_on_and_unknown_reaches_none() {
        let report = report(Completeness::Complete, [5, 4, 3, 2, 0, 7], &[]);
        let cases = [(Level::Low, 9), (Level::Medium, 5), (Level::High, 2), (Level::Critical, 0)];
        for (level, keys) in cases {
            assert_eq!(keys_from_level(&report, level), keys);
            assert_eq!(Exit::of_scan(&report, Some(level)) == Exit::FailOn, keys > 0);
        }
    }
}
