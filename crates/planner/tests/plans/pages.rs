//! The pages of some scenarios, as they are shown. After new demands or a new text they are written
//! with `WRITE_GOLDEN=1`, and read by a person.

use super::wanted;
use ionian_deployment::Durability;
use ionian_kernel::client::ReadLevel;
use ionian_planner::model::Counts;
use ionian_planner::plan::{Wanted, plan};
use ionian_planner::prices::Prices;
use ionian_planner::workload::Workload;
use std::fs;
use std::path::Path;

fn scenarios() -> Vec<(&'static str, Wanted)> {
    let with = |writes, reads, change: fn(&mut Workload)| {
        let mut wanted = wanted(writes, reads);
        change(&mut wanted.workload);
        wanted
    };
    let only = |protocol: &str, wanted| Wanted {
        protocol: Some(protocol.to_owned()),
        ..wanted
    };
    let busy = |it: &mut Workload| it.connections = 1000;
    vec![
        ("small", wanted(1000.0, 1000.0)),
        ("middle", wanted(40_000.0, 0.0)),
        ("mixed", wanted(30_000.0, 90_000.0)),
        (
            "eventual-reads",
            with(5000.0, 100_000.0, |it| it.level = ReadLevel::Eventual),
        ),
        (
            "pipelined",
            with(200_000.0, 200_000.0, |it| it.pipeline = 16),
        ),
        (
            "large-values",
            with(20_000.0, 0.0, |it| it.value_bytes = 4096),
        ),
        ("many-connections", with(150_000.0, 0.0, busy)),
        (
            "two-failures",
            Wanted {
                f: 2,
                durability: Durability::Memory,
                ..wanted(30_000.0, 10_000.0)
            },
        ),
        ("one-protocol", only("mencius", wanted(50_000.0, 0.0))),
        (
            "faster-processors",
            Wanted {
                speed: 2.0,
                headroom: 0.5,
                ..wanted(40_000.0, 0.0)
            },
        ),
    ]
}

#[test]
fn pages_are_as_recorded() {
    let (counts, prices) = (Counts::default(), Prices::shipped().unwrap());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans/pages");
    let write = std::env::var_os("WRITE_GOLDEN").is_some();
    let mut differ = Vec::new();
    for (name, wanted) in scenarios() {
        let page = match plan(&wanted, &prices, &counts) {
            Ok(plan) => plan.page(),
            Err(error) => format!("{error:#}\n"),
        };
        let file = folder.join(format!("{name}.txt"));
        if write {
            fs::write(&file, &page).unwrap();
        }
        if fs::read_to_string(&file).ok().as_deref() != Some(page.as_str()) {
            differ.push(format!("{name}:\n{page}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
