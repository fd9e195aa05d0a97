//! How often a role asks for memory for a command, in the steady state, from decoded messages to
//! encoded ones. (The memory that a frame is received into is the runtime's affair and not
//! counted.)
//!
//! None in leader, proxy leader and acceptor: they only hand on what arrived (a proxy leader tells
//! batchers once a burst which batches are chosen). Client lanes, batchers, unbatchers and replicas
//! make new payloads, a batch or the answers of a burst, which take memory of their own. In S-Paxos
//! the roles that handle references and payloads allocate for each of them. Each bound is what the
//! role does today; a change that does better lowers it.

use ionian_costs::cases::{CASES, Case, Run};

/// Bursts until everything that grows has grown, and bursts that are counted.
const BEFORE: u32 = 1000;
const COUNTED: u32 = 1000;

/// For each case, allocations a command at most.
const BOUNDS: &[(&str, f64)] = &[
    ("client", 1.0),
    ("client, batched", 0.028),
    ("batcher, batched", 0.091),
    ("read batcher, batched", 0.091),
    ("leader", 0.0),
    ("leader, batched", 0.0),
    ("proxy leader", 0.0),
    ("proxy leader, batched", 0.0026),
    ("acceptor", 0.0),
    ("acceptor, batched", 0.0),
    ("acceptor with a disk", 0.0),
    ("acceptor with a disk, batched", 0.0),
    ("acceptor, reads", 0.0),
    ("acceptor, reads, batched", 0.0),
    ("replica", 0.05),
    ("replica, batched", 0.0028),
    ("replica answering all", 0.08),
    ("replica answering all, batched", 0.0028),
    ("replica, reads", 0.07),
    ("replica, reads, batched", 0.0026),
    ("unbatcher, batched", 0.021),
    ("mencius leader", 0.0),
    ("mencius leader, batched", 0.0),
    ("mencius proxy leader", 0.0),
    ("mencius proxy leader, batched", 0.0026),
    ("mencius acceptor", 0.0),
    ("mencius acceptor, batched", 0.0),
    ("mencius acceptor with a disk", 0.0),
    ("mencius acceptor, reads", 0.0),
    ("mencius replica", 0.053),
    ("mencius replica, batched", 0.003),
    ("mencius replica, reads", 0.094),
    ("spaxos disseminator", 5.15),
    ("spaxos disseminator, batched", 0.023),
    ("spaxos leader", 0.0),
    ("spaxos leader, batched", 0.0),
    ("spaxos proxy leader", 0.29),
    ("spaxos proxy leader, batched", 0.0051),
    ("spaxos acceptor", 0.0),
    ("spaxos acceptor, batched", 0.0),
    ("spaxos stabilizer", 0.64),
    ("spaxos stabilizer, batched", 0.0088),
    ("spaxos stabilizer with a disk", 0.64),
    ("spaxos stabilizer with a disk, batched", 0.0088),
    ("spaxos replica", 0.05),
    ("spaxos replica, batched", 0.0028),
];

fn bursts(run: &mut Run, count: u32) -> (u64, u64) {
    let (mut receiving, mut working) = (0, 0);
    for _ in 0..count {
        run.arrive();
        receiving += allocation_counter::measure(|| run.stage.receive()).count_total;
        working += allocation_counter::measure(|| run.stage.work()).count_total;
    }
    (receiving, working)
}

/// Allocations a command: in receiving its messages, and in the role.
fn allocations(case: &Case) -> (f64, f64) {
    let mut run = case.begin();
    bursts(&mut run, BEFORE);
    let before = run.commands();
    let (receiving, working) = bursts(&mut run, COUNTED);
    let commands = (run.commands() - before) as f64;
    (receiving as f64 / commands, working as f64 / commands)
}

#[test]
fn no_role_allocates_more_than_it_did() {
    let mut faults = Vec::new();
    for case in CASES {
        let (receiving, working) = allocations(case);
        println!(
            "{:<40} {working:>9.5} (and {receiving:.4} in receiving)",
            case.name
        );
        match BOUNDS.iter().find(|(name, _)| *name == case.name) {
            Some((_, bound)) if working <= *bound => {}
            Some((_, bound)) => faults.push(format!(
                "{}: {working:.4} a command, at most {bound} allowed",
                case.name
            )),
            None => faults.push(format!("{}: has no bound", case.name)),
        }
    }
    assert!(faults.is_empty(), "allocations:\n{}", faults.join("\n"));
}
