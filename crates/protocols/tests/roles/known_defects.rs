//! Mistakes of published implementations that one role alone can make, each a test by its name.
//! Those that take a whole cluster are in the simulator's tests.

use crate::stage::{Stage, batch};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Role;
use ionian_kernel::time::Timestamp;
use ionian_protocols::multipaxos::acceptor::Acceptor;
use ionian_protocols::multipaxos::leader::Leader;
use ionian_protocols::multipaxos::message::{Proposer, Vote, Votes};
use ionian_protocols::multipaxos::proxy_leader::ProxyLeader;
use ionian_protocols::multipaxos::read_batcher::ReadBatcher;
use ionian_protocols::multipaxos::replica::Replica;
use ionian_protocols::multipaxos::{
    Envelope, MultiPaxos, acceptor, kind, leader, proxy_leader, read_batcher, replica,
};
use ionian_replication::batch::Value;

type Config = <MultiPaxos as Protocol>::Config;

/// Three acceptors, two of each other role, each on a node of its own.
fn config() -> Config {
    let mut next = (0..).map(NodeId);
    let instances = [1, 0, 2, 2, 2, 3, 2, 0]
        .map(|count| next.by_ref().take(count).collect())
        .to_vec();
    MultiPaxos::configure(Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    })
    .expect("a deployment")
}

fn propose(payload: &'static [u8]) -> leader::In {
    leader::In::Propose {
        proposer: Proposer::Client { id: ClientId(0) },
        near: Set::EMPTY,
        batch: batch(payload),
        again: false,
    }
}

fn votes(start: u64, votes: Vec<(Slot, Vote)>, watermark: u64) -> Votes {
    let (forgotten, watermark) = (Slot::ZERO, Slot(watermark));
    Votes {
        start: Slot(start),
        end: Slot::MAX,
        next: Slot::MAX,
        votes,
        forgotten,
        watermark,
    }
}

/// The same in answer to the phase 1 of one slot.
fn votes_in(slot: u64, voted: Vec<(Slot, Vote)>, watermark: u64) -> Votes {
    Votes {
        end: Slot(slot + 1),
        ..votes(slot, voted, watermark)
    }
}

/// What a leader hands to proxy leaders: slots and payloads.
fn proposals(sent: &[Envelope]) -> Vec<(Slot, Vec<Bytes>)> {
    let mut proposals = Vec::new();
    for envelope in sent {
        if let Envelope::ToProxyLeaders(_, proxy_leader::In::Phase2a { slot, value, .. }) = envelope
        {
            proposals.push((
                *slot,
                value
                    .batch
                    .commands()
                    .map(|command| command.to_owned().payload)
                    .collect(),
            ));
        }
    }
    proposals
}

fn phase1as(sent: &[Envelope]) -> Vec<(Round, Slot, Slot)> {
    let mut asked = Vec::new();
    for envelope in sent {
        if let Envelope::ToAcceptors(
            _,
            acceptor::In::Phase1a {
                round, start, end, ..
            },
        ) = envelope
        {
            asked.push((*round, *start, *end));
        }
    }
    asked
}

/// A leader in phase 1, and its round.
fn in_phase1() -> (Stage<Leader>, Round) {
    let mut leader = Stage::alone(config(), kind::Leader, Leader::new);
    leader.timer();
    let mut sent = Vec::new();
    for from in [AcceptorId(0), AcceptorId(1)] {
        sent = leader.tell(leader::In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        });
    }
    let round = phase1as(&sent)[0].0;
    (leader, round)
}

/// A leader that leads a log whose first `watermark` slots were voted for.
fn leading(watermark: u64, voted: &[(Slot, Vote)]) -> (Stage<Leader>, Round, Vec<Envelope>) {
    let (mut leader, round) = in_phase1();
    let mut sent = Vec::new();
    for from in [AcceptorId(0), AcceptorId(1)] {
        sent = leader.tell(leader::In::Phase1b {
            from,
            round,
            votes: votes(0, voted.to_vec(), watermark),
            clock: Timestamp(0),
        });
    }
    assert_eq!(leader.figure("leading"), 1);
    (leader, round, sent)
}

fn vote(round: u64, payload: &'static [u8]) -> Vote {
    Vote {
        round: Round(round),
        value: Value {
            stamp: Timestamp(1),
            batch: batch(payload),
        },
    }
}

