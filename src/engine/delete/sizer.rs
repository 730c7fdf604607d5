//! How large the next chunk is: so that the server takes about a millisecond for it.
//!
//! Shrinks to a quarter at once, grows by half at a time: one chunk that is too large is seen by everybody,
//! one that is too small by nobody. Not to less than a quarter, since one slow answer may be the network's. A resize of the server's table makes single chunks dear (redis#3876: 95 ms for
//! 20 fields), so the size follows each measurement.

use std::time::Duration;

/// Time that a chunk should take the server.
pub(super) const CHUNK_TARGET: Duration = Duration::from_millis(1);
/// The most that it grows from one chunk to the next.
const GROWTH_MAX: f64 = 1.5;
/// And the least that is left of it.
const SHRINK_MAX: f64 = 0.25;

/// Sizes chunks.
#[derive(Debug, Clone)]
pub(super) struct ChunkSizer {
    size: u64,
    min: u64,
    max: u64,
    target: Duration,
}

impl ChunkSizer {
    /// Makes a sizer that begins with `first` elements and stays within bounds.
    pub(super) fn new(first: u64, min: u64, max: u64) -> Self {
        Self { size: first.clamp(min, max), min, max, target: CHUNK_TARGET }
    }

    /// Returns the size of the next chunk.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Takes what a chunk of so many elements cost.
    pub(super) fn observe(&mut self, elements: u64, cost: Duration) {
        if elements == 0 {
            // Nothing came back, and yet it took time: a table with long runs of empty buckets.
            if cost > self.target {
                self.size = (self.size / 2).max(self.min);
            }
            return;
        }
        let cost = cost.max(Duration::from_micros(1));
        let fitting = elements as f64 * self.target.as_secs_f64() / cost.as_secs_f64();
        let size = self.size as f64;
        // One more at least, or a chunk of one would never grow.
        let next = fitting.clamp(size * SHRINK_MAX, (size * GROWTH_MAX).max(size + 1.0));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and clamped")]
        let next = next as u64;
        self.size = next.max(1).clamp(self.min, self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dear_chunk_shrinks_the_next_at_once_and_a_cheap_one_grows_it_slowly() {
        let mut sizer = ChunkSizer::new(400, 16, 4_000);
        sizer.observe(400, Duration::from_millis(2));
        assert_eq!(sizer.size(), 200);
        sizer.observe(200, Duration::from_secs(1));
        assert_eq!(sizer.size(), 50);
        sizer.observe(50, Duration::from_micros(1));
        assert_eq!(sizer.size(), 75);
    }

    #[test]
    fn a_chunk_of_one_grows_again() {
        let mut sizer = ChunkSizer::new(1, 1, 4_000);
        sizer.observe(1, Duration::from_micros(100));
        assert_eq!(sizer.size(), 2);
    }

    #[test]
    fn nothing_that_is_slow_shrinks_it_for_ever() {
        let mut sizer = ChunkSizer::new(100, 16, 4_000);
        sizer.observe(100, Duration::from_millis(1));
        assert_eq!(sizer.size(), 100);
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut sizer = ChunkSizer::new(1, 16, 64);
        assert_eq!(sizer.size(), 16);
        for _ in 0..20 {
            sizer.observe(sizer.size(), Duration::from_nanos(1));
        }
        assert_eq!(sizer.size(), 64);
        sizer.observe(64, Duration::from_secs(10));
        sizer.observe(16, Duration::from_secs(10));
        assert_eq!(sizer.size(), 16);
    }

    #[test]
    fn slow_pages_of_nothing_shrink_it_too() {
        let mut sizer = ChunkSizer::new(1_000, 16, 4_000);
        sizer.observe(0, Duration::from_millis(8));
        assert_eq!(sizer.size(), 500);
    }
}
