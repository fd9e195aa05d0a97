//! Giving the lead away before a node stops: what each side says, of every protocol with leaders.

use crate::stage::{Stage, birth};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Role;
use ionian_kernel::time::Timestamp;
use ionian_protocols::mencius::stripe::Stripe;
use ionian_protocols::mencius::{self, Mencius};
use ionian_protocols::multipaxos::leader::{In, Leader};
use ionian_protocols::multipaxos::message::Votes;
use ionian_protocols::multipaxos::{Envelope, MultiPaxos, acceptor, client, kind};
use ionian_protocols::spaxos;

/// Three servers with every role on each.
fn layout(kinds: usize) -> Layout {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    Layout {
        f: 1,
        instances: numbered(vec![nodes; kinds]),
        ..Layout::default()
    }
}

fn server(index: u8) -> Stage<Leader> {
    let config = MultiPaxos::configure(layout(8)).expect("a deployment");
    Stage::new(
        config,
        &birth(kind::Leader, index, NodeId(index.into())),
        Leader::new,
    )
}

fn round(count: u64, leader: u8) -> Round {
    Round::new(Epoch(0), count, LeaderId(leader))
}

/// The same of a stripe of Mencius, of which nothing was reserved either.
fn none_in(stripe: Stripe, from: AcceptorId, round: Round) -> mencius::leader::In {
    let In::Phase1b { votes, clock, .. } = none(from, round) else {
        unreachable!("a promise")
    };
    mencius::leader::In::Phase1b {
        from,
        stripe,
        round,
        votes,
        reserved: Vec::new(),
        clock,
    }
}

/// An acceptor has promised `round` and voted for nothing.
fn none(from: AcceptorId, round: Round) -> In {
    let (start, end, next) = (Slot(0), Slot::MAX, Slot::MAX);
    let (forgotten, watermark, votes) = (Slot(0), Slot(0), Vec::new());
    In::Phase1b {
        from,
        round,
        votes: Votes {
            start,
            end,
            next,
            votes,
            forgotten,
            watermark,
        },
        clock: Timestamp(0),
    }
}

/// Leader 0, leading in the first round of its own.
fn leading() -> Stage<Leader> {
    let mut stage = server(0);
    stage.timer();
    for from in [AcceptorId(0), AcceptorId(1)] {
        stage.tell(In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        });
    }
    for from in [AcceptorId(0), AcceptorId(1)] {
        stage.tell(none(from, round(1, 0)));
    }
    assert!(stage.role.is_leading());
    stage
}

/// Who is asked to take over.
fn asked(sent: &[Envelope]) -> Vec<u8> {
    let asked = sent.iter().filter_map(|envelope| match envelope {
        Envelope::ToLeaders(to, In::TakeOver { from, .. }) => {
            assert_eq!((*from, to.len()), (LeaderId(0), 1));
            to.iter().next().map(|leader| leader.0)
        }
        _ => None,
    });
    asked.collect()
}

/// The round in which all acceptors are asked for promises and votes.
fn phase1(sent: &[Envelope]) -> Option<Round> {
    let mut rounds = sent.iter().filter_map(|envelope| match envelope {
        Envelope::ToAcceptors(_, acceptor::In::Phase1a { round, .. }) => Some(*round),
        _ => None,
    });
    rounds.next()
}

#[test]
fn a_leader_that_drains_asks_one_that_lives_then_the_others_and_leads_until_it_is_deposed() {
    let mut stage = leading();
    // Only the replica on node 2 is heard of.
    stage.now = stage.now + std::time::Duration::from_secs(2);
    let (from, executed) = (ReplicaId(2), Slot(0));
    stage.tell(In::Executed {
        from,
        executed,
        kept: Slot(0),
        round: round(1, 0),
        times: Default::default(),
    });
    let sent = stage.drain(true);
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(asked(&sent), [2]);
    assert!(!stage.role.is_drained());
    let mut later = Vec::new();
    while later.is_empty() {
        later = asked(&stage.timer());
        assert!(stage.role.is_leading(), "it leads until another does");
    }
    assert_eq!(later, [1]);
    stage.tell(In::Heartbeat { round: round(2, 1) });
    assert!(!stage.role.is_leading() && stage.role.is_drained());
}

