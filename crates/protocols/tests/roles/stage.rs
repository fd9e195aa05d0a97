//! One role on a stage of its own.

use bytes::Bytes;
use ionian_kernel::client::Reply;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, NodeId, numbered};
use ionian_kernel::machine::{Footprint, Frozen, NotARead, RestoreError, StateMachine};
use ionian_kernel::membership::Membership;
use ionian_kernel::node::World;
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::{Asked, Lsn, Out, Outbox, Role};
use ionian_kernel::status::Status;
use ionian_kernel::time::{Duration, Instant, Timestamp};
use ionian_protocols::multipaxos::leader::{In, Leader};
use ionian_protocols::multipaxos::message::Votes;
use ionian_protocols::multipaxos::{Message, MultiPaxos, kind};
use ionian_replication::batch::{Batch, Command, Purpose};

/// A machine without state, whose commands touch what the function adds.
pub(crate) struct Touching(fn(&[u8], &mut Footprint));

impl Touching {
    /// Makes it for a [`Birth`].
    pub(crate) fn machine(touches: fn(&[u8], &mut Footprint)) -> Box<dyn StateMachine> {
        Box::new(Touching(touches))
    }
}

impl StateMachine for Touching {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }
    fn snapshot(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        (self.0)(command, footprint);
    }
}

/// A machine without state that does much work for each command: after the second one a snapshot is
/// due.
#[derive(Default)]
pub(crate) struct Heavy(u64);

impl Heavy {
    /// Makes it for a [`Birth`].
    pub(crate) fn machine() -> Box<dyn StateMachine> {
        Box::<Heavy>::default()
    }
}

impl StateMachine for Heavy {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {
        self.0 += 1 << 23;
    }
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }
    fn snapshot(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
    fn work(&self) -> u64 {
        self.0
    }
}

/// The first life of an instance, on this node, which keeps all records.
pub(crate) fn birth(kind: u8, index: u8, node: NodeId) -> Birth<'static> {
    let (address, machine) = (Address { kind, index }, &|| {
        Touching::machine(|_, footprint| footprint.everything = true)
    });
    Birth {
        address,
        node,
        seed: 7,
        amnesiac: false,
        predecessors: 0,
        keeps_records: true,
        machine,
        guard: None,
        workers: None,
    }
}

/// A batch of one command.
pub(crate) fn batch(payload: impl Into<Bytes>) -> Batch {
    of_command(0, payload)
}

/// A batch of one command, which opens the first session.
pub(crate) fn open() -> Batch {
    Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Open,
        number: 0,
        floor: 0,
        payload: Bytes::new(),
    })
}

/// A batch of one command with this number in its session.
pub(crate) fn of_command(number: u64, payload: impl Into<Bytes>) -> Batch {
    Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Execute(SessionId(1)),
        number,
        floor: 0,
        payload: payload.into(),
    })
}

/// What a role has asked that persisted these records, sent these messages, and did nothing else.
pub(crate) fn only<E>(records: Vec<(Vec<u8>, bool)>, sends: Vec<(E, Option<usize>)>) -> Asked<E> {
    Asked {
        records,
        sends,
        release_below: None,
        snapshot: None,
        membership: None,
        deadlines: Vec::new(),
    }
}

/// One role with its outbox.
pub(crate) struct Stage<R: Role> {
    pub(crate) role: R,
    outbox: Outbox<R::Send>,
    pub(crate) now: Instant,
    /// How often in a row a timer was due at once.
    at_once: u32,
}

/// A timer that is due at once more often than this never lets time pass.
const MOST_AT_ONCE: u32 = 1000;

