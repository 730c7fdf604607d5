//! Why a scan gives no result at all. What ends it half way is in the report instead.

use std::fmt;

use crate::engine::live::ConnectError;

/// Why a scan gives no result at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanError {
    /// There is no connection.
    Connect(ConnectError),
    /// The connection was lost before the first page, and did not come back.
    Lost {
        /// The server.
        node: String,
        /// What happened.
        why: String,
    },
    /// The server refuses SCAN itself.
    ScanRefused {
        /// The server.
        node: String,
        /// What it said.
        message: String,
    },
    /// A cluster was asked for, and the server is of none.
    NoCluster {
        /// The server.
        node: String,
    },
    /// No Sentinel tells who the group is.
    Sentinel {
        /// The name of the group.
        name: String,
        /// What each of them said.
        said: String,
    },
    /// A checkpoint was asked for, of something that has several cursors at a time.
    NoCheckpoints {
        /// The server.
        node: String,
    },
    /// The checkpoint holds what no scan with these flags writes.
    BadCheckpoint,
    /// The database cannot be selected.
    Database {
        /// The server.
        node: String,
        /// The database.
        db: u32,
        /// What the server said.
        message: String,
    },
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(f),
            Self::Lost { node, why } => write!(f, "lost {node} before the first key: {why}"),
            Self::ScanRefused { node, message } => write!(f, "{node} refuses SCAN: {message}"),
            Self::NoCluster { node } => write!(f, "{node} is no node of a cluster"),
            Self::NoCheckpoints { node } => {
                write!(f, "{node} is of a cluster, and --checkpoint is for one server")
            }
            Self::BadCheckpoint => f.write_str("the checkpoint is damaged: it holds what no scan writes"),
            Self::Sentinel { name, said } => {
                write!(f, "no Sentinel tells where `{name}` is: {said}")
            }
            Self::Database { node, db, message } => {
                write!(f, "cannot select database {db} on {node}: {message}")
            }
        }
    }
}

impl std::error::Error for ScanError {}
