//! Where a value would be freed, by what removes it.
//!
//! One rule for all four: a value goes to the background only if its effort is above the threshold *and*
//! the path is a lazy one. UNLINK always is; DEL, expiry and overwriting are if their setting says so.
//! Hence the table of [`freed_by`]: a small effort is inline whatever the setting, a setting of `no` is
//! inline whatever the effort, and only when both are in favour it is background. What cannot be read is
//! `unknown` and never a guess; the default that probably holds goes into the reasons.

use crate::engine::key::{Expiry, Flavour, KeyFacts, Role, ServerProfile, Version};

use super::effort::{LAZYFREE_THRESHOLD, free_effort, is_redis_before, is_surely_small};
use super::{Effect, Effects};

/// Returns where this value would be freed on this server.
pub(super) fn effects(facts: &KeyFacts, server: &ServerProfile) -> Effects {
    let weight = Weight::of(facts, server);
    Effects {
        del: freed_by(weight, user_del(server)),
        unlink: freed_by(weight, has_unlink(server).then_some(true)),
        expire: expire(facts, server, weight),
        overwrite: freed_by(weight, server_del(server)),
    }
}

/// What is known of the effort against the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    Small,
    Large,
    Unknown,
}

impl Weight {
    fn of(facts: &KeyFacts, server: &ServerProfile) -> Self {
        if is_surely_small(facts, server) {
            return Self::Small;
        }
        match free_effort(facts, server) {
            Some(effort) if effort > LAZYFREE_THRESHOLD => Self::Large,
            _ => Self::Unknown,
        }
    }
}

/// `lazy`: whether this path may hand the value to the background thread. `None`: could not be read.
fn freed_by(weight: Weight, lazy: Option<bool>) -> Effect {
    match (weight, lazy) {
        (Weight::Small, _) | (_, Some(false)) => Effect::Inline,
        (Weight::Large, Some(true)) => Effect::Background,
        (Weight::Large, None) | (Weight::Unknown, _) => Effect::Unknown,
    }
}

fn expire(facts: &KeyFacts, server: &ServerProfile, weight: Weight) -> Effect {
    match (facts.expiry, server.role) {
        // A replica hides the key and waits for its primary to say DEL or UNLINK.
        (Expiry::Never, _) | (_, Role::Replica) => Effect::None,
        (Expiry::Unknown, _) | (_, Role::Unknown) => Effect::Unknown,
        (Expiry::In(_), Role::Primary) => freed_by(weight, server.lazyfree.expire),
    }
}

/// `lazyfree-lazy-user-del` is new in Redis 6.0: before, DEL had no lazy way.
fn user_del(server: &ServerProfile) -> Option<bool> {
    if is_redis_before(server, Version::new(6, 0, 0)) { Some(false) } else { server.lazyfree.user_del }
}

/// In Redis 4.0 SET freed what it overwrote at once, whatever `lazyfree-lazy-server-del` said.
fn server_del(server: &ServerProfile) -> Option<bool> {
    if is_redis_before(server, Version::new(5, 0, 0)) { Some(false) } else { server.lazyfree.server_del }
}

/// UNLINK is new in Redis 4.0.
pub(super) fn has_unlink(server: &ServerProfile) -> bool {
    !is_redis_before(server, Version::new(4, 0, 0))
}

