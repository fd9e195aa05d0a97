//! The rules of a batcher (compartmentalization, section 4.1), one test each. All that it asks of
//! its driver is compared.

use crate::servers::{config, only, round};
use crate::stage::{self, Stage};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::role::{Asked, Role};
use ionian_kernel::time::Duration;
use ionian_protocols::multipaxos::batcher::{Batcher, In};
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{Envelope, kind, leader};
use ionian_replication::batch::{Batch, BatchBuilder, Command, Purpose};

const ID: BatcherId = BatcherId(1);

/// Batcher 1 on node 1, and the number of its first batch.
fn batcher(options: Options) -> (Stage<Batcher>, u64) {
    let birth = stage::birth(kind::Batcher, ID.0, NodeId(1));
    let mut batcher = Stage::new(config(options), &birth, Batcher::new);
    let asked = batcher.asked(commands(&[0]));
    let [(Envelope::ToLeaders(_, leader::In::Propose { proposer, .. }), _)] = &asked.sends[..]
    else {
        panic!("{asked:?}")
    };
    let Proposer::Batcher { number, .. } = proposer else {
        panic!("{proposer:?}")
    };
    assert_eq!(asked, proposed(0, *number, &[0], false));
    (batcher, *number)
}

/// At most one batch is under way before others wait to be filled.
fn one_in_flight() -> Options {
    Options {
        batches_in_flight: 1,
        ..Options::default()
    }
}

fn batch(numbers: &[u64]) -> Batch {
    batch_above(0, numbers)
}

/// Commands of a client that waits for none below `floor`.
fn batch_above(floor: u64, numbers: &[u64]) -> Batch {
    let mut batch = BatchBuilder::default();
    for number in numbers {
        batch.push(&Command {
            client: ClientId(0),
            purpose: Purpose::Execute(SessionId(1)),
            number: *number,
            floor,
            payload: "x",
        });
    }
    batch.take()
}

fn commands(numbers: &[u64]) -> In {
    In::Commands {
        commands: batch(numbers),
    }
}

fn propose(leader: u8, number: u64, numbers: &[u64], again: bool) -> Envelope {
    let message = leader::In::Propose {
        proposer: Proposer::Batcher { id: ID, number },
        near: Set::one(ReplicaId(1)),
        batch: batch(numbers),
        again,
    };
    Envelope::ToLeaders(Set::one(LeaderId(leader)), message)
}

/// One batch of these commands goes to a leader, named by its number, with the replica near it.
fn proposed(leader: u8, number: u64, numbers: &[u64], again: bool) -> Asked<Envelope> {
    only(vec![propose(leader, number, numbers, again)])
}

fn chosen(number: u64) -> In {
    In::BatchesChosen {
        numbers: vec![number],
    }
}

// Closing a batch.

/// Nothing waits for a full batch when nothing is under way ahead of it.
#[test]
fn a_lone_command_leaves_at_once() {
    batcher(one_in_flight());
}

#[test]
fn commands_that_come_while_batches_are_under_way_are_gathered_into_one() {
    let (mut batcher, first) = batcher(one_in_flight());
    assert_eq!(batcher.asked(commands(&[1])), only(vec![]));
    assert_eq!(batcher.asked(commands(&[2, 3])), only(vec![]));
    let asked = batcher.asked(chosen(first));
    assert_eq!(asked, proposed(0, first + 1, &[1, 2, 3], false));
}

#[test]
fn a_batch_of_batch_commands_is_full() {
    let options = Options {
        batch_commands: 3,
        ..one_in_flight()
    };
    let (mut batcher, first) = batcher(options);
    assert_eq!(batcher.asked(commands(&[1, 2])), only(vec![]));
    let asked = batcher.asked(commands(&[3]));
    assert_eq!(asked, proposed(0, first + 1, &[1, 2, 3], false));
}

#[test]
fn a_batch_of_batch_bytes_is_full() {
    let options = Options {
        batch_bytes: batch(&[1, 2]).byte_len(),
        ..one_in_flight()
    };
    let (mut batcher, first) = batcher(options);
    assert_eq!(batcher.asked(commands(&[1])), only(vec![]));
    let asked = batcher.asked(commands(&[2]));
    assert_eq!(asked, proposed(0, first + 1, &[1, 2], false));
}

/// l9: a batch that is not full must not wait without end.
#[test]
fn a_batch_that_is_not_full_waits_batch_delay() {
    let (mut batcher, first) = batcher(one_in_flight());
    batcher.tell(commands(&[1]));
    let opened = batcher.now;
    assert_eq!(batcher.woken(), proposed(0, first + 1, &[1], false));
    assert_eq!(batcher.now, opened + Options::default().batch_delay);
}

