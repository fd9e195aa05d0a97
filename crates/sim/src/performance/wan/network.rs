//! Links with queues. A message goes through one pipe (of a clique) or two (up to the centre of a
//! star, and down).

use super::super::fleet::Parcel;
use super::super::server::Nanos;
use super::{Change, Link, Network, Topology, Variation};
use crate::roles::AnyMessage;
use ionian_kernel::id::Members;
use ionian_kernel::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Length and instances before each message; see `frame.rs` of the runtime.
const FRAME_BYTES: usize = 16;
/// Of Ethernet, IP and TCP, with the time stamps that are usual.
const HEADER_BYTES: f64 = 66.0;
/// What of a stream fits into one packet beside them.
const SEGMENT_BYTES: f64 = 1448.0;

/// A message under way.
pub(super) struct Cargo {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) members: Members,
    pub(super) message: Rc<dyn AnyMessage>,
    /// Of the message.
    message_bytes: usize,
    /// On the wire.
    bytes: f64,
}

/// The messages of one name.
#[derive(Clone, Copy, Default)]
pub(super) struct Named {
    pub(super) count: u64,
    /// The bytes of the largest.
    pub(super) largest: usize,
}

/// What happens to a message next.
pub(super) enum Step {
    /// The pipe has let its first through.
    Through(usize),
    /// It is at the centre.
    AtCentre(Cargo),
    /// It is there.
    Arrive(Cargo),
}

struct Pipe {
    delay: f64,
    bytes_per_second: f64,
    /// The first is on its way through.
    queue: VecDeque<Cargo>,
    /// Bytes in the queue.
    waiting: f64,
}

/// All links.
pub(super) struct Lines {
    nodes: usize,
    star: bool,
    /// Of a clique by sender and receiver, of a star all up and then all down.
    pipes: Vec<Pipe>,
    variation: Variation,
    random: Random,
    /// When the last message arrives, by sender and receiver.
    last: Vec<Nanos>,
    /// Bytes on the wire since the measurement began, by sender and receiver.
    pub(super) carried: Vec<f64>,
    /// Messages since then, by sender and receiver, then by the name of the message.
    pub(super) messages: Vec<BTreeMap<&'static str, Named>>,
    dead: Vec<bool>,
    /// What a cut holds back, by sender and receiver; `None` where there is no cut.
    held: Vec<Option<VecDeque<Cargo>>>,
}

impl Lines {
    /// Between this number of nodes.
    pub(super) fn new(nodes: usize, network: &Network) -> Self {
        let links: Vec<Link> = match &network.topology {
            Topology::Clique(links) => {
                assert!(
                    links.len() == nodes && links.iter().all(|to| to.len() == nodes),
                    "a link for each pair"
                );
                links.concat()
            }
            Topology::Star(access) => {
                assert!(access.len() == nodes, "a line for each node");
                access
                    .iter()
                    .map(|access| access.up)
                    .chain(access.iter().map(|access| access.down))
                    .collect()
            }
        };
        let pipe = |link: &Link| Pipe {
            delay: link.delay_us * 1000.0,
            bytes_per_second: link.bytes_per_second,
            queue: VecDeque::new(),
            waiting: 0.0,
        };
        Lines {
            nodes,
            star: matches!(network.topology, Topology::Star(_)),
            pipes: links.iter().map(pipe).collect(),
            variation: network.variation,
            random: Random::new(3),
            last: vec![0; nodes * nodes],
            carried: vec![0.0; nodes * nodes],
            messages: vec![BTreeMap::new(); nodes * nodes],
            dead: vec![false; nodes],
            held: (0..nodes * nodes).map(|_| None).collect(),
        }
    }

    /// A node sends something to another, now.
    pub(super) fn send(
        &mut self,
        now: Nanos,
        (from, to): (usize, usize),
        messages: Parcel,
        plan: &mut impl FnMut(Nanos, Step),
    ) {
        let pipe = if self.star {
            from
        } else {
            from * self.nodes + to
        };
        let mut header = HEADER_BYTES;
        for (members, message) in messages {
            let message_bytes = message.encode().len();
            // What is sent together shares packets.
            let payload = (FRAME_BYTES + message_bytes) as f64;
            let bytes =
                payload * (1.0 + HEADER_BYTES / SEGMENT_BYTES) + std::mem::take(&mut header);
            self.enter(
                pipe,
                Cargo {
                    from,
                    to,
                    members,
                    message,
                    message_bytes,
                    bytes,
                },
                now,
                plan,
            );
        }
    }

    /// Something that was planned has happened: what has arrived, if that is it.
    pub(super) fn step(
        &mut self,
        now: Nanos,
        step: Step,
        plan: &mut impl FnMut(Nanos, Step),
    ) -> Option<Cargo> {
        match step {
            Step::Through(pipe) => self.through(pipe, now, plan),
            Step::AtCentre(cargo) => self.enter(self.nodes + cargo.to, cargo, now, plan),
            Step::Arrive(cargo) => return self.arrive(cargo),
        }
        None
    }

