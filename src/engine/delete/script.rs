//! Check and act in one step, as a script on the server.

use std::time::Duration;

use crate::engine::key::{KeyName, Kind};
use crate::engine::live::{Command, Reply, Value, reply_count, reply_text};

use super::expect::{Change, Expected, Size};

const SCRIPT: &str = include_str!("script.lua");

/// Members that `pad` adds: one more than the server's threshold of 64.
pub(super) const PADS: u64 = 65;

/// What to do with a key that is still the key of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act<'a> {
    Unlink,
    Del,
    /// RENAMENX to the tombstone, and take the TTL off if asked to.
    Rename {
        tombstone: &'a KeyName,
        persist: bool,
    },
    /// Add members, then UNLINK.
    Pad {
        member: String,
        list_element_bytes: u64,
    },
    /// MOVE to an empty database, then FLUSHDB ASYNC there.
    Quarantine {
        db: u32,
        empty_db: u32,
    },
    /// PEXPIRE.
    Expire {
        after: Duration,
    },
    /// Nothing.
    Check,
}

/// What the script did with one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Done {
    /// The key was as expected, and the act was carried out.
    Acted,
    /// The key is not the one of the plan.
    Changed(Change),
    /// The tombstone's name is taken.
    Taken,
    /// The database for quarantine holds keys.
    Occupied(u64),
    /// The server refused something.
    Refused(String),
    /// The script could not look at it, and it was dealt with without.
    ByItself,
    /// The reply makes no sense.
    Unreadable,
}

/// Returns the command that gives the script to the server, which answers the name that it has there.
pub(super) fn load() -> Command {
    Command::new(&["SCRIPT", "LOAD", SCRIPT])
}

/// Returns the command that checks these keys and acts on them. It is short where keys of which the same is
/// expected stand together.
///
/// `sha`: the name under which the server has the script.
pub(super) fn check_and_act<'a>(
    act: &Act<'_>,
    keys: impl ExactSizeIterator<Item = (&'a KeyName, &'a Expected)> + Clone,
    sha: Option<&str>,
) -> Command {
    let (tombstone, action, args) = match act {
        Act::Unlink => (None, "unlink", no_args()),
        Act::Del => (None, "del", no_args()),
        Act::Check => (None, "check", no_args()),
        Act::Rename { tombstone, persist } => {
            (Some(*tombstone), "rename", [u8::from(*persist).to_string(), String::new(), String::new()])
        }
        Act::Pad { member, list_element_bytes } => {
            (None, "pad", [member.clone(), PADS.to_string(), list_element_bytes.to_string()])
        }
        Act::Quarantine { db, empty_db } => {
            (None, "quarantine", [db.to_string(), empty_db.to_string(), String::new()])
        }
        Act::Expire { after } => {
            (None, "expire", [after.as_millis().to_string(), String::new(), String::new()])
        }
    };
    let count = keys.len() + usize::from(tombstone.is_some());
    let call = match sha {
        Some(sha) => Command::new(&["EVALSHA", sha]),
        None => Command::new(&["EVAL", SCRIPT]),
    };
    let mut command = call.number(count as u64);
    command = command.args(keys.clone().map(|(key, _)| key.as_bytes()));
    if let Some(tombstone) = tombstone {
        command = command.arg(tombstone.as_bytes());
    }
    command = command.arg(action).args(args);
    let mut rest = keys.map(|(_, expected)| expected).peekable();
    while let Some(expected) = rest.next() {
        let mut run: u64 = 1;
        while rest.next_if(|next| *next == expected).is_some() {
            run += 1;
        }
        command = command.number(run).args(fields(expected));
    }
    command
}

fn no_args() -> [String; 3] {
    [String::new(), String::new(), String::new()]
}

/// The seven fields of a key, in the order that the script reads.
fn fields(expected: &Expected) -> [String; 7] {
    let (min, max) = expected
        .bounds()
        .map_or((String::new(), String::new()), |(min, max)| (min.to_string(), max.to_string()));
    [
        expected.kind.as_str().to_owned(),
        expected.class.map(|class| class.as_str().to_owned()).unwrap_or_default(),
        match expected.size {
            Size::Elements(_) => "e",
            Size::Bytes(_) => "b",
            Size::Unknown => "",
        }
        .to_owned(),
        min,
        max,
        expected.has_ttl.map(|has| u8::from(has).to_string()).unwrap_or_default(),
        expected.idle_min.map(|idle| idle.as_secs().to_string()).unwrap_or_default(),
    ]
}

/// Reads the reply for these keys, in their order.
pub(super) fn read(reply: Reply, expected: &[&Expected]) -> Vec<Done> {
    let all = |done: &Done| vec![done.clone(); expected.len()];
    match reply {
        Err(refusal) => all(&Done::Refused(refusal.message)),
        Ok(Value::Array(items)) => read_left(&items, expected).unwrap_or_else(|| all(&Done::Unreadable)),
        Ok(_) => all(&Done::Unreadable),
    }
}

/// Reads how many keys were acted upon, and why the others were not. `None`: they are not as many as asked.
fn read_left(items: &[Value], expected: &[&Expected]) -> Option<Vec<Done>> {
    let (acted, left) = items.split_first()?;
    let acted = usize::try_from(reply_count(acted)?).ok()?;
    let mut done = vec![Done::Acted; expected.len()];
    for item in left {
        let (index, why) = read_one(item, expected)?;
        done[index] = why;
    }
    (done.iter().filter(|done| **done == Done::Acted).count() == acted).then_some(done)
}

/// Reads what is said of one key: its index, and why it was not acted upon. `None`: not of ours.
fn read_one(item: &Value, expected: &[&Expected]) -> Option<(usize, Done)> {
    let Value::Array(words) = item else { return None };
    let index = words.first().and_then(reply_count).and_then(|position| position.checked_sub(1))?;
    let index = usize::try_from(index).ok().filter(|index| *index < expected.len())?;
    let expected = expected[index];
    let word = |index: usize| words.get(index).and_then(reply_text).unwrap_or_default();
    let number = || word(2).parse::<u64>();
    let done = match (word(1).as_str(), number()) {
        ("gone", _) => Done::Changed(Change::Gone),
        ("taken", _) => Done::Taken,
        ("occupied", Ok(keys)) => Done::Occupied(keys),
        ("error", _) => Done::Refused(word(2)),
        ("type", _) => match Kind::from_type_reply(&word(2)) {
            Some(now) => Done::Changed(Change::Kind { was: expected.kind.clone(), now }),
            None => Done::Changed(Change::Gone),
        },
        ("class", _) => Done::Changed(Change::Class { now: word(2).into() }),
        ("size", Ok(now)) => Done::Changed(expected.size_change(now)),
        ("ttl", Ok(now)) => Done::Changed(Change::Ttl { gained: now == 1 }),
        ("idle", seconds) => Done::Changed(Change::Touched { idle: seconds.ok().map(Duration::from_secs) }),
        _ => Done::Unreadable,
    };
    Some((index, done))
}
