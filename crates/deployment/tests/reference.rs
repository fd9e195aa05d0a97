//! `docs/reference.md` is written from what protocols declare: presets, settings and metrics.

use ionian_deployment::{at_start, settings};
use ionian_kernel::protocol::Description;
use ionian_kernel::setting::Setting;
use ionian_kernel::status::{Kind, Metrics, each};
use ionian_protocols::registry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");

/// What every role reports where it applies to its kind, in words.
const FIELDS: &str = "\
| field | of | meaning |
|---|---|---|
| `leads` | leaders | `own`: it leads its own part of the log, all of it where there is one leader; `others`: \
how many parts of other leaders it leads; `elections`: how often it has begun a round of its own |
| `epoch`, `round` | roles with a round | the round that it leads, works for or has promised; a later epoch counts before \
a higher round |
| `executed` | roles that execute | it has executed all slots below this one |
| `log_end` | roles that learn the log | as far as it knows, the log ends before this slot |
| `stored` | roles that store snapshots | below this slot it needs the log no more |
| `snapshots_installed` | roles that store snapshots | how often it has taken over the snapshot of another instance |
| `voted` | roles that vote | it has not voted in this slot or any after it |
| `remembers` | roles with a memory that others rely on | false while it has lost what earlier processes of its node \
kept for it |
| `current` | roles that execute | false while it catches up: it does not hold what was chosen some seconds ago |
| `unanswered_ms` | client lanes | for how long the oldest request is not answered; absent if none waits |
| `has_session` | client lanes | false while the cluster does not know its session, and it serves no client |
";

fn page() -> String {
    let mut text = "\
# Reference

Written from what the protocols declare, by\n`WRITE_DOCS=1 cargo test -p ionian-deployment --test reference`.

## Presets

`ionian up --preset NAME` starts one, `ionian config init --preset NAME` writes its deployment file.

| preset | protocol | what it is |
|---|---|---|
"
    .to_owned();
    for protocol in registry::ALL {
        for preset in protocol.presets {
            let (name, about) = (preset.name, preset.about);
            let _ = writeln!(text, "| `{name}` | `{}` | {about} |", protocol.name);
        }
    }
    text += "
## Settings

The keys of `[options]` in a deployment file and of `--set options.KEY=VALUE`. Nodes must\nagree on those that are *shared*; `ionian options set` changes any for all nodes while the cluster\nruns, except those that a node takes *when it starts*.

";
    let common: Vec<&Setting> = settings("").collect();
    text += &table(&common);
    for (protocols, own) in settings_of_protocols() {
        let names: Vec<String> = protocols.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(" and ");
        let _ = write!(text, "\nOf {names} only:\n\n{}", table(&own));
    }
    let _ = write!(
        text,
        "\n## What roles report\n\n`ionian status --json` has for each role instance these fields, where they apply to its \
         kind:\n\n{FIELDS}\nand as `metrics` what its protocol declares. Counters begin with 0 when the process starts.\n"
    );
    let mut told: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut order = Vec::new();
    for protocol in registry::ALL {
        for (kind, metrics) in protocol.kinds.iter().zip(protocol.metrics) {
            let rows = metrics_of(metrics);
            let key = format!("\n### {}\n\nWhere: PROTOCOLS\n\n{rows}", title(kind));
            if !rows.is_empty() {
                let protocols = told.entry(key.clone()).or_default();
                if protocols.is_empty() {
                    order.push(key);
                }
                protocols.push(protocol.name);
            }
        }
    }
    for key in order {
        let names: Vec<String> = told[&key].iter().map(|name| format!("`{name}`")).collect();
        text += &key.replace("Where: PROTOCOLS", &format!("In {}.", names.join(", ")));
    }
    text
}

/// The settings that protocols declare, by the protocols that have them.
fn settings_of_protocols() -> Vec<(Vec<&'static str>, Vec<&'static Setting>)> {
    let mut groups: Vec<(Vec<&str>, Vec<&Setting>)> = Vec::new();
    let mut known = BTreeSet::new();
    for setting in registry::ALL.iter().flat_map(|protocol| protocol.settings) {
        if !known.insert(setting.key) {
            continue;
        }
        let has = |one: &&Description| one.settings.iter().any(|it| it.key == setting.key);
        let names = registry::ALL.iter().filter(has).map(|one| one.name);
        let names: Vec<&str> = names.collect();
        match groups.iter_mut().find(|(protocols, _)| *protocols == names) {
            Some((_, settings)) => settings.push(setting),
            None => groups.push((names, vec![setting])),
        }
    }
    groups
}

fn title(kind: &str) -> String {
    let words = kind.replace('_', " ");
    words[..1].to_uppercase() + &words[1..]
}

fn table(settings: &[&Setting]) -> String {
    let mut text =
        "| key | default | from | to | | meaning |\n|---|---|---|---|---|---|\n".to_owned();
    for setting in settings {
        let how = match (setting.shared, at_start(setting)) {
            (true, _) => "shared",
            (_, Some(_)) => "when it starts",
            _ => "",
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {how} | {} |",
            setting.key,
            setting.default(),
            setting.allowed.start(),
            setting.allowed.end(),
            setting.about
        );
    }
    text
}

fn metrics_of(metrics: Metrics) -> String {
    let mut text = String::new();
    for metric in each(metrics) {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let (name, unit, help) = (metric.name, metric.unit, metric.help);
        let _ = writeln!(text, "| `{name}` | {kind} | {unit} | {help} |");
    }
    match text.is_empty() {
        true => text,
        false => format!("| metric | kind | unit | meaning |\n|---|---|---|---|\n{text}"),
    }
}

#[test]
fn the_reference_page_equals_the_declarations() {
    let page = page();
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    let first = page.lines().zip(written.lines()).find(|(a, b)| a != b);
    assert!(
        page == written,
        "docs/reference.md does not say what is declared; WRITE_DOCS=1 writes it anew: {first:?}"
    );
}

#[test]
fn no_role_reports_two_metrics_with_one_name() {
    let fields = [
        "leading",
        "epoch",
        "round",
        "executed",
        "log_end",
        "stored",
        "voted",
        "remembers",
        "current",
        "unanswered_ms",
    ];
    for Description { name, metrics, .. } in registry::ALL {
        for metrics in *metrics {
            let mut known: BTreeSet<&str> = fields.into();
            for metric in each(metrics) {
                assert!(known.insert(metric.name), "{name}: {}", metric.name);
                assert!(!metric.help.is_empty(), "{name}: {}", metric.name);
            }
        }
    }
}
