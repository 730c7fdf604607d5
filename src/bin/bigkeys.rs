//! Parse, run, exit code. The only place where the rooms meet: `demo` and `serve` start the server room,
//! and the front desk then talks to it as to any other server.

use std::process::ExitCode;

fn main() -> ExitCode {
    bigkeys::cli::run(std::env::args_os(), bundled()).into()
}

#[cfg(not(feature = "server"))]
fn bundled() -> Option<&'static dyn bigkeys::cli::bundled::Bundled> {
    None
}

#[cfg(feature = "server")]
#[expect(clippy::unnecessary_wraps, reason = "a build without the server room has none")]
fn bundled() -> Option<&'static dyn bigkeys::cli::bundled::Bundled> {
    Some(&room::ServerRoom)
}

#[cfg(feature = "server")]
mod room {
    use std::io;
    use std::net::SocketAddr;
    use std::thread;

    use bigkeys::cli::bundled::{Bundled, BundledOptions};
    use bigkeys::server::{Config, Server, seed};

    /// The server room, for the front desk.
    pub(super) struct ServerRoom;

    impl Bundled for ServerRoom {
        fn start(&self, options: &BundledOptions) -> io::Result<SocketAddr> {
            let server = Server::bind(config(options, false))?;
            let address = address(&server)?;
            thread::Builder::new().name("bundled-server".to_owned()).spawn(move || server.run())?;
            Ok(address)
        }

        fn serve(&self, options: &BundledOptions, ready: &mut dyn FnMut(SocketAddr)) -> io::Result<()> {
            let server = Server::bind(config(options, true))?;
            ready(address(&server)?);
            server.run()
        }

        fn seed(&self, address: SocketAddr) -> io::Result<()> {
            seed::fill(address)
        }
    }

    fn config(options: &BundledOptions, handle_signals: bool) -> Config {
        let mut config = Config { load: options.load.clone(), handle_signals, ..Config::default() };
        if let Some(listen) = options.listen {
            config.listen = Some(listen);
        }
        if let Some(dir) = &options.dir {
            config = config.with("dir", &dir.display().to_string());
        }
        if let Some(password) = &options.password {
            config = config.with("requirepass", password);
        }
        config
    }

    fn address(server: &Server) -> io::Result<SocketAddr> {
        server.local_addr().ok_or_else(|| io::Error::other("it listens on no TCP port"))
    }
}
