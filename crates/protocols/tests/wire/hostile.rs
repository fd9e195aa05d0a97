//! What faulty peers send to whole clusters of real roles: drawn messages of every kind, and real
//! ones with damaged bytes. No role may panic, and none may take as much memory as a message names.
//!
//! One kind of panic is a peer's to cause: a role that learns of two values in one slot (of one
//! round, or chosen) stops its node, for then the log is broken and to go on would spread it. Peers
//! are taken at their word in that; a run ends there.

use super::drawn;
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Reply, Request};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, NodeId, numbered};
use ionian_kernel::level::Level;
use ionian_kernel::machine::{Frozen, NotARead, RestoreError, StateMachine};
use ionian_kernel::membership::Membership;
use ionian_kernel::node::{Node, World};
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Message, Protocol};
use ionian_kernel::random::Random;
use ionian_kernel::role::Lsn;
use ionian_kernel::time::{Instant, Timestamp};
use ionian_kernel::wire::{Reader, decode_all, encode_all};
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) const SERVERS: usize = 3;
const STEPS: usize = 400;
/// Runs with each protocol, if none ends early.
const RUNS: u64 = 40;
/// More messages under way than that are lost.
const MAX_UNDER_WAY: usize = 200;

pub(crate) struct Echo;

impl StateMachine for Echo {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        reply.extend_from_slice(command);
    }
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }
    fn snapshot(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// Each record is on disk at once.
pub(crate) struct Port<M> {
    pub(crate) lsn: u64,
    pub(crate) sent: Vec<(u8, Members, M)>,
    snapshots: Vec<(Address, u64)>,
    /// The tokens of requests that were carried out.
    pub(crate) done: Vec<u64>,
}

impl<P: Protocol> World<P> for Port<P::Message> {
    fn send(&mut self, kind: u8, members: Members, message: P::Message) {
        self.sent.push((kind, members, message));
    }
    fn append(&mut self, _: Address, _: &[u8], _: bool) -> Lsn {
        self.lsn += 1;
        Lsn(self.lsn)
    }
    fn durable(&self) -> Lsn {
        Lsn(self.lsn)
    }
    fn clock(&self) -> Instant {
        Instant::ZERO
    }
    fn store_snapshot(&mut self, from: Address, stamp: u64, mut frozen: Box<dyn Frozen>) {
        let mut snapshot = Vec::new();
        while frozen.write_some(&mut snapshot) {}
        self.snapshots.push((from, stamp));
    }
    fn announce(&mut self, _: Membership) {}
    fn reply(&mut self, _: ClientId, reply: Reply) {
        self.done
            .extend(reply.outcome.is_ok().then_some(reply.token));
    }
}

pub(crate) struct Cluster<P: Protocol> {
    random: Random,
    pub(crate) now: Instant,
    layout: Layout,
    pub(crate) nodes: Vec<Node<P>>,
    pub(crate) port: Port<P::Message>,
    pub(crate) under_way: VecDeque<(usize, Members, Bytes)>,
}

impl<P: Protocol> Cluster<P> {
    /// A cluster of this layout, which goes on from these records.
    pub(crate) fn recovered(seed: u64, layout: Layout, records: &[(Address, Vec<u8>)]) -> Self {
        let config = P::configure(layout.clone()).expect("a deployment");
        let machine = || Box::new(Echo) as Box<dyn StateMachine>;
        let port = Port {
            lsn: 0,
            sent: Vec::new(),
            snapshots: Vec::new(),
            done: Vec::new(),
        };
        let nodes = layout.nodes();
        let nodes = nodes.iter().map(|_| Node::new(&config, true)).collect();
        let (random, now, under_way) = (Random::new(seed), Instant(1_000_000), VecDeque::new());
        let mut cluster = Cluster {
            random,
            now,
            layout,
            nodes,
            port,
            under_way,
        };
        for (address, node) in cluster.layout.addresses() {
            let seed = cluster.random.any();
            let birth = Birth {
                address,
                node,
                seed,
                amnesiac: false,
                predecessors: 0,
                keeps_records: true,
                machine: &machine,
                guard: None,
                workers: None,
            };
            let node = &mut cluster.nodes[usize::from(node.0)];
            node.host(address, P::instantiate(&config, birth));
            for (_, record) in records.iter().filter(|(from, _)| *from == address) {
                let record = Bytes::copy_from_slice(record);
                node.recover(address, Lsn(0), &mut Reader::new(&record))
                    .expect("a record of it");
            }
        }
        for index in 0..cluster.nodes.len() {
            cluster.nodes[index].start(cluster.now, &mut cluster.port);
            cluster.settle(index);
        }
        cluster
    }

    pub(crate) fn settle(&mut self, node: usize) {
        let Cluster {
            nodes, port, now, ..
        } = self;
        for _ in 0..20 {
            nodes[node].run(*now, 1000, port);
            nodes[node].end_burst(*now, port);
            nodes[node].on_durable(port);
            for (from, stamp) in core::mem::take(&mut port.snapshots) {
                nodes[node].on_snapshot(from, (stamp, true), port);
            }
        }
        nodes[node].invariants();
        for (kind, members, message) in core::mem::take(&mut self.port.sent) {
            let bytes = Bytes::from(encode_all(&message));
            for to in 0..self.nodes.len() {
                let there = self.layout.places(kind);
                let there = there.iter().filter(|(_, place)| usize::from(place.0) == to);
                let there: Members = there.map(|(index, _)| index).collect();
                let there = there.and(members);
                if !there.is_empty() && self.under_way.len() < MAX_UNDER_WAY {
                    self.under_way.push_back((to, there, bytes.clone()));
                }
            }
        }
    }

    pub(crate) fn deliver(&mut self, to: usize, members: Members, bytes: &Bytes) {
        if let Ok(message) = decode_all::<P::Message>(bytes) {
            self.nodes[to].deliver(members, message);
            self.settle(to);
        }
    }

    /// Some bytes, or a number, are another.
    fn damage(&mut self, bytes: &Bytes) -> Bytes {
        let (mut bytes, random) = (bytes.to_vec(), &mut self.random);
        for _ in 0..random.between(1, 2) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] = random.any() as u8,
                1 => bytes[at] = bytes[at].wrapping_add(1),
                2 => bytes[at] ^= 1 << random.below(8),
                _ => {
                    let extremes = [
                        0,
                        1,
                        u64::MAX,
                        u64::MAX - 1,
                        1 << 63,
                        1 << 40,
                        1 << 22,
                        random.any(),
                    ];
                    let number = extremes[random.below(8) as usize].to_le_bytes();
                    let end = bytes.len().min(at + 8);
                    bytes[at..end].copy_from_slice(&number[..end - at]);
                }
            }
        }
        bytes.into()
    }

    fn step(&mut self) {
        let count = self.nodes.len() as u64;
        match self.random.below(16) {
            0 => {
                let message = drawn::message::<P>(&mut self.random);
                let (to, members) = (self.random.below(count) as usize, Members::first(64));
                assert!(usize::from(message.kind()) < P::KINDS.len());
                self.deliver(to, members, &encode_all(&message).into());
            }
            1 | 2 if !self.under_way.is_empty() => {
                let any = self.random.below(self.under_way.len() as u64) as usize;
                let (to, members, bytes) = self.under_way[any].clone();
                let bytes = self.damage(&bytes);
                self.deliver(to, members, &bytes);
            }
            3 => {
                let lanes: Vec<_> = self.layout.places(0).iter().collect();
                let (lane, node) = lanes[self.random.below(lanes.len() as u64) as usize];
                let levels = [
                    ReadLevel::Linearizable,
                    ReadLevel::Sequential,
                    ReadLevel::Eventual,
                ];
                let level = levels[self.random.below(3) as usize];
                let operation = if self.random.once_in(2) {
                    Operation::Write
                } else {
                    Operation::Read(level)
                };
                let request = Request {
                    token: self.random.any(),
                    operation,
                    payload: Bytes::from_static(b"x"),
                };
                let node = usize::from(node.0);
                self.nodes[node].submit(ClientId(lane), request);
                self.settle(node);
            }
            4..6 => {
                let next = (0..self.nodes.len())
                    .filter_map(|node| Some((self.nodes[node].next_timer()?, node)))
                    .min();
                let Some((at, node)) = next else { return };
                self.now = self.now.max(at);
                self.nodes[node].fire_timers(self.now, &mut self.port);
                self.settle(node);
            }
            _ => {
                let Some((to, members, bytes)) = self.under_way.pop_front() else {
                    return;
                };
                self.deliver(to, members, &bytes);
            }
        }
    }
}

