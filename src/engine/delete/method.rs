//! Chooses how a key will be removed. Sends nothing, reads no clock; `execute` carries the choice out.
//!
//! The question is always the same: would anybody notice? UNLINK is right for nearly every key, and wrong for
//! those whose work the server does not see: few but huge elements, a stream whose pending entries are in a
//! later group, a string of many megabytes. docs/deletion-safety.md has the measurements.

use std::time::Duration;

use crate::engine::key::{
    Access, Encoding, Expiry, KeyFacts, Kind, ListNodeLimit, Permission, ServerProfile,
};
use crate::engine::live::WriteAccess;
use crate::engine::risk::{Effect, LAZYFREE_THRESHOLD, Level, Verdict};

/// How a key is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// UNLINK.
    Unlink,
    /// DEL: only for what is small, where UNLINK is not to be had.
    Del,
    /// Add members until the server leaves the value to its background thread, then UNLINK.
    Pad,
    /// Rename it, and take it apart a millisecond at a time.
    Chunked,
    /// MOVE it to an empty database, and FLUSHDB ASYNC that.
    Quarantine,
    /// Give it a time to live.
    Expire,
}

impl Method {
    /// All of them, as the reports list them.
    pub const ALL: [Self; 6] =
        [Self::Unlink, Self::Del, Self::Pad, Self::Chunked, Self::Quarantine, Self::Expire];

    /// Returns the word used in flags and outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unlink => "unlink",
            Self::Del => "del",
            Self::Pad => "pad",
            Self::Chunked => "chunked",
            Self::Quarantine => "quarantine",
            Self::Expire => "expire",
        }
    }

    /// Returns the method of that name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == word)
    }
}

/// What the operator says of methods.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodOptions {
    /// This one, for every key.
    pub forced: Option<Method>,
    /// An empty database for `quarantine`.
    pub quarantine_db: Option<u32>,
    /// Keys whose best method is predicted to stall everybody for longer are left alone.
    pub stall_max: Duration,
}

/// How a key will be removed, and why so.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// How.
    pub method: Method,
    /// Why, in a sentence.
    pub reason: String,
    /// Prediction: how long everybody waits because of it, in milliseconds.
    pub stall_ms: f64,
    /// Whether the method was asked for and another one would be better; says which and why.
    pub warning: Option<String>,
}

/// Predicted stalls below this need no method but UNLINK.
const UNNOTICED_MS: f64 = 1.0;
/// What a chunk takes: `sizer::CHUNK_TARGET`.
const CHUNK_MS: f64 = 1.0;
/// Measured: 0.013 to 0.02 ms for hashes, 0.02 ms and the copying of half a megabyte for lists.
const PAD_MS: f64 = 0.5;
/// Measured: 0.15 to 0.45 ms for the script.
const QUARANTINE_MS: f64 = 0.5;
/// Handing a value to the background thread.
const HAND_OVER_MS: f64 = 0.02;

/// Chooses a method for a key that was measured and judged on this server.
///
/// # Errors
/// When no method is safe enough, with the reason in words.
pub fn choose(
    facts: &KeyFacts,
    verdict: &Verdict,
    server: &ServerProfile,
    access: &WriteAccess,
    options: &MethodOptions,
) -> Result<Choice, String> {
    let case = Case { facts, verdict, server, access, options };
    let best = case.best();
    let choice = match options.forced {
        None => best?,
        Some(method) => case.forced(method, best.as_ref().ok())?,
    };
    let stall_max_ms = options.stall_max.as_secs_f64() * 1e3;
    if choice.stall_ms > stall_max_ms {
        let way_out = if facts.kind == Kind::String && options.quarantine_db.is_none() && !server.cluster {
            "; --quarantine-db N moves it out of the way, --max-stall allows it"
        } else {
            "; --max-stall allows it"
        };
        return Err(format!(
            "{} would stall everybody for about {:.0} ms ({}){way_out}",
            choice.method.as_str(),
            choice.stall_ms,
            choice.reason
        ));
    }
    Ok(choice)
}

/// One key and all that decides.
struct Case<'a> {
    facts: &'a KeyFacts,
    verdict: &'a Verdict,
    server: &'a ServerProfile,
    access: &'a WriteAccess,
    options: &'a MethodOptions,
}

