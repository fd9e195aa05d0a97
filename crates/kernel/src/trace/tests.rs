//! What is recorded, and for how long.

use super::*;
use alloc::vec;

fn recording(one_in: u64, until: u64) -> Recording {
    let until = Instant(until);
    Recording { one_in, until }
}

fn recorded(recorder: &Recorder) -> Vec<(u64, u64)> {
    let all = recorder.recordings.iter();
    all.map(|it| (it.one_in, it.until.0)).collect()
}

#[test]
fn a_sample_goes_on_after_everything_was_recorded_for_a_while() {
    let mut recorder = Recorder::new(recording(1000, 500));
    recorder.extend(Instant(0), recording(1, 100));
    recorder.extend(Instant(0), recording(10, 50));
    recorder.extend(Instant(0), recording(10, 200));
    recorder.extend(Instant(0), recording(2000, 500));
    assert_eq!(recorded(&recorder), [(1, 100), (10, 200), (1000, 500)]);
    recorder.extend(Instant(0), recording(1, 300));
    assert_eq!(recorded(&recorder), [(1, 300), (1000, 500)]);
    (2..100).for_each(|n| recorder.extend(Instant(0), recording(n, 300 + n)));
    assert!(recorder.recordings.len() <= MOST_RECORDINGS);
    assert_eq!(recorded(&recorder).last(), Some(&(1000, 500)));
    recorder.extend(Instant(500), recording(7, 501));
    assert_eq!(recorded(&recorder), [(7, 501)], "the others are over");
}

#[test]
fn one_in_some_commands_is_sampled_whatever_their_numbers() {
    for (client, step) in [(0, 1_u64), (3, 1), (3, 64), (7, 1000)] {
        let command = |number| CommandId {
            client: ClientId(client),
            sessionless: false,
            number: number * step,
        };
        let sampled = (0..100_000).filter(|number| command(*number).is_sampled(100));
        let count = sampled.count();
        assert!(
            (850..1150).contains(&count),
            "{count} of lane {client}, each {step}th"
        );
        assert!(command(1).is_sampled(1));
    }
}

/// Commands with these numbers.
struct Numbered(Vec<u64>);

impl Commands for Numbered {
    fn each_id(&self, show: &mut dyn FnMut(CommandId)) {
        self.0.iter().for_each(|number| {
            show(CommandId {
                client: ClientId(1),
                sessionless: false,
                number: *number,
            })
        });
    }
}

/// Refers to payloads with these numbers.
struct Referring(Vec<u64>);

impl Commands for Referring {
    fn each_id(&self, _: &mut dyn FnMut(CommandId)) {}

    fn each_reference(&self, show: &mut dyn FnMut(LogSlot)) {
        let numbers = self.0.iter().copied();
        numbers.map(LogSlot::of_payload).for_each(show);
    }
}

fn about<'a>(slot: Option<LogSlot>, commands: Option<&'a dyn Commands>) -> Subject<'a> {
    let stage = "stage";
    Subject {
        stage,
        slot,
        commands,
    }
}

/// The slot 5 of the log of all.
const SLOT: LogSlot = LogSlot {
    log: 0,
    slot: Slot(5),
};

/// The numbers of slots that are noted, and those of commands.
fn noted(recorder: &Recorder, subject: &Subject<'_>) -> Vec<(Option<u64>, Option<u64>)> {
    let all = recorder.wanted(subject).into_iter();
    let numbers = all.map(|(slot, run)| (slot.map(|it| it.slot.0), run.map(|it| it.first.number)));
    numbers.collect()
}

#[test]
fn a_sample_follows_slots_of_sampled_commands_and_what_has_no_name() {
    let mut recorder = Recorder::new(recording(2, 500));
    let is_sampled = |number: &u64| {
        let mut any = false;
        Numbered(vec![*number]).each_id(&mut |id| any = id.is_sampled(2));
        any
    };
    let sampled = (0..).find(is_sampled).expect("one");
    let other = (0..).find(|it| !is_sampled(it)).expect("one");
    let [in_sample, outside] = [sampled, other].map(|it| Numbered(vec![it]));
    let both = about(Some(SLOT), Some(&in_sample));
    assert_eq!(noted(&recorder, &both), [(Some(5), Some(sampled))]);
    let both = about(Some(SLOT), Some(&outside));
    assert_eq!(noted(&recorder, &both), []);
    // A payload in its place, or nothing.
    let nothing = Numbered(Vec::new());
    let unnamed = about(Some(SLOT), Some(&nothing));
    assert_eq!(noted(&recorder, &unnamed), [(Some(5), None)]);
    let alone = about(Some(SLOT), None);
    assert_eq!(noted(&recorder, &alone), []);
    recorder.slots[5] = Some(SLOT);
    assert_eq!(noted(&recorder, &alone), [(Some(5), None)]);
    recorder.slots[7] = Some(LogSlot::of_payload(7));
    let referring = Referring(vec![6, 7, 8]);
    let tickets = about(None, Some(&referring));
    assert_eq!(noted(&recorder, &tickets), [(Some(7), None)]);
}

