//! How many blocks of memory are really freed when a value goes: what a stall is made of.
//!
//! The server's effort is a guess made in constant time; this is what `DEL` then does. A hashtable
//! hash of a million fields is effort 1 000 000 and three million frees on Redis 7.0, a little more
//! than one million on Valkey 8.1, where a short field and its value share a block. So the count is by
//! version.
//!
//! Each rate below was measured, by counting the allocator's own frees around one DEL (jemalloc:
//! `MEMORY MALLOC-STATS`; libc: a counting `free`) on the five servers of docs/risk-model.md, and agrees
//! with what the sources say is allocated. Frees of the key's own entry (its name, its place in the
//! key table) are left out: every key has them, and no method saves them.

use crate::engine::key::{Encoding, Flavour, KeyFacts, Kind, NodesBasis, ServerProfile, Version};

use super::{AllocationsBasis, assume};

/// A number of frees and how it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocations {
    /// Number of frees. `None`: unknown.
    pub count: Option<u64>,
    /// How it is known.
    pub basis: AllocationsBasis,
}

/// Frees per element, in thousandths.
type PerMille = u64;

/// Entry and member; entry, field and value; node, member and entry.
const ENTRY_AND_TWO: PerMille = 3_000;
const ENTRY_AND_ONE: PerMille = 2_000;
/// Redis >= 7.2 keeps an element that is alone in its bucket without an entry. At the fullest (one
/// element a bucket) `1/e` = 37 % share a bucket with an earlier one; at half full it is 21 %.
/// Measured: 1.31 to 1.37.
const ENTRY_IF_SHARED: PerMille = 370;
/// Valkey >= 8.1 keeps seven elements in a bucket and chains a further bucket where they do not fit.
/// Measured: 1.013 to 1.044.
const CHAINED_BUCKETS: PerMille = 40;
const ONE: PerMille = 1_000;

/// Largest block in which a field and its value are kept together (Valkey >= 8.1, Redis >= 8.6).
const EMBEDDED_ENTRY_BYTES: u64 = 128;
/// Table and bucket bytes that MEMORY USAGE counts for an element beside its own blocks, at the most.
const TABLE_BYTES: u64 = 24;

/// HNSW node, vectors, links by level, name, attributes and entry. Measured: 5.94 to 6.18 (Redis 8.2.3).
const VECTOR_SET: PerMille = 6_200;

/// One pending entry: its record, and in the trees of its group and of its consumer a leaf and the
/// compressed node above it. Measured with IDs from the clock: 5.02; with many IDs in one millisecond
/// the nodes above are shared and it is 3.01. We take the larger.
const PENDING: u64 = 5;
/// Redis >= 8.2 also keeps, for each pending entry, a link from the entry to its groups ...
const PENDING_LINK: u64 = 1;
/// ... and for each entry that is pending anywhere, a list, a leaf and the node above it.
const PENDING_ENTRY: u64 = 3;
/// A consumer: record, name, tree, the tree's root, and its node in the group's tree.
const CONSUMER: u64 = 5;
/// A group: record, two trees with a root each, and its node in the stream's tree.
const GROUP: u64 = 6;

/// Returns how many blocks of memory are freed when this value goes.
pub fn allocations(facts: &KeyFacts, server: &ServerProfile) -> Allocations {
    match count(facts, server) {
        Some((count, estimated)) => {
            // A fork or a look-alike may lay values out in its own way.
            let foreign = matches!(server.flavour, Flavour::Other(_));
            let basis =
                if estimated || foreign { AllocationsBasis::Estimated } else { AllocationsBasis::Counted };
            Allocations { count: Some(count), basis }
        }
        None => Allocations { count: None, basis: AllocationsBasis::Unknown },
    }
}

