//! A server, real or our own: a process on a free loopback port, ended by its pid.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to come up before that is a failure. It is waited for, never slept for.
const START_MAX: Duration = Duration::from_secs(30);

/// The servers of the test bench. `tests/run` installs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerKind {
    /// Redis 6.2.5: ziplists, no DEBUG switch, DEL blocks.
    Redis62,
    /// Redis 7.0.15 of Debian, with TLS.
    Redis70,
    /// Redis 8.2.3: `INFO keysizes`, key and value in one object.
    Redis82,
    /// Valkey 8.1.8: lazyfree on by default, libc's allocator.
    Valkey81,
    /// Valkey 9.1.2.
    Valkey91,
    /// `bigkeys serve`, which behaves as Redis 7.2.4 does.
    Bundled,
}

impl ServerKind {
    /// Returns its own version, as `bigkeys` should find it out.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Redis62 => "6.2.5",
            Self::Redis70 => "7.0.15",
            Self::Redis82 => "8.2.3",
            Self::Valkey81 => "8.1.8",
            Self::Valkey91 => "9.1.2",
            Self::Bundled => "7.2.4",
        }
    }

    /// Returns whether it is Valkey.
    pub(crate) fn is_valkey(self) -> bool {
        matches!(self, Self::Valkey81 | Self::Valkey91)
    }

    /// Returns a program that came with it to `target/servers`; its own is `{flavour}-server`.
    pub(crate) fn tool(self, name: &str) -> PathBuf {
        let flavour = if self.is_valkey() { "valkey" } else { "redis" };
        let folder = format!("{flavour}-{}", self.version());
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/servers").join(folder).join(name)
    }

    /// Returns the command that starts it with this configuration file.
    fn command(self, conf: &Path) -> Command {
        let (program, arguments): (_, &[&str]) = match self {
            Self::Bundled => (env!("CARGO_BIN_EXE_bigkeys").into(), &["serve", "--config"]),
            _ if self.is_valkey() => (self.tool("valkey-server"), &[]),
            _ => (self.tool("redis-server"), &[]),
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(conf);
        command
    }

    /// Returns whether the server is installed; says so by name if it is not.
    ///
    /// # Panics
    /// Where `CI=true` and it is missing: there a skip would hide a failure.
    pub(crate) fn is_installed_or_skipped(self) -> bool {
        if Path::new(self.command(Path::new("")).get_program()).is_file() {
            return true;
        }
        let version = self.version();
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "{self:?} {version} is not installed: run tests/run --servers"
        );
        eprintln!("skipped: {self:?} {version} is not installed (tests/run --servers installs it)");
        false
    }
}

/// What a server is started with besides the defaults of the bench.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerOptions {
    config: Vec<String>,
    tls: bool,
}

impl ServerOptions {
    /// Adds a line to its configuration file.
    pub(crate) fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// Gives it a TLS port; the certificates are lines of [`ServerOptions::config`].
    pub(crate) fn tls(mut self) -> Self {
        self.tls = true;
        self
    }
}

/// A running server. Dropping it kills the process, also when a test panics.
#[derive(Debug)]
pub(crate) struct Server {
    kind: ServerKind,
    options: ServerOptions,
    dir: PathBuf,
    child: Child,
    port: u16,
    tls_port: Option<u16>,
}

impl Server {
    /// Starts a server with its files in `dir`, and returns once it answers.
    pub(crate) fn start(kind: ServerKind, dir: &Path, options: ServerOptions) -> Self {
        // Between finding a free port and the server binding it, somebody else may take it.
        for attempt in 1.. {
            let port = free_port();
            let tls_port = options.tls.then(free_port);
            match spawn(kind, dir, &options, port, tls_port) {
                Ok(child) => return Self { kind, options, dir: dir.to_owned(), child, port, tls_port },
                Err(log) if attempt < 5 && log.to_lowercase().contains("address already in use") => {}
                Err(log) => panic!("{kind:?} does not start: {log}"),
            }
        }
        unreachable!("the loop returns or panics")
    }

    /// Kills the process, as a crash would, and starts it again on the same port with the same files.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let deadline = Instant::now() + START_MAX;
        self.child = loop {
            match spawn(self.kind, &self.dir, &self.options, self.port, self.tls_port) {
                Ok(child) => break child,
                // The old connections may hold the port for a moment.
                Err(log) => assert!(Instant::now() < deadline, "{:?} does not restart: {log}", self.kind),
            }
        };
    }

    /// Kills the process and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // It may be gone already; that is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Returns the TLS port.
    ///
    /// # Panics
    /// If the server was started without.
    pub(crate) fn tls_port(&self) -> u16 {
        self.tls_port.expect("the server was started with a TLS port")
    }

    pub(crate) fn unix_socket(&self) -> PathBuf {
        self.dir.join("redis.sock")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the process and waits until it answers.
///
/// # Errors
/// With its log, when it ends before it answers.
fn spawn(
    kind: ServerKind,
    dir: &Path,
    options: &ServerOptions,
    port: u16,
    tls_port: Option<u16>,
) -> Result<Child, String> {
    let conf = dir.join("server.conf");
    let log = dir.join("server.log");
    let mut text = format!(
        "port {port}\nbind 127.0.0.1\nunixsocket {dir}/redis.sock\ndir {dir}\nsave \"\"\nappendonly no\n",
        dir = dir.display()
    );
    if kind != ServerKind::Redis62 {
        text.push_str("enable-debug-command yes\n");
    }
    if let Some(tls_port) = tls_port {
        let _ = writeln!(text, "tls-port {tls_port}");
    }
    for line in &options.config {
        text.push_str(line);
        text.push('\n');
    }
    fs::write(&conf, text).expect("the lab's folder is writable");

    let output = File::options().create(true).append(true).open(&log).expect("the log can be opened");
    let mut child = kind
        .command(&conf)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("a file handle can be cloned"))
        .stderr(output)
        .spawn()
        .unwrap_or_else(|error| panic!("{kind:?} cannot be started: {error}"));

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let deadline = Instant::now() + START_MAX;
    while !answers(address) {
        let ended = child.try_wait().expect("a child can be waited for");
        if ended.is_some() || Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(fs::read_to_string(&log).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

/// Returns whether something at the address answers PING like a server that has loaded its data.
fn answers(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
        return false;
    };
    let mut reply = [0; 64];
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .and_then(|()| stream.write_all(b"PING\r\n"))
        .and_then(|()| stream.read(&mut reply))
        .is_ok_and(|length| [&b"+PONG"[..], b"-NOAUTH"].iter().any(|word| reply[..length].starts_with(word)))
}

/// Returns a port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("the loopback interface has a free port")
        .port()
}
