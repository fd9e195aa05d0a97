//! The leader (2.3, 3.1): gives every batch the next slot and hands it to a proxy leader; is
//! elected, and runs phase 1.
//!
//! Stands between client or batcher and proxy leader. All that must survive its crash is which
//! rounds it has used; the rest it learns from a read quorum in phase 1. In the steady state it
//! takes in one message a batch and sends one; replicas tell it now and then how far they have
//! executed.

mod admission;
mod carried;
mod clock;
mod election;
mod failing;
mod gaps;
mod handover;
mod phase1;
mod progress;
mod queue;
mod reach;
mod repair;
mod report;
mod striped;
mod succession;
mod window;

use super::branch;
use super::canary::Canary;
use super::config::Config;
use super::message::{Proposer, Times, Votes};
use super::metrics;
use super::{Envelope, batcher, client, kind};
use admission::Admission;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use carried::Carried;
use clock::LogClock;
use election::ask_votes;
use handover::Handover;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, Timestamp, earliest};
use ionian_kernel::wire_struct;
use ionian_replication::batch::{Batch, Value};
use ionian_replication::election::ElectionTimer;
use phase1::Phase1;
use progress::Progress;
use queue::{Held, Proposal, Queue};
use reach::Reach;
use repair::Repairs;
use succession::Succession;
use window::Window;

messages! {
    /// What a leader is told.
    "leader" In {
        /// A batch to get chosen.
        0 => Propose {
            /// Who proposes it.
            proposer: Proposer,
            /// The replicas on the proposer's node: an answer given there has the shortest way.
            near: Set<ReplicaId>,
            /// The batch.
            batch: Batch,
            /// Whether its proposer has proposed it before, here or elsewhere.
            again: bool,
        },
        /// A replica lives and has executed every slot below `executed`.
        1 => Executed {
            /// The replica.
            from: ReplicaId,
            /// The slot that it executes next.
            executed: Slot,
            /// It would find every slot below this one again after a crash: acceptors may forget
            /// what f+1 replicas keep.
            kept: Slot,
            /// The highest round that it had heard of when it said so.
            round: Round,
            /// What it knows of the time.
            times: Times,
        },
        /// A proxy leader lives.
        2 => ProxyAlive {
            /// The proxy leader.
            from: ProxyLeaderId,
        },
        /// An acceptor's promise and a stretch of its votes.
        3 => Phase1b {
            /// The acceptor.
            from: AcceptorId,
            /// The round that it promised.
            round: Round,
            /// The votes.
            votes: Votes,
            /// What its clock shows; zero says nothing.
            clock: Timestamp,
        },
        /// An acceptor has promised a higher round.
        4 => Nack {
            /// That round.
            round: Round,
        },
        /// Another leader leads.
        5 => Heartbeat {
            /// Its round.
            round: Round,
        },
        /// An acceptor's testimony to a candidate.
        6 => PreVoteReply {
            /// The acceptor.
            from: AcceptorId,
            /// Whether it has not heard of a leader lately.
            gone: bool,
            /// The highest round that it has promised.
            promise: Round,
        },
        /// A replica misses these slots and its peers do not have them.
        7 => Recover {
            /// The slots, lowest first.
            slots: Vec<Slot>,
        },
        /// The state machine's answers change with time alone: the log must be given the time.
        8 => AdvanceClock {
            /// The time at which they do.
            deadline: Timestamp,
        },
        /// An acceptor has lost its votes and asks to take part again.
        9 => Rejoin {
            /// The acceptor.
            from: AcceptorId,
            /// Its name for this request.
            nonce: u64,
            /// The highest round that it has promised.
            promise: Round,
        },
        /// The leader is about to stop, or to do without leading: whoever is told so takes over at
        /// once.
        10 => TakeOver {
            /// The leader.
            from: LeaderId,
            /// Its round.
            round: Round,
        },
        /// Whoever was to take over cannot lead either, or is not to.
        11 => Declined {
            /// Who was asked.
            from: LeaderId,
        },
    }
}

/// What a leader must find again: a round that it has used. It must not use one twice, for it could
/// propose two values in one slot of one round; and the acceptors cannot remind it, because two
/// read quorums of a grid need not meet: the row that answers after the crash may never have heard
/// of the round that another row promised. Vital: one small record an election.
#[derive(Clone, Debug)]
pub struct Record {
    /// The round.
    pub round: Round,
}

wire_struct! { Record { round } }

