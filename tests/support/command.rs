//! The `bigkeys` binary as a user runs it: arguments in, bytes and an exit code out.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::server::signal;

/// Bytes of each output that are shown when a test fails.
const SHOWN_MAX: usize = 6000;

/// How a run may end: the promise of `docs/exit-codes.md`, written down a second time on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Partial = 3,
    Guard = 4,
    LevelReached = 5,
    Interrupted = 130,
}

/// A command that has not run yet.
#[derive(Debug, Clone)]
pub(crate) struct Bigkeys {
    dir: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Option<Vec<u8>>,
    unread: bool,
    timeout: Duration,
}

impl Bigkeys {
    pub(crate) fn new<const N: usize>(dir: &Path, args: [&str; N]) -> Self {
        Self {
            dir: dir.to_owned(),
            args: args.iter().map(OsString::from).collect(),
            env: Vec::new(),
            stdin: None,
            unread: false,
            timeout: Duration::from_mins(2),
        }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.args.extend(args.iter().map(OsString::from));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Gives it these bytes on stdin; without, there is nothing to read.
    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Runs the command and checks how it ended.
    ///
    /// # Panics
    /// With the whole scene when it ended otherwise, or not in time.
    #[track_caller]
    pub(crate) fn exits(self, expected: Exit) -> Outcome {
        self.start().finish().exits(expected)
    }

    /// Runs the command, which must succeed, and returns what it wrote to stdout.
    #[track_caller]
    pub(crate) fn stdout(self) -> String {
        self.exits(Exit::Done).stdout()
    }

    /// Lets nobody read its stdout, as in `bigkeys scan | head -0`.
    pub(crate) fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// Starts the command and returns at once.
    ///
    /// The environment is empty but for what a program needs to run, so that nothing of the machine
    /// (a `REDISCLI_AUTH`, a colour setting, a proxy) reaches the test.
    #[track_caller]
    pub(crate) fn start(self) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bigkeys"))
            .args(&self.args)
            .current_dir(&self.dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.dir)
            .env("LANG", "C.UTF-8")
            .env("RUST_BACKTRACE", "1")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary under test can be started");
        if let (Some(bytes), Some(mut stdin)) = (self.stdin.clone(), child.stdin.take()) {
            // It may end before it has read all.
            thread::spawn(move || stdin.write_all(&bytes));
        }
        let stdout = child.stdout.take().expect("stdout is a pipe");
        // Else it is dropped, and so closed.
        let stdout = (!self.unread).then(|| collect(stdout));
        let (stderr, lines) = collect_with_copy(child.stderr.take().expect("stderr is a pipe"));
        let deadline = Instant::now() + self.timeout;
        Running { command: self, child, stdout, stderr, lines, deadline }
    }
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A closed pipe is the end; what came before it is what the test is about.
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

fn collect_with_copy(mut from: impl Read + Send + 'static) -> (JoinHandle<Vec<u8>>, mpsc::Receiver<Vec<u8>>) {
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..length]);
            // The test may not be watching.
            let _ = sender.send(buffer[..length].to_vec());
        }
        bytes
    });
    (reader, receiver)
}

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Running {
    command: Bigkeys,
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: JoinHandle<Vec<u8>>,
    lines: mpsc::Receiver<Vec<u8>>,
    deadline: Instant,
}

