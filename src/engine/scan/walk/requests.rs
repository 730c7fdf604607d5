//! Sends batches, waits for them, and sees to it that each is answered whatever happens in between.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::task::JoinHandle;

use super::pieces::Pieces;
use super::{Ended, Interruption, TICK, Walk};
use crate::engine::event::{Event, Progress, Stop};
use crate::engine::live::{Batch, Link, LinkError, RefusalKind, Reply, run_id, select};

/// First wait before a lost connection is made again; it doubles up to [`RETRY_WAIT_MAX`].
const RETRY_WAIT: Duration = Duration::from_millis(50);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);
/// Times that one batch is sent. One that breaks its connection each time would do so for ever.
const ATTEMPTS_MAX: u32 = 4;

/// A batch that was sent.
pub(super) struct Request {
    batch: Arc<Batch>,
    generation: u64,
    answer: JoinHandle<Outcome>,
}

/// What became of a batch.
struct Outcome {
    replies: Result<Vec<Reply>, LinkError>,
    elapsed: Duration,
    at: SystemTime,
}

/// The replies to a batch.
pub(super) struct Answer {
    pub(super) replies: Vec<Reply>,
    /// The round trip.
    pub(super) elapsed: Duration,
    /// When they were here. Facts are as old as this, whenever they are read.
    pub(super) at: SystemTime,
}

