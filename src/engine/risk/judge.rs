//! From facts to a verdict: effort, allocations, effects, level, predicted stall, and why.

use crate::engine::key::{Expiry, Flavour, KeyFacts, Kind, Role, ServerProfile};

use super::allocations::allocations;
use super::effects::{default_lazyfree, effects, has_unlink};
use super::effort::{LAZYFREE_THRESHOLD, free_effort};
use super::stall::{self, Stall};
use super::words::{about, span};
use super::{Effect, Effects, Level, Policy, Thresholds, Verdict, assume};

/// Stalls below this are not worth a sentence.
const WORTH_SAYING_MS: f64 = 1.0;

/// Judges one key on one server. The same facts always give the same verdict.
pub fn judge(facts: &KeyFacts, policy: &Policy) -> Verdict {
    let server = &policy.server;
    let allocations = allocations(facts, server);
    let stall = allocations.count.map(|count| stall::predict(facts, count, server));
    let effort = free_effort(facts, server);
    let effects = effects(facts, server);
    let level = stall.map(|stall| level(stall.equivalent_allocations, &policy.thresholds));
    Verdict {
        free_effort: effort,
        allocations: allocations.count,
        allocations_basis: allocations.basis,
        level,
        effects,
        predicted_stall_ms: stall.map(|stall| stall.ms),
        reasons: Reasons { facts, server, effort, effects, stall, level }.say(),
    }
}

/// Returns the level of so many allocations (or of what stalls like so many).
pub fn level(allocations: u64, thresholds: &Thresholds) -> Level {
    match allocations {
        n if n >= thresholds.critical => Level::Critical,
        n if n >= thresholds.high => Level::High,
        n if n >= thresholds.medium => Level::Medium,
        n if n > thresholds.low => Level::Low,
        _ => Level::None,
    }
}

/// Everything that a sentence may need.
struct Reasons<'a> {
    facts: &'a KeyFacts,
    server: &'a ServerProfile,
    effort: Option<u64>,
    effects: Effects,
    stall: Option<Stall>,
    level: Option<Level>,
}

