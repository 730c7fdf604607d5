//! One connection: bytes in, requests carried out, bytes out. Both buffers are bounded; a client
//! that does not read its replies is cut off. Knows no command.

use std::io::{self, ErrorKind, Read, Write};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use super::command::{ClientId, Core, Flow, Session};
use super::resp::{Args, Limits, Progress, Reply, RequestParser};

/// Bytes read from one connection before the others get their turn.
const READ_PER_TURN: usize = 1024 * 1024;

/// Buffers that have grown beyond this are given back once they are empty.
const IDLE_CAPACITY: usize = 64 * 1024;

/// A TCP or Unix stream.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }
}

/// What reading left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// The socket is empty; the poller will say when it is not.
    Drained,
    /// There is more; come back without waiting.
    More,
    /// The other side is gone.
    Closed,
}

/// What became of the requests in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// All that were complete are done.
    Idle,
    /// The client waits, for a time or for the end of a pause.
    Waiting,
    /// The connection must end now.
    Over,
}

/// One client's socket and buffers.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ClientId,
    stream: Stream,
    query: Vec<u8>,
    /// Where the current request starts in `query`.
    start: usize,
    parser: RequestParser,
    out: Reply,
    /// Bytes of `out` that are on the wire.
    sent: usize,
    waits_to_write: bool,
    /// Known here as well, for what a stranger may send.
    authenticated: bool,
    close_after_reply: bool,
    cut_after: Option<usize>,
}

impl Connection {
    pub(super) fn new(id: ClientId, stream: Stream, authenticated: bool) -> Connection {
        Connection {
            id,
            stream,
            query: Vec::new(),
            start: 0,
            parser: RequestParser::default(),
            out: Reply::default(),
            sent: 0,
            waits_to_write: false,
            authenticated,
            close_after_reply: false,
            cut_after: None,
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.stream.source(), token, Interest::READABLE)
    }

    pub(super) fn deregister(&mut self, registry: &Registry) {
        // Fails only for what was never registered; the socket is closed either way.
        let _ = registry.deregister(self.stream.source());
    }

    /// Reads what is there, up to a turn's worth. Returns the bytes read and what is left.
    pub(super) fn fill(&mut self, scratch: &mut [u8]) -> (usize, Fill) {
        let mut read = 0;
        while read < READ_PER_TURN {
            match self.stream.read(scratch) {
                Ok(0) => return (read, Fill::Closed),
                Ok(count) => {
                    self.query.extend_from_slice(&scratch[..count]);
                    read += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return (read, Fill::Drained);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (read, Fill::Closed),
            }
        }
        (read, Fill::More)
    }

    /// Carries out the requests that are complete.
    pub(super) fn work(&mut self, core: &mut Core, session: &mut Session) -> Work {
        let work = self.work_through(core, session);
        self.authenticated = session.user.is_some();
        self.close_after_reply |= session.close_after_reply;
        if let Some(bytes) = session.cut_after.take() {
            self.cut_after = Some(bytes);
        }
        self.compact();
        session.query_bytes = self.query.len();
        session.reply_bytes = self.unsent();
        if self.query_is_too_big(core) {
            core.server.stats.query_limit_disconnections += 1;
            return Work::Over;
        }
        if self.unsent() > core.server.settings.reply_buffer_max() {
            core.server.stats.output_limit_disconnections += 1;
            return Work::Over;
        }
        work
    }

    fn work_through(&mut self, core: &mut Core, session: &mut Session) -> Work {
        loop {
            if session.killed {
                return Work::Over;
            }
            if session.blocked.is_some() {
                return Work::Waiting;
            }
            // After QUIT or a protocol error nothing more is heard.
            if self.close_after_reply || session.close_after_reply {
                self.query.clear();
                self.start = 0;
                return Work::Idle;
            }
            // The reply of one request may be all that a client ever reads of a thousand.
            if self.unsent() > core.server.settings.reply_buffer_max() {
                return Work::Idle;
            }
            let limits = Limits {
                bulk_len_max: core.server.settings.bulk_len_max,
                authenticated: session.user.is_some(),
            };
            let request = &self.query[self.start..];
            match self.parser.parse(request, limits) {
                Ok(Progress::Partial) => return Work::Idle,
                Ok(Progress::Complete(len)) => {
                    let args = self.parser.args(request);
                    if core.execute(session, &mut self.out, args) == Flow::Postponed {
                        return Work::Waiting;
                    }
                    self.start += len;
                }
                Err(why) => {
                    self.out.error(format!("ERR Protocol error: {why}").as_bytes());
                    self.close_after_reply = true;
                }
            }
        }
    }

    /// Answers what is complete without running it, while a script holds the command thread.
    /// `answer` returns the reply to each request.
    pub(super) fn put_off(&mut self, bulk_len_max: i64, mut answer: impl FnMut(Args<'_>, bool) -> Vec<u8>) {
        loop {
            let limits = Limits { bulk_len_max, authenticated: self.authenticated };
            let request = &self.query[self.start..];
            // What is wrong with the request can wait until the script is over.
            let Ok(Progress::Complete(len)) = self.parser.parse(request, limits) else {
                break;
            };
            let args = self.parser.args(request);
            if args.len() > 0 {
                let reply = answer(args, self.authenticated);
                self.out.raw(&reply);
            }
            self.start += len;
        }
        self.compact();
    }

    /// Says why there is no room, as far as the socket takes it, before being dropped.
    pub(super) fn refuse(&mut self, why: &[u8]) {
        let _ = self.stream.write(why);
    }

    /// Adds a reply that no request is waiting for any more: a wait is over.
    pub(super) fn reply(&mut self, bytes: &[u8]) {
        self.out.raw(bytes);
    }

    /// Drops the requests that are done. A partial one keeps its place in the parser, which counts
    /// from its start.
    fn compact(&mut self) {
        if self.start == self.query.len() {
            self.query.clear();
            self.query.shrink_to(IDLE_CAPACITY);
        } else if self.start > 0 {
            self.query.drain(..self.start);
        }
        self.start = 0;
    }

    fn query_is_too_big(&self, core: &Core) -> bool {
        let max = usize::try_from(core.server.settings.query_buffer_max).unwrap_or(usize::MAX);
        self.query.len() > max
    }

    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Writes what the socket takes. Returns the bytes written and whether the connection goes on.
    pub(super) fn flush(&mut self, registry: &Registry, token: Token) -> (usize, bool) {
        let mut written = 0;
        while self.unsent() > 0 {
            let mut bytes = &self.out.bytes()[self.sent..];
            if let Some(left) = self.cut_after {
                bytes = &bytes[..bytes.len().min(left)];
                if bytes.is_empty() {
                    return (written, false);
                }
            }
            match self.stream.write(bytes) {
                Ok(count) => {
                    self.sent += count;
                    written += count;
                    if let Some(left) = &mut self.cut_after {
                        *left -= count;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return (written, self.wait_to_write(registry, token, true));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (written, false),
            }
        }
        self.out.clear();
        self.sent = 0;
        let cut = self.cut_after == Some(0);
        let alive = self.wait_to_write(registry, token, false) && !self.close_after_reply && !cut;
        (written, alive)
    }

    fn wait_to_write(&mut self, registry: &Registry, token: Token, wanted: bool) -> bool {
        if self.waits_to_write == wanted {
            return true;
        }
        self.waits_to_write = wanted;
        let interest = if wanted { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        registry.reregister(self.stream.source(), token, interest).is_ok()
    }
}
