//! Oracles: observers of all nodes, which detect errors that no single role could detect.

use crate::node::SimNode;
use crate::roles::{AnyInstance, configured};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::protocol::{Invariants, Protocol};
use ionian_kernel::trace::path::Seen;
use std::any::Any;
use std::collections::BTreeMap;

/// Observes one run of a protocol. Each run has its own.
pub trait Oracle {
    /// Called after every event in which roles of the node [`View::changed`] were called.
    ///
    /// # Errors
    /// Describes what is wrong; the run fails.
    fn after_event(&mut self, view: &View<'_>) -> Result<(), String>;

    /// Called after each message that a role receives. In one event a role may receive several, and
    /// the next one may undo what this one did.
    ///
    /// # Errors
    /// Describes what is wrong; the run fails.
    fn after_message(
        &mut self,
        address: Address,
        instance: &dyn AnyInstance,
    ) -> Result<(), String> {
        let _ = (address, instance);
        Ok(())
    }

    /// A message of this [name](ionian_kernel::protocol::Message::name) leaves a node, after its
    /// fence. Messages within a node are not reported.
    fn on_send(&mut self, from: NodeId, message: &'static str) {
        let _ = (from, message);
    }

    /// A node crashed: its roles have lost their memory.
    fn on_crash(&mut self, node: NodeId) {
        let _ = node;
    }

    /// A node has learned this layout.
    fn on_reconfigure(&mut self, layout: &Layout) {
        let _ = layout;
    }

    /// What the healed cluster must still reach when no work is left, if anything. Called
    /// repeatedly: the run continues until it returns `None`, and fails if that takes too long.
    fn awaited(&self, view: &View<'_>) -> Option<String> {
        let _ = view;
        None
    }

    /// Called once, when the healed cluster has finished its work.
    ///
    /// # Errors
    /// Describes what is wrong; the run fails.
    fn at_end(&mut self, view: &View<'_>) -> Result<(), String> {
        let _ = view;
        Ok(())
    }
}

/// The protocol's own [`Invariants`]: the oracle of every run.
pub(crate) struct OwnInvariants<P: Protocol> {
    invariants: P::Invariants,
    /// The instances that are on each node, or were when it was looked at last.
    hosted: BTreeMap<NodeId, Vec<Address>>,
}

impl<P: Protocol> OwnInvariants<P> {
    /// Watches a run that begins with this layout.
    pub(crate) fn watch(layout: &Layout) -> Box<dyn Oracle> {
        Box::new(OwnInvariants::<P> {
            invariants: P::Invariants::new(&configured::<P>(layout)),
            hosted: BTreeMap::new(),
        })
    }
}

impl<P: Protocol> Oracle for OwnInvariants<P> {
    fn after_event(&mut self, view: &View<'_>) -> Result<(), String> {
        let host = view.nodes[view.changed].host.as_ref();
        let instances = host.map(|host| host.instances()).unwrap_or_default();
        let hosted: Vec<_> = instances.iter().map(|(address, _)| *address).collect();
        let known = self.hosted.entry(view.changed()).or_default();
        if *known != hosted {
            // An instance that has left may return later, without memory.
            let gone = known.iter().filter(|it| !hosted.contains(it));
            gone.for_each(|it| self.invariants.crashed(*it));
            *known = hosted;
        }
        let mut instances = instances.into_iter();
        instances.try_for_each(|(address, instance)| self.after_message(address, instance))
    }

    fn after_message(
        &mut self,
        address: Address,
        instance: &dyn AnyInstance,
    ) -> Result<(), String> {
        self.invariants.check(address, typed::<P>(instance))
    }

    fn on_reconfigure(&mut self, layout: &Layout) {
        self.invariants.reconfigured(&configured::<P>(layout));
    }

    fn on_crash(&mut self, node: NodeId) {
        let gone = self.hosted.remove(&node).unwrap_or_default();
        gone.into_iter().for_each(|it| self.invariants.crashed(it));
    }

    fn awaited(&self, view: &View<'_>) -> Option<String> {
        let instances = view.instances().map(|(at, it)| (at, typed::<P>(it)));
        self.invariants.awaited(&instances.collect::<Vec<_>>())
    }
}

fn typed<P: Protocol>(instance: &dyn AnyInstance) -> &P::Instance {
    let instance: &dyn Any = instance;
    instance
        .downcast_ref()
        .expect("an instance of the protocol")
}

/// All running roles.
pub struct View<'a> {
    pub(crate) nodes: &'a [SimNode],
    pub(crate) changed: usize,
}

impl<'a> View<'a> {
    /// The node whose roles were called.
    pub fn changed(&self) -> NodeId {
        self.nodes[self.changed].id
    }

    /// The instances of one node; none while it is down.
    pub fn on_node(
        &self,
        node: NodeId,
    ) -> impl Iterator<Item = (Address, &'a dyn AnyInstance)> + use<'a> {
        self.nodes[node.0 as usize].instances()
    }

    /// What the running nodes have noted for traces, each in order, if the scenario
    /// [records](crate::scenario::Scenario::records).
    pub fn noted(&self) -> Vec<Seen> {
        let mut noted = Vec::new();
        for node in self.nodes {
            let (name, kinds) = (format!("n{}", node.id.0), node.protocol.description().kinds);
            let events = node.host.iter().flat_map(|host| host.noted());
            noted.extend(events.map(|it| Seen::of(it, &name, kinds)));
        }
        noted
    }

    /// The instances of all nodes.
    pub fn instances(&self) -> impl Iterator<Item = (Address, &'a dyn AnyInstance)> + use<'a> {
        self.nodes.iter().flat_map(SimNode::instances)
    }
}
