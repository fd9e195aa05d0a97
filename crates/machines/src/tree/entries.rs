//! What a leaf and an inner node have in common: sorted keys, each with an item.

/// The most entries of a node. Keys and items of a node are a kilobyte together: with ten million
/// keys a tree has four or five levels. Fewer entries mean more levels, each with a miss of the
/// processor's cache; more mean that an insert moves more. In tests of this module small trees are
/// deep.
pub(super) const CAPACITY: usize = if cfg!(test) { 6 } else { 64 };

/// The fewest entries of a node, except for the root and for the last leaf.
pub(super) const MINIMUM: usize = CAPACITY / 2;

/// Keys that fit into a line of the cache.
const LINE: usize = 8;

/// Up to [`CAPACITY`] keys in ascending order, and their items.
#[derive(Clone)]
pub(super) struct Entries<T> {
    len: usize,
    keys: [u64; CAPACITY],
    items: [T; CAPACITY],
}

impl<T: Default> Entries<T> {
    pub(super) fn new() -> Self {
        Entries {
            len: 0,
            keys: [0; CAPACITY],
            items: std::array::from_fn(|_| T::default()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn keys(&self) -> &[u64] {
        &self.keys[..self.len]
    }

    pub(super) fn items(&self) -> &[T] {
        &self.items[..self.len]
    }

    pub(super) fn items_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.len]
    }

    pub(super) fn set_key(&mut self, at: usize, key: u64) {
        self.keys[at] = key;
    }

    /// The number of keys for which `is_before` holds, which are the first ones. Looks at the last
    /// key of each line first: none of these loads waits for another, as they would in a binary
    /// search.
    #[inline]
    fn count(&self, is_before: impl Fn(u64) -> bool) -> usize {
        let keys = self.keys();
        let lines = keys.chunks_exact(LINE);
        let begun = LINE * lines.filter(|line| is_before(line[LINE - 1])).count();
        let line = keys[begun..].iter().take(LINE);
        begun + line.filter(|key| is_before(**key)).count()
    }

    /// Where `key` is, or where it would have to be inserted.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Result<usize, usize> {
        let at = self.count(|other| other < key);
        match self.keys().get(at) {
            Some(found) if *found == key => Ok(at),
            _ => Err(at),
        }
    }

    /// The last entry whose key is at most `key`, or the first one.
    #[inline]
    pub(super) fn find_at_most(&self, key: u64) -> usize {
        self.count(|other| other <= key).saturating_sub(1)
    }

    pub(super) fn insert(&mut self, at: usize, key: u64, item: T) {
        self.keys.copy_within(at..self.len, at + 1);
        self.items[at..=self.len].rotate_right(1);
        self.keys[at] = key;
        self.items[at] = item;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) -> T {
        self.keys.copy_within(at + 1..self.len, at);
        self.items[at..self.len].rotate_left(1);
        self.len -= 1;
        std::mem::take(&mut self.items[self.len])
    }

    /// Moves the entries from `at` on to a new node.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut right = Entries::new();
        right.len = self.len - at;
        right.keys[..right.len].copy_from_slice(&self.keys[at..self.len]);
        right.items[..right.len].swap_with_slice(&mut self.items[at..self.len]);
        self.len = at;
        right
    }

    /// Moves all entries of the node on the right to the end of this one.
    pub(super) fn append(&mut self, right: &mut Self) {
        let len = self.len + right.len;
        self.keys[self.len..len].copy_from_slice(right.keys());
        self.items[self.len..len].swap_with_slice(right.items_mut());
        (self.len, right.len) = (len, 0);
    }

    /// Moves entries between two neighbours, so that the left one has `len`.
    pub(super) fn share(&mut self, right: &mut Self, len: usize) {
        let mut moved = if len < self.len {
            self.split_off(len)
        } else {
            let rest = right.split_off(len - self.len);
            self.append(right);
            rest
        };
        moved.append(right);
        *right = moved;
    }
}
