//! What each node of a deployment has handled: counted, not timed.

use crate::demand::{By, Name};
use crate::executed::executed;
use ionian_costs::count::{Counter, Observer, Pass, Place};
use std::collections::BTreeMap;

/// Messages of one name that a node has handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// How many.
    pub count: u64,
    /// Their bytes, encoded.
    pub bytes: u64,
    /// Commands that were executed because of them.
    pub executed: u64,
}

impl Handled {
    /// One more.
    pub fn add(&mut self, bytes: usize, executed: u64) {
        self.count += 1;
        self.bytes += bytes as u64;
        self.executed += executed;
    }

    /// How much one of them has of what its cost depends on.
    pub fn size(&self, by: By) -> f64 {
        match by {
            By::Bytes => self.mean_bytes(),
            By::Executed => self.mean_executed(),
        }
    }

    /// Bytes of one of them.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.count as f64
    }

    /// Commands that one of them has executed.
    pub fn mean_executed(&self) -> f64 {
        self.executed as f64 / self.count as f64
    }
}

/// What each node has handled, by its place.
#[derive(Debug, Default)]
pub struct Tally(pub Vec<BTreeMap<Name, Handled>>);

impl Counter for Tally {
    fn pass(&mut self, at: Place, node: &mut dyn Pass) {
        node.observe(&mut Watching {
            handled: &mut self.0[at.node],
            executed: executed(),
        });
    }
}

struct Watching<'a> {
    handled: &'a mut BTreeMap<Name, Handled>,
    /// Commands that were executed before.
    executed: u64,
}

impl Observer for Watching<'_> {
    fn begin(&mut self) {
        self.executed = executed();
    }

    fn received(&mut self, _: u8, _: &'static str) {}

    fn handled(&mut self, kind: u8, name: &'static str, bytes: usize) {
        let executed = executed() - self.executed;
        let handled = self.handled.entry((kind, name)).or_default();
        handled.add(bytes, executed);
    }
}
