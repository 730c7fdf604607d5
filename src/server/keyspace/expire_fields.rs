//! Takes fields out of hashes when their time has come. Commands do not see such fields any more; this
//! is what gives their memory back when nobody writes to the hash.
//!
//! A database remembers which of its hashes have mortal fields. Each round looks at some of these
//! hashes, and in each at some fields, both from where the round before stopped: what a round costs
//! does not depend on how many there are. A key that is remembered for nothing (it went, or became
//! something else) is forgotten when it is met.

use super::Keyspace;
use crate::server::value::Value;

/// Hashes that one round looks at.
const HASHES_PER_ROUND: usize = 20;
/// Fields that it looks at in each.
const FIELDS_PER_HASH: usize = 100;

impl Keyspace {
    /// Works in rounds, on each database for as long as fields are found due and `go_on` says so. The
    /// caller owns the clock.
    pub(crate) fn expire_fields(&mut self, mut go_on: impl FnMut() -> bool) {
        if !self.active_expire.enabled {
            return;
        }
        for db in 0..self.dbs.len() {
            while self.expire_fields_once(db) > 0 && go_on() {}
        }
    }

    /// Does one round and returns how many fields went.
    fn expire_fields_once(&mut self, index: usize) -> usize {
        let now_ms = i64::try_from(self.now_ms).unwrap_or(i64::MAX);
        let mut gone = 0;
        for key in self.dbs[index].some_mortal_hashes(HASHES_PER_ROUND) {
            let Some(Value::Hash(hash)) = self.dbs[index].get_mut(&key).map(|object| &mut object.value)
            else {
                self.dbs[index].forget_mortal_hash(&key);
                continue;
            };
            let reaped = hash.reap(now_ms, FIELDS_PER_HASH);
            let (empty, mortal) = (hash.is_empty(), hash.has_mortal_fields());
            gone += reaped;
            if !mortal {
                self.dbs[index].forget_mortal_hash(&key);
            }
            if reaped > 0 {
                self.dbs[index].weigh(&key);
                self.changed(index, &key, 0);
            }
            if empty {
                self.remove(index, &key, self.settings.lazy_expire);
            }
        }
        gone
    }
}
