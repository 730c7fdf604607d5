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
        let lower = detail.to_ascii_lowercase();
        let kind = match error.kind() {
            Some(ServerErrorKind::NoPerm) if lower.contains("to run the") => RefusalKind::CommandDenied,
            Some(ServerErrorKind::NoPerm) => RefusalKind::KeyDenied,
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
            _ if lower.contains("unknown command")
                || lower.contains("unknown subcommand")
                || lower.contains("command not allowed")
                || lower.contains("not supported")
                || lower.contains("unsupported") =>
            {
                RefusalKind::UnknownCommand
            }
            _ => RefusalKind::Other,
        };
        let message = if detail.is_empty() { code.to_owned() } else { format!("{code} {detail}") };
        Self { kind, message }
    }
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
