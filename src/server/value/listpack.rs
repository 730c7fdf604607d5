//! The listpack: many small elements in one allocation. Owns the byte format, which is the one of
//! Redis to the bit, as DUMP and RDB files hold it.
//!
//! # The format
//!
//! ```text
//! u32 total bytes | u16 elements (65535: count them) | entry ... entry | 0xFF
//! ```
//!
//! An entry is a head that says what follows, the data, and the length of both once more, written so
//! that it can be read from the right: a listpack is walked in both directions.
//!
//! | head                | element |
//! |---------------------|---------|
//! | `0nnnnnnn`          | 0 to 127 |
//! | `10llllll`          | string, up to 63 bytes |
//! | `110nnnnn` + 1      | 13-bit integer |
//! | `1110llll` + 1      | string, up to 4095 bytes |
//! | `F1` `F2` `F3` `F4` | integer of 2, 3, 4 or 8 bytes, little-endian |
//! | `F0` + u32          | longer string |
//!
//! What looks like an integer is stored as one, so `"100"` takes 3 bytes and comes back as the same
//! text. Bytes from outside enter through [`Listpack::from_bytes`], which walks them once; after
//! that every offset we follow was written or checked by us.
//!
//! Every change in the middle moves the tail: O(bytes). Thresholds keep it small, not this code.

use std::borrow::Cow;

use super::size_class::usable;
use super::string::decimal_digits;
use crate::server::number::parse_integer;

const HEADER: usize = 6;
const END: u8 = 0xff;
const UNKNOWN_COUNT: u16 = u16::MAX;
/// Listpacks stop growing at 1 GB, well below what their u32 length can say.
pub const SAFETY_LIMIT: usize = 1 << 30;

/// An element as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// Stored as an integer.
    Int(i64),
    /// Stored as bytes.
    Str(&'a [u8]),
}

/// Where an entry starts. Valid until the listpack changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(usize);

/// A listpack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listpack {
    bytes: Vec<u8>,
}

impl<'a> Element<'a> {
    /// Returns the text of the element.
    pub fn bytes(self) -> Cow<'a, [u8]> {
        match self {
            Self::Int(value) => Cow::Owned(value.to_string().into_bytes()),
            Self::Str(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// Returns the length of the text.
    pub fn text_len(self) -> usize {
        match self {
            Self::Int(value) => decimal_digits(value),
            Self::Str(bytes) => bytes.len(),
        }
    }

    /// Returns the integer that the element is, if it is one.
    pub fn integer(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Str(bytes) => parse_integer(bytes),
        }
    }

    /// Tells whether this is the element that storing `text` gives.
    pub fn is(self, text: &[u8]) -> bool {
        match self {
            Self::Int(value) => text.len() <= 20 && parse_integer(text) == Some(value),
            Self::Str(bytes) => bytes == text,
        }
    }
}

impl Default for Listpack {
    fn default() -> Self {
        Self::new()
    }
}

impl Listpack {
    /// Makes an empty listpack.
    pub fn new() -> Self {
        Self { bytes: vec![7, 0, 0, 0, 0, 0, END] }
    }

    /// Takes bytes from a file or a client, or `None` if they are not a listpack from end to end.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let total = u32::from_le_bytes(*bytes.first_chunk()?);
        if bytes.len() <= HEADER || usize::try_from(total) != Ok(bytes.len()) || bytes.last() != Some(&END) {
            return None;
        }
        let end = bytes.len() - 1;
        let (mut at, mut count) = (HEADER, 0usize);
        while at < end {
            let size = entry_size(&bytes[at..end])?;
            let back = back_length_size(size);
            let next = at.checked_add(size)?.checked_add(back)?;
            if next > end || read_back_length(&bytes[..next]) != Some(size) {
                return None;
            }
            at = next;
            count += 1;
        }
        let said = u16::from_le_bytes([bytes[4], bytes[5]]);
        (said == UNKNOWN_COUNT || usize::from(said) == count).then_some(Self { bytes })
    }

    /// Returns the bytes as they stand in an RDB file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the size of the whole blob.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of elements. O(1) below 65535.
    pub fn len(&self) -> usize {
        match u16::from_le_bytes([self.bytes[4], self.bytes[5]]) {
            UNKNOWN_COUNT => self.iter().count(),
            count => usize::from(count),
        }
    }

