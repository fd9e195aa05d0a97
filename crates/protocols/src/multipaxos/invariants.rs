//! What must hold over all roles at once, at every moment of every run. The simulator asks after
//! each event; each check carries the sentence of the paper that it comes from.

use super::config::Config;
use super::message::Vote;
use super::{Instance, MultiPaxos};
use crate::parts::acceptor::AcceptorCore;
use crate::parts::replica::ReplicaCore;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::status::Agreement;
use ionian_replication::batch::Value;
use ionian_replication::window::SlotWindow;

/// The votes that were cast, by slot and round.
#[derive(Default)]
pub(crate) struct Votes(BTreeMap<(Slot, Round), Voters>);

/// A value that was voted for, and by whom.
struct Voters {
    value: Value,
    /// All that ever voted for it.
    ever: AcceptorSet,
    /// Of these, those whose votes no crash has taken back.
    standing: AcceptorSet,
}

impl Votes {
    fn of(&self, slot: Slot) -> impl Iterator<Item = (Round, &Voters)> {
        let rounds = self.0.range((slot, Round(0))..=(slot, Round(u64::MAX)));
        rounds.map(|((_, round), voters)| (*round, voters))
    }

    /// What was voted for in a slot, by rounds: the round, the value, and who ever voted for it.
    pub(crate) fn in_slot(&self, slot: Slot) -> impl Iterator<Item = (Round, &Value, AcceptorSet)> {
        self.of(slot)
            .map(|(round, voters)| (round, &voters.value, voters.ever))
    }

    /// As [`in_slot`](Votes::in_slot), with those alone whose votes stand.
    pub(crate) fn standing_in(
        &self,
        slot: Slot,
    ) -> impl Iterator<Item = (Round, &Value, AcceptorSet)> {
        self.of(slot)
            .map(|(round, voters)| (round, &voters.value, voters.standing))
    }
}

/// What was chosen in a slot that some replica executes.
struct Chosen {
    /// What replicas execute.
    executed: Value,
    /// What was voted for: a reference that stands for the value, or the value itself.
    voted: Value,
    /// A round in which it was chosen, if it was by votes. In every later one nothing else may be
    /// voted for.
    round: Option<Round>,
}

/// What was looked at of a replica.
struct Seen {
    /// How far it was, and how many values it had learned.
    executed: Slot,
    learned: u64,
    /// Slots from `executed` on whose values were looked at.
    ahead: SlotWindow<()>,
}

/// What acceptors voted for and replicas executed so far in one run, in slots of the log. All
/// protocols that order their log by votes keep one.
#[derive(Default)]
pub(crate) struct Ledger {
    votes: Votes,
    /// What is chosen, as far as replicas execute it.
    chosen: BTreeMap<Slot, Chosen>,
    /// What was looked at of each replica, in its present life.
    seen: SmallMap<Address, Seen>,
}

impl Seen {
    fn nothing() -> Seen {
        Seen {
            executed: Slot::ZERO,
            learned: 0,
            ahead: SlotWindow::new(Slot::ZERO, usize::MAX),
        }
    }
}

impl Ledger {
    /// "The leader assigns log entries to commands" (2.3): one value in a slot of a round. And what
    /// is chosen stays chosen (2.2): no vote for another value is cast in a later round, whether a
    /// replica knows of it or not. `is_write_quorum` says whether those who voted in a round are
    /// enough.
    pub(crate) fn check_vote(
        &mut self,
        from: AcceptorId,
        slot: Slot,
        vote: &Vote,
        is_write_quorum: impl Fn(Round, AcceptorSet) -> bool,
    ) -> Result<(), String> {
        let Vote { round, value } = vote;
        let entry = self.votes.0.entry((slot, *round));
        let (ever, standing) = (AcceptorSet::EMPTY, AcceptorSet::EMPTY);
        let voters = entry.or_insert_with(|| Voters {
            value: value.clone(),
            ever,
            standing,
        });
        if voters.value != *value {
            return Err(format!(
                "two values were voted for in {slot:?} of {round:?}"
            ));
        }
        voters.ever.insert(from);
        if !voters.standing.insert(from) {
            return Ok(());
        }
        let chooses = is_write_quorum(*round, voters.standing);
        for (other, voted, voters) in self
            .votes
            .standing_in(slot)
            .filter(|(_, voted, _)| *voted != value)
        {
            if other < *round && is_write_quorum(other, voters) {
                return Err(against(from, slot, *round, other, voted, value));
            }
            if other > *round && chooses {
                return Err(format!(
                    "{slot:?} is chosen in {round:?} with votes for another value in {other:?}"
                ));
            }
        }
        match self
            .chosen
            .get(&slot)
            .filter(|chosen| chosen.voted != *value)
        {
            Some(Chosen {
                round: Some(other),
                voted,
                ..
            }) if other < round => Err(against(from, slot, *round, *other, voted, value)),
            Some(_) if chooses => Err(format!(
                "{slot:?} is chosen in {round:?} after another value was executed"
            )),
            _ => Ok(()),
        }
    }

