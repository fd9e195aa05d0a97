//! The rules of a leader of S-Paxos (compartmentalization, section 7): it orders references, and
//! gives each payload one slot at most. All that it asks of its driver is compared.

use crate::spaxos_servers::*;
use crate::stage::Stage;
use ionian_kernel::id::*;
use ionian_kernel::layout::Options;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::spaxos::id::{DisseminatorId, PayloadNumber};
use ionian_protocols::spaxos::leader::{In, Leader};
use ionian_protocols::spaxos::{
    Envelope, acceptor, disseminator, proxy_leader, replica, stabilizer,
};
use ionian_replication::batch::{Batch, Value};

/// Void so late that it does not matter.
const LATE: u64 = 1000;

fn proposal_in(round: Round, number: u64, void_from: u64, floor: u64) -> In {
    let ticket = ionian_protocols::spaxos::message::Ticket {
        round,
        ..ticket(number, void_from, floor)
    };
    In::propose(&ticket, stabilizers(&[0, 1]), Set::one(ReplicaId(1)))
}

fn proposal(number: u64) -> In {
    proposal_in(round(1), number, LATE, 0)
}

/// A value for a slot goes to one proxy leader, for the payload of this number if any.
fn phase2a(slot: u64, value: Value, number: Option<u64>) -> Envelope {
    let (proposer, replier) = match number {
        // It is a batch like any other; a disseminator stands for its batcher.
        Some(number) => {
            let id = BatcherId(1);
            (Proposer::Batcher { id, number }, ReplicaId(1))
        }
        None => (Proposer::Leader {}, ReplicaId((slot % 2) as u8)),
    };
    let message = multipaxos::proxy_leader::In::Phase2a {
        slot: Slot(slot),
        round: round(1),
        value,
        proposer,
        replier,
    };
    // In turn, from the one on that its seed names.
    let proxy = Set::one(ProxyLeaderId(((slot + 1) % 2) as u8));
    Envelope::ToProxyLeaders(proxy, proxy_leader::In::Ordering { message })
}

fn orders(slot: u64, number: u64) -> Envelope {
    phase2a(slot, referred(number, LATE), Some(number))
}

fn to_disseminator(message: disseminator::In) -> Envelope {
    Envelope::ToDisseminators(Set::one(DisseminatorId(1)), message)
}

fn executed(slot: u64) -> In {
    ordering(multipaxos::leader::In::Executed {
        from: ReplicaId(0),
        executed: Slot(slot),
        kept: Slot(0),
        round: round(1),
        times: Default::default(),
    })
}

/// "It then uses the id as a proxy for the corresponding command and runs the MultiPaxos protocol
/// as usual" (7.1).
#[test]
fn a_stable_payload_gets_the_next_slot_by_its_reference() {
    let mut leader = leading();
    for (slot, number) in [(0, 7), (1, 8), (2, 5)] {
        assert_eq!(
            leader.asked(proposal(number)),
            only(vec![orders(slot, number)])
        );
    }
}

#[test]
pub(crate) fn a_payload_that_is_proposed_again_gets_no_second_slot() {
    let mut leader = leading();
    leader.asked(proposal(7));
    assert_eq!(leader.asked(proposal(7)), only(vec![]));
    assert_eq!(leader.asked(proposal(8)), only(vec![orders(1, 8)]));
}

/// The message that told the disseminator may have been lost.
#[test]
fn the_disseminator_of_a_payload_that_is_executed_learns_that_it_is_chosen() {
    let mut leader = leading();
    leader.asked(proposal(7));
    leader.asked(executed(1));
    let chosen = disseminator::In::Chosen {
        numbers: vec![PayloadNumber(7)],
        below: Slot(1),
    };
    assert_eq!(
        leader.asked(proposal(7)),
        only(vec![to_disseminator(chosen)])
    );
}

/// Below the floor everything is settled: what is proposed was under way for a long time.
#[test]
fn a_payload_below_the_floor_of_its_disseminator_gets_no_slot() {
    let mut leader = leading();
    leader.asked(proposal_in(round(1), 9, LATE, 9));
    assert_eq!(
        leader.asked(proposal_in(round(1), 8, LATE, 3)),
        only(vec![])
    );
}

/// Another life of a disseminator has numbers of its own.
#[test]
fn payloads_of_another_process_of_the_disseminator_are_other_payloads() {
    let mut leader = leading();
    leader.asked(proposal(7));
    let other = ionian_protocols::spaxos::message::PayloadId { life: 6, ..id(7) };
    let ticket = ionian_protocols::spaxos::message::Ticket {
        id: other,
        ..ticket(7, LATE, 0)
    };
    let asked = leader.asked(In::propose(&ticket, stabilizers(&[0, 1]), Set::EMPTY));
    assert_eq!(asked.sends.len(), 1, "{asked:?}");
    assert!(
        matches!(asked.sends[0].0, Envelope::ToProxyLeaders(..)),
        "{asked:?}"
    );
}

