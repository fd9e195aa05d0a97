//! Backups at regular times: what the unit runs, which files stay, and what a failure leaves.

use super::{DISK, assert_has, at, inspect, refused, restore, set};
use crate::cluster::{Cluster, Directory, eventually, fails, run, text};
use crate::service::{self, unit, value};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

/// The folders of the unit, in the directory of a cluster.
struct Unit<'a>(&'a Cluster);

impl<'a> Unit<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        for name in ["backups", "cache"] {
            fs::create_dir(cluster.directory.path(name)).unwrap();
        }
        Unit(cluster)
    }

    /// What the unit runs, with its own settings but for this one.
    fn command(&self, keep: Option<&str>) -> Vec<String> {
        let unit = unit(service::BACKUP);
        let usual = value(&unit, "Environment").strip_prefix("IONIAN_BACKUP_KEEP=");
        let keep = keep.or(usual).unwrap();
        let words = value(&unit, "ExecStart").split(' ');
        let words = words.filter(|word| *word != "$IONIAN_BACKUP_OPTIONS");
        let words: Vec<String> = words
            .map(|word| match word {
                "/usr/bin/ionian" => env!("CARGO_BIN_EXE_ionian").to_owned(),
                "/var/lib/ionian" => self.0.data(),
                "/var/lib/ionian-backup" => at(&self.0.directory, "backups"),
                "${IONIAN_BACKUP_KEEP}" => keep.to_owned(),
                word => word.replace("/var/cache/ionian-backup", &at(&self.0.directory, "cache")),
            })
            .collect();
        assert!(!words.iter().any(|it| it.contains("/var/")), "{words:?}");
        words
    }

    /// Makes a backup, in the next second if there is one of this second.
    fn works(&self, keep: Option<&str>) {
        let command = self.command(keep);
        let words: Vec<&str> = command[1..].iter().map(String::as_str).collect();
        eventually("a second without a backup", || {
            let output = run(&words);
            let error = text(&output.stderr);
            let again = error.contains("there can be one backup a second");
            assert!(output.status.success() || again, "{error}");
            output.status.success().then_some(())
        });
    }

    /// Runs it in a shell, after this.
    fn after(&self, first: &str) -> Output {
        let first = format!("{first} && exec \"$@\"");
        let mut command = Command::new("sh");
        let command = command.args(["-c", &first, "sh"]);
        command.args(self.command(Some("1"))).output().unwrap()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.directory.path("backups")).unwrap();
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|it| it != "old.lock").collect();
        names.sort();
        names
    }

    fn path(&self, file: &str) -> String {
        at(&self.0.directory, &format!("backups/{file}"))
    }

    fn metrics(&self) -> String {
        fs::read_to_string(self.0.directory.path("cache/ionian_backup.prom")).unwrap()
    }
}

#[test]
fn the_unit_keeps_the_newest_backups_and_a_new_cluster_starts_from_one() {
    let cluster = Cluster::start("colocated", DISK, &[]);
    let mut client = cluster.client(0);
    let unit = Unit::new(&cluster);
    (0..10).for_each(|number| set(&mut client, number));
    unit.works(None);
    fs::write(unit.path("old-monday.snapshot"), "of an operator").unwrap();
    unit.works(None);
    let before = unit.files();
    assert_eq!(before.len(), 3, "{before:?}");
    (10..20).for_each(|number| set(&mut client, number));
    unit.works(Some("2"));
    let after = unit.files();
    assert_eq!(after.len(), 3, "{after:?}");
    assert_eq!((&after[0], &after[2]), (&before[1], &before[2]));

    let newest = unit.path(&after[1]);
    let head = inspect(&newest);
    assert_eq!(
        (head["keys"].as_u64(), head["complete"].as_bool()),
        (Some(20), Some(true))
    );
    let sample = format!("{{cluster=\"old\"}} {}\n", head["time"]);
    assert!(unit.metrics().ends_with(&sample), "{}", unit.metrics());
    assert_has(&restore("colocated", &newest), 20);
}

