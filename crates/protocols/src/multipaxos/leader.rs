//! The leader (2.3, 3.1): gives every batch the next slot and hands it to a proxy leader; is
//! elected, and runs phase 1.
//!
//! Stands between client or batcher and proxy leader. Its rules are those of [`LeaderCore`]; here
//! are its messages.

use super::config::Config;
use super::message::{Proposer, Times, Votes};
use super::{Envelope, acceptor, batcher, client, kind, proxy_leader, replica};
pub use crate::parts::leader::Record;
use crate::parts::leader::{Heartbeat, LeaderCore, LeaderPort, Proposal, Ready};
use crate::parts::metrics;
use crate::pigpaxos::leading::{self, Leading};
use crate::pigpaxos::message::{Promises, RelayId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, Timestamp};
use ionian_replication::batch::{Batch, Value};

messages! {
    /// The messages that a leader receives.
    "leader" In {
        /// A batch to get chosen.
        0 for "propose" of batch => Propose {
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
        /// The leader is about to stop, or to do without leading: the receiver takes over at once.
        10 => TakeOver {
            /// The leader.
            from: LeaderId,
            /// Its round.
            round: Round,
        },
        /// The receiver of TakeOver does not take over.
        11 => Declined {
            /// Who was asked.
            from: LeaderId,
        },
        /// A relay has passed on a heartbeat.
        12 => Relayed {
            /// The relay.
            from: RelayId,
        },
        /// A relay has asked acceptors for promises.
        13 => Promises {
            /// The relay.
            from: RelayId,
            /// The round that they promised.
            round: Round,
            /// The promises, and a stretch of votes.
            promises: Box<Promises>,
        },
        /// The state that another role keeps is handed over to the configuration to come (CRAQ).
        14 since 18 => Ready {
            /// The epoch of both configurations.
            epoch: Epoch,
        },
    }
}

/// A leader.
pub struct Leader {
    id: LeaderId,
    config: Arc<Config>,
    core: LeaderCore<()>,
    /// How it speaks to acceptors through relays, where there are any.
    leading: Leading,
}

impl Leader {
    /// The leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let id = LeaderId(birth.address.index);
        let place = (id, birth.node);
        let mut core = LeaderCore::new(config.clone(), place, !birth.amnesiac, birth.seed);
        core.set_ready(ready(&config));
        Leader {
            id,
            core,
            leading: Leading::new(&config, birth),
            config,
        }
    }

    /// Whether it leads.
    pub fn is_leading(&self) -> bool {
        self.core.is_leading()
    }

    /// Every slot in which it has proposed is below this one.
    pub(crate) fn next_slot(&self) -> Slot {
        self.core.next_slot()
    }

    /// No leader of this log proposes in this slot or any after it, as far as this one knows.
    pub(crate) fn reach(&self) -> Slot {
        let window = self.config.options().window_slots as u64;
        self.core.executed().plus(2 * window)
    }

    /// Whether what is proposed now need not wait for room.
    pub(crate) fn has_room(&self) -> bool {
        self.core.has_room()
    }

    /// Whether something that it has proposed is not known to be executed.
    pub(crate) fn is_busy(&self) -> bool {
        self.core.executed() < self.core.place_of_next()
    }

    /// The highest round that it knows.
    pub fn round(&self) -> Round {
        self.core.round()
    }

    /// The leader's part, and its port.
    #[inline]
    fn part<'a, 'b>(
        &'a mut self,
        now: Instant,
        out: &'a mut Out<'b, Self>,
    ) -> (&'a mut LeaderCore<()>, Port<'a, 'b>) {
        let port = Port {
            id: self.id,
            now,
            config: &self.config,
            leading: &mut self.leading,
            out,
        };
        (&mut self.core, port)
    }
}

/// What other roles are ready for before they have said anything.
fn ready(config: &Config) -> Ready {
    Ready {
        for_joint_round: !config.waits_for_word,
        to_finish: !config.waits_for_word,
    }
}

/// The messages of the leader's part.
struct Port<'a, 'b> {
    id: LeaderId,
    now: Instant,
    config: &'a Config,
    leading: &'a mut Leading,
    out: &'a mut Out<'b, Leader>,
}

impl LeaderPort for Port<'_, '_> {
    fn persist_vital(&mut self, record: Record) {
        self.out.persist_vital(record);
    }

    fn phase1a(&mut self, to: AcceptorSet, round: Round, (start, end): (Slot, Slot), again: bool) {
        self.leading.phase1a(
            (self.now, self.id),
            (to, again),
            (round, start, end),
            self.out,
        );
    }

    #[inline]
    fn phase2a(
        &mut self,
        to: ProxyLeaderId,
        (slot, round): (Slot, Round),
        value: Value,
        proposer: Proposer,
        replier: ReplicaId,
    ) {
        let message = proxy_leader::In::Phase2a {
            slot,
            round,
            value,
            proposer,
            replier,
        };
        self.out
            .send(Envelope::ToProxyLeaders(Set::one(to), message));
    }

    fn pre_vote(&mut self, to: AcceptorSet) {
        let message = acceptor::In::PreVote { from: self.id };
        self.out.send(Envelope::ToAcceptors(to, message));
    }

