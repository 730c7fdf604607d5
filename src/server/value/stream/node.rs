//! A node of a stream: a listpack of some hundred entries. Owns the layout inside it, which is that
//! of Redis.
//!
//! ```text
//! head    live | deleted | fields | field ... | 0
//! entry   flags | ms - first | seq - first | [fields | field | value ...] or [value ...] | steps back
//! ```
//!
//! The head carries the field names of the node's first entry. Entries that have the same names, in
//! practice nearly all, hold values only. IDs are differences to the node's own ID, which is its key
//! in the tree. Deleting sets a flag: moving the tail of a node for each XDEL would cost more than
//! the bytes are worth, and a node goes as a whole when its last entry is dead.

use super::id::StreamId;
use crate::server::value::listpack::{Element, Listpack, Position};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// An entry as it is read.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its ID.
    pub id: StreamId,
    /// Fields and values.
    pub pairs: Vec<(Element<'a>, Element<'a>)>,
    /// Where its flags are.
    at: Position,
    flags: i64,
}

impl Entry<'_> {
    fn is_live(&self) -> bool {
        self.flags & DELETED == 0
    }
}

/// Makes a node with its first entry.
pub fn create<T: AsRef<[u8]>>(texts: &[T]) -> Listpack {
    let mut pack = Listpack::new();
    pack.push_back_integer(1);
    pack.push_back_integer(0);
    pack.push_back_integer(as_i64(texts.len() / 2));
    for pair in texts.chunks_exact(2) {
        pack.push_back(pair[0].as_ref());
    }
    pack.push_back_integer(0);
    push_entry(&mut pack, StreamId::MIN, StreamId::MIN, texts, true);
    pack
}

/// Adds an entry to a node whose own ID is `first`.
pub fn append<T: AsRef<[u8]>>(pack: &mut Listpack, first: StreamId, id: StreamId, texts: &[T]) {
    let (live, deleted) = counts(pack);
    set_counts(pack, live + 1, deleted);
    let same = head(pack).is_some_and(|(fields, _)| {
        fields.len() == texts.len() / 2
            && fields.iter().zip(texts.chunks_exact(2)).all(|(field, pair)| field.is(pair[0].as_ref()))
    });
    push_entry(pack, first, id, texts, same);
}

/// Returns the number of live and of deleted entries.
pub fn counts(pack: &Listpack) -> (usize, usize) {
    let mut elements = pack.iter();
    let mut number =
        || elements.next().and_then(Element::integer).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    (number(), number())
}

/// Returns the live entries of a node.
pub fn entries(pack: &Listpack, first: StreamId) -> impl Iterator<Item = Entry<'_>> {
    all_entries(pack, first).filter(Entry::is_live)
}

/// Returns the ID of the last entry, dead or alive.
pub fn last_id(pack: &Listpack, first: StreamId) -> Option<StreamId> {
    all_entries(pack, first).last().map(|entry| entry.id)
}

/// Marks an entry as deleted; tells whether it was live, and whether that was the last one.
pub fn delete(pack: &mut Listpack, first: StreamId, id: StreamId) -> Option<bool> {
    let entry = entries(pack, first).find(|entry| entry.id == id)?;
    let (at, flags) = (entry.at, entry.flags);
    // The flags come behind the head: mark first, since the new counts may move them.
    pack.replace(at, (flags | DELETED).to_string().as_bytes());
    let (live, deleted) = counts(pack);
    set_counts(pack, live.saturating_sub(1), deleted + 1);
    Some(live <= 1)
}

/// Tells whether a node from outside is one: a sound head, sound entries, counts that add up.
pub fn is_sound(pack: &Listpack, first: StreamId) -> bool {
    let (live, deleted) = counts(pack);
    let mut walked = Walk::new(pack, first);
    let (mut seen_live, mut seen_dead) = (0, 0);
    for entry in walked.by_ref() {
        if entry.is_live() {
            seen_live += 1;
        } else {
            seen_dead += 1;
        }
    }
    walked.is_complete() && (live, deleted) == (seen_live, seen_dead) && live > 0
}

fn all_entries(pack: &Listpack, first: StreamId) -> Walk<'_> {
    Walk::new(pack, first)
}

/// Walks the entries of a node. Stops early at anything that is no entry.
struct Walk<'a> {
    pack: &'a Listpack,
    first: StreamId,
    fields: Vec<Element<'a>>,
    at: Option<Position>,
    broken: bool,
}

impl<'a> Walk<'a> {
    fn new(pack: &'a Listpack, first: StreamId) -> Self {
        match head(pack) {
            Some((fields, at)) => Self { pack, first, fields, at, broken: false },
            None => Self { pack, first, fields: Vec::new(), at: None, broken: true },
        }
    }

    fn is_complete(&self) -> bool {
        !self.broken && self.at.is_none()
    }

