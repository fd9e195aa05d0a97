//! The acceptor (2.2, 3.2, 3.4): promises, votes, and tells readers how far it has voted.
//!
//! Stands between leader (phase 1), proxy leader (phase 2) and readers. What it promises and votes
//! must survive its crash: every answer is fenced behind the record of what it reveals.

use super::branch;
use super::canary::Canary;
use super::config::Config;
use super::message::{ReaderId, Vote, Votes};
use super::metrics;
use super::{Envelope, client, leader, proxy_leader, read_batcher, replica};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::{messages, wire_enum};
use ionian_replication::batch::Value;
use ionian_replication::election::Witness;
use ionian_replication::window::SlotWindow;

messages! {
    /// What an acceptor is told.
    "acceptor" In {
        /// A leader asks for a promise and for the votes of a stretch of slots.
        0 => Phase1a {
            /// The leader.
            from: LeaderId,
            /// Its round.
            round: Round,
            /// The first slot that it asks about.
            start: Slot,
            /// The slot after the last that it asks about.
            end: Slot,
        },
        /// A proxy leader asks for a vote.
        1 => Phase2a {
            /// The proxy leader.
            from: ProxyLeaderId,
            /// The slot.
            slot: Slot,
            /// The leader's round.
            round: Round,
            /// The value.
            value: Value,
        },
        /// A reader asks for the vote watermark.
        2 => PreRead {
            /// The reader.
            from: ReaderId,
            /// Its number for the inquiry.
            inquiry: u64,
        },
        /// The leader lives, and f+1 replicas keep every slot below `kept`.
        3 => Heartbeat {
            /// The leader's round.
            round: Round,
            /// What can be forgotten.
            kept: Slot,
        },
        /// A leader asks whether the present one is gone.
        4 => PreVote {
            /// Who asks.
            from: LeaderId,
        },
        /// An acceptor that lost its memory may take part again.
        5 => Admit {
            /// The nonce of its request: a grant to an earlier process is void.
            nonce: u64,
            /// The round of the leader, higher than any that the acceptor has promised.
            round: Round,
            /// Every slot below this one is chosen and kept by f+1 replicas; no slot from it on
            /// has been voted for in a lower round by a quorum.
            frontier: Slot,
        },
        /// The value that it voted for in this slot and round is chosen: the replicas on its node
        /// are to have it.
        6 => Learn {
            /// The slot.
            slot: Slot,
            /// The round in which the value was chosen.
            round: Round,
            /// The replica that is to answer the clients.
            replier: ReplicaId,
        },
    }
}

/// What an acceptor must find again.
#[derive(Clone, Debug)]
pub enum Record {
    /// It will not take part in lower rounds. Vital: rare, and the one thing without which an
    /// acceptor that lost its votes could not be let in again.
    Promised {
        /// The round.
        round: Round,
    },
    /// It voted, and promised the round with it.
    Voted {
        /// The slot.
        slot: Slot,
        /// The vote.
        vote: Vote,
    },
    /// It forgot the slots below this one.
    Forgot {
        /// The first slot that it still knows.
        below: Slot,
    },
    /// It voted in a higher round for the value that it had voted for before: written without the
    /// value, which can be large, and which every new leader proposes again.
    Confirmed {
        /// The slot.
        slot: Slot,
        /// The round of the vote.
        round: Round,
    },
    /// It has no part in rounds of earlier epochs. What the log says of votes in them is of another
    /// acceptor of its number, which lived on this node before it.
    Began {
        /// The first epoch in which it takes part.
        epoch: Epoch,
    },
}

wire_enum! {
    Record {
        0 => Promised { round }, 1 => Voted { slot, vote }, 2 => Forgot { below }, 3 => Confirmed { slot, round },
        4 => Began { epoch }
    }
}

/// How far beyond the oldest slot that it must remember an acceptor votes. Reached only when
/// replicas are missing for very long; it then refuses, and service stops until they are back.
pub(super) const MAX_VOTES: usize = 1 << 22;

