//! The roles of a simulated node without the type of their protocol: everything that the simulator
//! asks of them. One implementation serves every protocol, so that the simulator is compiled once.

mod typed;

use crate::disk::{Disk, Past};
use crate::node::{Boot, Burst};
use crate::oracle::{Oracle, OwnInvariants};
use bytes::Bytes;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::level::Level;
use ionian_kernel::machine::Frozen;
use ionian_kernel::membership::Membership;
use ionian_kernel::protocol::{AnyProtocol, Description, Instance, Message, Protocol, any};
use ionian_kernel::role::Lsn;
use ionian_kernel::status::Status;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::Event;
use ionian_kernel::wire::{Wire, WireError, decode_all, encode_all};
use std::any::Any;
use std::fmt::Debug;
use typed::NodeRoles;

/// A protocol that can be simulated.
#[derive(Clone, Copy)]
pub struct Simulated {
    protocol: &'static dyn AnyProtocol,
    create: fn(&Site<'_>) -> Box<dyn Roles>,
    invariants: fn(&Layout) -> Box<dyn Oracle>,
}

impl Simulated {
    /// The protocol `P`.
    pub const fn of<P: Protocol>() -> Self {
        Simulated {
            protocol: any::<P>(),
            create: NodeRoles::<P>::create,
            invariants: OwnInvariants::<P>::watch,
        }
    }

    /// The protocol without its type.
    pub fn protocol(self) -> &'static dyn AnyProtocol {
        self.protocol
    }

    /// The names and tables of the protocol.
    pub fn description(self) -> &'static Description {
        self.protocol.description()
    }

    /// The name of an instance, for people: `acceptor1`.
    pub(crate) fn name(self, address: Address) -> String {
        let kind = self.description().kinds[usize::from(address.kind)];
        format!("{kind}{}", address.index)
    }

    /// Creates the roles of a node, which have yet to [recover](Roles::recover) and to
    /// [start](Roles::start).
    pub(crate) fn create(self, site: &Site<'_>) -> Box<dyn Roles> {
        (self.create)(site)
    }

    /// The protocol's own invariants, for a run that begins with this layout.
    pub(crate) fn invariants(self, layout: &Layout) -> Box<dyn Oracle> {
        (self.invariants)(layout)
    }
}

/// The protocol's form of a layout of a run.
pub(crate) fn configured<P: Protocol>(layout: &Layout) -> P::Config {
    P::configure(layout.clone()).expect("every layout of a run was checked")
}

/// Where roles are created, and with what.
pub(crate) struct Site<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) node: NodeId,
    /// The number of crashes of the node.
    pub(crate) life: u32,
    /// Whether an earlier process of the node has taken part in the cluster.
    pub(crate) has_past: bool,
    pub(crate) boot: &'a Boot<'a>,
}

/// A role instance without the types of its protocol: an oracle of one protocol casts it to
/// [`Any`], and that to the instance.
pub trait AnyInstance: Any {
    /// What the instance reports.
    fn status(&self) -> Status;
}

impl<I: Instance + Any> AnyInstance for I {
    fn status(&self) -> Status {
        Instance::status(self)
    }
}

/// A message without the type of its protocol.
pub(crate) trait AnyMessage: Debug {
    /// See [`Message::name`].
    fn name(&self) -> &'static str;

    /// The lowest level whose nodes understand the message.
    fn since(&self) -> Level;

    /// The encoded message.
    fn encode(&self) -> Vec<u8>;

    /// Decodes an encoded message of the same protocol, and encodes it again.
    fn encode_again(&self, bytes: &Bytes) -> Result<Vec<u8>, WireError>;
}

impl<M: Message> AnyMessage for M {
    fn name(&self) -> &'static str {
        Message::name(self)
    }

    fn since(&self) -> Level {
        Wire::since(self)
    }

    fn encode(&self) -> Vec<u8> {
        encode_all(self)
    }

    fn encode_again(&self, bytes: &Bytes) -> Result<Vec<u8>, WireError> {
        decode_all::<M>(bytes).map(|message| encode_all(&message))
    }
}

/// The effects of calls of a node's roles.
#[derive(Default)]
pub(crate) struct Effects {
    /// The messages that leave the node: the kind of their destinations, the destinations, the
    /// message.
    pub(crate) sends: Vec<(u8, Members, Box<dyn AnyMessage>)>,
    pub(crate) replies: Vec<(ClientId, Reply)>,
    /// The number of records that were appended.
    pub(crate) records: u64,
    pub(crate) record_bytes: u64,
    /// The number of snapshots that were started.
    pub(crate) snapshots: u64,
    /// The membership that the log has decided.
    pub(crate) announced: Option<Membership>,
    /// The rare branches taken.
    pub(crate) reached: Vec<&'static str>,
}