#[test]
fn l2_a_slot_below_the_leaders_window_is_repaired() {
    let (mut leader, round, _) = leading(3, &[(Slot(1), vote(0, b"kept"))]);
    leader.tell(leader::In::Executed {
        from: ReplicaId(0),
        executed: Slot(3),
        kept: Slot(0),
        round,
        times: Default::default(),
    });
    assert_eq!(
        leader.figure("window"),
        0,
        "the leader has forgotten the slot"
    );
    let asked = phase1as(&leader.tell(leader::In::Recover {
        slots: vec![Slot(1)],
    }));
    assert_eq!(
        asked[0],
        (round, Slot(1), Slot(2)),
        "one slot, in the same round"
    );
    leader.tell(leader::In::Phase1b {
        from: AcceptorId(2),
        round,
        votes: votes_in(1, vec![], 3),
        clock: Timestamp(0),
    });
    let known = votes_in(1, vec![(Slot(1), vote(0, b"kept"))], 3);
    let sent = leader.tell(leader::In::Phase1b {
        from: AcceptorId(0),
        round,
        votes: known,
        clock: Timestamp(0),
    });
    assert_eq!(
        proposals(&sent),
        [(Slot(1), vec![Bytes::from_static(b"kept")])]
    );
    assert_eq!(leader.role.round(), round, "a hole causes no leader change");
}

/// Acceptor 2 answers the phase 1 of the round so late that the leader repairs slot 0 meanwhile. It
/// knew of an older vote, and not of what was chosen since: taken for an answer about the slot, it
/// would have two values proposed in one round.
#[test]
fn a_late_answer_of_phase_1_repairs_no_slot() {
    let (mut leader, round, _) = leading(0, &[]);
    assert_eq!(proposals(&leader.tell(propose(b"chosen"))).len(), 1);
    leader.tell(leader::In::Executed {
        from: ReplicaId(0),
        executed: Slot(1),
        kept: Slot(0),
        round,
        times: Default::default(),
    });
    assert_eq!(
        phase1as(&leader.tell(leader::In::Recover {
            slots: vec![Slot(0)]
        }))
        .len(),
        1
    );
    let late = votes(0, vec![(Slot(0), vote(0, b"older"))], 1);
    leader.tell(leader::In::Phase1b {
        from: AcceptorId(2),
        round,
        votes: late,
        clock: Timestamp(0),
    });
    let sent = leader.tell(leader::In::Phase1b {
        from: AcceptorId(1),
        round,
        votes: votes_in(0, vec![], 0),
        clock: Timestamp(0),
    });
    assert!(proposals(&sent).is_empty(), "{sent:?}");
    let chosen = votes_in(0, vec![(Slot(0), vote(round.0, b"chosen"))], 1);
    let sent = leader.tell(leader::In::Phase1b {
        from: AcceptorId(0),
        round,
        votes: chosen,
        clock: Timestamp(0),
    });
    assert_eq!(
        proposals(&sent),
        [(Slot(0), vec![Bytes::from_static(b"chosen")])]
    );
}

#[test]
fn l3_a_request_for_recovery_in_phase_1_restarts_nothing_and_drops_nothing() {
    let (mut leader, round) = in_phase1();
    leader.tell(propose(b"waits"));
    let sent = leader.tell(leader::In::Recover {
        slots: vec![Slot(0), Slot(1)],
    });
    assert!(sent.is_empty() && leader.role.round() == round, "{sent:?}");
    leader.tell(leader::In::Phase1b {
        from: AcceptorId(0),
        round,
        votes: votes(0, vec![], 0),
        clock: Timestamp(0),
    });
    let sent = leader.tell(leader::In::Phase1b {
        from: AcceptorId(1),
        round,
        votes: votes(0, vec![], 0),
        clock: Timestamp(0),
    });
    assert_eq!(
        proposals(&sent),
        [(Slot(0), vec![Bytes::from_static(b"waits")])]
    );
}

#[test]
fn l4_a_rejected_leader_waits_its_turn() {
    let (mut leader, round) = in_phase1();
    let higher = Round(round.0 + 1);
    let sent = leader.tell(leader::In::Nack { round: higher });
    assert!(phase1as(&sent).is_empty(), "it does not jump above");
    let wait = leader
        .role
        .next_timer()
        .expect("it stands again")
        .since(leader.now);
    let timeout = config().options().election_timeout;
    assert!(wait >= timeout, "after {wait:?} only");
    // And before that it asks whether the winner is gone.
    let sent = leader.timer();
    assert!(phase1as(&sent).is_empty() && !sent.is_empty(), "{sent:?}");
}

