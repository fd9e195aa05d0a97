//! An event loop with some of the roles of a node, and without input and output of its own.
//!
//! The main loop of the node has the log, the network and the applications. It passes a role loop
//! [`Input`], in order, and gets a [`Burst`] back: everything that the roles have asked for. Both
//! hold values, nothing is encoded but records.
//!
//! The fence is that of [`Node`]. A role loop counts its records itself; the main loop appends them
//! to the log, and reports up to which of them the log is on disk. So a message that depends on a
//! record is in a burst after that report and not before.

use super::{Node, World};
use crate::client::Reply;
use crate::id::{ClientId, Members};
use crate::layout::{Address, Layout, NodeId};
use crate::machine::Frozen;
use crate::membership::Membership;
use crate::protocol::Protocol;
use crate::role::Lsn;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a role loop receives.
pub enum Input<P: Protocol> {
    /// Messages for instances on it.
    Messages(Vec<(Members, P::Message)>),
    /// The log has all records up to this one on disk, in the role loop's own positions.
    Durable(Lsn),
    /// The snapshot with this stamp of this instance is on disk, or (false) has found no room.
    Snapshot(Address, (u64, bool)),
    /// Every instance that is not started is to start.
    Start,
    /// The instances are to persist again what they need of records without keys.
    Checkpoint,
    /// The membership has changed.
    Reconfigure(Box<Change<P>>),
    /// Drain starts or ends.
    Drain(bool),
}

/// Instances with their addresses.
pub type Instances<P> = Vec<(Address, <P as Protocol>::Instance)>;

/// A change of the membership.
pub struct Change<P: Protocol> {
    /// The new layout.
    pub layout: Arc<Layout>,
    /// The protocol's form of it.
    pub config: P::Config,
    /// This node.
    pub here: NodeId,
    /// The instances that come.
    pub new: Instances<P>,
}

/// What the roles of a role loop have asked for, in order.
pub struct Burst<P: Protocol> {
    /// Messages to instances elsewhere: the kind, the instances, the message.
    pub sends: Vec<(u8, Members, P::Message)>,
    /// Records to append, one after the other.
    pub records: Records,
    /// Snapshots to store.
    pub snapshots: Vec<(Address, u64, Box<dyn Frozen>)>,
    /// The membership that the log has led to.
    pub announced: Option<Membership>,
    /// Replies to applications.
    pub replies: Vec<(ClientId, Reply)>,
    /// The rare branches taken.
    pub reached: Vec<&'static str>,
    /// Its part of the checkpoint is among the records: the oldest record that it needs besides, if
    /// any, in its own positions.
    pub checkpointed: Option<Option<Lsn>>,
    /// How often drain has started or ended, and whether the cluster no longer needs the instances.
    pub drained: Option<(u64, bool)>,
}

/// Records with their authors.
#[derive(Default)]
pub struct Records {
    bytes: Vec<u8>,
    /// The author, the end of its bytes, and whether it is vital.
    ends: Vec<(Address, usize, bool)>,
}

impl Records {
    fn push(&mut self, from: Address, record: &[u8], vital: bool) {
        self.bytes.extend_from_slice(record);
        self.ends.push((from, self.bytes.len(), vital));
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// In order: the author, the bytes, whether it is vital.
    pub fn iter(&self) -> impl Iterator<Item = (Address, &[u8], bool)> {
        let mut start = 0;
        self.ends.iter().map(move |&(from, end, vital)| {
            let record = &self.bytes[start..end];
            start = end;
            (from, record, vital)
        })
    }
}

impl<P: Protocol> Default for Burst<P> {
    fn default() -> Self {
        Burst {
            sends: Vec::new(),
            records: Records::default(),
            snapshots: Vec::new(),
            announced: None,
            replies: Vec::new(),
            reached: Vec::new(),
            checkpointed: None,
            drained: None,
        }
    }
}

impl<P: Protocol> Burst<P> {
    /// The main loop appends its records. Returns the last of them, if there are any.
    pub fn append(&self, world: &mut impl World<P>) -> Option<Lsn> {
        let append = |(from, record, vital)| world.append(from, record, vital);
        self.records.iter().map(append).last()
    }

    /// The main loop, with the roles in `node`, does what else was asked for. Records come
    /// [before](Self::append).
    pub fn pass_on(self, node: &mut Node<P>, world: &mut impl World<P>) {
        for (kind, members, message) in self.sends {
            node.route_to((kind, members), message, world);
        }
        for (from, stamp, frozen) in self.snapshots {
            world.store_snapshot(from, stamp, frozen);
        }
        for (lane, reply) in self.replies {
            world.reply(lane, reply);
        }
        if let Some(membership) = self.announced {
            world.announce(membership);
        }
        for branch in self.reached {
            world.reached(branch);
        }
    }

