//! Deployments drawn at random, of which no preset has the like: any number of nodes and of
//! failures, roles together or apart in any number, and acceptors in any arrangement.

use crate::roles::Simulated;
use alloc::format;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::level::Level;
use ionian_kernel::protocol::Description;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_kernel::random::Random;

/// The most that may fail.
const MOST_FAULTS: u64 = 3;

/// The number of nodes is at most this much above the 2f+1 that most protocols need.
const MORE_NODES: u64 = 2;

/// How many deployments are drawn until a protocol must have accepted one. Most protocols accept
/// one in ten.
const DRAWS: usize = 100_000;

/// The deployment that `seed` stands for: the first that the protocol accepts of those drawn from
/// it.
///
/// # Panics
/// When the protocol accepts none.
pub fn drawn(protocol: Simulated, seed: u64) -> Layout {
    let Description { name, kinds, .. } = protocol.description();
    let mut random = Random::new(seed ^ 0x1a_0075);
    let all = (0..DRAWS).map(|_| draw(kinds.len(), &mut random));
    let mut accepted = all.filter(|layout| protocol.protocol().configure(layout.clone()).is_ok());
    accepted
        .next()
        .unwrap_or_else(|| panic!("{name} accepts no deployment"))
}

/// What a deployment looks like, in a line.
pub fn in_words(protocol: Simulated, layout: &Layout) -> String {
    let Description { name, kinds, .. } = protocol.description();
    let mut words = format!("{name} f={} {:?}", layout.f, layout.quorums);
    for (name, places) in kinds.iter().zip(&layout.instances) {
        let nodes: Vec<_> = places.iter().map(|(_, node)| node.0.to_string()).collect();
        if !nodes.is_empty() {
            words += &format!(", {name} on {}", nodes.join(" "));
        }
    }
    words
}

/// A deployment that some protocol with this number of kinds may accept.
fn draw(kinds: usize, random: &mut Random) -> Layout {
    // None in few deployments, one in half of the others.
    let f = match random.below(8) {
        0 => 0,
        _ => {
            let most = random.between(1, MOST_FAULTS);
            most.min(random.between(1, MOST_FAULTS))
        }
    };
    let nodes = random.between(f + 1, 2 * f + 1 + MORE_NODES);
    let voters = match random.below(3) {
        0 => 2 * f + 1,
        _ => random.between(f + 1, nodes),
    };
    let apart = random.once_in(3);
    let mut free = nodes;
    let mut place = |random: &mut Random| {
        let count = match random.below(8) {
            0 => 0,
            1 => 1,
            2 => f + 1,
            3 => 2 * f + 1,
            4 => voters,
            5 => random.between(1, nodes),
            _ => nodes,
        };
        // A kind begins on another node than the one before, or has nodes of its own.
        let own = apart && random.once_in(2);
        let first = if own { free } else { random.below(nodes) };
        free += if own { count } else { 0 };
        let node = |at: u64| match own {
            true => first + at,
            false => (first + at) % nodes,
        };
        (0..count).map(|at| NodeId(node(at) as u16)).collect()
    };
    let places = (0..kinds).map(|_| place(random)).collect();
    Layout {
        f: f as usize,
        quorums: quorums(voters, random),
        instances: numbered(places),
        founding_level: Level::LATEST,
        ..Layout::default()
    }
}

/// Majorities in half of the deployments, else another arrangement of this number of acceptors.
fn quorums(voters: u64, random: &mut Random) -> QuorumSpec {
    let few = |random: &mut Random| random.between(1, 3) as usize;
    match random.below(6) {
        0 => QuorumSpec::Grid {
            rows: few(random),
            columns: few(random),
        },
        1 => QuorumSpec::Groups {
            groups: few(random),
        },
        2 => {
            let read = random.between(1, voters);
            QuorumSpec::Counts {
                read: read as usize,
                write: (voters + 1 - read) as usize,
            }
        }
        _ => QuorumSpec::Majority,
    }
}
