//! The radix tree: stream IDs to values, in order. Owns the shape of the tree, which is the one Redis
//! builds, node for node: XINFO counts its nodes and so does the effort of freeing a stream.
//!
//! # The shape
//!
//! A plain trie spends a node on every byte. Here a run of bytes without a fork is one node:
//!
//! ```text
//! one key       [16 bytes] -> leaf                                       2 nodes
//! two keys      [13 bytes] -> fork x -> [2 bytes] -> leaf
//!                                  y -> [2 bytes] -> leaf                6 nodes
//! ```
//!
//! Inserting cuts a run where the new key leaves it; removing joins what has no fork any more. A run
//! of one byte is kept as a fork with one way.
//!
//! Keys are all 16 bytes long (an ID, big-endian, so that bytes sort as IDs do). No key is a prefix
//! of another, so values sit in leaves only and half of the cases of a general tree do not exist.
//! Depth is bounded by 16, and so is recursion.
//!
//! There is no iterator: walking is asking for the first key at or after a bound, again and again.
//! That costs a descent of at most 16 steps each time and holds nothing across changes.

/// The length of all keys.
pub const KEY: usize = 16;

/// A key: a stream ID in big-endian order.
pub type Key = [u8; KEY];

#[derive(Clone, Debug)]
enum Node<V> {
    /// The root of an empty tree.
    Empty,
    /// The end of a key.
    Leaf(V),
    /// Two bytes or more without a fork.
    Run(Box<[u8]>, Box<Node<V>>),
    /// One way or more, sorted by byte.
    Fork(Vec<(u8, Box<Node<V>>)>),
}

/// A radix tree.
#[derive(Clone, Debug)]
pub struct Rax<V> {
    root: Box<Node<V>>,
    len: usize,
    nodes: usize,
}

impl<V> Default for Rax<V> {
    fn default() -> Self {
        Self { root: Box::new(Node::Empty), len: 0, nodes: 1 }
    }
}

impl<V> Rax<V> {
    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of nodes, the root included.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the value under `key`.
    pub fn get(&self, key: &Key) -> Option<&V> {
        let (mut node, mut rest) = (&*self.root, &key[..]);
        loop {
            match node {
                Node::Empty => return None,
                Node::Leaf(value) => return Some(value),
                Node::Run(bytes, child) => {
                    rest = rest.strip_prefix(&**bytes)?;
                    node = child;
                }
                Node::Fork(ways) => {
                    let (first, tail) = rest.split_first()?;
                    let way = ways.binary_search_by_key(first, |(byte, _)| *byte).ok()?;
                    (node, rest) = (&ways[way].1, tail);
                }
            }
        }
    }

    /// Returns the value under `key` for changing.
    pub fn get_mut(&mut self, key: &Key) -> Option<&mut V> {
        let (mut node, mut rest) = (&mut *self.root, &key[..]);
        loop {
            match node {
                Node::Empty => return None,
                Node::Leaf(value) => return Some(value),
                Node::Run(bytes, child) => {
                    rest = rest.strip_prefix(&**bytes)?;
                    node = child;
                }
                Node::Fork(ways) => {
                    let (first, tail) = rest.split_first()?;
                    let way = ways.binary_search_by_key(first, |(byte, _)| *byte).ok()?;
                    (node, rest) = (&mut ways[way].1, tail);
                }
            }
        }
    }

    /// Puts `value` under `key` and returns what was there.
    pub fn insert(&mut self, key: &Key, value: V) -> Option<V> {
        let old = insert(&mut self.root, key, value, &mut self.nodes);
        self.len += usize::from(old.is_none());
        old
    }

    /// Takes the value under `key` out.
    pub fn remove(&mut self, key: &Key) -> Option<V> {
        let value = remove(&mut self.root, key, &mut self.nodes)?;
        self.len -= 1;
        Some(value)
    }

    /// Returns the first key that is not below `bound`.
    pub fn first_from(&self, bound: &Key) -> Option<(Key, &V)> {
        let mut path = [0; KEY];
        let value = seek(&self.root, Some(bound), &mut path, 0, Direction::Up)?;
        Some((path, value))
    }

    /// Returns the last key that is not above `bound`.
    pub fn last_up_to(&self, bound: &Key) -> Option<(Key, &V)> {
        let mut path = [0; KEY];
        let value = seek(&self.root, Some(bound), &mut path, 0, Direction::Down)?;
        Some((path, value))
    }

    /// Returns the first key of all.
    pub fn first(&self) -> Option<(Key, &V)> {
        self.first_from(&[0; KEY])
    }

    /// Returns the last key of all.
    pub fn last(&self) -> Option<(Key, &V)> {
        self.last_up_to(&[0xff; KEY])
    }

