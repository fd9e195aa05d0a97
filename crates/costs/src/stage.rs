//! One role alone on a node: what it receives comes as bytes, what it sends leaves as bytes, as in
//! the runtime, but no system call is made.

use crate::cases::Load;
use crate::surroundings::{self, Surroundings};
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Id, ReplicaId, Set};
use ionian_kernel::layout::{Address, Layout};
use ionian_kernel::machine::{Frozen, StateMachine};
use ionian_kernel::membership::Membership;
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::Lsn;
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::wire::Wire;
use ionian_machines::kv::Kv;
use ionian_protocols::multipaxos::{self, Message};
use ionian_runtime::transport::frame::{FrameReader, encode_frame};

/// Between the beginnings of two bursts.
const BURST_EVERY: Duration = Duration::from_millis(1);

/// The only client lane, where the role is one.
const LANE: ClientId = ClientId(0);

/// Instance 0 of some kind of role, on a node of its own.
pub struct Stage {
    role: Box<dyn Hosted>,
    /// The names of the protocol's kinds.
    kinds: &'static [&'static str],
    layout: Layout,
    told_of_chosen: fn(usize) -> usize,
    now: Instant,
    bursts: u64,
    arrived: Arrived,
    requests: Vec<Request>,
}

impl Stage {
    /// Starts instance 0 of `kind`, as the protocol counts them, in the deployment of this load,
    /// with disks or without.
    ///
    /// # Panics
    /// When that is no deployment of the protocol with such an instance.
    pub(crate) fn new<S: Surroundings + 'static>(kind: u8, load: Load, disks: bool) -> Self {
        let (now, kinds) = (Instant(1_000_000_000), S::Protocol::KINDS);
        let layout = load.layout(kinds);
        let role = Box::new(Lone::<S>::new(
            Address { kind, index: 0 },
            &layout,
            disks,
            now,
        ));
        let (arrived, requests) = (Arrived::default(), Vec::new());
        let told_of_chosen = S::told_of_chosen;
        let mut stage = Stage {
            role,
            kinds,
            layout,
            told_of_chosen,
            now,
            bursts: 0,
            arrived,
            requests,
        };
        stage.pass();
        stage
    }

    /// All instances of a kind of MultiPaxos, or of the one of the same name.
    pub fn all<I: Id>(&self, kind: u8) -> Set<I> {
        let name = multipaxos::KINDS[usize::from(kind)];
        let place = self.kinds.iter().position(|known| *known == name);
        place.map_or(Set::EMPTY, |place| self.layout.all(place as u8))
    }

    /// How many must be told of a value when acceptors have voted for it.
    pub(crate) fn told_of_chosen(&self) -> usize {
        (self.told_of_chosen)(self.all::<ReplicaId>(multipaxos::kind::Replica).len())
    }

    /// The time of the burst.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Whether something that happens this often happens in this burst.
    pub fn is_due(&self, every: Duration) -> bool {
        self.bursts
            .is_multiple_of((every.as_micros() / BURST_EVERY.as_micros()) as u64)
    }

    /// A peer says something.
    pub fn say(&mut self, message: Message) {
        self.role.say(message, &mut self.arrived);
    }

    /// Peers answer what the role has said, as far as its driver knows nothing of it.
    pub(crate) fn answer(&mut self) {
        self.role.answer(&mut self.arrived);
    }

    /// The application of the client lane wants something.
    pub fn submit(&mut self, request: Request) {
        self.requests.push(request);
    }

    /// What the role has said to others since this was last called, before the steady state.
    pub fn heard(&mut self) -> Vec<Message> {
        self.role.heard()
    }

    /// The role is where it serves: from now on what it says is only encoded.
    pub fn begin(&mut self) {
        self.role.begin();
    }

    /// How many messages and replies have left since the beginning, each counted once for every
    /// destination.
    pub fn left(&self) -> usize {
        self.role.left()
    }

    /// Takes the burst in, from bytes that have arrived to bytes to be written: what is counted.
    /// Not inlined, so that it can be found by its name.
    #[inline(never)]
    pub fn pass(&mut self) {
        self.receive();
        self.work();
    }

    /// The first half of [`pass`](Stage::pass): from bytes to messages.
    pub fn receive(&mut self) {
        self.role.receive(&mut self.arrived);
    }

    /// The other half: from messages to bytes.
    pub fn work(&mut self) {
        self.role.work(self.now, &mut self.requests);
        self.bursts += 1;
        self.now = self.now + BURST_EVERY;
    }
}

/// What has arrived and is not taken in yet.
#[derive(Default)]
struct Arrived {
    frames: FrameReader,
    frame: Vec<u8>,
}

impl Arrived {
    fn push(&mut self, message: &impl Wire) {
        self.frame.clear();
        encode_frame(&mut self.frame, 1, message).expect("a message of usual size");
        self.frames.space().extend_from_slice(&self.frame);
    }
}

/// A [`Lone`] role of whichever protocol.
trait Hosted {
    fn say(&mut self, message: Message, arrived: &mut Arrived);
    fn answer(&mut self, arrived: &mut Arrived);
    fn heard(&mut self) -> Vec<Message>;
    fn begin(&mut self);
    fn left(&self) -> usize;
    fn receive(&mut self, arrived: &mut Arrived);
    fn work(&mut self, now: Instant, requests: &mut Vec<Request>);
}

