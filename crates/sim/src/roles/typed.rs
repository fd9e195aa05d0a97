//! The roles of a node with the type of their protocol.

use super::{AnyInstance, Checkpoint, Outside, Roles, Site, Watcher, configured};
use crate::disk::Past;
use crate::loops::RoleLoops;
use crate::node::Burst;
use crate::trace::mix;
use crate::{giving_up, workers};
use bytes::Bytes;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::Address;
use ionian_kernel::machine::Frozen;
use ionian_kernel::membership::Membership;
use ionian_kernel::node::homes::Hub;
use ionian_kernel::node::role_loop::{Input, Instances};
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::Lsn;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::{Event, Recording};
use ionian_kernel::wire::{Reader, decode_all};

/// The roles of a node of the protocol `P`.
pub(super) struct NodeRoles<P: Protocol> {
    /// The roles of the main loop.
    node: Node<P>,
    /// The other event loops, if there are any.
    loops: Option<RoleLoops<P>>,
}

/// What nodes note for traces, where they do.
const EVERYTHING: Recording = Recording {
    one_in: 1,
    until: Instant(u64::MAX),
};

/// Constructs the roles that the layout places on the node and that are not there yet.
fn missing<P: Protocol>(
    site: &Site<'_>,
    config: &P::Config,
    is_here: impl Fn(Address) -> bool,
) -> Instances<P> {
    let Site {
        layout, node, boot, ..
    } = *site;
    let mut missing = layout.on_node(node);
    missing.retain(|address| !is_here(*address));
    let guard = giving_up::guard(boot.scenario, node);
    let create = |address: Address| {
        let who =
            u64::from(address.kind) << 32 | u64::from(address.index) << 24 | u64::from(site.life);
        let birth = Birth {
            address,
            node,
            seed: mix(boot.seed, who ^ u64::from(layout.epoch.0) << 40),
            keeps_records: boot.keeps_records,
            amnesiac: site.has_past && !boot.keeps_records && boot.tells_amnesia,
            machine: &|| (boot.machine)(address, site.life),
            guard: guard.as_ref(),
            workers: Some(&|count| workers::hire(mix(boot.seed, who), count)),
        };
        (address, P::instantiate(config, birth))
    };
    missing.into_iter().map(create).collect()
}

impl<P: Protocol> NodeRoles<P> {
    /// See [`Simulated::create`](super::Simulated::create).
    pub(super) fn create(site: &Site<'_>) -> Box<dyn Roles> {
        let config = configured::<P>(site.layout);
        let mut node = Node::<P>::new(&config, site.boot.keeps_records);
        for (address, instance) in missing::<P>(site, &config, |_| false) {
            node.host(address, instance);
        }
        Box::new(NodeRoles { node, loops: None })
    }

    fn run_loops(&mut self, burst: &Burst, outside: &Outside<'_>, watch: &mut Watcher<'_>) {
        if let Some(loops) = &mut self.loops {
            loops.run((outside.now, outside.clock), burst.run, watch);
        }
    }

    /// The roles of the main loop, and their world.
    fn split<'a, 'o>(
        &'a mut self,
        outside: &'a mut Outside<'o>,
    ) -> (&'a mut Node<P>, Port<'a, 'o, P>) {
        let loops = self.loops.as_mut();
        (&mut self.node, Port { outside, loops })
    }

    /// The roles of all event loops, those of the main one first.
    fn nodes(&self) -> impl Iterator<Item = &Node<P>> {
        let others = self.loops.iter().flat_map(RoleLoops::nodes);
        std::iter::once(&self.node).chain(others)
    }
}

impl<P: Protocol> Roles for NodeRoles<P> {
    fn recover(&mut self, past: Past) -> Result<(), String> {
        let node = &mut self.node;
        for (from, stamp, snapshot) in past.snapshots {
            if node.hosts(from) {
                node.restore(from, stamp, &snapshot)
                    .map_err(|error| format!("{from:?}: {error}"))?;
            }
        }
        for (from, lsn, record) in past.records {
            if node.hosts(from) {
                let record = Bytes::from(record);
                let mut reader = Reader::new(&record);
                node.recover(from, lsn, &mut reader)
                    .and_then(|()| reader.finish())
                    .map_err(|error| {
                        format!("record {} of {from:?}, {record:02x?}: {error}", lsn.0)
                    })?;
            }
        }
        Ok(())
    }

