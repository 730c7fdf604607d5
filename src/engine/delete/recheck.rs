//! The look right before the first write, and the only place where a [`Confirmed`] comes from.
//!
//! Three ways, by what the server allows: a script, in which check and act are one step; WATCH, MULTI and
//! EXEC, in which the act does not happen if anybody wrote to the key since the check; and check, then
//! act, with the time in between told to the audit.

use std::time::{Duration, Instant};

use crate::engine::key::{Encoding, KeyName, Kind};
use crate::engine::live::{Command, LinkError, Refusal, Reply, Value, accept, reply_count, reply_text};

use super::expect::{Change, Expected, Seen, Size};
use super::script::{self, Act, Done, PADS};
use super::session::{Session, is_command_refusal, is_kept_from_scripts};

/// Proof that a key was the key of the plan right before the first write to it. `execute` and `chunked` do
/// nothing without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Confirmed {
    /// Time between the check and the act in which somebody could have changed the key.
    pub(super) window: Option<Duration>,
    /// What the first write cost.
    pub(super) cost: Duration,
}

impl Confirmed {
    /// A tombstone of this run's own making is the key that was confirmed when it got that name.
    pub(super) fn tombstone_found_again() -> Self {
        Self { window: None, cost: Duration::ZERO }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Acted {
    /// The key was as expected, and the act was carried out.
    Confirmed(Confirmed),
    /// It was not.
    Changed(Change),
    /// The tombstone's name is taken.
    Taken,
    /// The database for quarantine holds keys.
    Occupied(u64),
    /// The server refused something, in its words.
    Refused(String),
}

impl From<Done> for Acted {
    fn from(done: Done) -> Self {
        match done {
            Done::Acted => Self::Confirmed(Confirmed { window: None, cost: Duration::ZERO }),
            Done::Changed(change) => Self::Changed(change),
            Done::Taken => Self::Taken,
            Done::Occupied(keys) => Self::Occupied(keys),
            Done::Refused(message) => Self::Refused(message),
            Done::Unreadable | Done::ByItself => {
                Self::Refused("the answer of the script makes no sense".to_owned())
            }
        }
    }
}

/// Checks a key and acts on it.
///
/// # Errors
/// When the connection breaks: then it is not known whether the act was carried out.
pub(super) async fn act(
    session: &mut Session<'_>,
    key: &KeyName,
    expected: &Expected,
    act: &Act<'_>,
) -> Result<Acted, LinkError> {
    if session.access.eval {
        let command = script::check_and_act(act, [(key, expected)].into_iter(), None);
        let answer = session.run(command).await?;
        match answer.reply {
            Err(refusal) if is_eval_refusal(&refusal) => session.access.eval = false,
            reply => {
                let done = script::read(reply, &[expected]).pop().unwrap_or(Done::Unreadable);
                match done.into() {
                    Acted::Confirmed(confirmed) => {
                        return Ok(Acted::Confirmed(Confirmed { cost: answer.cost, ..confirmed }));
                    }
                    Acted::Refused(message) if is_kept_from_scripts(&message) => session.access.eval = false,
                    acted => return Ok(acted),
                }
            }
        }
    }
    without_script(session, key, expected, act).await
}

/// Returns whether EVAL itself is not to be had, as against a command in the script.
pub(super) fn is_eval_refusal(refusal: &Refusal) -> bool {
    is_command_refusal(refusal) && refusal.message.to_ascii_lowercase().contains("eval")
}

async fn without_script(
    session: &mut Session<'_>,
    key: &KeyName,
    expected: &Expected,
    act: &Act<'_>,
) -> Result<Acted, LinkError> {
    let Some(commands) = commands(key, &expected.kind, act) else {
        return Ok(Acted::Refused("this method needs EVAL".to_owned()));
    };
    if session.access.transactions {
        let watch = session.run(Command::new(&["WATCH"]).arg(key.as_bytes())).await?;
        match watch.reply {
            Ok(_) => return watched(session, key, expected, commands, act).await,
            Err(refusal) if is_command_refusal(&refusal) => session.access.transactions = false,
            Err(refusal) => return Ok(Acted::Refused(refusal.message)),
        }
    }
    if matches!(act, Act::Pad { .. }) {
        return Ok(Acted::Refused("this method needs EVAL or MULTI".to_owned()));
    }
    let seen = match look(session, key, expected).await? {
        Ok(seen) => seen,
        Err(not) => return Ok(not),
    };
    let since = Instant::now();
    if let Err(change) = expected.compare(&seen) {
        return Ok(Acted::Changed(change));
    }
    let mut cost = Duration::ZERO;
    for command in commands {
        let answer = session.run(command).await?;
        cost += answer.cost;
        if let Some(not) = refused(&answer.reply, act) {
            return Ok(not);
        }
    }
    afterwards(session, act).await?;
    Ok(Acted::Confirmed(Confirmed { window: Some(since.elapsed()), cost }))
}

/// Between WATCH and EXEC.
async fn watched(
    session: &mut Session<'_>,
    key: &KeyName,
    expected: &Expected,
    commands: Vec<Command>,
    act: &Act<'_>,
) -> Result<Acted, LinkError> {
    let checked = look(session, key, expected).await?.and_then(|seen| match expected.compare(&seen) {
        Ok(()) => Ok(()),
        Err(change) => Err(Acted::Changed(change)),
    });
    if let Err(not) = checked {
        session.run(Command::new(&["UNWATCH"])).await?;
        return Ok(not);
    }
    if commands.is_empty() {
        session.run(Command::new(&["UNWATCH"])).await?;
        return Ok(Acted::Confirmed(Confirmed { window: Some(Duration::ZERO), cost: Duration::ZERO }));
    }
    let begun = session.run(Command::new(&["MULTI"])).await?;
    if let Err(refusal) = begun.reply {
        session.access.transactions = !is_command_refusal(&refusal);
        session.run(Command::new(&["UNWATCH"])).await?;
        return Ok(Acted::Refused(refusal.message));
    }
    for command in commands {
        let queued = session.run(command).await?;
        if let Err(refusal) = queued.reply {
            session.run(Command::new(&["DISCARD"])).await?;
            return Ok(Acted::Refused(refusal.message));
        }
    }
    let done = session.run(Command::new(&["EXEC"])).await?;
    Ok(match done.reply {
        Ok(Value::Nil) => Acted::Changed(Change::Meanwhile),
        Ok(Value::Array(replies)) => {
            if let Some(not) = replies.into_iter().find_map(|reply| refused(&accept(reply), act)) {
                return Ok(not);
            }
            afterwards(session, act).await?;
            Acted::Confirmed(Confirmed { window: None, cost: done.cost })
        }
        Ok(_) => Acted::Refused("the answer of EXEC makes no sense".to_owned()),
        Err(refusal) => Acted::Refused(refusal.message),
    })
}

/// What follows an act and may fail. Where PERSIST is refused, the tombstone keeps its TTL.
async fn afterwards(session: &mut Session<'_>, act: &Act<'_>) -> Result<(), LinkError> {
    if let Act::Rename { tombstone, persist: true } = act {
        session.run(Command::new(&["PERSIST"]).arg(tombstone.as_bytes())).await?;
    }
    Ok(())
}

fn refused(reply: &Reply, act: &Act<'_>) -> Option<Acted> {
    match (reply, act) {
        (Err(refusal), _) => Some(Acted::Refused(refusal.message.clone())),
        (Ok(Value::Int(0)), Act::Rename { .. }) => Some(Acted::Taken),
        // It was there a moment ago.
        (Ok(Value::Int(0)), Act::Unlink | Act::Del | Act::Expire { .. }) => {
            Some(Acted::Changed(Change::Gone))
        }
        _ => None,
    }
}

/// Returns the commands of an act. `None`: only a script can carry it out.
fn commands(key: &KeyName, kind: &Kind, act: &Act<'_>) -> Option<Vec<Command>> {
    let one = |words: &[&str]| Command::new(words).arg(key.as_bytes());
    Some(match act {
        Act::Unlink => vec![one(&["UNLINK"])],
        Act::Del => vec![one(&["DEL"])],
        Act::Check => Vec::new(),
        Act::Rename { tombstone, .. } => vec![one(&["RENAMENX"]).arg(tombstone.as_bytes())],
        Act::Expire { after } => vec![one(&["PEXPIRE"]).number(as_ms(*after))],
        Act::Pad { member, list_element_bytes } => {
            let members = (1..=PADS).map(|index| format!("{member}{index}"));
            let add = match kind {
                Kind::List => {
                    let block = ".".repeat(usize::try_from(*list_element_bytes).ok()?);
                    one(&["RPUSH"]).args((0..PADS).map(|_| block.as_bytes()))
                }
                Kind::Set => one(&["SADD"]).args(members),
                Kind::Zset => one(&["ZADD"]).args(members.flat_map(|member| ["0".to_owned(), member])),
                Kind::Hash => one(&["HSET"]).args(members.flat_map(|member| [member, String::new()])),
                _ => return None,
            };
            vec![add, one(&["UNLINK"])]
        }
        Act::Quarantine { .. } => return None,
    })
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Looks at a key as the script does, in the same order.
async fn look(
    session: &mut Session<'_>,
    key: &KeyName,
    expected: &Expected,
) -> Result<Result<Seen, Acted>, LinkError> {
    let one = |words: &[&str]| Command::new(words).arg(key.as_bytes());
    let mut commands = vec![one(&["TYPE"])];
    let mut asks = |asked: bool, command: Command| {
        if asked {
            commands.push(command);
        }
        asked
    };
    let asks_idle = asks(expected.idle_min.is_some(), one(&["OBJECT", "IDLETIME"]));
    let asks_encoding = asks(expected.class.is_some(), one(&["OBJECT", "ENCODING"]));
    let size = match (expected.size, expected.kind.length_command()) {
        (Size::Elements(_), Some(command)) => Some(one(&[command])),
        (Size::Bytes(_), _) => Some(one(&["MEMORY", "USAGE"])),
        _ => None,
    };
    let asks_size = size.is_some_and(|command| asks(true, command));
    let asks_ttl = asks(expected.has_ttl.is_some(), one(&["PTTL"]));

    session.commands += commands.len() as u64;
    let mut replies = session.link().run_all(&commands).await?.into_iter();
    let mut next = |asked: bool| if asked { replies.next() } else { None };
    let kind = match next(true) {
        Some(Ok(value)) => reply_text(&value).and_then(|word| Kind::from_type_reply(&word)),
        Some(Err(refusal)) => return Ok(Err(Acted::Refused(refusal.message))),
        None => None,
    };
    let Some(kind) = kind else { return Ok(Err(Acted::Changed(Change::Gone))) };
    let is_same_kind = kind == expected.kind;
    let told = |reply: Option<Reply>| match reply {
        None => Ok(None),
        Some(Ok(Value::Nil)) => Err(Acted::Changed(Change::Gone)),
        Some(Ok(value)) => Ok(Some(value)),
        // WRONGTYPE, say: the type is told already.
        Some(Err(_)) if !is_same_kind => Ok(None),
        Some(Err(refusal)) => Err(Acted::Refused(refusal.message)),
    };
    let mut read = || {
        let idle = next(asks_idle).and_then(Result::ok).as_ref().and_then(reply_count);
        let encoding = told(next(asks_encoding))?.as_ref().and_then(reply_text);
        let size = told(next(asks_size))?.as_ref().and_then(reply_count);
        let has_ttl = match told(next(asks_ttl))? {
            Some(Value::Int(-2)) => return Err(Acted::Changed(Change::Gone)),
            Some(Value::Int(ttl)) => Some(ttl != -1),
            _ => None,
        };
        Ok(Seen {
            kind: kind.clone(),
            encoding: encoding.map(|word| Encoding::from_reply(&word)),
            size,
            has_ttl,
            idle: idle.map(Duration::from_secs),
        })
    };
    Ok(read())
}
