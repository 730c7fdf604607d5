//! What the benches share: real servers, started on free loopback ports and stopped when dropped, and a
//! blocking RESP2 connection. No clock is read here: durations come from the server's own counters.

#![allow(dead_code, reason = "each bench uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where `tests/run` unpacks the servers.
const SERVERS: &str = "target/servers";
/// Attempts to reach a server that was just started, 50 ms apart.
const START_ATTEMPTS: u32 = 200;

/// A server binary under the name the tables show.
pub(crate) struct Binary {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Reads `NAME=PATH` arguments; without any, takes every server below `target/servers`.
pub(crate) fn binaries() -> Vec<Binary> {
    let given: Vec<Binary> = std::env::args()
        .skip(1)
        .filter_map(|arg| {
            let (name, path) = arg.split_once('=')?;
            Some(Binary { name: name.to_owned(), path: PathBuf::from(path) })
        })
        .collect();
    if !given.is_empty() {
        return given;
    }
    let mut found = Vec::new();
    if let Ok(entries) = fs::read_dir(SERVERS) {
        for entry in entries.flatten() {
            if let Some(path) = server_below(&entry.path()) {
                found.push(Binary { name: entry.file_name().to_string_lossy().into_owned(), path });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!found.is_empty(), "no server in {SERVERS}: run tests/run first, or pass NAME=PATH");
    found
}

fn server_below(folder: &Path) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = server_below(&path) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|name| name == "redis-server" || name == "valkey-server") {
            return Some(path);
        }
    }
    None
}

/// A running server with nothing in it; dropping it kills it.
pub(crate) struct Server {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts it without persistence on a free loopback port.
    pub(crate) fn start(binary: &Binary) -> Self {
        // Not canonical: Debian's redis-server is a link to redis-check-rdb, and acts by its name.
        let path = std::path::absolute(&binary.path).expect("a current folder");
        // Redis < 7.0 has no such option and allows DEBUG anyway.
        for debug in [&["--enable-debug-command", "local"][..], &[]] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let port = free_port();
            let mut child = Command::new(&path)
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
                .args(debug)
                .current_dir(folder.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the server starts");
            for _ in 0..START_ATTEMPTS {
                if child.try_wait().expect("the server can be waited for").is_some() {
                    break;
                }
                if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                    return Self { child, port, folder };
                }
                #[allow(clippy::disallowed_methods, reason = "a bench may wait for its server")]
                std::thread::sleep(Duration::from_millis(50));
            }
            child.kill().ok();
            child.wait().ok();
        }
        panic!("{} does not start", binary.path.display());
    }

    /// Starts the bundled server in a process of its own.
    pub(crate) fn start_bundled(bigkeys: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let mut child = Command::new(bigkeys)
            .args(["serve", "--port", &port.to_string()])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        for _ in 0..START_ATTEMPTS {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Self { child, port, folder };
            }
            #[allow(clippy::disallowed_methods, reason = "a bench may wait for its server")]
            std::thread::sleep(Duration::from_millis(50));
        }
        child.kill().ok();
        child.wait().ok();
        panic!("{bigkeys} serve does not start");
    }

    /// Returns the port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Opens a connection.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.port).expect("the server accepts connections")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound address").port()
}

/// A reply.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Text(Vec<u8>),
    Int(i64),
    Nil,
    Array(Vec<Reply>),
    Error(String),
}

impl Reply {
    /// Returns the text of a string or a number.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Int(number) => number.to_string(),
            other => panic!("a text was expected, not {other:?}"),
        }
    }

    /// Returns the number.
    pub(crate) fn int(&self) -> u64 {
        match self {
            Self::Int(number) => u64::try_from(*number).expect("a count"),
            other => panic!("a number was expected, not {other:?}"),
        }
    }

    /// Returns the elements of an array.
    pub(crate) fn array(self) -> Vec<Reply> {
        match self {
            Self::Array(items) => items,
            other => panic!("an array was expected, not {other:?}"),
        }
    }
}