    fn start(&mut self, site: &Site<'_>, outside: &mut Outside<'_>) {
        let (boot, loops, now) = (site.boot, site.layout.options.loops, outside.now);
        if boot.scenario.records {
            self.node.record(now, EVERYTHING);
        }
        let opened = Lsn(outside.disk.next().0 - 1);
        let seed = mix(
            boot.seed,
            u64::from(site.node.0) << 32 | u64::from(site.life),
        );
        self.loops =
            (loops > 1).then(|| RoleLoops::split((&mut self.node, now), loops, opened, seed));
        let (node, mut port) = self.split(outside);
        node.start(now, &mut port);
    }

    fn submit(&mut self, lane: ClientId, request: Request) {
        self.node.submit(lane, request);
    }

    fn on_durable(
        &mut self,
        known: Lsn,
        burst: &Burst,
        outside: &mut Outside<'_>,
        watch: &mut Watcher<'_>,
    ) {
        self.run_loops(burst, outside, watch);
        let durable = outside.disk.durable();
        let (node, mut port) = self.split(outside);
        if durable > known {
            node.on_durable(&mut port);
        }
        if let Some(loops) = &mut port.loops {
            loops.report_durable(durable);
        }
    }

    fn on_snapshot(
        &mut self,
        from: Address,
        snapshot: (u64, bool),
        outside: &mut Outside<'_>,
        watch: &mut Watcher<'_>,
    ) {
        let loops = self.loops.as_mut();
        match loops.and_then(|loops| Some((loops.homes.home(from)?, loops))) {
            Some((place, loops)) => loops.give(place, Input::Snapshot(from, snapshot)),
            None => {
                let (node, mut port) = self.split(outside);
                node.on_snapshot(from, snapshot, &mut port);
                node.instance(from)
                    .into_iter()
                    .for_each(|it| watch(from, it));
            }
        }
    }

    fn drain(&mut self, drains: bool, outside: &mut Outside<'_>) {
        let now = outside.now;
        let (node, mut port) = self.split(outside);
        node.drain(now, drains, &mut port);
        if let Some(loops) = &mut self.loops {
            loops.drain(drains);
        }
    }

    fn take_in(&mut self, outside: &mut Outside<'_>) -> Option<Checkpoint> {
        let mut checkpoint = None;
        while let Some((place, burst)) = self.loops.as_mut().and_then(RoleLoops::next_burst) {
            let (node, mut port) = self.split(outside);
            let last = burst.append(&mut port);
            let homes = port.loops.as_mut().map(|loops| &mut loops.homes);
            let needed = homes.and_then(|homes| homes.appended(place, &burst, last));
            burst.pass_on(node, &mut port);
            checkpoint = needed.map(|needed| outside.written(needed)).or(checkpoint);
        }
        checkpoint
    }

    fn checkpoint(&mut self, outside: &mut Outside<'_>) -> Option<Checkpoint> {
        let loops = self.loops.as_ref();
        if loops.is_some_and(|loops| loops.homes.is_in_checkpoint()) {
            return None;
        }
        let next = outside.disk.next();
        let (node, mut port) = self.split(outside);
        let needed = node.checkpoint(next, &mut port);
        match &mut self.loops {
            None => Some(outside.written(needed)),
            Some(loops) => {
                loops.begin_checkpoint(needed);
                None
            }
        }
    }

    fn deliver(&mut self, members: Members, bytes: &Bytes) -> Result<(), String> {
        let message =
            decode_all(bytes).map_err(|error| format!("{bytes:02x?} does not decode: {error}"))?;
        let rest = match &mut self.loops {
            None => Some((members, message)),
            Some(loops) => loops.pass(members, message),
        };
        if let Some((members, message)) = rest {
            self.node.deliver(members, message);
        }
        Ok(())
    }

