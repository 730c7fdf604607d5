//! Measures the keys of a page: what to ask, and what the answers say.
//!
//! Cheap first. The census asks TYPE and MEMORY USAGE of every key; details (encoding, length, TTL,
//! idle time) are asked of candidates only; lists and streams have a third step. Building a pipeline
//! and reading its replies are pure, so that the scan decides what is in flight when.
//!
//! Order within a key matters. MEMORY USAGE comes first since it neither expires a key nor counts as an
//! access. OBJECT IDLETIME comes before the length, because on servers without CLIENT NO-TOUCH the
//! length command resets it.

use std::time::{Duration, SystemTime};

use redis::Value;

use super::batch::Batch;
use super::model::modelled_bytes;
use super::reply::{Refusal, RefusalKind, Reply, count, field, text};
use crate::engine::key::{
    Access, BytesBasis, Encoding, Expiry, KeyFacts, KeyName, Kind, Measured, ServerProfile, SkipReason,
    StreamFacts,
};

/// What the census learned of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CensusFacts {
    /// It was there.
    Seen {
        /// Its type.
        kind: Kind,
        /// Its size. `None`: MEMORY USAGE is refused.
        size: Option<Measured>,
        /// Its time to live, where the census asks for it.
        expiry: Expiry,
    },
    /// It could not be measured.
    Skipped(SkipReason, Option<Box<str>>),
}

/// Why the details of a key are not to be had.
pub type DetailsMissing = (SkipReason, Option<Box<str>>);

/// Asks and reads, as far as this server and this user allow.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is one command that may or may not be asked")]
pub struct Inspector {
    samples: u32,
    /// The census asks PTTL as well.
    asks_ttl: bool,
    asks_memory: bool,
    memory_is_exact: bool,
    asks_encoding: bool,
    asks_idle: bool,
    asks_freq: bool,
    asks_xinfo: bool,
}

/// Groups that a stream may have for XINFO GROUPS to be asked: its reply cannot be cut, and takes the
/// server about a microsecond a group.
const STREAM_GROUPS_MAX: u64 = 4096;

impl Inspector {
    /// Makes an inspector for a server. `samples` goes to MEMORY USAGE.
    pub fn new(profile: &ServerProfile, samples: u32) -> Self {
        Self {
            samples,
            asks_ttl: false,
            asks_memory: profile.allows(Access::MemoryUsage),
            memory_is_exact: profile.memory_usage_is_exact() || samples == 0,
            asks_encoding: profile.allows(Access::ObjectEncoding),
            asks_idle: profile.allows(Access::ObjectIdletime),
            asks_freq: profile.allows(Access::ObjectFreq),
            asks_xinfo: profile.allows(Access::Xinfo),
        }
    }

    /// Makes the census ask for the time to live too: for those who act on small keys.
    #[must_use]
    pub fn with_ttl(mut self) -> Self {
        self.asks_ttl = true;
        self
    }

    /// Returns whether sizes come from MEMORY USAGE.
    pub fn measures_memory(&self) -> bool {
        self.asks_memory
    }

    /// Returns how many commands the census sends for a key.
    pub fn census_commands_per_key(&self) -> usize {
        1 + usize::from(self.asks_memory) + usize::from(self.asks_ttl)
    }

    /// Adds the census commands for one key.
    pub fn ask_census(&self, batch: &mut Batch, key: &KeyName) {
        if self.asks_memory {
            batch.memory_usage(key, u64::from(self.samples));
        }
        batch.on_key(&["TYPE"], key);
        if self.asks_ttl {
            batch.on_key(&["PTTL"], key);
        }
    }

    /// Reads the replies to [`Self::ask_census`], one key after the other.
    pub fn read_census(&self, replies: Vec<Reply>) -> impl Iterator<Item = CensusFacts> {
        let mut replies = replies.into_iter();
        let (asks_memory, asks_ttl) = (self.asks_memory, self.asks_ttl);
        let exact = self.memory_is_exact;
        std::iter::from_fn(move || {
            let memory = if asks_memory { Some(replies.next()?) } else { None };
            let kind = replies.next()?;
            let pttl = if asks_ttl { Some(replies.next()?) } else { None };
            Some(census_facts(memory, kind, pttl, exact))
        })
    }

    /// Commands that [`Self::ask_details`] adds, at the most.
    pub const DETAIL_COMMANDS_MAX: usize = 5;