/// Bytes of votes in one Phase1b, at least one vote.
const PHASE1B_BYTES: usize = 1 << 20;

/// How often an acceptor that lost its memory asks to be let in again.
const REJOIN_EVERY: Duration = Duration::from_millis(300);

/// An acceptor.
pub struct Acceptor {
    id: AcceptorId,
    config: Arc<Config>,
    /// It takes part in no earlier epoch; the first of all if it was there when the cluster was
    /// founded.
    began: Epoch,
    /// It takes part in no lower round.
    promise: Round,
    /// Its last vote in each slot that is not forgotten.
    votes: SlotWindow<Vote>,
    /// The slot after the highest in which it ever voted. Never falls.
    watermark: Slot,
    witness: Witness,
    /// What was found again, until it starts.
    recovered: Recovered,
    /// Set while it may not take part, because what an earlier process voted is lost.
    rejoin: Option<Rejoin>,
    cast: u64,
    refused: u64,
}

/// Records come in the order of the log, in which slots need not be in order, and some are of slots
/// that were forgotten later.
#[derive(Default)]
struct Recovered {
    votes: BTreeMap<Slot, Vote>,
    forgotten: Slot,
    /// By epoch: below this slot there are confirmations without the vote that they are of, which
    /// is released and may be gone.
    bare: BTreeMap<Epoch, Slot>,
    /// Whether there was any record: it has lived before.
    any: bool,
}

impl Recovered {
    /// What was found so far of earlier epochs is another's. (Not all that was found: this is
    /// written again.)
    fn begin(&mut self, epoch: Epoch) {
        self.votes.retain(|_, vote| vote.round.epoch() >= epoch);
        self.bare = self.bare.split_off(&epoch);
    }

    /// Votes below this slot are missing that were confirmed.
    fn missing(&self) -> Slot {
        self.bare.values().copied().max().unwrap_or_default()
    }
}

struct Rejoin {
    nonce: u64,
    ask_at: Instant,
}

