//! The rules of a stabilizer of S-Paxos (compartmentalization, section 7). All that it asks of its
//! driver is compared.

use crate::spaxos_servers::*;
use crate::stage::{self, Stage, birth};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::Asked;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_kernel::wire::encode_all;
use ionian_protocols::spaxos::id::{DisseminatorId, PayloadNumber, RecordPlace, StabilizerId};
use ionian_protocols::spaxos::message::Payload;
use ionian_protocols::spaxos::stabilizer::{In, Record, Stabilizer};
use ionian_protocols::spaxos::{Envelope, disseminator, kind, leader, proxy_leader, replica};
use ionian_replication::batch::{Batch, Value};

const UNTIL: u64 = 10;

fn born(amnesiac: bool) -> Birth<'static> {
    Birth {
        amnesiac,
        keeps_records: !amnesiac,
        ..birth(kind::Stabilizer, 0, NodeId(99))
    }
}

/// Stabilizer 0, which begins with these records.
fn after(records: Vec<Record>) -> Stage<Stabilizer> {
    let config = apart(0, Options::default());
    Stage::after(config, &born(false), records, Stabilizer::new)
}

/// Stabilizer 0. It has said that it lives.
fn stabilizer() -> Stage<Stabilizer> {
    let mut stabilizer = after(Vec::new());
    assert_eq!(stabilizer.woken(), only(vec![alive()]));
    stabilizer
}

fn alive() -> Envelope {
    let from = StabilizerId(0);
    let message = proxy_leader::In::StabilizerAlive { from };
    Envelope::ToProxyLeaders(Set::first(2), message)
}

fn store(number: u64) -> In {
    In::Store {
        floor: PayloadNumber(3),
        payload: payload(number, UNTIL),
    }
}

fn kept_record(place: u64, number: u64) -> (Vec<u8>, bool) {
    let payload = payload(number, UNTIL);
    let place = RecordPlace(place);
    (encode_all(&Record::Kept { place, payload }), false)
}

/// It would find this payload again.
fn acknowledges(number: u64) -> Envelope {
    let message = disseminator::In::Stored {
        from: StabilizerId(0),
        tickets: vec![ticket(number, UNTIL, 3)],
        lives: vec![],
    };
    Envelope::ToDisseminators(Set::one(DisseminatorId(1)), message)
}

/// The payload of this number is chosen in a slot.
fn chosen(number: u64, slot: u64) -> In {
    In::Chosen {
        slot: Slot(slot),
        value: referred(number, UNTIL),
        replier: ReplicaId(1),
        replicas: Set::first(2),
    }
}

/// Replicas learn what a slot holds. Unfenced: no crash of this node undoes it.
fn tells(slot: u64, batch: Batch) -> (Envelope, Option<usize>) {
    let message = replica::In::Chosen {
        slot: Slot(slot),
        value: Value {
            stamp: Timestamp(1000),
            batch,
        },
        replier: ReplicaId(1),
    };
    (Envelope::ToReplicas(Set::first(2), message), None)
}

fn kept(slot: u64) -> In {
    In::Kept {
        round: round(1),
        kept: Slot(slot),
    }
}

fn to_stabilizers(to: &[u8], message: In) -> Envelope {
    Envelope::ToStabilizers(stabilizers(to), message)
}

/// It releases records below this place, and does nothing else.
fn releases(below: u64, mut asked: Asked<Envelope>) -> Asked<Envelope> {
    asked.release_below = Some(below);
    asked
}

fn sends(sends: Vec<(Envelope, Option<usize>)>) -> Asked<Envelope> {
    stage::only(Vec::new(), sends)
}

// Storing.

/// "Upon receiving x and id, a server plays the role of a stabilizer and stores the pair"; "the
/// acknowledgement contains id but not x" (7.1).
#[test]
pub(crate) fn a_payload_is_acknowledged_by_its_name_behind_its_record() {
    let mut stabilizer = stabilizer();
    let acknowledged = vec![(acknowledges(7), Some(1))];
    let expected = stage::only(vec![kept_record(0, 7)], acknowledged);
    assert_eq!(stabilizer.asked(store(7)), releases(0, expected));
}

