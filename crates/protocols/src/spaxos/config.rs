//! Which layouts are deployments of S-Paxos, and what every role needs to know of its own.

use super::id::{DisseminatorId, StabilizerId};
use super::kind;
use super::settings::stale_bytes;
use crate::failures::failures;
use crate::multipaxos::config::{Config as Ordering, check_places};
use crate::multipaxos::kind as ordering;
use crate::places::{at_least, seen_as_multipaxos};
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
/// to reach: far more than passes while a payload is ordered, and little enough that those that no
/// leader orders do not pile up.
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
    /// How the stabilizers are arranged; while the membership is changing, those of both
    /// configurations together.
    pub stabilizers: Stabilizers,
    /// While the membership is changing: those of each configuration.
    change: Option<Change>,
    /// All disseminators.
    pub disseminators: Set<DisseminatorId>,
    has_batchers: bool,
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

/// The stabilizers of two configurations, of which the one is being changed into the other.
#[derive(Debug)]
struct Change {
    before: Stabilizers,
    after: Stabilizers,
}

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
        let before = check(&layout)?;
        let after = layout.next.as_deref().map(check).transpose()?;
        let change = after.map(|after| Change {
            before: before.clone(),
            after,
        });
        let stabilizers = match &change {
            Some(change) => before.joint(change.after.clone()),
            None => before,
        };
        // While the membership is changing, as in the configuration before: the batchers of the one
        // after may not be started yet.
        let batchers = &layout.instances[usize::from(kind::Batcher)];
        let has_batchers = batchers.iter().next().is_some();
        let gather = if has_batchers {
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
            has_batchers,
            stabilizers,
            change,
            stale_bytes: stale_bytes(&layout.options),
            layout,
        })))
    }

    /// How to get from one layout to another: at once when acceptors, stabilizers and replicas stay
    /// what they are.
    ///
    /// # Errors
    /// When either breaks a rule, or an instance would move to another node.
    pub fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        check_places(from, to, super::KINDS)?;
        let same_stabilizers = check(from)? == check(to)?;
        let view = |layout| view(layout, kind::Disseminator);
        let ordering = Ordering::transition(&view(from), &view(to))?;
        Ok(match same_stabilizers {
            true => ordering,
            false => Transition::Joint,
        })
    }
}

impl Checked {
    /// The layout as it was checked.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The epoch that the layout is of.
    pub fn epoch(&self) -> Epoch {
        self.layout.epoch
    }

    /// The epoch in which this configuration began, or the one before while it is changing.
    pub fn since(&self) -> Epoch {
        self.layout.since
    }

    /// Whether the membership is changing: quorums of two configurations are needed.
    pub fn is_joint(&self) -> bool {
        self.change.is_some()
    }

    /// The quorums by which payloads of `round` become stable, as far as this configuration knows:
    /// those of the round's epoch, and of no epoch that is over or is to come.
    pub fn stabilizers_of(&self, round: Round) -> Option<&Stabilizers> {
        let Layout { epoch, since, .. } = self.layout;
        match &self.change {
            _ if round.epoch() > epoch || round.epoch() < since => None,
            Some(change) if round.epoch() < epoch => Some(&change.before),
            _ => Some(&self.stabilizers),
        }
    }

    /// Whether payloads of `round` that these stabilizers store are stable.
    pub fn is_stable(&self, round: Round, stored: Set<StabilizerId>) -> bool {
        let quorums = self.stabilizers_of(round);
        quorums.is_some_and(|quorums| quorums.is_write_quorum(stored))
    }

    /// While the membership is changing: the stabilizers of the configuration before.
    pub fn stabilizers_before(&self) -> Option<&Stabilizers> {
        self.change.as_ref().map(|change| &change.before)
    }

    /// While the membership is changing: those of the configuration that it changes into.
    pub fn stabilizers_after(&self) -> Option<&Stabilizers> {
        self.change.as_ref().map(|change| &change.after)
    }

    /// The stabilizers that the change under way adds.
    pub fn added_stabilizers(&self) -> Set<StabilizerId> {
        let members = self.stabilizers.members().iter();
        members.filter(|it| self.is_new(*it)).collect()
    }

    /// Whether a stabilizer is of the configuration that the cluster changes into, and of no other.
    pub fn is_new(&self, stabilizer: StabilizerId) -> bool {
        let before = self.stabilizers_before();
        before.is_some_and(|before| !before.members().contains(stabilizer))
    }

