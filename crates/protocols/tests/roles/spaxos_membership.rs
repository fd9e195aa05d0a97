//! Changes of the membership in S-Paxos: what disseminators count, what stabilizers hand over, and
//! what they still acknowledge. C is the configuration before, of the stabilizers 0, 1 and 2; D the
//! one after, of 2, 3 and 4.

use crate::stage::{Stage, batch, birth};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::{Asked, Role};
use ionian_kernel::wire::encode_all;
use ionian_protocols::spaxos::config::Config;
use ionian_protocols::spaxos::disseminator::{self, Disseminator};
use ionian_protocols::spaxos::id::{DisseminatorId, PayloadNumber, RecordPlace, StabilizerId};
use ionian_protocols::spaxos::leader;
use ionian_protocols::spaxos::message::{Payload, PayloadId, Ticket};
use ionian_protocols::spaxos::stabilizer::{In, Record, Stabilizer};
use ionian_protocols::spaxos::{Envelope, SPaxos, kind};

/// A round of C, and one of the epoch in which C and D are in force.
const OLD: Round = Round::new(Epoch(0), 3, LeaderId(0));
const JOINT: Round = Round::new(Epoch(1), 1, LeaderId(1));

fn with_stabilizers(stabilizers: &[u8]) -> Layout {
    let mut next = (0..).map(NodeId);
    let instances = [1, 0, 2, 0, 2, 2, 3, 3, 2, 0]
        .map(|count| next.by_ref().take(count).collect())
        .to_vec();
    let mut layout = Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    };
    layout.instances[usize::from(kind::Stabilizer)] = stabilizers
        .iter()
        .map(|index| (*index, NodeId(30 + u16::from(*index))))
        .collect();
    layout
}

fn before() -> Config {
    SPaxos::configure(with_stabilizers(&[0, 1, 2])).expect("a deployment")
}

fn joint() -> Config {
    let layout = Layout {
        epoch: Epoch(1),
        next: Some(Box::new(with_stabilizers(&[2, 3, 4]))),
        ..with_stabilizers(&[0, 1, 2])
    };
    SPaxos::configure(layout).expect("a deployment")
}

fn after() -> Config {
    let layout = Layout {
        epoch: Epoch(2),
        since: Epoch(2),
        frontier: Slot(5),
        ..with_stabilizers(&[2, 3, 4])
    };
    SPaxos::configure(layout).expect("a deployment")
}

fn id(number: u64) -> PayloadId {
    PayloadId {
        disseminator: DisseminatorId(1),
        life: 5,
        number: PayloadNumber(number),
    }
}

fn payload(number: u64, round: Round) -> Payload {
    Payload {
        id: id(number),
        round,
        void_from: Slot(1000),
        batch: batch("write"),
    }
}

fn store(number: u64, round: Round) -> In {
    In::Store {
        floor: PayloadNumber(0),
        payload: payload(number, round),
    }
}

fn stabilizer(config: Config, index: u8) -> Stage<Stabilizer> {
    let birth = birth(kind::Stabilizer, index, NodeId(30 + u16::from(index)));
    Stage::new(config, &birth, Stabilizer::new)
}

/// A stabilizer of both configurations, which was there when the cluster was founded.
fn staying() -> Stage<Stabilizer> {
    let mut stage = stabilizer(before(), 2);
    stage.reconfigure(joint());
    stage
}

/// A stabilizer that has lost its memory, but for these records.
fn forgetful(config: Config, index: u8, vital: &[Record]) -> Stage<Stabilizer> {
    let birth = Birth {
        amnesiac: true,
        keeps_records: false,
        ..birth(kind::Stabilizer, index, NodeId(30 + u16::from(index)))
    };
    Stage::new(config, &birth, |config, birth| {
        let mut stabilizer = Stabilizer::new(config, birth);
        vital
            .iter()
            .for_each(|record| stabilizer.recover(record.clone()));
        stabilizer
    })
}

fn set(stabilizers: &[u8]) -> Set<StabilizerId> {
    stabilizers
        .iter()
        .map(|index| StabilizerId(*index))
        .collect()
}

