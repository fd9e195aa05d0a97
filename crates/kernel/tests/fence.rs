//! The fence: what a role sends leaves its node when the records before it are on disk, and not
//! before. Roles here do what their messages tell them; the disk is where the test says it is.

extern crate alloc;

use bytes::Bytes;
use ionian_kernel::client::{Operation, Reply, Request};
use ionian_kernel::id::{ClientId, Epoch, Members, Set, Slot};
use ionian_kernel::layout::{Address, Layout, LayoutError, NodeId, numbered};
use ionian_kernel::machine::Frozen;
use ionian_kernel::membership::Membership;
use ionian_kernel::node::homes::Homes;
use ionian_kernel::node::role_loop::{Burst, Input, RoleLoop};
use ionian_kernel::node::{Node, World};
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, NoInvariants, Protocol, Transition};
use ionian_kernel::role::Lsn;
use ionian_kernel::service::Service;
use ionian_kernel::status::Metrics;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::{Reader, Wire};

ionian_kernel::ids! {
    /// A role that does what its messages say.
    ActorId "actor"
}

ionian_kernel::wire_enum! {
    Step {
        0 => Persist { record },
        1 => PersistVital { record },
        2 => Send { to, what },
        3 => SendUnfenced { to, what },
        4 => Reply { token },
        5 => Release { below },
        6 => SendUntil { what, until },
    }
}

/// What an actor does.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Persist { record: u64 },
    PersistVital { record: u64 },
    Send { to: Set<ActorId>, what: u64 },
    SendUnfenced { to: Set<ActorId>, what: u64 },
    Reply { token: u64 },
    Release { below: u64 },
    SendUntil { what: u64, until: u64 },
}

mod client {
    use super::*;
    use ionian_kernel::messages;
    use ionian_kernel::role::{Out, Role};
    use ionian_kernel::wire::Never;

    messages! {
        "client" In {
            0 => Submit { request: Request },
        }
    }

    pub(crate) struct Lane;

    impl Role for Lane {
        type In = In;
        type Send = Envelope;
        type Config = Layout;
        type Record = Never;
        fn recover(&mut self, _: Never) {}
        fn on_message(&mut self, _: Instant, _: In, _: &mut Out<'_, Self>) {}
    }
}

mod actor {
    use super::*;
    use ionian_kernel::messages;
    use ionian_kernel::role::{Out, Role};

    messages! {
        "actor" In {
            0 => Do { steps: Vec<Step> },
            1 => Told { what: u64 },
        }
    }

    #[derive(Default)]
    pub(crate) struct Actor {
        /// What other actors have sent, in order.
        pub(crate) told: Vec<u64>,
        /// Up to where it was told that its records are on disk.
        pub(crate) durable: Vec<u64>,
    }

    impl Role for Actor {
        type In = In;
        type Send = Envelope;
        type Config = Layout;
        type Record = u64;

        fn recover(&mut self, _: u64) {}

        fn key(record: &u64) -> Option<u64> {
            Some(*record)
        }

        fn on_message(&mut self, _: Instant, message: In, out: &mut Out<'_, Self>) {
            let steps = match message {
                In::Told { what } => return self.told.push(what),
                In::Do { steps } => steps,
            };
            for step in steps {
                match step {
                    Step::Persist { record } => out.persist(record),
                    Step::PersistVital { record } => out.persist_vital(record),
                    Step::Send { to, what } => {
                        out.send(Envelope::ToActors(to, In::Told { what }));
                    }
                    Step::SendUnfenced { to, what } => {
                        out.send_unfenced(Envelope::ToActors(to, In::Told { what }));
                    }
                    Step::Reply { token } => {
                        let outcome = Ok(Bytes::new());
                        out.send(Envelope::ToApplication(
                            LANE,
                            Reply {
                                token,
                                command: None,
                                outcome,
                                seen: Slot::ZERO,
                            },
                        ));
                    }
                    Step::Release { below } => out.release_below(below),
                    Step::SendUntil { what, until } => {
                        let envelope = Envelope::ToActors(AWAY, In::Told { what });
                        out.send_until(envelope, Instant(until));
                    }
                }
            }
        }

