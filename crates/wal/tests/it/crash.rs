//! Random lives of a log: whatever fails and whenever the power goes, everything that was reported
//! durable is found, and nothing else than was appended, in order and without a gap.

use crate::{STAMP, directory, entries, open, options};
use ionian_wal::testing::{Fault, FaultDisk};
use ionian_wal::{Entry, HandOff, Wal, WalError};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Action {
    Append(usize),
    Flush,
    Sync,
    /// Drops records below this share of the durable ones.
    Truncate(u64),
    /// The operation this far from now fails.
    Fail(u64, Fault),
    /// The process ends and starts again.
    Restart,
    PowerFailure,
}

fn action() -> impl Strategy<Value = Action> {
    // 488 bytes and a header fill a sector: then old records begin where new ones might.
    let length =
        prop_oneof![4 => 0..40usize, 3 => Just(488), 2 => 0..1500usize, 1 => 3000..12_000usize];
    let fault = prop_oneof![Just(Fault::Error), Just(Fault::NoSpace), Just(Fault::Crash)];
    prop_oneof![
        12 => length.prop_map(Action::Append),
        6 => Just(Action::Flush),
        2 => Just(Action::Sync),
        2 => (0..=100u64).prop_map(Action::Truncate),
        2 => (0..30u64, fault).prop_map(|(after, fault)| Action::Fail(after, fault)),
        1 => Just(Action::Restart),
        1 => Just(Action::PowerFailure),
    ]
}

/// What the log must do.
#[derive(Default)]
struct Model {
    records: BTreeMap<u64, Entry>,
    durable: u64,
    low: u64,
    made: u64,
}

impl Model {
    fn append(&mut self, wal: &mut Wal<FaultDisk>, length: usize) {
        self.made += 1;
        let record: Vec<u8> = (0..length as u64)
            .map(|at| (self.made * 31 + at) as u8)
            .collect();
        let (kind, tag) = (self.made as u8, self.made as u16);
        let lsn = wal.append(kind, tag, &record);
        self.records.insert(
            lsn,
            Entry {
                lsn,
                kind,
                tag,
                record,
            },
        );
    }

    /// Opens the log, through faults if need be, and compares.
    fn recover(&mut self, disk: &FaultDisk, hand_off: HandOff) -> Wal<FaultDisk> {
        let opened = loop {
            let fault_was_due = disk.fault_is_due();
            match Wal::open_in(disk.clone(), directory(), options(hand_off), STAMP) {
                Ok(opened) => break opened,
                Err(error @ WalError::Io { .. }) => {
                    assert!(fault_was_due && !disk.fault_is_due(), "{error}")
                }
                Err(error) => panic!("refused after a crash: {error}"),
            }
            if disk.is_dead() || disk.random(2) == 0 {
                disk.fail_power();
            }
        };
        let (wal, recovery) = opened;
        let (first, last) = (recovery.first_lsn(), recovery.last_lsn());
        assert_eq!(wal.durable(), last);
        assert_eq!(wal.written(), last);
        // A fault that is still due must not hit the reading, which only this test does here.
        disk.heal();
        let found = entries(recovery);
        assert_eq!(found.len() as u64, last + 1 - first);
        assert!(
            first <= self.low.max(1),
            "record {} was truncated, only {} may be",
            first - 1,
            self.low
        );
        assert!(
            last >= self.durable,
            "record {} was durable, {last} is the last",
            self.durable
        );
        for (entry, lsn) in found.iter().zip(first..) {
            assert_eq!(Some(entry), self.records.get(&lsn), "record {lsn}");
        }
        self.records.retain(|lsn, _| *lsn <= last);
        self.durable = last;
        wal
    }

