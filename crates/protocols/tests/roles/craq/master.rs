//! The master's machine: which steps fit which chain.

use super::chain;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{decode_all, encode_all};
use ionian_protocols::craq::id::{ChainEpoch, ChainNodeId};
use ionian_protocols::craq::master::ChainMaster;
use ionian_protocols::craq::message::{Chain, Step};

pub(super) fn suspect(epoch: u64, from: u8, node: u8) -> Step {
    Step::Suspect {
        epoch: ChainEpoch(epoch),
        from: ChainNodeId(from),
        life: 1,
        node: ChainNodeId(node),
    }
}

pub(super) fn join(epoch: u64, node: u8, life: u64, behind: u8) -> Step {
    Step::Join {
        epoch: ChainEpoch(epoch),
        node: ChainNodeId(node),
        life,
        behind: ChainNodeId(behind),
    }
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

const ABC: &[(u8, u64)] = &[(0, 1), (1, 1), (2, 1)];

#[test]
fn a_suspicion_removes_a_member_of_the_chain_that_it_is_of() {
    let after = chain(1, &[(0, 1), (2, 1)]);
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
    let two = chain(1, &[(1, 1), (2, 1)]);
    let all = steps(chain(0, ABC), 2, &[suspect(0, 1, 0), suspect(1, 1, 2)]);
    assert_eq!(all, [two.clone(), two]);
    let one = chain(2, &[(1, 1)]);
    let all = steps(
        chain(0, ABC),
        1,
        &[suspect(0, 1, 0), suspect(1, 1, 2), suspect(2, 1, 1)],
    );
    assert_eq!(all[1..], [one.clone(), one], "the last one stays");
}

#[test]
fn a_node_joins_behind_a_member_of_that_epoch_if_it_is_none() {
    let two = chain(4, &[(0, 1), (1, 1)]);
    let founding = chain(0, ABC);
    let mut master = ChainMaster::new(founding, 2, false);
    master.step(suspect(0, 0, 2));
    for (step, expected) in [
        (join(0, 2, 1, 1), chain(1, &[(0, 1), (1, 1)])),
        (join(1, 1, 3, 0), chain(1, &[(0, 1), (1, 1)])),
        (join(1, 2, 1, 2), chain(1, &[(0, 1), (1, 1)])),
        (join(1, 7, 1, 0), chain(1, &[(0, 1), (1, 1)])),
        (join(1, 2, 1, 0), chain(2, &[(0, 1), (2, 1), (1, 1)])),
        (suspect(2, 0, 2), chain(3, &[(0, 1), (1, 1)])),
        (begin(2, 2), chain(3, &[(0, 1), (1, 1)])),
        (join(3, 2, 1, 1), chain(3, &[(0, 1), (1, 1)])),
        (join(3, 2, 2, 1), chain(4, &[(0, 1), (1, 1), (2, 2)])),
    ] {
        master.step(step);
        assert_eq!(master.chain(), &expected, "{step:?}");
    }
    assert_ne!(master.chain(), &two);
}

/// Of that epoch, and by a node that is a member or may become one.
#[test]
fn a_chain_is_renewed_with_the_same_members() {
    let renew = |epoch, from, life| Step::Renew {
        epoch: ChainEpoch(epoch),
        from: ChainNodeId(from),
        life,
    };
    let all = steps(
        chain(0, ABC),
        2,
        &[
            renew(0, 1, 1),
            renew(0, 1, 1),
            renew(1, 7, 1),
            renew(1, 1, 9),
        ],
    );
    let renewed = chain(1, ABC);
    assert_eq!(all[..3], [renewed.clone(), renewed.clone(), renewed]);
}

/// It is certain: no number of members is needed.
#[test]
fn a_new_life_ends_the_earlier_ones() {
    let two = chain(1, &[(0, 1), (1, 1)]);
    let all = steps(
        two.clone(),
        2,
        &[begin(1, 1), begin(2, 9), begin(1, 2), begin(0, 2)],
    );
    let one = chain(2, &[(0, 1)]);
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
    let after = chain(1, &[(0, 1), (2, 1)]);
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
