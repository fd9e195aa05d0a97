//! The part of a leader (2.3, 3.1): gives every batch the next slot and hands it to a proxy leader;
//! is elected, and runs phase 1.
//!
//! All that must survive its crash is which rounds it has used; the rest it learns from a read
//! quorum in phase 1. In the steady state it takes in one message a batch and sends one; replicas
//! tell it now and then how far they have executed.

mod admission;
mod carried;
pub(crate) mod clock;
mod election;
mod failing;
mod handover;
mod notes;
mod phase1;
mod port;
mod progress;
mod proposing;
mod reach;
mod repair;
mod repliers;
mod report;
mod succession;
mod take_over;
mod unused;
mod window;

pub use self::handover::Ready;
pub use self::notes::Notes;
pub use self::port::{Heartbeat, LeaderPort};
pub use self::proposing::Proposal;
use super::branch;
use super::message::{Proposer, RECOVER_SLOTS, Times};
use crate::multipaxos::config::{Config, Highest};
use crate::multipaxos::kind;
use admission::Admission;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use carried::Carried;
use clock::{LogClock, most_wrong};
use election::ask_votes;
pub use handover::FINISH_AGAIN_AFTER;
use handover::{Handover, finish};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, NodeId};
use ionian_kernel::random::Random;
use ionian_kernel::time::{Duration, Instant, Timestamp, earliest};
use ionian_kernel::wire_struct;
use ionian_replication::election::ElectionTimer;
use ionian_replication::queue::{Held, Queue};
use phase1::Phase1;
pub(crate) use progress::Progress;
use reach::Reach;
use repair::Repairs;
use succession::Succession;
use take_over::Returns;
use window::Window;

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

