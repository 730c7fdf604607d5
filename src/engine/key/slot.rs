//! The cluster slot of a key: CRC16 of its hash tag, modulo 16384.
//!
//! Source: the Redis cluster specification, appendix A (CRC16-CCITT as in XMODEM: polynomial 0x1021,
//! initial value 0, nothing reflected; check value of "123456789" is 0x31C3), and its "Hash tags".

use super::KeyName;

/// Number of slots of a cluster.
pub const SLOTS: u16 = 16_384;

impl KeyName {
    /// Returns the slot that a cluster keeps this key in.
    pub fn slot(&self) -> u16 {
        crc16(hash_tag(self.as_bytes())) % SLOTS
    }
}

/// Returns what is hashed: the text in the first braces where there is any, else the whole name.
fn hash_tag(name: &[u8]) -> &[u8] {
    let Some(open) = name.iter().position(|byte| *byte == b'{') else { return name };
    let tag = &name[open + 1..];
    match tag.iter().position(|byte| *byte == b'}') {
        Some(length) if length > 0 => &tag[..length],
        _ => name,
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_cluster_keyslot() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // As CLUSTER KEYSLOT answers.
        for (key, slot) in [("foo", 12_182), ("", 0), ("{foo}bar", 12_182), ("a{foo}{bar}", 12_182)] {
            assert_eq!(KeyName::from(key).slot(), slot, "{key}");
        }
        assert_eq!(KeyName::from("{}foo").slot(), crc16(b"{}foo") % SLOTS);
        assert_eq!(KeyName::from("{foo").slot(), crc16(b"{foo") % SLOTS);
    }
}
