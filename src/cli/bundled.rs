//! What `demo` and `serve` need of the bundled server. This room must not know that one, so the binary,
//! where the rooms meet, brings it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// How to start the bundled server.
#[derive(Debug, Clone, Default)]
pub struct BundledOptions {
    /// A configuration file, as redis-server takes it. What follows overrides it.
    pub config: Option<PathBuf>,
    /// Address to listen on. `None`: loopback.
    pub bind: Option<IpAddr>,
    /// Port to listen on. `None`: a free one.
    pub port: Option<u16>,
    /// Folder for the RDB file of SAVE.
    pub dir: Option<PathBuf>,
    /// RDB file to start from.
    pub load: Option<PathBuf>,
    /// `requirepass`.
    pub password: Option<String>,
}

/// The bundled server, as the binary hands it in.
pub trait Bundled {
    /// Starts it on a thread of its own and returns where it listens. It stops with the process.
    ///
    /// # Errors
    /// When it cannot listen.
    fn start(&self, options: &BundledOptions) -> io::Result<SocketAddr>;

    /// Runs it on this thread until SIGINT, SIGTERM or SHUTDOWN; `ready` is told where it listens, in
    /// words.
    ///
    /// # Errors
    /// When it cannot listen, or one of its files cannot be used.
    fn serve(&self, options: &BundledOptions, ready: &mut dyn FnMut(&str)) -> io::Result<()>;

    /// Fills it with the sample keyspace.
    ///
    /// # Errors
    /// When it does not answer.
    fn seed(&self, address: SocketAddr) -> io::Result<()>;

    /// Makes a giant of the sample anew, after it was deleted: `visitors:2026`.
    ///
    /// # Errors
    /// When the server does not answer, or it is another key.
    fn seed_again(&self, address: SocketAddr, key: &str) -> io::Result<()>;
}
