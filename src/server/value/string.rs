//! Strings: an integer when the text is one, one small allocation up to 44 bytes, else a buffer.

use std::borrow::Cow;

use crate::server::number::parse_integer;

/// The longest string that Redis stores together with its object header: 64 bytes (a size class)
/// minus 16 of object, 3 of string header and the final NUL.
pub const EMBSTR_MAX: usize = 44;

/// A string value.
#[derive(Clone, Debug)]
pub enum StringValue {
    /// The text is a canonical 64-bit integer.
    Int(i64),
    /// Short and never changed in place.
    Embstr(Box<[u8]>),
    /// Long, or changed in place at some time.
    Raw(Vec<u8>),
}

impl StringValue {
    /// Stores `bytes` in the most compact encoding.
    pub fn encode(bytes: Vec<u8>) -> Self {
        match parse_integer(&bytes) {
            Some(value) => Self::Int(value),
            None => Self::unparsed(bytes),
        }
    }

    /// Stores `bytes` without asking whether they are an integer, as for values that were computed.
    pub fn unparsed(mut bytes: Vec<u8>) -> Self {
        if bytes.len() <= EMBSTR_MAX {
            return Self::Embstr(bytes.into());
        }
        // As Redis: what the reader reserved is given back if it is more than a tenth.
        if bytes.capacity() - bytes.len() > bytes.len() / 10 {
            bytes.shrink_to_fit();
        }
        Self::Raw(bytes)
    }

    /// Returns the text.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Int(value) => Cow::Owned(value.to_string().into_bytes()),
            Self::Embstr(bytes) => Cow::Borrowed(bytes),
            Self::Raw(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// Returns the text, giving up the value.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Int(value) => value.to_string().into_bytes(),
            Self::Embstr(bytes) => bytes.into(),
            Self::Raw(bytes) => bytes,
        }
    }

    /// Returns the integer, if the text is one.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Embstr(bytes) => parse_integer(bytes),
            Self::Raw(bytes) => parse_integer(bytes),
        }
    }

    /// Returns the length of the text in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Int(value) => decimal_digits(*value),
            Self::Embstr(bytes) => bytes.len(),
            Self::Raw(bytes) => bytes.len(),
        }
    }

    /// Tells whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the text for changing in place; the encoding is `raw` from here on.
    pub fn make_raw(&mut self) -> &mut Vec<u8> {
        if !matches!(self, Self::Raw(_)) {
            let bytes = std::mem::replace(self, Self::Int(0)).into_bytes();
            *self = Self::Raw(bytes);
        }
        match self {
            Self::Raw(bytes) => bytes,
            Self::Int(_) | Self::Embstr(_) => unreachable!("made raw just above"),
        }
    }

    /// Returns what OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Int(_) => "int",
            Self::Embstr(_) => "embstr",
            Self::Raw(_) => "raw",
        }
    }
}

/// Returns the length of `value` in decimal, sign included.
pub fn decimal_digits(value: i64) -> usize {
    let digits = value.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    digits + usize::from(value < 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_four_bytes_are_embedded_and_forty_five_are_not() {
        assert_eq!(StringValue::encode(vec![b'x'; 44]).encoding(), "embstr");
        assert_eq!(StringValue::encode(vec![b'x'; 45]).encoding(), "raw");
        assert_eq!(StringValue::encode(b"-12".to_vec()).encoding(), "int");
        assert_eq!(StringValue::encode(b"012".to_vec()).encoding(), "embstr");
    }

    #[test]
    fn changing_in_place_makes_raw_for_good() {
        let mut value = StringValue::encode(b"12".to_vec());
        value.make_raw().push(b'3');
        assert_eq!((value.encoding(), value.integer(), value.len()), ("raw", Some(123), 3));
    }

    #[test]
    fn integer_lengths_match_their_text() {
        for n in [0, 9, 10, -1, -10, i64::MAX, i64::MIN] {
            assert_eq!(decimal_digits(n), n.to_string().len());
        }
    }
}
