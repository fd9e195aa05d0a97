//! The replica of EPaxos: in which order it executes, and whom it asks for what it misses.

use crate::epaxos_acceptor::command;
use crate::epaxos_leader::RESEND;
use crate::epaxos_process::{config, of, space};
use crate::stage::{self, Stage, Touching};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::machine::Footprint;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Cover, Picture, Role};
use ionian_kernel::status::Status;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_protocols::epaxos::instance::{Deps, InstanceId};
use ionian_protocols::epaxos::message::{Choice, Instance, Payload, Run, Sees};
use ionian_protocols::epaxos::replica::{In, Replica};
use ionian_protocols::epaxos::{Envelope, acceptor, kind, leader};
use ionian_replication::batch::{Batch, Command, Purpose, Value};
use ionian_replication::suspicion::{ALIVE_EVERY, PRESENT_FOR};

/// Replica 1 of three, on node 1.
fn replica() -> Stage<Replica> {
    let options = Options {
        resend_after: RESEND,
        ..Options::default()
    };
    let birth = stage::birth(kind::Replica, 1, NodeId(1));
    Stage::new(config(3, 1, options), &birth, Replica::new)
}

fn commit(replica: &mut Stage<Replica>, id: InstanceId, after: &[InstanceId]) -> (u64, u64) {
    let choice = command(after);
    replica.asked(In::Committed {
        id,
        choice,
        replier: None,
    });
    progress(replica)
}

/// How many instances it has executed, and how many decided ones wait.
fn progress(replica: &Stage<Replica>) -> (u64, u64) {
    let executed = Status::of(&replica.role).executed.expect("a replica");
    (executed.0, replica.figure("pending"))
}

fn run(start: u64, end: u64) -> Run {
    let space = space(0, 1);
    Run { space, start, end }
}

/// Whom a replica asks for what it misses.
#[derive(Debug, PartialEq)]
enum Asks {
    /// An acceptor, for instances.
    Acceptor(AcceptorSet, Vec<Run>),
    /// Leaders, to recover instances.
    Leaders(Set<LeaderId>, Vec<InstanceId>),
}

fn asks(sends: &[(Envelope, Option<usize>)]) -> Vec<Asks> {
    let asks = |(envelope, _): &(Envelope, _)| match envelope {
        // Without runs it asks which instances there are.
        Envelope::ToAcceptors(to, acceptor::In::Fetch { runs, .. }) if !runs.is_empty() => {
            Some(Asks::Acceptor(*to, runs.clone()))
        }
        Envelope::ToLeaders(to, leader::In::Recover { ids }) => {
            Some(Asks::Leaders(*to, ids.clone()))
        }
        _ => None,
    };
    sends.iter().filter_map(asks).collect()
}

/// What it asks for next, when time passes.
fn next(replica: &mut Stage<Replica>) -> Vec<Asks> {
    for _ in 0..100 {
        let asked = asks(&replica.woken().sends);
        if !asked.is_empty() {
            return asked;
        }
    }
    panic!("it asks for nothing");
}

/// It learns that instances exist, and has asked its own acceptor for them.
fn missing(below: u64) -> Stage<Replica> {
    let mut replica = replica();
    replica.asked(In::Heartbeat {
        space: space(0, 1),
        below,
        time: Timestamp(0),
    });
    let own = Asks::Acceptor(Set::one(AcceptorId(1)), vec![run(0, below)]);
    assert_eq!(next(&mut replica), vec![own]);
    replica
}

fn fetched(instances: Vec<Instance>, forgotten: Vec<Run>) -> In {
    In::Fetched {
        from: AcceptorId(1),
        instances,
        forgotten,
        reaches: vec![],
    }
}

#[test]
fn a_command_is_executed_after_all_that_it_depends_on() {
    let mut replica = replica();
    let [one, two, three] = [0, 1, 2].map(|number| of(0, 1, number));
    assert_eq!(commit(&mut replica, three, &[two]), (0, 1));
    assert_eq!(commit(&mut replica, two, &[one]), (0, 2));
    assert_eq!(commit(&mut replica, one, &[]), (3, 0));
    // A second time it is none.
    assert_eq!(commit(&mut replica, one, &[]), (3, 0));
}

#[test]
fn commands_that_depend_on_each_other_are_executed_together() {
    let mut replica = replica();
    let [one, two, apart] = [of(0, 1, 0), of(1, 1, 0), of(2, 1, 0)];
    assert_eq!(commit(&mut replica, one, &[two]), (0, 1));
    assert_eq!(commit(&mut replica, apart, &[]), (1, 1));
    assert_eq!(commit(&mut replica, two, &[one]), (3, 0));
}

