//! The master's machine: which steps fit which chain.

use super::{chain, revised};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{decode_all, encode_all};
use ionian_protocols::craq::id::{ChainEpoch, ChainNodeId};
use ionian_protocols::craq::master::ChainMaster;
use ionian_protocols::craq::message::{Aside, Chain, Step};

pub(super) fn suspect(epoch: u64, from: u8, node: u8) -> Step {
    Step::Suspect {
        epoch: ChainEpoch(epoch),
        from: ChainNodeId(from),
        life: 1,
        node: ChainNodeId(node),
    }
}

fn ready(epoch: u64, node: u8, life: u64) -> Step {
    let (epoch, node) = (ChainEpoch(epoch), ChainNodeId(node));
    Step::Ready { epoch, node, life }
}

fn full(epoch: u64, node: u8, life: u64) -> Step {
    let (epoch, node) = (ChainEpoch(epoch), ChainNodeId(node));
    Step::Full { epoch, node, life }
}

fn begin(node: u8, life: u64) -> Step {
    let node = ChainNodeId(node);
    Step::Begin { node, life }
}

/// The chains that the steps lead to, one after the other.
fn steps(first: Chain, least: usize, steps: &[Step]) -> Vec<Chain> {
    let mut master = ChainMaster::new(first, least, false);
    let step = |step: &Step| {
        master.step(*step);
        master.chain().clone()
    };
    steps.iter().map(step).collect()
}

const ABC: &[(u8, u64, bool)] = &[(0, 1, true), (1, 1, true), (2, 1, true)];

#[test]
fn a_suspicion_removes_a_member_of_the_chain_that_it_is_of() {
    let after = chain(1, &[(0, 1, true), (2, 1, true)]);
    let all = steps(
        chain(0, ABC),
        1,
        &[suspect(0, 0, 1), suspect(0, 2, 0), suspect(1, 1, 0)],
    );
    assert_eq!(
        all,
        [after.clone(), after.clone(), after],
        "an old one, and one of no member"
    );
}

/// c10: each of them is alive, and takes the others for dead.
#[test]
pub(crate) fn c10_suspicions_leave_as_many_members_as_can_be_alive() {
    let two = chain(1, &[(1, 1, true), (2, 1, true)]);
    let all = steps(chain(0, ABC), 2, &[suspect(0, 1, 0), suspect(1, 1, 2)]);
    assert_eq!(all, [two.clone(), two]);
    let one = chain(2, &[(1, 1, true)]);
    let all = steps(
        chain(0, ABC),
        1,
        &[suspect(0, 1, 0), suspect(1, 1, 2), suspect(2, 1, 1)],
    );
    assert_eq!(all[1..], [one.clone(), one], "the last one stays");
}

/// c9: it would have nothing, and be alone.
#[test]
fn c9_the_last_full_member_stays_while_another_joins() {
    let joined = chain(1, &[(0, 1, true), (1, 1, false)]);
    let whole = revised(1, chain(1, &[(0, 1, true), (1, 1, true)]));
    let all = steps(
        chain(0, &[(0, 1, true)]),
        1,
        &[
            ready(0, 1, 1),
            suspect(1, 1, 0),
            full(1, 1, 7),
            full(1, 1, 1),
            suspect(1, 1, 0),
        ],
    );
    assert_eq!(
        all,
        [
            joined.clone(),
            joined.clone(),
            joined,
            whole,
            chain(2, &[(1, 1, true)])
        ]
    );
}

#[test]
fn a_node_joins_at_the_end_when_all_members_are_full_and_it_is_none() {
    let two = chain(4, &[(0, 1, true), (1, 1, true)]);
    let three = chain(5, &[(0, 1, true), (1, 1, true), (2, 3, false)]);
    let all = steps(
        two.clone(),
        2,
        &[
            ready(3, 2, 3),
            ready(4, 1, 3),
            ready(4, 2, 3),
            ready(5, 3, 1),
        ],
    );
    assert_eq!(all, [two.clone(), two, three.clone(), three]);
}

