//! Which proxy leaders a leader gives slots to when what it gives them takes long.

use crate::stage::{Stage, batch, elected};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::role::Role;
use ionian_kernel::time::Instant;
use ionian_protocols::multipaxos::leader::{In, Leader};
use ionian_protocols::multipaxos::message::{Proposer, Times};
use ionian_protocols::multipaxos::{Envelope, acceptor, proxy_leader};

/// The leader of three servers with every role on each; or on a node of its own.
fn leading(node: NodeId) -> Stage<Leader> {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let layout = Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        ..Layout::default()
    };
    elected(layout, node, 2)
}

/// To whom it gives a slot.
fn given(said: &[Envelope]) -> Vec<ProxyLeaderId> {
    let given = said.iter().filter_map(|envelope| match envelope {
        Envelope::ToProxyLeaders(to, proxy_leader::In::Phase2a { .. }) => to.iter().next(),
        _ => None,
    });
    given.collect()
}

/// One slot after the other, each of which is executed this many milliseconds after it was
/// proposed. To whom it was given then, and to whom again.
fn slots(
    leader: &mut Stage<Leader>,
    slots: core::ops::Range<u64>,
    takes_ms: u64,
) -> Vec<(ProxyLeaderId, Vec<ProxyLeaderId>)> {
    let round = leader.role.round();
    let mut all = Vec::new();
    for slot in slots {
        (0..3).for_each(|from| {
            drop(leader.tell(In::ProxyAlive {
                from: ProxyLeaderId(from),
            }))
        });
        let (proposer, near) = (Proposer::Client { id: ClientId(0) }, Set::EMPTY);
        let first = given(&leader.tell(In::Propose {
            proposer,
            near,
            batch: batch("x"),
            again: false,
        }));
        let (end, mut again) = (Instant(leader.now.0 + takes_ms * 1000), Vec::new());
        while leader.role.next_timer().is_some_and(|timer| timer < end) {
            let said = leader.timer();
            again.extend(given(&said));
            if said.iter().any(|envelope| {
                matches!(
                    envelope,
                    Envelope::ToAcceptors(_, acceptor::In::PreVote { .. })
                )
            }) {
                for from in (0..3).map(AcceptorId) {
                    leader.tell(In::PreVoteReply {
                        from,
                        gone: false,
                        promise: round,
                    });
                }
            }
        }
        leader.now = end;
        let (from, executed, times) = (ReplicaId(0), Slot(slot + 1), Times::default());
        leader.tell(In::Executed {
            from,
            executed,
            kept: executed,
            round,
            times,
        });
        assert!(leader.role.is_leading());
        all.push((first[0], again));
    }
    all
}

/// Each slot takes longer than five resend times, whichever proxy leader has it. The one on its
/// node was given none after the second, and those far away, by which everything takes twice as
/// long, got them.
#[test]
fn the_proxy_leader_on_its_node_keeps_the_slots_where_a_quorum_is_far_away() {
    let mut leader = leading(NodeId(0));
    for (slot, (first, again)) in slots(&mut leader, 0..10, 300).into_iter().enumerate() {
        assert_eq!(
            (first, &again[..]),
            (ProxyLeaderId(0), &[ProxyLeaderId(0)][..]),
            "slot {slot}"
        );
    }
    assert_eq!(leader.figure("failing_proxy_leaders"), 0);
}

/// While disks were slow one proxy leader after the other was taken for a failing one, some for two
/// minutes: when they were fast again, that one had all the work which happened to be left.
#[test]
fn all_proxy_leaders_are_given_slots_when_disks_that_were_slow_are_fast_again() {
    let mut leader = leading(NodeId(9));
    slots(&mut leader, 0..40, 500);
    assert_eq!(leader.figure("failing_proxy_leaders"), 0);
    let mut shares = [0; 3];
    for (first, again) in slots(&mut leader, 40..70, 2) {
        assert_eq!(again, []);
        shares[usize::from(first.0)] += 1;
    }
    assert_eq!(
        (shares, leader.figure("failing_proxy_leaders")),
        ([10, 10, 10], 0)
    );
}
