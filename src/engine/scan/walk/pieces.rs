//! Cuts commands into batches that neither the server nor we choke on.

use crate::engine::live::Batch;

/// Bytes of key names in a batch, at the most, unless one name alone is longer.
const BATCH_BYTES: usize = 256 << 10;

/// Batches of a burst of commands each.
pub(super) struct Pieces {
    burst: usize,
    full: Vec<Batch>,
    filling: Batch,
}

impl Pieces {
    pub(super) fn new(burst: usize) -> Self {
        Self { burst, full: Vec::new(), filling: Batch::default() }
    }

    /// Returns the batch that takes the next key's commands, so many of them.
    pub(super) fn room(&mut self, commands: usize) -> &mut Batch {
        let is_full = self.filling.len() + commands > self.burst || self.filling.bytes() >= BATCH_BYTES;
        if is_full && !self.filling.is_empty() {
            self.full.push(std::mem::take(&mut self.filling));
        }
        &mut self.filling
    }

    pub(super) fn finish(mut self) -> Vec<Batch> {
        if !self.filling.is_empty() {
            self.full.push(self.filling);
        }
        self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::key::KeyName;

    #[test]
    fn no_batch_is_longer_than_a_burst_or_holds_many_megabytes() {
        let mut pieces = Pieces::new(10);
        for _ in 0..7 {
            let batch = pieces.room(4);
            (0..4).for_each(|_| batch.groups(&KeyName::from("key")));
        }
        assert_eq!(pieces.finish().iter().map(Batch::len).collect::<Vec<_>>(), [8, 8, 8, 4]);
        let mut pieces = Pieces::new(10);
        for _ in 0..3 {
            pieces.room(1).groups(&KeyName::new(vec![b'k'; 1 << 20]));
        }
        assert_eq!(pieces.finish().len(), 3);
    }
}
