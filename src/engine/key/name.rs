//! A key's name: bytes, and the one text form that gives the same bytes back.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A key's name, byte for byte as the server holds it.
///
/// Keys are bytes: a name may be empty, hold NUL or a newline, or be no UTF-8 at all. The text form
/// of [`KeyName::to_text`] is lossless, and [`KeyName::parse`] is its inverse.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KeyName(Box<[u8]>);

/// Says how a key's text form is to be read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyEncoding {
    /// The text is the name.
    Plain,
    /// The text is quoted as `redis-cli` quotes: `"\x00\n"`.
    Quoted,
}

impl KeyEncoding {
    /// Returns the word used in the `key_encoding` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Quoted => "quoted",
        }
    }
}

/// Why a text is no key name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseKeyError {
    /// A quoted name does not end with its quote.
    Unterminated,
    /// Text follows the closing quote, at this byte.
    TrailingText(usize),
    /// A backslash escape is none that Redis knows, at this byte.
    BadEscape(usize),
    /// The text is said to be quoted but does not begin with a quote.
    NotQuoted,
}

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unterminated => f.write_str("the quoted key has no closing quote"),
            Self::TrailingText(at) => write!(f, "text follows the closing quote at byte {at}"),
            Self::BadEscape(at) => {
                write!(f, "unknown escape at byte {at} (known: \\n \\r \\t \\a \\b \\\\ \\\" \\xHH)")
            }
            Self::NotQuoted => {
                f.write_str("the key is marked `quoted` but does not begin with a double quote")
            }
        }
    }
}

impl std::error::Error for ParseKeyError {}

impl From<KeyName> for String {
    fn from(key: KeyName) -> Self {
        key.quoted()
    }
}

impl TryFrom<String> for KeyName {
    type Error = ParseKeyError;

    fn try_from(text: String) -> Result<Self, ParseKeyError> {
        Self::parse_quoted(&text)
    }
}

impl KeyName {
    /// Makes a name of the bytes as they are.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the name as text, plain where that is safe and lossless, else quoted Redis style.
    ///
    /// Plain needs: not empty, valid UTF-8, no control or invisible formatting character, no double
    /// quote, backslash or comma, no white space at either end, and nothing that a spreadsheet would
    /// take for a formula (`= + - @` and their full-width forms in front) or turn into another text
    /// when it saves (`007`, `1e5`, `true`, `MAR1`). Text that is plain therefore never begins with a
    /// quote, and text that is quoted always does.
    pub fn to_text(&self) -> (Cow<'_, str>, KeyEncoding) {
        match std::str::from_utf8(&self.0) {
            Ok(text) if is_plain(text) => (Cow::Borrowed(text), KeyEncoding::Plain),
            _ => (Cow::Owned(self.quoted()), KeyEncoding::Quoted),
        }
    }

    /// Returns the name quoted Redis style; the inverse is [`KeyName::parse_quoted`].
    ///
    /// Printable ASCII stays as it is. Everything else becomes an escape, so the result is ASCII.
    pub fn quoted(&self) -> String {
        use fmt::Write;
        let mut text = String::with_capacity(self.0.len() + 2);
        text.push('"');
        for &byte in &self.0 {
            match byte {
                b'\\' => text.push_str("\\\\"),
                b'"' => text.push_str("\\\""),
                b'\n' => text.push_str("\\n"),
                b'\r' => text.push_str("\\r"),
                b'\t' => text.push_str("\\t"),
                0x07 => text.push_str("\\a"),
                0x08 => text.push_str("\\b"),
                0x20..=0x7e => text.push(char::from(byte)),
                _ => write!(text, "\\x{byte:02x}").expect("writing to a String never fails"),
            }
        }
        text.push('"');
        text
    }

    /// Reads a text form back, as a person would type it: quoted when it begins with a double quote.
    ///
    /// # Errors
    /// When the text begins with a quote and is not a whole quoted name.
    pub fn parse(text: &str) -> Result<Self, ParseKeyError> {
        if text.starts_with('"') { Self::parse_quoted(text) } else { Ok(Self::new(text.as_bytes())) }
    }

    /// Reads a quoted name back.
    ///
    /// # Errors
    /// When the text is not one whole quoted name.
    pub fn parse_quoted(text: &str) -> Result<Self, ParseKeyError> {
        let bytes = text.as_bytes();
        if bytes.first() != Some(&b'"') {
            return Err(ParseKeyError::NotQuoted);
        }
        let mut name = Vec::with_capacity(bytes.len());
        let mut at = 1;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'"' if at + 1 == bytes.len() => return Ok(Self::new(name)),
                b'"' => return Err(ParseKeyError::TrailingText(at + 1)),
                b'\\' => {
                    let (value, length) = unescape(&bytes[at..]).ok_or(ParseKeyError::BadEscape(at))?;
                    name.push(value);
                    at += length;
                }
                _ => {
                    name.push(byte);
                    at += 1;
                }
            }
        }
        Err(ParseKeyError::Unterminated)
    }
}