    /// Walks all keys in order, one descent each.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &V)> {
        let mut bound = Some([0; KEY]);
        std::iter::from_fn(move || {
            let (key, value) = self.first_from(&bound?)?;
            bound = successor(&key);
            Some((key, value))
        })
    }
}

/// Returns the key after `key`.
pub fn successor(key: &Key) -> Option<Key> {
    u128::from_be_bytes(*key).checked_add(1).map(u128::to_be_bytes)
}

/// Returns the key before `key`.
pub fn predecessor(key: &Key) -> Option<Key> {
    u128::from_be_bytes(*key).checked_sub(1).map(u128::to_be_bytes)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Finds the nearest key to `bound` in a direction, or with no bound the outermost one. What has been
/// walked is in `path[..depth]`.
fn seek<'a, V>(
    node: &'a Node<V>,
    bound: Option<&[u8]>,
    path: &mut Key,
    depth: usize,
    direction: Direction,
) -> Option<&'a V> {
    match node {
        Node::Empty => None,
        Node::Leaf(value) => Some(value),
        Node::Run(bytes, child) => {
            let end = depth + bytes.len();
            path[depth..end].copy_from_slice(bytes);
            let rest = match bound {
                None => None,
                Some(bound) => match bytes[..].cmp(&bound[..bytes.len()]) {
                    std::cmp::Ordering::Equal => Some(&bound[bytes.len()..]),
                    std::cmp::Ordering::Greater if direction == Direction::Up => None,
                    std::cmp::Ordering::Less if direction == Direction::Down => None,
                    _ => return None,
                },
            };
            seek(child, rest, path, end, direction)
        }
        Node::Fork(ways) => {
            let mut visit = |(byte, child): &'a (u8, Box<Node<V>>)| {
                let rest = match bound.and_then(<[u8]>::split_first) {
                    None => None,
                    Some((first, rest)) if first == byte => Some(rest),
                    Some((first, _)) if (byte > first) == (direction == Direction::Up) => None,
                    Some(_) => return None,
                };
                path[depth] = *byte;
                seek(child, rest, path, depth + 1, direction)
            };
            match direction {
                Direction::Up => ways.iter().find_map(&mut visit),
                Direction::Down => ways.iter().rev().find_map(&mut visit),
            }
        }
    }
}

fn insert<V>(node: &mut Node<V>, key: &[u8], value: V, nodes: &mut usize) -> Option<V> {
    match node {
        Node::Leaf(old) => return Some(std::mem::replace(old, value)),
        Node::Empty => *node = fresh(key, value, nodes),
        Node::Run(bytes, child) => {
            let common = bytes.iter().zip(key).take_while(|(a, b)| a == b).count();
            if common == bytes.len() {
                return insert(child, &key[common..], value, nodes);
            }
            // Cut: what is shared, a fork, and the two ways on. The leaf of `child` stays where it is.
            let child = std::mem::replace(&mut **child, Node::Empty);
            let old_way = wrap(&bytes[common + 1..], child, nodes);
            let (old_byte, prefix) = (bytes[common], bytes[..common].to_vec());
            *nodes += 1;
            let new_way = fresh(&key[common + 1..], value, nodes);
            let mut ways = vec![(old_byte, Box::new(old_way)), (key[common], Box::new(new_way))];
            ways.sort_unstable_by_key(|(byte, _)| *byte);
            *node = wrap(&prefix, Node::Fork(ways), nodes);
        }
        Node::Fork(ways) => {
            let (first, rest) = key.split_first()?;
            match ways.binary_search_by_key(first, |(byte, _)| *byte) {
                Ok(way) => return insert(&mut ways[way].1, rest, value, nodes),
                Err(way) => {
                    *nodes += 1;
                    let child = fresh(rest, value, nodes);
                    ways.insert(way, (*first, Box::new(child)));
                }
            }
        }
    }
    None
}

/// Makes the nodes that lead through `key` to a new leaf; the first of them takes a place that has
/// been counted.
fn fresh<V>(key: &[u8], value: V, nodes: &mut usize) -> Node<V> {
    wrap(key, Node::Leaf(value), nodes)
}

/// Puts a run of bytes before a node, and counts it if there is one.
fn wrap<V>(bytes: &[u8], node: Node<V>, nodes: &mut usize) -> Node<V> {
    *nodes += usize::from(!bytes.is_empty());
    match bytes {
        [] => node,
        [byte] => Node::Fork(vec![(*byte, Box::new(node))]),
        _ => Node::Run(bytes.into(), Box::new(node)),
    }
}