/// "A leader processes one message a batch" (4.1): what is under way is bounded in bytes too.
#[test]
fn batches_beyond_the_window_of_bytes_wait_until_others_are_chosen() {
    let options = Options {
        window_bytes: batch(&[0, 1]).byte_len(),
        batch_commands: 1,
        ..Options::default()
    };
    let (mut batcher, first) = batcher(options);
    let asked = batcher.asked(commands(&[1]));
    assert_eq!(asked, proposed(0, first + 1, &[1], false));
    assert_eq!(batcher.asked(commands(&[2])), only(vec![]));
    let asked = batcher.asked(chosen(first + 1));
    assert_eq!(asked, proposed(0, first + 2, &[2], false));
}

// What no client waits for.

#[test]
fn what_a_client_has_given_up_and_copies_are_dropped_when_its_next_command_comes() {
    let options = Options {
        batch_commands: 1,
        ..Options::default()
    };
    let (mut batcher, first) = batcher(options);
    for number in [1, 2, 3, 3, 4, 5] {
        batcher.tell(commands(&[number]));
    }
    assert_eq!(batcher.figure("in_flight"), 7);
    let commands = batch_above(2, &[6]);
    batcher.tell(In::Commands { commands });
    assert_eq!(batcher.figure("in_flight"), 5, "2, 3, 4, 5 and 6");
    batcher.tell(chosen(first));
    assert_eq!(batcher.figure("in_flight"), 5, "it was dropped");
    batcher.tell(chosen(first + 3));
    assert_eq!(batcher.figure("in_flight"), 4);
}

// Batches that are not chosen.

/// How long the leader may leave a batch unchosen.
const PATIENCE: Duration = Duration::from_millis(250);

#[test]
fn a_batch_that_is_not_chosen_in_time_goes_to_the_next_leader_under_the_same_number() {
    let (mut batcher, first) = batcher(Options::default());
    let mut sent_at = batcher.now;
    for (attempt, leader) in [(0, 1), (1, 2), (2, 0)] {
        let asked = batcher.woken();
        assert_eq!(asked, proposed(leader, first, &[0], true));
        // The wait doubles; the bytes under way add a little.
        let waited = batcher.now.since(sent_at);
        let least = PATIENCE * (1 << attempt);
        assert!(
            (least..=least + Duration::from_millis(1)).contains(&waited),
            "{waited:?}"
        );
        sent_at = batcher.now;
    }
}

#[test]
fn a_batch_that_is_chosen_is_not_proposed_again() {
    let (mut batcher, first) = batcher(Options::default());
    assert_eq!(batcher.asked(chosen(first)), only(vec![]));
    while batcher.role.next_timer().is_some_and(|at| at.0 < u64::MAX) {
        assert_eq!(batcher.woken(), only(vec![]));
    }
    // Also not by a new leader, and the news may come twice.
    assert_eq!(batcher.asked(chosen(first)), only(vec![]));
    let message = In::NewLeader { round: round(1, 2) };
    assert_eq!(batcher.asked(message), only(vec![]));
}

/// l10: a leader's crash costs no client a retry.
#[test]
fn a_new_leader_gets_all_that_is_not_chosen_in_order_and_at_once() {
    let (mut batcher, first) = batcher(Options::default());
    batcher.tell(commands(&[1]));
    batcher.tell(commands(&[2]));
    batcher.tell(chosen(first + 1));
    let again = vec![
        propose(2, first, &[0], true),
        propose(2, first + 2, &[2], true),
    ];
    let message = In::NewLeader { round: round(1, 2) };
    assert_eq!(batcher.asked(message), only(again));
    let asked = batcher.asked(commands(&[3]));
    assert_eq!(asked, proposed(2, first + 3, &[3], false));
}

#[test]
fn a_leader_that_does_not_lead_names_the_one_to_ask() {
    let (mut batcher, first) = batcher(Options::default());
    let message = In::NotLeader { round: round(1, 2) };
    let asked = batcher.asked(message.clone());
    assert_eq!(asked, proposed(2, first, &[0], true));
    // Not again: the leader of that round itself may not know yet that it leads.
    assert_eq!(batcher.asked(message), only(vec![]));
}

#[test]
fn news_of_an_older_leader_is_ignored() {
    let (mut batcher, _) = batcher(Options::default());
    batcher.tell(In::NewLeader { round: round(2, 2) });
    for message in [
        In::NewLeader { round: round(1, 1) },
        In::NotLeader { round: round(1, 1) },
    ] {
        assert_eq!(batcher.asked(message), only(vec![]));
    }
}
