//! What each message costs a node, as part of what the node spends.

use ionian_costs::count::{Counter, Observer, Pass, Place};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A message, by the kind of role that handles it and its name.
pub(super) type Name = (u8, &'static str);

/// Messages of one name that a node has handled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handled {
    pub(super) count: u64,
    /// Their bytes, encoded.
    pub(super) bytes: u64,
    /// How long receiving and handling them took.
    time: Duration,
}

impl Handled {
    pub(super) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.count as f64
    }

    /// Microseconds for one of them.
    pub(super) fn mean_us(&self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.count as f64
    }
}

/// What each node has handled.
#[derive(Debug, Default)]
pub(super) struct Profile {
    nodes: Vec<BTreeMap<Name, Handled>>,
    /// What looking at the clock twice takes.
    clock: Duration,
}

impl Profile {
    pub(super) fn new(nodes: usize) -> Self {
        Profile {
            nodes: vec![BTreeMap::new(); nodes],
            clock: clock(),
        }
    }

    pub(super) fn node(&self, node: usize) -> &BTreeMap<Name, Handled> {
        &self.nodes[node]
    }
}

impl Counter for Profile {
    fn pass(&mut self, at: Place, node: &mut dyn Pass) {
        node.observe(&mut Stopwatch {
            handled: &mut self.nodes[at.node],
            clock: self.clock,
            began: Instant::now(),
        });
    }
}

/// Elapsed time, since the processor time of a thread takes a system call to read: where other
/// processes interrupt this one, a message takes longer than it should, but what all messages of a
/// node cost together does not come from here.
struct Stopwatch<'a> {
    handled: &'a mut BTreeMap<Name, Handled>,
    clock: Duration,
    began: Instant,
}

impl Stopwatch<'_> {
    fn end(&mut self, name: Name) -> &mut Handled {
        let took = self.began.elapsed().saturating_sub(self.clock);
        let handled = self.handled.entry(name).or_default();
        handled.time += took;
        handled
    }
}

impl Observer for Stopwatch<'_> {
    fn begin(&mut self) {
        self.began = Instant::now();
    }

    fn received(&mut self, kind: u8, name: &'static str) {
        self.end((kind, name));
    }

    fn handled(&mut self, kind: u8, name: &'static str, bytes: usize) {
        let handled = self.end((kind, name));
        handled.count += 1;
        handled.bytes += bytes as u64;
    }
}

/// What measuring nothing shows.
fn clock() -> Duration {
    let mut shown: Vec<Duration> = (0..1001).map(|_| Instant::now().elapsed()).collect();
    shown.sort_unstable();
    shown[shown.len() / 2]
}
