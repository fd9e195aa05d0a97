//! What breaks in a run, and how it is repaired in the end.

use crate::disk::{Disk, Trouble};
use crate::event::Micros;
use crate::fault::Fault;
use crate::leaving::Standing;
use crate::model::Model;
use crate::node::SimNode;
use crate::scenario::Durability;
use crate::swarm::Recurring;
use crate::world::{Event, Simulation, Step};
use ionian_kernel::id::ClientId;
use std::collections::BTreeMap;

impl<M: Model> Simulation<M> {
    /// Plans the first fault of each kind.
    pub(crate) fn plan_faults(&mut self) {
        let often = [
            Fault::Crash,
            Fault::Blackout,
            Fault::Pause,
            Fault::Drain,
            Fault::Part,
            Fault::SlowLink,
        ];
        for fault in
            often
                .into_iter()
                .chain([Fault::Cut, Fault::Meddle, Fault::Strand, Fault::BreakDisk])
        {
            self.plan_next(fault);
        }
        self.plan_loss();
    }

    fn recurring(&self, fault: Fault) -> Option<Recurring> {
        match fault {
            Fault::Crash => self.knobs.crash,
            Fault::Blackout => self.knobs.blackout,
            Fault::Pause => self.knobs.pause,
            Fault::Drain => self.knobs.drain,
            Fault::Part => self.knobs.partition,
            Fault::SlowLink => self.knobs.slow_link,
            Fault::Cut => self.knobs.cut,
            Fault::Strand => self.knobs.strand,
            Fault::Meddle => self.knobs.meddle,
            Fault::BreakDisk => self.knobs.disk_error,
            _ => None,
        }
    }

    /// Plans the next fault of this kind; says how long the one at hand lasts.
    fn plan_next(&mut self, fault: Fault) -> Micros {
        let Some(Recurring { every, lasts }) = self.recurring(fault) else {
            return 0;
        };
        let after = self.random.between(1, 2 * every);
        self.heap.plan(self.now() + after, Event::Fault(fault));
        self.random.between(lasts.0, lasts.1)
    }

    /// Whether nothing more is done to the cluster: it is healed, or about to be.
    pub(crate) fn is_calm(&self) -> bool {
        self.healed || self.knobs.duration <= self.now()
    }

    pub(crate) fn strike(&mut self, fault: Fault) -> Step {
        match fault {
            Fault::Restart { node, life } if self.nodes[node].life == life => {
                return self.restart(node);
            }
            Fault::Resume { node } => self.resume(node),
            Fault::Undrain { node, life } if self.nodes[node].life == life => {
                self.drain(node, false);
            }
            _ if self.is_calm() => {}
            Fault::Crash => {
                let lasts = self.plan_next(fault);
                if let Some(node) = self.random_victim() {
                    self.crash(node, lasts, false);
                }
            }
            Fault::CrashInSync { node, life } if self.nodes[node].life == life => {
                let lasts = self.random.between(1000, 300_000);
                self.crash(node, lasts, false);
            }
            Fault::Lose => self.lose(),
            Fault::Blackout => {
                let lasts = self.plan_next(fault);
                for node in 0..self.nodes.len() {
                    let lasts = self.random.between(1000, lasts.max(1000));
                    self.crash(node, lasts, true);
                }
            }
            Fault::Pause => {
                let lasts = self.plan_next(fault);
                self.pause(lasts);
            }
            Fault::Drain => {
                let lasts = self.plan_next(fault);
                self.drain_one(lasts);
            }
            Fault::Part => {
                let lasts = self.plan_next(fault);
                self.part(lasts);
            }
            Fault::Rejoin { turn } if turn == self.outages.partitions => {
                self.network.rejoin();
                self.trace
                    .note(self.heap.now(), 0, "rejoin", turn, String::new);
            }
            Fault::SlowLink => {
                let lasts = self.plan_next(fault);
                self.slow_link(lasts);
            }
            Fault::Cut => {
                let lasts = self.plan_next(fault);
                self.cut(lasts);
            }
            Fault::Splice { turn } => {
                self.network.splice(turn);
                self.trace
                    .note(self.heap.now(), 0, "splice", turn, String::new);
            }
            Fault::Strand => {
                let lasts = self.plan_next(fault);
                self.strand(lasts);
            }
            Fault::Return { turn } => {
                self.network.splice(turn);
                self.trace
                    .note(self.heap.now(), 0, "return", turn, String::new);
                self.keep_peers_apart();
            }
            Fault::Meddle => {
                let lasts = self.plan_next(fault);
                self.meddle(lasts);
            }
            Fault::LetBe { turn } => {
                self.network.meddling.end(turn);
                self.trace
                    .note(self.heap.now(), 0, "let-be", turn, String::new);
            }
            Fault::BreakDisk => {
                let lasts = self.plan_next(fault);
                self.break_disk(lasts);
            }
            Fault::RepairDisk { node } => self.nodes[node].disk.repair(),
            Fault::QuickLink { from, to } => self.network.slow_down(from, to, 0),
            Fault::CrashInSync { .. }
            | Fault::Restart { .. }
            | Fault::Undrain { .. }
            | Fault::Rejoin { .. } => {}
        }
        Ok(())
    }

