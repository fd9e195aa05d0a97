//! The roles of a node without the type of their protocol: everything that the event loop asks of
//! them. One implementation serves every protocol, so that the rest of the driver is compiled once.

use super::busy::Busy;
use super::event_log::EventLog;
use super::instances::{InstanceFactory, recover_instances};
use super::io::NodeIo;
use super::loop_roles::{LoopRoles, Order};
use super::loops::Loops;
use super::startup::StartupWatch;
use crate::error::NodeError;
use crate::status::LogStatus;
use crate::storage::log::Past;
use crate::transport::frame::Encoded;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::{Address, Layout, LayoutError, NodeId};
use ionian_kernel::machine::Frozen;
use ionian_kernel::membership::Membership;
use ionian_kernel::node::homes::Hub;
use ionian_kernel::node::role_loop::{Burst, Input};
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::{AnyProtocol, Protocol, any};
use ionian_kernel::role::Lsn;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::{LogSlot, Recording};
use ionian_kernel::wire::WireError;
use ionian_protocols::registry::{Work, with_protocol};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// A protocol that nodes can run.
#[derive(Clone, Copy)]
pub struct Runnable {
    protocol: &'static dyn AnyProtocol,
    recover: Recover,
}

type Recover =
    fn(&Layout, InstanceFactory, Past, &StartupWatch) -> Result<Box<dyn Roles>, NodeError>;

impl Runnable {
    /// The protocol `P`.
    pub const fn of<P: Protocol>() -> Self {
        Runnable {
            protocol: any::<P>(),
            recover: recover::<P>,
        }
    }

    /// The protocol of this name in deployment files. `None` when there is none.
    pub fn named(name: &str) -> Option<Self> {
        struct Make;
        impl Work for Make {
            type Output = Runnable;
            fn run<P: Protocol>(self) -> Runnable {
                Runnable::of::<P>()
            }
        }
        with_protocol(name, Make)
    }

    /// The protocol without its type.
    pub fn protocol(self) -> &'static dyn AnyProtocol {
        self.protocol
    }

    /// Creates the roles of a node, and gives each what it stored before.
    pub(crate) fn recover(
        self,
        layout: &Layout,
        factory: InstanceFactory,
        past: Past,
        watch: &StartupWatch,
    ) -> Result<Box<dyn Roles>, NodeError> {
        (self.recover)(layout, factory, past, watch)
    }
}

fn recover<P: Protocol>(
    layout: &Layout,
    factory: InstanceFactory,
    past: Past,
    watch: &StartupWatch,
) -> Result<Box<dyn Roles>, NodeError> {
    let config = P::configure(layout.clone()).map_err(|error| NodeError::Settings(error.0))?;
    let node = recover_instances::<P>(layout, &config, &factory, past, watch)?;
    Ok(Box::new(NodeRoles {
        node,
        loops: None,
        busy: Busy::default(),
        factory,
    }))
}

/// See the top of this file. The main loop calls these functions; what concerns roles of role loops
/// is passed on to them.
pub(crate) trait Roles {
    /// Moves some of the roles to role loops. Call it before they are started.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    fn spread(&mut self, loops: usize, io: &NodeIo, wake: &Arc<Notify>) -> std::io::Result<()>;

    /// Notes messages for traces from now on.
    fn record(&mut self, now: Instant, recording: Recording);

    /// Starts the roles.
    fn start(&mut self, now: Instant, io: &mut NodeIo);

    /// Queues an application's request for a client lane of this node.
    fn submit(&mut self, lane: ClientId, request: Request);

