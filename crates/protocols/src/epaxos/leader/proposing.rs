//! From a command to its decision in ballot 0.

use super::flights::{Flight, Phase};
use super::waiting::Queued;
use super::{Leader, acceptor};
use crate::epaxos::instance::{Ballot, Deps, InstanceId};
use crate::epaxos::message::{Payload, Replier, Run};
use crate::epaxos::{Envelope, branch, proxy_leader};
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::machine::Footprint;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;
use ionian_replication::backoff::doubled;
use ionian_replication::batch::{Batch, Value};

/// How often the wait for answers doubles.
const DOUBLINGS: u32 = 4;

/// An instance that was refused is recovered by its own leader when it was looked at so often.
const RECOVER_AFTER: u32 = 2;

impl Leader {
    /// A client's command.
    pub(super) fn on_propose(
        &mut self,
        now: Instant,
        near: Set<ReplicaId>,
        batch: Batch,
        out: &mut Out<'_, Self>,
    ) {
        if self.amnesiac {
            self.stale += 1;
            return;
        }
        let replier = self.pick_replier(now, near.and(self.config.replicas()));
        self.waiting.enqueue(now, batch, replier);
        self.pump(now, out);
    }

    /// The replica that is to answer, one near the leader if no other is asked for. Where the
    /// roles are not apart a leader receives reports of that of its node only, which is that of
    /// most of its clients.
    fn pick_replier(&mut self, now: Instant, near: Set<ReplicaId>) -> Replier {
        self.reply_turn += 1;
        let all = self.config.replicas();
        let near = if near.is_empty() { self.near } else { near };
        let able = match self.config.is_apart() {
            true => self.repliers.present(now),
            false if self.repliers.is_cut_off(now) => all.preferring(all.without(near)),
            false => all,
        };
        able.preferring(near).pick(self.reply_turn)
    }

    /// Proposes what waits, as far as there is room.
    pub(super) fn pump(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while self.may_propose(now)
            && self.has_room()
            && let Some(queued) = self.next_queued(out)
        {
            let value = Value {
                stamp: self.clock.stamp(now),
                batch: queued.batch,
            };
            let payload = Payload::new(value, queued.footprint);
            self.begin(now, payload, queued.replier, out);
        }
    }

    /// Whether the window has room for an instance. The last one may be too large for it.
    fn has_room(&self) -> bool {
        let options = self.config.options();
        let count = self.flights.len().max(self.unexecuted.len());
        let bytes = self.flights.bytes().max(self.unexecuted.bytes());
        count < options.window_slots && bytes < options.window_bytes
    }

    /// What is proposed next: what waited for a place that is free now, or what waits first in the
    /// queue for all and need not wait at a place.
    fn next_queued(&mut self, out: &mut Out<'_, Self>) -> Option<Queued> {
        if let Some(joined) = self.waiting.next_joined(&self.unexecuted) {
            return Some(joined);
        }
        while let Some(mut first) = self.waiting.pop() {
            first.footprint = self.machine.footprint_unordered(&first.batch);
            // What depends on the time is a barrier, and nothing else asks.
            first.footprint.timed = false;
            let place = self.waiting.place_of(&first.footprint, &self.unexecuted);
            match place {
                None => return Some(first),
                Some(place) => self.waiting.put(place, first),
            }
            out.reached(branch::CROWDED);
        }
        self.waiting.next_joined(&self.unexecuted)
    }

    /// Instances of this leader are executed: what waits for their places may follow.
    pub(super) fn on_progress(&mut self, now: Instant, executed: &[Run], out: &mut Out<'_, Self>) {
        for number in self.unexecuted.among(self.space(), executed) {
            self.is_executed(number);
        }
        self.pump(now, out);
    }

    fn is_executed(&mut self, number: u64) {
        if let Some(payload) = self.unexecuted.remove(number) {
            self.waiting.close(&payload.value.batch);
            self.waiting.on_executed(&payload.footprint);
        }
    }

    /// An instance is decided. Where replicas do not report what they execute, that must do.
    fn is_decided(&mut self, id: InstanceId) {
        if !self.config.reports_progress() {
            self.is_executed(id.number);
        }
    }

