//! The files that a mount holds: those that a program has open, and for a moment those that none
//! has open any more, because it may be opened again, and because releases are sent together.
//!
//! A file is *busy* while a command that holds it, or releases it, is under way: the next one
//! waits, so that the cluster executes them in the order in which they are meant.

use crate::attr::Attr;
use crate::wire::command::MAX_RELEASED;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a file is held after the last program has closed it.
const LINGER: Duration = Duration::from_secs(1);

/// How many files are held that no program has open. Beyond it, those closed first are released.
const MOST_IDLE: usize = 256;

#[derive(Default)]
pub(super) struct Holds {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    held: BTreeMap<u64, Held>,
    busy: BTreeSet<u64>,
    /// How many of those that are held no program has open.
    idle: usize,
}

struct Held {
    /// How many descriptors are open.
    opens: usize,
    /// When the last one was closed.
    closed: Instant,
    /// What is reserved for the file, as far as known.
    reserved: u64,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder of this lock panics")
    }

    /// Holds a file for one more descriptor; `open` is called if the cluster must be asked.
    pub(super) fn acquire<E>(
        &self,
        ino: u64,
        open: impl FnOnce() -> Result<Attr, E>,
    ) -> Result<(), E> {
        let table = self.lock();
        let waited = self
            .changed
            .wait_while(table, |table| table.busy.contains(&ino));
        let mut table = waited.expect("no holder of this lock panics");
        if let Some(held) = table.held.get_mut(&ino) {
            held.opens += 1;
            table.idle -= usize::from(table.held[&ino].opens == 1);
            return Ok(());
        }
        table.busy.insert(ino);
        drop(table);
        let opened = open();
        let mut table = self.lock();
        table.busy.remove(&ino);
        self.changed.notify_all();
        table.add(&opened?);
        Ok(())
    }

    /// A new file is held, for one descriptor.
    pub(super) fn created(&self, attr: &Attr) {
        self.lock().add(attr);
    }

    /// A descriptor is closed.
    pub(super) fn close(&self, ino: u64) {
        let mut table = self.lock();
        // A hold that was lost with its lease is not there.
        if let Some(held) = table.held.get_mut(&ino) {
            held.opens -= 1;
            held.closed = Instant::now();
            table.idle += usize::from(table.held[&ino].opens == 0);
        }
    }

    /// The attributes of a file have arrived.
    pub(super) fn learn(&self, attr: &Attr) {
        if let Some(held) = self.lock().held.get_mut(&attr.ino) {
            held.reserved = attr.reserved;
        }
    }

    /// What is reserved for a file, as far as known.
    pub(super) fn reserved(&self, ino: u64) -> u64 {
        self.lock().held.get(&ino).map_or(0, |held| held.reserved)
    }

    /// Takes out some files that are to be released now: [`released`](Self::released) must follow.
    pub(super) fn take_idle(&self) -> Vec<u64> {
        let mut table = self.lock();
        let mut idle: Vec<(Instant, u64)> = Vec::new();
        let now = Instant::now();
        let is_full = table.idle > MOST_IDLE;
        for (ino, held) in table.held.iter().filter(|(_, held)| held.opens == 0) {
            if is_full || now.duration_since(held.closed) >= LINGER {
                idle.push((held.closed, *ino));
            }
        }
        idle.sort_unstable();
        idle.truncate(MAX_RELEASED);
        let taken: Vec<u64> = idle.into_iter().map(|(_, ino)| ino).collect();
        for ino in &taken {
            table.held.remove(ino);
            table.busy.insert(*ino);
        }
        table.idle -= taken.len();
        taken
    }

    /// The cluster has released them, or will when the lease of the mount ends.
    pub(super) fn released(&self, taken: &[u64]) {
        let mut table = self.lock();
        for ino in taken {
            table.busy.remove(ino);
        }
        self.changed.notify_all();
    }

    /// All files that are held.
    pub(super) fn all(&self) -> Vec<u64> {
        self.lock().held.keys().copied().collect()
    }

    /// Whether more than enough files are held that no program has open.
    pub(super) fn is_full(&self) -> bool {
        self.lock().idle > MOST_IDLE
    }
}

impl Table {
    /// A file is held for one more descriptor.
    fn add(&mut self, attr: &Attr) {
        let held = self.held.entry(attr.ino).or_insert(Held {
            opens: 0,
            closed: Instant::now(),
            reserved: attr.reserved,
        });
        held.opens += 1;
    }
}
