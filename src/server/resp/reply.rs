//! Writes replies, each in the client's own protocol version.

use crate::server::number::format_double;

/// The protocol a client speaks, chosen with HELLO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Proto {
    #[default]
    Resp2,
    Resp3,
}

/// A buffer that replies are appended to.
///
/// Aggregates are announced with their length and then filled by the caller; when the length is
/// known only afterwards, [`Reply::defer`] marks the place.
///
/// A reply that has outgrown its bound takes no more elements. What is in it is then of no use, and the
/// connection ends: a command may ask for a value a million times, and nobody keeps that for a client.
#[derive(Debug)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    proto: Proto,
    len_max: usize,
}

impl Default for Reply {
    fn default() -> Reply {
        Reply::new(Proto::default())
    }
}

/// A place in a reply where an aggregate's header goes once its length is known.
#[derive(Debug)]
pub(crate) struct Deferred(usize);

impl Reply {
    pub(crate) fn new(proto: Proto) -> Reply {
        Reply { bytes: Vec::new(), proto, len_max: usize::MAX }
    }

    /// Returns an empty reply under the same bound, for a part that is written apart.
    pub(crate) fn part(&self, proto: Proto) -> Reply {
        Reply { bytes: Vec::new(), proto, len_max: self.len_max }
    }

    /// Bounds it; the element that crosses the bound is still whole.
    pub(crate) fn set_len_max(&mut self, len_max: usize) {
        self.len_max = len_max;
    }

