//! `HyperLogLog`: how many different things there were, in 12 KB and within 1 %. Owns the bytes of
//! the string it lives in, which are those of Redis.
//!
//! # The idea
//!
//! Hash each element. Fourteen bits of the hash choose one of 16384 registers; of the rest, count
//! the position of the first 1 bit. Position 20 turns up once in a million hashes, so the largest
//! position seen tells the order of magnitude, and 16384 of them, averaged well, tell the number.
//! Adding the same element again changes nothing, and merging is taking the larger of two registers.
//!
//! # Two layouts
//!
//! ```text
//! "HYLL" | encoding | 0 0 0 | cached count, u64, top bit of the last byte set: stale | registers
//! dense   16384 registers of 6 bits, packed from the low bit up
//! sparse  00nnnnnn            1..64 registers of 0
//!         01nnnnnn nnnnnnnn   1..16384 registers of 0
//!         1vvvvvnn            1..4 registers of 1..32
//! ```
//!
//! A new one is sparse: a single run of 16384 zeros. It becomes dense for good when a register passes
//! 32 or the runs pass `hll-sparse-max-bytes`. We change a sparse one by reading all registers,
//! setting one and writing the runs anew: simpler than editing runs in place, and the same bytes up
//! to how neighbours of equal value are grouped.

const MAGIC: &[u8; 4] = b"HYLL";
const HEADER: usize = 16;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of the hash that are left for the position.
const POSITION_BITS: u32 = 64 - INDEX_BITS;
const DENSE_LEN: usize = HEADER + REGISTERS * 6 / 8;
const SPARSE_MAX_VALUE: u8 = 32;
const HASH_SEED: u64 = 0xadc8_3b19;

/// The registers of one `HyperLogLog`, unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers(Vec<u8>);

/// The string is not a `HyperLogLog`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HllError {
    /// It does not begin as one.
    WrongType,
    /// It begins as one and goes on as something else.
    Corrupt,
}

impl Default for Registers {
    fn default() -> Self {
        Self(vec![0; REGISTERS])
    }
}

impl Registers {
    /// Takes the larger of each pair of registers.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Estimates the number of different elements, by Ertl's formula: no bias tables, no case split.
    pub fn count(&self) -> u64 {
        let mut histogram = [0u32; 64];
        for register in &self.0 {
            histogram[usize::from(register & 63)] += 1;
        }
        let m = REGISTERS as f64;
        let top = POSITION_BITS as usize;
        let mut z = m * tau((m - f64::from(histogram[top + 1])) / m);
        for position in (1..=top).rev() {
            z = (z + f64::from(histogram[position])) * 0.5;
        }
        z += m * sigma(f64::from(histogram[0]) / m);
        // 0.5 / ln 2, the limit of alpha for many registers.
        let alpha = 0.721_347_520_444_481_7;
        let estimate = (alpha * m * m / z).round();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, far below 2^64"
        )]
        let estimate = estimate as u64;
        estimate
    }

    /// Writes the registers as a string: sparse if `sparse` and they fit, else dense.
    pub fn encode(&self, sparse: bool, sparse_max_bytes: usize) -> Vec<u8> {
        let runs = sparse.then(|| self.encode_sparse(sparse_max_bytes)).flatten();
        runs.unwrap_or_else(|| self.encode_dense())
    }

    fn encode_dense(&self) -> Vec<u8> {
        let mut bytes = header(DENSE, DENSE_LEN);
        bytes.resize(DENSE_LEN, 0);
        for (index, value) in self.0.iter().enumerate() {
            set_dense(&mut bytes[HEADER..], index, *value);
        }
        bytes
    }

    fn encode_sparse(&self, max_bytes: usize) -> Option<Vec<u8>> {
        let mut bytes = header(SPARSE, HEADER + 64);
        for run in self.0.chunk_by(|a, b| a == b) {
            let (value, mut left) = (run[0], run.len());
            while left > 0 {
                let taken = match value {
                    0 if left <= 64 => {
                        bytes.push(low_byte(left - 1));
                        left
                    }
                    0 => {
                        bytes.push(0x40 | low_byte((left - 1) >> 8));
                        bytes.push(low_byte(left - 1));
                        left
                    }
                    1..=SPARSE_MAX_VALUE => {
                        let taken = left.min(4);
                        bytes.push(0x80 | (value - 1) << 2 | low_byte(taken - 1));
                        taken
                    }
                    _ => return None,
                };
                left -= taken;
            }
        }
        (bytes.len() - HEADER <= max_bytes).then_some(bytes)
    }
}

