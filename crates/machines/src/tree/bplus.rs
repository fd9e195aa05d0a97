//! A B+-tree of 8-byte keys and values.
//!
//! Entries lie in leaves, inner nodes lead to them. A node is one allocation of about a kilobyte:
//! an array of sorted keys beside an array of values or children. An insert splits full nodes on
//! its way down, a delete fills sparse ones from a neighbour or merges both, so neither ever goes
//! back up, and no method is recursive.
//!
//! **Sharing.** A node may be shared with pictures of former states ([`Tree::share`]). A change
//! copies each shared node on its path, once, and works in place otherwise. This is why leaves have
//! no links to their neighbours: a copied leaf would need a new link from its neighbour, which
//! would have to be copied for that, and so on. An iterator keeps its path instead.
//!
//! **Memory.** A node takes 1056 bytes, for 64 entries: with full leaves, as after inserts in
//! ascending order, 17 bytes for each key; about 25 after inserts in random order, which fill
//! leaves to 69 % (Yao 1978); at most 35, because nodes are at least half full.

use super::entries::{CAPACITY, Entries, MINIMUM};
use std::sync::Arc;
use std::vec;

/// Inner nodes have a key for each child, at most as large as the least of that child and larger
/// than the largest of the one before. An inner node and its parent's key for it begin with the
/// same key, the root with zero.
#[derive(Clone)]
enum Node {
    Inner(Entries<Option<Arc<Node>>>),
    Leaf(Entries<u64>),
}

/// A map from 8-byte keys to 8-byte values, in the order of the keys.
pub struct Tree {
    root: Arc<Node>,
    len: usize,
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            root: Arc::new(Node::Leaf(Entries::new())),
            len: 0,
        }
    }
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Node::Inner(inner) => inner.len(),
            Node::Leaf(leaf) => leaf.len(),
        }
    }

    /// Moves the entries from `at` on to a new node.
    fn split_off(&mut self, at: usize) -> Node {
        match self {
            Node::Inner(inner) => Node::Inner(inner.split_off(at)),
            Node::Leaf(leaf) => Node::Leaf(leaf.split_off(at)),
        }
    }

    fn first_key(&self) -> Option<u64> {
        match self {
            Node::Inner(inner) => inner.keys().first().copied(),
            Node::Leaf(leaf) => leaf.keys().first().copied(),
        }
    }

    fn last_key(&self) -> Option<u64> {
        match self {
            Node::Inner(inner) => inner.keys().last().copied(),
            Node::Leaf(leaf) => leaf.keys().last().copied(),
        }
    }
}

type Inner = Entries<Option<Arc<Node>>>;

fn child(inner: &Inner, at: usize) -> &Arc<Node> {
    inner.items()[at].as_ref().expect("an entry has a child")
}

/// A child to be changed: copied first if it is shared.
fn child_mut(inner: &mut Inner, at: usize) -> &mut Node {
    let child = inner.items_mut()[at].as_mut();
    Arc::make_mut(child.expect("an entry has a child"))
}

/// Splits a child that is full. If `key` comes behind all others of the tree, the child stays full
/// and `key` gets a node of its own: keys that come in ascending order then fill their leaves.
fn split(inner: &mut Inner, at: usize, key: u64, is_last: bool) {
    let child = child_mut(inner, at);
    let is_leaf = matches!(child, Node::Leaf(_));
    let middle = match is_last && is_leaf && child.last_key() < Some(key) {
        true => CAPACITY,
        false => CAPACITY / 2,
    };
    let right = child.split_off(middle);
    let first = right.first_key().unwrap_or(key);
    inner.insert(at + 1, first, Some(Arc::new(right)));
}

/// Makes sure that a child has more than the fewest entries, with the help of a neighbour. Returns
/// where the child's entries are then.
fn strengthen(inner: &mut Inner, at: usize) -> usize {
    if child(inner, at).len() > MINIMUM {
        return at;
    }
    let left = at.saturating_sub(1);
    let mut taken = inner.items_mut()[left + 1].take();
    let right = Arc::make_mut(taken.as_mut().expect("an entry has a child"));
    let together = child(inner, left).len() + right.len();
    if together <= CAPACITY {
        match (child_mut(inner, left), right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.append(right),
            (Node::Inner(left), Node::Inner(right)) => left.append(right),
            _ => unreachable!("neighbours are of one level"),
        }
        inner.remove(left + 1);
        return left;
    }
    // The child gets the larger half.
    let half = if at == left {
        together.div_ceil(2)
    } else {
        together / 2
    };
    match (child_mut(inner, left), &mut *right) {
        (Node::Leaf(left), Node::Leaf(right)) => left.share(right, half),
        (Node::Inner(left), Node::Inner(right)) => left.share(right, half),
        _ => unreachable!("neighbours are of one level"),
    }
    let first = right.first_key().expect("it has half of the entries");
    inner.set_key(left + 1, first);
    inner.items_mut()[left + 1] = taken;
    at
}

