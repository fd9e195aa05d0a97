//! What one role of S-Paxos alone must do.

use crate::stage::{self, Stage, birth};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Wire, encode_all};
use ionian_protocols::multipaxos;
use ionian_protocols::multipaxos::message::Votes;
use ionian_protocols::spaxos::config::Config;
use ionian_protocols::spaxos::disseminator::Disseminator;
use ionian_protocols::spaxos::id::{DisseminatorId, PayloadNumber, StabilizerId};
use ionian_protocols::spaxos::leader::Leader;
use ionian_protocols::spaxos::message::{Payload, PayloadId, Reference, Ticket};
use ionian_protocols::spaxos::stabilizer::Stabilizer;
use ionian_protocols::spaxos::{
    Envelope, SPaxos, acceptor, disseminator, kind, leader, proxy_leader, stabilizer,
};
use ionian_replication::batch::{Batch, Command, Purpose, Value};
use std::collections::BTreeMap;

/// Three acceptors and three stabilizers, two of each other role, each on a node of its own.
fn config() -> Config {
    let mut next = (0..).map(NodeId);
    let instances = [1, 0, 2, 0, 2, 2, 3, 3, 2, 0]
        .map(|count| next.by_ref().take(count).collect())
        .to_vec();
    let options = Options {
        own: BTreeMap::from([("stale_bytes", 100)]),
        ..Options::default()
    };
    let layout = Layout {
        f: 1,
        instances: numbered(instances),
        options,
        ..Layout::default()
    };
    SPaxos::configure(layout).expect("a deployment")
}

fn batch(size: usize) -> Batch {
    stage::batch(vec![7; size])
}

fn id(number: u64) -> PayloadId {
    PayloadId {
        disseminator: DisseminatorId(1),
        life: 5,
        number: PayloadNumber(number),
    }
}

fn length(message: &impl Wire) -> usize {
    encode_all(message).len()
}

/// The leader of round 64, which has just begun to lead in it.
fn leading() -> (Stage<Leader>, Round) {
    let mut stage = Stage::alone(config(), kind::Leader, Leader::new);
    stage.timer();
    let mut round = Round(0);
    for from in [AcceptorId(0), AcceptorId(1)] {
        let message = multipaxos::leader::In::PreVoteReply {
            from,
            gone: true,
            promise: Round(0),
        };
        for envelope in stage.tell(leader::In::Ordering { message }) {
            if let Envelope::ToAcceptors(_, acceptor::In::Phase1a { round: asked, .. }) = envelope {
                round = asked;
            }
        }
    }
    for from in [AcceptorId(0), AcceptorId(1)] {
        let (start, end, next) = (Slot(0), Slot::MAX, Slot::MAX);
        let (forgotten, watermark) = (Slot(0), Slot(0));
        let votes = Votes {
            start,
            end,
            next,
            votes: Vec::new(),
            forgotten,
            watermark,
        };
        stage.tell(leader::In::Ordering {
            message: multipaxos::leader::In::Phase1b {
                from,
                round,
                votes,
                clock: Timestamp(0),
            },
        });
    }
    assert!(round > Round(0));
    (stage, round)
}

/// A disseminator that knows the leader of this round, and the payload that it has just had stored.
fn disseminating(size: usize, round: Round) -> (Stage<Disseminator>, Payload) {
    let mut stage = Stage::alone(config(), kind::Disseminator, Disseminator::new);
    assert!(
        stage
            .tell(disseminator::In::Commands {
                commands: batch(size)
            })
            .is_empty(),
        "no leader is known"
    );
    let sent = stage.tell(disseminator::In::Progress {
        round,
        executed: Slot(3),
    });
    let payload = stored(&sent).expect("disseminated");
    (stage, payload)
}

fn stored(sent: &[Envelope]) -> Option<Payload> {
    sent.iter().find_map(|envelope| match envelope {
        Envelope::ToStabilizers(_, stabilizer::In::Store { payload, .. }) => Some(payload.clone()),
        _ => None,
    })
}

fn acknowledge(payload: &Payload, round: Round, from: u8, lives: &[(u8, u64)]) -> disseminator::In {
    let ticket = Ticket {
        id: payload.id,
        void_from: payload.void_from,
        round,
        floor: PayloadNumber(0),
    };
    let lives = lives
        .iter()
        .map(|(stabilizer, life)| (StabilizerId(*stabilizer), *life))
        .collect();
    disseminator::In::Stored {
        from: StabilizerId(from),
        tickets: vec![ticket],
        lives,
    }
}

