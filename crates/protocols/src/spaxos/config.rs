//! Which layouts are deployments of S-Paxos, and what every role needs to know of its own.

use super::id::{DisseminatorId, StabilizerId};
use super::kind;
use super::settings::stale_bytes;
use crate::multipaxos::config::{Config as Ordering, at_least, combinations};
use crate::multipaxos::kind as ordering;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, LayoutError, NodeId};
use ionian_kernel::protocol::Transition;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_replication::quorum::QuorumSystem;

/// A payload is void this many leaders' windows beyond the slot that its disseminator knew the log
/// to reach: far more than passes while a payload is ordered, and little enough that those which
/// nobody orders do not pile up.
const VOID_AFTER_WINDOWS: u64 = 8;

/// A layout that was checked, with what follows from it.
#[derive(Clone, Debug)]
pub struct Config(Arc<Checked>);

/// See [`Config`].
#[derive(Debug)]
pub struct Checked {
    layout: Layout,
    /// The deployment as the roles see it that order references: what proposes is a disseminator.
    pub ordering: Arc<Ordering>,
    /// The deployment as client lanes see it: their commands go to batchers, or to disseminators
    /// where there are none.
    pub lanes: Arc<Ordering>,
    /// How the stabilizers are arranged.
    pub stabilizers: Stabilizers,
    /// All disseminators.
    pub disseminators: Set<DisseminatorId>,
    /// Stabilizers that live beside replicas, each with those: it hands them what is chosen, and so
    /// needs every payload.
    beside: Vec<(StabilizerId, Set<ReplicaId>)>,
    /// Disseminators that live beside leaders, each with those.
    helpers: Vec<(DisseminatorId, Set<LeaderId>)>,
    /// What a stabilizer may hold, in bytes, of payloads of earlier rounds that no slot refers to.
    pub stale_bytes: usize,
}

impl Deref for Config {
    type Target = Checked;
    fn deref(&self) -> &Checked {
        &self.0
    }
}

/// The quorum system of the stabilizers. What a write quorum holds is stable; of each read quorum,
/// a member holds whatever is stable.
pub type Stabilizers = QuorumSystem<StabilizerId>;

/// As the acceptors are arranged if as many stabilizers can be, else in majorities.
fn arrange(layout: &Layout) -> Result<Stabilizers, LayoutError> {
    let system = |spec| QuorumSystem::new(spec, layout.all(kind::Stabilizer), layout.f);
    let system = system(layout.quorums).or_else(|_| system(QuorumSpec::Majority));
    system.map_err(LayoutError)
}

impl Config {
    /// Checks a layout.
    ///
    /// # Errors
    /// Says which rule of the protocol it breaks.
    pub fn new(layout: Layout) -> Result<Self, LayoutError> {
        if layout.next.is_some() {
            return Err(LayoutError(NO_CHANGE.into()));
        }
        let stabilizers = check(&layout)?;
        let by_batchers = layout.count(kind::Batcher) > 0;
        let gather = if by_batchers {
            kind::Batcher
        } else {
            kind::Disseminator
        };
        Ok(Config(Arc::new(Checked {
            ordering: Arc::new(
                Ordering::new(view(&layout, kind::Disseminator))?.ordering_references(),
            ),
            lanes: Arc::new(Ordering::new(view(&layout, gather))?),
            beside: neighbours(&layout, kind::Stabilizer, kind::Replica),
            helpers: neighbours(&layout, kind::Disseminator, kind::Leader),
            disseminators: layout.all(kind::Disseminator),
            stabilizers,
            stale_bytes: stale_bytes(&layout.options),
            layout,
        })))
    }

    /// How to get from one layout to another: not while the cluster runs.
    ///
    /// # Errors
    /// Always, with the reason.
    pub fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Err(LayoutError(NO_CHANGE.into()))
    }
}

/// Payloads are on the stabilizers of one configuration: those of another would have to be handed
/// what is not executed yet, and references name stabilizers by their numbers.
const NO_CHANGE: &str = "the members of an S-Paxos cluster cannot be changed while it runs, because nothing hands \
    the payloads that its stabilizers hold over to others. Save a snapshot, and restore it into a new cluster";