        fn on_durable(&mut self, lsn: Lsn, _: &mut Out<'_, Self>) {
            self.durable.push(lsn.0);
        }
    }
}

ionian_kernel::protocol! {
    config Layout;
    0 Client "client" ToClients(ClientId) client::Lane,
    1 Actor "actor" ToActors(ActorId) actor::Actor,
}

/// Actors, and lanes that they ignore.
enum Actors {}

impl Protocol for Actors {
    const NAME: &'static str = "actors";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = &[];
    const EXECUTORS: &'static [u8] = &[];
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance;
    type Config = Layout;
    type Invariants = NoInvariants;

    fn configure(layout: Layout) -> Result<Layout, LayoutError> {
        Ok(layout)
    }
    fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Ok(Transition::AtOnce)
    }
    fn latest_epoch(_: &Layout) -> Epoch {
        Epoch::default()
    }
    fn service(_: &Layout, _: Epoch) -> Service {
        unreachable!("it is not operated")
    }
    fn founding_records(_: &Layout, _: Address, _: Slot) -> Vec<Vec<u8>> {
        Vec::new()
    }
    fn instantiate(_: &Layout, birth: Birth<'_>) -> Instance {
        match birth.address.kind {
            kind::Client => Instance::Client(client::Lane),
            _ => Instance::Actor(actor::Actor::default()),
        }
    }
}

const LANE: ClientId = ClientId(0);
/// These live on the node, the next one elsewhere.
const HERE: [u8; 2] = [0, 1];
const AWAY: Set<ActorId> = Set::from_bits(0b100);

/// What has left the node, in order, and where its disk is.
#[derive(Default)]
struct Outside {
    appended: Vec<(u8, u64, bool)>,
    durable: u64,
    /// What its clock shows.
    clock: u64,
    sent: Vec<u64>,
    replied: Vec<u64>,
}

impl World<Actors> for Outside {
    fn send(&mut self, kind: u8, members: Members, message: Message) {
        assert_eq!((kind, members), (kind::Actor, AWAY.members()));
        let Message::Actor(actor::In::Told { what }) = message else {
            panic!("{message:?}")
        };
        self.sent.push(what);
    }
    fn append(&mut self, from: Address, record: &[u8], vital: bool) -> Lsn {
        let record = u64::decode(&mut Reader::new(&Bytes::copy_from_slice(record))).unwrap();
        self.appended.push((from.index, record, vital));
        Lsn(self.appended.len() as u64)
    }
    fn durable(&self) -> Lsn {
        Lsn(self.durable)
    }
    fn clock(&self) -> Instant {
        Instant(self.clock)
    }
    fn store_snapshot(&mut self, _: Address, _: u64, _: Box<dyn Frozen>) {}
    fn announce(&mut self, _: Membership) {}
    fn reply(&mut self, lane: ClientId, reply: Reply) {
        assert_eq!(lane, LANE);
        self.replied.push(reply.token);
    }
}

struct Stage {
    node: Node<Actors>,
    outside: Outside,
}

fn address(index: u8) -> Address {
    Address {
        kind: kind::Actor,
        index,
    }
}

fn layout(here: &[u8]) -> Layout {
    let nodes = |index: u8| NodeId(u16::from(!here.contains(&index)));
    Layout {
        instances: numbered(vec![vec![NodeId(0)], (0..3).map(nodes).collect()]),
        ..Layout::default()
    }
}

impl Stage {
    fn new(keeps_records: bool) -> Self {
        let mut node = Node::new(&layout(&HERE), keeps_records);
        for index in HERE {
            node.host(address(index), Instance::Actor(actor::Actor::default()));
        }
        Stage {
            node,
            outside: Outside::default(),
        }
    }

    /// Has an actor do this in one call.
    fn act(&mut self, actor: u8, steps: impl Into<Vec<Step>>) {
        let steps = steps.into();
        self.node
            .deliver(Members::one(actor), Message::Actor(actor::In::Do { steps }));
        self.node.settle(Instant(0), &mut self.outside);
    }

    /// The disk has come this far.
    fn disk(&mut self, durable: u64) {
        self.outside.durable = durable;
        self.node.on_durable(&mut self.outside);
        self.node.settle(Instant(0), &mut self.outside);
    }