fn proposals(sent: &[Envelope]) -> Vec<&leader::In> {
    let proposals = sent.iter().filter_map(|envelope| match envelope {
        Envelope::ToLeaders(_, message @ leader::In::Propose { .. }) => Some(message),
        _ => None,
    });
    proposals.collect()
}

/// "While MultiPaxos agrees on a log of commands, S-Paxos agrees on a log of command ids" (7).
#[test]
fn what_passes_through_the_leader_is_as_large_whatever_the_commands_are() {
    let bytes = |size| {
        let (mut leader, round) = leading();
        let (mut disseminator, payload) = disseminating(size, round);
        disseminator.tell(acknowledge(&payload, round, 0, &[]));
        let sent = disseminator.tell(acknowledge(&payload, round, 1, &[]));
        let proposal = proposals(&sent)[0].clone();
        let taken_in = length(&proposal);
        let sent = leader.tell(proposal);
        let handed_over = sent.iter().find_map(|envelope| match envelope {
            Envelope::ToProxyLeaders(_, message) => Some(length(message)),
            _ => None,
        });
        (taken_in, handed_over.expect("ordered"))
    };
    let small = bytes(16);
    assert_eq!(small, bytes(64 << 10));
    println!("{small:?} bytes come in and go out");
    assert!(small.0 < 100 && small.1 < 100, "{small:?}");
}

// Stabilizers.

fn store(number: u64, void_from: u64) -> stabilizer::In {
    let payload = Payload {
        id: id(number),
        round: Round(64),
        void_from: Slot(void_from),
        batch: batch(16),
    };
    let floor = PayloadNumber(0);
    stabilizer::In::Store { floor, payload }
}

fn chosen(number: u64, void_from: u64, slot: u64) -> stabilizer::In {
    let reference = Reference {
        id: id(number),
        void_from: Slot(void_from),
        stored: Set::first(2),
    };
    let value = Value {
        stamp: Timestamp(9),
        batch: reference.batch(),
    };
    stabilizer::In::Chosen {
        slot: Slot(slot),
        value,
        replier: ReplicaId(1),
        replicas: Set::first(2),
    }
}

fn stabilizer(amnesiac: bool) -> Stage<Stabilizer> {
    let birth = birth(kind::Stabilizer, 0, NodeId(99));
    Stage::new(
        config(),
        &Birth {
            amnesiac,
            keeps_records: !amnesiac,
            ..birth
        },
        Stabilizer::new,
    )
}

/// Where the stabilizer asks the leader to carry the log, in this many of its timers.
fn carried(stage: &mut Stage<Stabilizer>, timers: usize) -> Vec<(Set<LeaderId>, Slot)> {
    let sent = (0..timers).flat_map(|_| stage.timer());
    let asked = sent.filter_map(|envelope| match envelope {
        Envelope::ToLeaders(to, leader::In::CarryTo { slot }) => Some((to, slot)),
        _ => None,
    });
    asked.collect()
}

#[test]
fn the_log_is_carried_past_what_earlier_rounds_left_behind() {
    let mut stage = stabilizer(false);
    (0..9).for_each(|number| drop(stage.tell(store(number, 10 + number))));
    stage.tell(stabilizer::In::Kept {
        round: Round(64),
        kept: Slot(0),
    });
    assert_eq!(carried(&mut stage, 40), [], "they are in flight");
    let leads = Round(65);
    stage.tell(stabilizer::In::Kept {
        round: leads,
        kept: Slot(0),
    });
    stage.tell(chosen(8, 18, 3));
    let asked = carried(&mut stage, 40);
    assert!(asked.len() > 1, "asks void_from it is so: {asked:?}");
    assert!(
        asked
            .iter()
            .all(|asked| *asked == (Set::one(leads.leader()), Slot(17))),
        "{asked:?}"
    );
    stage.tell(stabilizer::In::Kept {
        round: leads,
        kept: Slot(17),
    });
    assert_eq!(carried(&mut stage, 40), []);
}