    /// Tells whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER + 1
    }

    /// Tells whether `more` bytes can be added without crossing the safety limit.
    pub fn has_room(&self, more: usize) -> bool {
        self.bytes.len().saturating_add(more) <= SAFETY_LIMIT
    }

    /// Returns where the first entry starts.
    pub fn first(&self) -> Option<Position> {
        (!self.is_empty()).then_some(Position(HEADER))
    }

    /// Returns where the last entry starts.
    pub fn last(&self) -> Option<Position> {
        self.before(self.bytes.len() - 1)
    }

    /// Returns the entry after `at`.
    pub fn next(&self, at: Position) -> Option<Position> {
        let next = self.after(at.0);
        (next < self.bytes.len() - 1).then_some(Position(next))
    }

    /// Returns the entry before `at`.
    pub fn prev(&self, at: Position) -> Option<Position> {
        self.before(at.0)
    }

    /// Returns the entry number `index`, counted from the nearer end.
    pub fn seek(&self, index: usize) -> Option<Position> {
        let len = self.len();
        if index >= len {
            return None;
        }
        if index <= len / 2 {
            let mut at = self.first()?;
            for _ in 0..index {
                at = self.next(at)?;
            }
            Some(at)
        } else {
            let mut at = self.last()?;
            for _ in index + 1..len {
                at = self.prev(at)?;
            }
            Some(at)
        }
    }

    /// Returns the element that starts at `at`.
    pub fn get(&self, at: Position) -> Element<'_> {
        decode(&self.bytes[at.0..])
    }

    /// Finds the entry that `text` is stored as, looking at every `1 + skip`-th entry from `from`.
    pub fn find(&self, from: Option<Position>, text: &[u8], skip: usize) -> Option<Position> {
        let integer = parse_integer(text);
        let mut at = from?;
        loop {
            let hit = match (self.get(at), integer) {
                (Element::Int(value), Some(wanted)) => value == wanted,
                // Also when `text` is an integer: a foreign file may hold `"12"` as a string.
                (Element::Str(bytes), _) => bytes == text,
                (Element::Int(_), None) => false,
            };
            if hit {
                return Some(at);
            }
            for _ in 0..=skip {
                at = self.next(at)?;
            }
        }
    }

    /// Walks the elements in either direction.
    pub fn iter(&self) -> Iter<'_> {
        Iter { pack: self, front: HEADER, back: self.bytes.len() - 1 }
    }

    /// Walks the elements from `at` to the end.
    pub fn iter_from(&self, at: Position) -> Iter<'_> {
        Iter { pack: self, front: at.0, back: self.bytes.len() - 1 }
    }

    /// Adds an element at the end.
    pub fn push_back(&mut self, text: &[u8]) {
        self.splice(self.bytes.len() - 1, 0, text);
    }

    /// Adds an integer at the end.
    pub fn push_back_integer(&mut self, value: i64) {
        self.push_back(value.to_string().as_bytes());
    }

    /// Adds an element in front of all.
    pub fn push_front(&mut self, text: &[u8]) {
        self.splice(HEADER, 0, text);
    }

    /// Puts an element before the one at `at`, whose place it takes.
    pub fn insert_before(&mut self, at: Position, text: &[u8]) {
        self.splice(at.0, 0, text);
    }

    /// Puts an element after the one at `at`.
    pub fn insert_after(&mut self, at: Position, text: &[u8]) {
        self.splice(self.after(at.0), 0, text);
    }

    /// Puts `text` in place of the element at `at`. The position stays valid.
    pub fn replace(&mut self, at: Position, text: &[u8]) {
        self.splice(at.0, self.after(at.0) - at.0, text);
    }

    /// Takes out `count` elements from `at` on, or as many as there are. Returns what follows.
    pub fn remove(&mut self, at: Position, count: usize) -> Option<Position> {
        let end = self.bytes.len() - 1;
        let (mut to, mut removed) = (at.0, 0);
        while removed < count && to < end {
            to = self.after(to);
            removed += 1;
        }
        self.bytes.drain(at.0..to);
        self.recount(0, removed);
        self.fit();
        (at.0 < self.bytes.len() - 1).then_some(at)
    }

    /// Cuts the listpack in two: the elements from `at` on move to the one that is returned.
    #[must_use]
    pub fn split_off(&mut self, at: Position) -> Self {
        let mut tail = vec![0; HEADER];
        tail.extend_from_slice(&self.bytes[at.0..]);
        let mut tail = Self { bytes: tail };
        let moved = tail.iter().count();
        let left = self.len() - moved;
        tail.write_header(moved);
        self.bytes.truncate(at.0);
        self.bytes.push(END);
        self.write_header(left);
        self.fit();
        tail
    }

    /// Appends all elements of `other`.
    pub fn append(&mut self, other: &Self) {
        let total = self.len() + other.len();
        self.bytes.pop();
        self.grow(other.bytes.len());
        self.bytes.extend_from_slice(&other.bytes[HEADER..]);
        self.write_header(total);
    }

    fn splice(&mut self, at: usize, old: usize, text: &[u8]) {
        let mut head = [0u8; 9];
        let (head, data) = match parse_integer(text) {
            Some(value) => (encode_integer(value, &mut head), &[][..]),
            None => (encode_string_head(text.len(), &mut head), text),
        };
        let size = head.len() + data.len();
        let mut back = [0u8; 5];
        let back = encode_back_length(size, &mut back);
        let total = size + back.len();

        let tail = at + old;
        let len = self.bytes.len();
        if total > old {
            self.grow(total - old);
            self.bytes.resize(len + total - old, 0);
            self.bytes.copy_within(tail..len, at + total);
        } else {
            self.bytes.copy_within(tail..len, at + total);
            self.bytes.truncate(len + total - old);
        }
        let entry = &mut self.bytes[at..at + total];
        entry[..head.len()].copy_from_slice(head);
        entry[head.len()..size].copy_from_slice(data);
        entry[size..].copy_from_slice(back);
        self.recount(usize::from(old == 0), 0);
    }

    /// Reserves as an allocator with size classes would, instead of doubling: there are many
    /// listpacks, and half of each would be air.
    fn grow(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            self.bytes.reserve_exact(usable(needed) - self.bytes.len());
        }
    }

    /// Gives memory back after a large removal.
    fn fit(&mut self) {
        if self.bytes.len() * 2 < self.bytes.capacity() {
            self.bytes.shrink_to(usable(self.bytes.len()));
        }
    }

    /// Updates the header. A count once unknown stays unknown until a split or a join: to know it
    /// would mean walking the whole pack on every change.
    fn recount(&mut self, added: usize, removed: usize) {
        let count = match u16::from_le_bytes([self.bytes[4], self.bytes[5]]) {
            UNKNOWN_COUNT => usize::from(UNKNOWN_COUNT),
            count => usize::from(count) + added - removed,
        };
        self.write_header(count);
    }

    fn write_header(&mut self, count: usize) {
        let total = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let count = u16::try_from(count).unwrap_or(UNKNOWN_COUNT);
        self.bytes[..4].copy_from_slice(&total.to_le_bytes());
        self.bytes[4..HEADER].copy_from_slice(&count.to_le_bytes());
    }

    /// Offset of what follows the entry at `at`.
    fn after(&self, at: usize) -> usize {
        let size = entry_size(&self.bytes[at..]).unwrap_or(1);
        at + size + back_length_size(size)
    }

    fn before(&self, end: usize) -> Option<Position> {
        if end == HEADER {
            return None;
        }
        let size = read_back_length(&self.bytes[..end])?;
        Some(Position(end - size - back_length_size(size)))
    }
}

