//! What a run finds around it: terminal and environment. Read once, here and nowhere else, and passed on
//! as plain data, so that a test can say what it likes.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};

/// Terminal and environment. No `Debug`: both variables may hold a password.
#[derive(Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is something to find around")]
pub(super) struct Surroundings {
    /// `BIGKEYS_URL`, unless empty.
    pub(super) url: Option<OsString>,
    /// `REDISCLI_AUTH`, unless empty.
    pub(super) auth: Option<OsString>,
    /// `NO_COLOR` is set and not empty (as no-color.org asks), or the terminal is dumb.
    pub(super) no_color: bool,
    /// Whether stdout is a terminal.
    pub(super) stdout_is_terminal: bool,
    /// Whether stderr is a terminal.
    pub(super) stderr_is_terminal: bool,
    /// Whether stdin is a terminal.
    pub(super) stdin_is_terminal: bool,
    /// The user's name, for the audit.
    pub(super) user: Option<String>,
    /// This machine's name, for the audit.
    pub(super) host: Option<String>,
    /// Columns of the terminal, where stdout is one.
    pub(super) columns: Option<u16>,
}

impl Surroundings {
    /// Returns a variable that somebody named for a password, unless empty.
    #[expect(clippy::unused_self, reason = "the environment is part of what is around")]
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        env::var_os(name).filter(|value| !value.is_empty())
    }

    /// Looks around.
    pub(super) fn look() -> Self {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        let dumb = variable("TERM").is_some_and(|term| term == "dumb");
        let columns = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0);
        Self {
            url: variable("BIGKEYS_URL"),
            auth: variable("REDISCLI_AUTH"),
            no_color: dumb || variable("NO_COLOR").is_some(),
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            stdin_is_terminal: io::stdin().is_terminal(),
            user: variable("USER").or_else(|| variable("LOGNAME")).and_then(|name| name.into_string().ok()),
            host: host_name().or_else(|| variable("HOSTNAME").and_then(|name| name.into_string().ok())),
            columns,
        }
    }
}

/// What Linux calls this machine.
fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
