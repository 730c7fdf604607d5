//! The loop: wait, read, run, flush, and ten times a second look after things. Knows nothing of
//! keys and commands; `Core` does the thinking, `Net` holds the sockets.
//!
//! A turn goes as in Redis: before sleeping, expire a little (the fast cycle) and send the replies
//! of the turn that ended; sleep until a socket has something or cron is due; read and run what
//! came; run cron. One thread does all of it, so whatever a command takes, everyone waits.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::Waker;

use super::client::{Connection, Fill};
use super::command::{Busy, ClientId, ClientIds, Core, Meanwhile, Setup, Verdict};
use super::config::Config;
use super::exchange::Work;
use super::fault::Faults;
use super::net::{Accepted, Door, Net, Newcomer, Turn};
use super::resp::Reply;

/// Connections accepted in one turn, so that a storm of them leaves room for work.
const ACCEPTS_PER_TURN: usize = 1000;

/// A server that listens and is ready to run.
#[derive(Debug)]
pub struct Server {
    config: Config,
    setup: Setup,
    net: Net,
    handle: Handle,
}

/// A way to stop a running server, or to disturb it, from another thread.
#[derive(Debug, Clone)]
pub struct Handle {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    faults: Arc<Faults>,
}

impl Handle {
    /// Asks the server to end; [`Server::run`] returns soon after.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // If it cannot be woken it is gone, or will look within a cron period.
        let _ = self.waker.wake();
    }

    /// Returns the faults the server suffers from.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

impl Server {
    /// Opens the sockets. Clients can connect from here on; they are served by [`Server::run`].
    ///
    /// # Errors
    /// Fails when an address cannot be listened on, when others could connect without a password, and
    /// when something in the configuration is wrong.
    pub fn bind(config: Config) -> io::Result<Server> {
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let mut setup = Setup::of(&config).map_err(refused)?;
        match config.listen {
            Some(address) if !address.ip().is_loopback() && setup.acl.is_open() => {
                return Err(refused(format!("{} lets others in, and there is no password", address.ip())));
            }
            None if config.unix_socket.is_none() => {
                return Err(refused("neither a port nor a Unix socket to listen on".to_owned()));
            }
            _ => {}
        }
        let (net, waker) = Net::bind(&config)?;
        let settings = &mut setup.settings;
        if let Some(addr) = net.local_addr() {
            settings.port = i64::from(addr.port());
            settings.bind = addr.ip().to_string();
        }
        if let Some(path) = &config.unix_socket {
            settings.unix_socket = path.display().to_string();
        }
        let handle =
            Handle { stop: Arc::new(AtomicBool::new(false)), waker, faults: Arc::new(Faults::default()) };
        Ok(Server { config, setup, net, handle })
    }

    /// Returns the TCP address it listens on, if it does.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.net.local_addr()
    }

    /// Returns the Unix socket it listens on, if it does.
    pub fn unix_socket(&self) -> Option<&Path> {
        self.config.unix_socket.as_deref()
    }

    /// Returns a handle for other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until SHUTDOWN, a stop through the handle, or a signal.
    ///
    /// # Errors
    /// Fails when the poller does, or when the file to start from cannot be read.
    pub fn run(self) -> io::Result<()> {
        let mut core = Core::new(&self.config, self.setup, Arc::clone(&self.handle.faults));
        let net = Rc::new(RefCell::new(self.net));
        core.server.meanwhile = Some(Rc::new(Caretaker {
            net: Rc::clone(&net),
            stop: Arc::clone(&self.handle.stop),
            client_ids: core.server.client_ids.clone(),
        }));
        let mut turning = EventLoop {
            next_cron_us: core.server.clock.monotonic_us(),
            core,
            net,
            stop: self.handle.stop,
            waiting: Vec::new(),
            tried_at_dirty: 0,
        };
        turning.keep_the_door();
        turning.core.load(&self.config).map_err(io::Error::other)?;
        turning.welcome_newcomers();
        turning.run()
    }
}