#[test]
fn a_leader_whom_all_have_declined_waits_for_nothing_and_asks_again_later() {
    let mut stage = leading();
    assert_eq!(asked(&stage.drain(true)), [1]);
    assert_eq!(
        asked(&stage.tell(In::Declined { from: LeaderId(2) })),
        [],
        "it was not asked"
    );
    assert_eq!(asked(&stage.tell(In::Declined { from: LeaderId(1) })), [2]);
    assert!(!stage.role.is_drained());
    assert_eq!(stage.tell(In::Declined { from: LeaderId(2) }).len(), 0);
    assert!(stage.role.is_drained() && stage.role.is_leading());
    // It goes on leading, and another may come back.
    let mut later = Vec::new();
    while later.is_empty() {
        later = asked(&stage.timer());
    }
    assert_eq!(later, [1]);
    stage.drain(false);
    for _ in 0..20 {
        assert_eq!(asked(&stage.timer()), [], "it is to lead again");
    }
}

#[test]
fn who_is_to_take_over_begins_a_round_without_asking_whether_the_leader_is_gone() {
    let mut stage = server(1);
    stage.tell(In::Heartbeat { round: round(1, 0) });
    let sent = stage.tell(In::TakeOver {
        from: LeaderId(0),
        round: round(1, 0),
    });
    assert_eq!(phase1(&sent), Some(round(2, 1)));
    assert_eq!(sent.len(), 1, "one Phase1a to all acceptors: {sent:?}");
    // Again, or from a leader that was deposed meanwhile: nothing.
    assert!(
        stage
            .tell(In::TakeOver {
                from: LeaderId(0),
                round: round(1, 0)
            })
            .is_empty()
    );
    for from in [AcceptorId(0), AcceptorId(1)] {
        stage.tell(none(from, round(2, 1)));
    }
    assert!(stage.role.is_leading());
    assert!(
        stage
            .tell(In::TakeOver {
                from: LeaderId(0),
                round: round(1, 0)
            })
            .is_empty()
    );
}

#[test]
fn a_leader_that_drains_declines_and_stands_only_when_no_other_does() {
    let mut stage = server(1);
    assert!(stage.drain(true).is_empty());
    let sent = stage.tell(In::TakeOver {
        from: LeaderId(0),
        round: round(1, 0),
    });
    assert!(
        matches!(sent[..], [Envelope::ToLeaders(to, In::Declined { from: LeaderId(1) })] if to == Set::one(LeaderId(0)))
    );
    let silent = (0..)
        .find(|_| !stage.timer().is_empty())
        .expect("it stands in the end");
    assert_eq!(silent, 4);
    // The promise to hold back begins anew whenever another leads.
    stage.tell(In::Heartbeat { round: round(1, 0) });
    let silent = (0..)
        .find(|_| !stage.timer().is_empty())
        .expect("it stands in the end");
    assert_eq!(silent, 4);
}

#[test]
fn what_waits_goes_back_to_the_proposers_when_the_successor_is_heard_of() {
    let mut stage = leading();
    stage.drain(true);
    let sent = stage.tell(In::Heartbeat { round: round(2, 1) });
    assert!(sent.is_empty(), "{sent:?}");
    let proposer = ionian_protocols::multipaxos::message::Proposer::Client { id: ClientId(1) };
    let batch = crate::stage::batch("late");
    let sent = stage.tell(In::Propose {
        proposer,
        near: Set::EMPTY,
        batch,
        again: false,
    });
    let [Envelope::ToClients(to, client::In::NotLeader { round: known })] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!((*to, *known), (Set::one(ClientId(1)), round(2, 1)));
}

