//! Server URLs: `redis://user:password@host:port/db`, `rediss://`, `unix:///path?db=2`.
//!
//! Our own reader and not a crate's, for one property: **no error repeats any part of the URL.** A
//! password with an unescaped `/` or `?` in it moves into the path or the query, so whatever part an
//! error would quote may be the secret. Errors therefore say what is wrong and never with which text.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use crate::engine::live::{Address, Secret};

/// The port of Redis, with TLS too: `rediss://` has none of its own.
pub const PORT_DEFAULT: u16 = 6379;

/// The host where none is named, as for redis-cli.
pub const HOST_DEFAULT: &str = "127.0.0.1";

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// The socket.
    pub address: Address,
    /// Whether the scheme asks for TLS.
    pub tls: bool,
    /// ACL user.
    pub user: Option<String>,
    /// Password.
    pub password: Option<Secret>,
    /// Database.
    pub db: Option<u32>,
}

/// Why a text is no server URL. Holds no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlError {
    /// No `://`, or an unknown scheme.
    Scheme,
    /// A user name alone: redis-cli takes it for the password, others for the user.
    AmbiguousUser,
    /// `%` without two hexadecimal digits, or text that is no UTF-8 once decoded.
    PercentEncoding,
    /// The host is no name or address.
    Host,
    /// The port is no number from 1 to 65535.
    Port,
    /// The path is no database number.
    Database,
    /// A database number in the path and another in the query.
    DatabaseTwice,
    /// A query parameter other than `db` (and `user`, `pass` for a socket).
    Query,
    /// A `#`.
    Fragment,
    /// The path of a socket is not absolute.
    SocketPath,
}

impl UrlError {
    /// Says what to try.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Scheme => "known are redis://, rediss:// (TLS) and unix://",
            Self::AmbiguousUser => {
                "write redis://USER:PASSWORD@HOST or redis://:PASSWORD@HOST, or name the user with --user"
            }
            Self::Host => "an IPv6 address goes in brackets: redis://[::1]:6379",
            Self::Database | Self::DatabaseTwice => "the database is a number: redis://HOST/3",
            Self::SocketPath => "write three slashes: unix:///run/redis/redis.sock?db=2",
            Self::Query => "known are db=N, and user=NAME and pass=PASSWORD after unix://",
            Self::PercentEncoding | Self::Port | Self::Fragment => {
                "a password that holds any of / ? # [ ] @ : % needs it percent-encoded: `%2F` for `/`"
            }
        }
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "the URL does not begin with a known scheme",
            Self::AmbiguousUser => "the URL has a user without a password, or a password without its colon",
            Self::PercentEncoding => {
                "the URL has a `%` that two hexadecimal digits of UTF-8 text do not follow"
            }
            Self::Host => "the host in the URL is neither a name nor an address",
            Self::Port => "the port in the URL is no number from 1 to 65535",
            Self::Database => "the path of the URL is no database number",
            Self::DatabaseTwice => "the URL names two databases",
            Self::Query => "the URL has a query parameter that means nothing here",
            Self::Fragment => "the URL has a `#` part",
            Self::SocketPath => "the URL of a socket has no absolute path",
        })
    }
}

impl std::error::Error for UrlError {}

