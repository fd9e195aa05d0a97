//! How an acceptor of EPaxos that has lost its memory takes part again: what it asks for, and about
//! what it is silent (the rules are at the top of `acceptor/returning.rs`). All that it asks of its
//! driver is compared.

use crate::epaxos_acceptor::*;
use crate::epaxos_process::*;
use crate::stage::only;
use ionian_kernel::id::*;
use ionian_kernel::layout::Options;
use ionian_kernel::role::Role;
use ionian_kernel::status::Status;
use ionian_kernel::wire::encode_all;
use ionian_protocols::epaxos::acceptor::{Acceptor, In, Record};
use ionian_protocols::epaxos::instance::{InstanceId, OWN};
use ionian_protocols::epaxos::message::{Choice, Copy, Evidence, Learned, Reach};
use ionian_protocols::epaxos::{Envelope, leader, replica};

#[test]
fn it_asks_no_acceptor_before_its_own_leader_has_answered() {
    let records = vec![Record::Life { life: 1 }];
    let (mut process, started) = Process::of(config(3, 1, Options::default()), records, true);
    let life = (encode_all(&Record::Life { life: 2 }), true);
    let is_away = (encode_all(&returning(false, &[], &[])), false);
    let mut expected = only(vec![is_away, life], vec![]);
    expected.release_below = Some(0);
    assert_eq!(started, expected);
    assert_eq!(process.woken(), does(&[], vec![begin(&[0, 1, 2])]));
    let [first, ..] = reaches();
    let expected = does(&[returning(false, &[first], &[])], vec![begin(&[1, 2])]);
    assert_eq!(process.asked(boundary(0)), expected);
    assert_eq!(process.woken(), does(&[], vec![begin(&[1, 2])]));
}

/// The number of its life is larger than those of the acceptors before it, however many they had.
#[test]
fn with_an_empty_disk_in_place_of_two_lost_ones_it_returns_before_it_is_in_any_life() {
    let born = |records| {
        let config = config(3, 1, Options::default());
        Process::born(config, records, |birth| birth.predecessors = 2)
    };
    let life = Record::Life {
        life: (2 << 24) + 1,
    };
    let away = returning(false, &[], &[]);
    let (process, started) = born(vec![]);
    assert_eq!(process.records, [away.clone(), life.clone()]);
    // Its process has ended when the first record was on disk, and the second was not.
    assert_eq!(born(vec![away.clone()]).1, started);
    // The leader of its node, which has ended too, must wait for it again.
    let (mut process, started) = born(process.records);
    assert_eq!(started.records, []);
    let [(Envelope::ToLeaders(leaders, leader::In::Begin { .. }), _)] = &started.sends[..] else {
        panic!("{started:?}");
    };
    assert_eq!(*leaders, Set::one(LeaderId(1)));
    is_silent(&mut process, of(0, 3, 2));
}

#[test]
fn it_copies_when_its_own_leader_has_answered_and_names_the_spaces() {
    let mut process = Process::second();
    let all = reaches();
    process.asked(boundary(0));
    let mut sends = vec![begin(&[2])];
    sends.extend(asks(&all[..2]));
    let expected = does(&[returning(false, &all[..2], &[])], sends);
    assert_eq!(process.asked(boundary(1)), expected);
    // A leader that answers later is named too, and those asked already are asked again.
    let expected = does(&[returning(false, &all, &[])], asks(&all));
    assert_eq!(process.asked(boundary(2)), expected);
}

/// They know nothing yet of its earlier spaces being over.
#[test]
fn a_copy_counts_no_more_when_another_leader_has_answered() {
    let mut process = Process::second();
    let all = reaches();
    process.asked(boundary(1));
    let asked = process.asked(page_for(1, 0, vec![]));
    assert_eq!(asked, does(&[kept(0)], vec![]));
    process.asked(boundary(0));
    let expected = does(&[returning(false, &all, &[])], asks(&all));
    assert_eq!(process.asked(boundary(2)), expected);
    assert_eq!(process.asked(page(2, vec![])), does(&[kept(0)], vec![]));
    let asked = process.asked(page(0, vec![]));
    assert_eq!(asked.sends, vec![(returned(), Some(3))]);
}