/// A leader.
pub struct Leader {
    id: LeaderId,
    config: Arc<Config>,
    /// The highest round known; its own while it leads or tries to.
    round: Round,
    state: State,
    timer: ElectionTimer,
    heartbeat_at: Instant,
    /// When it began to lead: from the first of these slots up to the other one nothing was
    /// proposed, and only noops can be there.
    vacant: (Slot, Slot),
    /// The same below them, where phase 1 has found long runs of slots without any value.
    gaps: Vec<(Slot, Slot)>,
    /// Whether it is the one to lead a new cluster. One that has lived before holds back.
    founder: bool,
    window: Window,
    progress: Progress,
    repairs: Repairs,
    admission: Admission,
    handover: Handover,
    reach: Reach,
    /// Who has answered since it has wanted to take over where another leads.
    returns: Option<AcceptorSet>,
    succession: Succession,
    /// What phase 1 has found, until it is proposed again.
    carried: Carried,
    /// Batches that wait for phase 1 to end or for the window to open.
    queue: Queue,
    /// The batches in the queue and in the window, while proposers propose some again.
    held: Held,
    clock: LogClock,
    elections: u64,
    repaired: u64,
    dropped: u64,
    /// Batches that were proposed to it again while it had them.
    repeated: u64,
}

/// Where a leader stands.
enum State {
    /// Another leads, or nobody.
    Standby,
    /// Asks the acceptors whether the leader is gone.
    Candidate {
        gone: AcceptorSet,
        promise: Round,
        ask_at: Instant,
        /// Whether it has stood for a whole timeout before.
        in_vain: bool,
    },
    /// Gathers promises.
    Phase1(Box<Phase1>),
    /// Leads.
    Leading,
}