    /// "Replicas insert commands into their logs and execute the logs in prefix order" (2.3). And
    /// "every log entry implements consensus" (3.5): one value in a slot, over all rounds and
    /// replicas, however each of them has learned it. `why` says why the votes, or what else, make
    /// a value the one that is chosen in a slot: what was voted for, and a round in which it was
    /// chosen, if it was by votes.
    pub(crate) fn check_replica(
        &mut self,
        address: Address,
        replica: &ReplicaCore,
        mut why: impl FnMut(&Votes, Slot, &Value) -> Option<(Value, Option<Round>)>,
    ) -> Result<(), String> {
        let seen = self.seen.entry(address).or_insert_with(Seen::nothing);
        let (from, executed) = (seen.executed, replica.executed());
        if executed < from {
            return Err(format!(
                "replica {} went back from {from:?} to {executed:?}",
                address.index
            ));
        }
        if replica.agreement() != Agreement::Equal {
            return Err(format!(
                "replica {} finds that replicas have diverged: {:?}",
                address.index,
                replica.agreement()
            ));
        }
        let learns = core::mem::replace(&mut seen.learned, replica.learned()) != replica.learned();
        let held = learns
            .then(|| replica.chosen_from(from))
            .into_iter()
            .flatten();
        for (slot, value) in held {
            if seen.ahead.get(slot).is_some() {
                continue;
            }
            seen.ahead.insert(slot, ());
            match self.chosen.get(&slot) {
                Some(chosen) if chosen.executed == *value => continue,
                Some(_) => {
                    return Err(format!(
                        "replica {} has another value in {slot:?}",
                        address.index
                    ));
                }
                None => {}
            }
            let Some((voted, round)) = why(&self.votes, slot, value) else {
                return Err(format!(
                    "replica {} has a value in {slot:?} that was not chosen",
                    address.index
                ));
            };
            self.chosen.insert(
                slot,
                Chosen {
                    executed: value.clone(),
                    voted,
                    round,
                },
            );
        }
        seen.executed = executed;
        seen.ahead.advance_to(executed);
        Ok(())
    }

    /// A role has crashed.
    pub(crate) fn crashed(&mut self, address: Address) {
        self.seen.remove(&address);
    }

    /// An acceptor has crashed. What it finds again it will show.
    pub(crate) fn acceptor_crashed(&mut self, acceptor: AcceptorId) {
        self.votes
            .0
            .values_mut()
            .for_each(|voters| voters.standing = voters.standing.without(Set::one(acceptor)));
    }
}

fn against(
    from: AcceptorId,
    slot: Slot,
    round: Round,
    chosen: Round,
    voted: &Value,
    value: &Value,
) -> String {
    format!(
        "{from:?} votes in {round:?} against what is chosen in {slot:?} since {chosen:?}: for {value:?}, chosen is {voted:?}"
    )
}

/// What was seen so far in one run.
pub struct Invariants {
    /// Every configuration that some node has ever had.
    configs: SmallMap<Epoch, Arc<Config>>,
    ledger: Ledger,
    /// How many votes of each acceptor were looked at, in its present life.
    seen: SmallMap<Address, u64>,
}

