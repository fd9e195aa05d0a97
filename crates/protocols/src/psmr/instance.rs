//! An instance of any role, as a driver handles it: one of MultiPaxos in each group, and what its
//! kind does for all of them.

use super::config::Config;
use super::groups::{Groups, Member, Sends};
use super::markers::{Markers, is_allowed};
use super::merge::Merge;
use super::message::Message;
use super::router::Router;
use super::vacant::Vacant;
use crate::multipaxos::{self, MultiPaxos, kind};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::Slot;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::protocol::{self, Birth, Protocol, Routed};
use ionian_kernel::random::Random;
use ionian_kernel::role::{Cover, Lsn, Outbox, Picture};
use ionian_kernel::status::{Leads, Metric, Status, each};
use ionian_kernel::time::{Instant as Time, earliest};
use ionian_kernel::wire::{Reader, WireError};

/// See the top of this file.
pub struct Instance {
    kind: u8,
    keeps_records: bool,
    pub(super) groups: Groups,
    duty: Duty,
}

/// What an instance does for its groups together.
enum Duty {
    /// Nothing.
    None,
    Client(Box<Router>),
    Leader(Markers),
    Replica(Box<Merge>),
}

impl Instance {
    /// The instance of this birth.
    pub(super) fn new(config: &Arc<Config>, birth: Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let kind = birth.address.kind;
        let member = |group: usize| {
            if !config.is_of(birth.address, group) {
                return None;
            }
            let own = Birth {
                seed: random.any(),
                machine: match group == config.count() {
                    true => birth.machine,
                    false => &|| Box::new(Vacant),
                },
                workers: None,
                ..birth
            };
            let instance = MultiPaxos::instantiate(&config.groups()[group], own);
            let reads_apart = |lane: multipaxos::client::ClientLane| lane.logging_reads();
            let instance = match instance {
                multipaxos::Instance::Client(lane) if group == config.count() => {
                    multipaxos::Instance::Client(reads_apart(lane))
                }
                other => other,
            };
            Some(Member::new(instance, birth.keeps_records))
        };
        let mut groups = Groups::new(config, member);
        let duty = match kind {
            kind::Client => Duty::Client(Box::new(Router::new(config, &birth))),
            kind::Leader => Duty::Leader(Markers::new(config)),
            kind::Replica => {
                let mut merge = Merge::new(config.clone(), &birth);
                merge.found(&mut groups);
                Duty::Replica(Box::new(merge))
            }
            _ => Duty::None,
        };
        Instance {
            kind,
            keeps_records: birth.keeps_records,
            groups,
            duty,
        }
    }

    /// Waits for members that are at work.
    fn settle(&mut self) {
        if let Duty::Replica(merge) = &mut self.duty {
            merge.delivery.finish(&mut self.groups);
        }
    }

    /// Calls the members of all groups.
    fn call_all(
        &mut self,
        out: &mut Sends,
        act: impl Fn(usize, &mut multipaxos::Instance, &mut Outbox<multipaxos::Envelope>),
    ) {
        let here = self.groups.each().map(|(group, _)| group);
        for group in here.collect::<Vec<_>>() {
            self.groups.call(group, out, |instance, outbox| {
                act(group, instance, outbox);
            });
        }
    }
}

impl protocol::Instance for Instance {
    type Message = Message;
    type Envelope = Routed<Message>;
    type Config = Arc<Config>;

    fn on_message(&mut self, now: Time, message: Message, out: &mut Sends) {
        let Instance {
            kind, groups, duty, ..
        } = self;
        match (message, duty) {
            (Message::InGroup { group, message }, duty) => {
                let group = usize::from(group);
                let known = group <= groups.all() && protocol::Message::kind(&message) == *kind;
                if !known || !is_allowed(&message) {
                    return;
                }
                match duty {
                    Duty::Replica(merge) => merge.on_message(now, (group, message), groups, out),
                    // A peer's mistake, too: it has no part in the group.
                    _ if groups.get(group).is_none() => {}
                    _ => groups.call(group, out, |it, outbox| it.on_message(now, message, outbox)),
                }
            }
            (Message::Submit { request }, Duty::Client(router)) => {
                router.submit(now, request, groups, out);
            }
            (Message::Announce { until }, Duty::Leader(markers)) => {
                markers.on_announce(now, until, groups, out);
            }
            (Message::WantMarker { group, until }, Duty::Leader(markers)) => {
                markers.on_want_marker(now, (group.into(), until), groups, out);
            }
            (Message::WantSkip { group, end, count }, Duty::Leader(markers)) => {
                markers.on_want_skip(now, group.into(), (end, count), groups, out);
            }
            (Message::WantBarrier { number }, Duty::Leader(markers)) => {
                markers.on_want_barrier(now, number, groups, out);
            }
            (Message::NeedState { from, executed }, Duty::Replica(merge)) => {
                merge.on_need_state(now, (from, executed), groups, out);
            }
            // One for another kind of role: a peer's mistake.
            _ => {}
        }
    }