    fn actor(&self, index: u8) -> &actor::Actor {
        match self.node.instance(address(index)) {
            Some(Instance::Actor(actor)) => actor,
            _ => panic!("actor {index} lives here"),
        }
    }
}

fn persist(record: u64) -> Step {
    Step::Persist { record }
}

fn send(what: u64) -> Step {
    Step::Send { to: AWAY, what }
}

#[test]
fn a_send_leaves_when_the_record_before_it_is_on_disk() {
    let mut stage = Stage::new(true);
    stage.act(0, [persist(7), send(1)]);
    assert_eq!(stage.outside.appended, [(0, 7, false)]);
    assert!(stage.outside.sent.is_empty());
    stage.disk(0);
    assert!(stage.outside.sent.is_empty());
    stage.disk(1);
    assert_eq!(stage.outside.sent, [1]);
    stage.disk(1);
    assert_eq!(stage.outside.sent, [1], "once");
}

/// The time that the roles receive is older than what the clock shows.
#[test]
fn what_is_sent_until_a_time_leaves_before_it_or_not_at_all() {
    let mut stage = Stage::new(true);
    stage.outside.clock = 10;
    let until = |what, until| Step::SendUntil { what, until };
    stage.act(
        0,
        [persist(7), until(1, 11), send(2), until(3, 10), until(4, 9)],
    );
    assert_eq!(
        (&stage.outside.sent[..], stage.node.overdue()),
        (&[1][..], 2)
    );
    stage.disk(1);
    assert_eq!(stage.outside.sent, [1, 2]);
    let (_, mut role_loop) = role_loop();
    let burst = pass(&mut role_loop, to_do([until(1, 4), until(2, 3)]));
    assert_eq!((told(&burst), role_loop.node.overdue()), (vec![1], 1));
}

#[test]
fn a_send_before_the_first_record_leaves_at_once() {
    let mut stage = Stage::new(true);
    stage.act(0, [send(1), persist(7), send(2)]);
    assert_eq!(stage.outside.sent, [1]);
}

#[test]
fn a_send_waits_for_records_of_earlier_calls() {
    let mut stage = Stage::new(true);
    stage.act(0, [persist(7)]);
    stage.act(0, [send(1)]);
    assert!(stage.outside.sent.is_empty());
    stage.disk(1);
    assert_eq!(stage.outside.sent, [1]);
}

#[test]
fn each_send_waits_for_the_records_before_it_and_for_no_other() {
    let mut stage = Stage::new(true);
    stage.act(0, [persist(7), send(1), persist(8), send(2), send(3)]);
    stage.disk(1);
    assert_eq!(stage.outside.sent, [1]);
    stage.disk(2);
    assert_eq!(stage.outside.sent, [1, 2, 3]);
}

#[test]
fn a_role_does_not_wait_for_the_records_of_another() {
    let mut stage = Stage::new(true);
    stage.act(0, [persist(7), send(1)]);
    stage.act(1, [send(2)]);
    assert_eq!(stage.outside.sent, [2]);
    stage.act(1, [persist(9), send(3)]);
    stage.disk(1);
    assert_eq!(stage.outside.sent, [2, 1]);
}

#[test]
fn an_unfenced_send_leaves_at_once() {
    let mut stage = Stage::new(true);
    let unfenced = Step::SendUnfenced { to: AWAY, what: 1 };
    stage.act(0, [persist(7)]);
    stage.act(0, [persist(8), unfenced, send(2)]);
    assert_eq!(stage.outside.sent, [1]);
}

#[test]
fn a_hop_to_a_role_of_the_same_node_waits_as_well() {
    let mut stage = Stage::new(true);
    let both = Set::one(ActorId(1)).or(AWAY);
    stage.act(0, [persist(7), Step::Send { to: both, what: 1 }]);
    assert!(stage.actor(1).told.is_empty() && stage.outside.sent.is_empty());
    stage.disk(1);
    assert_eq!(
        (&stage.actor(1).told[..], &stage.outside.sent[..]),
        (&[1][..], &[1][..])
    );
}

#[test]
fn a_reply_to_an_application_waits_as_well() {
    let mut stage = Stage::new(true);
    stage.act(0, [persist(7), Step::Reply { token: 5 }]);
    assert!(stage.outside.replied.is_empty());
    stage.disk(1);
    assert_eq!(stage.outside.replied, [5]);
}

