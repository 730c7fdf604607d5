//! One reply at a time: what a refusal means, and what the rest holds.

use redis::{ServerErrorKind, Value};

/// The answer to one command.
pub type Reply = Result<Value, Refusal>;

/// What kind of refusal a server error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// `NOPERM` for the command itself.
    CommandDenied,
    /// `NOPERM` for this key.
    KeyDenied,
    /// The server does not know the command, or has it renamed or switched off.
    UnknownCommand,
    /// `WRONGTYPE`: the key changed its type since we asked.
    WrongType,
    /// `MOVED` or `ASK`: another node has the key.
    Moved,
    /// `LOADING`, `BUSY`, `MASTERDOWN`, `CLUSTERDOWN`, `TRYAGAIN`: ask again later.
    NotNow,
    /// `NOAUTH`: a password is needed.
    AuthNeeded,
    /// Anything else.
    Other,
}

/// An error that the server answered to one command. In a pipeline that is data, not a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What it means.
    pub kind: RefusalKind,
    /// What the server said.
    pub message: String,
}

impl Refusal {
    /// Reads a server error.
    pub(crate) fn from_server(error: &redis::ServerError) -> Self {
        let code = error.code();
        let detail = error.details().unwrap_or_default();
        let message = if detail.is_empty() { code.to_owned() } else { format!("{code} {detail}") };
        let kind = match error.kind() {
            // Each server has words of its own for a command. For a key or a channel all of them say
            // "access", and a database is no command either.
            Some(ServerErrorKind::NoPerm) if detail.contains("access") => RefusalKind::KeyDenied,
            Some(ServerErrorKind::NoPerm) => RefusalKind::CommandDenied,
            Some(ServerErrorKind::Moved | ServerErrorKind::Ask) => RefusalKind::Moved,
            Some(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain,
            ) => RefusalKind::NotNow,
            _ if code == "WRONGTYPE" => RefusalKind::WrongType,
            _ if code == "BUSY" => RefusalKind::NotNow,
            _ if code == "NOAUTH" => RefusalKind::AuthNeeded,
            _ if names_no_command(&message) => RefusalKind::UnknownCommand,
            _ => RefusalKind::Other,
        };
        Self { kind, message }
    }
}

/// What servers, services and proxies say of a command that they do not have, or have switched off.
/// `docs/services.md` says who says which.
const NO_SUCH_COMMAND: [&str; 8] = [
    "unknown command",
    "unknown subcommand",
    "unknown redis command",
    "command not allowed",
    "command is not allowed",
    "command is not available",
    "not supported",
    "unsupported",
];

/// Returns whether an error says that there is no such command. All of it counts: a proxy may leave the
/// code out that an error begins with (`unsupported command 'scan'`).
pub(crate) fn names_no_command(message: &str) -> bool {
    let lower = message.to_ascii_lowercase();
    // A write under maxmemory: "OOM command not allowed when used memory > 'maxmemory'"; in a script of before 7.0
    // behind its name and line.
    !lower.contains("oom command") && NO_SUCH_COMMAND.iter().any(|words| lower.contains(words))
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// Splits a reply into its value and the server's refusal.
pub(crate) fn accept(value: Value) -> Result<Value, Refusal> {
    match value {
        Value::ServerError(error) => Err(Refusal::from_server(&error)),
        value => Ok(value),
    }
}

/// Returns a text reply (simple or bulk), lossily: only for words that the server itself makes up.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Okay => Some("OK".to_owned()),
        _ => None,
    }
}

/// Returns the bytes of a reply that is text: a name, as the server has it.
pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        Value::Okay => Some(b"OK".to_vec()),
        _ => None,
    }
}

/// Returns a reply that is a count: an integer, or text that is one. A negative one is none.
pub fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(_) | Value::SimpleString(_) => text(value)?.parse().ok(),
        _ => None,
    }
}

/// Returns the value that follows a name in a flat list of names and values, or in a map.
pub(crate) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Array(items) => items
            .chunks_exact(2)
            .find(|pair| text(&pair[0]).is_some_and(|found| found == name))
            .map(|pair| &pair[1]),
        Value::Map(pairs) => {
            pairs.iter().find(|(key, _)| text(key).is_some_and(|found| found == name)).map(|(_, value)| value)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> RefusalKind {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error is a reply");
        accept(reply).expect_err("it is an error").kind
    }

    #[test]
    fn each_server_has_its_own_words_for_a_command_that_it_refuses() {
        for line in [
            "ERR unknown command 'memory', with args beginning with: 'USAGE' 'k' ",
            "ERR unknown command `CLIENT`, with args beginning with: `SETNAME`, `bigkeys`, ",
            "ERR Unknown subcommand or wrong number of arguments for 'NO-TOUCH'. Try CLIENT HELP.",
            "ERR Command is not available: 'OBJECT'. See https://upstash.com/docs/redis/overall/rediscompatibility for details",
            "unsupported command 'scan'",
            "ERR unsupported command 'scan'",
            "ERR This Redis command is not allowed from script script: 1, on @user_script:4.",
        ] {
            assert_eq!(kind(line), RefusalKind::UnknownCommand, "{line}");
        }
        for line in [
            "NOPERM this user has no permissions to run the 'memory' command or its subcommand",
            "NOPERM User limited has no permissions to run the 'memory|usage' command",
            "NOPERM this command is closed",
        ] {
            assert_eq!(kind(line), RefusalKind::CommandDenied, "{line}");
        }
        for line in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
            "NOPERM No permissions to access a channel",
        ] {
            assert_eq!(kind(line), RefusalKind::KeyDenied, "{line}");
        }
    }

    #[test]
    fn a_server_without_memory_has_its_commands_all_the_same() {
        assert_eq!(kind("OOM command not allowed when used memory > 'maxmemory'."), RefusalKind::Other);
        assert!(!names_no_command(
            "@user_script: 23: -OOM command not allowed when used memory > 'maxmemory'."
        ));
    }
}
