//! Numbers and names as people read them.
//!
//! Counts and sizes are cut to three digits and never rounded up: 999,999 is `999k` and not `1.00M`,
//! so that nothing seems to have reached a limit that it has not.

use std::borrow::Cow;
use std::time::Duration;

use unicode_width::UnicodeWidthChar;

use crate::engine::key::{KeyEncoding, KeyName};

/// Returns a count in at most five characters: `9999`, `12.3k`, `4.56M`.
pub(crate) fn count(n: u64) -> String {
    if n < 10_000 {
        return n.to_string();
    }
    scaled(n, 1000, &["k", "M", "G", "T", "P", "E"])
}

/// Returns a size: `640 B`, `3.00 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    scaled(n, 1024, &[" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// Returns three digits, cut and not rounded, with the unit that leaves something in front of the point.
fn scaled(n: u64, base: u64, units: &[&str]) -> String {
    let mut unit = base;
    let mut index = 0;
    while index + 1 < units.len() && n / unit >= base {
        unit *= base;
        index += 1;
    }
    let (whole, rest) = (n / unit, u128::from(n % unit));
    let (decimals, power) = match whole {
        0..10 => (2, 100),
        10..100 => (1, 10),
        _ => return format!("{whole}{}", units[index]),
    };
    let fraction = rest * power / u128::from(unit);
    format!("{whole}.{fraction:0decimals$}{}", units[index])
}

/// Returns all digits, in groups: `1,048,576`.
pub(crate) fn exact(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns a number with its noun: `1 key`, `2 keys`.
pub(crate) fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", exact(n))
}

/// Returns a wait: `<0.1 ms`, `0.4 ms`, `12 ms`, `1.3 s`.
pub(crate) fn wait(ms: f64) -> String {
    match ms {
        ms if !ms.is_finite() => "?".to_owned(),
        ms if ms < 0.05 => "<0.1 ms".to_owned(),
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 9_950.0 => format!("{:.1} s", ms / 1e3),
        ms if ms < 600_000.0 => format!("{:.0} s", ms / 1e3),
        ms => format!("{:.0} min", ms / 60e3),
    }
}

/// Returns a round trip, with the digits that a canary has: `0.09`, `12.4`; in milliseconds.
pub(crate) fn latency_ms(latency: Duration) -> String {
    let ms = latency.as_secs_f64() * 1e3;
    match ms {
        ms if ms < 9.995 => format!("{ms:.2}"),
        ms if ms < 99.95 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// Returns a time to live in at most six characters, cut to two units: `59s`, `2h14m`, `45d`.
pub(crate) fn ttl(ttl: Duration) -> String {
    let s = ttl.as_secs();
    match s {
        0 if ttl.is_zero() => "0s".to_owned(),
        0 => "<1s".to_owned(),
        1..60 => format!("{s}s"),
        60..3600 => two(s / 60, "m", s % 60, "s"),
        3600..86_400 => two(s / 3600, "h", s % 3600 / 60, "m"),
        86_400..864_000 => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
        864_000..315_360_000 => format!("{}d", s / 86_400),
        _ => format!("{}y", count(s / 31_536_000)),
    }
}

fn two(high: u64, high_unit: &str, low: u64, low_unit: &str) -> String {
    if low == 0 { format!("{high}{high_unit}") } else { format!("{high}{high_unit}{low}{low_unit}") }
}

/// Returns how long something took: `20.9 s`, `3m12s`.
pub(crate) fn elapsed(elapsed: Duration) -> String {
    match elapsed.as_secs_f64() {
        s if s < 0.0995 => format!("{:.0} ms", s * 1e3),
        s if s < 59.95 => format!("{s:.1} s"),
        _ => ttl(elapsed),
    }
}

/// Returns the width of text on a terminal, in columns.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Shortens text in the middle to so many columns: the end of a key says as much as its beginning.
pub(crate) fn shorten(text: &str, columns: usize) -> Cow<'_, str> {
    // Text without width (combining marks) could go on forever in no column.
    let chars_max = columns * 4;
    if text.len() <= columns || (text.chars().nth(chars_max).is_none() && width(text) <= columns) {
        return Cow::Borrowed(text);
    }
    let room = columns.saturating_sub(1);
    let head: String = fitting(text.chars(), room - room / 2, chars_max / 2).collect();
    let mut tail: Vec<char> = fitting(text.chars().rev(), room / 2, chars_max / 2).collect();
    tail.reverse();
    Cow::Owned(head.chars().chain(std::iter::once('\u{2026}')).chain(tail).collect())
}

/// Returns the first characters, as many as fit.
fn fitting(
    chars: impl Iterator<Item = char>,
    columns: usize,
    chars_max: usize,
) -> impl Iterator<Item = char> {
    let mut used = 0;
    chars.take(chars_max).take_while(move |c| {
        used += c.width().unwrap_or(0);
        used <= columns
    })
}

/// Returns what a server or a user said, safe for a terminal: controls and hidden characters are escaped,
/// all else stays.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, ' '..='~') || is_safe(c) {
            safe.push(c);
        } else {
            let quoted = KeyName::from(c.encode_utf8(&mut [0; 4]) as &str).quoted();
            safe.push_str(&quoted[1..quoted.len() - 1]);
        }
    }
    Cow::Owned(safe)
}