impl Checked {
    /// The layout as it was checked.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether clients send their commands to batchers.
    pub fn has_batchers(&self) -> bool {
        self.layout.count(kind::Batcher) > 0
    }

    /// All instances of a kind.
    pub fn all<I: Id>(&self, kind: u8) -> Set<I> {
        self.layout.all(kind)
    }

    /// The instances of a kind that live on `node`.
    pub fn near<I: Id>(&self, kind: u8, node: NodeId) -> Set<I> {
        self.layout.near(kind, node)
    }

    /// The replicas that live beside a disseminator.
    pub fn replicas_near(&self, disseminator: DisseminatorId) -> Set<ReplicaId> {
        let node = self
            .layout
            .places(kind::Disseminator)
            .node_of(disseminator.index());
        node.map_or(Set::EMPTY, |node| self.near(kind::Replica, node))
    }

    /// The stabilizers that hand replicas on their own node what is chosen, with those replicas.
    pub fn beside(&self) -> &[(StabilizerId, Set<ReplicaId>)] {
        &self.beside
    }

    /// The disseminators that can propose to a leader by a function call.
    pub fn helpers(&self) -> impl Iterator<Item = (DisseminatorId, Set<LeaderId>)> {
        self.helpers.iter().copied()
    }

    /// From which slot on a payload is void whose disseminator knows that the log reaches to
    /// `reached`.
    pub fn until(&self, reached: Slot) -> Slot {
        reached.plus(VOID_AFTER_WINDOWS * self.layout.options.window_slots as u64)
    }
}

/// The layout as roles of MultiPaxos see it; `batchers` are the instances that they take for
/// batchers.
fn view(layout: &Layout, batchers: u8) -> Layout {
    let mut instances = Vec::new();
    instances.resize_with(crate::multipaxos::KINDS.len(), Default::default);
    let kinds = [
        (ordering::Client, kind::Client),
        (ordering::Batcher, batchers),
        (ordering::ReadBatcher, kind::ReadBatcher),
        (ordering::Leader, kind::Leader),
        (ordering::ProxyLeader, kind::ProxyLeader),
        (ordering::Acceptor, kind::Acceptor),
        (ordering::Replica, kind::Replica),
        (ordering::Unbatcher, kind::Unbatcher),
    ];
    for (theirs, ours) in kinds {
        instances[usize::from(theirs)] = layout.places(ours);
    }
    Layout {
        instances,
        ..layout.clone()
    }
}

/// The instances of `one` that have instances of `other` on their node, with those.
fn neighbours<I: Id, J: Id>(layout: &Layout, one: u8, other: u8) -> Vec<(I, Set<J>)> {
    let places = layout.places(one);
    let beside = places
        .iter()
        .map(|(index, node)| (I::at(index), layout.near(other, node)));
    beside
        .filter(|(_, others): &(I, Set<J>)| !others.is_empty())
        .collect()
}

/// What MultiPaxos does not ask; the rest its own configuration checks.
fn check(layout: &Layout) -> Result<Stabilizers, LayoutError> {
    let f = layout.f;
    at_least("disseminators", layout.count(kind::Disseminator), f + 1)?;
    if layout.count(kind::Batcher) > 0 {
        at_least("batchers", layout.count(kind::Batcher), f + 1)?;
    }
    let stabilizers = arrange(layout)?;
    let nodes: Vec<NodeId> = layout.nodes().into_iter().collect();
    for failed in combinations(&nodes, f) {
        if let Some(lost) = lost_with(layout, &stabilizers, &failed) {
            let failed: Vec<String> = failed.iter().map(|node| layout.name(*node)).collect();
            let failed = failed.join(" and ");
            return Err(LayoutError(format!(
                "f={f} nodes may fail, but without node {failed} no {lost} is left"
            )));
        }
    }
    Ok(stabilizers)
}

