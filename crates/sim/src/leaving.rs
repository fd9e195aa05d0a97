//! Nodes that a change of the membership removes.
//!
//! As in the runtime, such a node does not store that it has left until f+1 members know it. Until
//! then it tells each member that does not; afterwards it is gone, and its operator starts it again
//! when a later change adds it.

use crate::disk::Disk;
use crate::fault::Fault;
use crate::model::Model;
use crate::node::SimNode;
use crate::scenario::Canary;
use crate::world::{Event, Simulation, Step};
use ionian_kernel::layout::Layout;
use ionian_kernel::membership::Membership;
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

impl<M: Model> Simulation<M> {
    /// Whether a configuration lacks a node that was a member until now.
    pub(crate) fn removes(&self, node: usize, layout: &Layout) -> bool {
        self.is_member(node, &self.nodes[node].layout) && !self.is_member(node, layout)
    }

    pub(crate) fn is_member(&self, node: usize, layout: &Layout) -> bool {
        !layout.on_node(self.nodes[node].id).is_empty()
    }

    /// A node learns that it is not a member any more.
    pub(crate) fn leave(
        &mut self,
        node: usize,
        membership: &Membership,
        layout: Rc<Layout>,
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
        // If it becomes a member again its roles begin anew, and may take over and store an earlier
        // state than they had.
        leaver.disk.promised.snapshots.clear();
        leaver.membership = membership.clone();
        leaver.layout = layout;
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
                ..(*leaver.layout).clone()
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
                // It may be a member again by now: it was down while the others heard of that.
                if let Some((membership, newest)) = self.newest() {
                    self.call_back(&membership, &newest);
                }
            }
        }
    }

    /// What the node knows that knows most.
    fn newest(&self) -> Option<(Membership, Rc<Layout>)> {
        let newest = self.nodes.iter().max_by_key(|node| node.membership.epoch)?;
        Some((newest.membership.clone(), newest.layout.clone()))
    }

    /// A later membership has members that left: their operator starts them again.
    pub(crate) fn call_back(&mut self, membership: &Membership, layout: &Rc<Layout>) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].standing != Standing::Present
                && self.is_member(node, layout)
                && layout.epoch > self.nodes[node].membership.epoch
            {
                self.renew(node, membership, layout);
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

    /// A node that was called back starts with a membership without it, has no role, and so sends
    /// nothing. It connects to the others, as every process does, and learns what has changed.
    pub(crate) fn introduce(&mut self, node: usize) {
        if !self.is_member(node, &self.nodes[node].layout) {
            for to in (0..self.nodes.len()).filter(|to| *to != node) {
                self.tell(node, to);
            }
        }
    }

    /// An operator stops the nodes that were removed while they were away: the nodes that they know
    /// may all be gone.
    pub(crate) fn remove_the_absent(&mut self) -> Step {
        let Some((membership, layout)) = self.newest() else {
            return Ok(());
        };
        for node in 0..self.nodes.len() {
            if self.nodes[node].host.is_some() && self.removes(node, &layout) {
                self.adopt(node, &membership)?;
            }
        }
        Ok(())
    }

    /// What the membership of the healed cluster is still to come to, if anything: nodes that leave
    /// are gone, and no change is under way.
    pub(crate) fn unsettled(&self) -> Option<String> {
        let leaving = |node: &&SimNode| node.standing == Standing::Leaving;
        if let Some(node) = self.nodes.iter().find(leaving) {
            return Some(format!("too few members know that n{} leaves", node.id.0));
        }
        let (newest, _) = self.newest()?;
        let epoch = newest.epoch.0;
        // Where nodes that stop stay away, one of those that a change adds may be missing.
        if newest.is_changing() && !self.stays_down() {
            return Some(format!("the change of epoch {epoch} is not finished"));
        }
        let lost = self.is_to_be_replaced(&newest);
        lost.then(|| format!("in epoch {epoch} a member is lost for good"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Lists;
    use crate::{Scenario, Simulated, Watch, variations};
    use bytes::Bytes;
    use ionian_deployment::{Deployment, PresetOptions};
    use ionian_kernel::id::Epoch;
    use ionian_kernel::protocol::Protocol;
    use ionian_protocols::multipaxos::MultiPaxos;

    const FOUNDED: Bytes = Bytes::from_static(&[0, 0]);
    const WITHOUT_LAST: Bytes = Bytes::from_static(&[1, 0]);

    fn membership(epoch: u32, text: Bytes, next: Option<Bytes>) -> Membership {
        Membership {
            epoch: Epoch(epoch),
            since: Epoch(2),
            text,
            next,
            ..Membership::default()
        }
    }

    /// Three nodes, of which the last is to be replaced; no faults.
    fn three_nodes() -> Simulation<Lists> {
        let deployment = Deployment::preset("colocated", &PresetOptions::default()).unwrap();
        let layout = deployment.layout(MultiPaxos::KINDS).unwrap();
        let lacks_last = |other: &Layout| !other.nodes().contains(layout.nodes().last().unwrap());
        let protocol = Simulated::of::<MultiPaxos>();
        let all = variations(protocol, &layout);
        let scenario = Scenario {
            changes: all.into_iter().filter(lacks_last).take(1).collect(),
            ..Scenario::new("leaving", layout.clone())
        };
        let mut simulation =
            Simulation::new(protocol, &scenario, 0, Lists::new(1), Watch::default()).unwrap();
        simulation.knobs.duration = 0;
        simulation
    }

    #[test]
    fn a_node_that_hears_that_it_left_after_a_change_has_added_it_again_is_started_again() {
        let (mut simulation, last) = (three_nodes(), 2);
        let others: Vec<usize> = (0..simulation.nodes.len())
            .filter(|node| *node != last)
            .collect();
        let removed = membership(2, WITHOUT_LAST, None);
        let added = membership(3, WITHOUT_LAST, Some(FOUNDED));
        for node in 0..simulation.nodes.len() {
            simulation.boot(node).unwrap();
        }
        simulation.end_process(last, Disk::crash);
        for node in others {
            simulation.adopt(node, &removed).unwrap();
            simulation.adopt(node, &added).unwrap();
        }
        // Its own snapshot tells it of the end of the change before any other node tells it more.
        simulation.boot(last).unwrap();
        simulation.adopt(last, &removed).unwrap();
        assert!(simulation.nodes[last].host.is_none(), "it has not left");
        assert_eq!(simulation.nodes[last].standing, Standing::Present);
        let is_back = |node: &SimNode| node.host.is_some() && node.membership == added;
        while !is_back(&simulation.nodes[last]) {
            let event = simulation.heap.pop().expect("it is started again");
            simulation.handle(event).unwrap();
        }
    }
}
