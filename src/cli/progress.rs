//! Progress on stderr: a bar for people, lines for logs. Nobody else knows that a bar exists.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle as BarStyle};

use crate::engine::delete::DeleteProgress;
use crate::engine::event::Progress;
use crate::engine::key::KeyName;

use super::args::{ConsoleArgs, ProgressStyle};
use super::surroundings::Surroundings;

/// Time between two plain lines.
const PLAIN_PERIOD: Duration = Duration::from_secs(5);

/// Redraws a second. More only costs: every one is a write to a terminal that may be far away.
const BAR_HZ: u8 = 8;

/// Characters of a key's name in a line.
const KEY_CHARS: usize = 32;

/// Characters of a key's name beside the bar: as many as leave room for the rest in 80 columns.
const KEY_CHARS_BAR: usize = 16;

/// Servers that have a line of their own below the bar.
const NODES_SHOWN: usize = 8;

/// How progress is shown, once terminal and flags are settled.
#[derive(Debug)]
pub(super) enum ProgressView {
    /// A bar.
    Bar(ProgressBar),
    /// A line every few seconds.
    Plain {
        /// When the last one was written. The first one says that the scan began, and comes at once.
        last: Option<Instant>,
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
            ProgressStyle::Plain => Self::Plain { last: None },
            ProgressStyle::Auto if !around.stderr_is_terminal || rows_on_terminal => Self::None,
            ProgressStyle::Auto | ProgressStyle::Bar => {
                let style = BarStyle::with_template("{bar:8} {wide_msg}{prefix}")
                    .expect("the template is ours and well formed")
                    .progress_chars("=> ");
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(BAR_HZ));
                bar.set_style(style);
                bar.set_message("connecting");
                Self::Bar(bar.clone())
            }
        }
    }

    /// Shows how far the scan is.
    pub(super) fn update(&mut self, progress: &Progress) {
        match self {
            Self::Bar(bar) => {
                // A keyspace that grew since it was counted is still not more than whole.
                bar.set_length(progress.keys_total.unwrap_or(0).max(progress.keys).max(1));
                bar.set_position(progress.keys);
                bar.set_message(summarize(progress));
                bar.set_prefix(node_lines(progress));
            }
            Self::Plain { last } => {
                let now = Instant::now();
                if last.is_none_or(|last| now.duration_since(last) >= PLAIN_PERIOD) {
                    *last = Some(now);
                    let line = format!("progress: {}\n", describe(progress));
                    let _ = io::stderr().lock().write_all(line.as_bytes());
                }
            }
            Self::None => {}
        }
    }

    /// Shows how far a deletion is.
    pub(super) fn update_deletion(&mut self, progress: &DeleteProgress) {
        match self {
            Self::Bar(bar) => {
                bar.set_length(progress.keys_total.max(1));
                bar.set_position(progress.keys);
                bar.set_message(describe_deletion(progress, KEY_CHARS_BAR));
            }
            Self::Plain { last } => {
                let now = Instant::now();
                if last.is_none_or(|last| now.duration_since(last) >= PLAIN_PERIOD) {
                    *last = Some(now);
                    let line = format!("progress: {}\n", describe_deletion(progress, KEY_CHARS));
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

/// Says how far a deletion is.
fn describe_deletion(progress: &DeleteProgress, key_chars: usize) -> String {
    let mut line = format!("{}/{} keys", compact(progress.keys), compact(progress.keys_total));
    let _ = write!(line, ", PING {:.1} ms", progress.canary.as_secs_f64() * 1e3);
    if let Some((key, gone, total)) = &progress.taking_apart {
        let of = total.map(|total| format!("/{}", compact(total))).unwrap_or_default();
        let _ = write!(line, ", {} {}{of}", shortened(key, key_chars), compact(*gone));
    }
    super::console::printable(&line)
}

/// Says how far the scan is, in as few characters as a bar leaves.
fn summarize(progress: &Progress) -> String {
    let mut line = match progress.keys_total {
        Some(total) => format!("{}/{} keys", compact(progress.keys), compact(total)),
        None => format!("{} keys", compact(progress.keys)),
    };
    let _ = write!(line, ", {}/s", compact(rounded(progress.keys_per_second)));
    if let Some(eta) = eta(progress) {
        let (left, unit) = match eta.as_secs() {
            seconds @ 0..100 => (seconds, "s"),
            seconds @ 100..6_000 => (seconds.div_ceil(60), "m"),
            seconds => (seconds.div_ceil(3_600), "h"),
        };
        let _ = write!(line, ", {left}{unit} left");
    }
    if let Some((key, kind, allocations)) = &progress.biggest {
        let _ = write!(line, ", biggest {kind} {} {}", shortened(key, KEY_CHARS_BAR), compact(*allocations));
    }
    super::console::printable(&line)
}

/// Says how far each of several servers is, in a line each below the bar.
fn node_lines(progress: &Progress) -> String {
    let mut lines = String::new();
    let (done, busy): (Vec<_>, Vec<_>) = progress.nodes.iter().partition(|node| node.is_done);
    for node in busy.iter().chain(&done).take(NODES_SHOWN) {
        let mut line = format!("  {}  {}", node.node, compact(node.keys));
        if let Some(total) = node.keys_total {
            let _ = write!(line, "/{}", compact(total));
        }
        if node.is_done {
            line.push_str(" done");
        } else {
            let _ = write!(line, ", {}/s", compact(rounded(node.keys_per_second)));
        }
        let _ = write!(lines, "\n{}", super::console::printable(&line));
    }
    let rest = progress.nodes.len().saturating_sub(NODES_SHOWN);
    if rest > 0 {
        let _ = write!(lines, "\n  and {rest} more");
    }
    lines
}

/// Says how far the scan is, in one line of a log.
fn describe(progress: &Progress) -> String {
    let mut line = match progress.keys_total {
        Some(total) => format!("{} of {} keys", grouped(progress.keys), grouped(total)),
        None => format!("{} keys", grouped(progress.keys)),
    };
    if progress.keys_per_second > 0.0 {
        let keys = grouped(rounded(progress.keys_per_second));
        let commands = grouped(rounded(progress.commands_per_second));
        let _ = write!(line, ", {keys} keys/s, {commands} commands/s");
    }
    if let Some(eta) = eta(progress) {
        let _ = write!(line, ", {} left", humantime::format_duration(eta));
    }
    if let Some((key, kind, allocations)) = &progress.biggest {
        let _ = write!(
            line,
            ", biggest {kind} {} ({} allocations)",
            shortened(key, KEY_CHARS),
            grouped(*allocations)
        );
    }
    super::console::printable(&line)
}

/// Returns the time until the end in whole seconds, where there is anything to go by.
fn eta(progress: &Progress) -> Option<Duration> {
    let left = progress.keys_total?.checked_sub(progress.keys).filter(|left| *left > 0)?;
    let seconds = left as f64 / progress.keys_per_second;
    // A year is no estimate, and neither is a division by nothing.
    (seconds.is_finite() && (0.0..31_536_000.0).contains(&seconds))
        .then(|| Duration::from_secs_f64(seconds.ceil()))
}

/// Returns a name as text, escaped where it must be, its middle left out where it is long: beginnings
/// say the family of a key, ends say which it is.
fn shortened(key: &KeyName, chars_max: usize) -> String {
    // A name may have 512 MB. Each character shown takes four bytes at the most, so that these ends are
    // enough, wherever they cut a character.
    let bytes = key.as_bytes();
    let end = 4 * chars_max;
    let text = if bytes.len() > 2 * end {
        let head = KeyName::from(&bytes[..end]).quoted();
        let tail = KeyName::from(&bytes[bytes.len() - end..]).quoted();
        format!("{}{}", &head[..head.len() - 1], &tail[1..])
    } else {
        key.to_text().0.into_owned()
    };
    let count = text.chars().count();
    if count <= chars_max {
        return text;
    }
    let half = chars_max / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - (chars_max - half - 1)).collect();
    format!("{head}\u{2026}{tail}")
}

/// Returns a number in four or five characters: `987`, `12.3k`, `4.0M`.
fn compact(number: u64) -> String {
    let (unit, factor) = match number {
        0..1_000 => return number.to_string(),
        1_000..1_000_000 => ("k", 1_000),
        1_000_000..1_000_000_000 => ("M", 1_000_000),
        _ => ("G", 1_000_000_000),
    };
    // Rounded down: a bar that says 4.0M of 4.0M would be done.
    match (number / factor, number % factor * 10 / factor) {
        (whole @ 0..100, tenth) => format!("{whole}.{tenth}{unit}"),
        (whole, _) => format!("{whole}{unit}"),
    }
}

/// Returns a number with its thousands apart: `1 234 567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and NaN is 0"
)]
fn rounded(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use crate::engine::key::Kind;

    use super::*;

    fn progress() -> Progress {
        Progress {
            db: 0,
            keys: 1_200_000,
            keys_total: Some(5_000_000),
            commands_per_second: 9_876.4,
            keys_per_second: 38_000.0,
            biggest: Some((KeyName::from("cart:42"), Kind::Set, 3_000_000)),
            nodes: Vec::new(),
        }
    }

    #[test]
    fn a_line_says_keys_rate_time_left_and_the_biggest() {
        assert_eq!(
            describe(&progress()),
            "1 200 000 of 5 000 000 keys, 38 000 keys/s, 9 876 commands/s, 1m 40s left, biggest set cart:42 \
             (3 000 000 allocations)"
        );
    }

    #[test]
    fn a_bar_and_its_words_fit_80_columns() {
        let biggest = Some((KeyName::from("session:2024:0123456789"), Kind::Stream, 3_000_000));
        let words = summarize(&Progress { biggest, ..progress() });
        assert_eq!(words, "1.2M/5.0M keys, 38.0k/s, 2m left, biggest stream session:\u{2026}3456789 3.0M");
        assert!(words.chars().count() + "======== ".len() <= 80);
    }

    #[test]
    fn compact_numbers_round_down() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1.0k"),
            (12_345, "12.3k"),
            (999_999, "999k"),
            (u64::MAX, "18446744073G"),
        ];
        for (number, text) in cases {
            assert_eq!(compact(number), text);
        }
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
        let cases = [
            ("cart:42", "cart:42"),
            ("\x1b[2J", r#""\x1b[2J""#),
            ("session:2024:0123456789:abcdefgh:7", "session:2024:012\u{2026}6789:abcdefgh:7"),
        ];
        for (name, text) in cases {
            assert_eq!(shortened(&KeyName::from(name), 32), text);
        }
        let huge = shortened(&KeyName::new(vec![0_u8; 1_000_000]), 16);
        assert_eq!(huge, "\"\\x00\\x0\u{2026}00\\x00\"");
    }
}
