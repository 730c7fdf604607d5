//! The only place that prints. Results go to stdout, everything else to stderr.
//!
//! What a server said may be hostile: no control character gets from there to a terminal. A stderr
//! that is gone is ignored; a stdout that is gone is the quiet end of the run.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, ErrorKind as IoErrorKind, StdoutLock, Write};
use std::rc::Rc;

use clap::error::{ContextKind, ContextValue, ErrorKind as ClapErrorKind};
use indicatif::ProgressBar;

use super::args::{ConsoleArgs, redact};
use super::error::{CommandError, ErrorKind};
use super::exit::Exit;
use super::surroundings::Surroundings;

/// Where messages go, and which of them.
#[derive(Debug)]
pub(super) struct Console {
    quiet: bool,
    verbose: bool,
    color: bool,
    /// Hidden while a message is written, so that neither breaks the other.
    bar: ProgressBar,
}

impl Console {
    /// Makes the console that the flags ask for.
    pub(super) fn new(args: ConsoleArgs, around: &Surroundings) -> Self {
        Self {
            quiet: args.quiet,
            verbose: args.verbose,
            color: around.stderr_is_terminal && !around.no_color && !args.no_color,
            bar: ProgressBar::hidden(),
        }
    }

    /// Makes the console of a command that has no flags for it.
    pub(super) fn plain(around: &Surroundings) -> Self {
        Self::new(ConsoleArgs::default(), around)
    }

    /// Returns the bar that messages make room for.
    pub(super) fn bar(&self) -> &ProgressBar {
        &self.bar
    }

    /// Returns whether `-v` asked for more.
    pub(super) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Prints an error with its hints.
    pub(super) fn error(&self, error: &CommandError) {
        self.line("error", "\x1b[1;31m", &error.to_string());
        for hint in error.hints() {
            self.line("hint", "\x1b[1;36m", hint);
        }
    }

    /// Prints something that a person should know, unless `--quiet`.
    pub(super) fn warn(&self, text: &str) {
        if !self.quiet {
            self.line("warning", "\x1b[1;33m", text);
        }
    }

    /// Prints something good to know, unless `--quiet`.
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            self.line("note", "\x1b[1m", text);
        }
    }

    /// Prints a detail, with `-v`.
    pub(super) fn detail(&self, text: &str) {
        if self.verbose {
            self.line("", "", text);
        }
    }

    fn line(&self, label: &str, color: &str, text: &str) {
        let mut line = String::with_capacity(text.len() + 16);
        if !label.is_empty() {
            let (color, reset) = if self.color { (color, "\x1b[0m") } else { ("", "") };
            let _ = write!(line, "{color}{label}:{reset} ");
        }
        line.push_str(&printable(text));
        line.push('\n');
        self.bar.suspend(|| {
            let _ = io::stderr().lock().write_all(line.as_bytes());
        });
    }
}

/// Returns stdout for results, and the way to take back what has not left yet.
pub(super) fn stdout() -> (Held<StdoutLock<'static>>, TakeBack) {
    let take_back = TakeBack::default();
    (Held { output: io::stdout().lock(), buffer: Vec::new(), take_back: take_back.clone() }, take_back)
}

/// Takes back what is held: a run that fails before its first result writes no header of an empty table.
///
/// A switch, and not the drop of what holds it: the writers of formats flush when they are dropped.
#[derive(Debug, Clone, Default)]
pub(super) struct TakeBack(Rc<Cell<bool>>);

impl TakeBack {
    /// From now on nothing is written.
    pub(super) fn take_back(&self) {
        self.0.set(true);
    }
}

/// Holds back what is written until the buffer is full or flushed.
#[derive(Debug)]
pub(super) struct Held<W: Write> {
    output: W,
    buffer: Vec<u8>,
    take_back: TakeBack,
}

/// Bytes that are held back.
const HELD_BYTES: usize = 64 << 10;

impl<W: Write> Held<W> {
    /// Writes what was held back. What could not be written is dropped, so that no retry writes it twice.
    fn release(&mut self) -> io::Result<()> {
        let written = if self.take_back.0.get() { Ok(()) } else { self.output.write_all(&self.buffer) };
        self.buffer.clear();
        written
    }
}