/// Returns whether a character beyond ASCII is safe: the rule is that for keys.
fn is_safe(c: char) -> bool {
    KeyName::from(format!("a{c}a").as_str()).to_text().1 == KeyEncoding::Plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sizes_are_cut_and_never_rounded_up() {
        let counts: Vec<String> =
            [0, 9_999, 10_000, 99_999, 999_999, 1_000_000, 12_345_678, u64::MAX].map(count).into();
        assert_eq!(counts, ["0", "9999", "10.0k", "99.9k", "999k", "1.00M", "12.3M", "18.4E"]);
        let sizes: Vec<String> = [0, 1023, 1024, 1_048_575, 1_048_576, 3 << 30, u64::MAX].map(bytes).into();
        assert_eq!(sizes, ["0 B", "1023 B", "1.00 KiB", "1023 KiB", "1.00 MiB", "3.00 GiB", "15.9 EiB"]);
        assert_eq!([7, 1_000, 1_048_576].map(exact), ["7", "1,000", "1,048,576"]);
    }

    #[test]
    fn times_are_read_at_a_glance() {
        let waits = [0.0, 0.36, 1.25, 95.4, 999.7, 12_345.0, 1e7, f64::NAN].map(wait);
        assert_eq!(waits, ["<0.1 ms", "0.4 ms", "1.2 ms", "95 ms", "1.0 s", "12 s", "167 min", "?"]);
        let ttls =
            [0, 59, 60, 8040, 86_400, 90_061, 3_888_000, u64::MAX].map(|s| ttl(Duration::from_secs(s)));
        assert_eq!(ttls, ["0s", "59s", "1m", "2h14m", "1d", "1d1h", "45d", "584Gy"]);
        assert_eq!(ttl(Duration::from_millis(3)), "<1s");
    }

    #[test]
    fn names_are_shortened_by_what_a_terminal_shows() {
        assert_eq!(shorten("session:index:all", 17), "session:index:all");
        assert_eq!(shorten("session:index:all", 9), "sess\u{2026}:all");
        let wide = "\u{7528}\u{6237}:\u{7d22}\u{5f15}:\u{5168}\u{90e8}";
        assert_eq!(width(wide), 14);
        for columns in 0..20 {
            assert!(width(&shorten(wide, columns)) <= columns.max(1), "{columns}");
        }
        let zalgo = format!("a{}", "\u{301}".repeat(1 << 20));
        assert!(shorten(&zalgo, 20).chars().count() <= 81);
    }

    #[test]
    fn what_a_server_says_cannot_steer_the_terminal() {
        assert_eq!(safe("ERR caf\u{e9} =1,2"), "ERR caf\u{e9} =1,2");
        assert_eq!(safe("\u{1b}[2J\u{202e}x\n"), "\\x1b[2J\\xe2\\x80\\xaex\\n");
    }
}
