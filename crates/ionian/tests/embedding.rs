//! The process belongs to the program that uses the library: no code of the library ends it,
//! handles its signals, or decides where its logs go.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What only a program does, and why.
const NOT_HERE: [(&str, &str); 7] = [
    ("process::exit", "it ends the process"),
    ("process::abort", "it ends the process"),
    ("signal::", "it handles signals"),
    ("sigaction", "it handles signals"),
    ("set_hook", "it decides where panics are reported"),
    ("set_global_default", "it decides where logs go"),
    ("tracing_subscriber", "it decides where logs go"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Adds our crates that this one is made of. The simulator is for tests of users.
fn add_crates(name: &str, all: &mut BTreeSet<String>) {
    if name == "sim" || !all.insert(name.to_owned()) {
        return;
    }
    let manifest = crates().join(name).join("Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("a crate of ours");
    let (_, rest) = manifest
        .split_once("\n[dependencies]\n")
        .unwrap_or_default();
    let (section, _) = rest.split_once("\n[").unwrap_or((rest, ""));
    let ours = section
        .lines()
        .filter_map(|line| line.strip_prefix("ionian-"));
    for dependency in ours {
        let name = dependency.split(['.', ' ']).next().expect("a name");
        add_crates(name, all);
    }
}

fn sources(directory: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => sources(&path, all),
            false => all.push(path),
        }
    }
}

fn faults(text: &str) -> impl Iterator<Item = String> {
    let lines = (1..).zip(text.lines().map(str::trim_start));
    let code = lines.filter(|(_, line)| !line.starts_with("//"));
    code.filter_map(|(number, line)| {
        let (what, why) = NOT_HERE.iter().find(|(what, _)| line.contains(what))?;
        Some(format!("line {number} has {what:?}: {why}"))
    })
}

fn crates_of_the_library() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    add_crates("ionian", &mut names);
    for needed in ["kernel", "runtime", "wal", "metrics"] {
        assert!(names.contains(needed), "{needed} is not among {names:?}");
    }
    names
}

/// The sources of a crate.
fn texts(name: &str) -> impl Iterator<Item = (PathBuf, String)> {
    let mut files = Vec::new();
    sources(&crates().join(name).join("src"), &mut files);
    files.into_iter().map(|file| {
        let text = std::fs::read_to_string(&file).expect("a source");
        (file, text)
    })
}

#[test]
fn no_code_of_the_library_takes_over_the_process() {
    for (file, text) in crates_of_the_library().iter().flat_map(|name| texts(name)) {
        if let Some(fault) = faults(&text).next() {
            panic!("{}: {fault}", file.display());
        }
    }
}

/// A target is the path of the module that logs, which begins with the name of its crate.
#[test]
fn the_targets_of_all_that_is_logged_are_documented() {
    let document = crates().join("../docs/library.md");
    let document = std::fs::read_to_string(document).expect("the document");
    let mut logging = 0;
    for name in crates_of_the_library() {
        if texts(&name).any(|(_, text)| text.contains("tracing::")) {
            assert!(
                document.contains(&format!("`ionian_{name}`")),
                "{name} logs"
            );
            logging += 1;
        }
    }
    assert!(logging > 0);
}

#[test]
fn the_check_sees_what_it_is_for() {
    let text = "exit();\n// std::process::exit(1)\n    std::process::exit(1);";
    let found: Vec<String> = faults(text).collect();
    assert_eq!(found, ["line 3 has \"process::exit\": it ends the process"]);
}
