//! What the records of acceptors say of the log: in each slot, the vote of the highest round
//! counts, as in phase 1.
//!
//! With the records of a read quorum this is what a new leader would propose, and no acknowledged
//! write is lost. With fewer it is the best possible guess.

use super::acceptor::Record;
use super::message::Vote;
use crate::multipaxos::config::{Config, Highest};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout};

/// The instances of one kind whose records were read, each with the name of its node: another node
/// may have got an instance of the same number since.
pub type Authors<I> = BTreeSet<(I, String)>;

/// The authors that are instances of this kind in a layout, on the nodes on which it has them.
pub fn members<I: Id>(authors: &Authors<I>, layout: &Layout, kind: u8) -> Set<I> {
    let is_member = |(author, node): &&(I, String)| {
        let index = author.index();
        let place = layout.node_of(Address { kind, index });
        place.is_some_and(|place| layout.name(place) == *node)
    };
    let members = authors.iter().filter(is_member);
    members.map(|(author, _)| *author).collect()
}

/// The votes of acceptors.
#[derive(Debug, Default)]
pub struct Votes {
    /// The vote of the highest round in each slot.
    highest: BTreeMap<Slot, Vote>,
    /// The last vote of each acceptor of the node whose records are read: it confirms some of them
    /// in higher rounds.
    own: BTreeMap<(AcceptorId, Slot), Vote>,
    node: String,
    /// Whose they are.
    pub acceptors: Authors<AcceptorId>,
    /// An acceptor has forgotten all slots below this one, so replicas keep them.
    pub forgotten: Slot,
    /// The latest epoch in which an acceptor has promised a round.
    pub epoch: Epoch,
}

impl Votes {
    /// Takes in a record of an acceptor.
    pub fn read(&mut self, node: &str, acceptor: AcceptorId, record: Record) {
        if self.node != node {
            (self.node, self.own) = (node.to_owned(), BTreeMap::new());
        }
        self.acceptors.insert((acceptor, node.to_owned()));
        match record {
            Record::Promised { round } => self.promised(round),
            Record::Voted { slot, vote } => {
                self.promised(vote.round);
                self.own.insert((acceptor, slot), vote.clone());
                self.add(slot, vote);
            }
            Record::Confirmed { slot, round } => {
                self.promised(round);
                if let Some(vote) = self.own.get_mut(&(acceptor, slot)) {
                    vote.round = round;
                    let vote = vote.clone();
                    self.add(slot, vote);
                }
            }
            Record::Forgot { below } => self.forgotten = self.forgotten.max(below),
            Record::Began { .. } => {}
        }
    }

    fn promised(&mut self, round: Round) {
        self.epoch = self.epoch.max(round.epoch());
    }

    fn add(&mut self, slot: Slot, vote: Vote) {
        let highest = self.highest.get(&slot);
        if highest.is_none_or(|highest| highest.round < vote.round) {
            self.highest.insert(slot, vote);
        }
    }

    /// The vote of the highest round in each slot from `start` on.
    pub fn from(&self, start: Slot) -> impl Iterator<Item = (Slot, &Vote)> {
        let votes = self.highest.range(start..);
        votes.map(|(slot, vote)| (*slot, vote))
    }

    /// Whether these acceptors know every acknowledged write, given that `config` is of the newest
    /// membership. It is if none of them has promised a later epoch, which acceptors do before they
    /// leave.
    pub fn are_enough(&self, config: &Config) -> bool {
        let kind = crate::multipaxos::kind::Acceptor;
        let members = members(&self.acceptors, config.layout(), kind);
        config.can_read(members, Highest::new(self.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use ionian_kernel::layout::{NodeId, numbered};
    use ionian_kernel::time::Timestamp;
    use ionian_replication::batch::{Batch, Value};

    const PROMISED: Record = Record::Promised {
        round: Round::new(Epoch(0), 1, LeaderId(0)),
    };

    /// Three servers, n0 to n2, in this epoch.
    fn config(epoch: Epoch) -> Config {
        let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
        let instances = (0..crate::multipaxos::KINDS.len()).map(|_| nodes.clone());
        let names = ["n0", "n1", "n2"].map(str::to_owned);
        Config::new(Layout {
            f: 1,
            epoch,
            instances: numbered(instances.collect()),
            names: names.into(),
            ..Layout::default()
        })
        .unwrap()
    }

    fn votes(acceptors: &[(u8, &str)]) -> Votes {
        let mut votes = Votes::default();
        for (index, node) in acceptors {
            votes.read(node, AcceptorId(*index), PROMISED);
        }
        votes
    }

    /// When a node leaves, the next new node gets the number of its acceptor.
    #[test]
    fn an_acceptor_of_a_removed_node_does_not_count_for_its_successor() {
        let are_enough = |acceptors: &[_]| votes(acceptors).are_enough(&config(Epoch(0)));
        assert!(are_enough(&[(0, "n0"), (2, "n2")]));
        assert!(!are_enough(&[(0, "n0")]));
        assert!(!are_enough(&[(0, "n0"), (2, "left")]));
        assert!(are_enough(&[(0, "n0"), (1, "n1"), (2, "left")]));
    }

    #[test]
    fn acceptors_that_promised_a_later_epoch_are_not_enough() {
        let mut votes = votes(&[(0, "n0"), (2, "n2")]);
        let round = Round::new(Epoch(1), 1, LeaderId(0));
        votes.read("n2", AcceptorId(2), Record::Promised { round });
        assert!(!votes.are_enough(&config(Epoch(0))) && votes.are_enough(&config(Epoch(1))));
    }

    #[test]
    fn a_vote_that_was_confirmed_in_a_higher_round_counts() {
        let round = |count| Round::new(Epoch(0), count, LeaderId(0));
        let vote = |count, stamp| Vote {
            round: round(count),
            value: Value {
                stamp: Timestamp(stamp),
                batch: Batch::default(),
            },
        };
        let mut votes = Votes::default();
        let mut read = |node: &str, index, record| votes.read(node, AcceptorId(index), record);
        let voted = |slot, vote| Record::Voted {
            slot: Slot(slot),
            vote,
        };
        let confirmed = |slot, count| Record::Confirmed {
            slot: Slot(slot),
            round: round(count),
        };
        read("n0", 0, voted(5, vote(2, 20)));
        read("n0", 0, voted(6, vote(2, 21)));
        read("n1", 1, voted(5, vote(1, 10)));
        read("n1", 1, voted(6, vote(1, 11)));
        read("n1", 1, confirmed(6, 3));
        // Its vote is in another log, or gone.
        read("n2", 0, confirmed(5, 9));
        read("n2", 0, Record::Forgot { below: Slot(4) });
        let stamps = |start| {
            let votes = votes.from(Slot(start));
            let stamps = votes.map(|(slot, vote)| (slot.0, vote.value.stamp.0));
            stamps.collect::<Vec<_>>()
        };
        assert_eq!(stamps(0), [(5, 20), (6, 11)]);
        assert_eq!(stamps(6), [(6, 11)]);
        assert_eq!(votes.forgotten, Slot(4));
        assert_eq!(votes.acceptors.len(), 3);
    }
}
