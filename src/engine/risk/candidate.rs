//! Which keys may be ignored after nothing but `TYPE` and `MEMORY USAGE`.
//!
//! A census asks two things of every key; encoding, length and TTL are asked of few. The few must contain
//! every key with more than `low` allocations, although `MEMORY USAGE` is a biased sample that can be 240
//! times too low. The way out: of the sampled mean we use only what every element has at the least, and of
//! the rest what is counted and not sampled.
//!
//! - **Tables** are counted exactly: buckets, and 24 bytes for each entry. Only the elements are sampled, and
//!   each is at least the allocator's smallest block, 8 bytes. So a set of `n` members reports 32 `n` bytes
//!   or more, however the sample falls.
//! - **Sorted sets** add the skiplist's head (536 bytes) and at least 40 bytes for each node.
//! - **Lists** report nodes x mean of the first nodes, and a node is at least 48 bytes; except on Redis 8.0
//!   to 8.2, which reports elements x mean of the first nodes' *elements*. See [`list_bytes_by_element`].
//! - **Streams** count or track every node and pending entry, 8 bytes or more for each block. Valkey >= 8.1
//!   samples the groups: where there are more than samples, each counts as an empty one at the least.
//!
//! [`least_bytes`] is, for each type and version, the least that `MEMORY USAGE` can report for a key with
//! more than `low` allocations; a key below is ignored. A string or blob matters by its size alone.
//!
//! What it cannot do: find a key with *few* allocations whose bytes hide from the sample (forty members, the
//! first five short and the others 8 MB). No rule over a sample can; Redis >= 8.4 counts and does not sample.

use crate::engine::key::{Flavour, Kind, ServerProfile, Version};

use super::Policy;
use super::allocations::Layout;
use super::stall::LARGE_BLOCK_BYTES;

/// The allocator's smallest block: an empty member, field or value.
const SMALLEST_BLOCK: u64 = 8;
/// A dict's entry, as MEMORY USAGE charges it (R8.4 to 8.8 charge it even where there is none).
const DICT_ENTRY: u64 = 24;
/// An entry of Valkey's hashtable: a bucket of 64 bytes holds seven.
const VALKEY_ENTRY: u64 = 9;
/// The object, the dict's head, and the smallest bucket array.
const TABLE_HEAD: u64 = 64;
/// The object, both heads, and the skiplist's header node with its 32 levels.
const ZSET_HEAD: u64 = 600;
/// A skiplist node with one level.
const ZSET_NODE: u64 = 40;
/// A quicklist node (32 bytes before Redis 7.0, then 40) with its smallest blob (16, or 9 if counted to the
/// byte).
const LIST_NODE: u64 = 48;
/// The same without elements, of which each takes [`LIST_ELEMENT`] or more.
const LIST_NODE_EMPTY: u64 = 47;
const LIST_ELEMENT: u64 = 2;
/// An empty consumer group on Valkey >= 8.1. Measured: 104.
const STREAM_GROUP: u64 = 100;

/// Frees of a table that no element causes, at the most.
const FIXED_FREES: u64 = 6;
/// The rates of frees are right to this many thousandths of a free.
const RATE_ERROR: u64 = 50;

/// Returns whether a key may have more than `low` allocations, or stall by its size alone, going by its
/// type and what `MEMORY USAGE key SAMPLES samples` said. `false` is certain.
pub fn may_matter(kind: &Kind, bytes: u64, samples: u64, policy: &Policy) -> bool {
    bytes >= LARGE_BLOCK_BYTES || bytes >= least_bytes(kind, samples, policy)
}

