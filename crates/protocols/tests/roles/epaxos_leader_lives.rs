//! What a leader of EPaxos does about acceptors that have lost their memory: what an earlier life
//! has answered counts no more. All that it asks of its driver is compared.

use crate::epaxos_acceptor::{ballot, deps, payload};
use crate::epaxos_leader::{
    Proposed, RESEND, leader, nothing, propose, proposed, says, to, writes,
};
use crate::epaxos_process::{config, lives, of, space};
use crate::stage::{self, Stage, Touching, batch, of_command};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::time::{Duration, Timestamp};
use ionian_protocols::epaxos::duty::Duty;
use ionian_protocols::epaxos::instance::{Ballot, InstanceId};
use ionian_protocols::epaxos::leader::{In, Leader, Record};
use ionian_protocols::epaxos::message::{Choice, Evidence, Lives, PreAccepted};
use ionian_protocols::epaxos::{Envelope, acceptor, kind};

/// Of five acceptors three are a majority; when the first request is overdue it is enough.
#[test]
pub(crate) fn an_answer_of_an_earlier_life_does_not_count_also_if_it_came_before() {
    let mut leader = leader(false);
    let proposed = proposed(&mut leader);
    let (none, second) = (Lives::default(), lives(1, 2));
    assert_eq!(leader.asked(proposed.answer_in(1, none.clone())), nothing());
    // Acceptor 2 has recorded it after acceptor 1 began to live again.
    assert_eq!(
        leader.asked(proposed.answer_in(2, second.clone())),
        nothing()
    );
    let silent = [1, 3, 4].into_iter().map(AcceptorId).collect();
    let again = says(vec![proposed.pre_accept(silent)]);
    assert_eq!(leader.waited(RESEND), again);
    assert_eq!(leader.asked(proposed.answer_in(1, none)), nothing());
    assert_eq!(leader.figure("stale"), 1);
    let accept = says(vec![proposed.accept(&[])]);
    assert_eq!(leader.asked(proposed.answer_in(1, second)), accept);
}

/// The same without a later life: the test above fails for no other reason.
#[test]
fn a_majority_is_enough_when_answers_are_overdue() {
    let mut leader = leader(false);
    let proposed = proposed(&mut leader);
    for from in [1, 2] {
        assert_eq!(
            leader.asked(proposed.answer_in(from, Lives::default())),
            nothing()
        );
    }
    let silent = [3, 4].into_iter().map(AcceptorId).collect();
    let sends = vec![proposed.pre_accept(silent), proposed.accept(&[])];
    assert_eq!(leader.waited(RESEND), says(sends));
}

/// An answer of the leader's own acceptor is forgotten too: it is asked first again.
#[test]
fn its_own_acceptor_is_asked_again_when_it_lives_again() {
    let mut leader = leader(false);
    let proposed = proposed(&mut leader);
    assert_eq!(leader.asked(proposed.answer_in(1, lives(0, 2))), nothing());
    let own = says(vec![proposed.pre_accept(Set::one(AcceptorId(0)))]);
    assert_eq!(leader.waited(RESEND), own);
    let late = proposed.answer_in(0, Lives::default());
    assert_eq!(leader.asked(late), nothing());
    let others = proposed.fast.without(Set::one(AcceptorId(0)));
    let asked = leader.asked(proposed.answer_in(0, lives(0, 2)));
    assert_eq!(asked, says(vec![proposed.pre_accept(others)]));
}

#[test]
fn an_acceptor_that_asks_is_told_the_space_and_the_next_number() {
    let mut leader = leader(false);
    let begin = |life| In::Begin {
        from: AcceptorId(1),
        duty: Duty::All {},
        life,
    };
    let boundary = |life, below| {
        let space = space(0, 2);
        says(vec![to(
            &[1],
            acceptor::In::Boundary { life, space, below },
        )])
    };
    assert_eq!(leader.asked(begin(2)), boundary(2, 0));
    let proposed = proposed(&mut leader);
    assert_eq!(leader.asked(begin(3)), boundary(3, 1));
    // What it asks in says which life it is in.
    assert_eq!(leader.asked(proposed.answer_in(1, lives(1, 2))), nothing());
    assert_eq!(leader.figure("stale"), 1);
}