/// Proposes payload 7 of this process of the disseminator, void from slot `until` on; whether it
/// gets a slot.
fn is_ordered(leader: &mut Stage<Leader>, life: u64, void_from: u64) -> bool {
    let of_life = ionian_protocols::spaxos::message::PayloadId { life, ..id(7) };
    let ticket = ionian_protocols::spaxos::message::Ticket {
        id: of_life,
        ..ticket(7, void_from, 0)
    };
    let asked = leader.asked(In::propose(&ticket, stabilizers(&[0, 1]), Set::EMPTY));
    let orders = |(sent, _): &(Envelope, _)| matches!(sent, Envelope::ToProxyLeaders(..));
    asked.sends.iter().any(orders)
}

/// What was proposed on behalf of a process that is gone may still arrive.
#[test]
pub(crate) fn a_payload_of_an_earlier_process_gets_no_second_slot() {
    let mut leader = leading();
    let mut is_ordered = |life, void_from| is_ordered(&mut leader, life, void_from);
    assert!((5..9).all(|life| is_ordered(life, 10)));
    assert!((5..9).all(|life| !is_ordered(life, 10)));
    // Forgotten, because it would be void.
    assert!((9..15).all(|life| is_ordered(life, 20)));
    assert!((5..9).all(|life| !is_ordered(life, 10)));
}

/// A disseminator that restarts again and again is another process each time.
#[test]
fn a_leader_forgets_the_payloads_of_processes_that_the_log_has_passed() {
    let mut leader = leading();
    for life in 0..1000 {
        assert!(is_ordered(&mut leader, life, life + 5));
    }
    assert_eq!(leader.figure("payloads_taken"), 5);
}

/// A disseminator has a payload ordered in one round only.
#[test]
fn a_payload_of_an_earlier_round_gets_no_slot_and_its_disseminator_learns_the_round() {
    let mut leader = leading();
    let newer = disseminator::In::NewLeader { round: round(1) };
    let asked = leader.asked(proposal_in(Round(0), 7, LATE, 0));
    assert_eq!(asked, only(vec![to_disseminator(newer)]));
    // Of a later round this one is not the leader.
    assert_eq!(
        leader.asked(proposal_in(round(2), 7, LATE, 0)),
        only(vec![])
    );
}

/// It begins a round by itself to admit an acceptor, or for a change of the membership. The
/// disseminator has the payload ordered in that round under another name.
#[test]
pub(crate) fn a_payload_that_waits_for_the_window_gets_no_slot_in_the_leaders_next_round() {
    let mut leader = leading_with(Options {
        window_slots: 1,
        ..Options::default()
    });
    assert_eq!(leader.asked(proposal(7)), only(vec![orders(0, 7)]));
    assert_eq!(leader.asked(proposal(8)), only(vec![]), "it waits");
    let rejoin = multipaxos::leader::In::Rejoin {
        from: AcceptorId(2),
        nonce: 9,
        promise: round(1),
    };
    leader.asked(ordering(rejoin));
    assert!(!leader.role.is_leading());
    let orders: usize = [0, 1]
        .into_iter()
        .map(|from| {
            let votes = crate::servers::votes(&[]);
            let asked = leader.asked(ordering(crate::servers::phase1b(from, round(2), votes)));
            let orders = |(sent, _): &&(Envelope, _)| matches!(sent, Envelope::ToProxyLeaders(..));
            asked.sends.iter().filter(orders).count()
        })
        .sum();
    assert!(leader.role.is_leading());
    assert_eq!(orders, 0);
}

#[test]
fn a_leader_that_does_not_lead_gives_no_slots() {
    let mut leader = in_phase1();
    assert_eq!(leader.asked(proposal(7)), only(vec![]));
    let mut leader = leading();
    let higher = multipaxos::leader::In::Heartbeat {
        round: crate::servers::round(2, 1),
    };
    leader.asked(ordering(higher));
    assert_eq!(leader.asked(proposal(7)), only(vec![]));
}

/// In the slot that it would get, replicas would execute nothing.
#[test]
fn a_payload_that_would_be_void_in_its_slot_gets_none() {
    let mut leader = leading();
    leader.asked(proposal(7));
    assert_eq!(leader.asked(proposal_in(round(1), 8, 1, 0)), only(vec![]));
    let last = phase2a(1, referred(8, 2), Some(8));
    assert_eq!(
        leader.asked(proposal_in(round(1), 8, 2, 0)),
        only(vec![last])
    );
}

