//! The end of the faults, and what the healed cluster must still do.

use crate::event::Micros;
use crate::journal;
use crate::leaving::Standing;
use crate::model::Model;
use crate::oracle::View;
use crate::report::{Failure, FailureKind};
use crate::scenario::Durability;
use crate::swarm::{Knobs, Range};
use crate::world::{Event, Simulation, Step};
use ionian_kernel::id::ClientId;

impl<M: Model> Simulation<M> {
    /// Ends all faults, and sends a last request through every lane.
    pub(crate) fn heal(&mut self) -> Step {
        if std::mem::replace(&mut self.healed, true) {
            return Ok(());
        }
        self.trace.note(self.heap.now(), 0, "heal", 0, String::new);
        self.deadline = Some(self.now() + self.scenario.liveness_bound.as_micros() as Micros);
        self.network.heal();
        heal_disks(&mut self.knobs);
        for node in 0..self.nodes.len() {
            self.nodes[node].disk.repair();
            self.resume(node);
            self.drain(node, false);
            if !self.stays_down() || self.nodes[node].life == 0 {
                self.restart_if_down(node)?;
            }
        }
        self.remove_the_absent()?;
        if self.outages.lost.is_some() {
            self.plan_change();
        } else if self.knobs.apart {
            self.leave_one_apart();
        }
        let plans = self.workload.finish();
        self.plan_threads(&plans);
        self.heap.plan(self.now(), Event::Look);
        Ok(())
    }

    /// One node remains deaf, mute or both, as one of the f that may fail: the others must serve
    /// without it, whether or not they receive its heartbeats. Its own clients need not be served.
    fn leave_one_apart(&mut self) {
        let Some(node) = self.random_leader_or_node() else {
            return;
        };
        let lanes: Vec<ClientId> = self.nodes[node].lanes().collect();
        let all_is_stored = self.all_is_stored_by_others() && self.report.lost_disks == 0;
        if !(all_is_stored || self.others_are_whole(node))
            || !self.workload.has_lane_besides(&lanes)
        {
            return;
        }
        lanes
            .into_iter()
            .for_each(|lane| self.workload.lane_apart(lane));
        let (deaf, mute) = [(true, false), (true, false), (false, true), (true, true)]
            [self.random.below(4) as usize];
        self.network
            .sever(|from, to| (deaf && to == node) || (mute && from == node));
        self.report.left_apart += 1;
        self.trace.note(self.heap.now(), node, "apart", 0, || {
            format!("for good, deaf: {deaf}, mute: {mute}")
        });
    }

    /// Whether any nodes but f have all that was acknowledged, though replicas of some lag: on disk
    /// acceptors keep what they voted for. A chain (CRAQ) is its own storage. With fewer than 2f+1
    /// nodes it removes some and goes on with fewer than f+1, until they have joined again.
    fn all_is_stored_by_others(&self) -> bool {
        let layout = &self.scenario.layout;
        let executors = self.description().executors.iter();
        let mut executors = executors.map(|kind| layout.count(*kind));
        self.scenario.durability == Durability::Disk && executors.all(|n| n > 2 * layout.f)
    }

    fn restart_if_down(&mut self, node: usize) -> Step {
        let node_is_missed = self.nodes[node].standing == Standing::Present;
        if node_is_missed && self.nodes[node].host.is_none() {
            self.restart(node)
        } else {
            Ok(())
        }
    }

    /// What the cluster, whose clients have all that they want, is still to come to, if anything.
    pub(crate) fn awaited(&mut self) -> Option<String> {
        let journal = journal::open(&self.journal);
        let behind = journal
            .behind()
            .next()
            .or_else(|| journal.waiting_for_time().next());
        drop(journal);
        let left = self.rest.left_over(self.now(), &self.nodes);
        let short = self.rest.short_of_the_end(&self.nodes);
        let owed = crate::rest::owed_snapshot(&self.nodes);
        let view = View {
            nodes: &self.nodes,
            changed: 0,
        };
        let of_oracles = || self.oracles.iter().find_map(|oracle| oracle.awaited(&view));
        let found = behind.or(short).or(left).or(owed).or_else(of_oracles);
        found.or_else(|| self.unsettled())
    }

    /// A liveness failure, with everything that may tell why.
    pub(crate) fn stuck(&mut self, what: &str) -> Failure {
        let mut message = format!("the healed cluster {what}; {}", self.workload.unfinished());
        if self.workload.done() {
            message += &self.awaited().unwrap_or_default();
        }
        for node in &self.nodes {
            message += &format!(
                "\n  n{}:{}",
                node.id.0,
                if node.runs() { "" } else { " down" }
            );
            for (address, instance) in node.instances() {
                message += &format!(" {}(", self.protocol.name(address));
                let metrics = self.description().metrics[usize::from(address.kind)];
                for (name, value) in instance.status().figures(metrics) {
                    message += &format!(" {name}={value}");
                }
                message += " )";
            }
        }
        self.fail(FailureKind::Liveness, message)
    }
}

fn heal_disks(knobs: &mut Knobs) {
    let quick: Range = (100, 3000);
    knobs.sync = (knobs.sync.0.min(quick.0), knobs.sync.1.min(quick.1));
    knobs.stall = None;
    knobs.crash_in_sync = 0.0;
    knobs.step = (knobs.step.0, knobs.step.1.min(200));
}
