//! What an acceptor of EPaxos does for another one that has lost its memory: it hands out copies of
//! what it has recorded, and from then on says with each answer that the other lives again. All
//! that it asks of its driver is compared.

use crate::epaxos_acceptor::*;
use crate::epaxos_process::*;
use crate::servers::value;
use crate::stage::batch;
use ionian_kernel::id::*;
use ionian_kernel::machine::Footprint;
use ionian_protocols::epaxos::acceptor::{In, Record};
use ionian_protocols::epaxos::instance::InstanceId;
use ionian_protocols::epaxos::message::{Copy, Lives, Page, Payload, Reach};
use ionian_protocols::epaxos::{Envelope, leader};
use ionian_replication::batch::Value;

/// Acceptor 2 asks in this life for what is recorded from this instance on. Its leader is in the
/// same.
fn request(life: u32, first: InstanceId) -> In {
    In::Copy {
        from: AcceptorId(2),
        life,
        spaces: vec![space(2, life)],
        first,
    }
}

/// What it is handed.
fn page(first: InstanceId, instances: Vec<Copy>, next: Option<InstanceId>) -> Envelope {
    let message = In::Copied {
        from: ID,
        life: 2,
        spaces: 1,
        first,
        page: Box::new(Page {
            instances,
            next,
            reaches: vec![],
            lives: lives(2, 2),
            closed: vec![space(2, 2)],
        }),
    };
    Envelope::ToAcceptors(Set::one(AcceptorId(2)), message)
}

/// Acceptor 2 is in this life, and of its leader no earlier one is left.
fn peers(life: u32) -> Record {
    let lives = lives(2, life);
    let closed = vec![space(2, life)];
    Record::Peers { lives, closed }
}

/// An answer of the first life of this acceptor, which knows of these lives.
fn answer(id: InstanceId, lives: Lives, on: &[InstanceId]) -> Envelope {
    let message = leader::In::PreAccepted {
        from: ID,
        lives,
        id,
        deps: deps(on),
    };
    to_leader(id.space.leader.0, message)
}

#[test]
fn a_life_is_recorded_before_a_copy_is_given_and_named_in_each_answer_after_it() {
    let mut process = Process::first();
    let (before, after, other) = (of(0, 1, 0), of(0, 1, 1), of(0, 1, 2));
    let expected = does(
        &[recorded(0, before, &[])],
        vec![answer(before, Lives::default(), &[])],
    );
    assert_eq!(process.asked(pre_accept(before, &[])), expected);
    let first = InstanceId::default();
    let copy = page(first, vec![open(before)], None);
    let expected = does(&[peers(2)], vec![copy.clone()]);
    assert_eq!(process.asked(request(2, first)), expected);
    // Asked again, it has nothing to record.
    assert_eq!(process.asked(request(2, first)), does(&[], vec![copy]));

    let restarted = process.restarted(process.records.clone());
    for mut process in [process, restarted] {
        let on = [before];
        let expected = does(
            &[recorded(1, after, &on)],
            vec![answer(after, lives(2, 2), &on)],
        );
        assert_eq!(process.asked(pre_accept(after, &[])), expected);
        let recovery = ballot(1, 2);
        let prepared = leader::In::Prepared {
            from: ID,
            lives: lives(2, 2),
            id: other,
            ballot: recovery,
            asked_in: 1,
            evidence: Box::default(),
        };
        let expected = does(
            &[promised(2, other, recovery)],
            vec![to_leader(2, prepared)],
        );
        assert_eq!(process.asked(prepare(other, recovery)), expected);
    }
}

#[test]
fn a_command_of_a_life_of_a_leader_that_is_over_is_ignored_unless_it_was_recorded() {
    let mut process = Process::first();
    let (before, late, present) = (of(2, 1, 0), of(2, 1, 1), of(2, 2, 0));
    process.asked(pre_accept(before, &[]));
    process.asked(request(2, InstanceId::default()));
    let restarted = process.restarted(process.records.clone());
    for mut process in [process, restarted] {
        assert_eq!(process.asked(pre_accept(late, &[])), nothing());
        let expected = does(&[], vec![answer(before, lives(2, 2), &[])]);
        assert_eq!(process.asked(pre_accept(before, &[])), expected);
        let on = [before];
        let expected = does(
            &[recorded(1, present, &on)],
            vec![answer(present, lives(2, 2), &on)],
        );
        assert_eq!(process.asked(pre_accept(present, &[])), expected);
    }
}

