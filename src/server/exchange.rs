//! What one client says and what it hears: requests are cut out of its bytes and carried out, and their
//! replies gathered. Both buffers are bounded; a client that does not read its replies is cut off.
//! Knows no socket and no command.

use super::command::{Core, Flow, Session};
use super::resp::{Args, Limits, Progress, Reply, RequestParser};

/// A query buffer that has grown beyond this is given back once it is empty.
const IDLE_CAPACITY: usize = 64 * 1024;

/// What became of the requests in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// All that were complete are done.
    Idle,
    /// The client waits, for a time or for the end of a pause.
    Waiting,
    /// The connection must end now.
    Over,
}

/// The two buffers of a connection and what is between them.
#[derive(Debug)]
pub(super) struct Exchange {
    query: Vec<u8>,
    /// Where the current request starts in `query`.
    start: usize,
    parser: RequestParser,
    out: Reply,
    /// Bytes of `out` that are on the wire.
    sent: usize,
    /// Known here as well, for what a stranger may send.
    authenticated: bool,
    close_after_reply: bool,
}

impl Exchange {
    pub(super) fn new(authenticated: bool) -> Exchange {
        Exchange {
            query: Vec::new(),
            start: 0,
            parser: RequestParser::default(),
            out: Reply::default(),
            sent: 0,
            authenticated,
            close_after_reply: false,
        }
    }

    /// Takes in what a client has sent.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        self.query.extend_from_slice(bytes);
    }

    /// Carries out the requests that are complete.
    pub(super) fn work(&mut self, core: &mut Core, session: &mut Session) -> Work {
        self.out.set_len_max(self.sent.saturating_add(core.server.settings.reply_buffer_max()));
        let work = self.work_through(core, session);
        self.authenticated = session.user.is_some();
        self.close_after_reply |= session.close_after_reply;
        self.compact();
        session.query_bytes = self.query.len();
        session.reply_bytes = self.unsent().len();
        if self.query_is_too_big(core) {
            core.server.stats.query_limit_disconnections += 1;
            return Work::Over;
        }
        if self.out.is_full() {
            core.server.stats.output_limit_disconnections += 1;
            return Work::Over;
        }
        work
    }

    fn work_through(&mut self, core: &mut Core, session: &mut Session) -> Work {
        loop {
            if session.killed {
                return Work::Over;
            }
            if session.blocked.is_some() {
                return Work::Waiting;
            }
            // After QUIT or a protocol error nothing more is heard.
            if self.close_after_reply || session.close_after_reply {
                self.query.clear();
                self.start = 0;
                return Work::Idle;
            }
            // The reply of one request may be all that a client ever reads of a thousand.
            if self.out.is_full() {
                return Work::Idle;
            }
            let limits = Limits {
                bulk_len_max: core.server.settings.bulk_len_max,
                authenticated: session.user.is_some(),
            };
            let request = &self.query[self.start..];
            match self.parser.parse(request, limits) {
                Ok(Progress::Partial) => return Work::Idle,
                Ok(Progress::Complete(len)) => {
                    let args = self.parser.args(request);
                    if core.execute(session, &mut self.out, args) == Flow::Postponed {
                        return Work::Waiting;
                    }
                    self.start += len;
                }
                Err(why) => {
                    self.out.error(format!("ERR Protocol error: {why}").as_bytes());
                    self.close_after_reply = true;
                }
            }
        }
    }

    /// Answers what is complete without running it, while a script holds the command thread.
    /// `answer` returns the reply to each request.
    pub(super) fn put_off(&mut self, bulk_len_max: i64, mut answer: impl FnMut(Args<'_>, bool) -> Vec<u8>) {
        loop {
            let limits = Limits { bulk_len_max, authenticated: self.authenticated };
            let request = &self.query[self.start..];
            // What is wrong with the request can wait until the script is over.
            let Ok(Progress::Complete(len)) = self.parser.parse(request, limits) else {
                break;
            };
            let args = self.parser.args(request);
            if args.len() > 0 {
                let reply = answer(args, self.authenticated);
                self.out.raw(&reply);
            }
            self.start += len;
        }
        self.compact();
    }

    /// Adds a reply that no request is waiting for any more: a wait is over.
    pub(super) fn reply(&mut self, bytes: &[u8]) {
        self.out.raw(bytes);
    }

    /// Returns the replies that are not on the wire yet.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.out.bytes()[self.sent..]
    }

    /// Notes that `count` more bytes are on the wire.
    pub(super) fn note_sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    /// Says whether the connection ends once its replies are on the wire.
    pub(super) fn closes_after_reply(&self) -> bool {
        self.close_after_reply
    }

    /// Drops the requests that are done. A partial one keeps its place in the parser, which counts
    /// from its start.
    fn compact(&mut self) {
        if self.start == self.query.len() {
            self.query.clear();
            self.query.shrink_to(IDLE_CAPACITY);
        } else if self.start > 0 {
            self.query.drain(..self.start);
        }
        self.start = 0;
    }

    fn query_is_too_big(&self, core: &Core) -> bool {
        let max = usize::try_from(core.server.settings.query_buffer_max).unwrap_or(usize::MAX);
        self.query.len() > max
    }
}
