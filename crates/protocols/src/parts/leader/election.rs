//! How a leader comes to lead, by the word of the acceptors and by phase 1 (2.2), and how it stops.

use super::carried::Carried;
use super::handover::Handover;
use super::phase1::Phase1;
use super::{Heartbeat, LeaderCore, LeaderPort, Notes, Record, State};
use crate::multipaxos::config::Highest;
use crate::multipaxos::kind;
use crate::parts::branch;
use crate::parts::message::{Proposer, Votes};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::time::{Instant, Timestamp};

impl<N: Notes> LeaderCore<N> {
    /// The leader was silent for too long: before a round is started, the acceptors are asked
    /// whether they have heard of it.
    pub(super) fn stand(&mut self, now: Instant, port: &mut impl LeaderPort) {
        if matches!(self.state, State::Phase1(_)) {
            self.timer.failed();
        }
        // The candidate got no read quorum within a timeout: queued batches could wait without end.
        let in_vain = matches!(self.state, State::Candidate { .. });
        if in_vain {
            port.reached(branch::STANDS_IN_VAIN);
            self.turn_queue_away(port);
        }
        let ask_at = now + self.resend_after();
        self.state = State::Candidate {
            gone: AcceptorSet::EMPTY,
            promised: Highest::new(self.round),
            ask_at,
            in_vain,
        };
        self.timer.restart(now);
        self.ask_witnesses(port);
    }

    pub(super) fn ask_witnesses(&self, port: &mut impl LeaderPort) {
        let acceptors = self.config.quorums.members();
        port.pre_vote(acceptors);
    }

    /// An acceptor tells a candidate whether it has not heard of a leader lately, and which round
    /// it has promised.
    pub fn on_pre_vote_reply(
        &mut self,
        now: Instant,
        from: AcceptorId,
        gone: bool,
        promised: Round,
        port: &mut impl LeaderPort,
    ) {
        self.reach.answered(from);
        if let Some((epoch, above)) = self.returns_with(now, from, promised) {
            return self.begin_phase1(now, above, epoch, port);
        }
        if self.is_leading()
            && let Some(above) = self.handover.on_answer(
                now,
                (from, promised),
                &self.config,
                self.round,
                &self.progress,
            )
        {
            port.reached(branch::JOINT_ROUND);
            return self.begin_phase1(now, above, self.config.epoch(), port);
        }
        let State::Candidate {
            gone: testimonies,
            promised: highest,
            ..
        } = &mut self.state
        else {
            return;
        };
        highest.raise(&self.config, from, promised);
        if !gone {
            return;
        }
        testimonies.insert(from);
        let electable =
            self.handover
                .electable(now, &self.config, (*testimonies, *highest), &self.progress);
        if let Some((epoch, above)) = electable {
            self.begin_phase1(now, above, epoch, port);
        }
    }

    /// Starts a round of its own in `epoch` above `above`.
    pub(super) fn begin_phase1(
        &mut self,
        now: Instant,
        above: Round,
        epoch: Epoch,
        port: &mut impl LeaderPort,
    ) {
        let above = self.round.max(above);
        if above.epoch() > epoch {
            // An acceptor knows a membership change that this node does not.
            return;
        }
        self.round = above.next_of(self.id, epoch);
        port.persist_vital(Record { round: self.round });
        self.elections += 1;
        self.returns = None;
        self.repairs.clear();
        self.handover.clear();
        if self.config.orders_references {
            // What waits names the round before: its proposers have it ordered under other names.
            self.turn_queue_away(port);
        }
        self.progress.begin_round();
        let start = self.progress.executed().max(self.config.frontier());
        let phase1 = Phase1::new(self.config.clone(), self.round, start, Slot::MAX, now);
        ask_votes(&phase1, phase1.missing(), false, port);
        self.state = State::Phase1(Box::new(phase1));
        self.timer.restart(now);
    }