#[test]
fn the_first_boundary_of_a_leader_stands() {
    let mut process = Process::returned(vec![]);
    let again = begins(space(0, 3), 5);
    assert_eq!(process.asked(again), nothing());
    let id = of(0, 3, 2);
    let expected = does(&[recorded(2, id, &[])], vec![answer(id, &[])]);
    assert_eq!(process.asked(pre_accept(id, &[])), expected);
}

/// The answer is to an earlier process: in the meantime the leader may have proposed more.
#[test]
fn a_boundary_for_an_earlier_life_is_ignored() {
    let mut process = Process::second();
    let Reach { space, below } = reaches()[1];
    let life = 1;
    let late = In::Boundary { life, space, below };
    assert_eq!(process.asked(late), nothing());
    assert_eq!(process.woken(), does(&[], vec![begin(&[0, 1, 2])]));
}

/// A request or its answer was lost.
#[test]
fn a_page_is_asked_for_again_after_a_second() {
    let mut process = Process::asking();
    for _ in 0..4 {
        assert_eq!(process.woken(), nothing());
    }
    assert_eq!(process.woken(), does(&[], asks(&reaches())));
    assert_eq!(process.woken(), nothing());
}

/// Of five it copies from three: a majority less one without it has two, so one of those is asked.
#[test]
fn it_answers_nothing_before_enough_others_have_given_copies() {
    let mut process = Process::second_of(5, 2);
    let life = |leader| if leader == 1 { 2 } else { 1 };
    for leader in [0, 2, 3, 4, 1] {
        process.asked(begins(space(leader, life(leader)), 0));
    }
    let (own, reader) = (of(1, 2, 0), nothing());
    for from in [0, 2, 3] {
        is_silent(&mut process, of(0, 1, 0));
        is_silent(&mut process, own);
        assert_eq!(process.asked(decide(own, &[])), nothing());
        assert_eq!(process.asked(read()), reader);
        let copy = In::Copy {
            from: AcceptorId(4),
            life: 2,
            spaces: vec![],
            first: InstanceId::default(),
        };
        assert_eq!(process.asked(copy), nothing());
        let asked = process.asked(page_for(5, from, vec![]));
        if from != 3 {
            assert_eq!(asked, does(&[kept(0)], vec![]));
            continue;
        }
        let all: Vec<_> = (0..5).map(|leader| space(leader, life(leader))).collect();
        let below = 0;
        let boundaries: Vec<_> = all.iter().map(|&space| Reach { space, below }).collect();
        let peers = Record::Peers {
            lives: lives(1, 2),
            closed: all,
        };
        let records = [
            kept(0),
            returning(true, &boundaries, &[0, 1, 2, 3, 4]),
            peers,
        ];
        let mut expected = does(&records, vec![returned()]);
        expected.release_below = Some(0);
        assert_eq!(asked, expected);
    }
    let expected = does(&[recorded(0, own, &[])], vec![answer(own, &[])]);
    assert_eq!(process.asked(pre_accept(own, &[])), expected);
    assert_eq!(process.asked(read()), sees(&[own]));
}

