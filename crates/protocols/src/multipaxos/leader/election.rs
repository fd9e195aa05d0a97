//! How a leader comes to lead, by the word of the acceptors and by phase 1 (2.2), and how it stops.

use super::carried::Carried;
use super::handover::Handover;
use super::phase1::Phase1;
use super::{In, Leader, Record, State};
use crate::multipaxos::branch;
use crate::multipaxos::canary::Canary;
use crate::multipaxos::message::{Proposer, Votes};
use crate::multipaxos::{Envelope, acceptor, batcher, client, kind, replica};
use alloc::boxed::Box;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

impl Leader {
    /// The leader was silent for too long: before a round is started, the acceptors are asked
    /// whether they have heard of it.
    pub(super) fn stand(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if matches!(self.state, State::Phase1(_)) {
            self.timer.failed();
        }
        // Nobody has heard it for a whole timeout, or too few have: what waits here may wait for
        // ever.
        let in_vain =
            matches!(self.state, State::Candidate { .. }) && !self.config.has(Canary::KeepsQueue);
        if in_vain {
            out.reached(branch::STANDS_IN_VAIN);
            self.turn_queue_away(out);
        }
        let ask_at = now + self.resend_after();
        self.state = State::Candidate {
            gone: AcceptorSet::EMPTY,
            promise: self.round,
            ask_at,
            in_vain,
        };
        self.timer.restart(now);
        self.ask_witnesses(out);
    }

    pub(super) fn ask_witnesses(&self, out: &mut Out<'_, Self>) {
        let acceptors = self.config.quorums.members();
        out.send(Envelope::ToAcceptors(
            acceptors,
            acceptor::In::PreVote { from: self.id },
        ));
    }

    pub(super) fn on_pre_vote_reply(
        &mut self,
        now: Instant,
        from: AcceptorId,
        gone: bool,
        promised: Round,
        out: &mut Out<'_, Self>,
    ) {
        self.reach.answered(from);
        if self.returns_with(now, from) {
            return self.begin_phase1(now, promised, self.config.epoch(), out);
        }
        if self.is_leading()
            && self
                .handover
                .on_answer(from, &self.config, self.round.max(promised))
        {
            out.reached(branch::JOINT_ROUND);
            return self.begin_phase1(now, promised, self.config.epoch(), out);
        }
        let State::Candidate {
            gone: testimonies,
            promise,
            ..
        } = &mut self.state
        else {
            return;
        };
        *promise = (*promise).max(promised);
        if !gone {
            return;
        }
        testimonies.insert(from);
        let above = *promise;
        if let Some(epoch) = self.config.electable(*testimonies, above) {
            self.begin_phase1(now, above, epoch, out);
        }
    }

    /// Starts a round of its own in `epoch` above `above`.
    pub(super) fn begin_phase1(
        &mut self,
        now: Instant,
        above: Round,
        epoch: Epoch,
        out: &mut Out<'_, Self>,
    ) {
        let above = self.round.max(above);
        if above.epoch() > epoch {
            // Somebody knows of a change of which this node has yet to hear.
            return;
        }
        self.round = above.next_of(self.id, epoch);
        out.persist_vital(Record { round: self.round });
        self.elections += 1;
        self.returns = None;
        self.repairs.clear();
        self.handover.clear();
        self.progress.begin_round();
        let start = self.progress.executed().max(self.config.frontier());
        let phase1 = Phase1::new(self.config.clone(), self.round, start, Slot::MAX, now);
        ask_votes(self.id, &phase1, phase1.missing(), out);
        self.state = State::Phase1(Box::new(phase1));
        self.timer.restart(now);
    }

    pub(super) fn on_phase1b(
        &mut self,
        now: Instant,
        from: AcceptorId,
        round: Round,
        votes: Votes,
        out: &mut Out<'_, Self>,
    ) {
        if round != self.round {
            return;
        }
        match &mut self.state {
            State::Standby | State::Candidate { .. } => {}
            State::Leading => {
                let Some((slot, value)) = self.repairs.on_votes(from, votes) else {
                    return out.reached(branch::REPAIR_WITHOUT_VALUE);
                };
                out.reached(branch::REPAIR_ENDS);
                self.repaired += 1;
                self.window
                    .hand_over_mended(now, self.round, slot, value, out);
            }
            State::Phase1(phase1) => {
                let before = phase1.next_of(from);
                let more = phase1.on_votes(from, votes);
                if phase1.next_of(from) > before && !self.config.has(Canary::ImpatientPhase1) {
                    // It advances: however long it takes, another election would have to do all of
                    // it again.
                    self.timer.restart(now);
                    phase1.heard(from, now);
                }
                if phase1.is_complete() {
                    let State::Phase1(phase1) = core::mem::replace(&mut self.state, State::Leading)
                    else {
                        return;
                    };
                    self.lead(now, *phase1, out);
                } else if more {
                    out.reached(branch::PAGE_OF_VOTES);
                    ask_stretch(self.id, phase1, from, out);
                }
            }
        }
    }

