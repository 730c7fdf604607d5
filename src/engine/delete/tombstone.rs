//! The name under which a key dies in pieces, so that no reader ever sees half a collection.
//!
//! RENAME wants both names in one slot of a cluster, whatever braces the key's name has. The slot of
//! `bigkeys:tombstone:{17}:...` is that of `17`, and among the numbers there is one for each slot: 16 384
//! tries find it in the mean.

use crate::engine::key::KeyName;

/// Beginning of every tombstone's name.
pub const TOMBSTONE_PREFIX: &str = "bigkeys:tombstone:";

/// Numbers among which there is one for each slot.
const TAGS_MAX: u64 = 1_000_000;

/// Returns the tombstone of the key with this number in a run. No two runs have one in common.
pub(super) fn tombstone(key: &KeyName, run_id: &str, seq: u64) -> KeyName {
    let slot = key.slot();
    let tag = (0..TAGS_MAX)
        .map(|number: u64| number.to_string())
        .find(|tag| KeyName::from(tag.as_str()).slot() == slot)
        .expect("CRC16 reaches every slot with numbers of six digits");
    KeyName::from(format!("{TOMBSTONE_PREFIX}{{{tag}}}:{run_id}:{seq}").as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_in_the_same_slot_whatever_the_name() {
        let long = "k".repeat(100_000);
        let odd =
            ["", "a", "{", "}", "{}", "{}x", "{a}b", "a{b", "}{", "{{a}}", "x{}{y}", "\u{e9}{\n}", &long];
        for name in odd {
            let key = KeyName::from(name);
            assert_eq!(tombstone(&key, "0123456789abcdef", 7).slot(), key.slot(), "{key:?}");
        }
        let binary = KeyName::from(&[0xff, b'{', 0, b'}', 0xfe][..]);
        assert_eq!(tombstone(&binary, "r", 0).slot(), binary.slot());
    }

    #[test]
    fn two_keys_or_two_runs_never_share_one() {
        let key = KeyName::from("a");
        assert_ne!(tombstone(&key, "run1", 1), tombstone(&key, "run1", 2));
        assert_ne!(tombstone(&key, "run1", 1), tombstone(&key, "run2", 1));
    }
}
