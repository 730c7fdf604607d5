//! Reads requests from a buffer that may hold half of one or a thousand of them.
//!
//! The parser remembers how far it came, so a request that arrives in a million pieces is still
//! read once. It copies nothing: arguments are spans of the query buffer, and a command borrows
//! them while it runs. Every length a client announces is checked before it is believed, and
//! nothing is reserved on the strength of an announcement.

use std::ops::Index;

use super::split_words;
use crate::server::number::parse_integer;

/// The longest line: an inline command, or the count after `*` and `$`.
const LINE_MAX: usize = 64 * 1024;

/// The most arguments one request may have.
const ARGS_MAX: i64 = 1024 * 1024;

/// What an unauthenticated client may send: enough for AUTH and HELLO, too little to hurt.
const ARGS_MAX_UNAUTHENTICATED: i64 = 10;
const BULK_MAX_UNAUTHENTICATED: i64 = 16 * 1024;

/// How much a request may claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bulk_len_max: i64,
    pub(crate) authenticated: bool,
}

/// Where an argument lies, relative to the start of its request.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    len: usize,
}

/// The arguments of one request, the command's name first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        self.bytes.get(span.start..span.start + span.len)
    }

    /// Returns the argument at `index`, or nothing at all past the end: the command table has
    /// checked the arity before a command sees its arguments.
    pub(crate) fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.start..span.start + span.len])
    }

    /// Returns the arguments from `index` on.
    pub(crate) fn from(&self, index: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(index..).unwrap_or_default() }
    }

    pub(crate) fn to_owned(self) -> OwnedArgs {
        self.iter().collect()
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

/// Arguments that own their bytes: queued by MULTI, or built by a script.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    pub(crate) fn push(&mut self, arg: &[u8]) {
        self.spans.push(Span { start: self.bytes.len(), len: arg.len() });
        self.bytes.extend_from_slice(arg);
    }

    pub(crate) fn as_args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for OwnedArgs {
    fn from_iter<I: IntoIterator<Item = T>>(args: I) -> OwnedArgs {
        let mut owned = OwnedArgs::default();
        for arg in args {
            owned.push(arg.as_ref());
        }
        owned
    }
}

/// What the parser made of the bytes so far.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Progress {
    /// The request is not complete; come back with more bytes.
    Partial,
    /// A request of this many bytes is complete; [`RequestParser::args`] has it.
    /// An empty line or `*0` completes with no arguments.
    Complete(usize),
}

/// The state of one connection's request, kept between reads.
#[derive(Debug, Default)]
pub(crate) struct RequestParser {
    /// Bytes of the current request already understood.
    at: usize,
    /// Arguments still to come, once the `*` line has been read.
    pending: i64,
    /// Announced length of the argument being read.
    bulk_len: Option<usize>,
    in_multibulk: bool,
    spans: Vec<Span>,
    inline: Option<OwnedArgs>,
}

impl RequestParser {
    /// Reads on in `request`, which starts with the first byte of the current request and is
    /// longer at each call until the request completes.
    ///
    /// # Errors
    /// Returns the text of the protocol error; the connection is beyond repair then.
    pub(crate) fn parse(&mut self, request: &[u8], limits: Limits) -> Result<Progress, String> {
        if self.at == 0 && !self.in_multibulk {
            self.spans.clear();
            match request.first() {
                None => return Ok(Progress::Partial),
                Some(b'*') => {}
                Some(_) => return self.parse_inline(request),
            }
            self.inline = None;
            let Some(count) = self.parse_multibulk_header(request, limits)? else {
                return Ok(Progress::Partial);
            };
            self.pending = count.max(0);
            self.in_multibulk = true;
        }
        self.parse_bulks(request, limits)
    }

    /// Returns the request that just completed. `request` is the slice given to `parse`.
    pub(crate) fn args<'a>(&'a self, request: &'a [u8]) -> Args<'a> {
        match &self.inline {
            Some(words) => words.as_args(),
            None => Args { bytes: request, spans: &self.spans },
        }
    }

    fn parse_multibulk_header(&mut self, request: &[u8], limits: Limits) -> Result<Option<i64>, String> {
        let Some(line) = self.take_line(request, "too big mbulk count string")? else {
            return Ok(None);
        };
        let count =
            parse_integer(line).filter(|count| *count <= ARGS_MAX).ok_or("invalid multibulk length")?;
        if count > ARGS_MAX_UNAUTHENTICATED && !limits.authenticated {
            return Err("unauthenticated multibulk length".to_owned());
        }
        Ok(Some(count))
    }

    fn parse_bulks(&mut self, request: &[u8], limits: Limits) -> Result<Progress, String> {
        while self.pending > 0 {
            let len = match self.bulk_len {
                Some(len) => len,
                None => match self.parse_bulk_header(request, limits)? {
                    Some(len) => len,
                    None => return Ok(Progress::Partial),
                },
            };
            // The CRLF behind the bytes is skipped, not checked: Redis does the same.
            if request.len() - self.at < len + 2 {
                self.bulk_len = Some(len);
                return Ok(Progress::Partial);
            }
            self.spans.push(Span { start: self.at, len });
            self.at += len + 2;
            self.bulk_len = None;
            self.pending -= 1;
        }
        self.in_multibulk = false;
        Ok(Progress::Complete(std::mem::take(&mut self.at)))
    }

