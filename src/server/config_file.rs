//! A configuration file, read as redis-server reads its own: a parameter a line, words quoted as in
//! redis-cli. What this server does not have is an error with the line it is on, never passed over.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::command::Setup;
use super::config::Config;
use super::resp::split_words;

/// More than any configuration has. A larger file is another one.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Where Redis listens.
const PORT: u16 = 6379;

/// Parameters whose value is several words, or several lines.
const OF_MANY_WORDS: [&str; 3] = ["save", "client-output-buffer-limit", "oom-score-adj-values"];

/// Why a configuration file cannot be used.
#[derive(Debug)]
pub struct ConfigFileError {
    path: PathBuf,
    kind: ConfigFileErrorKind,
}

#[derive(Debug)]
enum ConfigFileErrorKind {
    Unreadable(io::Error),
    Line { number: usize, why: String },
}

impl std::fmt::Display for ConfigFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        match &self.kind {
            ConfigFileErrorKind::Unreadable(_) => write!(f, "cannot read `{path}`"),
            ConfigFileErrorKind::Line { number, why } => write!(f, "`{path}`, line {number}: {why}"),
        }
    }
}

impl std::error::Error for ConfigFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ConfigFileErrorKind::Unreadable(error) => Some(error),
            ConfigFileErrorKind::Line { .. } => None,
        }
    }
}

impl Config {
    /// Reads a configuration file of `redis-server`. The server will start from the file that `dir` and
    /// `dbfilename` name, if it is there.
    ///
    /// # Errors
    /// Names the line that is wrong, or that this server cannot follow.
    pub fn from_file(path: &Path) -> Result<Config, ConfigFileError> {
        let failed = |kind| ConfigFileError { path: path.to_owned(), kind };
        let text = read(path).map_err(|error| failed(ConfigFileErrorKind::Unreadable(error)))?;
        parse(&text).map_err(|(number, why)| failed(ConfigFileErrorKind::Line { number, why }))
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too large for a configuration file"));
    }
    Ok(text)
}

fn parse(text: &[u8]) -> Result<Config, (usize, String)> {
    let mut file = ConfigFile {
        config: Config { load_saved: true, ..Config::default() },
        setup: Setup::default(),
        address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        port: PORT,
    };
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if !line.is_empty() && !line.starts_with(b"#") {
            file.line(line).map_err(|why| (index + 1, why))?;
        }
    }
    let listen = file.address.filter(|_| file.port != 0).map(|address| SocketAddr::new(address, file.port));
    Ok(Config { listen, ..file.config })
}

/// What has been read so far.
struct ConfigFile {
    config: Config,
    /// The same, to have each line checked when its number is known.
    setup: Setup,
    address: Option<IpAddr>,
    port: u16,
}

impl ConfigFile {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let words = split_words(line).ok_or("unbalanced quotes")?;
        let words: Result<Vec<String>, _> = words.into_iter().map(String::from_utf8).collect();
        let words = words.map_err(|_| "it is not UTF-8")?;
        let Some((name, values)) = words.split_first() else {
            return Ok(());
        };
        let name = name.to_ascii_lowercase();
        self.directive(&name, values).map_err(|why| format!("{name}: {why}"))
    }

    fn directive(&mut self, name: &str, values: &[String]) -> Result<(), String> {
        match (name, values) {
            ("user", [user, rules @ ..]) => {
                self.setup.user(user, rules)?;
                self.config.users.push((user.clone(), rules.to_vec()));
            }
            ("rename-command", [from, to]) => {
                self.setup.names.rename(from, to)?;
                self.config.renamed_commands.push((from.clone(), to.clone()));
            }
            ("bind", addresses @ [_, ..]) => self.address = listening_address(addresses)?,
            (name, values @ [_, ..]) if OF_MANY_WORDS.contains(&name) => {
                self.parameter(name, &values.join(" "))?;
            }
            (name, [value]) => self.parameter(name, value)?,
            _ => return Err("wrong number of arguments".to_owned()),
        }
        Ok(())
    }

    fn parameter(&mut self, name: &str, value: &str) -> Result<(), String> {
        // Points of several lines add up; an empty one takes back those before it.
        let value = match name {
            "save" if !value.is_empty() => format!("{} {value}", self.setup.settings.save).trim().to_owned(),
            _ => value.to_owned(),
        };
        self.setup.set(name, value.as_bytes())?;
        match name {
            "port" => self.port = u16::try_from(self.setup.settings.port).unwrap_or(PORT),
            "unixsocket" => self.config.unix_socket = (!value.is_empty()).then(|| value.into()),
            _ => self.config.parameters.push((name.to_owned(), value)),
        }
        Ok(())
    }
}

