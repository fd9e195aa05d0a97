//! What each message costs a node, as part of what the node spends.

use super::measure::processor_time;
use ionian_costs::count::{Counter, Observer, Pass, Place};
use ionian_planner::demand::Name;
use ionian_planner::executed::executed;
use ionian_planner::handled;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Messages of one name that a node has handled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handled {
    pub(super) counted: handled::Handled,
    /// How long receiving and handling them took.
    time: Duration,
}

impl Handled {
    /// Microseconds for one of them.
    pub(super) fn mean_us(&self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.counted.count as f64
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
        let mut stopwatch = Stopwatch {
            handled: &mut self.nodes[at.node],
            clock: self.clock,
            began: Instant::now(),
            executed: executed(),
            longest: None,
        };
        let (began, worked) = (Instant::now(), processor_time());
        node.observe(&mut stopwatch);
        let worked = worked.and_then(|before| Ok(processor_time()? - before));
        // A machine without this clock says nothing about interruptions.
        if let Ok(worked) = worked {
            stopwatch.take_off(began.elapsed().saturating_sub(worked));
        }
    }
}

/// Elapsed time, since the processor time of a thread takes a system call to read. If other
/// processes interrupt this one, a message takes longer than it should: that time is taken off the
/// message that took the longest. Without that, a message that comes rarely here and often in a
/// simulation would cost the interruption each time.
struct Stopwatch<'a> {
    handled: &'a mut BTreeMap<Name, Handled>,
    clock: Duration,
    began: Instant,
    /// Commands that were executed before.
    executed: u64,
    /// What took the longest.
    longest: Option<(Duration, Name)>,
}

impl Stopwatch<'_> {
    fn end(&mut self, name: Name) -> &mut Handled {
        let took = self.began.elapsed().saturating_sub(self.clock);
        let handled = self.handled.entry(name).or_default();
        handled.time += took;
        if self.longest.is_none_or(|(longest, _)| longest < took) {
            self.longest = Some((took, name));
        }
        handled
    }

    /// For this long the processor did something else.
    fn take_off(&mut self, lost: Duration) {
        if let Some((took, name)) = self.longest
            && let Some(handled) = self.handled.get_mut(&name)
        {
            handled.time -= lost.min(took);
        }
    }
}

impl Observer for Stopwatch<'_> {
    fn begin(&mut self) {
        self.executed = executed();
        self.began = Instant::now();
    }

    fn received(&mut self, kind: u8, name: &'static str) {
        self.end((kind, name));
    }

    fn handled(&mut self, kind: u8, name: &'static str, bytes: usize) {
        let executed = executed() - self.executed;
        let handled = self.end((kind, name));
        handled.counted.add(bytes, executed);
    }
}

/// What measuring nothing shows.
fn clock() -> Duration {
    let mut shown: Vec<Duration> = (0..1001).map(|_| Instant::now().elapsed()).collect();
    shown.sort_unstable();
    shown[shown.len() / 2]
}