    /// The nodes that hold instances of these kinds.
    fn nodes_with(&self, wanted: impl Fn(&str) -> bool) -> Vec<usize> {
        let holds = |node: &usize| {
            let mut instances = self.nodes[*node].instances();
            instances.any(|(address, _)| wanted(self.description().kinds[address.kind as usize]))
        };
        (0..self.nodes.len()).filter(holds).collect()
    }

    pub(crate) fn random_victim(&mut self) -> Option<usize> {
        let Some(kind) = self.knobs.victims.filter(|_| !self.random.once_in(6)) else {
            return self.random_node();
        };
        let kind = self.description().kinds[kind as usize];
        let victims = self.nodes_with(|name| name == kind);
        let turn = self.random.below(victims.len().max(1) as u64) as usize;
        victims.get(turn).copied().or_else(|| self.random_node())
    }

    pub(crate) fn random_node(&mut self) -> Option<usize> {
        let up: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.nodes[*node].host.is_some())
            .collect();
        let turn = self.random.below(up.len().max(1) as u64) as usize;
        up.get(turn).copied()
    }

    pub(crate) fn stays_down(&self) -> bool {
        self.scenario.durability == (Durability::Memory { returns: false })
    }

    /// Whether the scenario allows that `node` crashes now.
    pub(crate) fn may_crash(&self, node: usize, blackout: bool) -> bool {
        // One that was never up holds nothing, and is not missed yet; one that left is missed no
        // more.
        let is_down = |node: &&SimNode| {
            let is_missed = node.life > 0 && node.standing == Standing::Present;
            node.host.is_none() && is_missed || node.disk.is_failing()
        };
        let down = self.nodes.iter().filter(is_down).count();
        if self.nodes[node].host.is_none() || (down >= self.knobs.most_down && !blackout) {
            return false;
        }
        if self.scenario.durability == Durability::Disk {
            return true;
        }
        if self.knobs.in_turn {
            return self.others_are_whole(node);
        }
        // What only memory holds survives f crashes and no more.
        let known = self.outages.crashed.contains(&node);
        let lanes: Vec<ClientId> = self.nodes[node].lanes().collect();
        let lanes_left = !self.stays_down() || self.workload.has_lane_besides(&lanes);
        lanes_left && (known || self.outages.crashed.len() < self.scenario.layout.f)
    }

    /// Whether fewer than f other nodes are down or have not regained what they lost: any node may
    /// lose its memory then, however many have before.
    pub(crate) fn others_are_whole(&self, node: usize) -> bool {
        let mut furthest = self.outages.furthest.clone();
        for node in 0..self.nodes.len() {
            self.look_furthest(node, &mut furthest);
        }
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        others
            .filter(|other| self.nodes[*other].standing == Standing::Present)
            .filter(|other| !self.is_whole(*other, &furthest))
            .count()
            < self.scenario.layout.f
    }

    /// How far the replicas of a node are: those of one kind execute one log.
    fn look_furthest(&self, node: usize, furthest: &mut BTreeMap<u8, u64>) {
        self.each_replica(node, |kind, executed| {
            let known = furthest.entry(kind).or_default();
            *known = executed.max(*known);
        });
    }

    fn each_replica(&self, node: usize, mut tell: impl FnMut(u8, u64)) {
        for (address, instance) in self.nodes[node].instances() {
            let status = instance.status();
            if status.log_end.is_some() {
                tell(address.kind, status.executed.unwrap_or_default().0);
            }
        }
    }

    /// Whether a node is up, none of its roles waits to take part again, and its replicas are as
    /// far as any ever was.
    fn is_whole(&self, node: usize, furthest: &BTreeMap<u8, u64>) -> bool {
        if self.nodes[node].host.is_none() {
            return false;
        }
        let mut whole = !self.nodes[node].disk.is_failing();
        for (_, instance) in self.nodes[node].instances() {
            whole &= instance.status().remembers != Some(false);
        }
        self.each_replica(node, |kind, executed| {
            whole &= furthest.get(&kind).is_none_or(|it| executed >= *it);
        });
        whole
    }

    pub(crate) fn crash(&mut self, node: usize, lasts: Micros, blackout: bool) {
        if self.may_crash(node, blackout) {
            self.report.crashes += 1;
            self.trace.note(self.heap.now(), node, "crash", 0, || {
                format!("back in {lasts} us")
            });
            self.go_down(node, lasts, Disk::crash);
        }
    }

    /// The node's process ends, and its disk in this way.
    fn go_down(&mut self, node: usize, lasts: Micros, end_of_disk: fn(&mut Disk)) {
        self.end_process(node, end_of_disk);
        self.outages.crashed.insert(node);
        let in_turn = self.knobs.in_turn && self.outages.crashed.len() > self.scenario.layout.f;
        self.report.crashes_in_turn += u64::from(in_turn);
        if !self.stays_down() && !self.is_lost(node) {
            let life = self.nodes[node].life;
            self.heap.plan(
                self.now() + lasts,
                Event::Fault(Fault::Restart { node, life }),
            );
        }
    }

    /// The process of a node ends, and its disk in this way.
    pub(crate) fn end_process(&mut self, node: usize, end_of_disk: fn(&mut Disk)) {
        let mut furthest = std::mem::take(&mut self.outages.furthest);
        self.look_furthest(node, &mut furthest);
        self.outages.furthest = furthest;
        self.collect_figures(node);
        let id = self.nodes[node].id;
        self.oracles
            .iter_mut()
            .for_each(|oracle| oracle.on_crash(id));
        let lanes: Vec<ClientId> = self.nodes[node].lanes().collect();
        for lane in lanes {
            self.workload.lane_down(lane, &mut self.report);
        }
        end_of_disk(&mut self.nodes[node].disk);
        self.nodes[node].die();
    }

    /// The disk of a node fails soon, which the node must survive no better than a crash.
    fn break_disk(&mut self, lasts: Micros) {
        let Some(node) = self
            .random_victim()
            .filter(|node| self.may_crash(*node, false))
        else {
            return;
        };
        let trouble = match self.random.below(5) {
            0 | 1 => Trouble::Sync,
            2 | 3 => Trouble::After(self.random.below(40)),
            _ => Trouble::Full,
        };
        self.outages.crashed.insert(node);
        self.nodes[node].disk.order(trouble);
        self.trace.note(self.heap.now(), node, "break", lasts, || {
            format!("{trouble:?} for {lasts} us")
        });
        self.heap
            .plan(self.now() + lasts, Event::Fault(Fault::RepairDisk { node }));
    }

    /// Nodes whose disks have failed stop: after an error it is unknown what is on disk.
    pub(crate) fn stop_at_disk_errors(&mut self) {
        while let Some(node) = self
            .nodes
            .iter()
            .position(|node| node.disk.error().is_some())
        {
            let lasts = self.random.between(1000, 300_000);
            self.report.disk_errors += 1;
            let why = self.nodes[node].disk.error().unwrap_or_default();
            self.trace.note(self.heap.now(), node, "stop", lasts, || {
                format!("for {lasts} us: {why}")
            });
            self.go_down(node, lasts, Disk::stop);
        }
    }

    /// The disk fails while a node starts: it is tried again.
    pub(crate) fn cannot_start(&mut self, node: usize, why: &str) {
        let (lasts, life) = (self.random.between(1000, 300_000), self.nodes[node].life);
        self.report.disk_errors += 1;
        self.trace.note(self.heap.now(), node, "stop", lasts, || {
            format!("cannot start: {why}")
        });
        self.nodes[node].disk.stop();
        self.heap.plan(
            self.now() + lasts,
            Event::Fault(Fault::Restart { node, life }),
        );
    }

    pub(crate) fn restart(&mut self, node: usize) -> Step {
        if self.nodes[node].host.is_some() || self.is_lost(node) {
            return Ok(());
        }
        self.report.restarts += 1;
        // A machine that was off may come back with a clock further ahead, never behind.
        self.nodes[node].clock.ahead += self.random.between(0, self.knobs.clock_ahead / 10);
        self.network.connect(node, self.now());
        self.boot(node)
    }

    fn pause(&mut self, lasts: Micros) {
        let Some(node) = self.random_node().filter(|node| !self.nodes[*node].paused) else {
            return;
        };
        self.nodes[node].paused = true;
        self.report.pauses += 1;
        self.trace.note(self.heap.now(), node, "pause", lasts, || {
            format!("for {lasts} us")
        });
        self.heap
            .plan(self.now() + lasts, Event::Fault(Fault::Resume { node }));
    }

    pub(crate) fn resume(&mut self, node: usize) {
        if std::mem::take(&mut self.nodes[node].paused) {
            self.trace
                .note(self.heap.now(), node, "resume", 0, String::new);
            self.rouse(node, self.now());
        }
    }

    /// A node that leads, in half of the cases, or else any that is up.
    pub(crate) fn random_leader_or_node(&mut self) -> Option<usize> {
        let leaders: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.leads(*node))
            .collect();
        let turn = self.random.below(2 * leaders.len().max(1) as u64) as usize;
        leaders.get(turn).copied().or_else(|| self.random_node())
    }

    /// A node is to lead nothing for this long. All may be at once.
    fn drain_one(&mut self, lasts: Micros) {
        let Some(node) = self.random_leader_or_node() else {
            return;
        };
        let life = self.nodes[node].life;
        self.report.drains += 1;
        self.drain(node, true);
        self.heap.plan(
            self.now() + lasts,
            Event::Fault(Fault::Undrain { node, life }),
        );
    }

    pub(crate) fn drain(&mut self, node: usize, drains: bool) {
        if std::mem::replace(&mut self.nodes[node].drains, drains) == drains {
            return;
        }
        self.trace
            .note(self.heap.now(), node, "drain", u64::from(drains), || {
                format!("{drains}")
            });
        self.rouse(node, self.now());
    }

    fn part(&mut self, lasts: Micros) {
        let shape = self.network.partition(&mut self.random);
        self.outages.partitions += 1;
        self.report.partitions += 1;
        let turn = self.outages.partitions;
        self.trace
            .note(self.heap.now(), 0, "part", turn, || shape.clone());
        self.heap
            .plan(self.now() + lasts, Event::Fault(Fault::Rejoin { turn }));
    }

    fn cut(&mut self, lasts: Micros) {
        let (turn, text) = self.network.cut(&mut self.random);
        self.report.cuts += 1;
        self.trace
            .note(self.heap.now(), 0, "cut", turn, || text.clone());
        self.heap
            .plan(self.now() + lasts, Event::Fault(Fault::Splice { turn }));
    }

    /// Parts a leader, with at most f nodes of each role, from the rest: what it goes on to propose
    /// gets votes that lose.
    fn strand(&mut self, lasts: Micros) {
        let leaders: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.leads(*node))
            .collect();
        let turn = self.random.below(leaders.len().max(1) as u64) as usize;
        let Some(leader) = leaders.get(turn).copied().or_else(|| self.random_node()) else {
            return;
        };
        let mut stranded = vec![false; self.nodes.len()];
        stranded[leader] = true;
        for kind in self.description().kinds {
            let places = self.nodes_with(|name| name == *kind);
            let most = self.random.below(self.scenario.layout.f as u64 + 1) as usize;
            let is_few =
                |stranded: &[bool]| places.iter().filter(|place| stranded[**place]).count() < most;
            for _ in 0..most {
                let place = places.get(self.random.below(places.len().max(1) as u64) as usize);
                if is_few(&stranded) {
                    place.into_iter().for_each(|place| stranded[*place] = true);
                }
            }
        }
        let turn = self
            .network
            .sever(|from, to| stranded[from] != stranded[to]);
        self.report.cuts += 1;
        self.trace
            .note(self.heap.now(), leader, "strand", turn, || {
                format!("{stranded:?}")
            });
        self.heap
            .plan(self.now() + lasts, Event::Fault(Fault::Return { turn }));
    }

    pub(crate) fn leads(&self, node: usize) -> bool {
        let mut leads = false;
        for (_, instance) in self.nodes[node].instances() {
            leads |= instance.status().leads.is_some_and(|leads| leads.own);
        }
        leads
    }

    /// The nodes of one role do not reach each other for a little while.
    fn keep_peers_apart(&mut self) {
        let kinds = self.description().kinds;
        let kind = self.random.below(2 * kinds.len() as u64) as usize;
        let kind = kinds.get(kind).copied().unwrap_or("replica");
        let peers = self.nodes_with(|name| name == kind);
        let lasts = self.random.between(50_000, 1_500_000);
        let turn = self
            .network
            .sever(|from, to| peers.contains(&from) && peers.contains(&to));
        self.trace.note(self.heap.now(), 0, "apart", turn, || {
            format!("{kind} {peers:?} for {lasts} us")
        });
        self.heap
            .plan(self.now() + lasts, Event::Fault(Fault::Splice { turn }));
    }

    fn meddle(&mut self, lasts: Micros) {
        let (turn, text) = self
            .network
            .meddling
            .begin(&mut self.random, self.nodes.len());
        self.report.meddlings += 1;
        self.trace
            .note(self.heap.now(), 0, "meddle", turn, || text.clone());
        self.heap
            .plan(self.now() + lasts, Event::Fault(Fault::LetBe { turn }));
    }

    fn slow_link(&mut self, lasts: Micros) {
        let nodes = self.nodes.len() as u64;
        let (from, to) = (
            self.random.below(nodes) as usize,
            self.random.below(nodes) as usize,
        );
        let extra = self.random.between(1000, 200_000);
        self.network.slow_down(from, to, extra);
        self.report.slow_links += 1;
        self.trace.note(self.heap.now(), from, "slow", extra, || {
            format!("to n{to} by {extra} us")
        });
        self.heap.plan(
            self.now() + lasts,
            Event::Fault(Fault::QuickLink { from, to }),
        );
    }

    /// Adds the figures of a node's roles to the report.
    pub(crate) fn collect_figures(&mut self, node: usize) {
        let metrics = self.description().metrics;
        let report = &mut self.report;
        report.refused_snapshots += core::mem::take(&mut self.nodes[node].disk.refused);
        for (address, instance) in self.nodes[node].instances() {
            let metrics = metrics[usize::from(address.kind)];
            for (name, value) in instance.status().figures(metrics) {
                report.figure(name, value);
            }
        }
    }
}
