//! A rough size for servers that refuse MEMORY USAGE, from length and encoding.
//!
//! It counts what the encoding itself takes for each element (internals: dictEntry 24, robj 16, sds
//! header and its size class, skiplist node) and a guess of 16 bytes for the content of an element,
//! which no counter tells. Right to a factor of a few; the basis says `modelled` wherever it is shown.

use crate::engine::key::{Encoding, Kind};

/// Guessed content of an element, in bytes.
const CONTENT_BYTES: u64 = 16;
/// The key's own sds, dict entry and object, in bytes.
const KEY_BYTES: u64 = 72;

/// Returns a rough size in bytes. `None`: nothing is known to model it from.
pub(super) fn modelled_bytes(kind: &Kind, encoding: Option<&Encoding>, elements: u64) -> Option<u64> {
    let per_element = match (kind, encoding) {
        (Kind::String, _) => 1,
        (_, Some(Encoding::Intset)) => 8,
        (_, Some(Encoding::Listpack | Encoding::ListpackEx | Encoding::Ziplist | Encoding::Quicklist))
        | (Kind::List, None) => CONTENT_BYTES + 2,
        // dictEntry 24, bucket 8, sds header in its size class.
        (Kind::Set, _) => CONTENT_BYTES + 40,
        (Kind::Hash, _) => 2 * CONTENT_BYTES + 48,
        (Kind::Zset, _) => CONTENT_BYTES + 24 + 8 + 48,
        (Kind::Stream, _) => 2 * CONTENT_BYTES,
        (Kind::List | Kind::VectorSet | Kind::Array | Kind::Other(_), _) => return None,
    };
    Some(KEY_BYTES.saturating_add(elements.saturating_mul(per_element)))
}
