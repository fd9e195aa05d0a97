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

/// A cluster that does fewer commands a second is not slowed down further: requests would take
/// longer than their clients wait.
const SLOWEST: f64 = 1000.0;

/// A node that brings less than this is not advised.
const WORTH: f64 = 1.05;

/// How much a promise may differ from what comes.
const WITHIN: f64 = 0.15;

/// Under which conditions promises are compared.
#[derive(Clone, Copy, Debug)]
enum Conditions {
    /// Work comes in small pieces.
    Fine,
    /// The preset as it comes, under more clients. Gateways are few, so each of them sends the
    /// commands of half of all clients together.
    AsItComes,
}

/// Gateways that a preset gets in addition where work is to come in small pieces and gateways are
/// nodes of their own: more where there are batchers, which would be idle in turn.
fn more_gateways(deployment: &Deployment) -> usize {
    match roles(deployment).contains(&"batcher") {
        true => 24,
        false => 8,
    }
}

impl Conditions {
    fn clients(self) -> usize {
        match self {
            // As many as it takes that a node more is busy, too.
            Conditions::Fine => 2048,
            Conditions::AsItComes => 4096,
        }
    }

    fn deployment(self, preset: &str) -> Deployment {
        let deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
        // No request is repeated because the answer takes its time.
        let options = ["options.retry_after_ms=60000", "options.patience_ms=300000"];
        let deployment = deployment.with_overrides(&options).unwrap();
        let Conditions::Fine = self else {
            return deployment;
        };
        // Batches are full under this load and under that of the advice, so work grows with it.
        let full = ["options.batch_commands=8"];
        let mut deployment = deployment.with_overrides(&full).unwrap();
        if deployment.nodes[0].instances().len() == 1 {
            for number in 0..more_gateways(&deployment) {
                let name = format!("more-{number}");
                deployment = changed(&deployment, &name, &[CLIENT.to_owned()]);
            }
        }
        deployment
    }
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
    clients: usize,
    deployment: Deployment,
    costs: TrueCosts,
    before: Simulated,
    advice: Advice,
}

impl Case {
    /// `None` if the role never is.
    fn of(conditions: Conditions, preset: &str, role: &str, prices: &Prices) -> Option<Case> {
        let (clients, deployment) = (conditions.clients(), conditions.deployment(preset));
        for power in 0..16 {
            let costs = TrueCosts::new(prices, preset, role, 2f64.powi(power));
            let before = simulate(&deployment, clients, &costs);
            if before.commands < SLOWEST {
                break;
            }
            let busiest = before.rates.iter().map(|(_, rates)| rates.loops[0].1);
            let busiest = busiest.fold(0.0, f64::max);
            let advice = advice(&deployment, &before, prices);
            let named = advice.bottleneck.role.as_ref();
            let is_named = named.is_some_and(|named| named.starts_with(&role.replace('_', " ")));
            if is_named && busiest >= BUSY {
                return Some(Case {
                    clients,
                    deployment,
                    costs,
                    before,
                    advice,
                });
            }
        }
        None
    }

    /// How many times as much the deployment does with one node more, if there is such a
    /// deployment.
    fn gained(&self, roles: &[String]) -> Option<f64> {
        let to = changed(&self.deployment, "new", roles);
        MultiPaxos::configure(to.layout(MultiPaxos::KINDS).ok()?).ok()?;
        Some(simulate(&to, self.clients, &self.costs).commands / self.before.commands)
    }
}

/// What advice has said of a node, and what that node has brought.
#[derive(Default)]
struct Compared {
    promised: usize,
    /// Roles of which it was said that a promise is not possible, and why.
    unknown: Vec<String>,
    broken: Vec<String>,
}

/// Slows down each role of a preset, and compares.
fn compare(conditions: Conditions, preset: &str) -> Compared {
    let prices = Prices::shipped().unwrap();
    let mut compared = Compared::default();
    for role in roles(&conditions.deployment(preset)) {
        let Some(case) = Case::of(conditions, preset, role, &prices) else {
            println!("{preset}, slow {role}: never the limit");
            continue;
        };
        let why = case.advice.why_none.as_ref();
        if let Some(why) = why.filter(|why| why.contains("cannot be computed")) {
            println!("{preset}, slow {role}: {why}");
            compared.unknown.push(role.to_owned());
            continue;
        }
        let told = case.advice.changes.iter();
        let mut told: Vec<_> = told
            .map(|Change { roles, times, .. }| (roles.clone(), Some(*times)))
            .collect();
        compared.promised += told.len();
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
                // What is left out is not said to bring nothing if work comes in large pieces.
                None if matches!(conditions, Conditions::AsItComes) => true,
                None => gained <= WORTH * (1.0 + WITHIN),
            };
            if !is_kept {
                compared.broken.push(line);
            }
        }
    }
    compared
}

#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn the_gain_that_is_promised_comes_in_simulated_time() {
    let compared = compare(Conditions::Fine, "colocated");
    assert!(compared.promised >= 4 && compared.unknown.is_empty());
    assert!(compared.broken.is_empty(), "{:#?}", compared.broken);
}

/// A third batcher has nothing to do while two gateways send two messages at a time. Messages to a
/// slow proxy leader take a tenth of a second each, so batches are proposed twice: a fourth proxy
/// leader brings more than its share, because they are not any more.
#[test]
#[ignore = "takes minutes: `cargo xtask deep`"]
fn no_gain_is_promised_where_work_comes_in_few_large_pieces() {
    let compared = compare(Conditions::AsItComes, "batched");
    assert!(compared.broken.is_empty(), "{:#?}", compared.broken);
    for role in ["batcher", "proxy_leader"] {
        let unknown = &compared.unknown;
        assert!(unknown.iter().any(|it| it == role), "{role}: {unknown:?}");
    }
}

/// All three presets: `cargo test --release -p ionian-planner --test judgement gain -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn the_gain_that_is_promised_comes_in_each_preset() {
    let mut all = Vec::new();
    for preset in PRESETS {
        let compared = compare(Conditions::Fine, preset);
        let Compared {
            promised, unknown, ..
        } = &compared;
        assert!(*promised >= 2, "{preset}: only {promised} were advised");
        assert!(unknown.is_empty(), "{preset}: {unknown:?}");
        all.extend(compared.broken);
    }
    for preset in PRESETS {
        all.extend(compare(Conditions::AsItComes, preset).broken);
    }
    assert!(all.is_empty(), "{all:#?}");
}
