//! The poller and all that hangs on it: listeners, connections, the waker. It is apart from the
//! loop so that a script that runs for too long can have it looked after in the meantime.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mio::net::{TcpListener, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::client::{Connection, Stream};
use super::command::{ClientId, ClientIds};
use super::config::Config;

const TCP: Token = Token(0);
const UNIX: Token = Token(1);
const WAKER: Token = Token(2);
const SIGNAL: Token = Token(3);
/// Connections follow, by client id.
const FIRST_CLIENT: usize = 4;

/// Events taken from the poller in one turn.
const EVENTS_PER_TURN: usize = 1024;

/// Bytes one read can bring.
const SCRATCH: usize = 64 * 1024;

/// What a turn of the poller brought.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) acceptable: bool,
    pub(super) signal: bool,
    pub(super) readable: Vec<ClientId>,
    pub(super) writable: Vec<ClientId>,
}

/// A stream that was just accepted, with the addresses of both ends.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: Stream,
    pub(super) addr: String,
    pub(super) local_addr: String,
}

/// What is known of the rules while whoever makes them is busy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Door {
    /// A new client need not say who it is.
    pub(super) open: bool,
    pub(super) clients_max: usize,
    pub(super) bulk_len_max: i64,
}

/// A client that was taken in while nobody could make it a session.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) id: ClientId,
    pub(super) addr: String,
    pub(super) local_addr: String,
}

/// Sockets and the poller that watches them.
#[derive(Debug)]
pub(super) struct Net {
    poll: Poll,
    events: Events,
    tcp: Option<TcpListener>,
    unix: Option<(UnixListener, PathBuf)>,
    /// Held open: the poller watches it for as long as it lives.
    _signals: Option<UnixStream>,
    connections: HashMap<ClientId, Box<Connection>>,
    pub(super) scratch: Vec<u8>,
    /// Connections that were readable and have not been read to the end. The poller tells of each
    /// change once, so whoever forgets one of these starves it.
    pub(super) ready: VecDeque<ClientId>,
    /// Connections with replies from this turn.
    pub(super) unflushed: Vec<ClientId>,
    /// A listener was readable while nobody could accept.
    pub(super) accept_later: bool,
    pub(super) newcomers: Vec<Newcomer>,
    pub(super) door: Door,
}

