//! What a leader knows of others: which life each leader is in, and whether it sends heartbeats;
//! which acceptors answer, and how soon.

use super::super::config::Config;
use super::super::kind;
use alloc::collections::BTreeSet;
use ionian_kernel::id::{AcceptorId, AcceptorSet, Id, LeaderId, Set};
use ionian_kernel::layout::{NodeId, Places};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::distance::Distances;
use ionian_replication::suspicion::Suspicion;

/// See the top of this file.
pub(super) struct Peers {
    me: LeaderId,
    leaders: Set<LeaderId>,
    timeout: Duration,
    since: Instant,
    heard: SmallMap<LeaderId, Heard>,
    /// Where leaders are.
    places: Places,
    /// On how many other nodes the leaders are that it has heard.
    known: usize,
    /// Since when it waits for acceptors of other nodes, if nothing has come from one since.
    waits_since: Option<Instant>,
    /// The acceptors that left a request unanswered.
    pub(super) suspicion: Suspicion<AcceptorId>,
    /// How long those that record commands take to answer.
    pub(super) distances: Distances<AcceptorId>,
}

struct Heard {
    at: Instant,
    life: u32,
}

impl Peers {
    pub(super) fn new(me: LeaderId, config: &Config) -> Self {
        Peers {
            me,
            places: config.layout().places(kind::Leader),
            known: 0,
            waits_since: None,
            leaders: config.leaders(),
            timeout: config.options().election_timeout,
            since: Instant::ZERO,
            heard: SmallMap::new(),
            suspicion: Suspicion::default(),
            distances: Distances::default(),
        }
    }

    /// All count as heard now.
    pub(super) fn start(&mut self, now: Instant) {
        self.since = now;
    }

    /// A leader is alive; says whether this life of it is new.
    pub(super) fn heard(&mut self, now: Instant, from: LeaderId, life: u32) -> bool {
        if from == self.me || !self.leaders.contains(from) {
            return false;
        }
        let before = self.heard.get(&from).map_or(0, |heard| heard.life);
        if life >= before {
            let earlier = self.heard.insert(from, Heard { at: now, life });
            if earlier.is_none() {
                self.known = self.count_nodes();
            }
        }
        life > before
    }

    /// Acceptors of other nodes are asked.
    pub(super) fn asked(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// Something has come from another node, or nothing is asked any more.
    pub(super) fn received(&mut self) {
        self.waits_since = None;
    }

    /// Whether it receives nothing, though it has asked: what it proposes stays undecided, as far
    /// as it can tell.
    pub(super) fn is_cut_off(&self, now: Instant) -> bool {
        let waits = |since| now.since(since) >= self.timeout;
        self.waits_since.is_some_and(waits)
    }

    /// The number of other nodes whose clocks it has heard.
    pub(super) fn known(&self) -> usize {
        self.known
    }

    fn count_nodes(&self) -> usize {
        let node_of = |leader: &LeaderId| self.places.node_of(leader.index());
        let nodes: BTreeSet<Option<NodeId>> = self.heard.keys().map(node_of).collect();
        nodes.len() - usize::from(nodes.contains(&node_of(&self.me)))
    }

    /// The life that a leader is known to be in; 0 if none is known.
    pub(super) fn life_of(&self, leader: LeaderId) -> u32 {
        self.heard.get(&leader).map_or(0, |heard| heard.life)
    }

    /// Whether a leader has sent a heartbeat lately.
    pub(super) fn is_present(&self, now: Instant, leader: LeaderId) -> bool {
        let last = self.heard.get(&leader).map_or(self.since, |heard| heard.at);
        leader == self.me || now.since(last) < self.timeout
    }

    /// The acceptors of `all` that answer, as far as is known.
    pub(super) fn trusted(&self, now: Instant, config: &Config, all: AcceptorSet) -> AcceptorSet {
        let is_absent = |leader| !self.is_present(now, leader);
        let present = |id: &AcceptorId| !config.leader_of(*id).is_some_and(is_absent);
        all.iter()
            .filter(present)
            .collect::<AcceptorSet>()
            .without(self.suspicion.suspects())
    }
}