/// Its own leader, which knows the others; when the leader of the instance is silent.
#[test]
fn what_is_missing_is_asked_of_each_acceptor_and_then_of_a_leader() {
    let mut replica = missing(1);
    let mut acceptors = AcceptorSet::EMPTY;
    for _ in 0..30 {
        let asked = next(&mut replica);
        if let [Asks::Leaders(to, ids), _] = &asked[..] {
            assert_eq!((*to, &ids[..]), (Set::one(LeaderId(1)), &[of(0, 1, 0)][..]));
            assert_eq!(acceptors.len(), 3, "each in turn");
            return;
        }
        let [Asks::Acceptor(to, runs)] = &asked[..] else {
            panic!("{asked:?}");
        };
        assert_eq!((to.len(), &runs[..]), (1, &[run(0, 1)][..]));
        acceptors = acceptors.or(*to);
    }
    panic!("no leader is asked");
}

/// Some instance of a leader that is there is always missing, each time another.
#[test]
fn what_a_leader_left_is_recovered_while_others_propose() {
    const MS: Duration = Duration::from_millis(10);
    let mut replica = replica();
    let heartbeat = |space, below| In::Heartbeat {
        space,
        below,
        time: Timestamp(0),
    };
    replica.asked(heartbeat(space(2, 1), 1));
    let mut recovered = Vec::new();
    for (number, late) in (0..100).zip(-15..) {
        replica.now = replica.now + MS;
        replica.asked(heartbeat(space(0, 1), number + 1));
        if late >= 0 {
            commit(&mut replica, of(0, 1, late as u64), &[]);
        }
        let now = replica.now;
        while replica.role.next_timer().is_some_and(|at| at <= now) {
            recovered.extend(asks(&replica.woken().sends));
        }
        replica.now = now;
    }
    let names = |asks: &Asks| matches!(asks, Asks::Leaders(_, ids) if ids.contains(&of(2, 1, 0)));
    assert!(recovered.iter().any(names), "{recovered:?}");
    let only = |asks: &Asks| match asks {
        Asks::Leaders(_, ids) => ids == &[of(2, 1, 0)],
        Asks::Acceptor(..) => true,
    };
    assert!(recovered.iter().all(only), "{recovered:?}");
}

#[test]
fn an_acceptor_that_was_of_help_is_asked_again_at_once() {
    let mut replica = missing(3);
    let (id, choice) = (of(0, 1, 0), command(&[]));
    let asked = replica.asked(fetched(vec![Instance { id, choice }], vec![]));
    let again = Asks::Acceptor(Set::one(AcceptorId(1)), vec![run(1, 3)]);
    assert_eq!(asks(&asked.sends), vec![again]);
    let asked = replica.asked(fetched(vec![], vec![]));
    assert_eq!(asks(&asked.sends), vec![], "it was of no help");
}

/// Replicas keep it in snapshots: one of theirs is taken over. Not for what came meanwhile.
#[test]
fn what_acceptors_have_forgotten_is_in_the_snapshot_of_another_replica() {
    let is_asked = |sends: &[(Envelope, Option<usize>)]| {
        let of_replicas = |(to, _): &(Envelope, _)| matches!(to, Envelope::ToReplicas(..));
        sends.iter().any(of_replicas)
    };
    let mut replica = missing(1);
    // Another acceptor may have kept it.
    let asked = replica.asked(fetched(vec![], vec![run(0, 1)]));
    assert!(!is_asked(&asked.sends), "{asked:?}");
    let [(Envelope::ToAcceptors(next, acceptor::In::Fetch { runs, .. }), _)] = &asked.sends[..]
    else {
        panic!("no acceptor is asked: {asked:?}");
    };
    assert_eq!(
        (next.contains(AcceptorId(1)), &runs[..]),
        (false, &[run(0, 1)][..])
    );
    let asked = replica.asked(forgotten_by(next.iter().next().expect("one")));
    assert!(is_asked(&asked.sends), "{asked:?}");
    let mut replica = missing(1);
    assert_eq!(commit(&mut replica, of(0, 1, 0), &[]), (1, 0));
    let asked = replica.asked(fetched(vec![], vec![run(0, 1)]));
    assert!(!is_asked(&asked.sends), "{asked:?}");
}

/// It was on its way. Until the snapshot is there nothing would be executed.
#[test]
fn a_snapshot_is_not_waited_for_when_what_was_forgotten_arrives() {
    let mut replica = missing(1);
    replica.asked(forgotten_by(AcceptorId(0)));
    replica.asked(forgotten_by(AcceptorId(1)));
    assert_eq!(commit(&mut replica, of(0, 1, 0), &[]), (1, 0));
    assert_eq!(commit(&mut replica, of(0, 1, 1), &[of(0, 1, 0)]), (2, 0));
}