    fn act(&mut self, wal: &mut Wal<FaultDisk>, action: &Action) -> Result<(), WalError> {
        match action {
            Action::Append(length) => self.append(wal, *length),
            Action::Flush => drop(wal.flush()?),
            Action::Sync => {
                wal.sync()?;
                assert_eq!(wal.durable(), wal.written());
            }
            Action::Truncate(percent) => {
                let lsn = self.durable * percent / 100 + 1;
                self.low = self.low.max(lsn);
                wal.truncate_below(lsn)?;
            }
            Action::Fail(..) | Action::Restart | Action::PowerFailure => {
                unreachable!("concerns the disk")
            }
        }
        wal.poll_completed()?;
        Ok(())
    }
}

/// A log that has failed says so permanently, and takes back nothing and promises nothing.
fn is_poisoned(wal: &mut Wal<FaultDisk>) {
    let durable = wal.durable();
    wal.append(0, 0, b"too late");
    assert!(matches!(wal.flush(), Err(WalError::Poisoned { .. })));
    assert!(matches!(
        wal.poll_completed(),
        Err(WalError::Poisoned { .. })
    ));
    assert!(matches!(wal.sync(), Err(WalError::Poisoned { .. })));
    assert!(matches!(
        wal.truncate_below(0),
        Err(WalError::Poisoned { .. })
    ));
    assert_eq!(wal.durable(), durable);
}

fn live(seed: u64, actions: &[Action], hand_off: HandOff) {
    let disk = FaultDisk::new(seed);
    let mut model = Model::default();
    let mut wal = model.recover(&disk, hand_off);
    for action in actions {
        let restarts = match action {
            Action::Fail(after, fault) => {
                disk.fail_after(*after, *fault);
                continue;
            }
            Action::Restart => Some(false),
            Action::PowerFailure => Some(true),
            _ => model.act(&mut wal, action).is_err().then(|| {
                is_poisoned(&mut wal);
                disk.random(2) == 0
            }),
        };
        model.durable = model.durable.max(wal.durable());
        if let Some(power_fails) = restarts {
            drop(wal);
            // Where the power fails the fault is forgotten; a restarted process may meet it.
            if power_fails || disk.is_dead() {
                disk.fail_power();
            }
            wal = model.recover(&disk, hand_off);
        }
    }
    drop(wal);
    disk.fail_power();
    drop(model.recover(&disk, hand_off));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_durable_is_found_and_nothing_that_was_not_appended(
        seed: u64,
        actions in prop::collection::vec(action(), 1..80),
    ) {
        live(seed, &actions, HandOff::Never);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same with threads. How far they are when the power fails is up to chance.
    #[test]
    fn what_was_durable_is_found_though_threads_wrote_it(
        seed: u64,
        actions in prop::collection::vec(action(), 1..80),
        least in 1..4000usize,
    ) {
        live(seed, &actions, HandOff::From(least));
    }
}

#[test]
fn a_torn_group_whose_later_records_are_whole_is_cut_off_and_does_not_come_back() {
    let disk = FaultDisk::new(1);
    let (mut wal, _) = open(&disk).expect("makes one");
    for record in [1u8, 2, 3, 4] {
        wal.append(0, 0, &[record; 488]);
        if record == 1 {
            wal.sync().expect("can sync");
        }
    }
    let extent = disk.content(&directory().join("extent"));
    wal.sync().expect("can sync");
    drop(wal);
    // The power failed before the group was whole.
    disk.edit(&directory().join("extent"), |content| *content = extent);
    // The sector with the second record did not make it. Those behind it did.
    let path = directory().join("0000000000000001.wal");
    disk.edit(&path, |content| content[4096 + 512..4096 + 1024].fill(0));
    let (mut wal, recovery) = open(&disk).expect("a crash can do this");
    let cut = recovery.cut().expect("something was cut off").clone();
    assert_eq!(
        (cut.path, cut.offset, cut.bytes),
        (path, 4096 + 512, 3 * 512)
    );
    assert_eq!(entries(recovery).len(), 1);
    wal.append(0, 0, &[9; 488]);
    wal.sync().expect("can sync");
    drop(wal);
    let (_, recovery) = open(&disk).expect("is sound");
    let records: Vec<u8> = entries(recovery)
        .iter()
        .map(|entry| entry.record[0])
        .collect();
    assert_eq!(records, [1, 9]);
}
