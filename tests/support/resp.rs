//! The wire format, and a small blocking client.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One message, in RESP2 or RESP3, kept so that it is written as it was read.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    /// `+` `-` `:` and RESP3's `,` `#` `(` `_`: one line.
    Line(u8, Vec<u8>),
    /// `$` and RESP3's `!` `=`: bytes with a length; `None` is null.
    Bulk(u8, Option<Vec<u8>>),
    /// `*` and RESP3's `%` `~` `>`: a sequence (keys and values in turn for a map); `None` is null.
    Many(u8, Option<Vec<Value>>),
}

impl Value {
    pub(crate) fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(b'$', Some(bytes.into()))
    }

    pub(crate) fn many(values: Vec<Self>) -> Self {
        Self::Many(b'*', Some(values))
    }

    pub(crate) fn error(text: &str) -> Self {
        Self::Line(b'-', text.into())
    }

    /// Returns the text of an error reply.
    pub(crate) fn error_text(&self) -> Option<String> {
        match self {
            Self::Line(b'-', text) | Self::Bulk(b'!', Some(text)) => {
                Some(String::from_utf8_lossy(text).into_owned())
            }
            _ => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Line(b'_', _) | Self::Bulk(_, None) | Self::Many(_, None))
    }

    #[track_caller]
    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Line(b':', text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        }
        .unwrap_or_else(|| panic!("not an integer: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Line(b'+' | b':', bytes) | Self::Bulk(b'$', Some(bytes)) => bytes,
            _ => panic!("neither a string nor a number: {self:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    #[track_caller]
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::Many(_, Some(items)) => items,
            _ => panic!("not an array: {self:?}"),
        }
    }

    /// Returns the value behind a field in a reply of names and values in turn (XINFO, CONFIG GET).
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> &Self {
        self.items()
            .chunks_exact(2)
            .find(|pair| pair[0].bytes() == name.as_bytes())
            .map_or_else(|| panic!("no {name} in {self:?}"), |pair| &pair[1])
    }

    /// Checks a short reply: `conn.run("SADD tags a b").is(2)`.
    #[track_caller]
    pub(crate) fn is(&self, expected: impl fmt::Display) {
        assert_eq!(self.text(), expected.to_string(), "the reply {self:?} is not what was expected");
    }

    /// Reads one message; `None` when the other side has ended.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.pop() != Some(b'\n') || line.pop() != Some(b'\r') || line.is_empty() {
            return Err(io::Error::other(format!("not RESP: {:?}", String::from_utf8_lossy(&line))));
        }
        let kind = line.remove(0);
        let value = match kind {
            b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => Self::Line(kind, line),
            b'$' | b'!' | b'=' => Self::Bulk(
                kind,
                match length(&line)? {
                    None => None,
                    Some(length) => {
                        let mut bytes = vec![0; length + 2];
                        from.read_exact(&mut bytes)?;
                        bytes.truncate(length);
                        Some(bytes)
                    }
                },
            ),
            b'*' | b'%' | b'~' | b'>' => Self::Many(
                kind,
                match length(&line)? {
                    None => None,
                    Some(length) => {
                        let length = if kind == b'%' { length * 2 } else { length };
                        let items = (0..length).map(|_| {
                            Self::read(from)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
                        });
                        Some(items.collect::<io::Result<_>>()?)
                    }
                },
            ),
            _ => return Err(io::Error::other(format!("not RESP: {:?}", char::from(kind)))),
        };
        Ok(Some(value))
    }

    /// Appends the message as it goes over the wire.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Line(kind, text) => {
                to.push(*kind);
                to.extend_from_slice(text);
                to.extend_from_slice(b"\r\n");
            }
            Self::Bulk(kind, None) | Self::Many(kind, None) => {
                to.push(*kind);
                to.extend_from_slice(b"-1\r\n");
            }
            Self::Bulk(kind, Some(bytes)) => {
                to.push(*kind);
                to.extend_from_slice(format!("{}\r\n", bytes.len()).as_bytes());
                to.extend_from_slice(bytes);
                to.extend_from_slice(b"\r\n");
            }
            Self::Many(kind, Some(items)) => {
                let length = if *kind == b'%' { items.len() / 2 } else { items.len() };
                to.push(*kind);
                to.extend_from_slice(format!("{length}\r\n").as_bytes());
                for item in items {
                    item.write(to);
                }
            }
        }
    }
}

