//! How long everybody waits if a value is freed by the thread that runs commands. A prediction.
//!
//! Three things cost time, and the bench `stall` (docs/benchmarks/, five servers) tells them apart:
//!
//! - **Frees.** The first tens of thousands are cheap, because what they touch is in the cache; then each
//!   costs a cache miss, and in the end a miss in the address translation as well. So the price is marginal,
//!   in three steps ([`FREE_NS`]): 10 000 frees take 0.2 ms and a million 101 ms, not 20.
//!   Lists and streams are freed in the order in which they were written, and never come to the third step.
//! - **Room.** A table frees its elements in the order of their hashes, which is no order in memory; the more
//!   room each takes, the fewer share a page: [`ROOM_NS`] for each doubling of the mean above 64 bytes.
//! - **Pages.** Memory that goes back to the operating system is unmapped page by page, there and then.
//!   jemalloc >= 5.2 does so for each block in a size class from 8 MiB up; 7 MiB and the string's header are
//!   already in that class, and a 6 MiB string costs nothing. Smaller blocks pay too, a little less, once
//!   there are many of them.
//!
//! What it cannot do: know your machine. The same bench on another day and host gave 0.13 ms per MiB and
//! twice the price of a free. Read the result as the right power of ten. jemalloc before 5.2, which Redis up
//! to 6.2 builds in, gives pages back later and not in DEL (512 MB in 4 us); packages of those versions use
//! newer ones, and we predict the dearer and say so ([`pages_may_be_kept`]).
//!
//! The inverse, [`frees_in`], gives the one scale for levels: whatever stalls as long as a hundred thousand
//! small frees is as bad as they are, be it one string.

use crate::engine::key::{Allocator, Encoding, KeyFacts, Kind, ServerProfile, Version};

use super::assume;
use super::effort::is_redis_before;

/// Marginal price of a free in nanoseconds, up to so many frees. Source: docs/benchmarks/, `stall.csv`.
const FREE_NS: [(u64, f64); 3] = [(30_000, 20.0), (300_000, 50.0), (u64::MAX, 125.0)];
/// The same where they are freed in the order of their addresses, more or less.
const FREE_IN_ORDER_NS: [(u64, f64); 2] = [(30_000, 20.0), (u64::MAX, 50.0)];

/// Price in nanoseconds of each doubling of a block's size above [`ROOM_FROM_BYTES`].
const ROOM_NS: f64 = 60.0;
const ROOM_FROM_BYTES: f64 = 64.0;

/// From here on a block is unmapped when it is freed: 7 MiB with its header falls in the 8 MiB class.
pub(super) const LARGE_BLOCK_BYTES: u64 = 7 << 20;
/// Milliseconds per MiB of such blocks. Measured: 0.030 to 0.047.
const LARGE_BLOCK_MS_PER_MIB: f64 = 0.04;

/// Smaller blocks pay for what is freed beyond this.
const RETAINED_BYTES: u64 = 8 << 20;
/// Milliseconds per MiB of blocks of 1 KiB to 7 MiB. Measured: 0.015 to 0.036.
const MIDDLE_BLOCK_MS_PER_MIB: f64 = 0.025;
const MIDDLE_BLOCK_BYTES: u64 = 1 << 10;

/// Below this a stall makes no key worse than the number of its frees: room costs cache misses, and what
/// is freed in so short a time is in the cache. It also keeps [`super::may_matter`] true, which knows the
/// fewest bytes for a number of frees and not for a price.
const NEGLIGIBLE_MS: f64 = 0.05;

const NS_PER_MS: f64 = 1e6;
const MIB: f64 = (1 << 20) as f64;

/// A predicted stall.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stall {
    /// All of it, in milliseconds.
    pub(super) ms: f64,
    /// What of it is pages going back to the operating system.
    pub(super) blocks_ms: f64,
    /// The number of small frees that would take as long.
    pub(super) equivalent_allocations: u64,
}

