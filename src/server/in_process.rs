//! The server without sockets: tests call it like a function.

use std::sync::Arc;

use super::command::{Core, Setup};
use super::config::Config;
use super::fault::Faults;
use super::resp::{OwnedArgs, Reply};

/// A server in the caller's own thread. It acts only when it is called, so a test decides when a
/// command runs, when cron does, and, with a [`super::ManualClock`], what time it is.
pub struct InProcess {
    core: Core,
    clients: Vec<(u64, Reply)>,
    faults: Arc<Faults>,
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

impl InProcess {
    /// Sets up an empty server; its addresses are not used.
    ///
    /// # Errors
    /// Says what in the configuration is wrong.
    pub fn new(config: &Config) -> Result<InProcess, String> {
        let setup = Setup::of(config)?;
        let faults = Arc::new(Faults::default());
        let mut core = Core::new(config, setup, Arc::clone(&faults));
        core.load(config)?;
        Ok(InProcess { core, clients: Vec::new(), faults })
    }

    /// Adds a client and returns its number for [`InProcess::call`].
    pub fn connect(&mut self) -> usize {
        let session = self.core.connect("127.0.0.1:1".to_owned(), "127.0.0.1:6379".to_owned());
        self.clients.push((session.id, Reply::default()));
        self.core.server.sessions.put(session);
        self.clients.len() - 1
    }

    /// Carries one command out and returns the reply's bytes; none if the client is gone or waits.
    pub fn call<T: AsRef<[u8]>>(&mut self, client: usize, command: &[T]) -> Vec<u8> {
        let Some((id, reply)) = self.clients.get_mut(client) else {
            return Vec::new();
        };
        let Some(mut session) = self.core.server.sessions.take(*id) else {
            return Vec::new();
        };
        let args: OwnedArgs = command.iter().collect();
        self.core.execute(&mut session, reply, args.as_args());
        if session.close_after_reply || session.killed {
            self.core.disconnect(&mut session);
        } else {
            self.core.server.sessions.put(session);
        }
        for id in std::mem::take(&mut self.core.server.attention) {
            if let Some(mut session) = self.core.server.sessions.take(id) {
                self.core.disconnect(&mut session);
            }
        }
        reply.take()
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
