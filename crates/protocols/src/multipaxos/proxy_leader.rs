//! The proxy leader (3.1): gets the slots that a leader hands it chosen, and tells the replicas.
//!
//! Stands between leader and acceptors, and between acceptors and replicas. It keeps nothing that
//! matters: when it dies, the leader hands its slots to another.

use super::branch;
use super::canary::Canary;
use super::config::Config;
use super::message::Proposer;
use super::metrics;
use super::{Envelope, acceptor, batcher, kind, leader, replica};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, earliest, transit};
use ionian_kernel::wire::Never;
use ionian_replication::batch::Value;
use ionian_replication::slot_map::{SlotMap, slots_where};
use ionian_replication::suspicion::{Presence, Suspicion};

messages! {
    /// What a proxy leader is told.
    "proxy_leader" In {
        /// A leader wants this value chosen in this slot.
        0 => Phase2a {
            /// The slot.
            slot: Slot,
            /// The leader's round.
            round: Round,
            /// The value.
            value: Value,
            /// Who waits to hear that it is chosen.
            proposer: Proposer,
            /// The replica that is to answer the clients.
            replier: ReplicaId,
        },
        /// An acceptor voted.
        1 => Phase2b {
            /// The acceptor.
            from: AcceptorId,
            /// The slot.
            slot: Slot,
            /// The round in which it voted.
            round: Round,
        },
        /// An acceptor has promised a higher round and refuses.
        2 => Nack {
            /// The round that it promised.
            round: Round,
        },
        /// An acceptor has forgotten these slots: they are chosen, and enough replicas have
        /// executed them.
        3 => Forgotten {
            /// The slots below this one.
            below: Slot,
        },
    }
}

/// How often a proxy leader says that it lives. A leader that has not heard of it for
/// that long hands its slots to others.
pub const ALIVE_EVERY: Duration = Duration::from_millis(250);

/// Where all acceptors are asked at once, one that has not voted for this long is not expected to.
const ACCEPTOR_PRESENCE: Duration = Duration::from_millis(800);

/// A proxy leader.
pub struct ProxyLeader {
    id: ProxyLeaderId,
    config: Arc<Config>,
    node: NodeId,
    near: AcceptorSet,
    /// The highest round seen; slots of lower rounds are dropped, for their leader is deposed.
    round: Round,
    pending: SlotMap<Pending>,
    suspicion: Suspicion<AcceptorId>,
    /// Where all are asked at once: those whose votes came lately, needed or not.
    present: Presence<AcceptorId>,
    turn: u64,
    check_at: Option<Instant>,
    /// Batches chosen in this burst, by the batcher that waits for them.
    chosen_batches: BTreeMap<BatcherId, Vec<u64>>,
    alive_at: Instant,
    chosen: u64,
    retries: u64,
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
        self.ask_at + transit * (1 << self.attempts.min(5))
    }
}

