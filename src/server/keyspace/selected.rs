//! One database as a command sees it. `lookup_read` and `lookup_write` are the doors; `peek` is a
//! window, for the few commands that must not disturb what they look at.

use super::db::{Db, Key};
use super::object::{Access, Object};
use super::{Keyspace, Value};

/// Keys that room is made for before they are there: 8 MiB of table. A file or a client may announce any number.
const RESERVE_MAX: usize = 1 << 20;

/// Which setting decides whether a value is freed in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Free {
    /// UNLINK: always, if it is worth it.
    Lazily,
    /// DEL: `lazyfree-lazy-user-del`.
    ForUser,
    /// Overwriting, renaming over, emptying: `lazyfree-lazy-server-del`.
    ForServer,
}

/// A database, and the keyspace around it.
#[derive(Debug)]
pub(crate) struct Selected<'a> {
    pub(crate) keyspace: &'a mut Keyspace,
    pub(crate) index: usize,
    /// `CLIENT NO-TOUCH`: look-ups leave the access time alone.
    pub(crate) no_touch: bool,
}

impl<'a> Selected<'a> {
    pub(super) fn new(keyspace: &'a mut Keyspace, index: usize) -> Selected<'a> {
        Selected { keyspace, index, no_touch: false }
    }

    fn db(&self) -> &Db {
        &self.keyspace.dbs[self.index]
    }

    fn db_mut(&mut self) -> &mut Db {
        &mut self.keyspace.dbs[self.index]
    }

    pub(crate) fn len(&self) -> usize {
        self.db().len()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.keyspace.now_ms
    }

    /// Returns the value for reading: expires it if due, counts a hit or a miss, notes the use.
    pub(crate) fn lookup_read(&mut self, key: &[u8]) -> Option<&Value> {
        self.keyspace.expire_if_due(self.index, key);
        let found = self.touched(key).is_some();
        self.count(found);
        self.db().get(key).map(|object| &object.value)
    }

    fn count(&mut self, hit: bool) {
        let stats = &mut self.keyspace.stats;
        let counter = if hit { &mut stats.hits } else { &mut stats.misses };
        *counter += 1;
    }

    /// Returns the value for changing: expires it if due, notes the use. Call
    /// [`Selected::changed`] when it did change.
    pub(crate) fn lookup_write(&mut self, key: &[u8]) -> Option<&mut Value> {
        self.keyspace.expire_if_due(self.index, key);
        self.touched(key).map(|object| &mut object.value)
    }

    /// Returns the object without noting a use, for TYPE, TTL, OBJECT and EXISTS. Like any other
    /// look-up it expires the key if due, and counts a hit or a miss.
    pub(crate) fn lookup_quiet(&mut self, key: &[u8]) -> Option<&Object> {
        self.keyspace.expire_if_due(self.index, key);
        let found = self.db().get(key).is_some();
        self.count(found);
        self.db().get(key)
    }

    /// Removes the key if it is due; tells whether it was.
    pub(crate) fn expire_if_due(&mut self, key: &[u8]) -> bool {
        self.keyspace.expire_if_due(self.index, key)
    }

    /// Returns the object as it lies there, expired or not, and changes nothing: MEMORY USAGE.
    pub(crate) fn peek(&self, key: &[u8]) -> Option<&Object> {
        self.db().get(key)
    }

    fn touched(&mut self, key: &[u8]) -> Option<&mut Object> {
        let (now_ms, no_touch) = (self.keyspace.now_ms, self.no_touch);
        let lfu = self.keyspace.settings.policy.is_lfu();
        let random = &mut self.keyspace.random;
        let object = self.keyspace.dbs[self.index].get_mut(key)?;
        if !no_touch {
            object.access.touch(now_ms, lfu, || u32::try_from(random.next_u64() >> 33).unwrap_or(0));
        }
        Some(object)
    }

    /// Puts `value` under `key` and takes its deadline away, as SET does. What was there is freed.
    pub(crate) fn set(&mut self, key: &[u8], value: Value) {
        self.db_mut().clear_deadline(key);
        self.overwrite(key, value);
    }

    /// Puts `value` under `key`, keeping its deadline. What was there is freed.
    pub(crate) fn overwrite(&mut self, key: &[u8], value: Value) {
        let lfu = self.keyspace.settings.policy.is_lfu();
        let object = Object::new(value, Access::new(self.keyspace.now_ms, lfu));
        self.put_object(key, object);
    }

    /// Puts an object back under a name: RENAME, MOVE and COPY keep what they know of a key.
    pub(crate) fn put_object(&mut self, key: &[u8], object: Object) {
        if let Some(old) = self.db_mut().put(key, object) {
            self.keyspace.free(old.value, self.keyspace.settings.lazy_server_del);
        }
    }

    /// Takes a key out without freeing it: the object and its deadline.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<(Object, Option<u64>)> {
        self.keyspace.expire_if_due(self.index, key);
        self.db_mut().take(key)
    }

