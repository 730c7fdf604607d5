//! The shape of a command as data. Dispatch, arity errors, ACL rules, `COMMAND` and the
//! compatibility page read it; each family file declares its own rows.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use super::error::CommandError;
use super::{Context, Outcome};
use crate::server::resp::Args;

/// What carries a command out. It has been checked for arity, permission and memory by then.
pub(crate) type Run = fn(&mut Context<'_>, Args<'_>) -> Outcome;

/// One command, or one subcommand under the name `container|subcommand`.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// Arguments including the name; negative when that is only the least there may be.
    pub(crate) arity: i32,
    pub(crate) flags: u32,
    /// Categories beyond those that follow from the flags and the group.
    extra_categories: u32,
    pub(crate) keys: Keys,
    needs: Needs,
    pub(crate) since: &'static str,
    pub(crate) run: Run,
}

/// Command flags, under the names `COMMAND` gives them.
pub(crate) mod flag {
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const READONLY: u32 = 1 << 1;
    /// Refused while memory is over `maxmemory` and nothing can be evicted.
    pub(crate) const DENYOOM: u32 = 1 << 2;
    pub(crate) const ADMIN: u32 = 1 << 3;
    pub(crate) const NOSCRIPT: u32 = 1 << 4;
    pub(crate) const LOADING: u32 = 1 << 5;
    pub(crate) const STALE: u32 = 1 << 6;
    pub(crate) const SKIP_SLOWLOG: u32 = 1 << 7;
    pub(crate) const FAST: u32 = 1 << 8;
    pub(crate) const NO_AUTH: u32 = 1 << 9;
    pub(crate) const ALLOW_BUSY: u32 = 1 << 10;
    pub(crate) const NO_MULTI: u32 = 1 << 11;
    pub(crate) const MOVABLEKEYS: u32 = 1 << 12;
    pub(crate) const BLOCKING: u32 = 1 << 13;
    pub(crate) const NO_ASYNC_LOADING: u32 = 1 << 14;
    /// Keys are where a number among the arguments says, and there may be none.
    pub(crate) const NO_MANDATORY_KEYS: u32 = 1 << 15;
    pub(crate) const SKIP_MONITOR: u32 = 1 << 16;

    /// The flags most administrative subcommands carry.
    pub(crate) const ADMINISTRATION: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

