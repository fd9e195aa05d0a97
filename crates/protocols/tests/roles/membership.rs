//! Changes of the membership, with real leaders, acceptors and readers: nothing but the order of
//! messages is made up. The simulator changes one node at a time, and starts each; so it met none
//! of this.

use crate::stage::{Stage, batch, birth, with_acceptors};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::Role;
use ionian_kernel::time::{Instant, Timestamp};
use ionian_protocols::multipaxos::acceptor::Acceptor;
use ionian_protocols::multipaxos::config::Highest;
use ionian_protocols::multipaxos::leader::{self, Leader};
use ionian_protocols::multipaxos::message::{Proposer, Times, Votes};
use ionian_protocols::multipaxos::read_batcher::ReadBatcher;
use ionian_protocols::multipaxos::{
    Envelope, MultiPaxos, acceptor, kind, proxy_leader, read_batcher, replica,
};
use std::collections::VecDeque;

type Config = <MultiPaxos as Protocol>::Config;

/// The acceptors of the configuration before, of one that replaces the first, and of one that
/// replaces all.
const C: &[u8] = &[0, 1, 2];
const D: &[u8] = &[1, 2, 3];
const ALL_NEW: &[u8] = &[3, 4, 5];

struct Cluster {
    now: Instant,
    leader: Stage<Leader>,
    acceptors: Vec<Stage<Acceptor>>,
}

/// The configuration of these acceptors, in force since its epoch but for the first; or one that
/// changes into `next`.
fn config(epoch: u32, frontier: u64, acceptors: &[u8], next: Option<&[u8]>) -> Config {
    let since = Epoch(if next.is_some() { 0 } else { epoch });
    let next = next.map(|next| Box::new(with_acceptors(next)));
    let layout = Layout {
        epoch: Epoch(epoch),
        since,
        frontier: Slot(frontier),
        next,
        ..with_acceptors(acceptors)
    };
    MultiPaxos::configure(layout).expect("a deployment")
}

impl Cluster {
    /// Of the configuration C, with a leader that was elected by all three.
    fn new() -> Cluster {
        let c = config(0, 0, C, None);
        let now = Instant(6_000_000);
        let leader = Stage::new(c.clone(), &birth(kind::Leader, 0, NodeId(99)), Leader::new);
        let mut cluster = Cluster {
            now,
            leader,
            acceptors: Vec::new(),
        };
        C.iter().for_each(|index| cluster.start(&c, *index));
        cluster.run(C, &[]);
        assert_eq!(cluster.leader.figure("leading"), 1);
        cluster
    }

    fn start(&mut self, config: &Config, index: u8) {
        let birth = birth(kind::Acceptor, index, NodeId(20 + u16::from(index)));
        assert_eq!(usize::from(index), self.acceptors.len());
        self.acceptors
            .push(Stage::new(config.clone(), &birth, Acceptor::new));
    }

    /// What the leader sends goes to the acceptors in `reach`, and their answers back, until
    /// nothing is left. Of proposals only those in `vote` get to vote. Returns the proposals.
    fn exchange(&mut self, sent: Vec<Envelope>, reach: &[u8], vote: &[u8]) -> Vec<(Slot, Round)> {
        let (mut queue, mut proposed) = (VecDeque::from(sent), Vec::new());
        while let Some(envelope) = queue.pop_front() {
            match envelope {
                Envelope::ToAcceptors(to, message) => {
                    for index in reach
                        .iter()
                        .filter(|index| to.contains(AcceptorId(**index)))
                    {
                        queue.extend(self.acceptors[usize::from(*index)].tell(message.clone()));
                    }
                }
                Envelope::ToLeaders(to, message) if to.contains(LeaderId(0)) => {
                    queue.extend(self.leader.tell(message));
                }
                Envelope::ToProxyLeaders(
                    _,
                    proxy_leader::In::Phase2a {
                        slot, round, value, ..
                    },
                ) => {
                    proposed.push((slot, round));
                    for index in vote {
                        let (from, value) = (ProxyLeaderId(0), value.clone());
                        self.acceptors[usize::from(*index)].tell(acceptor::In::Phase2a {
                            from,
                            slot,
                            round,
                            value,
                        });
                    }
                }
                _ => {}
            }
        }
        proposed
    }

    /// The leader's next timer, and what comes of it.
    fn run(&mut self, reach: &[u8], vote: &[u8]) -> Vec<(Slot, Round)> {
        self.leader.now = self.leader.now.max(self.now);
        let sent = self.leader.timer();
        self.now = self.leader.now;
        self.acceptors
            .iter_mut()
            .for_each(|acceptor| acceptor.now = self.now);
        self.exchange(sent, reach, vote)
    }