#[test]
fn what_a_role_sends_because_of_an_inquiry_has_its_number() {
    let mut recorder = Recorder::new(recording(1, 500));
    let reads = Numbered(vec![3]);
    let read = about(None, Some(&reads));
    assert_eq!(noted(&recorder, &read), [(None, Some(3))]);
    recorder.inquiry = Some(LogSlot::of_inquiry(9));
    assert_eq!(noted(&recorder, &read), [(Some(9), Some(3))]);
    let write = about(Some(SLOT), Some(&reads));
    assert_eq!(noted(&recorder, &write), [(Some(5), Some(3))]);
    recorder.handled();
    assert_eq!(noted(&recorder, &read), [(None, Some(3))]);
}

#[test]
fn an_inquiry_stands_for_the_commands_that_a_role_makes_it_for() {
    let mut recorder = Recorder::new(recording(1, 500));
    let name = |number| CommandId {
        client: ClientId(1),
        sessionless: false,
        number,
    };
    let inquiry = |number| about(Some(LogSlot::of_inquiry(number)), None);
    for (number, command) in [(9, 3), (9, 4), (9, 7), (10, 8)] {
        recorder.inquires_for(LogSlot::of_inquiry(number), name(command));
    }
    let made_for = [(Some(9), Some(3)), (Some(9), Some(7))];
    assert_eq!(noted(&recorder, &inquiry(9)), made_for);
    assert_eq!(noted(&recorder, &inquiry(11)), [(Some(11), None)]);
    // Asked again, for others.
    recorder.inquires_for(LogSlot::of_inquiry(9), name(5));
    assert_eq!(noted(&recorder, &inquiry(9)), [(Some(9), Some(5))]);
    for number in 100..1000 {
        recorder.inquires_for(LogSlot::of_inquiry(number), name(1));
    }
    assert_eq!(recorder.inquiries.len(), MOST_INQUIRIES);
    assert_eq!(noted(&recorder, &inquiry(999)), [(Some(999), Some(1))]);
}

#[test]
fn commands_of_roles_are_not_taken_for_those_of_clients() {
    let recorder = Recorder::new(recording(1, 500));
    let commands = Numbered(vec![3]);
    let of_roles = about(Some(SLOT), Some(&commands)).internal();
    assert_eq!(noted(&recorder, &of_roles), [(Some(5), None)]);
    assert_eq!(of_roles.slot, Some(LogSlot { log: 1, ..SLOT }));
    assert_eq!(
        noted(&recorder, &about(None, Some(&commands)).internal()),
        []
    );
}

#[test]
fn numbers_of_payloads_and_inquiries_are_of_no_log() {
    let of_group = |slot| about(Some(slot), None).in_log(2u16).slot;
    assert_eq!(of_group(SLOT), Some(LogSlot { log: 3, ..SLOT }));
    for slot in [LogSlot::of_payload(5), LogSlot::of_inquiry(5)] {
        assert_eq!(of_group(slot), Some(slot));
        assert!(!slot.is_of_log() && slot > SLOT);
    }
}

#[test]
fn runs_are_commands_of_one_lane_without_gaps() {
    let recorder = Recorder::new(recording(1, 500));
    let runs = |numbers: &[u64]| {
        let runs = recorder.sampled_runs(&Numbered(numbers.to_vec())).runs;
        let told = runs.iter().map(|run| (run.first.number, run.count));
        told.collect::<Vec<_>>()
    };
    assert_eq!(runs(&[4, 5, 6, 9, 8]), [(4, 3), (9, 1), (8, 1)]);
    let apart: Vec<u64> = (0..1000).map(|number| 2 * number).collect();
    assert_eq!(runs(&apart).len(), MOST_RUNS);
}