    pub(crate) const NAMES: &[(u32, &str)] = &[
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (NOSCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_MONITOR, "skip_monitor"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (NO_MULTI, "no_multi"),
        (NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (MOVABLEKEYS, "movablekeys"),
        (ALLOW_BUSY, "allow_busy"),
    ];
}

/// ACL categories, in the order `ACL CAT` lists them.
pub(crate) mod category {
    pub(crate) const KEYSPACE: u32 = 1;
    pub(crate) const READ: u32 = 1 << 1;
    pub(crate) const WRITE: u32 = 1 << 2;
    pub(crate) const SET: u32 = 1 << 3;
    pub(crate) const SORTEDSET: u32 = 1 << 4;
    pub(crate) const LIST: u32 = 1 << 5;
    pub(crate) const HASH: u32 = 1 << 6;
    pub(crate) const STRING: u32 = 1 << 7;
    pub(crate) const BITMAP: u32 = 1 << 8;
    pub(crate) const HYPERLOGLOG: u32 = 1 << 9;
    pub(crate) const GEO: u32 = 1 << 10;
    pub(crate) const STREAM: u32 = 1 << 11;
    pub(crate) const PUBSUB: u32 = 1 << 12;
    pub(crate) const ADMIN: u32 = 1 << 13;
    pub(crate) const FAST: u32 = 1 << 14;
    pub(crate) const SLOW: u32 = 1 << 15;
    pub(crate) const BLOCKING: u32 = 1 << 16;
    pub(crate) const DANGEROUS: u32 = 1 << 17;
    pub(crate) const CONNECTION: u32 = 1 << 18;
    pub(crate) const TRANSACTION: u32 = 1 << 19;
    pub(crate) const SCRIPTING: u32 = 1 << 20;

    pub(crate) const NAMES: &[(u32, &str)] = &[
        (KEYSPACE, "keyspace"),
        (READ, "read"),
        (WRITE, "write"),
        (SET, "set"),
        (SORTEDSET, "sortedset"),
        (LIST, "list"),
        (HASH, "hash"),
        (STRING, "string"),
        (BITMAP, "bitmap"),
        (HYPERLOGLOG, "hyperloglog"),
        (GEO, "geo"),
        (STREAM, "stream"),
        (PUBSUB, "pubsub"),
        (ADMIN, "admin"),
        (FAST, "fast"),
        (SLOW, "slow"),
        (BLOCKING, "blocking"),
        (DANGEROUS, "dangerous"),
        (CONNECTION, "connection"),
        (TRANSACTION, "transaction"),
        (SCRIPTING, "scripting"),
    ];

    pub(crate) fn by_name(name: &str) -> Option<u32> {
        NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(bit, _)| *bit)
    }
}

/// What an ACL rule must allow for a key.
pub(crate) mod need {
    /// Any rule that matches will do: the command tells whether the key is there, or how large it is.
    pub(crate) const ANY: u8 = 0;
    pub(crate) const READ: u8 = 1;
    pub(crate) const WRITE: u8 = 1 << 1;
    /// The reply tells of a value that is changed or removed.
    pub(crate) const BOTH: u8 = READ | WRITE;
}

/// What a command's first key needs, and what the others do.
#[derive(Clone, Copy)]
enum Needs {
    /// As the flags say.
    ByFlags,
    Fixed(u8, u8),
    /// All keys, depending on the arguments.
    ByArguments(fn(Args<'_>) -> u8),
}

/// Where a command's keys are among its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    None,
    /// From `first` to `last` (counted from the end when negative), every `step`th.
    Range {
        first: usize,
        last: isize,
        step: usize,
    },
    /// As many as the number at `count_at` says, right behind it; with `dest`, also argument 1.
    Counted {
        count_at: usize,
        dest: bool,
    },
    /// The first half of what follows the word STREAMS.
    Streams,
}

impl Keys {
    /// The first argument is the key.
    pub(crate) const ONE: Keys = Keys::Range { first: 1, last: 1, step: 1 };
    /// Every argument is a key.
    pub(crate) const ALL: Keys = Keys::Range { first: 1, last: -1, step: 1 };
    /// The first two arguments are keys.
    pub(crate) const TWO: Keys = Keys::Range { first: 1, last: 2, step: 1 };
    /// Keys and values alternate.
    pub(crate) const PAIRS: Keys = Keys::Range { first: 1, last: -1, step: 2 };
    /// The key follows a subcommand.
    pub(crate) const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

    /// Returns the positions of the keys in `args`.
    pub(crate) fn positions(self, args: Args<'_>) -> Vec<usize> {
        match self {
            Keys::None => Vec::new(),
            Keys::Range { first, last, step } => {
                let end =
                    if last < 0 { args.len().checked_add_signed(last) } else { usize::try_from(last).ok() };
                let end = end.unwrap_or(0).min(args.len().saturating_sub(1));
                (first..=end).step_by(step).collect()
            }
            Keys::Counted { count_at, dest } => {
                let count = args.positive(count_at).unwrap_or(0).min(args.len().saturating_sub(count_at + 1));
                dest.then_some(1).into_iter().chain(count_at + 1..count_at + 1 + count).collect()
            }
            Keys::Streams => {
                let Some(word) = (1..args.len()).find(|at| args.is(*at, "streams")) else {
                    return Vec::new();
                };
                let count = (args.len() - word - 1) / 2;
                (word + 1..word + 1 + count).collect()
            }
        }
    }

