//! Parse, run, exit code. The only place where the rooms meet: `demo` and `serve` start the server room,
//! and the front desk then talks to it as to any other server.

use std::process::ExitCode;

/// For the bundled server, whose stalls are to be those of commands and not of the allocator; see Cargo.toml.
#[cfg(feature = "server")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    use std::net::{Ipv4Addr, SocketAddr};
    use std::thread;

    use bigkeys::cli::bundled::{Bundled, BundledOptions};
    use bigkeys::server::{Config, Server, seed};

    /// The server room, for the front desk.
    pub(super) struct ServerRoom;

    impl Bundled for ServerRoom {
        fn start(&self, options: &BundledOptions) -> io::Result<SocketAddr> {
            let server = Server::bind(config(options)?)?;
            let address = server.local_addr().ok_or_else(|| io::Error::other("it listens on no TCP port"))?;
            thread::Builder::new().name("bundled-server".to_owned()).spawn(move || server.run())?;
            Ok(address)
        }

        fn serve(&self, options: &BundledOptions, ready: &mut dyn FnMut(&str)) -> io::Result<()> {
            let server = Server::bind(Config { handle_signals: true, ..config(options)? })?;
            let addresses = [
                server.local_addr().map(|address| address.to_string()),
                server.unix_socket().map(|path| path.display().to_string()),
            ];
            ready(&addresses.into_iter().flatten().collect::<Vec<_>>().join(" and "));
            server.run()
        }

        fn seed(&self, address: SocketAddr) -> io::Result<()> {
            seed::fill(address)
        }

        fn seed_again(&self, address: SocketAddr, key: &str) -> io::Result<()> {
            seed::fill_again(address, key)
        }
    }

    fn config(options: &BundledOptions) -> io::Result<Config> {
        let mut config = match &options.config {
            Some(path) => Config::from_file(path).map_err(io::Error::other)?,
            None => Config::default(),
        };
        if options.bind.is_some() || options.port.is_some() {
            let from = config.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            let address = options.bind.unwrap_or(from.ip());
            config.listen = Some(SocketAddr::new(address, options.port.unwrap_or(from.port())));
        }
        if let Some(dir) = &options.dir {
            config = config.with("dir", &dir.display().to_string());
        }
        if let Some(password) = &options.password {
            config = config.with("requirepass", password);
        }
        config.load = options.load.clone().or(config.load);
        Ok(config)
    }
}