/// Returns the count, and whether it rests on an estimate.
fn count(facts: &KeyFacts, server: &ServerProfile) -> Option<(u64, bool)> {
    match facts.kind {
        Kind::String => Some(match facts.encoding {
            Some(Encoding::Int | Encoding::Embstr) => (1, false),
            Some(_) => (2, false),
            None => (2, true),
        }),
        Kind::Stream => stream(facts, server).map(|count| (count, false)),
        Kind::VectorSet => Some((scale(facts.elements?, VECTOR_SET), true)),
        // Slices of it; an element that is a number or short needs no block of its own.
        Kind::Array => Some((facts.elements?, true)),
        Kind::Other(_) => None,
        Kind::List | Kind::Set | Kind::Zset | Kind::Hash => collection(facts, server),
    }
}

fn collection(facts: &KeyFacts, server: &ServerProfile) -> Option<(u64, bool)> {
    let Some(assumed) = assume::encoding(facts, server) else {
        // Compact or table, and nobody tells: the table is the dearer.
        return match facts.kind {
            Kind::List => None,
            _ => Some((table(facts, server)?.0, true)),
        };
    };
    let concluded = !assumed.told;
    Some(match assumed.encoding {
        // The object and its blob.
        Encoding::Intset | Encoding::Listpack | Encoding::Ziplist => (2, concluded),
        // The object, the record with the field TTLs, and the blob.
        Encoding::ListpackEx => (3, concluded),
        // The object, the list's head, and for each node the node and its blob.
        Encoding::Quicklist => {
            let list = facts.list_nodes?;
            let count = list.nodes.saturating_mul(2).saturating_add(2);
            (count, concluded || list.basis == NodesBasis::Estimated)
        }
        Encoding::Hashtable | Encoding::Skiplist => {
            let (count, estimated) = table(facts, server)?;
            (count, concluded || estimated)
        }
        _ => return None,
    })
}

/// Frees of a set, hash or sorted set that is a table.
fn table(facts: &KeyFacts, server: &ServerProfile) -> Option<(u64, bool)> {
    let elements = facts.elements?;
    let layout = Layout::of(server);
    let (rate, estimated) = match facts.kind {
        Kind::Set => (layout.set, false),
        Kind::Zset => (layout.zset, false),
        _ => match layout.hash {
            Hash::Apart(rate) => (rate, false),
            // One block or two, by their sizes; the mean decides for all.
            Hash::Embedded(rate) => {
                let apart = facts
                    .bytes()
                    .is_none_or(|bytes| bytes / elements.max(1) > EMBEDDED_ENTRY_BYTES + TABLE_BYTES);
                (if apart { rate + ONE } else { rate }, true)
            }
        },
    };
    // The object, the table's head and its buckets; for a sorted set also both heads of the skiplist
    // and the pair that holds them together.
    let fixed = if facts.kind == Kind::Zset { 6 } else { 3 };
    Some((scale(elements, rate).saturating_add(fixed), estimated))
}

/// How a hash keeps a field and its value.
pub(super) enum Hash {
    /// Always in blocks of their own.
    Apart(PerMille),
    /// In one block up to [`EMBEDDED_ENTRY_BYTES`], else in two; the rate is for one.
    Embedded(PerMille),
}

impl Hash {
    /// Returns the rate of the dearest layout, and the blocks that each field has at the least.
    pub(super) fn at_most(&self) -> (PerMille, u64) {
        match self {
            Self::Apart(rate) => (*rate, 2),
            Self::Embedded(rate) => (rate + ONE, 1),
        }
    }
}

/// Frees per element of the table encodings, on one server.
pub(super) struct Layout {
    pub(super) set: PerMille,
    pub(super) zset: PerMille,
    pub(super) hash: Hash,
}