#[test]
fn a_payload_that_is_stored_already_is_acknowledged_again_without_a_record() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(store(7));
    assert_eq!(stabilizer.asked(store(7)), only(vec![acknowledges(7)]));
}

/// No slot can need it any more.
#[test]
fn a_payload_that_is_void_in_every_slot_that_is_not_kept_is_refused() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(kept(UNTIL));
    assert_eq!(stabilizer.asked(store(7)), only(vec![]));
}

#[test]
fn payloads_are_found_again_after_a_restart() {
    let record = Record::Kept {
        place: RecordPlace(5),
        payload: payload(7, UNTIL),
    };
    let mut stabilizer = after(vec![record]);
    let delivered = stabilizer.asked(chosen(7, 4)).sends;
    assert_eq!(delivered, [tells(4, batch())]);
    // The next record comes behind the others.
    let asked = stabilizer.asked(store(8));
    assert_eq!(asked.records, [kept_record(6, 8)]);
}

/// A disseminator beside a leader proposes for the others.
#[test]
fn disseminators_beside_leaders_receive_all_acknowledgements() {
    let birth = birth(kind::Stabilizer, 0, NodeId(0));
    let mut stabilizer = Stage::new(together(), &birth, Stabilizer::new);
    let asked = stabilizer.asked(store(7));
    let Envelope::ToDisseminators(_, message) = acknowledges(7) else {
        unreachable!()
    };
    let all = Envelope::ToDisseminators(Set::first(3), message);
    assert_eq!(asked.sends, [(all, Some(1))]);
}

// Delivering.

/// "The stabilizer then informs the replicas that x has been chosen" (7.2).
#[test]
fn replicas_receive_the_payload_in_place_of_its_reference() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(store(7));
    assert_eq!(
        stabilizer.asked(chosen(7, 4)),
        sends(vec![tells(4, batch())])
    );
}

/// By the slot alone: all stabilizers must send the same, whether they store it or not.
#[test]
pub(crate) fn replicas_receive_a_noop_where_the_payload_is_void() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(store(7));
    for number in [7, 8] {
        let expected = sends(vec![tells(UNTIL, Batch::default())]);
        assert_eq!(stabilizer.asked(chosen(number, UNTIL)), expected);
    }
}

#[test]
fn a_value_that_is_not_a_reference_is_passed_on_as_it_is() {
    let mut stabilizer = stabilizer();
    let message = In::Chosen {
        slot: Slot(4),
        value: Value {
            stamp: Timestamp(1000),
            batch: batch(),
        },
        replier: ReplicaId(1),
        replicas: Set::first(2),
    };
    assert_eq!(stabilizer.asked(message), sends(vec![tells(4, batch())]));
}

/// They store it too, and forget it when its slot is kept.
#[test]
fn the_other_stabilizers_learn_in_which_slot_a_payload_was_delivered() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(store(7));
    stabilizer.asked(chosen(7, 4));
    let delivered_at = stabilizer.now;
    let places = vec![(id(7), Slot(4))];
    let delivered = to_stabilizers(&[1, 2], In::Delivered { places });
    assert_eq!(stabilizer.woken(), sends(vec![(delivered, None)]));
    assert_eq!(stabilizer.now, delivered_at + Duration::from_millis(50));
}

// What is missing.

/// "The stabilizer fetches x from the other stabilizers if it has not previously received it"
/// (7.2).
#[test]
fn a_payload_that_is_missing_is_fetched_from_one_that_stores_it_and_then_from_all() {
    let mut stabilizer = stabilizer();
    assert_eq!(stabilizer.asked(chosen(7, 4)), only(vec![]));
    let missing_since = stabilizer.now;
    let fetch = |from: &[u8]| {
        let message = In::Fetch {
            from: StabilizerId(0),
            id: id(7),
            slot: Slot(4),
        };
        only(vec![to_stabilizers(from, message)])
    };
    // Stabilizers 0 and 1 stored it.
    assert_eq!(stabilizer.woken(), fetch(&[1]));
    let after = Options::default().resend_after / 4;
    assert_eq!(stabilizer.now, missing_since + after);
    let asked = (0..20).map(|_| stabilizer.woken());
    let next = asked
        .into_iter()
        .find(|asked| *asked != only(vec![alive()]));
    assert_eq!(next, Some(fetch(&[1, 2])));
    let fetched = In::Fetched {
        payload: payload(7, UNTIL),
    };
    let delivered = stage::only(vec![kept_record(0, 7)], vec![tells(4, batch())]);
    assert_eq!(stabilizer.asked(fetched), releases(0, delivered));
}