impl Net {
    pub(super) fn bind(config: &Config) -> io::Result<(Net, Arc<Waker>)> {
        let poll = Poll::new()?;
        let registry = poll.registry();
        let waker = Arc::new(Waker::new(registry, WAKER)?);
        let mut tcp = config.listen.map(TcpListener::bind).transpose()?;
        if let Some(listener) = &mut tcp {
            registry.register(listener, TCP, Interest::READABLE)?;
        }
        let mut unix = None;
        if let Some(path) = &config.unix_socket {
            remove_stale_socket(path)?;
            let mut listener = UnixListener::bind(path)?;
            registry.register(&mut listener, UNIX, Interest::READABLE)?;
            unix = Some((listener, path.clone()));
        }
        let signals = if config.handle_signals { Some(signal_stream(registry)?) } else { None };
        let net = Net {
            events: Events::with_capacity(EVENTS_PER_TURN),
            poll,
            tcp,
            unix,
            _signals: signals,
            connections: HashMap::new(),
            scratch: vec![0; SCRATCH],
            ready: VecDeque::new(),
            unflushed: Vec::new(),
            accept_later: false,
            newcomers: Vec::new(),
            door: Door { open: false, clients_max: 0, bulk_len_max: 0 },
        };
        Ok((net, waker))
    }

    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }

    /// Waits for something to happen, for no longer than `timeout`.
    pub(super) fn poll(&mut self, timeout: Duration) -> io::Result<Turn> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Turn::default()),
            Err(error) => return Err(error),
        }
        let mut turn = Turn { acceptable: std::mem::take(&mut self.accept_later), ..Turn::default() };
        for event in &self.events {
            match event.token() {
                TCP | UNIX => turn.acceptable = true,
                WAKER => {}
                SIGNAL => turn.signal = true,
                Token(number) => {
                    let id = client_id(number);
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        turn.readable.push(id);
                    }
                    if event.is_writable() {
                        turn.writable.push(id);
                    }
                }
            }
        }
        Ok(turn)
    }

    /// Accepts one waiting connection.
    pub(super) fn accept(&mut self) -> Option<Accepted> {
        if let Some(listener) = &self.tcp
            && let Ok((stream, addr)) = listener.accept()
        {
            // Replies are flushed once per turn already; waiting for more bytes only delays them.
            let _ = stream.set_nodelay(true);
            let local_addr = stream.local_addr().map(|addr| addr.to_string()).unwrap_or_default();
            return Some(Accepted { stream: Stream::Tcp(stream), addr: addr.to_string(), local_addr });
        }
        if let Some((listener, path)) = &self.unix
            && let Ok((stream, _)) = listener.accept()
        {
            let addr = format!("{}:0", path.display());
            return Some(Accepted { stream: Stream::Unix(stream), local_addr: addr.clone(), addr });
        }
        None
    }

    /// Takes in one waiting connection before it has a session. Returns whether there may be more.
    pub(super) fn accept_newcomer(&mut self, ids: &ClientIds) -> bool {
        // The one whose command runs is not among them.
        if self.connections.len() + 1 >= self.door.clients_max {
            self.accept_later = true;
            return false;
        }
        let Some(Accepted { stream, addr, local_addr }) = self.accept() else {
            return false;
        };
        let id = ids.take();
        // A socket that cannot be watched is closed by dropping it.
        if self.add(Box::new(Connection::new(id, stream, self.door.open))).is_ok() {
            self.newcomers.push(Newcomer { id, addr, local_addr });
        }
        true
    }

    pub(super) fn add(&mut self, mut connection: Box<Connection>) -> io::Result<()> {
        connection.register(self.poll.registry(), token(connection.id))?;
        self.connections.insert(connection.id, connection);
        Ok(())
    }

    /// Takes a connection out, to work with it while the rest can be looked after.
    pub(super) fn take(&mut self, id: ClientId) -> Option<Box<Connection>> {
        self.connections.remove(&id)
    }

    pub(super) fn put(&mut self, connection: Box<Connection>) {
        self.connections.insert(connection.id, connection);
    }

    pub(super) fn get_mut(&mut self, id: ClientId) -> Option<&mut Connection> {
        self.connections.get_mut(&id).map(|connection| &mut **connection)
    }

    /// Reads into a connection's query buffer.
    pub(super) fn fill(&mut self, id: ClientId) -> Option<(usize, super::client::Fill)> {
        let connection = self.connections.get_mut(&id)?;
        Some(connection.fill(&mut self.scratch))
    }

    /// Adds connections that have something to read, each once.
    pub(super) fn make_ready(&mut self, readable: Vec<ClientId>) {
        // The poller names nobody twice; only those left over from before may be there already.
        let left_over = self.ready.len();
        for id in readable {
            if !self.ready.iter().take(left_over).any(|ready| *ready == id) {
                self.ready.push_back(id);
            }
        }
    }

    /// Writes what a connection has to say. Returns the bytes written and whether it goes on.
    pub(super) fn flush(&mut self, id: ClientId) -> (usize, bool) {
        match self.connections.get_mut(&id) {
            Some(connection) => connection.flush(self.poll.registry(), token(id)),
            None => (0, true),
        }
    }

    pub(super) fn close(&mut self, id: ClientId) {
        if let Some(mut connection) = self.connections.remove(&id) {
            connection.deregister(self.poll.registry());
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.unix {
            // Someone may have removed it before us.
            let _ = fs::remove_file(path);
        }
    }
}

fn token(id: ClientId) -> Token {
    Token(usize::try_from(id).unwrap_or(usize::MAX - FIRST_CLIENT) + FIRST_CLIENT)
}

fn client_id(number: usize) -> ClientId {
    ClientId::try_from(number.saturating_sub(FIRST_CLIENT)).unwrap_or(0)
}

/// A socket that a dead server left behind is in the way; any other file stays.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {
            match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "a server listens on this socket")),
                Err(_) => fs::remove_file(path),
            }
        }
        _ => Ok(()),
    }
}

/// Signals arrive as bytes in a socket pair: the handler only writes, the loop reads.
fn signal_stream(registry: &Registry) -> io::Result<UnixStream> {
    let (receiver, sender) = std::os::unix::net::UnixStream::pair()?;
    receiver.set_nonblocking(true)?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    let mut receiver = UnixStream::from_std(receiver);
    registry.register(&mut receiver, SIGNAL, Interest::READABLE)?;
    Ok(receiver)
}
