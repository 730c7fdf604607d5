//! What holds the command thread for long, and who looks after the other clients until it is over.

/// What the command thread is inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    /// A script past `busy-reply-threshold`. One that has written cannot be killed.
    Script { has_written: bool },
    /// A file that is being loaded.
    Loading,
}

/// What the clients that were looked after want.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Verdict {
    #[default]
    GoOn,
    /// SCRIPT KILL
    Kill,
    /// SHUTDOWN NOSAVE
    ShutDown,
}

/// Whoever can look after the other clients while the command thread is busy.
pub(crate) trait Meanwhile {
    /// Serves what can be served.
    fn serve(&self, busy: Busy) -> Verdict;
}