/// An instance of an earlier life of the leader, which it recovers at once.
const LOST: InstanceId = InstanceId::new(
    ionian_protocols::epaxos::instance::Space {
        leader: LeaderId(0),
        life: 1,
    },
    6,
);

fn recovering(leader: &mut Stage<Leader>) -> Ballot {
    let ballot = ballot(1, 0);
    let message = acceptor::In::Prepare {
        from: LeaderId(0),
        id: LOST,
        ballot,
        life: 2,
    };
    let asked = leader.asked(In::Recover { ids: vec![LOST] });
    assert_eq!(asked, says(vec![to(&[0, 1, 2, 3, 4], message)]));
    ballot
}

fn prepared(from: u8, lives: Lives, evidence: Evidence) -> In {
    In::Prepared {
        from: AcceptorId(from),
        lives,
        id: LOST,
        ballot: ballot(1, 0),
        asked_in: 2,
        evidence: Box::new(evidence),
    }
}

/// Three promises of five are enough. What acceptor 1 has said is neither counted nor believed.
#[test]
fn a_promise_of_an_earlier_life_does_not_count_also_if_it_came_before() {
    let mut leader = leader(false);
    let ballot = recovering(&mut leader);
    let (none, nothing_known) = (Lives::default(), Evidence::default());
    let answer = PreAccepted {
        payload: payload(),
        deps: deps(&[of(2, 1, 3)]),
        fast: [0, 1, 2, 3].into_iter().map(AcceptorId).collect(),
    };
    let known = Evidence {
        pre_accepted: Some(answer),
        ..Evidence::default()
    };
    let first = prepared(1, none.clone(), known.clone());
    assert_eq!(leader.asked(first), nothing());
    let second = prepared(2, lives(1, 2), nothing_known.clone());
    assert_eq!(leader.asked(second), nothing());
    let third = prepared(3, none.clone(), nothing_known.clone());
    assert_eq!(leader.asked(third), nothing());
    let again = prepared(1, none.clone(), known);
    assert_eq!(leader.asked(again), nothing());
    let accept = acceptor::In::Accept {
        from: LeaderId(0),
        proxy: None,
        id: LOST,
        ballot,
        choice: Choice::Noop {},
    };
    let expected = says(vec![to(&[0, 1, 2, 3, 4], accept)]);
    let last = prepared(4, none, nothing_known);
    assert_eq!(leader.asked(last), expected);
}

/// Its acceptor answers nothing yet: the clients turn to others.
#[test]
fn a_leader_whose_acceptor_lost_its_memory_proposes_nothing_before_that_has_returned() {
    let mut leader = leader(true);
    assert_eq!(leader.asked(propose("one")), nothing());
    assert_eq!(leader.figure("stale"), 1);
    let executed = || In::Executed {
        from: ReplicaId(0),
        time: Timestamp(0),
        deadline: None,
        since_barrier: 100_000,
    };
    assert_eq!(leader.asked(executed()), nothing());
    assert_eq!(leader.asked(In::Returned {}), nothing());
    let barrier = Proposed::of(&leader.asked(executed()));
    assert_eq!(barrier.id, of(0, 2, 0));
    assert!(barrier.payload.is_barrier());
    let command = Proposed::of(&leader.asked(propose("one")));
    assert_eq!(command.id, of(0, 2, 1));
    assert_eq!(command.payload.value.batch, batch("one"));
}