/// A blocking RESP2 connection with a batch of commands to be sent at once.
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
    batch: Vec<u8>,
    pending: usize,
}

/// A batch is sent when it holds this many bytes, so that neither side's buffers grow.
const BATCH_BYTES: usize = 64 << 10;

impl Connection {
    fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream), batch: Vec::new(), pending: 0 })
    }

    /// Adds a command to the batch, and sends the batch when it is full.
    pub(crate) fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        write!(self.batch, "*{}\r\n", args.len()).expect("memory");
        for arg in args {
            let arg = arg.as_ref();
            write!(self.batch, "${}\r\n", arg.len()).expect("memory");
            self.batch.extend_from_slice(arg);
            self.batch.extend_from_slice(b"\r\n");
        }
        self.pending += 1;
        if self.batch.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Sends the batch and checks that nothing was refused.
    pub(crate) fn flush(&mut self) {
        self.reader.get_mut().write_all(&self.batch).expect("the server reads");
        self.batch.clear();
        for _ in 0..std::mem::take(&mut self.pending) {
            if let Reply::Error(text) = self.reply() {
                panic!("the server refused a command: {text}");
            }
        }
    }

    /// Sends one command and returns its reply.
    pub(crate) fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.flush();
        self.push(args);
        if self.pending > 0 {
            self.reader.get_mut().write_all(&self.batch).expect("the server reads");
            self.batch.clear();
            self.pending = 0;
            return self.reply();
        }
        Reply::Nil
    }

    /// Sends one command, written with spaces.
    pub(crate) fn run(&mut self, command: &str) -> Reply {
        self.ask(&command.split(' ').collect::<Vec<_>>())
    }

    /// Returns the fields of an `INFO` section.
    pub(crate) fn info(&mut self, section: &str) -> BTreeMap<String, String> {
        let text = self.ask(&["INFO", section]).text();
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect()
    }

    /// Runs a command and returns the microseconds that it took on the server's command thread.
    pub(crate) fn server_us(&mut self, command: &str) -> u64 {
        self.run("CONFIG RESETSTAT");
        self.run(command);
        let name = command.split(' ').next().expect("a command").to_lowercase();
        let stats = self.info("commandstats");
        let line = stats.get(&format!("cmdstat_{name}")).expect("the command was counted");
        let usec = line.split(',').find_map(|part| part.strip_prefix("usec=")).expect("usec");
        usec.parse().expect("a number")
    }

    fn reply(&mut self) -> Reply {
        let line = self.line();
        let rest = &line[1..];
        let length = || rest.parse::<i64>().expect("a number");
        match line.as_bytes()[0] {
            b'+' => Reply::Text(rest.as_bytes().to_vec()),
            b'-' => Reply::Error(rest.to_owned()),
            b':' => Reply::Int(length()),
            b'$' => usize::try_from(length()).map_or(Reply::Nil, |length| {
                let mut bytes = vec![0; length + 2];
                self.reader.read_exact(&mut bytes).expect("the server answers");
                bytes.truncate(length);
                Reply::Text(bytes)
            }),
            b'*' => usize::try_from(length())
                .map_or(Reply::Nil, |length| Reply::Array((0..length).map(|_| self.reply()).collect())),
            other => panic!("unknown reply type {other}"),
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("the server answers");
        line.truncate(line.trim_end().len());
        assert!(!line.is_empty(), "the server closed the connection");
        line
    }
}

/// Returns a short description of server and machine, for the head of a raw file.
pub(crate) fn describe(connection: &mut Connection) -> String {
    let server = connection.info("server");
    let memory = connection.info("memory");
    let version = server
        .get("valkey_version")
        .map_or_else(|| format!("redis {}", server["redis_version"]), |version| format!("valkey {version}"));
    format!("{version}, {}", memory["mem_allocator"])
}
