//! Completions and manual pages agree with the help of every command.

use crate::cluster::works;
use crate::common::{Directory, text};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Runs a checker on a file: it must accept the file, if it is installed.
fn check(checker: &[&str], file: &Path) {
    let output = match Command::new(checker[0])
        .args(&checker[1..])
        .arg(file)
        .output()
    {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("not checked: {} is not installed", checker[0]);
            return;
        }
        output => output.unwrap(),
    };
    let (printed, error) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{checker:?} {}: {printed}{error}",
        file.display()
    );
}

/// The words that begin the lines of a section of a help text.
fn section<'a>(help: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = help.lines().skip_while(|line| *line != heading).skip(1);
    let lines = lines.take_while(|line| !line.is_empty() || heading == "Options:");
    lines
        .filter(|line| line.starts_with("  ") && !line.starts_with("     "))
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

/// Every command as its words, with its help. The tools carry out `sim` and `bench`, whose help is
/// theirs.
fn commands(words: &[&str], found: &mut Vec<(Vec<String>, String)>) {
    let help = works(&[words, &["--help"]].concat());
    let names: Vec<String> = section(&help, "Commands:")
        .into_iter()
        .map(str::to_owned)
        .collect();
    found.push((words.iter().map(ToString::to_string).collect(), help));
    for name in names {
        if !matches!(name.as_str(), "help" | "sim" | "bench") {
            commands(&[words, &[name.as_str()]].concat(), found);
        }
    }
}

pub(crate) fn all_commands() -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    commands(&[], &mut found);
    assert!(
        found.len() > 20,
        "the help lists few commands: {}",
        found.len()
    );
    found
}

/// The long flags of a help text.
fn flags(help: &str) -> Vec<&str> {
    let words = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'));
    let words = words.flat_map(|line| line.split([' ', ',', '=']));
    let mut flags: Vec<&str> = words.filter(|word| word.starts_with("--")).collect();
    flags.sort_unstable();
    flags.dedup();
    flags
}

#[test]
fn every_command_has_a_manual_page_with_each_of_its_flags() {
    let directory = Directory::new();
    let path = directory.path("man");
    works(&["man", path.to_str().unwrap()]);
    for (words, help) in all_commands() {
        let name = [&["ionian".to_owned()], &words[..]].concat().join("-");
        let page = path.join(format!("man1/{name}.1"));
        let written = fs::read_to_string(&page).unwrap();
        let plain = written.replace("\\-", "-").replace("\\fR", " ");
        for flag in flags(&help) {
            assert!(plain.contains(flag), "{name}.1 lacks {flag}: {written}");
        }
        for heading in ["\"EXIT STATUS\"", "FILES", "EXAMPLES"] {
            assert!(
                plain.contains(&format!(".SH {heading}\n")),
                "{name}.1 lacks {heading}"
            );
        }
        check(&["mandoc", "-T", "lint", "-W", "error"], &page);
    }
    let status = fs::read_to_string(path.join("man1/ionian-status.1")).unwrap();
    assert!(status.contains("degraded"), "{status}");
}

#[test]
fn the_page_of_the_deployment_file_has_every_option() {
    let directory = Directory::new();
    works(&["man", directory.path("man").to_str().unwrap()]);
    let page = directory.path("man/man5/ionian.toml.5");
    let written = fs::read_to_string(&page).unwrap();
    let presets = works(&["config", "presets"]);
    for preset in presets.lines().filter_map(|line| line.split(' ').next()) {
        let file = works(&["config", "init", "--preset", preset, "-"]);
        let (_, options) = file.split_once("[options]").unwrap();
        let (options, _) = options.split_once("\n\n").unwrap();
        let keys = options
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(" = "));
        for key in keys.map(|(key, _)| key.trim_start_matches("# ")) {
            let tag = format!("\\fB{key}\\fR\n");
            assert!(written.contains(&tag), "{preset}: no {key}: {written}");
        }
    }
    check(&["mandoc", "-T", "lint", "-W", "error"], &page);
}

/// What a shell offers for the last word, without the meanings.
fn offers(shell: &str, words: &[&str]) -> Vec<String> {
    let line = [&["completions", shell, "--", "ionian"], words].concat();
    let offered = works(&line);
    let words = offered
        .lines()
        .filter_map(|it| it.split(['\t', ':']).next());
    words.map(str::to_owned).collect()
}

#[test]
fn completions_of_each_shell_parse_and_know_every_command() {
    let directory = Directory::new();
    let commands = all_commands();
    for shell in ["bash", "zsh", "fish"] {
        let file = directory.path(shell);
        fs::write(&file, works(&["completions", shell])).unwrap();
        check(&[shell, "-n"], &file);
        for (words, help) in &commands {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if let Some((last, before)) = words.split_last() {
                let offered = offers(shell, &[before, &[""]].concat());
                assert!(offered.iter().any(|it| it == last), "{shell}: {words:?}");
            }
            let offered = offers(shell, &[&words[..], &["--"]].concat());
            for flag in flags(help) {
                let is_offered = offered.iter().any(|it| it == flag);
                assert!(is_offered, "{shell}: {words:?} {flag}");
            }
        }
    }
}

#[test]
fn completions_know_presets_settings_and_the_nodes_of_a_cluster() {
    let directory = Directory::new();
    let file = directory.path("cluster.toml").display().to_string();
    works(&["config", "init", "--nodes", "5", &file]);
    let nodes = ["n0", "n1", "n2", "n3", "n4"];
    for words in [
        &["drain"][..],
        &["member", "remove"],
        &["member", "replace"],
        &["node"],
    ] {
        let line = [words, &["--config", &file, "n"]].concat();
        assert_eq!(offers("bash", &line), nodes, "{words:?}");
    }
    // Of a directory, as `ionian up` writes it; without one there are none.
    let data = directory.path("data");
    assert_eq!(
        offers("bash", &["drain", "--data", data.to_str().unwrap(), ""]),
        [""; 0]
    );
    fs::create_dir(&data).unwrap();
    fs::copy(&file, data.join("deployment.toml")).unwrap();
    assert_eq!(
        offers("bash", &["drain", "--data", data.to_str().unwrap(), ""]),
        nodes
    );
    // A pipe without a writer keeps no shell waiting.
    let (file_of_data, data) = (data.join("deployment.toml"), data.to_str().unwrap());
    fs::remove_file(&file_of_data).unwrap();
    nix::unistd::mkfifo(&file_of_data, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for given in [
        ["--data", data],
        ["--config", file_of_data.to_str().unwrap()],
    ] {
        let words = [&["drain"], &given[..], &[""]].concat();
        assert_eq!(offers("bash", &words), [""; 0], "{given:?}");
    }
    assert_eq!(
        offers("bash", &["up", "--preset", "craq"]),
        ["craq", "craq-6"]
    );
    assert_eq!(
        offers("bash", &["up", "--set", "options.window_s"]),
        ["options.window_slots="]
    );
    assert_eq!(
        offers("bash", &["up", &file, "--set", "node.n4.ro"]),
        ["node.n4.roles="]
    );
    assert_eq!(
        offers("bash", &["options", "set", "window_s"]),
        ["window_slots="]
    );
    assert_eq!(
        offers("bash", &["options", "set", "loops"]),
        [""; 0],
        "it cannot change"
    );
}
