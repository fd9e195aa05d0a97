//! The part of an acceptor (2.2, 3.2, 3.4) that all protocols share whose log is ordered by votes:
//! its promise, its votes, and how far it has ever voted.
//!
//! Its promises, and with `disk` its votes, must survive its crash: an answer that reveals one is
//! fenced behind its record, unless a comment here says why not. With `memory` an acceptor that has
//! lost its votes takes part again by admission. The [port](AcceptorPort) builds the messages.

mod port;
mod recovery;

pub use self::port::AcceptorPort;
pub use self::recovery::Record;
use self::recovery::Recovered;
use super::branch;
use super::message::{Vote, Votes};
use crate::multipaxos::config::Config;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::status::Status;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::batch::Value;
use ionian_replication::election::Witness;
use ionian_replication::page::Page;
use ionian_replication::window::SlotWindow;

/// How far beyond the oldest slot that it must remember an acceptor votes. Reached only when
/// replicas are missing for very long; it then refuses, and service stops until they are back.
pub const MAX_VOTES: usize = 1 << 22;

/// Bytes of values that it remembers votes for; beyond them it refuses too.
const MAX_VOTE_BYTES: u64 = 4 << 30;

/// With this many slots of votes, or bytes of values, it forgets what replicas keep even if another
/// than its own leader says so.
const MANY_VOTES: usize = 1 << 12;
const MANY_VOTE_BYTES: u64 = 16 << 20;

/// Bytes of votes in one Phase1b, at least one vote.
pub(crate) const PHASE1B_BYTES: usize = 1 << 20;

/// The invariants are checked where the votes span at most this many slots.
const MAX_LOOKED_THROUGH: u64 = 1 << 12;

/// How often an acceptor that lost its memory asks to be let in again.
const REJOIN_EVERY: Duration = Duration::from_millis(300);

/// See the top of this file.
pub struct AcceptorCore {
    id: AcceptorId,
    config: Arc<Config>,
    /// It takes part in no earlier epoch; the first of all if it was there when the cluster was
    /// founded.
    began: Epoch,
    /// It takes part in no lower round.
    promise: Round,
    /// Its last vote in each slot that is not forgotten.
    votes: SlotWindow<Vote>,
    /// The bytes of their values.
    vote_bytes: u64,
    /// Every slot in which it voted, or that it has forgotten, is below this one. Only admission
    /// may lower it.
    watermark: Slot,
    witness: Witness,
    /// What was found again, until it starts.
    recovered: Recovered,
    /// Set while it may not take part, because what an earlier process voted is lost.
    rejoin: Option<Rejoin>,
    cast: u64,
    refused: u64,
}

struct Rejoin {
    nonce: u64,
    ask_at: Instant,
}

