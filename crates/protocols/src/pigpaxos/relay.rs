//! The relay (PigPaxos 3.1): passes requests for votes on to the acceptors of a group, and gathers
//! their votes into one answer.
//!
//! Stands between proxy leader and acceptors. It has no durable state: if it fails, the proxy
//! leader asks again through another. It decides nothing: its answers name who has voted.

use super::branch;
use super::groups::Order;
use super::message::{RelayId, Requester, Run, Terms};
use super::metrics;
use super::relaying::Relaying;
use crate::multipaxos::config::Config;
use crate::multipaxos::{Envelope, acceptor, proxy_leader};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::wire::Never;
use ionian_replication::batch::Value;
use ionian_replication::suspicion::Suspicion;

messages! {
    /// The messages that a relay receives.
    "relay" In {
        /// Asks it to have acceptors vote.
        0 => Phase2a {
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
    }
}

/// In microseconds: a requester waits this long at most.
const MAX_PATIENCE: u64 = 60_000_000;

/// A request with it: who asks, for which slot.
type Key = (Slot, Requester);

/// A relay.
pub struct Relay {
    id: RelayId,
    config: Arc<Config>,
    random: Random,
    requests: BTreeMap<Key, Request>,
    /// When each of them is due.
    due: BTreeSet<(Instant, Key)>,
    /// The acceptors that did not vote in time and have not voted since: they are asked like the
    /// others, and not waited for.
    suspicion: Suspicion<AcceptorId>,
    /// How long acceptors take to vote, smoothed. Zero until the first have voted.
    answer_time: Duration,
    relayed: u64,
    gave_up: u64,
}

struct Request {
    round: Round,
    /// The acceptors that have not voted.
    waiting: AcceptorSet,
    voted: AcceptorSet,
    slack: u8,
    begun_at: Instant,
    /// When it is answered at the latest; when it is forgotten, if it was answered like this.
    due: Instant,
    /// For how long its requester waits.
    patience: Duration,
    /// Whether it was answered before enough had voted. Votes that come later are passed on as they
    /// come.
    is_late: bool,
}

/// The most requests under way. Of others the proxy leader asks the acceptors itself.
const MAX_REQUESTS: usize = 1 << 16;

/// A relay waits for this many times the usual time.
const TIMES_USUAL: u32 = 4;

/// And for this long in any case, and at most for this part of the time that its requester waits:
/// its answer must be there first (defect l11).
const AT_LEAST: Duration = Duration::from_millis(1);
const PART_OF_PATIENCE: u32 = 4;

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
            relayed: 0,
            gave_up: 0,
        }
    }

    /// How long to wait for votes on behalf of one who waits for the time `patience`.
    fn give_up_after(&self, patience: Duration, relaying: &Relaying) -> Duration {
        let most = patience / PART_OF_PATIENCE;
        match relaying.settings.timeout {
            Some(timeout) => timeout.min(patience / 2),
            None if self.answer_time.is_zero() => most,
            None => (self.answer_time * TIMES_USUAL + AT_LEAST).min(most),
        }
    }

    /// Notes a request, in place of an earlier one of the same key. False if there is no room.
    fn begin(&mut self, key: Key, request: Request, out: &mut Out<'_, Self>) -> bool {
        self.end(key);
        if self.requests.len() >= MAX_REQUESTS {
            out.reached(branch::TOO_MANY);
            return false;
        }
        self.due.insert((request.due, key));
        self.requests.insert(key, request);
        true
    }

    fn end(&mut self, key: Key) -> Option<Request> {
        let request = self.requests.remove(&key)?;
        self.due.remove(&(request.due, key));
        Some(request)
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

    /// Acceptors have voted.
    fn on_votes(
        &mut self,
        now: Instant,
        (slot, round): (Slot, Round),
        voted: AcceptorSet,
        out: &mut Out<'_, Self>,
    ) {
        let first = Requester::ProxyLeader {
            id: ProxyLeaderId(0),
        };
        voted.iter().for_each(|from| self.suspicion.heard(from));
        // More than one only if a leader has handed the slot to another proxy leader.
        let of_slot = self.requests.range_mut((slot, first)..);
        for (_, request) in of_slot.take_while(|(key, _)| key.0 == slot) {
            if request.round == round {
                request.voted = request.voted.or(request.waiting.and(voted));
                request.waiting = request.waiting.without(voted);
            }
        }
        let suspects = self.suspicion.suspects();
        let is_due = |request: &Request| {
            let waits = request.waiting.without(suspects);
            let is_enough = request.waiting.len() <= usize::from(request.slack);
            !request.voted.is_empty() && (is_enough || waits.is_empty() || request.is_late)
        };
        loop {
            let mut of_slot = self.requests.range((slot, first)..);
            let found = of_slot
                .by_ref()
                .take_while(|(key, _)| key.0 == slot)
                .find(|(_, request)| is_due(request));
            let Some(key) = found.map(|(key, _)| *key) else {
                return;
            };
            let request = self.end(key).expect("just found");
            self.answer_in_time(now, key, request, out);
        }
    }

    /// Answers a request with votes that have come.
    fn answer_in_time(
        &mut self,
        now: Instant,
        key: Key,
        request: Request,
        out: &mut Out<'_, Self>,
    ) {
        let took = now.since(request.begun_at);
        self.answer_time = match self.answer_time.is_zero() {
            true => took.max(Duration::from_micros(1)),
            false => (self.answer_time * 7 + took) / 8,
        };
        let is_enough = request.waiting.len() <= usize::from(request.slack);
        let missing = match is_enough || request.is_late {
            true => AcceptorSet::EMPTY,
            false => request.waiting,
        };
        self.answer(key, request.round, request.voted, missing, out);
        if !is_enough {
            self.wait_on(now, key, request, out);
        }
    }

    /// Waits for more votes to a request that was answered, as long as its requester waits.
    fn wait_on(&mut self, now: Instant, key: Key, request: Request, out: &mut Out<'_, Self>) {
        let due = match request.is_late {
            true => request.due,
            false => now + request.patience,
        };
        let late = Request {
            voted: AcceptorSet::EMPTY,
            due,
            is_late: true,
            ..request
        };
        self.begin(key, late, out);
    }

    fn answer(
        &self,
        (slot, to): Key,
        round: Round,
        voted: AcceptorSet,
        missing: AcceptorSet,
        out: &mut Out<'_, Self>,
    ) {
        let from = self.id;
        out.send(match to {
            Requester::ProxyLeader { id } => {
                let message = proxy_leader::In::Votes {
                    from,
                    slot,
                    round,
                    voted,
                    missing,
                };
                Envelope::ToProxyLeaders(Set::one(id), message)
            }
            Requester::Relay { id } => {
                let message = In::Votes { slot, round, voted };
                Envelope::ToRelays(Set::one(id), message)
            }
        });
    }

    /// Notifies those that asked for votes in a lower round at once. They get no votes, which would
    /// come too late (3.2).
    fn on_nack(&mut self, promised: Round, out: &mut Out<'_, Self>) {
        let (proxies, relays) = self.end_all(|_, request| request.round < promised);
        if proxies.is_empty() && relays.is_empty() {
            return;
        }
        out.reached(branch::RELAY_REFUSED);
        let round = promised;
        let to_proxies = proxy_leader::In::Nack { round };
        out.send(Envelope::ToProxyLeaders(proxies, to_proxies));
        out.send(Envelope::ToRelays(relays, In::Nack { round }));
    }

    /// Notifies those that asked for votes in slots below `below`: these are chosen.
    fn on_forgotten(&mut self, below: Slot, out: &mut Out<'_, Self>) {
        let (proxies, relays) = self.end_all(|(slot, _), _| *slot < below);
        let to_proxies = proxy_leader::In::Forgotten { below };
        out.send(Envelope::ToProxyLeaders(proxies, to_proxies));
        out.send(Envelope::ToRelays(relays, In::Forgotten { below }));
    }

    /// Ends the requests that are over: who made them. (Each is notified once: two relays
    /// can have asked each other for one slot.)
    fn end_all(
        &mut self,
        is_over: impl Fn(&Key, &Request) -> bool,
    ) -> (Set<ProxyLeaderId>, Set<RelayId>) {
        let (mut proxies, mut relays) = (Set::EMPTY, Set::EMPTY);
        let due = &mut self.due;
        self.requests.retain(|key, request| {
            if !is_over(key, request) {
                return true;
            }
            due.remove(&(request.due, *key));
            match key.1 {
                Requester::ProxyLeader { id } => drop(proxies.insert(id)),
                Requester::Relay { id } => drop(relays.insert(id)),
            }
            false
        });
        (proxies, relays)
    }

    /// Answers with what there is where votes are overdue. Votes that come later are passed on: on
    /// a slow disk all may come late.
    fn give_up(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some((at, key)) = self.due.first().copied() {
            if at > now {
                return;
            }
            let request = self.end(key).expect("every request has its time");
            if request.is_late {
                continue;
            }
            out.reached(branch::GIVES_UP);
            self.gave_up += 1;
            self.suspicion.silent(request.waiting, now);
            self.answer(key, request.round, request.voted, request.waiting, out);
            self.wait_on(now, key, request, out);
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
                let members = terms.members.and(relaying.acceptors());
                // A damaged message may say anything; doubled waits are not longer than this.
                let patience = Duration::from_micros(terms.patience.min(MAX_PATIENCE));
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
                    from: self.id,
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
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.give_up(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
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
    }

    const METRICS: Metrics = &[metrics::RELAY];

    fn status(&self, status: &mut Status) {
        status.add([
            self.requests.len() as u64,
            self.relayed,
            self.gave_up,
            self.answer_time.as_micros() as u64,
        ]);
    }
}
