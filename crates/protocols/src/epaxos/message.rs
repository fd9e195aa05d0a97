//! What several messages of EPaxos carry.

use super::instance::{Ballot, Deps, InstanceId, Space, checked};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use ionian_kernel::id::{AcceptorId, AcceptorSet, Epoch, ReplicaId};
use ionian_kernel::machine::Footprint;
use ionian_kernel::trace::{self, CommandId};
use ionian_kernel::wire::{Reader, Wire, WireError, encode_varint};
use ionian_kernel::{wire_enum, wire_struct};
use ionian_replication::batch::Value;

/// Commands with what acceptors need to know of them: only the leader computes what they touch. A
/// clone shares both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload(Arc<Commands>);

/// See [`Payload`].
#[derive(Debug, PartialEq, Eq)]
pub struct Commands {
    /// The commands, and the time of the leader that proposes them.
    pub value: Value,
    /// What they read and write.
    pub footprint: Footprint,
}

impl Payload {
    /// These commands, which touch this.
    pub fn new(value: Value, footprint: Footprint) -> Self {
        Payload(Arc::new(Commands { value, footprint }))
    }

    /// How many bytes it holds.
    pub fn byte_len(&self) -> usize {
        let keys = self.footprint.reads.len() + self.footprint.writes.len();
        self.value.batch.byte_len() + keys * size_of::<u64>()
    }

    /// Whether it conflicts with everything.
    pub fn is_barrier(&self) -> bool {
        self.footprint.everything
    }
}

impl Deref for Payload {
    type Target = Commands;
    fn deref(&self) -> &Commands {
        &self.0
    }
}

impl trace::Commands for Payload {
    fn each_id(&self, show: &mut dyn FnMut(CommandId)) {
        self.value.each_id(show);
    }
}

impl AsRef<Footprint> for Payload {
    fn as_ref(&self) -> &Footprint {
        &self.footprint
    }
}

impl Wire for Payload {
    fn encode(&self, out: &mut Vec<u8>) {
        self.value.encode(out);
        put_footprint(&self.footprint, out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let value = Wire::decode(reader)?;
        Ok(Payload::new(value, read_footprint(reader)?))
    }
}

fn put_footprint(footprint: &Footprint, out: &mut Vec<u8>) {
    footprint.everything.encode(out);
    footprint.reads.encode(out);
    footprint.writes.encode(out);
}

fn read_footprint(reader: &mut Reader<'_>) -> Result<Footprint, WireError> {
    Ok(Footprint {
        everything: Wire::decode(reader)?,
        timed: false,
        reads: Wire::decode(reader)?,
        writes: Wire::decode(reader)?,
    })
}

/// What a query touches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Touched(pub Footprint);

impl Wire for Touched {
    fn encode(&self, out: &mut Vec<u8>) {
        put_footprint(&self.0, out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        read_footprint(reader).map(Touched)
    }
}

/// What an instance may be decided to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Nothing: a recovery found that nothing can have been decided.
    Noop {},
    /// Commands, and what must be executed before them.
    Command {
        /// The commands.
        payload: Payload,
        /// What must be executed before.
        deps: Deps,
    },
}

wire_enum! { Choice { 0 => Noop {}, 1 => Command { payload, deps } } }

static NOTHING: Deps = Deps::NONE;

impl Choice {
    /// How many bytes its commands and dependencies take.
    pub fn byte_len(&self) -> usize {
        match self {
            Choice::Noop {} => 0,
            Choice::Command { payload, deps } => payload.byte_len() + deps.byte_len(),
        }
    }

    /// What must be executed before; nothing before a noop.
    pub fn deps(&self) -> &Deps {
        match self {
            Choice::Noop {} => &NOTHING,
            Choice::Command { deps, .. } => deps,
        }
    }

    /// What it is decided to be, for one that has the payload.
    pub fn brief(&self) -> Learned {
        match self {
            Choice::Noop {} => Learned::Noop {},
            Choice::Command { deps, .. } => Learned::Deps { deps: deps.clone() },
        }
    }
}

impl trace::Commands for Choice {
    fn each_id(&self, show: &mut dyn FnMut(CommandId)) {
        match self {
            Choice::Noop {} => {}
            Choice::Command { payload, .. } => payload.each_id(show),
        }
    }
}

/// A decision as it is passed on: without the payload to those that have it.
#[derive(Clone, Debug, PartialEq)]
pub enum Learned {
    /// Nothing.
    Noop {},
    /// The payload that the receiver pre-accepted, after these.
    Deps {
        /// What must be executed before.
        deps: Deps,
    },
    /// All of it.
    Whole {
        /// The commands.
        payload: Payload,
        /// What must be executed before.
        deps: Deps,
    },
}

wire_enum! { Learned {
    0 => Noop {},
    1 => Deps { deps },
    2 => Whole { payload, deps },
} }

impl From<Choice> for Learned {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Noop {} => Learned::Noop {},
            Choice::Command { payload, deps } => Learned::Whole { payload, deps },
        }
    }
}