    /// Proposes a command without effect that conflicts with every other.
    pub(super) fn propose_barrier(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let value = Value {
            stamp: self.clock.stamp(now),
            batch: Batch::default(),
        };
        let everything = true;
        let footprint = Footprint {
            everything,
            ..Footprint::default()
        };
        // That replica answers nothing, but it reports.
        let replier = self.pick_replier(now, Set::EMPTY);
        self.begin(now, Payload::new(value, footprint), replier, out);
    }

    /// Begins an instance: its own acceptor records it first, if there is one.
    fn begin(&mut self, now: Instant, payload: Payload, replier: Replier, out: &mut Out<'_, Self>) {
        let quorum = self.pick_fast_quorum(now);
        let at = now + self.config.options().resend_after;
        if self.flights.is_empty() {
            // Its wait for answers begins anew.
            self.peers.received();
        }
        let id = self.flights.insert(payload.clone(), replier, quorum, at);
        self.unexecuted.insert(id.number, payload);
        match self.config.is_apart() {
            true => self.ask_others(now, id, out),
            false => self.pre_accept(id, self.own(), out),
        }
    }

    /// Its own acceptor, and of the others those that answer, the nearest first; and whether these
    /// are too few, so that some are in it that do not.
    fn pick_fast_quorum(&mut self, now: Instant) -> (AcceptorSet, bool) {
        let own = self.own();
        let others = self.config.recorders().without(own);
        let trusted = self.peers.trusted(now, &self.config, others);
        let count = self.config.fast_quorum() - own.len();
        // Leaders that are paired ask the next ones round from their own: the same each time, so
        // that requests which come in together leave together.
        let turn = match own.is_empty() {
            true => self.flights.turn(),
            false => u64::from(self.id.0),
        };
        let distances = &self.peers.distances;
        let chosen = distances.choose(&[trusted, others], count, turn);
        (own.or(chosen), !trusted.covers(chosen))
    }

    fn pre_accept(&mut self, id: InstanceId, to: AcceptorSet, out: &mut Out<'_, Self>) {
        let (leader, own) = (self.id, self.acceptor());
        let Some(flight) = self.flights.get_mut(id) else {
            return;
        };
        let message = acceptor::In::PreAccept {
            from: leader,
            id,
            payload: flight.payload.clone(),
            past: flight.past(own).cloned().unwrap_or_default(),
            fast: flight.fast,
        };
        out.send(self.config.to_recorders(to, message));
    }

    /// Its own acceptor, if there is one, has recorded a command durably: the rest of the fast
    /// quorum is asked, or all if the leader is not thrifty, or knows that not all members answer;
    /// and suspects, so that they can show that they answer.
    ///
    /// Not before: a recovery that does not hear from that acceptor takes it that it has recorded
    /// what others of the fast quorum have.
    fn ask_others(&mut self, now: Instant, id: InstanceId, out: &mut Out<'_, Self>) {
        let (own, all) = (self.own(), self.config.recorders());
        let thrifty = self.config.options().thrifty;
        let Some(flight) = self.flights.get_mut(id) else {
            return;
        };
        let asked = match thrifty && !flight.is_slow {
            true => flight.fast,
            false => all,
        };
        let asked = match self.peers.distances.asks(now, id.number) {
            true => all,
            false => asked.or(self.peers.suspicion.probe(now)),
        };
        let asked = asked.without(own);
        if !asked.is_empty() {
            if !self.near_recorders.covers(asked) {
                self.peers.asked(now);
            }
            self.pre_accept(id, asked, out);
        }
    }

    /// An acceptor has recorded a command.
    pub(super) fn on_pre_accepted(
        &mut self,
        now: Instant,
        from: AcceptorId,
        id: InstanceId,
        deps: Deps,
        out: &mut Out<'_, Self>,
    ) {
        self.peers.suspicion.heard(from);
        self.peers.distances.answered(now, from, id.number);
        if !self.near_recorders.contains(from) {
            self.peers.received();
        }
        if self.flights.answered(id, from, deps) && self.own().contains(from) {
            self.ask_others(now, id, out);
        }
        self.step(now, id, out);
    }