impl ServerUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// When the text is no URL of a server. The error repeats no part of it.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.trim().split_once("://").ok_or(UrlError::Scheme)?;
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => Self::parse_tcp(rest, false),
            "rediss" | "valkeys" => Self::parse_tcp(rest, true),
            "unix" | "redis+unix" => Self::parse_unix(rest),
            _ => Err(UrlError::Scheme),
        }
    }

    fn parse_tcp(rest: &str, tls: bool) -> Result<Self, UrlError> {
        let (rest, query) = split_query(rest);
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (userinfo, host_port) = split_userinfo(authority);
        let (user, password) = parse_userinfo(userinfo)?;
        let (host, port) = parse_host_port(host_port)?;
        let mut db = if path.is_empty() { None } else { Some(parse_db(path)?) };
        for (name, value) in query_pairs(query) {
            match name {
                "db" if db.is_none() => db = Some(parse_db(value)?),
                "db" => return Err(UrlError::DatabaseTwice),
                _ => return Err(UrlError::Query),
            }
        }
        Ok(Self { address: Address::Tcp { host, port }, tls, user, password, db })
    }

    fn parse_unix(rest: &str) -> Result<Self, UrlError> {
        let (rest, query) = split_query(rest);
        let slash = rest.find('/').ok_or(UrlError::SocketPath)?;
        let (authority, path) = rest.split_at(slash);
        let (userinfo, host) = split_userinfo(authority);
        if !host.is_empty() && host != "localhost" {
            return Err(UrlError::SocketPath);
        }
        let (mut user, mut password) = parse_userinfo(userinfo)?;
        let mut db = None;
        for (name, value) in query_pairs(query) {
            match name {
                "db" if db.is_none() => db = Some(parse_db(value)?),
                "db" => return Err(UrlError::DatabaseTwice),
                "user" | "username" if user.is_none() => user = Some(percent_decode(value)?),
                "pass" | "password" if password.is_none() => {
                    password = Some(Secret::new(percent_decode(value)?));
                }
                _ => return Err(UrlError::Query),
            }
        }
        let path = percent_decode(path)?;
        if path.len() < 2 || path.contains('\0') {
            return Err(UrlError::SocketPath);
        }
        Ok(Self { address: Address::Unix(PathBuf::from(path)), tls: false, user, password, db })
    }
}

/// Reads the host part of an address: a name, or an IPv6 address with or without brackets.
pub(crate) fn parse_host(text: &str) -> Option<String> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let host = bracketed.unwrap_or(text);
    if bracketed.is_some() || host.contains(':') {
        // A zone (`fe80::1%eth0`) is the resolver's business; the address before it must be one.
        let (address, zone) = host.split_once('%').map_or((host, None), |(a, zone)| (a, Some(zone)));
        let zone_is_a_name = |zone: &str| {
            !zone.is_empty() && zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        return (address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(zone_is_a_name))
            .then(|| host.to_owned());
    }
    // No label of a name is longer than 63, no name than 253; more is no host but an accident.
    let is_name = !host.is_empty()
        && host.len() <= 253
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    is_name.then(|| host.to_owned())
}

/// Hides what may be a password in a text that repeats what was typed: in each line that holds a URL,
/// everything from `://` to the last `@`, and whatever follows `pass`.
pub(crate) fn redact(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let Some(start) = line.find("://").map(|at| at + 3) else {
            redacted.push_str(line);
            continue;
        };
        let (before, mut rest) = line.split_at(start);
        redacted.push_str(before);
        if let Some(at) = rest.rfind('@') {
            redacted.push_str("***");
            rest = &rest[at..];
        }
        match rest.find("pass") {
            Some(at) => {
                redacted.push_str(&rest[..at]);
                redacted.push_str("pass=***");
                if line.ends_with('\n') {
                    redacted.push('\n');
                }
            }
            None => redacted.push_str(rest),
        }
    }
    redacted
}

fn split_query(text: &str) -> (&str, &str) {
    text.split_once('?').unwrap_or((text, ""))
}

/// The last `@` ends the user's part: one that was not encoded is then still understood.
fn split_userinfo(authority: &str) -> (Option<&str>, &str) {
    match authority.rsplit_once('@') {
        Some((userinfo, host)) => (Some(userinfo), host),
        None => (None, authority),
    }
}

fn parse_userinfo(userinfo: Option<&str>) -> Result<(Option<String>, Option<Secret>), UrlError> {
    match userinfo.map(|text| text.split_once(':').ok_or(text)) {
        None | Some(Err("") | Ok(("", ""))) => Ok((None, None)),
        Some(Err(_)) => Err(UrlError::AmbiguousUser),
        Some(Ok((user, password))) => {
            let user = percent_decode(user)?;
            let password = Secret::new(percent_decode(password)?);
            Ok(((!user.is_empty()).then_some(user), Some(password)))
        }
    }
}

