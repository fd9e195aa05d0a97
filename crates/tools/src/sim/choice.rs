//! From flags to a scenario, and back to the flags that repeat it.

use crate::arguments::{self, BadUsage, Survives};
use crate::family;
use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use ionian_deployment::{DEFAULT_PRESET, Deployment, Node, PresetOptions};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::spaxos::SPaxos;
use ionian_sim::{Canary, Durability, Scenario, variations};

/// Defects that the simulator builds into any protocol.
const DRIVER_CANARIES: [(&str, Canary); 7] = [
    ("no-fence", Canary::NoFence),
    ("forget-disk", Canary::ForgetDisk),
    ("ignores-disk-errors", Canary::IgnoresDiskErrors),
    ("hide-amnesia", Canary::HideAmnesia),
    ("gives-up-alone", Canary::GivesUpAlone),
    ("reads-ahead", Canary::ReadsAhead),
    ("hides-deadlines", Canary::HidesDeadlines),
];

/// What is simulated.
pub(crate) struct Choice {
    pub(crate) deployment: Deployment,
    pub(crate) canary_name: Option<String>,
    canary: Canary,
    durability: Survives,
    changes: bool,
}

/// The defects that can be built into any protocol, in a line.
pub(crate) fn driver_canary_names() -> String {
    DRIVER_CANARIES.map(|(name, _)| name).join(", ")
}

/// The names of the canaries, for the help text: every protocol's own.
pub(crate) fn canary_names() -> String {
    let of = |protocol: &&str| {
        Some(format!(
            "{protocol}: {}",
            own_canaries(protocol).ok()?.join(", ")
        ))
    };
    let has_some = |protocol: &&&str| own_canaries(protocol).is_ok_and(|own| !own.is_empty());
    ionian_protocols::registry::NAMES
        .iter()
        .filter(has_some)
        .filter_map(of)
        .collect::<Vec<_>>()
        .join("; ")
}

/// The defects that can be built into the roles of a protocol.
fn own_canaries(protocol: &str) -> Result<Vec<&'static str>> {
    struct Names;
    impl family::Work for Names {
        type Output = Vec<&'static str>;
        fn run<P: Protocol>(self) -> Self::Output {
            P::canaries()
        }
    }
    family::with_protocol(protocol, Names)
}

impl Choice {
    pub(crate) fn of(arguments: &arguments::Sim) -> Result<Self> {
        let deployment = deployment(arguments)?;
        if let Some(wanted) = &arguments.protocol {
            let found = &deployment.protocol;
            ensure!(
                wanted == found,
                "--protocol {wanted}: the deployment runs {found}"
            );
        }
        let canary_name = arguments.canary.clone();
        let canary = canary_name
            .as_deref()
            .map_or(Ok(Canary::None), |name| canary(&deployment.protocol, name))?;
        let durability = arguments.durability.unwrap_or(match canary {
            Canary::HideAmnesia | Canary::Named("amnesia") => Survives::Amnesia,
            // It takes an acceptor that stays away.
            Canary::Named("l8") => Survives::Memory,
            _ => Survives::Disk,
        });
        // That defect shows only when something changes.
        let changes = arguments.changes || canary == Canary::Named("at-once");
        Ok(Choice {
            deployment,
            canary_name,
            canary,
            durability,
            changes,
        })
    }

    pub(crate) fn scenario<P: Protocol>(&self, arguments: &arguments::Sim) -> Result<Scenario> {
        let layout = self.deployment.layout(P::KINDS)?;
        family::configure::<P>(layout.clone())?;
        let place = |role| {
            P::KINDS
                .iter()
                .position(|kind| *kind == role)
                .map(|place| place as u8)
        };
        let changes = match (self.changes, place("acceptor").zip(place("replica"))) {
            (true, Some((acceptor, replica))) if P::transition(&layout, &layout).is_ok() => {
                variations(&layout, acceptor, replica)
            }
            (true, _) if P::check_tunable().is_ok() => Vec::new(),
            (true, _) => bail!(BadUsage(format!(
                "--changes: {} cannot be changed while it runs",
                P::NAME
            ))),
            (false, _) => Vec::new(),
        };
        let base = Scenario::new(self.name(arguments), layout);
        Ok(Scenario {
            durability: match self.durability {
                Survives::Disk => Durability::Disk,
                Survives::Memory => Durability::Memory { returns: false },
                Survives::Amnesia => Durability::Memory { returns: true },
            },
            read_levels: arguments
                .reads
                .map_or(base.read_levels.clone(), |level| vec![level.read_level()]),
            operations: arguments.operations,
            canary: self.canary,
            changes,
            tunes: self.changes,
            gives_up: self.canary == Canary::GivesUpAlone,
            stable_log: !P::EXECUTES_BEFORE_STABLE,
            ..base
        })
    }

