//! What holds for every plan.

use super::wanted;
use ionian_deployment::{Deployment, Durability};
use ionian_kernel::client::ReadLevel;
use ionian_planner::family::{Family, Shape};
use ionian_planner::model::{Counts, Model};
use ionian_planner::plan::{Wanted, plan};
use ionian_planner::prices::{MAX_TEXT, Prices};
use ionian_planner::search::{Outcome, Search};
use ionian_planner::workload::Workload;
use ionian_program::family;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn shipped() -> Prices {
    Prices::shipped().unwrap()
}

#[test]
fn shipped_demands_are_whole_and_survive_their_text() {
    let text = serde_json::to_string(&shipped()).unwrap();
    assert_eq!(Prices::parse(&text).unwrap(), shipped());
}

#[test]
fn demands_with_an_unknown_key_a_gap_or_an_absurd_price_are_refused() {
    let refused = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = serde_json::to_value(shipped()).unwrap();
        change(&mut value);
        format!("{:#}", Prices::parse(&value.to_string()).unwrap_err())
    };
    let unknown = refused(&|value| value["gatewy"] = 1.into());
    assert!(unknown.contains("unknown field `gatewy`"), "{unknown}");
    let absurd = refused(&|value| value["gateway"]["fixed_us"] = (-1.0).into());
    assert!(absurd.contains("gateway: -1 us: must be 0 to"), "{absurd}");
    let gap = refused(&|value| {
        let mut presets = value["presets"].as_object_mut().unwrap().values_mut();
        let costs = presets.next().unwrap().as_array_mut().unwrap();
        costs.remove(0);
    });
    assert!(gap.contains("no costs of writes with values of"), "{gap}");
    let large = Prices::parse(&" ".repeat(MAX_TEXT + 1)).unwrap_err();
    assert!(large.to_string().contains("at most"), "{large}");
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let refused = |wanted: Wanted| {
        let error = plan(&wanted, &shipped(), &Counts::default());
        format!("{:#}", error.unwrap_err())
    };
    assert!(refused(wanted(0.0, 0.0)).contains("writes or reads must be above 0"));
    assert!(refused(wanted(f64::NAN, 0.0)).contains("writes = NaN"));
    let headroom = Wanted {
        headroom: 0.95,
        ..wanted(1.0, 0.0)
    };
    assert!(refused(headroom).contains("headroom 0.95: must be 0.05 to 0.9"));
    let protocol = Wanted {
        protocol: Some("nonsense".to_owned()),
        ..wanted(1.0, 0.0)
    };
    let text = refused(protocol);
    assert!(
        text.contains("\"nonsense\" cannot be planned") && text.contains("those of"),
        "{text}"
    );
    let text = refused(wanted(1e9, 0.0));
    assert!(
        text.contains("no deployment of at most 64 nodes carries this load:"),
        "{text}"
    );
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let page = || {
        let plan = plan(&wanted(30_000.0, 30_000.0), &shipped(), &Counts::default()).unwrap();
        plan.page() + &plan.deployment.to_toml() + &serde_json::to_string(&plan).unwrap()
    };
    assert_eq!(page(), page());
}

#[test]
fn every_plan_is_a_valid_deployment_within_its_limits() {
    let counts = Counts::default();
    let prices = shipped();
    for (writes, reads, f, durability, headroom) in [
        (100.0, 0.0, 1, Durability::Disk, 0.6),
        (20_000.0, 5_000.0, 2, Durability::Memory, 0.6),
        // Failures are what limits it.
        (65_000.0, 0.0, 1, Durability::Disk, 0.9),
        (150_000.0, 0.0, 1, Durability::Disk, 0.6),
    ] {
        let wanted = Wanted {
            f,
            durability,
            headroom,
            ..wanted(writes, reads)
        };
        let plan = plan(&wanted, &prices, &counts).unwrap();
        let text = plan.deployment.to_toml();
        let parsed = Deployment::parse(&text).unwrap();
        assert_eq!(parsed, plan.deployment);
        family::check(&parsed).unwrap();
        assert_eq!((parsed.f, parsed.durability), (f, durability));
        assert_eq!(parsed.nodes.len(), plan.nodes);
        assert!(plan.within_limits >= wanted.workload.all() * 0.999_999);
        assert!(plan.peak >= plan.within_limits);
        for group in &plan.groups {
            assert!(group.busy <= wanted.headroom + 1e-6, "{group:?}");
            assert!(group.after_failures <= 0.9 + 1e-6, "{group:?}");
            assert!(group.after_failures >= group.busy - 1e-9, "{group:?}");
            assert!(group.count > f, "{group:?}");
        }
    }
}