impl<R: Role> Stage<R> {
    /// The role that `make` makes, started.
    pub(crate) fn new(
        config: R::Config,
        birth: &Birth<'_>,
        make: impl FnOnce(R::Config, &Birth<'_>) -> R,
    ) -> Self {
        Stage::after(config, birth, Vec::new(), make)
    }

    /// The same when it has found these records.
    pub(crate) fn after(
        config: R::Config,
        birth: &Birth<'_>,
        records: Vec<R::Record>,
        make: impl FnOnce(R::Config, &Birth<'_>) -> R,
    ) -> Self {
        let mut role = make(config, birth);
        records.into_iter().for_each(|record| role.recover(record));
        let mut stage = Stage::unstarted(role, birth.keeps_records);
        stage.started();
        stage
    }

    /// A role that is not started.
    pub(crate) fn unstarted(role: R, keeps_records: bool) -> Self {
        Stage {
            role,
            outbox: Outbox::new(keeps_records),
            now: Instant(1_000_000),
            at_once: 0,
        }
    }

    /// The same for the first role of its kind, which lives with no other.
    pub(crate) fn alone(
        config: R::Config,
        kind: u8,
        make: impl FnOnce(R::Config, &Birth<'_>) -> R,
    ) -> Self {
        Stage::new(config, &birth(kind, 0, NodeId(99)), make)
    }

    fn call(&mut self, call: impl FnOnce(&mut R, Instant, &mut Out<'_, R>)) -> Vec<R::Send> {
        self.do_call(call);
        let sends = self.outbox.take().sends;
        sends.into_iter().map(|(envelope, _)| envelope).collect()
    }

    fn do_call(&mut self, call: impl FnOnce(&mut R, Instant, &mut Out<'_, R>)) {
        call(&mut self.role, self.now, &mut Out::new(&mut self.outbox));
        self.role
            .on_burst_end(self.now, &mut Out::new(&mut self.outbox));
        self.role.invariants();
    }

    fn pass_to_timer(&mut self) {
        let at = self.role.next_timer().expect("a timer is set");
        self.at_once = if at > self.now { 0 } else { self.at_once + 1 };
        assert!(
            self.at_once < MOST_AT_ONCE,
            "its timer is due at once without end"
        );
        self.now = self.now.max(at);
    }

    /// All that the role asks of its driver when it receives this: what it sends, with fences,
    /// what it persists and what it releases.
    pub(crate) fn asked(&mut self, message: R::In) -> Asked<R::Send> {
        self.do_call(|role, now, out| role.on_message(now, message, out));
        self.outbox.take()
    }

    /// The same when it starts.
    pub(crate) fn started(&mut self) -> Asked<R::Send> {
        self.do_call(|role, now, out| role.on_start(now, out));
        self.outbox.take()
    }

    /// The same when time has passed to its next timer.
    pub(crate) fn woken(&mut self) -> Asked<R::Send> {
        self.pass_to_timer();
        self.do_call(|role, now, out| role.on_timer(now, out));
        self.outbox.take()
    }

    /// The same when this much time has passed: a timer that is due then goes off.
    pub(crate) fn waited(&mut self, time: Duration) -> Asked<R::Send> {
        self.now = self.now + time;
        self.do_call(|role, now, out| role.on_timer(now, out));
        self.outbox.take()
    }

    /// The same when the snapshot with this stamp is on disk.
    pub(crate) fn stored(&mut self, stamp: u64) -> Asked<R::Send> {
        self.do_call(|role, _, out| role.on_snapshot(stamp, true, out));
        self.outbox.take()
    }

    /// The same when the snapshot with this stamp has found no room.
    pub(crate) fn refused(&mut self, stamp: u64) -> Asked<R::Send> {
        self.do_call(|role, _, out| role.on_snapshot(stamp, false, out));
        self.outbox.take()
    }

    /// The same when all its records without a key are about to be forgotten.
    pub(crate) fn checkpoint(&mut self) -> Asked<R::Send> {
        self.do_call(|role, _, out| role.checkpoint(out));
        self.outbox.take()
    }

    /// What the role sends when it receives this.
    pub(crate) fn tell(&mut self, message: R::In) -> Vec<R::Send> {
        self.call(|role, now, out| role.on_message(now, message, out))
    }

    /// Has the role hand over what only one does at a time, or take part again.
    pub(crate) fn drain(&mut self, drains: bool) -> Vec<R::Send> {
        self.call(|role, now, out| role.on_drain(now, drains, out))
    }

    /// The membership has changed.
    pub(crate) fn reconfigure(&mut self, config: R::Config) -> Vec<R::Send> {
        self.call(|role, now, out| role.on_reconfigure(now, config, out))
    }

    /// The same, with all that the role asks of its driver.
    pub(crate) fn reconfigured(&mut self, config: R::Config) -> Asked<R::Send> {
        self.do_call(|role, now, out| role.on_reconfigure(now, config, out));
        self.outbox.take()
    }

    /// The role leaves its node.
    pub(crate) fn retired(&mut self) -> Asked<R::Send> {
        self.do_call(|role, now, out| role.on_retire(now, out));
        self.outbox.take()
    }

    /// Lets time pass to the next timer.
    pub(crate) fn timer(&mut self) -> Vec<R::Send> {
        self.pass_to_timer();
        self.call(|role, now, out| role.on_timer(now, out))
    }

    /// A figure of the role's status.
    pub(crate) fn figure(&self, wanted: &str) -> u64 {
        let figures = Status::of(&self.role).figures(R::METRICS);
        let found = figures.iter().find(|(name, _)| *name == wanted);
        found.expect("a figure of that name").1
    }
}

/// Leader 0 of this deployment of MultiPaxos on `node`, leading by the promises of the first so
/// many acceptors, which have voted for nothing.
pub(crate) fn elected(layout: Layout, node: NodeId, promises: u8) -> Stage<Leader> {
    let config = MultiPaxos::configure(layout).expect("a deployment");
    let mut leader = Stage::new(config, &birth(kind::Leader, 0, node), Leader::new);
    leader.timer();
    let all = (0..promises).map(AcceptorId);
    all.clone().for_each(|from| {
        drop(leader.tell(In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        }))
    });
    let round = leader.role.round();
    for from in all {
        let (start, end, next) = (Slot(0), Slot::MAX, Slot::MAX);
        let (forgotten, watermark, votes) = (Slot(0), Slot(0), Vec::new());
        let votes = Votes {
            start,
            end,
            next,
            votes,
            forgotten,
            watermark,
        };
        leader.tell(In::Phase1b {
            from,
            round,
            votes,
            clock: Timestamp(0),
        });
    }
    assert!(leader.role.is_leading());
    leader
}

/// Every role of MultiPaxos on nodes of its own, with these acceptors: number `n` on node 20 + n.
pub(crate) fn with_acceptors(acceptors: &[u8]) -> Layout {
    let mut places = (0..).map(NodeId);
    let counts = [1, 0, 2, 2, 2, 3, 2, 0];
    let instances = counts
        .map(|count| places.by_ref().take(count).collect())
        .to_vec();
    let mut layout = Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    };
    let places = acceptors
        .iter()
        .map(|index| (*index, NodeId(20 + u16::from(*index))))
        .collect();
    layout.instances[kind::Acceptor as usize] = places;
    layout
}

/// What is outside a node: a disk that writes nothing until it is asked to, and what was sent.
#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) records: Vec<Vec<u8>>,
    /// This many of them are on disk.
    pub(crate) durable: usize,
    pub(crate) sent: Vec<Message>,
    pub(crate) replies: Vec<Reply>,
}

impl World<MultiPaxos> for Outside {
    fn send(&mut self, _: u8, _: Members, message: Message) {
        self.sent.push(message);
    }
    fn append(&mut self, _: Address, record: &[u8], _: bool) -> Lsn {
        self.records.push(record.to_vec());
        Lsn(self.records.len() as u64)
    }
    fn durable(&self) -> Lsn {
        Lsn(self.durable as u64)
    }
    fn clock(&self) -> Instant {
        Instant::ZERO
    }
    fn store_snapshot(&mut self, _: Address, _: u64, _: Box<dyn Frozen>) {}
    fn announce(&mut self, _: Membership) {}
    fn reply(&mut self, _: ClientId, reply: Reply) {
        self.replies.push(reply);
    }
}
