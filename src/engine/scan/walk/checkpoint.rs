//! Makes checkpoints of a walk, and goes on from one.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::{Ended, Sums, Walk};
use crate::engine::event::{Event, Stop};
use crate::engine::live::{Cursor, Keysizes};
use crate::engine::scan::checkpoint::{Begun, Checkpoint, Identity, StoredSums};
use crate::engine::scan::keysizes::KeysizesFound;
use crate::engine::scan::node::Database;
use crate::engine::tally::Tally;

/// What a checkpoint holds besides the sums of the walk.
pub(super) struct Keeper {
    period: Duration,
    kept_at: Instant,
    databases: Vec<Database>,
    done: Vec<u32>,
    keysizes_before: Option<Keysizes>,
    sums_before: Option<StoredSums>,
    /// Where the walk goes on, until it did.
    resumed: Option<(u32, Cursor, Sums)>,
}

impl Keeper {
    pub(super) fn begin(&mut self, sums_before: &Sums) {
        self.sums_before = Some(sums_before.store());
    }
}

impl Sums {
    fn store(&self) -> StoredSums {
        StoredSums {
            tally: self.tally.store(),
            largest: self.selector.largest(),
            keysizes: self.keysizes.store(),
            keys_seen: self.keys_seen,
            keys_matched: self.keys_matched,
            duplicates: self.duplicates,
        }
    }
}

impl<F> Walk<'_, F>
where
    F: FnMut(Event<'_>) -> ControlFlow<Stop>,
{
    /// Makes checkpoints from now on.
    pub(in crate::engine::scan) fn keep_checkpoints(
        &mut self,
        period: Duration,
        databases: Vec<Database>,
        keysizes_before: Option<Keysizes>,
    ) {
        self.keeper = Some(Box::new(Keeper {
            period,
            kept_at: Instant::now(),
            databases,
            done: Vec::new(),
            keysizes_before,
            sums_before: None,
            resumed: None,
        }));
    }

    /// Goes on from a checkpoint of this server. `None`: it is none that this scan could have made.
    pub(in crate::engine::scan) fn go_on_from(&mut self, checkpoint: &Checkpoint) -> Option<()> {
        let sums = self.restore(&checkpoint.sums)?;
        let resumed = match &checkpoint.begun {
            Some(begun) => Some((begun.db, begun.cursor, self.restore(&begun.sums_before)?)),
            None => None,
        };
        let keeper = self.keeper.as_mut()?;
        keeper.done.clone_from(&checkpoint.done);
        keeper.resumed = resumed;
        self.sums = sums;
        self.maybe_counted_twice.clone_from(&checkpoint.maybe_counted_twice);
        Some(())
    }

    fn restore(&self, stored: &StoredSums) -> Option<Sums> {
        stored.is_sound().then_some(())?;
        let config = self.config;
        Some(Sums {
            tally: Tally::restore(stored.tally.clone(), config.top, config.sort_by, self.server)?,
            selector: self.sums.selector.clone().with_largest(&stored.largest),
            keysizes: KeysizesFound::restore(&stored.keysizes)?,
            keys_seen: stored.keys_seen,
            keys_matched: stored.keys_matched,
            duplicates: stored.duplicates,
        })
    }

    /// Returns whether a database was scanned before the checkpoint.
    pub(in crate::engine::scan) fn is_done(&self, db: u32) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.done.contains(&db))
    }

    /// Returns where to go on in a database, and the sums before it, if it was begun.
    pub(super) fn begun(&mut self, db: u32) -> Option<(Cursor, Sums)> {
        let (_, cursor, sums) = self.keeper.as_mut()?.resumed.take_if(|(begun, ..)| *begun == db)?;
        Some((cursor, sums))
    }

    /// Notes that a database is scanned.
    pub(super) fn done(&mut self, db: u32) -> Result<(), Ended> {
        if let Some(keeper) = &mut self.keeper {
            keeper.done.push(db);
        }
        self.checkpoint(None)
    }

    pub(super) fn is_checkpoint_due(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.kept_at.elapsed() >= keeper.period)
    }

    /// Tells a checkpoint, if that is wanted. All before this cursor must be counted, and nothing after it.
    pub(super) fn checkpoint(&mut self, cursor: Option<Cursor>) -> Result<(), Ended> {
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        keeper.kept_at = Instant::now();
        let begun = cursor.zip(keeper.sums_before.clone());
        let checkpoint = Checkpoint {
            server: Identity::of(&self.policy.server),
            databases: keeper.databases.clone(),
            done: keeper.done.clone(),
            begun: begun.map(|(cursor, sums_before)| Begun { db: self.db, cursor, sums_before }),
            sums: self.sums.store(),
            keysizes_before: keeper.keysizes_before.clone(),
            maybe_counted_twice: self.maybe_counted_twice.clone(),
        };
        self.emit(Event::Checkpoint(&checkpoint))
    }
}
