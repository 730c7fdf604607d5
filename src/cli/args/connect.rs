//! Where the server is and how to get in. Names follow redis-cli where it has one.
//!
//! There is no flag for a password, on purpose: every user of the machine can read a command line.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::engine::live::AddressRule;

use super::url::parse_host;
use super::value::{ValueError, parse_db, parse_duration_not_zero};

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
    ///
    /// `scan` takes it several times, and makes one report of all servers and clusters; see --targets too.
    #[arg(short, long, value_name = "URL", conflicts_with_all = ["host", "port", "socket"])]
    pub url: Vec<UrlText>,

    /// Host name or address [default: 127.0.0.1]
    ///
    /// IPv6 with or without brackets.
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,

    /// Port [default: 6379]
    ///
    /// The default is the same with TLS.
    #[arg(short, long, value_name = "PORT", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Unix socket, instead of host and port
    ///
    /// It is called `unixsocket` in redis.conf.
    #[arg(short, long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    pub socket: Option<PathBuf>,

    /// Database, repeatable [default: all that hold keys]
    ///
    /// Several can be given with commas, too: `-n 0,3`. A database that the URL names counts as given.
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, value_delimiter = ',', value_parser = parse_db)]
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

    /// Which servers of a deployment.
    #[command(flatten)]
    pub deployment: DeploymentArgs,

    /// TLS flags.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Which servers there are, and which of them are asked.
#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(next_help_heading = "Deployment")]
pub struct DeploymentArgs {
    /// Insist on a cluster [default: found out]
    ///
    /// A server that says that it is of a cluster stands for the whole cluster, whichever of its nodes it is. With
    /// this flag, a server that is of none is an error.
    #[arg(short, long, conflicts_with_all = ["one_node", "sentinel"])]
    pub cluster: bool,

    /// Only the server named, though it is of a cluster
    #[arg(long, conflicts_with = "sentinel")]
    pub one_node: bool,

    /// Ask Sentinel for this group
    ///
    /// It is the NAME of `sentinel monitor NAME`. The address is that of a Sentinel (port 26379 by default), or
    /// those of --sentinel-node. A Sentinel without a password is asked without one.
    #[arg(long, value_name = "NAME")]
    pub sentinel: Option<String>,

    /// Sentinel to ask, repeatable
    ///
    /// They are asked in turn until one answers.
    #[arg(long, value_name = "HOST[:PORT]", requires = "sentinel", value_parser = parse_sentinel, conflicts_with_all = ["url", "host", "port", "socket"])]
    pub sentinel_node: Vec<HostPort>,

    /// Scan replicas where there are any
    ///
    /// It is the default in a cluster and behind Sentinel. A replica does not free a key that SCAN meets past
    /// its time to live. Keys are deleted on their primaries in any case.
    #[arg(long, conflicts_with = "primary_only")]
    pub prefer_replica: bool,

    /// Scan primaries
    #[arg(long)]
    pub primary_only: bool,

    /// Reach FROM at TO, repeatable
    ///
    /// FROM is an address that a cluster, a Sentinel or a primary tells and that cannot be reached from here, TO
    /// is where it can: a tunnel, or a name outside. A port may be left out on both sides, and then stays as it is.
    #[arg(long, value_name = "FROM=TO", value_parser = parse_address_rule)]
    pub map_address: Vec<AddressRule>,

    /// File of servers and clusters to scan
    ///
    /// A TOML file with a `[[target]]` for each: url, user, password_env, password_file, db, cluster, one_node,
    /// sentinel, cacert, cert, key, sni, insecure. Any other file has a URL on each line; lines that begin with `#`
    /// are comments. What a target does not say is as the flags say it. One that fails does not stop the others
    /// (exit 3).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "host", "port", "socket", "sentinel", "cluster", "one_node", "db"])]
    pub targets: Option<PathBuf>,
}

/// An address whose port may be left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// Host.
    pub host: String,
    /// Port.
    pub port: Option<u16>,
}

impl HostPort {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.rsplit_once(':') {
            // An IPv6 address without brackets has no port.
            Some((host, port)) if host.ends_with(']') || !host.contains(':') => {
                (host, Some(port.parse::<u16>().ok().filter(|port| *port > 0)?))
            }
            _ => (text, None),
        };
        Some(Self { host: parse_host(host)?, port })
    }
}

fn parse_sentinel(text: &str) -> Result<HostPort, ValueError> {
    HostPort::parse(text).ok_or_else(|| ValueError::new("expected an address, such as 10.0.0.5:26379"))
}

fn parse_address_rule(text: &str) -> Result<AddressRule, ValueError> {
    let sides =
        text.split_once('=').and_then(|(from, to)| Some((HostPort::parse(from)?, HostPort::parse(to)?)));
    let Some((from, to)) = sides else {
        return Err(ValueError::new("expected two addresses, such as 10.0.0.5:6379=localhost:7001"));
    };
    Ok(AddressRule { from_host: from.host, from_port: from.port, to_host: to.host, to_port: to.port })
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
