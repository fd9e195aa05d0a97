//! What an acceptor of EPaxos hands out to others at most, whatever they ask for.

use crate::epaxos_acceptor::{ID, command, deps};
use crate::epaxos_process::{Process, of, space};
use crate::stage::batch;
use ionian_kernel::id::*;
use ionian_kernel::machine::Footprint;
use ionian_kernel::time::Timestamp;
use ionian_protocols::epaxos::acceptor::In;
use ionian_protocols::epaxos::duty::Duty;
use ionian_protocols::epaxos::message::{Choice, Instance, Payload, Run};
use ionian_protocols::epaxos::{Envelope, replica};
use ionian_replication::batch::Value;

fn run(start: u64, end: u64) -> Run {
    let space = space(0, 1);
    Run { space, start, end }
}

/// An acceptor that knows the first instances of a space as decided.
fn knowing(count: u64, choice: &Choice) -> Process {
    let mut process = Process::first();
    process.hear((0..count).map(|number| In::Commit {
        id: of(0, 1, number),
        learned: choice.clone().into(),
        replier: None,
    }));
    process
}

/// What a replica is given that asks for these.
fn fetched(process: &mut Process, runs: Vec<Run>) -> Vec<Instance> {
    let from = ReplicaId(2);
    let mut asked = process.asked(In::Fetch { from, runs });
    let Some((Envelope::ToReplicas(to, replica::In::Fetched { instances, .. }), None)) =
        asked.sends.pop()
    else {
        panic!("it gives nothing: {asked:?}");
    };
    assert_eq!(to, Set::one(from));
    instances
}

#[test]
fn instances_of_64_runs_are_handed_out_at_a_time() {
    let mut process = knowing(130, &command(&[]));
    let apart = |count| (0..count).map(|it| run(2 * it, 2 * it + 1)).collect();
    assert_eq!(fetched(&mut process, apart(64)).len(), 64);
    let most = fetched(&mut process, apart(65));
    assert_eq!(most.len(), 64);
    assert_eq!(most[63].id, of(0, 1, 126));
}

#[test]
fn no_more_than_512_instances_are_handed_out_at_a_time() {
    let mut process = knowing(513, &command(&[]));
    assert_eq!(fetched(&mut process, vec![run(0, 512)]).len(), 512);
    let most = fetched(&mut process, vec![run(0, 513)]);
    assert_eq!(most.len(), 512);
    assert_eq!(most[511].id, of(0, 1, 511));
}

/// The message ends with the instance that reaches the limit.
#[test]
fn no_more_than_256_kib_are_handed_out_at_a_time() {
    let value = Value {
        stamp: Timestamp(1),
        batch: batch(vec![0; 100 << 10]),
    };
    let large = Choice::Command {
        payload: Payload::new(value, Footprint::default()),
        deps: deps(&[]),
    };
    let mut process = knowing(4, &large);
    assert_eq!(fetched(&mut process, vec![run(0, 4)]).len(), 3);
    assert_eq!(fetched(&mut process, vec![run(3, 4)]).len(), 1);
}

#[test]
fn decisions_of_256_instances_are_handed_out_at_a_time() {
    let mut process = knowing(257, &command(&[]));
    let mut ask = |count| {
        let ids = (0..count).map(|number| of(0, 1, number)).collect();
        let (from, duty) = (AcceptorId(2), Duty::All {});
        let asked = process.asked(In::Ask { from, duty, ids });
        let is_decision = |(envelope, _): &(Envelope, _)| matches!(envelope, Envelope::ToAcceptors(to, In::Commit { .. }) if *to == Set::one(from));
        assert!(asked.sends.iter().all(is_decision), "{asked:?}");
        asked.sends.len()
    };
    assert_eq!((ask(256), ask(257)), (256, 256));
    assert_ne!(ID, AcceptorId(2));
}