impl Case<'_> {
    fn best(&self) -> Result<Choice, String> {
        let stall_ms = self.inline_ms();
        if !self.access.unlink {
            return self.without_unlink(stall_ms);
        }
        if self.is_small() {
            return Ok(chosen(Method::Unlink, stall_ms, "small: freed at once, and nobody notices"));
        }
        match self.verdict.effects.unlink {
            Effect::Background => {
                let effort = self.verdict.free_effort.unwrap_or(0);
                let reason = format!("effort {effort} > {LAZYFREE_THRESHOLD}: freed in the background");
                Ok(chosen(Method::Unlink, HAND_OVER_MS, reason))
            }
            Effect::Inline if stall_ms < UNNOTICED_MS => {
                Ok(chosen(Method::Unlink, stall_ms, "freed at once, in less than a millisecond"))
            }
            Effect::Inline => Ok(self.blind_spot(stall_ms)),
            Effect::Unknown | Effect::None if self.can_chunk() => Ok(chosen(
                Method::Chunked,
                CHUNK_MS,
                "whether UNLINK frees it in the background is not known",
            )),
            Effect::Unknown | Effect::None => Err(format!(
                "how the server frees the type `{}` is not known; --method unlink takes the risk",
                self.facts.kind
            )),
        }
    }

    /// UNLINK would free it at once, and everybody would notice.
    fn blind_spot(&self, stall_ms: f64) -> Choice {
        match self.facts.kind {
            Kind::Stream => chosen(
                Method::Chunked,
                CHUNK_MS,
                "the server does not count its pending entries, and would free them at once",
            ),
            _ if self.can_pad() => chosen(
                Method::Pad,
                PAD_MS,
                format!(
                    "few but large elements: {PADS} small ones more, and UNLINK leaves it to the background",
                    PADS = super::script::PADS
                ),
            ),
            _ if self.can_quarantine() => chosen(
                Method::Quarantine,
                QUARANTINE_MS,
                "one large block: moved to the empty database, and flushed there in the background",
            ),
            _ if self.can_chunk() => chosen(Method::Chunked, CHUNK_MS, "UNLINK would free it at once"),
            _ => chosen(Method::Unlink, stall_ms, "one block, which no method frees in pieces"),
        }
    }

    fn without_unlink(&self, stall_ms: f64) -> Result<Choice, String> {
        if self.verdict.effects.del == Effect::Background {
            return Ok(chosen(
                Method::Del,
                HAND_OVER_MS,
                "UNLINK is not to be had; DEL frees in the background here (lazyfree-lazy-user-del yes)",
            ));
        }
        if self.is_small() || (self.has_little_effort() && stall_ms < UNNOTICED_MS) {
            return Ok(chosen(Method::Del, stall_ms, "small, and UNLINK is not to be had"));
        }
        if self.can_chunk() {
            return Ok(chosen(Method::Chunked, CHUNK_MS, "UNLINK is not to be had"));
        }
        if self.can_quarantine() {
            return Ok(chosen(Method::Quarantine, QUARANTINE_MS, "UNLINK is not to be had"));
        }
        match self.facts.kind {
            Kind::String => Ok(chosen(Method::Del, stall_ms, "one block, and UNLINK is not to be had")),
            _ => Err("UNLINK is not to be had, and DEL might stall".to_owned()),
        }
    }

    fn forced(&self, method: Method, best: Option<&Choice>) -> Result<Choice, String> {
        let kind = &self.facts.kind;
        let stall_ms = self.inline_ms();
        let choice = match method {
            Method::Unlink if !self.access.unlink => return Err("UNLINK is not to be had".to_owned()),
            Method::Unlink => {
                let ms =
                    if self.verdict.effects.unlink == Effect::Background { HAND_OVER_MS } else { stall_ms };
                chosen(method, ms, "asked for")
            }
            Method::Del => {
                if self.access.unlink || !(self.is_small() || self.has_little_effort()) {
                    return Err(
                        "DEL is only for keys of effort 64 and less where UNLINK is not to be had".to_owned()
                    );
                }
                chosen(method, stall_ms, "asked for")
            }
            Method::Pad if !self.can_be_padded() => return Err(format!("a {kind} cannot be padded here")),
            Method::Pad => chosen(method, PAD_MS, "asked for"),
            Method::Chunked if *kind == Kind::Stream && !self.can_chunk() => {
                return Err("a stream is taken apart group by group, and XINFO is not to be had".to_owned());
            }
            Method::Chunked if !self.can_chunk() => {
                return Err(format!("a {kind} cannot be taken apart in chunks"));
            }
            Method::Chunked => chosen(method, CHUNK_MS, "asked for"),
            Method::Quarantine if self.options.quarantine_db.is_none() => {
                return Err("quarantine needs an empty database: --quarantine-db N".to_owned());
            }
            Method::Quarantine if !self.can_quarantine() => {
                return Err("quarantine needs scripts, and databases that a cluster does not have".to_owned());
            }
            Method::Quarantine => chosen(method, QUARANTINE_MS, "asked for"),
            Method::Expire => self.expire(stall_ms)?,
        };
        let warning = best
            .filter(|best| best.method != method && best.stall_ms < choice.stall_ms)
            .map(|best| format!("{} would be better here: {}", best.method.as_str(), best.reason));
        Ok(Choice { warning, ..choice })
    }

    fn expire(&self, stall_ms: f64) -> Result<Choice, String> {
        // What would happen if it had a time to live, which is what it gets.
        let is_background =
            self.server.lazyfree.expire == Some(true) && self.verdict.effects.unlink == Effect::Background;
        if is_background || stall_ms < UNNOTICED_MS {
            return Ok(chosen(
                Method::Expire,
                if is_background { HAND_OVER_MS } else { stall_ms },
                "asked for; it goes when its time is up",
            ));
        }
        let word = match self.server.lazyfree.expire {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        Err(format!(
            "its expiry would stall everybody for about {stall_ms:.0} ms (lazyfree-lazy-expire is {word})"
        ))
    }

    /// How long everybody waits if it is freed at once. A key that was not worth a judgement takes no time.
    fn inline_ms(&self) -> f64 {
        match self.verdict.predicted_stall_ms {
            Some(ms) => ms,
            None if self.verdict.level == Some(Level::None) => 0.0,
            None => f64::INFINITY,
        }
    }

    fn is_small(&self) -> bool {
        self.verdict.level == Some(Level::None) && self.inline_ms() < UNNOTICED_MS
    }

    /// Returns whether the server would free it at once, whatever it is asked.
    fn has_little_effort(&self) -> bool {
        self.verdict.free_effort.is_some_and(|effort| effort <= LAZYFREE_THRESHOLD)
    }

    fn can_chunk(&self) -> bool {
        match self.facts.kind {
            Kind::List | Kind::Set | Kind::Zset | Kind::Hash => true,
            // Its groups have to be known by name; what has no answer yet is asked again.
            Kind::Stream => !matches!(
                self.server.access.get(&Access::Xinfo),
                Some(Permission::Denied | Permission::Unsupported)
            ),
            _ => false,
        }
    }

    fn can_be_padded(&self) -> bool {
        // In one step or not at all: a key that is not deleted in the end must not keep what was added.
        (self.access.eval || self.access.transactions)
            && matches!(self.facts.kind, Kind::List | Kind::Set | Kind::Zset | Kind::Hash)
    }

    fn can_pad(&self) -> bool {
        let is_block = matches!(
            self.facts.encoding,
            Some(Encoding::Listpack | Encoding::ListpackEx | Encoding::Ziplist | Encoding::Intset)
        );
        // Growing a compact encoding of many megabytes would copy it whole.
        self.can_be_padded() && !is_block
    }

    fn can_quarantine(&self) -> bool {
        self.options.quarantine_db.is_some_and(|db| db != self.facts.db)
            && !self.server.cluster
            && self.access.eval
    }
}