/// Returns the least that MEMORY USAGE can report for a key of this kind with more than `low` allocations.
fn least_bytes(kind: &Kind, samples: u64, policy: &Policy) -> u64 {
    let Policy { server, thresholds } = policy;
    // A level that begins beyond 2^40 frees is the same as one that never does, and its products fit.
    let low = thresholds.low.min(1 << 40);
    let layout = Layout::of(server);
    let valkey_table = server.flavour == Flavour::Valkey && server.version >= Version::new(8, 1, 0);
    // Redis 8.10 charges what an entry takes, and was not read; other products were not either.
    let unread = matches!(server.flavour, Flavour::Other(_))
        || (server.flavour == Flavour::Redis && server.version >= Version::new(8, 10, 0));
    let entry = match (unread, valkey_table) {
        (true, _) => 0,
        (false, true) => VALKEY_ENTRY,
        (false, false) => DICT_ENTRY,
    };
    match kind {
        // Two blocks at the most: nothing but its size makes a string matter.
        Kind::String if low >= 2 => u64::MAX,
        Kind::Set => TABLE_HEAD + elements_above(low, layout.set) * (entry + SMALLEST_BLOCK),
        Kind::Hash => {
            let (rate, blocks) = layout.hash.at_most();
            TABLE_HEAD + elements_above(low, rate) * (entry + blocks * SMALLEST_BLOCK)
        }
        Kind::Zset => ZSET_HEAD + elements_above(low, layout.zset) * (ZSET_NODE + SMALLEST_BLOCK),
        Kind::List => {
            let nodes = low.saturating_sub(2) / 2 + 1;
            if lists_are_sampled_by_element(server) {
                list_bytes_by_element(nodes, samples, server)
            } else {
                nodes * LIST_NODE
            }
        }
        Kind::Stream if valkey_table && samples > 0 => {
            (low * SMALLEST_BLOCK).min(samples.saturating_add(1).saturating_mul(STREAM_GROUP))
        }
        Kind::Stream | Kind::VectorSet | Kind::Array => low * SMALLEST_BLOCK,
        // Nobody knows what a module reports.
        Kind::String | Kind::Other(_) => 0,
    }
}

/// Returns a number of elements that every table with more than `low` frees has at the least.
fn elements_above(low: u64, rate: u64) -> u64 {
    low.saturating_sub(FIXED_FREES) * 1_000 / (rate + RATE_ERROR)
}

fn lists_are_sampled_by_element(server: &ServerProfile) -> bool {
    server.flavour == Flavour::Redis
        && server.version >= Version::new(8, 0, 0)
        && server.version < Version::new(8, 4, 0)
}