/// Commands reach the log by way of stabilizers only.
#[test]
fn a_proposal_that_is_not_a_reference_is_ignored() {
    let mut leader = leading();
    let commands = In::Propose {
        round: round(1),
        floor: PayloadNumber(0),
        near: Set::EMPTY,
        reference: batch(),
    };
    assert_eq!(leader.asked(commands), only(vec![]));
    let commands = multipaxos::leader::In::Propose {
        proposer: Proposer::Client { id: ClientId(0) },
        near: Set::EMPTY,
        batch: batch(),
        again: false,
    };
    assert_eq!(leader.asked(ordering(commands)), only(vec![]));
}

/// They have what is in flight ordered anew, in this round.
#[test]
fn disseminators_learn_when_a_leader_has_finished_phase_1() {
    let mut leader = in_phase1();
    leader.asked(promise(0));
    let asked = leader.asked(promise(1));
    let news = disseminator::In::NewLeader { round: round(1) };
    let news = Envelope::ToDisseminators(Set::first(2), news);
    assert!(asked.sends.contains(&(news, Some(0))), "{asked:?}");
}

/// Stabilizers forget what is kept, and disseminators must know how far the log is.
#[test]
fn each_heartbeat_tells_stabilizers_what_is_kept_and_disseminators_what_is_executed() {
    let mut leader = leading();
    for from in [0, 1] {
        leader.asked(ordering(multipaxos::leader::In::Executed {
            from: ReplicaId(from),
            executed: Slot(5),
            kept: Slot(3),
            round: round(1),
            times: Default::default(),
        }));
    }
    let asked = heartbeat(&mut leader);
    let to_others = |(envelope, fence): (Envelope, Option<usize>)| match envelope {
        Envelope::ToStabilizers(..) | Envelope::ToDisseminators(..) => Some((envelope, fence)),
        _ => None,
    };
    let others: Vec<_> = asked.into_iter().filter_map(to_others).collect();
    let kept = stabilizer::In::Kept {
        round: round(1),
        kept: Slot(3),
    };
    let progress = disseminator::In::Progress {
        round: round(1),
        executed: Slot(5),
    };
    let expected = vec![
        (Envelope::ToStabilizers(Set::first(3), kept), Some(0)),
        (Envelope::ToDisseminators(Set::first(2), progress), Some(0)),
    ];
    assert_eq!(others, expected);
}

/// All that it sends with its next heartbeat.
fn heartbeat(
    leader: &mut crate::stage::Stage<ionian_protocols::spaxos::leader::Leader>,
) -> Vec<(Envelope, Option<usize>)> {
    for _ in 0..20 {
        let asked = leader.waited(Duration::from_millis(50));
        let beats = |(envelope, _): &(Envelope, Option<usize>)| {
            matches!(
                envelope,
                Envelope::ToAcceptors(_, acceptor::In::Heartbeat { .. })
            )
        };
        if asked.sends.iter().any(beats) {
            return asked.sends;
        }
    }
    panic!("a leader sends heartbeats")
}

/// Payloads of earlier rounds that no slot refers to are void there.
#[test]
fn a_leader_that_is_to_advance_the_log_fills_it_with_noops_and_has_replicas_keep_it() {
    let mut leader = leading();
    let noop = |slot| {
        phase2a(
            slot,
            Value {
                stamp: Timestamp(1000),
                batch: Batch::default(),
            },
            None,
        )
    };
    let asked = leader.asked(In::CarryTo { slot: Slot(2) });
    assert_eq!(asked, only(vec![noop(0), noop(1)]));
    assert_eq!(leader.asked(In::CarryTo { slot: Slot(1) }), only(vec![]));
    assert_eq!(leader.asked(proposal(7)), only(vec![orders(2, 7)]));
    let keeps = heartbeat(&mut leader)
        .into_iter()
        .find_map(|(envelope, _)| match envelope {
            Envelope::ToReplicas(_, replica::In::Heartbeat { keep, .. }) => Some(keep),
            _ => None,
        });
    assert_eq!(keeps, Some(Slot(2)));
}

#[test]
fn a_leader_that_does_not_lead_advances_nothing() {
    let mut leader = in_phase1();
    assert_eq!(leader.asked(In::CarryTo { slot: Slot(2) }), only(vec![]));
    // Nor later: the round in which it was asked to is over.
    leader.asked(promise(0));
    let asked = leader.asked(promise(1));
    assert!(leader.role.is_leading());
    let proposals = asked
        .sends
        .iter()
        .filter(|(envelope, _)| matches!(envelope, Envelope::ToProxyLeaders(..)));
    assert_eq!(proposals.count(), 0, "{asked:?}");
}
