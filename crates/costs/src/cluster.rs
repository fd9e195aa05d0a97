//! All nodes of a deployment, and the bursts of commands that pass through them.

use crate::count::{Counter, Place, Uncounted};
use crate::load::{KeyValue, Load, Service};
use crate::member::{Births, Hire, Member};
use anyhow::{Context, Result, ensure};
use ionian_deployment::{CLIENT, Deployment, Durability};
use ionian_kernel::client::Request;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::work::Inline;
use ionian_protocols::registry::{self, Work};
use ionian_runtime::transport::frame::frame_span;

/// Between the beginnings of two bursts.
const BURST_EVERY: Duration = Duration::from_millis(1);

/// A deployment that does not serve after this many milliseconds never will.
const PATIENCE: usize = 60_000;

/// Milliseconds without commands before the first burst: what roles keep of the
/// beginning (commands that came before there was a leader, say) is gone then.
const IDLE: usize = 2_000;

/// Nodes of a deployment at most: a message's receivers are a set of bits.
const MAX_NODES: usize = 64;

/// A deployment that serves, of whichever protocol.
pub trait Run {
    /// What the nodes of each group are called ([`group_name`]).
    fn groups(&self) -> Vec<String>;

    /// The nodes, in the order of [`Place::node`].
    fn nodes(&self) -> &[NodeId];

    /// One burst of commands passes through the deployment, from requests to replies.
    ///
    /// # Panics
    /// When a command is not answered, or with an error: then it is not the steady state that was
    /// counted.
    fn burst(&mut self, counter: &mut dyn Counter);

    /// How many commands have passed.
    fn commands(&self) -> usize;

    /// What each node has sent and received since the beginning.
    fn traffic(&self) -> &[Traffic];
}

/// What a node sends to other nodes, and receives from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages sent; one to several nodes counts for each.
    pub frames_out: usize,
    /// Messages received.
    pub frames_in: usize,
    /// Writes to connections: everything that a burst sends to one node is one write.
    pub writes: usize,
    /// Reads from connections: everything that arrives from one node at once is one read.
    pub reads: usize,
    /// Bytes of the messages sent, with their frames.
    pub bytes_out: usize,
    /// Bytes of the messages received.
    pub bytes_in: usize,
}

impl Traffic {
    /// What came after `before`.
    pub fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            frames_out: self.frames_out - before.frames_out,
            frames_in: self.frames_in - before.frames_in,
            writes: self.writes - before.writes,
            reads: self.reads - before.reads,
            bytes_out: self.bytes_out - before.bytes_out,
            bytes_in: self.bytes_in - before.bytes_in,
        }
    }
}

/// What a node with these kinds of roles is called: up to two kinds with `+` between them, or
/// `node` where it has more.
pub fn group_name(kinds: &[&str]) -> String {
    match kinds.len() {
        0..=2 => kinds.join("+"),
        _ => "node".to_owned(),
    }
}

/// Starts a deployment and waits until it serves.
///
/// # Errors
/// If it is not a deployment of its protocol, or has too many nodes.
///
/// # Panics
/// If it does not serve.
pub fn begin(deployment: &Deployment, load: &Load) -> Result<Box<dyn Run>> {
    let service = Box::new(KeyValue::new(&deployment.machine, load)?);
    begin_with(deployment, load, service, &|_, count| Inline::hire(count))
}

/// As [`begin`], with another service, and workers of the caller. Of the load, only what is not
/// about commands counts.
///
/// # Errors
/// As [`begin`].
///
/// # Panics
/// As [`begin`].
pub fn begin_with(
    deployment: &Deployment,
    load: &Load,
    service: Box<dyn Service>,
    workers: &Hire,
) -> Result<Box<dyn Run>> {
    let begin = Begin(deployment, load, service, workers);
    registry::with_protocol(&deployment.protocol, begin)
        .with_context(|| format!("protocol = {:?}: does not exist", deployment.protocol))?
}

struct Begin<'a>(&'a Deployment, &'a Load, Box<dyn Service>, &'a Hire);

impl Work for Begin<'_> {
    type Output = Result<Box<dyn Run>>;

    fn run<P: Protocol>(self) -> Self::Output {
        let Begin(deployment, load, service, workers) = self;
        Ok(Box::new(Cluster::<P>::begin(
            deployment, load, service, workers,
        )?))
    }
}

/// See [`Run`].
struct Cluster<P: Protocol> {
    members: Vec<Member<P>>,
    nodes: Vec<NodeId>,
    /// The group of each node.
    group_of: Vec<usize>,
    groups: Vec<String>,
    traffic: Vec<Traffic>,
    /// The client lanes, with the node of each.
    lanes: Vec<(ClientId, usize)>,
    service: Box<dyn Service>,
    /// Commands of a burst.
    burst: usize,
    now: Instant,
    /// How many requests have been made and how many answered.
    requests: usize,
    answered: usize,
}

