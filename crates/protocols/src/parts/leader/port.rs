//! What a leader asks of the role that it is part of.

use super::Record;
use crate::parts::message::Proposer;
use ionian_kernel::id::*;
use ionian_kernel::time::Timestamp;
use ionian_replication::batch::{Batch, Value};
use ionian_replication::settled::Floors;

/// What a leader has done for it by the role that it is part of. All that is sent waits for the
/// records before it.
pub trait LeaderPort {
    /// Appends a record that is written to disk whatever the durability.
    fn persist_vital(&mut self, record: Record);
    /// Asks acceptors for promises, and for their votes in the slots from one up to another;
    /// `again` if they were asked before and have not answered.
    fn phase1a(&mut self, to: AcceptorSet, round: Round, slots: (Slot, Slot), again: bool);
    /// Hands a value to a proxy leader, which is to get it chosen in this slot; `replier` is to
    /// answer the clients.
    fn phase2a(
        &mut self,
        to: ProxyLeaderId,
        slot: (Slot, Round),
        value: Value,
        proposer: Proposer,
        replier: ReplicaId,
    );
    /// Asks acceptors whether they have heard of a leader lately.
    fn pre_vote(&mut self, to: AcceptorSet);
    /// Tells the others that it leads, and how far the log is.
    fn heartbeat(&mut self, heartbeat: Heartbeat);
    /// Tells those that propose that it leads.
    fn new_leader(&mut self, round: Round);
    /// Tells these proposers that it does not lead. The highest round that it knows is `round`.
    fn not_leader(&mut self, clients: Set<ClientId>, batchers: Set<BatcherId>, round: Round);
    /// Lets an acceptor take part again, whose request this nonce names.
    fn admit(&mut self, to: AcceptorId, nonce: u64, round: Round, frontier: Slot);
    /// Asks another leader to take over.
    fn take_over(&mut self, to: LeaderId, round: Round);
    /// Tells another leader that this one does not take over.
    fn decline(&mut self, to: LeaderId);
    /// Whether no proposer waits for a batch any more, by what all that waits says.
    fn settles(&self, floors: &Floors, batch: &Batch) -> bool {
        floors.settle(batch)
    }
    /// A rare branch was taken.
    fn reached(&mut self, branch: &'static str);
}

/// What a leader says of itself now and then.
pub struct Heartbeat {
    /// The other leaders, which need its round alone.
    pub leaders: Set<LeaderId>,
    /// The acceptors, which need its round and what is kept.
    pub acceptors: AcceptorSet,
    /// The replicas, which need all but that.
    pub replicas: Set<ReplicaId>,
    /// Its round.
    pub round: Round,
    /// Some replica has executed every slot below this one.
    pub executed: Slot,
    /// f+1 replicas keep every slot below this one.
    pub kept: Slot,
    /// Replicas are to keep what is below this slot through a crash as soon as it is executed.
    pub keep: Slot,
    /// What it would stamp into the log now.
    pub time: Timestamp,
    /// Whether it leads by the quorums of both configurations, and the replicas of the new one keep
    /// everything that was chosen before.
    pub replicas_are_ready: bool,
}
