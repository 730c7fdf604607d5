//! LZF: copies of what was seen up to 8 KB ago, and literals in between. Fast, and good enough.
//!
//! ```text
//! 000nnnnn            n + 1 literals follow
//! lllooooo oooooooo   copy l + 2 bytes from o + 1 back            (l from 1 to 6)
//! 111ooooo llllllll oooooooo   the same with l + 7
//! ```

const OFFSET_MAX: usize = 1 << 13;
const COPY_MAX: usize = 264;
const LITERALS_MAX: usize = 32;
const HASH_BITS: u32 = 14;

/// Compresses `input`, or returns `None` if that does not save at least four bytes.
pub(super) fn compress(input: &[u8]) -> Option<Vec<u8>> {
    let limit = input.len().checked_sub(4)?;
    let mut output = Vec::with_capacity(limit);
    // Where a triple of bytes was seen last, plus one.
    let mut seen = vec![0usize; 1 << HASH_BITS];
    let (mut at, mut literals) = (0, 0);
    while at + 2 < input.len() {
        let slot = hash(&input[at..]);
        let candidate = std::mem::replace(&mut seen[slot], at + 1).checked_sub(1);
        let length =
            candidate.filter(|from| at - from <= OFFSET_MAX).map_or(0, |from| common(input, from, at));
        if length < 3 {
            at += 1;
            continue;
        }
        push_literals(&mut output, &input[literals..at]);
        let offset = at - candidate.unwrap_or(0) - 1;
        let [low, high, ..] = offset.to_le_bytes();
        match length - 2 {
            short @ ..7 => output.push(byte(short) << 5 | high),
            long => output.extend_from_slice(&[7 << 5 | high, byte(long - 7)]),
        }
        output.push(low);
        for inside in at + 1..at + length {
            if inside + 2 < input.len() {
                seen[hash(&input[inside..])] = inside + 1;
            }
        }
        at += length;
        literals = at;
        if output.len() > limit {
            return None;
        }
    }
    push_literals(&mut output, &input[literals..]);
    (output.len() <= limit).then_some(output)
}

/// Restores `len` bytes, or returns `None` if `input` is not exactly that.
pub(super) fn decompress(input: &[u8], len: usize) -> Option<Vec<u8>> {
    // Three bytes give 264 at most: what claims more is a trap for the allocator.
    if len > input.len().checked_mul(COPY_MAX)? {
        return None;
    }
    let mut output = Vec::with_capacity(len);
    let mut input = input.iter().copied();
    while let Some(control) = input.next() {
        let high = usize::from(control & 0x1f);
        if control < 32 {
            for _ in 0..=high {
                output.push(input.next()?);
            }
        } else {
            let mut length = usize::from(control >> 5) + 2;
            if length == 9 {
                length += usize::from(input.next()?);
            }
            let offset = high << 8 | usize::from(input.next()?);
            let from = output.len().checked_sub(offset + 1)?;
            // Byte by byte: a copy may overlap what it writes.
            for index in from..from + length {
                output.push(output[index]);
            }
        }
        if output.len() > len {
            return None;
        }
    }
    (output.len() == len).then_some(output)
}

fn push_literals(output: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(LITERALS_MAX) {
        output.push(byte(run.len() - 1));
        output.extend_from_slice(run);
    }
}

fn common(input: &[u8], from: usize, at: usize) -> usize {
    let pairs = input[from..].iter().zip(&input[at..]);
    pairs.take(COPY_MAX).take_while(|(a, b)| a == b).count()
}

fn hash(bytes: &[u8]) -> usize {
    let word = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
    (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

/// A length that is known to fit into a byte.
fn byte(value: usize) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out(input in prop::collection::vec(0u8..4, 0..3000)) {
            if let Some(small) = compress(&input) {
                prop_assert!(small.len() + 4 <= input.len());
                prop_assert_eq!(decompress(&small, input.len()), Some(input));
            }
        }

        #[test]
        fn noise_is_refused_or_fits(input in prop::collection::vec(any::<u8>(), 0..200), len in 0usize..5000) {
            if let Some(output) = decompress(&input, len) {
                prop_assert_eq!(output.len(), len);
            }
        }
    }

    #[test]
    fn a_long_run_shrinks_to_little() {
        let small = compress(&[b'x'; 10_000]).expect("a run compresses");
        assert!(small.len() < 200, "{}", small.len());
        assert_eq!(decompress(&small, 10_000), Some(vec![b'x'; 10_000]));
        assert_eq!(decompress(b"\x00a", usize::MAX), None);
    }
}
