//! How often a role asks for memory for a command, in the steady state, from decoded messages to
//! encoded ones. (The memory that a frame is received into belongs to the runtime and is not
//! counted.)
//!
//! Leader, proxy leader and acceptor only pass on what arrived (a proxy leader tells batchers once
//! a burst which batches are chosen, a leader makes a few allocations for a burst). Client lanes,
//! batchers, unbatchers and replicas make new payloads, a batch or the answers of a burst, which
//! take memory of their own. In S-Paxos the roles that handle references and payloads allocate for
//! each of them. Each bound is what the role does today; a change that does better lowers it. The
//! roles of a preset without bounds may allocate as they like.

use ionian_costs::case::Case;
use ionian_costs::count::{Counter, Pass, Place, Uncounted};

/// Bursts until everything that grows has grown, and bursts that are counted.
const BEFORE: u32 = 100;
const COUNTED: u32 = 100;

/// For each case and group of nodes, allocations a command at most, of all instances together; none
/// where a group is not named.
const BOUNDS: &[(&str, &[(&str, f64)])] = &[
    ("colocated, writes", &[("node", 0.125)]),
    ("colocated, writes on disk", &[("node", 0.125)]),
    ("colocated, reads", &[("node", 0.108)]),
    ("baseline, writes", &[("node", 1.44)]),
    ("baseline, reads", &[("node", 1.12)]),
    (
        "compartmentalized, writes",
        &[("client", 1.02), ("leader", 0.0205), ("replica", 0.0842)],
    ),
    (
        "compartmentalized, reads",
        &[("client", 1.08), ("replica", 0.00511)],
    ),
    (
        "batched, writes",
        &[
            ("client", 0.0511),
            ("batcher+read_batcher", 0.0103),
            ("leader", 0.00103),
            ("proxy_leader", 0.00511),
            ("replica", 0.00516),
            ("unbatcher", 0.00511),
        ],
    ),
    (
        "batched, reads",
        &[
            ("client", 0.0511),
            ("batcher+read_batcher", 0.00511),
            ("replica", 0.00256),
            ("unbatcher", 0.00511),
        ],
    ),
    ("mencius, writes", &[("node", 2.27)]),
    ("mencius, writes on disk", &[("node", 2.32)]),
    ("mencius, reads", &[("node", 0.108)]),
    ("mencius-wan, writes", &[("node", 6.75)]),
    ("mencius-wan, reads", &[("node", 0.108)]),
    (
        "mencius-compartmentalized, writes",
        &[
            ("client", 1.02),
            ("leader", 0.0459),
            ("proxy_leader", 5.11e-05),
            ("replica", 0.173),
        ],
    ),
    (
        "mencius-compartmentalized, reads",
        &[("client", 1.1), ("replica", 0.00765)],
    ),
    (
        "mencius-batched, writes",
        &[
            ("client", 0.0511),
            ("batcher+read_batcher", 0.0103),
            ("leader", 0.00306),
            ("proxy_leader", 0.00511),
            ("replica", 0.00694),
            ("unbatcher", 0.00511),
        ],
    ),
    (
        "mencius-batched, reads",
        &[
            ("client", 0.0511),
            ("batcher+read_batcher", 0.00511),
            ("replica", 0.00256),
            ("unbatcher", 0.00511),
        ],
    ),
    ("spaxos, writes", &[("node", 0.24)]),
    ("spaxos, writes on disk", &[("node", 0.24)]),
    ("spaxos, reads", &[("node", 0.108)]),
    (
        "spaxos-compartmentalized, writes",
        &[
            ("client", 0.0511),
            ("disseminator", 4.25),
            ("leader", 0.0205),
            ("proxy_leader", 0.205),
            ("stabilizer", 0.923),
            ("replica", 0.0829),
        ],
    ),
    (
        "spaxos-compartmentalized, reads",
        &[("client", 1.08), ("replica", 0.00511)],
    ),
    (
        "spaxos-batched, writes",
        &[
            ("client", 0.0511),
            ("batcher+read_batcher", 0.0103),
            ("disseminator", 0.0256),
            ("leader", 0.00103),
            ("proxy_leader", 0.00511),
            ("stabilizer", 0.026),
            ("replica", 0.00516),
            ("unbatcher", 0.00511),
        ],
    ),
    (
        "spaxos-batched, reads",
        &[
            ("client", 0.0511),
            ("batcher+read_batcher", 0.00511),
            ("replica", 0.00256),
            ("unbatcher", 0.00511),
        ],
    ),
    ("unreplicated, writes", &[("client+server", 2.05)]),
    ("unreplicated, writes on disk", &[("client+server", 2.07)]),
    ("unreplicated, reads", &[("client+server", 1.03)]),
    (
        "unreplicated-batched, writes",
        &[
            ("client", 0.0281),
            ("batcher", 0.00256),
            ("server", 0.00765),
            ("unbatcher", 0.00256),
        ],
    ),
    (
        "unreplicated-batched, reads",
        &[
            ("client", 1.02),
            ("server", 0.00256),
            ("unbatcher", 0.00256),
        ],
    ),
];

/// Counts allocations by group.
#[derive(Default)]
struct Allocations(Vec<u64>);

impl Counter for Allocations {
    fn pass(&mut self, at: Place, node: &mut dyn Pass) {
        node.receive();
        let counted = allocation_counter::measure(|| node.work()).count_total;
        self.0.resize(self.0.len().max(at.group + 1), 0);
        self.0[at.group] += counted;
    }
}

/// For each group, allocations a command.
fn allocations(case: &Case) -> Vec<(String, f64)> {
    let mut run = case.begin();
    (0..BEFORE).for_each(|_| run.burst(&mut Uncounted));
    let (before, mut allocations) = (run.commands(), Allocations::default());
    (0..COUNTED).for_each(|_| run.burst(&mut allocations));
    let commands = (run.commands() - before) as f64;
    let groups = run.groups().into_iter().zip(allocations.0);
    groups
        .map(|(group, count)| (group, count as f64 / commands))
        .collect()
}

/// What is wrong with a case.
fn faults(case: &Case) -> Vec<String> {
    let (name, mut faults) = (case.name(), Vec::new());
    let Some((_, bounds)) = BOUNDS.iter().find(|(bounded, _)| *bounded == name) else {
        return faults;
    };
    for (group, count) in allocations(case) {
        println!("{name:<40} {group:<22} {count:>9.5}");
        let bound = bounds.iter().find(|(bounded, _)| *bounded == group);
        let bound = bound.map_or(0.0, |(_, bound)| *bound);
        if count > bound {
            faults.push(format!(
                "{name}: {group}: {count:.4} a command, at most {bound} allowed"
            ));
        }
    }
    faults
}

#[test]
fn each_bound_is_that_of_a_case() {
    let names = BOUNDS.iter().map(|(name, _)| *name);
    let unknown: Vec<&str> = names.filter(|name| Case::named(name).is_none()).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Each thread counts its own.
fn no_role_allocates_more_in(mine: impl Fn(usize) -> bool) {
    let cases = Case::all().enumerate();
    let mine = cases.filter(|(place, _)| mine(*place));
    let faults: Vec<String> = mine.flat_map(|(_, case)| faults(&case)).collect();
    assert!(faults.is_empty(), "allocations:\n{}", faults.join("\n"));
}

#[test]
fn no_role_allocates_more_than_it_did() {
    no_role_allocates_more_in(|place| place.is_multiple_of(2));
}

#[test]
fn nor_in_the_other_half_of_the_cases() {
    no_role_allocates_more_in(|place| !place.is_multiple_of(2));
}
