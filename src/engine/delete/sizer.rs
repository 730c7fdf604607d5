//! How large the next chunk is: so that the server takes about a millisecond for it.
//!
//! Shrinks to a quarter at once, grows by half at a time: one chunk that is too large is seen by everybody,
//! one that is too small by nobody. But what is measured is a round trip, and where CPUs are scarce a single one
//! says more of them than of the chunk: an answer that is read late makes its chunk look dear, and the next one,
//! which came meanwhile, cheap. So the last few are taken together, without the dearest of them; only a very slow one
//! is believed by itself. A resize of the server's table makes single chunks dear (redis#3876: 95 ms for 20 fields).

use std::collections::VecDeque;
use std::time::Duration;

/// Time that a chunk should take the server.
pub(super) const CHUNK_TARGET: Duration = Duration::from_millis(1);
/// The most that it grows from one chunk to the next.
const GROWTH_MAX: f64 = 1.5;
/// And the least that is left of it.
const SHRINK_MAX: f64 = 0.25;
/// A chunk that takes so many times the target is dear, whatever the one before was.
const SURELY_DEAR: u32 = 8;

/// Chunks that are taken together.
const RECENT_MAX: usize = 8;

/// Sizes chunks.
#[derive(Debug, Clone)]
pub(super) struct ChunkSizer {
    size: u64,
    min: u64,
    max: u64,
    target: Duration,
    /// Elements and cost of the last chunks.
    recent: VecDeque<(u64, Duration)>,
}

impl ChunkSizer {
    /// Makes a sizer that begins with `first` elements and stays within bounds.
    pub(super) fn new(first: u64, min: u64, max: u64) -> Self {
        Self { size: first.clamp(min, max), min, max, target: CHUNK_TARGET, recent: VecDeque::new() }
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
        let is_surely_dear = cost > SURELY_DEAR * self.target;
        if is_surely_dear {
            self.recent.clear();
        }
        self.recent.push_back((elements, cost));
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        let believed = self.mean_cost_s();
        if is_surely_dear {
            self.recent.clear();
        }
        let fitting = self.target.as_secs_f64() / believed;
        let size = self.size as f64;
        // One more at least, or a chunk of one would never grow.
        let next = fitting.clamp(size * SHRINK_MAX, (size * GROWTH_MAX).max(size + 1.0));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and clamped")]
        let next = next as u64;
        self.size = next.max(1).clamp(self.min, self.max);
    }

    /// Returns what an element costs, in seconds: the mean of the last chunks without the dearest of them.
    fn mean_cost_s(&self) -> f64 {
        let each = |&(elements, cost): &(u64, Duration)| cost.as_secs_f64() / elements as f64;
        let dearest = self.recent.iter().map(each).fold(0.0, f64::max);
        let is_left_out = |chunk: &(u64, Duration)| self.recent.len() > 1 && each(chunk) >= dearest;
        let left_out = self.recent.iter().position(is_left_out);
        let kept = self.recent.iter().enumerate().filter(|(index, _)| Some(*index) != left_out);
        let (elements, cost) = kept
            .fold((0, Duration::ZERO), |(elements, cost), (_, chunk)| (elements + chunk.0, cost + chunk.1));
        cost.as_secs_f64() / elements.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_very_dear_chunk_shrinks_the_next_at_once_and_a_cheap_one_grows_it_slowly() {
        let mut sizer = ChunkSizer::new(400, 16, 4_000);
        sizer.observe(400, Duration::from_millis(100));
        assert_eq!(sizer.size(), 100);
        sizer.observe(100, Duration::from_micros(1));
        assert_eq!(sizer.size(), 150);
    }

    #[test]
    fn a_slow_chunk_is_believed_when_the_next_is_slow_as_well() {
        let mut sizer = ChunkSizer::new(400, 16, 4_000);
        sizer.observe(400, Duration::from_millis(1));
        sizer.observe(400, Duration::from_millis(4));
        assert_eq!(sizer.size(), 400);
        sizer.observe(400, Duration::from_millis(4));
        assert_eq!(sizer.size(), 160);
    }

    #[test]
    fn answers_that_are_read_late_and_early_in_turn_make_no_chunk_larger() {
        let mut sizer = ChunkSizer::new(1_000, 16, 20_000);
        for _ in 0..200 {
            // A microsecond for each, of which every other chunk seems to have taken all.
            let size = sizer.size();
            sizer.observe(size, Duration::from_micros(2 * size));
            sizer.observe(sizer.size(), Duration::from_micros(1));
            assert!(sizer.size() < 2_000, "{}", sizer.size());
        }
        assert!(sizer.size() > 500, "{}", sizer.size());
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
