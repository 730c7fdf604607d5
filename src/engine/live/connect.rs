//! From an endpoint to an authenticated stream, with one error for each way in which that fails.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::endpoint::{Address, Endpoint, Secret};
use super::reply::{Refusal, RefusalKind, accept};
use super::tls;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectErrorKind {
    /// The host name has no address.
    Resolve(String),
    /// Nobody listens there.
    Refused,
    /// There is no such Unix socket.
    NoSocket,
    /// The socket failed otherwise.
    Io(String),
    /// No answer in time; says at which stage.
    TimedOut(&'static str),
    /// We spoke TLS; whoever answered did not.
    TlsOnPlainPort,
    /// We did not speak TLS; whoever answered did.
    PlainOnTlsPort,
    /// The server's certificate is signed by nobody we trust.
    UnknownIssuer,
    /// The server's certificate has expired.
    CertificateExpired,
    /// The server's certificate is for another name.
    CertificateNameMismatch,
    /// The server broke the handshake off; says with which alert.
    TlsAlert(String),
    /// TLS failed otherwise.
    Tls(String),
    /// A certificate or key file cannot be used.
    TlsFile {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It answered, but not as Redis does; says with what.
    NotRedis(String),
    /// It closed the connection without a word.
    Closed,
    /// It answered PING and closed the connection at our next command, as some proxies do at one that they do
    /// not pass on.
    ClosedAtCommand(&'static str),
    /// `WRONGPASS`, or the older words for it.
    WrongPassword,
    /// `NOAUTH`: a password is needed and none was given.
    PasswordNeeded,
    /// A password was given to a server that has none.
    NoPasswordSet,
    /// The server has no AUTH.
    NoLogin,
    /// The user may not do even this much.
    NoPermission(String),
    /// `LOADING`, `BUSY` or alike, for as long as we were willing to wait.
    NotReady(String),
    /// The server answered another error.
    Server(String),
}

/// A connection that could not be made: to what, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectError {
    /// The address that was tried.
    pub address: Address,
    /// Why.
    pub kind: ConnectErrorKind,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        match &self.kind {
            ConnectErrorKind::Resolve(why) => write!(f, "cannot find the address of `{address}`: {why}"),
            ConnectErrorKind::Refused => write!(f, "cannot connect to {address}: connection refused"),
            ConnectErrorKind::NoSocket => write!(f, "cannot connect to {address}: there is no such socket"),
            ConnectErrorKind::Io(why) => write!(f, "cannot connect to {address}: {why}"),
            ConnectErrorKind::TimedOut(stage) => write!(f, "timed out waiting for {address} ({stage})"),
            ConnectErrorKind::TlsOnPlainPort => write!(f, "{address} does not speak TLS"),
            ConnectErrorKind::PlainOnTlsPort => write!(f, "{address} speaks TLS, and TLS was not asked for"),
            ConnectErrorKind::UnknownIssuer => {
                write!(f, "the certificate of {address} is signed by an unknown CA")
            }
            ConnectErrorKind::CertificateExpired => write!(f, "the certificate of {address} has expired"),
            ConnectErrorKind::CertificateNameMismatch => {
                write!(f, "the certificate of {address} is for another host name")
            }
            ConnectErrorKind::TlsAlert(alert) => write!(f, "{address} broke off the TLS handshake: {alert}"),
            ConnectErrorKind::Tls(why) => write!(f, "cannot speak TLS with {address}: {why}"),
            ConnectErrorKind::TlsFile { path, why } => write!(f, "cannot use `{}`: {why}", path.display()),
            ConnectErrorKind::NotRedis(what) => {
                write!(f, "{address} is no Redis or Valkey server: it answered {what}")
            }
            ConnectErrorKind::Closed => write!(f, "{address} closed the connection without an answer"),
            ConnectErrorKind::ClosedAtCommand(command) => {
                write!(f, "{address} answers PING, and closes the connection at {command}")
            }
            ConnectErrorKind::WrongPassword => write!(f, "{address} refused the user name or the password"),
            ConnectErrorKind::PasswordNeeded => write!(f, "{address} asks for a password"),
            ConnectErrorKind::NoPasswordSet => {
                write!(f, "{address} has no password set for the default user, and one was given")
            }
            ConnectErrorKind::NoLogin => write!(f, "{address} takes no login: it does not know AUTH"),
            ConnectErrorKind::NoPermission(what) => write!(f, "no permission on {address}: {what}"),
            ConnectErrorKind::NotReady(what) => write!(f, "{address} is not ready: {what}"),
            ConnectErrorKind::Server(what) => write!(f, "{address} answered an error: {what}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Any stream that Redis can be spoken over.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects, authenticates, and sees that a Redis answers. Bounded by `timeouts.connect`.
pub(super) async fn connect(endpoint: &Endpoint) -> Result<Connected, ConnectError> {
    let fail = |kind| ConnectError { address: endpoint.address.clone(), kind };
    let mut stage = "connecting";
    let result = tokio::time::timeout(endpoint.timeouts.connect, attempt(endpoint, &mut stage)).await;
    match result {
        Ok(result) => result.map_err(fail),
        Err(_) => Err(fail(ConnectErrorKind::TimedOut(stage))),
    }
}

/// A connection and the task that drives it.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: tokio::task::JoinHandle<()>,
}

async fn attempt(endpoint: &Endpoint, stage: &mut &'static str) -> Result<Connected, ConnectErrorKind> {
    let plain = open(&endpoint.address).await?;
    let stream: Box<dyn Stream> = match (&endpoint.tls, &endpoint.address) {
        (None, _) => plain,
        (Some(options), address) => {
            *stage = "TLS";
            let host = match address {
                Address::Tcp { host, .. } => host.as_str(),
                Address::Unix(_) => "localhost",
            };
            let name = tls::server_name(host, options)?;
            let connector = tls::connector(options)?;
            let stream =
                connector.connect(name, plain).await.map_err(|error| tls::handshake_error(&error))?;
            Box::new(stream)
        }
    };
    *stage = "first answer";
    greet(endpoint, stream).await
}

async fn open(address: &Address) -> Result<Box<dyn Stream>, ConnectErrorKind> {
    match address {
        Address::Tcp { host, port } => {
            let addresses: Vec<_> = tokio::net::lookup_host((host.as_str(), *port))
                .await
                .map_err(|error| ConnectErrorKind::Resolve(error.to_string()))?
                .collect();
            let stream = TcpStream::connect(&addresses[..]).await.map_err(|error| io_error(&error))?;
            stream.set_nodelay(true).map_err(|error| io_error(&error))?;
            Ok(Box::new(stream))
        }
        Address::Unix(path) => {
            Ok(Box::new(UnixStream::connect(path).await.map_err(|error| io_error(&error))?))
        }
    }
}

fn io_error(error: &io::Error) -> ConnectErrorKind {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ConnectErrorKind::Refused,
        io::ErrorKind::NotFound => ConnectErrorKind::NoSocket,
        // The system's own words, without the number that Rust adds.
        _ => {
            let words = error.to_string();
            ConnectErrorKind::Io(words.split(" (os error").next().unwrap_or_default().to_lowercase())
        }
    }
}

/// Starts the driver, sends AUTH and PING, and reads from the answers whether this is a Redis that
/// lets us in.
async fn greet(endpoint: &Endpoint, stream: Box<dyn Stream>) -> Result<Connected, ConnectErrorKind> {
    let first_bytes = Arc::new(OnceLock::new());
    let stream = Overhear { stream, first_bytes: Arc::clone(&first_bytes) };
    // Commands have timeouts of our own, and CLIENT SETINFO is nobody's business here.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let explain = |error: &RedisError| {
        match greeting_error(error, first_bytes.get().map(Vec::as_slice)) {
            // In TLS 1.3 the server judges our certificate after our side of the handshake is done, and
            // its alert is lost when it closes with our first command unread.
            ConnectErrorKind::Closed if endpoint.tls.is_some() => {
                ConnectErrorKind::TlsAlert("it closed the connection right after our side of it".to_owned())
            }
            kind => kind,
        }
    };
    let (mut connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
        .await
        .map_err(|error| explain(&error))?;
    let driver = tokio::spawn(driver);
    if let Some(password) = &endpoint.credentials.password {
        let mut auth = redis::cmd("AUTH");
        if let Some(user) = &endpoint.credentials.user {
            auth.arg(user);
        }
        auth.arg(password.reveal());
        let reply = connection.send_packed_command(&auth).await.map_err(|error| explain(&error))?;
        accept(reply).map_err(|refusal| auth_error(&refusal, password))?;
    }
    let reply = connection.send_packed_command(&redis::cmd("PING")).await.map_err(|error| explain(&error))?;
    match accept(reply) {
        Ok(_) => {}
        Err(refusal) => match refusal.kind {
            RefusalKind::AuthNeeded => return Err(ConnectErrorKind::PasswordNeeded),
            // An ACL without PING, or a server that loads, is a server all the same.
            RefusalKind::CommandDenied | RefusalKind::UnknownCommand | RefusalKind::NotNow => {}
            _ => return Err(ConnectErrorKind::Server(refusal.message)),
        },
    }
    Ok(Connected { connection, driver })
}

/// Reads the refusal of a login. Servers repeat arguments in some of their errors (`unknown command 'AUTH',
/// with args beginning with: 's3cret'`), so that no error is passed on that may hold a part of the password.
fn auth_error(refusal: &Refusal, password: &Secret) -> ConnectErrorKind {
    let message = refusal.message.as_str();
    if message.contains("without any password configured") || message.contains("no password is set") {
        ConnectErrorKind::NoPasswordSet
    } else if message.starts_with("WRONGPASS") || message.contains("invalid password") {
        ConnectErrorKind::WrongPassword
    } else if refusal.kind == RefusalKind::UnknownCommand {
        ConnectErrorKind::NoLogin
    } else if refusal.kind == RefusalKind::NotNow {
        ConnectErrorKind::NotReady(password.kept_out_of(message))
    } else {
        ConnectErrorKind::Server(password.kept_out_of(message))
    }
}

fn greeting_error(error: &RedisError, first_bytes: Option<&[u8]>) -> ConnectErrorKind {
    let message = error.to_string();
    if let Some(kind) = tls::late_alert(&message) {
        return kind;
    }
    match first_bytes {
        // A TLS record: alert (0x15) or handshake (0x16), version 3.x.
        Some([0x15 | 0x16, 0x03, ..]) => ConnectErrorKind::PlainOnTlsPort,
        Some(bytes) if error.kind() == ErrorKind::Parse => {
            let shown: String = bytes.escape_ascii().to_string();
            ConnectErrorKind::NotRedis(format!("`{shown}`"))
        }
        None if error.is_connection_dropped() || error.is_io_error() => ConnectErrorKind::Closed,
        _ => ConnectErrorKind::Io(message),
    }
}

/// Keeps the first bytes that come in, to tell a TLS record or an HTTP answer from Redis.
struct Overhear {
    stream: Box<dyn Stream>,
    first_bytes: Arc<OnceLock<Vec<u8>>>,
}

/// Enough for `HTTP/1.1 400 Bad`.
const FIRST_BYTES_MAX: usize = 16;

impl AsyncRead for Overhear {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        let new = &buf.filled()[start..];
        if !new.is_empty() && self.first_bytes.get().is_none() {
            let _ = self.first_bytes.set(new[..new.len().min(FIRST_BYTES_MAX)].to_vec());
        }
        result
    }
}

impl AsyncWrite for Overhear {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
