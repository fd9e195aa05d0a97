//! The catalogue of known defects (docs/defects.md) and the patches say the same, and the catalogue
//! names tests that there are.

use ionian_canaries::canary::{ALL, Canary};
use ionian_canaries::registry;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("this crate is in the repository")
}

/// A row of the catalogue.
struct Row {
    /// In the part about published implementations.
    is_published: bool,
    /// The first cell, or that of the last row above that has one.
    first: String,
    defect: String,
    tests: Vec<String>,
    canary: Option<String>,
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(repository().join("docs/defects.md")).expect("the catalogue");
    let names = |cell: &str| -> Vec<String> {
        let quoted = cell.split('`').skip(1).step_by(2);
        quoted.map(str::to_owned).collect()
    };
    let (mut rows, mut first, mut is_published) = (Vec::new(), String::new(), false);
    for line in page.lines() {
        if line.starts_with("## ") {
            is_published = line == "## Of published implementations";
        }
        if !line.starts_with("| ") {
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, code, defect, tests, canary, _] = cells[..] else {
            panic!("four columns: {line}");
        };
        if canary == "canary" {
            continue;
        }
        if !code.is_empty() {
            code.clone_into(&mut first);
        }
        rows.push(Row {
            is_published,
            first: first.clone(),
            defect: defect.to_owned(),
            tests: names(tests),
            canary: names(canary).pop(),
        });
    }
    rows
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

/// As the catalogue writes it: S-Paxos is `spaxos`.
fn folder(protocol: &str) -> String {
    protocol.to_lowercase().replace('-', "")
}

#[test]
fn every_canary_is_in_the_catalogue_in_the_same_words_and_no_other() {
    let said: BTreeSet<(bool, &str, &str)> = ALL
        .iter()
        .map(|canary| (canary.is_published, canary.name, canary.defect))
        .collect();
    let rows = rows();
    let listed: BTreeSet<(bool, &str, &str)> = rows
        .iter()
        .filter_map(|row| {
            let canary = row.canary.as_deref()?;
            Some((row.is_published, canary, row.defect.as_str()))
        })
        .collect();
    let differ: Vec<_> = said.symmetric_difference(&listed).collect();
    assert!(differ.is_empty(), "{differ:#?}");
    for row in rows.iter().filter(|row| !row.is_published) {
        let Some(name) = &row.canary else { continue };
        let protocol = folder(&row.first);
        let id = format!("{protocol}/{name}");
        assert!(ALL.iter().any(|canary| canary.id == id), "{id}");
    }
}

#[test]
fn every_canary_is_of_a_protocol() {
    for canary in ALL {
        assert!(registry::NAMES.contains(&canary.protocol), "{}", canary.id);
    }
}

#[test]
fn a_protocol_has_its_own_canaries_and_those_of_the_roles_that_it_shares() {
    let id = |protocol, name| Canary::named(protocol, name).map(|canary| canary.id);
    assert_eq!(id("multipaxos", "unfenced"), Some("multipaxos/unfenced"));
    assert_eq!(id("spaxos", "unfenced"), Some("spaxos/unfenced"));
    assert_eq!(id("mencius", "unfenced"), Some("multipaxos/unfenced"));
    assert_eq!(id("multipaxos", "twice"), None);
    assert_eq!(id("unreplicated", "unfenced"), None);
}

#[test]
fn every_test_of_the_catalogue_is_there() {
    let mut code = String::new();
    sources(&repository().join("crates"), &mut code);
    let rows = rows();
    let tests: Vec<&String> = rows.iter().flat_map(|row| &row.tests).collect();
    let missing: Vec<_> = tests
        .iter()
        .filter(|test| !code.contains(&format!("fn {test}(")))
        .collect();
    assert!(!tests.is_empty() && missing.is_empty(), "{missing:?}");
}