    /// Returns first, last and step as `COMMAND INFO` shows them.
    pub(crate) fn legacy(self) -> (i64, i64, i64) {
        match self {
            Keys::None | Keys::Streams | Keys::Counted { dest: false, .. } => (0, 0, 0),
            Keys::Counted { dest: true, .. } => (1, 1, 1),
            Keys::Range { first, last, step } => {
                let wide = |n: usize| i64::try_from(n).unwrap_or(0);
                (wide(first), i64::try_from(last).unwrap_or(0), wide(step))
            }
        }
    }
}

impl Command {
    pub(crate) const fn new(
        name: &'static str,
        arity: i32,
        flags: u32,
        keys: Keys,
        since: &'static str,
        run: Run,
    ) -> Command {
        Command { name, arity, flags, extra_categories: 0, keys, needs: Needs::ByFlags, since, run }
    }

    /// Adds ACL categories that neither the flags nor the group imply.
    pub(crate) const fn also(mut self, categories: u32) -> Command {
        self.extra_categories |= categories;
        self
    }

    /// Says what the keys need, where the flags do not say it.
    pub(crate) const fn needs(mut self, first: u8, rest: u8) -> Command {
        self.needs = Needs::Fixed(first, rest);
        self
    }

    /// Says what the keys need, where it depends on the arguments.
    pub(crate) const fn needs_by(mut self, by: fn(Args<'_>) -> u8) -> Command {
        self.needs = Needs::ByArguments(by);
        self
    }

    /// Returns the positions of the keys in `args`, and what an ACL must allow for each.
    pub(crate) fn keys_and_needs(&self, args: Args<'_>) -> impl Iterator<Item = (usize, u8)> {
        let (first, rest) = match self.needs {
            Needs::Fixed(first, rest) => (first, rest),
            Needs::ByArguments(by) => (by(args), by(args)),
            Needs::ByFlags if self.has(flag::WRITE) => (need::WRITE, need::WRITE),
            Needs::ByFlags if self.has(flag::READONLY) => (need::READ, need::READ),
            Needs::ByFlags => (need::BOTH, need::BOTH),
        };
        let needs = std::iter::once(first).chain(std::iter::repeat(rest));
        self.keys.positions(args).into_iter().zip(needs)
    }

    /// Declares a command that only holds subcommands.
    pub(crate) const fn container(name: &'static str, since: &'static str) -> Command {
        Command::new(name, -2, 0, Keys::None, since, no_subcommand)
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the flags under the names `COMMAND` gives them.
    pub(crate) fn flag_names(&self) -> Vec<&'static str> {
        flag::NAMES.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| *name).collect()
    }

    pub(crate) fn accepts(&self, args: usize) -> bool {
        let least = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        if self.arity < 0 { args >= least } else { args == least }
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Containers are never run: dispatch finds the subcommand first, or refuses.
fn no_subcommand(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err(CommandError::SYNTAX)
}

/// A family of commands and what its members share.
pub(crate) struct Group {
    /// The name `COMMAND DOCS` gives it.
    pub(crate) name: &'static str,
    /// The category every member has.
    pub(crate) category: u32,
    pub(crate) commands: &'static [Command],
}

/// A command with what its group and flags add to it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Bit in an ACL's command set.
    pub(crate) id: usize,
    pub(crate) command: &'static Command,
    pub(crate) group: &'static str,
    pub(crate) categories: u32,
    /// Subcommands, for a container.
    pub(crate) subcommands: Vec<usize>,
}

/// All commands, in the order of declaration, and found by name.
pub(crate) struct Table {
    entries: Vec<Entry>,
    by_name: HashMap<&'static [u8], usize>,
}

/// The longest name there is, subcommand included: longer words are not worth a look-up.
const NAME_MAX: usize = 40;

impl Table {
    /// Returns the one table, made on first use.
    pub(crate) fn get() -> &'static Table {
        static TABLE: LazyLock<Table> = LazyLock::new(|| Table::build(super::GROUPS));
        &TABLE
    }