    /// The leader and the acceptors hear of a configuration.
    fn reconfigure(&mut self, config: &Config, reach: &[u8]) -> Vec<(Slot, Round)> {
        for acceptor in &mut self.acceptors {
            acceptor.reconfigure(config.clone());
        }
        let sent = self.leader.reconfigure(config.clone());
        self.exchange(sent, reach, reach)
    }

    fn propose(&mut self, vote: &[u8]) -> Slot {
        let (proposer, near) = (Proposer::Client { id: ClientId(0) }, Set::EMPTY);
        let sent = self.leader.tell(leader::In::Propose {
            proposer,
            near,
            batch: batch("write"),
            again: false,
        });
        self.exchange(sent, &[], vote)[0].0
    }
}

/// The slots that a replica must have executed for the reads that are sent on.
fn reads(sent: &[Envelope]) -> Option<Slot> {
    sent.iter().find_map(|envelope| match envelope {
        Envelope::ToReplicas(_, replica::In::Read { executed, .. }) => Some(*executed),
        _ => None,
    })
}

fn question(sent: &[Envelope]) -> acceptor::In {
    let questions = sent.iter().find_map(|envelope| match envelope {
        Envelope::ToAcceptors(_, message @ acceptor::In::PreRead { .. }) => Some(message.clone()),
        _ => None,
    });
    questions.expect("it asks")
}

fn answer(sent: Vec<Envelope>) -> read_batcher::In {
    let answers = sent.into_iter().find_map(|envelope| match envelope {
        Envelope::ToReadBatchers(_, message) => Some(message),
        _ => None,
    });
    answers.expect("an answer")
}

/// A read asks acceptors 1 and 3: acceptor 1 in C, and acceptor 3, which is new and has not voted
/// for anything yet, in the joint configuration. In D both are a read quorum. Returns where the
/// last write is, and how far a replica must be for the read.
fn a_read_across_a_change() -> (Slot, Option<Slot>) {
    let mut cluster = Cluster::new();
    let joint = config(1, 0, C, Some(D));
    let mut reader = Stage::new(
        config(0, 0, C, None),
        &birth(kind::ReadBatcher, 0, NodeId(98)),
        ReadBatcher::new,
    );
    // W is chosen by acceptors 0 and 2, executed and acknowledged before the read begins.
    for _ in 0..9 {
        cluster.propose(&[0, 1]);
    }
    let write = cluster.propose(&[0, 2]);
    let asked = question(&reader.tell(read_batcher::In::Reads { reads: batch("?") }));
    let told = answer(cluster.acceptors[1].tell(asked));
    assert_eq!(reads(&reader.tell(told)), None);
    // The change begins, and acceptor 3 starts. It is asked, and its answer is slow.
    cluster.start(&joint, 3);
    reader.reconfigure(joint.clone());
    let asked = question(&reader.timer());
    let slow = answer(cluster.acceptors[3].tell(asked));
    // A joint round chooses something, and the change is finished.
    let mut proposed = cluster.reconfigure(&joint, C);
    for _ in 0..9 {
        proposed.extend(cluster.run(&[0, 1, 2, 3], C));
    }
    let in_joint_round = proposed
        .iter()
        .filter(|(_, round)| round.epoch() == Epoch(1));
    let frontier = in_joint_round
        .map(|(slot, _)| slot.next())
        .max()
        .expect("a joint round");
    assert!(frontier > write);
    reader.reconfigure(config(2, frontier.0, D, None));
    if let Some(executed) = reads(&reader.tell(slow)) {
        return (write, Some(executed));
    }
    // It asks anew, and the same two answer.
    let asked = question(&reader.timer());
    let answers = [1, 3].map(|index| answer(cluster.acceptors[index].tell(asked.clone())));
    let sent = answers.map(|answer| reader.tell(answer));
    (write, reads(&sent[1]))
}

#[test]
pub(crate) fn a_read_across_a_change_is_not_stale() {
    let (write, executed) = a_read_across_a_change();
    assert!(executed.expect("the read is sent on") > write);
}

/// A cluster changes to three new nodes at once, of which the first alone is started. Whether the
/// leader still leads after a while, and whether it is elected again when it was deposed.
fn one_of_three_new_nodes_is_up() -> (bool, bool) {
    let mut cluster = Cluster::new();
    let joint = config(1, 0, C, Some(ALL_NEW));
    cluster.start(&joint, 3);
    let reached = [0, 1, 2, 3];
    cluster.reconfigure(&joint, &reached);
    (0..50).for_each(|_| drop(cluster.run(&reached, C)));
    let leads_on = cluster.leader.figure("leading") == 1;
    // Another leader had a round of C, and is gone.
    let round = Round::new(Epoch(0), 1000, LeaderId(1));
    cluster.leader.tell(leader::In::Nack { round });
    (0..200).for_each(|_| drop(cluster.run(&reached, C)));
    (leads_on, cluster.leader.figure("leading") == 1)
}

