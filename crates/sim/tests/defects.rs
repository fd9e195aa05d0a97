//! The catalogue of known defects (docs/defects.md) names every canary, and tests that there are.

use ionian_kernel::protocol::Protocol;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::spaxos::SPaxos;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("this crate is in the repository")
}

/// The third and the fourth column of each row: names of tests, and of canaries.
fn columns() -> (BTreeSet<String>, BTreeSet<String>) {
    let page = fs::read_to_string(repository().join("docs/defects.md")).expect("the catalogue");
    let names = |cell: &str| {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (mut tests, mut canaries) = (BTreeSet::new(), BTreeSet::new());
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "four columns: {row}");
        tests.extend(names(cells[3]));
        canaries.extend(names(cells[4]));
    }
    (tests, canaries)
}

fn sources(folder: &Path, found: &mut String) {
    for entry in fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
    {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push_str(&fs::read_to_string(&entry).expect("a source"));
        }
    }
}

#[test]
fn every_canary_is_in_the_catalogue_and_no_other() {
    // Mencius and S-Paxos have those of the roles that they share with MultiPaxos as well.
    let built = [
        MultiPaxos::canaries(),
        Mencius::canaries(),
        SPaxos::canaries(),
    ]
    .concat();
    let built: BTreeSet<String> = built.into_iter().map(str::to_owned).collect();
    assert_eq!(columns().1, built);
}

#[test]
fn every_test_of_the_catalogue_is_there() {
    let mut code = String::new();
    sources(&repository().join("crates"), &mut code);
    let (tests, _) = columns();
    let missing: Vec<_> = tests
        .iter()
        .filter(|test| !code.contains(&format!("fn {test}(")))
        .collect();
    assert!(!tests.is_empty() && missing.is_empty(), "{missing:?}");
}