impl<W: Write> Write for Held<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > HELD_BYTES {
            self.release()?;
        }
        if bytes.len() > HELD_BYTES {
            self.buffer.extend_from_slice(bytes);
            self.release()?;
            return Ok(bytes.len());
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.release()?;
        self.output.flush()
    }
}

/// Prints a result on stdout. A reader that is gone is no failure.
pub(super) fn print(bytes: &[u8]) -> Result<Exit, CommandError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != IoErrorKind::BrokenPipe => {
            Err(CommandError::new(ErrorKind::Output(None)).because(error))
        }
        _ => Ok(Exit::Done),
    }
}

/// Prints what clap has to say: help, version, or what is wrong with the command line.
pub(super) fn answer(refusal: &clap::Error, around: &Surroundings) -> Exit {
    let rendered = refusal.render();
    if !refusal.use_stderr() {
        let color = around.stdout_is_terminal && !around.no_color;
        let text = if color { rendered.ansi().to_string() } else { rendered.to_string() };
        return print(text.as_bytes()).unwrap_or_else(|error| error.exit());
    }
    let color = around.stderr_is_terminal && !around.no_color;
    // clap repeats what was typed, and somebody may have typed a URL with a password in a wrong place.
    let mut text = redact(&if color { rendered.ansi().to_string() } else { rendered.to_string() });
    if typed_a_password(refusal) {
        text.push_str(
            "\nhint: a password never goes on the command line, where every user can read it: use REDISCLI_AUTH, \
             --askpass or --password-file\n",
        );
    }
    let _ = io::stderr().lock().write_all(text.as_bytes());
    Exit::Usage
}

/// Returns whether somebody typed redis-cli's flag for a password.
fn typed_a_password(refusal: &clap::Error) -> bool {
    let flag = match refusal.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => flag.as_str(),
        _ => "",
    };
    refusal.kind() == ClapErrorKind::UnknownArgument
        && (flag == "-a" || flag.starts_with("--pass") || flag.starts_with("--auth"))
}

/// Escapes what could move the cursor, change colours, break the line, or reorder the text.
pub(super) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || reorders {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::Cli;
    use super::*;

    #[test]
    fn no_escape_sequence_gets_to_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc\u{202e}d\u{9b}"), "a\\u{1b}[2Jb\\nc\\u{202e}d\\u{9b}");
        assert_eq!(printable("caf\u{e9} \u{6570}"), "caf\u{e9} \u{6570}");
    }

    #[test]
    fn what_is_taken_back_is_never_written() {
        let mut output = Vec::new();
        let take_back = TakeBack::default();
        let mut held = Held { output: &mut output, buffer: Vec::new(), take_back: take_back.clone() };
        held.write_all(b"kept").expect("it is memory");
        held.flush().expect("it is memory");
        held.write_all(b"taken back").expect("it is memory");
        take_back.take_back();
        held.flush().expect("it is memory");
        assert_eq!(output, b"kept");
    }

    #[test]
    fn order_is_kept_whatever_the_size_of_a_piece() {
        let mut output = Vec::new();
        let mut expected = Vec::new();
        let mut held = Held { output: &mut output, buffer: Vec::new(), take_back: TakeBack::default() };
        for (at, size) in [1, HELD_BYTES, 7, HELD_BYTES + 1, 3, 2 * HELD_BYTES, 0, 5].into_iter().enumerate()
        {
            let piece = vec![u8::try_from(at).expect("there are few"); size];
            held.write_all(&piece).expect("it is memory");
            expected.extend_from_slice(&piece);
        }
        held.flush().expect("it is memory");
        assert!(output == expected);
    }

    #[test]
    fn the_flag_of_redis_cli_for_a_password_is_explained() {
        for typed in [&["-a", "x"][..], &["-ax"], &["--pass", "x"], &["--pass=x"], &["--password=x"]] {
            let line = ["bigkeys", "scan"].iter().chain(typed);
            let refusal = Cli::try_parse_from(line).expect_err("there is no such flag");
            assert!(typed_a_password(&refusal), "{typed:?}");
        }
        let refusal =
            Cli::try_parse_from(["bigkeys", "scan", "--apples"]).expect_err("there is no such flag");
        assert!(!typed_a_password(&refusal));
    }
}