/// Predicts the stall of freeing this value, which takes so many frees, on the command thread.
pub(super) fn predict(facts: &KeyFacts, allocations: u64, server: &ServerProfile) -> Stall {
    let (blocks, bytes) = blocks(facts, server).unwrap_or((1, 0));
    let mean = bytes / blocks.max(1);
    let scattered = matches!(facts.kind, Kind::Set | Kind::Hash | Kind::Zset | Kind::VectorSet);
    let (frees_ms, room_ms) = if scattered {
        let doublings = (mean as f64 / ROOM_FROM_BYTES).log2().max(0.0);
        (frees_ms(allocations, &FREE_NS), blocks as f64 * ROOM_NS * doublings / NS_PER_MS)
    } else {
        (frees_ms(allocations, &FREE_IN_ORDER_NS), 0.0)
    };
    let blocks_ms = if mean >= LARGE_BLOCK_BYTES {
        bytes as f64 / MIB * LARGE_BLOCK_MS_PER_MIB
    } else if mean >= MIDDLE_BLOCK_BYTES {
        bytes.saturating_sub(RETAINED_BYTES) as f64 / MIB * MIDDLE_BLOCK_MS_PER_MIB
    } else {
        0.0
    };
    let ms = frees_ms + room_ms + blocks_ms;
    let stalls_like = if ms < NEGLIGIBLE_MS { 0 } else { frees_in(ms) };
    // Never below the count itself, whatever the rounding.
    Stall { ms, blocks_ms, equivalent_allocations: stalls_like.max(allocations) }
}

/// Returns whether this server's allocator may keep the pages, so that large blocks cost nothing.
pub(super) fn pages_may_be_kept(server: &ServerProfile) -> bool {
    server.allocator != Allocator::Libc && is_redis_before(server, Version::new(7, 0, 0))
}

/// Returns how many blocks the bulk of a value's bytes lies in, and those bytes.
fn blocks(facts: &KeyFacts, server: &ServerProfile) -> Option<(u64, u64)> {
    let bytes = facts.bytes().or_else(|| if facts.kind == Kind::String { facts.elements } else { None })?;
    let count = match facts.kind {
        Kind::String => 1,
        Kind::Stream => facts.stream?.radix_tree_keys,
        Kind::VectorSet | Kind::Array => facts.elements?,
        Kind::Other(_) => return None,
        Kind::List | Kind::Set | Kind::Zset | Kind::Hash => match assume::encoding(facts, server)?.encoding {
            Encoding::Quicklist => facts.list_nodes?.nodes,
            Encoding::Hashtable | Encoding::Skiplist => facts.elements?,
            _ => 1,
        },
    };
    Some((count.max(1), bytes))
}

/// Returns the milliseconds that so many small frees take.
fn frees_ms(frees: u64, prices: &[(u64, f64)]) -> f64 {
    let mut from = 0;
    let mut ns = 0.0;
    for &(up_to, price) in prices {
        ns += frees.clamp(from, up_to).saturating_sub(from) as f64 * price;
        from = up_to;
    }
    ns / NS_PER_MS
}

/// Returns how many small frees take so many milliseconds: the inverse of [`frees_ms`] for a table.
pub(super) fn frees_in(ms: f64) -> u64 {
    let mut left_ns = ms * NS_PER_MS;
    let mut frees = 0_u64;
    let mut from = 0;
    for (up_to, price) in FREE_NS {
        let room_ns = (up_to - from) as f64 * price;
        // `as` saturates, which is what a stall of years deserves.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
        let fitting = (left_ns.min(room_ns) / price).round() as u64;
        frees = frees.saturating_add(fitting);
        left_ns -= room_ns;
        if left_ns <= 0.0 {
            break;
        }
        from = up_to;
    }
    frees
}

#[cfg(test)]
mod tests {
    use super::super::allocations::allocations;
    use super::super::samples::{collection, list, redis, sized, stream, string, valkey};
    use super::*;
    use crate::engine::key::StreamFacts;

    fn stall_of(facts: &KeyFacts, server: &ServerProfile) -> Stall {
        let count = allocations(facts, server).count.expect("known");
        predict(facts, count, server)
    }

    /// Sizes and medians (ms) of docs/benchmarks/, `stall.csv`: a choice of its cases, by hand, and the same data
    /// that the constants were fitted to. It guards the constants; it does not prove them elsewhere. The cases
    /// that are off by more are in docs/risk-model.md.
    #[test]
    fn predictions_keep_within_a_factor_of_two_and_a_half_of_what_was_measured() {
        let set = |n, bytes| sized(collection(Kind::Set, Encoding::Hashtable, n), bytes);
        let hash = |n, bytes| sized(collection(Kind::Hash, Encoding::Hashtable, n), bytes);
        let zset = |n, bytes| sized(collection(Kind::Zset, Encoding::Skiplist, n), bytes);
        for (server, facts, measured_ms) in measured_cases(set, hash, zset) {
            let predicted = stall_of(&facts, &server).ms;
            let off = (predicted / measured_ms).max(measured_ms / predicted);
            assert!(
                off < 2.5,
                "{} {} {} {:?}: {predicted:.2} ms against {measured_ms} ms",
                server.flavour,
                server.version,
                facts.kind,
                facts.elements
            );
        }
    }

