//! What the benches share: servers, started on free loopback ports and stopped when dropped, and a blocking
//! RESP2 connection. No clock is read here: durations come from the server's own counters.

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

/// Returns Redis 7.0.15, which the bundled server is compared with.
pub(crate) fn redis_7_0_15() -> Binary {
    let found = binaries().into_iter().find(|binary| binary.name == "redis-7.0.15");
    found.expect("redis-7.0.15: run tests/run --servers")
}

/// Returns the number that follows `flag` on the command line.
pub(crate) fn number(flag: &str, otherwise: u64) -> u64 {
    let mut args = std::env::args().skip_while(|arg| arg != flag).skip(1);
    args.next().map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Returns the middle one, the upper of two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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
        let started = [&["--enable-debug-command", "local"][..], &[]].into_iter().find_map(|debug| {
            let mut command = Command::new(&path);
            command.args(["--bind", "127.0.0.1", "--save", ""]).args(debug);
            Self::run(command)
        });
        started.unwrap_or_else(|| panic!("{} does not start", binary.path.display()))
    }

    /// Starts it as a node of a cluster that is still to be made.
    pub(crate) fn start_node(binary: &Binary) -> Self {
        let path = std::path::absolute(&binary.path).expect("a current folder");
        let mut command = Command::new(&path);
        command.args(["--bind", "127.0.0.1", "--save", "", "--cluster-enabled", "yes"]);
        command.args(["--cluster-port", &free_port().to_string()]);
        Self::run(command).unwrap_or_else(|| panic!("{} does not start", binary.path.display()))
    }

    /// Starts the bundled server as a process of its own.
    pub(crate) fn start_bundled(bigkeys: &str) -> Self {
        let mut command = Command::new(bigkeys);
        command.arg("serve");
        Self::run(command).expect("the bundled server starts")
    }

    /// Runs a server in a folder of its own; `None` if it ends or does not listen.
    fn run(mut command: Command) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let child = command
            .args(["--port", &port.to_string()])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server can be run");
        let mut server = Self { child, port, folder };
        for _ in 0..START_ATTEMPTS {
            if server.child.try_wait().expect("the server can be waited for").is_some() {
                return None;
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Some(server);
            }
            #[allow(clippy::disallowed_methods, reason = "a bench may wait for its server")]
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }

    /// Keeps its threads on one CPU.
    pub(crate) fn pin_to(&self, cpu: u32) {
        let pid = self.child.id().to_string();
        let pinned = Command::new("taskset").args(["-a", "-c", "-p", &cpu.to_string(), &pid]).output();
        let output = pinned.expect("taskset, of util-linux, is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Returns its resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.expect("Linux says what memory a process has")
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
        self.us_since_reset(command)
    }

    /// Returns the microseconds that calls of a command took on the command thread since `CONFIG RESETSTAT`.
    pub(crate) fn us_since_reset(&mut self, command: &str) -> u64 {
        let name = command.split(' ').next().expect("a command").to_lowercase();
        let stats = self.info("commandstats");
        let line = stats.get(&format!("cmdstat_{name}")).expect("the command was counted");
        let usec = line.split(',').find_map(|part| part.strip_prefix("usec=")).expect("usec");
        usec.parse().expect("a number")
    }

    /// Sends one command and reads its reply without keeping it.
    pub(crate) fn run_unheard(&mut self, command: &str) {
        self.flush();
        self.push(&command.split(' ').collect::<Vec<_>>());
        self.reader.get_mut().write_all(&self.batch).expect("the server reads");
        self.batch.clear();
        self.pending = 0;
        self.skip_reply();
    }

    /// Nothing is allocated for an element: a million of them would take the CPU from whoever is measured.
    fn skip_reply(&mut self) {
        let (mut left, mut line) = (1_u64, Vec::new());
        while left > 0 {
            left -= 1;
            line.clear();
            self.reader.read_until(b'\n', &mut line).expect("the server answers");
            let length = || str::from_utf8(line.get(1..)?).ok()?.trim_end().parse::<u64>().ok();
            match line.first() {
                Some(b'*') => left += length().unwrap_or(0),
                Some(b'$') => {
                    let bytes = length().map_or(0, |length| length + 2);
                    io::copy(&mut (&mut self.reader).take(bytes), &mut io::sink())
                        .expect("the server answers");
                }
                Some(b'-') | None => panic!("the server refused: {}", String::from_utf8_lossy(&line)),
                Some(_) => {}
            }
        }
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