/// The process before this one has begun to return, and has recorded so.
#[test]
fn a_leader_proposes_nothing_from_when_its_acceptor_asks_until_that_has_returned() {
    let mut leader = leader(false);
    leader.asked(In::Begin {
        from: AcceptorId(0),
        duty: Duty::All {},
        life: 1,
    });
    assert_eq!(leader.asked(propose("one")), nothing());
    leader.asked(In::Returned {});
    let command = Proposed::of(&leader.asked(propose("one")));
    assert_eq!(command.id, of(0, 2, 0));
}

#[test]
fn a_leader_on_an_empty_disk_in_place_of_a_lost_one_begins_no_former_life_and_waits() {
    let mut birth = stage::birth(kind::Leader, 0, NodeId(0));
    birth.predecessors = 1;
    birth.machine = &|| Touching::machine(writes);
    let mut leader = Stage::after(
        config(5, 2, Options::default()),
        &birth,
        vec![],
        Leader::new,
    );
    assert_eq!(leader.figure("life"), (1 << 24) + 1);
    assert_eq!(leader.asked(propose("one")), nothing());
    assert_eq!(leader.figure("stale"), 1);
    // Its next process begins the next life.
    let life = (1 << 24) + 1;
    let records = vec![Record::Life { life }];
    let config = config(5, 2, Options::default());
    let leader = Stage::after(config, &birth, records, Leader::new);
    assert_eq!(leader.figure("life"), u64::from(life) + 1);
}

/// Commands wait while a barrier is under way: little that was executed calls for one later.
#[test]
fn a_barrier_comes_late_where_little_was_executed_and_no_key_expires() {
    let retained = Options::default().retained_slots as u64;
    let far = Some(Timestamp(u64::MAX));
    for (since_barrier, deadline, seconds) in
        [(1, None, 11..=12), (1, far, 1..=2), (retained, None, 1..=2)]
    {
        let mut leader = leader(false);
        let mut is_proposed = || {
            let proposes = !leader
                .asked(In::Executed {
                    from: ReplicaId(0),
                    time: Timestamp(0),
                    deadline,
                    since_barrier,
                })
                .sends
                .is_empty();
            leader.waited(Duration::from_secs(1));
            proposes
        };
        let second = (0..20).find(|_| is_proposed());
        assert!(second.is_some_and(|it| seconds.contains(&it)), "{second:?}");
    }
}

/// Others leave alone what a leader that sends heartbeats has begun. One that receives nothing can
/// finish nothing.
#[test]
fn a_leader_that_receives_no_answer_sends_no_heartbeat_and_proposes_nothing() {
    let is_heartbeat = |(envelope, _): &(Envelope, _)| {
        matches!(envelope, Envelope::ToLeaders(_, In::Heartbeat { .. }))
    };
    // Its heartbeats are 1,000 s apart, and the timeout is 4,000 s.
    let mut leader = leader(false);
    let beats = |leader: &mut Stage<Leader>| {
        let asked = leader.waited(Duration::from_secs(1000));
        asked.sends.iter().any(is_heartbeat)
    };
    assert!(
        (0..2).all(|_| beats(&mut leader)),
        "it has asked for nothing"
    );
    let proposed = proposed(&mut leader);
    assert!((0..3).all(|_| beats(&mut leader)), "it may be answered yet");
    assert!((0..3).all(|_| !beats(&mut leader)));
    let lip = of_command(1, "lip");
    let propose = In::Propose {
        near: Set::EMPTY,
        batch: lip.clone(),
    };
    assert_eq!(leader.asked(propose), nothing());
    // Its own acceptor is on its node.
    leader.asked(proposed.answer_in(0, Lives::default()));
    assert!(!beats(&mut leader));
    let asked = leader.asked(In::Heartbeat {
        from: LeaderId(1),
        life: 1,
        clock: Timestamp(0),
    });
    let next = Proposed::of(&asked);
    assert_eq!(next.id, of(0, 2, 1));
    assert_eq!(next.payload.value.batch, lip);
    assert!(beats(&mut leader));
}
