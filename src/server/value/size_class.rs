//! What an allocation of `n` bytes really takes in Redis: the size classes of jemalloc, as Debian
//! builds it (16-byte steps at the bottom). Our own allocator may round otherwise; MEMORY USAGE
//! answers for the server that we imitate.

/// Returns the usable size of an allocation of `bytes`.
///
/// Steps of 16 up to 128, then four classes to each doubling: 160 192 224 256, 320 384 448 512, ...
pub const fn usable(bytes: usize) -> usize {
    if bytes <= 8 {
        return 8;
    }
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    let top = (bytes - 1).ilog2();
    bytes.next_multiple_of(1 << (top - 2))
}

/// Returns the usable size of a simple dynamic string of `len` bytes: header, text, NUL.
pub const fn sds(len: usize) -> usize {
    let header = if len < 32 {
        1
    } else if len < 1 << 8 {
        3
    } else if len < 1 << 16 {
        5
    } else if (len as u64) < 1 << 32 {
        9
    } else {
        17
    };
    usable(len + header + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_jemalloc() {
        let cases = [
            (1, 8),
            (9, 16),
            (17, 32),
            (100, 112),
            (128, 128),
            (129, 160),
            (161, 192),
            (257, 320),
            (513, 640),
            (4097, 5120),
            (8193, 10240),
            (64 << 20, 64 << 20),
            ((64 << 20) + 1, 80 << 20),
        ];
        for (bytes, class) in cases {
            assert_eq!(usable(bytes), class, "{bytes}");
        }
    }
}