    /// An acceptor has promised `round`, and tells a page of its votes, what it has noted beside
    /// them, and what its clock shows. Returns the runs of slots, from the first up to the slot
    /// after the last, that a [repair](Self::recover_stretch) has found to hold noops: replicas
    /// miss them.
    pub fn on_phase1b(
        &mut self,
        now: Instant,
        (from, round): (AcceptorId, Round),
        page: (Votes, N::Page),
        clock: Timestamp,
        port: &mut impl LeaderPort,
    ) -> Vec<(Slot, Slot)> {
        self.on_acceptor_time(now, from, clock);
        self.on_promises(now, (Set::one(from), round), page, port)
    }

    /// What the clock of an acceptor's node shows.
    pub fn on_acceptor_time(&mut self, now: Instant, from: AcceptorId, clock: Timestamp) {
        self.hear_time(now, kind::Acceptor, from.0, clock);
    }

    /// Acceptors have promised `round`. The page has, of each slot in it, the vote of the highest
    /// round that any of them has cast there.
    pub fn on_promises(
        &mut self,
        now: Instant,
        (from, round): (AcceptorSet, Round),
        (votes, notes): (Votes, N::Page),
        port: &mut impl LeaderPort,
    ) -> Vec<(Slot, Slot)> {
        if round != self.round {
            return Vec::new();
        }
        match &mut self.state {
            State::Standby | State::Candidate { .. } => {}
            State::Leading => {
                let found = self.repairs.on_votes(from, votes, notes);
                port.reached(match found.is_empty() {
                    true => branch::REPAIR_WITHOUT_VALUE,
                    false => branch::REPAIR_ENDS,
                });
                for (slot, value) in found.values {
                    self.repaired += 1;
                    self.window
                        .hand_over_repaired(now, self.round, slot, value, port);
                }
                return found.noops;
            }
            State::Phase1(phase1) => {
                let told = phase1.on_votes(from, votes, notes);
                if !told.is_empty() {
                    // It advances: however long it takes, another election would have to do all of
                    // it again.
                    self.timer.restart(now);
                    phase1.heard(told, now);
                }
                let more = told.and(phase1.missing());
                if phase1.is_complete() {
                    if let State::Phase1(phase1) =
                        core::mem::replace(&mut self.state, State::Leading)
                    {
                        self.lead(now, *phase1, port);
                    }
                } else if !more.is_empty() {
                    port.reached(branch::PAGE_OF_VOTES);
                    ask_votes(phase1, more, false, port);
                }
            }
        }
        Vec::new()
    }

    /// Phase 1 is over: what may have been chosen is proposed again, holes are filled with noops,
    /// and the leader notifies all proposers.
    pub(super) fn lead(&mut self, now: Instant, phase1: Phase1<N>, port: &mut impl LeaderPort) {
        let outcome = phase1.finish();
        self.clock.learn(now, outcome.stamp);
        self.window
            .reset(outcome.start, outcome.next_slot, N::PROPOSES_AT_ONCE);
        self.held.clear();
        self.window.start(now);
        self.timer.settled(now);
        self.reach.begin(now, self.progress.executed());
        self.heartbeat_at = now;
        self.send_heartbeat(now, port);
        self.vacant = (outcome.unvoted, outcome.next_slot);
        self.carried = Carried::new(
            (outcome.start, outcome.unvoted),
            outcome.values,
            &outcome.left_out,
        );
        self.left_out = outcome.left_out;
        self.propose_carried(now, port);
        let round = self.round;
        port.new_leader(round);
        self.admission.won(outcome.unvoted);
        self.begin_handover(now, port);
        self.propose_queued(now, port);
        if self.succession.drains() {
            self.succession.begin();
            self.ask_successor(now, port);
        }
    }

    /// In a round of both configurations: from the next slot on, no round of an earlier epoch uses
    /// any. Waits for room in the window.
    pub(super) fn begin_handover(&mut self, now: Instant, port: &mut impl LeaderPort) {
        let is_joint = self.config.is_joint() && self.round.epoch() == self.config.epoch();
        if !is_joint || !self.is_leading() || self.handover.frontier().is_some() {
            return;
        }
        if N::PROPOSES_AT_ONCE {
            if !self.window.has_place() {
                return;
            }
            // The command that finishes the change waits until replicas keep this noop, so until
            // quorums of both configurations have chosen something.
            self.propose_noop(now, port);
        }
        port.reached(branch::JOINT_LED);
        self.handover.begin(self.window.next_slot);
    }