/// Each can be as large as the largest command: they must not all be under way together.
#[test]
fn no_more_than_32_payloads_are_fetched_at_a_time_lowest_slots_first() {
    let mut stabilizer = stabilizer();
    for number in 0..40 {
        let mut reference = chosen(number, 139 - number);
        if let In::Chosen { value, .. } = &mut reference {
            *value = referred(number, 1000);
        }
        stabilizer.tell(reference);
    }
    let fetched = |sent: Vec<Envelope>| -> Vec<u64> {
        let slots = sent.into_iter().filter_map(|envelope| match envelope {
            Envelope::ToStabilizers(_, In::Fetch { slot, .. }) => Some(slot.0),
            _ => None,
        });
        slots.collect()
    };
    assert_eq!(fetched(stabilizer.timer()), Vec::from_iter(100..132));
    stabilizer.tell(In::Fetched {
        payload: payload(39, 1000),
    });
    assert_eq!(fetched(stabilizer.timer()), [132]);
    // Those that do not come are asked for again; the others wait.
    let again = (0..20).map(|_| fetched(stabilizer.timer()));
    let again = again.into_iter().find(|slots| !slots.is_empty());
    assert_eq!(again, Some(Vec::from_iter(101..133)));
    stabilizer.tell(kept(120));
    assert_eq!(fetched(stabilizer.timer()), Vec::from_iter(133..140));
}

#[test]
fn a_payload_that_arrives_after_it_was_chosen_is_delivered_and_acknowledged() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(chosen(7, 4));
    let both = vec![tells(4, batch()), (acknowledges(7), Some(1))];
    let expected = stage::only(vec![kept_record(0, 7)], both);
    assert_eq!(stabilizer.asked(store(7)), releases(0, expected));
}

/// Replicas that lack the slot get it from those that keep it.
#[test]
fn a_missing_payload_whose_slot_is_kept_is_fetched_no_more() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(chosen(7, 4));
    stabilizer.asked(kept(5));
    assert_eq!(stabilizer.asked(chosen(8, 3)), only(vec![]));
    for _ in 0..20 {
        let asked = stabilizer.woken();
        assert!(
            asked == only(vec![alive()]) || asked == only(vec![]),
            "{asked:?}"
        );
    }
}

fn fetch(number: u64, slot: u64) -> In {
    In::Fetch {
        from: StabilizerId(2),
        id: id(number),
        slot: Slot(slot),
    }
}

#[test]
fn a_stabilizer_that_fetches_a_payload_receives_it() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(store(7));
    let fetched = In::Fetched {
        payload: payload(7, UNTIL),
    };
    let expected = only(vec![to_stabilizers(&[2], fetched)]);
    assert_eq!(stabilizer.asked(fetch(7, 4)), expected);
    assert_eq!(
        stabilizer.asked(fetch(8, 4)),
        only(vec![]),
        "it does not store it"
    );
}

#[test]
fn a_stabilizer_that_fetches_a_payload_whose_slot_is_kept_learns_that_it_is() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(kept(5));
    let expected = only(vec![to_stabilizers(&[2], kept(5))]);
    assert_eq!(stabilizer.asked(fetch(7, 4)), expected);
}

// Forgetting.