fn parse_host_port(text: &str) -> Result<(String, u16), UrlError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(UrlError::Host)?;
        // In a URL the `%` of a zone is itself encoded.
        let host = parse_host(&format!("[{}]", percent_decode(host)?)).ok_or(UrlError::Host)?;
        match after.strip_prefix(':') {
            Some(port) => (host, port),
            None if after.is_empty() => (host, ""),
            None => return Err(UrlError::Host),
        }
    } else {
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        if port.contains(':') {
            return Err(UrlError::Host);
        }
        let host = if host.is_empty() { HOST_DEFAULT } else { host };
        (parse_host(host).ok_or(UrlError::Host)?, port)
    };
    let port = if port.is_empty() { PORT_DEFAULT } else { parse_digits(port).ok_or(UrlError::Port)? };
    if port == 0 { Err(UrlError::Port) } else { Ok((host, port)) }
}

fn parse_db(text: &str) -> Result<u32, UrlError> {
    parse_digits(text).ok_or(UrlError::Database)
}

/// Reads a number of digits only: `FromStr` would take a `+`.
fn parse_digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn query_pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn percent_decode(text: &str) -> Result<String, UrlError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(bytes.next()), digit(bytes.next())) {
            (Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits fit a byte"));
            }
            _ => return Err(UrlError::PercentEncoding),
        }
    }
    String::from_utf8(decoded).map_err(|_| UrlError::PercentEncoding)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp(host: &str, port: u16) -> ServerUrl {
        let address = Address::Tcp { host: host.into(), port };
        ServerUrl { address, tls: false, user: None, password: None, db: None }
    }

    fn unix(path: &str) -> ServerUrl {
        ServerUrl { address: Address::Unix(path.into()), ..tcp("", 0) }
    }

    fn login(url: ServerUrl, user: Option<&str>, password: &str) -> ServerUrl {
        ServerUrl { user: user.map(Into::into), password: Some(Secret::new(password)), ..url }
    }

    fn with_db(url: ServerUrl, db: u32) -> ServerUrl {
        ServerUrl { db: Some(db), ..url }
    }

    #[test]
    fn urls_of_servers_are_read() {
        let cases = [
            ("redis://", tcp("127.0.0.1", 6379)),
            ("redis:///", tcp("127.0.0.1", 6379)),
            ("REDIS://h", tcp("h", 6379)),
            ("valkey://h:7000", tcp("h", 7000)),
            ("redis://h:", tcp("h", 6379)),
            ("redis://:7000", tcp("127.0.0.1", 7000)),
            ("redis://h/3", with_db(tcp("h", 6379), 3)),
            ("redis://h/", tcp("h", 6379)),
            ("redis://h?db=4", with_db(tcp("h", 6379), 4)),
            ("redis:///7", with_db(tcp("127.0.0.1", 6379), 7)),
            ("redis://[::1]", tcp("::1", 6379)),
            ("redis://[2001:db8::7]:7000/2", with_db(tcp("2001:db8::7", 7000), 2)),
            ("redis://[fe80::1%25eth0]:7000", tcp("fe80::1%eth0", 7000)),
            ("redis://:secret@h", login(tcp("h", 6379), None, "secret")),
            ("redis://alice:secret@h", login(tcp("h", 6379), Some("alice"), "secret")),
            ("redis://alice:@h", login(tcp("h", 6379), Some("alice"), "")),
            ("redis://:@h", tcp("h", 6379)),
            ("redis://@h", tcp("h", 6379)),
            ("redis://:p%40s%2Fs%3a%25@h", login(tcp("h", 6379), None, "p@s/s:%")),
            ("redis://:p@ss@h", login(tcp("h", 6379), None, "p@ss")),
            ("redis://:a:b+c@h", login(tcp("h", 6379), None, "a:b+c")),
            ("redis://us%65r:%C3%A9@h", login(tcp("h", 6379), Some("user"), "\u{e9}")),
            ("unix:///run/redis.sock", unix("/run/redis.sock")),
            ("unix:///run/a%20b.sock?db=2", with_db(unix("/run/a b.sock"), 2)),
            ("unix://al:pw@/run/r.sock", login(unix("/run/r.sock"), Some("al"), "pw")),
            ("unix:///r.sock?user=al&pass=p%26w", login(unix("/r.sock"), Some("al"), "p&w")),
        ];
        for (text, url) in cases {
            assert_eq!(ServerUrl::parse(text), Ok(url), "{text}");
        }
        assert!(ServerUrl::parse("rediss://h").is_ok_and(|url| url.tls));
        assert!(ServerUrl::parse("valkeys://h").is_ok_and(|url| url.tls));
    }

    #[test]
    fn what_is_no_url_is_refused() {
        let cases = [
            ("", UrlError::Scheme),
            ("localhost:6379", UrlError::Scheme),
            ("http://h", UrlError::Scheme),
            ("redis:/h", UrlError::Scheme),
            ("redis://secret@h", UrlError::AmbiguousUser),
            ("redis://:%zz@h", UrlError::PercentEncoding),
            ("redis://:%+1@h", UrlError::PercentEncoding),
            ("redis://:a%@h", UrlError::PercentEncoding),
            ("redis://:%ff@h", UrlError::PercentEncoding),
            ("redis://a b", UrlError::Host),
            ("redis://h\0", UrlError::Host),
            ("redis://::1", UrlError::Host),
            ("redis://[::1", UrlError::Host),
            ("redis://[h]", UrlError::Host),
            ("redis://[::1]x", UrlError::Host),
            ("redis://h:0", UrlError::Port),
            ("redis://h:65536", UrlError::Port),
            ("redis://h:+1", UrlError::Port),
            ("redis://h/one", UrlError::Database),
            ("redis://h/-1", UrlError::Database),
            ("redis://h/3/4", UrlError::Database),
            ("redis://h/4294967296", UrlError::Database),
            ("redis://h/1?db=2", UrlError::DatabaseTwice),
            ("redis://h?timeout=3", UrlError::Query),
            ("redis://h#x", UrlError::Fragment),
            ("unix://run/redis.sock", UrlError::SocketPath),
            ("unix://", UrlError::SocketPath),
            ("unix:///", UrlError::SocketPath),
            ("unix:///a%00b", UrlError::SocketPath),
            // A password with characters that needed escaping: refused, and not repeated.
            ("redis://:pa/ss@h", UrlError::Port),
            ("redis://:pa?ss@h", UrlError::Port),
        ];
        for (text, error) in cases {
            assert_eq!(ServerUrl::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_url_does_not_show_its_password() {
        let url = ServerUrl::parse("redis://alice:hunter2@h").expect("it is a URL");
        assert!(!format!("{url:?}").contains("hunter2"));
    }

    #[test]
    fn texts_that_repeat_a_url_are_redacted() {
        let cases = [
            ("no url @ here pass=x", "no url @ here pass=x"),
            ("unexpected 'redis://u:pw@h:1' found", "unexpected 'redis://***@h:1' found"),
            ("redis://:a b'c@d@h\nnext @line\n", "redis://***@h\nnext @line\n"),
            ("'unix:///s?pass=pw' found\n", "'unix:///s?pass=***\n"),
        ];
        for (text, redacted) in cases {
            assert_eq!(redact(text), redacted);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = ServerUrl::parse(&text);
            let _ = ServerUrl::parse(&format!("redis://{text}"));
            let _ = ServerUrl::parse(&format!("unix://{text}"));
            let _ = redact(&text);
        }

        #[test]
        fn any_password_survives_percent_encoding(password in "\\PC{1,20}") {
            let encoded = password.bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02X}"));
            let url = ServerUrl::parse(&format!("redis://:{encoded}@h")).expect("it is encoded");
            let read = url.password.expect("it has a password");
            prop_assert_eq!(read.reveal(), password.as_str());
        }
    }
}
