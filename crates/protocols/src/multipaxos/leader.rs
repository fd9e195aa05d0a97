//! The leader (2.3, 3.1): gives every batch the next slot and hands it to a proxy leader; is elected,
//! and runs phase 1.
//!
//! Stands between client or batcher and proxy leader. All that must survive its crash is which rounds it
//! has used; the rest it learns from a read quorum in phase 1. In the steady state it takes in one
//! message a batch and sends one; replicas tell it now and then how far they have executed.

use super::config::Config;
use super::message::{Proposer, Votes};
use super::phase1::Phase1;
use super::{Envelope, acceptor, batcher, client, kind, proxy_leader, replica};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::batch::{Batch, Value};
use ionian_kernel::election::ElectionTimer;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::suspicion::Presence;
use ionian_kernel::time::{Duration, Instant, Timestamp, earliest};
use ionian_kernel::window::SlotWindow;
use ionian_kernel::wire_struct;

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
        },
        /// A replica lives and has executed every slot below `executed`.
        1 => Executed {
            /// The replica.
            from: ReplicaId,
            /// The slot that it executes next.
            executed: Slot,
            /// It would find every slot below this one again after a crash: acceptors may forget what
            /// f+1 replicas keep.
            kept: Slot,
            /// The highest round that it had heard of when it said so.
            round: Round,
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
    }
}

/// What a leader must find again: a round that it has used. It must not use one twice, for it could
/// propose two values in one slot of one round; and the acceptors cannot remind it, because two read
/// quorums of a grid need not meet: the row that answers after the crash may never have heard of the
/// round that another row promised. Vital: one small record an election.
#[derive(Clone, Debug)]
pub struct Record {
    /// The round.
    pub round: Round,
}

wire_struct! { Record { round } }

/// How many batches may wait for a window that is full or for phase 1 to end, and how many bytes they
/// may hold. What comes beyond is dropped, and proposed again by its proposer.
const MAX_QUEUED: usize = 1 << 14;
const MAX_QUEUED_BYTES: usize = 256 << 20;

/// How far beyond what is executed a leader's window can reach: more than its own flow control lets it
/// (`window_slots`), for a predecessor may have left votes further on.
const MAX_WINDOW: usize = 1 << 22;

/// How many resend times a proposed slot may stay unexecuted before it is handed over again, though its
/// proxy leader lives: a message was lost.
const HAND_OVER_AFTER: u32 = 5;

/// Only so many of the lowest unexecuted slots are taken for stuck: those behind them wait for them.
const STUCK_SLOTS: usize = 16;

/// How many slots are handed over again at a time.
const HAND_OVER_SLOTS: usize = 256;

/// A proxy leader not heard of for this long is given no slots, and those it has go to others; a replica
/// not heard of for this long is not named to answer clients.
pub const PRESENCE: Duration = Duration::from_millis(800);

/// A leader.
pub struct Leader {
    id: LeaderId,
    config: Arc<Config>,
    proxies: Set<ProxyLeaderId>,
    /// The highest round known; its own while it leads or tries to.
    round: Round,
    state: State,
    timer: ElectionTimer,
    heartbeat_at: Instant,

    next_slot: Slot,
    /// Proposed and not known executed by any replica.
    window: SlotWindow<Proposed>,
    queue: VecDeque<(Proposer, Set<ReplicaId>, Batch)>,
    queued_bytes: usize,
    last_stamp: Timestamp,
    check_at: Option<Instant>,

    /// How far each replica has executed.
    executed: Vec<Slot>,
    /// What each replica keeps through a crash.
    kept: Vec<Slot>,
    /// As `kept`, but only what was said since the acceptors that ask to rejoin lost their memory.
    kept_since: Vec<Slot>,
    present: Presence<ReplicaId>,
    present_proxies: Presence<ProxyLeaderId>,
    turn: u64,
    /// Phase 1 for single slots that were chosen before this leader's window begins (l2).
    repairs: BTreeMap<Slot, Phase1>,
    rejoining: BTreeMap<AcceptorId, Rejoining>,