    fn is_empty(&self) -> bool {
        let nothing_usual = self.sends.is_empty() && self.records.ends.is_empty();
        let nothing_stored = self.snapshots.is_empty() && self.checkpointed.is_none();
        nothing_usual
            && nothing_stored
            && self.replies.is_empty()
            && self.reached.is_empty()
            && self.announced.is_none()
            && self.drained.is_none()
    }
}

/// Reads the node's clock.
pub type Clock = Box<dyn Fn() -> Instant + Send>;

/// The surroundings of the roles: everything they ask for goes into a burst.
pub struct Port<P: Protocol> {
    clock: Clock,
    /// The position of the last record.
    appended: Lsn,
    durable: Lsn,
    burst: Burst<P>,
}

impl<P: Protocol> World<P> for Port<P> {
    fn send(&mut self, kind: u8, members: Members, message: P::Message) {
        self.burst.sends.push((kind, members, message));
    }

    fn append(&mut self, from: Address, record: &[u8], vital: bool) -> Lsn {
        self.burst.records.push(from, record, vital);
        self.appended.0 += 1;
        self.appended
    }

    fn durable(&self) -> Lsn {
        self.durable
    }

    fn clock(&self) -> Instant {
        (self.clock)()
    }

    fn store_snapshot(&mut self, from: Address, stamp: u64, frozen: Box<dyn Frozen>) {
        self.burst.snapshots.push((from, stamp, frozen));
    }

    fn announce(&mut self, membership: Membership) {
        self.burst.announced = Some(membership);
    }

    fn reply(&mut self, lane: ClientId, reply: Reply) {
        self.burst.replies.push((lane, reply));
    }

    fn reached(&mut self, branch: &'static str) {
        self.burst.reached.push(branch);
    }
}

/// See the top of this file.
pub struct RoleLoop<P: Protocol> {
    /// Its roles.
    pub node: Node<P>,
    /// Their surroundings.
    pub port: Port<P>,
    /// Messages may come before roles are started, as they do on the main loop: they are queued.
    is_started: bool,
    /// How often drain has started or ended.
    drains: u64,
    draining: bool,
    /// What it has reported of it.
    drained: Option<(u64, bool)>,
}

impl<P: Protocol> RoleLoop<P> {
    /// With these instances, which have recovered from a log up to `opened`.
    pub fn new(node: Node<P>, opened: Lsn, clock: Clock) -> Self {
        RoleLoop {
            node,
            port: Port {
                clock,
                appended: opened,
                durable: opened,
                burst: Burst::default(),
            },
            is_started: false,
            drains: 0,
            draining: false,
            drained: None,
        }
    }

    /// Calls the roles whose timers have expired, and all until no message is queued. Does nothing
    /// before they are started.
    pub fn run(&mut self, now: Instant) {
        let RoleLoop { node, port, .. } = self;
        if !self.is_started {
            return;
        }
        if node.next_timer().is_some_and(|timer| timer <= now) {
            node.fire_timers(now, port);
        }
        node.settle(now, port);
    }

    /// When [`run`](Self::run) has to be called, even if nothing has come.
    pub fn next_timer(&self) -> Option<Instant> {
        self.node.next_timer().filter(|_| self.is_started)
    }

    /// Takes in one input. Messages are queued: the driver [runs](Self::run) the roles next.
    pub fn take(&mut self, now: Instant, input: Input<P>) {
        let RoleLoop { node, port, .. } = self;
        match input {
            Input::Messages(messages) => {
                for (members, message) in messages {
                    node.deliver(members, message);
                }
            }
            Input::Durable(durable) => {
                port.durable = durable;
                node.on_durable(port);
            }
            Input::Snapshot(from, snapshot) => node.on_snapshot(from, snapshot, port),
            Input::Start => {
                self.is_started = true;
                node.start(now, port);
            }
            Input::Checkpoint => {
                let next = Lsn(port.appended.0 + 1);
                let needed = node.checkpoint(next, port);
                port.burst.checkpointed = Some((needed < next).then_some(needed));
            }
            Input::Reconfigure(change) => {
                let Change {
                    layout,
                    config,
                    here,
                    new,
                } = *change;
                node.reconfigure(now, (&layout, &config, here), port);
                for (address, instance) in new {
                    node.host(address, instance);
                }
                node.start(now, port);
                if self.draining {
                    // Roles that the membership has brought do not know yet.
                    node.drain(now, true, port);
                }
            }
            Input::Drain(drains) => {
                self.drains += 1;
                self.draining = drains;
                node.drain(now, drains, port);
            }
        }
    }

    /// What the roles have asked for since the last burst, if anything.
    pub fn burst(&mut self) -> Option<Burst<P>> {
        if self.drains > 0 {
            let drained = Some((self.drains, self.node.is_drained()));
            if self.drained != drained {
                self.drained = drained;
                self.port.burst.drained = drained;
            }
        }
        let is_empty = self.port.burst.is_empty();
        (!is_empty).then(|| core::mem::take(&mut self.port.burst))
    }
}