    /// A message is at the end of its link: what the node there gets of it now.
    fn arrive(&mut self, cargo: Cargo) -> Option<Cargo> {
        if self.dead[cargo.to] {
            return None;
        }
        match &mut self.held[cargo.from * self.nodes + cargo.to] {
            Some(held) => {
                held.push_back(cargo);
                None
            }
            None => Some(cargo),
        }
    }

    fn enter(&mut self, pipe: usize, cargo: Cargo, now: Nanos, plan: &mut impl FnMut(Nanos, Step)) {
        let Pipe { queue, waiting, .. } = &mut self.pipes[pipe];
        *waiting += cargo.bytes;
        queue.push_back(cargo);
        if queue.len() == 1 {
            self.next(pipe, now, plan);
        }
    }

    /// The first of a queue goes in.
    fn next(&mut self, pipe: usize, now: Nanos, plan: &mut impl FnMut(Nanos, Step)) {
        let dead = &self.dead;
        let Pipe {
            queue,
            bytes_per_second,
            waiting,
            ..
        } = &mut self.pipes[pipe];
        // A connection with a dead node is broken: what waited on it goes nowhere.
        while let Some(lost) = queue
            .front()
            .filter(|cargo| dead[cargo.from] || dead[cargo.to])
        {
            *waiting -= lost.bytes;
            queue.pop_front();
        }
        if let Some(cargo) = queue.front() {
            let takes = (cargo.bytes / *bytes_per_second * 1e9) as Nanos;
            plan(now + takes, Step::Through(pipe));
        }
    }

    fn through(&mut self, pipe: usize, now: Nanos, plan: &mut impl FnMut(Nanos, Step)) {
        let cargo = self.pipes[pipe]
            .queue
            .pop_front()
            .expect("it was on its way through");
        self.pipes[pipe].waiting -= cargo.bytes;
        let arrives = now + self.pipes[pipe].delay as Nanos;
        let up = self.star && pipe < self.nodes;
        let pair = cargo.from * self.nodes + cargo.to;
        if up || !self.star {
            self.carried[pair] += cargo.bytes;
            let named = self.messages[pair].entry(cargo.message.name()).or_default();
            named.count += 1;
            named.largest = named.largest.max(cargo.message_bytes);
        }
        if up {
            plan(arrives, Step::AtCentre(cargo));
        } else {
            let longer = self.longer();
            let last = &mut self.last[pair];
            *last = (*last).max(arrives + longer);
            plan(*last, Step::Arrive(cargo));
        }
        self.next(pipe, now, plan);
    }

    /// By how much a message takes longer than the delay.
    fn longer(&mut self) -> Nanos {
        let mut part = || (self.random.any() >> 11) as f64 / (1u64 << 53) as f64;
        match self.variation {
            Variation::None => 0,
            Variation::Uniform { longest_us } => (longest_us * part() * 1000.0) as Nanos,
            // The square root is exact on every machine, as other powers are not.
            Variation::Pareto {
                scale_us,
                longest_us,
            } => (longest_us.min(scale_us * (1.0 / (1.0 - part()).sqrt() - 1.0)) * 1000.0) as Nanos,
        }
    }

    /// Whose pipe it is, if it is one that a node sends into.
    pub(super) fn sender(&self, pipe: usize) -> Option<usize> {
        match self.star {
            true => (pipe < self.nodes).then_some(pipe),
            false => Some(pipe / self.nodes),
        }
    }

    /// The most bytes that wait for one of the links of a node.
    pub(super) fn waiting(&self, node: usize) -> f64 {
        let pipes = if self.star {
            node..node + 1
        } else {
            node * self.nodes..(node + 1) * self.nodes
        };
        self.pipes[pipes]
            .iter()
            .map(|pipe| pipe.waiting)
            .fold(0.0, f64::max)
    }

    /// What concerns the network of a change.
    pub(super) fn change(
        &mut self,
        nodes: impl Fn(ionian_kernel::layout::NodeId) -> usize,
        now: Nanos,
        change: Change,
        plan: &mut impl FnMut(Nanos, Step),
    ) {
        match change {
            // What is in the pipe goes through as it began.
            Change::Bandwidth {
                from,
                to,
                bytes_per_second,
            } => {
                assert!(!self.star, "the links of a star have no two ends");
                self.pipes[from * self.nodes + to].bytes_per_second = bytes_per_second;
            }
            Change::Death { node } => {
                let node = nodes(node);
                self.dead[node] = true;
                for held in self.held.iter_mut().flatten() {
                    held.retain(|cargo| cargo.from != node && cargo.to != node);
                }
            }
            Change::Return { node } => self.dead[nodes(node)] = false,
            Change::Cut { from, to } => {
                let held = &mut self.held[nodes(from) * self.nodes + nodes(to)];
                held.get_or_insert_default();
            }
            Change::Splice { from, to } => {
                let held = self.held[nodes(from) * self.nodes + nodes(to)].take();
                for cargo in held.into_iter().flatten() {
                    plan(now, Step::Arrive(cargo));
                }
            }
            Change::Stall { .. } => {}
        }
    }

    /// The measurement begins: what was carried before does not count.
    pub(super) fn begin(&mut self) {
        self.carried.fill(0.0);
        self.messages.fill(BTreeMap::new());
    }
}