fn lost_with(
    layout: &Layout,
    stabilizers: &Stabilizers,
    failed: &[NodeId],
) -> Option<&'static str> {
    let alive = |kind| {
        let places = layout.places(kind);
        places
            .iter()
            .filter(|(_, node)| !failed.contains(node))
            .map(|(index, _)| StabilizerId(index))
            .collect()
    };
    let left: Set<StabilizerId> = alive(kind::Stabilizer);
    if !stabilizers.is_write_quorum(left) {
        return Some("write quorum of stabilizers");
    }
    if !stabilizers.is_read_quorum(left) {
        return Some("read quorum of stabilizers");
    }
    let kinds = [
        (kind::Disseminator, "disseminator"),
        (kind::Batcher, "batcher"),
    ];
    let lost = kinds
        .into_iter()
        .find(|(kind, _)| layout.count(*kind) > 0 && alive(*kind).is_empty());
    lost.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::layout::numbered;

    /// A layout of `counts` instances a kind, each on a node of its own.
    fn apart(counts: [usize; 10], quorums: QuorumSpec) -> Layout {
        let mut next = 0..;
        let nodes = |count: &usize| next.by_ref().take(*count).map(NodeId).collect();
        let instances = numbered(counts.iter().map(nodes).collect());
        Layout {
            f: 1,
            quorums,
            instances,
            ..Layout::default()
        }
    }

    fn refusal(layout: Layout) -> String {
        Config::new(layout).unwrap_err().0
    }

    #[test]
    fn stabilizers_are_arranged_as_the_acceptors_where_that_fits() {
        let grid = QuorumSpec::Grid {
            rows: 2,
            columns: 2,
        };
        let column = Set::from_bits(0b0101);
        let alike = Config::new(apart([2, 0, 2, 0, 2, 10, 4, 4, 4, 0], grid)).unwrap();
        assert!(alike.stabilizers.is_write_quorum(column) && !alike.has_batchers());
        let majority = Config::new(apart([2, 2, 2, 2, 2, 3, 4, 5, 2, 3], grid)).unwrap();
        assert!(!majority.stabilizers.is_write_quorum(column) && majority.has_batchers());
    }

    #[test]
    fn each_rule_is_refused_in_its_own_words() {
        let majority = QuorumSpec::Majority;
        let one = refusal(apart([1, 0, 1, 0, 2, 2, 3, 3, 2, 0], majority));
        assert_eq!(
            one,
            "1 disseminators: to tolerate f=1 there must be at least f+1 = 2"
        );
        assert!(refusal(apart([1, 1, 2, 0, 2, 2, 3, 3, 2, 0], majority)).starts_with("1 batchers"));
        let few = refusal(apart([1, 0, 2, 0, 2, 2, 3, 2, 2, 0], majority));
        assert!(
            few.starts_with("2 stabilizers in majorities") && few.ends_with("at least 2f+1 = 3"),
            "{few}"
        );
        assert!(
            refusal(apart([1, 0, 2, 0, 2, 2, 2, 3, 2, 0], majority))
                .contains("2 acceptors in majorities")
        );
        let mut shared = apart([1, 0, 2, 0, 2, 2, 3, 3, 2, 0], majority);
        shared.instances[usize::from(kind::Stabilizer)] =
            Vec::from([NodeId(90), NodeId(90), NodeId(91)]).into();
        assert!(
            refusal(shared).ends_with(
                "without node 90 (counted from 0) no write quorum of stabilizers is left"
            )
        );
        let layout = apart([1, 0, 2, 0, 2, 2, 3, 3, 2, 0], majority);
        assert!(
            Config::transition(&layout, &layout)
                .unwrap_err()
                .0
                .contains("cannot be changed while it runs")
        );
    }

    #[test]
    fn who_lives_beside_whom_decides_who_hands_what_to_whom() {
        let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
        let instances = numbered((0..10).map(|_| nodes.clone()).collect());
        let together = Config::new(Layout {
            f: 1,
            instances,
            ..Layout::default()
        })
        .unwrap();
        assert_eq!(together.beside().len(), 3);
        assert_eq!(together.helpers().count(), 3);
        assert_eq!(
            together.replicas_near(DisseminatorId(2)),
            Set::one(ReplicaId(2))
        );
        let apart =
            Config::new(apart([2, 0, 2, 0, 2, 2, 3, 3, 2, 0], QuorumSpec::Majority)).unwrap();
        assert!(apart.beside().is_empty() && apart.helpers().count() == 0);
    }
}
