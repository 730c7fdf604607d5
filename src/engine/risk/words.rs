//! Numbers as a tired person reads them.

use std::time::Duration;

/// Writes a stall: `0.6 s`, `82 ms`, `under 1 ms`. One or two digits, since more would be a lie.
pub(super) fn about(ms: f64) -> String {
    if ms >= 9_950.0 {
        format!("{:.0} s", ms / 1_000.0)
    } else if ms >= 100.0 {
        format!("{:.1} s", ms / 1_000.0)
    } else if ms >= 1.0 {
        format!("{ms:.0} ms")
    } else {
        "under 1 ms".to_owned()
    }
}

/// Writes a time to live in its largest unit, rounded down: `3d`, `2h`, `10m`, `45s`.
pub(super) fn span(left: Duration) -> String {
    let seconds = left.as_secs();
    match seconds {
        0 => "under a second".to_owned(),
        1..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_written_with_the_digits_that_are_known() {
        for (ms, text) in [
            (0.4, "under 1 ms"),
            (1.0, "1 ms"),
            (82.4, "82 ms"),
            (99.9, "100 ms"),
            (100.0, "0.1 s"),
            (612.0, "0.6 s"),
            (12_345.0, "12 s"),
        ] {
            assert_eq!(about(ms), text, "{ms}");
        }
    }

    #[test]
    fn times_to_live_are_written_in_their_largest_unit() {
        for (seconds, text) in [
            (0, "under a second"),
            (45, "45s"),
            (119, "119s"),
            (120, "2m"),
            (7_200, "2h"),
            (90_000, "25h"),
            (172_800, "2d"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }
}
