//! Which layouts are deployments of CRAQ, and what every role needs to know of its own.

use super::id::ChainNodeId;
use super::message::Chain;
use super::settings::lease;
use super::{Craq, kind};
use crate::multipaxos::config::{Config as Ordering, check_places};
use crate::multipaxos::kind as ordering;
use crate::places::{at_least, seen_as_multipaxos};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::{Epoch, Id, Index, Set};
use ionian_kernel::layout::{Layout, LayoutError, NodeId, Options};
use ionian_kernel::protocol::{Protocol, Transition};

/// How many changes of the membership a chain node has the master decide on at a time.
pub(super) const CHANGES: usize = 4;

/// How many things a chain node asks of its master at a time: an inquiry, a look, which nodes
/// count, a step, and changes of the membership; and more bytes than any but the last takes.
const ASKS: usize = 4 + CHANGES;
const ASK_BYTES: usize = 1 << 10;

/// A layout that was checked.
#[derive(Debug)]
pub struct Config {
    layout: Layout,
    nodes: Set<ChainNodeId>,
    /// Those of the configuration before the change that is under way, or of the only one.
    now: Set<ChainNodeId>,
    /// Those of the configuration after it.
    next: Option<Set<ChainNodeId>>,
    /// The deployment as the master's roles see it: their clients are the chain nodes.
    pub master: Arc<Ordering>,
}

impl Config {
    /// Checks a layout.
    ///
    /// # Errors
    /// Says which rule of the protocol it breaks.
    pub fn new(layout: Layout) -> Result<Self, LayoutError> {
        let f = layout.f;
        let (founded, least) = (layout.founding_level, Craq::FOUNDED_SINCE);
        if founded < least {
            return Err(LayoutError(format!(
                "a cluster of CRAQ has level {least} or higher from its beginning, and this one has \
                 {founded}: write level = {least} into the file of a new cluster. A chain of level \
                 {founded} can stop though no more than f nodes are down: save its state with the \
                 former program, and found another cluster with it"
            )));
        }
        at_least("chain nodes", layout.count(kind::ChainNode), f + 1)?;
        for (kind, name) in [(kind::Batcher, "batchers"), (kind::Unbatcher, "unbatchers")] {
            if layout.count(kind) > 0 {
                at_least(name, layout.count(kind), f + 1)?;
            }
        }
        if layout.count(kind::Client) == 0 {
            let problem =
                "there is no client: give at least one node a gateway or the role \"client\"";
            return Err(LayoutError(problem.into()));
        }
        if let Some(node) = layout.shared(kind::ChainNode) {
            return Err(LayoutError(format!(
                "two chain nodes are on node {}: each must be on a node of its own, for each holds \
                 a copy of its own",
                layout.name(node)
            )));
        }
        let of = |layout: &Layout| chain_nodes(layout).map(ChainNodeId).collect();
        let mut master = Ordering::new(view(&layout))?;
        // The chain has to be handed over too, before a change of the membership is finished.
        master.waits_for_word = true;
        Ok(Config {
            master: Arc::new(master),
            nodes: layout.all(kind::ChainNode),
            now: of(&layout),
            next: layout.next.as_deref().map(of),
            layout,
        })
    }