#[test]
fn in_memory_only_vital_records_are_stored_and_waited_for() {
    let mut stage = Stage::new(false);
    stage.act(0, [persist(7), send(1)]);
    assert_eq!(
        (&stage.outside.sent[..], stage.outside.appended.len()),
        (&[1][..], 0)
    );
    stage.act(0, [Step::PersistVital { record: 8 }, send(2)]);
    assert_eq!(stage.outside.appended, [(0, 8, true)]);
    assert_eq!(stage.outside.sent, [1]);
    stage.disk(1);
    assert_eq!(stage.outside.sent, [1, 2]);
}

#[test]
fn a_role_learns_how_far_its_own_records_are_on_disk() {
    let mut stage = Stage::new(true);
    stage.act(0, [persist(7)]);
    stage.act(1, [persist(8)]);
    stage.act(0, [persist(9)]);
    stage.disk(2);
    assert_eq!(
        (&stage.actor(0).durable[..], &stage.actor(1).durable[..]),
        (&[2][..], &[2][..])
    );
    stage.disk(3);
    assert_eq!(stage.actor(0).durable, [2, 3]);
    assert_eq!(stage.actor(1).durable, [2], "it has no later record");
}

#[test]
fn what_a_retired_role_wanted_to_send_is_lost_and_that_of_others_is_not() {
    let mut stage = Stage::new(true);
    stage.act(0, [persist(7), send(1)]);
    stage.act(1, [persist(8), send(2)]);
    let without = layout(&[1]);
    let change = (&without, &without, NodeId(0));
    stage
        .node
        .reconfigure(Instant(0), change, &mut stage.outside);
    assert!(!stage.node.hosts(address(0)));
    stage.disk(2);
    assert_eq!(stage.outside.sent, [2]);
}

#[test]
fn the_log_is_needed_from_the_oldest_record_that_is_not_released() {
    let mut stage = Stage::new(true);
    stage.act(0, [persist(7), persist(8)]);
    stage.act(1, [persist(3)]);
    let mut oldest = |steps: &[Step]| {
        stage.act(0, steps);
        stage.node.checkpoint(Lsn(9), &mut stage.outside).0
    };
    assert_eq!(oldest(&[]), 1);
    assert_eq!(oldest(&[Step::Release { below: 8 }]), 2);
    // Of the other role's record nothing was said.
    assert_eq!(oldest(&[Step::Release { below: 9 }]), 3);
}

#[test]
fn records_that_were_recovered_hold_nothing_back() {
    let mut stage = Stage::new(true);
    stage.outside.appended.push((0, 7, false));
    stage.outside.durable = 1;
    let mut encoded = Vec::new();
    7_u64.encode(&mut encoded);
    let encoded = Bytes::from(encoded);
    stage
        .node
        .recover(address(0), Lsn(1), &mut Reader::new(&encoded))
        .unwrap();
    stage.act(0, [send(1)]);
    assert_eq!(stage.outside.sent, [1]);
    assert!(stage.actor(0).durable.is_empty(), "it knows");
}

#[test]
fn requests_reach_the_lanes_of_the_node() {
    let mut stage = Stage::new(true);
    let request = Request {
        token: 1,
        operation: Operation::Write,
        payload: Bytes::new(),
    };
    stage.node.submit(LANE, request.clone());
    assert_eq!(stage.node.queued(), 0, "no lane lives here");
    stage.node.host(
        Address {
            kind: kind::Client,
            index: LANE.0,
        },
        Instance::Client(client::Lane),
    );
    stage.node.submit(LANE, request);
    assert_eq!(stage.node.queued(), 1);
}

/// The actors run on a role loop, and the log was opened at this position.
const OPENED: Lsn = Lsn(5);

fn role_loop() -> (Homes, RoleLoop<Actors>) {
    let Stage { mut node, .. } = Stage::new(true);
    let (homes, mut nodes) = Homes::split(&mut node, vec![0, 1], 1, OPENED);
    assert!(node.instances().next().is_none() && nodes.len() == 1);
    assert_eq!(homes.home(address(1)), Some(0));
    let mut role_loop = RoleLoop::new(nodes.remove(0), OPENED, Box::new(|| Instant(3)));
    role_loop.take(Instant(0), Input::Start);
    (homes, role_loop)
}