    fn read(&self, at: Position) -> Option<(Entry<'a>, Option<Position>)> {
        let pack = self.pack;
        let mut cursor = Some(at);
        let mut take = || {
            let here = cursor?;
            cursor = pack.next(here);
            Some(pack.get(here))
        };
        let flags = take()?.integer()?;
        let ms = self.first.ms.wrapping_add_signed(take()?.integer()?);
        let seq = self.first.seq.wrapping_add_signed(take()?.integer()?);
        let mut pairs = Vec::new();
        if flags & SAME_FIELDS != 0 {
            pairs.reserve(self.fields.len());
            for field in &self.fields {
                pairs.push((*field, take()?));
            }
        } else {
            // Not reserved: the number may be a lie, and ends where the listpack does.
            for _ in 0..take()?.integer()? {
                pairs.push((take()?, take()?));
            }
        }
        take()?;
        Some((Entry { id: StreamId::new(ms, seq), pairs, at, flags }, cursor))
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let at = self.at?;
        let Some((entry, next)) = self.read(at) else {
            self.broken = true;
            self.at = None;
            return None;
        };
        self.at = next;
        Some(entry)
    }
}

/// Returns the field names of the head and where the first entry starts.
fn head(pack: &Listpack) -> Option<(Vec<Element<'_>>, Option<Position>)> {
    let mut at = pack.seek(2)?;
    let count = pack.get(at).integer()?;
    let mut fields = Vec::new();
    for _ in 0..count {
        at = pack.next(at)?;
        fields.push(pack.get(at));
    }
    let end = pack.next(at)?;
    Some((fields, pack.next(end)))
}

fn set_counts(pack: &mut Listpack, live: usize, deleted: usize) {
    for (index, count) in [live, deleted].into_iter().enumerate() {
        if let Some(at) = pack.seek(index) {
            pack.replace(at, count.to_string().as_bytes());
        }
    }
}

fn push_entry<T: AsRef<[u8]>>(pack: &mut Listpack, first: StreamId, id: StreamId, texts: &[T], same: bool) {
    pack.push_back_integer(if same { SAME_FIELDS } else { 0 });
    pack.push_back_integer(difference(id.ms, first.ms));
    pack.push_back_integer(difference(id.seq, first.seq));
    if !same {
        pack.push_back_integer(as_i64(texts.len() / 2));
    }
    for pair in texts.chunks_exact(2) {
        if !same {
            pack.push_back(pair[0].as_ref());
        }
        pack.push_back(pair[1].as_ref());
    }
    // Elements to step back over to reach the flags.
    let steps = if same { texts.len() / 2 + 3 } else { texts.len() + 4 };
    pack.push_back_integer(as_i64(steps));
}

#[allow(clippy::cast_possible_wrap, reason = "wraps on purpose: reading adds it back with wrapping")]
fn difference(a: u64, b: u64) -> i64 {
    a.wrapping_sub(b) as i64
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(entry: &Entry<'_>) -> Vec<String> {
        let flat = entry.pairs.iter().flat_map(|(field, value)| [field, value]);
        flat.map(|element| String::from_utf8_lossy(&element.bytes()).into_owned()).collect()
    }

    #[test]
    fn same_fields_are_stored_once() {
        let first = StreamId::new(100, 5);
        let mut pack = create(&["temperature", "20"]);
        let small = pack.byte_len();
        append(&mut pack, first, StreamId::new(101, 0), &["temperature", "21"]);
        assert_eq!(pack.byte_len() - small, 5 * 2 + 1, "flags, ms, seq (-5: a byte more), value, steps");
        append(&mut pack, first, StreamId::new(102, 0), &["other", "x", "temperature", "22"]);
        let read: Vec<_> = entries(&pack, first).map(|e| (e.id.to_string(), texts(&e))).collect();
        assert_eq!(read[1], ("101-0".to_owned(), vec!["temperature".to_owned(), "21".to_owned()]));
        assert_eq!(read[2].1.len(), 4);
        assert_eq!(last_id(&pack, first), Some(StreamId::new(102, 0)));
        assert!(is_sound(&pack, first));
    }

    #[test]
    fn deleting_marks_and_counts() {
        let first = StreamId::new(1, 0);
        let mut pack = create(&["a", "1"]);
        append(&mut pack, first, StreamId::new(2, 0), &["a", "2"]);
        assert_eq!(delete(&mut pack, first, StreamId::new(3, 0)), None);
        assert_eq!(delete(&mut pack, first, first), Some(false));
        assert_eq!(delete(&mut pack, first, first), None);
        assert_eq!(counts(&pack), (1, 1));
        assert_eq!(entries(&pack, first).count(), 1);
        assert!(is_sound(&pack, first));
        assert_eq!(delete(&mut pack, first, StreamId::new(2, 0)), Some(true));
    }
}
