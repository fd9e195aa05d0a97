//! The relay (PigPaxos 3.1): passes questions on to the acceptors of a group, and gathers their
//! answers into one.
//!
//! Stands between acceptors and those who ask them: proxy leaders, leaders, readers. It has no
//! durable state: if it fails, they ask again, through another or themselves. It decides nothing:
//! its answers name who has voted, promised, or told its watermark.

mod gathering;
mod heartbeats;
mod promises;
mod votes;
pub(crate) mod watermarks;

use self::gathering::Gatherings;
use self::promises::Page;
use self::votes::Request;
use self::watermarks::Largest;
use super::branch;
use super::groups::Order;
use super::message::{Beat, RelayId, Requester, Run, Terms};
use super::metrics;
use super::relaying::Relaying;
use crate::multipaxos::config::Config;
use crate::multipaxos::message::ReaderId;
use crate::multipaxos::{Envelope, acceptor};
use crate::parts::message::Votes;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, Timestamp, earliest};
use ionian_kernel::wire::Never;
use ionian_replication::batch::Value;
use ionian_replication::suspicion::Suspicion;

messages! {
    /// The messages that a relay receives.
    "relay" In {
        /// Asks it to have acceptors vote.
        0 for "relay" of slot value => Phase2a {
            /// Who asks, and gets the votes.
            from: Requester,
            /// The slot.
            slot: Slot,
            /// The leader's round.
            round: Round,
            /// The value.
            value: Value,
            /// Which acceptors, and on what terms.
            terms: Box<Terms>,
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
        /// A relay of the layer below has asked its acceptors.
        2 => Votes {
            /// The slot.
            slot: Slot,
            /// The round in which they voted.
            round: Round,
            /// The acceptors that voted.
            voted: AcceptorSet,
        },
        /// An acceptor has promised a higher round and refuses.
        3 => Nack {
            /// The round that it promised.
            round: Round,
        },
        /// An acceptor has forgotten these slots: they are chosen, and enough replicas have
        /// executed them.
        4 => Forgotten {
            /// The slots below this one.
            below: Slot,
        },
        /// Values are chosen, and no request came for this to ride on.
        5 => Learn {
            /// The acceptors to tell.
            members: AcceptorSet,
            /// The round in which the values were chosen.
            round: Round,
            /// The slots.
            chosen: Box<[Run]>,
        },
        /// A leader lives: to be passed on.
        6 => Heartbeat {
            /// The leader.
            from: LeaderId,
            /// What it says, and to whom.
            beat: Box<Beat>,
        },
        /// Asks it to have acceptors promise a round to its leader, and tell their votes.
        7 => Phase1a {
            /// The acceptors.
            members: AcceptorSet,
            /// In microseconds: for how long the leader waits at most.
            patience: u64,
            /// The round.
            round: Round,
            /// The first slot that the leader asks about.
            start: Slot,
            /// The slot after the last that it asks about.
            end: Slot,
        },
        /// An acceptor's promise and a stretch of its votes.
        8 => Phase1b {
            /// The acceptor.
            from: AcceptorId,
            /// The round that it promised.
            round: Round,
            /// The votes.
            votes: Box<Votes>,
            /// What its clock shows; zero says nothing.
            clock: Timestamp,
        },
        /// Asks it to have acceptors tell their watermarks.
        9 for "relay" of inquiry => PreRead {
            /// Who asks, and gets the highest.
            from: ReaderId,
            /// The acceptors.
            members: AcceptorSet,
            /// In microseconds: for how long the reader waits at most.
            patience: u64,
            /// The reader's number for the inquiry.
            inquiry: u64,
        },
        /// An acceptor's vote watermark.
        10 => PreReadAck {
            /// The acceptor.
            from: AcceptorId,
            /// The reader.
            reader: ReaderId,
            /// The inquiry that it answers.
            inquiry: u64,
            /// The slot after the highest it has voted in.
            watermark: Slot,
            /// The epoch of the highest round that it has promised.
            epoch: Epoch,
            /// A replica of its node has executed every slot below this one.
            executed: Slot,
        },
    }
}

/// A relay waits at most for this part of the time that its requester waits: its answer must be
/// there first (defect l11).
const PART_OF_PATIENCE: u32 = 4;

/// A relay.
pub struct Relay {
    id: RelayId,
    config: Arc<Config>,
    random: Random,
    requests: BTreeMap<votes::Key, Request>,
    /// When each of them is due.
    due: BTreeSet<(Instant, votes::Key)>,
    /// The acceptors that did not vote in time and have not voted since: they are asked like the
    /// others, and not waited for.
    suspicion: Suspicion<AcceptorId>,
    /// How long acceptors take to vote, smoothed. Zero until the first have voted.
    answer_time: Duration,
    /// What leaders and readers ask.
    promises: Gatherings<promises::Key, Page>,
    watermarks: Gatherings<watermarks::Key, Largest>,
    relayed: u64,
    gave_up: u64,
}

impl Relay {
    /// The relay of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Relay {
            id: RelayId(birth.address.index),
            config,
            random: Random::new(birth.seed),
            requests: BTreeMap::new(),
            due: BTreeSet::new(),
            suspicion: Suspicion::default(),
            answer_time: Duration::ZERO,
            promises: Gatherings::default(),
            watermarks: Gatherings::default(),
            relayed: 0,
            gave_up: 0,
        }
    }

    /// For how long to wait for the answers to a leader or a reader that waits for the time
    /// `patience`. How long votes take lately says nothing: what acceptors answer to a leader can
    /// be large.
    fn waits(&self, patience: Duration) -> (Duration, Duration) {
        let relaying = self.config.relaying();
        let stated = relaying.and_then(|relaying| relaying.settings.timeout);
        // A stated time is for votes.
        let part = patience / PART_OF_PATIENCE;
        let wait = stated.map_or(part, |stated| stated.max(part));
        (wait.min(patience / 2), patience)
    }

    /// Too much is under way.
    fn is_full(&self, out: &mut Out<'_, Self>) {
        out.reached(branch::TOO_MANY);
    }

    /// It answers without these.
    fn gives_up(&mut self, now: Instant, missing: AcceptorSet, out: &mut Out<'_, Self>) {
        out.reached(branch::GIVES_UP);
        self.gave_up += 1;
        self.suspicion.silent(missing, now);
    }

    /// Hands requests to relays of the next layer for all of `members` but those that this one asks
    /// itself, which are returned (8.3).
    fn divide(
        &mut self,
        (members, slack): (AcceptorSet, u8),
        relaying: &Relaying,
        out: &mut Out<'_, Self>,
        message: impl Fn(AcceptorSet, u8) -> In,
    ) -> AcceptorSet {
        let own = relaying.beside(self.id).and(members);
        let others = members.without(own);
        let Some(fan_out) = relaying
            .settings
            .fan_out
            .filter(|most| others.len() > *most)
        else {
            return members;
        };
        out.reached(branch::SECOND_LAYER);
        let mut direct = own;
        let suspects = self.suspicion.suspects();
        let order = Order::shuffled(others, AcceptorSet::EMPTY, &mut self.random);
        for group in 0..fan_out {
            let members = order.slice(group, fan_out, 0);
            let relays = relaying.relays_of(members.without(suspects));
            let relay = relays.pick(self.random.any() >> 1);
            match relay {
                Some(relay) if members.len() > 1 && relay != self.id => {
                    let slack = slack / fan_out as u8;
                    out.send(Envelope::ToRelays(Set::one(relay), message(members, slack)));
                }
                _ => direct = direct.or(members),
            }
        }
        direct
    }

    /// Answers leaders and readers with what there is where answers are overdue.
    fn give_up_on_questions(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some((key, answered)) = self.promises.give_up(now) {
            if let Some(answered) = answered {
                self.gives_up(now, answered.missing, out);
                self.promise(key, answered, out);
            }
        }
        while let Some((key, answered)) = self.watermarks.give_up(now) {
            if let Some(answered) = answered {
                self.gives_up(now, answered.missing, out);
                self.tell_reader(key, answered, out);
            }
        }
    }
}

