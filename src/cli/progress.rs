//! Progress on stderr: a bar for people, lines for logs. Nobody else knows that a bar exists.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle as BarStyle};

use crate::engine::event::Progress;
use crate::engine::key::KeyName;

use super::args::{ConsoleArgs, ProgressStyle};
use super::surroundings::Surroundings;

/// Time between two plain lines.
const PLAIN_PERIOD: Duration = Duration::from_secs(5);

/// Redraws a second. More only costs: every one is a write to a terminal that may be far away.
const BAR_HZ: u8 = 8;

/// Characters of a key's name that are shown.
const KEY_CHARS_MAX: usize = 32;

/// How progress is shown, once terminal and flags are settled.
#[derive(Debug)]
pub(super) enum ProgressView {
    /// A bar.
    Bar(ProgressBar),
    /// A line every few seconds.
    Plain {
        /// When the last one was written, or the run began.
        last: Instant,
    },
    /// Nothing.
    None,
}

impl ProgressView {
    /// Settles which it is. `rows_on_terminal`: stdout is the same terminal and rows stream to it, so
    /// that a bar would be drawn between them.
    pub(super) fn new(
        args: ConsoleArgs,
        around: &Surroundings,
        rows_on_terminal: bool,
        bar: &ProgressBar,
    ) -> Self {
        match args.progress {
            _ if args.quiet || args.no_progress => Self::None,
            ProgressStyle::None => Self::None,
            ProgressStyle::Plain => Self::Plain { last: Instant::now() },
            ProgressStyle::Auto if !around.stderr_is_terminal || rows_on_terminal => Self::None,
            ProgressStyle::Auto | ProgressStyle::Bar => {
                let style = BarStyle::with_template("{bar:16} {percent:>3}% {wide_msg}")
                    .expect("the template is ours and well formed")
                    .progress_chars("=> ");
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(BAR_HZ));
                bar.set_style(style);
                Self::Bar(bar.clone())
            }
        }
    }

    /// Shows how far the scan is.
    pub(super) fn update(&mut self, progress: &Progress) {
        match self {
            Self::Bar(bar) => {
                // A keyspace that grew since it was counted is still not more than whole.
                bar.set_length(progress.keys_total.max(progress.keys).max(1));
                bar.set_position(progress.keys);
                bar.set_message(describe(progress));
            }
            Self::Plain { last } => {
                let now = Instant::now();
                if now.duration_since(*last) >= PLAIN_PERIOD {
                    *last = now;
                    let line = format!("progress: {}\n", describe(progress));
                    let _ = io::stderr().lock().write_all(line.as_bytes());
                }
            }
            Self::None => {}
        }
    }

    /// Takes the bar away; the result follows.
    pub(super) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Says how far the scan is, in one line without control characters.
fn describe(progress: &Progress) -> String {
    let mut line = format!("{} of {} keys", grouped(progress.keys), grouped(progress.keys_total));
    let _ = write!(
        line,
        ", {} keys/s, {} commands/s",
        rounded(progress.keys_per_second),
        rounded(progress.commands_per_second)
    );
    if let Some(eta) = eta(progress) {
        let _ = write!(line, ", {} left", humantime::format_duration(eta));
    }
    if let Some((key, kind, allocations)) = &progress.biggest {
        let _ = write!(line, ", biggest {kind} {} ({} allocations)", shortened(key), grouped(*allocations));
    }
    super::console::printable(&line)
}

/// Returns the time until the end in whole seconds, where there is anything to go by.
fn eta(progress: &Progress) -> Option<Duration> {
    let left = progress.keys_total.checked_sub(progress.keys).filter(|left| *left > 0)?;
    let seconds = left as f64 / progress.keys_per_second;
    // A year is no estimate, and neither is a division by nothing.
    (seconds.is_finite() && (0.0..31_536_000.0).contains(&seconds))
        .then(|| Duration::from_secs_f64(seconds.ceil()))
}

/// Returns a name as text, escaped where it must be, its middle left out where it is long: beginnings
/// say the family of a key, ends say which it is.
fn shortened(key: &KeyName) -> String {
    // A name may be 512 MB. Of what is quoted, each byte gives a character at least.
    let bytes = key.as_bytes();
    let (text, ends_at) = if bytes.len() > 4 * KEY_CHARS_MAX {
        let head = KeyName::from(&bytes[..2 * KEY_CHARS_MAX]).quoted();
        let tail = KeyName::from(&bytes[bytes.len() - 2 * KEY_CHARS_MAX..]).quoted();
        (format!("{head}{tail}"), true)
    } else {
        (key.to_text().0.into_owned(), false)
    };
    let count = text.chars().count();
    if count <= KEY_CHARS_MAX && !ends_at {
        return text;
    }
    let half = KEY_CHARS_MAX / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - half + 1).collect();
    format!("{head}\u{2026}{tail}")
}

/// Returns a number with its thousands apart: `1 234 567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn rounded(number: f64) -> String {
    format!("{:.0}", if number.is_finite() { number } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use crate::engine::key::Kind;

    use super::*;

    fn progress() -> Progress {
        Progress {
            db: 0,
            keys: 1_200_000,
            keys_total: 5_000_000,
            commands_per_second: 9_876.4,
            keys_per_second: 38_000.0,
            biggest: Some((KeyName::from("cart:42"), Kind::Set, 3_000_000)),
        }
    }

    #[test]
    fn a_line_says_keys_rate_time_left_and_the_biggest() {
        assert_eq!(
            describe(&progress()),
            "1 200 000 of 5 000 000 keys, 38000 keys/s, 9876 commands/s, 1m 40s left, biggest set cart:42 \
             (3 000 000 allocations)"
        );
    }

    #[test]
    fn without_a_rate_there_is_no_time_left() {
        for keys_per_second in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
            let line = describe(&Progress { keys_per_second, biggest: None, ..progress() });
            assert!(keys_per_second.is_infinite() || !line.contains("left"), "{line}");
        }
        assert_eq!(eta(&Progress { keys: 6_000_000, ..progress() }), None);
    }

    #[test]
    fn names_are_escaped_and_shortened() {
        assert_eq!(shortened(&KeyName::from("cart:42")), "cart:42");
        assert_eq!(shortened(&KeyName::from("\x1b[2J")), r#""\x1b[2J""#);
        assert_eq!(
            shortened(&KeyName::from("session:2024:0123456789:abcdefgh:7")),
            "session:2024:012\u{2026}6789:abcdefgh:7"
        );
        let huge = shortened(&KeyName::new(vec![0_u8; 1_000_000]));
        assert_eq!(huge.chars().count(), KEY_CHARS_MAX);
        assert!(huge.is_ascii() || huge.contains('\u{2026}'));
    }
}
