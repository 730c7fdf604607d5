//! Fills a server with values of a chosen type and size.

use super::Client;

impl Client {
    /// Makes a hash with fields `f0`, `f1`, ... of short values.
    pub(crate) fn fill_hash(&self, key: &str, fields: usize) {
        self.fill(&["HSET", key], fields, |n| vec![format!("f{n}"), format!("v{n}")]);
    }

    /// Makes a set with members `m0`, `m1`, ...
    pub(crate) fn fill_set(&self, key: &str, members: usize) {
        self.fill(&["SADD", key], members, |n| vec![format!("m{n}")]);
    }

    /// Makes a sorted set with members `m0`, `m1`, ...
    pub(crate) fn fill_zset(&self, key: &str, members: usize) {
        self.fill(&["ZADD", key], members, |n| vec![n.to_string(), format!("m{n}")]);
    }

    /// Makes a list of elements of this many bytes.
    pub(crate) fn fill_list(&self, key: &str, elements: usize, element_bytes: usize) {
        self.fill(&["RPUSH", key], elements, |n| vec![format!("{n:0element_bytes$}")]);
    }

    /// Makes a stream of entries with one short field.
    pub(crate) fn fill_stream(&self, key: &str, entries: usize) {
        self.pipeline((1..=entries).map(|n| {
            vec!["XADD".to_owned(), key.to_owned(), format!("{n}-0"), "n".to_owned(), n.to_string()]
        }));
    }

    /// Adds elements, some hundred a command.
    fn fill(&self, command: &[&str], count: usize, element: impl Fn(usize) -> Vec<String>) {
        const PER_COMMAND: usize = 200;
        self.pipeline((0..count).step_by(PER_COMMAND).map(|start| {
            let elements = (start..count.min(start + PER_COMMAND)).flat_map(&element);
            command.iter().map(|&word| word.to_owned()).chain(elements).collect::<Vec<_>>()
        }));
    }
}