#[test]
fn a_new_acceptor_does_not_bar_the_old_ones() {
    assert_eq!(one_of_three_new_nodes_is_up(), (true, true));
}

/// Acceptors 3 to 5 of the new configuration are up in turn, never together. The epoch of the
/// leader's round.
fn new_nodes_are_up_in_turn() -> (u64, bool) {
    let mut cluster = Cluster::new();
    let joint = config(1, 0, C, Some(ALL_NEW));
    (3..6).for_each(|index| cluster.start(&joint, index));
    cluster.reconfigure(&joint, &[0, 1, 2, 3]);
    (0..9).for_each(|_| drop(cluster.run(&[0, 1, 2, 3, 4], C)));
    (0..9).for_each(|_| drop(cluster.run(&[0, 1, 2, 4, 5], C)));
    let leads = cluster.leader.figure("leading") == 1;
    (cluster.leader.figure("epoch"), leads)
}

#[test]
pub(crate) fn new_acceptors_must_be_reached_together_before_a_round_needs_them() {
    assert_eq!(new_nodes_are_up_in_turn(), (0, true));
    // Together they are enough.
    let mut cluster = Cluster::new();
    let joint = config(1, 0, C, Some(ALL_NEW));
    (3..6).for_each(|index| cluster.start(&joint, index));
    let all = [0, 1, 2, 3, 4, 5];
    cluster.reconfigure(&joint, &all);
    (0..9).for_each(|_| drop(cluster.run(&all, C)));
    assert_eq!(
        (
            cluster.leader.figure("epoch"),
            cluster.leader.figure("leading")
        ),
        (1, 1)
    );
}

/// Acceptor 5 of the new configuration has lost its memory. It asks to take part again while
/// acceptor 4 is not up, and also later only if it `stays`. The epoch of the leader's round.
fn one_asks_to_take_part_again(stays: bool) -> u64 {
    let mut cluster = Cluster::new();
    let joint = config(1, 0, C, Some(ALL_NEW));
    (3..6).for_each(|index| cluster.start(&joint, index));
    cluster.reconfigure(&joint, &[0, 1, 2, 3]);
    for turn in 0..40 {
        if stays || turn == 0 {
            let (from, nonce, promise) = (AcceptorId(5), 7, Round(0));
            let asks = leader::In::Rejoin {
                from,
                nonce,
                promise,
            };
            cluster.leader.tell(asks);
        }
        let reached: &[u8] = if turn < 20 {
            &[0, 1, 2, 3]
        } else {
            &[0, 1, 2, 3, 4]
        };
        cluster.run(reached, C);
    }
    cluster.leader.figure("epoch")
}

#[test]
fn a_new_acceptor_that_asked_to_take_part_again_counts_as_present_while_it_asks() {
    assert_eq!([true, false].map(one_asks_to_take_part_again), [1, 0]);
}

/// Otherwise it would be refused once, and clients would wait for an election.
#[test]
fn a_round_of_both_configurations_is_above_all_that_acceptors_have_named() {
    let mut leader = Cluster::new().leader;
    leader.reconfigure(config(1, 0, C, Some(ALL_NEW)));
    let named = Round::new(Epoch(1), 7, LeaderId(1));
    let none = Round(0);
    let answers = [(3, named), (4, none), (5, none), (0, none), (1, none)];
    let sent = answers.map(|(from, promise)| {
        leader.tell(leader::In::PreVoteReply {
            from: AcceptorId(from),
            gone: false,
            promise,
        })
    });
    let begun = sent.iter().flatten().find_map(|sent| match sent {
        Envelope::ToAcceptors(_, acceptor::In::Phase1a { round, .. }) => Some(*round),
        _ => None,
    });
    assert!(begun.expect("it begins") > named, "{begun:?}");
}

/// Whether an acceptor starts whose log confirms a vote of this epoch and does not have the vote
/// itself.
fn starts_with_a_bare_confirmation(config: Config, acceptor: u8, epoch: u32) -> bool {
    let record = acceptor::Record::Confirmed {
        slot: Slot(7),
        round: Epoch(epoch).first_round(),
    };
    let start = || {
        let birth = birth(kind::Acceptor, acceptor, NodeId(20 + u16::from(acceptor)));
        let recovered = |config, birth: &Birth<'_>| {
            let mut acceptor = Acceptor::new(config, birth);
            acceptor.recover(record);
            acceptor
        };
        Stage::new(config, &birth, recovered)
            .role
            .core()
            .votes()
            .count()
            == 0
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(start)).unwrap_or(false)
}

