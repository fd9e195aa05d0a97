//! One scripted scenario from a file, on the cluster that it names.

use crate::family::{self, Work};
use crate::output::say;
use anyhow::{Context, Result, anyhow};
use ionian_deployment::Settings;
use ionian_kernel::protocol::Protocol;
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
    let performance = Performance {
        play: &play,
        setup,
        rewrite,
    };
    let done = family::with_protocol(&setup.protocol, performance)
        .and_then(|done| done)
        .with_context(|| name.to_string())?;
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

struct Performance<'a> {
    play: &'a Play,
    setup: &'a Setup,
    rewrite: bool,
}

impl Work for Performance<'_> {
    /// The play written anew, if that was asked for.
    type Output = Result<Option<String>>;

    fn run<P: Protocol>(self) -> Self::Output {
        let mut settings = Settings::default();
        for (key, value) in &self.setup.settings {
            settings.set(key, *value)?;
        }
        let scenario = self.setup.scenario::<P>(settings.options())?;
        let model = Lists::new(KEYS);
        if self.rewrite {
            return Ok(Some(self.play.rewrite::<P>(&scenario, model)?));
        }
        self.play.run::<P>(&scenario, model)?;
        Ok(None)
    }
}