/// Passes an input, and returns what it leads to: records, and what is sent.
fn pass(role_loop: &mut RoleLoop<Actors>, input: Input<Actors>) -> Burst<Actors> {
    role_loop.take(Instant(0), input);
    role_loop.run(Instant(0));
    role_loop.burst().unwrap_or_default()
}

fn told(burst: &Burst<Actors>) -> Vec<u64> {
    let what = |message: &Message| match message {
        Message::Actor(actor::In::Told { what }) => *what,
        other => panic!("{other:?}"),
    };
    let sends = burst.sends.iter();
    sends.map(|(_, _, message)| what(message)).collect()
}

fn to_do(steps: impl Into<Vec<Step>>) -> Input<Actors> {
    let steps = steps.into();
    let message = Message::Actor(actor::In::Do { steps });
    Input::Messages(vec![(Members::one(0), message)])
}

#[test]
fn what_a_role_loop_sends_waits_until_its_record_is_on_the_disk_of_the_node() {
    let (mut homes, mut role_loop) = role_loop();
    let burst = pass(&mut role_loop, to_do([send(1), persist(7), send(2)]));
    let records: Vec<_> = burst.records.iter().collect();
    assert_eq!(records, [(address(0), &7_u64.to_le_bytes()[..], false)]);
    assert_eq!(told(&burst), [1]);
    // Three records of the main loop come before it.
    assert_eq!(homes.appended(0, &burst, Some(Lsn(9))), None);
    assert_eq!(homes.on_durable(Lsn(8)).next(), None);
    let reached: Vec<_> = homes.on_durable(Lsn(9)).collect();
    assert_eq!(reached, [(0, Lsn(6))]);
    let burst = pass(&mut role_loop, to_do([send(3)]));
    assert!(burst.sends.is_empty(), "it does not know that yet");
    let burst = pass(&mut role_loop, Input::Durable(Lsn(6)));
    assert_eq!(told(&burst), [2, 3]);
}

#[test]
fn the_log_is_cut_before_the_oldest_record_that_a_role_loop_needs() {
    let (mut homes, mut role_loop) = role_loop();
    let mut checkpoint = |steps: Vec<Step>, log: u64| {
        let burst = pass(&mut role_loop, to_do(steps));
        assert_eq!(homes.appended(0, &burst, Some(Lsn(log))), None);
        homes.begin_checkpoint(Lsn(log + 1));
        let burst = pass(&mut role_loop, Input::Checkpoint);
        assert!(burst.checkpointed.is_some(), "an answer");
        let needed = homes.appended(0, &burst, None);
        assert!(!homes.is_in_checkpoint());
        needed.expect("the only role loop has answered").0
    };
    assert_eq!(checkpoint(vec![persist(7)], 2000), 2000);
    let release = |below| Step::Release { below };
    assert_eq!(checkpoint(vec![persist(8)], 5000), 2000);
    assert_eq!(checkpoint(vec![release(8), persist(9)], 9000), 5000);
    let all = vec![persist(10), release(11)];
    assert_eq!(checkpoint(all, 9500), 9501, "it needs nothing");
}

#[test]
fn a_role_loop_reports_when_its_roles_are_not_needed_any_more() {
    let (_, mut role_loop) = role_loop();
    let reports = [true, true, false].map(|drains| pass(&mut role_loop, Input::Drain(drains)));
    let drained = reports.map(|burst| burst.drained);
    assert_eq!(drained, [(1, true), (2, true), (3, true)].map(Some));
}

#[test]
fn a_role_loop_queues_messages_until_its_roles_are_started() {
    let Stage { mut node, .. } = Stage::new(true);
    let (_, mut nodes) = Homes::split(&mut node, vec![0, 1], 1, OPENED);
    let mut role_loop = RoleLoop::new(nodes.remove(0), OPENED, Box::new(|| Instant(3)));
    let burst = pass(&mut role_loop, to_do([send(1)]));
    assert!(burst.sends.is_empty() && role_loop.node.queued() == 1);
    assert_eq!(told(&pass(&mut role_loop, Input::Start)), [1]);
}
