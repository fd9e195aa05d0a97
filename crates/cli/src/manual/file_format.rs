//! The manual page of deployment files.

use super::page::{item, verbatim};
use super::{MANUAL, NO_DATE, SOURCE};
use anyhow::Result;
use clap_mangen::roff::{Roff, roman};
use ionian_deployment::{DEFAULT_PRESET, Deployment, PresetOptions, settings};
use ionian_kernel::setting::Setting;
use ionian_protocols::registry;
use std::collections::BTreeSet;

/// Writes `ionian.toml(5)`.
pub(super) fn page() -> Result<Vec<u8>> {
    let mut roff = Roff::default();
    roff.control("TH", ["ionian.toml", "5", NO_DATE, SOURCE, MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("ionian.toml - the deployment file of a cluster")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "The nodes of a cluster and the roles on each, as a TOML document. All nodes start with the \
         same file. The file below is that of the default preset, and explains each key; \
         `ionian config init` writes it, `ionian config check` reports mistakes in a file. \
         After the first change of members or options the nodes store the current deployment in \
         their data directories.",
    )]);
    roff.control("SH", ["OPTIONS"]);
    roff.text([roman(
        "The keys of the table [options]. With --set options.KEY=VALUE they override the file. \
         Nodes must agree on those that are shared.",
    )]);
    for setting in settings("") {
        describe(&mut roff, setting, "");
    }
    let mut known = BTreeSet::new();
    for protocol in registry::ALL {
        for setting in protocol.settings.iter().filter(|it| known.insert(it.key)) {
            describe(&mut roff, setting, &format!("; {}", having(setting.key)));
        }
    }
    let preset = Deployment::preset(DEFAULT_PRESET, &PresetOptions::default())?;
    let lines: Vec<String> = preset.to_toml().lines().map(str::to_owned).collect();
    verbatim(&mut roff, "EXAMPLES", &lines);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("ionian(1), ionian-config(1), ionian-options(1)")]);
    let mut text = Vec::new();
    roff.to_writer(&mut text)?;
    Ok(text)
}

/// The protocols that have this setting of their own.
fn having(key: &str) -> String {
    let has = |settings: &[Setting]| settings.iter().any(|it| it.key == key);
    let protocols = registry::ALL.iter().filter(|one| has(one.settings));
    let names: Vec<&str> = protocols.map(|one| one.name).collect();
    format!("of {}", names.join(", "))
}

fn describe(roff: &mut Roff, setting: &Setting, whose: &str) {
    let (low, high) = (setting.allowed.start(), setting.allowed.end());
    let shared = if setting.shared { "; shared" } else { "" };
    let (about, default) = (setting.about, setting.default());
    let meaning = format!("{about} ({low} to {high}; default {default}{shared}{whose})");
    item(roff, setting.key, &meaning);
}
