//! Consumer groups: who was given what and has not acknowledged it.
//!
//! What is pending is in two trees, as in Redis: the group's says who has each entry, a consumer's
//! says what that consumer has. Each of the two is a tree of 16-byte IDs with all its nodes, which is
//! why a long pending list can weigh more than the stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::id::StreamId;
use crate::server::value::rax::Rax;

/// A consumer's name, shared by all that is pending for it.
pub type Name = Arc<[u8]>;

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Who has it.
    pub consumer: Name,
    /// When it was delivered last.
    pub delivered_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// One reader of a group.
#[derive(Clone, Debug, Default)]
pub struct Consumer {
    /// When it was last heard of.
    pub seen_ms: u64,
    /// When it last got or claimed an entry.
    pub active_ms: Option<u64>,
    /// What it has not acknowledged.
    pub pending: Rax<()>,
}

/// A consumer group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The last entry that was given to anybody.
    pub last_id: StreamId,
    /// How many entries were read up to `last_id`; `None` when that cannot be known.
    pub entries_read: Option<u64>,
    /// Everything pending, for all consumers.
    pub pending: Rax<Pending>,
    /// The consumers by name.
    pub consumers: BTreeMap<Name, Consumer>,
}

impl Group {
    /// Makes a group that has read up to `last_id`.
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Self {
        Self { last_id, entries_read, ..Self::default() }
    }

    /// Adds a consumer if there is none of that name; tells whether it did.
    pub fn add_consumer(&mut self, name: &[u8], now_ms: u64) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        self.consumers.insert(name.into(), Consumer { seen_ms: now_ms, ..Consumer::default() });
        true
    }

    /// Notes that a consumer was heard of, adding it if it is new.
    pub fn see(&mut self, name: &[u8], now_ms: u64) {
        if !self.add_consumer(name, now_ms)
            && let Some(consumer) = self.consumers.get_mut(name)
        {
            consumer.seen_ms = now_ms;
        }
    }

    /// Notes that a consumer was given something.
    pub fn activate(&mut self, name: &[u8], now_ms: u64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_ms = Some(now_ms);
        }
    }

    /// Takes a consumer out with all it has pending; returns how much that was.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        for (key, ()) in consumer.pending.iter() {
            self.pending.remove(&key);
        }
        Some(consumer.pending.len())
    }

    /// Gives an entry to a consumer, taking it from whoever has it. Counts start anew.
    pub fn assign(&mut self, id: StreamId, consumer: &[u8], delivered_ms: u64, deliveries: u64) {
        let Some(name) = self.consumers.get_key_value(consumer).map(|(name, _)| Name::clone(name)) else {
            return;
        };
        let key = id.key();
        let pending = Pending { consumer: Name::clone(&name), delivered_ms, deliveries };
        if let Some(old) = self.pending.insert(&key, pending)
            && old.consumer != name
            && let Some(owner) = self.consumers.get_mut(&old.consumer)
        {
            owner.pending.remove(&key);
        }
        if let Some(owner) = self.consumers.get_mut(&name) {
            owner.pending.insert(&key, ());
        }
    }

    /// Acknowledges an entry; tells whether it was pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let key = id.key();
        let Some(pending) = self.pending.remove(&key) else {
            return false;
        };
        if let Some(owner) = self.consumers.get_mut(&pending.consumer) {
            owner.pending.remove(&key);
        }
        true
    }

    /// Walks what is pending from `start` on, for all or for one consumer.
    pub fn pending_from<'a>(
        &'a self,
        start: StreamId,
        consumer: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (StreamId, &'a Pending)> {
        let mut next = Some(start);
        let own = consumer.map(|name| self.consumers.get(name).map(|consumer| &consumer.pending));
        std::iter::from_fn(move || {
            let bound = next?.key();
            let key = match own {
                None => self.pending.first_from(&bound)?.0,
                Some(own) => own?.first_from(&bound)?.0,
            };
            let id = StreamId::from_key(&key);
            next = id.next();
            Some((id, self.pending.get(&key)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_claimed_changes_hands() {
        let mut group = Group::new(StreamId::MIN, Some(0));
        assert!(group.add_consumer(b"a", 1) && group.add_consumer(b"b", 1) && !group.add_consumer(b"a", 2));
        for ms in 1..=10 {
            group.assign(StreamId::new(ms, 0), b"a", 5, 1);
        }
        group.assign(StreamId::new(3, 0), b"b", 9, 2);
        assert_eq!(group.pending.len(), 10);
        assert_eq!(group.consumers[&b"a"[..]].pending.len(), 9);
        assert_eq!(group.pending_from(StreamId::MIN, Some(b"b")).count(), 1);
        assert_eq!(group.pending_from(StreamId::new(4, 0), None).count(), 7);
        assert!(group.acknowledge(StreamId::new(3, 0)) && !group.acknowledge(StreamId::new(3, 0)));
        assert!(group.consumers[&b"b"[..]].pending.is_empty());
        assert_eq!(group.remove_consumer(b"a"), Some(9));
        assert!(group.pending.is_empty());
    }
}
