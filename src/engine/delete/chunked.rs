//! Takes a collection apart, a millisecond at a time.
//!
//! Sets and hashes are walked with their own SCAN, whose cursor is carried forward and never begun again: a
//! scan that starts over after each deletion walks ever longer runs of empty buckets. Sorted sets, lists and
//! streams are cut by count, which ships no data. SPOP, LPOP and ZPOPMIN are dearer and send everything
//! they remove.
//!
//! ```text
//! sent      SSCAN 2 | SREM 1 | SSCAN 3 | SREM 2 ...
//! server    ....SSCAN 2.SREM 1..SSCAN 3.SREM 2.     busy while we read page 2
//! ```
//!
//! Two commands are in flight, so that at full pace the server never waits for us; under a rate limit it
//! rests between them. What remains in the end is handed to UNLINK.

use std::time::{Duration, Instant};

use crate::engine::key::{Expiry, Flavour, KeyName, Kind, Version};
use crate::engine::live::{
    Command, LinkError, Reply, Value, reply_bytes, reply_count, reply_field, reply_text,
};
use crate::engine::risk::LAZYFREE_THRESHOLD;

use super::expect::Expected;
use super::recheck::{self, Acted, Confirmed};
use super::script::Act;
use super::session::{Answer, Halt, Meaning, Pending, SameServer, Session, meaning};
use super::sizer::ChunkSizer;

/// Elements in one SREM, HDEL or XACK. A page may hold far more than COUNT: a compact encoding comes whole,
/// and a long chain of one bucket too (valkey#3955: 4979 members for COUNT 1).
const REMOVE_MAX: usize = 1_000;
/// Bytes of names in one SREM or HDEL.
const REMOVE_BYTES_MAX: usize = 256 << 10;
/// Bytes of values that a page of HSCAN may ship, where it cannot leave them out.
const PAGE_BYTES_MAX: u64 = 256 << 10;
/// Walks through a set or hash whose members do not all go: somebody adds them as we remove them.
const PASSES_MAX: u32 = 3;
/// Times that a broken connection is made again for one key.
const RECONNECTS_MAX: u32 = 5;
/// Bytes that the last UNLINK may free at once.
const REST_BYTES_MAX: u64 = 1 << 20;
/// Elements that a last DEL may free at once where UNLINK is not to be had: 0.2 ms.
const LAST_DEL_MAX: u64 = 10_000;

/// What is taken apart.
pub(super) struct Target<'a> {
    /// The key, or its tombstone.
    pub(super) name: &'a KeyName,
    /// It still has the name by which everybody knows it.
    pub(super) in_place: bool,
    /// What to call it in progress.
    pub(super) shown: &'a KeyName,
    pub(super) db: u32,
    pub(super) kind: &'a Kind,
    /// Elements when it was planned.
    pub(super) elements: Option<u64>,
    /// Memory when it was planned.
    pub(super) bytes: Option<u64>,
}

/// How far it came.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct TakenApart {
    pub(super) chunks: u64,
    pub(super) slowest: Duration,
    /// Elements removed, as far as the server counts them.
    pub(super) removed: u64,
    /// `Ok`: nothing of it is left.
    pub(super) end: Option<End>,
}

/// Why it was not taken apart to the end.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    /// The run ends.
    Halt(Halt),
    /// The server refused, in its words.
    Refused(String),
    /// Too much remains for a last DEL.
    Rest(u64),
    /// The server restarted: what it holds under that name now is to be found out.
    Restarted,
}

/// What interrupts the work on a chunk.
enum Break {
    Link(LinkError),
    /// The server is busy or loading.
    NotNow(String),
    End(End),
}

impl From<LinkError> for Break {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<Halt> for Break {
    fn from(halt: Halt) -> Self {
        Self::End(End::Halt(halt))
    }
}

/// Takes a confirmed key apart. What came of it is always told, however it ended.
pub(super) async fn take_apart(
    session: &mut Session<'_>,
    target: &Target<'_>,
    _confirmed: &Confirmed,
) -> TakenApart {
    let mut work = Work { session, target, done: TakenApart::default() };
    let mut reconnects = 0;
    let mut busy_since = None;
    loop {
        let removed = work.done.removed;
        let broke = match work.through().await {
            Ok(()) => return work.done,
            Err(Break::NotNow(why)) => {
                // As long as it goes on at all, its patience begins anew.
                let since =
                    busy_since.take().filter(|_| work.done.removed == removed).unwrap_or_else(Instant::now);
                busy_since = Some(since);
                match work.session.not_now(since, &why).await {
                    Ok(()) => continue,
                    Err(halt) => {
                        work.done.end = Some(End::Halt(halt));
                        return work.done;
                    }
                }
            }
            Err(Break::End(end)) => {
                work.done.end = Some(end);
                return work.done;
            }
            Err(Break::Link(error)) => error,
        };
        reconnects += 1;
        let again = if reconnects > RECONNECTS_MAX {
            Err(Halt::Lost(broke.to_string()))
        } else {
            work.session.reconnect(&broke).await
        };
        work.done.end = match again {
            Ok(SameServer::Yes) => continue,
            Ok(SameServer::Restarted) => Some(End::Restarted),
            Err(halt) => Some(End::Halt(halt)),
        };
        return work.done;
    }
}

struct Work<'a, 's, 'c> {
    session: &'a mut Session<'c>,
    target: &'a Target<'s>,
    done: TakenApart,
}

