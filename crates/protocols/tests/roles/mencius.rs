//! Roles of Mencius, one alone: mistakes that a whole cluster may hide, for what a replica misses
//! it asks for again; and what those report of themselves that have a MultiPaxos role in each
//! stripe.

use crate::stage::{Stage, Touching, batch, birth, of_command};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::time::{Instant, Timestamp};
use ionian_protocols::mencius::acceptor::{self, Acceptor};
use ionian_protocols::mencius::config::Config;
use ionian_protocols::mencius::leader::{self, Leader};
use ionian_protocols::mencius::message::Reserved;
use ionian_protocols::mencius::proxy_leader::{self, ProxyLeader};
use ionian_protocols::mencius::replica::{In, Replica};
use ionian_protocols::mencius::stripe::{Stripe, StripePosition};
use ionian_protocols::mencius::{Envelope, Mencius, client, kind};
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::{Proposer, Vote, Votes};
use ionian_replication::batch::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Three servers with every role on each.
fn three() -> Arc<Config> {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let layout = Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        ..Layout::default()
    };
    Mencius::configure(layout).expect("a deployment")
}

/// How far a replica of three servers has executed when it has heard this.
fn executed_after(messages: Vec<In>) -> Slot {
    let mut replica = Stage::new(three(), &birth(kind::Replica, 0, NodeId(0)), Replica::new);
    messages
        .into_iter()
        .for_each(|message| drop(replica.tell(message)));
    replica.role.executed()
}

fn skip(stripe: u8, start: u64, end: u64) -> In {
    In::Skip {
        stripe: Stripe(stripe),
        start: StripePosition(start),
        end: StripePosition(end),
    }
}

fn chosen(slot: u64) -> In {
    let message = multipaxos::replica::In::Chosen {
        slot: Slot(slot),
        value: Value::default(),
        replier: ReplicaId(1),
    };
    In::OfLog { message }
}

/// A range of skipped slots of which some are known: by votes, and from another range.
fn known_in_part() -> Vec<In> {
    // Slots 1, 4, 7 and 10 are those of stripe 1: 7 is chosen by votes, 1 is known to be skipped.
    vec![
        chosen(7),
        skip(1, 0, 1),
        skip(1, 0, 4),
        skip(0, 0, 4),
        skip(2, 0, 4),
    ]
}

/// The same when the part that is known is executed already.
fn executed_in_part() -> Vec<In> {
    vec![
        chosen(7),
        skip(1, 0, 1),
        skip(0, 0, 4),
        skip(2, 0, 4),
        skip(1, 0, 4),
    ]
}

#[test]
pub(crate) fn l6_a_range_of_skips_does_not_stop_at_known_slots() {
    assert_eq!(executed_after(known_in_part()), Slot(12));
}

#[test]
pub(crate) fn l6_a_range_of_skips_does_not_stop_at_executed_slots() {
    assert_eq!(executed_after(executed_in_part()[..4].to_vec()), Slot(4));
    assert_eq!(executed_after(executed_in_part()), Slot(12));
}