impl Running {
    /// Waits until stderr holds this text.
    ///
    /// # Panics
    /// When the command ends or its time is up before.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&self, text: &str) {
        let mut seen = Vec::new();
        loop {
            if String::from_utf8_lossy(&seen).contains(text) {
                return;
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(bytes) => seen.extend_from_slice(&bytes),
                Err(why) => panic!("stderr never said {text:?} ({why}): {}", String::from_utf8_lossy(&seen)),
            }
        }
    }

    /// Sends SIGINT, as Ctrl-C does.
    #[track_caller]
    pub(crate) fn interrupt(&self) {
        self.signal("INT");
    }

    /// Sends a signal by its name.
    #[track_caller]
    pub(crate) fn signal(&self, name: &str) {
        assert!(signal(&self.child, name), "the command was gone before it got SIG{name}");
    }

    /// Returns whether it has not ended yet.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it at once, as the system does when memory is short, and waits until it is gone. Returns
    /// whether it was still running.
    pub(crate) fn kill(&mut self) -> bool {
        let was_running = self.is_running();
        let _ = self.child.kill();
        let _ = self.child.wait();
        was_running
    }

    /// Returns the most memory that it ever had in use, in KiB. `None`: it has ended, or this is no Linux.
    pub(crate) fn memory_kib_max(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    }

    /// Returns what the system knows of it under this name (`cmdline`, `environ`), and who may read that.
    /// `None`: this is no Linux.
    pub(crate) fn proc_file(&self, name: &str) -> Option<(Vec<u8>, std::fs::Permissions)> {
        let path = format!("/proc/{}/{name}", self.child.id());
        let permissions = std::fs::metadata(&path).ok()?.permissions();
        Some((std::fs::read(&path).ok()?, permissions))
    }

    /// Waits until the command ends.
    ///
    /// # Panics
    /// With the whole scene, when its time is up before. The process is killed then.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Outcome {
        let mut timed_out = false;
        let status = loop {
            match self.child.try_wait().expect("a child can be waited for") {
                Some(status) => break status,
                None if Instant::now() > self.deadline => {
                    timed_out = true;
                    let _ = self.child.kill();
                    break self.child.wait().expect("a killed child can be waited for");
                }
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        let outcome = Outcome {
            args: self.command.args,
            status,
            stdout: self
                .stdout
                .map_or_else(Vec::new, |reader| reader.join().expect("the reader does not panic")),
            stderr: self.stderr.join().expect("the reader does not panic"),
        };
        assert!(!timed_out, "bigkeys did not end within {:?}\n{}", self.command.timeout, outcome.scene());
        outcome
    }
}

/// A command that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    args: Vec<OsString>,
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Outcome {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn exits(self, expected: Exit) -> Self {
        assert_eq!(
            self.status.code(),
            Some(expected as i32),
            "bigkeys should have ended with {expected:?}\n{}",
            self.scene()
        );
        self
    }

    /// Returns the exit code; `None`: a signal ended it.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Checks that the exit code is one of these.
    #[track_caller]
    pub(crate) fn exits_with<const N: usize>(self, expected: [Exit; N]) -> Self {
        let is_expected = expected.iter().any(|exit| self.status.code() == Some(*exit as i32));
        assert!(is_expected, "bigkeys should have ended with one of {expected:?}\n{}", self.scene());
        self
    }

    /// Checks that stderr holds this text.
    #[track_caller]
    pub(crate) fn stderr_has(self, text: &str) -> Self {
        assert!(self.stderr().contains(text), "stderr should say {text:?}\n{}", self.scene());
        self
    }

    /// Checks that neither output holds this text.
    #[track_caller]
    pub(crate) fn never_says(self, text: &str) -> Self {
        let both = format!("{}{}", self.stdout(), self.stderr());
        assert!(!both.contains(text), "no output should say {text:?}\n{}", self.scene());
        self
    }

    /// Checks that stdout holds this text.
    #[track_caller]
    pub(crate) fn stdout_has(self, text: &str) -> Self {
        assert!(self.stdout().contains(text), "stdout should say {text:?}\n{}", self.scene());
        self
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn stdout_bytes(&self) -> &[u8] {
        &self.stdout
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Returns everything there is to see, for the message of a failed check.
    pub(crate) fn scene(&self) -> String {
        let mut scene = String::from("---- bigkeys");
        for arg in &self.args {
            let _ = write!(scene, " {}", arg.to_string_lossy());
        }
        let _ = write!(
            scene,
            "\n---- {}\n---- stdout\n{}\n---- stderr\n{}",
            self.status,
            shown(&self.stdout),
            shown(&self.stderr)
        );
        scene
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]).into_owned();
    if bytes.len() > SHOWN_MAX { format!("{text}\n... {} bytes in all", bytes.len()) } else { text }
}
