//! What a process holds, as the system counts it.
//!
//! The only test of its process: what other tests take and give back meanwhile would be counted
//! too.

use ionian_harness::process::{peak_resident_bytes, resident_bytes};

const MUCH: usize = 64 << 20;

/// The system counts for each processor by itself and adds up later, so it may be off by some
/// pages.
const OFF: u64 = MUCH as u64 / 4;

#[test]
fn this_process_holds_memory_and_one_without_number_does_not_exist() {
    let of_this_one = |of: fn(u32) -> anyhow::Result<u64>| of(std::process::id()).unwrap();
    let before = of_this_one(resident_bytes);
    let much = std::hint::black_box(vec![1_u8; MUCH]);
    let meanwhile = of_this_one(resident_bytes);
    let expected = before + MUCH as u64;
    assert!(
        meanwhile.abs_diff(expected) < OFF,
        "{before} bytes, then {meanwhile}"
    );
    drop(much);
    let peak = of_this_one(peak_resident_bytes);
    assert!(
        peak.abs_diff(meanwhile) < OFF,
        "{meanwhile} bytes, at most {peak}"
    );
    assert!(
        [resident_bytes, peak_resident_bytes]
            .iter()
            .all(|of| of(0).is_err())
    );
}
