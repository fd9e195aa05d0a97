//! Large commands, and the same work again: what must not be queued, proposed, sent or logged
//! twice, and what must not wait behind it.

use crate::stage::{Outside, Stage, batch, birth, of_command};
use bytes::Bytes;
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, NodeId, Options, numbered};
use ionian_kernel::node::Node;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::{Lsn, Role};
use ionian_kernel::time::{Instant, Timestamp};
use ionian_kernel::wire::{Reader, encode_all};
use ionian_protocols::multipaxos::batcher::Batcher;
use ionian_protocols::multipaxos::client::ClientLane;
use ionian_protocols::multipaxos::leader::Leader;
use ionian_protocols::multipaxos::message::{Proposer, Vote, Votes};
use ionian_protocols::multipaxos::proxy_leader::ProxyLeader;
use ionian_protocols::multipaxos::{
    Envelope, Instance, Message, MultiPaxos, acceptor, batcher, client, kind, leader, proxy_leader,
    replica,
};
use ionian_replication::batch::{Answer, AnswersByClient, Batch, Command, Outcome, Purpose, Value};

type Config = <MultiPaxos as Protocol>::Config;

const MIB: usize = 1 << 20;

/// Three acceptors, two of each other role, each on a node of its own.
fn config() -> Config {
    let mut next = (0..).map(NodeId);
    let instances = [1, 2, 0, 2, 2, 3, 2, 0]
        .map(|count| next.by_ref().take(count).collect())
        .to_vec();
    let options = Options {
        window_bytes: 4 * MIB,
        ..Options::default()
    };
    let layout = Layout {
        f: 1,
        instances: numbered(instances),
        options,
        ..Layout::default()
    };
    MultiPaxos::configure(layout).expect("a deployment")
}

fn command(number: u64, bytes: usize) -> Batch {
    let (client, purpose, payload) = (
        ClientId(0),
        Purpose::Execute(SessionId(1)),
        Bytes::from(vec![7; bytes]),
    );
    // What a client says beside the number differs from one time to the next.
    Batch::one(&Command {
        client,
        purpose,
        number,
        floor: number / 2,
        payload,
    })
}

fn propose(batch: Batch, again: bool) -> leader::In {
    leader::In::Propose {
        proposer: Proposer::Client { id: ClientId(0) },
        near: Set::EMPTY,
        batch,
        again,
    }
}

/// A leader of an empty log, and its round.
fn leading() -> (Stage<Leader>, Round) {
    let mut leader = Stage::alone(config(), kind::Leader, Leader::new);
    leader.timer();
    for from in [AcceptorId(0), AcceptorId(1)] {
        leader.tell(leader::In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        });
    }
    let round = leader.role.round();
    for from in [AcceptorId(0), AcceptorId(1)] {
        let (start, end, next) = (Slot(0), Slot::MAX, Slot::MAX);
        let (forgotten, watermark) = (Slot(0), Slot(0));
        let votes = Votes {
            start,
            end,
            next,
            votes: vec![],
            forgotten,
            watermark,
        };
        leader.tell(leader::In::Phase1b {
            from,
            round,
            votes,
            clock: Timestamp(0),
        });
    }
    assert!(leader.role.is_leading());
    (leader, round)
}

/// The slots that a leader hands to proxy leaders, and how large their values are.
fn proposals(sent: &[Envelope]) -> Vec<(u64, usize)> {
    let mut proposals = Vec::new();
    for envelope in sent {
        if let Envelope::ToProxyLeaders(_, proxy_leader::In::Phase2a { slot, value, .. }) = envelope
        {
            proposals.push((slot.0, value.batch.byte_len() / 1000 * 1000));
        }
    }
    proposals
}

fn executed(slot: u64, round: Round) -> leader::In {
    leader::In::Executed {
        from: ReplicaId(0),
        executed: Slot(slot),
        kept: Slot(0),
        round,
        times: Default::default(),
    }
}