#[test]
fn a_command_that_conflicts_with_a_copied_one_names_it() {
    let mut process = Process::asking();
    let (named, bare, early) = (of(0, 3, 0), of(0, 3, 1), of(0, 1, 0));
    let without = Copy::Open {
        id: bare,
        payload: None,
    };
    let expected = does(
        &[
            kept(0),
            copied(0, early, true),
            copied(1, named, true),
            copied(2, bare, false),
        ],
        vec![],
    );
    let copies = vec![open(early), open(named), without];
    assert_eq!(process.asked(page(0, copies)), expected);
    // Of one that it has without the command it takes the command from another.
    let expected = does(&[copied(3, bare, true)], vec![]);
    let asked = process.asked(page(2, vec![open(named), open(bare)]));
    assert_eq!(asked.records[1..2], expected.records);
    assert_eq!(asked.sends, vec![(returned(), Some(4))]);

    let new = of(2, 1, 0);
    let on = [early, named, bare];
    let expected = does(&[recorded(4, new, &on)], vec![answer(new, &on)]);
    assert_eq!(process.asked(pre_accept(new, &[])), expected);
    let all = [early, named, bare, new];
    assert_eq!(process.asked(read()), sees(&all));
}

/// No process of this acceptor can have known it, so there is no need to be silent.
#[test]
fn a_copied_instance_that_is_new_is_not_taken_over() {
    let mut process = Process::asking();
    let new = of(0, 3, 2);
    let asked = process.asked(page(0, vec![open(new)]));
    assert_eq!(asked, does(&[kept(0)], vec![]));
    process.asked(page(2, vec![]));
    let expected = does(&[recorded(2, new, &[])], vec![answer(new, &[])]);
    assert_eq!(process.asked(pre_accept(new, &[])), expected);
}

#[test]
pub(crate) fn it_is_silent_below_a_boundary_and_answers_from_there_on() {
    let mut process = Process::returned(vec![]);
    is_silent(&mut process, of(0, 3, 0));
    is_silent(&mut process, of(0, 3, 1));
    let [first, second, third] = [2, 3, 4].map(|number| of(0, 3, number));
    let expected = does(&[recorded(2, first, &[])], vec![answer(first, &[])]);
    assert_eq!(process.asked(pre_accept(first, &[])), expected);
    let voted = voted(3, second, OWN, command(&[]));
    let expected = does(&[voted], vec![to_leader(0, accepted(second, OWN))]);
    let asked = process.asked(accept(0, second, OWN, command(&[])));
    assert_eq!(asked, expected);
    let recovery = ballot(1, 2);
    let expected = does(
        &[promised(4, third, recovery)],
        vec![testimony(third, recovery, Evidence::default())],
    );
    assert_eq!(process.asked(prepare(third, recovery)), expected);
}

#[test]
fn about_an_earlier_space_it_is_silent_where_a_copy_told_of_the_instance() {
    let (told, untold) = (of(0, 2, 5), of(0, 2, 4));
    let mut process = Process::returned(vec![open(told)]);
    is_silent(&mut process, told);
    // The process that would propose it is gone.
    assert_eq!(process.asked(pre_accept(untold, &[])), nothing());
    let recovery = ballot(1, 2);
    let expected = does(
        &[promised(3, untold, recovery)],
        vec![testimony(untold, recovery, Evidence::default())],
    );
    assert_eq!(process.asked(prepare(untold, recovery)), expected);
    let voted = voted(4, untold, recovery, Choice::Noop {});
    let expected = does(&[voted], vec![to_leader(2, accepted(untold, recovery))]);
    let asked = process.asked(accept(2, untold, recovery, Choice::Noop {}));
    assert_eq!(asked, expected);
}

/// Those that it copied from may have recorded commands of earlier spaces after that.
#[test]
fn about_a_leader_that_answers_after_the_copies_it_is_silent_but_for_new_instances() {
    let mut process = Process::second();
    process.hear([0, 1].map(boundary));
    process.asked(page_for(2, 0, vec![]));
    let asked = process.asked(page_for(2, 2, vec![]));
    let expected = vec![(returned(), Some(3)), (begin(&[2]), Some(5))];
    assert_eq!(asked.sends, expected);
    let (earlier, now) = (of(2, 1, 9), of(2, 2, 1));
    // It asks the leader of what it is asked.
    let expected = does(&[], vec![begin(&[2])]);
    assert_eq!(process.asked(pre_accept(now, &[])), expected);
    let all = [
        reaches()[0],
        reaches()[1],
        Reach {
            space: space(2, 2),
            below: 1,
        },
    ];
    let expected = does(
        &[
            returning(true, &all, &[0, 1]),
            copied(2, of(2, 2, 0), false),
        ],
        // It copies again: those may have recorded more of the leader's earlier spaces.
        asks(&all),
    );
    assert_eq!(process.asked(begins(space(2, 2), 1)), expected);
    is_silent(&mut process, earlier);
    is_silent(&mut process, of(2, 2, 0));
    let expected = does(&[recorded(3, now, &[])], vec![answer(now, &[])]);
    assert_eq!(process.asked(pre_accept(now, &[])), expected);
}