/// The elements of a [`Listpack`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    pack: &'a Listpack,
    front: usize,
    back: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        if self.front >= self.back {
            return None;
        }
        let at = self.front;
        self.front = self.pack.after(at);
        Some(decode(&self.pack.bytes[at..]))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        let at = self.pack.before(self.back)?;
        self.back = at.0;
        Some(self.pack.get(at))
    }
}

impl<'a> IntoIterator for &'a Listpack {
    type Item = Element<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Returns the size of head and data of the entry that `bytes` begin with, or `None` if they end
/// before it does or begin with no entry.
fn entry_size(bytes: &[u8]) -> Option<usize> {
    let size = match *bytes.first()? {
        0x00..=0x7f => 1,
        head @ 0x80..=0xbf => 1 + usize::from(head & 0x3f),
        0xc0..=0xdf => 2,
        head @ 0xe0..=0xef => 2 + (usize::from(head & 0x0f) << 8 | usize::from(*bytes.get(1)?)),
        0xf0 => {
            let len = u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?);
            usize::try_from(len).ok()?.checked_add(5)?
        }
        0xf1 => 3,
        0xf2 => 4,
        0xf3 => 5,
        0xf4 => 9,
        _ => return None,
    };
    (size <= bytes.len()).then_some(size)
}

/// Decodes the entry that `bytes` begin with. Total: what is no entry reads as an empty string.
fn decode(bytes: &[u8]) -> Element<'_> {
    let size = entry_size(bytes).unwrap_or(0);
    match &bytes[..size] {
        [head @ 0x00..=0x7f] => Element::Int(i64::from(*head)),
        [0x80..=0xbf, text @ ..] | [0xe0..=0xef, _, text @ ..] | [0xf0, _, _, _, _, text @ ..] => {
            Element::Str(text)
        }
        [head @ 0xc0..=0xdf, low] => {
            let raw = i64::from(head & 0x1f) << 8 | i64::from(*low);
            Element::Int(if raw >= 1 << 12 { raw - (1 << 13) } else { raw })
        }
        [0xf1..=0xf4, data @ ..] => {
            let negative = data.last().is_some_and(|top| *top >= 0x80);
            let mut word = if negative { [0xff; 8] } else { [0; 8] };
            word[..data.len()].copy_from_slice(data);
            Element::Int(i64::from_le_bytes(word))
        }
        _ => Element::Str(&[]),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "each arm keeps the bits its range has"
)]
fn encode_integer(value: i64, buffer: &mut [u8; 9]) -> &[u8] {
    let (head, width) = match value {
        0..=127 => {
            buffer[0] = value as u8;
            return &buffer[..1];
        }
        -4096..=4095 => {
            let raw = value as u16 & 0x1fff;
            buffer[0] = 0xc0 | (raw >> 8) as u8;
            buffer[1] = raw as u8;
            return &buffer[..2];
        }
        -0x8000..=0x7fff => (0xf1, 2),
        -0x80_0000..=0x7f_ffff => (0xf2, 3),
        -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
        _ => (0xf4, 8),
    };
    buffer[0] = head;
    buffer[1..=width].copy_from_slice(&value.to_le_bytes()[..width]);
    &buffer[..=width]
}