#[test]
pub(crate) fn what_a_leader_has_in_hand_is_neither_queued_nor_proposed_again() {
    let (mut leader, round) = leading();
    assert_eq!(
        proposals(&leader.tell(propose(command(0, 4 * MIB), false))).len(),
        1
    );
    assert!(
        proposals(&leader.tell(propose(command(1, 4 * MIB), false))).is_empty(),
        "it waits for the first"
    );
    for number in [0, 1, 0, 1] {
        assert!(
            leader
                .tell(propose(command(number, 4 * MIB), true))
                .is_empty()
        );
    }
    assert_eq!(
        (
            leader.figure("queued"),
            leader.figure("window"),
            leader.figure("repeated")
        ),
        (1, 1, 4)
    );
    // What it has not it takes, though it was proposed elsewhere before.
    leader.tell(propose(command(2, 4 * MIB), true));
    assert_eq!(leader.figure("queued"), 2);
    assert_eq!(proposals(&leader.tell(executed(1, round))).len(), 1);
    leader.tell(propose(command(1, 4 * MIB), true));
    assert_eq!(leader.figure("queued"), 1, "it is on its way");
    // What is executed may have to be answered once more.
    leader.tell(propose(command(0, 4 * MIB), true));
    assert_eq!(leader.figure("queued"), 2);
}

#[test]
fn a_leader_proposes_a_window_of_bytes_at_a_time_and_small_batches_pass_large_ones() {
    let (mut leader, round) = leading();
    for (number, bytes, proposed) in [
        (0, 3_000_000, 1),
        (1, 1_000_000, 1),
        (2, 1_000_000, 0),
        (3, 10, 1),
        (4, 10, 1),
    ] {
        let sent = leader.tell(propose(command(number, bytes), false));
        assert_eq!(proposals(&sent).len(), proposed, "command {number}");
    }
    assert_eq!((leader.figure("queued"), leader.figure("window")), (1, 4));
    assert_eq!(
        proposals(&leader.tell(executed(1, round))),
        [(4, 1_000_000)]
    );
    // One that is larger than the window goes alone, and nothing waits without end behind it.
    leader.tell(propose(command(5, 8 * MIB), false));
    leader.tell(propose(command(6, 1_000_000), false));
    assert_eq!(leader.figure("queued"), 2);
    let whole = 8 * MIB / 1000 * 1000;
    assert_eq!(proposals(&leader.tell(executed(5, round))), [(5, whole)]);
    assert_eq!(
        proposals(&leader.tell(executed(6, round))),
        [(6, 1_000_000)]
    );
}

#[test]
fn a_deposed_leader_turns_each_proposer_away_once() {
    let (mut leader, round) = leading();
    for number in 0..9 {
        leader.tell(propose(command(number, 4 * MIB), false));
    }
    let sent = leader.tell(leader::In::Heartbeat {
        round: Round(round.0 + 1),
    });
    assert!(
        matches!(sent[..], [Envelope::ToClients(to, _)] if to == Set::one(ClientId(0))),
        "{sent:?}"
    );
}

/// The leader's timer and the proxy leader's would both have the value sent again while its first
/// copy is on its way.
#[test]
pub(crate) fn a_proxy_leader_asks_by_its_own_timer_alone_and_only_who_has_not_voted() {
    let mut proxy = Stage::alone(config(), kind::ProxyLeader, ProxyLeader::new);
    let asked = |sent: &[Envelope]| -> AcceptorSet {
        let asked = sent.iter().filter_map(|envelope| match envelope {
            Envelope::ToAcceptors(to, acceptor::In::Phase2a { .. }) => Some(*to),
            _ => None,
        });
        asked.fold(Set::EMPTY, Set::or)
    };
    let phase2a = || {
        let value = Value {
            stamp: Timestamp(1),
            batch: batch("large"),
        };
        let (proposer, replier, round) = (Proposer::Leader {}, ReplicaId(0), Round(64));
        proxy_leader::In::Phase2a {
            slot: Slot(0),
            round,
            value,
            proposer,
            replier,
        }
    };
    let first = asked(&proxy.tell(phase2a()));
    assert_eq!(first.len(), 2);
    assert!(proxy.tell(phase2a()).is_empty(), "handed over again");
    let one = first.iter().next().unwrap();
    proxy.tell(proxy_leader::In::Phase2b {
        from: one,
        slot: Slot(0),
        round: Round(64),
    });
    let again = (0..20)
        .map(|_| asked(&proxy.timer()))
        .fold(Set::EMPTY, Set::or);
    assert_eq!(again, Set::first(3).without(Set::one(one)));
}

