//! A temporary folder, a server in it, and a `bigkeys` that knows where the server is.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::server::{Server, ServerKind, ServerOptions};
use super::{Bigkeys, Client};

/// Everything that a test needs. Dropping it ends the server and removes the folder.
#[derive(Debug)]
pub(crate) struct Lab {
    // Before `dir`: the process ends before its folder goes.
    server: Server,
    dir: TempDir,
}

impl Lab {
    /// Starts a server with the defaults of the bench: no password, no persistence, DEBUG allowed.
    pub(crate) fn start(kind: ServerKind) -> Self {
        Self::with(kind, |_, options| options)
    }

    /// Starts a server with more configuration; the closure gets the lab's folder.
    pub(crate) fn with(
        kind: ServerKind,
        configure: impl FnOnce(&Path, ServerOptions) -> ServerOptions,
    ) -> Self {
        let dir = TempDir::with_prefix("bigkeys-lab-").expect("there is room for a temporary folder");
        let options = configure(dir.path(), ServerOptions::default());
        Self { server: Server::start(kind, dir.path(), &options), dir }
    }

    /// Opens a connection of the test's own.
    #[track_caller]
    pub(crate) fn redis(&self) -> Client {
        Client::connect(self.server.address())
    }

    /// Prepares a `bigkeys` command for this lab's server. It runs in the lab's folder.
    pub(crate) fn bigkeys<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        Bigkeys::new(self.dir.path(), args).arg("--port").arg(self.server.port().to_string())
    }

    /// Prepares a `bigkeys` command that is not told where a server is.
    pub(crate) fn bigkeys_bare<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        Bigkeys::new(self.dir.path(), args)
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the lab's folder.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of a file in the lab's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.server.show_log();
        }
    }
}