    /// Queues a message from another node.
    ///
    /// # Errors
    /// If the bytes are not a message of the protocol.
    fn receive(&mut self, members: Members, message: Encoded<'_>) -> Result<(), WireError>;

    /// Several messages were [received](Self::receive): passes them on.
    fn received(&mut self);

    /// What a reader has to wait for before it receives more, if it must wait.
    fn must_wait(&self) -> Option<Rc<Notify>>;

    /// Takes in what role loops have asked for.
    fn take_in_bursts(&mut self, io: &mut NodeIo);

    /// Calls the roles whose timers have expired.
    fn fire_timers(&mut self, now: Instant, io: &mut NodeIo);

    /// When the next timer of a role expires.
    fn next_timer(&self) -> Option<Instant>;

    /// See [`Node::held`].
    fn held(&self, durable: Lsn) -> Vec<(Address, Option<LogSlot>)>;

    /// More records are on disk: sends what waited for that.
    fn on_durable(&mut self, io: &mut NodeIo);

    /// A snapshot of a role is on disk, or (not `stored`) has found no room.
    fn on_snapshot(&mut self, from: Address, snapshot: (u64, bool), io: &mut NodeIo);

    /// Handles everything that is queued and what follows from it.
    fn settle(&mut self, now: Instant, io: &mut NodeIo);

    /// Writes a checkpoint, after which the log begins at `next` or before. Does nothing while role
    /// loops write the one before; returns whether it does.
    fn checkpoint(&mut self, next: Lsn, io: &mut NodeIo) -> bool;

    /// Has the roles follow a membership: those that stay learn it, new ones are created and
    /// started, the others are retired.
    ///
    /// # Errors
    /// If the layout is not a deployment of the protocol.
    fn reconfigure(
        &mut self,
        layout: &Layout,
        here: NodeId,
        io: &mut NodeIo,
    ) -> Result<(), LayoutError>;

    /// The roles drain from now on, or end that.
    fn drain(&mut self, drains: bool, io: &mut NodeIo);

    /// As [`drain`](Self::drain), for roles that a membership has brought to the main loop.
    fn drain_new(&mut self, io: &mut NodeIo);

    /// Whether the cluster no longer needs the roles, which drain.
    fn is_drained(&self) -> bool;

    /// The number of messages that were ignored because they name epochs that are not known, and of
    /// those that were not sent because it was too late.
    fn lost_messages(&self) -> [u64; 2];

    /// How much time each role has spent on messages, in microseconds; none if there are role
    /// loops.
    fn busy_us(&self) -> Vec<u64>;

    /// Writes to the log of events what has changed.
    fn log_changes(&self, now: Instant, events: &mut EventLog, log: &dyn Fn() -> LogStatus);

    /// The roles of the main loop.
    fn of_main_loop(&mut self) -> &mut dyn LoopRoles;

    /// Gives every role loop something to do.
    fn order(&mut self, order: &mut dyn FnMut() -> Order);

    /// Ends the role loops.
    fn end_loops(&mut self);
}

/// The roles of a node of the protocol `P`.
struct NodeRoles<P: Protocol> {
    /// The roles of the main loop.
    node: Node<P>,
    loops: Option<Loops<P>>,
    busy: Busy,
    factory: InstanceFactory,
}

/// The surroundings of the roles of the main loop.
struct Outside<'a, P: Protocol> {
    io: &'a mut NodeIo,
    loops: Option<&'a mut Loops<P>>,
}

impl<P: Protocol> NodeRoles<P> {
    /// The roles of the main loop, and their surroundings.
    fn split<'a>(&'a mut self, io: &'a mut NodeIo) -> (&'a mut Node<P>, Outside<'a, P>) {
        let loops = self.loops.as_mut();
        (&mut self.node, Outside { io, loops })
    }

    fn take_in_burst(&mut self, (place, burst): (usize, Burst<P>), io: &mut NodeIo) {
        let (node, mut outside) = self.split(io);
        let last = burst.append(&mut outside);
        if let Some(loops) = &mut outside.loops {
            if let Some(needed) = loops.homes.appended(place, &burst, last) {
                outside.io.log.checkpoint_appended(needed);
            }
            if let Some(drained) = burst.drained {
                loops.has_drained(place, drained);
            }
        }
        burst.pass_on(node, &mut outside);
    }

    /// Reports to role loops which of their records are on disk.
    fn report_durable(&mut self, io: &NodeIo) {
        if let Some(loops) = &mut self.loops {
            loops.report_durable(io.log.durable());
        }
    }
}

impl<P: Protocol> Roles for NodeRoles<P> {
    fn spread(&mut self, loops: usize, io: &NodeIo, wake: &Arc<Notify>) -> std::io::Result<()> {
        let opened = io.log.durable();
        self.loops = Some(Loops::start(&mut self.node, loops, opened, io.clock, wake)?);
        Ok(())
    }

    fn record(&mut self, now: Instant, recording: Recording) {
        self.node.record(now, recording);
    }

    fn start(&mut self, now: Instant, io: &mut NodeIo) {
        let (node, mut outside) = self.split(io);
        node.start(now, &mut outside);
        if let Some(loops) = &mut self.loops {
            loops.give_all(|| Input::Start);
        }
    }

    fn submit(&mut self, lane: ClientId, request: Request) {
        self.node.submit(lane, request);
    }

    fn receive(&mut self, members: Members, message: Encoded<'_>) -> Result<(), WireError> {
        let size = message.as_slice().len();
        let message = message.decode()?;
        let rest = match &mut self.loops {
            None => Some((members, message)),
            Some(loops) => loops.pass(members, message, size),
        };
        if let Some((members, message)) = rest {
            self.node.deliver(members, message);
        }
        Ok(())
    }

    fn received(&mut self) {
        if let Some(loops) = &mut self.loops {
            loops.hand_over();
        }
    }

    fn must_wait(&self) -> Option<Rc<Notify>> {
        self.loops.as_ref()?.must_wait()
    }

    fn take_in_bursts(&mut self, io: &mut NodeIo) {
        while let Some((place, burst)) = self.loops.as_mut().and_then(Loops::next_burst) {
            self.take_in_burst((place, *burst), io);
        }
        // A log in memory is durable at once.
        self.report_durable(io);
        if let Some(loops) = &self.loops {
            loops.offer_room();
        }
    }

