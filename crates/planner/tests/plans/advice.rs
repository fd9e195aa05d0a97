//! Advice for running clusters.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_planner::live::advice::Advice;
use ionian_planner::live::rates::Rates;
use ionian_planner::prices::Prices;

/// Advice for a preset of which every node is a tenth busy with each of its roles, and the nodes
/// whose names begin with `slow` are 80 % busy with their first role, or with clients.
fn advice(preset: &str, slow: &str, with_clients: bool, change: fn(&mut Rates)) -> Advice {
    let deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
    let mut nodes = Vec::new();
    for node in &deployment.nodes {
        let is_slow = node.name.starts_with(slow);
        let roles = node.instances().into_keys().enumerate();
        let roles: Vec<(String, _, f64)> = roles
            .map(|(place, role)| {
                let busy = is_slow && place == 0 && !with_clients;
                (role.to_owned(), 0, if busy { 0.8 } else { 0.1 })
            })
            .collect();
        let mut busy: f64 = roles.iter().map(|(.., busy)| busy).sum();
        if is_slow && with_clients {
            busy += 0.6;
        }
        let mut rates = Rates {
            loops: vec![(0, busy)],
            roles,
            ..Rates::default()
        };
        if node.gateway.is_some() {
            (rates.commands, rates.requests) = ([0.0, 10_000.0, 0.0, 0.0], 10_000.0);
        }
        change(&mut rates);
        nodes.push((node.name.as_str(), rates));
    }
    let nodes: Vec<_> = nodes.iter().map(|(name, rates)| (*name, rates)).collect();
    Advice::of(&deployment, &nodes, &Prices::shipped().unwrap())
}

#[test]
fn one_more_of_the_slow_role_is_advised_with_its_command() {
    let advice = advice("compartmentalized", "proxy-leader-", false, |_| ());
    let [change] = &advice.changes[..] else {
        panic!("{advice:?}");
    };
    // Ten share what eleven share then.
    assert!((change.times - 1.1).abs() < 0.03, "{change:?}");
    assert_eq!(
        change.command,
        "ionian member add proxy-leader-10 --address HOST:PORT --roles proxy_leader"
    );
    assert!(advice.text().contains(&change.command));
    assert_eq!((advice.clients, advice.why_none), (None, None));
}

#[test]
fn no_change_is_advised_where_one_more_brings_nothing() {
    for (slow, preset) in [("leader-", "compartmentalized"), ("acceptor-", "batched")] {
        let advice = advice(preset, slow, false, |_| ());
        assert_eq!(advice.changes, [], "{slow}");
        assert!(advice.why_none.is_some(), "{slow}");
    }
}

#[test]
fn slow_replicas_are_not_relieved_of_what_each_executes() {
    let advice = advice("compartmentalized", "replica-", false, |_| ());
    let most = advice.changes.iter().map(|change| change.times);
    // A fifth replica would bring 1.25 times as much if all work were shared.
    assert!(most.fold(1.0, f64::max) < 1.15, "{:?}", advice.changes);
}

#[test]
fn clients_that_do_not_pipeline_are_named_and_a_gateway_is_advised() {
    let found = advice("compartmentalized", "gateway-", true, |_| ());
    let clients = found.clients.as_ref().unwrap();
    assert!(
        clients.starts_with("Clients do not pipeline: 1.0"),
        "{clients}"
    );
    let [change] = &found.changes[..] else {
        panic!("{found:?}");
    };
    assert!((change.times - 1.5).abs() < 0.05, "{change:?}");
    assert!(
        change
            .command
            .contains("--gateway HOST:PORT --roles client")
    );
    let pipelined = |rates: &mut Rates| rates.requests /= 16.0;
    let found = advice("compartmentalized", "gateway-", true, pipelined);
    assert_eq!(found.clients, None);
}

#[test]
fn nothing_is_advised_to_quiet_starved_or_unplanned_clusters() {
    let quiet = |rates: &mut Rates| {
        rates.loops[0].1 /= 10.0;
        rates.roles.iter_mut().for_each(|role| role.2 /= 10.0);
    };
    let found = advice("compartmentalized", "leader-", false, quiet);
    assert!(found.changes.is_empty() && found.why_none.is_none());
    assert!(found.text().starts_with("nothing limits the cluster."));
    let found = advice("compartmentalized", "leader-", false, |it| it.wait = 0.5);
    assert!(found.changes.is_empty() && found.why_none.is_none());
    let found = advice("craq", "n0", false, |_| ());
    let why = found.why_none.unwrap();
    assert!(why.contains("no demands of protocol craq"), "{why}");
    let loops = |it: &mut Rates| it.loops.push((1, 0.9));
    let why = advice("batched", "leader-", false, loops).why_none.unwrap();
    assert!(why.contains("several event loops"), "{why}");
}

#[test]
fn a_cluster_short_of_processors_gets_the_shortage_and_the_role_on_one_page_and_in_json() {
    let found = advice("compartmentalized", "leader-1", false, |it| it.wait = 0.5);
    let text = found.text();
    for said in [
        "limit: leader-1: short of processors, waits for one 50 % of the time; busiest is leader 0 \
         on leader-1, 80 % busy",
        "The event loop of leader-1 works 80 % of the time.",
        "it takes the most processor time, 80 % of the time.",
        "22 nodes of the cluster are on 127.0.0.1. Together their event loops had 2.9 processors, \
         and waited for 11.0 more.",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let document = serde_json::to_value(&found).unwrap();
    let bottleneck = &document["bottleneck"];
    assert_eq!(
        (
            &bottleneck["kind"],
            &bottleneck["node"],
            &bottleneck["role"]
        ),
        (&"starved".into(), &"leader-1".into(), &"leader 0".into())
    );
    assert_eq!(bottleneck["short"]["waits"], 0.5);
    assert_eq!(document["machine"]["waited_for"], 11.0);
}
