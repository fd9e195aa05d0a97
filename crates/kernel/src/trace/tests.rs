//! What is recorded, and for how long.

use super::*;

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

#[test]
fn runs_are_commands_of_one_lane_without_gaps() {
    struct Some(Vec<u64>);
    impl Commands for Some {
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
    let recorder = Recorder::new(recording(1, 500));
    let runs = |numbers: &[u64]| {
        let runs = recorder.sampled_runs(&Some(numbers.to_vec()));
        let told = runs.iter().map(|run| (run.first.number, run.count));
        told.collect::<Vec<_>>()
    };
    assert_eq!(runs(&[4, 5, 6, 9, 8]), [(4, 3), (9, 1), (8, 1)]);
    let apart: Vec<u64> = (0..1000).map(|number| 2 * number).collect();
    assert_eq!(runs(&apart).len(), MOST_RUNS);
}
