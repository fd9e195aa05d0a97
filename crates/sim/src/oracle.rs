//! Oracles: observers of all nodes, which detect errors that no single role could detect.

use crate::node::SimNode;
use ionian_kernel::layout::{Address, NodeId};
use ionian_kernel::protocol::{Invariants, Protocol};
use ionian_kernel::trace::path::Seen;
use std::collections::BTreeSet;

/// Observes one run of a protocol. Each run has its own.
pub trait Oracle<P: Protocol> {
    /// Called after every event in which roles of the node [`View::changed`] were called.
    ///
    /// # Errors
    /// Describes what is wrong; the run fails.
    fn after_event(&mut self, view: &View<'_, P>) -> Result<(), String>;

    /// Called after each message that a role receives. In one event a role may receive several, and
    /// the next one may undo what this one did.
    ///
    /// # Errors
    /// Describes what is wrong; the run fails.
    fn after_message(&mut self, address: Address, instance: &P::Instance) -> Result<(), String> {
        let _ = (address, instance);
        Ok(())
    }

    /// A message leaves a node, after its fence. Messages within a node are not reported.
    fn on_send(&mut self, from: NodeId, message: &P::Message) {
        let _ = (from, message);
    }

    /// A node crashed: its roles have lost their memory.
    fn on_crash(&mut self, node: NodeId) {
        let _ = node;
    }

    /// A node has learned this configuration.
    fn on_reconfigure(&mut self, config: &P::Config) {
        let _ = config;
    }

    /// What the healed cluster must still reach when no work is left, if anything. Called
    /// repeatedly: the run continues until it returns `None`, and fails if that takes too long.
    fn awaited(&self, view: &View<'_, P>) -> Option<String> {
        let _ = view;
        None
    }

    /// Called once, when the healed cluster has finished its work.
    ///
    /// # Errors
    /// Describes what is wrong; the run fails.
    fn at_end(&mut self, view: &View<'_, P>) -> Result<(), String> {
        let _ = view;
        Ok(())
    }
}

/// The protocol's own [`Invariants`]: the oracle of every run.
pub(crate) struct OwnInvariants<P: Protocol> {
    invariants: P::Invariants,
    /// The instances that are, or have been, on each node.
    addresses: BTreeSet<(NodeId, Address)>,
}

impl<P: Protocol> OwnInvariants<P> {
    pub(crate) fn new(config: &P::Config) -> Self {
        OwnInvariants {
            invariants: P::Invariants::new(config),
            addresses: BTreeSet::new(),
        }
    }

    /// Drops the state of instances that have lost their memory.
    fn forget(&mut self, gone: impl Fn(&(NodeId, Address)) -> bool) {
        let invariants = &mut self.invariants;
        self.addresses.retain(|known| {
            let gone = gone(known);
            if gone {
                invariants.crashed(known.1);
            }
            !gone
        });
    }
}

impl<P: Protocol> Oracle<P> for OwnInvariants<P> {
    fn after_event(&mut self, view: &View<'_, P>) -> Result<(), String> {
        let here = view.changed();
        let hosted: BTreeSet<_> = view
            .on_node(here)
            .map(|(address, _)| (here, address))
            .collect();
        // An instance that has left may return later, without memory.
        self.forget(|known| known.0 == here && !hosted.contains(known));
        self.addresses.extend(hosted);
        view.on_node(here)
            .try_for_each(|(address, instance)| self.invariants.check(address, instance))
    }

    fn after_message(&mut self, address: Address, instance: &P::Instance) -> Result<(), String> {
        self.invariants.check(address, instance)
    }

    fn on_reconfigure(&mut self, config: &P::Config) {
        self.invariants.reconfigured(config);
    }

    fn on_crash(&mut self, node: NodeId) {
        self.forget(|(place, _)| *place == node);
    }

    fn awaited(&self, view: &View<'_, P>) -> Option<String> {
        self.invariants
            .awaited(&view.instances().collect::<Vec<_>>())
    }
}

/// All running roles.
pub struct View<'a, P: Protocol> {
    pub(crate) nodes: &'a [SimNode<P>],
    pub(crate) changed: usize,
}

impl<'a, P: Protocol> View<'a, P> {
    /// The node whose roles were called.
    pub fn changed(&self) -> NodeId {
        self.nodes[self.changed].id
    }

    /// The instances of one node; none while it is down.
    pub fn on_node(
        &self,
        node: NodeId,
    ) -> impl Iterator<Item = (Address, &'a P::Instance)> + use<'a, P> {
        self.nodes[node.0 as usize].instances()
    }

    /// What the running nodes have noted for traces, each in order, if the scenario
    /// [records](crate::scenario::Scenario::records).
    pub fn noted(&self) -> Vec<Seen> {
        let mut noted = Vec::new();
        for node in self.nodes {
            let name = format!("n{}", node.id.0);
            for host in node.hosts() {
                noted.extend(host.events().0.map(|it| Seen::of(it, &name, P::KINDS)));
            }
        }
        noted
    }

    /// The instances of all nodes.
    pub fn instances(&self) -> impl Iterator<Item = (Address, &'a P::Instance)> + use<'a, P> {
        self.nodes.iter().flat_map(SimNode::instances)
    }
}