/// It takes a peer that asks in the moment between two messages: no seed comes to it.
#[test]
fn no_peer_is_given_a_state_in_which_a_command_is_ahead_of_its_turn() {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let options = Options {
        own: BTreeMap::from([("out_of_order", 1)]),
        ..Options::default()
    };
    let layout = Layout {
        f: 1,
        instances: numbered(vec![nodes; 8]),
        options,
        ..Layout::default()
    };
    let config = Mencius::configure(layout).expect("a deployment");
    // The key that the first byte names.
    let machine =
        || Touching::machine(|command, footprint| footprint.writes.push(command[0].into()));
    let birth = Birth {
        machine: &machine,
        ..birth(kind::Replica, 0, NodeId(0))
    };
    let mut replica = Stage::new(config, &birth, Replica::new);
    let value = |key: u8| Value {
        stamp: Timestamp(1),
        batch: of_command(key.into(), vec![key]),
    };
    let of_log = |message| In::OfLog { message };
    let chosen = |slot, value| {
        of_log(multipaxos::replica::In::Chosen {
            slot: Slot(slot),
            value,
            replier: ReplicaId(1),
        })
    };
    let asks = || {
        of_log(multipaxos::replica::In::FetchSnapshot {
            from: ReplicaId(1),
            executed: Slot(9),
            offset: 0,
        })
    };
    let given = |sent: Vec<Envelope>| {
        let given = sent.into_iter().filter_map(|envelope| match envelope {
            Envelope::ToReplicas(
                _,
                In::OfLog {
                    message: multipaxos::replica::In::SnapshotChunk { executed, .. },
                },
            ) => Some(executed),
            _ => None,
        });
        given.collect::<Vec<_>>()
    };
    // Sessions are looked through at the first slot.
    replica.tell(chosen(0, Value::default()));
    replica.tell(In::Suggested {
        slot: Slot(1),
        value: value(1),
    });
    replica.tell(chosen(2, value(2)));
    assert_eq!(
        (replica.figure("executed"), replica.figure("executed_early")),
        (1, 1)
    );
    assert_eq!(given(replica.tell(asks())), []);
    replica.tell(chosen(1, value(1)));
    assert_eq!(given(replica.tell(asks())), [Slot(3)]);
}

/// What stripes count is reported as a sum; rounds are no numbers to add, and slots are those of
/// the log.
#[test]
fn an_acceptor_reports_its_stripes_as_one() {
    let mut acceptor = Stage::new(three(), &birth(kind::Acceptor, 0, NodeId(0)), Acceptor::new);
    let mut tell = |stripe: u8, message| {
        acceptor.tell(acceptor::In::InStripe {
            stripe: Stripe(stripe),
            message,
        });
        ["round", "voted", "forgotten", "votes", "votes_cast"].map(|name| acceptor.figure(name))
    };
    let vote = |slot, round| multipaxos::acceptor::In::Phase2a {
        from: ProxyLeaderId(0),
        slot: Slot(slot),
        round: Round(round),
        value: Value::default(),
    };
    let kept = |kept, round| multipaxos::acceptor::In::Heartbeat {
        round: Round(round),
        kept: Slot(kept),
    };
    assert_eq!(tell(0, vote(0, 64)), [64, 1, 0, 1, 1]);
    assert_eq!(tell(1, vote(0, 65)), [65, 2, 0, 2, 2]);
    assert_eq!(tell(1, vote(1, 65)), [65, 5, 0, 3, 3]);
    assert_eq!(tell(2, vote(0, 66)), [66, 5, 0, 4, 4]);
    // Everything below slot 2 is forgotten when the stripes of slots 0 and 1 have forgotten it.
    assert_eq!(tell(1, kept(1, 65)), [66, 5, 0, 3, 4]);
    assert_eq!(tell(0, kept(1, 64)), [66, 5, 2, 2, 4]);
    assert_eq!(tell(2, kept(1, 66)), [66, 5, 3, 1, 4]);
}

/// Acceptors that are silent in two stripes are not twice as many.
#[test]
fn a_proxy_leader_reports_its_stripes_as_one() {
    let mut proxy = Stage::alone(three(), kind::ProxyLeader, ProxyLeader::new);
    for (stripe, round) in [(0, 64), (2, 66)] {
        let (proposer, replier) = (multipaxos::message::Proposer::Leader {}, ReplicaId(0));
        let (slot, round, value) = (Slot(0), Round(round), Value::default());
        let message = multipaxos::proxy_leader::In::Phase2a {
            slot,
            round,
            value,
            proposer,
            replier,
        };
        proxy.tell(proxy_leader::In::InStripe {
            stripe: Stripe(stripe),
            message,
        });
    }
    assert_eq!(
        ["round", "pending", "suspected_acceptors"].map(|name| proxy.figure(name)),
        [66, 2, 0]
    );
    while proxy.figure("retries") < 2 {
        proxy.timer();
    }
    assert_eq!(["round", "pending"].map(|name| proxy.figure(name)), [66, 2]);
    assert_eq!(
        proxy.figure("suspected_acceptors"),
        2,
        "the same two in both stripes"
    );
}