/// The surroundings of a node's roles while they are called.
pub(crate) struct Outside<'a> {
    pub(crate) disk: &'a mut Disk,
    /// The time that the roles receive.
    pub(crate) now: Instant,
    /// What the node's clock shows: later, if input has come since the clock was read.
    pub(crate) clock: Instant,
    pub(crate) effects: &'a mut Effects,
}

/// A checkpoint that is written: when everything up to the first position is on disk, everything
/// before the second is needed no longer.
pub(crate) type Checkpoint = (Lsn, Lsn);

/// Observes each role that received a message, or whose snapshot is on disk.
pub(crate) type Watcher<'a> = dyn FnMut(Address, &dyn AnyInstance) + 'a;

/// What the simulator asks of the roles of one node, on its main loop and on its role loops.
pub(crate) trait Roles {
    /// Gives each role what the disk holds of it.
    fn recover(&mut self, past: Past) -> Result<(), String>;

    /// Starts the roles, some of them on role loops if the layout has several event loops.
    fn start(&mut self, site: &Site<'_>, outside: &mut Outside<'_>);

    /// Hands an application's request to a client lane of the node.
    fn submit(&mut self, lane: ClientId, request: Request);

    /// Takes in that the log is on disk as far as the disk says; the roles know of everything up to
    /// `known`. Role loops run before that.
    fn on_durable(
        &mut self,
        known: Lsn,
        burst: &Burst,
        outside: &mut Outside<'_>,
        watch: &mut Watcher<'_>,
    );

    /// A snapshot of an instance is on disk, or (with false) has found no room.
    fn on_snapshot(
        &mut self,
        from: Address,
        snapshot: (u64, bool),
        outside: &mut Outside<'_>,
        watch: &mut Watcher<'_>,
    );

    /// The roles drain from now on, or end that.
    fn drain(&mut self, drains: bool, outside: &mut Outside<'_>);

    /// Takes in some of what role loops have handed over. Returns the checkpoint of which that was
    /// the last part, if it was.
    fn take_in(&mut self, outside: &mut Outside<'_>) -> Option<Checkpoint>;

    /// Writes a checkpoint, unless role loops write one. `None` if role loops have yet to write
    /// their part.
    fn checkpoint(&mut self, outside: &mut Outside<'_>) -> Option<Checkpoint>;

    /// Queues a message of another node.
    ///
    /// # Errors
    /// If the bytes are no message of the protocol.
    fn deliver(&mut self, members: Members, bytes: &Bytes) -> Result<(), String>;

    /// Passes queued messages to roles and fires their timers, on the main loop and then on role
    /// loops.
    ///
    /// # Errors
    /// If a message was ignored because it names an epoch that is not known.
    fn run(
        &mut self,
        burst: &Burst,
        outside: &mut Outside<'_>,
        watch: &mut Watcher<'_>,
    ) -> Result<(), String>;

    /// The roles follow a change of the membership: those that stay learn it, new ones are created
    /// and started, the others are retired.
    fn reconfigure(&mut self, site: &Site<'_>, outside: &mut Outside<'_>);

    /// Whether there is work to do at once.
    fn is_busy(&self) -> bool;

    /// The earliest time at which a role needs a call of its timer.
    fn next_timer(&self) -> Option<Instant>;

    /// The instances, in an order that does not depend on their loops if there are several: what is
    /// looked at first may matter to invariants.
    fn instances(&self) -> Vec<(Address, &dyn AnyInstance)>;

    /// Asserts the invariants of every instance.
    fn invariants(&self);

    /// What was noted for traces, on each event loop in order.
    fn noted(&self) -> Box<dyn Iterator<Item = &Event> + '_>;
}

impl Outside<'_> {
    /// The checkpoint that ends with the last record, after which the log is `needed` from there.
    fn written(&self, needed: Lsn) -> Checkpoint {
        (Lsn(self.disk.next().0 - 1), needed)
    }

    fn append(&mut self, from: Address, record: &[u8]) -> Lsn {
        self.effects.records += 1;
        self.effects.record_bytes += record.len() as u64;
        self.disk.append(from, record)
    }

    fn store_snapshot(&mut self, from: Address, stamp: u64, mut frozen: Box<dyn Frozen>) {
        let mut snapshot = Vec::new();
        while frozen.write_some(&mut snapshot) {}
        self.effects.records += 1;
        self.effects.record_bytes += snapshot.len() as u64;
        self.effects.snapshots += 1;
        self.disk.store_snapshot(from, stamp, Bytes::from(snapshot));
    }
}
