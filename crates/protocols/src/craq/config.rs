//! Which layouts are deployments of CRAQ, and what every role needs to know of its own.

use super::id::ChainNodeId;
use super::kind;
use super::message::Chain;
use super::settings::lease;
use crate::multipaxos::config::Config as Ordering;
use crate::multipaxos::kind as ordering;
use crate::places::{at_least, seen_as_multipaxos};
use alloc::format;
use alloc::sync::Arc;
use ionian_kernel::id::{Id, Set};
use ionian_kernel::layout::{Layout, LayoutError, NodeId, Options};

/// How many things a chain node asks of its master at a time: an inquiry, a look and a step; and
/// more bytes than any of them takes.
const ASKS: usize = 3;
const ASK_BYTES: usize = 1 << 10;

/// A layout that was checked.
#[derive(Debug)]
pub struct Config {
    layout: Layout,
    nodes: Set<ChainNodeId>,
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
        Ok(Config {
            master: Arc::new(Ordering::new(view(&layout))?),
            nodes: layout.all(kind::ChainNode),
            layout,
        })
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

    /// The chain that the cluster begins with.
    pub fn founding(&self) -> Chain {
        Chain::founding(self.nodes())
    }

    /// Whether inquiries give leases.
    pub fn has_leases(&self) -> bool {
        lease(self.options()).is_some()
    }

    /// The fewest members that suspicions leave in the chain.
    pub fn least(&self) -> usize {
        self.nodes().len().saturating_sub(self.layout.f).max(1)
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
