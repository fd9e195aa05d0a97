//! Many seeds on several threads, told in order. Each run is a world of its own, so what comes of a
//! seed does not depend on the thread; and because outcomes are gathered in the order of the seeds,
//! neither does what is printed.

use super::canaries::Canary;
use core::ops::Range;
use ionian_sim::{Outcome, Scenario, Simulated, Summary, run_seed};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

/// More gain nothing on the machines that this was measured on.
const MAX_THREADS: usize = 8;

/// Which runs there are.
pub(crate) struct Plan {
    /// The canary that is active in each.
    pub(crate) canary: Option<&'static Canary>,
    pub(crate) seeds: Range<u64>,
    /// Whether the lowest seed that fails is the last.
    pub(crate) stop_at_first: bool,
}

/// Runs every seed of the plan, in its scenario. No further one starts once `stop` is set.
/// `progress` receives each outcome in the order of the seeds.
pub(crate) fn run_seeds(
    protocol: Simulated,
    scenario: impl Fn(u64) -> Scenario + Sync,
    plan: Plan,
    stop: &AtomicBool,
    mut progress: impl FnMut(&Outcome),
) -> Summary {
    let Plan {
        canary,
        seeds,
        stop_at_first,
    } = plan;
    let threads = std::thread::available_parallelism()
        .map_or(1, |count| count.get())
        .min(MAX_THREADS);
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let run = |seed| run_seed(protocol, &scenario(seed), seed);
    // Bounded, so that one slow seed does not let the others run far ahead of what can be told.
    let (done, outcomes) = mpsc::sync_channel(64);
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (run, next, enough, done, end) = (&run, &next, &enough, done.clone(), seeds.end);
            scope.spawn(move || {
                let _active = canary.map(Canary::activate);
                // Seeds are handed out in order: when one fails, all before it are done or under
                // way.
                while !enough.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // The receiver is gone when it has heard enough.
                    if seed >= end || done.send(run(seed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let mut early = BTreeMap::new();
        let mut expected = seeds.start;
        for outcome in outcomes {
            early.insert(outcome.seed, outcome);
            while let Some(outcome) = early.remove(&expected) {
                expected += 1;
                summary.report.merge(&outcome.report);
                progress(&outcome);
                if outcome.result.is_err() {
                    summary.failures.push(outcome);
                    if stop_at_first {
                        enough.store(true, Ordering::Relaxed);
                        return;
                    }
                }
            }
        }
    });
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::layout::{Layout, NodeId, numbered};
    use ionian_protocols::unreplicated::Unreplicated;

    #[test]
    fn what_was_begun_is_told_when_the_user_stops_it() {
        let instances = vec![vec![NodeId(1), NodeId(2)], vec![], vec![NodeId(0)], vec![]];
        let layout = Layout {
            instances: numbered(instances),
            ..Layout::default()
        };
        let scenario = Scenario {
            stable_log: false,
            ..Scenario::new("unreplicated", layout)
        };
        let (stop, mut told) = (AtomicBool::new(false), 0);
        let plan = Plan {
            canary: None,
            seeds: 0..1_000_000,
            stop_at_first: true,
        };
        let summary = run_seeds(
            Simulated::of::<Unreplicated>(),
            |_| scenario.clone(),
            plan,
            &stop,
            |outcome| {
                assert_eq!(outcome.seed, told);
                told += 1;
                stop.store(told >= 5, Ordering::Relaxed);
            },
        );
        assert!(
            summary.report.runs == told && (5..1000).contains(&told),
            "{told}"
        );
    }
}
