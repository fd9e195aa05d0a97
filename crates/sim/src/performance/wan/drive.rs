//! The event heap between nodes, network and clients.

use super::super::fleet::{Done, Fleet, Parcel};
use super::super::server::{Nanos, Terms};
use super::super::{Costs, Service};
use super::network::{Lines, Named, Step};
use super::sources::Sources;
use super::{Change, Experiment, Flow, Observed};
use crate::event::Heap;
use crate::roles::Simulated;
use ionian_kernel::layout::{LayoutError, NodeId};
use std::collections::VecDeque;

enum Event {
    /// A node puts something on the network.
    Leave {
        from: usize,
        to: usize,
        messages: Parcel,
    },
    /// Something moves in the network.
    Network(Step),
    /// A node has something to do.
    Look(usize),
    /// A client asks.
    Ask(usize),
    /// The change of this place happens.
    Change(usize),
}

struct Run<'a> {
    experiment: &'a Experiment,
    costs: &'a dyn Costs,
    service: &'a dyn Service,
    nodes: Vec<NodeId>,
    fleet: Fleet,
    lines: Lines,
    sources: Sources,
    dead: Vec<bool>,
    /// Clients that wait until there is room, by node.
    waiting: Vec<VecDeque<usize>>,
    heap: Heap<Event>,
}

/// Carries out an experiment.
///
/// # Errors
/// When the layout is no deployment of the protocol.
///
/// # Panics
/// When the network is not that of the layout, or more clients wait for answers than their lane
/// carries.
pub fn observe(
    protocol: Simulated,
    experiment: &Experiment,
    costs: &dyn Costs,
    service: &dyn Service,
) -> Result<Observed, LayoutError> {
    let Experiment {
        begins_us, ends_us, ..
    } = *experiment;
    assert!(begins_us < ends_us, "an experiment ends after it begins");
    let mut changes = experiment.changes.iter();
    let has_disks = changes.any(|(_, change)| matches!(change, Change::Return { .. }));
    let fleet = Fleet::new(protocol, &experiment.layout, &[], service, has_disks)?;
    let mut run = Run::new(fleet, experiment, costs, service);
    run.start();
    run.until(begins_us * 1000);
    run.fleet.begin();
    run.lines.begin();
    run.sources.begin();
    run.until(ends_us * 1000);
    let elapsed_us = ends_us - begins_us;
    let (nodes, carried) = (&run.nodes, &run.lines.carried);
    let pairs = || {
        let to_all = |from: &NodeId| nodes.iter().map(|to| (*from, *to)).collect::<Vec<_>>();
        nodes.iter().flat_map(to_all)
    };
    let flows = pairs().zip(&run.lines.messages).flat_map(|(pair, named)| {
        let flow = move |(name, named): (&&'static str, &Named)| Flow {
            from: pair.0,
            to: pair.1,
            name,
            messages: named.count,
            largest: named.largest,
        };
        named.iter().map(flow)
    });
    let rates = pairs()
        .zip(carried)
        .map(|((from, to), bytes)| (from, to, bytes * 1e6 / elapsed_us as f64));
    Ok(Observed {
        elapsed_us,
        bytes_per_second: rates.filter(|(from, to, _)| from != to).collect(),
        utilization: run.fleet.utilization(elapsed_us as f64 * 1000.0),
        leads: run.fleet.leads(),
        flows: flows.collect(),
        sources: run.sources.into_series(),
    })
}

impl<'a> Run<'a> {
    fn new(
        fleet: Fleet,
        experiment: &'a Experiment,
        costs: &'a dyn Costs,
        service: &'a dyn Service,
    ) -> Self {
        let nodes: Vec<NodeId> = experiment.layout.nodes().into_iter().collect();
        let lines = Lines::new(nodes.len(), &experiment.network);
        let (sources, dead) = (Sources::new(&experiment.sources), vec![false; nodes.len()]);
        let (waiting, heap) = (vec![VecDeque::new(); nodes.len()], Heap::new());
        Run {
            experiment,
            costs,
            service,
            nodes,
            fleet,
            lines,
            sources,
            dead,
            waiting,
            heap,
        }
    }

