//! Long runs of positions in which phase 1 has found nothing: what earlier leaders skipped, or
//! reserved and left. After a revocation they can be hundreds of thousands of positions long. A
//! noop in each, which acceptors vote for, would take longer than the next election timeout, and
//! the next leader would have to begin all over again. So they are skipped as what is beyond the
//! watermark is: reserved by this leader's round first (`gaps.rs`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::Slot;
use ionian_replication::batch::Value;

/// Shorter runs are filled with noops: acceptors keep a record of each reservation, and tell each
/// later leader of it.
const SHORTEST: u64 = 64;

/// The most runs that are skipped: the longest ones.
const MOST: usize = 64;

/// The first slot and the slot after the last of each long run from `start` up to `end` without a
/// value, lowest first.
pub(super) fn long_runs(
    start: Slot,
    end: Slot,
    values: &BTreeMap<Slot, Value>,
) -> Vec<(Slot, Slot)> {
    let ends = values.keys().copied().chain([end]);
    let starts = core::iter::once(start).chain(values.keys().map(|slot| slot.next()));
    let mut runs: Vec<_> = starts
        .zip(ends)
        .filter(|(start, end)| end.distance(*start) >= SHORTEST)
        .collect();
    runs.sort_unstable_by_key(|(start, end)| core::cmp::Reverse(end.distance(*start)));
    runs.truncate(MOST);
    runs.sort_unstable();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(start: u64, end: u64, slots: &[u64]) -> Vec<(u64, u64)> {
        let values = slots
            .iter()
            .map(|slot| (Slot(*slot), Value::default()))
            .collect();
        long_runs(Slot(start), Slot(end), &values)
            .into_iter()
            .map(|(start, end)| (start.0, end.0))
            .collect()
    }

    #[test]
    fn runs_between_values_and_at_both_ends_count_when_they_are_long() {
        assert_eq!(found(10, 10, &[]), []);
        assert_eq!(found(10, 73, &[]), []);
        assert_eq!(found(10, 74, &[]), [(10, 74)]);
        assert_eq!(
            found(0, 1000, &[63, 128, 500, 501, 999]),
            [(64, 128), (129, 500), (502, 999)]
        );
        assert_eq!(found(0, 2000, &[0, 1, 1000]), [(2, 1000), (1001, 2000)]);
    }

    #[test]
    fn the_longest_are_taken() {
        // Runs of 64, 65, 66 and so on.
        let ends: Vec<u64> = (64..164)
            .scan(0, |end, length| {
                Some(core::mem::replace(end, *end + length + 1))
            })
            .collect();
        let runs = found(1, ends[99], &ends[1..99]);
        assert_eq!(runs.len(), MOST);
        assert_eq!(runs[0], (ends[35] + 1, ends[36]));
        assert_eq!(runs[MOST - 1], (ends[98] + 1, ends[99]));
    }
}