impl Leader {
    /// The leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        Leader {
            id: LeaderId(birth.address.index),
            round: Round(0),
            state: State::Standby,
            window: Window::new(config.clone(), birth, random.any()),
            timer: ElectionTimer::new(config.options().election_timeout, random),
            heartbeat_at: Instant::ZERO,
            vacant: (Slot::ZERO, Slot::ZERO),
            gaps: Vec::new(),
            founder: birth.address.index == config.home.0
                && !birth.amnesiac
                && config.epoch() == Epoch::default(),
            progress: Progress::new(&config),
            repairs: Repairs::new(config.clone()),
            admission: Admission::default(),
            handover: Handover::default(),
            reach: Reach::default(),
            returns: None,
            succession: Succession::default(),
            carried: Carried::default(),
            queue: Queue::default(),
            held: Held::default(),
            clock: LogClock::new(birth.node, &config),
            elections: 0,
            repaired: 0,
            dropped: 0,
            repeated: 0,
            config,
        }
    }

    /// Whether it leads.
    pub fn is_leading(&self) -> bool {
        matches!(self.state, State::Leading)
    }

    /// The highest round that it knows.
    pub fn round(&self) -> Round {
        self.round
    }

    /// The slots below this one are executed by some replica.
    pub(crate) fn executed(&self) -> Slot {
        self.progress.executed()
    }

    /// The slot that a batch would be given that came now, if nothing else is proposed meanwhile.
    pub(crate) fn place_of_next(&self) -> Slot {
        self.window.next_slot.plus(self.queue.len() as u64)
    }

    /// Proposes noops in slots below this one, as far as its window is open and nothing else waits.
    pub(crate) fn fill_below(&mut self, now: Instant, slot: Slot, out: &mut Out<'_, Self>) {
        while self.is_leading()
            && self.queue.is_empty()
            && self.may_propose(0)
            && self.window.next_slot < slot
        {
            self.propose_noop(now, out);
        }
    }

    /// How many batches it has dropped because too many waited.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn resend_after(&self) -> Duration {
        self.config.options().resend_after
    }

    // Proposing.

    fn on_propose(
        &mut self,
        now: Instant,
        proposal: Proposal,
        again: bool,
        out: &mut Out<'_, Self>,
    ) {
        if matches!(
            self.state,
            State::Standby | State::Candidate { in_vain: true, .. }
        ) {
            out.reached(branch::TURNS_AWAY);
            return self.turn_away(proposal.proposer, out);
        }
        if again && self.has(&proposal.batch) {
            return;
        }
        match self.state {
            State::Leading
                if self.queue.is_empty() && self.may_propose(proposal.batch.byte_len()) =>
            {
                let Proposal {
                    proposer,
                    near,
                    batch,
                } = proposal;
                return self.propose(now, proposer, near, batch, out);
            }
            // A batch that comes during an election or phase 1 waits (l3).
            _ => {}
        }
        self.held.add(&proposal.batch);
        let class = self.window.flow.class(proposal.batch.byte_len());
        if let Err(proposal) = self.queue.push(class, proposal) {
            self.held.remove(&proposal.batch);
            self.dropped += 1;
            out.reached(branch::FULL_QUEUE);
        } else if self.is_leading() {
            self.propose_queued(now, out);
        }
    }

    /// Whether a batch that is proposed once more is in hand already: then it is neither queued nor
    /// proposed again.
    fn has(&mut self, batch: &Batch) -> bool {
        let found = self.carried.batches().chain(self.window.batches());
        let has =
            !self.config.has(Canary::QueuesCopies) && self.held.has(batch, &self.queue, found);
        self.repeated += u64::from(has);
        has
    }

    /// Whether a batch of so many bytes may be proposed.
    fn may_propose(&self, bytes: usize) -> bool {
        self.is_open() && self.window.flow.has_room(bytes)
    }

    /// Whether anything new may be proposed: not before what was found in phase 1.
    fn is_open(&self) -> bool {
        self.carried.is_empty() && self.window.is_open(self.progress.executed())
    }

    /// Proposes again what was found in phase 1, as far as there is room for it.
    fn propose_carried(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some((slot, _)) = self
            .carried
            .peek()
            .filter(|(slot, bytes)| self.window.has_room_for(*slot, *bytes))
        {
            let value = self.carried.take();
            out.reached(if value.is_some() {
                branch::PROPOSES_AGAIN
            } else {
                branch::FILLS_HOLE
            });
            // A noop has no time of its own, so that whoever fills the slot puts the same into it.
            let value = value.unwrap_or_default();
            self.window.propose(
                now,
                self.round,
                slot,
                value,
                Proposer::Leader {},
                Set::EMPTY,
                out,
            );
        }
    }

    fn propose_queued(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while self.is_leading() && !self.queue.is_empty() && self.is_open() {
            let Some(next) = self.queue.pop(|bytes| self.window.flow.has_room(bytes)) else {
                return;
            };
            let Proposal {
                proposer,
                near,
                batch,
            } = next;
            self.propose_held(now, proposer, near, batch, out);
        }
    }

    fn propose(
        &mut self,
        now: Instant,
        proposer: Proposer,
        near: Set<ReplicaId>,
        batch: Batch,
        out: &mut Out<'_, Self>,
    ) {
        self.held.add(&batch);
        self.propose_held(now, proposer, near, batch, out);
    }

    /// Proposes a batch that is noted as in hand.
    fn propose_held(
        &mut self,
        now: Instant,
        proposer: Proposer,
        near: Set<ReplicaId>,
        batch: Batch,
        out: &mut Out<'_, Self>,
    ) {
        let value = Value {
            stamp: self.clock.stamp(now),
            batch,
        };
        let slot = self.window.next_slot;
        self.window.next_slot = slot.next();
        self.window
            .propose(now, self.round, slot, value, proposer, near, out);
    }

    fn propose_noop(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.propose(now, Proposer::Leader {}, Set::EMPTY, Batch::default(), out);
    }

    pub(crate) fn turn_away(&self, proposer: Proposer, out: &mut Out<'_, Self>) {
        let round = self.round;
        match proposer {
            Proposer::Client { id } => out.send(Envelope::ToClients(
                Set::one(id),
                client::In::NotLeader { round },
            )),
            Proposer::Batcher { id, .. } => {
                out.send(Envelope::ToBatchers(
                    Set::one(id),
                    batcher::In::NotLeader { round },
                ));
            }
            Proposer::Leader {} => {}
        }
    }

    // What replicas say.

    fn on_executed(
        &mut self,
        now: Instant,
        from: ReplicaId,
        (executed, kept): (Slot, Slot),
        round: Round,
        out: &mut Out<'_, Self>,
    ) {
        self.window.heard_replica(from, now);
        self.progress
            .report(from, executed, kept, round >= self.round);
        let executed = self.progress.executed();
        self.window
            .advance_to(now, executed, |batch| self.held.remove(batch));
        self.carried
            .skip_to(executed, |batch| self.held.remove(batch));
        if self.is_leading() {
            self.propose_carried(now, out);
        }
        self.propose_queued(now, out);
        self.admit(None, out);
        self.finish_change(now, out);
    }

    /// A replica misses slots that its peers do not have. Each is mended alone: a hole never causes
    /// a leader change (l2).
    fn on_recover(&mut self, now: Instant, slots: &[Slot], out: &mut Out<'_, Self>) {
        if !self.is_leading() {
            return;
        }
        for slot in slots.iter().copied() {
            if slot >= self.window.next_slot {
                self.fill_up_to(now, slot, out);
            } else if self.carried.has(slot) {
                // Its turn comes. Another read quorum might tell something else of it.
            } else if self.window.recover(now, self.round, slot, out) {
                out.reached(branch::HANDS_OVER_RECOVERED);
            } else if slot >= self.config.frontier()
                && let Some(repair) = self.repairs.begin(now, self.round, slot)
            {
                out.reached(branch::REPAIR_BEGINS);
                ask_votes(self.id, repair, repair.missing(), out);
            }
        }
    }

    /// A slot beyond the last that this leader proposed was voted for in an older round and not
    /// chosen: phase 1 asked a read quorum that had no such vote. A read that saw the vote waits
    /// for the slot, so somebody must finish it (l5); whatever is chosen there, the read sees it.
    fn fill_up_to(&mut self, now: Instant, slot: Slot, out: &mut Out<'_, Self>) {
        let reach = self.config.options().window_slots as u64;
        let near = slot.distance(self.progress.executed()) < reach;
        while near
            && self.window.next_slot <= slot
            && self.window.has_place()
            && !self.config.has(Canary::L5VotedNeverChosen)
        {
            out.reached(branch::FILLS_UP);
            self.propose_noop(now, out);
        }
    }

    fn on_advance_clock(&mut self, now: Instant, deadline: Timestamp, out: &mut Out<'_, Self>) {
        let reached = self.clock.read(now) >= deadline && self.clock.stamped() < deadline;
        if reached && self.is_leading() && self.queue.is_empty() && self.may_propose(0) {
            out.reached(branch::CLOCK_NOOP);
            self.propose_noop(now, out);
        }
    }

    /// What the clock of an instance's node shows.
    fn hear_time(&mut self, now: Instant, kind: u8, index: u8, clock: Timestamp) {
        if let Some(node) = self.config.layout().node_of(Address { kind, index }) {
            self.clock.hear(now, node, clock);
        }
    }

    // Acceptors that lost their votes.

    fn on_rejoin(
        &mut self,
        now: Instant,
        from: AcceptorId,
        nonce: u64,
        promise: Round,
        out: &mut Out<'_, Self>,
    ) {
        // One that has no part in this leader's round yet asks again in a later one.
        let has_part = self
            .config
            .quorums_of(self.round)
            .is_some_and(|quorums| quorums.members().contains(from));
        let Some(epoch) = self.config.latest_like(self.round.max(promise)) else {
            return;
        };
        if !self.is_leading() || !has_part || self.config.has(Canary::ShutsOut) {
            return;
        }
        match self.admission.ask(from, nonce, self.round > promise) {
            true => {
                out.reached(branch::ROUND_FOR_ADMISSION);
                self.begin_phase1(now, promise, epoch, out);
            }
            false => self.admit(Some(from), out),
        }
    }

    // Changes of the membership.

    fn finish_change(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.is_leading()
            && self.may_propose(0)
            && let Some(batch) = self.handover.finish(now, &self.config, &self.progress)
        {
            self.propose(now, Proposer::Leader {}, Set::EMPTY, batch, out);
        }
    }

    /// Lets in those that may be: each once, and `again` the one that asks again.
    fn admit(&mut self, again: Option<AcceptorId>, out: &mut Out<'_, Self>) {
        if self.is_leading() {
            for (acceptor, message) in
                self.admission
                    .admitted(self.round, self.progress.kept_since(), again)
            {
                out.send(Envelope::ToAcceptors(Set::one(acceptor), message));
            }
        }
    }
}

