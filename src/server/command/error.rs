//! What a command says when it refuses, in Redis' own words.

use std::borrow::Cow;

use crate::server::resp::Args;

/// An error reply: its code and text, as in `ERR syntax error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandError(Cow<'static, [u8]>);

impl CommandError {
    pub(crate) const SYNTAX: CommandError = CommandError::new("ERR syntax error");
    pub(crate) const WRONG_TYPE: CommandError =
        CommandError::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const NOT_AN_INTEGER: CommandError =
        CommandError::new("ERR value is not an integer or out of range");
    pub(crate) const NOT_A_FLOAT: CommandError = CommandError::new("ERR value is not a valid float");
    pub(crate) const OUT_OF_RANGE: CommandError = CommandError::new("ERR value is out of range");
    pub(crate) const NOT_POSITIVE: CommandError =
        CommandError::new("ERR value is out of range, must be positive");
    pub(crate) const NO_SUCH_KEY: CommandError = CommandError::new("ERR no such key");
    pub(crate) const INDEX_OUT_OF_RANGE: CommandError = CommandError::new("ERR index out of range");
    pub(crate) const DB_OUT_OF_RANGE: CommandError = CommandError::new("ERR DB index is out of range");
    pub(crate) const SAME_OBJECT: CommandError =
        CommandError::new("ERR source and destination objects are the same");
    pub(crate) const TOO_LONG: CommandError =
        CommandError::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

    pub(crate) const fn new(text: &'static str) -> CommandError {
        CommandError(Cow::Borrowed(text.as_bytes()))
    }

    /// Wraps a text made for the occasion; it may quote bytes a client sent.
    pub(crate) fn with(text: impl Into<Vec<u8>>) -> CommandError {
        CommandError(Cow::Owned(text.into()))
    }

    pub(crate) fn wrong_arity(name: &str) -> CommandError {
        CommandError::with(format!("ERR wrong number of arguments for '{name}' command"))
    }

    /// A subcommand was called in a way it cannot be.
    pub(crate) fn subcommand(args: Args<'_>) -> CommandError {
        CommandError::with(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
            args.text(1),
            args.text(0).to_ascii_uppercase()
        ))
    }

    pub(crate) fn invalid_expire(command: &str) -> CommandError {
        CommandError::with(format!("ERR invalid expire time in '{command}' command"))
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.0
    }

    /// Returns the code in front, as INFO errorstats counts them.
    pub(crate) fn code(&self) -> &[u8] {
        self.0.split(|byte| *byte == b' ').next().unwrap_or_default()
    }
}

impl From<&'static str> for CommandError {
    fn from(text: &'static str) -> CommandError {
        CommandError::new(text)
    }
}

impl From<String> for CommandError {
    fn from(text: String) -> CommandError {
        CommandError::with(text)
    }
}
