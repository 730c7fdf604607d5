//! One command for the server, word by word: what `delete` sends, reads and writes alike.

use redis::Cmd;

use super::link::{Link, LinkError};
use super::reply::Reply;

/// A command. The scan's batches only read; who may write builds these.
#[derive(Debug, Clone)]
pub struct Command {
    cmd: Cmd,
}

impl Command {
    /// Makes a command from its first words.
    pub fn new(words: &[&str]) -> Self {
        let mut cmd = Cmd::new();
        for word in words {
            cmd.arg(*word);
        }
        Self { cmd }
    }

    /// Adds an argument: bytes.
    #[must_use]
    pub fn arg(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.cmd.arg(bytes.as_ref());
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(mut self, number: impl Into<i128>) -> Self {
        self.cmd.arg(number.into().to_string());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<T: AsRef<[u8]>>(mut self, all: impl IntoIterator<Item = T>) -> Self {
        for bytes in all {
            self.cmd.arg(bytes.as_ref());
        }
        self
    }
}

impl Link {
    /// Sends one command and returns its reply; a refusal is a reply.
    ///
    /// # Errors
    /// When the connection breaks or stays silent: whether the server carried the command out is then not
    /// known.
    pub async fn run(&self, command: &Command) -> Result<Reply, LinkError> {
        self.command(&command.cmd).await
    }

    /// Sends commands together and returns their replies one by one.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn run_all(&self, commands: &[Command]) -> Result<Vec<Reply>, LinkError> {
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command.cmd.clone());
        }
        self.pipeline(&pipeline).await
    }
}
