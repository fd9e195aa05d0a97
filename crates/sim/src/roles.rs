//! The roles of a simulated node without the type of their protocol: everything that the simulator
//! asks of them. One implementation serves every protocol, so that the simulator is compiled once.

mod typed;

use crate::disk::Past;
use crate::oracle::{Oracle, OwnInvariants};
use bytes::Bytes;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::level::Level;
use ionian_kernel::machine::Frozen;
use ionian_kernel::membership::Membership;
use ionian_kernel::protocol::{AnyProtocol, Birth, Description, Instance, Message, Protocol, any};
use ionian_kernel::role::Lsn;
use ionian_kernel::status::Status;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::Event;
use ionian_kernel::wire::{Wire, WireError, decode_all, encode_all};
use ionian_protocols::registry::{Work, with_protocol};
use std::any::Any;
use std::fmt::Debug;
use std::rc::Rc;
use typed::NodeRoles;

/// Makes a protocol one that can be simulated.
struct Make;

impl Work for Make {
    type Output = Simulated;

    fn run<P: Protocol>(self) -> Simulated {
        Simulated::of::<P>()
    }
}

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

    /// The protocol of the registry with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        with_protocol(name, Make)
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
    /// Whether ordinary records are stored.
    pub(crate) keeps_records: bool,
    /// Passes on what the instance with this address is created with.
    pub(crate) birth: &'a dyn Fn(Address, &mut Create<'_>),
}

/// Takes what an instance is created with.
pub(crate) type Create<'a> = dyn FnMut(Birth<'_>) + 'a;

/// How roles start.
#[derive(Default)]
pub(crate) struct Start {
    /// Whether they note everything for traces.
    pub(crate) records: bool,
    /// The number of event loops that they are distributed over, if there are several, and the seed
    /// of what each loop does when.
    pub(crate) loops: Option<(usize, u64)>,
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
pub trait AnyMessage: Any + Debug {
    /// See [`Message::name`].
    fn name(&self) -> &'static str;

    /// The lowest level whose nodes understand the message.
    fn since(&self) -> Level;

    /// The encoded message.
    fn encode(&self) -> Vec<u8>;

    /// Decodes an encoded message of the same protocol, and encodes it again.
    ///
    /// # Errors
    /// If the bytes are no message of the protocol.
    fn encode_again(&self, bytes: &Bytes) -> Result<Vec<u8>, WireError>;
}

impl<M: Message + Any> AnyMessage for M {
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
    pub(crate) sends: Vec<(u8, Members, Rc<dyn AnyMessage>)>,
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

/// Where the roles of a node store their records and snapshots.
pub(crate) trait Log {
    /// Appends a record, and returns its position.
    fn append(&mut self, from: Address, record: &[u8]) -> Lsn;

    /// The position of the next record.
    fn next(&self) -> Lsn;

    /// The position up to which everything is on disk.
    fn durable(&self) -> Lsn;

    /// Begins to store a snapshot of a role, in place of its last one.
    fn store_snapshot(&mut self, from: Address, stamp: u64, snapshot: Bytes);
}

/// The surroundings of a node's roles while they are called.
pub(crate) struct Outside<'a> {
    pub(crate) disk: &'a mut dyn Log,
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

    /// Starts the roles.
    fn start(&mut self, start: Start, outside: &mut Outside<'_>);

    /// Hands an application's request to a client lane of the node.
    fn submit(&mut self, lane: ClientId, request: Request);

    /// Takes in that the log is on disk as far as the disk says; the roles know of everything up to
    /// `known`.
    fn on_durable(&mut self, known: Lsn, outside: &mut Outside<'_>);

    /// A snapshot of an instance is on disk, or (with false) has found no room.
    fn on_snapshot(&mut self, from: Address, snapshot: (u64, bool), outside: &mut Outside<'_>);

    /// The roles drain from now on, or end that.
    fn drain(&mut self, drains: bool, outside: &mut Outside<'_>);

    /// Takes in some of what role loops have handed over. Returns the checkpoint of which that was
    /// the last part, if it was.
    fn take_in(&mut self, outside: &mut Outside<'_>) -> Option<Checkpoint>;

    /// Writes a checkpoint, unless role loops write one. `None` if role loops have yet to write
    /// their part.
    fn checkpoint(&mut self, outside: &mut Outside<'_>) -> Option<Checkpoint>;

    /// Queues a message of another node.
    fn deliver(&mut self, members: Members, message: Rc<dyn AnyMessage>);

    /// Queues an encoded message of another node.
    ///
    /// # Errors
    /// If the bytes are no message of the protocol.
    fn receive(&mut self, members: Members, bytes: &Bytes) -> Result<(), String>;

    /// The next message of the main loop and its receiver.
    fn front(&self) -> Option<(Address, &dyn AnyMessage)>;

    /// Passes the next message to its receiver.
    fn run_one(&mut self, outside: &mut Outside<'_>);

    /// Calls the roles of the main loop whose timers have expired.
    fn fire_timers(&mut self, outside: &mut Outside<'_>);

    /// Ends the burst of the main loop.
    fn end_burst(&mut self, outside: &mut Outside<'_>);

    /// Role loops pass up to `most` messages each, and fire timers.
    fn run_loops(&mut self, most: usize, outside: &Outside<'_>, watch: &mut Watcher<'_>);

    /// The number of messages that were ignored because they name an epoch that is not known.
    fn ignored(&self) -> u64;

    /// The roles follow a change of the membership: those that stay learn it, new ones are created
    /// and started, the others are retired.
    fn reconfigure(&mut self, site: &Site<'_>, outside: &mut Outside<'_>);

    /// Whether there is work to do at once.
    fn is_busy(&self) -> bool;

    /// The earliest time at which a role needs a call of its timer.
    fn next_timer(&self) -> Option<Instant>;

    /// An instance of the main loop.
    fn instance(&self, address: Address) -> Option<&dyn AnyInstance>;

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
