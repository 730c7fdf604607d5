//! A proxy between `bigkeys` and a server, with a hook before each command.
//!
//! Real faults come at real moments, and a test that waits for one is a test that fails on a slow
//! machine. The proxy reads each command, asks the hook what to do with it, and keeps the replies in
//! order, so a test can say "when TYPE is asked of this key, delete it first", "answer the third SCAN
//! with an error", or "drop the connection here".

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use super::{Client, Value};

/// A command that is about to be forwarded.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Its words.
    pub(crate) words: Vec<Vec<u8>>,
}

impl Request {
    /// Returns whether it begins with these words, whatever their case.
    pub(crate) fn is(&self, words: &str) -> bool {
        let mut mine = self.words.iter();
        words
            .split_whitespace()
            .all(|word| mine.next().is_some_and(|own| own.eq_ignore_ascii_case(word.as_bytes())))
    }

    /// Returns whether this is one of its words.
    pub(crate) fn names(&self, word: &str) -> bool {
        self.words.iter().any(|own| own == word.as_bytes())
    }
}

/// What to do with a command.
pub(crate) enum Action {
    /// Send it on.
    Forward,
    /// Send it on, and change the reply.
    Edit(Box<dyn FnOnce(Value) -> Value + Send>),
    /// Do not send it on: this is the reply.
    Reply(Value),
    /// Do not send it on, and never reply to anything on this connection again.
    Hang,
    /// Send it on, and hold back its reply (and with it all that follow) for so long.
    Delay(Duration),
    /// Close the connection.
    Drop,
    /// Send it on, and close the connection when so many bytes of its reply have been passed on, or half of
    /// them if it has fewer.
    Cut(usize),
}

impl Action {
    /// Replies with an error.
    pub(crate) fn error(text: &str) -> Self {
        Self::Reply(Value::error(text))
    }
}

type Hook = Arc<Mutex<dyn FnMut(&Request) -> Action + Send>>;

/// A listening proxy. Its threads end with the test's process.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Proxy {
    /// Listens on a free port. The hook runs before each command, one at a time.
    pub(crate) fn start(upstream: SocketAddr, hook: impl FnMut(&Request) -> Action + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let hook: Hook = Arc::new(Mutex::new(hook));
        let connections = Arc::new(AtomicUsize::new(0));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (counter, shared_log) = (Arc::clone(&connections), Arc::clone(&log));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                counter.fetch_add(1, Ordering::SeqCst);
                // A server that is down refuses us; `bigkeys` then sees a closed connection.
                let Ok(server) = TcpStream::connect(upstream) else { continue };
                serve(client, server, Arc::clone(&hook), Arc::clone(&shared_log));
            }
        });
        Self { address, connections, log }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns how many connections were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns all commands so far that begin with these words.
    pub(crate) fn requests(&self, words: &str) -> Vec<Request> {
        let log = self.log.lock().expect("no hook panicked");
        log.iter().filter(|request| request.is(words)).cloned().collect()
    }
}

/// What the writing side owes the client next.
enum Owed {
    FromServer(Option<Box<dyn FnOnce(Value) -> Value + Send>>, Duration),
    Ours(Value),
    Silence,
    Part(usize),
}

/// Starts the two threads of one connection.
fn serve(client: TcpStream, server: TcpStream, hook: Hook, log: Arc<Mutex<Vec<Request>>>) {
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (Ok(client_in), Ok(server_in)) = (client.try_clone(), server.try_clone()) else { return };
    let (owe, owed) = mpsc::channel();
    thread::spawn(move || {
        forward_commands(client_in, &server, &owe, &hook, &log);
        let _ = server.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        forward_replies(&client, server_in, &owed);
        let _ = client.shutdown(Shutdown::Both);
    });
}

fn forward_commands(
    client: TcpStream,
    mut server: &TcpStream,
    owe: &mpsc::Sender<Owed>,
    hook: &Hook,
    log: &Mutex<Vec<Request>>,
) {
    let mut reader = BufReader::new(client);
    let mut buffer = Vec::new();
    while let Ok(Some(command)) = Value::read(&mut reader) {
        let request = Request { words: command.items().iter().map(|word| word.bytes().to_vec()).collect() };
        log.lock().expect("no hook panicked").push(request.clone());
        let action = (hook.lock().expect("no hook panicked"))(&request);
        let (debt, forwarded) = match action {
            Action::Forward => (Owed::FromServer(None, Duration::ZERO), true),
            Action::Edit(edit) => (Owed::FromServer(Some(edit), Duration::ZERO), true),
            Action::Delay(delay) => (Owed::FromServer(None, delay), true),
            Action::Reply(value) => (Owed::Ours(value), false),
            Action::Hang => (Owed::Silence, false),
            Action::Cut(bytes) => (Owed::Part(bytes), true),
            Action::Drop => break,
        };
        if forwarded {
            buffer.clear();
            command.write(&mut buffer);
            if server.write_all(&buffer).is_err() {
                break;
            }
        }
        if owe.send(debt).is_err() {
            break;
        }
    }
}

fn forward_replies(mut client: &TcpStream, server: TcpStream, owed: &mpsc::Receiver<Owed>) {
    let mut reader = BufReader::new(server);
    let mut buffer = Vec::new();
    while let Ok(debt) = owed.recv() {
        let reply = match debt {
            Owed::Ours(value) => value,
            Owed::FromServer(edit, delay) => {
                let Ok(Some(reply)) = Value::read(&mut reader) else { return };
                thread::sleep(delay);
                edit.map_or_else(|| reply.clone(), |edit| edit(reply.clone()))
            }
            Owed::Silence => {
                // Until the client gives up and closes.
                while owed.recv().is_ok() {}
                return;
            }
            Owed::Part(bytes) => {
                let Ok(Some(reply)) = Value::read(&mut reader) else { return };
                buffer.clear();
                reply.write(&mut buffer);
                let _ = client.write_all(&buffer[..bytes.min(buffer.len() / 2)]);
                return;
            }
        };
        buffer.clear();
        reply.write(&mut buffer);
        if client.write_all(&buffer).is_err() {
            return;
        }
    }
}

/// Returns a hook that runs `act` once, with a connection to the server, right before the first
/// command that `when` picks.
pub(crate) fn once_before(
    server: SocketAddr,
    mut when: impl FnMut(&Request) -> bool + Send + 'static,
    act: impl FnOnce(&Client) + Send + 'static,
) -> impl FnMut(&Request) -> Action + Send + 'static {
    let mut act = Some(act);
    move |request| {
        if when(request)
            && let Some(act) = act.take()
        {
            act(&Client::connect(server));
        }
        Action::Forward
    }
}
