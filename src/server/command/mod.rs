//! The words clients say: the command table, dispatch, and one file per family.
//! Knows sessions and replies, never sockets; a command never matches on an encoding.

#![allow(clippy::unnecessary_wraps, reason = "every command has the signature that the table asks for")]

mod acl;
mod acl_admin;
mod acl_log;
mod args;
mod bit;
mod bitfield;
mod blocking;
mod client_admin;
mod cluster;
mod collection_scan;
mod connection;
mod core;
mod dataset_digest;
mod digest;
mod dispatch;
mod error;
mod expire;
mod glob;
mod hash;
mod hash_ttl;
mod histogram;
mod hyperloglog;
mod introspection;
mod keys;
mod latency;
mod lcs;
mod list;
mod meanwhile;
mod names;
mod object;
mod persistence;
mod sample;
mod scan;
mod script;
mod server_admin;
mod session;
mod set;
mod setup;
mod slowlog;
mod stats;
mod stream;
mod stream_group;
mod stream_info;
mod stream_read;
mod string;
mod table;
mod transaction;
mod typed;
mod zset;
mod zset_algebra;
mod zset_range;

pub(crate) use self::core::{Core, Instance, STARTUP_BYTES};
pub(crate) use dispatch::Flow;
pub(crate) use error::CommandError;
pub(crate) use meanwhile::{Busy, Meanwhile, Verdict};
pub(crate) use session::{ClientId, ClientIds, Session};
pub(crate) use setup::Setup;

pub(crate) use table::Table;

use self::table::{Group, category};
use super::keyspace::Selected;
use super::resp::Reply;

/// What a command returns: it has written its reply, or an error is written for it.
pub(crate) type Outcome = Result<(), CommandError>;

/// All a command can reach while it runs.
pub(crate) struct Context<'a> {
    pub(crate) server: &'a mut Instance,
    /// The selected database.
    pub(crate) db: Selected<'a>,
    pub(crate) session: &'a mut Session,
    pub(crate) out: &'a mut Reply,
    /// Inside MULTI or a script time stands still and nothing may block.
    pub(crate) nested: bool,
    /// Faults that strike at the page a SCAN returns.
    pub(crate) page_faults: Vec<super::fault::FaultAction>,
}

/// All families. Order matters only for how the table is listed.
const GROUPS: &[Group] = &[
    Group { name: "connection", category: category::CONNECTION, commands: connection::COMMANDS },
    Group { name: "connection", category: category::CONNECTION, commands: client_admin::COMMANDS },
    Group { name: "server", category: 0, commands: acl_admin::COMMANDS },
    Group { name: "server", category: 0, commands: introspection::COMMANDS },
    Group { name: "server", category: 0, commands: server_admin::COMMANDS },
    Group { name: "server", category: 0, commands: slowlog::COMMANDS },
    Group { name: "server", category: 0, commands: latency::COMMANDS },
    Group { name: "generic", category: category::KEYSPACE, commands: keys::COMMANDS },
    Group { name: "generic", category: category::KEYSPACE, commands: expire::COMMANDS },
    Group { name: "generic", category: category::KEYSPACE, commands: scan::COMMANDS },
    Group { name: "generic", category: 0, commands: object::COMMANDS },
    Group { name: "server", category: 0, commands: persistence::COMMANDS },
    Group { name: "string", category: category::STRING, commands: string::COMMANDS },
    Group { name: "string", category: category::STRING, commands: lcs::COMMANDS },
    Group { name: "bitmap", category: category::BITMAP, commands: bit::COMMANDS },
    Group { name: "bitmap", category: category::BITMAP, commands: bitfield::COMMANDS },
    Group { name: "list", category: category::LIST, commands: list::COMMANDS },
    Group { name: "list", category: category::LIST, commands: blocking::LIST_COMMANDS },
    Group { name: "sorted-set", category: category::SORTEDSET, commands: blocking::ZSET_COMMANDS },
    Group { name: "set", category: category::SET, commands: set::COMMANDS },
    Group { name: "hash", category: category::HASH, commands: hash::COMMANDS },
    Group { name: "hash", category: category::HASH, commands: hash_ttl::COMMANDS },
    Group { name: "sorted-set", category: category::SORTEDSET, commands: zset::COMMANDS },
    Group { name: "sorted-set", category: category::SORTEDSET, commands: zset_range::COMMANDS },
    Group { name: "sorted-set", category: category::SORTEDSET, commands: zset_algebra::COMMANDS },
    Group { name: "stream", category: category::STREAM, commands: stream::COMMANDS },
    Group { name: "stream", category: category::STREAM, commands: stream_read::COMMANDS },
    Group { name: "stream", category: category::STREAM, commands: stream_group::COMMANDS },
    Group { name: "stream", category: category::STREAM, commands: stream_info::COMMANDS },
    Group { name: "hyperloglog", category: category::HYPERLOGLOG, commands: hyperloglog::COMMANDS },
    Group { name: "scripting", category: category::SCRIPTING, commands: script::COMMANDS },
    Group { name: "cluster", category: 0, commands: cluster::COMMANDS },
    Group { name: "transactions", category: category::TRANSACTION, commands: transaction::COMMANDS },
];

/// Writes a HELP reply: a heading, then each form with its explanation indented below.
fn help(ctx: &mut Context<'_>, container: &str, rows: &[(&str, &str)]) -> Outcome {
    ctx.out.array(3 + rows.len() * 2);
    ctx.out.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (form, explanation) in rows.iter().chain(&[("HELP", "Prints this help.")]) {
        ctx.out.simple(form);
        ctx.out.simple(&format!("    {explanation}"));
    }
    Ok(())
}
