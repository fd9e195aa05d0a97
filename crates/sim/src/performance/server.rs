//! A node whose work takes time: one processor, a queue of arrived messages, and the roles.

use super::disk::Disk;
use super::{Costs, Service};
use crate::trace::mix;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::machine::Frozen;
use ionian_kernel::membership::Membership;
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::{Birth, Instance, Protocol};
use ionian_kernel::role::Lsn;
use ionian_kernel::status::Leads;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Reader;
use std::collections::VecDeque;

/// Nanoseconds since the start.
pub(super) type Nanos = u64;

/// What every clock shows at the start: some time in 2026, in microseconds.
const START_US: u64 = 1_767_225_600_000_000;

/// A node whose work takes time.
pub(super) struct Server<P: Protocol> {
    pub(super) id: NodeId,
    host: Node<P>,
    /// How often it was started before.
    life: u64,
    /// Empty, unless it keeps records.
    disk: Disk,
    /// Represents clients' machines: takes no time, and serves every client as if it were the only
    /// one.
    pub(super) free: bool,
    /// Messages that have arrived but were not processed.
    pub(super) arrived: VecDeque<(Members, P::Message)>,
    /// Cost of requests received from clients that was not charged yet, in microseconds.
    owed: f64,
    /// The processor is busy until then.
    busy_until: Nanos,
    /// The planned time of the next look for work.
    pub(super) looks_at: Option<Nanos>,
    /// Processor time since the start of the measurement.
    pub(super) spent: Nanos,
}

/// The result of a burst.
pub(super) struct Outcome<M> {
    pub(super) sends: Vec<(u8, Members, M)>,
    pub(super) replies: Vec<(ClientId, Reply)>,
    /// That of the node that does something.
    disk: Disk,
}

impl<M> Outcome<M> {
    pub(super) fn new() -> Self {
        Outcome {
            sends: Vec::new(),
            replies: Vec::new(),
            disk: Disk::default(),
        }
    }
}

/// A deployment in memory, or with disks that take no time: there is nothing to wait for.
impl<P: Protocol> World<P> for Outcome<P::Message> {
    fn send(&mut self, kind: u8, members: Members, message: P::Message) {
        self.sends.push((kind, members, message));
    }

    fn append(&mut self, from: Address, record: &[u8], _: bool) -> Lsn {
        self.disk.append(from, record)
    }

    fn durable(&self) -> Lsn {
        self.disk.end()
    }

    fn clock(&self) -> Instant {
        // No process is stopped.
        Instant::ZERO
    }

    fn store_snapshot(&mut self, from: Address, stamp: u64, frozen: Box<dyn Frozen>) {
        self.disk.store(from, stamp, frozen);
    }

    fn announce(&mut self, _: Membership) {
        unreachable!("no client of a measurement changes the membership");
    }

    fn reply(&mut self, lane: ClientId, reply: Reply) {
        self.replies.push((lane, reply));
    }
}

/// Costs of a burst besides its messages, and its limit.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) wake_us: f64,
    pub(super) burst_us: f64,
}

impl<P: Protocol> Server<P> {
    /// The node `id` of a deployment.
    pub(super) fn new(
        id: NodeId,
        layout: &Layout,
        client_kinds: &[u8],
        config: &P::Config,
        service: &impl Service,
        has_disk: bool,
    ) -> Self {
        let free = layout
            .on_node(id)
            .iter()
            .all(|address| client_kinds.contains(&address.kind));
        let mut server = Server {
            id,
            host: Node::new(config, has_disk),
            life: 0,
            disk: Disk::new(has_disk),
            free,
            arrived: VecDeque::new(),
            owed: 0.0,
            busy_until: 0,
            looks_at: None,
            spent: 0,
        };
        server.boot(layout, config, service);
        server
    }

