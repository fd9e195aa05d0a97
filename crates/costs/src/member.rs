//! One node: what it receives comes as bytes, what it sends leaves as bytes, but no system call is
//! made.

use crate::count::{Observer, Pass};
use bytes::BytesMut;
use ionian_kernel::client::{Reply, Request};
use ionian_kernel::id::{ClientId, Index, Members};
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::machine::{Frozen, StateMachine};
use ionian_kernel::membership::Membership;
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::{Birth, Message, Protocol};
use ionian_kernel::role::Lsn;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Wire;
use ionian_kernel::work::Workers;
use ionian_runtime::transport::frame::{FrameReader, encode_frame};

/// As much as the runtime reads at once.
const READ_BYTES: usize = 64 << 10;

/// What all nodes of a deployment are built from.
pub(crate) struct Births<'a, P: Protocol> {
    pub(crate) config: &'a P::Config,
    pub(crate) layout: &'a Layout,
    pub(crate) machine: &'a dyn Fn() -> Box<dyn StateMachine>,
    pub(crate) workers: &'a Hire,
    pub(crate) keeps_records: bool,
}

/// How the node with this number ([`Place::node`](crate::count::Place::node)) gets this many
/// workers.
pub type Hire = dyn Fn(usize, usize) -> Box<dyn Workers>;

/// The roles of one node, and what lies between them and the other nodes.
pub(crate) struct Member<P: Protocol> {
    node: Node<P>,
    outside: Outside,
    arrived: FrameReader,
    /// What the frame reader has no room for: a socket gives it a limited number of bytes at once.
    waiting: BytesMut,
    requests: Vec<(ClientId, Request)>,
    /// Whether each request and each message is a burst of its own.
    is_separate: bool,
    now: Instant,
}

impl<P: Protocol> Member<P> {
    pub(crate) fn new(
        births: &Births<'_, P>,
        (place, node): (usize, NodeId),
        is_separate: bool,
        now: Instant,
    ) -> Self {
        let Births {
            config,
            layout,
            machine,
            workers,
            keeps_records,
        } = *births;
        let hire = move |count| workers(place, count);
        let mut hosted = Node::new(config, keeps_records);
        for address in layout.on_node(node) {
            let birth = Birth {
                address,
                node,
                seed: u64::from(address.kind) << 8 | u64::from(address.index),
                amnesiac: false,
                predecessors: 0,
                keeps_records,
                machine,
                guard: None,
                workers: Some(&hire),
            };
            hosted.host(address, P::instantiate(config, birth));
        }
        let mut member = Member {
            node: hosted,
            outside: Outside::new(layout, P::KINDS.len()),
            arrived: FrameReader::default(),
            waiting: BytesMut::new(),
            requests: Vec::new(),
            is_separate,
            now,
        };
        member.node.start(now, &mut member.outside);
        member
    }

    /// Bytes of another node arrive.
    pub(crate) fn arrive(&mut self, bytes: &[u8]) {
        let fits = self.waiting.is_empty() && self.arrived.pending() + bytes.len() <= READ_BYTES;
        match fits {
            true => self.arrived.space().extend_from_slice(bytes),
            false => self.waiting.extend_from_slice(bytes),
        }
    }

    /// Reads on after all that was read has been taken in. Whether there was anything.
    fn read_on(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let read = self.waiting.len().min(READ_BYTES);
        let bytes = self.waiting.split_to(read);
        self.arrived.space().extend_from_slice(&bytes);
        true
    }

    /// The application of a client lane wants something.
    pub(crate) fn submit(&mut self, lane: ClientId, request: Request) {
        self.requests.push((lane, request));
    }

    /// The time passes. Whether the node has anything to do.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        self.now = now;
        self.arrived.pending() > 0
            || !self.waiting.is_empty()
            || !self.requests.is_empty()
            || !self.outside.snapshots.is_empty()
            || self.node.next_timer().is_some_and(|timer| timer <= now)
    }

    /// Takes what has left for other nodes, by the number of the node.
    pub(crate) fn leaving(&mut self) -> &mut [Vec<u8>] {
        &mut self.outside.outgoing
    }

    /// Takes the answers to requests.
    pub(crate) fn replies(&mut self) -> std::vec::Drain<'_, Reply> {
        self.outside.replies.drain(..)
    }
}

impl<P: Protocol> Member<P> {
    /// Requests, snapshots that were written, and timers.
    fn take_in(&mut self) {
        for (lane, request) in self.requests.drain(..) {
            self.node.submit(lane, request);
        }
        for (from, stamp) in std::mem::take(&mut self.outside.snapshots) {
            self.node
                .on_snapshot(from, (stamp, true), &mut self.outside);
        }
        if self
            .node
            .next_timer()
            .is_some_and(|timer| timer <= self.now)
        {
            self.node.fire_timers(self.now, &mut self.outside);
        }
    }