impl AcceptorCore {
    /// That of the acceptor of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let nonce = Random::new(birth.seed).any();
        AcceptorCore {
            id: AcceptorId(birth.address.index),
            promise: config.oldest_round(),
            votes: SlotWindow::new(Slot::ZERO, MAX_VOTES),
            vote_bytes: 0,
            watermark: Slot::ZERO,
            witness: Witness::default(),
            recovered: Recovered::default(),
            rejoin: birth.amnesiac.then_some(Rejoin {
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
    pub fn watermark(&self) -> Option<(Slot, Round)> {
        self.rejoin
            .is_none()
            .then_some((self.watermark, self.promise))
    }

    /// It knows nothing of slots below this one any more.
    pub fn forgotten(&self) -> Slot {
        self.votes.base()
    }

    /// The slots in which it has a vote.
    pub fn votes(&self) -> impl Iterator<Item = (Slot, &Vote)> {
        self.votes.iter()
    }

    /// The slot after the highest in which it ever voted, whether it may take part or not.
    pub fn voted(&self) -> Slot {
        self.watermark
    }

    /// Whether it may not take part, because it has lost what it voted for.
    fn has_lost_votes(&self) -> bool {
        self.rejoin.is_some()
    }

    /// Raises the promise; the record goes to disk whatever the durability.
    fn promise(&mut self, round: Round, port: &mut impl AcceptorPort) {
        if round > self.promise {
            self.promise = round;
            port.persist_vital(Record::Promised { round });
        }
    }

    /// A leader asks, itself or through a relay, for a promise, and for the votes in some slots.
    /// Returns the round that it has promised, if that is higher.
    pub fn on_phase1a<P: AcceptorPort>(
        &mut self,
        now: Instant,
        from: P::Candidate,
        round: Round,
        (start, end): (Slot, Slot),
        port: &mut P,
    ) -> Option<Round> {
        if self.has_lost_votes() {
            return None;
        }
        if !self.config.takes_part(self.id, round) {
            self.refused += 1;
            return None;
        }
        if round < self.promise {
            port.reached(branch::PHASE_1A_REFUSED);
            self.refuse(round, port);
            return Some(self.promise);
        }
        self.promise(round, port);
        // Another candidate must not start before this one had its chance.
        self.witness.heard(now);
        let (votes, clock) = (self.votes_between(start, end), now.timestamp());
        if votes.next != Slot::MAX {
            port.reached(branch::VOTES_IN_PAGES);
        }
        port.send(port.phase1b(from, round, votes, clock));
        None
    }

    fn votes_between(&self, start: Slot, end: Slot) -> Votes {
        let (mut votes, mut next) = (Vec::new(), Slot::MAX);
        let mut page = Page::new(PHASE1B_BYTES);
        for (slot, vote) in self.votes.range(start, end) {
            if !page.takes(page_bytes(vote)) {
                next = slot;
                break;
            }
            votes.push((slot, vote.clone()));
        }
        let (forgotten, watermark) = (self.votes.base(), self.watermark);
        Votes {
            start,
            end,
            next,
            votes,
            forgotten,
            watermark,
        }
    }

    /// The leader of an old round must step down, and its proxy leader drop what it has of that
    /// round.
    fn refuse(&mut self, round: Round, port: &mut impl AcceptorPort) {
        self.refused += 1;
        let leader = Set::one(round.leader()).and(self.config.leaders());
        // Unfenced, for it must not wait until large votes are on disk: a leader that learns of a
        // round that a crash undoes steps down needlessly, and no quorum counts refusals.
        port.send_unfenced(port.nack_leaders(leader, self.promise));
    }

    /// A proxy leader asks for a vote, itself or through a relay.
    #[inline]
    pub fn on_phase2a<P: AcceptorPort>(
        &mut self,
        now: Instant,
        from: P::Requester,
        (slot, round): (Slot, Round),
        value: Value,
        port: &mut P,
    ) {
        if self.has_lost_votes() {
            return;
        }
        if !self.config.takes_part(self.id, round) {
            return self.refused += 1;
        }
        if round < self.promise {
            port.reached(branch::PHASE_2A_REFUSED);
            port.send(port.nack_requester(from, self.promise));
            return self.refuse(round, port);
        }
        if slot < self.votes.base() {
            port.reached(branch::PHASE_2A_FORGOTTEN);
            return port.send(port.forgotten(from, self.votes.base()));
        }
        if !self.votes.admits(slot) || self.vote_bytes >= MAX_VOTE_BYTES {
            self.refused += 1;
            return port.reached(branch::VOTES_FULL);
        }
        self.promise(round, port);
        if self.cast(slot, Vote { round, value }, port) {
            // The leader proposes: what takes long on its way here must not look like its death.
            // Not what is only asked again, which a proxy leader may go on with when the leader is
            // gone.
            self.witness.heard(now);
        }
        // Fenced: with `disk` a vote that a quorum counts must survive a crash of this acceptor.
        // (With `memory` it does not: the acceptor then takes part again by admission.)
        port.send(port.phase2b(from, slot, round));
    }

    /// Votes; false when it has voted so before.
    #[inline(always)]
    fn cast(&mut self, slot: Slot, vote: Vote, port: &mut impl AcceptorPort) -> bool {
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
            port.reached(branch::VOTES_ANEW);
        }
        port.persist(match known {
            true => Record::Confirmed {
                slot,
                round: vote.round,
            },
            false => Record::Voted {
                slot,
                vote: vote.clone(),
            },
        });
        self.keep(slot, vote);
        self.watermark = self.watermark.max(slot.next());
        self.cast += 1;
        true
    }

    /// Hands what it voted for to the replicas of its node: the network carried the value to this
    /// node once already. If it has forgotten the vote, or has another by now, they find a hole and
    /// ask for it. Returns whether it has not voted there, in this round or a later one: it may yet
    /// be asked to.
    pub fn on_learn(
        &self,
        slot: Slot,
        round: Round,
        replier: ReplicaId,
        port: &mut impl AcceptorPort,
    ) -> bool {
        if self.has_lost_votes() {
            return false;
        }
        if let Some(vote) = self.votes.get(slot).filter(|vote| vote.round == round) {
            // It reveals no vote: the votes of a write quorum have passed their fences, this
            // acceptor's included if it was counted. Behind a fence the replicas would wait for
            // votes in other slots.
            let replicas = self.config.replicas_beside(self.id);
            port.send_unfenced(port.chosen(replicas, slot, vote.value.clone(), replier));
            return false;
        }
        port.reached(branch::LEARN_UNKNOWN);
        let later = self.votes.get(slot).filter(|vote| vote.round > round);
        later.is_none() && slot >= self.votes.base()
    }

    /// The leader of `round` is alive, and f+1 replicas keep every slot below `kept`. Returns
    /// whether this acceptor takes part in the round.
    pub fn on_heartbeat(
        &mut self,
        now: Instant,
        round: Round,
        kept: Slot,
        port: &mut impl AcceptorPort,
    ) -> bool {
        if self.has_lost_votes() {
            return false;
        }
        // One that is new refuses no round of the configuration before, in which it has no part.
        let takes_part = self.config.takes_part(self.id, round);
        if takes_part && round < self.promise {
            self.refuse(round, port);
            return false;
        }
        self.witness.heard(now);
        if takes_part && kept > self.votes.base() {
            self.forget(kept, port);
        }
        takes_part
    }

    /// f+1 replicas keep every slot below `kept`: a leader that orders another part of the same log
    /// says so, in a round of `epoch`. The leader of this part says so too, with every heartbeat;
    /// but if none reaches this acceptor, its votes would grow without end.
    ///
    /// A leader of an earlier epoch than this part has reached may count replicas that leave, while
    /// those that come miss these slots: its word does not count.
    pub fn on_kept(&mut self, kept: Slot, epoch: Epoch, port: &mut impl AcceptorPort) {
        let has_many = self.votes.len() >= MANY_VOTES || self.vote_bytes >= MANY_VOTE_BYTES;
        if has_many
            && epoch >= self.promise.epoch()
            && !self.has_lost_votes()
            && kept > self.votes.base()
            && self.config.takes_part(self.id, self.promise)
        {
            port.reached(branch::FORGETS_BY_ANOTHER);
            self.forget(kept, port);
        }
    }

    fn forget(&mut self, kept: Slot, port: &mut impl AcceptorPort) {
        port.persist(Record::Forgot { below: kept });
        port.release_below(kept);
        self.forget_below(kept);
    }

    /// Notes its vote in a slot, in place of an earlier one.
    #[inline(always)]
    fn keep(&mut self, slot: Slot, vote: Vote) {
        self.vote_bytes += bytes(&vote);
        let earlier = self.votes.insert(slot, vote);
        self.vote_bytes -= earlier.as_ref().map_or(0, bytes);
    }

    fn forget_below(&mut self, slot: Slot) {
        let left = &mut self.vote_bytes;
        self.votes.advance_with(slot, |vote| *left -= bytes(vote));
        self.watermark = self.watermark.max(slot);
    }

    /// A candidate asks whether it has heard of a leader lately.
    pub fn on_pre_vote(&mut self, now: Instant, from: LeaderId, port: &mut impl AcceptorPort) {
        if self.has_lost_votes() {
            return;
        }
        let gone = self
            .witness
            .leader_is_gone(now, self.config.options().election_timeout);
        // Unfenced: of what it reveals a crash could undo the promise, and a round above one that
        // was never promised is as good as any. Behind a fence a candidate would wait until large
        // votes are on disk.
        port.send_unfenced(port.pre_vote_reply(from, gone, self.promise));
    }

    /// Takes part again, as if it had promised `round`, forgotten everything below `frontier`, and
    /// voted for nothing above it. "Admission" in `docs/protocols/multipaxos.md` has the argument.
    pub fn on_admit(
        &mut self,
        nonce: u64,
        round: Round,
        frontier: Slot,
        port: &mut impl AcceptorPort,
    ) {
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
        port.reached(branch::ADMITTED);
        self.promise(round, port);
        port.persist(Record::Forgot { below: frontier });
        port.release_below(frontier);
        self.votes.reset(frontier);
        self.vote_bytes = 0;
        self.watermark = frontier;
    }

    /// Asks to be let in again, if it is time to.
    pub fn on_timer(&mut self, now: Instant, port: &mut impl AcceptorPort) {
        if let Some(rejoin) = self.rejoin.as_mut().filter(|rejoin| rejoin.ask_at <= now) {
            rejoin.ask_at = now + REJOIN_EVERY;
            let nonce = rejoin.nonce;
            port.send(port.rejoin(self.config.leaders(), nonce, self.promise));
        }
    }

    /// When it next wants to be called though nothing arrives.
    pub fn next_timer(&self) -> Option<Instant> {
        self.rejoin.as_ref().map(|rejoin| rejoin.ask_at)
    }

    /// The membership has changed, or an option.
    pub fn reconfigure(&mut self, config: Arc<Config>) {
        self.config = config;
        // No record: it would be raised again if it were forgotten.
        self.promise = self.promise.max(self.config.oldest_round());
        if !self.config.leaders().contains(self.promise.leader()) {
            // A leader that is no longer one is gone: candidates need not wait for a timeout.
            self.witness = Witness::default();
        }
    }

    /// Asserts what must hold between two calls.
    pub fn invariants(&self) {
        assert!(
            self.votes.is_empty() || self.watermark >= self.votes.end(),
            "a watermark below a vote"
        );
        // Where a stripe of Mencius is revoked far ahead, looking through all of it takes too long.
        if self.votes.end().distance(self.votes.base()) > MAX_LOOKED_THROUGH {
            return;
        }
        let bytes: u64 = self.votes.iter().map(|(_, vote)| bytes(vote)).sum();
        assert_eq!(bytes, self.vote_bytes, "an acceptor miscounts its votes");
        assert!(
            self.votes
                .iter()
                .all(|(_, vote)| vote.round <= self.promise),
            "an acceptor voted in a round above its promise"
        );
    }

    /// Reports its round, whether it remembers, and [its work](super::metrics::ACCEPTOR).
    pub(crate) fn report_work(&self, status: &mut Status) {
        status.round = Some(self.promise);
        status.remembers = Some(self.rejoin.is_none());
        status.add([
            self.votes.len() as u64,
            self.votes.room() as u64,
            self.vote_bytes,
            self.cast,
            self.refused,
        ]);
    }
}

/// What a vote counts for in a page.
pub(crate) fn page_bytes(vote: &Vote) -> usize {
    vote.value.batch.byte_len() + 32
}

/// What a vote counts for in the limit.
fn bytes(vote: &Vote) -> u64 {
    vote.value.batch.byte_len() as u64
}