    /// Goes on with an instance that is recorded by enough acceptors.
    fn step(&mut self, now: Instant, id: InstanceId, out: &mut Out<'_, Self>) {
        let (own, f, majority) = (self.own(), self.config.f(), self.config.majority());
        let is_apart = self.config.is_apart();
        let Some(flight) = self.flights.get_mut(id) else {
            return;
        };
        let Phase::Collecting = flight.phase else {
            return;
        };
        let answered = flight.holders();
        if is_apart {
            if answered.len() >= majority {
                let deps = union(flight.answers.iter().map(|(_, deps)| deps));
                flight.phase = Phase::Delegated { deps, to: None };
                self.flights.slow += 1;
                self.delegate(now, id, out);
            }
            return;
        }
        if let Some(deps) = fast_dependencies(flight, f) {
            flight.phase = Phase::Deciding(deps);
            return self.decide(id, out);
        }
        let all_answered = answered.covers(flight.fast);
        let enough = answered.covers(own) && answered.len() >= majority;
        if enough && (all_answered || flight.is_slow || flight.attempts > 0) {
            let deps = union(flight.answers.iter().map(|(_, deps)| deps));
            flight.phase = Phase::Accepting {
                deps,
                votes: Set::EMPTY,
            };
            self.flights.slow += 1;
            let all = self.config.voters(id);
            self.accept(id, all, out);
        }
    }

    /// Hands an instance to a proxy leader: not the one that has left it unfinished.
    fn delegate(&mut self, now: Instant, id: InstanceId, out: &mut Out<'_, Self>) {
        let from = self.id;
        let Some(flight) = self.flights.get_mut(id) else {
            return;
        };
        let (choice, holders) = (flight.dependent_choice(), flight.holders());
        let (Phase::Delegated { to, .. }, Some(choice)) = (&mut flight.phase, choice) else {
            return;
        };
        if let Some(silent) = to.take() {
            self.proxies.silent(silent, now);
        }
        let Some((proxy, asked)) = self.proxies.next(now) else {
            return;
        };
        *to = Some(proxy);
        let message = proxy_leader::In::Propose {
            from,
            id,
            choice,
            holders,
            replier: flight.replier,
        };
        out.send(Envelope::ToProxyLeaders(asked, message));
    }

    fn decide(&mut self, id: InstanceId, out: &mut Out<'_, Self>) {
        let own = self.own();
        let Some(flight) = self.flights.get_mut(id) else {
            return;
        };
        if let Phase::Deciding(deps) = &flight.phase {
            let message = acceptor::In::Decide {
                id,
                deps: deps.clone(),
            };
            out.send(Envelope::ToAcceptors(own, message));
        }
    }

    /// Asks for votes in ballot 0.
    fn accept(&mut self, id: InstanceId, to: AcceptorSet, out: &mut Out<'_, Self>) {
        let from = self.id;
        let Some(flight) = self.flights.get_mut(id) else {
            return;
        };
        if let Phase::Accepting { deps, .. } = &flight.phase {
            let message = acceptor::In::Accept {
                from,
                proxy: None,
                id,
                ballot: Ballot::default(),
                choice: flight.choice(deps),
            };
            out.send(Envelope::ToAcceptors(to, message));
        }
    }

    /// Its own acceptor has decided: the fast path.
    pub(super) fn on_decided(&mut self, now: Instant, id: InstanceId, out: &mut Out<'_, Self>) {
        let flight = self.flights.get_mut(id);
        if flight.is_none_or(|flight| !matches!(flight.phase, Phase::Deciding(_))) {
            return;
        }
        let flight = self.flights.remove(id).expect("just seen");
        let Phase::Deciding(deps) = &flight.phase else {
            return;
        };
        self.flights.fast += 1;
        self.is_decided(id);
        self.commit(
            id,
            &flight.choice(deps),
            flight.holders(),
            flight.replier,
            out,
        );
        self.pump(now, out);
    }