    /// Adds the detail commands for one key and returns how many they are.
    pub fn ask_details(&self, batch: &mut Batch, key: &KeyName, kind: &Kind) -> usize {
        let before = batch.len();
        if self.asks_idle {
            batch.on_key(&["OBJECT", "IDLETIME"], key);
        } else if self.asks_freq {
            batch.on_key(&["OBJECT", "FREQ"], key);
        }
        if self.asks_encoding {
            batch.on_key(&["OBJECT", "ENCODING"], key);
        }
        batch.on_key(&["PTTL"], key);
        if let Some(command) = kind.length_command() {
            batch.on_key(&[command], key);
        }
        if *kind == Kind::Stream && self.asks_xinfo {
            batch.on_key(&["XINFO", "STREAM"], key);
        }
        batch.len() - before
    }

    /// Reads the replies to [`Self::ask_details`] for one key.
    ///
    /// # Errors
    /// When the key is gone, another one by now, or not for us.
    pub fn read_details(
        &self,
        db: u32,
        key: KeyName,
        kind: Kind,
        size: Option<Measured>,
        replies: Vec<Reply>,
        observed_at: SystemTime,
    ) -> Result<KeyFacts, (KeyName, DetailsMissing)> {
        let mut replies = replies.into_iter();
        let mut next = || replies.next();
        let access = if self.asks_idle || self.asks_freq { next() } else { None };
        let encoding = if self.asks_encoding { next() } else { None };
        let pttl = next();
        let length = if kind.length_command().is_some() { next() } else { None };
        let xinfo = if kind == Kind::Stream && self.asks_xinfo { next() } else { None };

        let mut facts = KeyFacts::unasked(db, key, kind, size, observed_at);
        match self.fill(&mut facts, access, encoding, pttl, length, xinfo) {
            Ok(()) => Ok(facts),
            Err(missing) => Err((facts.key, missing)),
        }
    }

    fn fill(
        &self,
        facts: &mut KeyFacts,
        access: Option<Reply>,
        encoding: Option<Reply>,
        pttl: Option<Reply>,
        length: Option<Reply>,
        xinfo: Option<Reply>,
    ) -> Result<(), DetailsMissing> {
        if let Some(value) = present(access)? {
            if self.asks_idle {
                facts.idle = count(&value).map(Duration::from_secs);
            } else {
                facts.freq = count(&value).and_then(|freq| u8::try_from(freq).ok());
            }
        }
        let encoding = present(encoding)?.as_ref().and_then(text);
        facts.encoding = encoding.map(|word| Encoding::from_reply(&word));
        facts.expiry = read_pttl(pttl)?;
        facts.elements = present(length)?.as_ref().and_then(count);
        // A collection without elements does not exist: the length commands answer 0 for a key that is gone.
        if facts.elements == Some(0) && matches!(facts.kind, Kind::List | Kind::Set | Kind::Zset | Kind::Hash)
        {
            return Err((SkipReason::Vanished, None));
        }
        facts.stream = present(xinfo)?.as_ref().and_then(stream_head);
        self.settle_size(facts);
        Ok(())
    }

    /// With the encoding known, says how the size is known, and models it where it was refused.
    fn settle_size(&self, facts: &mut KeyFacts) {
        let compact = matches!(
            facts.encoding,
            Some(Encoding::Intset | Encoding::Listpack | Encoding::ListpackEx | Encoding::Ziplist)
        );
        match &mut facts.size {
            Some(size) if compact => size.basis = BytesBasis::Measured,
            None if !self.asks_memory => {
                facts.size = facts
                    .elements
                    .and_then(|elements| modelled_bytes(&facts.kind, facts.encoding.as_ref(), elements))
                    .map(|bytes| Measured { bytes, basis: BytesBasis::Modelled });
            }
            Some(_) | None => {}
        }
    }
}

/// Returns whether XINFO GROUPS should be asked of a stream.
pub fn wants_groups(facts: &KeyFacts) -> bool {
    facts.stream.is_some_and(|stream| (1..=STREAM_GROUPS_MAX).contains(&stream.groups))
}

/// Reads the answer of XINFO GROUPS into the facts; where it was refused, the stream is unknown.
pub fn read_groups(facts: &mut KeyFacts, reply: Reply) {
    let Some(stream) = &mut facts.stream else { return };
    let Ok(Value::Array(groups)) = reply else {
        facts.stream = None;
        return;
    };
    let number = |group: &Value, name: &str| field(group, name).and_then(count);
    // The server walks groups in name order, which is the order of its effort rule too.
    for (index, group) in groups.iter().enumerate() {
        let (Some(pending), Some(consumers)) = (number(group, "pending"), number(group, "consumers")) else {
            facts.stream = None;
            return;
        };
        if index == 0 {
            stream.first_group_pending = pending;
        }
        stream.pending = stream.pending.saturating_add(pending);
        stream.consumers = stream.consumers.saturating_add(consumers);
    }
    stream.groups = groups.len() as u64;
}