impl Layout {
    pub(super) fn of(server: &ServerProfile) -> Self {
        let at_least = |major, minor| server.version >= Version::new(major, minor, 0);
        let shared = ONE + ENTRY_IF_SHARED;
        let chained = ONE + CHAINED_BUCKETS;
        if server.flavour == Flavour::Valkey {
            let hashtable = at_least(8, 1);
            return Self {
                set: if hashtable { chained } else { shared },
                zset: match hashtable {
                    // 9.1 keeps the member in the skiplist's node.
                    true if at_least(9, 1) => chained,
                    true => chained + ONE,
                    false => ENTRY_AND_TWO,
                },
                hash: if hashtable { Hash::Embedded(chained) } else { Hash::Apart(ENTRY_AND_TWO) },
            };
        }
        Self {
            set: if at_least(7, 2) { shared } else { ENTRY_AND_ONE },
            // 8.8 keeps the member in the skiplist's node; 8.6 was not read, and three is the dearer.
            zset: if at_least(8, 8) { shared } else { ENTRY_AND_TWO },
            hash: if at_least(8, 6) { Hash::Embedded(shared) } else { Hash::Apart(ENTRY_AND_TWO) },
        }
    }
}

/// Radix nodes and listpacks of the entries, and *every* group's pending entries and consumers.
fn stream(facts: &KeyFacts, server: &ServerProfile) -> Option<u64> {
    let stream = facts.stream?;
    let links = server.flavour == Flavour::Redis && server.version >= Version::new(8, 2, 0);
    let mut pending = stream.pending.saturating_mul(PENDING);
    if links {
        // Which entries are pending in several groups is not told; we take it that groups wait for the
        // same entries. With one group, the usual case, it is exact.
        let entries = stream.pending.div_ceil(stream.groups.max(1));
        pending = pending
            .saturating_add(stream.pending.saturating_mul(PENDING_LINK))
            .saturating_add(entries.saturating_mul(PENDING_ENTRY));
    }
    Some(
        stream
            .radix_tree_nodes
            .saturating_add(stream.radix_tree_keys)
            .saturating_add(stream.groups.saturating_mul(GROUP))
            .saturating_add(stream.consumers.saturating_mul(CONSUMER))
            .saturating_add(pending)
            // The object, the stream's head and its tree's.
            .saturating_add(3),
    )
}