#[test]
fn a_batcher_hands_over_a_window_of_bytes_at_a_time_to_a_new_leader_as_well() {
    let mut batcher = Stage::alone(config(), kind::Batcher, Batcher::new);
    let proposed = |sent: Vec<Envelope>| -> Vec<(u64, bool)> {
        let proposed = sent.into_iter().filter_map(|envelope| match envelope {
            Envelope::ToLeaders(
                _,
                leader::In::Propose {
                    proposer: Proposer::Batcher { number, .. },
                    again,
                    ..
                },
            ) => Some((number, again)),
            _ => None,
        });
        proposed.collect()
    };
    let mut first = Vec::new();
    for number in 0..10 {
        first.extend(proposed(batcher.tell(batcher::In::Commands {
            commands: of_command(number, vec![7; 1_000_000]),
        })));
    }
    let base = first[0].0;
    assert_eq!(
        first,
        (0..4)
            .map(|place| (base + place, false))
            .collect::<Vec<_>>()
    );
    let sent = proposed(batcher.tell(batcher::In::BatchesChosen {
        numbers: vec![base + 1],
    }));
    assert_eq!(sent, [(base + 4, false)]);
    let sent = proposed(batcher.tell(batcher::In::NewLeader { round: Round(64) }));
    assert_eq!(sent, [0, 2, 3, 4].map(|place| (base + place, true)));
    let numbers = vec![base, base + 2, base + 3, base + 4];
    let sent = proposed(batcher.tell(batcher::In::BatchesChosen { numbers }));
    assert_eq!(sent, [5, 6, 7, 8].map(|place| (base + place, false)));
}

const ACCEPTOR: Address = Address {
    kind: kind::Acceptor,
    index: 0,
};

fn acceptor_node(config: &Config) -> Node<MultiPaxos> {
    let here = config.layout().node_of(ACCEPTOR).unwrap();
    let mut node = Node::new(config, true);
    node.host(
        ACCEPTOR,
        MultiPaxos::instantiate(config, birth(ACCEPTOR.kind, ACCEPTOR.index, here)),
    );
    node
}

fn vote_for(node: &mut Node<MultiPaxos>, outside: &mut Outside, round: u64, bytes: usize) {
    let value = Value {
        stamp: Timestamp(1),
        batch: command(1, bytes),
    };
    let (from, slot, round) = (ProxyLeaderId(0), Slot(3), Round(round));
    node.deliver(
        Members::from_bits(1),
        Message::Acceptor(acceptor::In::Phase2a {
            from,
            slot,
            round,
            value,
        }),
    );
    node.settle(Instant(1), outside);
}

/// Every new leader proposes again what its predecessors left, and each acceptor wrote all of it
/// once more.
#[test]
fn an_equal_vote_of_a_higher_round_is_logged_without_its_value() {
    let (config, mut outside) = (config(), Outside::default());
    let mut node = acceptor_node(&config);
    node.start(Instant(0), &mut outside);
    for round in [64, 64, 128, 192] {
        vote_for(&mut node, &mut outside, round, 1_000_000);
    }
    let large = outside
        .records
        .iter()
        .filter(|record| record.len() > 1000)
        .count();
    assert_eq!(
        large,
        1,
        "{:?}",
        outside.records.iter().map(Vec::len).collect::<Vec<_>>()
    );
    vote_for(&mut node, &mut outside, 256, 999);
    vote_for(&mut node, &mut outside, 320, 999);

    let mut again = acceptor_node(&config);
    for (lsn, record) in (1..).zip(&outside.records) {
        let bytes = Bytes::copy_from_slice(record);
        again
            .recover(ACCEPTOR, Lsn(lsn), &mut Reader::new(&bytes))
            .unwrap();
    }
    again.start(Instant(2), &mut Outside::default());
    let Some(Instance::Acceptor(acceptor)) = again.instance(ACCEPTOR) else {
        panic!("it lives here")
    };
    let votes: Vec<_> = acceptor
        .core()
        .votes()
        .map(|(slot, vote)| (slot, vote.round, vote.value.batch.byte_len()))
        .collect();
    assert_eq!(votes, [(Slot(3), Round(320), command(1, 999).byte_len())]);
}

