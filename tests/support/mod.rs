//! The laboratory: servers, a `bigkeys` command, a client to fill them with, and a proxy that
//! breaks things at a chosen moment.
//!
//! Nothing in here knows how `bigkeys` works. The client and the proxy read the protocol with code of
//! their own, so that what they see is not what `bigkeys` thinks there is.

mod certs;
mod cluster;
mod command;
mod deletion;
mod fill;
mod lab;
mod proxy;
mod replicated;
mod resp;
mod scan;
mod sentinel;
mod server;
mod servers;
mod wait;

pub(crate) use certs::Certificates;
pub(crate) use cluster::{Cluster, ClusterOptions, slot_of, tag_in};
pub(crate) use command::{Bigkeys, Exit, Outcome};
pub(crate) use deletion::{AuditLog, Keyspace, snapshot};
pub(crate) use lab::Lab;
pub(crate) use proxy::{Action, Proxy, Request, once_before};
pub(crate) use replicated::Replicated;
pub(crate) use resp::{Client, Value};
pub(crate) use scan::{CALM, Scan, key_of};
pub(crate) use sentinel::{SentinelGroup, SentinelOptions};
pub(crate) use server::{ServerKind, free_port};
pub(crate) use servers::Servers;
pub(crate) use wait::wait_for;

/// Makes a test for each of the five real servers and for the bundled one out of a function that takes a
/// [`ServerKind`]:
///
/// ```ignore
/// on_each_server! {
///     fn ping_is_answered(kind) {
///         Lab::start(kind).redis().run("PING").is("PONG");
///     }
/// }
/// ```
///
/// Names follow: `engine::basics::ping_is_answered::redis_7_0`. A server that is not installed is a
/// named skip, and a failure where `CI=true`.
macro_rules! on_each_server {
    ($(fn $name:ident($kind:ident) $body:block)+) => {
        $(
            $crate::support::on_servers! {
                [
                    redis_6_2 Redis62, redis_7_0 Redis70, redis_8_2 Redis82, valkey_8_1 Valkey81,
                    valkey_9_1 Valkey91, bundled Bundled
                ]
                fn $name($kind) $body
            }
        )+
    };
}

/// Like [`on_each_server!`], but for the bundled server: for what `docs/compatibility.md` says it does
/// not have.
macro_rules! on_each_real_server {
    ($(fn $name:ident($kind:ident) $body:block)+) => {
        $(
            $crate::support::on_servers! {
                [redis_6_2 Redis62, redis_7_0 Redis70, redis_8_2 Redis82, valkey_8_1 Valkey81, valkey_9_1 Valkey91]
                fn $name($kind) $body
            }
        )+
    };
}

/// Like [`on_each_server!`], but for the servers that clusters and Sentinel groups are made of: the last of each
/// kind, and an old one.
macro_rules! on_each_cluster_server {
    ($(fn $name:ident($kind:ident) $body:block)+) => {
        $(
            $crate::support::on_servers! {
                [redis_7_0 Redis70, redis_8_2 Redis82, valkey_9_1 Valkey91]
                fn $name($kind) $body
            }
        )+
    };
}

/// Like [`on_each_server!`] for one function, on the servers named.
macro_rules! on_servers {
    ([$($test:ident $server:ident),+] fn $name:ident($kind:ident) $body:block) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn body($kind: $crate::support::ServerKind) $body

            $(
                #[test]
                fn $test() {
                    let kind = $crate::support::ServerKind::$server;
                    if kind.is_installed_or_skipped() {
                        body(kind);
                    }
                }
            )+
        }
    };
}

pub(crate) use {on_each_cluster_server, on_each_real_server, on_each_server, on_servers};
