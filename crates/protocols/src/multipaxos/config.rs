//! Which layouts are deployments of MultiPaxos, and what every role needs to know of its own.

use super::kind;
use crate::failures::failures;
use crate::pigpaxos::relaying::Relaying;
use crate::places::{at_least, check_replicas};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, LayoutError, NodeId, Options};
use ionian_kernel::protocol::Transition;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_replication::quorum::QuorumSystem;

/// A layout that was checked, with what follows from it.
#[derive(Clone, Debug)]
pub struct Config {
    layout: Layout,
    /// All instances of each kind: asked for with every message.
    instances: Vec<Members>,
    /// By the number of an acceptor, the replicas on its node. Empty where no acceptor lives with a
    /// replica, or none is to tell them anything.
    beside: Vec<Set<ReplicaId>>,
    /// The acceptors' quorum system; while the membership is changing, that of both configurations
    /// together.
    pub quorums: QuorumSystem,
    /// While the membership is changing: the quorum system of the configuration before.
    before: Option<QuorumSystem>,
    /// The replicas that hold what f+1 must keep, and f: of each configuration in force.
    pub keepers: Vec<(Set<ReplicaId>, usize)>,
    /// The leader that begins the first round of a new cluster and is asked first.
    pub initial_leader: LeaderId,
    /// The relays before acceptors, if there are any.
    relaying: Option<Relaying>,
    /// Whether leaders order references, so that the bytes of what replicas execute never fill
    /// their windows (S-Paxos).
    pub orders_references: bool,
    /// Whether a change of the membership is finished only when another role says that what it
    /// keeps is handed over (CRAQ).
    pub waits_for_word: bool,
}

/// The highest of what acceptors have promised. While the membership is changing, what the
/// configuration before can do depends on its own acceptors alone: a round of both is led only when
/// a quorum of each has promised it, so one that only new acceptors have heard of stops nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Highest<T> {
    /// Of all.
    pub of_all: T,
    /// Of those of the configuration before, or of the only one.
    pub before: T,
}

impl<T: Copy + Ord> Highest<T> {
    /// All have promised at most this.
    pub fn new(promised: T) -> Self {
        Highest {
            of_all: promised,
            before: promised,
        }
    }

    /// The same, or this where that is lower.
    pub fn at_least(self, promised: T) -> Self {
        Highest {
            of_all: promised.max(self.of_all),
            before: promised.max(self.before),
        }
    }

    /// An acceptor has promised this.
    pub fn raise(&mut self, config: &Config, from: AcceptorId, promised: T) {
        self.of_all = promised.max(self.of_all);
        if config.was_there(from) {
            self.before = promised.max(self.before);
        }
    }
}

impl Config {
    /// Checks a layout, and the one that it is being changed into.
    ///
    /// # Errors
    /// Says which rule of the protocol it breaks.
    pub fn new(layout: Layout) -> Result<Self, LayoutError> {
        let (now, keepers) = check(&layout)?;
        let instances = (0..super::KINDS.len())
            .map(|kind| layout.all::<ClientId>(kind as u8).members())
            .collect();
        let (before, keepers, initial_leader) = (None, Vec::from([keepers]), LeaderId(0));
        let (beside, orders_references, waits_for_word) = (Vec::new(), false, false);
        let quorums = now;
        let relaying = Relaying::new(&layout)?;
        let mut config = Config {
            instances,
            beside,
            quorums,
            before,
            keepers,
            initial_leader,
            relaying,
            orders_references,
            waits_for_word,
            layout,
        };
        if let Some(next) = &config.layout.next {
            let (quorums, keepers) = check(next)?;
            config.before = Some(config.quorums.clone());
            config.quorums = config.quorums.joint(quorums);
            config.keepers.push(keepers);
        }
        Ok(config)
    }

    /// The same, with acceptors that tell the replicas of their nodes what is chosen, without a
    /// value on the network. For those who hand replicas the very values that acceptors vote for.
    pub fn telling_neighbours(self) -> Self {
        let mut beside = Vec::new();
        for (acceptor, node) in self.layout.places(kind::Acceptor).iter() {
            let here: Set<ReplicaId> = self.layout.near(kind::Replica, node);
            if !here.is_empty() {
                beside.resize(beside.len().max(usize::from(acceptor) + 1), Set::EMPTY);
                beside[usize::from(acceptor)] = here;
            }
        }
        Config { beside, ..self }
    }