    fn pending(entries: u64) -> KeyFacts {
        stream(StreamFacts {
            radix_tree_nodes: entries / 50,
            radix_tree_keys: entries / 100,
            groups: 1,
            first_group_pending: entries,
            pending: entries,
            consumers: 1,
        })
    }

    type Make = fn(u64, u64) -> KeyFacts;

    fn measured_cases(set: Make, hash: Make, zset: Make) -> Vec<(ServerProfile, KeyFacts, f64)> {
        let list = |nodes, bytes| sized(list(nodes, nodes), bytes);
        vec![
            (redis(6, 2, 5), set(100_000, 5_573_008), 7.2),
            (redis(6, 2, 5), hash(100_000, 6_648_720), 11.8),
            (redis(6, 2, 5), zset(100_000, 9_049_408), 15.9),
            (redis(6, 2, 5), set(1_000_000, 48_388_752), 208.8),
            (redis(6, 2, 5), hash(1_000_000, 64_388_752), 241.3),
            (redis(6, 2, 5), zset(1_000_000, 91_589_440), 326.2),
            (redis(6, 2, 5), set(100_000, 26_373_008), 14.8),
            (redis(7, 0, 15), set(100_000, 5_573_008), 13.3),
            (redis(7, 0, 15), hash(100_000, 6_648_720), 18.8),
            (redis(7, 0, 15), zset(100_000, 9_049_408), 21.5),
            (redis(7, 0, 15), set(1_000_000, 48_388_752), 306.4),
            (redis(7, 0, 15), hash(1_000_000, 64_388_752), 352.7),
            (redis(7, 0, 15), zset(1_000_000, 91_589_440), 371.6),
            (redis(7, 0, 15), set(100_000, 131_972_968), 38.6),
            (redis(7, 0, 15), hash(64, 671_091_816), 23.0),
            (redis(7, 0, 15), list(64, 671_091_288), 23.7),
            (redis(7, 0, 15), hash(64, 335_547_496), 7.1),
            (redis(7, 0, 15), list(64, 335_546_968), 8.5),
            (redis(7, 0, 15), string(32 << 20), 1.2),
            (redis(7, 0, 15), string(64 << 20), 2.8),
            (redis(7, 0, 15), string(256 << 20), 9.9),
            (redis(7, 0, 15), string(511 << 20), 21.3),
            (redis(7, 0, 15), pending(100_000), 13.2),
            (valkey(8, 1, 8), pending(100_000), 19.9),
            (valkey(9, 1, 2), pending(100_000), 22.8),
            (redis(7, 0, 15), list(14_286, 117_602_440), 1.4),
            (redis(7, 0, 15), list(20_000, 205_600_088), 8.8),
            (redis(8, 2, 3), list(20_000, 205_600_064), 11.3),
            (redis(8, 2, 3), set(1_000_000, 48_388_688), 83.8),
            (redis(8, 2, 3), hash(1_000_000, 64_388_688), 232.0),
            (redis(8, 2, 3), zset(1_000_000, 83_589_376), 321.9),
            (redis(8, 2, 3), string(511 << 20), 19.7),
            (valkey(8, 1, 8), set(1_000_000, 50_891_424), 141.7),
            (valkey(8, 1, 8), hash(1_000_000, 66_891_424), 176.7),
            (valkey(8, 1, 8), zset(1_000_000, 81_466_216), 258.6),
            (valkey(8, 1, 8), hash(64, 536_875_808), 20.6),
        ]
    }

    #[test]
    fn the_price_of_frees_and_its_inverse_agree() {
        for frees in [0, 1, 64, 30_000, 30_001, 100_000, 300_000, 1_000_000, 50_000_000] {
            assert_eq!(frees_in(frees_ms(frees, &FREE_NS)), frees);
        }
        for (frees, ms) in [(10_000, 0.2), (100_000, 4.1), (1_000_000, 101.6)] {
            assert!((frees_ms(frees, &FREE_NS) - ms).abs() < 1e-9, "{frees}");
        }
    }

    #[test]
    fn a_string_pays_for_its_pages_from_seven_mebibytes() {
        let server = redis(7, 0, 15);
        assert!(stall_of(&string(6 << 20), &server).ms < 0.01);
        assert!(stall_of(&string(7 << 20), &server).blocks_ms > 0.2);
    }

    #[test]
    fn a_list_of_a_million_small_numbers_is_no_stall() {
        let facts = sized(list(1_600, 1_000_000), 13 << 20);
        assert!(stall_of(&facts, &redis(7, 0, 15)).ms < 0.5);
    }
}
