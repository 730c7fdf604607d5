//! What to take a value for when `OBJECT ENCODING` was refused.

use crate::engine::key::{Encoding, Flavour, KeyFacts, Kind, ServerProfile, Version};

/// An encoding, and whether the server said it or we concluded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assumed {
    pub(super) encoding: Encoding,
    pub(super) told: bool,
}

/// Returns the encoding that the server told, else the only one that the count allows under the
/// server's thresholds, else nothing.
///
/// More elements than every compact encoding may hold leave only the table. Fewer leave both: one
/// long element is enough to make a table, and tables never shrink back.
pub(super) fn encoding(facts: &KeyFacts, server: &ServerProfile) -> Option<Assumed> {
    if let Some(encoding) = facts.encoding.clone() {
        return Some(Assumed { encoding, told: true });
    }
    let concluded = |encoding| Some(Assumed { encoding, told: false });
    match facts.kind {
        Kind::List if facts.list_nodes.is_some() || !lists_may_be_listpacks(server) => {
            concluded(Encoding::Quicklist)
        }
        Kind::Set | Kind::Hash if facts.elements? > compact_limit(&facts.kind, server) => {
            concluded(Encoding::Hashtable)
        }
        Kind::Zset if facts.elements? > compact_limit(&facts.kind, server) => concluded(Encoding::Skiplist),
        _ => None,
    }
}

/// Redis 7.2 and every Valkey may hold a short list in one listpack.
fn lists_may_be_listpacks(server: &ServerProfile) -> bool {
    server.flavour != Flavour::Redis || server.version >= Version::new(7, 2, 0)
}

/// Returns how many elements the compact encodings of this kind hold at the most.
fn compact_limit(kind: &Kind, server: &ServerProfile) -> u64 {
    // Name, name before 7.0, default.
    let settings: &[(&str, &str, u64)] = match kind {
        Kind::Set => &[
            ("set-max-intset-entries", "set-max-intset-entries", 512),
            ("set-max-listpack-entries", "set-max-listpack-entries", 128),
        ],
        Kind::Zset => &[("zset-max-listpack-entries", "zset-max-ziplist-entries", 128)],
        _ => &[("hash-max-listpack-entries", "hash-max-ziplist-entries", 512)],
    };
    let told = |name: &str| server.limits.settings.get(name)?.parse::<u64>().ok();
    settings
        .iter()
        .map(|(name, old, default)| told(name).or_else(|| told(old)).unwrap_or(*default))
        .max()
        .unwrap_or(0)
}
