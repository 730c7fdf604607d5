//! Sorted sets: member and score side by side in one sorted blob, then a skiplist for the order and
//! a dict from member to score. Ranges of any kind become ranges of ranks first.

#![allow(clippy::float_cmp, reason = "scores are compared exactly: equal bits, equal rank")]

use std::cmp::Ordering;
use std::ops::Range;

use super::dict::Dict;
use super::limits::Limits;
use super::listpack::{Element, Listpack, Position};
use super::random::Random;
use super::siphash::HashSeed;
use super::skiplist::{Member, Skiplist};
use crate::server::number::{format_double, format_exact, parse_double};

/// How the members are stored.
#[derive(Clone, Debug)]
pub enum ZsetEncoding {
    /// Pairs of member and score in one blob, sorted.
    Listpack(Listpack),
    /// A skiplist and a dict that share the members.
    Skiplist(Box<Indexed>),
}

/// The two halves of a large sorted set.
#[derive(Clone, Debug)]
pub struct Indexed {
    /// Member to score.
    pub scores: Dict<Member, f64>,
    /// The order.
    pub order: Skiplist,
}

/// A sorted set value.
#[derive(Clone, Debug)]
pub struct Zset {
    encoding: ZsetEncoding,
    seed: HashSeed,
}

/// One end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreBound {
    /// The score.
    pub score: f64,
    /// Whether the score itself is outside.
    pub exclusive: bool,
}

/// One end of a range of bytes, among members of equal score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LexBound {
    /// `-`: before all.
    Min,
    /// `+`: after all.
    Max,
    /// `[x`: at `x`, inside.
    Inclusive(Vec<u8>),
    /// `(x`: at `x`, outside.
    Exclusive(Vec<u8>),
}

impl ScoreBound {
    fn is_above(self, score: f64) -> bool {
        score < self.score || (self.exclusive && score == self.score)
    }

    fn is_below(self, score: f64) -> bool {
        score > self.score || (self.exclusive && score == self.score)
    }
}

impl LexBound {
    /// Compares a member with the bound; an exclusive bound never equals.
    fn compare(&self, member: &[u8], when_equal: Ordering) -> Ordering {
        match self {
            Self::Min => Ordering::Greater,
            Self::Max => Ordering::Less,
            Self::Inclusive(bound) => member.cmp(bound),
            Self::Exclusive(bound) => member.cmp(bound).then(when_equal),
        }
    }
}

impl Zset {
    /// Makes an empty sorted set.
    pub fn new(seed: HashSeed) -> Self {
        Self { encoding: ZsetEncoding::Listpack(Listpack::new()), seed }
    }

    /// Wraps a listpack that was read from a file, converted if it is over the limits.
    pub fn from_listpack(pack: Listpack, seed: HashSeed, limits: &Limits) -> Self {
        let over = pack.len() / 2 > limits.zset_max_listpack_entries
            || pack.iter().any(|e| e.text_len() > limits.zset_max_listpack_value);
        let mut zset = Self { encoding: ZsetEncoding::Listpack(pack), seed };
        if over {
            zset.convert();
        }
        zset
    }

    /// Returns how the members are stored.
    pub fn inside(&self) -> &ZsetEncoding {
        &self.encoding
    }