/// Returns the byte that an escape stands for and the length of the escape.
fn unescape(escape: &[u8]) -> Option<(u8, usize)> {
    let byte = match escape.get(1)? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 0x07,
        b'b' => 0x08,
        b'\\' => b'\\',
        b'"' => b'"',
        b'x' => {
            let digits = std::str::from_utf8(escape.get(2..4)?).ok()?;
            // `from_str_radix` takes a sign; Redis does not.
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            return Some((u8::from_str_radix(digits, 16).ok()?, 4));
        }
        _ => return None,
    };
    Some((byte, 2))
}

fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return false;
    };
    let last = chars.next_back().unwrap_or(first);
    let starts_formula =
        matches!(first, '=' | '+' | '-' | '@' | '\u{ff1d}' | '\u{ff0b}' | '\u{ff0d}' | '\u{ff20}');
    !starts_formula
        && !first.is_whitespace()
        && !last.is_whitespace()
        && !spreadsheet_converts(text, first)
        && text.chars().all(is_plain_char)
}

/// Returns whether a spreadsheet may read the text as a number, a date, money or a truth value, and
/// so write another text when it saves.
fn spreadsheet_converts(text: &str, first: char) -> bool {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let starts_number =
        first.is_numeric() || matches!(first, '.' | '(' | '$' | '\u{a3}' | '\u{a5}' | '\u{20ac}' | '\'');
    let is_truth = text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false");
    let starts_month =
        text.get(..3).is_some_and(|start| MONTHS.iter().any(|month| start.eq_ignore_ascii_case(month)));
    let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let is_month = starts_month && text[letters..].bytes().any(|byte| byte.is_ascii_digit()) && letters <= 9;
    starts_number || is_truth || is_month
}

fn is_plain_char(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !hidden && !matches!(c, '"' | '\\' | ',')
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text().0)
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.quoted())
    }
}

impl From<&str> for KeyName {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&[u8]> for KeyName {
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_names_stay_plain() {
        for name in ["cart:42", "caf\u{e9}", "user {1}", "a'b", "a;b", "\u{6570}\u{636e}"] {
            assert_eq!(KeyName::from(name).to_text(), (Cow::Borrowed(name), KeyEncoding::Plain));
        }
    }

    #[test]
    fn names_that_a_reader_could_misread_are_quoted() {
        let cases: &[(&[u8], &str)] = &[
            (b"", r#""""#),
            (b"\0\n", r#""\x00\n""#),
            (b"\xff", r#""\xff""#),
            (b"=1+1", r#""=1+1""#),
            (b"@SUM", r#""@SUM""#),
            (b"a,b", r#""a,b""#),
            (b" a", r#"" a""#),
            (b"007", r#""007""#),
            (b"TRUE", r#""TRUE""#),
            (b"MAR1", r#""MAR1""#),
            (b"a\"b\\", r#""a\"b\\""#),
            ("a\u{202e}b".as_bytes(), r#""a\xe2\x80\xaeb""#),
        ];
        for (bytes, quoted) in cases {
            let name = KeyName::from(*bytes);
            assert_eq!(name.to_text(), (Cow::Borrowed(*quoted), KeyEncoding::Quoted));
            assert_eq!(KeyName::parse(quoted), Ok(name));
        }
    }

    #[test]
    fn text_that_is_no_name_is_refused_with_its_place() {
        assert_eq!(KeyName::parse("\"abc"), Err(ParseKeyError::Unterminated));
        assert_eq!(KeyName::parse("\"a\"b"), Err(ParseKeyError::TrailingText(3)));
        assert_eq!(KeyName::parse(r#""\q""#), Err(ParseKeyError::BadEscape(1)));
        assert_eq!(KeyName::parse(r#""\x+1""#), Err(ParseKeyError::BadEscape(1)));
        assert_eq!(KeyName::parse_quoted("abc"), Err(ParseKeyError::NotQuoted));
    }

    proptest! {
        #[test]
        fn any_bytes_survive_the_text_form(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let name = KeyName::new(bytes);
            let (text, _) = name.to_text();
            prop_assert_eq!(KeyName::parse(&text), Ok(name.clone()));
            prop_assert_eq!(KeyName::parse_quoted(&name.quoted()), Ok(name.clone()));
        }
    }
}