impl Acceptor {
    /// The acceptor of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let nonce = Random::new(birth.seed).any();
        let amnesiac = birth.amnesiac && !config.has(Canary::AmnesiacVotes);
        Acceptor {
            id: AcceptorId(birth.address.index),
            promise: oldest_round(&config, AcceptorId(birth.address.index)),
            votes: SlotWindow::new(Slot::ZERO, MAX_VOTES),
            watermark: Slot::ZERO,
            witness: Witness::default(),
            recovered: Recovered::default(),
            rejoin: amnesiac.then_some(Rejoin {
                nonce,
                ask_at: Instant::ZERO,
            }),
            cast: 0,
            refused: 0,
            began: Epoch::default(),
            config,
        }
    }

    /// How many votes it has cast in this life.
    pub fn votes_cast(&self) -> u64 {
        self.cast
    }

    /// The slot after the highest in which it ever voted, and the highest round that it has
    /// promised. None while it may not take part.
    pub(crate) fn watermark(&self) -> Option<(Slot, Round)> {
        self.rejoin
            .is_none()
            .then_some((self.watermark, self.promise))
    }

    /// It knows nothing of slots below this one any more.
    pub(crate) fn forgotten(&self) -> Slot {
        self.votes.base()
    }

    /// The slots in which it has a vote.
    pub fn votes(&self) -> impl Iterator<Item = (Slot, &Vote)> {
        self.votes.iter()
    }

    /// Raises the promise; the record goes to disk whatever the durability.
    fn promise(&mut self, round: Round, out: &mut Out<'_, Self>) {
        if round > self.promise {
            self.promise = round;
            out.persist_vital(Record::Promised { round });
        }
    }

    fn on_phase1a(
        &mut self,
        now: Instant,
        from: LeaderId,
        round: Round,
        start: Slot,
        end: Slot,
        out: &mut Out<'_, Self>,
    ) {
        if !self.config.takes_part(self.id, round) {
            return self.refused += 1;
        }
        if round < self.promise {
            out.reached(branch::PHASE_1A_REFUSED);
            return self.refuse(round, out);
        }
        self.promise(round, out);
        // Another candidate must not start before this one had its chance.
        self.witness.heard(now);
        let (votes, clock) = (self.votes_between(start, end), now.timestamp());
        if votes.next != Slot::MAX {
            out.reached(branch::VOTES_IN_PAGES);
        }
        let message = leader::In::Phase1b {
            from: self.id,
            round,
            votes,
            clock,
        };
        out.send(Envelope::ToLeaders(Set::one(from), message));
    }

    fn votes_between(&self, start: Slot, end: Slot) -> Votes {
        let (mut votes, mut next, mut bytes) = (Vec::new(), Slot::MAX, 0);
        for (slot, vote) in self
            .votes
            .iter_from(start)
            .take_while(|(slot, _)| *slot < end)
        {
            if bytes >= PHASE1B_BYTES {
                next = slot;
                break;
            }
            bytes += vote.value.batch.byte_len() + 32;
            votes.push((slot, vote.clone()));
        }
        let (forgotten, watermark, reserved) = (self.votes.base(), self.watermark, Vec::new());
        Votes {
            start,
            end,
            next,
            votes,
            forgotten,
            watermark,
            reserved,
        }
    }

    /// The leader of an old round must step down, and its proxy leader drop what it has of that
    /// round.
    fn refuse(&mut self, round: Round, out: &mut Out<'_, Self>) {
        self.refused += 1;
        let leader = Set::one(round.leader()).and(self.config.leaders());
        // Unfenced, for it must not wait until large votes are on disk: whoever is told of a round
        // that a crash undoes has stepped down for nothing, and nobody counts a refusal.
        out.send_unfenced(Envelope::ToLeaders(
            leader,
            leader::In::Nack {
                round: self.promise,
            },
        ));
    }

    fn on_phase2a(
        &mut self,
        now: Instant,
        from: ProxyLeaderId,
        (slot, round): (Slot, Round),
        value: Value,
        out: &mut Out<'_, Self>,
    ) {
        if !self.config.takes_part(self.id, round) {
            return self.refused += 1;
        }
        if round < self.promise && !self.config.has(Canary::ForgetsPromise) {
            out.reached(branch::PHASE_2A_REFUSED);
            let nack = proxy_leader::In::Nack {
                round: self.promise,
            };
            out.send(Envelope::ToProxyLeaders(Set::one(from), nack));
            return self.refuse(round, out);
        }
        if slot < self.votes.base() {
            out.reached(branch::PHASE_2A_FORGOTTEN);
            let forgotten = proxy_leader::In::Forgotten {
                below: self.votes.base(),
            };
            return out.send(Envelope::ToProxyLeaders(Set::one(from), forgotten));
        }
        if !self.votes.admits(slot) {
            self.refused += 1;
            return out.reached(branch::VOTES_FULL);
        }
        self.promise(round, out);
        if self.cast(slot, Vote { round, value }, out) {
            // The leader proposes: what takes long on its way here must not look like its death.
            // Not what is only asked again, which a proxy leader may go on with when the leader is
            // gone.
            self.witness.heard(now);
        }
        let message = proxy_leader::In::Phase2b {
            from: self.id,
            slot,
            round,
        };
        let envelope = Envelope::ToProxyLeaders(Set::one(from), message);
        match self.config.has(Canary::UnfencedVote) {
            // Fenced: a vote that a quorum counts must survive our crash.
            false => out.send(envelope),
            true => out.send_unfenced(envelope),
        }
    }

    /// Votes; false when it has voted so before.
    fn cast(&mut self, slot: Slot, vote: Vote, out: &mut Out<'_, Self>) -> bool {
        let earlier = self.votes.get(slot);
        if let Some(earlier) = earlier.filter(|earlier| earlier.round == vote.round) {
            // A retry. One round has one leader, and a leader proposes one value in a slot. A peer
            // that breaks this rule stops this node: what it has voted for would no longer say what
            // is chosen.
            assert_eq!(
                earlier.value, vote.value,
                "two values proposed in {slot:?} of {:?}",
                vote.round
            );
            return false;
        }
        let known = earlier.is_some_and(|earlier| earlier.value == vote.value);
        if earlier.is_some() && !known {
            out.reached(branch::VOTES_ANEW);
        }
        out.persist(match known {
            true => Record::Confirmed {
                slot,
                round: vote.round,
            },
            false => Record::Voted {
                slot,
                vote: vote.clone(),
            },
        });
        self.votes.insert(slot, vote);
        self.watermark = self.watermark.max(slot.next());
        self.cast += 1;
        true
    }

    /// Hands what it voted for to the replicas of its node: the network carried the value to this
    /// node once already. If it has forgotten the vote, or has another by now, they find a hole and
    /// ask for it.
    fn on_learn(&self, slot: Slot, round: Round, replier: ReplicaId, out: &mut Out<'_, Self>) {
        if let Some(vote) = self.votes.get(slot).filter(|vote| vote.round == round) {
            let message = replica::In::Chosen {
                slot,
                value: vote.value.clone(),
                replier,
            };
            // It reveals no vote: a write quorum has the value on disk, this acceptor's vote
            // included if it was counted. Behind a fence the replicas would wait for votes in other
            // slots.
            out.send_unfenced(Envelope::ToReplicas(
                self.config.replicas_beside(self.id),
                message,
            ));
        } else {
            out.reached(branch::LEARN_UNKNOWN);
        }
    }

    fn on_pre_read(&self, from: ReaderId, inquiry: u64, out: &mut Out<'_, Self>) {
        let (acceptor, watermark, epoch) = (self.id, self.watermark, self.promise.epoch());
        out.send(match from {
            ReaderId::Client { id } => Envelope::ToClients(
                Set::one(id),
                client::In::PreReadAck {
                    from: acceptor,
                    inquiry,
                    watermark,
                    epoch,
                },
            ),
            ReaderId::ReadBatcher { id } => {
                let message = read_batcher::In::PreReadAck {
                    from: acceptor,
                    inquiry,
                    watermark,
                    epoch,
                };
                Envelope::ToReadBatchers(Set::one(id), message)
            }
        });
    }

    fn on_heartbeat(&mut self, now: Instant, round: Round, kept: Slot, out: &mut Out<'_, Self>) {
        if round < self.promise {
            return self.refuse(round, out);
        }
        self.witness.heard(now);
        if kept > self.votes.base() && self.config.takes_part(self.id, round) {
            out.persist(Record::Forgot { below: kept });
            out.release_below(if self.config.has(Canary::TruncatesTooFar) {
                kept.0 + 1
            } else {
                kept.0
            });
            self.forget_below(kept);
        }
    }

    /// Tells its own records from those of another acceptor of its number, which lived on this node
    /// before.
    ///
    /// When that one left, its log was needed no more: it was truncated anywhere, perhaps between a
    /// vote and its confirmation. It left at an epoch without it, and this one takes part in later
    /// epochs alone. So it notes the first of them before anything else, and a restart drops what
    /// is older: as if this one had not crashed, for it began without votes. What the other helped
    /// to choose lies below the frontier, or is held by the quorums in between; its promises bar
    /// only rounds that are over. If a crash takes the note, it takes all that this one wrote with
    /// it. A configuration in which it is new then says the same; in a later one it goes on with
    /// the votes of the other, as one that never left would, and if some of these are cut off above
    /// the frontier it does not start: a node too many that has to be replaced, and no vote lost.
    fn begin(&mut self, recovered: &mut Recovered, out: &mut Out<'_, Self>) {
        let is_new = !self.config.takes_part(self.id, self.config.oldest_round());
        let first = self.config.first_epoch_of(self.id);
        if (is_new || !recovered.any) && first > self.began {
            self.began = first;
            recovered.begin(first);
            self.persist_beginning(out);
        }
    }

    /// One that was there when the cluster was founded has no predecessor.
    fn persist_beginning(&self, out: &mut Out<'_, Self>) {
        if self.began > Epoch::default() {
            out.persist(Record::Began { epoch: self.began });
        }
    }

    fn forget_below(&mut self, slot: Slot) {
        self.votes.advance_to(slot);
        self.watermark = self.watermark.max(slot);
    }

    fn on_pre_vote(&mut self, now: Instant, from: LeaderId, out: &mut Out<'_, Self>) {
        let gone = self
            .witness
            .leader_is_gone(now, self.config.options().election_timeout);
        let message = leader::In::PreVoteReply {
            from: self.id,
            gone,
            promise: self.promise,
        };
        // Unfenced: of what it reveals a crash could undo the promise, and a round above one that
        // was never promised is as good as any. Behind a fence a candidate would wait until large
        // votes are on disk.
        out.send_unfenced(Envelope::ToLeaders(Set::one(from), message));
    }

    /// Takes part again, as if it had promised `round`, forgotten everything below `frontier`, and
    /// voted for nothing above it. `leader/admission` in `docs/protocols/multipaxos.md` has the
    /// argument.
    fn on_admit(&mut self, nonce: u64, round: Round, frontier: Slot, out: &mut Out<'_, Self>) {
        if self
            .rejoin
            .as_ref()
            .is_none_or(|rejoin| rejoin.nonce != nonce)
            || round <= self.promise
        {
            return;
        }
        if !self.config.takes_part(self.id, round) {
            return self.refused += 1;
        }
        self.rejoin = None;
        out.reached(branch::ADMITTED);
        self.promise(round, out);
        out.persist(Record::Forgot { below: frontier });
        out.release_below(frontier.0);
        self.votes.reset(frontier);
        self.watermark = frontier;
    }
}

