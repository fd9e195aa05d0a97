//! What a member waits for before it has another one removed, and when it takes that back.

use super::leases::*;
use super::*;
use ionian_kernel::role::Role;
use ionian_protocols::craq::message::{Leaving, Step};

/// From the burst in which an announcement comes to the removal.
pub(super) const WAIT: Duration = Duration::from_micros(440_001);

/// The node has a session with the master's log.
pub(super) fn with_session(mut node: Stage<ChainNode>) -> Stage<ChainNode> {
    let sends = node.started().sends;
    let sends: Vec<_> = sends.into_iter().map(|(envelope, _)| envelope).collect();
    steps(&mut node, &sends);
    node
}

/// The head, which has not heard node 1 for four seconds.
fn misses_1() -> Stage<ChainNode> {
    let mut head = with_session(leased(0));
    for _ in 0..40 {
        pass(&mut head, Duration::from_millis(100));
        head.tell(beat(2, 0, true));
    }
    head
}

/// The same, which learns now that it has announced that node 1 is leaving.
pub(super) fn waits_for_silent_1() -> Stage<ChainNode> {
    let mut head = misses_1();
    head.tell(In::Chain {
        chain: announced(1, 0),
    });
    head
}

/// The steps that follow if the master answers the looks among these messages.
fn answer(node: &mut Stage<ChainNode>, sends: &[Envelope], chain: &Chain) -> Vec<Step> {
    let mut found = steps(node, sends);
    if !inquiries(sends).is_empty() {
        let sends = master_says(node, sends, chain);
        found.extend(steps(node, &sends));
    }
    found
}

/// Time passes to the next timer, and the master answers. The third node lives.
fn turn(node: &mut Stage<ChainNode>, chain: &Chain) -> Vec<Step> {
    node.tell(beat(2, 0, true));
    let sends = node.timer();
    answer(node, &sends, chain)
}

/// The steps within this time, in which each turn is followed by what `each` does.
fn steps_within(
    node: &mut Stage<ChainNode>,
    time: Duration,
    chain: &Chain,
    mut each: impl FnMut(&mut Stage<ChainNode>),
) -> Vec<Step> {
    let end = node.now + time;
    let mut found = Vec::new();
    while node.role.next_timer().expect("a timer") <= end {
        found.extend(turn(node, chain));
        each(node);
    }
    node.now = end;
    found
}

/// The first step, with the time at that.
pub(super) fn next_step(
    node: &mut Stage<ChainNode>,
    chain: &Chain,
    mut each: impl FnMut(&mut Stage<ChainNode>),
) -> Step {
    for _ in 0..500 {
        if let Some(step) = turn(node, chain).pop() {
            return step;
        }
        each(node);
    }
    panic!("no step");
}

fn hear_1(node: &mut Stage<ChainNode>) {
    node.tell(beat(1, 0, true));
}

/// It was stopped during the wait. What the other has sent meanwhile has come, and waits behind the
/// timers.
#[test]
fn a_node_that_was_stopped_hears_what_has_come_before_it_has_a_member_removed() {
    let (mut head, told) = (waits_for_silent_1(), announced(1, 0));
    assert_eq!(steps_within(&mut head, WAIT / 2, &told, |_| {}), []);
    pass(&mut head, Duration::from_secs(3));
    let sends = head.timer();
    hear_1(&mut head);
    head.tell(beat(2, 0, true));
    assert_eq!(answer(&mut head, &sends, &told), []);
}

/// The answer to an earlier look may wait before it.
#[test]
fn a_look_that_began_during_the_wait_removes_no_member() {
    let (mut head, told) = (waits_for_silent_1(), announced(1, 0));
    let mut sends = Vec::new();
    while inquiries(&sends).is_empty() {
        sends = head.timer();
    }
    pass(&mut head, Duration::from_secs(3));
    assert_eq!(head.waited(Duration::ZERO).deadlines, []);
    assert_eq!(answer(&mut head, &sends, &told), []);
    assert_eq!(next_step(&mut head, &told, |_| {}), remove(0, 1));
}