    fn fire_timers(&mut self, now: Instant, io: &mut NodeIo) {
        if self.node.next_timer().is_some_and(|timer| timer <= now) {
            let (node, mut outside) = self.split(io);
            node.fire_timers(now, &mut outside);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.node.next_timer()
    }

    fn held(&self, durable: Lsn) -> Vec<(Address, Option<LogSlot>)> {
        self.node.held(durable).collect()
    }

    fn on_durable(&mut self, io: &mut NodeIo) {
        let (node, mut outside) = self.split(io);
        node.on_durable(&mut outside);
        self.report_durable(io);
    }

    fn on_snapshot(&mut self, from: Address, snapshot: (u64, bool), io: &mut NodeIo) {
        let loops = self.loops.as_mut();
        match loops.and_then(|loops| Some((loops.home(from)?, loops))) {
            Some((place, loops)) => loops.give(place, Input::Snapshot(from, snapshot)),
            None if self.node.hosts(from) => {
                let (node, mut outside) = self.split(io);
                node.on_snapshot(from, snapshot, &mut outside);
            }
            None => io.log.role_left(from),
        }
    }

    fn settle(&mut self, now: Instant, io: &mut NodeIo) {
        let NodeRoles {
            node, loops, busy, ..
        } = self;
        let loops = loops.as_mut();
        busy.settle(now, node, &mut Outside { io, loops });
        self.received();
    }

    fn checkpoint(&mut self, next: Lsn, io: &mut NodeIo) -> bool {
        let loops = self.loops.as_ref();
        if loops.is_some_and(|loops| loops.homes.is_in_checkpoint()) {
            return false;
        }
        let (node, mut outside) = self.split(io);
        let needed = node.checkpoint(next, &mut outside);
        match &mut self.loops {
            None => io.log.checkpoint_appended(needed),
            Some(loops) => loops.begin_checkpoint(needed),
        }
        true
    }

    fn reconfigure(
        &mut self,
        layout: &Layout,
        here: NodeId,
        io: &mut NodeIo,
    ) -> Result<(), LayoutError> {
        let config = P::configure(layout.clone())?;
        let is_here = |address| {
            let loops = self.loops.as_ref();
            self.node.hosts(address) || loops.is_some_and(|it| it.home(address).is_some())
        };
        let mut new = self.factory.missing::<P>(is_here, layout, &config, false);
        let now = io.now;
        let (node, mut outside) = self.split(io);
        node.reconfigure(now, (layout, &config, here), &mut outside);
        if let Some(loops) = &mut outside.loops {
            new = loops.reconfigure((layout, &config, here), new);
        }
        for (address, instance) in new {
            node.host(address, instance);
        }
        node.start(now, &mut outside);
        Ok(())
    }

    fn drain(&mut self, drains: bool, io: &mut NodeIo) {
        let now = io.now;
        let (node, mut outside) = self.split(io);
        node.drain(now, drains, &mut outside);
        if let Some(loops) = &mut self.loops {
            loops.drain(drains);
        }
    }

    fn drain_new(&mut self, io: &mut NodeIo) {
        let now = io.now;
        let (node, mut outside) = self.split(io);
        node.drain(now, true, &mut outside);
    }

    fn is_drained(&self) -> bool {
        let mut loops = self.loops.iter();
        self.node.is_drained() && loops.all(Loops::are_drained)
    }

    fn lost_messages(&self) -> [u64; 2] {
        [self.node.ignored(), self.node.overdue()]
    }

    fn busy_us(&self) -> Vec<u64> {
        match self.loops {
            None => {
                let instances = self.node.instances();
                instances.map(|(it, _)| self.busy.of(it)).collect()
            }
            Some(_) => Vec::new(),
        }
    }

    fn log_changes(&self, now: Instant, events: &mut EventLog, log: &dyn Fn() -> LogStatus) {
        events.log_changes(now, P::KINDS, &|| self.node.statuses(), log);
    }

    fn of_main_loop(&mut self) -> &mut dyn LoopRoles {
        &mut self.node
    }

    fn order(&mut self, order: &mut dyn FnMut() -> Order) {
        if let Some(loops) = &mut self.loops {
            loops.order(order);
        }
    }

    fn end_loops(&mut self) {
        self.loops = None;
    }
}

impl<P: Protocol> World<P> for Outside<'_, P> {
    fn send(&mut self, kind: u8, members: Members, message: P::Message) {
        let rest = match &mut self.loops {
            None => Some((members, message)),
            Some(loops) => loops.pass(members, message, 0),
        };
        if let Some((members, message)) = rest {
            self.io.send(kind, members, &message);
        }
    }

    fn append(&mut self, from: Address, record: &[u8], vital: bool) -> Lsn {
        self.io.counts.records += 1;
        self.io.log.append(from, record, vital)
    }

    fn durable(&self) -> Lsn {
        self.io.log.durable()
    }

    fn clock(&self) -> Instant {
        self.io.clock.now()
    }

    fn store_snapshot(&mut self, from: Address, stamp: u64, frozen: Box<dyn Frozen>) {
        self.io.log.store_snapshot(from, stamp, frozen);
    }

    fn announce(&mut self, membership: Membership) {
        self.io.announced = Some(membership);
    }

    fn reply(&mut self, lane: ClientId, reply: Reply) {
        self.io.deliver_reply(lane, reply);
    }
}
