//! The roles of a node with the type of their protocol.

use super::{
    AnyInstance, AnyMessage, Checkpoint, Outside, Roles, Site, Start, Watcher, configured,
};
use crate::disk::Past;
use crate::loops::RoleLoops;
use bytes::Bytes;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::Address;
use ionian_kernel::machine::Frozen;
use ionian_kernel::membership::Membership;
use ionian_kernel::node::homes::Hub;
use ionian_kernel::node::role_loop::{Input, Instances};
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Lsn;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::{Event, Recording};
use ionian_kernel::wire::{Reader, decode_all};
use std::any::Any;
use std::rc::Rc;

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
    let mut missing = site.layout.on_node(site.node);
    missing.retain(|address| !is_here(*address));
    let mut instances = Vec::new();
    for address in missing {
        (site.birth)(address, &mut |birth| {
            instances.push((address, P::instantiate(config, birth)));
        });
    }
    instances
}

impl<P: Protocol> NodeRoles<P> {
    /// See [`Simulated::create`](super::Simulated::create).
    pub(super) fn create(site: &Site<'_>) -> Box<dyn Roles> {
        let config = configured::<P>(site.layout);
        let mut node = Node::<P>::new(&config, site.keeps_records);
        for (address, instance) in missing::<P>(site, &config, |_| false) {
            node.host(address, instance);
        }
        Box::new(NodeRoles { node, loops: None })
    }

    /// Queues a message for the roles of all event loops.
    fn pass(&mut self, members: Members, message: P::Message) {
        let rest = match &mut self.loops {
            None => Some((members, message)),
            Some(loops) => loops.pass(members, message),
        };
        if let Some((members, message)) = rest {
            self.node.deliver(members, message);
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

    fn start(&mut self, start: Start, outside: &mut Outside<'_>) {
        let now = outside.now;
        if start.records {
            self.node.record(now, EVERYTHING);
        }
        let opened = Lsn(outside.disk.next().0 - 1);
        self.loops = start
            .loops
            .map(|(loops, seed)| RoleLoops::split((&mut self.node, now), loops, opened, seed));
        let (node, mut port) = self.split(outside);
        node.start(now, &mut port);
    }

    fn submit(&mut self, lane: ClientId, request: Request) {
        self.node.submit(lane, request);
    }

    fn on_durable(&mut self, known: Lsn, outside: &mut Outside<'_>) {
        let durable = outside.disk.durable();
        let (node, mut port) = self.split(outside);
        if durable > known {
            node.on_durable(&mut port);
        }
        if let Some(loops) = &mut port.loops {
            loops.report_durable(durable);
        }
    }

    fn on_snapshot(&mut self, from: Address, snapshot: (u64, bool), outside: &mut Outside<'_>) {
        let loops = self.loops.as_mut();
        match loops.and_then(|loops| Some((loops.homes.home(from)?, loops))) {
            Some((place, loops)) => loops.give(place, Input::Snapshot(from, snapshot)),
            None => {
                let (node, mut port) = self.split(outside);
                node.on_snapshot(from, snapshot, &mut port);
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

    fn deliver(&mut self, members: Members, message: Rc<dyn AnyMessage>) {
        let message: Rc<dyn Any> = message;
        let message = message.downcast().expect("a message of this protocol");
        self.pass(members, Rc::unwrap_or_clone(message));
    }

    fn receive(&mut self, members: Members, bytes: &Bytes) -> Result<(), String> {
        let message =
            decode_all(bytes).map_err(|error| format!("{bytes:02x?} does not decode: {error}"))?;
        self.pass(members, message);
        Ok(())
    }

    fn front(&self) -> Option<(Address, &dyn AnyMessage)> {
        let (to, message) = self.node.front()?;
        Some((to, message))
    }

    fn run_one(&mut self, outside: &mut Outside<'_>) {
        let now = outside.now;
        let (node, mut port) = self.split(outside);
        node.run(now, 1, &mut port);
    }

    fn fire_timers(&mut self, outside: &mut Outside<'_>) {
        let now = outside.now;
        let (node, mut port) = self.split(outside);
        node.fire_timers(now, &mut port);
    }

    fn end_burst(&mut self, outside: &mut Outside<'_>) {
        let now = outside.now;
        let (node, mut port) = self.split(outside);
        node.end_burst(now, &mut port);
    }

    fn run_loops(&mut self, most: usize, outside: &Outside<'_>, watch: &mut Watcher<'_>) {
        if let Some(loops) = &mut self.loops {
            loops.run((outside.now, outside.clock), most, watch);
        }
    }

    fn ignored(&self) -> u64 {
        self.nodes().map(Node::ignored).sum()
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

    fn instance(&self, address: Address) -> Option<&dyn AnyInstance> {
        Some(self.node.instance(address)?)
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
            sends.push((kind, members, Rc::new(message)));
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