/// The payloads that are acknowledged.
fn acknowledged(sent: &[Envelope]) -> Vec<u64> {
    let tickets = sent.iter().filter_map(|envelope| match envelope {
        Envelope::ToDisseminators(_, disseminator::In::Stored { tickets, .. }) => Some(tickets),
        _ => None,
    });
    tickets.flatten().map(|ticket| ticket.id.number.0).collect()
}

fn vital(asked: &Asked<Envelope>) -> Vec<Vec<u8>> {
    let records = asked.records.iter();
    records
        .filter(|(_, vital)| *vital)
        .map(|(record, _)| record.clone())
        .collect()
}

/// Whom it asks for copies, with what it seals.
fn copies(sent: &[Envelope]) -> Vec<(Set<StabilizerId>, Option<Epoch>)> {
    let asked = sent.iter().filter_map(|envelope| match envelope {
        Envelope::ToStabilizers(to, In::Copy { seals, .. }) => Some((*to, *seals)),
        _ => None,
    });
    asked.collect()
}

fn copied(from: u8, life: u64, seals: Option<Epoch>, payloads: Vec<Payload>) -> In {
    In::Copied {
        from: StabilizerId(from),
        life,
        seals,
        payloads,
        last: true,
    }
}

fn has_taken_over(sent: &[Envelope]) -> bool {
    let took_over = |envelope: &Envelope| {
        matches!(envelope, Envelope::ToLeaders(to, leader::In::TookOver { .. })
            if *to == Set::one(JOINT.leader()))
    };
    sent.iter().any(took_over)
}

/// A disseminator with one payload, and what it sends when it has heard of the round.
fn with_a_payload(config: Config, round: Round) -> (Stage<Disseminator>, Vec<Envelope>) {
    let mut stage = Stage::alone(config, kind::Disseminator, Disseminator::new);
    stage.tell(disseminator::In::Commands {
        commands: batch("write"),
    });
    let sent = stage.tell(disseminator::In::Progress {
        round,
        executed: Slot(3),
    });
    (stage, sent)
}

/// Whether a disseminator whose payload of this round is stored by these stabilizers proposes it.
fn proposes(config: Config, round: Round, stored: &[u8]) -> bool {
    let (mut stage, sent) = with_a_payload(config, round);
    let payload = sent.iter().find_map(|envelope| match envelope {
        Envelope::ToStabilizers(_, In::Store { payload, .. }) => Some(payload.clone()),
        _ => None,
    });
    let payload = payload.expect("it is to be stored");
    assert_eq!(payload.round, round);
    let ticket = Ticket {
        id: payload.id,
        void_from: payload.void_from,
        round,
        floor: PayloadNumber(0),
    };
    let proposes = |sent: Vec<Envelope>| {
        sent.iter()
            .any(|envelope| matches!(envelope, Envelope::ToLeaders(..)))
    };
    let mut stored = stored.iter().map(|from| {
        stage.tell(disseminator::In::Stored {
            from: StabilizerId(*from),
            tickets: vec![ticket],
            lives: Vec::new(),
        })
    });
    stored.any(proposes)
}

#[test]
pub(crate) fn a_payload_is_stable_when_a_write_quorum_of_its_rounds_epoch_stores_it() {
    // Before and during the change, for a leader that has not begun a round of both: C decides.
    for config in [before(), joint()] {
        assert!(proposes(config.clone(), OLD, &[0, 1]));
        assert!(!proposes(config, OLD, &[1]));
    }
    assert!(!proposes(joint(), OLD, &[2, 3, 4]), "D alone");
    // In a round of both it takes a write quorum of each.
    assert!(!proposes(joint(), JOINT, &[0, 1, 2]), "C alone");
    assert!(!proposes(joint(), JOINT, &[2, 3, 4]), "D alone");
    assert!(proposes(joint(), JOINT, &[0, 2, 3]));
}