    /// The same, with another leader that begins.
    pub fn beginning_with(self, initial_leader: LeaderId) -> Self {
        Config {
            initial_leader,
            ..self
        }
    }

    /// The same, for leaders that order references to values that go to replicas past them.
    pub fn ordering_references(self) -> Self {
        Config {
            orders_references: true,
            ..self
        }
    }

    /// How to get from one layout to another: at once when acceptors and replicas stay what they
    /// are.
    ///
    /// # Errors
    /// When either breaks a rule, or an instance would move to another node: nothing could be known
    /// of its state.
    pub fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        check(from)?;
        check(to)?;
        check_places(from, to, super::KINDS)?;
        let differs = |kind: u8| from.places(kind) != to.places(kind);
        let same_quorums = from.quorums == to.quorums && from.f == to.f && !differs(kind::Acceptor);
        Ok(match same_quorums && !differs(kind::Replica) {
            true => Transition::AtOnce,
            false => Transition::Joint,
        })
    }

    /// The epoch that the layout is of.
    pub fn epoch(&self) -> Epoch {
        self.layout.epoch
    }

    /// Below this slot nothing is asked of acceptors: those of this configuration may know nothing
    /// of what others chose there, or something older. Replicas keep it.
    pub fn frontier(&self) -> Slot {
        self.layout.frontier
    }

    /// Whether the membership is changing: quorums of two configurations are needed.
    pub fn is_joint(&self) -> bool {
        self.before.is_some()
    }

    /// The quorums by which values are chosen in `round`, as far as this configuration knows: not
    /// those of epochs that are over, and not of any to come.
    pub fn quorums_of(&self, round: Round) -> Option<&QuorumSystem> {
        let Layout { epoch, since, .. } = self.layout;
        match &self.before {
            _ if round.epoch() > epoch || round.epoch() < since => None,
            Some(before) if round.epoch() < epoch => Some(before),
            _ => Some(&self.quorums),
        }
    }

    /// The first round of the configuration: acceptors refuse those before it, which are of
    /// configurations that are over.
    pub fn oldest_round(&self) -> Round {
        self.layout.since.first_round()
    }

    /// Whether an acceptor may take part in `round`. One that is new in the configuration to come
    /// has no part in earlier epochs: an acceptor of its number may have promised something to
    /// a leader there. It keeps out of them, and promises nothing by that: the configuration before
    /// goes on by its own quorums.
    pub fn takes_part(&self, acceptor: AcceptorId, round: Round) -> bool {
        self.was_there(acceptor) || round.epoch() >= self.epoch()
    }

    /// Whether an acceptor is a member of the configuration before, or of the only one.
    pub fn was_there(&self, acceptor: AcceptorId) -> bool {
        let before = self.before.as_ref();
        before.is_none_or(|before| before.members().contains(acceptor))
    }

    /// The acceptors that the change under way adds.
    pub fn added_acceptors(&self) -> AcceptorSet {
        let members = self.quorums.members().iter();
        members.filter(|it| !self.was_there(*it)).collect()
    }

    /// The first epoch in whose rounds an acceptor takes part that has just come to life.
    pub fn first_epoch_of(&self, acceptor: AcceptorId) -> Epoch {
        let oldest = self.oldest_round();
        if self.takes_part(acceptor, oldest) {
            oldest.epoch()
        } else {
            self.epoch()
        }
    }

    /// The epoch in which a leader can begin a round, and a round that is lower: when the acceptors
    /// in `answered` can be reached, and have `promised` rounds. While the membership is changing
    /// it is the present one if both configurations can be reached and a first `joint` round may
    /// begin, else the one before as long as that is possible: no leader waits for nodes that are
    /// not started yet.
    pub fn electable(
        &self,
        answered: AcceptorSet,
        promised: Highest<Round>,
        joint: bool,
    ) -> Option<(Epoch, Round)> {
        let reachable = |quorums: &QuorumSystem| {
            quorums.is_read_quorum(answered)
                && (!self.is_joint() || quorums.is_write_quorum(answered))
        };
        let (epoch, Highest { of_all, before }) = (self.epoch(), promised);
        // The configuration before has not heard of a round of both.
        let waits = self.is_joint() && before.epoch() < epoch;
        match &self.before {
            _ if of_all.epoch() > epoch => None,
            _ if reachable(&self.quorums) && (joint || !waits) => Some((epoch, of_all)),
            Some(quorums) if waits && reachable(quorums) => Some((self.epoch_before(), before)),
            _ => None,
        }
    }

    /// The latest epoch with the quorums of `round`, if this configuration knows them: rounds begin
    /// in it. Not in an earlier one with the same quorums, though it may be enough: the leader of
    /// this number may have been another there and have used rounds of which none that is asked
    /// has heard.
    pub fn latest_like(&self, round: Round) -> Option<Epoch> {
        let Layout { epoch, since, .. } = self.layout;
        let is_before = self.is_joint() && round.epoch() < epoch;
        (since..=epoch).contains(&round.epoch()).then(|| {
            if is_before {
                self.epoch_before()
            } else {
                epoch
            }
        })
    }

    /// The latest epoch in which one configuration alone is in force.
    pub fn single_epoch(&self) -> Epoch {
        match self.is_joint() {
            true => self.epoch_before(),
            false => self.epoch(),
        }
    }

    /// While the membership is changing: the last epoch of the configuration before.
    fn epoch_before(&self) -> Epoch {
        Epoch(self.epoch().0.saturating_sub(1))
    }

    /// Whether watermarks from `answered`, who have promised rounds of `epochs`, are enough for a
    /// linearizable read: see `docs/protocols/multipaxos.md`, "Membership".
    pub fn can_read(&self, answered: AcceptorSet, epochs: Highest<Epoch>) -> bool {
        let before = self.before.as_ref();
        let before = before.filter(|_| epochs.before < self.epoch());
        let enough = self.quorums.is_read_quorum(answered)
            || before.is_some_and(|before| before.is_read_quorum(answered));
        enough && epochs.of_all <= self.epoch()
    }

    /// The leader to try after the leader of `round` and `stray - 1` others did not answer.
    pub fn leader(&self, round: Round, stray: u64) -> LeaderId {
        let leaders = self.leaders();
        // No leader owns round 0.
        let owner = if round == Round(0) {
            self.initial_leader
        } else {
            round.leader()
        };
        let place = leaders.iter().take_while(|leader| *leader < owner).count() as u64;
        leaders
            .pick(place + stray)
            .expect("a deployment has leaders")
    }

    /// The replicas that serve clients; new replicas are excluded until the change finishes. So are
    /// those that leave, if there are enough others: f may fail.
    pub fn serving(&self) -> Set<ReplicaId> {
        let (first, f) = self.keepers[0];
        let (last, _) = self.keepers[self.keepers.len() - 1];
        let both = first.and(last);
        if both.len() > f { both } else { first }
    }

    /// The layout as it was checked.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Tunables.
    pub fn options(&self) -> &Options {
        &self.layout.options
    }

    /// All instances of a kind.
    pub fn all<I: Id>(&self, kind: u8) -> Set<I> {
        Set::from_members(self.instances[usize::from(kind)])
    }

    /// The instances of a kind that live on `node`.
    pub fn near<I: Id>(&self, kind: u8, node: NodeId) -> Set<I> {
        self.layout.near(kind, node)
    }

    /// The relays before acceptors, if there are any.
    pub fn relaying(&self) -> Option<&Relaying> {
        self.relaying.as_ref()
    }

    /// Whether a proxy leader asks one write quorum of acceptors first. With relays it asks all:
    /// the relays have the work.
    pub fn is_thrifty(&self) -> bool {
        self.layout.options.thrifty && self.relaying.is_none()
    }

    /// All leaders.
    pub fn leaders(&self) -> Set<LeaderId> {
        self.all(kind::Leader)
    }

    /// All replicas.
    pub fn replicas(&self) -> Set<ReplicaId> {
        self.all(kind::Replica)
    }

    /// Whether some acceptor tells replicas of its node what is chosen.
    pub fn has_neighbours(&self) -> bool {
        !self.beside.is_empty()
    }

    /// The replicas that an acceptor tells.
    pub fn replicas_beside(&self, acceptor: AcceptorId) -> Set<ReplicaId> {
        self.beside
            .get(usize::from(acceptor.0))
            .copied()
            .unwrap_or_default()
    }
}

