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

/// Lines of a server's log that are shown when a test fails.
const LOG_LINES_SHOWN: usize = 40;

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
    fn command(self, conf: &Path, role: Role) -> Command {
        let (program, arguments): (_, &[&str]) = match self {
            Self::Bundled => (env!("CARGO_BIN_EXE_bigkeys").into(), &["serve", "--config"]),
            _ if self.is_valkey() => (self.tool("valkey-server"), &[]),
            _ => (self.tool("redis-server"), &[]),
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(conf);
        if role == Role::Sentinel {
            command.arg("--sentinel");
        }
        command
    }

    /// Returns whether the server is installed; says so by name if it is not.
    ///
    /// # Panics
    /// Where `CI=true` and it is missing: there a skip would hide a failure.
    pub(crate) fn is_installed_or_skipped(self) -> bool {
        if Path::new(self.command(Path::new(""), Role::Alone).get_program()).is_file() {
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

/// What a server is a part of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Role {
    #[default]
    Alone,
    ClusterNode,
    Sentinel,
}

/// What a server is started with besides the defaults of the bench.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerOptions {
    config: Vec<String>,
    tls: bool,
    role: Role,
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

    /// Makes it a node of a cluster, with a port for the bus.
    pub(crate) fn cluster_node(mut self) -> Self {
        self.role = Role::ClusterNode;
        self
    }

    /// Makes it a Sentinel.
    pub(crate) fn sentinel(mut self) -> Self {
        self.role = Role::Sentinel;
        self
    }
}

/// The ports of a server, which it keeps when it is started again.
#[derive(Debug, Clone, Copy)]
struct Ports {
    plain: u16,
    tls: Option<u16>,
    bus: Option<u16>,
}

impl Ports {
    fn free(options: &ServerOptions) -> Self {
        Self {
            plain: free_port(),
            tls: options.tls.then(free_port),
            bus: (options.role == Role::ClusterNode).then(free_port),
        }
    }
}

/// A running server. Dropping it kills the process, also when a test panics.
#[derive(Debug)]
pub(crate) struct Server {
    kind: ServerKind,
    role: Role,
    dir: PathBuf,
    child: Child,
    ports: Ports,
    is_up: bool,
}

impl Server {
    /// Starts a server with its files in `dir`, and returns once it answers.
    pub(crate) fn start(kind: ServerKind, dir: &Path, options: &ServerOptions) -> Self {
        // Between finding a free port and the server binding it, somebody else may take it.
        for attempt in 1.. {
            let ports = Ports::free(options);
            configure(kind, dir, options, ports);
            match spawn(kind, options.role, dir, ports) {
                Ok(child) => {
                    return Self { kind, role: options.role, dir: dir.to_owned(), child, ports, is_up: true };
                }
                Err(log) if attempt < 5 && log.to_lowercase().contains("address already in use") => {}
                Err(log) => panic!("{kind:?} does not start: {log}"),
            }
        }
        unreachable!("the loop returns or panics")
    }

    /// Kills the process, as a crash would, and starts it again on the same ports with the same files, its
    /// configuration as it was last written (by `CONFIG REWRITE`, or by a Sentinel) among them.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let deadline = Instant::now() + START_MAX;
        self.child = loop {
            match spawn(self.kind, self.role, &self.dir, self.ports) {
                Ok(child) => break child,
                // The old connections may hold the port for a moment.
                Err(log) => assert!(Instant::now() < deadline, "{:?} does not restart: {log}", self.kind),
            }
        };
        self.is_up = true;
    }

    /// Kills the process and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // It may be gone already; that is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.is_up = false;
    }

    /// Stops the process where it is: its sockets stay open and nobody answers.
    pub(crate) fn pause(&mut self) {
        assert!(signal(&self.child, "STOP"), "{:?} was gone before it was paused", self.kind);
        self.is_up = false;
    }

    /// Lets a paused process go on.
    pub(crate) fn resume(&mut self) {
        assert!(signal(&self.child, "CONT"), "{:?} was gone before it was resumed", self.kind);
        self.is_up = true;
    }

    /// Returns whether it is neither killed nor paused.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports.plain
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.plain))
    }

    /// Returns the TLS port.
    ///
    /// # Panics
    /// If the server was started without.
    pub(crate) fn tls_port(&self) -> u16 {
        self.ports.tls.expect("the server was started with a TLS port")
    }

    /// Returns the port of the cluster bus.
    ///
    /// # Panics
    /// If the server is no node of a cluster.
    pub(crate) fn bus_port(&self) -> u16 {
        self.ports.bus.expect("the server is a node of a cluster")
    }

    pub(crate) fn unix_socket(&self) -> PathBuf {
        self.dir.join("redis.sock")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }

    /// Writes the last lines of the log to stderr, where a failed test shows them.
    pub(crate) fn show_log(&self) {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        eprintln!("---- the log of port {} (last lines)\n{}", self.port(), shown.join("\n"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes the configuration file.
fn configure(kind: ServerKind, dir: &Path, options: &ServerOptions, ports: Ports) {
    let mut text = format!(
        "port {}\nbind 127.0.0.1\nunixsocket {dir}/redis.sock\ndir {dir}\nsave \"\"\nappendonly no\n",
        ports.plain,
        dir = dir.display()
    );
    if kind != ServerKind::Redis62 {
        text.push_str("enable-debug-command yes\n");
    }
    if let Some(tls) = ports.tls {
        let _ = writeln!(text, "tls-port {tls}");
    }
    if let Some(bus) = ports.bus {
        let _ = writeln!(text, "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-port {bus}");
    }
    for line in &options.config {
        text.push_str(line);
        text.push('\n');
    }
    fs::write(conf(dir), text).expect("the lab's folder is writable");
}

fn conf(dir: &Path) -> PathBuf {
    dir.join("server.conf")
}

/// Starts the process and waits until it answers.
///
/// # Errors
/// With its log, when it ends before it answers.
fn spawn(kind: ServerKind, role: Role, dir: &Path, ports: Ports) -> Result<Child, String> {
    let log = dir.join("server.log");
    let output = File::options().create(true).append(true).open(&log).expect("the log can be opened");
    let mut child = kind
        .command(&conf(dir), role)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("a file handle can be cloned"))
        .stderr(output)
        .spawn()
        .unwrap_or_else(|error| panic!("{kind:?} cannot be started: {error}"));

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.plain));
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

/// Sends a signal by its name. Returns whether the process was still there.
pub(crate) fn signal(child: &Child, name: &str) -> bool {
    // The shell's own `kill` is everywhere; a signal of ours would need `unsafe`.
    Command::new("sh")
        .args(["-c", "kill -\"$0\" \"$1\"", name, &child.id().to_string()])
        .status()
        .expect("there is a shell")
        .success()
}

/// Returns a port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("the loopback interface has a free port")
        .port()
}
