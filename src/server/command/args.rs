//! Arguments read as what a command expects them to be.

use super::error::CommandError;
use crate::server::number::parse_integer;
use crate::server::resp::Args;

impl Args<'_> {
    /// Says whether the argument is this keyword, in any case.
    pub(crate) fn is(&self, index: usize, keyword: &str) -> bool {
        self.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(keyword.as_bytes()))
    }

    /// Returns the argument as an integer.
    ///
    /// # Errors
    /// Fails as Redis does on what is not one.
    pub(crate) fn int(&self, index: usize) -> Result<i64, CommandError> {
        parse_integer(self.at(index)).ok_or(CommandError::NOT_AN_INTEGER)
    }

    /// Returns the argument as a count or another number that cannot be negative.
    ///
    /// # Errors
    /// Fails as Redis does on what is not one.
    pub(crate) fn positive(&self, index: usize) -> Result<usize, CommandError> {
        let value = parse_integer(self.at(index)).ok_or(CommandError::NOT_POSITIVE)?;
        usize::try_from(value).map_err(|_| CommandError::NOT_POSITIVE)
    }

    /// Returns the argument as a double; `inf` is one, `nan` is not.
    ///
    /// # Errors
    /// Fails as Redis does on what is not one.
    pub(crate) fn double(&self, index: usize) -> Result<f64, CommandError> {
        parse_double(self.at(index)).ok_or(CommandError::NOT_A_FLOAT)
    }

    /// Returns the argument in lower case, as text: keywords, option names, categories.
    pub(crate) fn lower(&self, index: usize) -> String {
        String::from_utf8_lossy(self.at(index)).to_ascii_lowercase()
    }

    /// Returns the argument as text for a message or a name.
    pub(crate) fn text(&self, index: usize) -> String {
        String::from_utf8_lossy(self.at(index)).into_owned()
    }
}

/// Parses a double as `strtod` does, minus hexadecimal, surrounding space and NaN.
pub(crate) fn parse_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let value: f64 = text.parse().ok()?;
    // "1e400" overflows to infinity in Rust and is a range error in Redis.
    let spelled = text.bytes().any(|byte| byte.eq_ignore_ascii_case(&b'n'));
    if value.is_nan() || (value.is_infinite() && !spelled) { None } else { Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_as_redis_takes_them() {
        for (text, value) in [("1", 1.0), ("-1.5", -1.5), ("1e3", 1000.0), ("+2", 2.0), (".5", 0.5)] {
            assert_eq!(parse_double(text.as_bytes()), Some(value), "{text}");
        }
        assert_eq!(parse_double(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_double(b"+Infinity"), Some(f64::INFINITY));
        for text in ["", " 1", "1 ", "nan", "1e400", "abc", "1a", "\u{fffd}"] {
            assert_eq!(parse_double(text.as_bytes()), None, "{text}");
        }
    }
}