#[test]
pub(crate) fn s2_the_leader_continues_above_all_votes_and_fills_holes_with_noops() {
    let (mut leader, _, sent) = leading(3, &[(Slot(1), vote(0, b"found"))]);
    let found = vec![Bytes::from_static(b"found")];
    assert_eq!(
        proposals(&sent),
        [(Slot(0), vec![]), (Slot(1), found), (Slot(2), vec![])]
    );
    assert_eq!(
        proposals(&leader.tell(propose(b"new"))),
        [(Slot(3), vec![Bytes::from_static(b"new")])]
    );
}

#[test]
pub(crate) fn l10_a_deposed_leader_sends_queued_work_back() {
    let (mut leader, round) = in_phase1();
    leader.tell(propose(b"queued"));
    let sent = leader.tell(leader::In::Heartbeat {
        round: Round(round.0 + 1),
    });
    assert!(matches!(sent[..], [Envelope::ToClients(..)]), "{sent:?}");
    assert_eq!(leader.figure("queued"), 0);
}

/// Asked again while a queue of large values drains, each of them would make the queue longer.
#[test]
fn a_large_value_is_not_asked_for_again_before_it_can_have_arrived() {
    let mut proxy = Stage::alone(config(), kind::ProxyLeader, ProxyLeader::new);
    let asked = |sent: &[Envelope]| {
        sent.iter().any(|envelope| {
            matches!(
                envelope,
                Envelope::ToAcceptors(_, acceptor::In::Phase2a { .. })
            )
        })
    };
    for (slot, bytes, least_ms) in [(0, 16, 40), (1, 32_000_000, 1040)] {
        let value = Value {
            stamp: Timestamp(1),
            batch: batch(vec![7; bytes]),
        };
        let (proposer, replier, round) = (Proposer::Leader {}, ReplicaId(0), Round(64));
        let begun = proxy.now;
        assert!(asked(&proxy.tell(proxy_leader::In::Phase2a {
            slot: Slot(slot),
            round,
            value,
            proposer,
            replier
        })));
        while !asked(&proxy.timer()) {}
        let waited = proxy.now.since(begun);
        assert!(
            (least_ms..least_ms + 10).contains(&(waited.as_millis() as u64)),
            "{waited:?}"
        );
        for from in [AcceptorId(0), AcceptorId(1)] {
            proxy.tell(proxy_leader::In::Phase2b {
                from,
                slot: Slot(slot),
                round,
            });
        }
    }
}

#[test]
fn l7_a_lost_answer_stalls_no_read_batch() {
    let mut batcher = Stage::alone(config(), kind::ReadBatcher, ReadBatcher::new);
    let asked = |sent: &[Envelope]| -> AcceptorSet {
        let asked = sent.iter().filter_map(|envelope| match envelope {
            Envelope::ToAcceptors(to, acceptor::In::PreRead { .. }) => Some(*to),
            _ => None,
        });
        asked.fold(Set::EMPTY, Set::or)
    };
    let first = asked(&batcher.tell(read_batcher::In::Reads { reads: batch("?") }));
    assert_eq!(first.len(), 2, "thrifty at first");
    assert_eq!(
        asked(&batcher.timer()),
        Set::first(3),
        "then all that have not answered"
    );
}

#[test]
fn b4_a_read_at_a_huge_slot_costs_nothing() {
    let mut replica = Stage::alone(config(), kind::Replica, Replica::new);
    replica.tell(replica::In::Read {
        reads: batch("?"),
        executed: Slot::MAX,
    });
    assert_eq!(replica.figure("deferred_reads"), 1);
    assert!(replica.figure("log_end") <= 1 << 18);
    // It asks for what it believes to miss, a bounded piece at a time.
    for envelope in (0..4).flat_map(|_| replica.timer()) {
        if let Envelope::ToLeaders(_, leader::In::Recover { slots }) = envelope {
            assert!(slots.len() <= 32);
        }
    }
    // And forgets the read when no client can be waiting for it any more.
    for _ in 0..200 {
        replica.timer();
    }
    assert_eq!(replica.figure("deferred_reads"), 0);
}

#[test]
fn b4_a_vote_in_a_huge_slot_costs_nothing() {
    let mut acceptor = Stage::alone(config(), kind::Acceptor, Acceptor::new);
    let value = Value::default();
    let phase2a = acceptor::In::Phase2a {
        from: ProxyLeaderId(0),
        slot: Slot::MAX,
        round: Round(1),
        value,
    };
    assert!(acceptor.tell(phase2a).is_empty());
    assert_eq!(
        (acceptor.figure("votes"), acceptor.figure("refused")),
        (0, 1)
    );
}