fn chosen(method: Method, stall_ms: f64, reason: impl Into<String>) -> Choice {
    Choice { method, reason: reason.into(), stall_ms, warning: None }
}

/// Returns the bytes of a list element that gets a node of its own, whatever its neighbours.
pub(super) fn list_pad_bytes(limit: ListNodeLimit) -> u64 {
    // A node is full at its limit, and at 8 KB where the limit is a number of elements.
    match limit {
        ListNodeLimit::Bytes(bytes) => u64::from(bytes) + 1,
        ListNodeLimit::Elements(_) => 8_193,
    }
}

/// Returns what DEL would make everybody wait, in milliseconds. `None`: not known.
pub(super) fn del_stall_ms(verdict: &Verdict) -> Option<f64> {
    match verdict.effects.del {
        Effect::Background => Some(HAND_OVER_MS),
        _ if verdict.level == Some(Level::None) => Some(verdict.predicted_stall_ms.unwrap_or(0.0)),
        _ => verdict.predicted_stall_ms,
    }
}

/// Returns what a key's expiry would make everybody wait while it is being deleted, in milliseconds: where
/// it has a time to live and is freed at once when that is up.
pub(super) fn expiry_stall_ms(facts: &KeyFacts, verdict: &Verdict) -> Option<f64> {
    let ticks = matches!(facts.expiry, Expiry::In(_)) && verdict.effects.expire == Effect::Inline;
    verdict.predicted_stall_ms.filter(|ms| ticks && *ms >= UNNOTICED_MS)
}

