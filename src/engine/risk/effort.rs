//! The number that decides where a value is freed: the server's own `lazyfreeGetFreeEffort`.
//!
//! UNLINK, and every path that a `lazyfree-lazy-*` setting turns into UNLINK, hands a value to the
//! background thread only if its effort is *above* [`LAZYFREE_THRESHOLD`]. The number is not the size:
//! a 512 MB string has effort 1, and so is freed by UNLINK while everybody waits. We compute it as the
//! server does, blind spots included, because those blind spots are where UNLINK stalls.
//!
//! Source: `src/lazyfree.c` of Redis 4.0 to 8.8 and Valkey 7.2 to 9.1; the rules changed only by adding
//! types. What it cannot do: modules answer through a callback that no command shows, so their effort is
//! unknown and never 0.

use crate::engine::key::{Encoding, Flavour, KeyFacts, Kind, ServerProfile, Version};

use super::assume;

/// Efforts up to this are freed at once, by the thread that runs commands. Compiled into the server.
pub const LAZYFREE_THRESHOLD: u64 = 64;

/// Returns the server's own estimate of how much work freeing this value is.
///
/// `None` where it cannot be known: a module's type, a count that was not asked or was refused, an
/// encoding newer than this build, or a server that is neither Redis nor Valkey.
pub fn free_effort(facts: &KeyFacts, server: &ServerProfile) -> Option<u64> {
    if matches!(server.flavour, Flavour::Other(_)) {
        return None;
    }
    match facts.kind {
        // A string of any size and encoding; and a module type that registers no `free_effort` callback.
        Kind::String | Kind::VectorSet => Some(1),
        Kind::Array => facts.elements,
        Kind::Stream => stream_effort(facts),
        Kind::List | Kind::Set | Kind::Zset | Kind::Hash => match assume::encoding(facts, server)?.encoding {
            Encoding::Quicklist => facts.list_nodes.map(|list| list.nodes),
            Encoding::Hashtable | Encoding::Skiplist => facts.elements,
            Encoding::Intset | Encoding::Listpack | Encoding::ListpackEx | Encoding::Ziplist => Some(1),
            _ => None,
        },
        // Before 6.2 a module could not say; the server counted 1.
        Kind::Other(_) if is_redis_before(server, Version::new(6, 2, 0)) => Some(1),
        Kind::Other(_) => None,
    }
}

/// Radix nodes, and for *each* group 1 + the pending entries of the group whose name sorts *first*.
fn stream_effort(facts: &KeyFacts) -> Option<u64> {
    let stream = facts.stream?;
    let groups = stream.groups.saturating_mul(stream.first_group_pending.saturating_add(1));
    Some(stream.radix_tree_nodes.saturating_add(groups))
}

/// Returns whether the effort cannot be above the threshold, even where its exact value is unknown:
/// no collection's effort is above its number of elements, whatever the encoding.
pub(super) fn is_surely_small(facts: &KeyFacts, server: &ServerProfile) -> bool {
    if let Some(effort) = free_effort(facts, server) {
        return effort <= LAZYFREE_THRESHOLD;
    }
    match facts.kind {
        Kind::List | Kind::Set | Kind::Zset | Kind::Hash => {
            !matches!(server.flavour, Flavour::Other(_))
                && facts.elements.is_some_and(|elements| elements <= LAZYFREE_THRESHOLD)
        }
        _ => false,
    }
}

/// Returns whether the server is a Redis older than this.
pub(super) fn is_redis_before(server: &ServerProfile, version: Version) -> bool {
    server.flavour == Flavour::Redis && server.version < version
}

#[cfg(test)]
mod tests {
    use super::super::samples::{collection, key, list, redis, stream, string, valkey};
    use super::*;
    use crate::engine::key::{ListNodes, NodesBasis, StreamFacts};