#[test]
fn a_request_of_an_earlier_life_is_ignored() {
    let mut process = Process::first();
    let first = InstanceId::default();
    let asked = process.asked(request(3, first));
    assert_eq!(asked.records, encoded(&[peers(3)]));
    assert_eq!(process.asked(request(2, first)), nothing());
    assert_eq!(process.stage.figure("stale"), 1);
}

#[test]
fn only_another_acceptor_is_given_a_copy() {
    let mut process = Process::first();
    for unknown in [ID, AcceptorId(3)] {
        let mut message = request(2, InstanceId::default());
        if let In::Copy { from, .. } = &mut message {
            *from = unknown;
        }
        assert_eq!(process.asked(message), nothing());
    }
}

/// A decision that a crash takes back must not be passed on.
#[test]
fn a_copy_has_what_is_certain_as_decided_and_all_else_as_open() {
    let mut process = Process::first();
    let [own, certain, bare] = [of(1, 1, 0), of(0, 1, 0), of(2, 1, 0)];
    process.asked(pre_accept(own, &[]));
    process.asked(decide(own, &[]));
    process.asked(In::Commit {
        id: certain,
        learned: command(&[own]).into(),
        replier: None,
    });
    process.asked(prepare(bare, ballot(1, 0)));
    let first = InstanceId::default();
    let copies = vec![
        Copy::Decided {
            id: certain,
            choice: command(&[own]),
        },
        open(own),
        Copy::Open {
            id: bare,
            payload: None,
        },
    ];
    let expected = does(&[peers(2)], vec![page(first, copies, None)]);
    assert_eq!(process.asked(request(2, first)), expected);
}

/// A command that writes a key of its own.
fn apart(key: u64, value: Value) -> Payload {
    let footprint = Footprint {
        writes: vec![key],
        ..Footprint::default()
    };
    Payload::new(value, footprint)
}

/// It records as many commands of leader 0; they are copied as these.
fn record(process: &mut Process, count: u64, value: &Value) -> Vec<Copy> {
    let numbers = 0..count;
    let record = |number| {
        let (id, payload) = (of(0, 1, number), apart(number, value.clone()));
        process.asked(In::PreAccept {
            from: LeaderId(0),
            id,
            payload: payload.clone(),
            past: deps(&[]),
            fast: Set::one(AcceptorId(0)).or(Set::one(ID)),
        });
        let payload = Some(payload);
        Copy::Open { id, payload }
    };
    numbers.map(record).collect()
}

#[test]
fn a_page_ends_after_512_instances_and_the_next_begins_there() {
    let mut process = Process::first();
    let all = record(&mut process, 513, &value(100, "x"));
    let (first, next) = (InstanceId::default(), of(0, 1, 512));
    let copy = page(first, all[..512].to_vec(), Some(next));
    let expected = does(&[peers(2)], vec![copy]);
    assert_eq!(process.asked(request(2, first)), expected);
    let copy = page(next, all[512..].to_vec(), None);
    assert_eq!(process.asked(request(2, next)), does(&[], vec![copy]));
}

/// So a page fits into a message.
#[test]
fn a_page_ends_after_256_kib() {
    let mut process = Process::first();
    let large = Value {
        batch: batch(vec![0; 120 << 10]),
        ..value(100, "x")
    };
    let all = record(&mut process, 3, &large);
    let (first, next) = (InstanceId::default(), of(0, 1, 2));
    let copy = page(first, all[..2].to_vec(), Some(next));
    let expected = does(&[peers(2)], vec![copy]);
    assert_eq!(process.asked(request(2, first)), expected);
}

/// It tells how far replicas keep spaces: of what is below it may have nothing any more.
#[test]
fn a_copy_says_what_replicas_keep() {
    let mut process = Process::first();
    let early = space(0, 1);
    let reach = Reach {
        space: early,
        below: 3,
    };
    for replica in [0, 2] {
        process.asked(In::Kept {
            from: ReplicaId(replica),
            reaches: vec![reach],
        });
    }
    let message = In::Copied {
        from: ID,
        life: 2,
        spaces: 1,
        first: InstanceId::default(),
        page: Box::new(Page {
            instances: vec![],
            next: None,
            reaches: vec![reach],
            lives: lives(2, 2),
            closed: vec![space(2, 2)],
        }),
    };
    let copy = Envelope::ToAcceptors(Set::one(AcceptorId(2)), message);
    let expected = does(&[peers(2)], vec![copy]);
    let asked = process.asked(request(2, InstanceId::default()));
    assert_eq!(asked, expected);
}