/// Slots are those of the log: as many are executed below the own position as the replica says.
#[test]
fn a_leader_reports_slots_of_the_log() {
    let mut leader = Stage::new(three(), &birth(kind::Leader, 1, NodeId(1)), Leader::new);
    assert_eq!(
        ["next_slot", "executed_by_replicas"].map(|name| leader.figure(name)),
        [1, 0]
    );
    let rounds = vec![Round(0); 3];
    leader.tell(leader::In::Executed {
        from: ReplicaId(0),
        executed: Slot(7),
        kept: Slot::ZERO,
        rounds,
        times: Default::default(),
    });
    assert_eq!(
        leader.figure("executed_by_replicas"),
        5,
        "slot 4 is its own last one below 7"
    );
}

/// The leader of stripe 0, in phase 1.
fn begins() -> (Stage<Leader>, Round) {
    let mut leader = Stage::new(three(), &birth(kind::Leader, 0, NodeId(0)), Leader::new);
    leader.timer();
    let mut tell = |message| {
        leader.tell(leader::In::InStripe {
            stripe: Stripe(0),
            message,
        })
    };
    let said: Vec<Envelope> = (0..2)
        .flat_map(|from| {
            let from = AcceptorId(from);
            tell(multipaxos::leader::In::PreVoteReply {
                from,
                gone: true,
                promise: Round(0),
            })
        })
        .collect();
    let round = said.iter().find_map(|envelope| match envelope {
        Envelope::ToAcceptors(
            _,
            acceptor::In::InStripe {
                message: multipaxos::acceptor::In::Phase1a { round, .. },
                ..
            },
        ) => Some(*round),
        _ => None,
    });
    (leader, round.expect("phase 1 begins"))
}

/// The same when phase 1 is over, in which two acceptors have told these votes and reservations;
/// and what it said then.
fn leads_after(
    votes: &[(Slot, Vote)],
    reserved: &[Reserved],
) -> (Stage<Leader>, Round, Vec<Envelope>) {
    let (mut leader, round) = begins();
    let mut said = Vec::new();
    for from in [0, 1].map(AcceptorId) {
        let (start, end, next, forgotten) = (Slot(0), Slot::MAX, Slot::MAX, Slot(0));
        let watermark = votes.last().map_or(Slot(0), |(slot, _)| slot.next());
        let votes = votes.to_vec();
        let votes = Votes {
            start,
            end,
            next,
            votes,
            forgotten,
            watermark,
        };
        said = leader.tell(leader::In::Phase1b {
            from,
            stripe: Stripe(0),
            round,
            votes,
            reserved: reserved.to_vec(),
            clock: Timestamp(0),
        });
    }
    assert_eq!(leader.figure("leading"), 1);
    (leader, round, said)
}

/// The same when the acceptors have told nothing.
fn leads() -> Stage<Leader> {
    leads_after(&[], &[]).0
}

/// All others wait for slots that it may not skip before acceptors have noted it, though nothing
/// was proposed.
#[test]
pub(crate) fn a_leader_whose_reservations_stay_unanswered_stops() {
    for answer in [false, true] {
        let mut leader = leads();
        leader.tell(leader::In::Index {
            from: LeaderId(1),
            slot: Slot(3000),
        });
        let end = Instant(leader.now.0 + 2_000_000);
        while leader.now < end && leader.figure("leading") == 1 {
            for envelope in leader.timer() {
                let Envelope::ToAcceptors(
                    _,
                    acceptor::In::InStripe {
                        stripe,
                        message: multipaxos::acceptor::In::PreVote { .. },
                    },
                ) = envelope
                else {
                    continue;
                };
                for from in [0, 1].map(AcceptorId).into_iter().filter(|_| answer) {
                    let message = multipaxos::leader::In::PreVoteReply {
                        from,
                        gone: false,
                        promise: Round(0),
                    };
                    leader.tell(leader::In::InStripe { stripe, message });
                }
            }
        }
        assert_eq!(leader.figure("leading") == 1, answer, "answered: {answer}");
    }
}

