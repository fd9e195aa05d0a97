//! The log and the snapshots on a faulty disk, and a little on a real one.

mod crash;
mod damage;
mod poison;
mod round_trip;
mod snapshot;
mod threads;

use ionian_wal::testing::FaultDisk;
use ionian_wal::{Entry, HandOff, Options, Recovery, Wal, WalError};
use std::path::Path;

const STAMP: &[u8] = b"cluster x, node 1";
const SEGMENT: u64 = 8192;

fn directory() -> &'static Path {
    Path::new("/data")
}

fn options(hand_off: HandOff) -> Options {
    Options {
        segment_bytes: SEGMENT,
        max_record_bytes: 20_000,
        hand_off,
        ..Options::default()
    }
}

type Opened = (Wal<FaultDisk>, Recovery<FaultDisk>);

fn open(disk: &FaultDisk) -> Result<Opened, WalError> {
    Wal::open_in(disk.clone(), directory(), options(HandOff::Never), STAMP)
}

fn entries(recovery: Recovery<FaultDisk>) -> Vec<Entry> {
    recovery
        .map(|entry| entry.expect("was checked when it was opened"))
        .collect()
}

/// The text of the error that opening ends in.
fn refusal(disk: &FaultDisk) -> String {
    open(disk).err().expect("is refused").to_string()
}
