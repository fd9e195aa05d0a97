//! How many bytes a leader receives and sends for a command: the real roles at work, in one
//! process.

use super::deployments::{batches, preset};
use crate::model::Workload;
use crate::model::measure::steady;
use anyhow::{Context, Result};
use ionian_costs::Load;
use ionian_costs::count::Uncounted;
use std::fmt;

const LANES: usize = 4;
const KEYS: usize = 100;
/// As many of large values as of small ones, so that what is sent once for a burst weighs as much.
const BURST: usize = 50;
const BURSTS: usize = 20;

/// For each command, with the headers of frames; those of the network are not among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Traffic {
    pub(super) bytes_in: f64,
    pub(super) bytes_out: f64,
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} + {:.0}", self.bytes_in, self.bytes_out)
    }
}

/// Counts at the leader of a preset without batches, for writes of this size.
///
/// # Errors
/// When the preset has no leader.
pub(super) fn at_leader(from: &str, value_bytes: usize) -> Result<Traffic> {
    let deployment = batches(preset(from, LANES)?, 1)?;
    let workload = Workload {
        value_bytes,
        ..Workload::writes(1)
    };
    let load = Load {
        burst: BURST,
        ..workload.load(KEYS, true)
    };
    let mut run = steady(&deployment, &load, BURSTS)?;
    let (before, commands) = (run.traffic().to_vec(), run.commands());
    (0..BURSTS).for_each(|_| run.burst(&mut Uncounted));
    let commands = (run.commands() - commands) as f64;
    let nodes = deployment.ids().into_iter().zip(&deployment.nodes);
    let of_leaders = nodes.filter(|(_, node)| node.instances().contains_key("leader"));
    // One of them leads.
    let busiest = of_leaders
        .filter_map(|(id, _)| run.nodes().iter().position(|node| *node == id))
        .map(|place| {
            let (before, after) = (&before[place], &run.traffic()[place]);
            Traffic {
                bytes_in: (after.bytes_in - before.bytes_in) as f64 / commands,
                bytes_out: (after.bytes_out - before.bytes_out) as f64 / commands,
            }
        })
        .max_by(|one, other| one.bytes_in.total_cmp(&other.bytes_in));
    busiest.with_context(|| format!("{from} has no leader"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_leader_of_s_paxos_handles_does_not_grow_with_the_value() {
        let of = |value_bytes| at_leader("spaxos-compartmentalized", value_bytes).unwrap();
        let small = of(16);
        assert!(small.bytes_in > 40.0 && small.bytes_out > 40.0, "{small}");
        for value_bytes in [1024, 65_536] {
            let large = of(value_bytes);
            let grows = |one: f64, other: f64| (one / other - 1.0).abs() > 0.02;
            let differ =
                grows(large.bytes_in, small.bytes_in) || grows(large.bytes_out, small.bytes_out);
            assert!(!differ, "{value_bytes} bytes: {large}, 16 bytes: {small}");
        }
        let multipaxos = at_leader("compartmentalized", 65_536).unwrap();
        assert!(
            multipaxos.bytes_in > 65_536.0 && multipaxos.bytes_out > 65_536.0,
            "this one carries it: {multipaxos}"
        );
    }
}