#[cfg(test)]
mod tests {
    use crate::engine::key::StreamFacts;
    use crate::engine::risk::judge;
    use crate::engine::risk::samples::{
        collection, expiring, key, list, policy, redis, sized, stream, string, valkey,
    };

    use super::*;

    const ALL: WriteAccess = WriteAccess::ALL;
    const NO_UNLINK: WriteAccess = WriteAccess { unlink: false, ..ALL };
    const NO_EVAL: WriteAccess = WriteAccess { eval: false, ..ALL };

    type Case = (&'static str, KeyFacts, WriteAccess, Option<u32>, Result<Method, &'static str>);

    fn options(forced: Option<Method>, quarantine_db: Option<u32>) -> MethodOptions {
        MethodOptions { forced, quarantine_db, stall_max: Duration::from_millis(10) }
    }

    fn chosen_on(
        server: ServerProfile,
        facts: &KeyFacts,
        access: WriteAccess,
        options: &MethodOptions,
    ) -> Result<Choice, String> {
        let policy = policy(server);
        choose(facts, &judge(facts, &policy), &policy.server, &access, options)
    }

    fn set(members: u64) -> KeyFacts {
        sized(collection(Kind::Set, Encoding::Hashtable, members), members * 56)
    }

    fn hash_of_giants() -> KeyFacts {
        sized(collection(Kind::Hash, Encoding::Hashtable, 64), 512 << 20)
    }

    fn blind_stream() -> KeyFacts {
        let facts = StreamFacts {
            radix_tree_nodes: 2,
            groups: 2,
            pending: 500_000,
            first_group_pending: 0,
            radix_tree_keys: 1,
            consumers: 1,
        };
        sized(stream(facts), 60 << 20)
    }

    #[test]
    fn each_key_gets_the_method_that_nobody_notices() {
        let cases: [Case; 16] = [
            ("small", set(50), ALL, None, Ok(Method::Unlink)),
            ("small, no UNLINK", set(50), NO_UNLINK, None, Ok(Method::Del)),
            ("large", set(3_000_000), ALL, None, Ok(Method::Unlink)),
            ("large, no UNLINK", set(3_000_000), NO_UNLINK, None, Ok(Method::Chunked)),
            ("few nodes", sized(list(60, 20_000), 480_000), ALL, None, Ok(Method::Unlink)),
            ("giants", hash_of_giants(), ALL, None, Ok(Method::Pad)),
            ("giants, no EVAL", hash_of_giants(), NO_EVAL, None, Ok(Method::Pad)),
            ("giants, no UNLINK", hash_of_giants(), NO_UNLINK, None, Ok(Method::Chunked)),
            ("list of giants", sized(list(64, 64), 512 << 20), ALL, None, Ok(Method::Pad)),
            ("blind stream", blind_stream(), ALL, None, Ok(Method::Chunked)),
            ("string of 4 MB", string(4 << 20), ALL, None, Ok(Method::Unlink)),
            ("string of 512 MB", string(512 << 20), ALL, None, Err("--quarantine-db N")),
            ("string of 512 MB, quarantine", string(512 << 20), ALL, Some(9), Ok(Method::Quarantine)),
            ("string of 512 MB, no EVAL", string(512 << 20), NO_EVAL, Some(9), Err("--max-stall")),
            ("its own database", string(512 << 20), ALL, Some(0), Err("--max-stall")),
            ("an unknown type", key(Kind::Other("graphdata".into())), ALL, None, Err("--method unlink")),
        ];
        for (name, facts, access, quarantine_db, expected) in cases {
            let choice = chosen_on(redis(7, 0, 15), &facts, access, &options(None, quarantine_db));
            match (&choice, expected) {
                (Ok(choice), Ok(method)) => {
                    assert_eq!(choice.method, method, "{name}: {choice:?}");
                    assert!(choice.stall_ms <= 10.0 && choice.warning.is_none(), "{name}: {choice:?}");
                }
                (Err(why), Err(part)) => assert!(why.contains(part), "{name}: {why}"),
                _ => panic!("{name}: {choice:?}"),
            }
        }
    }

