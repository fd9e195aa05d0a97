//! Plans: their properties, and their pages.

mod advice;
mod pages;
mod properties;

use ionian_deployment::{Durability, PresetOptions};
use ionian_kernel::client::ReadLevel;
use ionian_planner::plan::Wanted;
use ionian_planner::workload::Workload;

/// A plan for this many writes and linearizable reads a second.
fn wanted(writes: f64, reads: f64) -> Wanted {
    Wanted {
        workload: Workload {
            writes,
            reads,
            level: ReadLevel::Linearizable,
            value_bytes: 16,
            pipeline: 1,
            connections: 64,
        },
        f: 1,
        durability: Durability::Disk,
        protocol: None,
        headroom: 0.6,
        speed: 1.0,
        addresses: PresetOptions::default(),
    }
}