/// An acceptor leaves, its log is truncated, and one of the same number comes back to the node,
/// which then crashes: it could never start again. The simulator had no run in which the log was
/// cut between a vote and its confirmation.
#[test]
fn what_is_left_of_an_acceptor_that_lived_here_before_keeps_its_successor_from_nothing() {
    let joint = || config(3, 0, D, Some(C));
    assert!(
        starts_with_a_bare_confirmation(joint(), 0, 1),
        "of an earlier life"
    );
    assert!(
        !starts_with_a_bare_confirmation(config(4, 0, C, None), 0, 3),
        "its own, of a configuration that is over"
    );
    assert!(
        starts_with_a_bare_confirmation(config(4, 8, C, None), 0, 3),
        "below the frontier no leader asks"
    );
    assert!(!starts_with_a_bare_confirmation(joint(), 0, 3), "its own");
    assert!(
        !starts_with_a_bare_confirmation(joint(), 1, 1),
        "its own, for it has been there since"
    );
}

/// Leader 1 of the epochs up to 3 is another than that of epoch 4. Acceptor 0 has promised the
/// former one a round that the other acceptors do not know, and does not answer the latter: it must
/// begin a round of its own epoch.
#[test]
pub(crate) fn rounds_begin_in_the_last_epoch_with_their_quorums() {
    let joint = Layout {
        epoch: Epoch(5),
        since: Epoch(2),
        next: Some(Box::new(with_acceptors(ALL_NEW))),
        ..with_acceptors(C)
    };
    let config = MultiPaxos::configure(joint).expect("a deployment");
    let (old, all): (AcceptorSet, AcceptorSet) = (AcceptorSet::first(3), AcceptorSet::first(6));
    let round = |epoch| Round::new(Epoch(epoch), 7, LeaderId(1));
    for promised in [Round(0), round(1), round(2), round(4)] {
        let highest = Highest::new(promised);
        let before = Some((Epoch(4), promised));
        assert_eq!(config.electable(old, highest, true), before);
        assert_eq!(
            config.electable(all, highest, true),
            Some((Epoch(5), promised))
        );
        assert_eq!(config.electable(all, highest, false), before);
    }
    let of_later = (
        config.electable(old, Highest::new(round(5)), true),
        config.electable(all, Highest::new(round(6)), true),
    );
    assert_eq!(of_later, (None, None));
    // A new acceptor has heard of a round of both configurations, and none of those before: they
    // can still do without it.
    let mut highest = Highest::new(round(4));
    highest.raise(&config, AcceptorId(5), round(5));
    assert_eq!(
        config.electable(old, highest, true),
        Some((Epoch(4), round(4)))
    );
    assert_eq!(
        config.electable(all, highest, true),
        Some((Epoch(5), round(5)))
    );
    highest.raise(&config, AcceptorId(2), round(5));
    assert_eq!(config.electable(old, highest, true), None);
    let latest = [1, 2, 4, 5, 6].map(|epoch| config.latest_like(round(epoch)));
    let expected = [None, Some(Epoch(4)), Some(Epoch(4)), Some(Epoch(5)), None];
    assert_eq!(latest, expected);
}

/// Phase 1 has found votes as far as acceptors vote beyond what they have forgotten: the window has
/// no room for more. The leader does not stop, and proposes its noop when replicas have executed
/// some slots.
#[test]
pub(crate) fn the_first_noop_of_both_configurations_waits_for_room_in_the_window() {
    let joint = config(1, 0, C, Some(D));
    let mut leader = Stage::new(joint, &birth(kind::Leader, 0, NodeId(99)), Leader::new);
    leader.timer();
    while leader.role.round() == Round(0) {
        for from in [3, 1, 2].map(AcceptorId) {
            let (gone, promise) = (true, Round(0));
            leader.tell(leader::In::PreVoteReply {
                from,
                gone,
                promise,
            });
        }
    }
    let (round, end) = (leader.role.round(), Slot(1 << 22));
    let answer = |from| leader::In::Phase1b {
        from: AcceptorId(from),
        round,
        votes: Votes {
            start: Slot(0),
            end: Slot::MAX,
            next: Slot::MAX,
            votes: Vec::new(),
            forgotten: Slot(0),
            watermark: end,
        },
        clock: Timestamp(0),
    };
    leader.tell(answer(1));
    let proposals = |sent: Vec<Envelope>| -> Vec<Slot> {
        let slots = sent.into_iter().filter_map(|envelope| match envelope {
            Envelope::ToProxyLeaders(_, proxy_leader::In::Phase2a { slot, .. }) => Some(slot),
            _ => None,
        });
        slots.collect()
    };
    let first = proposals(leader.tell(answer(2)));
    assert!(first.iter().all(|slot| *slot < end), "{:?}", first.last());
    assert_eq!(leader.figure("leading"), 1);
    let executed = |executed| leader::In::Executed {
        from: ReplicaId(0),
        executed,
        kept: Slot(0),
        round,
        times: Times::default(),
    };
    assert_eq!(proposals(leader.tell(executed(end))), [end]);
    assert_eq!(proposals(leader.tell(executed(end))), [], "once");
}