    #[test]
    fn a_stream_whose_groups_nobody_tells_is_left_alone() {
        let mut server = redis(7, 0, 15);
        server.access.insert(Access::Xinfo, Permission::Denied);
        let facts = KeyFacts { stream: None, ..blind_stream() };
        for (forced, part) in [(None, "--method unlink"), (Some(Method::Chunked), "XINFO")] {
            let choice = chosen_on(server.clone(), &facts, ALL, &options(forced, None));
            assert!(choice.as_ref().is_err_and(|why| why.contains(part)), "{choice:?}");
        }
    }

    #[test]
    fn a_cluster_has_no_database_for_quarantine() {
        let server = ServerProfile { cluster: true, ..redis(7, 0, 15) };
        for forced in [None, Some(Method::Quarantine)] {
            let choice = chosen_on(server.clone(), &string(512 << 20), ALL, &options(forced, Some(9)));
            assert!(choice.is_err(), "{choice:?}");
        }
    }

    #[test]
    fn where_del_is_lazy_it_stands_in_for_unlink() {
        let choice = chosen_on(valkey(8, 1, 0), &set(3_000_000), NO_UNLINK, &options(None, None));
        assert_eq!(choice.map(|choice| choice.method), Ok(Method::Del));
    }

    #[test]
    fn what_is_asked_for_is_done_with_a_warning_or_refused() {
        let cases = [
            // No better, but no worse either.
            (Method::Unlink, set(3_000_000), ALL, Ok(false)),
            (Method::Chunked, set(3_000_000), ALL, Ok(true)),
            (Method::Pad, set(3_000_000), ALL, Ok(true)),
            (Method::Chunked, hash_of_giants(), ALL, Ok(true)),
            (Method::Unlink, hash_of_giants(), ALL, Err("--max-stall")),
            (Method::Unlink, set(50), NO_UNLINK, Err("not to be had")),
            (Method::Pad, string(100), ALL, Err("cannot be padded")),
            (Method::Pad, blind_stream(), ALL, Err("cannot be padded")),
            (Method::Chunked, string(100), ALL, Err("in chunks")),
            (Method::Del, set(50), ALL, Err("effort 64")),
            (Method::Del, set(50), NO_UNLINK, Ok(false)),
            (Method::Del, set(100_000), NO_UNLINK, Err("effort 64")),
            (Method::Quarantine, set(50), ALL, Err("--quarantine-db")),
            (Method::Expire, set(50), ALL, Ok(false)),
            (Method::Expire, expiring(set(3_000_000), 60), ALL, Err("lazyfree-lazy-expire is no")),
        ];
        for (method, facts, access, expected) in cases {
            let choice = chosen_on(redis(7, 0, 15), &facts, access, &options(Some(method), None));
            match (&choice, expected) {
                (Ok(choice), Ok(warns)) => {
                    assert_eq!(choice.method, method);
                    assert_eq!(choice.warning.is_some(), warns, "{choice:?}");
                }
                (Err(why), Err(part)) => assert!(why.contains(part), "{method:?}: {why}"),
                _ => panic!("{method:?} of {facts:?}: {choice:?}"),
            }
        }
        let lazy = chosen_on(valkey(8, 1, 0), &set(3_000_000), ALL, &options(Some(Method::Expire), None));
        assert!(lazy.is_ok_and(|choice| choice.stall_ms < 1.0));
    }
}
