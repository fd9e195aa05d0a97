//! One role alone on a node: what it is told comes as bytes, what it says leaves as bytes, as in the runtime, but no
//! system call is made.

use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Id, Set};
use ionian_kernel::layout::{Address, Layout};
use ionian_kernel::machine::{Frozen, StateMachine};
use ionian_kernel::membership::Membership;
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::Lsn;
use ionian_kernel::time::{Duration, Instant};
use ionian_machines::kv::Kv;
use ionian_protocols::multipaxos::{Message, MultiPaxos};
use ionian_runtime::frame::{FrameReader, encode_frame};

/// Between the beginnings of two bursts.
const BURST_EVERY: Duration = Duration::from_millis(1);

/// The only client lane, where the role is one.
const LANE: ClientId = ClientId(0);

/// Instance 0 of some kind of role, on a node of its own.
pub struct Stage {
    node: Node<MultiPaxos>,
    layout: Layout,
    now: Instant,
    bursts: u64,
    arrived: FrameReader,
    frame: Vec<u8>,
    requests: Vec<Request>,
    outside: Outside,
}

impl Stage {
    /// Starts instance 0 of `kind` as it would be in a deployment of this layout, with disks or without.
    ///
    /// # Panics
    /// When the layout is no deployment of MultiPaxos with such an instance.
    pub fn new(kind: u8, layout: Layout, disks: bool) -> Self {
        let address = Address { kind, index: 0 };
        let config = MultiPaxos::configure(layout.clone()).expect("a deployment");
        let machine = || Box::new(Kv::default()) as Box<dyn StateMachine>;
        let node = layout.node_of(address).expect("an instance");
        let birth = Birth { address, node, seed: 7, amnesiac: false, keeps_records: disks, machine: &machine };
        let mut stage = Stage {
            node: Node::new(birth.keeps_records),
            layout,
            now: Instant(1_000_000_000),
            bursts: 0,
            arrived: FrameReader::default(),
            frame: Vec::new(),
            requests: Vec::new(),
            outside: Outside { listens: true, ..Outside::default() },
        };
        stage.node.host(address, MultiPaxos::instantiate(&config, birth));
        stage.node.start(stage.now, &mut stage.outside);
        stage.pass();
        stage
    }

    /// All instances of a kind.
    pub fn all<I: Id>(&self, kind: u8) -> Set<I> {
        self.layout.all(kind)
    }

    /// The time of the burst.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Whether something that happens this often happens in this burst.
    pub fn is_due(&self, every: Duration) -> bool {
        self.bursts.is_multiple_of((every.as_micros() / BURST_EVERY.as_micros()) as u64)
    }

    /// A peer says something.
    pub fn say(&mut self, message: Message) {
        self.frame.clear();
        encode_frame(&mut self.frame, 1, &message).expect("a message of usual size");
        self.arrived.space().extend_from_slice(&self.frame);
    }

    /// The application of the client lane wants something.
    pub fn submit(&mut self, request: Request) {
        self.requests.push(request);
    }

    /// What the role has said to others since this was last called, before the steady state.
    pub fn heard(&mut self) -> Vec<Message> {
        core::mem::take(&mut self.outside.heard)
    }

    /// The role is where it serves: from now on what it says is only encoded.
    pub fn begin(&mut self) {
        self.outside.listens = false;
        self.outside.left = 0;
    }

    /// How many messages and replies have left since the beginning, each counted once for every destination.
    pub fn left(&self) -> usize {
        self.outside.left
    }

    /// Takes the burst in, from bytes that have arrived to bytes to be written: what is counted. Not inlined, so
    /// that it can be found by its name.
    #[inline(never)]
    pub fn pass(&mut self) {
        self.receive();
        self.work();
    }

    /// The first half of [`pass`](Stage::pass): from bytes to messages.
    pub fn receive(&mut self) {
        while let Some(frame) = self.arrived.next_frame().expect("frames") {
            self.node.deliver(frame.members, frame.message.decode().expect("a message"));
        }
    }

    /// The other half: from messages to bytes.
    pub fn work(&mut self) {
        for request in self.requests.drain(..) {
            self.node.submit(LANE, request);
        }
        if self.node.next_timer().is_some_and(|timer| timer <= self.now) {
            self.node.fire_timers(self.now, &mut self.outside);
        }
        self.node.settle(self.now, &mut self.outside);
        if self.outside.durable < self.outside.appended {
            // Here the disk would be waited for.
            self.outside.durable = self.outside.appended;
            self.outside.log.clear();
            self.node.on_durable(&mut self.outside);
            self.node.settle(self.now, &mut self.outside);
        }
        self.outside.outgoing.clear();
        self.bursts += 1;
        self.now = self.now + BURST_EVERY;
    }
}

/// Encodes what is sent, and forgets it.
#[derive(Default)]
struct Outside {
    listens: bool,
    heard: Vec<Message>,
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

impl World<MultiPaxos> for Outside {
    fn send(&mut self, _: u8, members: u64, message: Message) {
        if self.listens {
            return self.heard.push(message);
        }
        // No two instances of one kind share a node here.
        let nodes = members.count_ones() as usize;
        self.left += nodes;
        if nodes == 1 {
            return encode_frame(&mut self.outgoing, members, &message).expect("a message of usual size");
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