/// Returns what every `lazyfree-lazy-*` setting is when nobody changed it: `yes` since Valkey 8.0, `no` in
/// every Redis. `None` for a server whose defaults we do not know.
pub(super) fn default_lazyfree(server: &ServerProfile) -> Option<bool> {
    match server.flavour {
        Flavour::Redis => Some(false),
        Flavour::Valkey => Some(server.version >= Version::new(8, 0, 0)),
        Flavour::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{all_lazyfree, collection, expiring, key, redis, string, valkey};
    use super::Effect::{Background, Inline, Unknown};
    use super::*;
    use crate::engine::key::{Encoding, Kind, Lazyfree};

    fn hash(fields: u64) -> KeyFacts {
        collection(Kind::Hash, Encoding::Hashtable, fields)
    }

    #[test]
    fn unlink_is_inline_up_to_64_and_in_the_background_from_65() {
        for server in [redis(4, 0, 0), redis(6, 2, 5), redis(8, 8, 0), valkey(7, 2, 0), valkey(9, 1, 2)] {
            for (fields, effect) in [(63, Inline), (64, Inline), (65, Background)] {
                assert_eq!(effects(&hash(fields), &server).unlink, effect, "{fields} on {}", server.version);
            }
            assert_eq!(effects(&string(1 << 30), &server).unlink, Inline);
        }
        assert_eq!(effects(&hash(65), &redis(3, 2, 0)).unlink, Unknown);
    }

    #[test]
    fn the_other_paths_follow_their_settings() {
        let facts = expiring(hash(65), 60);
        let mut server = redis(7, 0, 15);
        let all = |effects: Effects| [effects.del, effects.expire, effects.overwrite];
        assert_eq!(all(effects(&facts, &server)), [Inline; 3]);
        assert_eq!(all(effects(&facts, &valkey(8, 1, 8))), [Background; 3]);
        server.lazyfree = Lazyfree { user_del: Some(true), ..server.lazyfree };
        assert_eq!(all(effects(&facts, &server)), [Background, Inline, Inline]);
        server.lazyfree = Lazyfree { user_del: Some(false), expire: Some(true), ..server.lazyfree };
        assert_eq!(all(effects(&facts, &server)), [Inline, Background, Inline]);
        server.lazyfree = Lazyfree { expire: Some(false), server_del: Some(true), ..server.lazyfree };
        assert_eq!(all(effects(&facts, &server)), [Inline, Inline, Background]);
    }

    #[test]
    fn a_small_value_is_inline_whatever_the_settings() {
        for lazyfree in [None, Some(false), Some(true)] {
            let server = ServerProfile { lazyfree: all_lazyfree(lazyfree), ..redis(7, 0, 15) };
            let effects = effects(&expiring(hash(64), 60), &server);
            assert_eq!(
                [effects.del, effects.unlink, effects.expire, effects.overwrite],
                [Inline; 4],
                "{lazyfree:?}"
            );
        }
    }

    #[test]
    fn settings_that_were_refused_leave_the_effect_unknown() {
        let server = ServerProfile { lazyfree: all_lazyfree(None), ..redis(7, 0, 15) };
        let effects = effects(&expiring(hash(65), 60), &server);
        assert_eq!(
            [effects.del, effects.unlink, effects.expire, effects.overwrite],
            [Unknown, Background, Unknown, Unknown]
        );
    }

    #[test]
    fn an_unknown_effort_is_inline_where_the_setting_is_no_and_unknown_elsewhere() {
        let module = expiring(key(Kind::Other("ReJSON-RL".into())), 60);
        let no = effects(&module, &redis(7, 0, 15));
        assert_eq!([no.del, no.unlink, no.expire, no.overwrite], [Inline, Unknown, Inline, Inline]);
        let yes = effects(&module, &valkey(8, 1, 8));
        assert_eq!([yes.del, yes.unlink, yes.expire, yes.overwrite], [Unknown; 4]);
    }

    #[test]
    fn del_has_no_lazy_way_before_redis_6_and_set_none_in_redis_4() {
        let lazy = |server: ServerProfile| ServerProfile { lazyfree: all_lazyfree(Some(true)), ..server };
        for (server, del, overwrite) in [
            (redis(4, 0, 14), Inline, Inline),
            (redis(5, 0, 14), Inline, Background),
            (redis(6, 0, 0), Background, Background),
        ] {
            let effects = effects(&hash(65), &lazy(server));
            assert_eq!([effects.del, effects.overwrite], [del, overwrite]);
        }
    }

    #[test]
    fn expiry_frees_nothing_without_a_ttl_or_on_a_replica() {
        let server = redis(7, 0, 15);
        assert_eq!(effects(&hash(65), &server).expire, Effect::None);
        let unasked = KeyFacts { expiry: Expiry::Unknown, ..hash(65) };
        assert_eq!(effects(&unasked, &server).expire, Unknown);
        let replica = ServerProfile { role: Role::Replica, ..redis(7, 0, 15) };
        assert_eq!(effects(&expiring(hash(65), 60), &replica).expire, Effect::None);
        assert_eq!(effects(&unasked, &replica).expire, Effect::None);
        let nobody_knows = ServerProfile { role: Role::Unknown, ..redis(7, 0, 15) };
        assert_eq!(effects(&expiring(hash(65), 60), &nobody_knows).expire, Unknown);
    }

    #[test]
    fn defaults_are_yes_only_since_valkey_8() {
        for (server, default) in [
            (redis(4, 0, 0), Some(false)),
            (redis(8, 8, 0), Some(false)),
            (valkey(7, 2, 13), Some(false)),
            (valkey(8, 0, 0), Some(true)),
            (ServerProfile { flavour: Flavour::Other("KeyDB".into()), ..redis(6, 3, 0) }, None),
        ] {
            assert_eq!(default_lazyfree(&server), default);
        }
    }
}
