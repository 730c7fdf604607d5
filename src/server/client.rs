//! One connection: a socket, and the exchange with whoever is behind it.

use std::io::{self, ErrorKind, Read, Write};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use super::command::{ClientId, Core, Session};
use super::exchange::{Exchange, Work};

/// Bytes read from one connection before the others get their turn.
const READ_PER_TURN: usize = 1024 * 1024;

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

/// One client's socket and buffers.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ClientId,
    stream: Stream,
    pub(super) exchange: Exchange,
    waits_to_write: bool,
    cut_after: Option<usize>,
}

impl Connection {
    pub(super) fn new(id: ClientId, stream: Stream, authenticated: bool) -> Connection {
        let exchange = Exchange::new(authenticated);
        Connection { id, stream, exchange, waits_to_write: false, cut_after: None }
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
                    self.exchange.hear(&scratch[..count]);
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
        let work = self.exchange.work(core, session);
        if let Some(bytes) = session.cut_after.take() {
            self.cut_after = Some(bytes);
        }
        work
    }

    /// Says why there is no room, as far as the socket takes it, before being dropped.
    pub(super) fn refuse(&mut self, why: &[u8]) {
        let _ = self.stream.write(why);
    }

    /// Writes what the socket takes. Returns the bytes written and whether the connection goes on.
    pub(super) fn flush(&mut self, registry: &Registry, token: Token) -> (usize, bool) {
        let mut written = 0;
        while !self.exchange.unsent().is_empty() {
            let mut bytes = self.exchange.unsent();
            if let Some(left) = self.cut_after {
                bytes = &bytes[..bytes.len().min(left)];
                if bytes.is_empty() {
                    return (written, false);
                }
            }
            match self.stream.write(bytes) {
                Ok(count) => {
                    self.exchange.note_sent(count);
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
        let cut = self.cut_after == Some(0);
        let alive = self.wait_to_write(registry, token, false) && !self.exchange.closes_after_reply() && !cut;
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