#[test]
fn a_copied_decision_is_passed_on() {
    let mut process = Process::asking();
    let id = of(0, 3, 1);
    let asked = process.asked(page(0, vec![decided(id)]));
    let learned: Learned = command(&[]).into();
    let (at, choice, replier) = (0, command(&[]), None);
    let message = replica::In::Committed {
        id,
        choice,
        replier,
    };
    let beside = Envelope::ToReplicas(Set::one(ReplicaId(1)), message);
    let records = [kept(0), Record::Decided { at, id, learned }];
    assert_eq!(asked, only(encoded(&records), vec![(beside, None)]));
    process.asked(page(2, vec![]));

    let (recovery, evidence) = (
        ballot(1, 2),
        Evidence {
            decided: Some(command(&[])),
            ..Evidence::default()
        },
    );
    let expected = does(&[], vec![testimony(id, recovery, evidence)]);
    assert_eq!(process.asked(prepare(id, recovery)), expected);
    let message = In::Commit {
        id,
        learned: command(&[]).into(),
        replier: None,
    };
    let commit = Envelope::ToAcceptors(Set::one(AcceptorId(0)), message);
    let expected = does(&[], vec![commit]);
    assert_eq!(process.asked(pre_accept(id, &[])), expected);
    // What conflicts with it depends on it.
    let new = of(2, 1, 0);
    let expected = does(&[recorded(2, new, &[id])], vec![answer(new, &[id])]);
    assert_eq!(process.asked(pre_accept(new, &[])), expected);
}

#[test]
fn a_page_names_the_next_one_and_only_that_is_taken_in() {
    let mut process = Process::asking();
    let (id, next, end) = (of(0, 1, 0), of(0, 1, 1), of(0, 1, 2));
    let asked = process.asked(part(0, InstanceId::default(), vec![open(id)], Some(next)));
    let expected = does(
        &[kept(0), copied(0, id, true)],
        vec![ask(0, &reaches(), next)],
    );
    assert_eq!(asked, expected);
    // A page that comes twice, one of another place, and one for an earlier life.
    let late = page(0, vec![open(end)]);
    assert_eq!(process.asked(late), nothing());
    let elsewhere = part(0, end, vec![open(end)], None);
    assert_eq!(process.asked(elsewhere), nothing());
    let mut earlier = part(0, next, vec![open(end)], None);
    if let In::Copied { life, .. } = &mut earlier {
        *life = 1;
    }
    assert_eq!(process.asked(earlier), nothing());
    let asked = process.asked(part(0, next, vec![open(next)], None));
    assert_eq!(asked, does(&[kept(1), copied(1, next, true)], vec![]));
    // All of acceptor 0 is copied; that of acceptor 2 is not.
    let again = part(0, next, vec![open(end)], None);
    assert_eq!(process.asked(again), nothing());
    let asked = process.asked(page(2, vec![]));
    assert_eq!(asked.sends, vec![(returned(), Some(3))]);
    // It asks no more.
    assert_eq!(process.asked(page(2, vec![open(end)])), nothing());
}

