//! What the gate does not check on a machine that lacks a tool. Tests pass where their tool is
//! absent, and what a test that passes prints is not shown: `verify` lists it at its end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Where the system says what becomes of the memory of a killed process.
const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// A tool and what is checked with it. A name with a slash is a path: from the repository, unless
/// it is absolute.
const TOOLS: &[(&str, &str)] = &[
    (
        CORE_PATTERN,
        "whether passwords are in the memory of other nodes (it must name no path)",
    ),
    ("bash", "completions for bash"),
    ("cargo-deny", "licences and sources of crates (deny.toml)"),
    ("chromium", "the dashboard in a browser"),
    ("fish", "completions for fish"),
    ("kubectl", "manifests for Kubernetes"),
    ("mandoc", "the form of manual pages"),
    (
        "monitoring/browser/node_modules",
        "the dashboard in a browser",
    ),
    ("node", "the dashboard in a browser"),
    ("promtool", "alert rules, and the form of metrics"),
    (
        "prometheus-redis-exporter",
        "whether an exporter reads INFO",
    ),
    ("redis-server", "whether answers are those of Redis 7.0"),
    ("strace", "whether the unit allows each call of a node"),
    (
        "systemd-analyze",
        "units of systemd, and whether they allow each call of a node",
    ),
    ("unshare", "names and disks that do not answer"),
    ("valgrind", "what a command costs each role (`deep`)"),
    ("zsh", "completions for zsh"),
    ("/dev/fuse", "mounts"),
];

/// Prints each absent tool, with what is not checked without it.
pub(crate) fn tell() {
    let folders = folders();
    for (tool, what) in TOOLS {
        if !is_there(tool, &folders, &crate::repository()) {
            eprintln!("==> NOT CHECKED without {tool}: {what}");
        }
    }
}

/// Where programs are. Cargo looks for its subcommands in its own folder, too.
pub(crate) fn folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = || Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"));
    folders.extend(home.or_else(usual).map(|it| it.join("bin")));
    folders
}

/// Whether a machine has a tool.
pub(crate) fn has(tool: &str) -> bool {
    is_there(tool, &folders(), &crate::repository())
}

fn is_there(tool: &str, folders: &[PathBuf], root: &Path) -> bool {
    match tool.contains('/') {
        true => root.join(tool).exists() && serves(tool),
        false => folders.iter().any(|folder| folder.join(tool).is_file()) && serves(tool),
    }
}

/// Whether a tool that is there does what its tests need; they check nothing otherwise.
fn serves(tool: &str) -> bool {
    let run = |words: &[&str]| Command::new(tool).args(words).output();
    match tool {
        "redis-server" => {
            run(&["--version"]).is_ok_and(|it| it.stdout.starts_with(b"Redis server v=7.0."))
        }
        "strace" => run(&["-o", "/dev/null", "true"]).is_ok_and(|it| it.status.success()),
        CORE_PATTERN => {
            fs::read_to_string(tool).is_ok_and(|it| !it.starts_with('|') && !it.contains('/'))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What every machine has that builds the project, or that a test makes itself.
    const EVERYWHERE: &[&str] = &[
        "date", "getconf", "git", "kill", "ldd", "mkfifo", "rustc", "sh", "umount",
    ];

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|it| it == "rs") {
                found.push(path);
            }
        }
    }

    /// The programs that tests start by their name.
    fn started() -> BTreeSet<String> {
        let mut files = Vec::new();
        for entry in fs::read_dir(crate::repository().join("crates")).unwrap() {
            let folder = entry.unwrap().path().join("tests");
            if folder.is_dir() {
                sources(&folder, &mut files);
            }
        }
        let mut names = BTreeSet::new();
        for file in files {
            let text = fs::read_to_string(file).unwrap();
            for start in ["Command::new(\"", "check(&[\""] {
                let starts = text.split(start).skip(1);
                names.extend(starts.filter_map(|it| Some(it.split_once('"')?.0.to_owned())));
            }
        }
        names
    }

    #[test]
    fn every_program_that_tests_start_is_listed() {
        let started = started();
        assert!(started.contains("promtool") && started.contains("mandoc"));
        let listed = |name: &str| TOOLS.iter().any(|(tool, _)| *tool == name);
        let unlisted = started
            .iter()
            .filter(|it| !listed(it) && !EVERYWHERE.contains(&it.as_str()));
        assert_eq!(unlisted.collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn a_tool_is_a_program_or_a_path() {
        let root = crate::repository();
        let folders = [root.join(".ci")];
        assert!(is_there("run", &folders, &root));
        assert!(!is_there("run", &[], &root));
        assert!(is_there("xtask/src", &[], &root));
        assert!(!is_there("xtask/none", &folders, &root));
    }
}
