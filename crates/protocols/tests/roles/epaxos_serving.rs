//! What an acceptor of EPaxos hands out to others at most, whatever they ask for.

use crate::epaxos_acceptor::{ID, accept, ballot, command, deps, pre_accept, prepare};
use crate::epaxos_process::{Process, config, of, space};
use crate::stage::{self, Stage, batch, only};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::machine::Footprint;
use ionian_kernel::protocol::Birth;
use ionian_kernel::time::Timestamp;
use ionian_protocols::epaxos::acceptor::{Acceptor, In};
use ionian_protocols::epaxos::duty::Duty;
use ionian_protocols::epaxos::instance::InstanceId;
use ionian_protocols::epaxos::message::{Choice, Instance, Payload, Reach, Run};
use ionian_protocols::epaxos::{Envelope, kind, leader, replica};
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

/// The message ends before the instance that would exceed the limit.
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
    assert_eq!(fetched(&mut process, vec![run(0, 4)]).len(), 2);
    assert_eq!(fetched(&mut process, vec![run(2, 4)]).len(), 2);
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

/// Replicas may have executed what no acceptor has as decided any more: the one that had it has
/// lost its disk. No replica asks for it then.
#[test]
fn what_no_acceptor_knows_as_decided_leaders_are_asked_to_recover() {
    let mut process = Process::first();
    let id = of(0, 1, 0);
    process.asked(pre_accept(id, &[]));
    let mut asked = AcceptorSet::EMPTY;
    for _ in 0..100 {
        for (envelope, _) in process.woken().sends {
            match envelope {
                Envelope::ToAcceptors(to, In::Ask { ids, .. }) if ids == [id] => {
                    asked = asked.or(to);
                }
                Envelope::ToLeaders(to, leader::In::Recover { ids }) if ids == [id] => {
                    assert_eq!((to.len(), asked.len()), (3, 2), "after both others");
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("no leader is asked");
}

/// A command that writes key 7, of this size.
fn sized(bytes: usize, everything: bool) -> Payload {
    let value = Value {
        stamp: Timestamp(1),
        batch: batch(vec![0; bytes]),
    };
    let writes = vec![7];
    let footprint = Footprint {
        everything,
        writes,
        ..Footprint::default()
    };
    Payload::new(value, footprint)
}

/// Whether the acceptor records a command of a leader.
fn records(acceptor: &mut Stage<Acceptor>, id: InstanceId, payload: &Payload) -> bool {
    let message = In::PreAccept {
        from: id.space.leader,
        id,
        payload: payload.clone(),
        past: deps(&[]),
        fast: Set::one(ID),
    };
    !acceptor.asked(message).sends.is_empty()
}

/// Room comes from a barrier, which is executed after all that is under way.
#[test]
fn a_full_acceptor_has_room_for_barriers_recoveries_and_what_others_have_recorded() {
    let (large, small) = (sized(128 << 20, false), sized(1, false));
    let birth = stage::birth(kind::Acceptor, ID.0, NodeId(1));
    let config = config(3, 1, Options::default());
    let mut acceptor = Stage::new(config, &birth, Acceptor::new);
    for number in 0..16 {
        assert!(records(&mut acceptor, of(1, 1, number), &large));
    }
    assert!(!records(&mut acceptor, of(1, 1, 16), &small));
    assert!(records(&mut acceptor, of(1, 1, 17), &sized(0, true)));
    // Of these the acceptor of their leader has room for more.
    assert!(records(&mut acceptor, of(0, 1, 0), &small));
    assert!(records(&mut acceptor, of(0, 1, 1), &large));
    assert!(!records(&mut acceptor, of(0, 1, 2), &small));
    assert!(records(&mut acceptor, of(0, 1, 3), &sized(0, true)));
    let promised = acceptor.asked(prepare(of(0, 1, 2), ballot(1, 2)));
    assert_eq!(promised.sends.len(), 1);
    let voted = acceptor.asked(accept(2, of(0, 1, 2), ballot(1, 2), Choice::Noop {}));
    assert_eq!(voted.sends.len(), 1);
}

/// A short Kept overtakes a large Commit. The replica beside the acceptor need not be one of those
/// that keep the instance.
#[test]
fn a_decision_that_comes_after_replicas_keep_it_is_passed_on() {
    let mut process = Process::first();
    let reaches = vec![Reach {
        space: space(0, 1),
        below: 2,
    }];
    process.hear([0, 2].map(|from| In::Kept {
        from: ReplicaId(from),
        reaches: reaches.clone(),
    }));
    let (id, choice, replier) = (of(0, 1, 1), command(&[]), Some(ReplicaId(1)));
    let commit = |learned| In::Commit {
        id,
        learned,
        replier,
    };
    assert_eq!(process.asked(commit(choice.brief())).sends, []);
    let message = replica::In::Committed {
        id,
        choice: choice.clone(),
        replier,
    };
    let to_replica = Envelope::ToReplicas(Set::one(ReplicaId(1)), message);
    let asked = process.asked(commit(choice.into()));
    assert_eq!(asked, only(vec![], vec![(to_replica, None)]));
}

/// A node without disks that was stopped for a second would need a snapshot.
#[test]
fn without_disks_decisions_are_kept_for_a_replica_that_is_behind() {
    let decided = |keeps_records| {
        let birth = Birth {
            keeps_records,
            ..stage::birth(kind::Acceptor, ID.0, NodeId(1))
        };
        let config = config(3, 1, Options::default());
        let mut acceptor = Stage::new(config, &birth, Acceptor::new);
        let everything = sized(0, true);
        let choice = Choice::Command {
            payload: everything,
            deps: deps(&[of(0, 1, 0)]),
        };
        for (number, choice) in [(0, command(&[])), (1, choice)] {
            acceptor.tell(In::Commit {
                id: of(0, 1, number),
                learned: choice.into(),
                replier: None,
            });
        }
        let mut kept = |from, below| {
            let space = space(0, 1);
            acceptor.tell(In::Kept {
                from: ReplicaId(from),
                reaches: vec![Reach { space, below }],
            });
            acceptor.figure("instances")
        };
        [kept(0, 1), kept(1, 1), kept(2, 1)]
    };
    assert_eq!(decided(true), [2, 1, 1]);
    assert_eq!(decided(false), [2, 2, 1]);
}