/// It takes as long as a member may be silent.
#[test]
fn an_announcement_is_withdrawn_when_the_member_is_heard_without_a_gap() {
    let (mut head, told) = (waits_for_silent_1(), announced(1, 0));
    hear_1(&mut head);
    let heard = head.now;
    assert_eq!(next_step(&mut head, &told, hear_1), withdraw(0, 1));
    let since = head.now.since(heard);
    assert!(since >= Duration::from_millis(400), "{since:?}");
}

/// Each time it is heard once.
#[test]
fn a_member_that_stalls_again_and_again_is_removed() {
    let (mut head, told) = (waits_for_silent_1(), announced(1, 0));
    let mut next = head.now;
    let step = next_step(&mut head, &told, |head| {
        if head.now >= next {
            hear_1(head);
            next = head.now + Duration::from_millis(900);
        }
    });
    assert_eq!(step, remove(0, 1));
}

/// It counts none as dead when it starts, nor as heard.
#[test]
fn a_node_that_has_restarted_withdraws_nothing_before_it_has_heard_the_member() {
    let told = announced(1, 0);
    let records = vec![
        Record::Life { life: 1 },
        Record::Entered {
            chain: told.clone(),
            end: Slot(0),
        },
    ];
    let mut layout = layout(3);
    layout.options.own.insert("lease_ms", 400);
    let config = Craq::configure(layout).expect("a deployment");
    let head = Stage::after(config, &birth(0), records, ChainNode::new);
    let mut head = with_session(head);
    let started = head.now;
    // It waits anew as well.
    assert_eq!(next_step(&mut head, &told, |_| {}), remove(0, 1));
    assert_eq!(head.now.since(started), WAIT);
}

#[test]
fn only_the_member_that_made_an_announcement_withdraws_it() {
    let mut head = with_session(leased(0));
    let told = announced(1, 2);
    hear_1(&mut head);
    head.tell(In::Chain {
        chain: told.clone(),
    });
    let time = Duration::from_secs(3);
    assert_eq!(steps_within(&mut head, time, &told, hear_1), []);
}

/// It says that one is heard before it says that another is not.
#[test]
fn what_is_to_be_withdrawn_goes_before_what_is_to_be_announced() {
    let mut middle = with_session(leased(1));
    let told = announced(0, 1);
    middle.tell(In::Chain {
        chain: told.clone(),
    });
    for _ in 0..10 {
        middle.tell(beat(0, 0, true));
        pass(&mut middle, Duration::from_millis(100));
    }
    let hear_0 = |node: &mut Stage<ChainNode>| drop(node.tell(beat(0, 0, true)));
    hear_0(&mut middle);
    assert_eq!(next_step(&mut middle, &told, hear_0), withdraw(1, 1));
}

#[test]
fn a_member_that_is_announced_again_is_waited_for_anew() {
    let (mut head, told) = (waits_for_silent_1(), announced(1, 0));
    assert_eq!(steps_within(&mut head, WAIT / 2, &told, |_| {}), []);
    head.tell(In::Chain {
        chain: revised(2, chain(0, ABC)),
    });
    let leaving = Leaving {
        announced: announcement(3),
        ..told.leaving[0]
    };
    let again = Chain {
        leaving: vec![leaving],
        ..revised(3, chain(0, ABC))
    };
    head.tell(In::Chain {
        chain: again.clone(),
    });
    let learned = head.now;
    assert_eq!(next_step(&mut head, &again, |_| {}), remove(0, 3));
    assert_eq!(head.now.since(learned), WAIT);
}

/// The wait goes on: no lease was given since.
#[test]
fn a_wait_outlasts_a_change_of_the_chain() {
    let mut head = misses_1();
    let told = announced(1, 0);
    head.tell(In::Chain {
        chain: told.clone(),
    });
    let learned = head.now;
    assert_eq!(steps_within(&mut head, WAIT / 2, &told, |_| {}), []);
    // The last member has lost its memory, and joined again.
    let joins = Chain {
        leaving: told.leaving,
        ..chain(2, &[(0, 1), (1, 1), (2, 2)])
    };
    head.tell(In::Chain {
        chain: joins.clone(),
    });
    assert_eq!(next_step(&mut head, &joins, |_| {}), remove(0, 1));
    assert_eq!(head.now.since(learned), WAIT);
}