impl ProxyLeader {
    /// The proxy leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        ProxyLeader {
            id: ProxyLeaderId(birth.address.index),
            node: birth.node,
            near: config.near(kind::Acceptor, birth.node),
            round: Round(0),
            pending: SlotMap::default(),
            suspicion: Suspicion::default(),
            present: Presence::new(config.all(kind::Acceptor), ACCEPTOR_PRESENCE),
            turn: Random::new(birth.seed).any() >> 1,
            check_at: None,
            chosen_batches: BTreeMap::new(),
            alive_at: Instant::ZERO,
            chosen: 0,
            retries: 0,
            config,
        }
    }

    /// Tells the leader of `round` that acceptors have promised a higher one. They do so
    /// themselves; but they may not reach it, and it would go on proposing, and be heard by enough
    /// of them to believe that it leads.
    fn refuse(&self, round: Round, out: &mut Out<'_, Self>) {
        if round < self.round && !self.config.has(Canary::DropsSilently) {
            out.reached(branch::OLD_ROUND_REFUSED);
            let leader = Set::one(round.leader()).and(self.config.leaders());
            out.send(Envelope::ToLeaders(
                leader,
                leader::In::Nack { round: self.round },
            ));
        }
    }

    /// Follows `round`; false when it is an old one, or of an epoch that this node knows no quorums
    /// of.
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

    fn on_phase2a(&mut self, now: Instant, slot: Slot, pending: Pending, out: &mut Out<'_, Self>) {
        if let Some(under_way) = self
            .pending
            .get_mut(&slot)
            .filter(|_| !self.config.has(Canary::AsksAtOnce))
        {
            // It is asked for already, and again when it is time to: the leader has waited long,
            // but what it waits for may still be on its way from here.
            (under_way.proposer, under_way.replier) = (pending.proposer, pending.replier);
            return;
        }
        self.pending.insert(slot, pending);
        self.ask(now, slot, out);
    }

    /// Sends Phase2a: to one write quorum of acceptors that answered lately, then to another, then
    /// to all (thrifty, and then not: l8).
    fn ask(&mut self, now: Instant, slot: Slot, out: &mut Out<'_, Self>) {
        self.turn += 1;
        let config = self.config.clone();
        let Some(quorums) = config.quorums_of(self.round) else {
            return;
        };
        let all = quorums.members();
        let trusted = self.suspicion.trusted(all);
        let probe = self.suspicion.probe(now);
        let pending = self
            .pending
            .get_mut(&slot)
            .expect("asked for a pending slot");
        let thrifty = (config.options().thrifty && pending.attempts < 2)
            || self.config.has(Canary::L8AlwaysThrifty);
        let quorum = match self.config.has(Canary::L8AlwaysThrifty) {
            true => quorums.write_quorum(all, self.near, slot.0),
            false => quorums.write_quorum(trusted, self.near, self.turn),
        };
        let asked = match quorum {
            Some(quorum) if thrifty => quorum.or(probe),
            _ => all,
        };
        if pending.attempts > 0 {
            out.reached(if asked == all {
                branch::ASKS_ALL
            } else {
                branch::SECOND_QUORUM
            });
        }
        // Who has voted needs not be sent the value again.
        let asked = asked.without(pending.voted);
        pending.asked = asked;
        let wait = self.config.options().resend_after * (1 << pending.attempts.min(5));
        pending.ask_at = now + wait;
        self.check_at = earliest(self.check_at, Some(pending.ask_at));
        let value = pending.value.clone();
        let message = acceptor::In::Phase2a {
            from: self.id,
            slot,
            round: self.round,
            value,
        };
        out.send(Envelope::ToAcceptors(asked, message));
    }

    fn on_phase2b(
        &mut self,
        now: Instant,
        from: AcceptorId,
        slot: Slot,
        round: Round,
        out: &mut Out<'_, Self>,
    ) {
        self.suspicion.heard(from);
        if !self.config.options().thrifty {
            self.present.heard(from, now);
        }
        if round != self.round {
            return;
        }
        let Some(pending) = self.pending.get_mut(&slot) else {
            return;
        };
        pending.voted.insert(from);
        if self
            .config
            .quorums_of(round)
            .is_some_and(|quorums| quorums.is_write_quorum(pending.voted))
        {
            let pending = self.pending.remove(&slot).expect("just found");
            self.announce(now, slot, pending, out);
        }
    }

    /// What the acceptors asked left unanswered is asked of others.
    fn ask_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
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
            self.ask(now, slot, out);
        }
        self.check_at = self
            .pending
            .values()
            .map(|pending| pending.overdue_at(transit))
            .min();
    }

    /// The value is chosen: all replicas are told, and one of them is named to answer the clients.
    /// Those that live with an acceptor that has the value are told through it, without the value:
    /// it has voted, or, where all are asked at once and it votes at all, will have by the time
    /// that this comes behind the question.
    fn announce(&mut self, now: Instant, slot: Slot, pending: Pending, out: &mut Out<'_, Self>) {
        self.chosen += 1;
        let Pending {
            value,
            proposer,
            replier,
            voted,
            asked,
            ..
        } = pending;
        let informed = match self.config.options().thrifty {
            true => voted,
            false => voted.or(asked.and(self.present.present(now))),
        };
        let mut replicas = self.config.replicas();
        if self.config.has_neighbours() {
            let mut acceptors = AcceptorSet::EMPTY;
            // To a replica on this node the value is no more than a reference.
            for acceptor in informed.without(self.near).iter() {
                let beside = self.config.replicas_beside(acceptor).and(replicas);
                if !beside.is_empty() {
                    acceptors.insert(acceptor);
                    replicas = replicas.without(beside);
                }
            }
            if !acceptors.is_empty() {
                let learn = acceptor::In::Learn {
                    slot,
                    round: self.round,
                    replier,
                };
                out.send(Envelope::ToAcceptors(acceptors, learn));
            }
        }
        out.send(Envelope::ToReplicas(
            replicas,
            replica::In::Chosen {
                slot,
                value,
                replier,
            },
        ));
        if let Proposer::Batcher { id, number } = proposer {
            self.chosen_batches.entry(id).or_default().push(number);
        }
    }
}

impl Role for ProxyLeader {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.near = config.near(kind::Acceptor, self.node);
        self.present.reconfigure(config.all(kind::Acceptor));
        if config.quorums_of(self.round).is_none() {
            self.pending.clear();
            self.check_at = None;
        }
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Phase2a {
                slot,
                round,
                value,
                proposer,
                replier,
            } => {
                if self.enter(round) {
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
                    self.on_phase2a(now, slot, pending, out);
                } else {
                    self.refuse(round, out);
                }
            }
            In::Phase2b { from, slot, round } => self.on_phase2b(now, from, slot, round, out),
            In::Nack { round } => {
                if round > self.round && !self.pending.is_empty() {
                    out.reached(branch::ROUND_LEFT);
                }
                self.enter(round);
            }
            In::Forgotten { below } => {
                out.reached(branch::SLOTS_FORGOTTEN);
                self.pending.retain(|slot, _| *slot >= below);
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.alive_at <= now {
            self.alive_at = now + ALIVE_EVERY;
            out.send(Envelope::ToLeaders(
                self.config.leaders(),
                leader::In::ProxyAlive { from: self.id },
            ));
        }
        if self.check_at.is_some_and(|at| at <= now) {
            self.ask_again(now, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        earliest(self.check_at, Some(self.alive_at))
    }

    fn on_burst_end(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        while let Some((batcher, numbers)) = self.chosen_batches.pop_first() {
            out.send(Envelope::ToBatchers(
                Set::one(batcher),
                batcher::In::BatchesChosen { numbers },
            ));
        }
    }

    fn invariants(&self) {
        assert!(
            self.pending.is_empty() || self.check_at.is_some(),
            "slots pending and no timer to ask again"
        );
    }

    const METRICS: Metrics = &[metrics::PROXY_LEADER];

    fn status(&self, status: &mut Status) {
        status.round = Some(self.round);
        status.add([
            self.pending.len() as u64,
            self.chosen,
            self.retries,
            self.suspicion.suspects().len() as u64,
        ]);
    }
}
