//! Membership changes in a run: the operator's requests, and how nodes learn of changes.
//!
//! As in the runtime, every message carries the sender's membership, a sender with an old one gets
//! a notice, and a node stores what it has learned before it acts on it.

use crate::journal::Recorded;
use crate::leaving::Standing;
use crate::model::Model;
use crate::node::Boot;
use crate::report::FailureKind;
use crate::roles::AnyMessage;
use crate::trace::mix;
use crate::world::{Event, Parcel, Simulation, Step};
use bytes::Bytes;
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::level::Level;
use ionian_kernel::membership::Membership;

impl<M: Model> Simulation<M> {
    /// Plans the operator's next step.
    pub(crate) fn plan_change(&mut self) {
        if let Some(every) = self.knobs.change_every {
            let after = self.random.between(1, 2 * every);
            self.heap.plan(self.now() + after, Event::Operate);
        }
    }

    /// The operator asks some node for a change, as that node sees the cluster. When the faults are
    /// over the operator replaces a lost machine, and goes on until the membership has settled: the
    /// replacement, or a change that was under way, may remove nodes that learn of it from no one.
    pub(crate) fn operate(&mut self) -> Step {
        if self.is_calm() {
            self.remove_the_absent()?;
            // A change that is not chosen yet may say whether a lost machine can be replaced.
            if self.outages.lost.is_none() && self.unsettled().is_none() {
                return Ok(());
            }
        }
        self.plan_change();
        let able =
            |node: &usize| self.nodes[*node].runs() && self.nodes[*node].lanes().next().is_some();
        let able: Vec<usize> = (0..self.nodes.len()).filter(able).collect();
        let (turn, abandons) = (self.random.any(), self.random.once_in(3));
        let place = self.random.below(able.len().max(1) as u64) as usize;
        let Some(node) = able.get(place).copied() else {
            return Ok(());
        };
        let membership = self.nodes[node].membership.clone();
        let lane = self.nodes[node].lanes().next().expect("a node with lanes");
        let replaces = self.is_calm() || abandons && self.outages.lost.is_some();
        let request = match replaces {
            true => self.replacement(&membership, turn),
            false if abandons || !membership.is_changing() => {
                self.configurations.request(&membership, turn)
            }
            false => None,
        };
        if let Some(request) = request {
            let now = self.now();
            self.trace.note(now, node, "operate", turn, || {
                format!("{:?}", request.payload)
            });
            self.nodes[node]
                .host
                .as_mut()
                .expect("it runs")
                .submit(lane, request);
            self.report.changes_asked += 1;
            self.rouse(node, now);
        }
        Ok(())
    }

    /// A node sends a message, which nodes of its level understand: the one that it knows, or that
    /// its replica has executed, which may be behind or ahead of that.
    pub(crate) fn check_level(&self, node: usize, message: &dyn AnyMessage) -> Step {
        let since = message.since();
        if since == Level::FIRST {
            return Ok(());
        }
        let known = &self.nodes[node].membership;
        let executed = self.nodes[node].instances().filter_map(|(_, instance)| {
            let status = instance.status();
            status.level_stored.and(status.epoch)
        });
        // What no node has heard of yet is announced next.
        let level = |epoch| self.configurations.level(epoch).unwrap_or(Level::LATEST);
        let highest = executed.map(level).fold(known.level, Level::max);
        match since <= highest || self.nodes[node].may_send_of_higher_levels() {
            true => Ok(()),
            false => Err(self.fail(
                FailureKind::Message,
                format!("{message:?}, of level {since}, is sent at level {highest}"),
            )),
        }
    }

    /// A node learns of a membership.
    pub(crate) fn adopt(&mut self, node: usize, membership: &Membership) -> Step {
        self.nodes[node].lower(membership);
        if membership.epoch <= self.nodes[node].membership.epoch {
            return Ok(());
        }
        let found = self.configurations.of(membership);
        let layout = found.map_err(|what| self.fail(FailureKind::Divergence, what))?;
        let now = self.now();
        self.call_back(membership, &layout);
        self.write_off(membership, &layout);
        self.trace
            .note(now, node, "adopt", u64::from(membership.epoch.0), || {
                format!("{membership:?}")
            });
        self.report.epochs = self.report.epochs.max(u64::from(membership.epoch.0));
        self.oracles
            .iter_mut()
            .for_each(|oracle| oracle.on_reconfigure(&layout));
        if self.nodes[node].host.is_some() && self.removes(node, &layout) {
            return self.leave(node, membership, layout);
        }
        let before: Vec<ClientId> = self.nodes[node].lanes().collect();
        self.nodes[node].membership = membership.clone();
        self.nodes[node].layout = layout;
        if self.nodes[node].host.is_some() {
            self.reconfigure(node);
            let after: Vec<ClientId> = self.nodes[node].lanes().collect();
            for lane in before.iter().filter(|lane| !after.contains(lane)) {
                self.workload.lane_down(*lane, &mut self.report);
            }
            for lane in after.iter().filter(|lane| !before.contains(lane)) {
                let plans = self.workload.lane_up(*lane);
                self.plan_threads(&plans);
            }
        }
        for to in (0..self.nodes.len()).filter(|to| *to != node) {
            self.tell(node, to);
        }
        self.let_go();
        self.carry_out(node)
    }

    fn reconfigure(&mut self, node: usize) {
        let (journal, model, canary) = (&self.journal, &self.workload.model, self.scenario.canary);
        let protocol = self.description();
        let machine =
            |address, life| Recorded::of(protocol, (node, address, life), journal, model, canary);
        let boot = Boot::new(&self.scenario, mix(self.seed, 2), &machine);
        let now = self.heap.now();
        self.nodes[node].reconfigure(now, &boot, &mut self.effects);
    }

    /// Brings a node another's news, by way of the network.
    pub(crate) fn tell(&mut self, from: usize, to: usize) {
        let news = self.nodes[from].membership.clone();
        let digest = mix(u64::from(news.epoch.0), 77);
        self.post(Parcel {
            from,
            to,
            members: Members::EMPTY,
            bytes: Bytes::new(),
            name: "membership",
            digest,
            news,
        });
    }

    /// The news that came with a message, and those that its sender does not have.
    pub(crate) fn exchange_news(&mut self, from: usize, to: usize, news: &Membership) -> Step {
        let leaves = self.nodes[to].standing == Standing::Leaving;
        if self.nodes[to].host.is_none() && !leaves {
            return Ok(());
        }
        if self.nodes[to].membership.epoch > news.epoch {
            self.tell(to, from);
        }
        if leaves {
            return Ok(());
        }
        self.adopt(to, news)
    }
}