struct EventLoop {
    core: Core,
    net: Rc<RefCell<Net>>,
    stop: Arc<AtomicBool>,
    next_cron_us: u64,
    /// Clients that wait for a time, or for the end of a pause.
    waiting: Vec<ClientId>,
    /// The count of changes when the waiting were last tried.
    tried_at_dirty: u64,
}

impl EventLoop {
    fn run(&mut self) -> io::Result<()> {
        while !self.stop.load(Ordering::Acquire) && !self.core.server.shutdown {
            self.core.before_sleep();
            self.flush_replies();
            self.keep_the_door();
            let timeout = self.timeout();
            let turn = self.net.borrow_mut().poll(timeout)?;
            if turn.signal {
                break;
            }
            self.take_turn(turn);
            self.resume_waiting();
            self.see_to_attention();
            self.cron_if_due();
        }
        self.flush_replies();
        Ok(())
    }

    /// Returns how long there is nothing to do unless a socket says so.
    fn timeout(&self) -> Duration {
        if !self.net.borrow().ready.is_empty() || self.net.borrow().accept_later {
            return Duration::ZERO;
        }
        let now_us = self.core.server.clock.monotonic_us();
        let deadlines = self.waiting.iter().filter_map(|id| {
            let session = self.core.server.sessions.get(*id)?;
            session.blocked.as_ref()?.until_us
        });
        let next_us = deadlines.chain([self.next_cron_us]).min().unwrap_or(self.next_cron_us);
        let mut wait = Duration::from_micros(next_us.saturating_sub(now_us));
        if !self.waiting.is_empty() && self.core.server.pause.is_some() {
            wait = wait.min(Duration::from_millis(1));
        }
        // A clock that a test holds still must not hold the loop.
        wait.min(self.core.server.cron_period())
    }

    fn take_turn(&mut self, turn: Turn) {
        if turn.acceptable {
            self.accept();
        }
        for id in turn.writable {
            self.flush(id);
        }
        self.net.borrow_mut().make_ready(turn.readable);
        // Those that are not done in this turn line up behind the others for the next.
        let ready = self.net.borrow().ready.len();
        for _ in 0..ready {
            let next = self.net.borrow_mut().ready.pop_front();
            if let Some(id) = next {
                self.read(id);
            }
        }
    }

    /// Leaves word of what holds for clients that come while a command keeps the thread.
    fn keep_the_door(&mut self) {
        let server = &self.core.server;
        self.net.borrow_mut().door = Door {
            open: server.acl.is_open(),
            clients_max: usize::try_from(server.settings.maxclients).unwrap_or(usize::MAX),
            bulk_len_max: server.settings.bulk_len_max,
        };
    }

    /// Gives sessions to the clients that came meanwhile.
    fn welcome_newcomers(&mut self) {
        let newcomers = std::mem::take(&mut self.net.borrow_mut().newcomers);
        for Newcomer { id, addr, local_addr } in newcomers {
            let session = self.core.admit(id, addr, local_addr);
            self.core.server.sessions.put(session);
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let accepted = self.net.borrow_mut().accept();
            match accepted {
                Some(accepted) => self.welcome(accepted),
                None => return,
            }
        }
        self.net.borrow_mut().accept_later = true;
    }

    fn welcome(&mut self, accepted: Accepted) {
        let max = usize::try_from(self.core.server.settings.maxclients).unwrap_or(usize::MAX);
        if self.core.server.sessions.len() >= max {
            self.core.server.stats.rejected_connections += 1;
            let mut rejected = Connection::new(0, accepted.stream, false);
            rejected.refuse(b"-ERR max number of clients reached\r\n");
            return;
        }
        let session = self.core.connect(accepted.addr, accepted.local_addr);
        let connection = Connection::new(session.id, accepted.stream, session.user.is_some());
        // A socket that cannot be watched is closed by dropping it.
        if self.net.borrow_mut().add(Box::new(connection)).is_ok() {
            self.core.server.sessions.put(session);
        }
    }

