//! The entries of a directory. Names are bytes, compared as bytes.

use crate::attr::Kind;
use crate::errno::Errno;
use std::collections::BTreeMap;

/// The most bytes of a name.
pub(crate) const MAX_NAME: usize = 255;

/// Cookies of entries are larger; `.` and `..` have smaller ones, which the front gives them.
pub(crate) const FIRST_COOKIE: u64 = 3;

/// The entries of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    /// The directory that it is in; the root is in itself.
    pub(super) parent: u64,
    /// The cookie of the next entry. None is used twice, so a list that is read in several pieces
    /// has every entry that was there all the time exactly once, whatever happens in between.
    pub(super) next_cookie: u64,
    entries: BTreeMap<Box<[u8]>, Entry>,
    order: BTreeMap<u64, Box<[u8]>>,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) ino: u64,
    pub(super) kind: Kind,
    pub(super) cookie: u64,
}

/// Checks a name of a new entry.
pub(super) fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.len() > MAX_NAME {
        return Err(Errno::ENAMETOOLONG);
    }
    let is_special = matches!(name, b"" | b"." | b"..");
    if is_special || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// The bytes of memory that an entry is counted as.
pub(super) fn cost_of(name: &[u8]) -> u64 {
    // It is in two trees.
    128 + 2 * name.len() as u64
}

impl Directory {
    /// An empty one.
    pub(super) fn new(parent: u64) -> Directory {
        Directory {
            parent,
            next_cookie: FIRST_COOKIE,
            entries: BTreeMap::new(),
            order: BTreeMap::new(),
        }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Entry> {
        self.entries.get(name).copied()
    }

    /// Adds an entry, which is not there.
    pub(super) fn insert(&mut self, name: &[u8], ino: u64, kind: Kind) {
        let cookie = self.next_cookie;
        self.restore(name, Entry { ino, kind, cookie });
    }

    /// Adds an entry with its cookie, which must not be below the next one.
    pub(super) fn restore(&mut self, name: &[u8], entry: Entry) {
        self.next_cookie = entry.cookie + 1;
        self.order.insert(entry.cookie, name.into());
        let before = self.entries.insert(name.into(), entry);
        assert!(before.is_none(), "a name is there once");
    }

    /// Removes an entry, which is there.
    pub(super) fn remove(&mut self, name: &[u8]) {
        let entry = self.entries.remove(name).expect("the entry is there");
        self.order.remove(&entry.cookie);
    }

    /// Lets a name, which is there, stand for something else, at the same place of the list.
    pub(super) fn replace(&mut self, name: &[u8], ino: u64, kind: Kind) {
        let entry = self.entries.get_mut(name).expect("the entry is there");
        (entry.ino, entry.kind) = (ino, kind);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries behind this cookie, in the order in which they were made.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (&[u8], Entry)> {
        let names = self.order.range(cookie.saturating_add(1)..);
        names.map(|(_, name)| (&**name, self.entries[name]))
    }

    /// The bytes of memory that its entries are counted as.
    pub(super) fn cost(&self) -> u64 {
        self.entries.keys().map(|name| cost_of(name)).sum()
    }
}
