//! Who lives: chain nodes send each other heartbeats, and each member watches its neighbours.
//!
//! A heartbeat says whom its sender hears. A neighbour that does not hear this node is as good as
//! dead: it would not get what is sent to it.
//!
//! Before a member has its neighbour removed it looks at the chain, and then at the neighbour
//! again. So a node that was stopped for a while has no other node removed. Nor has one that is cut
//! off from the other chain nodes and not from the master: at most f are dead, so one that hears
//! fewer than the others would be then is cut off itself. Otherwise it would have one neighbour
//! removed after the other, each as soon as the one before is back, and no write would pass it.
//!
//! One that is cut off may be the only neighbour of a dead member, which it does not have removed.
//! So it says of itself that it is dead, once that has lasted: its other neighbour has it removed,
//! becomes the neighbour of the dead one, and has that removed. At most f nodes are cut off, since
//! those that are not faulty hear each other; so there are others that may remove it.

use super::{ChainNode, In};
use crate::craq::id::{ChainEpoch, ChainNodeId};
use crate::craq::message::Step;
use crate::craq::{branch, kind};
use ionian_kernel::id::{Id, Set};
use ionian_kernel::layout::Address;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant, Timestamp};

/// What was heard of other chain nodes.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// When each was heard last.
    heard: SmallMap<ChainNodeId, Instant>,
    /// Those whose clocks are known.
    clocks: Set<ChainNodeId>,
    /// When each was heard last, and said that it hears this node.
    hears_us: SmallMap<ChainNodeId, Instant>,
    /// Since when each was heard so without a gap.
    steady: SmallMap<ChainNodeId, Instant>,
    /// Which members each takes for dead; itself if it is cut off.
    pub(super) suspected: SmallMap<ChainNodeId, Set<ChainNodeId>>,
    /// Since when too few others hear this node, or are heard.
    cut_off: Option<Instant>,
}

impl Peers {
    /// None is suspected yet.
    pub(super) fn start(&mut self, now: Instant, nodes: Set<ChainNodeId>) {
        self.hears_us = nodes.iter().map(|node| (node, now)).collect();
    }

    /// The membership has changed: those that are new are not suspected yet.
    pub(super) fn reconfigure(&mut self, now: Instant, nodes: Set<ChainNodeId>) {
        let hears_us = nodes.iter().map(|node| (node, self.hears_us.get(&node)));
        self.hears_us = hears_us
            .map(|(node, at)| (node, at.copied().unwrap_or(now)))
            .collect();
        self.heard.retain(|node, _| nodes.contains(*node));
        self.steady.retain(|node, _| nodes.contains(*node));
        self.suspected.retain(|node, _| nodes.contains(*node));
        self.clocks = self.clocks.and(nodes);
    }

    /// Of how many other nodes the clocks are known.
    pub(super) fn known(&self) -> usize {
        self.clocks.len()
    }

    /// Whether a node has said so of itself.
    fn is_cut_off(&self, node: ChainNodeId) -> bool {
        let suspects = self.suspected.get(&node);
        suspects.is_some_and(|those| those.contains(node))
    }

    /// Whether a node was silent, or did not hear this one, for this long.
    fn is_silent(&self, node: ChainNodeId, now: Instant, limit: Duration) -> bool {
        self.hears_us
            .get(&node)
            .is_none_or(|at| now.since(*at) > limit)
    }
}

impl ChainNode {
    /// Whether the message is of another epoch: then it is ignored, and if the sender is in a later
    /// one, it learns that this node is not.
    pub(super) fn is_foreign(
        &mut self,
        now: Instant,
        (from, epoch): (ChainNodeId, ChainEpoch),
        out: &mut Out<'_, Self>,
    ) -> bool {
        if epoch == self.chain.epoch {
            return self.place.is_none();
        }
        out.reached(branch::OTHER_EPOCH);
        self.stale += 1;
        if epoch > self.chain.epoch {
            self.beat(now, Set::one(from), out);
        }
        true
    }

    /// Whether the chain has this node in an earlier life.
    fn has_place_of_earlier_life(&self) -> bool {
        let mut members = self.chain.members.iter();
        members.any(|member| member.node == self.id && member.life < self.life)
    }