impl Reasons<'_> {
    /// Says why, the most useful first. A key that nobody would notice gets one sentence.
    fn say(&self) -> Vec<String> {
        if self.level == Some(Level::None) && self.effects.unlink == Effect::Inline {
            return vec!["small: freeing it takes no time that anybody notices".to_owned()];
        }
        let mut reasons = vec![self.unlink()];
        reasons.extend(self.blind_spot());
        reasons.extend(self.block());
        reasons.extend(self.expire());
        reasons.extend(self.setting(self.effects.del, "DEL", "lazyfree-lazy-user-del"));
        reasons.extend(self.setting(self.effects.overwrite, "overwriting it", "lazyfree-lazy-server-del"));
        reasons.extend(self.assumption());
        reasons
    }

    fn unlink(&self) -> String {
        let noun = match self.facts.kind {
            Kind::String => "a string",
            Kind::VectorSet => "a vector set",
            _ => "the value",
        };
        match (self.effects.unlink, self.effort) {
            (Effect::Background, Some(effort)) => {
                format!("UNLINK frees it in the background (effort {effort} > {LAZYFREE_THRESHOLD})")
            }
            (Effect::Inline, effort) => {
                let why = match effort {
                    Some(1) if matches!(self.facts.kind, Kind::String | Kind::VectorSet) => {
                        format!("{noun} counts as effort 1, whatever its size")
                    }
                    Some(effort) => format!("effort {effort} is not above {LAZYFREE_THRESHOLD}"),
                    None => format!("it cannot have an effort above {LAZYFREE_THRESHOLD}"),
                };
                match self.worth_saying() {
                    Some(stall) => format!("even UNLINK stalls everybody for {stall}: {why}"),
                    None => format!("UNLINK frees it at once: {why}"),
                }
            }
            _ if !has_unlink(self.server) => "this server has no UNLINK".to_owned(),
            _ if matches!(self.server.flavour, Flavour::Other(_)) => {
                format!(
                    "{} may free values by rules of its own: what UNLINK does is not known",
                    self.server.flavour
                )
            }
            _ => match &self.facts.kind {
                Kind::Other(name) => {
                    format!(
                        "`{name}` is a module's type: whether UNLINK frees it in the background is not known"
                    )
                }
                _ => "how the server counts it could not be read: UNLINK may stall".to_owned(),
            },
        }
    }

    /// Where the server's effort misses most of the work.
    fn blind_spot(&self) -> Option<String> {
        let stream = self.facts.stream?;
        let unseen = stream.pending.saturating_sub(stream.first_group_pending);
        (unseen > LAZYFREE_THRESHOLD && self.effects.unlink == Effect::Inline).then(|| {
            format!(
                "the server counts pending entries of the first group only; {unseen} more are freed with it"
            )
        })
    }

    fn block(&self) -> Option<String> {
        let stall = self.stall?;
        (stall.blocks_ms >= WORTH_SAYING_MS).then(|| {
            let doubt = if stall::pages_may_be_kept(self.server) {
                "; with the jemalloc that this version builds in (before 5.2) it takes no time"
            } else {
                ""
            };
            format!(
                "blocks this large go back to the operating system as they are freed, about {} of it{doubt}",
                about(stall.blocks_ms)
            )
        })
    }

    fn expire(&self) -> Option<String> {
        let Expiry::In(left) = self.facts.expiry else { return None };
        let when =
            if left.is_zero() { "its time is up".to_owned() } else { format!("expires in {}", span(left)) };
        Some(match self.effects.expire {
            Effect::Inline => {
                let stall = self.worth_saying()?;
                if self.server.lazyfree.expire == Some(false) {
                    format!("{when}: with lazyfree-lazy-expire no that stalls everybody for {stall}")
                } else {
                    format!("{when}: that stalls everybody for {stall}")
                }
            }
            Effect::Background => format!("{when}, in the background (lazyfree-lazy-expire yes)"),
            Effect::None if self.server.role == Role::Replica => {
                format!("{when}: this replica only hides it, the primary frees it")
            }
            Effect::None => return None,
            Effect::Unknown => {
                let setting = self.guess(self.server.lazyfree.expire, "lazyfree-lazy-expire")?;
                format!("{when}: {setting}")
            }
        })
    }

    /// What a path with a setting would do, if it differs from what UNLINK does.
    fn setting(&self, effect: Effect, path: &str, setting: &str) -> Option<String> {
        if self.effects.unlink != Effect::Background {
            return None;
        }
        match effect {
            Effect::Inline => {
                Some(format!("{path} stalls everybody for {} ({setting} is not on)", self.worth_saying()?))
            }
            Effect::Unknown => Some(format!("{path}: {}", self.guess(None, setting)?)),
            Effect::Background | Effect::None => None,
        }
    }

    /// What probably holds where a setting could not be read.
    fn guess(&self, told: Option<bool>, setting: &str) -> Option<String> {
        if told.is_some() {
            return None;
        }
        let Some(default) = default_lazyfree(self.server) else {
            return Some(format!("{setting} could not be read"));
        };
        let (word, then) = if default {
            ("yes", "would not stall".to_owned())
        } else {
            (
                "no",
                format!(
                    "would stall everybody for {}",
                    self.worth_saying().unwrap_or_else(|| "an unknown time".to_owned())
                ),
            )
        };
        Some(format!(
            "{setting} could not be read; {} {} comes with {word}, and then it {then}",
            self.server.flavour, self.server.version
        ))
    }

    /// Says on what the judgement rests where the server did not tell.
    fn assumption(&self) -> Option<String> {
        if self.facts.encoding.is_some() {
            return None;
        }
        let assumed = assume::encoding(self.facts, self.server)?;
        Some(format!(
            "its encoding could not be read; with this many {} it is taken for a {}",
            self.facts.kind.element_noun(),
            assumed.encoding
        ))
    }

    fn worth_saying(&self) -> Option<String> {
        let stall = self.stall?;
        (stall.ms >= WORTH_SAYING_MS).then(|| format!("about {}", about(stall.ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{
        all_lazyfree, collection, expiring, key, list, policy, redis, sized, stream, string, valkey,
    };
    use super::super::{AllocationsBasis, Effect};
    use super::*;
    use crate::engine::key::{Encoding, StreamFacts};

    fn set(members: u64) -> KeyFacts {
        sized(collection(Kind::Set, Encoding::Hashtable, members), members * 56)
    }

    fn has(verdict: &Verdict, part: &str) -> bool {
        verdict.reasons.iter().any(|reason| reason.contains(part))
    }

    #[test]
    fn levels_begin_where_the_thresholds_say() {
        let thresholds = Thresholds::default();
        for (allocations, expected) in [
            (0, Level::None),
            (64, Level::None),
            (65, Level::Low),
            (9_999, Level::Low),
            (10_000, Level::Medium),
            (99_999, Level::Medium),
            (100_000, Level::High),
            (999_999, Level::High),
            (1_000_000, Level::Critical),
        ] {
            assert_eq!(level(allocations, &thresholds), expected, "{allocations}");
        }
    }

    #[test]
    fn one_large_block_has_the_level_of_the_frees_that_stall_as_long() {
        let policy = policy(redis(7, 0, 15));
        for (mib, expected) in [
            (1, Level::None),
            (6, Level::None),
            (8, Level::Medium),
            (100, Level::Medium),
            (110, Level::High),
            (190, Level::High), // 200 MB
            (512, Level::High),
            (2_600, Level::Critical),
        ] {
            let verdict = judge(&string(mib << 20), &policy);
            assert_eq!(verdict.level, Some(expected), "{mib} MiB");
            assert_eq!((verdict.free_effort, verdict.allocations), (Some(1), Some(2)));
            assert_eq!(verdict.effects.unlink, Effect::Inline);
        }
    }

    #[test]
    fn a_large_table_says_what_unlink_del_and_expiry_would_do() {
        let verdict = judge(&expiring(set(3_000_000), 7_200), &policy(redis(7, 0, 15)));
        assert_eq!(verdict.free_effort, Some(3_000_000));
        assert_eq!(verdict.allocations, Some(6_000_003));
        assert_eq!(verdict.allocations_basis, AllocationsBasis::Counted);
        assert_eq!(verdict.level, Some(Level::Critical));
        assert_eq!(
            verdict.reasons,
            [
                "UNLINK frees it in the background (effort 3000000 > 64)",
                "expires in 2h: with lazyfree-lazy-expire no that stalls everybody for about 0.7 s",
                "DEL stalls everybody for about 0.7 s (lazyfree-lazy-user-del is not on)",
                "overwriting it stalls everybody for about 0.7 s (lazyfree-lazy-server-del is not on)",
            ]
        );
    }

    #[test]
    fn where_everything_is_lazy_there_is_little_to_say() {
        let verdict = judge(&expiring(set(3_000_000), 7_200), &policy(valkey(8, 1, 8)));
        assert_eq!(verdict.level, Some(Level::Critical));
        assert_eq!(
            verdict.reasons,
            [
                "UNLINK frees it in the background (effort 3000000 > 64)",
                "expires in 2h, in the background (lazyfree-lazy-expire yes)",
            ]
        );
    }

    #[test]
    fn settings_that_were_refused_are_said_with_the_default() {
        let server = ServerProfile { lazyfree: all_lazyfree(None), ..redis(7, 0, 15) };
        let verdict = judge(&expiring(set(3_000_000), 7_200), &policy(server));
        assert_eq!(verdict.effects.expire, Effect::Unknown);
        assert!(
            has(
                &verdict,
                "expires in 2h: lazyfree-lazy-expire could not be read; Redis 7.0.15 comes with no, and then it \
                 would stall everybody for about 0.7 s"
            ),
            "{:?}",
            verdict.reasons
        );
        let server = ServerProfile { lazyfree: all_lazyfree(None), ..valkey(8, 1, 8) };
        let verdict = judge(&set(3_000_000), &policy(server));
        assert!(has(&verdict, "comes with yes, and then it would not stall"), "{:?}", verdict.reasons);
    }

    #[test]
    fn a_large_string_says_that_even_unlink_stalls() {
        let verdict = judge(&string(512 << 20), &policy(valkey(9, 1, 2)));
        assert_eq!(
            verdict.reasons,
            [
                "even UNLINK stalls everybody for about 20 ms: a string counts as effort 1, whatever its size",
                "blocks this large go back to the operating system as they are freed, about 20 ms of it",
            ]
        );
    }

    #[test]
    fn sixty_four_huge_elements_stall_unlink_and_sixty_five_do_not() {
        let server = policy(redis(7, 0, 15));
        let huge =
            |fields: u64| sized(collection(Kind::Hash, Encoding::Hashtable, fields), fields * (8 << 20));
        for (fields, effect) in [(63, Effect::Inline), (64, Effect::Inline), (65, Effect::Background)] {
            let verdict = judge(&huge(fields), &server);
            assert_eq!(verdict.effects.unlink, effect, "{fields}");
            assert_eq!(verdict.level, Some(Level::High), "{fields}");
        }
        assert!(has(&judge(&huge(64), &server), "effort 64 is not above 64"));
    }

    #[test]
    fn a_stream_whose_effort_misses_the_pending_entries_says_so() {
        let facts = stream(StreamFacts {
            radix_tree_nodes: 1,
            radix_tree_keys: 0,
            groups: 2,
            first_group_pending: 0,
            pending: 500_000,
            consumers: 1,
        });
        let verdict = judge(&facts, &policy(redis(7, 0, 15)));
        assert_eq!(verdict.free_effort, Some(3));
        assert_eq!(verdict.effects.unlink, Effect::Inline);
        assert_eq!(verdict.level, Some(Level::Critical));
        assert!(
            has(&verdict, "pending entries of the first group only; 500000 more are freed with it"),
            "{:?}",
            verdict.reasons
        );
    }

    #[test]
    fn a_list_is_judged_by_its_nodes() {
        let server = policy(redis(7, 0, 15));
        for (nodes, effect) in [(63, Effect::Inline), (64, Effect::Inline), (65, Effect::Background)] {
            assert_eq!(judge(&list(nodes, nodes * 600), &server).effects.unlink, effect, "{nodes}");
        }
        let million = judge(&sized(list(1_600, 1_000_000), 13 << 20), &server);
        assert_eq!((million.free_effort, million.level), (Some(1_600), Some(Level::Low)));
    }

    #[test]
    fn a_module_is_unknown_and_not_small() {
        let verdict = judge(&key(Kind::Other("ReJSON-RL".into())), &policy(redis(7, 4, 0)));
        assert_eq!((verdict.free_effort, verdict.allocations, verdict.level), (None, None, None));
        assert_eq!(verdict.allocations_basis, AllocationsBasis::Unknown);
        assert_eq!(verdict.predicted_stall_ms, None);
        assert!(has(&verdict, "`ReJSON-RL` is a module's type"), "{:?}", verdict.reasons);
    }

    #[test]
    fn a_vector_set_is_inline_at_any_size() {
        let facts = sized(collection(Kind::VectorSet, Encoding::Raw, 60_000), 45 << 20);
        let verdict = judge(&facts, &policy(redis(8, 2, 3)));
        assert_eq!(verdict.effects.unlink, Effect::Inline);
        assert_eq!(verdict.level, Some(Level::High));
        assert!(has(&verdict, "a vector set counts as effort 1"), "{:?}", verdict.reasons);
    }

    #[test]
    fn a_replica_says_who_frees_the_key() {
        let server = ServerProfile { role: Role::Replica, ..redis(7, 0, 15) };
        let verdict = judge(&expiring(set(100_000), 60), &policy(server));
        assert_eq!(verdict.effects.expire, Effect::None);
        assert!(has(&verdict, "this replica only hides it"), "{:?}", verdict.reasons);
    }

    #[test]
    fn a_key_that_nobody_would_notice_gets_one_sentence() {
        let verdict = judge(&expiring(set(30), 60), &policy(redis(7, 0, 15)));
        assert_eq!(verdict.level, Some(Level::None));
        assert_eq!(verdict.reasons.len(), 1);
    }

    #[test]
    fn a_refused_encoding_is_said() {
        let facts = KeyFacts { encoding: None, ..set(3_000_000) };
        let verdict = judge(&facts, &policy(redis(7, 0, 15)));
        assert_eq!(verdict.allocations_basis, AllocationsBasis::Estimated);
        assert!(has(&verdict, "with this many members it is taken for a hashtable"), "{:?}", verdict.reasons);
    }
}
