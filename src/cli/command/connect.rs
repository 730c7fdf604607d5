//! Turns the connection flags, together with the environment, into an endpoint. Connects to nothing.
//!
//! Who wins: a flag over the environment, always. Two flags that say different things are an error and
//! not a choice. A password that a URL holds belongs to its server, and goes before `REDISCLI_AUTH`.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::cli::args::{
    ConnectArgs, DeploymentArgs, HOST_DEFAULT, HostPort, PORT_DEFAULT, ServerUrl, TlsArgs, UrlError, UrlText,
    parse_host,
};
use crate::cli::console::printable;
use crate::cli::error::{CommandError, ErrorKind};
use crate::cli::surroundings::Surroundings;
use crate::engine::live::{Address, Credentials, Endpoint, Secret, Timeouts, TlsOptions};
use crate::engine::scan::{Databases, Preference, Target, TargetKind};

mod targets;

/// The port of a Sentinel.
const SENTINEL_PORT_DEFAULT: u16 = 26_379;

/// The longest password that is read: a file that holds more is not what was meant (`/dev/zero`).
const PASSWORD_BYTES_MAX: u64 = 64 * 1024;

/// What to connect to, and what a person should know about how it was given.
#[derive(Debug)]
pub(super) struct Settled {
    /// Servers, clusters and groups: one at least.
    pub(super) targets: Vec<Target>,
    /// Primaries or replicas.
    pub(super) preference: Preference,
    /// Warnings.
    pub(super) warnings: Vec<String>,
}

/// Where a password comes from, decided before any is read or asked for.
#[derive(Debug, PartialEq, Eq)]
enum PasswordSource<'a> {
    Ask,
    File(&'a Path),
    Known(Secret),
    None,
}

/// Settles where to connect. `ask` prompts for a password: once, however many servers there are.
pub(super) fn settle(
    args: &ConnectArgs,
    around: &Surroundings,
    mut ask: impl FnMut(&str) -> io::Result<String>,
) -> Result<Settled, CommandError> {
    let mut warnings = Vec::new();
    let mut typed: Option<String> = None;
    let mut ask_once = |prompt: &str| match &typed {
        Some(typed) => Ok(typed.clone()),
        None => ask(prompt).inspect(|answer| typed = Some(answer.clone())),
    };
    let targets = match (&args.deployment.targets, &args.url[..]) {
        (Some(path), _) => targets::read(path, args, around, &mut warnings)?
            .iter()
            .map(|given| one(&given.args, Some(given.url()), &given.around, &mut ask_once, &mut warnings))
            .collect::<Result<_, _>>()?,
        (None, []) => {
            let has_address = args.host.is_some() || args.port.is_some() || args.socket.is_some();
            let has_address = has_address || !args.deployment.sentinel_node.is_empty();
            let url = match &around.url {
                Some(text) if !has_address => {
                    let text =
                        text.to_str().ok_or_else(|| CommandError::usage("BIGKEYS_URL is not UTF-8"))?;
                    Some(Given { text, whence: Whence::Environment })
                }
                _ => None,
            };
            vec![one(args, url, around, &mut ask_once, &mut warnings)?]
        }
        (None, urls) => urls
            .iter()
            .map(|UrlText(text)| {
                let given = Given { text, whence: Whence::CommandLine };
                one(args, Some(given), around, &mut ask_once, &mut warnings)
            })
            .collect::<Result<_, _>>()?,
    };
    let preference = if args.deployment.primary_only {
        Preference::Primary
    } else if args.deployment.prefer_replica {
        Preference::Replica
    } else {
        Preference::Auto
    };
    let mut told = HashSet::new();
    warnings.retain(|warning: &String| told.insert(warning.clone()));
    Ok(Settled { targets, preference, warnings })
}

/// A URL, and where it is from.
#[derive(Clone, Copy)]
struct Given<'a> {
    text: &'a str,
    whence: Whence,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whence {
    CommandLine,
    Environment,
    /// It is a choice just as on the command line, but nobody else can see it.
    File,
}

