//! Defects that the simulator's driver builds in, under any protocol: a tester that does not find
//! them shows nothing. The defects of roles are canaries (`crates/canaries`).

use super::shapes::{self, AMNESIA};
use ionian_sim::{Canary, Durability, FailureKind, Scenario, Simulated, run_seeds};

/// Seeds that a defect may take.
const SEEDS: u64 = 1_600;

/// What a lost or premature record can lead to.
const LOSSES: &[FailureKind] = &[
    FailureKind::Panic,
    FailureKind::Divergence,
    FailureKind::Invariant,
    FailureKind::Linearizability,
    FailureKind::LostWrite,
    FailureKind::ExactlyOnce,
    FailureKind::Sequential,
];

fn is_found(protocol: Simulated, canary: Canary, durability: Durability, expected: &[FailureKind]) {
    let scenario = Scenario {
        canary,
        durability,
        gives_up: canary == Canary::GivesUpAlone,
        ..shapes::smallest(protocol)
    };
    let mut others = Vec::new();
    let mut next = 0;
    while next < SEEDS {
        let failures = run_seeds(protocol, &scenario, next..SEEDS).failures;
        let Some(found) = failures.first() else {
            break;
        };
        let failure = found.result.clone().expect_err("a failed run");
        if expected.contains(&failure.kind) {
            return println!("{canary:?}: seed {}: {failure}", found.seed);
        }
        others.push(failure.kind);
        next = found.seed + 1;
    }
    panic!(
        "{}: {canary:?}: not found, but {others:?}",
        protocol.description().name
    );
}

pub(crate) fn are_found(protocol: Simulated) {
    let disk = Durability::Disk;
    is_found(protocol, Canary::NoFence, disk, LOSSES);
    is_found(protocol, Canary::ForgetDisk, disk, LOSSES);
    is_found(
        protocol,
        Canary::ReadsAhead,
        disk,
        &[FailureKind::Linearizability],
    );
    // Where commands that commute are executed early, they are at different times then. And a read
    // at a replica whose clock is ahead sees a key expired before the log's time has come so far.
    let late = [
        FailureKind::Liveness,
        FailureKind::Divergence,
        FailureKind::Linearizability,
    ];
    is_found(protocol, Canary::HidesDeadlines, disk, &late);
    if shapes::smallest(protocol).layout.f > 0 {
        is_found(protocol, Canary::HideAmnesia, AMNESIA, LOSSES);
        if protocol.description().readmits {
            is_found(protocol, Canary::HideAmnesia, disk, LOSSES);
        }
        // One server alone has no other that it could differ from. A replica that has executed one
        // command fewer than others may also be reported as one that never catches up.
        let differs = [FailureKind::Divergence, FailureKind::Liveness];
        is_found(protocol, Canary::GivesUpAlone, disk, &differs);
    }
}