    fn name(&self, arguments: &arguments::Sim) -> String {
        match (&arguments.config, &arguments.preset) {
            (Some(file), _) => format!("{} of {}", self.deployment.protocol, file.display()),
            (None, Some(preset)) => preset.clone(),
            (None, None) => self.deployment.protocol.clone(),
        }
    }

    /// The command that runs this seed again and writes its trace.
    pub(crate) fn replay(&self, seed: u64, arguments: &arguments::Sim) -> String {
        let mut words = vec![
            "ionian sim".to_owned(),
            format!("--protocol {}", self.deployment.protocol),
        ];
        let mut say = |flag: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{flag} {}", quoted(&value))));
        };
        say("preset", arguments.preset.clone());
        say(
            "config",
            arguments
                .config
                .as_ref()
                .map(|file| file.display().to_string()),
        );
        for change in &arguments.overrides {
            say("set", Some(change.clone()));
        }
        say("seed", Some(seed.to_string()));
        say(
            "durability",
            self.durability
                .to_possible_value()
                .map(|value| value.get_name().to_owned()),
        );
        say(
            "reads",
            arguments.reads.map(|level| level.name().to_owned()),
        );
        say("operations", Some(arguments.operations.to_string()));
        say("canary", self.canary_name.clone());
        say("trace", Some(format!("seed-{seed}.trace")));
        if self.changes {
            words.push("--changes".to_owned());
        }
        words.join(" ")
    }
}

/// The deployment of the flags, or the smallest one in which the protocol, or the canary, shows.
fn deployment(arguments: &arguments::Sim) -> Result<Deployment> {
    let base = match (
        &arguments.config,
        &arguments.preset,
        arguments.protocol.as_deref(),
    ) {
        (Some(file), _, _) => Deployment::load(file)?,
        (None, Some(name), _) => preset(name)?,
        // A window of one slot makes payloads void within reach of a run.
        (None, None, Some(SPaxos::NAME)) if arguments.canary.as_deref() == Some("void") => {
            preset(SPaxos::NAME)?.with_overrides(&["options.window_slots=1"])?
        }
        // Of the others the smallest preset bears the protocol's name.
        (None, None, Some(other)) if other != MultiPaxos::NAME => preset(other)?,
        (None, None, _) => {
            // Batchers hide the slot that l5 is about: they propose so often that it is soon
            // filled.
            let l5 = arguments.canary.as_deref() == Some("l5");
            let preset = preset(if l5 { "baseline" } else { DEFAULT_PRESET })?;
            if matches!(arguments.canary.as_deref(), Some("s1" | "s7")) {
                grid(preset)
            } else {
                preset
            }
        }
    };
    Ok(base.with_overrides(&arguments.overrides)?)
}

fn preset(name: &str) -> Result<Deployment> {
    Ok(Deployment::preset(name, &PresetOptions::default())?)
}

/// Acceptors in rows longer than f+1, for defects that only such a grid shows: the nodes of `base`
/// twice, in a 2x3 grid.
fn grid(base: Deployment) -> Deployment {
    let again = base.nodes.iter().map(|node| Node {
        name: format!("{}-again", node.name),
        // A simulation listens nowhere; the address must only differ.
        address: node.address.replace("127.0.0.1", "127.0.0.2"),
        roles: node.roles.clone(),
        ..Node::default()
    });
    let nodes = base.nodes.iter().cloned().chain(again).collect();
    Deployment {
        quorums: QuorumSpec::Grid {
            rows: 2,
            columns: 3,
        },
        nodes,
        ..base
    }
}

fn canary(protocol: &str, name: &str) -> Result<Canary> {
    if let Some((_, canary)) = DRIVER_CANARIES.iter().find(|(known, _)| *known == name) {
        return Ok(*canary);
    }
    let own = own_canaries(protocol)?;
    if let Some(known) = own.iter().find(|known| **known == name) {
        return Ok(Canary::Named(known));
    }
    let known: Vec<&str> = DRIVER_CANARIES
        .iter()
        .map(|(name, _)| *name)
        .chain(own)
        .collect();
    bail!(BadUsage(format!(
        "there is no canary {name:?} for {protocol}: there are {}",
        known.join(", ")
    )))
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    let plain = word
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_./=,:@+".contains(&byte));
    if plain && !word.is_empty() {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_protocols::unreplicated::Unreplicated;

    #[test]
    fn every_canary_of_the_help_text_is_known() {
        for protocol in ionian_protocols::registry::NAMES {
            for name in own_canaries(protocol).unwrap() {
                assert_eq!(canary(protocol, name).unwrap(), Canary::Named(name));
            }
        }
        let error = canary(Unreplicated::NAME, "s1").unwrap_err().to_string();
        assert!(error.ends_with("there are no-fence, forget-disk, ignores-disk-errors, hide-amnesia, gives-up-alone, reads-ahead, hides-deadlines"), "{error}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("node.n0.roles=a,b"), "node.n0.roles=a,b");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