/// In a deployment of all roles, and in the first preset where it leaves some out.
pub(crate) fn survive<P: Protocol>() {
    let all = layout::<P>();
    let first = preset(
        P::PRESETS.first().expect("a protocol has presets"),
        P::KINDS,
    );
    let has_roles = |layout: &Layout| -> Vec<bool> {
        let instances = layout.instances.iter();
        instances.map(|places| places.iter().count() > 0).collect()
    };
    if has_roles(&first) != has_roles(&all) {
        survive_in::<P>(&first);
    }
    survive_in::<P>(&all);
}

/// Runs of one seed after the other, until they have taken as many steps as whole runs would.
fn survive_in<P: Protocol>(layout: &Layout) {
    let mut steps = 0;
    for seed in 0.. {
        if steps >= STEPS * RUNS as usize {
            return;
        }
        assert!(
            seed < 10 * RUNS,
            "{seed} runs took {steps} steps together: they show little"
        );
        let mut cluster = Cluster::<P>::recovered(seed, layout.clone(), &[]);
        let mut last = 0;
        let run = catch_unwind(AssertUnwindSafe(|| {
            for step in 0..STEPS {
                last = step;
                cluster.step();
            }
        }));
        steps += last + 1;
        if let Err(panic) = run {
            let text = panic.downcast_ref::<String>().map_or_else(
                || panic.downcast_ref::<&str>().copied().unwrap_or_default(),
                String::as_str,
            );
            // See the top of this file.
            let lied =
                text.contains("two values proposed in") || text.contains("two values chosen in");
            assert!(lied, "seed {seed}, step {last}: {text}");
        }
    }
}