impl Work<'_, '_, '_> {
    /// All of it, from whatever state it is in: it may have been begun before.
    async fn through(&mut self) -> Result<(), Break> {
        if let Err(refusal) = self.session.select(self.target.db).await? {
            return Err(Break::End(End::Refused(refusal.message)));
        }
        match self.target.kind {
            Kind::Set | Kind::Hash => self.scan_and_remove().await?,
            Kind::Zset => self.cut_zset().await?,
            Kind::List => self.cut_list().await?,
            Kind::Stream => self.cut_stream().await?,
            _ => {}
        }
        self.remove_rest().await
    }

    fn on_name(&self, words: &[&str]) -> Command {
        Command::new(words).arg(self.target.name.as_bytes())
    }

    /// Takes an answer that must be no refusal.
    async fn settle(&mut self, pending: Pending) -> Result<(Value, Duration), Break> {
        let Answer { reply, cost } = self.session.answer(pending).await?;
        accept(reply).map(|value| (value, cost))
    }

    /// Sends a command once the gate is open, asks again while the server is not ready.
    async fn ask(&mut self, command: &Command) -> Result<(Value, Duration), Break> {
        let since = Instant::now();
        loop {
            self.session.gate().await?;
            let answer = self.session.run(command.clone()).await?;
            match answer.reply {
                Err(refusal) if meaning(&refusal.message) == Meaning::NotNow => {
                    self.session.not_now(since, &refusal.message).await?;
                }
                reply => return accept(reply).map(|value| (value, answer.cost)),
            }
        }
    }

    async fn length(&mut self) -> Result<u64, Break> {
        let command = self.target.kind.length_command().unwrap_or("LLEN");
        let (value, _) = self.ask(&self.on_name(&[command])).await?;
        Ok(reply_count(&value).unwrap_or(0))
    }

    fn chunk_done(&mut self, removed: u64, cost: Duration) {
        self.done.chunks += 1;
        self.done.slowest = self.done.slowest.max(cost);
        self.done.removed += removed;
        self.session.taking_apart(self.target.shown, self.done.removed, self.target.elements);
    }

    // ---- sets and hashes

    async fn scan_and_remove(&mut self) -> Result<(), Break> {
        if let Some(names) = self.names_of_fat_fields().await? {
            self.remove_fields(names).await?;
        }
        for _ in 0..PASSES_MAX {
            let before = self.done.removed;
            self.scan_once().await?;
            // What a whole walk does not find, the next will not either: fields past their TTL, which HSCAN
            // skips and HLEN counts.
            if self.done.removed == before || self.length().await? <= LAZYFREE_THRESHOLD {
                break;
            }
        }
        Ok(())
    }

    /// Asks for the names of a few fields that are so large that HSCAN, which ships their values, would stall
    /// everybody: 30 ms for a page of four fields of 8 MB. `None`: HSCAN will do.
    async fn names_of_fat_fields(&mut self) -> Result<Option<Vec<Vec<u8>>>, Break> {
        let ships_values = *self.target.kind == Kind::Hash && !self.leaves_values_out();
        if !ships_values || self.mean_bytes() < PAGE_BYTES_MAX {
            return Ok(None);
        }
        // Names only, and not many: looked at right before.
        if self.length().await? > REMOVE_MAX as u64 {
            return Ok(None);
        }
        let answer = self.session.run(self.on_name(&["HKEYS"])).await?;
        let Ok(Value::Array(names)) = answer.reply else { return Ok(None) };
        Ok(names.into_iter().map(reply_bytes).collect())
    }

    async fn remove_fields(&mut self, mut names: Vec<Vec<u8>>) -> Result<(), Break> {
        let mut sizer = ChunkSizer::new(1, 1, REMOVE_MAX as u64);
        while !names.is_empty() {
            self.session.gate().await?;
            let size = usize::try_from(sizer.size()).unwrap_or(REMOVE_MAX).min(names.len());
            let piece: Vec<Vec<u8>> = names.drain(..size).collect();
            let removal = self.session.launch(self.on_name(&["HDEL"]).args(piece));
            let cost = self.take_removal(Some((removal, size as u64)), &mut sizer).await?;
            self.session.rest(cost).await;
        }
        Ok(())
    }

    async fn scan_once(&mut self) -> Result<(), Break> {
        let mut pages = ChunkSizer::new(self.first_count(), self.least_count(), 4_000);
        let mut pieces = ChunkSizer::new(self.first_count(), self.least_count(), REMOVE_MAX as u64);
        self.session.gate().await?;
        let mut page = Some(self.launch_page("0", pages.size()));
        let mut removal: Option<(Pending, u64)> = None;
        let mut last_count = pages.size();
        while let Some(asked) = page.take() {
            let (value, cost) = self.settle(asked).await?;
            let Some((cursor, names)) = self.read_page(value) else {
                return Err(Break::End(End::Refused("the answer is no page with a cursor".to_owned())));
            };
            pages.observe(last_count, cost);
            last_count = pages.size().min(pieces.size());
            // A page may bring all at once; it is removed piece by piece before the next is asked for.
            let pieces_of_page = cut(names, pieces.size());
            let is_short = pieces_of_page.len() <= 2;
            if cursor != "0" && is_short {
                self.session.gate().await?;
                page = Some(self.launch_page(&cursor, last_count));
            }
            let mut spent = cost;
            for names in pieces_of_page {
                if !is_short {
                    self.session.gate().await?;
                }
                let count = names.len() as u64;
                let words = if *self.target.kind == Kind::Set { "SREM" } else { "HDEL" };
                let pending = self.session.launch(self.on_name(&[words]).args(names));
                // One may be under way while we read the next page; none piles up.
                spent += self.take_removal(removal.replace((pending, count)), &mut pieces).await?;
                if !is_short {
                    spent += self.take_removal(removal.take(), &mut pieces).await?;
                    self.session.rest(std::mem::take(&mut spent)).await;
                }
            }
            self.session.rest(spent).await;
            if cursor != "0" && page.is_none() {
                self.session.gate().await?;
                page = Some(self.launch_page(&cursor, last_count));
            }
        }
        self.take_removal(removal, &mut pieces).await?;
        Ok(())
    }

    /// Waits for a removal, where one is under way, and returns what it cost.
    async fn take_removal(
        &mut self,
        removal: Option<(Pending, u64)>,
        sizer: &mut ChunkSizer,
    ) -> Result<Duration, Break> {
        let Some((pending, sent)) = removal else { return Ok(Duration::ZERO) };
        let (value, cost) = self.settle(pending).await?;
        sizer.observe(sent, cost);
        self.chunk_done(reply_count(&value).unwrap_or(0), cost);
        Ok(cost)
    }

    fn launch_page(&mut self, cursor: &str, count: u64) -> Pending {
        let mut command =
            if *self.target.kind == Kind::Set { self.on_name(&["SSCAN"]) } else { self.on_name(&["HSCAN"]) };
        command = command.arg(cursor).arg("COUNT").number(count);
        if *self.target.kind == Kind::Hash && self.leaves_values_out() {
            command = command.arg("NOVALUES");
        }
        self.session.launch(command)
    }

    /// HSCAN NOVALUES came with Redis 7.4 and Valkey 8.0.
    fn leaves_values_out(&self) -> bool {
        let server = &self.session.profile;
        match server.flavour {
            Flavour::Redis => server.version >= Version::new(7, 4, 0),
            Flavour::Valkey => server.version >= Version::new(8, 0, 0),
            Flavour::Other(_) => false,
        }
    }

    /// COUNT of the first page: small where elements are large, since each costs its bytes.
    fn first_count(&self) -> u64 {
        (PAGE_BYTES_MAX / self.mean_bytes().max(1)).clamp(1, 500)
    }

    /// Bytes of an element, as planned.
    fn mean_bytes(&self) -> u64 {
        match (self.target.bytes, self.target.elements) {
            (Some(bytes), Some(elements)) => bytes / elements.max(1),
            _ => 64,
        }
    }

    /// Returns how many elements are left to the last UNLINK, which frees them at once. None, where 64 of
    /// them are what the chunks are for.
    fn rest_max(&self) -> u64 {
        if self.mean_bytes().saturating_mul(LAZYFREE_THRESHOLD) > REST_BYTES_MAX {
            0
        } else {
            LAZYFREE_THRESHOLD
        }
    }

    /// No chunk is smaller, however slow the answers are: a round trip costs as much as so many elements.
    fn least_count(&self) -> u64 {
        self.first_count().min(16)
    }

    /// Returns the cursor and the names of a page.
    fn read_page(&self, value: Value) -> Option<(String, Vec<Vec<u8>>)> {
        let Value::Array(parts) = value else { return None };
        let [cursor, items] = <[Value; 2]>::try_from(parts).ok()?;
        let Value::Array(items) = items else { return None };
        let with_values = *self.target.kind == Kind::Hash && !self.leaves_values_out();
        let step = if with_values { 2 } else { 1 };
        let names = items.into_iter().step_by(step).map(reply_bytes);
        Some((reply_text(&cursor)?, names.collect::<Option<_>>()?))
    }

    // ---- sorted sets

    async fn cut_zset(&mut self) -> Result<(), Break> {
        let mut sizer = ChunkSizer::new(self.first_count(), self.least_count(), 20_000);
        let mut left = self.length().await?;
        let rest = self.rest_max();
        let mut pending: Option<(Pending, u64)> = None;
        loop {
            let mut next = None;
            if left > rest {
                self.session.gate().await?;
                let size = sizer.size().min(left);
                // From the end: as cheap as the beginning, or cheaper.
                let command = self.on_name(&["ZREMRANGEBYRANK"]).number(-i128::from(size)).number(-1);
                next = Some((self.session.launch(command), size));
                left -= size;
            }
            if let Some((pending, size)) = pending.take() {
                let (value, cost) = self.settle(pending).await?;
                let removed = reply_count(&value).unwrap_or(0);
                sizer.observe(size, cost);
                self.chunk_done(removed, cost);
                self.session.rest(cost).await;
                if removed < size {
                    left = 0;
                }
            }
            match next {
                Some(next) => pending = Some(next),
                None => return Ok(()),
            }
        }
    }

    // ---- lists

    async fn cut_list(&mut self) -> Result<(), Break> {
        let mean = self.mean_bytes();
        // Whole nodes go at once: 8 KB of small elements each.
        let first = (PAGE_BYTES_MAX / mean.max(1)).clamp(1, 10_000);
        let mut sizer = ChunkSizer::new(first, 1, 1_000_000);
        let mut left = self.length().await?;
        let rest = self.rest_max();
        while left > rest {
            let size = sizer.size().min(left);
            self.session.gate().await?;
            let command = self.on_name(&["LTRIM"]).number(0).number(-i128::from(size) - 1);
            let cut = self.session.launch(command);
            let counted = self.session.launch(self.on_name(&["LLEN"]));
            let (_, cost) = self.settle(cut).await?;
            let (value, _) = self.settle(counted).await?;
            let now = reply_count(&value).unwrap_or(0);
            sizer.observe(size, cost);
            self.chunk_done(left.saturating_sub(now), cost);
            self.session.rest(cost).await;
            left = now;
        }
        Ok(())
    }

    // ---- streams

    async fn cut_stream(&mut self) -> Result<(), Break> {
        // First: where they are not told, nothing was taken from it yet.
        let groups = self.groups().await?;
        let mut sizer = ChunkSizer::new(10_000.min(self.first_count() * 20), 1, 1_000_000);
        let mut left = self.length().await?;
        while left > 0 {
            let keep = left.saturating_sub(sizer.size());
            let (value, cost) = self.ask(&self.on_name(&["XTRIM"]).arg("MAXLEN").number(keep)).await?;
            let removed = reply_count(&value).unwrap_or(0);
            sizer.observe(removed.max(1), cost);
            self.chunk_done(removed, cost);
            self.session.rest(cost).await;
            if removed == 0 {
                break;
            }
            left = keep;
        }
        for group in groups {
            self.acknowledge_all(&group).await?;
            let (_, cost) = self.ask(&self.on_name(&["XGROUP", "DESTROY"]).arg(&group)).await?;
            self.chunk_done(0, cost);
        }
        Ok(())
    }

    async fn groups(&mut self) -> Result<Vec<Vec<u8>>, Break> {
        let (value, _) =
            self.ask(&Command::new(&["XINFO", "GROUPS"]).arg(self.target.name.as_bytes())).await?;
        let Value::Array(groups) = value else { return Ok(Vec::new()) };
        Ok(groups.iter().filter_map(|group| reply_bytes(reply_field(group, "name")?.clone())).collect())
    }

    /// Empties the list of pending entries, which XGROUP DESTROY would free at once.
    async fn acknowledge_all(&mut self, group: &[u8]) -> Result<(), Break> {
        let mut sizer = ChunkSizer::new(500, 1, REMOVE_MAX as u64);
        loop {
            let command = self.on_name(&["XPENDING"]).arg(group).arg("-").arg("+").number(sizer.size());
            let (value, asked) = self.ask(&command).await?;
            let Value::Array(rows) = value else { return Ok(()) };
            let ids: Vec<String> = rows
                .iter()
                .filter_map(|row| match row {
                    Value::Array(cells) => cells.first().and_then(reply_text),
                    _ => None,
                })
                .collect();
            if ids.is_empty() {
                return Ok(());
            }
            let sent = ids.len() as u64;
            let (value, cost) = self.ask(&self.on_name(&["XACK"]).arg(group).args(ids)).await?;
            sizer.observe(sent, cost.max(asked));
            self.chunk_done(0, cost.max(asked));
            self.session.rest(cost + asked).await;
            if reply_count(&value) == Some(0) {
                return Ok(());
            }
        }
    }

    // ---- the rest

    async fn remove_rest(&mut self) -> Result<(), Break> {
        let left = self.length().await?;
        if left == 0 && *self.target.kind != Kind::Stream {
            // It went with its last element, and whoever has that name now is somebody else.
            return Ok(());
        }
        if !self.session.access.unlink && left > LAST_DEL_MAX {
            return Err(Break::End(End::Rest(left)));
        }
        let act = if self.session.access.unlink { Act::Unlink } else { Act::Del };
        if self.target.in_place {
            return self.remove_rest_in_place(&act).await;
        }
        let word = if act == Act::Unlink { "UNLINK" } else { "DEL" };
        match self.ask(&self.on_name(&[word])).await {
            Ok((_, cost)) => self.chunk_done(0, cost),
            // What could not be found out before: it counts as allowed until it is refused.
            Err(Break::End(End::Refused(message)))
                if act == Act::Unlink && meaning(&message) == Meaning::Denied =>
            {
                self.session.access.unlink = false;
                return Box::pin(self.remove_rest()).await;
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Others may have made another key of that name by now: only what is left of this one goes.
    async fn remove_rest_in_place(&mut self, act: &Act<'_>) -> Result<(), Break> {
        let left = match self.target.elements {
            Some(elements) if *self.target.kind != Kind::Stream => elements,
            _ => 0,
        };
        let expected =
            Expected::new(self.target.kind, None, Some(left), None, Expiry::Unknown, 0.0, None).at_most();
        self.session.gate().await?;
        match recheck::act(self.session, self.target.name, &expected, act).await? {
            Acted::Confirmed(confirmed) => self.chunk_done(0, confirmed.cost),
            Acted::Refused(message) => return Err(Break::End(End::Refused(message))),
            Acted::Changed(_) | Acted::Taken | Acted::Occupied(_) => {}
        }
        Ok(())
    }
}

/// Takes a reply that must be no refusal.
fn accept(reply: Reply) -> Result<Value, Break> {
    reply.map_err(|refusal| match meaning(&refusal.message) {
        Meaning::NotNow => Break::NotNow(refusal.message),
        Meaning::NoWrites => Break::End(End::Halt(Halt::Refused(refusal.message))),
        _ => Break::End(End::Refused(refusal.message)),
    })
}

/// Cuts names into pieces that one command may hold.
fn cut(names: Vec<Vec<u8>>, size: u64) -> Vec<Vec<Vec<u8>>> {
    let size = usize::try_from(size).unwrap_or(REMOVE_MAX).clamp(1, REMOVE_MAX);
    let mut pieces = Vec::new();
    let (mut piece, mut bytes) = (Vec::new(), 0);
    for name in names {
        if piece.len() == size || (bytes > REMOVE_BYTES_MAX && !piece.is_empty()) {
            pieces.push(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes += name.len();
        piece.push(name);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_too_large_is_cut_by_count_and_by_bytes() {
        let names: Vec<Vec<u8>> = (0..2_500).map(|index: u32| index.to_string().into_bytes()).collect();
        let pieces = cut(names.clone(), 5_000);
        assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [1_000, 1_000, 500]);
        assert_eq!(pieces.concat(), names);
        let large: Vec<Vec<u8>> = (0..4).map(|_| vec![b'x'; 300 << 10]).collect();
        assert_eq!(cut(large, 100).len(), 4);
    }
}
