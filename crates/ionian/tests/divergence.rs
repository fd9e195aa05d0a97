//! A replica whose machine errs is found out, and does nothing more.

use ionian::{
    Cluster, ClusterOptions, Context, Deployment, Machine, MultiPaxos, NodeId, PresetOptions,
    Typed, TypedClient,
};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Long enough for any machine; a test fails by it only if the replica is not found out.
const LIMIT: Duration = Duration::from_secs(60);

/// The machines that were made so far.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// The sum from which one of the machines errs.
const RIGHT_UNTIL: u64 = 100;

/// Adds; one of the machines adds wrongly when the sum is large.
#[derive(Serialize, Deserialize)]
struct Sum {
    errs: bool,
    sum: u64,
}

impl Default for Sum {
    fn default() -> Self {
        Sum {
            errs: MADE.fetch_add(1, Ordering::Relaxed) == 1,
            sum: 0,
        }
    }
}

impl Machine for Sum {
    type Command = u64;
    type Reply = u64;
    type Query = ();
    type Answer = u64;

    fn apply(&mut self, _: &Context, added: u64) -> u64 {
        self.sum += added;
        self.sum + u64::from(self.errs && self.sum > RIGHT_UNTIL)
    }
    fn read(&self, _: &Context, (): ()) -> u64 {
        self.sum
    }
}

/// What each replica says of the comparison: 0 to 3, as in `ionian status`.
fn divergence(cluster: &Cluster<MultiPaxos>) -> Vec<u8> {
    let of_node = |node| {
        let status = cluster.status(NodeId(node)).expect("a status");
        status.roles.into_iter().find_map(|role| role.divergence)
    };
    (0..3).filter_map(of_node).collect()
}

#[test]
fn a_replica_that_errs_is_found_out_and_says_nothing_more() {
    let mut deployment = Deployment::preset("colocated", &PresetOptions::default()).expect("one");
    // So stretches that are compared have four slots.
    deployment = deployment
        .with_overrides(&["options.snapshot_slots=64"])
        .expect("an option");
    let machine = || Box::new(Typed::<Sum>::default()) as Box<dyn ionian::StateMachine>;
    let cluster =
        ionian::start_deployment::<MultiPaxos>(&deployment, machine, ClusterOptions::in_memory())
            .expect("a cluster");
    let client = TypedClient::<Sum>::new(cluster.client());
    let mut written = 0;
    let mut write = || {
        written += 1;
        (written, client.write_blocking(&1).expect("a result"))
    };
    for _ in 0..RIGHT_UNTIL {
        let (expected, sum) = write();
        assert_eq!(sum, expected);
    }
    assert_eq!(divergence(&cluster), [0, 0, 0]);
    // Before it is found out its results may reach clients, which is no worse than without.
    let (begin, mut marks) = (Instant::now(), 0);
    let outcome = [1, 1, 3];
    loop {
        for _ in 0..4 {
            let _ = write();
        }
        marks += 1;
        let found = divergence(&cluster);
        let mut sorted = found.clone();
        sorted.sort_unstable();
        if sorted == outcome {
            break;
        }
        assert!(begin.elapsed() < LIMIT, "{found:?} after {marks} stretches");
    }
    for _ in 0..50 {
        let (expected, sum) = write();
        assert_eq!(sum, expected, "the others are right");
    }
}
