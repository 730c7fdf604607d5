//! What the server knows about one client between its commands. Sockets are elsewhere.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::table::Entry;
use crate::server::resp::{OwnedArgs, Proto};

/// A client's number; never used twice.
pub(crate) type ClientId = u64;

/// Hands out numbers to clients: the loop's, and those that come while a command keeps the thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientIds {
    taken: Rc<Cell<ClientId>>,
}

impl ClientIds {
    pub(crate) fn take(&self) -> ClientId {
        self.taken.set(self.taken.get() + 1);
        self.taken.get()
    }
}

/// Whether replies are sent, as `CLIENT REPLY` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    /// The next reply is dropped.
    SkipNext,
}

/// A MULTI that has begun.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) queue: Vec<(&'static Entry, OwnedArgs)>,
    /// A command was refused while queueing: EXEC will not run the rest.
    pub(crate) aborted: bool,
}

/// A client that waits, and what it is told when the time is up.
#[derive(Debug)]
pub(crate) struct Blocked {
    /// Monotonic time in microseconds; `None` waits for ever.
    pub(crate) until_us: Option<u64>,
    pub(crate) reply: Vec<u8>,
    /// The command to try when something has changed.
    pub(crate) again: Option<OwnedArgs>,
}

/// One client, as commands see it.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches, each set by its own command")]
pub(crate) struct Session {
    pub(crate) id: ClientId,
    pub(crate) addr: String,
    pub(crate) local_addr: String,
    pub(crate) db: usize,
    pub(crate) name: String,
    pub(crate) lib_name: String,
    pub(crate) lib_ver: String,
    /// The user it acts as; `None` before AUTH when the default user has a password.
    pub(crate) user: Option<String>,
    pub(crate) created_us: u64,
    pub(crate) active_us: u64,
    pub(crate) last_command: &'static str,
    pub(crate) no_evict: bool,
    pub(crate) no_touch: bool,
    pub(crate) reply_mode: ReplyMode,
    pub(crate) transaction: Option<Transaction>,
    pub(crate) watched: Vec<(usize, Box<[u8]>)>,
    pub(crate) blocked: Option<Blocked>,
    /// The connection ends once what is buffered has been sent.
    pub(crate) close_after_reply: bool,
    /// The connection ends now.
    pub(crate) killed: bool,
    pub(crate) resp: u8,
    /// Bytes waiting in the query and reply buffers, as CLIENT LIST shows them.
    pub(crate) query_bytes: usize,
    pub(crate) reply_bytes: usize,
    /// The connection is cut once this many more bytes have been sent (a fault).
    pub(crate) cut_after: Option<usize>,
}

impl Session {
    pub(crate) fn new(id: ClientId, now_us: u64) -> Session {
        Session {
            id,
            created_us: now_us,
            active_us: now_us,
            last_command: "NULL",
            resp: 2,
            ..Session::default()
        }
    }

    /// Returns the protocol that the client speaks.
    pub(crate) fn proto(&self) -> Proto {
        if self.resp == 3 { Proto::Resp3 } else { Proto::Resp2 }
    }

    /// Writes the line CLIENT LIST shows.
    pub(crate) fn describe(&self, now_us: u64) -> String {
        let seconds = |since: u64| now_us.saturating_sub(since) / 1_000_000;
        let mut flags = String::new();
        for (set, letter) in [
            (self.transaction.is_some(), 'x'),
            (self.blocked.is_some(), 'b'),
            (self.close_after_reply, 'c'),
            (self.no_evict, 'e'),
            (self.no_touch, 'T'),
        ] {
            if set {
                flags.push(letter);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let multi = self.transaction.as_ref().map_or(-1, |t| i64::try_from(t.queue.len()).unwrap_or(0));
        format!(
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 \
             multi={multi} qbuf={} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=16384 rbp=16384 obl={} oll=0 omem=0 \
             tot-mem={} events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.addr,
            self.local_addr,
            self.id + 7,
            self.name,
            seconds(self.created_us),
            seconds(self.active_us),
            self.db,
            self.query_bytes,
            self.reply_bytes,
            self.query_bytes + self.reply_bytes + 17_000,
            self.last_command,
            self.user.as_deref().unwrap_or("(superuser)"),
            self.resp,
            self.lib_name,
            self.lib_ver,
        )
    }
}

/// All sessions except the one whose command is running, which its context holds.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    all: BTreeMap<ClientId, Box<Session>>,
}

impl Sessions {
    pub(crate) fn put(&mut self, session: Box<Session>) {
        self.all.insert(session.id, session);
    }

    pub(crate) fn take(&mut self, id: ClientId) -> Option<Box<Session>> {
        self.all.remove(&id)
    }

    pub(crate) fn get(&self, id: ClientId) -> Option<&Session> {
        self.all.get(&id).map(|session| &**session)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.all.values().map(|session| &**session)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.all.values_mut().map(|session| &mut **session)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}