#[test]
fn an_acceptor_testifies_and_refuses_while_its_disk_is_busy() {
    let (config, mut outside) = (config(), Outside::default());
    let mut node = acceptor_node(&config);
    node.start(Instant(0), &mut outside);
    vote_for(&mut node, &mut outside, 128, 1_000_000);
    assert!(outside.sent.is_empty(), "the vote waits for the disk");
    let late = Instant(10_000_000);
    node.deliver(
        Members::from_bits(1),
        Message::Acceptor(acceptor::In::PreVote { from: LeaderId(0) }),
    );
    node.deliver(
        Members::from_bits(1),
        Message::Acceptor(acceptor::In::Heartbeat {
            round: Round(64),
            kept: Slot(0),
        }),
    );
    node.settle(late, &mut outside);
    let said: Vec<Message> = outside.sent.drain(..).collect();
    assert!(
        matches!(
            said[..],
            [
                Message::Leader(leader::In::PreVoteReply { gone: true, .. }),
                Message::Leader(leader::In::Nack { .. })
            ]
        ),
        "{said:?}"
    );
    outside.durable = outside.records.len();
    node.on_durable(&mut outside);
    assert!(matches!(
        outside.sent[..],
        [Message::ProxyLeader(proxy_leader::In::Phase2b { .. })]
    ));
}

/// What takes long on its way to an acceptor must not look like the leader's death.
#[test]
fn who_hears_of_new_proposals_does_not_testify_against_their_leader() {
    let (config, mut outside) = (config(), Outside::default());
    let mut node = acceptor_node(&config);
    node.start(Instant(0), &mut outside);
    let mut gone_after = |slot: u64, now: u64| {
        let value = Value {
            stamp: Timestamp(1),
            batch: command(1, 10),
        };
        let (from, slot, round) = (ProxyLeaderId(0), Slot(slot), Round(64));
        node.deliver(
            Members::from_bits(1),
            Message::Acceptor(acceptor::In::Phase2a {
                from,
                slot,
                round,
                value,
            }),
        );
        node.settle(Instant(now), &mut outside);
        outside.durable = outside.records.len();
        node.on_durable(&mut outside);
        outside.sent.clear();
        node.deliver(
            Members::from_bits(1),
            Message::Acceptor(acceptor::In::PreVote { from: LeaderId(0) }),
        );
        node.settle(Instant(now + 300_000), &mut outside);
        matches!(
            outside.sent[..],
            [Message::Leader(leader::In::PreVoteReply { gone: true, .. })]
        )
    };
    assert!(!gone_after(0, 1_000_000));
    assert!(!gone_after(1, 2_000_000));
    assert!(
        gone_after(1, 3_000_000),
        "asked again for the same: a proxy leader can do that when the leader is gone"
    );
}

/// Beyond the next one to execute a replica keeps a bounded number of bytes; what it drops it asks
/// for in its turn.
#[test]
fn a_replica_that_misses_a_slot_keeps_a_bounded_number_of_bytes_behind_it() {
    let mut replica = Stage::alone(
        config(),
        kind::Replica,
        ionian_protocols::multipaxos::replica::Replica::new,
    );
    for slot in 1..30 {
        let value = Value {
            stamp: Timestamp(1),
            batch: command(slot, 4 * MIB),
        };
        replica.tell(replica::In::Chosen {
            slot: Slot(slot),
            value,
            replier: ReplicaId(1),
        });
    }
    let held: usize = replica
        .role
        .core()
        .chosen_from(Slot::ZERO)
        .map(|(_, value)| value.batch.byte_len())
        .sum();
    assert!((60 * MIB..65 * MIB).contains(&held), "{held} bytes");
    let value = Value {
        stamp: Timestamp(1),
        batch: command(0, 10),
    };
    replica.tell(replica::In::Chosen {
        slot: Slot(0),
        value,
        replier: ReplicaId(1),
    });
    assert!(replica.figure("executed") >= 15 && replica.figure("executed") < 30);
}

