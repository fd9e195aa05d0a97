//! How a leader of Mencius repairs what a replica that is far behind lacks.

use super::*;
use ionian_protocols::mencius::acceptor;
use ionian_protocols::multipaxos::acceptor::In as InStripe;

/// It leads from position 3000 on. Some replica has executed every slot below 9000, and is lost;
/// this leader knows of none of them.
fn leads_far_ahead() -> Stage<Leader> {
    let mut leader = leader(&[]);
    leader.tell(executed(0, 9000));
    leader.timer();
    for from in [0, 1] {
        let reply = pre_vote_reply(from, true, Round(0));
        leader.tell(in_stripe(HOME, reply));
    }
    for from in [0, 1] {
        let nothing = Votes {
            start: Slot(3000),
            watermark: Slot(3000),
            ..votes(&[])
        };
        leader.tell(phase1b(HOME, from, first(), nothing));
    }
    for from in [0, 1] {
        leader.tell(noted(HOME, from, first(), 3000, 3000 + AHEAD));
    }
    leader
}

/// A replica lacks all slots from this one on, and asks for as many as it may.
fn lacks_all_from(slot: u64) -> In {
    In::Recover {
        from: ReplicaId(2),
        slots: (slot..slot + 32).map(Slot).collect(),
    }
}

/// The same, of a replica that knows that the other stripes are skipped there.
fn lacks_this_stripe_from(slot: u64) -> In {
    In::Recover {
        from: ReplicaId(2),
        slots: (slot..slot + 32).step_by(3).map(Slot).collect(),
    }
}

/// An answer for the positions from 1000 up to 3000: these were voted for in the first round.
fn told(from: u8, voted: &[u64], next: Slot) -> In {
    let votes = Votes {
        start: Slot(1000),
        end: Slot(3000),
        next,
        votes: voted
            .iter()
            .map(|position| (Slot(*position), vote(first(), 7, "a")))
            .collect(),
        forgotten: Slot(0),
        watermark: Slot(3000),
    };
    phase1b(HOME, from, first(), votes)
}

#[test]
pub(crate) fn what_a_replica_far_behind_lacks_is_asked_for_in_one_stretch() {
    let mut leader = leads_far_ahead();
    let message = InStripe::Phase1a {
        from: ID,
        round: first(),
        start: Slot(1000),
        end: Slot(3000),
    };
    let ask = acceptor::In::InStripe {
        stripe: HOME,
        message,
    };
    let expected = (Envelope::ToAcceptors(Set::first(3), ask), Some(0));
    assert_eq!(
        leader.asked(lacks_all_from(3000)),
        only(vec![expected.clone()]),
        "of 32 slots 11 are in this stripe"
    );
    assert_eq!(
        leader.asked(lacks_all_from(3000)),
        only(vec![]),
        "it is asked"
    );
    let mut leader = leads_far_ahead();
    assert_eq!(
        leader.asked(lacks_this_stripe_from(3000)),
        only(vec![expected]),
        "the replica knows of the others"
    );
}

#[test]
fn of_a_stretch_replicas_learn_the_noops_at_once_and_values_are_proposed_again() {
    let mut leader = leads_far_ahead();
    leader.tell(lacks_all_from(3000));
    assert_eq!(
        leader.asked(told(0, &[1200], Slot::MAX)),
        only(vec![]),
        "no read quorum"
    );
    let expected = vec![
        suggested(HOME, first(), 1200, value(7, "a"), Proposer::Leader {}),
        skip(replicas(0b111), HOME, 1000, 1200),
        skip(replicas(0b111), HOME, 1201, 2500),
    ];
    // One answer ends early: what is beyond is asked for again.
    assert_eq!(leader.asked(told(2, &[], Slot(2500))), only(expected));
    assert_eq!(leader.asked(told(1, &[], Slot::MAX)), only(vec![]), "late");
}