/// What a process finds of these records: all, or those that are left when it has written a
/// checkpoint and its driver drops what came without a key before that.
fn found(process: &mut Process, has_checkpoint: bool) -> Vec<Record> {
    if !has_checkpoint {
        return process.records.clone();
    }
    let before = process.records.clone();
    let keyed = before.into_iter().filter(|it| Acceptor::key(it).is_some());
    let keyed: Vec<_> = keyed.collect();
    let checkpoint = process.checkpoint();
    checkpoint.into_iter().chain(keyed).collect()
}

#[test]
fn after_a_restart_it_is_as_silent_as_before() {
    for has_checkpoint in [false, true] {
        let (told, untold, passed) = (of(0, 2, 5), of(0, 2, 4), of(0, 3, 1));
        let mut before = Process::returned(vec![open(told), decided(passed)]);
        let records = found(&mut before, has_checkpoint);
        let mut process = before.restarted(records);
        is_silent(&mut process, told);
        is_silent(&mut process, of(0, 3, 0));
        assert_eq!(process.asked(pre_accept(untold, &[])), nothing());
        let (one, recovery) = (Evidence::default(), ballot(1, 2));
        let expected = does(
            &[promised(3, untold, recovery)],
            vec![testimony(untold, recovery, one)],
        );
        assert_eq!(process.asked(prepare(untold, recovery)), expected);
        let known = Evidence {
            decided: Some(command(&[])),
            ..Evidence::default()
        };
        let expected = does(&[], vec![testimony(passed, recovery, known)]);
        assert_eq!(process.asked(prepare(passed, recovery)), expected);
        let (new, on) = (of(0, 3, 2), [told, passed]);
        let expected = does(&[recorded(4, new, &on)], vec![answer(new, &on)]);
        assert_eq!(process.asked(pre_accept(new, &[])), expected);
    }
}

/// An old record is written again as one of all that is known.
#[test]
fn a_copied_instance_that_is_written_again_stays_a_copied_one() {
    let told = of(0, 2, 5);
    let before = Process::returned(vec![open(told)]);
    let mut records = before.records.clone();
    let at = 0;
    assert!(records.contains(&copied(at, told, true)));
    records.retain(|record| *record != copied(at, told, true));
    records.push(Record::Whole {
        at: 3,
        id: told,
        promised: OWN,
        evidence: Box::default(),
        copied: Some(Some(payload())),
    });
    let mut process = before.restarted(records);
    is_silent(&mut process, told);
    let new = of(0, 3, 2);
    let expected = does(&[recorded(4, new, &[told])], vec![answer(new, &[told])]);
    assert_eq!(process.asked(pre_accept(new, &[])), expected);
}

#[test]
fn after_a_restart_before_the_copies_are_complete_it_begins_again() {
    for has_checkpoint in [false, true] {
        let mut before = Process::second();
        before.hear([0, 1].map(boundary));
        let id = of(0, 1, 0);
        before.asked(page_for(2, 0, vec![open(id)]));
        let records = found(&mut before, has_checkpoint);
        let mut process = before.restarted(records);
        is_silent(&mut process, of(0, 3, 2));
        let mut sends = vec![begin(&[2])];
        sends.extend(asks(&reaches()[..2]));
        assert_eq!(process.woken(), does(&[], sends));
        let asked = process.asked(page_for(2, 2, vec![]));
        assert_eq!(asked, does(&[kept(1)], vec![]));
        is_silent(&mut process, of(0, 3, 2));
        let asked = process.asked(page_for(2, 0, vec![open(id)]));
        assert_eq!(asked.sends[0], (returned(), Some(3)));
        let new = of(0, 3, 2);
        let expected = does(&[recorded(3, new, &[id])], vec![answer(new, &[id])]);
        assert_eq!(process.asked(pre_accept(new, &[])), expected);
    }
}