/// A leader's window was full of large values for ten milliseconds after they were executed:
/// replicas told of slots alone.
#[test]
fn a_replica_that_has_executed_a_part_of_the_window_of_bytes_tells_the_leaders_at_once() {
    let mut replica = Stage::alone(
        config(),
        kind::Replica,
        ionian_protocols::multipaxos::replica::Replica::new,
    );
    let mut told = Vec::new();
    for slot in 0..9 {
        let value = Value {
            stamp: Timestamp(1),
            batch: command(slot, 300_000),
        };
        let sent = replica.tell(replica::In::Chosen {
            slot: Slot(slot),
            value,
            replier: ReplicaId(1),
        });
        told.extend(sent.iter().filter_map(|envelope| match envelope {
            Envelope::ToLeaders(_, leader::In::Executed { executed, .. }) => Some(executed.0),
            _ => None,
        }));
    }
    assert_eq!(told, [4, 8], "a quarter of 4 MiB is in four of these");
}

/// A stretch of votes, from `start` up to `next`, of a value of this many bytes in each slot.
fn stretch(start: u64, next: Slot, slots: std::ops::Range<u64>, bytes: usize) -> Votes {
    let value = |slot| Value {
        stamp: Timestamp(1),
        batch: command(slot, bytes),
    };
    let votes = slots
        .map(|slot| {
            (
                Slot(slot),
                Vote {
                    round: Round(1),
                    value: value(slot),
                },
            )
        })
        .collect::<Vec<_>>();
    let watermark = votes.last().map_or(Slot(0), |(slot, _)| slot.next());
    Votes {
        start: Slot(start),
        end: Slot::MAX,
        next,
        votes,
        forgotten: Slot(0),
        watermark,
    }
}

/// With a log that takes longer to collect than an election timeout each candidate was followed by
/// the next, and by more of the same: 120 elections in 135 s, and no leader.
#[test]
pub(crate) fn a_phase_1_that_advances_is_not_begun_anew_and_one_that_does_not_is_given_more_time() {
    let mut leader = Stage::alone(config(), kind::Leader, Leader::new);
    leader.timer();
    for from in [AcceptorId(0), AcceptorId(1)] {
        leader.tell(leader::In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        });
    }
    let round = leader.role.round();
    let asked = |sent: &[Envelope]| {
        let phase1a = |envelope: &&Envelope| {
            matches!(
                envelope,
                Envelope::ToAcceptors(_, acceptor::In::Phase1a { .. })
            )
        };
        sent.iter().filter(phase1a).count()
    };
    let begun = leader.now;
    for stretch_of in 0..20 {
        let next = Slot(stretch_of + 1);
        let votes = stretch(stretch_of, next, stretch_of..stretch_of + 1, 10);
        assert_eq!(
            asked(&leader.tell(leader::In::Phase1b {
                from: AcceptorId(0),
                round,
                votes,
                clock: Timestamp(0)
            })),
            1,
            "for the next"
        );
        // Nearly as long as an election may take; the others are asked again, ever more slowly.
        let until = leader.now + std::time::Duration::from_millis(350);
        while leader.role.next_timer().is_some_and(|timer| timer < until) {
            leader.timer();
        }
        leader.now = until;
    }
    assert!(leader.now.since(begun).as_secs() >= 6);
    assert_eq!(
        (leader.role.round(), leader.figure("elections")),
        (round, 1)
    );
    // Then no message comes any more.
    let silent_since = leader.now;
    let stood = |sent: &[Envelope]| {
        sent.iter()
            .any(|it| matches!(it, Envelope::ToAcceptors(_, acceptor::In::PreVote { .. })))
    };
    while !stood(&leader.timer()) {}
    assert!(leader.now.since(silent_since) <= std::time::Duration::from_millis(800));
    let stood_at = leader.now;
    for from in [AcceptorId(0), AcceptorId(1)] {
        leader.tell(leader::In::PreVoteReply {
            from,
            gone: true,
            promise: round,
        });
    }
    assert_eq!(leader.figure("elections"), 2);
    while !stood(&leader.timer()) {}
    assert!(
        leader.now.since(stood_at) >= std::time::Duration::from_millis(800),
        "twice as long as the first"
    );
}

