//! Requests for votes (PigPaxos 3.1): those that a relay has passed on, and the votes that have
//! come.

use super::{In, PART_OF_PATIENCE, Relay};
use crate::multipaxos::{Envelope, proxy_leader};
use crate::pigpaxos::branch;
use crate::pigpaxos::message::{RelayId, Requester};
use crate::pigpaxos::relaying::Relaying;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant};

/// A request with it: who asks, for which slot.
pub(super) type Key = (Slot, Requester);

/// A request under way.
pub(super) struct Request {
    pub(super) round: Round,
    /// The acceptors that have not voted.
    pub(super) waiting: AcceptorSet,
    pub(super) voted: AcceptorSet,
    pub(super) slack: u8,
    pub(super) begun_at: Instant,
    /// When it is answered at the latest; when it is forgotten, if it was answered like this.
    pub(super) due: Instant,
    /// For how long its requester waits.
    pub(super) patience: Duration,
    /// Whether it was answered before enough had voted. Votes that come later are passed on as they
    /// come.
    pub(super) is_late: bool,
}

/// The most requests under way. Of others the proxy leader asks the acceptors itself.
const MAX_REQUESTS: usize = 1 << 16;

/// A relay waits for this many times the usual time.
const TIMES_USUAL: u32 = 4;

/// And for this long in any case.
const AT_LEAST: Duration = Duration::from_millis(1);

impl Relay {
    /// How long to wait for votes on behalf of one who waits for the time `patience`.
    pub(super) fn give_up_after(&self, patience: Duration, relaying: &Relaying) -> Duration {
        let most = patience / PART_OF_PATIENCE;
        match relaying.settings.timeout {
            Some(timeout) => timeout.min(patience / 2),
            None if self.answer_time.is_zero() => most,
            None => (self.answer_time * TIMES_USUAL + AT_LEAST).min(most),
        }
    }

    /// Notes a request, in place of an earlier one of the same key. False if there is no room.
    pub(super) fn begin(&mut self, key: Key, request: Request, out: &mut Out<'_, Self>) -> bool {
        self.end(key);
        if self.requests.len() >= MAX_REQUESTS {
            out.reached(branch::TOO_MANY);
            return false;
        }
        self.due.insert((request.due, key));
        self.requests.insert(key, request);
        true
    }

    pub(super) fn end(&mut self, key: Key) -> Option<Request> {
        let request = self.requests.remove(&key)?;
        self.due.remove(&(request.due, key));
        Some(request)
    }

    /// Acceptors have voted.
    pub(super) fn on_votes(
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
    pub(super) fn answer_in_time(
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
    pub(super) fn wait_on(
        &mut self,
        now: Instant,
        key: Key,
        request: Request,
        out: &mut Out<'_, Self>,
    ) {
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

    pub(super) fn answer(
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
    pub(super) fn on_nack(&mut self, promised: Round, out: &mut Out<'_, Self>) {
        let has_leader = self.end_phase1(promised, out);
        let (proxies, relays) = self.end_all(|_, request| request.round < promised);
        let is_told = !proxies.is_empty() || !relays.is_empty();
        if has_leader || is_told {
            out.reached(branch::RELAY_REFUSED);
        }
        if !is_told {
            return;
        }
        let round = promised;
        let to_proxies = proxy_leader::In::Nack { round };
        out.send(Envelope::ToProxyLeaders(proxies, to_proxies));
        out.send(Envelope::ToRelays(relays, In::Nack { round }));
    }

    /// Notifies those that asked for votes in slots below `below`: these are chosen.
    pub(super) fn on_forgotten(&mut self, below: Slot, out: &mut Out<'_, Self>) {
        let (proxies, relays) = self.end_all(|(slot, _), _| *slot < below);
        let to_proxies = proxy_leader::In::Forgotten { below };
        out.send(Envelope::ToProxyLeaders(proxies, to_proxies));
        out.send(Envelope::ToRelays(relays, In::Forgotten { below }));
    }

    /// Ends the requests that are over: who made them. (Each is notified once: two relays
    /// can have asked each other for one slot.)
    pub(super) fn end_all(
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
    pub(super) fn give_up(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some((at, key)) = self.due.first().copied() {
            if at > now {
                return;
            }
            let request = self.end(key).expect("every request has its time");
            if request.is_late {
                continue;
            }
            self.gives_up(now, request.waiting, out);
            self.answer(key, request.round, request.voted, request.waiting, out);
            self.wait_on(now, key, request, out);
        }
    }
}