fn scale(elements: u64, rate: PerMille) -> u64 {
    let scaled = u128::from(elements) * u128::from(rate) / u128::from(ONE);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{collection, key, list, redis, sized, stream, string, valkey};
    use super::*;
    use crate::engine::key::{ListNodes, StreamFacts};
    use AllocationsBasis::{Counted, Estimated, Unknown};

    fn of(facts: &KeyFacts, server: &ServerProfile) -> (Option<u64>, AllocationsBasis) {
        let Allocations { count, basis } = allocations(facts, server);
        (count, basis)
    }

    /// Frees per element as they were counted around one DEL, to a tenth. See docs/risk-model.md,
    /// "Allocations".
    #[test]
    fn the_rates_agree_with_the_frees_that_were_counted_on_real_servers() {
        let n = 65_536_u64;
        let set = collection(Kind::Set, Encoding::Hashtable, n);
        let short = sized(collection(Kind::Hash, Encoding::Hashtable, n), n * 64);
        let long = sized(collection(Kind::Hash, Encoding::Hashtable, n), n * 260);
        let zset = collection(Kind::Zset, Encoding::Skiplist, n);
        for (server, facts, counted) in [
            (redis(6, 2, 5), &set, 1.998),
            (redis(6, 2, 5), &short, 2.999),
            (redis(6, 2, 5), &zset, 2.995),
            (redis(7, 0, 15), &set, 2.000),
            (redis(7, 0, 15), &short, 2.998),
            (redis(7, 0, 15), &long, 2.999),
            (redis(7, 0, 15), &zset, 2.994),
            (redis(8, 2, 3), &set, 1.366),
            (redis(8, 2, 3), &short, 2.997),
            (redis(8, 2, 3), &long, 2.998),
            (redis(8, 2, 3), &zset, 2.989),
            (valkey(8, 1, 8), &set, 1.013),
            (valkey(8, 1, 8), &short, 1.013),
            (valkey(8, 1, 8), &long, 2.013),
            (valkey(8, 1, 8), &zset, 2.013),
            (valkey(9, 1, 2), &set, 1.013),
            (valkey(9, 1, 2), &short, 1.013),
            (valkey(9, 1, 2), &long, 2.013),
            (valkey(9, 1, 2), &zset, 1.013),
        ] {
            let modelled = allocations(facts, &server).count.expect("known") as f64 / n as f64;
            assert!(
                (modelled - counted).abs() < 0.1,
                "{} {} {}: {modelled} against {counted}",
                server.flavour,
                server.version,
                facts.kind
            );
        }
    }

    #[test]
    fn a_pending_entry_costs_five_frees_and_more_with_the_index_of_redis_8_2() {
        let pending = |groups| {
            stream(StreamFacts {
                radix_tree_nodes: 404,
                radix_tree_keys: 200,
                groups,
                first_group_pending: 20_000,
                pending: 20_000 * groups,
                consumers: 4 * groups,
            })
        };
        for (server, groups, counted) in [
            (redis(6, 2, 5), 1, 100_913),
            (redis(6, 2, 5), 2, 201_465),
            (redis(7, 0, 15), 1, 100_809),
            (redis(8, 2, 3), 1, 181_066),
            (redis(8, 2, 3), 2, 301_517),
            (valkey(8, 1, 8), 1, 101_143),
            (valkey(9, 1, 2), 2, 201_675),
        ] {
            let modelled = allocations(&pending(groups), &server).count.expect("known");
            assert!(modelled.abs_diff(counted) * 100 < counted, "{modelled} against {counted}");
        }
    }

    #[test]
    fn compact_values_are_a_handful_of_frees_whatever_they_hold() {
        let server = redis(7, 4, 0);
        for (facts, frees) in [
            (collection(Kind::String, Encoding::Int, 8), 1),
            (collection(Kind::String, Encoding::Embstr, 8), 1),
            (string(512 << 20), 2),
            (collection(Kind::Set, Encoding::Intset, 512), 2),
            (collection(Kind::Hash, Encoding::Listpack, 100_000), 2),
            (collection(Kind::Hash, Encoding::ListpackEx, 512), 3),
        ] {
            assert_eq!(of(&facts, &server), (Some(frees), Counted), "{facts:?}");
        }
    }

    #[test]
    fn a_list_is_two_frees_a_node_and_as_well_known_as_its_nodes() {
        let exact = list(1_600, 1_000_000);
        assert_eq!(of(&exact, &redis(7, 0, 15)), (Some(3_202), Counted));
        let estimated = KeyFacts {
            list_nodes: Some(ListNodes { nodes: 1_600, basis: NodesBasis::Estimated }),
            ..exact.clone()
        };
        assert_eq!(of(&estimated, &redis(7, 0, 15)), (Some(3_202), Estimated));
        let unknown = KeyFacts { list_nodes: None, ..exact };
        assert_eq!(of(&unknown, &redis(7, 0, 15)), (None, Unknown));
    }

    #[test]
    fn allocations_are_unknown_where_a_count_is() {
        let server = redis(8, 0, 0);
        for facts in [
            key(Kind::Other("ReJSON-RL".into())),
            key(Kind::Stream),
            key(Kind::VectorSet),
            KeyFacts { elements: None, ..collection(Kind::Set, Encoding::Hashtable, 0) },
            collection(Kind::Hash, Encoding::Other("template-array".into()), 9),
        ] {
            assert_eq!(of(&facts, &server), (None, Unknown), "{facts:?}");
        }
    }

    #[test]
    fn without_its_encoding_a_value_is_taken_for_the_dearer_table_and_marked_estimated() {
        let facts = KeyFacts { encoding: None, ..collection(Kind::Set, Encoding::Raw, 100) };
        assert_eq!(of(&facts, &redis(7, 0, 0)), (Some(203), Estimated));
        let large = KeyFacts { encoding: None, ..collection(Kind::Set, Encoding::Raw, 10_000) };
        assert_eq!(of(&large, &redis(7, 0, 0)), (Some(20_003), Estimated));
    }

    #[test]
    fn huge_counts_do_not_overflow() {
        let facts = collection(Kind::Hash, Encoding::Hashtable, u64::MAX);
        assert_eq!(allocations(&facts, &redis(7, 0, 0)).count, Some(u64::MAX));
    }
}