/// A file size limit stands for a full disk.
#[test]
fn a_backup_that_fails_leaves_the_earlier_one() {
    let cluster = Cluster::start("colocated", DISK, &[]);
    let mut client = cluster.client(0);
    // More than the limit, which is 2 or 4 KiB.
    (0..300).for_each(|number| set(&mut client, number));
    let unit = Unit::new(&cluster);
    unit.works(None);
    let (files, metrics) = (unit.files(), unit.metrics());
    let unchanged = |unit: &Unit<'_>| {
        assert_eq!(unit.files(), files);
        assert_eq!(unit.metrics(), metrics);
        inspect(&unit.path(&files[0]));
    };
    eventually("a second without a backup", || {
        let output = unit.after("trap '' XFSZ; ulimit -f 4");
        let error = text(&output.stderr);
        assert_eq!(
            (output.status.code(), error.lines().count()),
            (Some(1), 1),
            "{error}"
        );
        unchanged(&unit);
        error.contains("File too large").then_some(())
    });

    // Killed while it writes.
    let output = unit.after("ulimit -c 0; ulimit -f 4");
    assert_eq!(output.status.signal(), Some(Signal::SIGXFSZ as i32));
    let left = unit.files();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().any(|name| name.ends_with(".snapshot.tmp")));
    unit.works(Some("2"));
    let two = unit.files();
    assert_eq!((two.len(), &two[0]), (2, &files[0]));
    assert!(two[1].ends_with(".snapshot"));

    // Nothing answers.
    let command = unit.command(Some("1"));
    let words: Vec<&str> = command[1..].iter().map(String::as_str).collect();
    let left = (unit.files(), unit.metrics());
    let nodes = 0..cluster.deployment.nodes.len();
    nodes.for_each(|place| cluster.signal(place, Signal::SIGSTOP));
    refused(1, &words);
    assert_eq!((unit.files(), unit.metrics()), left);
}

#[test]
fn odd_requests_are_refused_before_a_node_is_asked() {
    let directory = Directory::new();
    fs::create_dir(directory.path("there")).unwrap();
    fs::create_dir(directory.path("there/x.prom")).unwrap();
    fs::write(directory.path("file"), "").unwrap();
    let (there, file) = (at(&directory, "there"), at(&directory, "file"));
    let into = ["--into", &there, "--keep", "1"];
    let with = |more: &[&'static str]| [&into[..], more].concat();
    let metrics = |path: &str| at(&directory, path);
    let (text, none, folder) = (
        metrics("there/x.txt"),
        metrics("none/x.prom"),
        metrics("there/x.prom"),
    );
    for (arguments, code, says) in [
        (vec![], 2, "<FILE>"),
        (vec!["--into", &there], 2, "--keep <N>"),
        (vec!["--keep", "3"], 2, "<FILE>"),
        (vec![&*file, "--keep", "3"], 2, "cannot be used with"),
        (vec![&*file, "--metrics", &folder], 2, "cannot be used with"),
        (with(&["file"]), 2, "cannot be used with"),
        (with(&["--allow-stale"]), 2, "cannot be used with"),
        (with(&["--stopped", "node"]), 2, "cannot be used with"),
        (
            vec!["--into", &there, "--keep", "0"],
            2,
            "0 is not in 1..=10000",
        ),
        (vec!["--into", &there, "--keep", "x"], 2, "invalid digit"),
        (
            vec!["--into", &none, "--keep", "1"],
            1,
            "there is no such directory",
        ),
        (
            vec!["--into", &file, "--keep", "1"],
            1,
            "there is no such directory",
        ),
        (
            [&into[..], &["--metrics", &text]].concat(),
            2,
            "ends with .prom",
        ),
        (
            [&into[..], &["--metrics", &none]].concat(),
            1,
            "a directory that exists",
        ),
        (
            [&into[..], &["--metrics", &folder]].concat(),
            1,
            "a directory that exists",
        ),
    ] {
        fails(
            &[&["snapshot", "save"], &arguments[..]].concat(),
            code,
            says,
        );
    }
    let left = fs::read_dir(&there).unwrap().count();
    assert_eq!(left, 1);
}
