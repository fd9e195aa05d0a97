//! Machines that are lost for good, and others that get their numbers; disks that are lost.
//!
//! One machine of a run may crash and never return. Its operator replaces it, under faults or when
//! they are over, and the cluster must serve without it until then. A number that is in use again
//! is another machine's most of the time: its disk is empty, and it learns the membership from the
//! others before it starts.
//!
//! Where the protocol [readmits](ionian_kernel::protocol::Protocol::READMITS) nodes that have lost
//! their disks, machines lose these, one after the other: each when fewer than f others have not
//! regained what they lost with theirs, also if others are down.

use crate::leaving::Standing;
use crate::model::Model;
use crate::roles::AnyInstance;
use crate::trace::mix;
use crate::world::{Event, Simulation};
use crate::{event::Micros, fault::Fault};
use ionian_kernel::client::Request;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::Layout;
use ionian_kernel::membership::Membership;
use std::rc::Rc;

/// One node in this number that is a member again runs on the machine that it ran on before.
const SAME_MACHINE_ONCE_IN: u64 = 4;

impl<M: Model> Simulation<M> {
    /// Plans the loss of a machine.
    pub(crate) fn plan_loss(&mut self) {
        if self.knobs.loses {
            let within = match self.description().readmits {
                true => self.knobs.duration / 4,
                false => self.knobs.duration,
            };
            let after: Micros = self.random.below(within);
            self.heap
                .plan(self.now() + after, Event::Fault(Fault::Lose));
        }
    }

    /// A machine or its disk is lost, as one of the nodes that may fail.
    pub(crate) fn lose(&mut self) {
        let Some(node) = self.random_victim() else {
            return;
        };
        if self.description().readmits {
            self.lose_disk(node);
            return self.plan_loss();
        }
        let lanes: Vec<ClientId> = self.nodes[node].lanes().collect();
        if self.may_crash(node, false) && self.workload.has_lane_besides(&lanes) {
            self.outages.lost = Some(node);
            self.report.lost_machines += 1;
            self.crash(node, 0, false);
        }
    }

    /// The node starts again with an empty disk, and the others readmit it.
    fn lose_disk(&mut self, node: usize) {
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        let lacking = others.filter(|other| !self.nodes[*other].has_regained);
        if !self.may_crash(node, false) || lacking.count() >= self.scenario.layout.f {
            return;
        }
        let lasts = self.random.between(1000, 300_000);
        self.crash(node, lasts, false);
        self.replace_disk(node);
        self.nodes[node].predecessors += 1;
        self.nodes[node].has_regained = false;
        self.report.lost_disks += 1;
    }

    /// Looks whether nodes that have lost their disks say that they have regained all, and have it
    /// on disk.
    pub(crate) fn look_who_has_regained(&mut self, node: usize) {
        if !self.nodes[node].has_regained {
            let remembers = |(_, it): (_, &dyn AnyInstance)| it.status().remembers != Some(false);
            let node = &mut self.nodes[node];
            node.has_regained =
                node.host.is_some() && node.instances().all(remembers) && !node.disk.has_unsynced();
        }
    }

    /// The node has an empty disk from now on.
    fn replace_disk(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let disk = mix(mix(self.seed, 4), (node as u64) << 32 | u64::from(life));
        let node = &mut self.nodes[node];
        node.disk = node.disk.another(disk);
    }

    /// Whether this node's machine is lost.
    pub(crate) fn is_lost(&self, node: usize) -> bool {
        self.outages.lost == Some(node)
    }

    /// A configuration may be without the machine that was lost: that is missed no longer.
    pub(crate) fn write_off(&mut self, membership: &Membership, layout: &Rc<Layout>) {
        if let Some(node) = self.outages.lost
            && !self.is_member(node, layout)
        {
            self.outages.lost = None;
            let lost = &mut self.nodes[node];
            lost.standing = Standing::Gone;
            lost.has_machine = false;
            lost.membership = membership.clone();
            lost.layout = layout.clone();
        }
    }

    /// A node that left, and is a member again, may run on another machine.
    pub(crate) fn renew(&mut self, node: usize, membership: &Membership, layout: &Rc<Layout>) {
        let stays = self.nodes[node].has_machine && self.random.once_in(SAME_MACHINE_ONCE_IN);
        if self.nodes[node].standing != Standing::Gone || stays {
            return;
        }
        let born = self.nodes[node].life;
        self.replace_disk(node);
        let renewed = &mut self.nodes[node];
        (renewed.born, renewed.has_machine) = (born, true);
        renewed.membership = membership.clone();
        renewed.layout = layout.clone();
        self.report.new_machines += 1;
        let now = self.now();
        self.trace
            .note(now, node, "renewed", u64::from(born), String::new);
    }

    /// What the operator asks for who has lost a machine, as a node sees the cluster.
    pub(crate) fn replacement(&mut self, membership: &Membership, turn: u64) -> Option<Request> {
        let lost = self.nodes[self.outages.lost?].id;
        self.configurations.replace(membership, lost, turn)
    }

    /// Whether the operator can replace the machine that was lost, as its cluster is now.
    pub(crate) fn is_to_be_replaced(&self, membership: &Membership) -> bool {
        let lost = self.outages.lost.map(|node| self.nodes[node].id);
        lost.is_some_and(|lost| self.configurations.can_replace(membership, lost))
    }
}
