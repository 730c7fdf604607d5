//! The primitives of the format, read. Counts the offset and the checksum as it goes.

use std::io::{self, Read};

use super::crc64::crc64;
use super::error::{RdbError, RdbErrorKind};
use super::lzf;

/// A string is read piece by piece, so that a length nobody backs with bytes allocates nothing.
const PIECE: u64 = 1 << 20;
/// No string is longer: `proto-max-bulk-len`.
const STRING_MAX: u64 = 512 << 20;

/// A source of RDB bytes.
#[derive(Debug)]
pub(super) struct Reader<R> {
    source: R,
    offset: u64,
    crc: u64,
}

/// A length, or the marker of a string that is stored in another way.
enum Length {
    Plain(u64),
    Special(u8),
}

impl<R: Read> Reader<R> {
    pub(super) fn new(source: R) -> Reader<R> {
        Reader { source, offset: 0, crc: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn crc(&self) -> u64 {
        self.crc
    }

    pub(super) fn error(&self, kind: RdbErrorKind) -> RdbError {
        RdbError { offset: self.offset, kind }
    }

    pub(super) fn corrupt(&self, what: &'static str) -> RdbError {
        self.error(RdbErrorKind::Corrupt(what))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).map_err(|error| self.error(RdbErrorKind::Io(error)))?;
        self.advance(&bytes);
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, RdbError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u64_le(&mut self) -> Result<u64, RdbError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64_le(&mut self) -> Result<i64, RdbError> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn u32_le(&mut self) -> Result<u32, RdbError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a score as 8 bytes.
    pub(super) fn double(&mut self) -> Result<f64, RdbError> {
        self.score(f64::from_le_bytes)
    }

    fn score(&mut self, make: fn([u8; 8]) -> f64) -> Result<f64, RdbError> {
        let value = make(self.array()?);
        if value.is_nan() { Err(self.corrupt("score")) } else { Ok(value) }
    }

    /// Reads a score as text, the way of files before version 8.
    pub(super) fn text_double(&mut self) -> Result<f64, RdbError> {
        match self.u8()? {
            253 => Err(self.corrupt("score")),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            len => {
                let text = self.bytes(u64::from(len))?;
                let value = crate::server::number::parse_double(&text);
                value.ok_or_else(|| self.corrupt("score"))
            }
        }
    }

    pub(super) fn len(&mut self) -> Result<u64, RdbError> {
        match self.length()? {
            Length::Plain(len) => Ok(len),
            Length::Special(_) => Err(self.corrupt("length")),
        }
    }

    /// Reads a length as a count of things that take at least a byte each.
    pub(super) fn count(&mut self) -> Result<usize, RdbError> {
        let len = self.len()?;
        usize::try_from(len).map_err(|_| self.corrupt("length"))
    }

    /// Reads a string in whichever way it is stored.
    pub(super) fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        match self.length()? {
            Length::Plain(len) => self.bytes(len),
            Length::Special(0) => self.array().map(|bytes| i8::from_le_bytes(bytes).to_string().into_bytes()),
            Length::Special(1) => {
                self.array().map(|bytes| i16::from_le_bytes(bytes).to_string().into_bytes())
            }
            Length::Special(2) => {
                self.array().map(|bytes| i32::from_le_bytes(bytes).to_string().into_bytes())
            }
            Length::Special(3) => {
                let (small, len) = (self.len()?, self.len()?);
                if len > STRING_MAX {
                    return Err(self.corrupt("string"));
                }
                let small = self.bytes(small)?;
                let len = usize::try_from(len).map_err(|_| self.corrupt("string"))?;
                lzf::decompress(&small, len).ok_or_else(|| self.corrupt("compressed string"))
            }
            Length::Special(_) => Err(self.corrupt("string")),
        }
    }

    fn length(&mut self) -> Result<Length, RdbError> {
        let head = self.u8()?;
        Ok(match (head >> 6, head) {
            (0, _) => Length::Plain(u64::from(head)),
            (1, _) => Length::Plain(u64::from(head & 0x3f) << 8 | u64::from(self.u8()?)),
            (_, 0x80) => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            (_, 0x81) => Length::Plain(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Special(head & 0x3f),
            _ => return Err(self.corrupt("length")),
        })
    }

    fn bytes(&mut self, len: u64) -> Result<Vec<u8>, RdbError> {
        if len > STRING_MAX {
            return Err(self.corrupt("string"));
        }
        let mut bytes = Vec::new();
        let mut left = len;
        while left > 0 {
            let piece = left.min(PIECE);
            let before = bytes.len();
            let read = (&mut self.source).take(piece).read_to_end(&mut bytes);
            let read = read.map_err(|error| self.error(RdbErrorKind::Io(error)))?;
            let (offset, crc) = (self.offset + read as u64, crc64(self.crc, &bytes[before..]));
            (self.offset, self.crc) = (offset, crc);
            if read as u64 != piece {
                return Err(self.error(RdbErrorKind::Io(io::ErrorKind::UnexpectedEof.into())));
            }
            left -= piece;
        }
        Ok(bytes)
    }

    fn advance(&mut self, bytes: &[u8]) {
        self.offset += bytes.len() as u64;
        self.crc = crc64(self.crc, bytes);
    }
}