    fn start(&mut self) {
        for (place, (at_us, _)) in self.experiment.changes.iter().enumerate() {
            self.heap.plan(at_us * 1000, Event::Change(place));
        }
        for (client, at) in self.sources.firsts().into_iter().enumerate() {
            self.heap.plan(at, Event::Ask(client));
        }
        for node in 0..self.fleet.len() {
            let done = self.fleet.start(node);
            self.carry_out(node, done);
            self.plan(node);
        }
    }

    /// Runs until nothing is left that happens before this.
    fn until(&mut self, end: Nanos) {
        while let Some(event) = self.heap.pop_before(end) {
            let now = self.heap.now();
            match event {
                Event::Leave { from, to, messages } if !self.dead[from] && !self.dead[to] => {
                    self.lines.send(now, (from, to), messages, &mut |at, step| {
                        self.heap.plan(at, Event::Network(step))
                    });
                }
                Event::Network(step) => {
                    let sender = if let Step::Through(pipe) = step {
                        self.lines.sender(pipe)
                    } else {
                        None
                    };
                    let plan = &mut |at, step| self.heap.plan(at, Event::Network(step));
                    if let Some(cargo) = self.lines.step(now, step, plan) {
                        self.fleet
                            .arrive(cargo.to, vec![(cargo.members, cargo.message)]);
                        self.plan(cargo.to);
                    }
                    if let Some(client) = sender.and_then(|node| self.waiting[node].pop_front()) {
                        self.ask(client);
                    }
                }
                Event::Look(node) if self.fleet.is_due(node, now) && !self.dead[node] => {
                    self.work(node)
                }
                Event::Ask(client) => self.ask(client),
                Event::Change(place) => self.change(self.experiment.changes[place].1),
                Event::Leave { .. } | Event::Look(_) => {}
            }
        }
    }

    /// Has a node look for work as soon as there is some.
    fn plan(&mut self, node: usize) {
        if let Some(at) = self.fleet.plan(node, self.heap.now()) {
            self.heap.plan(at, Event::Look(node));
        }
    }

    fn work(&mut self, node: usize) {
        let Experiment {
            wake_us, burst_us, ..
        } = *self.experiment;
        let done = self.fleet.work(
            node,
            self.heap.now(),
            self.costs,
            Terms { wake_us, burst_us },
        );
        self.carry_out(node, done);
        self.plan(node);
    }

    fn carry_out(
        &mut self,
        from: usize,
        Done {
            at,
            parcels,
            replies,
        }: Done,
    ) {
        for (to, messages) in parcels {
            self.heap.plan(at, Event::Leave { from, to, messages });
        }
        for (_, reply) in replies {
            if let Some(client) = self.sources.on_reply(at, &reply) {
                self.heap.plan(at, Event::Ask(client));
            }
        }
    }

    fn ask(&mut self, client: usize) {
        let lane = self.sources.lane(client);
        let node = self.fleet.place_of(lane);
        if self.dead[node] {
            return;
        }
        if self.lines.waiting(node) > self.experiment.room_bytes {
            return self.waiting[node].push_back(client);
        }
        if let Some((request, next)) = self.sources.ask(self.heap.now(), client, self.service) {
            self.fleet.submit(lane, request, self.costs.serving());
            self.plan(node);
            if let Some(at) = next {
                self.heap.plan(at, Event::Ask(client));
            }
        }
    }

    fn change(&mut self, change: Change) {
        let place = |node| {
            self.nodes
                .iter()
                .position(|known| *known == node)
                .expect("a node of the layout")
        };
        let now = self.heap.now();
        self.lines.change(place, now, change, &mut |at, step| {
            self.heap.plan(at, Event::Network(step))
        });
        match change {
            Change::Death { node } => self.dead[place(node)] = true,
            Change::Return { node } => {
                let (place, now) = (place(node), self.heap.now());
                self.dead[place] = false;
                let done = self.fleet.restart(place, now, self.service);
                self.carry_out(place, done);
                self.plan(place);
            }
            Change::Stall { node, us } => {
                let place = place(node);
                self.fleet.stall(place, self.heap.now() + us * 1000);
                self.plan(place);
            }
            Change::Bandwidth { .. } | Change::Cut { .. } | Change::Splice { .. } => {}
        }
    }
}