    fn recover(&mut self, reader: &mut Reader<'_>) -> Result<Option<u64>, WireError> {
        let (group, number) = self.groups.records.read_head(reader)?;
        if self.groups.get(group).is_none() {
            return Err(WireError::OutOfRange {
                what: "group of the instance",
                value: group as u64,
            });
        }
        let bytes = reader.remaining();
        let key = self.groups.member(group).instance.recover(reader)?;
        let bytes = bytes - reader.remaining();
        Ok(self.groups.records.recovered(group, key, number, bytes))
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        match &mut self.duty {
            Duty::Replica(merge) => merge.restore(stamp, snapshot, &mut self.groups),
            _ => Err(RestoreError(
                "a role of this kind stores no snapshots".into(),
            )),
        }
    }

    fn on_reconfigure(&mut self, now: Time, config: Arc<Config>, out: &mut Sends) {
        self.settle();
        self.call_all(out, |group, instance, outbox| {
            instance.on_reconfigure(now, config.groups()[group].clone(), outbox);
        });
    }

    fn on_start(&mut self, now: Time, out: &mut Sends) {
        if let Duty::Replica(merge) = &mut self.duty {
            merge.start(&mut self.groups);
        }
        self.call_all(out, |_, instance, outbox| instance.on_start(now, outbox));
    }

    fn on_timer(&mut self, now: Time, out: &mut Sends) {
        match &mut self.duty {
            Duty::Replica(merge) => merge.on_timer(now, &mut self.groups, out),
            Duty::Leader(markers) => {
                self.groups.on_timer(now, out);
                markers.on_timer(now, &mut self.groups, out);
            }
            _ => self.groups.on_timer(now, out),
        }
    }

    fn next_timer(&self) -> Option<Time> {
        let own = match &self.duty {
            Duty::Replica(merge) => merge.next_timer(),
            Duty::Leader(markers) => markers.next_timer(&self.groups),
            _ => None,
        };
        earliest(own, self.groups.next_timer())
    }

    fn on_burst_end(&mut self, now: Time, out: &mut Sends) {
        let Instance { groups, duty, .. } = self;
        match duty {
            Duty::Replica(merge) => merge.on_burst_end(now, groups, out),
            Duty::Leader(markers) => {
                groups.on_burst_end(now, out);
                markers.on_burst_end(now, groups, out);
            }
            _ => groups.on_burst_end(now, out),
        }
    }

    /// No role of MultiPaxos asks.
    fn on_durable(&mut self, _: Lsn, _: &mut Sends) {}

    fn on_snapshot(&mut self, stamp: u64, stored: bool, out: &mut Sends) {
        if let Duty::Replica(merge) = &mut self.duty {
            merge.on_snapshot((stamp, stored), &mut self.groups, out);
        }
    }

    fn freeze(&mut self, now: Time, cover: Cover) -> Picture {
        match &mut self.duty {
            Duty::Replica(merge) => merge.freeze(now, cover, &mut self.groups),
            _ => Picture::Never,
        }
    }

    fn checkpoint(&self, out: &mut Sends) {
        for (group, instance) in self.groups.each() {
            let mut outbox = Outbox::new(self.keeps_records);
            instance.checkpoint(&mut outbox);
            self.groups.records.checkpointed(group, &mut outbox, out);
        }
    }

    fn on_drain(&mut self, now: Time, drains: bool, out: &mut Sends) {
        self.settle();
        self.call_all(out, |_, instance, outbox| {
            instance.on_drain(now, drains, outbox);
        });
    }

    fn on_retire(&mut self, now: Time, out: &mut Sends) {
        self.settle();
        self.call_all(out, |_, instance, outbox| instance.on_retire(now, outbox));
    }

    fn is_drained(&self) -> bool {
        self.groups
            .each()
            .all(|(_, instance)| instance.is_drained())
    }

    fn invariants(&self) {
        self.groups
            .each()
            .for_each(|(_, instance)| instance.invariants());
    }

    fn status(&self) -> Status {
        let metrics: Vec<Metric> = each(multipaxos::METRICS[usize::from(self.kind)])
            .copied()
            .collect();
        let all: Vec<Status> = self.groups.each().map(|(_, it)| it.status()).collect();
        let mut status = Status::of_all(all.iter().cloned(), &metrics);
        let sum = |field: fn(&Status) -> Option<Slot>| {
            let slots = all.iter().filter_map(field).map(|slot| slot.0);
            slots.reduce(|one, other| one + other).map(Slot)
        };
        status.executed = sum(|it| it.executed);
        status.log_end = sum(|it| it.log_end);
        status.stored = sum(|it| it.stored);
        status.snapshots_installed = all.last().and_then(|it| it.snapshots_installed);
        let sessions = all.iter().filter_map(|it| it.has_session);
        status.has_session = sessions.reduce(|one, other| one && other);
        // No group is one instance's own: the first that it leads counts as that.
        let leads = || all.iter().filter_map(|it| it.leads);
        let led: u64 = leads().map(Leads::parts).sum();
        status.leads = leads().next().map(|_| Leads {
            own: led > 0,
            others: led.saturating_sub(1),
            elections: leads().map(|it| it.elections).sum(),
        });
        if let Duty::Replica(merge) = &self.duty {
            let own = status.metrics.len() - merge.work().len();
            status.metrics.truncate(own);
            status.add(merge.work());
        }
        status
    }
}
