//! Where no role is the limit, the judgement does not look for one.

use super::cluster::{RATE, Running};
use ionian_planner::live::bottleneck::Kind;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Threads for each processor that take all of it that they get.
const BURNERS: usize = 8;

/// Turns of each loop in a window without load: some seconds of heartbeats.
const TURNS: u64 = 100;

/// The share of a processor that a loop must want before anything is named.
const BUSY: f64 = 0.3;

/// Ends the threads, also after a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One after the other: the second takes the processors from the first.
#[test]
fn no_role_is_the_limit_of_an_idle_cluster_or_one_without_processors() {
    an_idle_cluster_has_no_limit();
    a_cluster_whose_processors_others_take_is_short_of_them();
}

/// Where something else takes the processors, the answer is that they are short.
fn an_idle_cluster_has_no_limit() {
    let found = Running::start_idle("colocated").idle_window(TURNS);
    if found.kind == Kind::Starved {
        let short = found.short.expect("the node that is short of processors");
        assert!(short.waits + short.works >= BUSY, "{short:?}");
        return;
    }
    let named = (&found.node, &found.role);
    assert_eq!(
        (found.kind, named),
        (Kind::None, (&None, &None)),
        "{found:?}"
    );
}

/// The busiest role is named beside it, but not as what limits the cluster.
fn a_cluster_whose_processors_others_take_is_short_of_them() {
    let running = Running::start("colocated");
    let ends = AtomicBool::new(false);
    let count = thread::available_parallelism().map_or(1, usize::from) * BURNERS;
    let found = thread::scope(|scope| {
        let _end = End(&ends);
        for _ in 0..count {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
        }
        running.window(2 * u64::from(RATE))
    });
    assert_eq!(found.kind, Kind::Starved, "{found:?}");
    let short = found.short.expect("the node that is short of processors");
    assert!(short.waits >= 0.3 * short.works, "{short:?}");
}