    fn parse_bulk_header(&mut self, request: &[u8], limits: Limits) -> Result<Option<usize>, String> {
        match request.get(self.at) {
            None => return Ok(None),
            Some(b'$') => {}
            // The line must be whole before its first byte is judged, as in Redis.
            Some(other) if request[self.at..].contains(&b'\r') => {
                let shown = char::from(*other);
                return Err(format!("expected '$', got '{shown}'"));
            }
            Some(_) => {}
        }
        let Some(line) = self.take_line(request, "too big bulk count string")? else {
            return Ok(None);
        };
        let len = parse_integer(line)
            .filter(|len| (0..=limits.bulk_len_max).contains(len))
            .ok_or("invalid bulk length")?;
        if len > BULK_MAX_UNAUTHENTICATED && !limits.authenticated {
            return Err("unauthenticated bulk length".to_owned());
        }
        usize::try_from(len).map(Some).map_err(|_| "invalid bulk length".to_owned())
    }

    /// Takes the rest of a `*N` or `$N` line, without its marker and CRLF.
    fn take_line<'a>(&mut self, request: &'a [u8], too_long: &str) -> Result<Option<&'a [u8]>, String> {
        let rest = &request[self.at..];
        let Some(end) = rest.iter().take(LINE_MAX + 1).position(|byte| *byte == b'\r') else {
            return if rest.len() > LINE_MAX { Err(too_long.to_owned()) } else { Ok(None) };
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        self.at += end + 2;
        Ok(Some(rest.get(1..end).unwrap_or_default()))
    }

    fn parse_inline(&mut self, request: &[u8]) -> Result<Progress, String> {
        let Some(end) = request.iter().take(LINE_MAX + 1).position(|byte| *byte == b'\n') else {
            if request.len() > LINE_MAX {
                return Err("too big inline request".to_owned());
            }
            return Ok(Progress::Partial);
        };
        let line = request[..end].strip_suffix(b"\r").unwrap_or(&request[..end]);
        let words = split_words(line).ok_or("unbalanced quotes in request")?;
        let inline = self.inline.get_or_insert_default();
        inline.clear();
        for word in &words {
            inline.push(word);
        }
        Ok(Progress::Complete(end + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bulk_len_max: 512 * 1024 * 1024, authenticated: true };

    /// Feeds `bytes` in pieces of `step` and returns each request, words joined by a bar.
    fn requests(bytes: &[u8], step: usize, limits: Limits) -> Result<Vec<String>, String> {
        let mut parser = RequestParser::default();
        let mut found = Vec::new();
        let (mut start, mut end) = (0, 0);
        loop {
            match parser.parse(&bytes[start..end], limits)? {
                Progress::Complete(len) => {
                    let args = parser.args(&bytes[start..end]);
                    found.push(
                        args.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join("|"),
                    );
                    start += len;
                }
                Progress::Partial if end == bytes.len() => return Ok(found),
                Progress::Partial => end = (end + step).min(bytes.len()),
            }
        }
    }

    #[test]
    fn a_request_reads_the_same_however_it_is_cut() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n\r\nPING \"x y\"\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n";
        for step in 1..bytes.len() {
            let found = requests(bytes, step, LIMITS).expect("the bytes are well formed");
            assert_eq!(found, [r"GET|a\r\nb", "", "PING|x y", "", "", ""], "step {step}");
        }
    }

    #[test]
    fn protocol_errors_speak_as_redis_does() {
        let long = vec![b'a'; LINE_MAX + 1];
        let long_count = [b"*", &long[..]].concat();
        let long_bulk = [b"*1\r\n$", &long[..]].concat();
        for (bytes, error) in [
            (&b"*1048577\r\n"[..], "invalid multibulk length"),
            (b"*a\r\n", "invalid multibulk length"),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", "invalid bulk length"),
            (b"*1\r\n$x\r\n", "invalid bulk length"),
            (b"GET \"a\r\n", "unbalanced quotes in request"),
            (&long, "too big inline request"),
            (&long_count, "too big mbulk count string"),
            (&long_bulk, "too big bulk count string"),
        ] {
            assert_eq!(requests(bytes, bytes.len(), LIMITS), Err(error.to_owned()));
        }
    }

    #[test]
    fn a_stranger_may_send_little() {
        let stranger = Limits { authenticated: false, ..LIMITS };
        assert_eq!(requests(b"*11\r\n", 9, stranger), Err("unauthenticated multibulk length".to_owned()));
        assert_eq!(
            requests(b"*1\r\n$16385\r\n", 99, stranger),
            Err("unauthenticated bulk length".to_owned())
        );
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let alphabet = b"*$123\r\n-:\"'\\x0 aG";
        let mut random = crate::server::value::random::Random::new(1);
        for _ in 0..20_000 {
            let len = random.below(40);
            let bytes: Vec<u8> = (0..len).map(|_| alphabet[random.below(alphabet.len())]).collect();
            let whole = requests(&bytes, bytes.len().max(1), LIMITS);
            let cut = requests(&bytes, 1, LIMITS);
            if whole.is_ok() {
                assert_eq!(whole, cut, "{}", bytes.escape_ascii());
            }
        }
    }
}