    /// How to get from one layout to another: with an epoch of both where chain nodes, or acceptors
    /// or replicas of the master, are others.
    ///
    /// # Errors
    /// When either breaks a rule, an instance would move to another node, or the number of chain
    /// nodes, or of those that may fail, would be another: the master counts with it.
    pub fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        let plain = |layout: &Layout| Layout {
            next: None,
            ..layout.clone()
        };
        let ordering = Ordering::transition(&view(from), &view(to))?;
        Config::new(plain(from))?;
        Config::new(plain(to))?;
        check_places(from, to, super::KINDS)?;
        let [before, after] = [from, to].map(|layout| chain_nodes(layout).count());
        if before != after || from.f != to.f {
            return Err(LayoutError(format!(
                "the chain has {before} nodes and f={}, and would have {after} and f={}: chain \
                 nodes can be replaced, but their number and f stay; to change these, save the \
                 state, and found another cluster with it",
                from.f, to.f
            )));
        }
        let joint = ordering == Transition::Joint || chain_nodes(from).ne(chain_nodes(to));
        if !joint {
            return Ok(Transition::AtOnce);
        }
        match from.since > Epoch::default() || chain_nodes(from).eq(0..before as Index) {
            true => Ok(Transition::Joint),
            false => Err(LayoutError(
                "the chain nodes of this cluster were not numbered from 0 on when it was founded, \
                 so that none can be replaced: save the state, and found another cluster with it, from \
                 a file that leaves the numbers out"
                    .into(),
            )),
        }
    }

    /// The layout as it was checked.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.layout.options
    }

    /// All chain nodes, members of the chain or not.
    pub fn nodes(&self) -> Set<ChainNodeId> {
        self.nodes
    }

    /// The epoch that the layout is of.
    pub fn epoch(&self) -> Epoch {
        self.layout.epoch
    }

    /// The chain nodes before the change of the membership that is under way, and those after it;
    /// or those that there are.
    pub fn standing(&self) -> (Set<ChainNodeId>, Option<Set<ChainNodeId>>) {
        (self.now, self.next)
    }

    /// The chain nodes that the change of the membership adds.
    pub fn added(&self) -> Set<ChainNodeId> {
        self.nodes.without(self.now)
    }

    /// Whether the chain nodes are those that the cluster began with: no change of them was begun.
    pub fn is_founding(&self) -> bool {
        self.layout.since == Epoch::default() && self.next.is_none()
    }

    /// The chain that the cluster began with. Only one whose chain nodes were numbered from 0 on
    /// has come to others since.
    pub fn founding(&self) -> Chain {
        if self.layout.since == Epoch::default() {
            return Chain::founding(self.now);
        }
        let first = 0..self.now.len() as Index;
        Chain::founding(first.map(ChainNodeId).collect())
    }

    /// Whether inquiries give leases.
    pub fn has_leases(&self) -> bool {
        lease(self.options()).is_some()
    }

    /// See [`Protocol::cautions`].
    pub(super) fn cautions(&self) -> Vec<String> {
        let (nodes, f) = (self.now.len(), self.layout.f);
        let mut all = Vec::new();
        if nodes < 2 * f + 1 {
            all.push(format!(
                "with {nodes} chain nodes, fewer than 2f+1 = {}, a node that is suspected by mistake \
                 and {f} that fail afterwards make acknowledged writes unavailable, or lose them if \
                 disks are lost",
                2 * f + 1
            ));
        }
        let (lease, beat) = (lease(self.options()), self.options().heartbeat);
        if lease.is_some_and(|lease| lease < beat * 2) {
            all.push(format!(
                "options.lease_ms is below two heartbeats, {} ms: leases that short save few inquiries",
                (beat * 2).as_millis()
            ));
        }
        all
    }

    /// How many chain nodes are up if f are down; at least one.
    pub fn alive(&self) -> usize {
        self.now.len().saturating_sub(self.layout.f).max(1)
    }

    /// The fewest members that suspicions leave in the chain (`master.rs`).
    pub fn least(&self) -> usize {
        self.alive().min(self.layout.f + 1)
    }

    /// All instances of a kind.
    pub fn all<I: Id>(&self, kind: u8) -> Set<I> {
        self.layout.all(kind)
    }

    /// The instances of a kind on this node.
    pub fn near<I: Id>(&self, kind: u8, node: NodeId) -> Set<I> {
        self.layout.near(kind, node)
    }
}

/// The numbers of the chain nodes of a configuration alone.
fn chain_nodes(layout: &Layout) -> impl Iterator<Item = Index> {
    let places = layout.instances.get(usize::from(kind::ChainNode));
    places
        .into_iter()
        .flat_map(|places| places.iter().map(|(index, _)| index))
}

/// The layout as the master's roles see it.
fn view(layout: &Layout) -> Layout {
    let kinds = [
        (ordering::Client, kind::ChainNode),
        (ordering::Leader, kind::Leader),
        (ordering::ProxyLeader, kind::ProxyLeader),
        (ordering::Acceptor, kind::Acceptor),
        (ordering::Replica, kind::Master),
    ];
    let mut view = seen_as_multipaxos(layout, &kinds);
    // A lane that has no room for a step while a look is in flight might never have any: the same
    // timer may begin both.
    let lane = &mut view.options.lane;
    lane.in_flight = lane.in_flight.max(ASKS);
    lane.in_flight_bytes = lane.in_flight_bytes.max(ASKS * ASK_BYTES);
    // Steps are rare, and the log of a node cannot be cut before a vote for one that is needed: all
    // entries that came since would stay on disk. So every step is in a snapshot soon.
    view.options.snapshot_slots = 1;
    view
}
