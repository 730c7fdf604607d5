//! Where a server is and how to get in, as plain data. Secrets never show in `Debug` or `Display`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A socket to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Tcp {
        /// Host name or address (IPv6 without brackets).
        host: String,
        /// Port.
        port: u16,
    },
    /// Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads what [`Address`] displays. `None`: it is no address.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return Some(Self::Unix(PathBuf::from(text)));
        }
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self::Tcp { host: host.to_owned(), port: port.parse().ok()? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// So many characters of a password in a row may be in an error by chance: `ERR`.
const REPEATED_CHARACTERS_MAX: usize = 3;

/// A password. `Debug` hides it; there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    pub fn new(password: impl Into<String>) -> Self {
        Self(password.into())
    }

    /// Returns the password, to be sent to the server and nowhere else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns what a server said about a login, without anything that may be a part of the password:
    /// servers cut and escape what they repeat, so that any few characters in a row are too many.
    pub(super) fn kept_out_of(&self, message: &str) -> String {
        let characters: Vec<char> = self.0.chars().collect();
        let is_repeated = characters
            .windows(characters.len().clamp(1, REPEATED_CHARACTERS_MAX + 1))
            .any(|part| message.contains(&part.iter().collect::<String>()));
        if is_repeated {
            "an error that repeats the password, which is not shown".to_owned()
        } else {
            message.to_owned()
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Who we are to the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// ACL user; the default user when absent.
    pub user: Option<String>,
    /// Password; no AUTH is sent when absent.
    pub password: Option<Secret>,
}

/// How to verify the server, and ourselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// PEM file with the CA certificates to trust; the system's when absent.
    pub ca_file: Option<PathBuf>,
    /// PEM file with our certificate chain.
    pub cert_file: Option<PathBuf>,
    /// PEM file with its private key.
    pub key_file: Option<PathBuf>,
    /// Name to ask for and to verify, when it is not the host's.
    pub server_name: Option<String>,
    /// Verify nothing.
    pub insecure: bool,
}

/// How long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, with TLS and AUTH.
    pub connect: Duration,
    /// For the answer to a command.
    pub command: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), command: Duration::from_secs(15) }
    }
}

/// One server and how to get in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The socket.
    pub address: Address,
    /// Who we are.
    pub credentials: Credentials,
    /// TLS, where it is used.
    pub tls: Option<TlsOptions>,
    /// How long to wait.
    pub timeouts: Timeouts,
    /// Asks a replica of a cluster to answer what its primary would (`READONLY`).
    pub reads_replica: bool,
}

impl Endpoint {
    /// Returns the way into another server of the same deployment.
    #[must_use]
    pub fn at(&self, address: Address) -> Self {
        Self { address, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_shown_unless_it_repeats_the_password() {
        for (password, said, is_shown) in [
            ("s3cret", "ERR no such user", true),
            ("s3cret", "ERR s3cret is no password", false),
            // Cut, as servers cut what they repeat.
            ("a-long-password", "ERR unknown command 'AUTH', with args beginning with: 'a-long", false),
            ("ERRATIC", "ERR no such user", true),
            ("x", "ERR is `x` a password", false),
            ("", "ERR no such user", true),
        ] {
            let told = Secret::new(password).kept_out_of(said);
            assert_eq!(told == said, is_shown, "{password}: {told}");
        }
    }
}
