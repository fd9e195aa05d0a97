//! The groups of an instance: in each it is an instance of MultiPaxos.

use super::config::Config;
use super::message::Message;
use super::records::{OfGroup, Records};
use crate::multipaxos;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ionian_kernel::adapted::pour_part;
use ionian_kernel::id::{Id, Set};
use ionian_kernel::protocol::{Instance as _, Routed};
use ionian_kernel::role::Outbox;
use ionian_kernel::time::{Instant, earliest};

/// What the instances of P-SMR ask for.
pub(super) type Sends = Outbox<Routed<Message>>;

/// An instance in one group.
pub(super) struct Member {
    pub(super) instance: multipaxos::Instance,
    pub(super) outbox: Outbox<multipaxos::Envelope>,
}

impl Member {
    pub(super) fn new(instance: multipaxos::Instance, keeps_records: bool) -> Box<Member> {
        Box::new(Member {
            instance,
            outbox: Outbox::new(keeps_records),
        })
    }
}

/// See the top of this file.
pub(super) struct Groups {
    /// The member of each group; none while a worker has it, or in a group of other instances.
    members: Vec<Option<Box<Member>>>,
    pub(super) records: Records,
    /// The groups, as bits, whose members were called since the burst began.
    touched: u64,
}

impl Groups {
    pub(super) fn new(config: &Config, member: impl FnMut(usize) -> Option<Box<Member>>) -> Self {
        let count = config.groups().len();
        Groups {
            members: (0..count).map(member).collect(),
            records: Records::new(count),
            touched: 0,
        }
    }

    /// The number of g_all, and how many others there are.
    pub(super) fn all(&self) -> usize {
        self.members.len() - 1
    }

    /// The member of a group, if it is here.
    pub(super) fn get(&self, group: usize) -> Option<&Member> {
        self.members.get(group)?.as_deref()
    }

    /// The member of a group, which is here.
    pub(super) fn member(&mut self, group: usize) -> &mut Member {
        self.touched |= 1 << group;
        self.members[group].as_mut().expect("it is here")
    }

    /// Takes a member out, for a worker.
    pub(super) fn lend(&mut self, group: usize) -> Box<Member> {
        self.touched |= 1 << group;
        self.members[group].take().expect("it is here")
    }

    /// Puts a member back.
    pub(super) fn take_back(&mut self, group: usize, member: Box<Member>) {
        self.members[group] = Some(member);
    }

    /// Those that are here, with their numbers.
    pub(super) fn each(&self) -> impl Iterator<Item = (usize, &multipaxos::Instance)> {
        let here = self.members.iter().enumerate();
        here.filter_map(|(group, member)| Some((group, &member.as_ref()?.instance)))
    }

    /// Calls the member of a group, and passes on what it asks for.
    pub(super) fn call(
        &mut self,
        group: usize,
        out: &mut Sends,
        act: impl FnOnce(&mut multipaxos::Instance, &mut Outbox<multipaxos::Envelope>),
    ) {
        let member = self.member(group);
        act(&mut member.instance, &mut member.outbox);
        self.pour(group, out);
    }

    /// Passes on what the member of a group asks for.
    pub(super) fn pour(&mut self, group: usize, out: &mut Sends) {
        let member = self.members[group].as_mut().expect("it is here");
        if member.outbox.is_empty() {
            return;
        }
        let records = &mut OfGroup {
            records: &mut self.records,
            group,
        };
        let within = group as u8;
        pour_part(
            &mut member.outbox,
            out,
            records,
            |envelope| match envelope.into() {
                Routed::Application { lane, reply } => Routed::Application { lane, reply },
                Routed::Roles {
                    kind,
                    members,
                    message,
                } => Routed::Roles {
                    kind,
                    members,
                    message: Message::InGroup {
                        group: within,
                        message,
                    },
                },
            },
        );
    }

    /// Has those do what is due whose time has come.
    pub(super) fn on_timer(&mut self, now: Instant, out: &mut Sends) {
        for group in 0..self.members.len() {
            let due = |member: &Member| member.instance.next_timer().is_some_and(|at| at <= now);
            if self.get(group).is_some_and(due) {
                self.call(group, out, |instance, outbox| {
                    instance.on_timer(now, outbox)
                });
            }
        }
    }

    /// When one of them next wants to be called.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let timers = self.each().map(|(_, instance)| instance.next_timer());
        timers.fold(None, earliest)
    }

    /// The burst ends for those that were called.
    pub(super) fn on_burst_end(&mut self, now: Instant, out: &mut Sends) {
        let touched = core::mem::take(&mut self.touched);
        for group in (0..self.members.len()).filter(|group| touched & 1 << group != 0) {
            self.call(group, out, |instance, outbox| {
                instance.on_burst_end(now, outbox)
            });
        }
        self.touched = 0;
    }
}

/// Sends a message to instances of a kind, as soon as what was persisted so far is on disk.
pub(super) fn send<I: Id>(out: &mut Sends, kind: u8, to: Set<I>, message: Message) {
    out.send(Routed::Roles {
        kind,
        members: to.members(),
        message,
    });
}