    /// Returns what OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        match &self.encoding {
            ZsetEncoding::Listpack(_) => "listpack",
            ZsetEncoding::Skiplist(_) => "skiplist",
        }
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        match &self.encoding {
            ZsetEncoding::Listpack(pack) => pack.len() / 2,
            ZsetEncoding::Skiplist(indexed) => indexed.order.len(),
        }
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Becomes a skiplist if `count` members, the longest of `longest` bytes, are past the limits.
    pub fn maybe_convert(&mut self, count: usize, longest: usize, limits: &Limits) {
        if matches!(self.encoding, ZsetEncoding::Listpack(_))
            && (count > limits.zset_max_listpack_entries || longest > limits.zset_max_listpack_value)
        {
            self.convert();
        }
    }

    /// Returns the score of a member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.encoding {
            ZsetEncoding::Skiplist(indexed) => indexed.scores.get(member).copied(),
            ZsetEncoding::Listpack(pack) => {
                let at = pack.find(pack.first(), member, 1)?;
                Some(score_at(pack, pack.next(at)?))
            }
        }
    }

    /// Adds a member or gives it a new score; returns the score it had. `score` must not be NaN.
    pub fn set(&mut self, member: &[u8], score: f64, limits: &Limits) -> Option<f64> {
        if let ZsetEncoding::Listpack(pack) = &mut self.encoding {
            if let Some(at) = pack.find(pack.first(), member, 1) {
                let old = pack.next(at).map_or(0.0, |at| score_at(pack, at));
                if old.total_cmp(&score) != Ordering::Equal {
                    pack.remove(at, 2);
                    insert_sorted(pack, member, score);
                }
                return Some(old);
            }
            let fits = pack.len() / 2 < limits.zset_max_listpack_entries
                && member.len() <= limits.zset_max_listpack_value
                && pack.has_room(member.len());
            if fits {
                insert_sorted(pack, member, score);
                return None;
            }
            self.convert();
        }
        let ZsetEncoding::Skiplist(indexed) = &mut self.encoding else {
            return None;
        };
        let Indexed { scores, order } = &mut **indexed;
        if let Some(known) = scores.get_mut(member) {
            let old = std::mem::replace(known, score);
            if old.total_cmp(&score) != Ordering::Equal {
                let shared = scores.get_entry(member).map(|(shared, _)| Member::clone(shared));
                order.remove(old, member);
                order.insert(score, shared.unwrap_or_else(|| member.into()));
            }
            return Some(old);
        }
        let member = Member::from(member);
        scores.insert(Member::clone(&member), score);
        order.insert(score, member);
        None
    }

    /// Takes a member out; returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.encoding {
            ZsetEncoding::Skiplist(indexed) => {
                let Indexed { scores, order } = &mut **indexed;
                let (_, score) = scores.remove(member)?;
                order.remove(score, member);
                Some(score)
            }
            ZsetEncoding::Listpack(pack) => {
                let at = pack.find(pack.first(), member, 1)?;
                let score = score_at(pack, pack.next(at)?);
                pack.remove(at, 2);
                Some(score)
            }
        }
    }

    /// Returns the rank of a member, lowest score first, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match &self.encoding {
            ZsetEncoding::Skiplist(indexed) => {
                let Indexed { scores, order } = &**indexed;
                let score = *scores.get(member)?;
                let rank = order.partition_point(|s, m| s < score || (s == score && m < member));
                Some((rank, score))
            }
            ZsetEncoding::Listpack(pack) => pairs(pack)
                .enumerate()
                .find(|(_, (m, _))| m.is(member))
                .map(|(rank, (_, score))| (rank, score)),
        }
    }

    /// Returns the ranks of the scores between two bounds.
    pub fn ranks_by_score(&self, min: ScoreBound, max: ScoreBound) -> Range<usize> {
        let start = self.partition_point(|score, _| min.is_above(score));
        let end = self.partition_point(|score, _| !max.is_below(score));
        start..end.max(start)
    }

    /// Returns the ranks of the members between two bounds; all scores are taken to be equal.
    pub fn ranks_by_lex(&self, min: &LexBound, max: &LexBound) -> Range<usize> {
        let start = self.partition_point(|_, member| min.compare(member, Ordering::Less).is_lt());
        let end = self.partition_point(|_, member| !max.compare(member, Ordering::Greater).is_gt());
        start..end.max(start)
    }

    /// Walks the members of a range of ranks, lowest first or highest first.
    pub fn range(
        &self,
        ranks: Range<usize>,
        reverse: bool,
    ) -> Box<dyn Iterator<Item = (Element<'_>, f64)> + '_> {
        let ranks = ranks.start..ranks.end.min(self.len());
        let count = ranks.len();
        if count == 0 {
            return Box::new(std::iter::empty());
        }
        match &self.encoding {
            ZsetEncoding::Listpack(pack) if reverse => {
                let mut elements = pack.iter().rev();
                let pairs = std::iter::from_fn(move || {
                    let score = element_score(elements.next()?);
                    Some((elements.next()?, score))
                });
                Box::new(pairs.skip(self.len() - ranks.end).take(count))
            }
            ZsetEncoding::Listpack(pack) => {
                let start = pack.seek(ranks.start * 2);
                let mut elements = start.map(|at| pack.iter_from(at)).into_iter().flatten();
                let pairs =
                    std::iter::from_fn(move || Some((elements.next()?, element_score(elements.next()?))));
                Box::new(pairs.take(count))
            }
            ZsetEncoding::Skiplist(indexed) if reverse => {
                Box::new(indexed.order.iter_back_from(ranks.end - 1).map(as_element).take(count))
            }
            ZsetEncoding::Skiplist(indexed) => {
                Box::new(indexed.order.iter_from(ranks.start).map(as_element).take(count))
            }
        }
    }

    /// Walks all members, lowest score first.
    pub fn members(&self) -> Box<dyn Iterator<Item = (Element<'_>, f64)> + '_> {
        self.range(0..self.len(), false)
    }

    /// Takes out a range of ranks; returns how many went.
    pub fn remove_ranks(&mut self, ranks: Range<usize>) -> usize {
        let count = ranks.end.min(self.len()).saturating_sub(ranks.start);
        match &mut self.encoding {
            ZsetEncoding::Listpack(pack) => {
                if let Some(at) = pack.seek(ranks.start * 2) {
                    pack.remove(at, count * 2);
                }
            }
            ZsetEncoding::Skiplist(indexed) => {
                let Indexed { scores, order } = &mut **indexed;
                order.remove_ranks(ranks.start, count, |member| {
                    scores.remove(&member);
                });
            }
        }
        count
    }

    /// Picks a member.
    pub fn random(&self, random: &mut Random) -> Option<(Element<'_>, f64)> {
        match &self.encoding {
            ZsetEncoding::Skiplist(indexed) => {
                indexed.scores.random(random).map(|(m, s)| (Element::Str(m), *s))
            }
            ZsetEncoding::Listpack(pack) => {
                let at = pack.seek(random.below(pack.len() / 2) * 2)?;
                Some((pack.get(at), score_at(pack, pack.next(at)?)))
            }
        }
    }

    /// Emits members from `cursor` on and returns the next cursor. A blob is emitted whole.
    pub fn scan(&self, cursor: u64, count: usize, mut emit: impl FnMut(Element<'_>, f64)) -> u64 {
        match &self.encoding {
            ZsetEncoding::Skiplist(indexed) => indexed.scores.scan_some(cursor, count, |member, score| {
                emit(Element::Str(member), *score);
            }),
            ZsetEncoding::Listpack(pack) => {
                pairs(pack).for_each(|(member, score)| emit(member, score));
                0
            }
        }
    }

    /// Returns a score as a scan shows it: a blob holds short text already, a skiplist writes all
    /// digits. A quirk of Redis, and visible.
    pub fn scan_score(&self, score: f64) -> String {
        match &self.encoding {
            ZsetEncoding::Listpack(_) => format_double(score),
            ZsetEncoding::Skiplist(_) => format_exact(score),
        }
    }

    fn partition_point(&self, mut before: impl FnMut(f64, &[u8]) -> bool) -> usize {
        match &self.encoding {
            ZsetEncoding::Skiplist(indexed) => indexed.order.partition_point(before),
            ZsetEncoding::Listpack(pack) => {
                pairs(pack).take_while(|(member, score)| before(*score, &member.bytes())).count()
            }
        }
    }

    fn convert(&mut self) {
        let ZsetEncoding::Listpack(pack) = &self.encoding else {
            return;
        };
        let mut scores = Dict::new(self.seed);
        scores.reserve(pack.len() / 2 + 1);
        let mut order = Skiplist::new(self.seed.hash(b"skiplist"));
        for (member, score) in pairs(pack) {
            let member = Member::from(&*member.bytes());
            if scores.insert(Member::clone(&member), score).is_none() {
                order.insert(score, member);
            }
        }
        self.encoding = ZsetEncoding::Skiplist(Box::new(Indexed { scores, order }));
    }
}

fn as_element((member, score): (&Member, f64)) -> (Element<'_>, f64) {
    (Element::Str(member), score)
}

fn pairs(pack: &Listpack) -> impl Iterator<Item = (Element<'_>, f64)> {
    let mut elements = pack.iter();
    std::iter::from_fn(move || Some((elements.next()?, element_score(elements.next()?))))
}

fn score_at(pack: &Listpack, at: Position) -> f64 {
    element_score(pack.get(at))
}

fn element_score(element: Element<'_>) -> f64 {
    match element {
        Element::Int(value) => value as f64,
        Element::Str(text) => parse_double(text).unwrap_or(0.0),
    }
}

fn insert_sorted(pack: &mut Listpack, member: &[u8], score: f64) {
    // As in Redis, negative zero loses its sign here: it is stored as an integer.
    let text = if score == 0.0 { "0".to_owned() } else { format_double(score) };
    let mut at = pack.first();
    while let Some(here) = at {
        let Some(score_here) = pack.next(here) else {
            break;
        };
        let other = score_at(pack, score_here);
        if other > score || (other == score && *pack.get(here).bytes() > *member) {
            pack.insert_before(here, text.as_bytes());
            pack.insert_before(here, member);
            return;
        }
        at = pack.next(score_here);
    }
    pack.push_back(member);
    pack.push_back(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bound(score: f64, exclusive: bool) -> ScoreBound {
        ScoreBound { score, exclusive }
    }

    fn names(zset: &Zset) -> Vec<String> {
        zset.members().map(|(m, s)| format!("{}={s}", String::from_utf8_lossy(&m.bytes()))).collect()
    }

    #[test]
    fn thresholds_are_met_exactly() {
        let limits = Limits::default();
        let mut zset = Zset::new(HashSeed::default());
        for n in 0..128 {
            zset.set(format!("m{n}").as_bytes(), f64::from(n), &limits);
        }
        assert_eq!(zset.encoding(), "listpack");
        zset.set(b"m0", 500.0, &limits);
        assert_eq!(zset.encoding(), "listpack");
        zset.set(b"m128", 1.5, &limits);
        assert_eq!((zset.encoding(), zset.len()), ("skiplist", 129));

        let mut zset = Zset::new(HashSeed::default());
        zset.set(&[b'x'; 65], 0.0, &limits);
        assert_eq!(zset.encoding(), "skiplist");
    }

    proptest! {
        #[test]
        fn both_encodings_answer_alike(ops in prop::collection::vec((0u8..4, 0u8..12, -2i8..5), 1..60)) {
            let small = Limits::default();
            let none = Limits { zset_max_listpack_entries: 0, ..Limits::default() };
            let (mut a, mut b) = (Zset::new(HashSeed::default()), Zset::new(HashSeed::default()));
            for (op, member, score) in ops {
                let member = [b"member", &[b'a' + member][..]].concat();
                let score = f64::from(score) / 2.0;
                match op {
                    0 => prop_assert_eq!(a.remove(&member), b.remove(&member)),
                    1 => prop_assert_eq!(a.rank(&member), b.rank(&member)),
                    _ => prop_assert_eq!(a.set(&member, score, &small), b.set(&member, score, &none)),
                }
                prop_assert_eq!(names(&a), names(&b));
                for exclusive in [false, true] {
                    let (min, max) = (bound(score, exclusive), bound(score + 1.0, !exclusive));
                    prop_assert_eq!(a.ranks_by_score(min, max), b.ranks_by_score(min, max));
                }
                let ranks = a.ranks_by_score(bound(0.0, false), bound(f64::INFINITY, false));
                let back: Vec<_> = a.range(ranks.clone(), true).map(|(m, _)| m.bytes().into_owned()).collect();
                let other: Vec<_> = b.range(ranks, true).map(|(m, _)| m.bytes().into_owned()).collect();
                prop_assert_eq!(back, other);
            }
            prop_assert_eq!(a.remove_ranks(1..3), b.remove_ranks(1..3));
            prop_assert_eq!(names(&a), names(&b));
        }
    }

    #[test]
    fn lexical_ranges_know_both_kinds_of_end() {
        let limits = Limits::default();
        let mut zset = Zset::new(HashSeed::default());
        for member in ["a", "b", "c", "d"] {
            zset.set(member.as_bytes(), 0.0, &limits);
        }
        let inclusive = |text: &str| LexBound::Inclusive(text.into());
        let exclusive = |text: &str| LexBound::Exclusive(text.into());
        assert_eq!(zset.ranks_by_lex(&LexBound::Min, &LexBound::Max), 0..4);
        assert_eq!(zset.ranks_by_lex(&inclusive("b"), &exclusive("d")), 1..3);
        assert_eq!(zset.ranks_by_lex(&exclusive("b"), &inclusive("d")), 2..4);
        assert!(zset.ranks_by_lex(&LexBound::Max, &LexBound::Min).is_empty());
        assert!(zset.ranks_by_lex(&inclusive("d"), &inclusive("a")).is_empty());
    }

    #[test]
    fn scores_survive_the_blob() {
        let limits = Limits::default();
        for score in [0.1, 1e300, f64::INFINITY, f64::NEG_INFINITY, 3.0, -7.5, 1e17] {
            let mut zset = Zset::new(HashSeed::default());
            zset.set(b"m", score, &limits);
            assert_eq!(zset.score(b"m").map(f64::to_bits), Some(score.to_bits()), "{score}");
        }
    }
}
