//! The test kit, tried on machines that are right and on machines with a defect each.
#![cfg(feature = "testing")]

use ionian::testing::{Commands, Random, Simulation, SimulationFailure, exercise};
use ionian::{Footprint, NotARead, RestoreError, StateMachine, Timestamp};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

/// What is wrong with a machine.
const NOTHING: u8 = 0;
const FORGETS_IN_RESTORE: u8 = 1;
const KEEPS_IN_RESTORE: u8 = 2;
const ITERATES_A_HASH_MAP: u8 = 3;
const COUNTS_READS: u8 = 4;
const PANICS: u8 = 5;
const CLAIMS_TO_COMMUTE: u8 = 6;
const HIDES_STATE: u8 = 7;

/// A log for each of a few names: `b"a7"` appends 7 to `a` and answers how much there is, `b"a"`
/// reads it all.
#[derive(Default)]
struct Logs<const DEFECT: u8> {
    logs: BTreeMap<u8, Vec<u8>>,
    hashed: HashMap<u8, Vec<u8>>,
    reads: Cell<u8>,
}

impl<const DEFECT: u8> StateMachine for Logs<DEFECT> {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let [name @ b'a'..=b'c', what] = *command else {
            assert!(
                DEFECT != PANICS || command.len() < 8,
                "a length without a case"
            );
            return reply.extend_from_slice(b"?");
        };
        let log = self.logs.entry(name).or_default();
        log.push(what);
        reply.push(log.len() as u8);
        self.hashed.entry(name).or_default().push(what);
        self.reads.set(
            self.reads
                .get()
                .wrapping_add(u8::from(DEFECT == HIDES_STATE)),
        );
        if DEFECT == HIDES_STATE {
            reply.push(self.reads.get());
        }
    }

    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        let [name] = *query else { return Err(NotARead) };
        self.reads.set(
            self.reads
                .get()
                .wrapping_add(u8::from(DEFECT == COUNTS_READS)),
        );
        reply.extend_from_slice(self.logs.get(&name).map_or(&[], Vec::as_slice));
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let mut write = |(name, log): (&u8, &Vec<u8>)| {
            out.extend_from_slice(&[*name, log.len() as u8]);
            out.extend_from_slice(log);
        };
        match DEFECT {
            ITERATES_A_HASH_MAP => self.hashed.iter().for_each(&mut write),
            _ => self.logs.iter().for_each(&mut write),
        }
        if DEFECT == COUNTS_READS {
            out.extend_from_slice(&[b'z', 1, self.reads.get()]);
        }
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let mut logs = BTreeMap::new();
        let mut rest = snapshot;
        while let [name, length, after @ ..] = rest {
            let (log, after) = after
                .split_at_checked(usize::from(*length))
                .ok_or_else(|| RestoreError("it is cut short".into()))?;
            match DEFECT {
                // The last of a log.
                FORGETS_IN_RESTORE => {
                    drop(logs.insert(*name, log[..log.len().saturating_sub(1)].to_vec()))
                }
                _ if *name == b'z' => self.reads.set(log.first().copied().unwrap_or(0)),
                _ => drop(logs.insert(*name, log.to_vec())),
            }
            rest = after;
        }
        if !rest.is_empty() {
            return Err(RestoreError("it is cut short".into()));
        }
        match DEFECT {
            KEEPS_IN_RESTORE => self.logs.extend(logs),
            _ => self.logs = logs,
        }
        self.hashed = self.logs.clone().into_iter().collect();
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match command {
            [name, _] if DEFECT == CLAIMS_TO_COMMUTE => footprint
                .writes
                .push(u64::from(*name) + u64::from(command[1])),
            [name, _] if DEFECT != HIDES_STATE => footprint.writes.push(u64::from(*name)),
            [name] => footprint.reads.push(u64::from(*name)),
            _ => footprint.everything = true,
        }
    }
}

impl<const DEFECT: u8> Commands for Logs<DEFECT> {
    fn random_write(random: &mut Random) -> Vec<u8> {
        vec![b'a' + random.below(3) as u8, b'0' + random.below(10) as u8]
    }

    fn random_read(random: &mut Random) -> Vec<u8> {
        vec![b'a' + random.below(3) as u8]
    }

    fn part(command: &[u8]) -> u64 {
        command.first().copied().unwrap_or(0).into()
    }
}

/// What the exercise says of a machine.
fn fault<const DEFECT: u8>() -> String {
    exercise::<Logs<DEFECT>>(0..50).map_or_else(|fault| fault.what, |_| "nothing".into())
}

#[test]
fn a_machine_that_is_right_passes() {
    assert_eq!(fault::<NOTHING>(), "nothing");
    // Of more operations on all that a machine has, some histories are too long to check.
    for preset in ["colocated", "mencius", "spaxos", "unreplicated"] {
        let report = Simulation::new(preset)
            .seeds(0..4)
            .operations(15)
            .run::<Logs<NOTHING>>()
            .unwrap();
        assert!(report.acknowledged_under_faults > 0, "{preset}: {report:?}");
    }
    Simulation::new("colocated")
        .in_memory()
        .seeds(0..4)
        .operations(15)
        .run::<Logs<NOTHING>>()
        .unwrap();
}

#[test]
fn the_exercise_finds_each_defect() {
    for (found, expected) in [
        (fault::<FORGETS_IN_RESTORE>(), "copy that was restored"),
        (fault::<KEEPS_IN_RESTORE>(), "a used copy that was restored"),
        (fault::<COUNTS_READS>(), "changes the state"),
        (fault::<PANICS>(), "it panics when it executes"),
        (fault::<CLAIMS_TO_COMMUTE>(), "their order matters"),
        (fault::<HIDES_STATE>(), "answer"),
    ] {
        assert!(
            found.contains(expected),
            "{expected:?} was expected: {found}"
        );
    }
}

/// The hash of each map is seeded by the system, so which comparison of two snapshots finds it
/// first is different in each run.
#[test]
fn the_exercise_finds_a_hash_map_that_is_iterated() {
    let found = fault::<ITERATES_A_HASH_MAP>();
    let comparisons = [
        "have other snapshots",
        "has the snapshot",
        "its state is another now",
        "their order matters",
    ];
    assert!(
        comparisons
            .iter()
            .any(|comparison| found.contains(comparison)),
        "{found}"
    );
}

#[test]
fn the_simulator_finds_a_broken_restore() {
    let failure = Simulation::new("colocated")
        .seeds(0..200)
        .run::<Logs<FORGETS_IN_RESTORE>>()
        .unwrap_err()
        .to_string();
    assert!(failure.contains("fails again with .seeds("), "{failure}");
    assert!(
        failure.contains("Divergence") || failure.contains("Linearizability"),
        "{failure}"
    );
}

#[test]
fn a_history_that_is_too_long_to_check_is_no_success() {
    let run = Simulation::new("colocated").seeds(3..9).check_steps(2);
    let failure = run.run::<Logs<NOTHING>>().unwrap_err();
    assert!(
        matches!(
            failure,
            SimulationFailure::Unchecked {
                seed: 3,
                parts: 1..
            }
        ),
        "{failure}"
    );
    assert!(failure.to_string().contains("Commands::part"), "{failure}");
}

#[test]
fn a_preset_that_is_not_there_is_refused() {
    let failure = Simulation::new("colocate")
        .run::<Logs<NOTHING>>()
        .unwrap_err()
        .to_string();
    assert!(failure.contains("colocate"), "{failure}");
}
