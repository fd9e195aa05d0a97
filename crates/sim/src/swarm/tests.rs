//! What seeds draw.

use super::*;
use crate::scenario::Faults;
use ionian_kernel::layout::{Layout, NodeId, numbered};

fn scenario() -> Scenario {
    let layout = Layout {
        f: 1,
        instances: numbered(vec![vec![NodeId(0), NodeId(2)]]),
        ..Layout::default()
    };
    Scenario::new("test", layout)
}

#[test]
fn every_switch_is_on_in_some_seeds_and_off_in_others() {
    let summaries: Vec<String> = (0..300)
        .map(|seed| Knobs::draw(seed, &scenario(), &[], false).summary(&scenario(), &[]))
        .collect();
    for switch in "calm lose hate duplicate straggle ordered slow-links partition pause crash crash-in-sync \
                   blackout slow-disk clocks wrong-clocks cut strand victims meddle late long narrow-links large timed pairs spans disk-errors"
        .split_whitespace()
    {
        let on = summaries.iter().filter(|summary| summary.split(' ').any(|word| word == switch)).count();
        assert!((4..290).contains(&on), "{switch} is on in {on} of 300 seeds");
    }
}

#[test]
fn what_a_scenario_forbids_stays_off() {
    let calm = Scenario {
        faults: Faults::NONE,
        ..scenario()
    };
    for seed in 0..100 {
        let knobs = Knobs::draw(seed, &calm, &[], false);
        let switches = knobs.switches().join(" ");
        let harmless = [
            "calm",
            "ordered",
            "long",
            "bursts",
            "large",
            "timed",
            "pairs",
            "spans",
            "first-level",
        ];
        assert!(
            switches.split(' ').all(|switch| harmless.contains(&switch)),
            "{switches}"
        );
        assert_eq!(
            format!("{knobs:?}"),
            format!("{:?}", Knobs::draw(seed, &calm, &[], false))
        );
    }
}

#[test]
fn memory_crashes_at_most_f_nodes_and_has_no_blackouts() {
    let memory = Scenario {
        durability: Durability::Memory { returns: false },
        ..scenario()
    };
    for seed in 0..100 {
        let knobs = Knobs::draw(seed, &memory, &[], false);
        assert!(knobs.most_down <= 1 && knobs.blackout.is_none());
    }
}
