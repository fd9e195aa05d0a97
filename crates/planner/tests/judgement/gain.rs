//! The gain that advice promises is the one of the changed deployment, in simulated time.

use super::PRESETS;
use super::simulated::{Simulated, TrueCosts, simulate};
use ionian_deployment::{CLIENT, Deployment, Node, Placed, PresetOptions};
use ionian_kernel::protocol::Protocol;
use ionian_planner::live::advice::{Advice, Change};
use ionian_planner::prices::Prices;
use ionian_protocols::multipaxos::MultiPaxos;

/// A cluster is at its limit if its busiest node is busy for this share of the time. In one that is
/// not, a node more changes nothing.
const BUSY: f64 = 0.95;

/// A node that brings less than this is not advised.
const WORTH: f64 = 1.05;

/// How much a promise may differ from what comes.
const WITHIN: f64 = 0.15;

/// Gateways that a preset gets in addition. Where gateways are nodes of their own, few would send
/// the commands of all clients together, and batchers would be idle in turn.
const GATEWAYS: usize = 8;

fn deployment(preset: &str) -> Deployment {
    let deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
    let options = [
        // No request is repeated because the answer takes its time.
        "options.retry_after_ms=60000",
        "options.patience_ms=300000",
        // Batches are full under this load and under that of the advice, so work grows with it.
        "options.batch_commands=8",
    ];
    let mut deployment = deployment.with_overrides(&options).unwrap();
    if deployment.nodes[0].instances().len() == 1 {
        for number in 0..GATEWAYS {
            let name = format!("more-{number}");
            deployment = changed(&deployment, &name, &[CLIENT.to_owned()]);
        }
    }
    deployment
}

/// The roles that have something to do: there are no reads.
fn roles(deployment: &Deployment) -> Vec<&str> {
    let nodes = deployment.nodes.iter();
    let mut roles: Vec<&str> = nodes.flat_map(|it| it.instances().into_keys()).collect();
    roles.sort_unstable();
    roles.dedup();
    roles.retain(|role| *role != "read_batcher");
    roles
}

/// The deployment with one node more.
fn changed(deployment: &Deployment, name: &str, roles: &[String]) -> Deployment {
    let gateway = roles.iter().any(|role| role == CLIENT);
    let node = Node {
        name: name.to_owned(),
        address: format!("{name}.invalid:1"),
        gateway: gateway.then(|| format!("{name}.invalid:2")),
        roles: roles.iter().map(|role| Placed::some(role, 1)).collect(),
        ..Node::default()
    };
    deployment.with_node(node).unwrap()
}

fn advice(deployment: &Deployment, of: &Simulated, prices: &Prices) -> Advice {
    let rates: Vec<_> = of
        .rates
        .iter()
        .map(|(name, rates)| (&**name, rates))
        .collect();
    Advice::of(deployment, &rates, prices)
}

/// A role of a preset made so slow that it is the limit, and what is advised then.
struct Case {
    deployment: Deployment,
    costs: TrueCosts,
    before: Simulated,
    advice: Advice,
}

impl Case {
    fn of(preset: &str, role: &str, prices: &Prices) -> Case {
        let deployment = deployment(preset);
        for power in 0..16 {
            let costs = TrueCosts::new(prices, preset, role, 2f64.powi(power));
            let before = simulate(&deployment, &costs);
            let busiest = before.rates.iter().map(|(_, rates)| rates.loops[0].1);
            let busiest = busiest.fold(0.0, f64::max);
            let advice = advice(&deployment, &before, prices);
            let named = advice.bottleneck.role.as_ref();
            let is_named = named.is_some_and(|named| named.starts_with(&role.replace('_', " ")));
            if is_named && busiest >= BUSY {
                return Case {
                    deployment,
                    costs,
                    before,
                    advice,
                };
            }
        }
        panic!("{role} of {preset} is never named");
    }

    /// How many times as much the deployment does with one node more, if there is such a
    /// deployment.
    fn gained(&self, roles: &[String]) -> Option<f64> {
        let to = changed(&self.deployment, "new", roles);
        MultiPaxos::configure(to.layout(MultiPaxos::KINDS).ok()?).ok()?;
        Some(simulate(&to, &self.costs).commands / self.before.commands)
    }
}

/// What advice has said of a node, and what that node has brought.
struct Compared {
    promised: usize,
    broken: Vec<String>,
}

/// Slows down each role of a preset, and compares.
fn compare(preset: &str) -> Compared {
    let prices = Prices::shipped().unwrap();
    let (mut promised, mut broken) = (0, Vec::new());
    for role in roles(&deployment(preset)) {
        let case = Case::of(preset, role, &prices);
        let told = case.advice.changes.iter();
        let mut told: Vec<_> = told
            .map(|Change { roles, times, .. }| (roles.clone(), Some(*times)))
            .collect();
        promised += told.len();
        if told.is_empty() {
            told.push((vec![role.to_owned()], None));
        }
        for (roles, times) in told {
            let Some(gained) = case.gained(&roles) else {
                continue;
            };
            let said = times.map_or("not advised".to_owned(), |it| format!("promised {it:.2}"));
            let node = roles.join(",");
            let line = format!("{preset}, slow {role}: {node}: {said}, came {gained:.2}");
            println!("{line}");
            let is_kept = match times {
                Some(times) => (times / gained - 1.0).abs() <= WITHIN,
                None => gained <= WORTH * (1.0 + WITHIN),
            };
            if !is_kept {
                broken.push(line);
            }
        }
    }
    Compared { promised, broken }
}

#[test]
fn the_gain_that_is_promised_comes_in_simulated_time() {
    let Compared { promised, broken } = compare("colocated");
    assert!(promised >= 4, "only {promised} changes were advised");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// All three presets: `cargo test --release -p ionian-planner --test judgement gain -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn the_gain_that_is_promised_comes_in_each_preset() {
    let mut all = Vec::new();
    for preset in PRESETS {
        let Compared { promised, broken } = compare(preset);
        assert!(promised >= 2, "{preset}: only {promised} were advised");
        all.extend(broken);
    }
    assert!(all.is_empty(), "{all:#?}");
}
