//! What ships contains no canary.

use std::process::Command;

/// The packages that a package is built of, with all its features.
fn packages(of: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix", "none"])
        .args(["--all-features", "--edges", "normal,build"])
        .args(["--package", of])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).expect("names of packages");
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_server_and_the_library_are_not_built_of_canaries() {
    let has = |of: &str, name: &str| packages(of).iter().any(|package| package == name);
    for shipped in ["ionian-cli", "ionian"] {
        assert!(has(shipped, "ionian-protocols"), "{shipped}");
        assert!(!has(shipped, "ionian-canaries"), "{shipped}");
    }
    assert!(has("ionian-tools", "ionian-canaries"));
}