/// Checks that a string begins as a `HyperLogLog` and has a length that fits.
///
/// # Errors
/// Fails if the string is not a `HyperLogLog`.
pub fn decode_header(bytes: &[u8]) -> Result<(), HllError> {
    check(bytes)
}

/// Reads the registers of a string.
///
/// # Errors
/// Fails if the string is not a `HyperLogLog`.
pub fn decode(bytes: &[u8]) -> Result<Registers, HllError> {
    check(bytes)?;
    let mut registers = Registers::default();
    let body = &bytes[HEADER..];
    if bytes[4] == DENSE {
        for (index, register) in registers.0.iter_mut().enumerate() {
            *register = get_dense(body, index);
        }
        return Ok(registers);
    }
    let mut at = 0;
    let mut body = body.iter();
    while let Some(&op) = body.next() {
        let (value, count) = match op {
            0..=0x3f => (0, usize::from(op) + 1),
            0x40..=0x7f => {
                let low = body.next().ok_or(HllError::Corrupt)?;
                (0, (usize::from(op & 0x3f) << 8 | usize::from(*low)) + 1)
            }
            _ => ((op >> 2 & 0x1f) + 1, usize::from(op & 3) + 1),
        };
        registers.0.get_mut(at..at + count).ok_or(HllError::Corrupt)?.fill(value);
        at += count;
    }
    if at == REGISTERS { Ok(registers) } else { Err(HllError::Corrupt) }
}

/// Makes an empty, sparse one.
pub fn empty() -> Vec<u8> {
    Registers::default().encode(true, usize::MAX)
}

/// Tells whether the registers are stored sparsely.
pub fn is_sparse(bytes: &[u8]) -> bool {
    bytes.get(4) == Some(&SPARSE)
}

/// Adds elements; tells whether any register changed.
///
/// # Errors
/// Fails if the string is not a `HyperLogLog`.
pub fn add<T: AsRef<[u8]>>(
    bytes: &mut Vec<u8>,
    elements: &[T],
    sparse_max_bytes: usize,
) -> Result<bool, HllError> {
    check(bytes)?;
    let mut changed = false;
    if is_sparse(bytes) {
        let mut registers = decode(bytes)?;
        for element in elements {
            let (index, position) = place(element.as_ref());
            if registers.0[index] < position {
                registers.0[index] = position;
                changed = true;
            }
        }
        if changed {
            *bytes = registers.encode(true, sparse_max_bytes);
        }
    } else {
        for element in elements {
            let (index, position) = place(element.as_ref());
            if get_dense(&bytes[HEADER..], index) < position {
                set_dense(&mut bytes[HEADER..], index, position);
                changed = true;
            }
        }
        if changed {
            bytes[HEADER - 1] |= 0x80;
        }
    }
    Ok(changed)
}

/// Returns the count that is stored with the registers, if it is still true.
pub fn cached_count(bytes: &[u8]) -> Option<u64> {
    let cache: [u8; 8] = *bytes.get(8..)?.first_chunk()?;
    (cache[7] & 0x80 == 0).then(|| u64::from_le_bytes(cache))
}

/// Stores a count with the registers.
pub fn cache_count(bytes: &mut [u8], count: u64) {
    if let Some(cache) = bytes.get_mut(8..HEADER) {
        cache.copy_from_slice(&count.to_le_bytes());
    }
}

