//! Numbers as text, the way Redis reads and writes them. The encodings depend on it: a string is an
//! integer only when writing the integer gives the same bytes back, and so does the wire. Knows nothing
//! of either.

/// Whole numbers up to here are written as such, half of what an `i64` holds: the bound of Redis.
const WHOLE_MAX: f64 = 4_611_686_018_427_387_904.0;
/// The longest text of an `i64`, sign included.
const LONGEST_INTEGER: usize = 20;

/// Reads a canonical decimal integer: no plus, no space, no leading zero, no `-0`.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let negative = digits.len() != text.len();
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if text.len() <= LONGEST_INTEGER => {}
        _ => return None,
    }
    // Counting down reaches i64::MIN, which has no positive twin.
    let mut value = 0i64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Reads a double as `strtod` does for Redis: `inf`, `+inf` and exponents are fine, spaces and `nan`
/// are not.
pub(crate) fn parse_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.trim_start_matches(['+', '-']);
    if text.len() - unsigned.len() > 1 {
        return None;
    }
    if let Some(hex) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let magnitude = u64::from_str_radix(hex, 16).ok()? as f64;
        return Some(if text.starts_with('-') { -magnitude } else { magnitude });
    }
    let value: f64 = text.parse().ok()?;
    let overflowed = value.is_infinite() && !unsigned.starts_with(['i', 'I']);
    (!value.is_nan() && !overflowed).then_some(value)
}

/// Writes a score or another double: the shortest text that reads back the same, in plain notation
/// while that stays short.
pub(crate) fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        return format!("{value:.0}");
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let digits = i32::try_from(digits).unwrap_or(17);
    // The rule of the printer that Redis embeds: `shift` is the power of ten of the last digit.
    let shift = exponent - digits + 1;
    let plain =
        (shift >= 0 && exponent.abs() < digits + 7) || (shift < 0 && (shift > -7 || exponent.abs() < 4));
    if plain {
        format!("{value}")
    } else {
        format!("{mantissa}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
    }
}

/// Writes a double with 17 significant digits, C's `%.17g`: exact, and ugly for 0.1.
pub(crate) fn format_exact(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return format_double(value);
    }
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text.to_owned(),
    };
    match usize::try_from(16 - exponent) {
        Ok(decimals) if exponent >= -4 => trim(&format!("{value:.decimals$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
        }
    }
}

/// Writes the result of a float increment: at most 17 decimals, never an exponent, no trailing zeros.
pub(crate) fn format_sum(value: f64) -> String {
    let text = format!("{value}");
    match text.split_once('.') {
        Some((whole, decimals)) if decimals.len() > 17 => {
            let decimals = decimals[..17].trim_end_matches('0');
            let text = if decimals.is_empty() { whole.to_owned() } else { format!("{whole}.{decimals}") };
            if text == "-0" { "0".to_owned() } else { text }
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_integers_are_integers() {
        for n in [0, 7, -1, i64::MIN, i64::MAX] {
            assert_eq!(parse_integer(n.to_string().as_bytes()), Some(n));
        }
        for text in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    #[allow(clippy::unreadable_literal, clippy::excessive_precision, reason = "spelled as a client would")]
    fn doubles_are_written_short() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (0.1, "0.1"),
            (1.1, "1.1"),
            (-1.5, "-1.5"),
            (2.5625, "2.5625"),
            (1234.5678, "1234.5678"),
            (0.0001, "0.0001"),
            (1e-5, "0.00001"),
            (1e-7, "1e-7"),
            (1e-9, "1e-9"),
            (1.5e-9, "1.5e-9"),
            (1e7, "10000000"),
            (123456789.0, "123456789"),
            (1e18, "1000000000000000000"),
            (1e20, "1e+20"),
            (1e21, "1e+21"),
            (123456789012345680000.0, "123456789012345680000"),
            (17_179_869_184.5, "17179869184.5"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(format_double(value), text);
        }
    }

    #[test]
    fn seventeen_digits_are_those_of_c() {
        let cases = [
            (0.1, "0.10000000000000001"),
            (1e-5, "1.0000000000000001e-05"),
            (1e18, "1e+18"),
            (1e16, "10000000000000000"),
            (-2.5, "-2.5"),
            (0.001, "0.001"),
        ];
        for (value, text) in cases {
            assert_eq!(format_exact(value), text);
        }
    }

    #[test]
    fn doubles_are_read_strictly() {
        assert_eq!(parse_double(b"+inf"), Some(f64::INFINITY));
        assert_eq!(parse_double(b"1e3"), Some(1000.0));
        assert_eq!(parse_double(b"0x10"), Some(16.0));
        for text in ["nan", "", " 1", "1 ", "--1", "1e999", "abc"] {
            assert_eq!(parse_double(text.as_bytes()), None, "{text:?}");
        }
    }
}