    #[test]
    fn effort_is_counted_as_the_server_counts_it() {
        use Encoding as E;
        let groups = |nodes, groups, first, all| {
            stream(StreamFacts {
                radix_tree_nodes: nodes,
                radix_tree_keys: nodes / 2,
                groups,
                first_group_pending: first,
                pending: all,
                consumers: groups,
            })
        };
        for (facts, effort) in [
            (string(1), 1),
            (string(512 << 20), 1),
            (collection(Kind::Set, E::Intset, 512), 1),
            (collection(Kind::Set, E::Listpack, 128), 1),
            (collection(Kind::Set, E::Hashtable, 64), 64),
            (collection(Kind::Set, E::Hashtable, 65), 65),
            (collection(Kind::Hash, E::Ziplist, 512), 1),
            (collection(Kind::Hash, E::Listpack, 100_000), 1),
            (collection(Kind::Hash, E::ListpackEx, 512), 1),
            (collection(Kind::Hash, E::Hashtable, 3_000_000), 3_000_000),
            (collection(Kind::Zset, E::Ziplist, 128), 1),
            (collection(Kind::Zset, E::Listpack, 128), 1),
            (collection(Kind::Zset, E::Skiplist, 129), 129),
            (collection(Kind::List, E::Listpack, 128), 1),
            // Its nodes and not its elements.
            (list(1_600, 1_000_000), 1_600),
            (groups(10, 0, 0, 0), 10),
            (groups(10, 1, 50, 50), 61),
            // For each group, the first group's pending entries.
            (groups(10, 3, 50, 50), 163),
            // The blind spot: the second group's are not counted.
            (groups(1, 2, 0, 500_000), 3),
            (collection(Kind::VectorSet, E::Raw, 60_000), 1),
            (collection(Kind::Array, E::SlicedArray, 5_000), 5_000),
        ] {
            assert_eq!(free_effort(&facts, &redis(8, 8, 0)), Some(effort), "{facts:?}");
            assert_eq!(free_effort(&facts, &valkey(9, 1, 0)), Some(effort), "{facts:?}");
        }
    }

    #[test]
    fn effort_is_unknown_and_never_0_where_a_part_of_it_is_unknown() {
        let unknown_nodes = KeyFacts { list_nodes: None, ..list(0, 1_000) };
        for facts in [
            KeyFacts { elements: None, ..collection(Kind::Set, Encoding::Hashtable, 0) },
            KeyFacts { elements: None, ..collection(Kind::Array, Encoding::SlicedArray, 0) },
            collection(Kind::Hash, Encoding::Other("template-array".into()), 1_000),
            // Compact or table: 100 fit both.
            KeyFacts { encoding: None, ..collection(Kind::Set, Encoding::Hashtable, 100) },
            unknown_nodes,
            key(Kind::Stream),
            key(Kind::List),
            key(Kind::Other("ReJSON-RL".into())),
        ] {
            assert_eq!(free_effort(&facts, &redis(7, 4, 0)), None, "{facts:?}");
        }
        let foreign = ServerProfile { flavour: Flavour::Other("Dragonfly".into()), ..redis(7, 2, 0) };
        assert_eq!(free_effort(&string(10), &foreign), None);
    }

    #[test]
    fn a_module_before_redis_6_2_counts_as_1() {
        let module = key(Kind::Other("ReJSON-RL".into()));
        assert_eq!(free_effort(&module, &redis(6, 0, 20)), Some(1));
        assert_eq!(free_effort(&module, &redis(6, 2, 0)), None);
    }

    #[test]
    fn an_estimated_node_count_is_used_as_it_is() {
        let estimated = KeyFacts {
            list_nodes: Some(ListNodes { nodes: 65, basis: NodesBasis::Estimated }),
            ..list(65, 1_000)
        };
        assert_eq!(free_effort(&estimated, &redis(7, 0, 15)), Some(65));
    }

    #[test]
    fn without_its_encoding_a_value_larger_than_every_compact_one_is_a_table() {
        let refused =
            |kind, elements| KeyFacts { encoding: None, ..collection(kind, Encoding::Raw, elements) };
        let server = redis(7, 2, 0);
        assert_eq!(free_effort(&refused(Kind::Set, 512), &server), None);
        assert_eq!(free_effort(&refused(Kind::Set, 513), &server), Some(513));
        assert_eq!(free_effort(&refused(Kind::Zset, 129), &server), Some(129));
        assert_eq!(free_effort(&refused(Kind::Hash, 513), &server), Some(513));
        let mut raised = redis(6, 2, 0);
        raised.limits.settings.insert("hash-max-ziplist-entries".to_owned(), "100000".to_owned());
        assert_eq!(free_effort(&refused(Kind::Hash, 513), &raised), None);
    }

    #[test]
    fn few_elements_are_small_even_where_the_effort_is_unknown() {
        let server = redis(7, 2, 0);
        for (elements, small) in [(63, true), (64, true), (65, false)] {
            let facts = KeyFacts { encoding: None, ..collection(Kind::Hash, Encoding::Raw, elements) };
            assert_eq!(free_effort(&facts, &server), None);
            assert_eq!(is_surely_small(&facts, &server), small, "{elements}");
        }
    }
}