fn is_current(replica: &Stage<Replica>) -> bool {
    let until = Status::of(&replica.role).current_until;
    until.expect("a replica") >= replica.now
}

/// Two seconds pass, in which these leaders say how far they have proposed instances.
fn beats(replica: &mut Stage<Replica>, leaders: &[LeaderId], below: u64) {
    let end = replica.now + Duration::from_secs(2);
    while replica.now < end {
        for leader in leaders {
            let (space, time) = (space(leader.0, 1), Timestamp(0));
            replica.tell(In::Heartbeat { space, below, time });
        }
        replica.waited(Duration::from_millis(100));
    }
}

#[test]
fn a_replica_holds_what_is_decided_when_it_has_executed_what_a_majority_proposed_before() {
    let mut replica = replica();
    let [own, other] = [LeaderId(1), LeaderId(0)];
    beats(&mut replica, &[own], 0);
    assert!(!is_current(&replica), "no leader of another node is there");
    beats(&mut replica, &[own, other], 1);
    assert!(!is_current(&replica), "it has executed nothing");
    commit(&mut replica, of(0, 1, 0), &[]);
    commit(&mut replica, of(1, 1, 0), &[of(0, 1, 0)]);
    beats(&mut replica, &[own, other], 1);
    assert!(is_current(&replica));
    for _ in 0..4 {
        beats(&mut replica, &[own, other], 2);
    }
    assert!(!is_current(&replica), "two instances are missing");
}

/// Leaders name it to answer clients as long as it reports to them.
#[test]
fn a_replica_that_receives_no_heartbeat_does_not_report() {
    let mut replica = replica();
    let reports = |replica: &mut Stage<Replica>, time| {
        let asked = replica.waited(time);
        let is_report = |(envelope, _): &(Envelope, _)| {
            matches!(
                envelope,
                Envelope::ToLeaders(_, leader::In::Executed { .. })
            )
        };
        asked.sends.iter().any(is_report)
    };
    assert!(reports(&mut replica, ALIVE_EVERY), "none has come before");
    for _ in 0..3 {
        beats(&mut replica, &[LeaderId(0)], 0);
        assert!(reports(&mut replica, ALIVE_EVERY));
        assert!(!reports(&mut replica, PRESENT_FOR));
        assert!(!reports(&mut replica, PRESENT_FOR));
    }
}

fn forgotten_by(from: AcceptorId) -> In {
    In::Fetched {
        from,
        instances: vec![],
        forgotten: vec![run(0, 1)],
        reaches: vec![],
    }
}

/// Queries read the keys that are their bytes.
fn touches(query: &[u8], footprint: &mut Footprint) {
    let keys = query.iter().map(|byte| u64::from(*byte));
    footprint.reads.extend(keys);
}

fn reads(query: &'static str) -> Batch {
    Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Read,
        number: 0,
        floor: 0,
        payload: query.as_bytes().into(),
    })
}

/// A replica that was asked for these keys.
fn reading(sees: Sees, keys: &'static str) -> (Stage<Replica>, Vec<(Envelope, Option<usize>)>) {
    let machine = &|| Touching::machine(touches);
    let birth = Birth {
        machine,
        ..stage::birth(kind::Replica, 1, NodeId(1))
    };
    let mut replica = Stage::new(config(3, 1, Options::default()), &birth, Replica::new);
    let reads = reads(keys);
    let asked = replica.asked(In::Read { sees, reads });
    (replica, asked.sends)
}

/// It waits for what a majority has recorded, and not for a minority.
#[test]
fn a_read_waits_for_a_majority_and_for_what_it_names() {
    let (mut replica, sends) = reading(Sees::Everything {}, "x");
    let [(Envelope::ToAcceptors(to, acceptor::In::PreRead { inquiry, .. }), Some(0))] = sends[..]
    else {
        panic!("{sends:?}");
    };
    assert!(to.contains(AcceptorId(1)) && to.len() == 2, "{to:?}");
    let awaited = of(2, 1, 5);
    for (from, deferred) in to.iter().zip([0, 1]) {
        let deps = Deps::new([awaited], []);
        replica.asked(In::PreReadAck {
            from,
            inquiry,
            deps,
        });
        assert_eq!(replica.figure("deferred_reads"), deferred);
    }
    commit(&mut replica, awaited, &[]);
    assert_eq!(replica.figure("deferred_reads"), 0);
}