#[allow(clippy::cast_possible_truncation, reason = "each arm keeps the bits its range has")]
fn encode_string_head(len: usize, buffer: &mut [u8; 9]) -> &[u8] {
    match len {
        0..=63 => {
            buffer[0] = 0x80 | len as u8;
            &buffer[..1]
        }
        64..=4095 => {
            buffer[0] = 0xe0 | (len >> 8) as u8;
            buffer[1] = len as u8;
            &buffer[..2]
        }
        _ => {
            buffer[0] = 0xf0;
            buffer[1..5].copy_from_slice(&(len as u32).to_le_bytes());
            &buffer[..5]
        }
    }
}

/// Returns how many bytes the back length of an entry takes. The thresholds are one below what seven
/// bits a byte could hold; so they are in Redis, and the files agree.
const fn back_length_size(size: usize) -> usize {
    match size {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Big-endian groups of seven bits; all but the first byte have the top bit set, which tells a reader
/// coming from the right to go on.
#[allow(clippy::cast_possible_truncation, reason = "masked to seven bits")]
fn encode_back_length(size: usize, buffer: &mut [u8; 5]) -> &[u8] {
    let width = back_length_size(size);
    for (place, byte) in buffer[..width].iter_mut().rev().enumerate() {
        *byte = (size >> (7 * place)) as u8 & 0x7f;
        if place + 1 < width {
            *byte |= 0x80;
        }
    }
    &buffer[..width]
}

fn read_back_length(before: &[u8]) -> Option<usize> {
    let mut size = 0;
    for (place, byte) in before.iter().rev().take(5).enumerate() {
        size |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(size);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pack(elements: &[&[u8]]) -> Listpack {
        let mut pack = Listpack::new();
        for element in elements {
            pack.push_back(element);
        }
        pack
    }

    fn texts(pack: &Listpack) -> Vec<Vec<u8>> {
        pack.iter().map(|element| element.bytes().into_owned()).collect()
    }

    #[test]
    fn it_writes_the_bytes_of_redis() {
        let bytes = pack(&[b"a", b"100", b"-1", b"1024"]).bytes;
        let expected = [19, 0, 0, 0, 4, 0, 0x81, b'a', 2, 100, 1, 0xdf, 0xff, 2, 0xc4, 0, 2, 0xff];
        // "a" is 3 bytes, 100 is 2, -1 and 1024 are 3 each: 6 + 11 + 1.
        assert_eq!(bytes[6..], expected[6..]);
        assert_eq!(bytes.len(), 18);
    }

    #[test]
    fn integers_of_every_width_come_back() {
        let numbers = [
            0,
            127,
            128,
            -1,
            4095,
            -4096,
            4096,
            -4097,
            32767,
            -32768,
            32768,
            8_388_607,
            -8_388_608,
            8_388_608,
            i64::from(i32::MAX),
            i64::from(i32::MIN),
            i64::from(i32::MAX) + 1,
            i64::MAX,
            i64::MIN,
        ];
        let mut pack = Listpack::new();
        for n in numbers {
            pack.push_back_integer(n);
        }
        assert!(pack.iter().eq(numbers.map(Element::Int)));
        assert!(pack.iter().rev().eq(numbers.iter().rev().map(|n| Element::Int(*n))));
        assert!(Listpack::from_bytes(pack.bytes).is_some());
    }

    #[test]
    fn strings_around_each_length_come_back() {
        let mut pack = Listpack::new();
        let lengths =
            [0, 1, 63, 64, 126, 127, 128, 4095, 4096, 16_377, 16_378, 16_379, 16_380, 2_097_146, 2_097_147];
        for len in lengths {
            pack.push_back(&vec![b'x'; len]);
        }
        assert!(pack.iter().map(Element::text_len).eq(lengths));
        assert!(pack.iter().rev().map(Element::text_len).eq(lengths.into_iter().rev()));
        assert!(Listpack::from_bytes(pack.bytes).is_some());
    }

    #[test]
    fn a_cut_or_flipped_listpack_is_refused_or_harmless() {
        let bytes = pack(&[b"field", b"12", &[b'v'; 200], b"70000"]).bytes;
        for at in 0..bytes.len() {
            assert!(Listpack::from_bytes(bytes[..at].to_vec()).is_none());
            for flip in [1, 0x40, 0x80, 0xff] {
                let mut broken = bytes.clone();
                broken[at] ^= flip;
                if let Some(pack) = Listpack::from_bytes(broken) {
                    assert_eq!(pack.iter().count(), pack.iter().rev().count());
                }
            }
        }
    }

    #[test]
    fn more_than_65534_elements_are_counted() {
        let mut pack = Listpack::new();
        for _ in 0..65_600 {
            pack.push_back(b"1");
        }
        assert_eq!(pack.len(), 65_600);
        let at = pack.seek(10).expect("there are more than ten");
        pack.remove(at, 600);
        assert_eq!(pack.len(), 65_000);
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_vector(ops in prop::collection::vec((0u8..7, any::<prop::sample::Index>(), "[0-9]{0,3}|[a-z]{0,80}"), 0..60)) {
            let mut pack = Listpack::new();
            let mut model: Vec<Vec<u8>> = Vec::new();
            for (op, index, text) in ops {
                let text = text.into_bytes();
                let at = if model.is_empty() { 0 } else { index.index(model.len()) };
                match (op, pack.seek(at)) {
                    (0, _) => { pack.push_front(&text); model.insert(0, text); }
                    (1, Some(p)) => { pack.insert_before(p, &text); model.insert(at, text); }
                    (2, Some(p)) => { pack.insert_after(p, &text); model.insert(at + 1, text); }
                    (3, Some(p)) => { pack.replace(p, &text); model[at] = text; }
                    (4, Some(p)) => { pack.remove(p, 2); model.drain(at..model.len().min(at + 2)); }
                    (5, Some(p)) => { let tail = pack.split_off(p); pack.append(&tail); }
                    _ => { pack.push_back(&text); model.push(text); }
                }
                prop_assert_eq!(texts(&pack), model.clone());
                prop_assert_eq!(pack.len(), model.len());
                prop_assert!(Listpack::from_bytes(pack.bytes.clone()).is_some());
                for text in &model {
                    let found = pack.find(pack.first(), text, 0).expect("it is in the model");
                    prop_assert!(pack.get(found).is(text));
                }
            }
        }
    }
}
