//! Random members for SRANDMEMBER, HRANDFIELD and ZRANDMEMBER. They share the meaning of their count:
//! positive gives different members and no more than there are, negative allows repeats.

use std::collections::HashSet;
use std::hash::Hash;

use super::error::CommandError;
use crate::server::resp::Args;
use crate::server::value::random::Random;

/// Repeats one reply may hold. Redis has no bound here and runs out of memory instead.
const REPEATS_MAX: u64 = 1 << 26;

/// How many random members were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Up to so many different ones.
    Different(usize),
    /// Exactly so many, repeats allowed.
    Repeats(usize),
}

impl Wanted {
    pub(super) fn parse(args: Args<'_>, index: usize) -> Result<Wanted, CommandError> {
        let count = args.int(index)?;
        if count < 0 && count.unsigned_abs() > REPEATS_MAX {
            return Err(CommandError::OUT_OF_RANGE);
        }
        let size = usize::try_from(count.unsigned_abs()).map_err(|_| CommandError::OUT_OF_RANGE)?;
        Ok(if count < 0 { Wanted::Repeats(size) } else { Wanted::Different(size) })
    }
}

/// Draws `count` different items of `len`. Few of many are drawn one by one, and again on a repeat;
/// many of few are dealt from a shuffled deck of all.
pub(super) fn different<T: Clone + Eq + Hash>(
    count: usize,
    len: usize,
    random: &mut Random,
    all: impl FnOnce() -> Vec<T>,
    mut draw: impl FnMut(&mut Random) -> Option<T>,
) -> Vec<T> {
    if count.saturating_mul(3) < len {
        let mut seen = HashSet::with_capacity(count);
        let mut drawn = Vec::with_capacity(count);
        while drawn.len() < count {
            let Some(item) = draw(random) else { break };
            if seen.insert(item.clone()) {
                drawn.push(item);
            }
        }
        return drawn;
    }
    let mut deck = all();
    let count = count.min(deck.len());
    for at in 0..count {
        let other = at + random.below(deck.len() - at);
        deck.swap(at, other);
    }
    deck.truncate(count);
    deck
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_differ_however_they_are_drawn() {
        let mut random = Random::new(1);
        for (count, expected) in [(0, 0), (3, 3), (50, 50), (99, 99), (200, 100)] {
            let drawn =
                different(count, 100, &mut random, || (0..100).collect(), |random| Some(random.below(100)));
            assert_eq!(drawn.len(), expected);
            assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), expected);
        }
    }
}