impl Role for Leader {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        self.round = self.round.max(record.round);
        self.founder = false;
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        out.persist_vital(Record { round: self.round });
    }

    fn on_start(&mut self, now: Instant, _: &mut Out<'_, Self>) {
        self.window.start(now);
        self.timer.restart(now);
        if self.founder {
            // A new cluster should not wait for a timeout to have its first leader.
            self.timer.hasten(now, Duration::ZERO);
        }
    }

    fn on_reconfigure(&mut self, now: Instant, config: Arc<Config>, out: &mut Out<'_, Self>) {
        self.window.reconfigure(config.clone());
        self.progress.reconfigure(&config);
        self.repairs.reconfigure(config.clone());
        self.clock.reconfigure(&config);
        self.handover.clear();
        self.timer
            .set_timeout(now, config.options().election_timeout);
        self.config = config;
        let stays = self.config.leaders().contains(self.round.leader());
        match self.state {
            // The quorums of its round are those of an epoch that is over: it begins another at
            // once.
            State::Leading | State::Phase1(_) if self.config.quorums_of(self.round).is_none() => {
                self.begin_phase1(now, self.round, self.config.epoch(), out);
            }
            State::Leading => self.send_heartbeat(now, out),
            // The leader has left: the first of those that stay takes over.
            State::Standby if !stays && self.config.leader(self.round, 0) == self.id => {
                self.timer.hasten(now, Duration::ZERO);
            }
            _ => {}
        }
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Propose {
                proposer,
                near,
                batch,
                again,
            } => {
                self.on_propose(
                    now,
                    Proposal {
                        proposer,
                        near,
                        batch,
                    },
                    again,
                    out,
                );
            }
            In::Executed {
                from,
                executed,
                kept,
                round,
                times,
            } => {
                self.hear_time(now, kind::Replica, from.0, times.clock);
                self.clock.learn(now, times.log);
                self.on_executed(now, from, (executed, kept), round, out);
            }
            In::ProxyAlive { from } => self.window.heard_proxy(from, now),
            In::Phase1b {
                from,
                round,
                votes,
                clock,
            } => {
                self.hear_time(now, kind::Acceptor, from.0, clock);
                self.on_phase1b(now, from, round, votes, out);
            }
            In::Nack { round } if round > self.round => self.on_higher_round(now, round, out),
            In::Nack { .. } => {}
            In::Heartbeat { round } => self.on_heartbeat(now, round, out),
            In::PreVoteReply {
                from,
                gone,
                promise,
            } => self.on_pre_vote_reply(now, from, gone, promise, out),
            In::Recover { slots } => self.on_recover(now, &slots, out),
            In::AdvanceClock { deadline } => self.on_advance_clock(now, deadline, out),
            In::Rejoin {
                from,
                nonce,
                promise,
            } => self.on_rejoin(now, from, nonce, promise, out),
            In::TakeOver { from, round } => self.on_take_over(now, from, round, out),
            In::Declined { from } => self.on_declined(now, from, out),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let resend_at = now + self.resend_after();
        match &mut self.state {
            State::Leading => {
                if self.heartbeat_at <= now {
                    if !self.still_reaches(now, out) {
                        return;
                    }
                    self.held.tick();
                    self.send_heartbeat(now, out);
                    self.finish_change(now, out);
                }
                self.window.check(now, self.round, out);
                for (repair, acceptors) in self.repairs.overdue(now) {
                    ask_votes(self.id, repair, acceptors, out);
                }
                if self.succession.is_due(now) {
                    self.ask_successor(now, out);
                }
            }
            _ if self.timer.deadline() <= now
                && self.succession.holds_back(self.window.is_cut_off(now)) =>
            {
                self.timer.restart(now);
            }
            _ if self.timer.deadline() <= now => self.stand(now, out),
            State::Candidate { ask_at, .. } if *ask_at <= now => {
                *ask_at = resend_at;
                self.ask_witnesses(out);
            }
            State::Phase1(phase1) => {
                let overdue = phase1.overdue(now);
                if !overdue.is_empty() {
                    out.reached(branch::PHASE_1_ASKED_AGAIN);
                }
                ask_votes(self.id, phase1, overdue, out);
            }
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        match &self.state {
            State::Leading => {
                let duties = earliest(self.window.next_timer(), self.repairs.next_timer());
                earliest(
                    earliest(Some(self.heartbeat_at), duties),
                    self.succession.next_timer(),
                )
            }
            State::Standby => Some(self.timer.deadline()),
            State::Candidate { ask_at, .. } => Some(self.timer.deadline().min(*ask_at)),
            State::Phase1(phase1) => Some(self.timer.deadline().min(phase1.next_timer())),
        }
    }

    fn on_drain(&mut self, now: Instant, drains: bool, out: &mut Out<'_, Self>) {
        self.drain(now, drains, out);
    }

    fn is_drained(&self) -> bool {
        match self.state {
            State::Standby | State::Candidate { .. } => true,
            State::Phase1(_) | State::Leading => self.succession.is_hopeless(),
        }
    }

    fn invariants(&self) {
        if self.is_leading() {
            assert!(self.round.leader() == self.id, "leads in another's round");
            self.window.invariants();
        }
        self.queue.invariants();
    }

    const METRICS: Metrics = &[metrics::LEADER_POSITIONS, metrics::LEADER];

    fn status(&self, status: &mut Status) {
        self.report(status);
    }
}