fn length(line: &[u8]) -> io::Result<Option<usize>> {
    let length = std::str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok());
    match length {
        Some(-1) => Ok(None),
        Some(length) => Ok(Some(usize::try_from(length).map_err(io::Error::other)?)),
        None => Err(io::Error::other(format!("not a length: {:?}", String::from_utf8_lossy(line)))),
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(kind, text) => write!(f, "{}{}", char::from(*kind), String::from_utf8_lossy(text)),
            Self::Bulk(_, None) | Self::Many(_, None) => f.write_str("null"),
            Self::Bulk(_, Some(bytes)) => {
                write!(f, "\"{}\"", bytes[..bytes.len().min(200)].escape_ascii())
            }
            Self::Many(_, Some(items)) => f.debug_list().entries(items.iter().take(50)).finish(),
        }
    }
}

/// A connection of the test's own.
#[derive(Debug)]
pub(crate) struct Client {
    stream: RefCell<BufReader<TcpStream>>,
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens there.
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("the test cannot connect to {address}: {error}"));
        stream.set_nodelay(true).expect("TCP has NODELAY");
        stream.set_read_timeout(Some(Duration::from_mins(2))).expect("a socket has timeouts");
        Self { stream: RefCell::new(BufReader::with_capacity(1 << 16, stream)) }
    }

    /// Runs a command given as words and returns its reply.
    ///
    /// # Panics
    /// When the reply is an error.
    #[track_caller]
    pub(crate) fn run(&self, command: &str) -> Value {
        self.call(&command.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs a command given as arguments, which are bytes, and returns its reply.
    ///
    /// # Panics
    /// When the reply is an error.
    #[track_caller]
    pub(crate) fn call(&self, command: &[impl AsRef<[u8]>]) -> Value {
        let reply = self.try_call(command);
        if let Some(error) = reply.error_text() {
            let words: Vec<_> = command.iter().map(|word| word.as_ref().escape_ascii().to_string()).collect();
            panic!("the server refused {}: {error}", words.join(" "));
        }
        reply
    }

    /// Runs a command and returns its reply, which may be an error.
    #[track_caller]
    pub(crate) fn try_call(&self, command: &[impl AsRef<[u8]>]) -> Value {
        self.send(command);
        self.receive()
    }

    /// Runs many commands in one pipeline.
    ///
    /// # Panics
    /// When one of them is refused.
    #[track_caller]
    pub(crate) fn pipeline<C: AsRef<[A]>, A: AsRef<[u8]>>(&self, commands: impl IntoIterator<Item = C>) {
        let mut buffer = Vec::new();
        let mut pending = 0_usize;
        for command in commands {
            encode(command.as_ref(), &mut buffer);
            pending += 1;
            // Bounded on both sides: neither we nor the server pile up without end.
            if buffer.len() > 1 << 18 || pending == 1000 {
                self.flush(&mut buffer, &mut pending);
            }
        }
        self.flush(&mut buffer, &mut pending);
    }

    #[track_caller]
    fn flush(&self, buffer: &mut Vec<u8>, pending: &mut usize) {
        self.stream.borrow_mut().get_mut().write_all(buffer).expect("the server takes the pipeline");
        buffer.clear();
        for _ in 0..std::mem::take(pending) {
            let reply = self.receive();
            assert!(reply.error_text().is_none(), "the server refused a command of a pipeline: {reply:?}");
        }
    }

    /// Sends a command and leaves its reply for [`Client::receive`].
    #[track_caller]
    pub(crate) fn send(&self, command: &[impl AsRef<[u8]>]) {
        let mut buffer = Vec::new();
        encode(command, &mut buffer);
        self.stream.borrow_mut().get_mut().write_all(&buffer).expect("the server takes the command");
    }

    /// Receives the next reply.
    ///
    /// # Panics
    /// When the server closes the connection instead.
    #[track_caller]
    pub(crate) fn receive(&self) -> Value {
        Value::read(&mut *self.stream.borrow_mut())
            .unwrap_or_else(|error| panic!("the server sent no reply: {error}"))
            .expect("the server closed the connection instead of replying")
    }

    /// Returns a field of `INFO`.
    #[track_caller]
    pub(crate) fn info(&self, field: &str) -> String {
        let info = self.run("INFO everything").text();
        info.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .unwrap_or_else(|| panic!("INFO has no {field}"))
            .to_owned()
    }
}

fn encode(command: &[impl AsRef<[u8]>], to: &mut Vec<u8>) {
    to.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    for word in command {
        let word = word.as_ref();
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}
