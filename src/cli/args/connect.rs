//! Where the server is and how to get in. Names follow redis-cli where it has one.
//!
//! There is no flag for a password, on purpose: every user of the machine can read a command line.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::value::{parse_count_u32, parse_duration_not_zero};

/// A URL as it was typed. It may hold a password, so `Debug` hides it, and it is read by
/// [`super::ServerUrl`] and not by clap, which repeats a bad value in its error.
#[derive(Clone, PartialEq, Eq)]
pub struct UrlText(pub String);

impl fmt::Debug for UrlText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UrlText(***)")
    }
}

impl From<&str> for UrlText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// How to reach the server and log in.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectArgs {
    /// redis://, rediss:// or unix:// URL [env: BIGKEYS_URL]
    ///
    /// `redis://HOST:PORT/DB`, `rediss://` for TLS, or `unix:///PATH?db=N`. Without it and
    /// without --host, --port and --socket, the environment variable BIGKEYS_URL is used, else 127.0.0.1:6379.
    ///
    /// A URL can hold a login: `redis://USER:PASSWORD@HOST`, with characters such as `/ ? # @ : %`
    /// percent-encoded. On the command line every user of the machine can see it, and bigkeys warns;
    /// in BIGKEYS_URL they cannot.
    #[arg(short, long, value_name = "URL", conflicts_with_all = ["host", "port", "socket"])]
    pub url: Option<UrlText>,

    /// Host name or address [default: 127.0.0.1]
    ///
    /// IPv6 with or without brackets.
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,

    /// Port [default: 6379]
    ///
    /// The default is the same with TLS.
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Unix socket, instead of host and port
    ///
    /// It is called `unixsocket` in redis.conf.
    #[arg(short, long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    pub socket: Option<PathBuf>,

    /// Database, repeatable [default: all that hold keys]
    ///
    /// Several can be given with commas, too: `-n 0,3`. A database that the URL names counts as given.
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', value_parser = parse_count_u32)]
    pub db: Vec<u32>,

    /// All databases that hold keys
    ///
    /// It is the default, unless BIGKEYS_URL names a database.
    #[arg(long, conflicts_with = "db")]
    pub all_dbs: bool,

    /// ACL user [default: the server's default user]
    ///
    /// Its password comes from REDISCLI_AUTH, --askpass or --password-file.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// Ask for the password on the terminal
    ///
    /// Nothing is echoed. The other ways are the environment variable
    /// REDISCLI_AUTH (as for redis-cli) and --password-file. There is no flag that takes a password:
    /// every user of the machine could read it.
    #[arg(long, conflicts_with = "password_file")]
    pub askpass: bool,

    /// File that holds the password [env: REDISCLI_AUTH]
    ///
    /// It holds the password and nothing else; one newline at its end is dropped. bigkeys warns
    /// when users other than its owner and group can read it, or others than its owner can change it.
    /// `--password-file <(pass show redis)` works too.
    ///
    /// Without it and --askpass, the password is the URL's, else that of the environment variable
    /// REDISCLI_AUTH.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Wait at most this long for a connection
    ///
    /// TLS handshake and login are included.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration_not_zero)]
    pub connect_timeout: Duration,

    /// Wait at most this long for each command
    ///
    /// After that the connection is given up and made again, and the scan goes on from the same cursor.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration_not_zero)]
    pub timeout: Duration,

    /// TLS flags.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// How to encrypt and verify.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Use TLS, as rediss:// does
    ///
    /// The server's certificate is verified against the CA certificates
    /// of the system, or those of --cacert.
    #[arg(long)]
    pub tls: bool,

    /// CA certificates to trust, PEM
    ///
    /// They are trusted instead of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub cacert: Option<PathBuf>,

    /// Our certificate, PEM (with --key)
    ///
    /// The file holds the certificate and its chain, for a server that asks for one.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// Private key of our certificate, PEM (with --cert)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// Name to ask for and verify, if not the host's
    ///
    /// For servers behind a tunnel, or reached by address.
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,

    /// Do not verify the server's certificate
    ///
    /// Whoever sits in between can then read the password and
    /// every key name; a private CA with --cacert is the better way.
    #[arg(long)]
    pub insecure: bool,
}
