//! The rules of a batcher of S-Paxos and of its client lane. All that they ask of their drivers is
//! compared; how commands become batches is shown by the tests of MultiPaxos's batcher.

use crate::spaxos_servers::*;
use crate::stage::{Stage, birth};
use bytes::Bytes;
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::role::Asked;
use ionian_kernel::time::Duration;
use ionian_protocols::spaxos::batcher::{Batcher, In};
use ionian_protocols::spaxos::id::DisseminatorId;
use ionian_protocols::spaxos::{Envelope, client, disseminator, kind};
use ionian_replication::batch::Batch;

/// Batcher 1 and the number of its first batch, which it has given to the first disseminator that
/// is returned.
fn batcher() -> (Stage<Batcher>, u64, DisseminatorId) {
    let birth = birth(kind::Batcher, 1, NodeId(99));
    let mut batcher = Stage::new(apart(2, Options::default()), &birth, Batcher::new);
    let asked = batcher.asked(In::Commands { commands: batch() });
    let [(Envelope::ToDisseminators(to, disseminator::In::Disseminate { number, .. }), _)] =
        &asked.sends[..]
    else {
        panic!("{asked:?}")
    };
    let first = to.iter().next().expect("a disseminator");
    assert_eq!(asked, only(vec![gives(first, *number)]));
    (batcher, *number, first)
}

fn gives(to: DisseminatorId, number: u64) -> Envelope {
    let message = disseminator::In::Disseminate {
        from: BatcherId(1),
        number,
        batch: batch(),
    };
    Envelope::ToDisseminators(Set::one(to), message)
}

fn chosen(from: DisseminatorId, number: u64) -> In {
    In::BatchesChosen {
        from,
        numbers: vec![number],
    }
}

/// "To propose a command, a client sends it to any of the disseminators" (7.2).
#[test]
fn a_batch_goes_to_one_disseminator() {
    batcher();
}

#[test]
fn a_batch_that_is_not_chosen_within_a_second_goes_to_another_disseminator_too() {
    let (mut batcher, number, first) = batcher();
    let begin = batcher.now;
    let other = DisseminatorId(1 - first.0);
    assert_eq!(batcher.woken(), only(vec![gives(other, number)]));
    let waited = batcher.now.since(begin);
    let least = Duration::from_millis(1000);
    assert!(
        (least..least + Duration::from_millis(1)).contains(&waited),
        "{waited:?}"
    );
}

#[test]
fn a_batch_that_is_chosen_is_not_given_away_again() {
    let (mut batcher, number, first) = batcher();
    assert_eq!(batcher.asked(chosen(first, number)), only(vec![]));
    for _ in 0..20 {
        assert_eq!(batcher.waited(Duration::from_millis(500)), only(vec![]));
    }
}

/// The one on its own node comes first: a hop to it is a function call.
#[test]
fn a_batcher_avoids_a_disseminator_that_left_a_batch_unchosen() {
    let birth = birth(kind::Batcher, 1, NodeId(1));
    let mut batcher = Stage::new(together(), &birth, Batcher::new);
    let to = |asked: Asked<Envelope>| match &asked.sends[..] {
        [(Envelope::ToDisseminators(to, disseminator::In::Disseminate { .. }), Some(0))] => *to,
        other => panic!("{other:?}"),
    };
    let beside = Set::one(DisseminatorId(1));
    let first = batcher.asked(In::Commands { commands: batch() });
    assert_eq!(to(first), beside);
    let second = to(batcher.woken());
    assert!(!second.contains(DisseminatorId(1)), "{second:?}");
    let next = batcher.asked(In::Commands { commands: batch() });
    assert!(!to(next).contains(DisseminatorId(1)));
}

/// What a client lane sends first: the command that opens its session.
fn first_of_lane(batchers: usize) -> Vec<Envelope> {
    let config = apart(batchers, Options::default());
    let birth = birth(kind::Client, 0, NodeId(99));
    let mut lane = Stage::new(config, &birth, |config, birth| client::lane(&config, birth));
    let request = Request {
        token: 1,
        operation: Operation::Write,
        payload: Bytes::from_static(b"x"),
    };
    assert!(lane.tell(client::In::Submit { request }).is_empty());
    let sent = (0..20).map(|_| lane.timer());
    let first = sent.into_iter().find(|sent| !sent.is_empty());
    first.expect("a lane opens its session")
}

fn commands(sent: &[Envelope]) -> (&'static str, &Batch) {
    match sent {
        [Envelope::ToBatchers(_, In::Commands { commands })] => ("batcher", commands),
        [Envelope::ToDisseminators(_, disseminator::In::Commands { commands })] => {
            ("disseminator", commands)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lane_sends_commands_to_batchers_where_there_are_any_and_to_disseminators_elsewhere() {
    for (batchers, expected) in [(2, "batcher"), (0, "disseminator")] {
        let sent = first_of_lane(batchers);
        let (to, commands) = commands(&sent);
        assert_eq!((to, commands.len()), (expected, 1));
    }
}