fn one(
    args: &ConnectArgs,
    given: Option<Given<'_>>,
    around: &Surroundings,
    ask: &mut dyn FnMut(&str) -> io::Result<String>,
    warnings: &mut Vec<String>,
) -> Result<Target, CommandError> {
    let url = given.map(|given| parse_url(given)).transpose()?;
    let typed = given.filter(|given| given.whence != Whence::Environment).and(url.as_ref());
    if typed.is_some_and(|url| url.password.is_some())
        && given.is_some_and(|given| given.whence == Whence::CommandLine)
    {
        warnings.push(
            "the password in --url is visible to every user of this machine: put the URL in BIGKEYS_URL, or \
             the password in REDISCLI_AUTH, a --password-file, or behind --askpass"
                .to_owned(),
        );
    }
    let (user, source) = login(args, around, url.as_ref(), typed)?;
    let address = match &url {
        Some(url) => url.address.clone(),
        None => address(args)?,
    };
    let tls = tls(&args.tls, url.as_ref().is_some_and(|url| url.tls), &address)?;
    if tls.as_ref().is_some_and(|tls| tls.insecure) {
        warnings.push("--insecure: the server's certificate is not verified".to_owned());
    }
    let databases = databases(args, url.as_ref(), typed)?;

    // Last, so that nobody types a password for a command line that is refused.
    let password = match source {
        PasswordSource::Ask => {
            let user = user.as_deref().map(|user| format!(" for user {user}")).unwrap_or_default();
            Some(Secret::new(ask(&printable(&format!("password{user} at {address}: "))).map_err(
                |error| {
                    CommandError::new(ErrorKind::Password("cannot ask for the password".into()))
                        .because(error)
                        .hint("--askpass needs a terminal: elsewhere use REDISCLI_AUTH or --password-file")
                },
            )?))
        }
        PasswordSource::File(path) => Some(read_password(path, warnings)?),
        PasswordSource::Known(password) => Some(password),
        PasswordSource::None => None,
    };
    let timeouts = Timeouts { connect: args.connect_timeout, command: args.timeout };
    let credentials = Credentials { user, password };
    let endpoint = Endpoint { address, credentials, tls, timeouts, reads_replica: false };
    Ok(Target { endpoint, databases, kind: kind(&args.deployment) })
}

fn kind(args: &DeploymentArgs) -> TargetKind {
    match &args.sentinel {
        Some(name) => TargetKind::Sentinel {
            name: name.clone(),
            others: args.sentinel_node.iter().skip(1).map(sentinel_address).collect(),
        },
        None if args.cluster => TargetKind::Cluster,
        None if args.one_node => TargetKind::OneNode,
        None => TargetKind::Auto,
    }
}

fn sentinel_address(node: &HostPort) -> Address {
    Address::Tcp { host: node.host.clone(), port: node.port.unwrap_or(SENTINEL_PORT_DEFAULT) }
}

fn parse_url(given: Given<'_>) -> Result<ServerUrl, CommandError> {
    let whence = match given.whence {
        Whence::CommandLine => "--url",
        Whence::Environment => "BIGKEYS_URL",
        Whence::File => "a URL of --targets",
    };
    ServerUrl::parse(given.text).map_err(|error: UrlError| {
        CommandError::usage(format!("cannot read {whence}: {error}")).hint(error.hint())
    })
}

fn address(args: &ConnectArgs) -> Result<Address, CommandError> {
    if let Some(first) = args.deployment.sentinel_node.first() {
        return Ok(sentinel_address(first));
    }
    if let Some(path) = &args.socket {
        // Not repeated: it may hold a password, and the address of a server is in every message.
        if path.as_os_str().to_string_lossy().contains("://") {
            return Err(
                CommandError::usage("--socket takes a path, and this is a URL").hint("a URL goes to --url")
            );
        }
        return Ok(Address::Unix(path.clone()));
    }
    let typed = args.host.as_deref().unwrap_or(HOST_DEFAULT);
    let host = parse_host(typed).ok_or_else(|| {
        // The text is not repeated: it may be a URL with a password in it.
        let error = CommandError::usage("--host takes a host name or an address, and this is neither");
        if typed.contains("://") {
            error.hint("a URL goes to --url, or into BIGKEYS_URL if it holds a password")
        } else if typed.contains(':') {
            error.hint("the port goes to --port")
        } else {
            error
        }
    })?;
    let default = if args.deployment.sentinel.is_some() { SENTINEL_PORT_DEFAULT } else { PORT_DEFAULT };
    Ok(Address::Tcp { host, port: args.port.unwrap_or(default) })
}

fn tls(args: &TlsArgs, url_says_tls: bool, address: &Address) -> Result<Option<TlsOptions>, CommandError> {
    let TlsArgs { tls, cacert, cert, key, sni, insecure } = args;
    if *tls || url_says_tls {
        if matches!(address, Address::Unix(_)) {
            return Err(CommandError::usage(
                "--tls does not go with a Unix socket: Redis speaks plain there",
            ));
        }
        return Ok(Some(TlsOptions {
            ca_file: cacert.clone(),
            cert_file: cert.clone(),
            key_file: key.clone(),
            server_name: sni.clone(),
            insecure: *insecure,
        }));
    }
    let typed = [
        ("--cacert", cacert.is_some()),
        ("--cert", cert.is_some()),
        ("--sni", sni.is_some()),
        ("--insecure", *insecure),
    ];
    match typed.iter().find(|(_, typed)| *typed) {
        // To ignore it would send the password in the clear to somebody who asked for TLS.
        Some((flag, _)) => Err(CommandError::usage(format!("{flag} means nothing without TLS"))
            .hint("add --tls, or use rediss://")),
        None => Ok(None),
    }
}

