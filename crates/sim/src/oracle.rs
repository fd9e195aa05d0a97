//! Oracles: watchers that see all nodes at once and say when something is wrong that no single role
//! could know.

use crate::node::SimNode;
use ionian_kernel::layout::Layout;
use ionian_kernel::layout::{Address, NodeId};
use ionian_kernel::protocol::{Invariants, Protocol};

/// Watches one run of a protocol. Each run gets its own.
pub trait Oracle<P: Protocol> {
    /// Called after every event in which roles of the node [`View::changed`] were called.
    ///
    /// # Errors
    /// Says what is wrong; the run fails.
    fn after_event(&mut self, view: &View<'_, P>) -> Result<(), String>;

    /// A message leaves a node (what its fence waited for is on disk). Hops inside a node are not told.
    fn on_send(&mut self, from: NodeId, message: &P::Message) {
        let _ = (from, message);
    }

    /// A node crashed: what its roles held in memory is gone.
    fn on_crash(&mut self, node: NodeId) {
        let _ = node;
    }

    /// Called once, when the healed cluster has finished its work.
    ///
    /// # Errors
    /// Says what is wrong; the run fails.
    fn at_end(&mut self, view: &View<'_, P>) -> Result<(), String> {
        let _ = view;
        Ok(())
    }
}

/// The protocol's own [`Invariants`]: the oracle of every run.
pub(crate) struct OwnInvariants<P: Protocol> {
    invariants: P::Invariants,
    layout: Layout,
}

impl<P: Protocol> OwnInvariants<P> {
    pub(crate) fn new(config: &P::Config, layout: &Layout) -> Self {
        OwnInvariants { invariants: P::Invariants::new(config), layout: layout.clone() }
    }
}

impl<P: Protocol> Oracle<P> for OwnInvariants<P> {
    fn after_event(&mut self, view: &View<'_, P>) -> Result<(), String> {
        view.on_node(view.changed()).try_for_each(|(address, instance)| self.invariants.check(address, instance))
    }

    fn on_crash(&mut self, node: NodeId) {
        self.layout.on_node(node).into_iter().for_each(|address| self.invariants.crashed(address));
    }
}

/// All roles that are up.
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
    pub fn on_node(&self, node: NodeId) -> impl Iterator<Item = (Address, &'a P::Instance)> + use<'a, P> {
        self.nodes[node.0 as usize].host.iter().flat_map(|host| host.instances())
    }

    /// The instances of all nodes.
    pub fn instances(&self) -> impl Iterator<Item = (Address, &'a P::Instance)> + use<'a, P> {
        self.nodes.iter().flat_map(|node| node.host.iter().flat_map(|host| host.instances()))
    }
}
