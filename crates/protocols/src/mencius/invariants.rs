//! What must hold over all roles at once, at every moment of every run: MultiPaxos's facts in every stripe, and what
//! skipping adds to them.

use super::acceptor::Acceptor;
use super::config::Config;
use super::replica::Replica;
use super::stripe::Stripe;
use super::{Instance, Mencius};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use ionian_kernel::batch::Value;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol;
use ionian_kernel::slot_map::SlotMap;

/// What was seen so far in one run.
pub struct Invariants {
    config: Arc<Config>,
    /// Who voted for what, by slot of the log and round of its stripe.
    votes: BTreeMap<(Slot, Round), (Value, AcceptorSet)>,
    /// What is chosen, by votes or by being skipped.
    chosen: BTreeMap<Slot, Value>,
    /// The votes of each acceptor that were looked at in each stripe, in its present life.
    seen: BTreeMap<(Address, Stripe), Seen>,
    /// How far each replica was when it was last looked at, in its present life.
    executed: BTreeMap<Address, Slot>,
}

/// Votes that were looked at.
#[derive(Default)]
struct Seen {
    /// How many were cast by then.
    cast: u64,
    /// The round of the last in each position.
    rounds: SlotMap<Round>,
}

impl protocol::Invariants<Mencius> for Invariants {
    fn new(config: &Arc<Config>) -> Self {
        let (votes, chosen, seen) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Invariants { config: config.clone(), votes, chosen, seen, executed: BTreeMap::new() }
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) => self.check_acceptor(address, acceptor),
            Instance::Replica(replica) => self.check_replica(address, replica),
            _ => Ok(()),
        }
    }

    fn crashed(&mut self, address: Address) {
        self.seen.retain(|(known, _), _| *known != address);
        self.executed.remove(&address);
    }
}

impl Invariants {
    /// One value in a slot of a round. Votes count from the moment they are cast, though a crash may take them back
    /// before they are told: that is enough for what is asked of them here.
    fn check_acceptor(&mut self, address: Address, acceptor: &Acceptor) -> Result<(), String> {
        for (stripe, acceptor) in acceptor.stripes() {
            let seen = self.seen.entry((address, stripe)).or_default();
            if core::mem::replace(&mut seen.cast, acceptor.votes_cast()) == acceptor.votes_cast() && seen.cast > 0 {
                continue;
            }
            for (position, vote) in acceptor.votes() {
                if seen.rounds.insert(position, vote.round) == Some(vote.round) {
                    continue;
                }
                let slot = self.config.stripes.slot(stripe, position);
                let entry = self.votes.entry((slot, vote.round));
                let (value, voters) = entry.or_insert_with(|| (vote.value.clone(), AcceptorSet::EMPTY));
                if *value != vote.value {
                    return Err(format!("two values were voted for in {slot:?} of {:?}", vote.round));
                }
                voters.insert(AcceptorId(address.index));
            }
        }
        Ok(())
    }

    /// Replicas execute what was chosen: what a write quorum voted for in one round, or a noop where a leader skipped:
    /// "because all other servers can only propose no-op, when the coordinator proposes no-op, any server learns that
    /// no-op has been chosen" (Mencius 4.2). And one value in a slot, over all rounds and replicas, however each of
    /// them has learned it.
    fn check_replica(&mut self, address: Address, replica: &Replica) -> Result<(), String> {
        let from = self.executed.insert(address, replica.executed()).unwrap_or(Slot::ZERO);
        if replica.executed() < from {
            return Err(format!("replica {} went back from {from:?} to {:?}", address.index, replica.executed()));
        }
        for (slot, value) in replica.chosen().filter(|(slot, _)| *slot >= from) {
            let (stripe, _) = self.config.stripes.place(slot);
            match self.chosen.get(&slot) {
                Some(chosen) if chosen == value => {}
                Some(_) => return Err(format!("replica {} has another value in {slot:?}", address.index)),
                None if *value == Value::default() || self.has_quorum(stripe, slot, value) => {
                    self.chosen.insert(slot, value.clone());
                }
                None => return Err(format!("replica {} has a value in {slot:?} that was not chosen", address.index)),
            }
        }
        Ok(())
    }

    /// Whether a write quorum has voted for `value` in `slot`, in one round.
    fn has_quorum(&self, stripe: Stripe, slot: Slot, value: &Value) -> bool {
        let quorums = &self.config.of(stripe).quorums;
        let mut rounds = self.votes.range((slot, Round(0))..=(slot, Round(u64::MAX)));
        rounds.any(|(_, (voted, voters))| voted == value && quorums.is_write_quorum(*voters))
    }
}