    fn run(
        &mut self,
        burst: &Burst,
        outside: &mut Outside<'_>,
        watch: &mut Watcher<'_>,
    ) -> Result<(), String> {
        let now = outside.now;
        let (node, mut port) = self.split(outside);
        for _ in 0..burst.run {
            let Some((taker, _)) = node.front() else {
                break;
            };
            node.run(now, 1, &mut port);
            watch(taker, node.instance(taker).expect("it was just called"));
        }
        if node.next_timer().is_some_and(|timer| timer <= now) {
            node.fire_timers(now, &mut port);
        }
        if burst.ends {
            node.end_burst(now, &mut port);
        }
        self.run_loops(burst, outside, watch);
        match self.nodes().map(Node::ignored).sum::<u64>() {
            0 => Ok(()),
            // The argument for ignoring them (`Node::run`) is that it keeps no client waiting, for
            // there are none.
            _ => Err("a message names an epoch of which its sender has not told this node".into()),
        }
    }

    fn reconfigure(&mut self, site: &Site<'_>, outside: &mut Outside<'_>) {
        let (config, now) = (configured::<P>(site.layout), outside.now);
        let change = (site.layout, &config, site.node);
        let loops = self.loops.as_ref();
        let is_here = |address| {
            let home = loops.and_then(|loops| loops.homes.home(address));
            self.node.hosts(address) || home.is_some()
        };
        let mut new = missing::<P>(site, &config, is_here);
        let (node, mut port) = self.split(outside);
        node.reconfigure(now, change, &mut port);
        if let Some(loops) = &mut port.loops {
            new = loops.reconfigure(change, new);
        }
        for (address, instance) in new {
            node.host(address, instance);
        }
        node.start(now, &mut port);
    }

    fn is_busy(&self) -> bool {
        self.node.queued() > 0 || self.loops.as_ref().is_some_and(RoleLoops::busy)
    }

    fn next_timer(&self) -> Option<Instant> {
        self.nodes().filter_map(Node::next_timer).min()
    }

    fn instances(&self) -> Vec<(Address, &dyn AnyInstance)> {
        let mut all: Vec<(Address, &dyn AnyInstance)> = Vec::new();
        for node in self.nodes() {
            all.extend(node.instances().map(|(address, it)| (address, it as _)));
        }
        if self.loops.is_some() {
            all.sort_by_key(|(address, _)| *address);
        }
        all
    }

    fn invariants(&self) {
        self.nodes().for_each(Node::invariants);
    }

    fn noted(&self) -> Box<dyn Iterator<Item = &Event> + '_> {
        Box::new(self.nodes().flat_map(|node| node.events().0))
    }
}

/// The world of the roles of the main loop.
struct Port<'a, 'o, P: Protocol> {
    outside: &'a mut Outside<'o>,
    loops: Option<&'a mut RoleLoops<P>>,
}

impl<P: Protocol> World<P> for Port<'_, '_, P> {
    fn send(&mut self, kind: u8, members: Members, message: P::Message) {
        let rest = match &mut self.loops {
            None => Some((members, message)),
            Some(loops) => loops.pass(members, message),
        };
        if let Some((members, message)) = rest {
            let sends = &mut self.outside.effects.sends;
            sends.push((kind, members, Box::new(message)));
        }
    }

    fn append(&mut self, from: Address, record: &[u8], _: bool) -> Lsn {
        self.outside.append(from, record)
    }

    fn durable(&self) -> Lsn {
        self.outside.disk.durable()
    }

    fn clock(&self) -> Instant {
        self.outside.clock
    }

    fn store_snapshot(&mut self, from: Address, stamp: u64, frozen: Box<dyn Frozen>) {
        self.outside.store_snapshot(from, stamp, frozen);
    }

    fn announce(&mut self, membership: Membership) {
        self.outside.effects.announced = Some(membership);
    }

    fn reply(&mut self, lane: ClientId, reply: Reply) {
        self.outside.effects.replies.push((lane, reply));
    }

    fn reached(&mut self, branch: &'static str) {
        self.outside.effects.reached.push(branch);
    }
}
