//! CRC-64 with the polynomial of Jones, bit-reflected, as it closes every RDB file and dump.

const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9u64.reverse_bits();

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut word = index as u64;
        let mut bit = 0;
        while bit < 8 {
            word = if word & 1 == 1 { word >> 1 ^ POLYNOMIAL } else { word >> 1 };
            bit += 1;
        }
        table[index] = word;
        index += 1;
    }
    table
};

/// Returns the checksum of `bytes` after those that gave `crc`; start with 0.
pub(super) fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(crc, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        crc >> 8 ^ TABLE[usize::from(low ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_is_that_of_redis() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc64(crc64(0, b"1234"), b"56789"), crc64(0, b"123456789"));
    }
}