    /// Whether clients send their commands to batchers.
    pub fn has_batchers(&self) -> bool {
        self.has_batchers
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
    pub fn void_from(&self, reached: Slot) -> Slot {
        reached.plus(VOID_AFTER_WINDOWS * self.layout.options.window_slots as u64)
    }
}

/// The layout as roles of MultiPaxos see it; `batchers` are the instances that they take for
/// batchers.
fn view(layout: &Layout, batchers: u8) -> Layout {
    let kinds = [
        (ordering::Client, kind::Client),
        (ordering::Batcher, batchers),
        (ordering::ReadBatcher, kind::ReadBatcher),
        (ordering::Leader, kind::Leader),
        (ordering::ProxyLeader, kind::ProxyLeader),
        (ordering::Acceptor, kind::Acceptor),
        (ordering::Replica, kind::Replica),
        (ordering::Unbatcher, kind::Unbatcher),
        (ordering::Relay, kind::Relay),
    ];
    seen_as_multipaxos(layout, &kinds)
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

/// Checks one configuration by itself, for what MultiPaxos does not ask; the rest its own
/// configuration checks.
fn check(layout: &Layout) -> Result<Stabilizers, LayoutError> {
    let layout = &Layout {
        next: None,
        ..layout.clone()
    };
    let f = layout.f;
    at_least("disseminators", layout.count(kind::Disseminator), f + 1)?;
    if layout.count(kind::Batcher) > 0 {
        at_least("batchers", layout.count(kind::Batcher), f + 1)?;
    }
    let stabilizers = arrange(layout)?;
    let nodes: Vec<NodeId> = layout.nodes().into_iter().collect();
    for failed in failures(&nodes, f)? {
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
    let left: Set<StabilizerId> = alive(layout, kind::Stabilizer, failed);
    if !stabilizers.is_write_quorum(left) {
        return Some("write quorum of stabilizers");
    }
    if !stabilizers.is_read_quorum(left) {
        return Some("read quorum of stabilizers");
    }
    let disseminators: Set<DisseminatorId> = alive(layout, kind::Disseminator, failed);
    if disseminators.is_empty() {
        return Some("disseminator");
    }
    let batchers: Set<BatcherId> = alive(layout, kind::Batcher, failed);
    (batchers.is_empty() && layout.count(kind::Batcher) > 0).then_some("batcher")
}

/// The instances of a kind that are left without these nodes.
fn alive<I: Id>(layout: &Layout, kind: u8, failed: &[NodeId]) -> Set<I> {
    let places = layout.places(kind);
    let left = places.iter().filter(|(_, node)| !failed.contains(node));
    left.map(|(index, _)| I::at(index)).collect()
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
    }

    #[test]
    fn a_change_of_stabilizers_needs_an_epoch_of_both_configurations() {
        let layout = || apart([1, 0, 2, 0, 2, 2, 3, 3, 2, 0], QuorumSpec::Majority);
        let with = |kind: u8, places: &[(u8, u16)]| {
            let mut layout = layout();
            let places = places.iter().map(|(index, node)| (*index, NodeId(*node)));
            layout.instances[usize::from(kind)] = places.collect();
            layout
        };
        let transition = |to| Config::transition(&layout(), &to).map_err(|error| error.0);
        let more = with(kind::Disseminator, &[(0, 1), (1, 2), (2, 50)]);
        assert_eq!(transition(more), Ok(Transition::AtOnce));
        let replaced = with(kind::Stabilizer, &[(0, 10), (1, 11), (3, 50)]);
        assert_eq!(transition(replaced), Ok(Transition::Joint));
        let moved = transition(with(kind::Stabilizer, &[(0, 10), (1, 11), (2, 50)])).unwrap_err();
        assert!(moved.starts_with("stabilizer 2 would move"), "{moved}");
        let few = with(kind::Stabilizer, &[(0, 10), (1, 11)]);
        assert!(transition(few).unwrap_err().starts_with("2 stabilizers"));
    }

    #[test]
    fn a_payload_becomes_stable_by_the_quorums_of_its_rounds_epoch() {
        let mut layout = apart([1, 0, 2, 0, 2, 2, 3, 3, 2, 0], QuorumSpec::Majority);
        let mut next = layout.clone();
        next.instances[usize::from(kind::Stabilizer)] =
            [(0, NodeId(10)), (3, NodeId(50)), (4, NodeId(51))]
                .into_iter()
                .collect();
        (layout.epoch, layout.since, layout.next) = (Epoch(5), Epoch(3), Some(next.into()));
        let config = Config::new(layout).unwrap();
        let is_stable = |epoch, stored: &[u8]| {
            let stored = stored.iter().map(|index| StabilizerId(*index)).collect();
            config.is_stable(Round::new(Epoch(epoch), 7, LeaderId(1)), stored)
        };
        // Those of an epoch that is over, or is to come, are not known here.
        assert!(!is_stable(2, &[0, 1, 2, 3, 4]) && !is_stable(6, &[0, 1, 2, 3, 4]));
        assert!(is_stable(4, &[0, 1]) && !is_stable(4, &[0, 3, 4]));
        assert!(is_stable(5, &[0, 1, 3]) && !is_stable(5, &[0, 1]) && !is_stable(5, &[0, 3]));
        let new = |index| config.is_new(StabilizerId(index));
        assert!(new(3) && !new(0) && !new(1));
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