    /// Says whether it has outgrown its bound.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() > self.len_max
    }

    pub(crate) fn proto(&self) -> Proto {
        self.proto
    }

    pub(crate) fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes everything written so far.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Drops what was written after the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        // One huge reply must not pin its memory for the life of the connection.
        self.bytes.shrink_to(64 * 1024);
    }

    pub(crate) fn ok(&mut self) {
        self.simple("OK");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.line(text.as_bytes());
    }

    /// Writes an error; `text` starts with its code, as in `ERR syntax error`.
    /// A line break inside would end the reply early, so it becomes a space.
    pub(crate) fn error(&mut self, text: &[u8]) {
        self.bytes.push(b'-');
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        for byte in &mut self.bytes[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn int(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// Writes yes or no as most commands do, in either protocol: 1 or 0.
    pub(crate) fn bool_int(&mut self, value: bool) {
        self.int(i64::from(value));
    }

    /// Writes a count or a size.
    pub(crate) fn count(&mut self, value: usize) {
        self.int(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(crate) fn bulk(&mut self, value: &[u8]) {
        if self.is_full() {
            return;
        }
        self.header(b'$', len_i64(value.len()));
        self.line(value);
    }

    pub(crate) fn text(&mut self, value: &str) {
        self.bulk(value.as_bytes());
    }

    /// Writes an integer as a bulk string, as string values are.
    pub(crate) fn bulk_int(&mut self, value: i64) {
        let mut digits = itoa(value);
        let text = digits.text();
        self.header(b'$', len_i64(text.len()));
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes "no such value".
    pub(crate) fn nil(&mut self) {
        match self.proto {
            Proto::Resp2 => self.bytes.extend_from_slice(b"$-1\r\n"),
            Proto::Resp3 => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    /// Writes "no such array"; RESP3 has only one null.
    pub(crate) fn nil_array(&mut self) {
        match self.proto {
            Proto::Resp2 => self.bytes.extend_from_slice(b"*-1\r\n"),
            Proto::Resp3 => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    pub(crate) fn array(&mut self, len: usize) {
        self.header(b'*', len_i64(len));
    }

    /// Announces a map of `len` pairs: RESP2 sees a flat array.
    pub(crate) fn map(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.header(b'*', len_i64(len * 2)),
            Proto::Resp3 => self.header(b'%', len_i64(len)),
        }
    }

    pub(crate) fn set(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.header(b'*', len_i64(len)),
            Proto::Resp3 => self.header(b'~', len_i64(len)),
        }
    }

    #[allow(dead_code, reason = "RESP3 has it; no command pushes yet")]
    pub(crate) fn push(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.header(b'*', len_i64(len)),
            Proto::Resp3 => self.header(b'>', len_i64(len)),
        }
    }

    pub(crate) fn double(&mut self, value: f64) {
        let text = format_double(value);
        match self.proto {
            Proto::Resp2 => self.text(&text),
            Proto::Resp3 => {
                self.bytes.push(b',');
                self.line(text.as_bytes());
            }
        }
    }

    #[allow(dead_code, reason = "RESP3 has it; Redis answers with integers where one expects it")]
    pub(crate) fn bool(&mut self, value: bool) {
        match (self.proto, value) {
            (Proto::Resp2, _) => self.int(i64::from(value)),
            (Proto::Resp3, true) => self.bytes.extend_from_slice(b"#t\r\n"),
            (Proto::Resp3, false) => self.bytes.extend_from_slice(b"#f\r\n"),
        }
    }

    /// Writes text meant for a person, such as INFO.
    pub(crate) fn verbatim(&mut self, text: &[u8]) {
        match self.proto {
            Proto::Resp2 => self.bulk(text),
            Proto::Resp3 => {
                self.header(b'=', len_i64(text.len() + 4));
                self.bytes.extend_from_slice(b"txt:");
                self.line(text);
            }
        }
    }

    /// Appends a reply that is already on the wire format.
    pub(crate) fn raw(&mut self, reply: &[u8]) {
        if self.is_full() {
            return;
        }
        self.bytes.extend_from_slice(reply);
    }

    /// Marks the place of a header whose length is not known yet.
    pub(crate) fn defer(&self) -> Deferred {
        Deferred(self.bytes.len())
    }

    pub(crate) fn array_at(&mut self, place: &Deferred, len: usize) {
        self.insert(place, |reply| reply.array(len));
    }

    pub(crate) fn map_at(&mut self, place: &Deferred, len: usize) {
        self.insert(place, |reply| reply.map(len));
    }

    fn insert(&mut self, place: &Deferred, write: impl FnOnce(&mut Reply)) {
        let mut header = Reply::new(self.proto);
        write(&mut header);
        self.bytes.splice(place.0..place.0, header.bytes);
    }

    fn header(&mut self, marker: u8, value: i64) {
        if self.is_full() {
            return;
        }
        let mut digits = itoa(value);
        self.bytes.push(marker);
        self.line(digits.text());
    }

    fn line(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

fn len_i64(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// Decimal digits of an integer, without going through the formatting machinery: every reply
/// has at least one.
struct Digits {
    buffer: [u8; 20],
    start: usize,
}

impl Digits {
    fn text(&mut self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

fn itoa(value: i64) -> Digits {
    let mut digits = Digits { buffer: [0; 20], start: 20 };
    let mut rest = value.unsigned_abs();
    loop {
        digits.start -= 1;
        // The remainder of a division by ten is one digit.
        #[allow(clippy::cast_possible_truncation, reason = "a remainder by ten is below ten")]
        let digit = (rest % 10) as u8;
        digits.buffer[digits.start] = b'0' + digit;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        digits.start -= 1;
        digits.buffer[digits.start] = b'-';
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(proto: Proto, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(proto);
        write(&mut reply);
        reply.bytes().escape_ascii().to_string()
    }

    #[test]
    fn each_type_in_both_protocols() {
        type Case = (fn(&mut Reply), &'static str, &'static str);
        let cases: [Case; 13] = [
            (|r| r.ok(), r"+OK\r\n", r"+OK\r\n"),
            (|r| r.error(b"ERR a\r\nb"), r"-ERR a  b\r\n", r"-ERR a  b\r\n"),
            (|r| r.int(i64::MIN), r":-9223372036854775808\r\n", r":-9223372036854775808\r\n"),
            (|r| r.bulk(b"a\0"), r"$2\r\na\x00\r\n", r"$2\r\na\x00\r\n"),
            (|r| r.bulk_int(-10), r"$3\r\n-10\r\n", r"$3\r\n-10\r\n"),
            (Reply::nil, r"$-1\r\n", r"_\r\n"),
            (Reply::nil_array, r"*-1\r\n", r"_\r\n"),
            (|r| r.map(2), r"*4\r\n", r"%2\r\n"),
            (|r| r.set(2), r"*2\r\n", r"~2\r\n"),
            (|r| r.push(2), r"*2\r\n", r">2\r\n"),
            (|r| r.double(1.5), r"$3\r\n1.5\r\n", r",1.5\r\n"),
            (|r| r.bool(true), r":1\r\n", r"#t\r\n"),
            (|r| r.verbatim(b"hi"), r"$2\r\nhi\r\n", r"=6\r\ntxt:hi\r\n"),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(written(Proto::Resp2, write), resp2);
            assert_eq!(written(Proto::Resp3, write), resp3);
        }
    }

    #[test]
    fn a_full_reply_grows_no_more() {
        let mut reply = Reply::new(Proto::Resp3);
        reply.set_len_max(20);
        let mut part = reply.part(Proto::Resp2);
        for out in [&mut reply, &mut part] {
            out.array(3);
            out.bulk(&[b'x'; 30]);
            assert!(out.is_full());
            let len = out.len();
            out.bulk(b"y");
            out.int(1);
            out.map(2);
            out.raw(b"+OK\r\n");
            assert_eq!((out.len(), len), (len, 4 + 5 + 32));
            // What is taken back makes room.
            out.truncate(4);
            assert!(!out.is_full());
        }
    }

    #[test]
    fn a_deferred_length_goes_where_it_was_marked() {
        let text = written(Proto::Resp2, |reply| {
            reply.ok();
            let place = reply.defer();
            reply.int(7);
            reply.array_at(&place, 1);
        });
        assert_eq!(text, r"+OK\r\n*1\r\n:7\r\n");
    }
}