/// Reads `ql_nodes` out of the answer of DEBUG OBJECT. `None`: it does not say.
pub fn read_ql_nodes(reply: Reply) -> Option<u64> {
    let line = text(&reply.ok()?)?;
    line.split_whitespace().find_map(|word| word.strip_prefix("ql_nodes:"))?.parse().ok()
}

/// Returns a reply that is a number of bytes or elements. `None`: it is none.
pub fn read_count(reply: Reply) -> Option<u64> {
    count(&reply.ok()?)
}

/// Returns the elements in the answer of LRANGE or LINDEX; none where it was refused.
pub fn read_elements(reply: Reply) -> Vec<Vec<u8>> {
    let bytes = |value: Value| match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    };
    match reply {
        Ok(Value::Array(items)) => items.into_iter().filter_map(bytes).collect(),
        Ok(value) => bytes(value).into_iter().collect(),
        Err(_) => Vec::new(),
    }
}

fn stream_head(value: &Value) -> Option<StreamFacts> {
    let number = |name: &str| field(value, name).and_then(count);
    let groups = number("groups")?;
    if groups > STREAM_GROUPS_MAX {
        return None;
    }
    Some(StreamFacts {
        radix_tree_nodes: number("radix-tree-nodes")?,
        radix_tree_keys: number("radix-tree-keys")?,
        groups,
        ..StreamFacts::default()
    })
}

fn read_pttl(reply: Option<Reply>) -> Result<Expiry, DetailsMissing> {
    Ok(match present(reply)? {
        Some(Value::Int(-2)) => return Err((SkipReason::Vanished, None)),
        Some(Value::Int(-1)) => Expiry::Never,
        Some(value) => count(&value).map_or(Expiry::Unknown, |ms| Expiry::In(Duration::from_millis(ms))),
        None => Expiry::Unknown,
    })
}

fn census_facts(memory: Option<Reply>, kind: Reply, pttl: Option<Reply>, exact: bool) -> CensusFacts {
    let kind = match kind {
        Ok(value) => {
            let Some(word) = text(&value) else { return unreadable("TYPE") };
            let Some(kind) = Kind::from_type_reply(&word) else {
                return CensusFacts::Skipped(SkipReason::Vanished, None);
            };
            kind
        }
        Err(refusal) => {
            let (why, detail) = skip(&refusal);
            return CensusFacts::Skipped(why, detail);
        }
    };
    let size = match memory {
        None => None,
        Some(Ok(Value::Nil)) => return CensusFacts::Skipped(SkipReason::Vanished, None),
        Some(Ok(value)) => {
            let Some(bytes) = count(&value) else { return unreadable("MEMORY USAGE") };
            // Modules estimate for themselves, whatever the server counts.
            let counted = exact && !matches!(kind, Kind::VectorSet | Kind::Other(_));
            let basis =
                if counted || kind == Kind::String { BytesBasis::Measured } else { BytesBasis::Sampled };
            Some(Measured { bytes, basis })
        }
        Some(Err(refusal)) => {
            let (why, detail) = skip(&refusal);
            return CensusFacts::Skipped(why, detail);
        }
    };
    match read_pttl(pttl) {
        Ok(expiry) => CensusFacts::Seen { kind, size, expiry },
        Err((why, detail)) => CensusFacts::Skipped(why, detail),
    }
}

/// An answer that the command never gives: nothing follows from it, not even that the key is gone.
fn unreadable(command: &str) -> CensusFacts {
    CensusFacts::Skipped(
        SkipReason::ServerError,
        Some(format!("{command} gave no answer that it gives").into()),
    )
}

/// Returns the value, `None` where it was not asked or is refused for this command alone, and an error
/// where the key itself is gone or closed.
fn present(reply: Option<Reply>) -> Result<Option<Value>, DetailsMissing> {
    match reply {
        None => Ok(None),
        Some(Ok(Value::Nil)) => Err((SkipReason::Vanished, None)),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(refusal)) => match refusal.kind {
            RefusalKind::CommandDenied | RefusalKind::UnknownCommand | RefusalKind::Other
                if !refusal.message.contains("no such key") =>
            {
                Ok(None)
            }
            RefusalKind::Other => Err((SkipReason::Vanished, None)),
            _ => Err(skip(&refusal)),
        },
    }
}

fn skip(refusal: &Refusal) -> DetailsMissing {
    let why = match refusal.kind {
        RefusalKind::CommandDenied | RefusalKind::KeyDenied | RefusalKind::AuthNeeded => {
            SkipReason::NoPermission
        }
        RefusalKind::WrongType => SkipReason::ChangedType,
        RefusalKind::Moved => SkipReason::Moved,
        RefusalKind::NotNow | RefusalKind::UnknownCommand | RefusalKind::Other => SkipReason::ServerError,
    };
    (why, Some(refusal.message.as_str().into()))
}