    /// Phase 1 is over: what may have been chosen is proposed again, holes are filled with noops,
    /// and everybody is told.
    pub(super) fn lead(&mut self, now: Instant, phase1: Phase1, out: &mut Out<'_, Self>) {
        let outcome = phase1.finish();
        self.clock.learn(now, outcome.stamp);
        self.window.reset(outcome.start, outcome.next_slot);
        self.held.clear();
        self.window.start(now);
        self.timer.settled(now);
        self.reach.begin(now, self.progress.executed());
        self.send_heartbeat(now, out);
        self.vacant = (outcome.unvoted, outcome.next_slot);
        self.carried = Carried::new(
            (outcome.start, outcome.unvoted),
            outcome.values,
            &outcome.gaps,
        );
        self.gaps = outcome.gaps;
        self.propose_carried(now, out);
        let round = self.round;
        out.send(Envelope::ToClients(
            self.config.all(kind::Client),
            client::In::NewLeader { round },
        ));
        out.send(Envelope::ToBatchers(
            self.config.all(kind::Batcher),
            batcher::In::NewLeader { round },
        ));
        self.admission.won(outcome.unvoted);
        if self.config.is_joint() && round.epoch() == self.config.epoch() {
            // Something must be chosen by quorums of both before the old ones may be given up.
            out.reached(branch::JOINT_LED);
            self.propose_noop(now, out);
            self.handover.begin(self.window.next_slot);
        }
        self.propose_queued(now, out);
        if self.succession.drains() {
            self.succession.begin();
            self.ask_successor(now, out);
        }
    }

    pub(super) fn send_heartbeat(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.heartbeat_at = now + self.config.options().heartbeat;
        let (round, executed, kept) = (self.round, self.progress.executed(), self.progress.kept());
        let others = self.config.leaders().without(Set::one(self.id));
        out.send(Envelope::ToLeaders(others, In::Heartbeat { round }));
        out.send(Envelope::ToAcceptors(
            self.config.quorums.members(),
            acceptor::In::Heartbeat { round, kept },
        ));
        let (keep, time) = (self.handover.wanted(), self.clock.read(now));
        out.send(Envelope::ToReplicas(
            self.config.replicas(),
            replica::In::Heartbeat {
                round,
                executed,
                keep,
                time,
            },
        ));
        if Handover::is_waiting(&self.config, round) {
            self.handover.asks(&self.config);
            self.ask_witnesses(out);
        }
    }

    /// Somebody has a higher round. A rejected leader waits its turn and does not jump above (l4);
    /// what it had queued goes back to the proposers, who are not left to their timers (l10).
    pub(super) fn on_higher_round(&mut self, now: Instant, round: Round, out: &mut Out<'_, Self>) {
        if matches!(self.state, State::Phase1(_)) {
            out.reached(branch::DEPOSED_IN_PHASE_1);
        }
        if !self.queue.is_empty() {
            out.reached(branch::DEPOSED_WITH_QUEUE);
        }
        self.round = round;
        self.timer.restart(now);
        self.state = State::Standby;
        self.repairs.clear();
        self.admission.clear();
        self.handover.clear();
        self.succession.heard();
        let executed = self.progress.executed();
        self.window.reset(executed, executed);
        self.held.clear();
        self.carried = Carried::default();
        self.turn_queue_away(out);
    }

    /// What waits goes back to the proposers.
    pub(super) fn turn_queue_away(&mut self, out: &mut Out<'_, Self>) {
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
        if self.config.has(Canary::L10DeposedLeaderDrops) {
            return;
        }
        if !clients.is_empty() {
            out.send(Envelope::ToClients(
                clients,
                client::In::NotLeader { round },
            ));
        }
        if !batchers.is_empty() {
            out.send(Envelope::ToBatchers(
                batchers,
                batcher::In::NotLeader { round },
            ));
        }
    }

    pub(super) fn on_heartbeat(&mut self, now: Instant, round: Round, out: &mut Out<'_, Self>) {
        if round > self.round {
            self.on_higher_round(now, round, out);
            self.timer.settled(now);
        } else if round == self.round
            && matches!(self.state, State::Standby | State::Candidate { .. })
        {
            if !self.is_standby() {
                out.reached(branch::CANDIDATE_HEARS_LEADER);
            }
            self.state = State::Standby;
            self.timer.settled(now);
            self.succession.heard();
            if !self.config.has(Canary::KeepsQueue) {
                self.turn_queue_away(out);
            }
        }
    }
}

/// Asks each of these acceptors for its next stretch.
pub(super) fn ask_votes(
    me: LeaderId,
    phase1: &Phase1,
    acceptors: AcceptorSet,
    out: &mut Out<'_, Leader>,
) {
    for acceptor in acceptors.iter() {
        ask_stretch(me, phase1, acceptor, out);
    }
}

fn ask_stretch(from: LeaderId, phase1: &Phase1, acceptor: AcceptorId, out: &mut Out<'_, Leader>) {
    let (start, end) = (phase1.next_of(acceptor), phase1.end);
    let message = acceptor::In::Phase1a {
        from,
        round: phase1.round,
        start,
        end,
    };
    out.send(Envelope::ToAcceptors(Set::one(acceptor), message));
}
