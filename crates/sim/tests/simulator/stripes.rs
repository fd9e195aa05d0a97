//! Stripes of Mencius that change hands: where the numbers of two leaders want the same stripe, a
//! change of members also moves that of a leader that stays.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::id::{Index, LeaderId};
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::mencius::config::Config;
use ionian_sim::{Durability, Scenario, Simulated, run_seeds};

const PROTOCOL: Simulated = Simulated::of::<Mencius>();

/// Seeds for each durability.
const SEEDS: u64 = 25;

/// Every role on each of these servers, under the server's number.
fn servers(founded: &Layout, numbers: [Index; 3]) -> Layout {
    let places = |number: Index| (number, NodeId(u16::from(number)));
    let kinds = founded.instances.iter();
    let instances = kinds
        .map(|founded| match founded.iter().next() {
            Some(_) => numbers.map(places).into_iter().collect(),
            None => founded.clone(),
        })
        .collect();
    Layout {
        instances,
        ..founded.clone()
    }
}

#[test]
fn members_change_where_a_leader_that_stays_gets_another_stripe() {
    let deployment = Deployment::preset("mencius", &PresetOptions::default()).expect("a preset");
    let founded = deployment.layout(Mencius::KINDS).expect("a layout");
    let changes = [[0, 2, 3], [2, 3, 4], [3, 4, 0]].map(|numbers| servers(&founded, numbers));
    let homes = changes.clone().map(|layout| {
        let config = Config::new(layout).expect("a deployment");
        config.home_of(LeaderId(3)).map(|stripe| stripe.0)
    });
    assert_eq!(homes, [Some(1), Some(0), Some(2)]);
    for durability in [Durability::Disk, Durability::Memory { returns: true }] {
        let scenario = Scenario {
            durability,
            changes: changes.to_vec(),
            ..Scenario::new("stripes", founded.clone())
        };
        let summary = run_seeds(PROTOCOL, &scenario, 0..SEEDS);
        if let Some(failed) = summary.failures.first() {
            panic!("{durability:?}: seed {}: {:?}", failed.seed, failed.result);
        }
        assert!(summary.report.epochs > SEEDS, "{}", summary.report);
    }
}