#[test]
fn a_chosen_payload_is_forgotten_and_its_record_released_when_its_slot_is_kept() {
    let mut stabilizer = stabilizer();
    for number in [7, 8] {
        stabilizer.asked(store(number));
    }
    stabilizer.asked(chosen(7, 4));
    assert_eq!(stabilizer.asked(kept(4)), releases(0, only(vec![])));
    assert!(stabilizer.role.holds(id(7)));
    assert_eq!(stabilizer.asked(kept(5)), releases(1, only(vec![])));
    assert!(!stabilizer.role.holds(id(7)) && stabilizer.role.holds(id(8)));
}

#[test]
fn a_payload_that_another_delivered_is_forgotten_when_its_slot_is_kept() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(store(7));
    let places = vec![(id(7), Slot(4))];
    assert_eq!(stabilizer.asked(In::Delivered { places }), only(vec![]));
    assert_eq!(stabilizer.asked(kept(5)), releases(1, only(vec![])));
}

#[test]
fn a_payload_that_no_leader_orders_is_forgotten_when_all_slots_are_kept_in_which_it_is_not_void() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(store(7));
    assert_eq!(stabilizer.asked(kept(UNTIL - 1)), releases(0, only(vec![])));
    assert!(stabilizer.role.holds(id(7)));
    assert_eq!(stabilizer.asked(kept(UNTIL)), releases(1, only(vec![])));
}

/// Disseminators stored them and crashed, and the log stands still where commands are few. The
/// leader of the round is not replaced: nothing else would make room, ever.
#[test]
pub(crate) fn a_full_stabilizer_has_the_log_pass_the_older_half_of_what_no_leader_orders() {
    let birth = Birth {
        keeps_records: false,
        ..birth(kind::Stabilizer, 0, NodeId(99))
    };
    let config = apart(0, Options::default());
    let mut stabilizer = Stage::new(config, &birth, Stabilizer::new);
    stabilizer.tell(kept(0));
    let large = stage::batch(vec![7; 64 << 20]);
    let is_stored = |stabilizer: &mut Stage<Stabilizer>, number| {
        let payload = Payload {
            batch: large.clone(),
            ..payload(number, 100 + number)
        };
        let floor = PayloadNumber(0);
        stabilizer.tell(In::Store { floor, payload });
        stabilizer.role.holds(id(number))
    };
    assert!((0..32).all(|number| is_stored(&mut stabilizer, number)));
    assert!(!is_stored(&mut stabilizer, 32), "there is no room");
    let asks = |stabilizer: &mut Stage<Stabilizer>| {
        let sent = (0..30).flat_map(|_| stabilizer.timer());
        let asks = |envelope| match envelope {
            Envelope::ToLeaders(to, leader::In::CarryTo { slot }) => Some((to, slot)),
            _ => None,
        };
        let asks: Vec<_> = sent.filter_map(asks).collect();
        asks.first().copied()
    };
    let leader = Set::one(round(1).leader());
    assert_eq!(asks(&mut stabilizer), Some((leader, Slot(115))));
    stabilizer.tell(kept(115));
    assert!(is_stored(&mut stabilizer, 32), "there is room again");
    assert_eq!(asks(&mut stabilizer), Some((leader, Slot(124))));
    stabilizer.tell(kept(124));
    assert_eq!(asks(&mut stabilizer), None, "there is room enough");
}

#[test]
fn proxy_leaders_learn_four_times_a_second_that_it_lives() {
    let mut stabilizer = stabilizer();
    let begin = stabilizer.now;
    for times in 1..4 {
        assert_eq!(stabilizer.woken(), only(vec![alive()]));
        assert_eq!(stabilizer.now, begin + Duration::from_millis(250) * times);
    }
}

// Lost memory.

/// Stabilizer 0, whose first process kept no records, and what it asks of its driver when it
/// starts.
fn forgetful() -> (Stage<Stabilizer>, Asked<Envelope>) {
    let birth = born(true);
    let role = Stabilizer::new(apart(0, Options::default()), &birth);
    let mut stabilizer = Stage::unstarted(role, birth.keeps_records);
    let asked = stabilizer.started();
    (stabilizer, asked)
}

