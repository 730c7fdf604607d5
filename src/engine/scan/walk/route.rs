//! Where SCAN goes next: on to the end, or to random places until the sample is full.

use crate::engine::live::Cursor;

/// Times in a row that a cursor may come back as it was sent. A real server never does that, but something
/// between may, for a while.
const REPEATS_MAX: u32 = 1000;

/// SCAN answers the cursor that it is asked with: it would go on for ever.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circular;

/// The way through a database.
pub(super) enum Route {
    /// Every page, to the end. Holds the cursor that was sent last, and how often it came back.
    Whole { sent: Cursor, repeats: u32 },
    /// Random pages.
    Sample { keys_left: u64, pages_left: u64 },
}

impl Route {
    /// Plans the way through a database of `keys` keys out of `keys_total` in the whole scan; `None` is
    /// unknown, and then each database gives a whole sample.
    pub(super) fn new(sample_keys: Option<u64>, keys: Option<u64>, keys_total: Option<u64>) -> Self {
        let Some(sample_keys) = sample_keys.filter(|sample| keys_total.is_none_or(|total| *sample < total))
        else {
            return Self::Whole { sent: Cursor::START, repeats: 0 };
        };
        let keys_left = match (keys, keys_total) {
            (Some(keys), Some(total)) => {
                // In u128, since both factors may be any u64.
                let part = (u128::from(sample_keys) * u128::from(keys)).div_ceil(u128::from(total.max(1)));
                u64::try_from(part).unwrap_or(u64::MAX)
            }
            _ => sample_keys,
        };
        // A table that is nearly empty gives few keys a page, and the same ones again.
        Self::Sample { keys_left, pages_left: keys_left.saturating_mul(4).saturating_add(16) }
    }

    /// Goes on with this page. A sample has no such place: each of its pages is at random.
    pub(super) fn from_cursor(cursor: Cursor) -> Self {
        Self::Whole { sent: cursor, repeats: 0 }
    }

    /// Returns the first cursor.
    pub(super) fn start(&self) -> Cursor {
        match self {
            Self::Whole { sent, .. } => *sent,
            Self::Sample { .. } => Cursor::random(),
        }
    }

    /// Returns the cursor after a page of so many new keys; `None` is the end.
    pub(super) fn next(&mut self, cursor: Cursor, keys: usize) -> Result<Option<Cursor>, Circular> {
        match self {
            Self::Whole { .. } if cursor == Cursor::START => Ok(None),
            Self::Whole { sent, repeats } => {
                *repeats = if cursor == *sent { *repeats + 1 } else { 0 };
                *sent = cursor;
                if *repeats > REPEATS_MAX { Err(Circular) } else { Ok(Some(cursor)) }
            }
            Self::Sample { keys_left, pages_left } => {
                *keys_left = keys_left.saturating_sub(keys as u64);
                *pages_left = pages_left.saturating_sub(1);
                Ok((*keys_left > 0 && *pages_left > 0).then(Cursor::random))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_page_is_not_the_end() {
        let mut route = Route::new(None, Some(10), Some(10));
        assert_eq!(route.next(Cursor(5), 0), Ok(Some(Cursor(5))));
        assert_eq!(route.next(Cursor(0), 3), Ok(None));
    }

    #[test]
    fn a_cursor_that_stays_where_it_is_ends_the_walk() {
        let mut route = Route::new(None, Some(10), Some(10));
        let pages = std::iter::from_fn(|| route.next(Cursor(7), 0).ok()).count();
        assert_eq!(pages, 1 + REPEATS_MAX as usize);
    }

    #[test]
    fn a_sample_ends_when_it_is_full_or_when_nothing_new_comes() {
        let mut route = Route::new(Some(100), Some(1000), Some(1000));
        assert!(route.next(Cursor(1), 60).is_ok_and(|next| next.is_some()));
        assert!(route.next(Cursor(0), 39).is_ok_and(|next| next.is_some()), "cursor 0 does not end a sample");
        assert_eq!(route.next(Cursor(1), 1), Ok(None));
        let mut route = Route::new(Some(1), Some(10), Some(10));
        let pages = std::iter::from_fn(|| route.next(Cursor(1), 0).ok().flatten()).count();
        assert_eq!(pages, 19);
    }

    #[test]
    fn a_sample_is_taken_where_the_number_of_keys_is_unknown() {
        assert!(matches!(Route::new(Some(5), None, None), Route::Sample { keys_left: 5, .. }));
    }
}
