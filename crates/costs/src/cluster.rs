//! All nodes of a deployment, and the bursts of commands that pass through them.

use crate::count::{Counter, FUNCTIONS, Uncounted};
use crate::load::Load;
use crate::member::Member;
use bytes::Bytes;
use ionian_kernel::client::Request;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::{Duration, Instant};

/// Commands of a burst, of all lanes together.
pub(crate) const BURST: usize = 400;

/// Between the beginnings of two bursts.
const BURST_EVERY: Duration = Duration::from_millis(1);

/// A deployment that does not serve after this many milliseconds never will.
const PATIENCE: usize = 60_000;

/// Milliseconds without commands before the first burst: what roles keep of the
/// beginning (commands that came before there was a leader, say) is gone then.
const IDLE: usize = 2_000;

/// How many keys are written and read.
const KEYS: usize = 1000;

/// A deployment that serves, of whichever protocol.
pub trait Run {
    /// What the nodes of each group are called: the kind of role that they have, a few with `+`
    /// between them, or `node` where it is every role or nearly so.
    fn groups(&self) -> Vec<String>;

    /// One burst of commands passes through the deployment, from requests to replies.
    ///
    /// # Panics
    /// When a command is not answered, or with an error: then it is not the steady state that was
    /// counted.
    fn burst(&mut self, counter: &mut dyn Counter);

    /// How many commands have passed.
    fn commands(&self) -> usize;
}

/// See [`Run`].
pub(crate) struct Cluster<P: Protocol> {
    members: Vec<Member<P>>,
    /// The group of each node.
    group_of: Vec<usize>,
    groups: Vec<String>,
    /// The client lanes, with the node of each.
    lanes: Vec<(ClientId, usize)>,
    load: Load,
    payloads: Vec<Bytes>,
    now: Instant,
    /// How many requests have been made and how many answered.
    requests: usize,
    answered: usize,
}

impl<P: Protocol> Cluster<P> {
    /// Starts a deployment and waits until it serves.
    pub(crate) fn begin(layout: Layout, load: Load) -> Self {
        let now = Instant(1_000_000_000);
        let config = P::configure(layout.clone()).expect("a deployment");
        let nodes: Vec<NodeId> = layout.nodes().into_iter().collect();
        let on_disk = load == Load::WritesOnDisk;
        let member = |node: &NodeId| Member::new(&config, &layout, *node, on_disk, now);
        let (groups, group_of) = groups(&layout, &nodes, P::KINDS);
        let lanes = nodes.iter().enumerate().flat_map(|(place, node)| {
            let lanes = layout.client_lanes(*node);
            lanes
                .iter()
                .map(move |lane| (lane, place))
                .collect::<Vec<_>>()
        });
        let mut cluster = Cluster {
            members: nodes.iter().map(member).collect(),
            group_of,
            groups,
            lanes: lanes.collect(),
            load,
            payloads: (0..KEYS).map(|key| load.payload(key)).collect(),
            now,
            requests: 0,
            answered: 0,
        };
        cluster.wait();
        cluster
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
        let request = Request {
            token: self.requests as u64,
            operation: self.load.operation(),
            payload: self.payloads[self.requests % KEYS].clone(),
        };
        self.members[place].submit(lane, request);
        self.requests += 1;
    }

    /// Messages pass until none is left; then time passes.
    fn settle(&mut self, counter: &mut dyn Counter) {
        loop {
            let mut due = Vec::new();
            for (place, member) in self.members.iter_mut().enumerate() {
                if member.is_due(self.now) {
                    counter.pass(self.group_of[place], member);
                    due.push(place);
                }
            }
            if due.is_empty() {
                break;
            }
            due.into_iter().for_each(|place| self.carry(place));
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
                self.members[to].arrive(&bytes);
                bytes.clear();
            }
            // The memory is used again.
            self.members[from].leaving()[to] = bytes;
        }
    }
}

impl<P: Protocol> Run for Cluster<P> {
    fn groups(&self) -> Vec<String> {
        self.groups.clone()
    }

    fn burst(&mut self, counter: &mut dyn Counter) {
        (0..BURST).for_each(|_| self.ask());
        self.settle(counter);
        assert_eq!(self.answered, self.requests, "commands without an answer");
    }

    fn commands(&self) -> usize {
        self.answered
    }
}

/// The groups of nodes with the same kinds of roles, and the group of each node.
fn groups(layout: &Layout, nodes: &[NodeId], kinds: &[&str]) -> (Vec<String>, Vec<usize>) {
    let mut groups: Vec<String> = Vec::new();
    let mut group_of = Vec::new();
    for node in nodes {
        let mut here: Vec<u8> = layout.on_node(*node).iter().map(|at| at.kind).collect();
        here.dedup();
        let name = match here.len() {
            0..=2 => {
                let names: Vec<&str> = here.iter().map(|kind| kinds[usize::from(*kind)]).collect();
                names.join("+")
            }
            _ => "node".to_owned(),
        };
        let known = groups.iter().position(|group| *group == name);
        group_of.push(known.unwrap_or(groups.len()));
        if known.is_none() {
            groups.push(name);
        }
    }
    assert!(groups.len() <= FUNCTIONS.len(), "a function for each group");
    (groups, group_of)
}