/// What it acknowledged before must not count.
#[test]
fn a_stabilizer_that_lost_its_memory_counts_its_lives_in_a_vital_record() {
    let (_, asked) = forgetful();
    let begun = (encode_all(&Record::Begun { life: 1 }), true);
    assert_eq!(asked.records, [begun]);
    assert_eq!(asked.sends, []);
}

#[test]
fn a_stabilizer_that_lost_its_memory_asks_all_others_what_they_store_and_is_not_alive_to_others() {
    let (mut stabilizer, _) = forgetful();
    let copy = |of: u8| {
        let message = In::Copy {
            from: StabilizerId(0),
            life: 1,
            seals: None,
            after: None,
        };
        to_stabilizers(&[of], message)
    };
    let asked = stabilizer.woken();
    let sends: Vec<_> = asked.sends.iter().map(|(envelope, _)| envelope).collect();
    assert_eq!(sends, [&copy(1), &copy(2)]);
}

fn copy() -> In {
    In::Copy {
        from: StabilizerId(2),
        life: 4,
        seals: None,
        after: None,
    }
}

/// Otherwise it could lose its memory next and acknowledge a payload without the other's new life.
#[test]
pub(crate) fn a_stabilizer_that_is_copied_records_the_life_of_the_other_before_it_answers() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(store(7));
    let copied = In::Copied {
        from: StabilizerId(0),
        life: 4,
        seals: None,
        payloads: vec![payload(7, UNTIL)],
        last: true,
    };
    let renewed = Record::Renewed {
        stabilizer: StabilizerId(2),
        life: 4,
    };
    let expected = stage::only(
        vec![(encode_all(&renewed), true)],
        vec![(to_stabilizers(&[2], copied.clone()), Some(1))],
    );
    assert_eq!(stabilizer.asked(copy()), expected);
    let again = only(vec![to_stabilizers(&[2], copied)]);
    assert_eq!(stabilizer.asked(copy()), again, "it is recorded");
    // From now on every acknowledgement says so.
    let Envelope::ToDisseminators(to, disseminator::In::Stored { from, tickets, .. }) =
        acknowledges(8)
    else {
        unreachable!()
    };
    let message = disseminator::In::Stored {
        from,
        tickets,
        lives: vec![(StabilizerId(2), 4)],
    };
    let asked = stabilizer.asked(store(8));
    assert_eq!(
        asked.sends,
        [(Envelope::ToDisseminators(to, message), Some(1))]
    );
}

/// What it stores is not all that it acknowledged.
#[test]
fn a_stabilizer_that_lost_its_memory_answers_no_other_that_did() {
    let (mut stabilizer, _) = forgetful();
    stabilizer.woken();
    let asked = stabilizer.asked(copy());
    assert_eq!(asked.sends, []);
}

#[test]
fn a_stabilizer_writes_its_own_life_and_those_of_others_again_at_a_checkpoint() {
    let records = vec![
        Record::Begun { life: 2 },
        Record::Renewed {
            stabilizer: StabilizerId(1),
            life: 3,
        },
        Record::Released {
            below: RecordPlace(6),
        },
    ];
    let stabilizer = &mut after(records.clone());
    let vital = |record: &Record| !matches!(record, Record::Released { .. });
    let written = [2, 0, 1].map(|place: usize| {
        let record = &records[place];
        (encode_all(record), vital(record))
    });
    assert_eq!(stabilizer.checkpoint(), stage::only(written.into(), vec![]));
}

#[test]
fn a_payload_of_another_name_is_another_payload() {
    let mut stabilizer = stabilizer();
    stabilizer.asked(store(7));
    let mut other = payload(7, UNTIL);
    other.id.life += 1;
    let message = In::Store {
        floor: PayloadNumber(3),
        payload: Payload {
            batch: stage::batch("another"),
            ..other.clone()
        },
    };
    stabilizer.asked(message);
    assert!(stabilizer.role.holds(id(7)) && stabilizer.role.holds(other.id));
    let delivered = stabilizer.asked(chosen(7, 4)).sends;
    assert_eq!(delivered, [tells(4, batch())]);
}
