//! The alert rules and the dashboard of Grafana in `monitoring`: what they name exists, and rules
//! fire when they should.

use ionian_metrics::{Kind, lines};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../monitoring");
const RUNBOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/alerts.md");

fn rules() -> String {
    std::fs::read_to_string(format!("{FOLDER}/ionian.rules.yaml")).unwrap()
}

/// Written by `ionian snapshot save --metrics`, so no node has it.
const OF_BACKUPS: &str = "ionian_backup_last_success_timestamp_seconds";

/// The words in the expressions that are names of metrics.
fn metrics_named(rules: &str) -> Vec<String> {
    let mut names: Vec<String> = rules
        .split(|it: char| !it.is_ascii_alphanumeric() && it != '_')
        .filter(|word| word.starts_with("ionian_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn every_metric_in_a_rule_is_in_the_registry() {
    let named = metrics_named(&rules());
    assert!(named.len() > 20, "{named:?}");
    check_names(named);
}

/// Each is a metric of nodes, or that of backups, which must be one of them.
fn check_names(named: Vec<String>) {
    let known: BTreeMap<String, Kind> = lines()
        .into_iter()
        .map(|line| (line.name, line.kind))
        .collect();
    assert!(named.iter().any(|name| name == OF_BACKUPS), "{named:?}");
    for name in named.into_iter().filter(|name| name != OF_BACKUPS) {
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix));
        let is_part = base.is_some_and(|base| known.get(base) == Some(&Kind::Histogram));
        let is_whole = known
            .get(&name)
            .is_some_and(|kind| *kind != Kind::Histogram);
        assert!(is_part || is_whole, "no such metric: {name}");
    }
}

#[test]
fn every_panel_of_the_dashboard_asks_for_metrics_of_the_chosen_cluster() {
    let text = std::fs::read_to_string(format!("{FOLDER}/ionian.dashboard.json")).unwrap();
    check_names(metrics_named(&text));
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let variables: Vec<&str> = variables.map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(variables, ["datasource", "job", "cluster"]);
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 12, "{}", panels.len());
    for panel in panels {
        let queries = panel["targets"].as_array().unwrap();
        assert!(!queries.is_empty(), "{panel}");
        for query in queries {
            let expression = query["expr"].as_str().unwrap();
            let is_chosen = |it: &str| it.contains("$cluster") || it.contains("$job");
            assert!(is_chosen(expression), "{panel}");
            assert_eq!(query["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
}

#[test]
fn every_rule_has_a_runbook_and_a_test_and_the_other_way_round() {
    let rules = rules();
    let tests = std::fs::read_to_string(format!("{FOLDER}/ionian.rules.test.yaml")).unwrap();
    let runbook = std::fs::read_to_string(RUNBOOK).unwrap();
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(!alerts.is_empty());
    for alert in &alerts {
        assert!(
            tests.contains(&format!("- name: {alert} fires\n")),
            "{alert}"
        );
        let anchor = format!("runbook: docs/alerts.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&anchor), "{alert}");
    }
    let headings: Vec<&str> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    assert_eq!(headings, alerts);
}

#[test]
fn rules_fire_when_they_should_and_only_then() {
    for arguments in [
        ["check", "rules", "ionian.rules.yaml"],
        ["test", "rules", "ionian.rules.test.yaml"],
    ] {
        let promtool = Command::new("promtool")
            .args(arguments)
            .current_dir(FOLDER)
            .output();
        let Ok(output) = promtool else {
            eprintln!("skipped: promtool is not installed (it comes with Prometheus)");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}");
    }
}