impl Role for Relay {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        let config = self.config.clone();
        // One that the deployment does not have is about to be stopped.
        let Some(relaying) = config.relaying() else {
            return;
        };
        match message {
            In::Phase2a {
                from,
                slot,
                round,
                value,
                terms,
            } => {
                let Terms { slack, chosen, .. } = *terms;
                let (members, patience) = relaying.asked(terms.members, terms.patience);
                let request = Request {
                    round,
                    waiting: members,
                    voted: AcceptorSet::EMPTY,
                    slack,
                    begun_at: now,
                    due: now + self.give_up_after(patience, relaying),
                    patience,
                    is_late: false,
                };
                if members.is_empty() || !self.begin((slot, from), request, out) {
                    return;
                }
                self.relayed += 1;
                let requester = Requester::Relay { id: self.id };
                let direct = self.divide((members, slack), relaying, out, |members, slack| {
                    let terms = Terms {
                        members,
                        slack,
                        patience: (patience / 2).as_micros() as u64,
                        chosen: chosen.clone(),
                    };
                    In::Phase2a {
                        from: requester,
                        slot,
                        round,
                        value: value.clone(),
                        terms: Box::new(terms),
                    }
                });
                let message = acceptor::In::RelayedPhase2a {
                    from: requester,
                    slot,
                    round,
                    value,
                    chosen,
                };
                out.send(Envelope::ToAcceptors(direct, message));
            }
            In::Phase2b { from, slot, round } => {
                self.on_votes(now, (slot, round), Set::one(from), out);
            }
            In::Votes { slot, round, voted } => self.on_votes(now, (slot, round), voted, out),
            In::Nack { round } => self.on_nack(round, out),
            In::Forgotten { below } => self.on_forgotten(below, out),
            In::Learn {
                members,
                round,
                chosen,
            } => {
                let members = members.and(relaying.acceptors());
                let direct = self.divide((members, 0), relaying, out, |members, _| In::Learn {
                    members,
                    round,
                    chosen: chosen.clone(),
                });
                let message = acceptor::In::LearnSlots { round, chosen };
                out.send(Envelope::ToAcceptors(direct, message));
            }
            In::Heartbeat { from, beat } => self.on_heartbeat(from, *beat, out),
            In::Phase1a {
                members,
                patience,
                round,
                start,
                end,
            } => {
                let asked = relaying.asked(members, patience);
                self.on_phase1a(now, asked, (round, start, end), out);
            }
            In::Phase1b {
                from,
                round,
                votes,
                clock,
            } => self.on_phase1b(now, (from, round), *votes, clock, out),
            In::PreRead {
                from,
                members,
                patience,
                inquiry,
            } => {
                let asked = relaying.asked(members, patience);
                self.on_pre_read(now, asked, (from, inquiry), out);
            }
            In::PreReadAck {
                from,
                reader,
                inquiry,
                watermark,
                epoch,
                executed,
            } => {
                let answer = (watermark, epoch, executed);
                self.on_pre_read_ack(now, from, (reader, inquiry), answer, out);
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.give_up(now, out);
        self.give_up_on_questions(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        let next = earliest(self.promises.next_timer(), self.watermarks.next_timer());
        earliest(next, self.due.first().map(|(at, _)| *at))
    }

    fn invariants(&self) {
        let due = self
            .requests
            .iter()
            .map(|(key, request)| (request.due, *key));
        assert_eq!(
            due.collect::<BTreeSet<_>>(),
            self.due,
            "the times at which requests are due"
        );
        assert!(
            self.requests.values().all(|request| !request.waiting.is_empty()
                && !request.waiting.meets(request.voted)),
            "a relay waits for nothing, or for one that has voted"
        );
        self.promises.invariants();
        self.watermarks.invariants();
    }

    const METRICS: Metrics = &[metrics::RELAY];

    fn status(&self, status: &mut Status) {
        let unanswered = self.requests.values().filter(|request| !request.is_late);
        status.add([
            (unanswered.count() + self.promises.len() + self.watermarks.len()) as u64,
            self.relayed,
            self.gave_up,
            self.answer_time.as_micros() as u64,
        ]);
    }
}
