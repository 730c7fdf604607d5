//! What went wrong, wrapped once, and the one way to say it.
//!
//! ```text
//! error: cannot read the password file `/run/redis.pass`: permission denied
//! hint: run as its owner, or give the password in REDISCLI_AUTH
//! ```

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use super::exit::Exit;

/// What was being done when it went wrong. `Display` says it, without the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line makes no sense, or not together with the environment.
    Usage(String),
    /// The password could not be had.
    Password(String),
    /// An output could not be created or written. `None` is stdout.
    Output(Option<PathBuf>),
    /// The scan could not begin, or has no result.
    Scan,
    /// The plan could not be made, or not be begun with.
    Delete,
    /// The latency guard stopped the run before there was a result.
    Guard,
    /// A file of keys, or an audit, cannot be read.
    Input(PathBuf),
    /// The bundled server could not run. The port, where the command line or its default says it.
    Serve(Option<u16>),
    /// The machine refused something that should always work: a thread, a signal handler.
    System(&'static str),
    /// Ctrl-C came before there was a result.
    Interrupted,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Password(text) => f.write_str(text),
            Self::Output(Some(path)) => write!(f, "cannot write `{}`", path.display()),
            Self::Output(None) => f.write_str("cannot write to stdout"),
            // What the engine could not do is in its own words.
            Self::Scan | Self::Delete | Self::Guard => Ok(()),
            Self::Input(path) => write!(f, "cannot read `{}`", path.display()),
            Self::Serve(Some(port)) => write!(f, "cannot run the bundled server on port {port}"),
            Self::Serve(None) => f.write_str("cannot run the bundled server"),
            Self::System(text) => f.write_str(text),
            Self::Interrupted => f.write_str("interrupted before there was a result"),
        }
    }
}

/// An error as the front desk tells it: what was being done, why it failed, what to try.
#[derive(Debug)]
pub struct CommandError {
    kind: ErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
    hints: Vec<String>,
}

impl CommandError {
    /// Makes an error without a cause.
    pub fn new(kind: ErrorKind) -> Self {
        Self { kind, source: None, hints: Vec::new() }
    }

    /// Makes an error for a command line that makes no sense.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage(text.into()))
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds something to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Returns what was being done.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Returns what to try.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }

    /// Returns the exit code that it means.
    pub fn exit(&self) -> Exit {
        match self.kind {
            ErrorKind::Usage(_) => Exit::Usage,
            ErrorKind::Interrupted => Exit::Interrupted,
            ErrorKind::Guard => Exit::Guard,
            ErrorKind::Password(_)
            | ErrorKind::Output(_)
            | ErrorKind::Scan
            | ErrorKind::Delete
            | ErrorKind::Input(_)
            | ErrorKind::Serve(_)
            | ErrorKind::System(_) => Exit::Failed,
        }
    }
}

/// The whole story on one line: what was being done, then each cause that says something new.
///
/// Many errors repeat their source in their own text; a cause that the line already ends with or holds
/// is left out, so that nothing is said twice.
impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.kind.to_string();
        let mut cause = self.source.as_deref().map(|source| source as &(dyn Error + 'static));
        while let Some(error) = cause {
            let text = match error.downcast_ref::<io::Error>() {
                Some(error) => plain(error),
                None => error.to_string(),
            };
            if !text.is_empty() && !line.contains(&text) {
                if !line.is_empty() {
                    line.push_str(": ");
                }
                line.push_str(&text);
            }
            cause = error.source();
        }
        f.write_str(&line)
    }
}

/// Returns what the system says, as we write: no capital, no number that nobody looks up.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split_once(" (os error ").map_or(text.as_str(), |(text, _)| text);
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        // `I/O` and the like keep theirs.
        (Some(first), Some(second)) if second.is_lowercase() => {
            format!("{}{}", first.to_lowercase(), &text[first.len_utf8()..])
        }
        _ => text.to_owned(),
    }
}

impl Error for CommandError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapper(io::Error);

    impl fmt::Display for Wrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "cannot reach h:1: {}", self.0)
        }
    }

    impl Error for Wrapper {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_cause_is_told_once() {
        let cause = Wrapper(io::Error::other("refused"));
        let error = CommandError::new(ErrorKind::Scan).because(cause);
        assert_eq!(error.to_string(), "cannot reach h:1: refused");
        assert_eq!(error.exit(), Exit::Failed);
    }

    #[test]
    fn what_the_system_says_is_said_as_we_write() {
        let error = CommandError::new(ErrorKind::Output(None)).because(io::Error::from_raw_os_error(28));
        assert_eq!(error.to_string(), "cannot write to stdout: no space left on device");
    }

    #[test]
    fn what_was_done_comes_before_why_it_failed() {
        let error =
            CommandError::new(ErrorKind::Output(Some("a.csv".into()))).because(io::Error::other("disk full"));
        assert_eq!(error.to_string(), "cannot write `a.csv`: disk full");
    }
}
