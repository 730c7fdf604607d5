//! Numbers as text, in the only spellings that Redis reads and writes.

/// Parses a signed 64-bit integer in its canonical spelling: no plus sign, no leading zero, no
/// space. What passes here may be stored as a number and printed back unchanged.
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [first, ..] => *first != b'0',
        [] => false,
    };
    // 19 digits and a sign are the most that can fit.
    if !canonical || digits.len() > 19 {
        return None;
    }
    let negative = digits.len() != text.len();
    let mut value: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|d| *d <= 9)?);
        let signed = if negative { -digit } else { digit };
        value = value.checked_mul(10)?.checked_add(signed)?;
    }
    Some(value)
}

/// Returns the shortest text that reads back as `value`, laid out as Redis 7.2 does: plain
/// notation while it stays short, `1e+21` style beyond, `inf` and `nan` in words.
pub(crate) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    // Whole numbers are written as such up to half of what an i64 holds.
    if value.fract() == 0.0 && value.abs() <= 4_611_686_018_427_387_904.0 {
        return format!("{value:.0}");
    }
    let scientific = format!("{:e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').expect("LowerExp always writes an e");
    let exponent: i32 = exponent.parse().expect("LowerExp writes a decimal exponent");
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = i32::try_from(digits.len()).expect("a double has at most 17 digits");
    // value = 0.d1d2d3... x 10^(exponent + 1); trailing = power of ten of the last digit.
    let trailing = exponent + 1 - count;
    let sign = if value < 0.0 { "-" } else { "" };
    if trailing >= 0 && exponent < count + 7 {
        let zeros = "0".repeat(usize::try_from(trailing).unwrap_or(0));
        return format!("{sign}{digits}{zeros}");
    }
    if trailing < 0 && (trailing > -7 || exponent.abs() < 4) {
        if exponent < 0 {
            let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
            return format!("{sign}0.{zeros}{digits}");
        }
        let (whole, fraction) = digits.split_at(usize::try_from(exponent + 1).unwrap_or(0));
        return format!("{sign}{whole}.{fraction}");
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let plus = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{plus}{}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_integers_are_integers() {
        for (text, value) in
            [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(parse_i64(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "",
            "-",
            "-0",
            "01",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "99999999999999999999",
            "0x1",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    #[allow(clippy::unreadable_literal, clippy::excessive_precision, reason = "spelled as a client would")]
    fn doubles_read_as_redis_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (1.1, "1.1"),
            (2.5625, "2.5625"),
            (1e20, "1e+20"),
            (1e7, "10000000"),
            (1e8, "100000000"),
            (123456789.0, "123456789"),
            (123456789012345680000.0, "123456789012345680000"),
            (1e-5, "0.00001"),
            (1e-7, "1e-7"),
            (0.0001, "0.0001"),
            (1.5e-9, "1.5e-9"),
            (1234.5678, "1234.5678"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(double_text(value), text);
        }
    }
}
