//! The server without sockets: tests and fuzz targets call it like a function.

use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;

use super::command::{Busy, ClientId, Core, Meanwhile, Session, Setup, Verdict};
use super::config::Config;
use super::exchange::{Exchange, Work};
use super::fault::Faults;
use super::resp::{OwnedArgs, Reply};

/// A server in the caller's own thread. It acts only when it is called, so a test decides when a
/// command runs, when cron does, and, with a [`super::ManualClock`], what time it is.
pub struct InProcess {
    core: Core,
    clients: Vec<Client>,
    faults: Arc<Faults>,
}

struct Client {
    id: ClientId,
    /// Replies of [`InProcess::call`].
    reply: Reply,
    /// What went through [`InProcess::feed`].
    exchange: Exchange,
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

impl InProcess {
    /// Sets up a server; its addresses are not used.
    ///
    /// # Errors
    /// Says what in the configuration, or in the file to load, is wrong.
    pub fn new(config: &Config) -> Result<InProcess, String> {
        let setup = Setup::of(config)?;
        let faults = Arc::new(Faults::default());
        let mut core = Core::new(config, setup, Arc::clone(&faults));
        core.server.meanwhile = Some(Rc::new(NobodyElse));
        core.load(config)?;
        Ok(InProcess { core, clients: Vec::new(), faults })
    }

    /// Loads an RDB file over what is there. Returns how many keys it held that are not due.
    ///
    /// # Errors
    /// Says what is wrong with the file, and where; what came before that has been loaded.
    pub fn load(&mut self, file: impl Read) -> Result<usize, String> {
        self.core.server.load_from(&mut self.core.keyspace, file).map_err(|error| error.to_string())
    }

    /// Adds a client and returns its number for [`InProcess::call`] and [`InProcess::feed`].
    pub fn connect(&mut self) -> usize {
        let session = self.core.connect("127.0.0.1:1".to_owned(), "127.0.0.1:6379".to_owned());
        let exchange = Exchange::new(session.user.is_some());
        self.clients.push(Client { id: session.id, reply: Reply::default(), exchange });
        self.core.server.sessions.put(session);
        self.clients.len() - 1
    }

    /// Carries one command out and returns the reply's bytes; none if the client is gone or waits.
    pub fn call<T: AsRef<[u8]>>(&mut self, client: usize, command: &[T]) -> Vec<u8> {
        let Some((client, mut session)) = self.find(client) else {
            return Vec::new();
        };
        let args: OwnedArgs = command.iter().collect();
        self.core.execute(&mut session, &mut self.clients[client].reply, args.as_args());
        let over = session.close_after_reply || session.killed;
        self.put_back(session, over);
        self.clients[client].reply.take()
    }

    /// Takes bytes as a socket brings them, carries out the requests that are complete now, and returns
    /// what goes back: nothing if the client is gone or waits.
    pub fn feed(&mut self, client: usize, bytes: &[u8]) -> Vec<u8> {
        let Some((client, mut session)) = self.find(client) else {
            return Vec::new();
        };
        let exchange = &mut self.clients[client].exchange;
        exchange.hear(bytes);
        let work = exchange.work(&mut self.core, &mut session);
        let replies = exchange.unsent().to_vec();
        exchange.note_sent(replies.len());
        let over = work == Work::Over || exchange.closes_after_reply();
        self.put_back(session, over);
        replies
    }

    /// Says whether the server has closed this client's connection.
    pub fn is_gone(&self, client: usize) -> bool {
        self.clients.get(client).is_none_or(|client| self.core.server.sessions.get(client.id).is_none())
    }

    /// Takes a client's session out while a command runs for it.
    fn find(&mut self, client: usize) -> Option<(usize, Box<Session>)> {
        let id = self.clients.get(client)?.id;
        Some((client, self.core.server.sessions.take(id)?))
    }

    fn put_back(&mut self, mut session: Box<Session>, over: bool) {
        if over {
            self.core.disconnect(&mut session);
        } else {
            self.core.server.sessions.put(session);
        }
        for id in std::mem::take(&mut self.core.server.attention) {
            if let Some(mut session) = self.core.server.sessions.take(id) {
                self.core.disconnect(&mut session);
            }
        }
    }

    /// Does what is due ten times a second.
    pub fn cron(&mut self) {
        self.core.cron();
    }

    /// Does what is due before the thread would sleep.
    pub fn before_sleep(&mut self) {
        self.core.before_sleep();
    }

    /// Returns the faults the server suffers from.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// Ends a script after `busy-reply-threshold`: there is no socket here that SCRIPT KILL or SHUTDOWN could
/// come from.
struct NobodyElse;

impl Meanwhile for NobodyElse {
    fn serve(&self, busy: Busy) -> Verdict {
        match busy {
            Busy::Script { .. } => Verdict::Kill,
            Busy::Loading => Verdict::GoOn,
        }
    }
}