    /// Removes the key and frees its value. A key past its deadline is gone already: it is freed
    /// as `lazyfree-lazy-expire` says, whatever the caller asked for.
    pub(crate) fn delete(&mut self, key: &[u8], free: Free) -> bool {
        if self.keyspace.expire_if_due(self.index, key) {
            return false;
        }
        let settings = &self.keyspace.settings;
        let lazy = match free {
            Free::Lazily => true,
            Free::ForUser => settings.lazy_user_del,
            Free::ForServer => settings.lazy_server_del,
        };
        let removed = self.keyspace.remove(self.index, key, lazy);
        if removed {
            self.keyspace.changed(self.index, key, 1);
        }
        removed
    }

    /// Removes the key if its collection has become empty; call it after taking elements out.
    pub(crate) fn delete_if_empty(&mut self, key: &[u8]) -> bool {
        let empty = self.db().get(key).is_some_and(|object| object.value.is_empty());
        empty && self.keyspace.remove(self.index, key, self.keyspace.settings.lazy_server_del)
    }

    /// Notes that the value under `key` changed in place: watchers, dirty counter, footprint.
    pub(crate) fn changed(&mut self, key: &[u8], changes: usize) {
        self.note_change(key, changes);
        self.db_mut().weigh(key);
    }

    /// Notes a change whose value was put in whole, and so has been weighed.
    pub(crate) fn note_change(&mut self, key: &[u8], changes: usize) {
        self.keyspace.changed(self.index, key, u64::try_from(changes).unwrap_or(0));
    }

    /// Removes a key whose deadline was just set to a moment in the past.
    pub(crate) fn delete_as_expired(&mut self, key: &[u8]) {
        let lazy = self.keyspace.settings.lazy_expire;
        if self.keyspace.remove(self.index, key, lazy) {
            self.note_change(key, 1);
        }
    }

    /// Returns the deadline of a key, in Unix milliseconds.
    pub(crate) fn deadline(&self, key: &[u8]) -> Option<u64> {
        self.db().deadline(key)
    }

    pub(crate) fn set_deadline(&mut self, key: &[u8], at_ms: u64) {
        self.db_mut().set_deadline(key, at_ms);
    }

    /// Makes a key look unused for so long, or used so often: whichever the eviction policy counts.
    pub(crate) fn set_access(&mut self, key: &[u8], idle_s: Option<u64>, frequency: Option<u8>) {
        let (now_ms, lfu) = (self.keyspace.now_ms, self.keyspace.settings.policy.is_lfu());
        let Some(object) = self.db_mut().get_mut(key) else {
            return;
        };
        match (lfu, idle_s, frequency) {
            (false, Some(idle_s), _) => object.access.set_idle(now_ms, idle_s),
            (true, _, Some(frequency)) => object.access.set_frequency(now_ms, frequency),
            _ => {}
        }
    }

    pub(crate) fn clear_deadline(&mut self, key: &[u8]) -> bool {
        self.db_mut().clear_deadline(key)
    }

    /// Says whether the key is there and past its deadline; removes nothing.
    pub(crate) fn is_due(&self, key: &[u8]) -> bool {
        self.keyspace.is_due(self.index, key)
    }

    /// Emits the bucket of keys under `cursor` and returns the next cursor.
    pub(crate) fn scan(&self, cursor: u64, mut emit: impl FnMut(&[u8])) -> u64 {
        self.db().keys.scan(cursor, |key, _| emit(key))
    }

    /// Returns all keys, the expired ones included.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.db().keys.iter().map(|(key, _)| key)
    }

    /// Returns some key that is alive.
    pub(crate) fn random_key(&mut self) -> Option<Key> {
        // Bounded: a database full of expired keys must not hold the thread for ever.
        for _ in 0..100 {
            let keyspace = &mut *self.keyspace;
            let (key, _) = keyspace.dbs[self.index].keys.random(&mut keyspace.random)?;
            let key = key.clone();
            if !self.keyspace.expire_if_due(self.index, &key) {
                return Some(key);
            }
        }
        None
    }

    /// Makes room for `count` more keys at once, or for as many as may be had on somebody's word; beyond
    /// that the table grows as it fills.
    pub(crate) fn reserve(&mut self, count: usize) {
        let wanted = self.len().saturating_add(count.min(RESERVE_MAX));
        self.db_mut().keys.reserve(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::value::random::Random;

    #[test]
    fn an_announcement_reserves_little() {
        let mut keyspace = Keyspace::new(1, Random::new(1), 0);
        keyspace.select(0).reserve(usize::MAX);
        assert_eq!(keyspace.memory_bytes(), RESERVE_MAX * 8);
    }
}