    fn read(&mut self, id: ClientId) {
        let filled = self.net.borrow_mut().fill(id);
        let Some((bytes, fill)) = filled else {
            return;
        };
        self.core.server.stats.input_bytes += u64::try_from(bytes).unwrap_or(0);
        match fill {
            Fill::Drained => {}
            Fill::Closed if bytes == 0 => {
                self.close(id);
                return;
            }
            // What came before the end is still carried out; then the end is read again.
            Fill::More | Fill::Closed => self.net.borrow_mut().ready.push_back(id),
        }
        self.work(id);
    }

    /// Runs a client's requests. The connection is out of `Net` meanwhile, so that `Net` can be
    /// looked after if one of them is a script without an end.
    fn work(&mut self, id: ClientId) {
        let taken = self.net.borrow_mut().take(id);
        let (Some(mut connection), Some(mut session)) = (taken, self.core.server.sessions.take(id)) else {
            return;
        };
        let work = connection.work(&mut self.core, &mut session);
        let has_replies = !connection.exchange.unsent().is_empty() || session.close_after_reply;
        self.core.server.sessions.put(session);
        self.net.borrow_mut().put(connection);
        self.welcome_newcomers();
        match work {
            Work::Idle => {}
            Work::Waiting if self.waiting.contains(&id) => {}
            Work::Waiting => self.waiting.push(id),
            Work::Over => {
                self.close(id);
                return;
            }
        }
        if has_replies {
            self.net.borrow_mut().unflushed.push(id);
        }
    }

    fn flush_replies(&mut self) {
        let unflushed = std::mem::take(&mut self.net.borrow_mut().unflushed);
        for id in unflushed {
            self.flush(id);
        }
    }

    fn flush(&mut self, id: ClientId) {
        let (written, alive) = self.net.borrow_mut().flush(id);
        self.core.server.stats.output_bytes += u64::try_from(written).unwrap_or(0);
        if !alive {
            self.close(id);
        }
    }

    fn close(&mut self, id: ClientId) {
        self.net.borrow_mut().close(id);
        if let Some(mut session) = self.core.server.sessions.take(id) {
            self.core.disconnect(&mut session);
        }
        self.waiting.retain(|waiting| *waiting != id);
    }

    /// Lets clients go on whose time is up, whose pause is over, or who got what they waited for.
    fn resume_waiting(&mut self) {
        // What one waiter does may be what another waits for.
        while !self.waiting.is_empty() {
            let dirty = self.core.keyspace.dirty;
            self.resume_once(dirty != self.tried_at_dirty);
            self.tried_at_dirty = dirty;
            if self.core.keyspace.dirty == dirty {
                return;
            }
        }
    }

    fn resume_once(&mut self, try_again: bool) {
        let now_us = self.core.server.clock.monotonic_us();
        for id in std::mem::take(&mut self.waiting) {
            let Some(mut session) = self.core.server.sessions.take(id) else {
                continue;
            };
            let mut reply = Reply::new(session.proto());
            reply.set_len_max(self.core.server.settings.reply_buffer_max());
            let due =
                session.blocked.as_ref().is_some_and(|b| b.until_us.is_some_and(|until| until <= now_us));
            if due {
                if let Some(blocked) = session.blocked.take() {
                    reply.raw(&blocked.reply);
                }
            } else if try_again {
                self.core.try_again(&mut session, &mut reply);
            }
            let still_blocked = session.blocked.is_some();
            if let Some(connection) = self.net.borrow_mut().get_mut(id) {
                connection.exchange.reply(reply.bytes());
            }
            self.core.server.sessions.put(session);
            if still_blocked {
                self.waiting.push(id);
            } else {
                self.work(id);
            }
        }
    }

