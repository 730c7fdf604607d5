//! WATCH: who wants to know when a key changes.

use std::collections::{HashMap, HashSet};

use super::db::Key;

/// Watched keys and their watchers, and the watchers whose EXEC must fail.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    by_key: HashMap<(usize, Key), Vec<u64>>,
    touched: HashSet<u64>,
}

impl Watches {
    pub(crate) fn watch(&mut self, client: u64, db: usize, key: &[u8]) {
        let watchers = self.by_key.entry((db, key.into())).or_default();
        if !watchers.contains(&client) {
            watchers.push(client);
        }
    }

    pub(crate) fn unwatch(&mut self, client: u64, keys: &[(usize, Key)]) {
        for watched in keys {
            if let Some(watchers) = self.by_key.get_mut(watched) {
                watchers.retain(|watcher| *watcher != client);
                if watchers.is_empty() {
                    self.by_key.remove(watched);
                }
            }
        }
        self.touched.remove(&client);
    }

    pub(crate) fn is_touched(&self, client: u64) -> bool {
        self.touched.contains(&client)
    }

    pub(super) fn touch(&mut self, db: usize, key: &[u8]) {
        // The usual case, and the reason why the look-up below may build a key.
        if self.by_key.is_empty() {
            return;
        }
        if let Some(watchers) = self.by_key.get(&(db, Key::from(key))) {
            self.touched.extend(watchers);
        }
    }

    /// Notes that a whole database changed; `has` says which keys existed in it before or after.
    pub(super) fn touch_db(&mut self, db: usize, has: impl Fn(&[u8]) -> bool) {
        for ((watched_db, key), watchers) in &self.by_key {
            if *watched_db == db && has(key) {
                self.touched.extend(watchers);
            }
        }
    }
}
