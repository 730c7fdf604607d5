//! Commands that go to the server together: one round trip.

use redis::Pipeline;

use super::cursor::{Cursor, ScanRequest};
use crate::engine::key::KeyName;

/// A pipeline that only holds reading commands, and knows how long it is.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pipeline: Pipeline,
    bytes: usize,
}

impl Batch {
    /// Returns the number of commands.
    pub fn len(&self) -> usize {
        self.pipeline.len()
    }

    /// Returns whether it holds no command.
    pub fn is_empty(&self) -> bool {
        self.pipeline.is_empty()
    }

    /// Returns the bytes of the key names in it: nearly all of what large names make it take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Adds SELECT.
    pub fn select(&mut self, db: u32) {
        self.pipeline.cmd("SELECT").arg(db);
    }

    /// Adds one page of SCAN.
    pub fn scan(&mut self, request: &ScanRequest, cursor: Cursor, count: u32) {
        self.pipeline.add_command(request.command(cursor, count));
    }

    /// Adds XINFO GROUPS.
    pub fn groups(&mut self, key: &KeyName) {
        self.on_key(&["XINFO", "GROUPS"], key);
    }

    /// Adds DEBUG OBJECT, which tells a list's nodes and serialises the whole value to do so.
    pub fn debug_object(&mut self, key: &KeyName) {
        self.on_key(&["DEBUG", "OBJECT"], key);
    }

    /// Adds MEMORY USAGE. 5 samples is the server's own default, and not sent.
    pub fn memory_usage(&mut self, key: &KeyName, samples: u64) {
        let command = self.on_key(&["MEMORY", "USAGE"], key);
        if samples != 5 {
            command.arg("SAMPLES").arg(samples);
        }
    }

    /// Adds LINDEX; -1 is the last element.
    pub fn element(&mut self, key: &KeyName, index: i64) {
        self.on_key(&["LINDEX"], key).arg(index);
    }

    /// Adds LRANGE, both ends inclusive; negative ones count from the end.
    pub fn elements(&mut self, key: &KeyName, first: i64, last: i64) {
        self.on_key(&["LRANGE"], key).arg(first).arg(last);
    }

    /// Adds a command whose only argument is a key.
    pub(super) fn on_key(&mut self, command: &[&str], key: &KeyName) -> &mut Pipeline {
        self.bytes += key.as_bytes().len();
        self.pipeline.cmd(command[0]);
        for word in &command[1..] {
            self.pipeline.arg(*word);
        }
        self.pipeline.arg(key.as_bytes())
    }
}