    /// Sends a heartbeat. A node sends none while the chain has it in an earlier life: where there
    /// are leases the master does not remove that member on the node's word (`master.rs`), so the
    /// neighbours must suspect it.
    pub(super) fn beat(&self, now: Instant, to: Set<ChainNodeId>, out: &mut Out<'_, Self>) {
        if to.is_empty() || self.has_place_of_earlier_life() {
            return;
        }
        let message = In::Beat {
            from: self.id,
            epoch: self.chain.epoch,
            revision: self.chain.revision,
            hears: self.peers.heard.keys().copied().collect(),
            suspects: self.absent(now).chain(self.cut_off(now)).collect(),
            synced: self.down.is_some() || self.successor().is_none(),
            clock: now.timestamp(),
        };
        // It promises nothing, and waits for the disk all the same: a member whose disk is stuck
        // stores no entry, so the chain must go on without it.
        out.send(self.to(to, message));
    }

    /// The clock of another node shows this.
    pub(super) fn hear_clock(&mut self, now: Instant, from: ChainNodeId, clock: Timestamp) {
        let address = Address {
            kind: kind::ChainNode,
            index: from.index(),
        };
        if let Some(node) = self.config.layout().node_of(address)
            && from != self.id
        {
            self.clock.hear(now, node, clock);
            self.peers.clocks.insert(from);
        }
    }

    /// A chain node lives.
    pub(super) fn on_beat(
        &mut self,
        now: Instant,
        (from, order): (ChainNodeId, (ChainEpoch, u64)),
        (hears, synced): (Set<ChainNodeId>, bool),
        out: &mut Out<'_, Self>,
    ) {
        if !self.others().contains(from) {
            return;
        }
        self.peers.heard.insert(from, now);
        if hears.contains(self.id) {
            let limit = self.config.options().election_timeout;
            if self.peers.is_silent(from, now, limit) {
                self.peers.steady.remove(&from);
            }
            self.peers.steady.entry(from).or_insert(now);
            self.peers.hears_us.insert(from, now);
        }
        if order < self.chain.order() {
            let chain = self.chain.clone();
            self.send(from, In::Chain { chain }, out);
        } else if order > self.chain.order() {
            self.beat(now, Set::one(from), out);
        }
        if order.0 != self.chain.epoch {
            return;
        }
        let is_predecessor = Some(from) == self.predecessor();
        if is_predecessor && (!synced || !self.up.synced) {
            if self.up.synced {
                out.reached(branch::RESYNC);
            }
            self.up.ask_at = now;
            self.up.synced = false;
            self.sync(now, out);
        }
    }

    /// With each heartbeat: what this node must have done by the master.
    pub(super) fn look_around(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let limit = self.config.options().election_timeout;
        self.peers.heard.retain(|_, at| now.since(*at) <= limit);
        let others = self.other_nodes();
        let silent = others.iter();
        let silent = silent.filter(|node| self.peers.is_silent(*node, now, limit));
        let is_cut_off = silent.count() > self.config.layout().f;
        self.peers.cut_off = is_cut_off.then(|| self.peers.cut_off.unwrap_or(now));
        self.look_at_roster(now, out);
        self.unseal(now, out);
        // The message that a member is announced no longer may have been lost.
        let is_unsettled = !self.chain.leaving.is_empty();
        if !self.is_member() || is_unsettled || self.suspects(now).next().is_some() {
            self.look(now, out);
        }
    }

    /// Whether it hears a node that hears it.
    pub(super) fn hears(&self, node: ChainNodeId, now: Instant) -> bool {
        let limit = self.config.options().election_timeout;
        self.peers.heard.contains_key(&node) && !self.peers.is_silent(node, now, limit)
    }

    /// Whether it has heard a node that hears it, without a gap, for as long as one may be silent,
    /// and that is not cut off.
    pub(super) fn hears_steadily(&self, node: ChainNodeId, now: Instant) -> bool {
        let limit = self.config.options().election_timeout;
        let (since, last) = (self.peers.steady.get(&node), self.peers.hears_us.get(&node));
        let lasts = since
            .zip(last)
            .is_some_and(|(since, last)| last.since(*since) >= limit);
        lasts && !self.peers.is_silent(node, now, limit) && !self.peers.is_cut_off(node)
    }