fn remove<V>(node: &mut Node<V>, key: &[u8], nodes: &mut usize) -> Option<V> {
    let value = match node {
        Node::Empty => return None,
        Node::Leaf(_) => match std::mem::replace(node, Node::Empty) {
            Node::Leaf(value) => return Some(value),
            _ => return None,
        },
        Node::Run(bytes, child) => {
            let value = remove(child, key.strip_prefix(&**bytes)?, nodes)?;
            if matches!(**child, Node::Empty) {
                *node = Node::Empty;
                *nodes -= 1;
            }
            value
        }
        Node::Fork(ways) => {
            let (first, rest) = key.split_first()?;
            let way = ways.binary_search_by_key(first, |(byte, _)| *byte).ok()?;
            let value = remove(&mut ways[way].1, rest, nodes)?;
            if matches!(*ways[way].1, Node::Empty) {
                ways.remove(way);
                *nodes -= 1;
            }
            if ways.is_empty() {
                *node = Node::Empty;
            }
            value
        }
    };
    join(node, nodes);
    Some(value)
}

/// Joins a node without a fork with a child without one.
fn join<V>(node: &mut Node<V>, nodes: &mut usize) {
    let Some(mine) = straight(node) else { return };
    let child = match node {
        Node::Run(_, child) => child,
        Node::Fork(ways) => &mut ways[0].1,
        Node::Empty | Node::Leaf(_) => return,
    };
    let Some(theirs) = straight(child) else {
        return;
    };
    let grandchild = match std::mem::replace(&mut **child, Node::Empty) {
        Node::Run(_, below) => below,
        Node::Fork(mut ways) => ways.swap_remove(0).1,
        Node::Empty | Node::Leaf(_) => return,
    };
    *node = Node::Run([mine, theirs].concat().into(), grandchild);
    *nodes -= 1;
}

/// Returns the bytes of a node that has exactly one way on.
fn straight<V>(node: &Node<V>) -> Option<Vec<u8>> {
    match node {
        Node::Run(bytes, _) => Some(bytes.to_vec()),
        Node::Fork(ways) if ways.len() == 1 => Some(vec![ways[0].0]),
        Node::Fork(_) | Node::Empty | Node::Leaf(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key(ms: u64, seq: u64) -> Key {
        (u128::from(ms) << 64 | u128::from(seq)).to_be_bytes()
    }

    fn count<V>(node: &Node<V>) -> usize {
        match node {
            Node::Empty | Node::Leaf(_) => 1,
            Node::Run(bytes, child) => {
                assert!(bytes.len() > 1 && straight(child).is_none(), "a run ends at a fork or a leaf");
                1 + count(child)
            }
            Node::Fork(ways) => {
                assert!(ways.is_sorted_by(|a, b| a.0 < b.0));
                assert!(ways.len() > 1 || straight(&ways[0].1).is_none());
                1 + ways.iter().map(|(_, child)| count(child)).sum::<usize>()
            }
        }
    }

    #[test]
    fn the_shape_is_that_of_the_essay() {
        let mut rax = Rax::default();
        assert_eq!(rax.nodes(), 1);
        rax.insert(&key(1, 1), ());
        assert_eq!(rax.nodes(), 2);
        rax.insert(&key(1, 1 + (1 << 16)), ());
        assert_eq!(rax.nodes(), 6);
        rax.remove(&key(1, 1));
        assert_eq!(rax.nodes(), 2);
        rax.remove(&key(1, 1 + (1 << 16)));
        assert_eq!((rax.nodes(), rax.len()), (1, 0));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_btree(ops in prop::collection::vec((any::<bool>(), prop_oneof![0u64..4, 0u64..70_000, any::<u64>()], 0u64..300), 0..200)) {
            let (mut rax, mut model) = (Rax::default(), BTreeMap::new());
            for (at, (insert, ms, seq)) in ops.into_iter().enumerate() {
                let key = key(ms, seq);
                if insert {
                    prop_assert_eq!(rax.insert(&key, at), model.insert(key, at));
                } else {
                    let key = rax.first_from(&key).map_or(key, |(key, _)| key);
                    prop_assert_eq!(rax.remove(&key), model.remove(&key));
                }
                prop_assert_eq!(rax.get(&key), model.get(&key));
                prop_assert_eq!(rax.first_from(&key), model.range(key..).next().map(|(k, v)| (*k, v)));
                prop_assert_eq!(rax.last_up_to(&key), model.range(..=key).next_back().map(|(k, v)| (*k, v)));
                prop_assert_eq!(rax.len(), model.len());
                prop_assert_eq!(rax.nodes(), count(&rax.root));
            }
            prop_assert!(rax.iter().eq(model.iter().map(|(k, v)| (*k, v))));
            for key in model.keys() {
                rax.remove(key);
            }
            prop_assert_eq!((rax.len(), rax.nodes()), (0, 1));
        }
    }
}
