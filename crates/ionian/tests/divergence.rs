//! Replicas whose machines err are found out within two stretches of the log that are compared, and
//! one that is known to be wrong does nothing more.

use ionian::{
    Cluster, ClusterOptions, Context, Deployment, Machine, MultiPaxos, NodeId, PresetOptions,
    StateMachine, Typed, TypedClient,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Long enough for any machine; a test fails by it only if the replica is not found out.
const LIMIT: Duration = Duration::from_secs(60);

/// The slots of a stretch that is compared: a sixteenth of `snapshot_slots`.
const STRETCH: u64 = 4;

/// The sum from which machines err.
const RIGHT_UNTIL: u64 = 100;

/// The sums from which one bit is flipped in a snapshot that is restored.
static FLIPPED_FROM: AtomicU64 = AtomicU64::new(u64::MAX);

/// What is wrong with a machine.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Flaw {
    None,
    AddsWrongly,
    TellsItsAddress,
    WalksARandomSet,
}

/// Adds, and errs when the sum is large.
#[derive(Serialize, Deserialize)]
struct Sum {
    flaw: Flaw,
    #[serde(deserialize_with = "restored")]
    sum: u64,
    added: HashSet<u64>,
}

fn restored<'de, D: Deserializer<'de>>(decoder: D) -> Result<u64, D::Error> {
    let sum = u64::deserialize(decoder)?;
    let flipped = sum >= FLIPPED_FROM.load(Ordering::Relaxed);
    Ok(sum ^ u64::from(flipped))
}

impl Sum {
    fn with(flaw: Flaw) -> Self {
        Sum {
            flaw,
            sum: 0,
            added: HashSet::new(),
        }
    }
}

impl Default for Sum {
    fn default() -> Self {
        Sum::with(Flaw::None)
    }
}

impl Machine for Sum {
    type Command = u64;
    type Reply = u64;
    type Query = ();
    type Answer = u64;

    fn apply(&mut self, _: &Context, added: u64) -> u64 {
        self.sum += added;
        self.added.insert(self.sum);
        if self.sum <= RIGHT_UNTIL {
            return self.sum;
        }
        match self.flaw {
            Flaw::None => self.sum,
            Flaw::AddsWrongly => self.sum + 1,
            Flaw::TellsItsAddress => std::ptr::from_ref(self) as u64,
            Flaw::WalksARandomSet => {
                let mut order = DefaultHasher::new();
                self.added.iter().for_each(|sum| sum.hash(&mut order));
                order.finish()
            }
        }
    }
    fn read(&self, _: &Context, (): ()) -> u64 {
        self.sum
    }
}

/// A cluster of three replicas and a client.
struct Trial {
    cluster: Cluster<MultiPaxos>,
    client: TypedClient<Sum>,
    written: u64,
}

impl Trial {
    /// The flaw of each machine follows from how many were made before it.
    fn new(options: ClusterOptions, flaw: fn(usize) -> Flaw) -> Self {
        let snapshot_slots = format!("options.snapshot_slots={}", 16 * STRETCH);
        let deployment = Deployment::preset("colocated", &PresetOptions::default())
            .and_then(|it| it.with_overrides(&[&snapshot_slots]))
            .expect("a deployment");
        let made = AtomicUsize::new(0);
        let machine = move || -> Box<dyn StateMachine> {
            let before = made.fetch_add(1, Ordering::Relaxed);
            Box::new(Typed(Sum::with(flaw(before))))
        };
        let cluster = ionian::start_deployment::<MultiPaxos>(&deployment, machine, options);
        let cluster = cluster.expect("a cluster");
        Trial {
            client: TypedClient::new(cluster.client()),
            cluster,
            written: 0,
        }
    }

    /// Writes once; gives what the sum must be, and the result.
    fn write(&mut self) -> (u64, u64) {
        self.written += 1;
        (
            self.written,
            self.client.write_blocking(&1).expect("a result"),
        )
    }

    /// Writes this often; every result is right.
    fn write_rightly(&mut self, times: u64) {
        for _ in 0..times {
            let (expected, sum) = self.write();
            assert_eq!(sum, expected);
        }
    }

    /// What each replica says of the comparison, sorted: 0 to 3, as in `ionian status`.
    fn divergence(&self) -> Vec<u8> {
        let of_node = |node| {
            let status = self.cluster.status(NodeId(node)).expect("a status");
            status.roles.into_iter().find_map(|role| role.divergence)
        };
        let mut found: Vec<u8> = (0..3).filter_map(of_node).collect();
        found.sort_unstable();
        found
    }

    /// Nothing more is written: what replicas find, they find by what is executed.
    fn comes_to(&self, outcome: [u8; 3]) {
        let begin = Instant::now();
        while self.divergence() != outcome {
            let found = self.divergence();
            assert!(begin.elapsed() < LIMIT, "{found:?}, not {outcome:?}");
            std::thread::yield_now();
        }
    }
}

/// Results that differ are found after two stretches at most: the one of the first wrong result
/// ends, and it is compared. `outcome` is what the replicas then say.
fn is_found(flaw: fn(usize) -> Flaw, outcome: [u8; 3]) -> Trial {
    let mut trial = Trial::new(ClusterOptions::in_memory(), flaw);
    trial.write_rightly(RIGHT_UNTIL);
    assert_eq!(trial.divergence(), [0, 0, 0]);
    // Before it is found out its results may reach clients, which is no worse than without.
    for _ in 0..2 * STRETCH {
        trial.write();
    }
    trial.comes_to(outcome);
    trial
}

#[test]
fn a_replica_that_errs_is_found_out_and_says_nothing_more() {
    let second = |made| match made {
        1 => Flaw::AddsWrongly,
        _ => Flaw::None,
    };
    let mut trial = is_found(second, [1, 1, 3]);
    trial.write_rightly(50);
}

/// No two replicas agree, so it is not known which are wrong.
#[test]
fn machines_that_read_addresses_are_found() {
    is_found(|_| Flaw::TellsItsAddress, [2, 2, 2]);
}

#[test]
fn machines_that_walk_a_random_set_are_found() {
    is_found(|_| Flaw::WalksARandomSet, [2, 2, 2]);
}

#[test]
fn a_flipped_bit_in_a_restored_snapshot_is_found() {
    let data = std::env::temp_dir().join(format!("ionian-flipped-{}", std::process::id()));
    let mut trial = Trial::new(ClusterOptions::on_disk(&data), |_| Flaw::None);
    // Each replica has stored a snapshot.
    trial.write_rightly(100 * STRETCH);
    trial.cluster.stop(NodeId(2)).expect("a stop");
    // The sums of the other tests are smaller.
    FLIPPED_FROM.store(2 * RIGHT_UNTIL, Ordering::Relaxed);
    trial.cluster.restart(NodeId(2)).expect("a restart");
    for _ in 0..2 * STRETCH {
        trial.write();
    }
    trial.comes_to([1, 1, 3]);
    trial.write_rightly(50);
    drop(trial);
    std::fs::remove_dir_all(&data).expect("a directory");
}