/// Another loss of its memory begins another life, for which nothing counts that others said.
#[test]
fn a_second_loss_begins_anew() {
    let records = [1, 2].map(|life| Record::Life { life }).into();
    let mut process = Process::of(config(3, 1, Options::default()), records, true).0;
    assert_eq!(process.asked(boundary(1)), nothing());
    let Reach { space, below } = reaches()[1];
    let life = 3;
    let asked = process.asked(In::Boundary { life, space, below });
    assert_eq!(
        asked.records,
        encoded(&[returning(false, &reaches()[1..2], &[])])
    );
    assert_eq!(process.asked(page(0, vec![])), nothing());
}

fn remembers(process: &Process) -> bool {
    let remembers = Status::of(&process.stage.role).remembers;
    remembers.expect("it has memory that others rely on")
}

fn commit(id: InstanceId) -> In {
    In::Commit {
        id,
        learned: Learned::Noop {},
        replier: None,
    }
}

#[test]
fn it_remembers_when_all_leaders_have_answered_and_what_it_is_silent_about_is_decided() {
    assert!(remembers(&Process::first()));
    let mut process = Process::second();
    process.hear([0, 1].map(boundary));
    let told = of(0, 2, 5);
    process.asked(page_for(2, 0, vec![open(told)]));
    process.asked(page_for(2, 2, vec![]));
    // Decided are all of which it knows, but leader 2 has not answered.
    process.hear([told, of(0, 3, 0), of(0, 3, 1)].map(commit));
    process.woken();
    assert!(!remembers(&process));
    // Leader 2 had proposed one.
    process.asked(begins(space(2, 1), 1));
    process.woken();
    assert!(!remembers(&process));
    // The others are asked again, because of the earlier spaces of leader 2.
    process.asked(page(0, vec![]));
    process.asked(page(2, vec![]));
    process.woken();
    assert!(!remembers(&process));
    // A new one counts for nothing.
    process.asked(pre_accept(of(2, 1, 1), &[]));
    process.asked(commit(of(2, 1, 0)));
    process.woken();
    assert!(remembers(&process));
}

#[test]
fn it_does_not_remember_while_a_copied_instance_is_open() {
    let told = of(0, 2, 5);
    let mut process = Process::returned(vec![open(told)]);
    process.hear([of(0, 3, 0), of(0, 3, 1)].map(commit));
    process.woken();
    assert!(!remembers(&process));
    process.asked(commit(told));
    process.woken();
    assert!(remembers(&process));
    assert_eq!(process.stage.role.next_timer(), None);
    // It is silent all the same about what it never knew.
    assert_eq!(process.asked(pre_accept(of(0, 2, 4), &[])), nothing());
}

/// A copy says how far replicas keep a space: no acceptor passes those instances on any more.
#[test]
fn it_waits_for_no_instance_that_replicas_keep() {
    let mut process = Process::asking();
    let reach = |below| Reach {
        space: space(0, 3),
        below,
    };
    let mut copy = page(0, vec![]);
    if let In::Copied { page, .. } = &mut copy {
        page.reaches.push(reach(1));
    }
    let reaches = vec![reach(1)];
    assert_eq!(
        process.asked(copy),
        does(&[Record::Kept { next: 0, reaches }], vec![])
    );
    let asked = process.asked(page(2, vec![]));
    assert_eq!(
        asked.records[3..],
        encoded(&[copied(0, of(0, 3, 1), false)])
    );
    process.asked(commit(of(0, 3, 1)));
    process.woken();
    assert!(remembers(&process));
}

/// Acceptor 0 answers the first request after the second one is sent, which names more spaces. Of
/// the earlier space of leader 2 it may record more commands after that answer.
#[test]
fn a_late_page_of_a_request_that_named_fewer_spaces_is_ignored() {
    let mut process = Process::second();
    process.hear([0, 1].map(boundary));
    process.asked(begins(space(2, 2), 0));
    process.asked(page_for(2, 0, vec![]));
    process.asked(page(2, vec![]));
    is_silent(&mut process, of(2, 1, 0));
    // The answer to the second one counts.
    let asked = process.asked(page(0, vec![]));
    assert!(asked.sends.iter().any(|(to, _)| *to == returned()));
}
