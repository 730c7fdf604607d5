//! A real primary and its replicas.

use std::path::Path;

use tempfile::TempDir;

use super::server::{ServerKind, ServerOptions};
use super::{Bigkeys, Client, Servers};

/// A primary, server 0, with its replicas.
#[derive(Debug)]
pub(crate) struct Replicated {
    // Before `dir`: the processes end before their folder goes.
    pub(crate) servers: Servers,
    dir: TempDir,
}

impl Replicated {
    /// Starts a primary and one replica, without a password.
    #[track_caller]
    pub(crate) fn start(kind: ServerKind) -> Self {
        Self::with(kind, 1, None, |options| options)
    }

    /// Starts a primary and its replicas, each with this password and more configuration.
    #[track_caller]
    pub(crate) fn with(
        kind: ServerKind,
        replicas: usize,
        password: Option<&str>,
        configure: impl Fn(ServerOptions) -> ServerOptions,
    ) -> Self {
        let dir = TempDir::with_prefix("bigkeys-lab-").expect("there is room for a temporary folder");
        let mut servers = Servers::none(password);
        for n in 0..=replicas {
            let mut options = configure(ServerOptions::default()).config("repl-diskless-sync-delay 0");
            if let Some(password) = password {
                options = options.config(format!("masterauth {password}"));
            }
            if n > 0 {
                options = options.config(format!("replicaof 127.0.0.1 {}", servers.port(0)));
            }
            servers.add(kind, dir.path(), &format!("server-{n}"), options);
        }
        let replicated = Self { servers, dir };
        replicated.catch_up();
        replicated
    }

    /// Opens a connection to the server that was started as the primary.
    #[track_caller]
    pub(crate) fn primary(&self) -> Client {
        self.servers.redis(0)
    }

    /// Opens a connection to the first replica.
    #[track_caller]
    pub(crate) fn replica(&self) -> Client {
        self.servers.redis(1)
    }

    /// Waits until each replica that is up has all that the primary has by now.
    #[track_caller]
    pub(crate) fn catch_up(&self) {
        let replicas: Vec<_> = self.servers.up().into_iter().filter(|&n| n > 0).collect();
        self.servers.catch_up(0, &replicas);
    }

    /// Prepares a `bigkeys` command that is not told of any server.
    pub(crate) fn bigkeys_bare<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        Bigkeys::new(self.dir(), args)
    }

    /// Prepares a scan of the primary, like [`super::Lab::scan`].
    pub(crate) fn scan<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        Bigkeys::scan(self.dir(), self.servers.port(0), args)
    }

    /// Returns the folder in which `bigkeys` runs.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}
