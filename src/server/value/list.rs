//! Lists: one listpack while small, then a quicklist. The only type whose encoding also goes back.

use super::limits::Limits;
use super::listpack::{Element, Listpack};
use super::quicklist::{End, Quicklist, Side, over_limit, remove_equal_in};

/// A list value.
#[derive(Clone, Debug)]
pub enum List {
    /// All elements in one blob.
    Listpack(Listpack),
    /// A row of blobs.
    Quicklist(Quicklist),
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    /// Makes an empty list.
    pub fn new() -> Self {
        Self::Listpack(Listpack::new())
    }

    /// Returns what OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Listpack(_) => "listpack",
            Self::Quicklist(_) => "quicklist",
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Listpack(pack) => pack.len(),
            Self::Quicklist(list) => list.len(),
        }
    }

    /// Tells whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Becomes a quicklist if `bytes` more in `count` elements would not fit into one listpack.
    /// Called once for all elements of a command, so the decision does not depend on their order.
    pub fn maybe_convert(&mut self, bytes: usize, count: usize, limits: &Limits) {
        if let Self::Listpack(pack) = self
            && (over_limit(limits.list_max_listpack_size, pack.byte_len() + bytes, pack.len() + count)
                || !pack.has_room(bytes))
        {
            *self = Self::Quicklist(Quicklist::from_listpack(std::mem::take(pack)));
        }
    }

    /// Becomes a listpack again if one small node is all that is left.
    pub fn maybe_revert(&mut self, limits: &Limits) {
        if let Self::Quicklist(list) = self {
            if list.is_empty() {
                *self = Self::new();
            } else if let Some(pack) = list.take_small(limits.list_max_listpack_size) {
                *self = Self::Listpack(pack);
            }
        }
    }

    /// Becomes a listpack if the list is one node within the limit: what is read from a file has
    /// been of one kind or the other, and the file does not say which.
    pub fn maybe_revert_whole(&mut self, limits: &Limits) {
        if let Self::Quicklist(list) = self
            && let Some(pack) = list.take_only(limits.list_max_listpack_size)
        {
            *self = Self::Listpack(pack);
        }
    }

    /// Adds elements at an end, one after the other.
    pub fn push_all<T: AsRef<[u8]>>(&mut self, end: End, texts: &[T], limits: &Limits) {
        let bytes = texts.iter().map(|text| text.as_ref().len()).sum();
        self.maybe_convert(bytes, texts.len(), limits);
        for text in texts {
            let text = text.as_ref();
            match (&mut *self, end) {
                (Self::Listpack(pack), End::Head) => pack.push_front(text),
                (Self::Listpack(pack), End::Tail) => pack.push_back(text),
                (Self::Quicklist(list), _) => list.push(end, text, limits.list_max_listpack_size),
            }
        }
    }

    /// Takes the element at an end. The caller reverts the encoding when it is done taking.
    pub fn pop(&mut self, end: End) -> Option<Vec<u8>> {
        match self {
            Self::Quicklist(list) => list.pop(end),
            Self::Listpack(pack) => {
                let at = if end == End::Head { pack.first() } else { pack.last() }?;
                let text = pack.get(at).bytes().into_owned();
                pack.remove(at, 1);
                Some(text)
            }
        }
    }

    /// Returns element number `index`.
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        match self {
            Self::Listpack(pack) => Some(pack.get(pack.seek(index)?)),
            Self::Quicklist(list) => list.get(index),
        }
    }

    /// Replaces element number `index`; tells whether there is one.
    pub fn set(&mut self, index: usize, text: &[u8], limits: &Limits) -> bool {
        self.maybe_convert(text.len(), 1, limits);
        let done = match self {
            Self::Listpack(pack) => pack.seek(index).map(|at| pack.replace(at, text)).is_some(),
            Self::Quicklist(list) => list.set(index, text),
        };
        self.maybe_revert(limits);
        done
    }

    /// Walks the elements from number `index` on.
    pub fn iter_from(&self, index: usize) -> Box<dyn Iterator<Item = Element<'_>> + '_> {
        match self {
            Self::Listpack(pack) => Box::new(pack.seek(index).into_iter().flat_map(|at| pack.iter_from(at))),
            Self::Quicklist(list) => Box::new(list.iter_from(index)),
        }
    }

    /// Walks all elements.
    pub fn elements(&self) -> Box<dyn DoubleEndedIterator<Item = Element<'_>> + '_> {
        match self {
            Self::Listpack(pack) => Box::new(pack.iter()),
            Self::Quicklist(list) => Box::new(list.elements()),
        }
    }

    /// Puts an element beside element number `index`.
    pub fn insert(&mut self, index: usize, side: Side, text: &[u8], limits: &Limits) -> bool {
        self.maybe_convert(text.len(), 1, limits);
        match self {
            Self::Quicklist(list) => list.insert(index, side, text, limits.list_max_listpack_size),
            Self::Listpack(pack) => {
                let Some(at) = pack.seek(index) else {
                    return false;
                };
                match side {
                    Side::Before => pack.insert_before(at, text),
                    Side::After => pack.insert_after(at, text),
                }
                true
            }
        }
    }

    /// Takes out `count` elements from number `start` on.
    pub fn remove_range(&mut self, start: usize, count: usize, limits: &Limits) {
        match self {
            Self::Quicklist(list) => list.remove_range(start, count),
            Self::Listpack(pack) => {
                if let Some(at) = pack.seek(start) {
                    pack.remove(at, count);
                }
            }
        }
        self.maybe_revert(limits);
    }

    /// Takes out up to `limit` elements equal to `text`, from an end on. Returns how many.
    pub fn remove_equal(&mut self, text: &[u8], limit: usize, from: End, limits: &Limits) -> usize {
        let removed = match self {
            Self::Listpack(pack) => remove_equal_in(pack, text, limit, from),
            Self::Quicklist(list) => list.remove_equal(text, limit, from),
        };
        self.maybe_revert(limits);
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_becomes_a_quicklist_past_eight_kilobytes_and_reverts_at_half() {
        let limits = Limits::default();
        let mut list = List::new();
        let mut pushed = 0;
        while list.encoding() == "listpack" {
            list.push_all(End::Tail, &[&[b'x'; 97]], &limits);
            pushed += 1;
        }
        // A 97-byte element takes 100: the listpack holds 7 + 81 * 100 = 8107, and 8107 + 97 > 8192.
        assert_eq!(pushed, 82);
        while list.encoding() == "quicklist" {
            list.remove_range(list.len() - 1, 1, &limits);
        }
        assert_eq!(list.len(), 40, "7 + 40 * 100 <= 4096");
    }

    #[test]
    fn one_push_of_many_decides_once() {
        let limits = Limits { list_max_listpack_size: 3, ..Limits::default() };
        let mut list = List::new();
        list.push_all(End::Head, &["a", "b", "c"], &limits);
        assert_eq!(list.encoding(), "listpack");
        list.push_all(End::Head, &["d"], &limits);
        assert_eq!(list.encoding(), "quicklist");
        assert_eq!(list.get(0).map(|e| e.bytes().into_owned()), Some(b"d".to_vec()));
    }
}