fn check(bytes: &[u8]) -> Result<(), HllError> {
    let known = bytes.len() >= HEADER && bytes.starts_with(MAGIC) && bytes[4] <= SPARSE;
    if known && (bytes[4] == SPARSE || bytes.len() == DENSE_LEN) { Ok(()) } else { Err(HllError::WrongType) }
}

fn header(encoding: u8, capacity: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(capacity);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[encoding, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]);
    bytes
}

/// Returns the register of an element and the position of the first 1 bit in the rest of its hash.
#[allow(clippy::cast_possible_truncation, reason = "masked to 14 bits; a position is at most 51")]
fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, HASH_SEED);
    let index = hash as usize & (REGISTERS - 1);
    // A guard bit above the rest ends the count.
    let rest = hash >> INDEX_BITS | 1 << POSITION_BITS;
    (index, rest.trailing_zeros() as u8 + 1)
}

fn get_dense(body: &[u8], index: usize) -> u8 {
    let bit = index * 6;
    let low = u16::from(body[bit / 8]);
    let high = u16::from(body.get(bit / 8 + 1).copied().unwrap_or(0));
    low_byte(usize::from((low | high << 8) >> (bit % 8))) & 63
}

fn set_dense(body: &mut [u8], index: usize, value: u8) {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let [mask, value] = [63u16, u16::from(value)].map(|bits| (bits << shift).to_le_bytes());
    for offset in 0..2 {
        if let Some(slot) = body.get_mut(byte + offset) {
            *slot = *slot & !mask[offset] | value[offset];
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the low byte is what is asked for")]
fn low_byte(value: usize) -> u8 {
    value as u8
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before.to_bits() == z.to_bits() {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if before.to_bits() == z.to_bits() {
            return z / 3.0;
        }
    }
}

/// `MurmurHash64A`, little-endian on every machine.
fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> R;
        hash = (hash ^ word.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> R
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u32) -> Vec<u8> {
        let mut bytes = empty();
        for n in 0..count {
            add(&mut bytes, &[format!("element:{n}")], 3000).expect("it is one");
        }
        bytes
    }

    #[test]
    fn an_empty_one_is_eighteen_bytes() {
        let bytes = empty();
        assert_eq!(bytes.len(), 18);
        assert_eq!(bytes[16..], [0x7f, 0xff]);
        assert_eq!(decode(&bytes).map(|r| r.count()), Ok(0));
    }

    #[test]
    fn estimates_are_within_two_percent() {
        for count in [1, 10, 100, 1000, 20_000] {
            let estimate = decode(&filled(count)).expect("it is one").count();
            let error = (estimate as f64 - f64::from(count)).abs() / f64::from(count);
            assert!(error < 0.02, "{estimate} for {count}");
        }
    }

    #[test]
    fn it_becomes_dense_past_the_limit_and_keeps_its_registers() {
        let sparse = filled(500);
        assert!(is_sparse(&sparse));
        let registers = decode(&sparse).expect("it is one");
        let dense = registers.encode(false, 0);
        assert_eq!(dense.len(), DENSE_LEN);
        assert_eq!(decode(&dense), Ok(registers));
        assert!(!is_sparse(&filled(5000)));
    }

    #[test]
    fn adding_again_changes_nothing() {
        for mut bytes in [filled(100), filled(5000)] {
            let before = bytes.clone();
            assert_eq!(add(&mut bytes, &["element:7"], 3000), Ok(false));
            assert_eq!(bytes, before);
        }
    }

    #[test]
    fn other_strings_are_refused() {
        assert_eq!(decode(b"foo"), Err(HllError::WrongType));
        assert_eq!(decode(b"HYLL\x00aaaaaaaaaaaaaaaaa"), Err(HllError::WrongType));
        let mut broken = empty();
        broken.push(0);
        assert_eq!(decode(&broken), Err(HllError::Corrupt));
        broken.truncate(17);
        assert_eq!(decode(&broken), Err(HllError::Corrupt));
    }
}