    fn build(groups: &'static [Group]) -> Table {
        let mut table = Table { entries: Vec::new(), by_name: HashMap::new() };
        for group in groups {
            for command in group.commands {
                let id = table.entries.len();
                table.entries.push(Entry {
                    id,
                    command,
                    group: group.name,
                    categories: categories(command, group),
                    subcommands: Vec::new(),
                });
                table.by_name.insert(command.name.as_bytes(), id);
            }
        }
        for id in 0..table.entries.len() {
            let name = table.entries[id].command.name;
            let container = name.split_once('|').and_then(|(parent, _)| table.by_name.get(parent.as_bytes()));
            if let Some(parent) = container {
                let parent = &mut table.entries[*parent];
                parent.subcommands.push(id);
                if !parent.command.accepts(1) {
                    // A container runs nothing by itself: the categories are those of what it holds.
                    parent.categories = category::SLOW;
                }
            }
        }
        table
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn entry(&self, id: usize) -> &Entry {
        &self.entries[id]
    }

    /// Finds a command, or a subcommand by its full name, in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Entry> {
        let mut lower = [0; NAME_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower).map(|id| &self.entries[*id])
    }

    /// Goes from the command that `args` begin with, if there is one, to the subcommand they call.
    pub(crate) fn resolve<'a>(
        &'a self,
        entry: Option<&'a Entry>,
        args: Args<'_>,
    ) -> Result<&'a Entry, CommandError> {
        let entry = entry.filter(|entry| !entry.command.name.contains('|'));
        let entry = entry.ok_or_else(|| unknown_command(args))?;
        if entry.subcommands.is_empty() || args.len() < 2 {
            return Ok(entry);
        }
        let wanted = args.at(1);
        let found = entry.subcommands.iter().map(|id| &self.entries[*id]).find(|entry| {
            let sub = entry.command.name.split_once('|').map_or("", |(_, sub)| sub);
            sub.as_bytes().eq_ignore_ascii_case(wanted)
        });
        found.ok_or_else(|| {
            let shown = String::from_utf8_lossy(&wanted[..wanted.len().min(128)]);
            let container = entry.command.name.to_ascii_uppercase();
            CommandError::with(format!("ERR unknown subcommand '{shown}'. Try {container} HELP."))
        })
    }
}

/// Categories follow from flags as in Redis: what writes is `@write`, what administers is
/// `@dangerous`, what is not fast is slow.
fn categories(command: &Command, group: &Group) -> u32 {
    let mut categories = command.extra_categories | group.category;
    let implied = [
        (flag::WRITE, category::WRITE),
        (flag::ADMIN, category::ADMIN | category::DANGEROUS),
        (flag::BLOCKING, category::BLOCKING),
    ];
    for (flag, category) in implied {
        if command.has(flag) {
            categories |= category;
        }
    }
    if command.has(flag::READONLY) && categories & category::SCRIPTING == 0 {
        categories |= category::READ;
    }
    categories | if command.has(flag::FAST) { category::FAST } else { category::SLOW }
}

fn unknown_command(args: Args<'_>) -> CommandError {
    // Redis shows 128 bytes of the name and about as many of the arguments.
    const SHOWN_MAX: usize = 128;
    let clip = |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(SHOWN_MAX)]).into_owned();
    let mut shown = String::new();
    for arg in args.iter().skip(1) {
        if shown.len() >= SHOWN_MAX {
            break;
        }
        let room = SHOWN_MAX - shown.len();
        let arg = clip(&arg[..arg.len().min(room)]);
        // Writing to a String cannot fail.
        let _ = write!(shown, "'{arg}' ");
    }
    CommandError::with(format!(
        "ERR unknown command '{}', with args beginning with: {shown}",
        clip(args.at(0))
    ))
}
