//! The part of a proxy leader (3.1): runs phase 2 for the slots that a leader assigns to it, and
//! sends the chosen values to the replicas.
//!
//! It has no durable state: if it fails, the leader assigns its slots to another proxy leader.

use super::branch;
use super::message::Proposer;
use crate::multipaxos::config::Config;
use crate::multipaxos::kind;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::status::Status;
use ionian_kernel::time::{Duration, Instant, earliest, transit};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::Value;
use ionian_replication::slot_map::{SlotMap, slots_where};
use ionian_replication::suspicion::{PRESENT_FOR, Presence, Suspicion};

/// Which acceptors are asked.
#[derive(Clone, Copy)]
pub struct Ask {
    /// These.
    pub to: AcceptorSet,
    /// Acceptors that have left a request unanswered: on their votes no relay may count.
    pub silent: AcceptorSet,
    /// How often they, or others, were asked the same before.
    pub attempt: u32,
}

impl Ask {
    /// These are asked for the first time, and none of them is known to be silent.
    pub fn first(to: AcceptorSet) -> Self {
        Ask {
            to,
            silent: Set::EMPTY,
            attempt: 0,
        }
    }
}

/// The messages that this part sends through its role. None depends on a record: a proxy leader
/// keeps none.
pub trait ProxyLeaderPort {
    /// Asks acceptors for their votes.
    fn phase2a(&mut self, ask: Ask, slot: (Slot, Round), value: Value);
    /// The value is chosen: replicas are to have it, and `replier` is to answer the clients.
    fn chosen(&mut self, to: Set<ReplicaId>, slot: Slot, value: Value, replier: ReplicaId);
    /// The same through acceptors that have voted for the value, to the replicas on their nodes.
    fn learn(&mut self, to: AcceptorSet, slot: Slot, round: Round, replier: ReplicaId);
    /// The batches that a batcher calls by these numbers are chosen.
    fn batches_chosen(&mut self, to: BatcherId, numbers: Vec<u64>);
    /// Tells a leader that acceptors have promised this round, which is higher than its own.
    fn nack(&mut self, to: Set<LeaderId>, promise: Round);
    /// A rare branch was taken.
    fn reached(&mut self, branch: &'static str);
}

/// The slots that a proxy leader runs phase 2 for, with the votes of each (compartmentalization
/// 3.1).
pub struct ProxyLeaderCore {
    config: Arc<Config>,
    node: NodeId,
    near: AcceptorSet,
    /// The highest round seen; slots of lower rounds are dropped, for their leader is deposed.
    round: Round,
    pending: SlotMap<Pending>,
    suspicion: Suspicion<AcceptorId>,
    /// Where all are asked at once: those whose votes came lately, needed or not.
    present: Presence<AcceptorId>,
    /// Whether that matters: a thrifty one asks a few, and what is chosen gets to all through
    /// relays.
    needs_presence: bool,
    tellers: Tellers,
    turn: u64,
    check_at: Option<Instant>,
    /// Batches chosen in this burst, by the batcher that waits for them.
    chosen_batches: SmallMap<BatcherId, Vec<u64>>,
    chosen: u64,
    retries: u64,
}

/// The last answer to who tells the replicas: it is mostly the same one.
#[derive(Clone, Copy, Default)]
struct Tellers {
    /// The acceptors that have the value and are on other nodes.
    informed: AcceptorSet,
    /// Those of them that are to tell the replicas on their nodes.
    acceptors: AcceptorSet,
    /// The replicas that no acceptor tells.
    others: Set<ReplicaId>,
}

impl Tellers {
    fn new(informed: AcceptorSet, config: &Config) -> Self {
        let mut tellers = Tellers {
            informed,
            acceptors: AcceptorSet::EMPTY,
            others: config.replicas(),
        };
        for acceptor in informed.iter() {
            let beside = config.replicas_beside(acceptor).and(tellers.others);
            if !beside.is_empty() {
                tellers.acceptors.insert(acceptor);
                tellers.others = tellers.others.without(beside);
            }
        }
        tellers
    }
}

fn needs_presence(config: &Config) -> bool {
    !config.is_thrifty() && config.relaying().is_none()
}

struct Pending {
    value: Value,
    proposer: Proposer,
    replier: ReplicaId,
    asked: AcceptorSet,
    voted: AcceptorSet,
    ask_at: Instant,
    attempts: u32,
}

impl Pending {
    /// When it is to be asked for again. The allowance for what is under way doubles like the wait:
    /// it may be too small.
    fn overdue_at(&self, transit: Duration) -> Instant {
        self.ask_at + doubled(transit, self.attempts, 5)
    }
}

impl ProxyLeaderCore {
    /// Creates the part.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        ProxyLeaderCore {
            node: birth.node,
            near: config.near(kind::Acceptor, birth.node),
            round: Round(0),
            pending: SlotMap::default(),
            suspicion: Suspicion::default(),
            present: Presence::new(config.all(kind::Acceptor), PRESENT_FOR),
            needs_presence: needs_presence(&config),
            tellers: Tellers::new(AcceptorSet::EMPTY, &config),
            turn: Random::new(birth.seed).any() >> 1,
            check_at: None,
            chosen_batches: SmallMap::new(),
            chosen: 0,
            retries: 0,
            config,
        }
    }

    /// Tells the leader of `round` that acceptors have promised a higher one. They do so
    /// themselves; but they may not reach it, and it would go on proposing, and be heard by enough
    /// of them to believe that it leads.
    fn refuse(&self, round: Round, port: &mut impl ProxyLeaderPort) {
        if round < self.round {
            port.reached(branch::OLD_ROUND_REFUSED);
            let leader = Set::one(round.leader()).and(self.config.leaders());
            port.nack(leader, self.round);
        }
    }

    /// Follows `round`; false if it is old, or if this node does not know the quorums of its epoch.
    fn enter(&mut self, round: Round) -> bool {
        if self.config.quorums_of(round).is_none() {
            return false;
        }
        if round > self.round {
            self.round = round;
            self.pending.clear();
        }
        round == self.round
    }

    /// A leader wants a value chosen.
    pub fn on_phase2a(
        &mut self,
        now: Instant,
        (slot, round): (Slot, Round),
        value: Value,
        (proposer, replier): (Proposer, ReplicaId),
        port: &mut impl ProxyLeaderPort,
    ) {
        if !self.enter(round) {
            return self.refuse(round, port);
        }
        if let Some(under_way) = self.pending.get_mut(&slot) {
            // It is asked for already, and again when it is time to: the leader has waited long,
            // but what it waits for may still be on its way from here.
            (under_way.proposer, under_way.replier) = (proposer, replier);
            return;
        }
        let (asked, voted) = (AcceptorSet::EMPTY, AcceptorSet::EMPTY);
        let pending = Pending {
            value,
            proposer,
            replier,
            asked,
            voted,
            ask_at: now,
            attempts: 0,
        };
        self.pending.insert(slot, pending);
        self.ask(now, slot, port);
    }

    /// Sends Phase2a: to one write quorum of acceptors that answered lately, then to another, then
    /// to all (first to one quorum, later to all: defect l8 in docs/defects.md).
    fn ask(&mut self, now: Instant, slot: Slot, port: &mut impl ProxyLeaderPort) {
        self.turn += 1;
        let config = self.config.clone();
        let Some(quorums) = config.quorums_of(self.round) else {
            return;
        };
        let all = quorums.members();
        let probe = self.suspicion.probe(now);
        let pending = self
            .pending
            .get_mut(&slot)
            .expect("asked for a pending slot");
        let thrifty = config.is_thrifty() && pending.attempts < 2;
        let quorum = thrifty.then(|| {
            let trusted = self.suspicion.trusted(all);
            quorums.write_quorum(trusted, self.near, self.turn)
        });
        let asked = quorum.flatten().map_or(all, |quorum| quorum.or(probe));
        if pending.attempts > 0 {
            port.reached(if asked == all {
                branch::ASKS_ALL
            } else {
                branch::SECOND_QUORUM
            });
        }
        // Acceptors that have voted do not need the value again.
        let asked = asked.without(pending.voted);
        pending.asked = asked;
        let wait = doubled(config.options().resend_after, pending.attempts, 5);
        pending.ask_at = now + wait;
        self.check_at = earliest(self.check_at, Some(pending.ask_at));
        let (value, attempt) = (pending.value.clone(), pending.attempts);
        let ask = Ask {
            to: asked,
            silent: self.suspicion.suspects(),
            attempt,
        };
        port.phase2a(ask, (slot, self.round), value);
    }

    /// Acceptors voted: one, or those that a relay has asked.
    pub fn on_votes(
        &mut self,
        now: Instant,
        from: AcceptorSet,
        (slot, round): (Slot, Round),
        port: &mut impl ProxyLeaderPort,
    ) {
        self.suspicion.all_heard(from);
        if self.needs_presence {
            from.iter().for_each(|one| self.present.heard(one, now));
        }
        if round != self.round {
            return;
        }
        let Some(pending) = self.pending.get_mut(&slot) else {
            return;
        };
        pending.voted = pending.voted.or(from);
        if self
            .config
            .quorums_of(round)
            .is_some_and(|quorums| quorums.is_write_quorum(pending.voted))
        {
            let pending = self.pending.remove(&slot).expect("just found");
            self.announce(now, slot, pending, port);
        }
    }

    /// Asks other acceptors for the votes that those asked before have not given in time.
    fn ask_again(&mut self, now: Instant, port: &mut impl ProxyLeaderPort) {
        let transit = transit(
            self.pending
                .values()
                .map(|pending| pending.value.batch.byte_len())
                .sum(),
        );
        let overdue = slots_where(&self.pending, |pending| pending.overdue_at(transit) <= now);
        for slot in &overdue {
            let pending = self.pending.get_mut(slot).expect("just found");
            self.suspicion
                .silent(pending.asked.without(pending.voted), now);
            pending.attempts += 1;
        }
        self.retries += overdue.len() as u64;
        for slot in overdue {
            self.ask(now, slot, port);
        }
        self.check_at = self
            .pending
            .values()
            .map(|pending| pending.overdue_at(transit))
            .min();
    }

    /// The value is chosen: sends it to all replicas, with the name of the one that answers the
    /// clients. A replica on the node of an acceptor that has the value gets it from there. An
    /// acceptor has the value if it has voted, or if it was asked: channels are FIFO, so it votes,
    /// if at all, before it receives `Learn`.
    fn announce(
        &mut self,
        now: Instant,
        slot: Slot,
        pending: Pending,
        port: &mut impl ProxyLeaderPort,
    ) {
        self.chosen += 1;
        let Pending {
            value,
            proposer,
            replier,
            voted,
            asked,
            ..
        } = pending;
        let informed = match self.config.is_thrifty() {
            // It reaches all through relays; an acceptor that has not voted remembers it.
            _ if self.config.relaying().is_some() => self.config.all(kind::Acceptor),
            true => voted,
            false => voted.or(asked.and(self.present.present(now))),
        };
        // A replica on this node gets a reference to the value, not a copy.
        let informed = informed.without(self.near);
        if informed != self.tellers.informed {
            self.tellers = Tellers::new(informed, &self.config);
        }
        let Tellers {
            acceptors, others, ..
        } = self.tellers;
        if !acceptors.is_empty() {
            port.learn(acceptors, slot, self.round, replier);
        }
        port.chosen(others, slot, value, replier);
        if let Proposer::Batcher { id, number } = proposer {
            self.chosen_batches.entry(id).or_default().push(number);
        }
    }

    /// Whether it waits for no votes.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// An acceptor has promised a higher round and refuses.
    pub fn on_nack(&mut self, round: Round, port: &mut impl ProxyLeaderPort) {
        if round > self.round && !self.pending.is_empty() {
            port.reached(branch::ROUND_LEFT);
        }
        self.enter(round);
    }

    /// An acceptor has forgotten these slots: they are chosen, and enough replicas have executed
    /// them.
    pub fn on_forgotten(&mut self, below: Slot, port: &mut impl ProxyLeaderPort) {
        port.reached(branch::SLOTS_FORGOTTEN);
        self.pending.retain(|slot, _| *slot >= below);
    }

    /// Asks again for votes that are overdue.
    pub fn on_timer(&mut self, now: Instant, port: &mut impl ProxyLeaderPort) {
        self.suspicion.on_timer(now);
        if self.check_at.is_some_and(|at| at <= now) {
            self.ask_again(now, port);
        }
    }

    /// When it next wants to be called though nothing arrives.
    pub fn next_timer(&self) -> Option<Instant> {
        self.check_at
    }

    /// Tells batchers what was chosen in this burst.
    pub fn on_burst_end(&mut self, port: &mut impl ProxyLeaderPort) {
        while let Some((batcher, numbers)) = self.chosen_batches.pop_first() {
            port.batches_chosen(batcher, numbers);
        }
    }

    /// The membership has changed, or an option.
    pub fn reconfigure(&mut self, config: Arc<Config>) {
        self.near = config.near(kind::Acceptor, self.node);
        self.present.reconfigure(config.all(kind::Acceptor));
        self.needs_presence = needs_presence(&config);
        self.tellers = Tellers::new(AcceptorSet::EMPTY, &config);
        if config.quorums_of(self.round).is_none() {
            self.pending.clear();
            self.check_at = None;
        }
        self.config = config;
    }

    /// Asserts what must hold between two calls.
    pub fn invariants(&self) {
        assert!(
            self.pending.is_empty() || self.check_at.is_some(),
            "slots pending and no timer to ask again"
        );
    }

    /// Reports its round, and [its work](super::metrics::PROXY_LEADER).
    pub(crate) fn report(&self, status: &mut Status) {
        status.round = Some(self.round);
        status.add([
            self.pending.len() as u64,
            self.chosen,
            self.retries,
            self.suspicion.reported() as u64,
        ]);
    }
}