    /// Makes its roles anew, from what its disk holds.
    pub(super) fn boot(&mut self, layout: &Layout, config: &P::Config, service: &impl Service) {
        let (id, keeps_records) = (self.id, self.disk.keeps());
        let mut host = Node::new(config, keeps_records);
        for address in &layout.on_node(id) {
            let birth = Birth {
                address: *address,
                node: id,
                // No process draws what an earlier one has drawn, such as the name of a session.
                seed: mix(u64::from(address.kind), u64::from(address.index)) ^ self.life << 32,
                amnesiac: false,
                keeps_records,
                machine: &|| service.machine(),
                guard: None,
                workers: None,
            };
            host.host(*address, P::instantiate(config, birth));
        }
        for (from, (stamp, snapshot)) in self.disk.snapshots() {
            let restored = host.restore(*from, *stamp, snapshot);
            restored.expect("it was stored here");
        }
        for (lsn, (from, record)) in self.disk.records() {
            let recovered = host.recover(*from, lsn, &mut Reader::new(record));
            recovered.expect("it was stored here");
        }
        self.host = host;
        self.life += 1;
        self.arrived.clear();
        (self.owed, self.looks_at) = (0.0, None);
    }

    pub(super) fn start(&mut self, now: Nanos, outcome: &mut Outcome<P::Message>) {
        self.busy_until = now;
        std::mem::swap(&mut self.disk, &mut outcome.disk);
        self.host.start(Instant(START_US + now / 1000), outcome);
        self.host.on_durable(outcome);
        std::mem::swap(&mut self.disk, &mut outcome.disk);
    }

    /// Passes a request to a lane of this node immediately; it costs this many microseconds.
    pub(super) fn submit(&mut self, lane: ClientId, request: Request, us: f64) {
        self.owed += us;
        self.host.submit(lane, request);
    }

    /// The time of the next work, if any is known.
    pub(super) fn next_look(&self, now: Nanos) -> Option<Nanos> {
        if !self.arrived.is_empty() || self.host.queued() > 0 {
            return Some(self.busy_until.max(now));
        }
        let timer = self.host.next_timer()?;
        Some(
            timer
                .0
                .saturating_sub(START_US)
                .saturating_mul(1000)
                .max(self.busy_until)
                .max(now),
        )
    }

    /// Processes the messages that have arrived; returns the cost in microseconds without that of
    /// sending.
    pub(super) fn burst(
        &mut self,
        now: Nanos,
        costs: &impl Costs<P>,
        terms: Terms,
        outcome: &mut Outcome<P::Message>,
    ) -> f64 {
        let was_asleep = now > self.busy_until;
        let local = Instant(START_US + now / 1000);
        let mut us = std::mem::take(&mut self.owed);
        std::mem::swap(&mut self.disk, &mut outcome.disk);
        loop {
            // Messages between roles of this node come first, so that a burst leaves none of them
            // unprocessed.
            if self.host.queued() == 0
                && us < terms.burst_us
                && let Some((members, message)) = self.arrived.pop_front()
            {
                us += costs.carrying(&message);
                self.host.deliver(members, message);
            }
            if let Some((to, message)) = self.host.front() {
                us += costs.of(to, message);
                self.host.run(local, 1, outcome);
                us += costs.executing(to);
                if !self.free {
                    continue;
                }
            }
            if self.host.next_timer().is_some_and(|timer| timer <= local) {
                self.host.fire_timers(local, outcome);
            }
            self.host.end_burst(local, outcome);
            self.host.on_durable(outcome);
            for (from, stamp) in outcome.disk.take_stored() {
                self.host.on_snapshot(from, (stamp, true), outcome);
            }
            if self.host.queued() == 0 {
                break;
            }
        }
        std::mem::swap(&mut self.disk, &mut outcome.disk);
        if was_asleep {
            us += terms.wake_us;
        }
        us
    }

    /// What each of its leaders leads.
    pub(super) fn leads(&self) -> impl Iterator<Item = Leads> {
        let instances = self.host.instances();
        instances.filter_map(|(_, instance)| instance.status().leads)
    }

    /// Does nothing until then. A look that is planned comes too early and must be planned again.
    pub(super) fn stall(&mut self, until: Nanos) {
        self.busy_until = self.busy_until.max(until);
        self.looks_at = None;
    }

    /// The end of a burst that starts now and costs this much.
    pub(super) fn finish(&mut self, now: Nanos, us: f64) -> Nanos {
        if self.free {
            return now;
        }
        let spent = (us * 1000.0) as Nanos;
        self.spent += spent;
        self.busy_until = now + spent;
        self.busy_until
    }
}
