//! `SipHash` with a secret seed, so that a client cannot choose keys that all land in one bucket.
//!
//! One round per word and two at the end, which is what Redis runs: enough against flooding, and
//! half the price of the 2-4 that the paper recommends for authentication.

/// The secret half of the hash: one per server, drawn at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashSeed {
    k0: u64,
    k1: u64,
}

impl HashSeed {
    /// Makes a seed from two words of randomness.
    pub const fn new(k0: u64, k1: u64) -> Self {
        Self { k0, k1 }
    }

    /// Returns the 64-bit hash of `bytes` under this seed.
    pub fn hash(self, bytes: &[u8]) -> u64 {
        siphash::<1, 2>(self, bytes)
    }
}

fn siphash<const C: usize, const D: usize>(seed: HashSeed, bytes: &[u8]) -> u64 {
    let mut state = [
        seed.k0 ^ 0x736f_6d65_7073_6575,
        seed.k1 ^ 0x646f_7261_6e64_6f6d,
        seed.k0 ^ 0x6c79_6765_6e65_7261,
        seed.k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        absorb::<C>(&mut state, u64::from_le_bytes(*word));
    }
    let mut last = [0u8; 8];
    last[..rest.len()].copy_from_slice(rest);
    absorb::<C>(&mut state, u64::from_le_bytes(last) | (bytes.len() as u64) << 56);
    state[2] ^= 0xff;
    for _ in 0..D {
        round(&mut state);
    }
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn absorb<const C: usize>(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    for _ in 0..C {
        round(state);
    }
    state[0] ^= word;
}

fn round([v0, v1, v2, v3]: &mut [u64; 4]) {
    *v0 = v0.wrapping_add(*v1);
    *v1 = v1.rotate_left(13) ^ *v0;
    *v0 = v0.rotate_left(32);
    *v2 = v2.wrapping_add(*v3);
    *v3 = v3.rotate_left(16) ^ *v2;
    *v0 = v0.wrapping_add(*v3);
    *v3 = v3.rotate_left(21) ^ *v0;
    *v2 = v2.wrapping_add(*v1);
    *v1 = v1.rotate_left(17) ^ *v2;
    *v2 = v2.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_four_gives_the_vector_of_the_paper() {
        let seed = HashSeed::new(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(siphash::<2, 4>(seed, &message), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn seeds_matter() {
        assert_ne!(HashSeed::new(1, 2).hash(b"key"), HashSeed::new(1, 3).hash(b"key"));
    }
}
