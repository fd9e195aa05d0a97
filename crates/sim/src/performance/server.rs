//! A node whose work takes time: one processor, a queue of arrived messages, and the roles.

use super::disk::Disk;
use super::fleet::Addressed;
use super::{Costs, Service};
use crate::roles::{Effects, Outside, Roles, Simulated, Site, Start};
use crate::trace::mix;
use ionian_kernel::client::Request;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::Lsn;
use ionian_kernel::status::Leads;
use ionian_kernel::time::Instant;
use std::collections::VecDeque;

/// Nanoseconds since the start.
pub(super) type Nanos = u64;

/// What every clock shows at the start: some time in 2026, in microseconds.
const START_US: u64 = 1_767_225_600_000_000;

/// A node whose work takes time.
pub(super) struct Server {
    pub(super) id: NodeId,
    host: Box<dyn Roles>,
    /// How often it was started before.
    life: u64,
    /// Empty, unless it keeps records.
    disk: Disk,
    /// Represents clients' machines: takes no time, and serves every client as if it were the only
    /// one.
    pub(super) free: bool,
    /// Messages that have arrived but were not processed.
    pub(super) arrived: VecDeque<Addressed>,
    /// Cost of requests received from clients that was not charged yet, in microseconds.
    owed: f64,
    /// The processor is busy until then.
    busy_until: Nanos,
    /// The planned time of the next look for work.
    pub(super) looks_at: Option<Nanos>,
    /// Processor time since the start of the measurement.
    pub(super) spent: Nanos,
}

/// A node in memory, or with a disk that takes no time: there is nothing to wait for.
fn surroundings<'a>(disk: &'a mut Disk, now: Nanos, effects: &'a mut Effects) -> Outside<'a> {
    Outside {
        disk,
        now: Instant(START_US + now / 1000),
        // No process is stopped.
        clock: Instant::ZERO,
        effects,
    }
}

/// The roles of a node that was started this often before, from what its disk holds.
fn boot(
    protocol: Simulated,
    (layout, node): (&Layout, NodeId),
    life: u64,
    disk: &Disk,
    service: &dyn Service,
) -> Box<dyn Roles> {
    let keeps_records = disk.keeps();
    let mut host = protocol.create(&Site {
        layout,
        node,
        keeps_records,
        birth: &|address, create| {
            create(Birth {
                address,
                node,
                // No process draws what an earlier one has drawn, such as the name of a session.
                seed: mix(u64::from(address.kind), u64::from(address.index)) ^ life << 32,
                amnesiac: false,
                predecessors: 0,
                keeps_records,
                machine: &|| service.machine(),
                guard: None,
                workers: None,
            });
        },
    });
    host.recover(disk.past()).expect("it was stored here");
    host
}

/// Costs of a burst besides its messages, and its limit.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) wake_us: f64,
    pub(super) burst_us: f64,
}

impl Server {
    /// The node `id` of a deployment.
    pub(super) fn new(
        protocol: Simulated,
        id: NodeId,
        layout: &Layout,
        client_kinds: &[u8],
        service: &dyn Service,
        has_disk: bool,
    ) -> Self {
        let free = layout
            .on_node(id)
            .iter()
            .all(|address| client_kinds.contains(&address.kind));
        let disk = Disk::new(has_disk);
        Server {
            id,
            host: boot(protocol, (layout, id), 0, &disk, service),
            life: 0,
            disk,
            free,
            arrived: VecDeque::new(),
            owed: 0.0,
            busy_until: 0,
            looks_at: None,
            spent: 0,
        }
    }

    /// Creates its roles anew, from what its disk holds.
    pub(super) fn boot(&mut self, protocol: Simulated, layout: &Layout, service: &dyn Service) {
        self.life += 1;
        self.host = boot(protocol, (layout, self.id), self.life, &self.disk, service);
        self.arrived.clear();
        (self.owed, self.looks_at) = (0.0, None);
    }

    pub(super) fn start(&mut self, now: Nanos, effects: &mut Effects) {
        self.busy_until = now;
        let outside = &mut surroundings(&mut self.disk, now, effects);
        self.host.start(Start::default(), outside);
        self.host.on_durable(Lsn(0), outside);
    }

    /// Passes a request to a lane of this node immediately; it costs this many microseconds.
    pub(super) fn submit(&mut self, lane: ClientId, request: Request, us: f64) {
        self.owed += us;
        self.host.submit(lane, request);
    }

    /// The time of the next work, if any is known.
    pub(super) fn next_look(&self, now: Nanos) -> Option<Nanos> {
        if !self.arrived.is_empty() || self.host.is_busy() {
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
        costs: &dyn Costs,
        terms: Terms,
        effects: &mut Effects,
    ) -> f64 {
        let was_asleep = now > self.busy_until;
        let mut us = std::mem::take(&mut self.owed);
        loop {
            // Messages between roles of this node come first, so that a burst leaves none of them
            // unprocessed.
            if !self.host.is_busy()
                && us < terms.burst_us
                && let Some((members, message)) = self.arrived.pop_front()
            {
                us += costs.carrying(&*message);
                self.host.deliver(members, message);
            }
            let mut outside = surroundings(&mut self.disk, now, effects);
            if let Some((to, message)) = self.host.front() {
                us += costs.of(to, message);
                self.host.run_one(&mut outside);
                us += costs.executing(to);
                if !self.free {
                    continue;
                }
            }
            self.host.fire_timers(&mut outside);
            self.host.end_burst(&mut outside);
            self.host.on_durable(Lsn(0), &mut outside);
            for (from, stamp) in self.disk.take_stored() {
                let outside = &mut surroundings(&mut self.disk, now, effects);
                self.host.on_snapshot(from, (stamp, true), outside);
            }
            if !self.host.is_busy() {
                break;
            }
        }
        if was_asleep {
            us += terms.wake_us;
        }
        us
    }

    /// What each of its leaders leads.
    pub(super) fn leads(&self) -> impl Iterator<Item = Leads> {
        let instances = self.host.instances().into_iter();
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