    /// An acceptor has voted in ballot 0.
    pub(super) fn on_vote(
        &mut self,
        now: Instant,
        from: AcceptorId,
        id: InstanceId,
        out: &mut Out<'_, Self>,
    ) {
        self.peers.suspicion.heard(from);
        let enough = self.config.slow_quorum(id);
        let Some(flight) = self.flights.get_mut(id) else {
            return;
        };
        let Phase::Accepting { votes, .. } = &mut flight.phase else {
            return;
        };
        votes.insert(from);
        if votes.len() < enough {
            return;
        }
        let flight = self.flights.remove(id).expect("just seen");
        let Phase::Accepting { deps, votes } = &flight.phase else {
            return;
        };
        let holders = votes.or(flight.holders());
        self.is_decided(id);
        self.commit(id, &flight.choice(deps), holders, flight.replier, out);
        self.pump(now, out);
    }

    /// Another leader has recovered an instance of this one. Where it found nothing, the command is
    /// proposed again, with its number: sessions make it one.
    pub(super) fn on_learned(
        &mut self,
        now: Instant,
        id: InstanceId,
        noop: bool,
        out: &mut Out<'_, Self>,
    ) {
        self.recoveries.remove(id);
        let Some(flight) = self.flights.remove(id) else {
            return;
        };
        match noop {
            true => self.is_executed(id.number),
            false => self.is_decided(id),
        }
        if noop && !flight.payload.value.batch.is_empty() {
            out.reached(branch::PROPOSES_AGAIN);
            self.flights.again += 1;
            let batch = flight.payload.value.batch.clone();
            self.waiting.enqueue(now, batch, flight.replier);
        }
        self.pump(now, out);
    }

    /// f + 1 replicas have executed an instance of this leader, whatever it was decided to be. If
    /// it was a noop, the client asks again.
    pub(super) fn on_kept(&mut self, now: Instant, id: InstanceId, out: &mut Out<'_, Self>) {
        self.recoveries.remove(id);
        if self.flights.remove(id).is_some() {
            self.is_executed(id.number);
            self.pump(now, out);
        }
    }

    /// Asks again for what is overdue: all acceptors, not only the fast quorum.
    pub(super) fn send_overdue(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some(id) = self.flights.overdue(now) {
            let resend_after = self.config.options().resend_after;
            let flight = self.flights.get_mut(id).expect("it is overdue");
            flight.attempts += 1;
            let attempts = flight.attempts;
            if flight.refused && attempts >= RECOVER_AFTER {
                out.reached(branch::RECOVERS_OWN);
                self.begin_recovery(now, id, out);
            }
            self.resend(now, id, out);
            let wait = doubled(resend_after, attempts, DOUBLINGS);
            self.flights.postpone(id, now + wait);
        }
    }

    fn resend(&mut self, now: Instant, id: InstanceId, out: &mut Out<'_, Self>) {
        let (own, all) = (self.acceptor(), self.config.recorders());
        let flight = self.flights.get_mut(id).expect("it is overdue");
        match &flight.phase {
            Phase::Collecting if own.is_some() && flight.past(own).is_none() => {
                self.pre_accept(id, self.own(), out);
            }
            Phase::Collecting => {
                let silent = all.without(flight.holders());
                let asked = flight.fast.and(silent).without(own.into_iter().collect());
                self.peers.suspicion.silent(asked, now);
                out.reached(branch::ASKS_SPARES);
                self.pre_accept(id, silent, out);
                self.step(now, id, out);
            }
            Phase::Delegated { .. } => self.delegate(now, id, out),
            Phase::Deciding(_) => self.decide(id, out),
            Phase::Accepting { votes, .. } => {
                let silent = self.config.voters(id).without(*votes);
                self.accept(id, silent, out);
            }
        }
    }
}

/// What a fast decision depends on, if there can be one: all members of the fast quorum have
/// answered, and each dependency was named by at least f of them.
///
/// A barrier takes the slow path: what it depends on changes with each answer.
fn fast_dependencies(flight: &Flight, f: usize) -> Option<Deps> {
    let answers = flight
        .answers
        .iter()
        .filter(|(from, _)| flight.fast.contains(*from));
    let answers: Vec<&Deps> = answers.map(|(_, deps)| deps).collect();
    if answers.len() < flight.fast.len() || flight.payload.is_barrier() {
        return None;
    }
    let deps = union(answers.iter().copied());
    deps.is_named_by(f, &answers).then_some(deps)
}

fn union<'a>(all: impl Iterator<Item = &'a Deps>) -> Deps {
    let mut union = Deps::default();
    all.for_each(|deps| union.union(deps));
    union
}