/// Returns the one address to listen on. Those with a `-` in front need not be there, says Redis.
fn listening_address(addresses: &[String]) -> Result<Option<IpAddr>, String> {
    let mut wanted = addresses.iter().filter(|address| !address.starts_with('-'));
    let Some(address) = wanted.next().filter(|address| !address.is_empty()) else {
        return Ok(None);
    };
    if wanted.next().is_some() {
        return Err("the bundled server listens on one address".to_owned());
    }
    match address.as_str() {
        "*" => Ok(Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED))),
        "::*" => Ok(Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED))),
        _ => address.parse().map(Some).map_err(|_| format!("`{address}` is no IP address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_redis_reads_them() {
        let text = b"# a comment\n\n  port 7000\r\nBIND 127.0.0.1 -::1\nrequirepass \"a b\\x21\"\n\
            user reader on >pw ~* +@read\nsave 900 1\nsave 300 10\nmaxmemory 10mb\nunixsocket '/tmp/r.sock'\n\
            client-output-buffer-limit normal 1mb 0 0\nclient-output-buffer-limit replica 0 0 0\n\
            rename-command CONFIG \"\"\nlist-max-ziplist-size -1\nappendonly no\n";
        let config = parse(text).unwrap_or_else(|(line, why)| panic!("line {line}: {why}"));
        assert_eq!(config.listen, Some(SocketAddr::from(([127, 0, 0, 1], 7000))));
        assert_eq!(config.unix_socket.as_deref(), Some(Path::new("/tmp/r.sock")));
        let mut setup = Setup::of(&config).expect("each line has been checked");
        assert!(setup.acl.authenticate("default", b"a b!") && setup.acl.authenticate("reader", b"pw"));
        assert!(setup.names.find(b"config").is_none());
        let settings = &mut setup.settings;
        assert_eq!((settings.save.as_str(), settings.maxmemory), ("900 1 300 10", 10 << 20));
        assert_eq!((settings.limits.list_max_listpack_size, settings.reply_buffer_max()), (-1, 1 << 20));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (line, why) in [
            ("replicaof 127.0.0.1 6379", "replicaof: wrong number of arguments"),
            ("tls-port 1", "tls-port: the bundled server has no such parameter"),
            ("appendonly yes", "appendonly: the bundled server only knows 'no'"),
            ("port 99999", "port: argument must be between 0 and 65535 inclusive"),
            ("hz", "hz: wrong number of arguments"),
            ("maxmemory 1 2", "maxmemory: wrong number of arguments"),
            ("requirepass \"open", "unbalanced quotes"),
            ("bind 127.0.0.1 127.0.0.2", "bind: the bundled server listens on one address"),
            ("bind localhost", "bind: `localhost` is no IP address"),
            ("rename-command NONE x", "rename-command: No such command in rename-command"),
            (
                "user x +nothing",
                "user: Error in ACL SETUSER modifier '+nothing': Unknown command or category name in ACL",
            ),
        ] {
            let refusal = parse(format!("hz 20\n\n{line}\n").as_bytes()).map(|_| ());
            assert_eq!(refusal, Err((3, why.to_owned())), "{line}");
        }
    }

    #[test]
    fn without_a_port_or_an_address_there_is_no_tcp() {
        for text in ["port 0", "bind \"\""] {
            assert_eq!(parse(text.as_bytes()).expect("a good line").listen, None, "{text}");
        }
        assert_eq!(
            parse(b"").expect("nothing is fine").listen,
            Some(SocketAddr::from(([127, 0, 0, 1], PORT)))
        );
    }
}