/// The leader of its node proposes them, and it answers. Where any state will do it has one.
#[test]
fn reads_of_several_keys_become_an_instance() {
    let (mut replica, sends) = reading(Sees::Everything {}, "xy");
    let batch = reads("xy");
    let near = Set::one(ReplicaId(1));
    let propose = leader::In::Propose { near, batch };
    let to_leader = Envelope::ToLeaders(Set::one(LeaderId(1)), propose);
    assert_eq!(sends, vec![(to_leader, Some(0))]);
    let value = Value {
        stamp: Timestamp(0),
        batch: reads("xy"),
    };
    let footprint = Footprint {
        reads: b"xy".map(u64::from).into(),
        ..Footprint::default()
    };
    for (number, replier, answers) in [(0, 0, 0), (1, 1, 1)] {
        let choice = Choice::Command {
            payload: Payload::new(value.clone(), footprint.clone()),
            deps: Deps::NONE,
        };
        let asked = replica.asked(In::Committed {
            id: of(0, 1, number),
            choice,
            replier: Some(ReplicaId(replier)),
        });
        assert_eq!(asked.sends.len(), answers, "{asked:?}");
    }
    let (_, sends) = reading(Sees::Anything {}, "xy");
    assert!(
        matches!(sends[..], [(Envelope::ToClients(..), Some(0))]),
        "{sends:?}"
    );
}

/// The number of the mark that it has a leader propose, and which leader.
fn mark(replica: &mut Stage<Replica>) -> (Set<LeaderId>, u64) {
    for _ in 0..100 {
        for (envelope, _) in replica.woken().sends {
            if let Envelope::ToLeaders(to, leader::In::Propose { batch, .. }) = envelope {
                let command = batch.commands().next().expect("a mark");
                assert_eq!(command.purpose, Purpose::Internal);
                return (to, command.number);
            }
        }
    }
    panic!("it has no mark proposed");
}

/// Executes a mark as the instance with this number.
fn pass(replica: &mut Stage<Replica>, number: u64, mark: u64) {
    let batch = Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Internal,
        number: mark,
        floor: 0,
        payload: Vec::new().into(),
    });
    let value = Value {
        stamp: Timestamp(0),
        batch,
    };
    let footprint = Footprint {
        everything: true,
        ..Footprint::default()
    };
    let (payload, deps) = (Payload::new(value, footprint), Deps::NONE);
    replica.asked(In::Committed {
        id: of(0, 1, number),
        choice: Choice::Command { payload, deps },
        replier: None,
    });
}

/// What it has executed, or the mark of an earlier backup, does not say what was acknowledged.
#[test]
fn a_backup_is_the_state_behind_a_mark_that_was_proposed_for_it() {
    let mut replica = replica();
    commit(&mut replica, of(0, 1, 0), &[]);
    let backup = |replica: &mut Stage<Replica>, request: u64| {
        let now = replica.now;
        replica.role.freeze(now, Cover::Acknowledged(request))
    };
    assert!(matches!(backup(&mut replica, 1), Picture::NotYet(1)));
    let (to, first) = mark(&mut replica);
    assert_eq!(to, Set::one(LeaderId(1)), "that of its node");
    assert_eq!(mark(&mut replica).1, first, "it is proposed again");
    assert!(matches!(backup(&mut replica, 2), Picture::NotYet(1)));
    let (_, second) = mark(&mut replica);
    pass(&mut replica, 1, first);
    assert!(matches!(backup(&mut replica, 2), Picture::NotYet(2)));
    pass(&mut replica, 2, second);
    commit(&mut replica, of(0, 1, 3), &[]);
    assert!(matches!(backup(&mut replica, 2), Picture::Taken(3, _)));
    assert!(
        matches!(backup(&mut replica, 3), Picture::NotYet(4)),
        "each has a mark of its own"
    );
    let now = replica.now;
    let all = replica.role.freeze(now, Cover::Below(4));
    assert!(matches!(all, Picture::Taken(4, _)));
}

#[test]
fn a_replica_stores_a_snapshot_after_few_instances_if_they_take_much_work() {
    let birth = Birth {
        machine: &stage::Heavy::machine,
        ..stage::birth(kind::Replica, 1, NodeId(1))
    };
    let mut replica = Stage::new(config(3, 1, Options::default()), &birth, Replica::new);
    let batches = [
        stage::open(),
        stage::of_command(0, "a"),
        stage::of_command(1, "b"),
    ];
    let stored = (0..).zip(batches).map(|(number, batch)| {
        let value = Value {
            stamp: Timestamp(1000),
            batch,
        };
        let (payload, deps) = (Payload::new(value, Footprint::default()), Deps::default());
        let asked = replica.asked(In::Committed {
            id: of(0, 1, number),
            choice: Choice::Command { payload, deps },
            replier: None,
        });
        asked.snapshot
    });
    assert_eq!(stored.collect::<Vec<_>>(), [None, None, Some(3)]);
}