#[test]
fn more_load_never_gives_a_cheaper_plan() {
    let (counts, prices) = (Counts::default(), shipped());
    let mut least = 0;
    for load in [1e3, 1e4, 2e4, 4e4, 6e4, 8e4, 1.2e5, 1.6e5] {
        let nodes = plan(&wanted(load, load / 4.0), &prices, &counts);
        let Ok(plan) = nodes else {
            // No deployment carries more than one that is not carried.
            least = usize::MAX;
            continue;
        };
        assert!(plan.nodes >= least, "{load}: {} of {least}", plan.nodes);
        least = plan.nodes;
    }
    assert!(least > 3);
}

fn search<'a>(
    prices: &'a Prices,
    workload: &'a Workload,
    counts: &'a Counts,
    preset: &str,
) -> Search<'a> {
    let model = Model {
        prices,
        workload,
        speed: 1.0,
        counts,
    };
    let family = Family::of(preset, 1, Durability::Disk).unwrap();
    Search::new(model, family, 0.6).unwrap()
}

#[test]
fn doubled_demands_make_every_node_twice_as_busy() {
    let (counts, prices) = (Counts::default(), shipped());
    let doubled = prices.clone().times(2.0);
    let mut workload = wanted(10_000.0, 10_000.0).workload;
    (workload.value_bytes, workload.pipeline) = (200, 4);
    for preset in prices.presets.keys() {
        let once = search(&prices, &workload, &counts, preset);
        let twice = search(&doubled, &workload, &counts, preset);
        let least = once.family.least.clone();
        let once = once.candidate(least.clone()).unwrap().loads;
        let twice = twice.candidate(least).unwrap().loads;
        for (once, twice) in once.0.iter().zip(&twice.0) {
            assert!((twice.busy() / once.busy() - 2.0).abs() < 1e-9, "{once:?}");
            assert!((twice.failed / once.failed - 2.0).abs() < 1e-9, "{once:?}");
        }
    }
}

/// Prices in which each role has become more or less expensive by chance.
fn random(prices: &Prices, random: &mut Xoshiro256PlusPlus) -> Prices {
    let mut prices = prices.clone();
    let mut factors = std::collections::BTreeMap::new();
    let mut factor = |role: &str| {
        let drawn = || 0.25 * 16f64.powf(f64::from(random.next_u32()) / f64::from(u32::MAX));
        *factors.entry(role.to_owned()).or_insert_with(drawn)
    };
    for costs in prices.presets.values_mut().flatten() {
        for (name, price) in &mut costs.messages {
            let role = name.split("::").next().unwrap();
            price.cost = price.cost.times(factor(role));
        }
    }
    prices
}

/// Shapes with at most this many nodes, from a shape on.
fn shapes(family: &Family, from: &Shape, nodes: usize, first: usize, all: &mut Vec<Shape>) {
    all.push(from.clone());
    for group in first..family.groups.len() {
        let grown = family.grown(from, group, 1);
        if let Some(more) = grown.filter(|more| more.nodes() <= nodes) {
            shapes(family, &more, nodes, group, all);
        }
    }
}

#[test]
fn no_deployment_is_much_cheaper_than_the_plan() {
    let (counts, shipped) = (Counts::default(), shipped());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let (mut compared, mut grown) = (0, 0);
    for _ in 0..100 {
        let prices = random(&shipped, &mut rng);
        let rate = 1000.0 * 30f64.powf(f64::from(rng.next_u32()) / f64::from(u32::MAX));
        let reads = rate * f64::from(rng.next_u32() % 4);
        let workload = Workload {
            level: ReadLevel::Linearizable,
            ..wanted(rate, reads).workload
        };
        let search = search(&prices, &workload, &counts, "compartmentalized");
        let least = search.family.least.clone();
        let Outcome::Fits(found) = search.run().unwrap() else {
            continue;
        };
        let nodes = found.shape.nodes();
        if nodes > least.nodes() + 4 {
            continue;
        }
        let mut all = Vec::new();
        shapes(&search.family, &least, nodes, 0, &mut all);
        let mut cheapest = nodes;
        for shape in all.into_iter().filter(|it| it.nodes() < nodes) {
            let candidate = search.candidate(shape).unwrap();
            if search.fits(&candidate.loads) {
                cheapest = cheapest.min(candidate.shape.nodes());
            }
        }
        assert!(
            nodes as f64 <= 1.15 * cheapest as f64,
            "{nodes} nodes, but {cheapest} suffice: {workload:?}"
        );
        compared += 1;
        grown += usize::from(nodes > least.nodes());
    }
    assert!(compared >= 40 && grown >= 10, "{compared}, {grown}");
}
