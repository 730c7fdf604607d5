//! What clients ask to find out whether this is a cluster. It is none.

use super::table::{Command, Keys, category, flag};
use super::{Context, Outcome, help};
use crate::server::resp::Args;

const ASK: u32 = flag::LOADING | flag::STALE;

pub(super) const COMMANDS: &[Command] = &[
    Command::container("cluster", "3.0.0"),
    Command::new("cluster|info", 2, flag::STALE, Keys::None, "3.0.0", disabled),
    Command::new("cluster|keyslot", 3, flag::STALE, Keys::None, "3.0.0", disabled),
    Command::new("cluster|myid", 2, flag::STALE, Keys::None, "3.0.0", disabled),
    Command::new("cluster|nodes", 2, flag::STALE, Keys::None, "3.0.0", disabled),
    Command::new("cluster|shards", 2, ASK, Keys::None, "7.0.0", disabled),
    Command::new("cluster|slots", 2, ASK, Keys::None, "3.0.0", disabled),
    Command::new("cluster|help", 2, ASK, Keys::None, "5.0.0", cluster_help),
    Command::new("asking", 1, flag::FAST, Keys::None, "3.0.0", disabled).also(category::CONNECTION),
    Command::new("readonly", 1, flag::FAST | ASK, Keys::None, "3.0.0", disabled).also(category::CONNECTION),
    Command::new("readwrite", 1, flag::FAST | ASK, Keys::None, "3.0.0", disabled).also(category::CONNECTION),
];

fn cluster_help(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let question = "Says that this is no cluster.";
    let rows = ["INFO", "KEYSLOT <key>", "MYID", "NODES", "SHARDS", "SLOTS"].map(|form| (form, question));
    help(ctx, "CLUSTER", &rows)
}

fn disabled(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err("ERR This instance has cluster support disabled".into())
}