/// A role alone on its node, and what lies outside it.
struct Lone<S: Surroundings> {
    node: Node<S::Protocol>,
    outside: Outside<surroundings::Message<S>>,
    surroundings: S,
}

impl<S: Surroundings> Lone<S> {
    fn new(address: Address, layout: &Layout, disks: bool, now: Instant) -> Self {
        let config = S::Protocol::configure(layout.clone()).expect("a deployment");
        let machine = || Box::new(Kv::default()) as Box<dyn StateMachine>;
        let node = layout.node_of(address).expect("an instance");
        let birth = Birth {
            address,
            node,
            seed: 7,
            amnesiac: false,
            keeps_records: disks,
            machine: &machine,
            guard: None,
        };
        let mut lone = Lone {
            node: Node::new(&config, birth.keeps_records),
            outside: Outside::new(S::is_answered),
            surroundings: S::new(layout),
        };
        lone.node
            .host(address, S::Protocol::instantiate(&config, birth));
        lone.node.start(now, &mut lone.outside);
        lone
    }
}

impl<S: Surroundings> Hosted for Lone<S> {
    fn say(&mut self, message: Message, arrived: &mut Arrived) {
        self.surroundings
            .say(message, &mut |message| arrived.push(&message));
    }

    fn answer(&mut self, arrived: &mut Arrived) {
        for (members, message) in self.outside.asked.drain(..) {
            self.surroundings
                .answer(members, message, &mut |message| arrived.push(&message));
        }
    }

    fn heard(&mut self) -> Vec<Message> {
        let heard = core::mem::take(&mut self.outside.heard);
        heard
            .into_iter()
            .filter_map(|message| self.surroundings.hear(message))
            .collect()
    }

    fn begin(&mut self) {
        self.outside.listens = false;
        self.outside.left = 0;
    }

    fn left(&self) -> usize {
        self.outside.left
    }

    fn receive(&mut self, arrived: &mut Arrived) {
        while let Some(frame) = arrived.frames.next_frame().expect("frames") {
            self.node
                .deliver(frame.members, frame.message.decode().expect("a message"));
        }
    }

    fn work(&mut self, now: Instant, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            self.node.submit(LANE, request);
        }
        if self.node.next_timer().is_some_and(|timer| timer <= now) {
            self.node.fire_timers(now, &mut self.outside);
        }
        self.node.settle(now, &mut self.outside);
        if self.outside.durable < self.outside.appended {
            // Here the disk would be waited for.
            self.outside.durable = self.outside.appended;
            self.outside.log.clear();
            self.node.on_durable(&mut self.outside);
            self.node.settle(now, &mut self.outside);
        }
        self.outside.outgoing.clear();
    }
}

/// Encodes what is sent, and forgets it.
struct Outside<M> {
    listens: bool,
    heard: Vec<M>,
    is_answered: fn(&M) -> bool,
    /// What is answered, with those to whom it was said.
    asked: Vec<(u64, M)>,
    /// What waits to be written, to whichever node.
    outgoing: Vec<u8>,
    /// A frame that goes to several nodes, encoded once.
    scratch: Vec<u8>,
    /// Records that wait to be written to disk.
    log: Vec<u8>,
    appended: Lsn,
    durable: Lsn,
    left: usize,
}

impl<M> Outside<M> {
    fn new(is_answered: fn(&M) -> bool) -> Self {
        let (outgoing, scratch, log) = (Vec::new(), Vec::new(), Vec::new());
        let (appended, durable) = (Lsn::default(), Lsn::default());
        let (heard, asked) = (Vec::new(), Vec::new());
        Outside {
            listens: true,
            heard,
            is_answered,
            asked,
            outgoing,
            scratch,
            log,
            appended,
            durable,
            left: 0,
        }
    }
}

impl<P: Protocol> World<P> for Outside<P::Message> {
    fn send(&mut self, _: u8, members: u64, message: P::Message) {
        if (self.is_answered)(&message) {
            self.asked.push((members, message.clone()));
        }
        if self.listens {
            return self.heard.push(message);
        }
        // No two instances of one kind share a node here.
        let nodes = members.count_ones() as usize;
        self.left += nodes;
        if nodes == 1 {
            return encode_frame(&mut self.outgoing, members, &message)
                .expect("a message of usual size");
        }
        self.scratch.clear();
        encode_frame(&mut self.scratch, members, &message).expect("a message of usual size");
        for _ in 0..nodes {
            self.outgoing.extend_from_slice(&self.scratch);
        }
    }

    fn append(&mut self, _: Address, record: &[u8], _: bool) -> Lsn {
        self.log.extend_from_slice(record);
        self.appended.0 += 1;
        self.appended
    }

    fn durable(&self) -> Lsn {
        self.durable
    }

    fn store_snapshot(&mut self, _: Address, _: u64, _: Box<dyn Frozen>) {
        unreachable!("replicas are driven without disks")
    }

    fn announce(&mut self, _: Membership) {}

    fn reply(&mut self, _: ClientId, _: Reply) {
        self.left += 1;
    }
}
