//! The databases and the only doors to their keys. Expiry, access times, watchers and lazy freeing
//! are dealt with here, so that no command can forget them. Knows nothing of clients or replies,
//! and is told what time it is.

mod db;
mod evict;
mod expire;
mod expire_fields;
mod lazyfree;
mod object;
mod selected;
mod watch;

pub(crate) use db::{Db, Key, key_overhead};
pub(crate) use evict::Policy;
pub(crate) use expire::{ActiveExpire, Cycle};
pub(crate) use lazyfree::LazyFree;
pub(crate) use object::Object;
pub(crate) use selected::{Free, Selected};
pub(crate) use watch::Watches;

use super::value::Value;
use super::value::random::Random;
use super::value::siphash::HashSeed;

/// The settings that decide how keys go, under their Redis names.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "one per lazyfree-lazy-* setting")]
pub(crate) struct Settings {
    pub(crate) lazy_eviction: bool,
    pub(crate) lazy_expire: bool,
    pub(crate) lazy_server_del: bool,
    pub(crate) lazy_user_del: bool,
    pub(crate) lazy_user_flush: bool,
    pub(crate) policy: Policy,
    pub(crate) maxmemory_samples: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lazy_eviction: false,
            lazy_expire: false,
            lazy_server_del: false,
            lazy_user_del: false,
            lazy_user_flush: false,
            policy: Policy::NoEviction,
            maxmemory_samples: 5,
        }
    }
}

/// What INFO stats says of the keyspace.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) expired_active: u64,
    pub(crate) evicted: u64,
}

/// All databases.
#[derive(Debug)]
pub(crate) struct Keyspace {
    dbs: Vec<Db>,
    pub(crate) settings: Settings,
    pub(crate) stats: Stats,
    pub(crate) lazyfree: LazyFree,
    pub(crate) watches: Watches,
    pub(crate) active_expire: ActiveExpire,
    pub(crate) random: Random,
    /// The time as of which keys are alive; one command sees one time.
    pub(crate) now_ms: u64,
    /// Changes since the last save.
    pub(crate) dirty: u64,
    seed: HashSeed,
}

impl Keyspace {
    pub(crate) fn new(dbs: usize, mut random: Random, now_ms: u64) -> Keyspace {
        let seed = HashSeed::new(random.next_u64(), random.next_u64());
        Keyspace {
            dbs: (0..dbs.max(1)).map(|_| Db::new(seed)).collect(),
            settings: Settings::default(),
            stats: Stats::default(),
            lazyfree: LazyFree::default(),
            watches: Watches::default(),
            active_expire: ActiveExpire::default(),
            random,
            now_ms,
            dirty: 0,
            seed,
        }
    }

    /// Returns the view of one database. The index has been checked against [`Keyspace::dbs`].
    pub(crate) fn select(&mut self, index: usize) -> Selected<'_> {
        Selected::new(self, index)
    }

    pub(crate) fn dbs(&self) -> &[Db] {
        &self.dbs
    }

    /// Returns the hash seed, for the tables inside values.
    pub(crate) fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Returns what all databases take, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.dbs.iter().map(Db::memory_bytes).sum()
    }

    /// Swaps two databases; clients that have one selected see the other from now on.
    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        if a != b {
            self.dbs.swap(a, b);
            for index in [a, b] {
                let dbs = &self.dbs;
                self.watches.touch_db(index, |key| dbs[a].get(key).is_some() || dbs[b].get(key).is_some());
            }
        }
    }

    /// Empties one database.
    pub(crate) fn flush(&mut self, index: usize, lazy: bool) {
        let dbs = &self.dbs;
        self.watches.touch_db(index, |key| dbs[index].get(key).is_some());
        let old = std::mem::replace(&mut self.dbs[index], Db::new(self.seed));
        self.dirty += u64::try_from(old.len()).unwrap_or(0);
        if lazy && old.len() > 0 {
            self.lazyfree.db(Box::new(old));
        }
    }

    /// Notes that `key` changed, or went.
    pub(crate) fn changed(&mut self, db: usize, key: &[u8], changes: u64) {
        self.dirty += changes;
        self.watches.touch(db, key);
    }

    /// Moves rehashing tables on for as long as `go_on` says: what `activerehashing` does.
    pub(crate) fn rehash_while(&mut self, mut go_on: impl FnMut() -> bool) {
        for db in &mut self.dbs {
            db.keys.shrink_if_sparse();
            db.expires.shrink_if_sparse();
            let more = db.keys.rehash_while(&mut go_on) || db.expires.rehash_while(&mut go_on);
            if more {
                return;
            }
        }
    }

    fn is_due(&self, db: usize, key: &[u8]) -> bool {
        // At its very millisecond a key is still alive.
        self.dbs[db].deadline(key).is_some_and(|at_ms| at_ms < self.now_ms)
    }

    /// Removes the key if its time has come: the lazy half of expiry.
    fn expire_if_due(&mut self, db: usize, key: &[u8]) -> bool {
        let due = self.is_due(db, key);
        if due {
            self.expire_now(db, key);
        }
        due
    }

    fn expire_now(&mut self, db: usize, key: &[u8]) {
        let lazy = self.settings.lazy_expire;
        self.remove(db, key, lazy);
        self.stats.expired += 1;
        self.watches.touch(db, key);
    }

    /// Takes a key out and frees it, here or in the background.
    fn remove(&mut self, db: usize, key: &[u8], lazy: bool) -> bool {
        let Some((object, _)) = self.dbs[db].take(key) else {
            return false;
        };
        self.free(object.value, lazy);
        true
    }

    fn free(&mut self, value: Value, lazy: bool) {
        if lazy {
            self.lazyfree.value(value);
        }
    }
}
