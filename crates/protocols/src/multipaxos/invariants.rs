//! What must hold over all roles at once, at every moment of every run. The simulator asks after each
//! event; each check carries the sentence of the paper that it comes from.

use super::acceptor::Acceptor;
use super::config::Config;
use super::replica::Replica;
use super::{Instance, MultiPaxos};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use ionian_kernel::batch::Value;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol;

/// What was seen so far in one run.
pub struct Invariants {
    /// Every configuration that some node has ever had.
    configs: BTreeMap<Epoch, Arc<Config>>,
    /// Who voted for what, by slot and round.
    votes: BTreeMap<(Slot, Round), (Value, AcceptorSet)>,
    /// What is chosen.
    chosen: BTreeMap<Slot, Value>,
    /// How many votes of each acceptor were looked at, in its present life.
    seen: BTreeMap<Address, u64>,
    /// How far each replica was when it was last looked at, in its present life.
    executed: BTreeMap<Address, Slot>,
}

impl protocol::Invariants<MultiPaxos> for Invariants {
    fn new(config: &Arc<Config>) -> Self {
        let (votes, chosen, seen) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let configs = BTreeMap::from([(config.epoch(), config.clone())]);
        Invariants { configs, votes, chosen, seen, executed: BTreeMap::new() }
    }

    fn reconfigured(&mut self, config: &Arc<Config>) {
        self.configs.insert(config.epoch(), config.clone());
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) => self.check_acceptor(address, acceptor),
            Instance::Replica(replica) => self.check_replica(address, replica),
            _ => Ok(()),
        }
    }

    fn crashed(&mut self, address: Address) {
        self.seen.remove(&address);
        self.executed.remove(&address);
    }
}

impl Invariants {
    /// "The leader assigns log entries to commands" (2.3): one value in a slot of a round. Votes count from
    /// the moment they are cast, though a crash may take them back before they are told: that is enough
    /// for what is asked of them here.
    pub(crate) fn check_acceptor(&mut self, address: Address, acceptor: &Acceptor) -> Result<(), String> {
        if self.seen.insert(address, acceptor.votes_cast()) == Some(acceptor.votes_cast()) {
            return Ok(());
        }
        for (slot, vote) in acceptor.votes() {
            let entry = self.votes.entry((slot, vote.round));
            let (value, voters) = entry.or_insert_with(|| (vote.value.clone(), AcceptorSet::EMPTY));
            if *value != vote.value {
                return Err(format!("two values were voted for in {slot:?} of {:?}", vote.round));
            }
            voters.insert(AcceptorId(address.index));
        }
        Ok(())
    }

    /// "Replicas insert commands into their logs and execute the logs in prefix order" (2.3). What they
    /// insert was chosen: "if a value receives votes from a majority of the acceptors, the value is
    /// considered chosen" (2.2), here from a write quorum. And "every log entry implements consensus"
    /// (3.5): one value in a slot, over all rounds and replicas.
    fn check_replica(&mut self, address: Address, replica: &Replica) -> Result<(), String> {
        let from = self.executed.insert(address, replica.executed()).unwrap_or(Slot::ZERO);
        if replica.executed() < from {
            return Err(format!("replica {} went back from {from:?} to {:?}", address.index, replica.executed()));
        }
        for (slot, value) in replica.chosen().filter(|(slot, _)| *slot >= from) {
            match self.chosen.get(&slot) {
                Some(chosen) if chosen == value => {}
                Some(_) => return Err(format!("replica {} has another value in {slot:?}", address.index)),
                None if self.has_quorum(slot, value) => drop(self.chosen.insert(slot, value.clone())),
                None => return Err(format!("replica {} has a value in {slot:?} that was not chosen", address.index)),
            }
        }
        Ok(())
    }

    /// Whether a write quorum has voted for `value` in `slot`, in one round.
    fn has_quorum(&self, slot: Slot, value: &Value) -> bool {
        let mut rounds = self.votes.range((slot, Round(0))..=(slot, Round(u64::MAX)));
        rounds.any(|((_, round), (voted, voters))| voted == value && self.is_write_quorum(*round, *voters))
    }

    /// The values for which a write quorum has voted in `slot`, in one round each: they are all the same.
    pub(crate) fn voted_by_quorum(&self, slot: Slot) -> impl Iterator<Item = &Value> {
        let rounds = self.votes.range((slot, Round(0))..=(slot, Round(u64::MAX)));
        let chosen = rounds.filter(|((_, round), (_, voters))| self.is_write_quorum(*round, *voters));
        chosen.map(|(_, (value, _))| value)
    }

    /// Whether these are enough in the eyes of a node of any configuration that uses the round.
    fn is_write_quorum(&self, round: Round, voters: AcceptorSet) -> bool {
        let quorums = self.configs.values().filter_map(|config| config.quorums_of(round));
        quorums.into_iter().any(|quorums| quorums.is_write_quorum(voters))
    }
}