/// Refuses a change in which an instance moves to another node: its state would stay behind.
pub(crate) fn check_places(
    from: &Layout,
    to: &Layout,
    kinds: &[&'static str],
) -> Result<(), LayoutError> {
    for (address, node) in to.addresses() {
        if let Some(before) = from.node_of(address).filter(|before| *before != node) {
            return Err(LayoutError(format!(
                "{} {} would move from node {} to node {}: give the new one a number of its own",
                kinds[address.kind as usize],
                address.index,
                from.name(before),
                to.name(node)
            )));
        }
    }
    Ok(())
}

/// Checks one configuration by itself: its quorum system, and who keeps what.
fn check(layout: &Layout) -> Result<(QuorumSystem, (Set<ReplicaId>, usize)), LayoutError> {
    let f = layout.f;
    let layout = &Layout {
        next: None,
        ..layout.clone()
    };
    let count = |kind| layout.count(kind);
    if count(kind::Client) == 0 {
        return Err(LayoutError(
            "there is no client: give at least one node a gateway or the role \"client\"".into(),
        ));
    }
    for (kind, name) in [
        (kind::Leader, "leaders"),
        (kind::ProxyLeader, "proxy leaders"),
        (kind::Replica, "replicas"),
    ] {
        at_least(name, count(kind), f + 1)?;
    }
    for (kind, name) in [
        (kind::Batcher, "batchers"),
        (kind::ReadBatcher, "read batchers"),
        (kind::Unbatcher, "unbatchers"),
    ] {
        if count(kind) > 0 {
            at_least(name, count(kind), f + 1)?;
        }
    }
    let quorums =
        QuorumSystem::new(layout.quorums, layout.all(kind::Acceptor), f).map_err(LayoutError)?;
    check_replicas(layout, kind::Replica)?;
    check_failures(layout, &quorums)?;
    Relaying::new(layout)?;
    Ok((quorums, (layout.all(kind::Replica), f)))
}

/// Any f nodes may fail: what is left must hold quorums and one of each role. Counting instances
/// is not enough where a node has several.
fn check_failures(layout: &Layout, quorums: &QuorumSystem) -> Result<(), LayoutError> {
    for failed in worst_failures(layout)? {
        if let Some(lost) = lost_with(layout, quorums, &failed) {
            let failed: Vec<_> = failed.iter().map(|node| layout.name(*node)).collect();
            return Err(LayoutError(format!(
                "f={} nodes may fail, but without node {} no {lost} is left",
                layout.f,
                failed.join(" and "),
            )));
        }
    }
    Ok(())
}

/// Sets of nodes that may fail, among which is one that does harm if any set of f nodes does: all
/// that host some kind; and, where a node has several acceptors, those with the most, or each f
/// that host acceptors. Where no node has two, the arrangement was checked to tolerate f.
fn worst_failures(layout: &Layout) -> Result<Vec<Vec<NodeId>>, LayoutError> {
    let hosts = |kind: u8| -> BTreeSet<NodeId> {
        layout.places(kind).iter().map(|(_, node)| node).collect()
    };
    let all = (0..super::KINDS.len() as u8).map(hosts);
    let few = all.filter(|hosts| hosts.len() <= layout.f);
    let mut worst: Vec<Vec<NodeId>> = few.map(|hosts| hosts.into_iter().collect()).collect();
    let acceptors = |node: &NodeId| layout.near::<AcceptorId>(kind::Acceptor, *node).len();
    let mut of_acceptors: Vec<NodeId> = hosts(kind::Acceptor).into_iter().collect();
    if of_acceptors.len() == layout.count(kind::Acceptor) {
        return Ok(worst);
    }
    if matches!(
        layout.quorums,
        QuorumSpec::Majority | QuorumSpec::Counts { .. }
    ) {
        of_acceptors.sort_by_key(|node| core::cmp::Reverse(acceptors(node)));
        of_acceptors.truncate(layout.f);
        worst.push(of_acceptors);
    } else {
        worst.extend(failures(&of_acceptors, layout.f)?);
    }
    Ok(worst)
}

fn lost_with(layout: &Layout, quorums: &QuorumSystem, failed: &[NodeId]) -> Option<&'static str> {
    let stays = |(_, node): &(Index, NodeId)| !failed.contains(node);
    let places = layout.places(kind::Acceptor);
    let acceptors: AcceptorSet = places
        .iter()
        .filter(stays)
        .map(|(index, _)| AcceptorId(index))
        .collect();
    if !quorums.is_read_quorum(acceptors) {
        return Some("read quorum of acceptors");
    }
    if !quorums.is_write_quorum(acceptors) {
        return Some("write quorum of acceptors");
    }
    let kinds = [
        (kind::Leader, "leader"),
        (kind::ProxyLeader, "proxy leader"),
        (kind::Replica, "replica"),
        (kind::Batcher, "batcher"),
        (kind::ReadBatcher, "read batcher"),
        (kind::Unbatcher, "unbatcher"),
    ];
    kinds
        .into_iter()
        .find(|(kind, _)| {
            layout.count(*kind) > 0 && !layout.places(*kind).iter().any(|it| stays(&it))
        })
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::string::String;
    use ionian_kernel::layout::numbered;

    /// A layout of `counts` instances a kind, each on a node of its own.
    fn apart(f: usize, counts: [usize; 8], quorums: QuorumSpec) -> Layout {
        let mut next = 0..;
        let nodes = |count: &usize| next.by_ref().take(*count).map(NodeId).collect();
        let instances = numbered(counts.iter().map(nodes).collect());
        Layout {
            f,
            quorums,
            instances,
            ..Layout::default()
        }
    }

    fn refusal(layout: Layout) -> String {
        Config::new(layout).unwrap_err().0
    }

    /// f of those that serve may fail while members change: the change may never be finished then.
    #[test]
    fn f_plus_one_replicas_serve_while_one_is_replaced() {
        let serving = |replicas: usize| {
            let layout = apart(1, [1, 0, 0, 2, 2, 3, replicas, 0], QuorumSpec::Majority);
            let mut next = layout.clone();
            let others = (1..=replicas as Index).map(|index| (index, NodeId(90 + index as u16)));
            next.instances[usize::from(kind::Replica)] = others.collect();
            let next = Some(Box::new(next));
            let config = Config::new(Layout { next, ..layout });
            config.expect("a change of replicas").serving()
        };
        let of = |replicas: &[Index]| replicas.iter().copied().map(ReplicaId).collect();
        assert_eq!(serving(2), of(&[0, 1]));
        assert_eq!(serving(3), of(&[1, 2]));
    }

    #[test]
    fn the_papers_deployments_are_accepted() {
        Config::new(apart(
            1,
            [2, 0, 0, 2, 10, 4, 4, 0],
            QuorumSpec::Grid {
                rows: 2,
                columns: 2,
            },
        ))
        .unwrap();
        Config::new(apart(1, [2, 2, 2, 2, 3, 3, 2, 3], QuorumSpec::Majority)).unwrap();
        Config::new(apart(0, [1, 0, 0, 1, 1, 1, 1, 0], QuorumSpec::Majority)).unwrap();
    }

    #[test]
    fn each_rule_is_refused_in_its_own_words() {
        let majority = QuorumSpec::Majority;
        assert!(
            refusal(apart(1, [0, 0, 0, 2, 2, 3, 2, 0], majority)).starts_with("there is no client")
        );
        let one_leader = refusal(apart(1, [1, 0, 0, 1, 2, 3, 2, 0], majority));
        assert_eq!(
            one_leader,
            "1 leaders: to tolerate f=1 there must be at least f+1 = 2"
        );
        assert!(refusal(apart(1, [1, 1, 0, 2, 2, 3, 2, 0], majority)).starts_with("1 batchers"));
        assert!(
            refusal(apart(1, [1, 0, 0, 2, 2, 2, 2, 0], majority)).contains("at least 2f+1 = 3")
        );
    }

    #[test]
    fn several_instances_on_one_node_fail_together() {
        let mut layout = apart(1, [1, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
        let shared = layout.instances[kind::Acceptor as usize]
            .node_of(0)
            .unwrap();
        layout.instances[kind::Acceptor as usize] = Vec::from([shared, shared, NodeId(98)]).into();
        let message = refusal(layout.clone());
        assert_eq!(
            message,
            format!(
                "f=1 nodes may fail, but without node {} (counted from 0) no read quorum of acceptors is left",
                shared.0
            )
        );
        layout.instances[kind::Acceptor as usize] =
            Vec::from([shared, NodeId(99), NodeId(98)]).into();
        let replicas = kind::Replica as usize;
        layout.instances[replicas] = Vec::from([shared, NodeId(98), shared]).into();
        let message = refusal(layout.clone());
        assert!(message.starts_with("two replicas are on node"), "{message}");
        layout.instances[replicas] = Vec::from([shared, NodeId(98)]).into();
        layout.instances[kind::Leader as usize] = Vec::from([shared, shared]).into();
        assert!(refusal(layout).ends_with("no leader is left"));
    }
}
