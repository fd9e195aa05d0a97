//! What an acceptor asks of the role that it is part of.

use super::Record;
use crate::parts::message::Votes;
use ionian_kernel::id::*;
use ionian_kernel::time::Timestamp;
use ionian_replication::batch::Value;

/// What an acceptor has done for it by the role that it is part of. A method that returns an
/// envelope only builds it.
pub trait AcceptorPort {
    /// The protocol's envelope.
    type Envelope;
    /// Who asks for votes.
    type Requester: Copy;
    /// Who asks for promises.
    type Candidate: Copy;

    /// Sends when all records so far are on disk.
    fn send(&mut self, envelope: Self::Envelope);
    /// Sends at once.
    fn send_unfenced(&mut self, envelope: Self::Envelope);
    /// Appends a record.
    fn persist(&mut self, record: Record);
    /// Appends a record that is written to disk whatever the durability.
    fn persist_vital(&mut self, record: Record);
    /// Records of slots below this one are not needed any more.
    fn release_below(&mut self, slot: Slot);
    /// A rare branch was taken.
    fn reached(&mut self, branch: &'static str);

    /// A promise and a page of votes, for a leader.
    fn phase1b(
        &self,
        to: Self::Candidate,
        round: Round,
        votes: Votes,
        clock: Timestamp,
    ) -> Self::Envelope;
    /// A vote, for the one that asked for it.
    fn phase2b(&self, to: Self::Requester, slot: Slot, round: Round) -> Self::Envelope;
    /// Tells leaders of the round that it has promised.
    fn nack_leaders(&self, to: Set<LeaderId>, promise: Round) -> Self::Envelope;
    /// Tells one who asked for a vote of the round that it has promised.
    fn nack_requester(&self, to: Self::Requester, promise: Round) -> Self::Envelope;
    /// Tells one who asked for a vote that it has forgotten its votes in all slots below this one.
    fn forgotten(&self, to: Self::Requester, below: Slot) -> Self::Envelope;
    /// A value that is chosen, for replicas on the node; `replier` is to answer the clients.
    fn chosen(
        &self,
        to: Set<ReplicaId>,
        slot: Slot,
        value: Value,
        replier: ReplicaId,
    ) -> Self::Envelope;
    /// Whether it has not heard of a leader lately, for a candidate.
    fn pre_vote_reply(&self, to: LeaderId, gone: bool, promise: Round) -> Self::Envelope;
    /// Asks leaders to let it take part again.
    fn rejoin(&self, to: Set<LeaderId>, nonce: u64, promise: Round) -> Self::Envelope;
}