    /// Ends the connections that CLIENT KILL chose.
    fn see_to_attention(&mut self) {
        for id in std::mem::take(&mut self.core.server.attention) {
            let killed = self.core.server.sessions.get(id).is_some_and(|session| session.killed);
            if killed {
                self.close(id);
            }
        }
    }

    fn cron_if_due(&mut self) {
        let now_us = self.core.server.clock.monotonic_us();
        if now_us < self.next_cron_us {
            return;
        }
        let period_us = u64::try_from(self.core.server.cron_period().as_micros()).unwrap_or(100_000);
        self.next_cron_us = now_us + period_us;
        self.core.cron();
        self.close_idle(now_us);
    }

    /// Closes clients that have been silent for longer than `timeout`.
    fn close_idle(&mut self, now_us: u64) {
        let Ok(timeout_s @ 1..) = u64::try_from(self.core.server.settings.timeout_s) else {
            return;
        };
        let sessions = self.core.server.sessions.iter();
        let idle: Vec<ClientId> = sessions
            .filter(|session| session.blocked.is_none())
            .filter(|session| now_us.saturating_sub(session.active_us) > timeout_s * 1_000_000)
            .map(|session| session.id)
            .collect();
        for id in idle {
            self.close(id);
        }
    }
}

/// Looks after clients while a script or a file that is loaded holds the command thread: it cannot run
/// commands, but it can say so, and it knows the two that end it.
struct Caretaker {
    net: Rc<RefCell<Net>>,
    stop: Arc<AtomicBool>,
    client_ids: ClientIds,
}

const LOADING: &[u8] = b"-LOADING Redis is loading the dataset in memory\r\n";
const BUSY: &[u8] =
    b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n";
const UNKILLABLE: &[u8] = b"-UNKILLABLE Sorry the script already executed write commands against the \
    dataset. You can either wait the script termination or kill the server in a hard way using the \
    SHUTDOWN NOSAVE command.\r\n";

impl Meanwhile for Caretaker {
    fn serve(&self, busy: Busy) -> Verdict {
        let mut net = self.net.borrow_mut();
        let Ok(turn) = net.poll(Duration::ZERO) else {
            return Verdict::GoOn;
        };
        if turn.acceptable {
            let mut accepted = 0;
            while accepted < ACCEPTS_PER_TURN && net.accept_newcomer(&self.client_ids) {
                accepted += 1;
            }
            net.accept_later |= accepted == ACCEPTS_PER_TURN;
        }
        let mut verdict =
            if turn.signal || self.stop.load(Ordering::Acquire) { Verdict::ShutDown } else { Verdict::GoOn };
        // Replies from before it began are waited for, too. What ends with this flush is closed by the
        // loop later.
        for id in std::mem::take(&mut net.unflushed).into_iter().chain(turn.writable) {
            net.flush(id);
        }
        net.make_ready(turn.readable);
        let bulk_len_max = net.door.bulk_len_max;
        for id in std::mem::take(&mut net.ready) {
            let filled = net.fill(id);
            if matches!(filled, Some((_, Fill::More | Fill::Closed))) {
                net.ready.push_back(id);
            }
            let Some(connection) = net.get_mut(id) else {
                continue;
            };
            connection.exchange.put_off(bulk_len_max, |args, authenticated| {
                if !authenticated {
                    return b"-NOAUTH Authentication required.\r\n".to_vec();
                }
                if args.is(0, "SHUTDOWN") && args.is(1, "NOSAVE") {
                    verdict = Verdict::ShutDown;
                    return Vec::new();
                }
                let Busy::Script { has_written } = busy else {
                    return LOADING.to_vec();
                };
                if !(args.is(0, "SCRIPT") && args.is(1, "KILL")) {
                    return BUSY.to_vec();
                }
                if has_written {
                    return UNKILLABLE.to_vec();
                }
                verdict = Verdict::Kill;
                b"+OK\r\n".to_vec()
            });
            net.flush(id);
        }
        verdict
    }
}