impl protocol::Invariants<MultiPaxos> for Invariants {
    fn new(config: &Arc<Config>) -> Self {
        Invariants {
            configs: [(config.epoch(), config.clone())].into_iter().collect(),
            ledger: Ledger::default(),
            seen: SmallMap::new(),
        }
    }

    fn reconfigured(&mut self, config: &Arc<Config>) {
        self.configs.insert(config.epoch(), config.clone());
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) => self.check_acceptor(address, acceptor.core()).map(drop),
            Instance::Replica(replica) => {
                self.check_replica(address, replica.core(), |_, voted, value| voted == value)
            }
            _ => Ok(()),
        }
    }

    fn crashed(&mut self, address: Address) {
        if self.seen.remove(&address).is_some() {
            self.ledger.acceptor_crashed(AcceptorId(address.index));
        }
        self.ledger.crashed(address);
    }

    fn awaited(&self, instances: &[(Address, &Instance)]) -> Option<String> {
        one_leads(instances.iter().filter_map(|(_, instance)| match instance {
            Instance::Leader(leader) => Some(leader.is_leading()),
            _ => None,
        }))
    }
}

/// Says so unless just one of the leaders leads.
pub(crate) fn one_leads(leaders: impl Iterator<Item = bool>) -> Option<String> {
    let leading = leaders.filter(|leads| *leads).count();
    (leading != 1).then(|| format!("{leading} leaders lead"))
}

impl Invariants {
    /// Looks at the votes of an acceptor; false when they were looked at already.
    pub(crate) fn check_acceptor(
        &mut self,
        address: Address,
        acceptor: &AcceptorCore,
    ) -> Result<bool, String> {
        if self.seen.insert(address, acceptor.votes_cast()) == Some(acceptor.votes_cast()) {
            return Ok(false);
        }
        let from = AcceptorId(address.index);
        let Invariants {
            configs, ledger, ..
        } = self;
        let enough = |round, voters| is_write_quorum(configs, round, voters);
        acceptor
            .votes()
            .try_for_each(|(slot, vote)| ledger.check_vote(from, slot, vote, enough))?;
        Ok(true)
    }

    /// What was chosen in a slot, as far as votes were seen.
    pub(crate) fn chosen_in(&self, slot: Slot) -> Option<&Value> {
        let rounds = self.ledger.votes.in_slot(slot);
        let chosen =
            rounds.filter(|(round, _, voters)| is_write_quorum(&self.configs, *round, *voters));
        chosen.last().map(|(_, voted, _)| voted)
    }

    /// What replicas execute was chosen: "if a value receives votes from a majority of the
    /// acceptors, the value is considered chosen" (2.2), here from a write quorum. `stands_for`
    /// says whether the value that was voted for in a slot, its second argument, stands for the
    /// value that is executed there, the third.
    pub(crate) fn check_replica(
        &mut self,
        address: Address,
        replica: &ReplicaCore,
        mut stands_for: impl FnMut(Slot, &Value, &Value) -> bool,
    ) -> Result<(), String> {
        let Invariants {
            configs, ledger, ..
        } = self;
        ledger.check_replica(address, replica, |votes, slot, value| {
            // Of the rounds in which it may have been chosen the last: a crash can have taken back
            // votes of the first.
            let chosen = votes
                .in_slot(slot)
                .filter(|(round, _, voters)| is_write_quorum(configs, *round, *voters));
            let last = chosen
                .filter(|(_, voted, _)| stands_for(slot, voted, value))
                .last();
            last.map(|(round, voted, _)| (voted.clone(), Some(round)))
        })
    }
}

/// Whether these are enough in the eyes of a node of any configuration that uses the round.
pub(crate) fn is_write_quorum(
    configs: &SmallMap<Epoch, Arc<Config>>,
    round: Round,
    voters: AcceptorSet,
) -> bool {
    let mut quorums = configs
        .values()
        .filter_map(|config| config.quorums_of(round));
    quorums.any(|quorums| quorums.is_write_quorum(voters))
}