fn databases(
    args: &ConnectArgs,
    url: Option<&ServerUrl>,
    typed: Option<&ServerUrl>,
) -> Result<Databases, CommandError> {
    let mut named = args.db.clone();
    named.sort_unstable();
    named.dedup();
    if let Some(db) = typed.and_then(|url| url.db) {
        if args.all_dbs {
            return Err(CommandError::usage(format!(
                "--url names database {db}, and --all-dbs asks for all"
            ))
            .hint("leave one of them out"));
        }
        if !named.is_empty() && named != [db] {
            return Err(CommandError::usage(format!("--url names database {db}, and --db another"))
                .hint("leave one of them out"));
        }
    }
    Ok(match url.and_then(|url| url.db) {
        _ if !named.is_empty() => Databases::Only(named),
        Some(db) if !args.all_dbs => Databases::Only(vec![db]),
        _ => Databases::All,
    })
}

fn login<'a>(
    args: &'a ConnectArgs,
    around: &Surroundings,
    url: Option<&ServerUrl>,
    typed: Option<&ServerUrl>,
) -> Result<(Option<String>, PasswordSource<'a>), CommandError> {
    let typed_user = typed.and_then(|url| url.user.as_deref());
    if let (Some(in_url), Some(user)) = (typed_user, args.user.as_deref())
        && in_url != user
    {
        return Err(
            CommandError::usage("--url names one user and --user another").hint("leave one of them out")
        );
    }
    let asked_for = args.askpass || args.password_file.is_some();
    if asked_for && typed.is_some_and(|url| url.password.is_some()) {
        return Err(CommandError::usage(
            "--url holds a password, and --askpass or --password-file gives another",
        )
        .hint("take the password out of the URL"));
    }
    let user = args.user.clone().or_else(|| url.and_then(|url| url.user.clone()));
    if user.as_deref() == Some("") {
        return Err(CommandError::usage("--user names nobody").hint("leave it out for the default user"));
    }
    // The password in BIGKEYS_URL is that of the user it names, not of another.
    let same_user = args.user.is_none() || args.user == url.and_then(|url| url.user.clone());
    let url_password = url.filter(|_| same_user || typed.is_some()).and_then(|url| url.password.clone());
    let source = if args.askpass {
        PasswordSource::Ask
    } else if let Some(path) = &args.password_file {
        PasswordSource::File(path)
    } else if let Some(password) = url_password {
        PasswordSource::Known(password)
    } else if let Some(auth) = &around.auth {
        let auth = auth.to_str().ok_or_else(|| CommandError::usage("REDISCLI_AUTH is not UTF-8"))?;
        PasswordSource::Known(Secret::new(auth))
    } else {
        PasswordSource::None
    };
    match (user, source) {
        // Without a password no login is sent, and the scan would silently run as the default user.
        (Some(_), PasswordSource::None) => {
            Err(CommandError::usage("--user names a user, and there is no password")
                .hint("give it in REDISCLI_AUTH, with --password-file, or type it with --askpass")
                .hint("a user with `nopass` takes any password"))
        }
        (user, source) => Ok((user, source)),
    }
}

pub(super) fn read_password(path: &Path, warnings: &mut Vec<String>) -> Result<Secret, CommandError> {
    let what = |text: &str| {
        CommandError::new(ErrorKind::Password(format!("{text} the password file `{}`", path.display())))
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| what("cannot open").because(error))?;
    if let Some(warning) = too_open(&file, path) {
        warnings.push(warning);
    }
    file.take(PASSWORD_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| what("cannot read").because(error))?;
    if bytes.len() as u64 > PASSWORD_BYTES_MAX {
        return Err(
            what("too much for a password is in").hint("the file holds the password and nothing else")
        );
    }
    let text = String::from_utf8(bytes).map_err(|_| what("no UTF-8 text is in"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(what("there is nothing in"));
    }
    if text.contains('\n') {
        return Err(
            what("there is more than one line in").hint("the file holds the password and nothing else")
        );
    }
    Ok(Secret::new(text))
}

/// Says so when others than owner and group can read a password, or others than its owner change it.
///
/// A warning and no refusal, and group may read: secrets mounted into containers come as 0440 or 0644,
/// and whoever runs there has no say in it. Pipes and devices have no such owner and are let be.
#[cfg(unix)]
fn too_open(file: &File, path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = file.metadata().ok()?;
    let mode = metadata.permissions().mode();
    let who = match (mode & 0o004, mode & 0o022) {
        _ if !metadata.is_file() => return None,
        (0, 0) => return None,
        (0, _) => "changed by users other than its owner",
        _ => "read by every user of this machine",
    };
    Some(format!("the password file `{}` can be {who}: chmod 600 it", path.display()))
}

#[cfg(not(unix))]
fn too_open(_: &File, _: &Path) -> Option<String> {
    None
}