    elections: u64,
    handed_over: u64,
    repaired: u64,
    dropped: u64,
}

/// Where a leader stands.
enum State {
    /// Another leads, or nobody.
    Standby,
    /// Asks the acceptors whether the leader is gone.
    Candidate { gone: AcceptorSet, promise: Round, ask_at: Instant },
    /// Gathers promises.
    Phase1(Phase1),
    /// Leads.
    Leading,
}

struct Proposed {
    value: Value,
    proposer: Proposer,
    near: Set<ReplicaId>,
    proxy: ProxyLeaderId,
    proposed_at: Instant,
    attempts: u32,
}

/// An acceptor that lost its memory and asks to be let in again.
struct Rejoining {
    nonce: u64,
    /// Once this leader has won a round without it: what f+1 replicas must keep first.
    frontier: Option<Slot>,
}

impl Leader {
    /// The leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        let replicas = config.replicas().len();
        Leader {
            id: LeaderId(birth.address.index),
            proxies: config.preferred(kind::ProxyLeader, birth.node),
            round: Round(0),
            state: State::Standby,
            timer: ElectionTimer::new(config.options().election_timeout, Random::new(random.any())),
            heartbeat_at: Instant::ZERO,
            next_slot: Slot::ZERO,
            window: SlotWindow::new(Slot::ZERO, MAX_WINDOW),
            queue: VecDeque::new(),
            queued_bytes: 0,
            last_stamp: Timestamp(0),
            check_at: None,
            executed: alloc::vec![Slot::ZERO; replicas],
            kept: alloc::vec![Slot::ZERO; replicas],
            kept_since: alloc::vec![Slot::ZERO; replicas],
            present: Presence::new(replicas, PRESENCE),
            present_proxies: Presence::new(config.layout().count(kind::ProxyLeader), PRESENCE),
            turn: random.any() >> 1,
            repairs: BTreeMap::new(),
            rejoining: BTreeMap::new(),
            elections: 0,
            handed_over: 0,
            repaired: 0,
            dropped: 0,
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

    fn resend_after(&self) -> Duration {
        self.config.options().resend_after
    }

    /// The slots below this one are executed by some replica.
    fn executed_by_one(&self) -> Slot {
        self.executed.iter().copied().max().unwrap_or_default()
    }

    /// The slots below this one are kept by f+1 of the replicas.
    fn kept_by_enough(&self, kept: &[Slot]) -> Slot {
        let mut kept = kept.to_vec();
        kept.sort_unstable_by(|a, b| b.cmp(a));
        kept.get(self.config.f()).copied().unwrap_or_default()
    }

    // Proposing.

    fn on_propose(
        &mut self,
        now: Instant,
        proposer: Proposer,
        near: Set<ReplicaId>,
        batch: Batch,
        out: &mut Out<'_, Self>,
    ) {
        match self.state {
            State::Standby => self.turn_away(proposer, out),
            State::Leading if self.queue.is_empty() && self.may_propose() => {
                self.propose(now, proposer, near, batch, out);
            }
            // A batch that comes during an election or phase 1 waits (l3).
            _ => {
                if self.queue.len() >= MAX_QUEUED || self.queued_bytes + batch.byte_len() > MAX_QUEUED_BYTES {
                    self.dropped += 1;
                    return;
                }
                self.queued_bytes += batch.byte_len();
                self.queue.push_back((proposer, near, batch));
            }
        }
    }

    fn may_propose(&self) -> bool {
        self.next_slot.distance(self.executed_by_one()) < self.config.options().window_slots as u64
            && self.window.admits(self.next_slot)
    }

    fn propose_queued(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while self.is_leading() && self.may_propose() {
            let Some((proposer, near, batch)) = self.queue.pop_front() else { return };
            self.queued_bytes -= batch.byte_len();
            self.propose(now, proposer, near, batch, out);
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
        // Time in the log never falls, though this leader's clock may be behind its predecessor's.
        self.last_stamp = self.last_stamp.max(now.timestamp());
        let value = Value { stamp: self.last_stamp, batch };
        let slot = self.next_slot;
        self.next_slot = slot.next();
        self.put(now, slot, value, proposer, near, out);
    }

    /// Puts a value into the window at `slot` and hands it to a proxy leader.
    fn put(
        &mut self,
        now: Instant,
        slot: Slot,
        value: Value,
        proposer: Proposer,
        near: Set<ReplicaId>,
        out: &mut Out<'_, Self>,
    ) {
        let proxy = self.pick_proxy(now);
        let proposed = Proposed { value, proposer, near, proxy, proposed_at: now, attempts: 0 };
        self.window.insert(slot, proposed);
        self.check_at = earliest(self.check_at, Some(now + self.resend_after()));
        self.hand_over(now, slot, out);
    }

    fn pick_proxy(&mut self, now: Instant) -> ProxyLeaderId {
        self.turn += 1;
        let present = self.present_proxies.present(now);
        let near = self.proxies.and(present);
        if near.is_empty() { present } else { near }.pick(self.turn).expect("a deployment has proxy leaders")
    }

    /// Sends the slot to its proxy leader.
    fn hand_over(&mut self, now: Instant, slot: Slot, out: &mut Out<'_, Self>) {
        let present = self.present.present(now);
        let proposed = self.window.get(slot).expect("handed over from the window");
        let near = proposed.near.and(present);
        let repliers = if near.is_empty() { present } else { near };
        let message = proxy_leader::In::Phase2a {
            slot,
            round: self.round,
            value: proposed.value.clone(),
            proposer: proposed.proposer,
            replier: repliers.pick(slot.0).expect("a deployment has replicas"),
        };
        out.send(Envelope::ToProxyLeaders(Set::one(proposed.proxy), message));
    }

    fn turn_away(&self, proposer: Proposer, out: &mut Out<'_, Self>) {
        let round = self.round;
        match proposer {
            Proposer::Client { id } => out.send(Envelope::ToClients(Set::one(id), client::In::NotLeader { round })),
            Proposer::Batcher { id, .. } => {
                out.send(Envelope::ToBatchers(Set::one(id), batcher::In::NotLeader { round }));
            }
            Proposer::Nobody {} => {}
        }
    }

    // Learning what is executed, and handing over again what is not.

    fn on_executed(
        &mut self,
        now: Instant,
        from: ReplicaId,
        (executed, kept): (Slot, Slot),
        round: Round,
        out: &mut Out<'_, Self>,
    ) {
        let index = usize::from(from.0);
        if index >= self.executed.len() {
            return;
        }
        self.present.heard(from, now);
        self.executed[index] = self.executed[index].max(executed);
        self.kept[index] = self.kept[index].max(kept);
        if round >= self.round {
            self.kept_since[index] = self.kept_since[index].max(kept);
        }
        self.window.advance_to(self.executed_by_one().min(self.window.end()));
        self.propose_queued(now, out);
        self.admit_rejoining(out);
    }

    /// Hands over again what a dead proxy leader had, and the lowest slots when they have waited too long.
    fn check_window(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let resend_after = self.resend_after();
        self.check_at = (!self.window.is_empty()).then(|| now + resend_after);
        let present = self.present_proxies.present(now);
        let waited = |proposed: &Proposed| now.since(proposed.proposed_at);
        let orphaned = |proposed: &Proposed| !present.contains(proposed.proxy) && waited(proposed) >= resend_after;
        let stuck =
            |proposed: &Proposed| waited(proposed) >= resend_after * HAND_OVER_AFTER * (1 << proposed.attempts.min(3));
        let overdue = self
            .window
            .iter()
            .enumerate()
            .filter(|(place, (_, proposed))| orphaned(proposed) || (*place < STUCK_SLOTS && stuck(proposed)));
        let slots: Vec<Slot> = overdue.map(|(_, (slot, _))| slot).take(HAND_OVER_SLOTS).collect();
        for slot in slots {
            self.hand_over_again(now, slot, out);
        }
    }

    fn hand_over_again(&mut self, now: Instant, slot: Slot, out: &mut Out<'_, Self>) {
        let proxy = self.pick_proxy(now);
        let proposed = self.window.get_mut(slot).expect("in the window");
        (proposed.proxy, proposed.proposed_at) = (proxy, now);
        proposed.attempts += 1;
        self.handed_over += 1;
        self.hand_over(now, slot, out);
    }

    /// A replica misses slots that its peers do not have. Each is mended alone: a hole never causes a
    /// leader change (l2).
    fn on_recover(&mut self, now: Instant, slots: &[Slot], out: &mut Out<'_, Self>) {
        if !self.is_leading() {
            return;
        }
        for slot in slots.iter().copied() {
            if slot >= self.next_slot {
                self.fill_up_to(now, slot, out);
            } else if let Some(proposed) = self.window.get(slot) {
                if now.since(proposed.proposed_at) >= self.resend_after() {
                    self.hand_over_again(now, slot, out);
                }
            } else {
                self.repair(now, slot, out);
            }
        }
    }

    /// A slot beyond the last that this leader proposed was voted for in an older round and not chosen:
    /// phase 1 asked a read quorum that had no such vote. A read that saw the vote waits for the slot, so
    /// somebody must finish it (l5); whatever is chosen there, the read sees it.
    fn fill_up_to(&mut self, now: Instant, slot: Slot, out: &mut Out<'_, Self>) {
        let reach = self.config.options().window_slots as u64;
        if slot.distance(self.executed_by_one()) >= reach || self.config.has(super::canary::Canary::L5VotedNeverChosen)
        {
            return;
        }
        while self.next_slot <= slot && self.window.admits(self.next_slot) {
            self.propose(now, Proposer::Nobody {}, Set::EMPTY, Batch::default(), out);
        }
    }

    /// A slot below the window: this leader has forgotten it, or never knew it. It is chosen, so the vote
    /// of the highest round in any read quorum is its value.
    fn repair(&mut self, now: Instant, slot: Slot, out: &mut Out<'_, Self>) {
        if self.repairs.len() >= HAND_OVER_SLOTS || self.repairs.contains_key(&slot) {
            return;
        }
        let ask_at = now + self.resend_after();
        let repair = Phase1::new(self.config.clone(), self.round, slot, slot.next(), ask_at);
        self.ask_votes(&repair, out);
        self.repairs.insert(slot, repair);
    }

    fn on_repair_votes(&mut self, now: Instant, from: AcceptorId, votes: Votes, out: &mut Out<'_, Self>) {
        let slot = votes.start;
        let Some(repair) = self.repairs.get_mut(&slot) else { return };
        repair.on_votes(from, votes);
        if repair.is_forgotten(slot) {
            // f+1 replicas keep it, so a peer will give it, or a snapshot.
            self.repairs.remove(&slot);
        } else if repair.is_complete() {
            let repair = self.repairs.remove(&slot).expect("just found");
            if let Some(value) = repair.value(slot) {
                let proxy = self.pick_proxy(now);
                let replier = self.present.present(now).pick(slot.0).expect("a deployment has replicas");
                let (round, value, proposer) = (self.round, value.clone(), Proposer::Nobody {});
                let message = proxy_leader::In::Phase2a { slot, round, value, proposer, replier };
                out.send(Envelope::ToProxyLeaders(Set::one(proxy), message));
                self.repaired += 1;
            }
        }
    }

    fn on_advance_clock(&mut self, now: Instant, deadline: Timestamp, out: &mut Out<'_, Self>) {
        let reached = now.timestamp() >= deadline;
        if self.is_leading() && reached && self.last_stamp < deadline && self.queue.is_empty() && self.may_propose() {
            self.propose(now, Proposer::Nobody {}, Set::EMPTY, Batch::default(), out);
        }
    }

    // Elections and phase 1.

    /// The leader was silent for too long: before a round is started, the acceptors are asked whether
    /// they have heard of it.
    fn stand(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let ask_at = now + self.resend_after();
        self.state = State::Candidate { gone: AcceptorSet::EMPTY, promise: self.round, ask_at };
        self.timer.restart(now);
        self.ask_witnesses(out);
    }

    fn ask_witnesses(&self, out: &mut Out<'_, Self>) {
        let acceptors = self.config.quorums.members();
        out.send(Envelope::ToAcceptors(acceptors, acceptor::In::PreVote { from: self.id }));
    }

    fn on_pre_vote_reply(
        &mut self,
        now: Instant,
        from: AcceptorId,
        gone: bool,
        promised: Round,
        out: &mut Out<'_, Self>,
    ) {
        let State::Candidate { gone: testimonies, promise, .. } = &mut self.state else { return };
        *promise = (*promise).max(promised);
        match gone {
            true => testimonies.insert(from),
            false => return,
        };
        if self.config.quorums.is_read_quorum(*testimonies) {
            let above = *promise;
            self.begin_phase1(now, above, out);
        }
    }

    /// Starts the first round of its own above `above`.
    fn begin_phase1(&mut self, now: Instant, above: Round, out: &mut Out<'_, Self>) {
        self.round = self.round.max(above).next_of(self.id, self.config.leaders().len());
        out.persist_vital(Record { round: self.round });
        self.elections += 1;
        self.repairs.clear();
        self.kept_since.fill(Slot::ZERO);
        let ask_at = now + self.resend_after();
        let phase1 = Phase1::new(self.config.clone(), self.round, self.executed_by_one(), Slot::MAX, ask_at);
        self.ask_votes(&phase1, out);
        self.state = State::Phase1(phase1);
        self.timer.restart(now);
    }

    /// Asks every acceptor that has not told everything for its next stretch.
    fn ask_votes(&self, phase1: &Phase1, out: &mut Out<'_, Self>) {
        for acceptor in phase1.missing().iter() {
            self.ask_stretch(phase1, acceptor, out);
        }
    }

    fn ask_stretch(&self, phase1: &Phase1, acceptor: AcceptorId, out: &mut Out<'_, Self>) {
        let (start, end) = (phase1.next_of(acceptor), phase1.end);
        let message = acceptor::In::Phase1a { from: self.id, round: phase1.round, start, end };
        out.send(Envelope::ToAcceptors(Set::one(acceptor), message));
    }

    fn on_phase1b(&mut self, now: Instant, from: AcceptorId, round: Round, votes: Votes, out: &mut Out<'_, Self>) {
        if round != self.round {
            return;
        }
        match &mut self.state {
            State::Standby | State::Candidate { .. } => {}
            State::Leading => self.on_repair_votes(now, from, votes, out),
            State::Phase1(phase1) => {
                let more = phase1.on_votes(from, votes);
                if phase1.is_complete() {
                    let State::Phase1(phase1) = core::mem::replace(&mut self.state, State::Leading) else { return };
                    self.lead(now, phase1, out);
                } else if more && let State::Phase1(phase1) = &self.state {
                    self.ask_stretch(phase1, from, out);
                }
            }
        }
    }

    /// Phase 1 is over: what may have been chosen is proposed again, holes are filled with noops, and
    /// everybody is told.
    fn lead(&mut self, now: Instant, phase1: Phase1, out: &mut Out<'_, Self>) {
        let mut outcome = phase1.finish();
        self.last_stamp = self.last_stamp.max(outcome.stamp);
        self.next_slot = outcome.next_slot;
        self.window.reset(outcome.start);
        self.present.start(now);
        self.send_heartbeat(now, out);
        for slot in outcome.start.until(outcome.next_slot) {
            let noop = Value { stamp: self.last_stamp, batch: Batch::default() };
            let value = outcome.values.remove(&slot).unwrap_or(noop);
            self.put(now, slot, value, Proposer::Nobody {}, Set::EMPTY, out);
        }
        let round = self.round;
        out.send(Envelope::ToClients(self.config.all(kind::Client), client::In::NewLeader { round }));
        out.send(Envelope::ToBatchers(self.config.all(kind::Batcher), batcher::In::NewLeader { round }));
        for rejoining in self.rejoining.values_mut() {
            rejoining.frontier = Some(self.next_slot);
        }
        self.propose_queued(now, out);
    }

    fn send_heartbeat(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.heartbeat_at = now + self.config.options().heartbeat;
        let round = self.round;
        let others = self.config.leaders().without(Set::one(self.id));
        out.send(Envelope::ToLeaders(others, In::Heartbeat { round }));
        let kept = self.kept_by_enough(&self.kept);
        let acceptors = self.config.quorums.members();
        out.send(Envelope::ToAcceptors(acceptors, acceptor::In::Heartbeat { round, kept }));
        let executed = self.executed_by_one();
        out.send(Envelope::ToReplicas(self.config.replicas(), replica::In::Heartbeat { round, executed }));
    }

    /// Somebody has a higher round. A rejected leader waits its turn and does not jump above (l4); what it
    /// had queued goes back to the proposers, who are not left to their timers (l10).
    fn on_higher_round(&mut self, now: Instant, round: Round, out: &mut Out<'_, Self>) {
        self.round = round;
        self.timer.restart(now);
        self.state = State::Standby;
        self.repairs.clear();
        self.rejoining.clear();
        self.check_at = None;
        self.window.reset(self.executed_by_one());
        self.queued_bytes = 0;
        for (proposer, _, _) in core::mem::take(&mut self.queue) {
            if !self.config.has(super::canary::Canary::L10DeposedLeaderDrops) {
                self.turn_away(proposer, out);
            }
        }
    }

    fn on_heartbeat(&mut self, now: Instant, round: Round, out: &mut Out<'_, Self>) {
        if round > self.round {
            self.on_higher_round(now, round, out);
        } else if round == self.round && matches!(self.state, State::Standby | State::Candidate { .. }) {
            self.state = State::Standby;
            self.timer.restart(now);
        }
    }

    // Acceptors that lost their memory.

    /// An acceptor without its votes may take part again after a round that was won without it; see
    /// `docs/protocols/multipaxos.md`, "Admission".
    fn on_rejoin(&mut self, now: Instant, from: AcceptorId, nonce: u64, promise: Round, out: &mut Out<'_, Self>) {
        let known = self.rejoining.get(&from).is_some_and(|rejoining| rejoining.nonce == nonce);
        if !self.is_leading() || (known && self.round > promise) {
            return self.admit_rejoining(out);
        }
        self.rejoining.insert(from, Rejoining { nonce, frontier: None });
        self.begin_phase1(now, promise, out);
    }

    fn admit_rejoining(&mut self, out: &mut Out<'_, Self>) {
        if self.rejoining.is_empty() || !self.is_leading() {
            return;
        }
        let kept = self.kept_by_enough(&self.kept_since);
        let round = self.round;
        for (acceptor, rejoining) in &self.rejoining {
            if let Some(frontier) = rejoining.frontier.filter(|frontier| *frontier <= kept) {
                let message = acceptor::In::Admit { nonce: rejoining.nonce, round, frontier };
                out.send(Envelope::ToAcceptors(Set::one(*acceptor), message));
            }
        }
    }
}

impl Role for Leader {
    type In = In;
    type Send = Envelope;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        self.round = self.round.max(record.round);
    }

    fn on_start(&mut self, now: Instant, _: &mut Out<'_, Self>) {
        self.present.start(now);
        self.present_proxies.start(now);
        self.timer.restart(now);
        if self.id == LeaderId(0) {
            // A new cluster should not wait for a timeout to have its first leader. In an old one the
            // acceptors will testify that there is a leader already.
            self.timer.hasten(now, Duration::ZERO);
        }
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Propose { proposer, near, batch } => self.on_propose(now, proposer, near, batch, out),
            In::Executed { from, executed, kept, round } => self.on_executed(now, from, (executed, kept), round, out),
            In::ProxyAlive { from } => self.present_proxies.heard(from, now),
            In::Phase1b { from, round, votes } => self.on_phase1b(now, from, round, votes, out),
            In::Nack { round } if round > self.round => self.on_higher_round(now, round, out),
            In::Nack { .. } => {}
            In::Heartbeat { round } => self.on_heartbeat(now, round, out),
            In::PreVoteReply { from, gone, promise } => self.on_pre_vote_reply(now, from, gone, promise, out),
            In::Recover { slots } => self.on_recover(now, &slots, out),
            In::AdvanceClock { deadline } => self.on_advance_clock(now, deadline, out),
            In::Rejoin { from, nonce, promise } => self.on_rejoin(now, from, nonce, promise, out),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let resend_at = now + self.resend_after();
        match &mut self.state {
            State::Leading => {
                if self.heartbeat_at <= now {
                    self.send_heartbeat(now, out);
                }
                if self.check_at.is_some_and(|at| at <= now) {
                    self.check_window(now, out);
                }
                for repair in self.repairs.values_mut().filter(|repair| repair.ask_at <= now) {
                    repair.ask_at = resend_at;
                }
                for repair in self.repairs.values().filter(|repair| repair.ask_at == resend_at) {
                    self.ask_votes(repair, out);
                }
            }
            _ if self.timer.deadline() <= now => self.stand(now, out),
            State::Candidate { ask_at, .. } if *ask_at <= now => {
                *ask_at = resend_at;
                self.ask_witnesses(out);
            }
            State::Phase1(phase1) if phase1.ask_at <= now => {
                phase1.ask_at = resend_at;
                if let State::Phase1(phase1) = &self.state {
                    self.ask_votes(phase1, out);
                }
            }
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        match &self.state {
            State::Leading => {
                let repairs = self.repairs.values().map(|repair| repair.ask_at).min();
                earliest(earliest(Some(self.heartbeat_at), self.check_at), repairs)
            }
            State::Standby => Some(self.timer.deadline()),
            State::Candidate { ask_at, .. } => Some(self.timer.deadline().min(*ask_at)),
            State::Phase1(phase1) => Some(self.timer.deadline().min(phase1.ask_at)),
        }
    }

    fn invariants(&self) {
        assert!(
            !self.is_leading() || self.round.leader(self.config.leaders().len()) == self.id,
            "leads another's round"
        );
        assert!(!self.is_leading() || self.window.end() <= self.next_slot.max(self.window.base()));
        assert!(!self.is_leading() || self.window.is_empty() || self.check_at.is_some(), "nobody watches the window");
        let bytes: usize = self.queue.iter().map(|(_, _, batch)| batch.byte_len()).sum();
        assert_eq!(bytes, self.queued_bytes, "a leader lost count of its queue");
    }

    fn status(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("leading", u64::from(self.is_leading()));
        report("round", self.round.0);
        report("next_slot", self.next_slot.0);
        report("executed", self.executed_by_one().0);
        report("window", self.window.len() as u64);
        report("queued", self.queue.len() as u64);
        report("elections", self.elections);
        report("handed_over_again", self.handed_over);
        report("repaired", self.repaired);
        report("dropped", self.dropped);
    }
}
