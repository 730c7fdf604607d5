//! All that speaks Redis. What is in here only reads; `delete` builds each [`Command`] that writes.
//!
//! [`Link`] is one long-lived connection; [`Endpoint`] says where it leads. [`probe_server`] finds out
//! what the server is and what this user may call, [`ScanPage`] is one step of a cursor, [`Inspector`]
//! measures the keys of a page, and [`Canary`] measures what another client would wait meanwhile.

mod batch;
mod canary;
mod capability;
mod command;
mod connect;
mod cursor;
mod endpoint;
mod inspect;
mod keysizes;
mod link;
mod model;
mod random;
mod reply;
mod state;
mod tls;
mod topology;
mod writes;

pub use batch::Batch;
pub use canary::{Canary, CanaryState, DELETE_INTERVAL, SCAN_INTERVAL};
pub use capability::{Probe, databases_with_keys, dbsize, is_ready, probe_server, run_id, select};
pub use command::Command;
pub use connect::{ConnectError, ConnectErrorKind};
pub use cursor::{Cursor, ScanPage, ScanRequest};
pub use endpoint::{Address, Credentials, Endpoint, Secret, Timeouts, TlsOptions};
pub use inspect::{
    CensusFacts, DetailsMissing, Inspector, read_count, read_elements, read_groups, read_ql_nodes,
    wants_groups,
};
pub use keysizes::{Keysizes, KeysizesRow};
pub use link::{Link, LinkError};
pub(crate) use random::random;
pub use redis::Value;
pub(crate) use reply::names_no_command;
pub use reply::{Refusal, RefusalKind, Reply, count as reply_count, text as reply_text};
pub(crate) use reply::{accept, bytes as reply_bytes, field as reply_field};
pub use state::{Monitors, ServerState};
pub use topology::{
    AddressRule, ClusterMap, ClusterNode, SentinelView, Shard, ask_sentinel, replicas_of, slots_in_migration,
};
pub use writes::{WriteAccess, probe_writes};