impl<P: Protocol> Cluster<P> {
    fn begin(
        deployment: &Deployment,
        load: &Load,
        service: Box<dyn Service>,
        workers: &Hire,
    ) -> Result<Self> {
        let layout = deployment.layout(P::KINDS)?;
        let nodes: Vec<NodeId> = layout.nodes().into_iter().collect();
        let count = nodes.len();
        ensure!(
            count <= MAX_NODES,
            "{count} nodes: at most {MAX_NODES} can be run in one process"
        );
        let births = Births::<P> {
            config: &P::configure(layout.clone())?,
            layout: &layout,
            machine: &|| service.machine(),
            workers,
            keeps_records: deployment.durability == Durability::Disk,
        };
        let now = Instant(1_000_000_000);
        let (groups, group_of) = groups(&layout, &nodes, P::KINDS);
        let member = |(place, (node, group)): (usize, (&NodeId, &usize))| {
            let is_separate = load.separate_clients && groups[*group] == CLIENT;
            Member::new(&births, (place, *node), is_separate, now)
        };
        let lanes = nodes.iter().enumerate().flat_map(|(place, node)| {
            let lanes = layout.client_lanes(*node);
            lanes
                .iter()
                .map(move |lane| (lane, place))
                .collect::<Vec<_>>()
        });
        let mut cluster = Cluster {
            members: nodes
                .iter()
                .zip(&group_of)
                .enumerate()
                .map(member)
                .collect(),
            traffic: vec![Traffic::default(); count],
            lanes: lanes.collect(),
            service,
            burst: load.burst,
            nodes,
            group_of,
            groups,
            now,
            requests: 0,
            answered: 0,
        };
        cluster.wait();
        while load.filled && cluster.requests < load.keys {
            cluster.burst(&mut Uncounted);
        }
        Ok(cluster)
    }

    /// Waits until a command of each lane has been answered.
    fn wait(&mut self) {
        (0..self.lanes.len()).for_each(|_| self.ask());
        for _ in 0..PATIENCE {
            self.settle(&mut Uncounted);
            if self.answered == self.requests {
                return (0..IDLE).for_each(|_| self.settle(&mut Uncounted));
            }
        }
        panic!("the deployment answers no commands");
    }

    /// The next lane asks for something.
    fn ask(&mut self) {
        let (lane, place) = self.lanes[self.requests % self.lanes.len()];
        let (operation, payload) = self.service.command(self.requests);
        let request = Request {
            token: self.requests as u64,
            operation,
            payload,
        };
        self.members[place].submit(lane, request);
        self.requests += 1;
    }

    /// Messages pass until none is left; then time passes.
    fn settle(&mut self, counter: &mut dyn Counter) {
        loop {
            let mut due = Vec::new();
            for (node, member) in self.members.iter_mut().enumerate() {
                if member.is_due(self.now) {
                    let group = self.group_of[node];
                    counter.pass(Place { group, node }, member);
                    due.push(node);
                }
            }
            if due.is_empty() {
                break;
            }
            due.into_iter().for_each(|node| self.carry(node));
        }
        self.now = self.now + BURST_EVERY;
    }

    /// What a node has sent arrives.
    fn carry(&mut self, from: usize) {
        for reply in self.members[from].replies() {
            assert!(reply.outcome.is_ok(), "{reply:?}");
            self.answered += 1;
        }
        for to in 0..self.members.len() {
            let mut bytes = std::mem::take(&mut self.members[from].leaving()[to]);
            if !bytes.is_empty() {
                self.count(from, to, &bytes);
                self.members[to].arrive(&bytes);
                bytes.clear();
            }
            // The memory is used again.
            self.members[from].leaving()[to] = bytes;
        }
    }

    fn count(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let (mut frames, mut rest) = (0, bytes);
        while !rest.is_empty() {
            rest = &rest[frame_span(rest)..];
            frames += 1;
        }
        let sender = &mut self.traffic[from];
        sender.frames_out += frames;
        sender.writes += 1;
        sender.bytes_out += bytes.len();
        let receiver = &mut self.traffic[to];
        receiver.frames_in += frames;
        receiver.reads += 1;
        receiver.bytes_in += bytes.len();
    }
}

impl<P: Protocol> Run for Cluster<P> {
    fn groups(&self) -> Vec<String> {
        self.groups.clone()
    }

    fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    fn burst(&mut self, counter: &mut dyn Counter) {
        (0..self.burst).for_each(|_| self.ask());
        self.settle(counter);
        assert_eq!(self.answered, self.requests, "commands without an answer");
    }

    fn commands(&self) -> usize {
        self.answered
    }

    fn traffic(&self) -> &[Traffic] {
        &self.traffic
    }
}

/// The groups of nodes with the same kinds of roles, and the group of each node.
fn groups(layout: &Layout, nodes: &[NodeId], kinds: &[&str]) -> (Vec<String>, Vec<usize>) {
    let mut groups: Vec<String> = Vec::new();
    let mut group_of = Vec::new();
    for node in nodes {
        let mut here: Vec<u8> = layout.on_node(*node).iter().map(|at| at.kind).collect();
        here.dedup();
        let names: Vec<&str> = here.iter().map(|kind| kinds[usize::from(*kind)]).collect();
        let name = group_name(&names);
        let known = groups.iter().position(|group| *group == name);
        group_of.push(known.unwrap_or(groups.len()));
        if known.is_none() {
            groups.push(name);
        }
    }
    (groups, group_of)
}