    /// Takes all records to disk. Whether there were any, so that messages wait no longer.
    fn reach_disk(&mut self) -> bool {
        let reached = self.outside.durable < self.outside.appended;
        if reached {
            // Here the disk would be waited for.
            self.outside.durable = self.outside.appended;
            self.outside.log.clear();
            self.node.on_durable(&mut self.outside);
        }
        reached
    }

    /// Handles all queued messages, and shows each.
    fn handle_each(&mut self, observer: &mut dyn Observer) {
        let mut encoded = Vec::new();
        while self.node.queued() > 0 {
            while let Some((_, message)) = self.node.front() {
                let (kind, name) = (message.kind(), message.name());
                encoded.clear();
                message.encode(&mut encoded);
                observer.begin();
                self.node.run(self.now, 1, &mut self.outside);
                observer.handled(kind, name, encoded.len());
                if self.is_separate {
                    self.node.end_burst(self.now, &mut self.outside);
                }
            }
            self.node.end_burst(self.now, &mut self.outside);
        }
    }
}

impl<P: Protocol> Pass for Member<P> {
    fn receive(&mut self) {
        loop {
            while let Some(frame) = self.arrived.next_frame().expect("frames") {
                let message = frame.message.decode().expect("a message");
                self.node.deliver(frame.members, message);
            }
            if !self.read_on() {
                return;
            }
        }
    }

    fn work(&mut self) {
        self.take_in();
        while self.is_separate && self.node.queued() > 0 {
            self.node.run(self.now, 1, &mut self.outside);
            self.node.end_burst(self.now, &mut self.outside);
        }
        self.node.settle(self.now, &mut self.outside);
        if self.reach_disk() {
            self.node.settle(self.now, &mut self.outside);
        }
    }

    fn observe(&mut self, observer: &mut dyn Observer) {
        loop {
            observer.begin();
            let Some(frame) = self.arrived.next_frame().expect("frames") else {
                match self.read_on() {
                    true => continue,
                    false => break,
                }
            };
            let message: P::Message = frame.message.decode().expect("a message");
            let (kind, name) = (message.kind(), message.name());
            self.node.deliver(frame.members, message);
            observer.received(kind, name);
        }
        self.take_in();
        self.handle_each(observer);
        if self.reach_disk() {
            self.handle_each(observer);
        }
    }
}

/// Encodes what is sent.
struct Outside {
    /// The node of each instance, by kind and index.
    nodes: Vec<Vec<Option<usize>>>,
    /// Bytes to each other node.
    outgoing: Vec<Vec<u8>>,
    /// A frame that goes to several nodes, encoded once.
    scratch: Vec<u8>,
    /// Records that wait to be written to disk.
    log: Vec<u8>,
    appended: Lsn,
    durable: Lsn,
    /// Snapshots that have been written.
    snapshots: Vec<(Address, u64)>,
    replies: Vec<Reply>,
}

impl Outside {
    fn new(layout: &Layout, kinds: usize) -> Self {
        let nodes: Vec<NodeId> = layout.nodes().into_iter().collect();
        let place = |node| nodes.iter().position(|known| *known == node);
        let mut places = vec![Vec::new(); kinds];
        for (address, node) in layout.addresses() {
            let of_kind = &mut places[usize::from(address.kind)];
            let index = usize::from(address.index);
            of_kind.resize(of_kind.len().max(index + 1), None);
            of_kind[index] = place(node);
        }
        Outside {
            nodes: places,
            outgoing: vec![Vec::new(); nodes.len()],
            scratch: Vec::new(),
            log: Vec::new(),
            appended: Lsn::default(),
            durable: Lsn::default(),
            snapshots: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// The places of the nodes of these instances of a kind, each once.
    fn nodes_of(&self, kind: u8, members: Members) -> Members {
        let nodes = &self.nodes[usize::from(kind)];
        let place = |index| nodes.get(usize::from(index)).copied().flatten();
        members
            .iter()
            .filter_map(place)
            .map(|place| place as Index)
            .collect()
    }
}

impl<P: Protocol> World<P> for Outside {
    fn send(&mut self, kind: u8, members: Members, message: P::Message) {
        let mut nodes = self.nodes_of(kind, members);
        if nodes.len() == 1 {
            let node = nodes.pop_first().expect("one");
            let out = &mut self.outgoing[usize::from(node)];
            return encode_frame(out, members, &message).expect("a message of usual size");
        }
        self.scratch.clear();
        encode_frame(&mut self.scratch, members, &message).expect("a message of usual size");
        for node in nodes.iter() {
            self.outgoing[usize::from(node)].extend_from_slice(&self.scratch);
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

    fn clock(&self) -> Instant {
        // No time passes while a command is counted.
        Instant::ZERO
    }

    fn store_snapshot(&mut self, from: Address, stamp: u64, mut frozen: Box<dyn Frozen>) {
        // The runtime writes it on another thread.
        let mut written = Vec::new();
        while frozen.write_some(&mut written) {}
        self.snapshots.push((from, stamp));
    }

    fn announce(&mut self, _: Membership) {
        unreachable!("the membership does not change")
    }

    fn reply(&mut self, _: ClientId, reply: Reply) {
        self.replies.push(reply);
    }
}
