//! `ionian plan` and its file.

use crate::cluster::{Directory, fails, works};

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
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
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
