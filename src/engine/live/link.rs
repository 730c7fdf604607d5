//! One long-lived connection to one server.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline};

use super::batch::Batch;
use super::connect::{ConnectError, connect};
use super::endpoint::Endpoint;
use super::reply::{Reply, accept};

/// A connection that failed while it was used. Always worth another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkError {
    /// It broke; says how.
    Dropped(String),
    /// No answer within the command timeout.
    TimedOut(Duration),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped(why) => write!(f, "the connection broke: {why}"),
            Self::TimedOut(after) => write!(f, "no answer within {} s", after.as_secs_f64()),
        }
    }
}

impl std::error::Error for LinkError {}

/// One connection. Clones share it, and their requests are answered in the order in which they are sent.
#[derive(Clone)]
pub struct Link {
    connection: MultiplexedConnection,
    timeout: Duration,
    // Ends the driver when the last clone goes.
    _driver: std::sync::Arc<AbortOnDrop>,
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// Connects, authenticates, and names the connection for `CLIENT LIST`.
    ///
    /// Asks the server not to count our looks as accesses (`CLIENT NO-TOUCH`, Redis >= 7.2) and not to
    /// evict our buffers (`CLIENT NO-EVICT`, >= 7.0). Older servers and tight ACLs refuse; that is fine.
    ///
    /// # Errors
    /// When there is no connection, with an error that says what to try.
    pub async fn open(endpoint: &Endpoint, client_name: &str) -> Result<Self, ConnectError> {
        let connected = connect(endpoint).await?;
        let link = Self {
            connection: connected.connection,
            timeout: endpoint.timeouts.command,
            _driver: std::sync::Arc::new(AbortOnDrop(connected.driver)),
        };
        let mut setup = redis::pipe();
        setup.cmd("CLIENT").arg("SETNAME").arg(client_name);
        setup.cmd("CLIENT").arg("NO-TOUCH").arg("ON");
        setup.cmd("CLIENT").arg("NO-EVICT").arg("ON");
        if endpoint.reads_replica {
            setup.cmd("READONLY");
        }
        link.pipeline(&setup).await.map_err(|error| ConnectError {
            address: endpoint.address.clone(),
            kind: match error {
                LinkError::TimedOut(_) => super::ConnectErrorKind::TimedOut("first answer"),
                LinkError::Dropped(_) => super::ConnectErrorKind::ClosedAtCommand("CLIENT"),
            },
        })?;
        Ok(link)
    }

    /// Sends a batch and returns its replies one by one, refusals among them.
    ///
    /// # Errors
    /// When the connection breaks or stays silent; the replies that had come are lost with it.
    pub async fn send(&self, batch: &Batch) -> Result<Vec<Reply>, LinkError> {
        self.pipeline(batch.pipeline()).await
    }

    pub(super) async fn pipeline(&self, pipeline: &Pipeline) -> Result<Vec<Reply>, LinkError> {
        let count = pipeline.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut connection = self.connection.clone();
        let replies = self.bounded(connection.send_packed_commands(pipeline, 0, count)).await?;
        Ok(replies.into_iter().map(accept).collect())
    }

    /// Sends one command.
    pub(super) async fn command(&self, command: &Cmd) -> Result<Reply, LinkError> {
        let mut connection = self.connection.clone();
        self.bounded(connection.send_packed_command(command)).await.map(accept)
    }

    async fn bounded<T>(&self, reply: impl Future<Output = redis::RedisResult<T>>) -> Result<T, LinkError> {
        match tokio::time::timeout(self.timeout, reply).await {
            Ok(result) => result.map_err(|error| LinkError::Dropped(error.to_string())),
            Err(_) => Err(LinkError::TimedOut(self.timeout)),
        }
    }
}