#[test]
fn a_leader_of_mencius_hands_its_stripe_over_and_takes_it_back_only_when_it_may() {
    let config = Mencius::configure(layout(8)).expect("a deployment");
    let birth = birth(mencius::kind::Leader, 0, NodeId(0));
    let mut stage = Stage::new(config, &birth, mencius::leader::Leader::new);
    let stripe = Stripe(0);
    let tell = |message| mencius::leader::In::InStripe { stripe, message };
    for round in 0.. {
        assert!(round < 100, "it leads no stripe");
        if stage.role.stripes().any(|(_, leader)| leader.is_leading()) {
            break;
        }
        let sent = stage.timer();
        for envelope in sent {
            let mencius::Envelope::ToAcceptors(
                _,
                mencius::acceptor::In::InStripe {
                    stripe: Stripe(0),
                    message,
                },
            ) = envelope
            else {
                continue;
            };
            for from in [AcceptorId(0), AcceptorId(1)] {
                match message {
                    acceptor::In::PreVote { .. } => {
                        stage.tell(tell(In::PreVoteReply {
                            from,
                            gone: true,
                            promise: Round(0),
                        }));
                    }
                    acceptor::In::Phase1a { round, .. } => {
                        drop(stage.tell(none_in(stripe, from, round)))
                    }
                    _ => {}
                }
            }
        }
        // The first timer that goes off is that of its own stripe; what follows answers at once.
        for from in [AcceptorId(0), AcceptorId(1)] {
            let own = stage.role.stripes().next().expect("its own").1.round();
            stage.tell(none_in(stripe, from, own));
        }
    }
    let sent = stage.drain(true);
    let [mencius::Envelope::ToLeaders(to, mencius::leader::In::InStripe { stripe, message })] =
        &sent[..]
    else {
        panic!("{sent:?}")
    };
    assert!(
        matches!(
            message,
            In::TakeOver {
                from: LeaderId(0),
                ..
            }
        ),
        "{message:?}"
    );
    assert_eq!((to.len(), *stripe), (1, Stripe(0)));
    let own = stage.role.stripes().next().expect("its own").1.round();
    let next = own.next_of(LeaderId(1), Epoch(0));
    stage.tell(tell(In::Heartbeat { round: next }));
    assert!(stage.role.is_drained());
    let returns = |stage: &mut Stage<mencius::leader::Leader>| {
        (0..30).any(|_| {
            let mut sent = stage.timer();
            stage.tell(tell(In::Heartbeat { round: next }));
            // The acceptors are there, and hear the other.
            for from in [AcceptorId(0), AcceptorId(1)] {
                sent.extend(stage.tell(tell(In::PreVoteReply { from, gone: false, promise: next })));
            }
            let begins = |envelope: &mencius::Envelope| {
                let mencius::Envelope::ToAcceptors(_, mencius::acceptor::In::InStripe { stripe: Stripe(0), message }) =
                    envelope
                else {
                    return false;
                };
                matches!(message, acceptor::In::Phase1a { round, .. } if round.leader() == LeaderId(0))
            };
            sent.iter().any(begins)
        })
    };
    assert!(
        !returns(&mut stage),
        "it took its stripe back though it drains"
    );
    stage.drain(false);
    assert!(returns(&mut stage), "it never took its stripe back");
}

#[test]
fn a_leader_of_s_paxos_hands_over_too() {
    let config = spaxos::SPaxos::configure(layout(10)).expect("a deployment");
    let birth = birth(spaxos::kind::Leader, 1, NodeId(1));
    let mut stage = Stage::new(config, &birth, spaxos::leader::Leader::new);
    let message = In::TakeOver {
        from: LeaderId(0),
        round: round(1, 0),
    };
    let sent = stage.tell(spaxos::leader::In::Ordering { message });
    let asks = |envelope: &spaxos::Envelope| matches!(envelope, spaxos::Envelope::ToAcceptors(..));
    assert!(sent.iter().all(asks) && sent.len() == 1, "{sent:?}");
    for from in [AcceptorId(0), AcceptorId(1)] {
        stage.tell(spaxos::leader::In::Ordering {
            message: none(from, round(2, 1)),
        });
    }
    let sent = stage.drain(true);
    let [spaxos::Envelope::ToLeaders(_, spaxos::leader::In::Ordering { message })] = &sent[..]
    else {
        panic!("{sent:?}")
    };
    assert!(matches!(
        message,
        In::TakeOver {
            from: LeaderId(1),
            ..
        }
    ));
    assert!(!stage.role.is_drained());
}