/// The round below which an acceptor refuses all others, unless it has promised a higher one.
fn oldest_round(config: &Config, acceptor: AcceptorId) -> Round {
    let oldest = config.oldest_round();
    let bars = config.has(Canary::NewcomersBar) && !config.takes_part(acceptor, oldest);
    if bars {
        config.epoch().first_round()
    } else {
        oldest
    }
}

impl Acceptor {
    /// Reports its round, whether it remembers, and [`metrics::ACCEPTOR`].
    pub(crate) fn report_work(&self, status: &mut Status) {
        status.round = Some(self.promise);
        status.remembers = Some(self.rejoin.is_none());
        status.add([self.votes.len() as u64, self.cast, self.refused]);
    }
}

impl Role for Acceptor {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        self.recovered.any = true;
        match record {
            Record::Promised { round } => self.promise = self.promise.max(round),
            Record::Voted { slot, vote } => {
                self.promise = self.promise.max(vote.round);
                self.recovered.votes.insert(slot, vote);
            }
            // Its vote is an earlier record, of the same key.
            Record::Confirmed { slot, round } => {
                self.promise = self.promise.max(round);
                if let Some(vote) = self.recovered.votes.get_mut(&slot) {
                    vote.round = round;
                } else {
                    let bare = self.recovered.bare.entry(round.epoch()).or_default();
                    *bare = slot.next().max(*bare);
                }
            }
            Record::Forgot { below } => {
                self.recovered.forgotten = self.recovered.forgotten.max(below)
            }
            Record::Began { epoch } => {
                self.began = self.began.max(epoch);
                self.recovered.begin(epoch);
            }
        }
    }

    /// A vote is needed until it is forgotten; all else is small and written again at a checkpoint.
    fn key(record: &Record) -> Option<u64> {
        match record {
            Record::Voted { slot, .. } | Record::Confirmed { slot, .. } => Some(slot.0),
            Record::Promised { .. } | Record::Forgot { .. } | Record::Began { .. } => None,
        }
    }

    fn on_start(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        let mut recovered = core::mem::take(&mut self.recovered);
        self.begin(&mut recovered, out);
        if self.config.has(Canary::PardonsEarlierEpochs) {
            recovered.bare = recovered
                .bare
                .split_off(&self.config.oldest_round().epoch());
        }
        let missing = recovered.missing();
        let Recovered {
            votes, forgotten, ..
        } = recovered;
        // Below the frontier no leader asks, whatever was voted for there.
        let unneeded = forgotten.max(self.config.frontier());
        assert!(
            missing <= unneeded,
            "the log confirms a vote below {missing:?} that it does not have"
        );
        self.votes.reset(forgotten);
        self.watermark = forgotten;
        for (slot, vote) in votes.into_iter().filter(|(slot, _)| *slot >= forgotten) {
            self.votes.insert(slot, vote);
            self.watermark = slot.next();
        }
        if self.config.has(Canary::S8WatermarkLost) {
            self.watermark = Slot::ZERO;
        }
        out.release_below(forgotten.0);
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        out.persist_vital(Record::Promised {
            round: self.promise,
        });
        out.persist(Record::Forgot {
            below: self.votes.base(),
        });
        self.persist_beginning(out);
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.config = config;
        // No record: it would be raised again if it were forgotten.
        self.promise = self.promise.max(oldest_round(&self.config, self.id));
        if !self.config.leaders().contains(self.promise.leader()) {
            // A leader that is no longer one is gone: nobody need wait until its silence is
            // noticed.
            self.witness = Witness::default();
        }
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        if self.rejoin.is_some() && !matches!(message, In::Admit { .. }) {
            return;
        }
        match message {
            In::Phase1a {
                from,
                round,
                start,
                end,
            } => self.on_phase1a(now, from, round, start, end, out),
            In::Phase2a {
                from,
                slot,
                round,
                value,
            } => self.on_phase2a(now, from, (slot, round), value, out),
            In::PreRead { from, inquiry } => self.on_pre_read(from, inquiry, out),
            In::Heartbeat { round, kept } => self.on_heartbeat(now, round, kept, out),
            In::PreVote { from } => self.on_pre_vote(now, from, out),
            In::Admit {
                nonce,
                round,
                frontier,
            } => self.on_admit(nonce, round, frontier, out),
            In::Learn {
                slot,
                round,
                replier,
            } => self.on_learn(slot, round, replier, out),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (from, promise) = (self.id, self.promise);
        if let Some(rejoin) = self.rejoin.as_mut().filter(|rejoin| rejoin.ask_at <= now) {
            rejoin.ask_at = now + REJOIN_EVERY;
            let message = leader::In::Rejoin {
                from,
                nonce: rejoin.nonce,
                promise,
            };
            out.send(Envelope::ToLeaders(self.config.leaders(), message));
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.rejoin.as_ref().map(|rejoin| rejoin.ask_at)
    }

    fn invariants(&self) {
        let canary = self.config.canary.is_some();
        assert!(
            canary || self.votes.is_empty() || self.watermark >= self.votes.end(),
            "a watermark below a vote"
        );
        assert!(
            self.config.canary.is_some()
                || self
                    .votes
                    .iter()
                    .all(|(_, vote)| vote.round <= self.promise),
            "an acceptor voted in a round above its promise"
        );
    }

    const METRICS: Metrics = &[metrics::ACCEPTOR_POSITIONS, metrics::ACCEPTOR];

    fn status(&self, status: &mut Status) {
        status.voted = Some(self.watermark);
        status.add([self.votes.base().0]);
        self.report_work(status);
    }
}
