//! `ionian plan` and its file.

use crate::cluster::{Directory, fails, works};
use serde_json::Value;
use std::fs;

#[test]
fn the_file_of_a_plan_passes_the_check_and_is_not_overwritten() {
    let directory = Directory::new();
    let file = directory.path("cluster.toml");
    let path = file.to_str().unwrap();
    let plan = ["plan", "--writes", "120000", "--out", path];
    let page = works(&plan);
    let nodes = page.split_once(" nodes: ").unwrap().0.to_owned();
    let summary = works(&["config", "check", path]);
    assert!(summary.contains(&format!(", {nodes} nodes")), "{summary}");
    fails(
        &plan,
        1,
        "exists: name another file, or overwrite it with --force",
    );
    // Before the search: this load is refused by it.
    fails(
        &["plan", "--writes", "1e9", "--out", path],
        1,
        "exists: name another file, or overwrite it with --force",
    );
    let document = works(&["plan", "--writes", "120000", "--json"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["nodes"].to_string(), nodes);
}

#[test]
fn a_load_that_makes_no_sense_or_cannot_be_planned_is_refused_by_name() {
    fails(&["plan"], 2, "writes or reads must be above 0");
    fails(&["plan", "--writes", "-1"], 2, "writes = -1: must be 0 to");
    fails(
        &["plan", "--writes", "1e300"],
        2,
        "writes = 1e300: must be 0 to 1000000000 a second",
    );
    for (flag, allowed) in [("--f", "1..=31"), ("--pipeline", "1..=10000")] {
        let text = format!("'-1' for '{flag} <N>': -1 is not in {allowed}");
        fails(&["plan", "--writes", "10", flag, "-1"], 2, &text);
    }
    fails(
        &["plan", "--writes", "10", "--protocol", "craq"],
        1,
        "protocol \"craq\" cannot be planned: there are no demands of it; those of multipaxos,",
    );
    let large = ["plan", "--writes", "1e9"];
    fails(
        &large,
        1,
        "no deployment of at most 64 nodes carries this load:",
    );
    let missing = ["plan", "--writes", "10", "--demands", "/nonexistent"];
    fails(&missing, 1, "--demands /nonexistent");
}

#[test]
fn the_example_of_a_plan_file_runs_and_is_the_plan_of_its_flags() {
    let directory = Directory::new();
    let file = directory.path("plan.toml");
    let path = file.to_str().unwrap();
    let example = works(&["plan", "--example"]);
    fs::write(&file, &example).unwrap();
    let page = works(&["plan", "--file", path]);
    let flags = ["plan", "--writes", "20000", "--reads", "80000"];
    assert_eq!(page, works(&flags));

    fs::write(&file, format!("cores = 8\n{example}")).unwrap();
    fails(
        &["plan", "--file", path],
        2,
        "plan.toml: unknown key cores; available: writes, reads, level, value_bytes,",
    );
    fs::write(&file, "writes = 10\nf = 0\n").unwrap();
    fails(
        &["plan", "--file", path],
        2,
        "plan.toml: invalid value '0' for '--f <N>': 0 is not in 1..=31",
    );
    // A path in the file starts at its directory.
    fs::write(&file, "writes = 10\ndemands = \"mine.json\"\n").unwrap();
    let demands = format!("--demands {}", directory.path("mine.json").display());
    fails(&["plan", "--file", path], 1, &demands);
    fails(
        &["plan", "--file", path, "--writes", "10"],
        2,
        "the argument '--file <FILE>' cannot be used with",
    );
}

/// How much the processor time of a process may differ from its plan.
const WITHIN: f64 = 0.2;

/// The demands are measured, then the plan is made, then the cluster is: so the machine should do
/// nothing else. `cargo build --release -p ionian-cli -p ionian-tools`, then `cargo test --release
/// -p ionian-cli --test ionian spends_what_its_plan -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes, and needs ionian-tools beside ionian, of the same build"]
fn each_process_of_a_running_cluster_spends_what_its_plan_says() {
    let directory = Directory::new();
    let (demands, measured) = (directory.path("demands.json"), directory.path("bench.json"));
    let (demands, measured) = (demands.to_str().unwrap(), measured.to_str().unwrap());
    let of = ["--preset", "colocated", "--gateways", "colocated"];
    works(&[&["bench", "demands", "--out", demands][..], &of].concat());
    let asks = ["--preset", "colocated", "--clients", "64"];
    works(&[&["bench", "--json", measured][..], &asks].concat());
    let load = ["--writes", "1000", "--connections", "64"];
    let only = ["--protocol", "multipaxos", "--durability", "memory"];
    let plan = ["plan", "--demands", demands, "--json"];
    let plan: Value = works(&[&plan[..], &load, &only].concat()).parse().unwrap();
    assert_eq!(plan["preset"], "colocated");

    let bench: Value = fs::read_to_string(measured).unwrap().parse().unwrap();
    let side = &bench["sides"][0];
    let processes = side["processes"].as_array().unwrap();
    let mut far = Vec::new();
    for (place, name) in processes.iter().enumerate() {
        let rounds = side["rounds"].as_array().unwrap();
        let of_round = |round: &Value| round["processor_us"][place].as_f64().unwrap();
        let mut us: Vec<f64> = rounds.iter().map(of_round).collect();
        us.sort_by(f64::total_cmp);
        let median = us[us.len() / 2];
        let said = plan["node_us"][name.as_str().unwrap()].as_f64().unwrap();
        let line = format!("{name}: plan {said:.1} us a command, measured {median:.1}");
        println!("{line}");
        if (said / median - 1.0).abs() > WITHIN {
            far.push(line);
        }
    }
    assert!(processes.len() == 3 && far.is_empty(), "{far:#?}");
}