#[test]
fn what_phase_1_has_found_is_proposed_again_a_window_at_a_time_and_nothing_else_comes_into_its_slots()
 {
    let mut leader = Stage::alone(config(), kind::Leader, Leader::new);
    leader.timer();
    for from in [AcceptorId(0), AcceptorId(1)] {
        leader.tell(leader::In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        });
    }
    let round = leader.role.round();
    let mut sent = Vec::new();
    for from in [AcceptorId(0), AcceptorId(1)] {
        let votes = stretch(0, Slot::MAX, 0..10, 1_000_000);
        sent = leader.tell(leader::In::Phase1b {
            from,
            round,
            votes,
            clock: Timestamp(0),
        });
    }
    let slots = |sent: &[Envelope]| {
        proposals(sent)
            .into_iter()
            .map(|(slot, _)| slot)
            .collect::<Vec<_>>()
    };
    assert_eq!(slots(&sent), [0, 1, 2, 3]);
    assert!(leader.role.is_leading());
    assert!(
        leader.tell(propose(command(99, 10), false)).is_empty(),
        "what is new comes behind"
    );
    assert!(
        leader.tell(propose(command(7, 1_000_000), true)).is_empty(),
        "its proposer asks again"
    );
    assert_eq!(
        (
            leader.figure("queued"),
            leader.figure("repeated"),
            leader.figure("carried")
        ),
        (1, 1, 6)
    );
    // A replica misses one that is not proposed yet: another read quorum might tell something else.
    assert!(
        leader
            .tell(leader::In::Recover {
                slots: vec![Slot(6)]
            })
            .is_empty()
    );
    assert_eq!(slots(&leader.tell(executed(3, round))), [4, 5, 6]);
    // Others had these chosen.
    assert_eq!(slots(&leader.tell(executed(9, round))), [9, 10]);
    assert_eq!((leader.figure("queued"), leader.figure("carried")), (0, 0));
}

/// While large values come in, what is missing may be behind them; it may as well be lost.
#[test]
fn a_replica_asks_for_what_it_misses_though_large_values_never_stop_coming() {
    let mut replica = Stage::alone(config(), kind::Replica, replica::Replica::new);
    let begun = replica.now;
    let asks = |sent: &[Envelope]| {
        let asks = |envelope: &Envelope| {
            matches!(
                envelope,
                Envelope::ToReplicas(_, replica::In::Fetch { .. })
                    | Envelope::ToLeaders(_, leader::In::Recover { .. })
            )
        };
        sent.iter().any(asks)
    };
    let mut asked = false;
    for slot in 1..3000 {
        let value = Value {
            stamp: Timestamp(0),
            batch: command(slot, MIB / 8),
        };
        asked |= asks(&replica.tell(replica::In::Chosen {
            slot: Slot(slot),
            value,
            replier: ReplicaId(0),
        }));
        let until = replica.now + std::time::Duration::from_millis(2);
        while replica.role.next_timer().is_some_and(|at| at <= until) {
            asked |= asks(&replica.timer());
        }
        replica.now = until;
        if asked {
            break;
        }
    }
    let after = replica.now.since(begun);
    assert!(
        asked && after < std::time::Duration::from_secs(2),
        "not within {after:?}"
    );
}

/// What a lane proposes: to which leader, the number of its first command, whether it says that it
/// did so before, and the bytes.
fn proposed(sent: &[Envelope]) -> Vec<(u8, u64, bool, Bytes)> {
    let mut found = Vec::new();
    for envelope in sent {
        if let Envelope::ToLeaders(leaders, leader::In::Propose { batch, again, .. }) = envelope {
            let leader = leaders.iter().next().expect("one leader");
            let number = batch.commands().next().expect("one command").number;
            found.push((leader.0, number, *again, encode_all(batch).into()));
        }
    }
    found
}

/// A round of leader 0.
const ROUND: Round = Round(64);

/// A lane where there are no batchers, with an open session, that follows [`ROUND`].
fn lane() -> Stage<ClientLane> {
    let mut next = (0..).map(NodeId);
    let instances = [1, 0, 0, 3, 2, 3, 2, 0]
        .map(|count| next.by_ref().take(count).collect())
        .to_vec();
    let config = MultiPaxos::configure(Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    });
    let config = config.expect("a deployment");
    let mut lane = Stage::alone(config, kind::Client, ClientLane::new);
    let nonce = proposed(&lane.tell(client::In::NewLeader { round: ROUND }))[0].1;
    lane.tell(answers(Purpose::Open, nonce, Outcome::Opened(SessionId(1))));
    lane
}