/// The least report for so many nodes where the mean is taken over elements.
///
/// Let the `s` sampled nodes hold `K` elements of 2 bytes, and the other `r = nodes - s` one element each.
/// Then the report is `(47 s + 2 K) / K * (K + r) = 47 s + 2 r + 2 K + 47 s r / K`, least at `K = sqrt(47 s r
/// / 2)`: for 32 nodes and 5 samples 514 bytes (seen: 660, where 5 x 11 elements hide 27 nodes; the true size
/// was 260 KB). Compressed nodes can hide more, and leave only the sum of what was sampled.
fn list_bytes_by_element(nodes: u64, samples: u64, server: &ServerProfile) -> u64 {
    if samples == 0 || nodes <= samples {
        return nodes * LIST_NODE;
    }
    if server.limits.settings.get("list-compress-depth").map(String::as_str) != Some("0") {
        return samples * LIST_NODE;
    }
    let hidden = nodes - samples;
    // 2 K + 47 s r / K at its least is 2 sqrt(2 * 47 s r).
    let spread = (4 * LIST_ELEMENT * LIST_NODE_EMPTY * samples).saturating_mul(hidden);
    LIST_NODE_EMPTY * samples + LIST_ELEMENT * hidden + spread.isqrt()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{policy, redis, valkey};
    use super::super::{Level, Policy, Thresholds, level};
    use super::*;

    /// The smallest keys that could be made (empty and one-byte elements, forced into tables), as MEMORY
    /// USAGE reported them on five servers: elements and bytes. Lists and streams: nodes, and pending
    /// entries.
    #[test]
    fn the_smallest_key_with_more_than_low_allocations_is_never_ignored() {
        let servers = [redis(6, 2, 5), redis(7, 0, 15), redis(8, 2, 3), valkey(8, 1, 8), valkey(9, 1, 2)];
        let observed = [
            // 31 members of 2 frees, 46 of 1.37, 60 of 1.04.
            (Kind::Set, [1_392, 1_352, 2_064, 2_752, 2_632]),
            // 21 fields of 3 frees, or 31 of 2.04.
            (Kind::Hash, [1_368, 1_328, 1_176, 1_352, 1_432]),
            // 21 members of 3 frees, 31 of 2.04, 60 of 1.04.
            (Kind::Zset, [2_795, 3_259, 2_368, 3_275, 4_344]),
            // 32 nodes, the first five with few small elements and the others 9 KB each.
            (Kind::List, [1_560, 1_880, 660, 2_112, 2_112]),
            // Eight pending entries in the last of six groups; 40 in the last of seven.
            (Kind::Stream, [14_113, 14_025, 14_105, 4_955, 4_955]),
            (Kind::Stream, [65_785, 48_753, 49_089, 5_084, 5_062]),
        ];
        for (kind, bytes) in observed {
            for (server, bytes) in servers.iter().zip(bytes) {
                assert!(
                    may_matter(&kind, bytes, 5, &policy(server.clone())),
                    "{kind} {bytes} on {}",
                    server.version
                );
            }
        }
    }

    #[test]
    fn a_list_whose_first_nodes_hide_the_others_is_not_ignored_on_redis_8_2() {
        let mut server = redis(8, 2, 3);
        server.limits.settings.insert("list-compress-depth".to_owned(), "0".to_owned());
        // 5 x k one-byte elements, then 27 nodes of 9 KB.
        for bytes in [1_856, 729, 667, 660, 729, 826, 1_172, 6_753] {
            assert!(may_matter(&Kind::List, bytes, 5, &policy(server.clone())), "{bytes}");
        }
        assert!(!may_matter(&Kind::List, 500, 5, &policy(server.clone())));
        // With compressed nodes.
        server.limits.settings.insert("list-compress-depth".to_owned(), "1".to_owned());
        for bytes in [551, 541, 569, 1_726, 300] {
            assert!(may_matter(&Kind::List, bytes, 5, &policy(server.clone())), "{bytes}");
        }
    }

    /// The formulas of MEMORY USAGE with every sampled element as small as can be, however large the others
    /// are.
    #[test]
    fn the_formulas_with_the_smallest_sample_are_never_below_the_bound() {
        for low in [0, 10, 64, 1_000, 100_000] {
            let thresholds = Thresholds { low, ..Thresholds::default() };
            for (server, set, hash, zset) in [
                // Bytes that n elements report: entry, smallest parts, and a bucket for each five entries.
                (redis(6, 2, 0), 32.0 + 1.6, 40.0 + 1.6, 72.0 + 1.6),
                (redis(7, 2, 0), 32.0 + 1.6, 40.0 + 1.6, 72.0 + 1.6),
                (redis(8, 2, 3), 32.0 + 1.6, 40.0 + 1.6, 64.0 + 1.6),
                (redis(8, 6, 0), 32.0 + 1.6, 32.0 + 1.6, 64.0 + 1.6),
                (valkey(8, 0, 0), 32.0 + 1.6, 40.0 + 1.6, 72.0 + 1.6),
                (valkey(8, 1, 0), 8.0 + 9.1, 8.0 + 9.1, 48.0 + 9.1),
                (valkey(9, 1, 0), 8.0 + 9.1, 8.0 + 9.1, 40.0 + 9.1),
            ] {
                let layout = Layout::of(&server);
                let policy = Policy { server, thresholds };
                for (kind, rate, each, head, fixed) in [
                    (Kind::Set, layout.set, set, 72.0, 3),
                    (Kind::Hash, layout.hash.at_most().0, hash, 72.0, 3),
                    (Kind::Zset, layout.zset, zset, 650.0, 6),
                ] {
                    let mut elements = 1_u64;
                    while elements * rate / 1_000 + fixed <= low {
                        elements += 1;
                    }
                    let reported = (head + elements as f64 * each).floor();
                    #[allow(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a small count"
                    )]
                    let bytes = reported as u64;
                    assert!(
                        may_matter(&kind, bytes, 5, &policy),
                        "{kind} of {elements} with {bytes} on {}",
                        policy.server.version
                    );
                }
            }
        }
    }

    #[test]
    fn the_bulk_of_small_keys_is_ignored() {
        for server in [redis(6, 2, 5), redis(7, 0, 15), redis(8, 2, 3), valkey(8, 1, 8), valkey(9, 1, 2)] {
            let policy = policy(server);
            for (kind, bytes) in [
                (Kind::String, 64),
                (Kind::String, 6 << 20),
                (Kind::Set, 600),
                (Kind::Hash, 500),
                (Kind::Zset, 1_200),
                (Kind::List, 230),
                (Kind::Stream, 500),
            ] {
                assert!(!may_matter(&kind, bytes, 5, &policy), "{kind} {bytes} on {}", policy.server.version);
            }
        }
    }

    #[test]
    fn what_is_large_or_unknown_always_may_matter() {
        let policy = policy(redis(7, 0, 15));
        for kind in [Kind::String, Kind::Set, Kind::Hash, Kind::Stream, Kind::VectorSet] {
            assert!(may_matter(&kind, 7 << 20, 5, &policy), "{kind}");
        }
        assert!(may_matter(&Kind::Other("ReJSON-RL".into()), 0, 5, &policy));
        assert_eq!(level(64, &policy.thresholds), Level::None);
    }

    #[test]
    fn a_server_that_was_not_read_gets_the_widest_bound() {
        let known = least_bytes(&Kind::Set, 5, &policy(redis(8, 8, 0)));
        let unread = least_bytes(&Kind::Set, 5, &policy(redis(8, 10, 0)));
        assert!(unread < known, "{unread} {known}");
    }
}
