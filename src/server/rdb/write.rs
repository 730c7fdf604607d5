//! The primitives of the format, written.

use super::lzf;
use crate::server::number::parse_integer;

/// Strings up to here are not worth compressing.
const COMPRESS_FROM: usize = 21;
/// Only texts that an `i32` could give are tried as integers.
const INTEGER_TEXT_MAX: usize = 11;

/// Bytes of an RDB file as they are put together.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    /// `rdbcompression`
    compress: bool,
}

impl Writer {
    pub(super) fn new(compress: bool) -> Writer {
        Writer { bytes: Vec::new(), compress }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn u64_le(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn i64_le(&mut self, value: i64) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn double(&mut self, value: f64) {
        self.raw(&value.to_le_bytes());
    }

    /// Writes a length: 6 bits, 14 bits, or a marker and 32 or 64 bits, big-endian.
    #[allow(clippy::cast_possible_truncation, reason = "each arm keeps the bits its range has")]
    pub(super) fn len(&mut self, len: u64) {
        match len {
            0..0x40 => self.u8(len as u8),
            0x40..0x4000 => self.raw(&(len as u16 | 0x4000).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.u8(0x80);
                self.raw(&(len as u32).to_be_bytes());
            }
            _ => {
                self.u8(0x81);
                self.raw(&len.to_be_bytes());
            }
        }
    }

    pub(super) fn count(&mut self, count: usize) {
        self.len(count as u64);
    }

    /// Writes a string: as a small integer if it is one, compressed if that helps, else as it is.
    pub(super) fn string(&mut self, text: &[u8]) {
        if text.len() <= INTEGER_TEXT_MAX
            && let Some(value) = parse_integer(text)
            && self.integer(value)
        {
            return;
        }
        self.blob(text);
    }

    /// Writes a string that is not looked at as an integer.
    pub(super) fn blob(&mut self, bytes: &[u8]) {
        if self.compress
            && bytes.len() >= COMPRESS_FROM
            && let Some(small) = lzf::compress(bytes)
        {
            self.u8(0xc3);
            self.count(small.len());
            self.count(bytes.len());
            self.raw(&small);
            return;
        }
        self.count(bytes.len());
        self.raw(bytes);
    }

    fn integer(&mut self, value: i64) -> bool {
        if let Ok(value) = i8::try_from(value) {
            self.u8(0xc0);
            self.raw(&value.to_le_bytes());
        } else if let Ok(value) = i16::try_from(value) {
            self.u8(0xc1);
            self.raw(&value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.u8(0xc2);
            self.raw(&value.to_le_bytes());
        } else {
            return false;
        }
        true
    }
}