#[test]
fn a_leader_carries_the_log_no_further_than_payloads_can_be_void() {
    let (mut stage, _) = leading();
    assert_eq!(
        handed_over(&stage.tell(leader::In::CarryTo { slot: Slot(5) })),
        5
    );
    assert_eq!(
        handed_over(&stage.tell(leader::In::CarryTo { slot: Slot(5) })),
        0
    );
    let window = Options::default().window_slots as u64;
    assert_eq!(
        handed_over(&stage.tell(leader::In::CarryTo { slot: Slot::MAX })),
        window - 5,
        "its window is full"
    );
    let executed = |executed| {
        let (from, kept, round) = (ReplicaId(0), Slot(0), Round(0));
        leader::In::Ordering {
            message: multipaxos::leader::In::Executed {
                from,
                executed,
                kept,
                round,
                times: Default::default(),
            },
        }
    };
    assert_eq!(handed_over(&stage.tell(executed(Slot(window)))), window);
    let rest: u64 = (2..20)
        .map(|windows| handed_over(&stage.tell(executed(Slot(windows * window)))))
        .sum();
    assert_eq!(
        rest,
        6 * window,
        "to where a payload is void that was disseminated when it was asked"
    );
}

/// How many slots a leader hands to proxy leaders.
fn handed_over(sent: &[Envelope]) -> u64 {
    use multipaxos::proxy_leader::In::Phase2a;
    let phase2a = |envelope: &&Envelope| {
        matches!(
            envelope,
            Envelope::ToProxyLeaders(
                _,
                proxy_leader::In::Ordering {
                    message: Phase2a { .. }
                }
            )
        )
    };
    sent.iter().filter(phase2a).count() as u64
}

#[test]
fn one_that_lost_its_memory_counts_when_it_has_copied_from_a_read_quorum_of_the_others() {
    let mut stage = stabilizer(true);
    assert!(stage.role.is_amnesiac());
    let copied = |from, numbers: &[u64], life, last| {
        let payloads = numbers
            .iter()
            .map(|number| Payload {
                id: id(*number),
                round: Round(64),
                void_from: Slot(10),
                batch: batch(16),
            })
            .collect();
        stabilizer::In::Copied {
            from: StabilizerId(from),
            life,
            seals: None,
            payloads,
            last,
        }
    };
    let asked = |sent: &[Envelope]| {
        let asked = sent.iter().filter_map(|envelope| match envelope {
            Envelope::ToStabilizers(to, stabilizer::In::Copy { life: 1, after, .. }) => {
                Some((*to, *after))
            }
            _ => None,
        });
        asked.collect::<Vec<_>>()
    };
    let one = |stabilizer| Set::one(StabilizerId(stabilizer));
    assert_eq!(asked(&stage.timer()), [(one(1), None), (one(2), None)]);
    // It answers none that has lost its memory too, and acknowledges what is new.
    let copy = stabilizer::In::Copy {
        from: StabilizerId(2),
        life: 4,
        seals: None,
        after: None,
    };
    assert!(stage.tell(copy.clone()).is_empty());
    let lives = stage
        .tell(store(9, 10))
        .into_iter()
        .find_map(|envelope| match envelope {
            Envelope::ToDisseminators(_, disseminator::In::Stored { lives, .. }) => Some(lives),
            _ => None,
        });
    assert_eq!(
        lives,
        Some(vec![(StabilizerId(0), 1), (StabilizerId(2), 4)])
    );
    assert_eq!(
        asked(&stage.tell(copied(1, &[5], 1, false))),
        [(one(1), Some(id(5)))]
    );
    stage.tell(copied(2, &[6], 0, true));
    stage.tell(copied(1, &[7], 1, true));
    assert!(
        stage.role.is_amnesiac(),
        "one of the answers was to an earlier process"
    );
    stage.tell(copied(2, &[6], 1, true));
    assert!(!stage.role.is_amnesiac());
    assert!(
        [5, 6, 7, 9]
            .into_iter()
            .all(|number| stage.role.holds(id(number)))
    );
    let answer = stage.tell(copy);
    match &answer[..] {
        [
            Envelope::ToStabilizers(
                _,
                stabilizer::In::Copied {
                    payloads,
                    life: 4,
                    last: true,
                    ..
                },
            ),
        ] => {
            assert_eq!(payloads.len(), 4);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn b2_no_stranger_makes_a_reference_of_his_commands() {
    let reference = Reference {
        id: id(7),
        void_from: Slot(10),
        stored: Set::first(2),
    };
    let mut damaged = encode_all(&reference);
    damaged.push(0);
    let (client, purpose, payload) = (ClientId(0), Purpose::Read, Bytes::from(damaged));
    let batch = Batch::one(&Command {
        client,
        purpose,
        number: 0,
        floor: 0,
        payload,
    });
    assert_eq!(Reference::of(&batch), None);
}
