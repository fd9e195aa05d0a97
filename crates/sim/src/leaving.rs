//! Nodes that a change of the membership removes.
//!
//! As in the runtime, such a node does not store that it has left until f+1 members know it. Until
//! then it tells each member that does not; afterwards it is gone, and its operator starts it again
//! when a later change adds it.

use crate::configurations::Configuration;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::model::Model;
use crate::node::SimNode;
use crate::scenario::Canary;
use crate::world::{Event, Simulation, Step};
use ionian_kernel::layout::Layout;
use ionian_kernel::membership::Membership;
use ionian_kernel::protocol::Protocol;
use std::rc::Rc;

/// Where a node stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It takes part, or has yet to.
    #[default]
    Present,
    /// It is not a member any more, and too few members know.
    Leaving,
    /// It has left.
    Gone,
}

/// One node that leaves in this number crashes first, and comes back as a member.
const CRASHES_ONCE_IN: u64 = 4;

impl<P: Protocol, M: Model> Simulation<P, M> {
    /// Whether a configuration lacks a node that was a member until now.
    pub(crate) fn removes(&self, node: usize, configuration: &Configuration<P>) -> bool {
        self.is_member(node, &self.nodes[node].configuration)
            && !self.is_member(node, configuration)
    }

    fn is_member(&self, node: usize, configuration: &Configuration<P>) -> bool {
        !configuration.layout.on_node(self.nodes[node].id).is_empty()
    }

    /// A node learns that it is not a member any more.
    pub(crate) fn leave(
        &mut self,
        node: usize,
        membership: &Membership,
        configuration: Rc<Configuration<P>>,
    ) -> Step {
        if !self.is_calm() && self.random.once_in(CRASHES_ONCE_IN) {
            let lasts = self.random.between(1000, 300_000);
            self.crash(node, lasts, false);
            if self.nodes[node].host.is_none() {
                return Ok(());
            }
        }
        self.end_process(node, Disk::crash);
        self.report.left += 1;
        let leaver = &mut self.nodes[node];
        leaver.membership = membership.clone();
        leaver.configuration = configuration;
        leaver.standing = Standing::Leaving;
        if self.scenario.canary == Canary::LeavesAtOnce {
            self.nodes[node].standing = Standing::Gone;
            return Ok(());
        }
        for to in (0..self.nodes.len()).filter(|to| *to != node) {
            self.tell(node, to);
        }
        self.let_go();
        Ok(())
    }

    /// Nodes of whose leaving enough members know are gone.
    pub(crate) fn let_go(&mut self) {
        for node in 0..self.nodes.len() {
            let leaver = &self.nodes[node];
            if leaver.standing != Standing::Leaving {
                continue;
            }
            let in_force = Layout {
                next: None,
                ..leaver.configuration.layout.clone()
            };
            let members = in_force.nodes();
            let knows = |other: &usize| {
                members.contains(&self.nodes[*other].id)
                    && self.nodes[*other].membership.epoch >= leaver.membership.epoch
            };
            let known = (0..self.nodes.len()).filter(knows).count();
            let enough = in_force.f + 1;
            if known >= enough {
                self.nodes[node].standing = Standing::Gone;
                let now = self.now();
                self.trace.note(now, node, "gone", known as u64, || {
                    format!("{known} members know")
                });
            }
        }
    }

    /// A later membership has members that left: their operator starts them again.
    pub(crate) fn call_back(&mut self, configuration: &Configuration<P>) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].standing != Standing::Present
                && self.is_member(node, configuration)
                && configuration.layout.epoch > self.nodes[node].membership.epoch
            {
                self.nodes[node].standing = Standing::Present;
                let (at, life) = (
                    self.now() + self.random.between(1000, 300_000),
                    self.nodes[node].life,
                );
                self.heap
                    .plan(at, Event::Fault(Fault::Restart { node, life }));
            }
        }
    }

    /// An operator tells the nodes that were removed while they were away: those that they know may
    /// all be gone.
    pub(crate) fn remove_the_absent(&mut self) -> Step {
        let newest = self.nodes.iter().max_by_key(|node| node.membership.epoch);
        let Some((membership, configuration)) =
            newest.map(|node| (node.membership.clone(), node.configuration.clone()))
        else {
            return Ok(());
        };
        for node in 0..self.nodes.len() {
            if self.nodes[node].host.is_some() && self.removes(node, &configuration) {
                self.adopt(node, &membership)?;
            }
        }
        Ok(())
    }

    /// What the membership of the healed cluster is still to come to, if anything: nodes that leave
    /// are gone, and no change is under way.
    pub(crate) fn unsettled(&self) -> Option<String> {
        let leaving = |node: &&SimNode<P>| node.standing == Standing::Leaving;
        if let Some(node) = self.nodes.iter().find(leaving) {
            return Some(format!("too few members know that n{} leaves", node.id.0));
        }
        let newest = self.nodes.iter().max_by_key(|node| node.membership.epoch)?;
        let epoch = newest.membership.epoch.0;
        // Where nodes that stop stay away, one of those that a change adds may be missing.
        let changing = newest.membership.is_changing() && !self.stays_down();
        changing.then(|| format!("the change of epoch {epoch} is not finished"))
    }
}