    /// A leader that has sent no heartbeat for a timeout was suspected without having failed.
    fn look_at_own_silence(&mut self, now: Instant) {
        let options = self.config.options();
        if now.since(self.heartbeat_at) + options.heartbeat >= options.election_timeout {
            self.timer.too_short(now);
        }
    }

    pub(super) fn send_heartbeat(&mut self, now: Instant, port: &mut impl LeaderPort) {
        self.look_at_own_silence(now);
        self.heartbeat_at = now + self.config.options().heartbeat;
        let (round, executed, kept) = (self.round, self.progress.executed(), self.progress.kept());
        port.heartbeat(Heartbeat {
            leaders: self.config.leaders().without(Set::one(self.id)),
            acceptors: self.config.quorums.members(),
            replicas: self.config.replicas(),
            round,
            executed,
            kept,
            keep: self.handover.wanted(),
            time: self.clock.read(now),
            replicas_are_ready: self.handover.replicas_are_ready(&self.progress),
        });
        if Handover::is_waiting(&self.config, round) {
            self.handover.asks();
            self.ask_witnesses(port);
        }
    }

    /// A higher round exists. A rejected leader waits its turn and does not jump above (l4);
    /// what it had queued goes back to the proposers, who are not left to their timers (l10).
    pub(super) fn on_higher_round(
        &mut self,
        now: Instant,
        round: Round,
        port: &mut impl LeaderPort,
    ) {
        if matches!(self.state, State::Phase1(_)) {
            port.reached(branch::DEPOSED_IN_PHASE_1);
        }
        if !self.queue.is_empty() {
            port.reached(branch::DEPOSED_WITH_QUEUE);
        }
        if self.is_leading() {
            self.look_at_own_silence(now);
        }
        self.round = round;
        self.timer.restart(now);
        self.state = State::Standby;
        self.repairs.clear();
        self.admission.clear();
        self.handover.clear();
        self.succession.heard();
        let executed = self.progress.executed();
        self.window.reset(executed, executed, N::PROPOSES_AT_ONCE);
        self.held.clear();
        self.carried = Carried::default();
        self.turn_queue_away(port);
    }

    /// What waits goes back to the proposers.
    pub fn turn_queue_away(&mut self, port: &mut impl LeaderPort) {
        let round = self.round;
        let (mut clients, mut batchers) = (Set::EMPTY, Set::EMPTY);
        for proposal in self.queue.drain() {
            self.held.remove(&proposal.batch);
            match proposal.proposer {
                Proposer::Client { id } => drop(clients.insert(id)),
                Proposer::Batcher { id, .. } => drop(batchers.insert(id)),
                Proposer::Leader {} => {}
            }
        }
        port.not_leader(clients, batchers, round);
    }

    /// The leader of `round` is alive.
    pub fn on_heartbeat(&mut self, now: Instant, round: Round, port: &mut impl LeaderPort) {
        if round > self.round {
            self.on_higher_round(now, round, port);
            self.timer.settled(now);
        } else if round == self.round
            && matches!(self.state, State::Standby | State::Candidate { .. })
        {
            if !self.is_standby() {
                port.reached(branch::CANDIDATE_HEARS_LEADER);
                self.timer.too_short(now);
            }
            self.state = State::Standby;
            self.timer.settled(now);
            self.succession.heard();
            self.turn_queue_away(port);
        }
    }
}

/// Asks each of these acceptors for its next stretch; `again` if they have left it unanswered.
pub(super) fn ask_votes<N: Notes>(
    phase1: &Phase1<N>,
    acceptors: AcceptorSet,
    again: bool,
    port: &mut impl LeaderPort,
) {
    let mut left = acceptors;
    while let Some(first) = left.iter().next() {
        let start = phase1.next_of(first);
        let alike = left.iter().filter(|it| phase1.next_of(*it) == start);
        let alike: AcceptorSet = alike.collect();
        left = left.without(alike);
        port.phase1a(alike, phase1.round, (start, phase1.end), again);
    }
}