/// It goes on when a leader of an epoch that is in force says that it leads.
#[test]
fn a_payload_of_an_epoch_that_is_over_is_not_stored_and_gets_another_name() {
    let mut stage = Stage::alone(joint(), kind::Disseminator, Disseminator::new);
    stage.tell(disseminator::In::Progress {
        round: OLD,
        executed: Slot(3),
    });
    stage.reconfigure(after());
    let stored = |sent: &[Envelope]| {
        let stored = sent.iter().filter_map(|envelope| match envelope {
            Envelope::ToStabilizers(to, In::Store { payload, .. }) => Some((*to, payload.round)),
            _ => None,
        });
        stored.collect::<Vec<_>>()
    };
    let sent = stage.tell(disseminator::In::Commands {
        commands: batch("write"),
    });
    assert_eq!(stored(&sent), []);
    for _ in 0..5 {
        assert_eq!(stored(&stage.timer()), [], "no quorum is known for it");
    }
    let round = Round::new(Epoch(2), 1, LeaderId(0));
    let sent = stored(&stage.tell(disseminator::In::NewLeader { round }));
    assert_eq!(sent.len(), 1);
    assert!(sent[0].1 == round && set(&[2, 3, 4]).covers(sent[0].0));
}

#[test]
fn a_stabilizer_takes_over_from_a_read_quorum_of_the_configuration_before() {
    let mut stage = stabilizer(joint(), 3);
    let sent = stage.tell(In::TakeOver { round: JOINT });
    let seals = Some(Epoch(1));
    let others = [0, 1, 2].map(|other| (set(&[other]), seals));
    assert_eq!(copies(&sent), others);
    let life = 1 << 40;
    let sent = stage.tell(copied(0, life, seals, vec![payload(7, OLD)]));
    assert!(!has_taken_over(&sent), "one is no read quorum");
    let sent = stage.tell(copied(3, life, seals, Vec::new()));
    assert!(!has_taken_over(&sent), "nor with one that is not of C");
    let asked = stage.asked(copied(1, life, seals, Vec::new()));
    let sent: Vec<Envelope> = asked.sends.into_iter().map(|(sent, _)| sent).collect();
    assert!(has_taken_over(&sent) && stage.role.holds(payload(7, OLD).id));
    // The leader asks again: the answer may have been lost.
    assert!(has_taken_over(&stage.tell(In::TakeOver { round: JOINT })));
    // It is not the leader of an epoch that is over or to come.
    for round in [OLD, Round::new(Epoch(2), 1, LeaderId(1))] {
        assert!(
            stabilizer(joint(), 3)
                .tell(In::TakeOver { round })
                .is_empty()
        );
    }
    // One that leaves has nothing to take over.
    assert!(
        stabilizer(joint(), 0)
            .tell(In::TakeOver { round: JOINT })
            .is_empty()
    );
}

/// What a stabilizer holds itself need not be copied, but it is to acknowledge no more either.
#[test]
fn one_of_both_configurations_counts_itself_and_seals_itself() {
    let mut stage = staying();
    assert_eq!(acknowledged(&stage.tell(store(7, OLD))), [7]);
    let asked = stage.asked(In::TakeOver { round: JOINT });
    let sealed = encode_all(&Record::Sealed { epoch: Epoch(1) });
    assert_eq!(vital(&asked), [sealed]);
    assert_eq!(acknowledged(&stage.tell(store(8, OLD))), []);
    assert_eq!(acknowledged(&stage.tell(store(9, JOINT))), [9]);
    let sent = stage.tell(copied(0, 0, Some(Epoch(1)), Vec::new()));
    assert!(has_taken_over(&sent));
}