/// The last member could wait for it without end. What it holds is not lost: nothing is
/// acknowledged before the last member is full.
#[test]
fn the_member_that_the_last_one_copies_from_can_be_put_aside() {
    let joining = chain(7, &[(0, 1, true), (1, 1, true), (2, 2, false)]);
    let with = |epoch, before: bool| {
        let (here, aside) = if before { (1, 0) } else { (0, 1) };
        Chain {
            aside: Some(Aside {
                member: joining.members[aside],
                before,
            }),
            ..chain(epoch, &[(here, 1, true), (2, 2, false)])
        }
    };
    let back = |epoch| chain(epoch, &[(0, 1, true), (1, 1, true)]);
    let last = |epoch, from, node| Step::Suspect {
        life: if from == 2 { 2 } else { 1 },
        epoch: ChainEpoch(epoch),
        from: ChainNodeId(from),
        node: ChainNodeId(node),
    };
    let all = |more: &[Step]| {
        let first = [last(7, 0, 1)];
        let all = steps(joining.clone(), 2, &[&first, more].concat());
        assert_eq!(all[0], with(8, false));
        all.last().cloned().expect("a step")
    };
    assert_eq!(all(&[last(8, 0, 2)]), back(9), "the last one is removed");
    let changed = [last(8, 2, 0)];
    assert_eq!(all(&changed), with(9, true), "the one before it");
    assert_eq!(
        all(&[changed[0], last(9, 2, 1)]),
        with(10, false),
        "the other one again"
    );
    assert_eq!(
        all(&[changed[0], last(9, 1, 2)]),
        back(10),
        "each where it was"
    );
    let other = chain(9, &[(1, 1, true), (2, 2, false)]);
    assert_eq!(all(&[begin(0, 2)]), other, "it has lost its memory");
    assert_eq!(all(&[begin(2, 3)]), back(9));
    let forgotten = revised(1, chain(8, &[(0, 1, true), (2, 2, false)]));
    assert_eq!(all(&[begin(1, 2)]), forgotten, "the one aside has");
    assert_eq!(
        all(&[full(8, 2, 2)]),
        revised(1, chain(8, &[(0, 1, true), (2, 2, true)]))
    );
    let all = steps(joining.clone(), 2, &[suspect(7, 1, 0)]);
    let same = core::slice::from_ref(&joining);
    assert_eq!(all, same, "there would be one full member");
    let all = steps(joining, 2, &[suspect(7, 1, 2)]);
    assert_eq!(all, [back(8)]);
}

/// It is certain: no number of members is needed.
#[test]
fn a_new_life_ends_the_earlier_ones() {
    let two = chain(1, &[(0, 1, true), (1, 1, true)]);
    let all = steps(
        two.clone(),
        2,
        &[begin(1, 1), begin(2, 9), begin(1, 2), begin(0, 2)],
    );
    let one = chain(2, &[(0, 1, true)]);
    assert_eq!(
        all,
        [two.clone(), two, one.clone(), one],
        "all that was acknowledged would be lost"
    );
}

#[test]
fn the_chain_is_the_state_and_the_answer() {
    let mut master = ChainMaster::new(chain(0, ABC), 1, false);
    let mut reply = Vec::new();
    master.apply(Timestamp(0), &encode_all(&suspect(0, 0, 1)), &mut reply);
    let after = chain(1, &[(0, 1, true), (2, 1, true)]);
    assert_eq!(decode_all::<Chain>(&reply.into()), Ok(after.clone()));
    let mut garbage = Vec::new();
    master.apply(Timestamp(0), b"?", &mut garbage);
    assert_eq!(decode_all::<Chain>(&garbage.into()), Ok(after.clone()));
    let mut snapshot = Vec::new();
    master.snapshot(&mut snapshot);
    let mut other = ChainMaster::new(chain(0, ABC), 1, false);
    other.restore(&snapshot).expect("a snapshot");
    assert_eq!(other.chain(), &after);
    assert!(other.restore(b"?").is_err());
    assert_eq!(other.chain(), &after);
    let mut seen = Vec::new();
    other.read(Timestamp(0), b"", &mut seen).expect("a read");
    assert_eq!(decode_all::<Chain>(&seen.into()), Ok(after));
}

/// It may have dropped what it had then, and be behind the one that stands aside.
#[test]
fn what_a_member_had_in_an_earlier_epoch_does_not_make_it_full() {
    let joining = chain(1, &[(0, 1, true), (1, 1, true), (2, 1, false)]);
    let aside = steps(joining, 2, &[suspect(1, 0, 1)]).remove(0);
    assert!(aside.is_aside(ChainNodeId(1), 1));
    let late = steps(aside.clone(), 2, &[full(1, 2, 1)]);
    assert_eq!(late, core::slice::from_ref(&aside));
    // Nor does one that is full say anything of another.
    let other = steps(aside.clone(), 2, &[full(2, 0, 1)]);
    assert_eq!(other, [aside]);
}

/// What it holds is a beginning of what each holds that stood before it.
#[test]
fn one_that_stands_aside_comes_back_behind_those_before_it() {
    let joining = chain(
        7,
        &[(0, 1, true), (1, 1, true), (2, 1, true), (3, 1, false)],
    );
    let all = steps(
        joining,
        3,
        &[
            suspect(7, 0, 2),
            suspect(8, 0, 1),
            begin(2, 2),
            suspect(10, 0, 3),
        ],
    );
    assert!(all[1].is_aside(ChainNodeId(1), 1), "{:?}", all[1]);
    assert_eq!(all[3], chain(11, &[(0, 1, true), (1, 1, true)]));
}
