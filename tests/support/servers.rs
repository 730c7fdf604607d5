//! Servers that belong together: the nodes of a cluster, or a primary with its replicas.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::server::{Server, ServerKind, ServerOptions};
use super::{Client, wait_for};

/// Some servers, known by their number. Dropping them ends the processes and shows the logs of a failed test.
///
/// All that can be done to them takes `&self`, so that a test can do it while `bigkeys` runs, from a thread or
/// from the hook of a proxy. A hook outlives the test: let it hold a [`std::sync::Weak`], or nobody drops these.
#[derive(Debug)]
pub(crate) struct Servers {
    all: Vec<Mutex<Server>>,
    addresses: Vec<SocketAddr>,
    password: Option<String>,
}

impl Servers {
    /// Starts no servers yet; `password` is that of the default user of each.
    pub(crate) fn none(password: Option<&str>) -> Self {
        Self { all: Vec::new(), addresses: Vec::new(), password: password.map(str::to_owned) }
    }

    /// Starts one more, with its files in a folder in `dir`, and returns its number.
    pub(crate) fn add(
        &mut self,
        kind: ServerKind,
        dir: &Path,
        name: &str,
        mut options: ServerOptions,
    ) -> usize {
        let dir = dir.join(name);
        fs::create_dir(&dir).expect("the folder is writable, and the name is new");
        if let Some(password) = &self.password {
            options = options.config(format!("requirepass {password}"));
        }
        let server = Server::start(kind, &dir, &options);
        self.addresses.push(server.address());
        self.all.push(Mutex::new(server));
        self.all.len() - 1
    }

    /// Returns how many there are, whatever state they are in.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns those that are neither killed nor paused.
    pub(crate) fn up(&self) -> Vec<usize> {
        (0..self.len()).filter(|&n| self.lock(n).is_up()).collect()
    }

    pub(crate) fn address(&self, n: usize) -> SocketAddr {
        self.addresses[n]
    }

    pub(crate) fn port(&self, n: usize) -> u16 {
        self.addresses[n].port()
    }

    /// Returns the one at this port.
    pub(crate) fn at_port(&self, port: u16) -> Option<usize> {
        self.addresses.iter().position(|address| address.port() == port)
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Opens a connection of the test's own, with the password if there is one.
    #[track_caller]
    pub(crate) fn redis(&self, n: usize) -> Client {
        let client = Client::connect(self.address(n));
        if let Some(password) = &self.password {
            client.call(&["AUTH", password]).is("OK");
        }
        client
    }

    /// Waits until replicas have all that their primary has by now.
    #[track_caller]
    pub(crate) fn catch_up(&self, primary: usize, replicas: &[usize]) {
        let offset =
            |client: &Client, field: &str| client.info(field).parse::<u64>().expect("an offset is a number");
        let written = offset(&self.redis(primary), "master_repl_offset");
        for &n in replicas {
            let replica = self.redis(n);
            wait_for("a replica to catch up", || match replica.info("master_link_status").as_str() {
                "up" if offset(&replica, "slave_repl_offset") >= written => Ok(()),
                link => Err(format!("the link of server {n} is {link}")),
            });
        }
    }

    /// Kills one, as a crash would.
    pub(crate) fn kill(&self, n: usize) {
        self.lock(n).kill();
    }

    /// Stops one where it is: its sockets stay open and nobody answers.
    pub(crate) fn pause(&self, n: usize) {
        self.lock(n).pause();
    }

    /// Lets a paused one go on.
    pub(crate) fn resume(&self, n: usize) {
        self.lock(n).resume();
    }

    /// Starts a killed one again, on the same ports with the same files; what it held in memory is lost.
    pub(crate) fn restart(&self, n: usize) {
        self.lock(n).restart();
    }

    /// Looks at the server itself.
    pub(crate) fn lock(&self, n: usize) -> MutexGuard<'_, Server> {
        // A poisoned lock is a failed test, in which they still have to be ended.
        self.all[n].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for n in 0..self.len() {
                self.lock(n).show_log();
            }
        }
    }
}
