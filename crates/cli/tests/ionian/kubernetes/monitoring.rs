//! The component for Prometheus.

use super::{KUBERNETES, NAME, items, render, selects, text_of};
use std::fs;
use std::path::Path;

const RULES: &str = "components/monitoring/rules.yaml";

/// The alert rules as a resource of the operator.
fn resource() -> String {
    let file = Path::new(KUBERNETES).join("../../monitoring/ionian.rules.yaml");
    let rules = fs::read_to_string(file).unwrap();
    let groups = &rules[rules.find("\ngroups:").unwrap() + 1..];
    let mut resource = "\
# Written from monitoring/ionian.rules.yaml, by
# `WRITE_MANIFESTS=1 cargo test -p ionian-cli --test ionian kubernetes`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: ionian
spec:
"
    .to_owned();
    for line in groups.lines() {
        if !line.is_empty() {
            resource += "  ";
        }
        resource += line;
        resource.push('\n');
    }
    resource
}

#[test]
fn the_rules_are_those_of_the_repository() {
    let (path, expected) = (Path::new(KUBERNETES).join(RULES), resource());
    if std::env::var_os("WRITE_MANIFESTS").is_some() {
        fs::write(path, expected).unwrap();
        return;
    }
    let found = fs::read_to_string(path).unwrap();
    assert!(
        found == expected,
        "{RULES} is out of date: WRITE_MANIFESTS=1 cargo test -p ionian-cli --test ionian \
         kubernetes"
    );
}

#[test]
fn prometheus_finds_the_nodes_and_may_reach_them() {
    let Some(cluster) = render(&Path::new(KUBERNETES).join("overlays/monitoring")) else {
        return;
    };
    let monitor = &cluster.the_only("ServiceMonitor")["spec"];
    let selector = &monitor["selector"]["matchLabels"];
    let services = cluster.of_kind("Service");
    let mut found = services
        .iter()
        .filter(|service| selects(selector, &service["metadata"]["labels"]));
    let service = found.next().expect("a service");
    assert!(found.next().is_none(), "each node is scraped once");
    // The rules name the job.
    let label = text_of(&monitor["jobLabel"]);
    assert_eq!(service["metadata"]["labels"][label], "ionian");
    assert!(resource().contains("up{job=\"ionian\"}"));
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    let endpoint = &items(&monitor["endpoints"])[0];
    assert_eq!(endpoint["port"], "http");
    assert_eq!(endpoint["path"], "/metrics");
    assert!(
        items(&service["spec"]["ports"])
            .iter()
            .any(|port| port["name"] == "http")
    );

    let policy = &cluster.named("NetworkPolicy", "ionian-monitoring")["spec"];
    let rules = items(&policy["ingress"]);
    assert_eq!(rules.len(), 1);
    let (from, ports) = (items(&rules[0]["from"]), items(&rules[0]["ports"]));
    assert_eq!((from.len(), ports.len()), (1, 1));
    assert_eq!(ports[0]["port"], 9400);
    let labels = &from[0]["podSelector"]["matchLabels"];
    assert_eq!(labels[NAME], "prometheus");
    for pod in cluster.pods().values() {
        let selector = &policy["podSelector"]["matchLabels"];
        assert!(selects(selector, &pod["metadata"]["labels"]));
    }
}