#[test]
pub(crate) fn one_that_hands_over_acknowledges_no_payload_of_earlier_epochs_any_more() {
    let mut stage = stabilizer(joint(), 0);
    stage.tell(store(7, OLD));
    stage.tell(store(8, JOINT));
    let copy = In::Copy {
        from: StabilizerId(3),
        life: 0,
        seals: Some(Epoch(1)),
        after: None,
    };
    let asked = stage.asked(copy.clone());
    let sealed = encode_all(&Record::Sealed { epoch: Epoch(1) });
    assert_eq!(asked.records, [(sealed, true)]);
    let message = copied(0, 0, Some(Epoch(1)), vec![payload(7, OLD)]);
    let answer = Envelope::ToStabilizers(set(&[3]), message);
    // The payload of the new epoch is on a write quorum of D already.
    assert_eq!(asked.sends, [(answer, Some(1))], "behind the seal");
    assert_eq!(acknowledged(&stage.tell(store(9, OLD))), []);
    assert_eq!(acknowledged(&stage.tell(store(10, JOINT))), [10]);
    // Not when it has lost its memory either.
    let sealed = Record::Sealed { epoch: Epoch(1) };
    let mut stage = forgetful(joint(), 0, &[sealed]);
    assert_eq!(acknowledged(&stage.tell(store(9, OLD))), []);
    assert_eq!(acknowledged(&stage.tell(store(10, JOINT))), [10]);
    // A stabilizer of which the change is over, or not begun, does not answer.
    for config in [before(), after()] {
        let mut stage = stabilizer(config, 2);
        assert!(stage.tell(copy.clone()).is_empty());
        assert_eq!(acknowledged(&stage.tell(store(7, OLD))), [7]);
    }
}

/// The first of the lives of the stabilizers that are there since this configuration began.
fn lives_from(config: &Config) -> u64 {
    u64::from(config.layout().since.0) << 40
}

/// Whether a stabilizer of both configurations that lost its memory is whole when these have told
/// it everything.
fn is_whole_after(config: Config, vital: &[Record], from: &[u8]) -> bool {
    let lived = [&[Record::Begun { life: 6 }], vital].concat();
    let life = 1 + lives_from(&config).max(6);
    let mut stage = forgetful(config, 2, &lived);
    for other in from {
        stage.tell(copied(*other, life, None, Vec::new()));
    }
    !stage.role.is_amnesiac()
}

/// Its former life may have told the leader that it had taken over: then others of D may have
/// no copy but its own, and it must hold again what a read quorum of D holds.
#[test]
pub(crate) fn one_that_may_have_taken_over_and_lost_its_memory_copies_from_both_configurations() {
    let sealed = &[Record::Sealed { epoch: Epoch(1) }];
    assert!(is_whole_after(joint(), &[], &[0, 1]), "C is enough");
    assert!(!is_whole_after(joint(), sealed, &[0, 1]));
    assert!(!is_whole_after(joint(), sealed, &[0, 1, 3]));
    assert!(is_whole_after(joint(), sealed, &[0, 1, 3, 4]));
    // In D alone what C holds is of no account.
    assert!(!is_whole_after(after(), sealed, &[0, 1]));
    assert!(is_whole_after(after(), sealed, &[3, 4]));
    // And it takes over anew: what it told the leader was said in its former life.
    let lived = [&[Record::Begun { life: 6 }], &sealed[..]].concat();
    let mut stage = forgetful(joint(), 2, &lived);
    assert!(stage.tell(In::TakeOver { round: JOINT }).is_empty());
    for other in [0, 1, 3, 4] {
        stage.tell(copied(other, 7, None, Vec::new()));
    }
    let sent = stage.tell(In::TakeOver { round: JOINT });
    assert_eq!(copies(&sent).len(), 2);
}