/// Every role on each of the servers, or the preset with the most roles where that is no
/// deployment of the protocol.
pub(crate) fn layout<P: Protocol>() -> Layout {
    let layout = together(P::KINDS.len());
    if P::configure(layout.clone()).is_ok() {
        return layout;
    }
    let kinds = |preset: &&Preset| {
        let roles = preset.nodes.iter().flat_map(|nodes| nodes.roles);
        roles.collect::<BTreeSet<_>>().len()
    };
    let largest = P::PRESETS.iter().max_by_key(kinds);
    preset(largest.expect("a protocol has presets"), P::KINDS)
}

fn preset(preset: &Preset, kinds: &[&str]) -> Layout {
    let (mut next, mut places) = ((0..).map(NodeId), vec![Vec::new(); kinds.len()]);
    for nodes in preset.nodes {
        for node in next.by_ref().take(nodes.count) {
            let kinds = kinds.iter().zip(&mut places);
            let here = kinds.filter(|(kind, _)| nodes.roles.contains(kind));
            here.for_each(|(_, places)| places.push(node));
        }
    }
    Layout {
        f: preset.f,
        quorums: preset.quorums,
        instances: numbered(places),
        founding_level: Level::LATEST,
        ..Layout::default()
    }
}

pub(crate) fn together(kinds: usize) -> Layout {
    let nodes: Vec<NodeId> = (0..SERVERS as u16).map(NodeId).collect();
    Layout {
        f: 1,
        instances: numbered(vec![nodes; kinds]),
        founding_level: Level::LATEST,
        ..Layout::default()
    }
}