fn answers(purpose: Purpose, number: u64, outcome: Outcome) -> client::In {
    let mut answers = AnswersByClient::default();
    answers.push(&Answer {
        client: ClientId(0),
        purpose,
        number,
        outcome,
    });
    client::In::Answers {
        answers: answers.take_some(0, Slot(1)),
    }
}

fn submit(token: u64, bytes: usize) -> client::In {
    let payload = Bytes::from(vec![token as u8; bytes]);
    client::In::Submit {
        request: Request {
            token,
            operation: Operation::Write,
            payload,
        },
    }
}

/// A node that still has the first copy knows the others by their bytes; and a node that does not
/// lead is not sent them.
#[test]
fn copies_of_a_large_command_are_the_same_bytes_and_go_to_the_leader_of_the_round() {
    let mut lane = lane();
    let mut sent: Vec<_> = [10, 40_000, 10]
        .into_iter()
        .flat_map(|bytes| {
            let token = lane.figure("in_flight");
            proposed(&lane.tell(submit(token, bytes)))
        })
        .collect();
    lane.tell(answers(
        Purpose::Execute(SessionId(1)),
        0,
        Outcome::Done(Bytes::new()),
    ));
    let begun = lane.now;
    let until = begun + std::time::Duration::from_secs(2);
    while lane.role.next_timer().is_some_and(|at| at < until) {
        sent.extend(proposed(&lane.timer()));
    }
    // Everything is asked for again after 0.3 and 0.9 s, and then after 2.1 and 4.5 s.
    let of = |number| sent.iter().filter(|it| it.1 == number).collect::<Vec<_>>();
    let (large, small) = (of(1), of(2));
    assert_eq!(large.len(), 3);
    assert!(
        large.iter().all(|copy| *copy == large[0]),
        "{:?}",
        large.iter().map(|it| (it.0, it.2)).collect::<Vec<_>>()
    );
    assert_eq!(large[0].0, ROUND.leader().0);
    let leaders: Vec<_> = small.iter().map(|copy| (copy.0, copy.2)).collect();
    assert_eq!(leaders[0], (ROUND.leader().0, false));
    assert!(
        leaders[1..]
            .iter()
            .all(|(leader, again)| *again && *leader != ROUND.leader().0),
        "{leaders:?}"
    );
    // When the leader of the round says nothing for long, the large one finds another as well.
    let until = begun + std::time::Duration::from_millis(4900);
    while lane.role.next_timer().is_some_and(|at| at < until) {
        sent.extend(proposed(&lane.timer()));
    }
    let strayed = sent
        .iter()
        .filter(|it| it.1 == 1 && it.0 != ROUND.leader().0);
    assert!(strayed.count() > 0);
}

#[test]
fn a_lane_that_looked_for_a_leader_in_vain_sends_only_small_commands_again() {
    let mut lane = lane();
    lane.tell(submit(0, 40_000));
    lane.tell(submit(1, 10));
    let leader = ROUND.leader().0;
    let asked = (0..9)
        .flat_map(|_| proposed(&lane.timer()))
        .find(|it| it.1 == 1)
        .expect("it is asked again");
    assert_ne!(asked.0, leader);
    let again = proposed(&lane.tell(client::In::NotLeader { round: ROUND }));
    let again: Vec<_> = again.iter().map(|it| (it.0, it.1, it.2)).collect();
    assert_eq!(again, [(leader, 1, true)], "the large one is there already");
    assert!(
        lane.tell(client::In::NotLeader { round: ROUND }).is_empty(),
        "it does not stray any more"
    );
    // A new leader has neither. The small one passes the large one.
    let next = Round(ROUND.0 + 1);
    let again = proposed(&lane.tell(client::In::NewLeader { round: next }));
    let again: Vec<_> = again
        .iter()
        .filter(|it| it.1 < 2)
        .map(|it| (it.0, it.1))
        .collect();
    assert_eq!(again, [(next.leader().0, 1), (next.leader().0, 0)]);
}
