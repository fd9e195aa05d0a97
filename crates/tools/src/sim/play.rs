//! One scripted scenario from a file, on the cluster that it names.

use super::named;
use crate::output::say;
use anyhow::{Context, Result, anyhow};
use ionian_deployment::Settings;
use ionian_sim::machine::Lists;
use ionian_sim::play::{Play, Setup};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// How many keys the simulated service has.
const KEYS: u64 = 3;

pub(super) fn run(file: &Path, rewrite: bool) -> Result<ExitCode> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let play = Play::parse(&text).with_context(|| name.to_string())?;
    let setup = play.setup().ok_or_else(|| {
        anyhow!("{name}: it names no cluster; it must have a line \"protocol NAME\" and lines \"nodes N ROLE...\"")
    })?;
    let done = perform(&play, setup, rewrite).with_context(|| name.to_string())?;
    match done {
        None => say!("{name}: everything happened as the play expects"),
        Some(anew) if anew == text => say!("{name}: the traces are as they were"),
        Some(anew) => {
            fs::write(file, anew).with_context(|| format!("cannot write {name}"))?;
            say!("{name}: wrote the traces anew");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the play written anew, if that was asked for.
fn perform(play: &Play, setup: &Setup, rewrite: bool) -> Result<Option<String>> {
    let protocol = named(&setup.protocol)?;
    let mut settings = Settings::default();
    for (key, value) in &setup.settings {
        settings.set(key, *value)?;
    }
    let scenario = setup.scenario(protocol, settings.options())?;
    let model = Lists::new(KEYS);
    if rewrite {
        return Ok(Some(play.rewrite(protocol, &scenario, model)?));
    }
    play.run(protocol, &scenario, model)?;
    Ok(None)
}
