//! What must hold over all roles at once, at every moment of every run. The simulator asks after each
//! event; each check carries the sentence of the paper that it comes from.

use super::acceptor::Acceptor;
use super::config::Config;
use super::message::Vote;
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

/// The votes that were cast, by slot and round: the value, and who voted for it.
#[derive(Default)]
pub(crate) struct Votes(BTreeMap<(Slot, Round), (Value, AcceptorSet)>);

impl Votes {
    /// What was voted for in a slot, by rounds: the round, the value, and who voted for it.
    pub(crate) fn in_slot(&self, slot: Slot) -> impl Iterator<Item = (Round, &Value, AcceptorSet)> {
        let rounds = self.0.range((slot, Round(0))..=(slot, Round(u64::MAX)));
        rounds.map(|((_, round), (value, voters))| (*round, value, *voters))
    }
}

/// What acceptors voted for and replicas executed so far in one run, in slots of the log. All protocols that order their
/// log by votes keep one.
#[derive(Default)]
pub(crate) struct Ledger {
    votes: Votes,
    /// What is chosen, as far as replicas execute it.
    chosen: BTreeMap<Slot, Value>,
    /// How far each replica was when it was last looked at, in its present life.
    executed: BTreeMap<Address, Slot>,
}

impl Ledger {
    /// "The leader assigns log entries to commands" (2.3): one value in a slot of a round. Votes count from
    /// the moment they are cast, though a crash may take them back before they are told: that is enough
    /// for what is asked of them here.
    pub(crate) fn check_vote(&mut self, from: AcceptorId, slot: Slot, vote: &Vote) -> Result<(), String> {
        let entry = self.votes.0.entry((slot, vote.round));
        let (value, voters) = entry.or_insert_with(|| (vote.value.clone(), AcceptorSet::EMPTY));
        if *value != vote.value {
            return Err(format!("two values were voted for in {slot:?} of {:?}", vote.round));
        }
        voters.insert(from);
        Ok(())
    }

    /// "Replicas insert commands into their logs and execute the logs in prefix order" (2.3). And "every log entry
    /// implements consensus" (3.5): one value in a slot, over all rounds and replicas, however each of them has learned
    /// it. `is_chosen` says whether the votes make a value the one that is chosen in a slot, or what else does.
    pub(crate) fn check_replica(
        &mut self,
        address: Address,
        replica: &Replica,
        mut is_chosen: impl FnMut(&Votes, Slot, &Value) -> bool,
    ) -> Result<(), String> {
        let from = self.executed.insert(address, replica.executed()).unwrap_or(Slot::ZERO);
        if replica.executed() < from {
            return Err(format!("replica {} went back from {from:?} to {:?}", address.index, replica.executed()));
        }
        for (slot, value) in replica.chosen().filter(|(slot, _)| *slot >= from) {
            match self.chosen.get(&slot) {
                Some(chosen) if chosen == value => {}
                Some(_) => return Err(format!("replica {} has another value in {slot:?}", address.index)),
                None if is_chosen(&self.votes, slot, value) => drop(self.chosen.insert(slot, value.clone())),
                None => return Err(format!("replica {} has a value in {slot:?} that was not chosen", address.index)),
            }
        }
        Ok(())
    }

    /// A role has crashed.
    pub(crate) fn crashed(&mut self, address: Address) {
        self.executed.remove(&address);
    }
}

/// What was seen so far in one run.
pub struct Invariants {
    /// Every configuration that some node has ever had.
    configs: BTreeMap<Epoch, Arc<Config>>,
    ledger: Ledger,
    /// How many votes of each acceptor were looked at, in its present life.
    seen: BTreeMap<Address, u64>,
}

impl protocol::Invariants<MultiPaxos> for Invariants {
    fn new(config: &Arc<Config>) -> Self {
        let configs = BTreeMap::from([(config.epoch(), config.clone())]);
        Invariants { configs, ledger: Ledger::default(), seen: BTreeMap::new() }
    }

    fn reconfigured(&mut self, config: &Arc<Config>) {
        self.configs.insert(config.epoch(), config.clone());
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) => self.check_acceptor(address, acceptor).map(drop),
            Instance::Replica(replica) => self.check_replica(address, replica, |_, voted, value| voted == value),
            _ => Ok(()),
        }
    }

    fn crashed(&mut self, address: Address) {
        self.seen.remove(&address);
        self.ledger.crashed(address);
    }
}

impl Invariants {
    /// Looks at the votes of an acceptor; false when they were looked at already.
    pub(crate) fn check_acceptor(&mut self, address: Address, acceptor: &Acceptor) -> Result<bool, String> {
        if self.seen.insert(address, acceptor.votes_cast()) == Some(acceptor.votes_cast()) {
            return Ok(false);
        }
        let from = AcceptorId(address.index);
        acceptor.votes().try_for_each(|(slot, vote)| self.ledger.check_vote(from, slot, vote))?;
        Ok(true)
    }

    /// What replicas execute was chosen: "if a value receives votes from a majority of the acceptors, the value is
    /// considered chosen" (2.2), here from a write quorum. `stands_for` says whether the value that was voted for in a
    /// slot, its second argument, stands for the value that is executed there, the third.
    pub(crate) fn check_replica(
        &mut self,
        address: Address,
        replica: &Replica,
        mut stands_for: impl FnMut(Slot, &Value, &Value) -> bool,
    ) -> Result<(), String> {
        let Invariants { configs, ledger, .. } = self;
        ledger.check_replica(address, replica, |votes, slot, value| {
            let mut chosen = votes.in_slot(slot).filter(|(round, _, voters)| is_write_quorum(configs, *round, *voters));
            chosen.any(|(_, voted, _)| stands_for(slot, voted, value))
        })
    }
}

/// Whether these are enough in the eyes of a node of any configuration that uses the round.
fn is_write_quorum(configs: &BTreeMap<Epoch, Arc<Config>>, round: Round, voters: AcceptorSet) -> bool {
    let mut quorums = configs.values().filter_map(|config| config.quorums_of(round));
    quorums.any(|quorums| quorums.is_write_quorum(voters))
}