/// A vote: the ballot, and what was voted for.
#[derive(Clone, Debug, PartialEq)]
pub struct Vote {
    /// The ballot.
    pub ballot: Ballot,
    /// What was voted for.
    pub choice: Choice,
}

wire_struct! { Vote { ballot, choice } }

/// What an acceptor answered to a PreAccept, and keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct PreAccepted {
    /// The commands.
    pub payload: Payload,
    /// What it had recorded that conflicts with them, and what the leader had.
    pub deps: Deps,
    /// The fast quorum.
    pub fast: AcceptorSet,
}

wire_struct! { PreAccepted { payload, deps, fast } }

/// What an acceptor knows of an instance that is recovered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// What it is decided to be.
    pub decided: Option<Choice>,
    /// The vote of the highest ballot that it gave.
    pub vote: Option<Vote>,
    /// What it answered to the leader.
    pub pre_accepted: Option<PreAccepted>,
}

wire_struct! { Evidence { decided, vote, pre_accepted } }

/// What one acceptor hands to another that has lost its memory, of one instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Copy {
    /// It is decided.
    Decided {
        /// The instance.
        id: InstanceId,
        /// What it is decided to be.
        choice: Choice,
    },
    /// It is not, as far as the sender knows.
    Open {
        /// The instance.
        id: InstanceId,
        /// The command, if the sender has it.
        payload: Option<Payload>,
    },
}

wire_enum! { Copy { 0 => Decided { id, choice }, 1 => Open { id, payload } } }

/// The life of an acceptor. The first is 1; each loss of its memory begins another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The acceptor.
    pub acceptor: AcceptorId,
    /// Its life.
    pub life: u32,
}

wire_struct! { Life { acceptor, life } }

/// The lives of the acceptors that are known to have lost their memory; all others are in the
/// first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// In the order in which they became known.
    known: Vec<Life>,
}

wire_struct! { Lives { known } }

impl Lives {
    /// The life that an acceptor is known to be in.
    pub fn of(&self, acceptor: AcceptorId) -> u32 {
        let of = |known: &&Life| known.acceptor == acceptor;
        self.known.iter().find(of).map_or(1, |known| known.life)
    }

    /// An acceptor is in this life or a later one; says whether that is new.
    pub fn learn(&mut self, Life { acceptor, life }: Life) -> bool {
        if life <= self.of(acceptor) {
            return false;
        }
        self.known.retain(|known| known.acceptor != acceptor);
        self.known.push(Life { acceptor, life });
        true
    }

    /// Those that have lost their memory.
    pub fn iter(&self) -> impl Iterator<Item = Life> {
        self.known.iter().copied()
    }
}

/// What one acceptor hands to another that has lost its memory, of the instances from one on.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The instances, in order.
    pub instances: Vec<Copy>,
    /// Where the next page begins, if there is one.
    pub next: Option<InstanceId>,
    /// How far f + 1 replicas have each space in stored snapshots.
    pub reaches: Vec<Reach>,
    /// The lives of others that the sender knows of.
    pub lives: Lives,
    /// The first lives of leaders that are not over.
    pub closed: Vec<Space>,
}

wire_struct! { Page { instances, next, reaches, lives, closed } }

/// Instances of a space that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The space.
    pub space: Space,
    /// The first number.
    pub start: u64,
    /// The number after the last.
    pub end: u64,
}

impl Wire for Run {
    fn encode(&self, out: &mut Vec<u8>) {
        InstanceId::new(self.space, self.start).encode(out);
        encode_varint(self.end, out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let InstanceId { space, number } = Wire::decode(reader)?;
        let (start, end) = (number, checked(reader.varint()?)?);
        Ok(Run { space, start, end })
    }
}

/// How far a space is known to reach, or to be executed or kept: below this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The space.
    pub space: Space,
    /// All numbers below are meant.
    pub below: u64,
}

impl Wire for Reach {
    fn encode(&self, out: &mut Vec<u8>) {
        InstanceId::new(self.space, self.below).encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let InstanceId { space, number } = Wire::decode(reader)?;
        let below = number;
        Ok(Reach { space, below })
    }
}

/// An instance that is decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Which.
    pub id: InstanceId,
    /// What it is decided to be.
    pub choice: Choice,
}

wire_struct! { Instance { id, choice } }

/// The replica that answers the clients, if it is there.
pub type Replier = Option<ReplicaId>;

/// No message of this protocol names an epoch: its members do not change.
pub const EPOCH: Epoch = Epoch(0);

/// What a read must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// Every write that was answered before it was sent.
    Everything {},
    /// What this process of a replica has executed: its lane has seen nothing else.
    Process {
        /// The process.
        life: u64,
    },
    /// Some state.
    Anything {},
}

wire_enum! { Sees { 0 => Everything {}, 1 => Process { life }, 2 => Anything {} } }
