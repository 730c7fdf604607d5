//! Eviction: what goes when memory is over `maxmemory`.

use super::Keyspace;
use super::db::Key;
use super::object::Object;

/// `maxmemory-policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Policy {
    #[default]
    NoEviction,
    AllKeysLru,
    AllKeysLfu,
    AllKeysRandom,
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    VolatileTtl,
}

impl Policy {
    /// The names, in the order in which Redis lists them.
    pub(crate) const NAMES: &[(&str, Policy)] = &[
        ("volatile-lru", Policy::VolatileLru),
        ("volatile-lfu", Policy::VolatileLfu),
        ("volatile-random", Policy::VolatileRandom),
        ("volatile-ttl", Policy::VolatileTtl),
        ("allkeys-lru", Policy::AllKeysLru),
        ("allkeys-lfu", Policy::AllKeysLfu),
        ("allkeys-random", Policy::AllKeysRandom),
        ("noeviction", Policy::NoEviction),
    ];

    pub(crate) fn is_lfu(self) -> bool {
        matches!(self, Policy::AllKeysLfu | Policy::VolatileLfu)
    }

    fn only_volatile(self) -> bool {
        use Policy::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl)
    }
}

impl Keyspace {
    /// Evicts until `over` says that memory fits. Returns whether it does.
    pub(crate) fn evict_while(&mut self, over: impl Fn(&Keyspace) -> bool) -> bool {
        while over(self) {
            if self.settings.policy == Policy::NoEviction {
                return false;
            }
            let Some((db, key)) = self.choose_victim() else {
                // What was handed to the freeing thread still counts: wait for it to come back.
                if self.lazyfree.pending() == 0 {
                    return false;
                }
                std::thread::yield_now();
                continue;
            };
            let lazy = self.settings.lazy_eviction;
            self.remove(db, &key, lazy);
            self.stats.evicted += 1;
            self.changed(db, &key, 1);
        }
        true
    }

    /// Samples each database and returns the key that deserves it most.
    fn choose_victim(&mut self) -> Option<(usize, Key)> {
        let policy = self.settings.policy;
        let samples = self.settings.maxmemory_samples;
        let mut worst: Option<(u64, usize, Key)> = None;
        for (index, db) in self.dbs.iter().enumerate() {
            let candidates: Vec<(&Key, &Object)> = if policy.only_volatile() {
                let keys = db.expires.sample(samples, &mut self.random);
                keys.into_iter().filter_map(|(key, _)| Some((key, db.keys.get(key)?))).collect()
            } else {
                db.keys.sample(samples, &mut self.random)
            };
            for (key, object) in candidates {
                let score = match policy {
                    Policy::AllKeysLru | Policy::VolatileLru => object.access.idle_s(self.now_ms),
                    Policy::AllKeysLfu | Policy::VolatileLfu => {
                        255 - u64::from(object.access.frequency(self.now_ms))
                    }
                    Policy::VolatileTtl => u64::MAX - db.deadline(key).unwrap_or(u64::MAX),
                    Policy::AllKeysRandom | Policy::VolatileRandom | Policy::NoEviction => 0,
                };
                if worst.as_ref().is_none_or(|(worst, ..)| score > *worst) {
                    worst = Some((score, index, key.clone()));
                }
            }
        }
        worst.map(|(_, db, key)| (db, key))
    }
}