    fn heartbeat(&mut self, heartbeat: Heartbeat) {
        let heartbeat = self
            .leading
            .heartbeat(self.now, self.id, heartbeat, self.out);
        let Heartbeat {
            leaders,
            acceptors,
            replicas,
            round,
            executed,
            kept,
            keep,
            time,
            // No other role has state to take over.
            replicas_are_ready: _,
        } = heartbeat;
        self.out
            .send(Envelope::ToLeaders(leaders, In::Heartbeat { round }));
        let message = acceptor::In::Heartbeat { round, kept };
        self.out.send(Envelope::ToAcceptors(acceptors, message));
        let message = replica::In::Heartbeat {
            round,
            executed,
            keep,
            time,
        };
        self.out.send(Envelope::ToReplicas(replicas, message));
    }

    fn new_leader(&mut self, round: Round) {
        let (clients, batchers) = (
            self.config.all(kind::Client),
            self.config.all(kind::Batcher),
        );
        let message = client::In::NewLeader { round };
        self.out.send(Envelope::ToClients(clients, message));
        let message = batcher::In::NewLeader { round };
        self.out.send(Envelope::ToBatchers(batchers, message));
    }

    fn not_leader(&mut self, clients: Set<ClientId>, batchers: Set<BatcherId>, round: Round) {
        if !clients.is_empty() {
            let message = client::In::NotLeader { round };
            self.out.send(Envelope::ToClients(clients, message));
        }
        if !batchers.is_empty() {
            let message = batcher::In::NotLeader { round };
            self.out.send(Envelope::ToBatchers(batchers, message));
        }
    }

    fn admit(&mut self, to: AcceptorId, nonce: u64, round: Round, frontier: Slot) {
        let message = acceptor::In::Admit {
            nonce,
            round,
            frontier,
        };
        self.out.send(Envelope::ToAcceptors(Set::one(to), message));
    }

    fn take_over(&mut self, to: LeaderId, round: Round) {
        let from = self.id;
        let message = In::TakeOver { from, round };
        self.out.send(Envelope::ToLeaders(Set::one(to), message));
    }

    fn decline(&mut self, to: LeaderId) {
        let message = In::Declined { from: self.id };
        self.out.send(Envelope::ToLeaders(Set::one(to), message));
    }

    fn reached(&mut self, branch: &'static str) {
        self.out.reached(branch);
    }
}

impl Role for Leader {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        self.core.recover(record);
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        out.persist_vital(self.core.checkpoint());
    }

    fn on_start(&mut self, now: Instant, _: &mut Out<'_, Self>) {
        self.core.start(now);
    }

    fn on_reconfigure(&mut self, now: Instant, config: Arc<Config>, out: &mut Out<'_, Self>) {
        self.config = config.clone();
        self.leading.reconfigure(&config);
        self.core.set_ready(ready(&config));
        let (core, mut port) = self.part(now, out);
        core.reconfigure(now, config, &mut port);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(now, out);
        let port = &mut port;
        match message {
            In::Propose {
                proposer,
                near,
                batch,
                again,
            } => {
                let proposal = Proposal {
                    proposer,
                    near,
                    batch,
                };
                core.on_propose(now, proposal, again, port);
            }
            In::Executed {
                from,
                executed,
                kept,
                round,
                times,
            } => {
                core.on_executed(now, from, (executed, kept), (round, times), port);
                core.finish_change(now, port);
            }
            In::ProxyAlive { from } => core.on_proxy_alive(now, from),
            In::Phase1b {
                from,
                round,
                votes,
                clock,
            } => {
                // A slot without votes says nothing here.
                let noops = core.on_phase1b(now, (from, round), (votes, ()), clock, port);
                debug_assert!(noops.is_empty());
            }
            In::Nack { round } => core.on_nack(now, round, port),
            In::Heartbeat { round } => core.on_heartbeat(now, round, port),
            In::PreVoteReply {
                from,
                gone,
                promise,
            } => core.on_pre_vote_reply(now, from, gone, promise, port),
            In::Recover { slots } => core.on_recover(now, &slots, port),
            In::AdvanceClock { deadline } => core.on_advance_clock(now, deadline, port),
            In::Rejoin {
                from,
                nonce,
                promise,
            } => core.on_rejoin(now, from, nonce, promise, port),
            In::TakeOver { from, round } => core.on_take_over(now, from, round, port),
            In::Declined { from } => core.on_declined(now, from, port),
            In::Relayed { from } => port.leading.heard(now, from, AcceptorSet::EMPTY),
            In::Promises {
                from,
                round,
                promises,
            } => {
                port.leading.heard(now, from, promises.missing);
                leading::on_promises(core, now, round, *promises, port);
            }
            In::Ready { epoch } if epoch == port.config.epoch() => {
                core.set_ready(Ready::default());
                core.finish_change(now, port);
            }
            // Of a change that is over.
            In::Ready { .. } => {}
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(now, out);
        core.on_timer(now, &mut port);
        core.finish_change(now, &mut port);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.core.next_timer()
    }

    fn on_drain(&mut self, now: Instant, drains: bool, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(now, out);
        core.on_drain(now, drains, &mut port);
    }

    fn is_drained(&self) -> bool {
        self.core.is_drained()
    }

    fn invariants(&self) {
        self.core.invariants();
    }

    const METRICS: Metrics = &[metrics::LEADER_POSITIONS, metrics::LEADER];

    fn status(&self, status: &mut Status) {
        self.core.report_status(status);
    }
}