    /// Whether a node that it hears takes this member for dead.
    pub(super) fn is_suspected(&self, member: ChainNodeId) -> bool {
        let mut heard = self.peers.heard.keys();
        let suspects = |node: &ChainNodeId| self.peers.suspected.get(node);
        heard.any(|node| suspects(node).is_some_and(|those| those.contains(member)))
    }

    /// The members that this node takes for dead: neighbours that are silent, and nodes that have
    /// left the cluster.
    fn absent(&self, now: Instant) -> impl Iterator<Item = ChainNodeId> + use<'_> {
        let members = self.chain.members.iter().map(|member| member.node);
        members.filter(move |node| {
            *node != self.id && (self.is_silent_neighbour(*node, now) || self.has_left(*node))
        })
    }

    /// The members that this node asks the master to remove. A node that receives too few
    /// heartbeats may be cut off itself, and asks only for those that have left the cluster.
    pub(super) fn suspects(&self, now: Instant) -> impl Iterator<Item = ChainNodeId> + use<'_> {
        let hears_enough = self.hears_enough(now);
        self.absent(now)
            .filter(move |node| hears_enough || self.has_left(*node))
    }

    /// This node, if it has heard too few others for as long as one may be silent.
    fn cut_off(&self, now: Instant) -> Option<ChainNodeId> {
        let limit = self.config.options().election_timeout;
        let lasts = |since: &Instant| now.since(*since) > limit;
        self.peers.cut_off.filter(lasts).map(|_| self.id)
    }

    fn other_nodes(&self) -> Set<ChainNodeId> {
        let (nodes, _) = self.config.standing();
        nodes.without(Set::one(self.id))
    }

    /// Whether it hears as many other chain nodes, and is heard by them, as live if f are dead.
    pub(super) fn hears_enough(&self, now: Instant) -> bool {
        let others = self.other_nodes();
        let heard = others.iter().filter(|node| self.hears(*node, now)).count();
        heard + self.config.layout().f >= others.len()
    }

    fn is_silent_neighbour(&self, node: ChainNodeId, now: Instant) -> bool {
        let limit = self.config.options().election_timeout;
        let is_neighbour = [self.predecessor(), self.successor()].contains(&Some(node));
        is_neighbour && (self.peers.is_cut_off(node) || self.peers.is_silent(node, now, limit))
    }

    /// Whether a suspicion of the member at this place fits, as far as this node knows.
    pub(super) fn may_be_removed(&self, place: usize) -> bool {
        let least = self.config.least();
        self.changing.roster().spares(&self.chain, place, least)
    }

    /// The master has said what the chain is, and this node has entered it.
    pub(super) fn looked(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (epoch, life) = (self.chain.epoch, self.life);
        self.sealing.looked = Some(now);
        if self.has_place_of_earlier_life() {
            let node = self.id;
            return self.link.step(now, Step::Begin { node, life }, out);
        }
        let from = self.id;
        if let Some(announced) = self.recovered(now) {
            out.reached(branch::WITHDRAWS);
            let step = Step::Withdraw {
                from,
                life,
                announced,
            };
            return self.link.step(now, step, out);
        }
        if let Some(announced) = self.removable(now) {
            out.reached(branch::LEASE_OVER);
            let step = Step::Remove {
                from,
                life,
                announced,
            };
            return self.link.step(now, step, out);
        }
        // What does not fit is not asked for.
        let fits = |node: &ChainNodeId| {
            let place = self.chain.place_of(*node);
            let is_announced = self.chain.leaving_of(*node).is_some();
            !is_announced && place.is_some_and(|place| self.may_be_removed(place))
        };
        let suspect = self.suspects(now).find(fits);
        if let Some(node) = suspect {
            out.reached(branch::SUSPECTS);
            let step = Step::Suspect {
                epoch,
                from,
                life,
                node,
            };
            self.link.step(now, step, out);
        }
    }
}