/// Another stabilizer had its number, lost its memory often, and left.
#[test]
fn a_new_stabilizer_lives_a_later_life_than_any_that_had_its_number_before() {
    let begun = |config, index, found: &[Record]| {
        let birth = birth(kind::Stabilizer, index, NodeId(30 + u16::from(index)));
        let mut stabilizer = Stabilizer::new(config, &birth);
        let found = found.iter().cloned();
        found.for_each(|record| stabilizer.recover(record));
        vital(&Stage::unstarted(stabilizer, true).started())
    };
    let record = |life| vec![encode_all(&Record::Begun { life })];
    assert_eq!(begun(joint(), 3, &[]), record(1 << 40));
    assert_eq!(begun(after(), 3, &[]), record(2 << 40));
    assert!(
        begun(before(), 2, &[]).is_empty(),
        "the founders begin at 0"
    );
    let lived = [Record::Begun { life: 7 }];
    assert_eq!(begun(joint(), 3, &lived), record(1 << 40));
    assert!(
        begun(joint(), 2, &lived).is_empty(),
        "it has been there since"
    );
    // What is left in the log of this node is of the other: it is of no use, and in no place.
    let birth = birth(kind::Stabilizer, 3, NodeId(33));
    let mut stage = Stage::new(joint(), &birth, |config, birth| {
        let mut stabilizer = Stabilizer::new(config, birth);
        for place in 0..3 {
            let payload = payload(place, OLD);
            let place = RecordPlace(place);
            stabilizer.recover(Record::Kept { place, payload });
        }
        stabilizer.recover(Record::Released {
            below: RecordPlace(1),
        });
        stabilizer
    });
    assert!(!stage.role.holds(payload(2, OLD).id));
    let asked = stage.asked(store(9, JOINT));
    let kept = Record::Kept {
        place: RecordPlace(1 << 40),
        payload: payload(9, JOINT),
    };
    assert_eq!(asked.records.last(), Some(&(encode_all(&kept), false)));
    // It goes on where it was.
    let stage = Stage::new(joint(), &birth, |config, birth| {
        let mut stabilizer = Stabilizer::new(config, birth);
        stabilizer.recover(Record::Begun { life: 1 << 40 });
        stabilizer.recover(kept);
        stabilizer
    });
    assert!(
        stage.role.holds(payload(9, JOINT).id)
            && begun(joint(), 3, &[Record::Begun { life: 1 << 40 }]).is_empty()
    );
}

/// The node of stabilizer 2 was down while that left, another had its number, and it came back.
#[test]
pub(crate) fn a_stabilizer_counts_after_another_had_its_number_while_its_node_was_down() {
    let since = |epoch| {
        let layout = Layout {
            epoch,
            since: epoch,
            ..with_stabilizers(&[0, 1, 2])
        };
        SPaxos::configure(layout).expect("a deployment")
    };
    let (config, round) = (since(Epoch(8)), Round::new(Epoch(8), 1, LeaderId(0)));
    let begun = encode_all(&Record::Begun { life: 8 << 40 });
    let (place, payload) = (RecordPlace(3), payload(7, OLD));
    let found = vec![Record::Begun { life: 6 }, Record::Kept { place, payload }];
    // The node hears of the change when it runs already, or when it starts.
    let mut running = stabilizer(before(), 2);
    let asked = running.reconfigured(config.clone());
    assert_eq!(vital(&asked), [&begun[..]]);
    let here = birth(kind::Stabilizer, 2, NodeId(32));
    let mut restarted = Stage::after(config.clone(), &here, found, Stabilizer::new);
    assert!(restarted.role.holds(id(7)), "it is its own");
    for stage in [&mut running, &mut restarted] {
        let (mut disseminator, sent) = with_a_payload(config.clone(), round);
        let store = sent.into_iter().find_map(|envelope| match envelope {
            Envelope::ToStabilizers(_, store) => Some(store),
            _ => None,
        });
        let store = store.expect("it is to be stored");
        // Stabilizer 0 has heard of the lives of the other.
        let mut first = stabilizer(since(Epoch(0)), 0);
        let copy = In::Copy {
            from: StabilizerId(2),
            life: (5 << 40) + 2,
            seals: None,
            after: None,
        };
        first.tell(copy);
        let sent = [&mut first, stage].map(|stage| {
            let sent = stage.tell(store.clone()).into_iter();
            let stored = sent.filter_map(|envelope| match envelope {
                Envelope::ToDisseminators(_, stored) => Some(stored),
                _ => None,
            });
            stored
                .flat_map(|stored| disseminator.tell(stored))
                .collect::<Vec<_>>()
        });
        assert!(sent[0].is_empty(), "{sent:?}");
        assert!(matches!(sent[1][..], [Envelope::ToLeaders(..)]), "{sent:?}");
    }
}