impl<F> Walk<'_, F>
where
    F: FnMut(Event<'_>) -> ControlFlow<Stop>,
{
    /// Sends batches and waits for all of their replies.
    pub(super) async fn ask_all(&mut self, pieces: Pieces) -> Result<Vec<Reply>, Interruption> {
        let requests = self.send_all(pieces).await?;
        let mut replies = Vec::new();
        for request in requests {
            replies.extend(self.settle(request).await?.replies);
        }
        Ok(replies)
    }

    pub(super) async fn send_all(&mut self, pieces: Pieces) -> Result<Vec<Request>, Interruption> {
        let mut requests = Vec::new();
        for batch in pieces.finish() {
            requests.push(self.send(batch).await?);
        }
        Ok(requests)
    }

    /// Waits for the budget and sends.
    pub(super) async fn send(&mut self, batch: Batch) -> Result<Request, Interruption> {
        self.admit(batch.len()).await?;
        Ok(self.launch(Arc::new(batch)))
    }

    async fn admit(&mut self, commands: usize) -> Result<(), Interruption> {
        let pacer = self.pacer.clone();
        self.watch(pacer.admit(commands)).await
    }

    fn launch(&mut self, batch: Arc<Batch>) -> Request {
        self.round_trips += 1;
        let (link, batch_there) = (self.link.clone(), Arc::clone(&batch));
        let answer = tokio::spawn(async move {
            let sent_at = Instant::now();
            let replies = link.send(&batch_there).await;
            Outcome { replies, elapsed: sent_at.elapsed(), at: SystemTime::now() }
        });
        Request { batch, generation: self.generation, answer }
    }

    /// Waits for the answer to a request, and sends it again where it can help: after a lost connection,
    /// and while the server says that it is not ready.
    pub(super) async fn settle(&mut self, mut request: Request) -> Result<Answer, Interruption> {
        let mut attempt = 1;
        loop {
            let Outcome { replies, elapsed, at } = match self.watch(&mut request.answer).await? {
                Ok(outcome) => outcome,
                Err(error) => Outcome {
                    replies: Err(LinkError::Dropped(error.to_string())),
                    elapsed: Duration::ZERO,
                    at: SystemTime::now(),
                },
            };
            match replies {
                Ok(replies) => {
                    let not_now = replies.iter().find_map(|reply| match reply {
                        Err(refusal) if refusal.kind == RefusalKind::NotNow => Some(refusal.message.clone()),
                        _ => None,
                    });
                    let Some(why) = not_now else {
                        self.not_ready_since = None;
                        return Ok(Answer { replies, elapsed, at });
                    };
                    self.wait_until_ready(&why).await?;
                }
                Err(error) if attempt == ATTEMPTS_MAX => return Err(Ended::Lost(error.to_string()).into()),
                Err(error) => {
                    attempt += 1;
                    // Where another request has seen to the connection already, this one is just sent again.
                    if request.generation == self.generation {
                        self.reconnect(&error).await?;
                    }
                }
            }
            self.admit(request.batch.len()).await?;
            request = self.launch(request.batch);
        }
    }

    /// Waits a little while the server answers LOADING or BUSY; gives up after the command timeout.
    async fn wait_until_ready(&mut self, why: &str) -> Result<(), Interruption> {
        let since = *self.not_ready_since.get_or_insert_with(Instant::now);
        if since.elapsed() > self.endpoint.timeouts.command {
            return Err(Ended::Lost(why.to_owned()).into());
        }
        self.watch(tokio::time::sleep(TICK)).await
    }

    /// Makes the connection again, with growing pauses, for as long as we wait for any answer.
    async fn reconnect(&mut self, error: &LinkError) -> Result<(), Interruption> {
        self.reconnects += 1;
        let endpoint = &self.endpoint.clone();
        let since = Instant::now();
        let mut wait = RETRY_WAIT;
        let mut why = error.to_string();
        for attempt in 1.. {
            self.emit(Event::Reconnecting { attempt, wait, why: why.clone() })?;
            self.watch(tokio::time::sleep(wait)).await?;
            match self.watch(Link::open(endpoint, "bigkeys")).await? {
                Ok(link) => match self.take_over(link).await? {
                    Ok(()) => return Ok(()),
                    Err(error) => why = error.to_string(),
                },
                Err(error) => why = error.to_string(),
            }
            if since.elapsed() > endpoint.timeouts.command {
                break;
            }
            wait = (wait * 2).min(RETRY_WAIT_MAX);
        }
        Err(Ended::Lost(why).into())
    }

    /// Goes on with a new connection, in the database that the old one was in.
    async fn take_over(&mut self, link: Link) -> Result<Result<(), LinkError>, Interruption> {
        let found = self.watch(run_id(&link)).await?;
        let run_id_now = match found {
            Ok(run_id_now) => run_id_now,
            Err(error) => return Ok(Err(error)),
        };
        if let Err(error) = self.watch(select(&link, self.db)).await? {
            return Ok(Err(error));
        }
        self.link = link;
        self.generation += 1;
        let run_id_before = std::mem::replace(&mut self.policy.server.run_id, run_id_now);
        match (&run_id_before, &self.policy.server.run_id) {
            (Some(before), Some(now)) if before != now => Err(Interruption::Restarted),
            (Some(_), Some(_)) => Ok(Ok(())),
            _ => {
                self.maybe_counted_twice = Some(
                    "the connection was lost once, and INFO is refused: whether the server restarted, and its \
                     cursors with it, is not known"
                        .to_owned(),
                );
                Ok(Ok(()))
            }
        }
    }

    /// Waits, looking after the guard, the listener and the progress meanwhile.
    pub(super) async fn watch<T>(&mut self, future: impl Future<Output = T>) -> Result<T, Interruption> {
        let mut future = pin!(future);
        loop {
            match tokio::time::timeout(TICK, &mut future).await {
                Ok(value) => return Ok(value),
                Err(_) => self.tick()?,
            }
        }
    }

    /// Looks at the guard, and now and then tells the listener how far we are.
    pub(super) fn tick(&mut self) -> Result<(), Ended> {
        if self.pacer.follow(self.canary.pace()).map_err(Ended::Guard)? {
            self.slowdowns += 1;
            let latency = self.canary.last();
            let commands_per_second = self.pacer.with(|quota| quota.rate()).unwrap_or(f64::INFINITY);
            self.emit(Event::SlowedDown { latency, commands_per_second })?;
        }
        let now = Instant::now();
        let elapsed = now.duration_since(self.ticked_at);
        if elapsed < TICK {
            return Ok(());
        }
        self.ticked_at = now;
        self.rates.observe(self.sums.keys_seen, self.pacer.with(|quota| quota.spent()), elapsed);
        let biggest = self.sums.tally.top.worst().and_then(|finding| {
            Some((finding.facts.key.clone(), finding.facts.kind.clone(), finding.verdict.allocations?))
        });
        let progress = Progress {
            db: self.db,
            keys: self.sums.keys_seen,
            keys_total: self.keys_total,
            commands_per_second: self.rates.commands,
            keys_per_second: self.rates.keys,
            biggest,
            nodes: Vec::new(),
        };
        self.emit(Event::Progress(progress))
    }

    pub(super) fn emit(&mut self, event: Event<'_>) -> Result<(), Ended> {
        match (self.on_event)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(stop) => Err(Ended::Stopped(stop)),
        }
    }
}