/// Commands of all stripes wait in the leader's own; a round of that one means nothing to those
/// that propose in others.
#[test]
fn a_deposed_leader_tells_no_one_a_round_of_another_stripe() {
    let (mut leader, round) = begins();
    for client in [0, 2].map(ClientId) {
        let (proposer, near, batch) = (Proposer::Client { id: client }, Set::EMPTY, batch("x"));
        let message = multipaxos::leader::In::Propose {
            proposer,
            near,
            batch,
            again: false,
        };
        assert!(
            leader
                .tell(leader::In::InStripe {
                    stripe: Stripe(client.0),
                    message
                })
                .is_empty(),
            "it waits"
        );
    }
    let higher = round.next_of(LeaderId(1), Epoch::default());
    let message = multipaxos::leader::In::Nack { round: higher };
    let said = leader.tell(leader::In::InStripe {
        stripe: Stripe(0),
        message,
    });
    let told = said.iter().filter_map(|envelope| match envelope {
        Envelope::ToClients(to, client::In::NotLeader { round }) => Some((*to, *round)),
        _ => None,
    });
    let expected = [
        (Set::one(ClientId(0)), higher),
        (Set::one(ClientId(2)), Round(0)),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

/// What a leader has others do with the slots of its stripe.
#[derive(Debug, PartialEq)]
enum Done {
    Proposed(u64, u64),
    Reserved(u64, u64, Set<AcceptorId>),
    Skipped(u64, u64, Set<ReplicaId>),
}

fn done(said: Vec<Envelope>) -> Vec<Done> {
    let done = said.into_iter().filter_map(|envelope| match envelope {
        Envelope::ToProxyLeaders(
            _,
            proxy_leader::In::InStripe {
                message: multipaxos::proxy_leader::In::Phase2a { slot, value, .. },
                ..
            },
        ) => Some(Done::Proposed(slot.0, value.stamp.0)),
        Envelope::ToAcceptors(whom, acceptor::In::Reserve { reserved, .. }) => {
            Some(Done::Reserved(reserved.start.0, reserved.end.0, whom))
        }
        Envelope::ToReplicas(whom, In::Skip { start, end, .. }) => {
            Some(Done::Skipped(start.0, end.0, whom))
        }
        _ => None,
    });
    done.collect()
}

/// A replica asks for it when the one that had executed it is lost.
#[test]
fn what_a_predecessor_left_is_said_again_though_a_replica_has_executed_it() {
    let vote = Vote {
        round: Round(1),
        value: Value::default(),
    };
    let reserved = [Reserved {
        round: Round(4),
        start: StripePosition(1),
        end: StripePosition(5000),
    }];
    let (mut leader, round, said) = leads_after(&[(Slot(0), vote)], &reserved);
    let own = done(said);
    let Some(Done::Reserved(1, end, _)) = own.last() else {
        panic!("{own:?}")
    };
    for from in [0, 1] {
        leader.tell(leader::In::Reserved {
            from: AcceptorId(from),
            stripe: Stripe(0),
            reserved: Reserved {
                round,
                start: StripePosition(1),
                end: StripePosition(*end),
            },
        });
    }
    leader.tell(leader::In::Executed {
        from: ReplicaId(1),
        executed: Slot(15_000),
        kept: Slot::ZERO,
        rounds: vec![Round(0); 3],
        times: Default::default(),
    });
    let misses = leader::In::Recover {
        from: ReplicaId(2),
        slots: vec![Slot(1500)],
    };
    let to = Set::one(ReplicaId(2));
    assert_eq!(done(leader.tell(misses)), [Done::Skipped(500, 5000, to)]);
}

/// A predecessor has proposed in position 0 and was deposed, the next one in 200,000, above all
/// that the one between had reserved; then it was deposed too. Another noop in each position
/// between would take the cluster longer than an election timeout, so that the next leader would
/// have to do the same: so five servers came to no rest after acceptors had lost their memory one
/// after another. It takes leaders deposed in a row, each before f+1 replicas are beyond what it
/// has left: one of 360 seeded runs did that.
#[test]
pub(crate) fn what_predecessors_left_below_the_watermark_is_skipped_as_one_range() {
    let vote = |round, stamp| Vote {
        round: Round(round),
        value: Value {
            stamp: Timestamp(stamp),
            batch: batch("x"),
        },
    };
    // In position 100,000 a vote that was overruled: the leader of round 4 had found nothing there.
    let votes = [
        (Slot(0), vote(1, 10)),
        (Slot(100_000), vote(1, 20)),
        (Slot(200_000), vote(5, 30)),
    ];
    let reserved = [Reserved {
        round: Round(4),
        start: StripePosition(1),
        end: StripePosition(200_000),
    }];
    let (mut leader, round, said) = leads_after(&votes, &reserved);
    let (all, replicas) = (Set::first(3), Set::first(3));
    assert_eq!(
        done(said),
        [
            Done::Proposed(0, 10),
            Done::Reserved(1, 200_000, all),
            Done::Reserved(200_001, 200_257, all),
        ]
    );
    let mut tell = |message| done(leader.tell(message));
    let misses = |position: u64| leader::In::Recover {
        from: ReplicaId(2),
        slots: vec![Slot(3 * position)],
    };
    let noted = |from, start: u64, end: u64| leader::In::Reserved {
        from: AcceptorId(from),
        stripe: Stripe(0),
        reserved: Reserved {
            round,
            start: StripePosition(start),
            end: StripePosition(end),
        },
    };
    assert_eq!(tell(misses(500)), [], "it may not be skipped yet");
    assert_eq!(tell(noted(1, 1, 200_000)), []);
    assert_eq!(tell(noted(1, 200_001, 200_257)), []);
    assert_eq!(
        tell(noted(0, 200_001, 200_257)),
        [],
        "that is another range"
    );
    assert_eq!(tell(misses(500)), [], "it may still not be skipped");
    assert_eq!(
        tell(noted(2, 1, 200_000)),
        [Done::Skipped(1, 200_000, replicas)]
    );
    assert_eq!(tell(noted(0, 1, 200_000)), []);
    assert_eq!(
        tell(misses(500)),
        [Done::Skipped(500, 200_000, Set::one(ReplicaId(2)))]
    );
    // A replica has got there: what was found behind it follows.
    let executed = leader::In::Executed {
        from: ReplicaId(2),
        executed: Slot(600_000),
        kept: Slot::ZERO,
        rounds: vec![Round(0); 3],
        times: Default::default(),
    };
    assert_eq!(tell(executed), [Done::Proposed(200_000, 30)]);
}

#[test]
fn a_leader_that_asks_for_reservations_in_vain_asks_again_those_that_did_not_answer() {
    let vote = Vote {
        round: Round(5),
        value: Value::default(),
    };
    let (mut leader, round, _) = leads_after(&[(Slot(1000), vote)], &[]);
    let reserved = Reserved {
        round,
        start: StripePosition(0),
        end: StripePosition(1000),
    };
    leader.tell(leader::In::Reserved {
        from: AcceptorId(1),
        stripe: Stripe(0),
        reserved,
    });
    let again = Done::Reserved(0, 1000, Set::from_bits(0b101));
    let until = Instant(leader.now.0 + 300_000);
    let mut times = 0;
    while leader.now < until {
        times += done(leader.timer())
            .iter()
            .filter(|done| **done == again)
            .count();
    }
    assert!(
        (2..=4).contains(&times),
        "{times} times in 300 ms, after 40, 80, 160 ms and so on"
    );
}
