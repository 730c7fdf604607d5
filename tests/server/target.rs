//! What a script can run on.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bigkeys::server::{Config, Handle, InProcess, ManualClock, Server};
use tempfile::TempDir;

use super::reply::{Reply, decode};
use super::script::parse_version;

/// Whose server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bigkeys,
    Redis,
    Valkey,
}

/// A server, and clients of it by number.
pub(crate) trait Target {
    fn name(&self) -> String;
    fn version(&self) -> (Kind, Vec<u64>);
    /// Forgets all clients and keys.
    fn start_over(&mut self);
    fn call(&mut self, client: usize, words: &[Vec<u8>]) -> Option<Reply>;
    fn sleep(&mut self, time: Duration);
}

/// Returns the defaults, but for where files go.
pub(crate) fn saving_to(dir: &TempDir) -> Config {
    Config::default().with("dir", &dir.path().display().to_string())
}

/// The bundled server in this thread, with a clock that `sleep` moves.
pub(crate) struct InProcessTarget {
    server: InProcess,
    /// What DEBUG RELOAD writes to.
    _dir: TempDir,
    clock: Arc<ManualClock>,
    clients: HashMap<usize, usize>,
}

impl InProcessTarget {
    pub(crate) fn new() -> InProcessTarget {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let dir = TempDir::new().expect("there is room for a temporary folder");
        let config = Config { clock: clock.clone(), seed: Some(1), ..saving_to(&dir) };
        let server = InProcess::new(&config).expect("the defaults are good");
        InProcessTarget { server, _dir: dir, clock, clients: HashMap::new() }
    }
}

impl Target for InProcessTarget {
    fn name(&self) -> String {
        "the bundled server, in-process".to_owned()
    }

    fn version(&self) -> (Kind, Vec<u64>) {
        (Kind::Bigkeys, Vec::new())
    }

    fn start_over(&mut self) {
        *self = InProcessTarget::new();
    }

    fn call(&mut self, client: usize, words: &[Vec<u8>]) -> Option<Reply> {
        let server = &mut self.server;
        let number = *self.clients.entry(client).or_insert_with(|| server.connect());
        let bytes = server.call(number, words);
        let (reply, rest) = decode(&bytes)?;
        assert!(rest.is_empty(), "more than one reply: {}", bytes.escape_ascii());
        Some(reply)
    }

    fn sleep(&mut self, time: Duration) {
        self.clock.advance(time);
        self.server.cron();
        self.server.before_sleep();
    }
}

/// A bundled server in a thread of its own, stopped when dropped.
pub(crate) struct Running {
    pub(crate) handle: Handle,
    addr: String,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Running {
    pub(crate) fn start() -> Running {
        Running::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Running {
        let server = Server::bind(config).expect("a free loopback port");
        let addr = server.local_addr().map(|addr| addr.to_string()).unwrap_or_default();
        let handle = server.handle();
        let thread = std::thread::spawn(move || server.run());
        Running { handle, addr, thread: Some(thread) }
    }

    pub(crate) fn addr(&self) -> String {
        self.addr.clone()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.addr)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join().expect("the server does not panic");
            outcome.expect("the server ends well");
        }
    }
}

/// A connection to any server.
pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// A server that does not answer for this long has failed the test.
const PATIENCE: Duration = Duration::from_secs(20);

impl Client {
    pub(crate) fn connect(addr: &str) -> Client {
        let stream = TcpStream::connect(addr).unwrap_or_else(|why| panic!("{addr}: {why}"));
        stream.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
        stream.set_nodelay(true).expect("a TCP socket");
        Client { stream, unread: Vec::new() }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // A server that has closed shows when it is read from.
        let _ = self.stream.write_all(bytes);
    }

    /// Reads one reply; `None` when the connection has ended.
    pub(crate) fn read(&mut self) -> Option<Reply> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some((reply, rest)) = decode(&self.unread) {
                self.unread = rest.to_vec();
                return Some(reply);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
            }
        }
    }

    pub(crate) fn call<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Option<Reply> {
        self.send(&encode(words));
        self.read()
    }

    /// Runs a command given as a line.
    pub(crate) fn run(&mut self, line: &str) -> Option<Reply> {
        self.call(&super::script::split_words(line).expect("a well-formed line"))
    }
}

pub(crate) fn encode<T: AsRef<[u8]>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Any server with an address.
pub(crate) struct WireTarget {
    addr: String,
    version: (Kind, Vec<u64>),
    clients: HashMap<usize, Client>,
}

impl WireTarget {
    pub(crate) fn connect_to(addr: &str) -> WireTarget {
        let Some(Reply::Bulk(info)) = Client::connect(addr).run("INFO server") else {
            panic!("{addr} does not answer INFO");
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        let bundled = field("redis_build_id:").is_some_and(|id| id.starts_with("bigkeys-"));
        let version = match (field("valkey_version:"), field("redis_version:")) {
            _ if bundled => (Kind::Bigkeys, Vec::new()),
            (Some(version), _) => (Kind::Valkey, parse_version(&version)),
            (None, version) => (Kind::Redis, parse_version(&version.unwrap_or_default())),
        };
        WireTarget { addr: addr.to_owned(), version, clients: HashMap::new() }
    }
}

impl Target for WireTarget {
    fn name(&self) -> String {
        format!("{:?} {:?} at {}", self.version.0, self.version.1, self.addr)
    }

    fn version(&self) -> (Kind, Vec<u64>) {
        self.version.clone()
    }

    fn start_over(&mut self) {
        self.clients.clear();
        let mut client = Client::connect(&self.addr);
        for line in ["FLUSHALL", "SCRIPT FLUSH", "CONFIG RESETSTAT", "ACL DELUSER u"] {
            client.run(line);
        }
    }

    fn call(&mut self, client: usize, words: &[Vec<u8>]) -> Option<Reply> {
        let addr = &self.addr;
        self.clients.entry(client).or_insert_with(|| Client::connect(addr)).call(words)
    }

    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}