impl Tree {
    /// The number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    pub fn get(&self, key: u64) -> Option<u64> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(inner) => node = child(inner, inner.find_at_most(key)),
                Node::Leaf(leaf) => return Some(leaf.items()[leaf.find(key).ok()?]),
            }
        }
    }

    /// Gives a key that is there another value; false if it is not there.
    pub fn update(&mut self, key: u64, value: u64) -> bool {
        let leaf = self.leaf_mut(key);
        let found = leaf.find(key);
        if let Ok(at) = found {
            leaf.items_mut()[at] = value;
        }
        found.is_ok()
    }

    /// Adds a key that is not there; false, and nothing is changed, if it is there.
    pub fn insert(&mut self, key: u64, value: u64) -> bool {
        let leaf = self.leaf_mut(key);
        let Err(at) = leaf.find(key) else {
            return false;
        };
        if leaf.len() < CAPACITY {
            leaf.insert(at, key, value);
        } else {
            self.split_and_insert(key, value);
        }
        self.len += 1;
        true
    }

    /// Removes a key; false if it is not there.
    pub fn delete(&mut self, key: u64) -> bool {
        let leaf = self.leaf_mut(key);
        let Ok(at) = leaf.find(key) else {
            return false;
        };
        if leaf.len() > MINIMUM {
            leaf.remove(at);
        } else {
            self.merge_and_delete(key);
        }
        self.len -= 1;
        true
    }

    /// The leaf where a key is, if it is there.
    fn leaf_mut(&mut self, key: u64) -> &mut Entries<u64> {
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Inner(inner) => node = child_mut(inner, inner.find_at_most(key)),
                Node::Leaf(leaf) => return leaf,
            }
        }
    }

    /// Inserts a key that is not there: full nodes on the way are split.
    fn split_and_insert(&mut self, key: u64, value: u64) {
        if self.root.len() == CAPACITY {
            let old = std::mem::replace(&mut self.root, Arc::new(Node::Leaf(Entries::new())));
            let mut root = Inner::new();
            root.insert(0, 0, Some(old));
            self.root = Arc::new(Node::Inner(root));
        }
        let (mut node, mut is_last) = (Arc::make_mut(&mut self.root), true);
        loop {
            match node {
                Node::Inner(inner) => {
                    let mut at = inner.find_at_most(key);
                    if child(inner, at).len() == CAPACITY {
                        split(inner, at, key, is_last && at + 1 == inner.len());
                        at = inner.find_at_most(key);
                    }
                    is_last &= at + 1 == inner.len();
                    node = child_mut(inner, at);
                }
                Node::Leaf(leaf) => {
                    let at = leaf.find(key).expect_err("it is not there");
                    return leaf.insert(at, key, value);
                }
            }
        }
    }

    /// Deletes a key that is there: sparse nodes on the way get entries from their neighbours.
    fn merge_and_delete(&mut self, key: u64) {
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Inner(inner) => {
                    let at = strengthen(inner, inner.find_at_most(key));
                    node = child_mut(inner, at);
                }
                Node::Leaf(leaf) => {
                    leaf.remove(leaf.find(key).expect("it is there"));
                    break;
                }
            }
        }
        let only = match &*self.root {
            Node::Inner(root) if root.len() == 1 => child(root, 0).clone(),
            _ => return,
        };
        self.root = only;
    }

    /// The entries whose keys are at least `from`, in the order of the keys.
    pub fn range(&self, from: u64) -> Range<'_> {
        let (mut path, mut node) = (Vec::new(), &*self.root);
        loop {
            match node {
                Node::Inner(inner) => {
                    let at = inner.find_at_most(from);
                    path.push(inner.items()[at + 1..].iter());
                    node = child(inner, at);
                }
                Node::Leaf(leaf) => {
                    let at = leaf.find(from).unwrap_or_else(|at| at);
                    return Range { path, leaf, at };
                }
            }
        }
    }

    /// The entries as they are now, whatever happens to the tree. Shares the nodes: this takes as
    /// long for a large tree as for a small one.
    pub(super) fn share(&self) -> Shared {
        Shared {
            nodes: vec![vec![Some(self.root.clone())].into_iter()],
            leaf: None,
            at: 0,
        }
    }
}

/// An iterator over entries of a tree, which [`Tree::range`] returns.
pub struct Range<'a> {
    /// Of each inner node on the way to the leaf, the children behind.
    path: Vec<std::slice::Iter<'a, Option<Arc<Node>>>>,
    leaf: &'a Entries<u64>,
    at: usize,
}

impl Iterator for Range<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        while self.at == self.leaf.len() {
            let Some(next) = self.path.last_mut()?.next() else {
                self.path.pop();
                continue;
            };
            match &**next.as_ref().expect("an entry has a child") {
                Node::Inner(inner) => self.path.push(inner.items().iter()),
                Node::Leaf(leaf) => (self.leaf, self.at) = (leaf, 0),
            }
        }
        let entry = (self.leaf.keys()[self.at], self.leaf.items()[self.at]);
        self.at += 1;
        Some(entry)
    }
}

/// An iterator over the entries that a tree had, which [`Tree::share`] returns. It lets go of each
/// node that it has passed, so that the tree need not copy it any more.
pub(super) struct Shared {
    /// Of each level, the nodes that are not begun.
    nodes: Vec<vec::IntoIter<Option<Arc<Node>>>>,
    leaf: Option<Arc<Node>>,
    at: usize,
}

impl Iterator for Shared {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        loop {
            if let Some(Node::Leaf(leaf)) = self.leaf.as_deref()
                && let Some(key) = leaf.keys().get(self.at)
            {
                let entry = (*key, leaf.items()[self.at]);
                self.at += 1;
                return Some(entry);
            }
            self.leaf = None;
            let Some(next) = self.nodes.last_mut()?.next() else {
                self.nodes.pop();
                continue;
            };
            match next.as_deref() {
                Some(Node::Inner(inner)) => {
                    let children = inner.items().to_vec();
                    self.nodes.push(children.into_iter());
                }
                _ => (self.leaf, self.at) = (next, 0),
            }
        }
    }
}

#[cfg(test)]
mod tests;