/// See the top of this file. `N` is what acceptors note beside votes.
pub struct LeaderCore<N: Notes> {
    id: LeaderId,
    config: Arc<Config>,
    /// The highest round known; its own while it leads or tries to.
    round: Round,
    state: State<N>,
    timer: ElectionTimer,
    heartbeat_at: Instant,
    /// When it began to lead: from the first of these slots up to the other one nothing was
    /// proposed, and only noops can be there.
    vacant: (Slot, Slot),
    /// The same below them: runs of slots without a value that it has not filled.
    left_out: Vec<(Slot, Slot)>,
    /// Whether it is the one to lead a new cluster. One that has lived before holds back.
    founder: bool,
    window: Window,
    progress: Progress,
    repairs: Repairs<N>,
    admission: Admission,
    handover: Handover,
    reach: Reach,
    /// Set while it wants to take over where another leads.
    returns: Option<Returns>,
    succession: Succession,
    /// What phase 1 has found, until it is proposed again.
    carried: Carried,
    /// Batches that wait for phase 1 to end or for the window to open.
    queue: Queue<Proposal>,
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
enum State<N> {
    /// Another leader leads, or none.
    Standby,
    /// Asks the acceptors whether the leader is gone.
    Candidate {
        gone: AcceptorSet,
        promised: Highest<Round>,
        ask_at: Instant,
        /// Whether it has stood for a whole timeout before.
        in_vain: bool,
    },
    /// Gathers promises.
    Phase1(Box<Phase1<N>>),
    /// Leads.
    Leading,
}

impl<N: Notes> LeaderCore<N> {
    /// That of the leader `id`, which lives on `node`. `is_new` unless an earlier process of the
    /// leader has taken part in the cluster and its memory is lost; `seed` is that of its random
    /// numbers.
    pub fn new(
        config: Arc<Config>,
        (id, node): (LeaderId, NodeId),
        is_new: bool,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed);
        LeaderCore {
            id,
            round: Round(0),
            state: State::Standby,
            window: Window::new(config.clone(), node, random.any()),
            timer: ElectionTimer::new(
                config.options().election_timeout,
                config.leaders().len(),
                random,
            ),
            heartbeat_at: Instant::ZERO,
            vacant: (Slot::ZERO, Slot::ZERO),
            left_out: Vec::new(),
            founder: id == config.initial_leader && is_new && config.epoch() == Epoch::default(),
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
            clock: LogClock::new(node, most_wrong(&config)),
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
    pub fn executed(&self) -> Slot {
        self.progress.executed()
    }

    /// The slot that a batch proposed now would get.
    pub fn place_of_next(&self) -> Slot {
        self.window.next_slot.plus(self.queue.len() as u64)
    }

    /// Proposes noops in slots below this one, as far as its window is open and nothing else waits.
    pub fn fill_below(&mut self, now: Instant, slot: Slot, port: &mut impl LeaderPort) {
        while self.is_leading() && self.has_room() && self.window.next_slot < slot {
            self.propose_noop(now, port);
        }
    }

    /// Says what other roles than acceptors and replicas are ready for, while the membership is
    /// changing.
    pub fn set_ready(&mut self, ready: Ready) {
        self.handover.set_ready(ready);
    }

    fn resend_after(&self) -> Duration {
        self.config.options().resend_after
    }

    // What replicas say.

    /// A replica is alive, has executed every slot below `executed`, and would find those below
    /// `kept` again after a crash; `round` is the highest that it had heard of.
    pub fn on_executed(
        &mut self,
        now: Instant,
        from: ReplicaId,
        (executed, kept): (Slot, Slot),
        (round, times): (Round, Times),
        port: &mut impl LeaderPort,
    ) {
        self.hear_time(now, kind::Replica, from.0, times.clock);
        self.clock.executed(now, times.log);
        self.window.heard_replica(from, executed, now);
        self.progress
            .report(from, executed, kept, round >= self.round);
        let executed = self.progress.executed();
        self.window
            .advance_to(now, executed, |batch| self.held.remove(batch));
        self.carried
            .skip_to(executed, |batch| self.held.remove(batch));
        if self.is_leading() {
            self.propose_carried(now, port);
            self.begin_handover(now, port);
        }
        self.propose_queued(now, port);
        self.admit(None, port);
    }

    /// A replica misses slots that its peers do not have. Each is repaired alone: a hole never
    /// causes a leader change (l2).
    pub fn on_recover(&mut self, now: Instant, slots: &[Slot], port: &mut impl LeaderPort) {
        if !self.is_leading() {
            return;
        }
        for slot in slots.iter().copied().take(RECOVER_SLOTS) {
            if slot >= self.window.next_slot {
                self.fill_up_to(now, slot, port);
            } else if self.carried.has(slot) {
                // Its turn comes. Another read quorum might tell something else of it.
            } else if self.window.recover(now, self.round, slot, port) {
                port.reached(branch::HANDS_OVER_RECOVERED);
            } else {
                self.repair(now, (slot, slot.next()), port);
            }
        }
    }

    /// A replica misses this slot and many above it. They are repaired together, as far as some
    /// replica has executed: all of those are chosen.
    pub fn recover_stretch(&mut self, now: Instant, slot: Slot, port: &mut impl LeaderPort) {
        let end = slot
            .plus(self.repairs.stretch())
            .min(self.progress.executed());
        match self.is_leading() && slot < end {
            true => self.repair(now, (slot, end), port),
            false => self.on_recover(now, &[slot], port),
        }
    }

    fn repair(&mut self, now: Instant, slots: (Slot, Slot), port: &mut impl LeaderPort) {
        if slots.0 >= self.config.frontier()
            && let Some(repair) = self.repairs.begin(now, self.round, slots)
        {
            port.reached(branch::REPAIR_BEGINS);
            ask_votes(repair, repair.missing(), false, port);
        }
    }

    /// A slot beyond the last that this leader proposed was voted for in an older round and not
    /// chosen: phase 1 asked a read quorum that had no such vote. A read that saw the vote waits
    /// for the slot, so a leader must finish it (l5); whatever is chosen there, the read sees it.
    fn fill_up_to(&mut self, now: Instant, slot: Slot, port: &mut impl LeaderPort) {
        let reach = self.config.options().window_slots as u64;
        let near = slot.distance(self.progress.executed()) < reach;
        while near && self.window.next_slot <= slot && self.window.has_place() {
            port.reached(branch::FILLS_UP);
            self.propose_noop(now, port);
        }
    }

    /// The log must be given the time: the answers of the state machine change at `deadline`.
    pub fn on_advance_clock(
        &mut self,
        now: Instant,
        deadline: Timestamp,
        port: &mut impl LeaderPort,
    ) {
        let under_way = self.window.len() > 0;
        let is_due = self.clock.is_due(now, deadline, under_way);
        if is_due && self.is_leading() && self.has_room() {
            port.reached(branch::CLOCK_NOOP);
            self.propose_noop(now, port);
        }
    }

    /// What the clock of an instance's node shows.
    fn hear_time(&mut self, now: Instant, kind: u8, index: Index, clock: Timestamp) {
        if let Some(node) = self.config.layout().node_of(Address { kind, index }) {
            self.clock.hear(now, node, clock);
        }
    }

    // Acceptors that lost their votes.

    /// An acceptor has lost its votes and asks to take part again. It has promised `promise`.
    pub fn on_rejoin(
        &mut self,
        now: Instant,
        from: AcceptorId,
        nonce: u64,
        promise: Round,
        port: &mut impl LeaderPort,
    ) {
        self.handover.rejoins(now, from);
        // One that has no part in this leader's round yet asks again in a later one.
        let has_part = self
            .config
            .quorums_of(self.round)
            .is_some_and(|quorums| quorums.members().contains(from));
        let Some(epoch) = self.config.latest_like(self.round) else {
            return;
        };
        // A round of both configurations is not for it to ask for: nothing says that the new
        // acceptors answer. If it has promised one it waits for another, or for the end of the
        // change.
        if !self.is_leading() || !has_part || promise.epoch() > epoch {
            return;
        }
        match self.admission.ask(from, nonce, self.round > promise) {
            true => {
                port.reached(branch::ROUND_FOR_ADMISSION);
                self.begin_phase1(now, promise, epoch, port);
            }
            false => self.admit(Some(from), port),
        }
    }

    // Changes of the membership.

    /// Where it leads in the epoch of two configurations: no slot from this one on is or will be
    /// used by a round of an earlier epoch.
    pub fn frontier(&self) -> Option<Slot> {
        self.handover.frontier().filter(|_| self.is_leading())
    }

    /// Finishes the change under way, if the replicas of the new configuration keep everything
    /// below the frontier: for a protocol in which no other leader has a part in it.
    pub fn finish_change(&mut self, now: Instant, port: &mut impl LeaderPort) {
        if let Some(frontier) = self.frontier()
            && self.handover.may_finish(now, frontier, &self.progress)
            && self.propose_finish(now, frontier, port)
        {
            self.handover.finishes(now);
        }
    }

    /// Proposes the command that finishes the change under way, after which no leader asks
    /// acceptors about a slot of the log below `frontier`. Returns whether it can propose now.
    pub fn propose_finish(
        &mut self,
        now: Instant,
        frontier: Slot,
        port: &mut impl LeaderPort,
    ) -> bool {
        let can = self.is_leading() && self.may_propose(0);
        if can {
            let batch = finish(self.config.epoch(), frontier);
            self.propose(now, Proposer::Leader {}, Set::EMPTY, batch, port);
        }
        can
    }

    /// Lets in those that may be: each once, and `again` the one that asks again.
    fn admit(&mut self, again: Option<AcceptorId>, port: &mut impl LeaderPort) {
        if self.is_leading() {
            let kept = self.progress.kept_since();
            for (acceptor, nonce, frontier) in self.admission.admitted(kept, again) {
                port.admit(acceptor, nonce, self.round, frontier);
            }
        }
    }

    // What its driver says.

    /// Takes in a record from before a crash.
    pub fn recover(&mut self, record: Record) {
        self.round = self.round.max(record.round);
        self.founder = false;
    }

    /// What it writes down again at a checkpoint, whatever the durability.
    pub fn checkpoint(&self) -> Record {
        Record { round: self.round }
    }

    /// All records were recovered.
    pub fn start(&mut self, now: Instant) {
        self.window.start(now);
        self.timer.restart(now);
        if self.founder {
            // A new cluster should not wait for a timeout to have its first leader.
            self.timer.hasten(now, Duration::ZERO);
        }
    }

    /// The membership has changed, or an option.
    pub fn reconfigure(&mut self, now: Instant, config: Arc<Config>, port: &mut impl LeaderPort) {
        self.window.reconfigure(config.clone());
        self.progress.reconfigure(&config);
        self.repairs.reconfigure(config.clone());
        self.clock.reconfigure(&config);
        self.handover.clear();
        let (timeout, leaders) = (config.options().election_timeout, config.leaders().len());
        self.timer.set_timeout(now, timeout, leaders);
        self.config = config;
        let stays = self.config.leaders().contains(self.round.leader());
        match self.state {
            // The quorums of its round are those of an epoch that is over: it begins another at
            // once. If the membership is changing again, not of both configurations: it has yet to
            // ask whether the new acceptors answer.
            State::Leading | State::Phase1(_) if self.config.quorums_of(self.round).is_none() => {
                let epoch = self.config.single_epoch();
                self.begin_phase1(now, self.round, epoch, port);
            }
            State::Leading => self.send_heartbeat(now, port),
            // The leader has left: the first of those that stay takes over.
            State::Standby if !stays && self.config.leader(self.round, 0) == self.id => {
                self.timer.hasten(now, Duration::ZERO);
            }
            _ => {}
        }
    }

    /// A proxy leader is alive.
    pub fn on_proxy_alive(&mut self, now: Instant, from: ProxyLeaderId) {
        self.window.heard_proxy(from, now);
    }

    /// An acceptor has promised this round.
    pub fn on_nack(&mut self, now: Instant, round: Round, port: &mut impl LeaderPort) {
        if round > self.round {
            self.on_higher_round(now, round, port);
        }
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Instant, port: &mut impl LeaderPort) {
        let resend_at = now + self.resend_after();
        match &mut self.state {
            State::Leading => {
                if self.heartbeat_at <= now {
                    if !self.still_reaches(now, port) {
                        return;
                    }
                    self.held.tick();
                    self.send_heartbeat(now, port);
                }
                self.window.check(now, self.round, port);
                for (repair, acceptors) in self.repairs.overdue(now) {
                    ask_votes(repair, acceptors, true, port);
                }
                if self.succession.is_due(now) {
                    self.ask_successor(now, port);
                }
            }
            _ if self.timer.deadline() <= now
                && self.succession.holds_back(self.window.is_cut_off(now)) =>
            {
                self.timer.restart(now);
            }
            _ if self.timer.deadline() <= now => self.stand(now, port),
            State::Candidate { ask_at, .. } if *ask_at <= now => {
                *ask_at = resend_at;
                self.ask_witnesses(port);
            }
            State::Phase1(phase1) => {
                let overdue = phase1.overdue(now);
                if !overdue.is_empty() {
                    port.reached(branch::PHASE_1_ASKED_AGAIN);
                }
                ask_votes(phase1, overdue, true, port);
            }
            _ => {}
        }
    }

    /// When it next wants to be called though nothing arrives.
    pub fn next_timer(&self) -> Option<Instant> {
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

    /// Whether the node can stop without leaving anything unled.
    pub fn is_drained(&self) -> bool {
        match self.state {
            State::Standby | State::Candidate { .. } => true,
            State::Phase1(_) | State::Leading => self.succession.is_hopeless(),
        }
    }

    /// Asserts what must hold between two calls.
    pub fn invariants(&self) {
        if self.is_leading() {
            assert!(self.round.leader() == self.id, "leads in another's round");
            self.window.invariants();
        }
        self.queue.invariants();
    }
}
