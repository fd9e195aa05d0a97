//! From flags to a scenario, and back to the flags that repeat it.

use super::canaries::Canary;
use crate::arguments::{self, BadUsage, Survives};
use crate::family;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use ionian_deployment::{DEFAULT_PRESET, Deployment, PresetOptions};
use ionian_protocols::registry;
use ionian_sim::{Canary as OfDriver, Durability, Scenario, Simulated, layouts, variations};
use std::ops::Range;

/// Defects that the simulator builds into any protocol.
const DRIVER_CANARIES: [(&str, OfDriver); 8] = [
    ("no-fence", OfDriver::NoFence),
    ("forget-disk", OfDriver::ForgetDisk),
    ("ignores-disk-errors", OfDriver::IgnoresDiskErrors),
    ("hide-amnesia", OfDriver::HideAmnesia),
    ("gives-up-alone", OfDriver::GivesUpAlone),
    ("reads-ahead", OfDriver::ReadsAhead),
    ("hides-deadlines", OfDriver::HidesDeadlines),
    ("leaves-at-once", OfDriver::LeavesAtOnce),
];

/// The seeds that are run if neither flags nor the canary give others.
const SEEDS: Range<u64> = 0..500;

/// A defect that is built in on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Defect {
    /// In the simulator, around any protocol.
    OfDriver(&'static str, OfDriver),
    /// In the roles of a protocol.
    OfRoles(&'static Canary),
}

/// What is simulated.
pub(crate) struct Choice {
    pub(crate) deployment: Deployment,
    pub(crate) defect: Option<Defect>,
    pub(crate) seeds: Range<u64>,
    durability: Survives,
    changes: bool,
}

/// The defects that can be built into any protocol, in a line.
pub(crate) fn driver_canary_names() -> String {
    DRIVER_CANARIES.map(|(name, _)| name).join(", ")
}

/// How to get the defects of roles.
const WITH_CANARIES: &str = "cargo build --release -p ionian-tools --features canaries";

/// The names of the canaries, for the help text: every protocol's own.
pub(crate) fn canary_names() -> String {
    if cfg!(not(feature = "canaries")) {
        return format!("built in by `{WITH_CANARIES}`");
    }
    let of = |protocol: &&str| {
        let own = Canary::of(protocol).filter(|canary| canary.protocol == *protocol);
        let own: Vec<_> = own.map(|canary| canary.name).collect();
        (!own.is_empty()).then(|| format!("{protocol}: {}", own.join(", ")))
    };
    let all: Vec<_> = registry::NAMES.iter().filter_map(of).collect();
    all.join("; ")
}

impl Defect {
    fn named(protocol: &str, name: &str) -> Result<Defect> {
        let of_driver = DRIVER_CANARIES.iter().find(|(known, _)| *known == name);
        let of_driver = of_driver.map(|(name, canary)| Defect::OfDriver(name, *canary));
        let of_roles = || Canary::named(protocol, name).map(Defect::OfRoles);
        of_driver.or_else(of_roles).ok_or_else(|| {
            let of_driver = DRIVER_CANARIES.iter().map(|(name, _)| *name);
            let known: Vec<_> = of_driver
                .chain(Canary::of(protocol).map(|canary| canary.name))
                .collect();
            let known = known.join(", ");
            let more = match cfg!(feature = "canaries") {
                true => String::new(),
                false => {
                    format!("; those of one protocol (docs/defects.md) need `{WITH_CANARIES}`")
                }
            };
            BadUsage(format!(
                "unknown canary {name:?} for {protocol}; available: {known}{more}"
            ))
            .into()
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Defect::OfDriver(name, _) => name,
            Defect::OfRoles(canary) => canary.name,
        }
    }

    /// The canary that must be active while roles run.
    pub(crate) fn of_roles(self) -> Option<&'static Canary> {
        match self {
            Defect::OfDriver(..) => None,
            Defect::OfRoles(canary) => Some(canary),
        }
    }

    fn of_driver(self) -> OfDriver {
        match self {
            Defect::OfDriver(_, canary) => canary,
            Defect::OfRoles(_) => OfDriver::None,
        }
    }

    /// What must survive a crash for it to show.
    fn durability(self) -> Option<Survives> {
        match self {
            Defect::OfDriver(_, OfDriver::HideAmnesia) => Some(Survives::Amnesia),
            Defect::OfDriver(..) => None,
            Defect::OfRoles(canary) => canary.durability.map(|name| {
                Survives::from_str(name, false).expect("a test reads all declarations")
            }),
        }
    }

    /// Among which seeds it shows.
    fn seeds(self) -> Option<Range<u64>> {
        let seeds = self.of_roles()?.seeds?;
        Some(arguments::seeds(seeds).expect("a test reads all declarations"))
    }
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
        let defect = arguments.canary.as_deref();
        let defect = defect
            .map(|name| Defect::named(&deployment.protocol, name))
            .transpose()?;
        let declared = defect.and_then(Defect::durability);
        let seeds = match arguments.seed {
            Some(seed) => Some(seed..seed + 1),
            None => arguments.seeds.clone(),
        };
        Ok(Choice {
            durability: arguments.durability.or(declared).unwrap_or(Survives::Disk),
            seeds: seeds
                .or_else(|| defect.and_then(Defect::seeds))
                .unwrap_or(SEEDS),
            changes: arguments.changes
                || defect
                    .and_then(Defect::of_roles)
                    .is_some_and(|canary| canary.changes),
            deployment,
            defect,
        })
    }

    /// The canary that must be active while roles run.
    pub(crate) fn canary(&self) -> Option<&'static Canary> {
        self.defect.and_then(Defect::of_roles)
    }

    /// What this seed is run on.
    pub(crate) fn scenario(
        &self,
        simulated: Simulated,
        arguments: &arguments::Sim,
        seed: u64,
    ) -> Result<Scenario> {
        let (protocol, about) = (simulated.protocol(), simulated.description());
        let layout = match arguments.layouts {
            true => layouts::drawn(simulated, seed),
            false => self.deployment.layout(about.kinds)?,
        };
        let checked = protocol.configure(layout.clone());
        checked.with_context(|| family::none_of(about.name))?;
        let changes = match self.changes {
            true if protocol.transition(&layout, &layout).is_ok() => variations(simulated, &layout),
            true if protocol.check_tunable().is_ok() => Vec::new(),
            true => bail!(BadUsage(format!(
                "--changes: {} cannot be changed while it runs",
                about.name
            ))),
            false => Vec::new(),
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
            canary: self.of_driver(),
            changes,
            tunes: self.changes,
            gives_up: self.of_driver() == OfDriver::GivesUpAlone,
            stable_log: !about.executes_before_stable,
            ..base
        })
    }

    fn of_driver(&self) -> OfDriver {
        self.defect.map_or(OfDriver::None, Defect::of_driver)
    }

    fn name(&self, arguments: &arguments::Sim) -> String {
        match (&arguments.config, &arguments.preset) {
            (Some(file), _) => format!("{} of {}", self.deployment.protocol, file.display()),
            (None, Some(preset)) => preset.clone(),
            _ if arguments.layouts => format!("{} on drawn deployments", self.deployment.protocol),
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
        say("canary", self.defect.map(|defect| defect.name().to_owned()));
        say("trace", Some(format!("seed-{seed}.trace")));
        let flags = [
            ("--changes", self.changes),
            ("--layouts", arguments.layouts),
        ];
        let given = flags.into_iter().filter(|(_, given)| *given);
        words.extend(given.map(|(flag, _)| flag.to_owned()));
        words.join(" ")
    }
}

/// The deployment of the flags, or the one in which the canary shows, or the smallest of the
/// protocol.
fn deployment(arguments: &arguments::Sim) -> Result<Deployment> {
    let base = match (&arguments.config, &arguments.preset) {
        (Some(file), _) => Deployment::load(file)?,
        (None, Some(name)) => preset(name)?,
        (None, None) => {
            let smallest = smallest(arguments.protocol.as_deref())?;
            match arguments.canary.as_deref() {
                Some(name) => shows(smallest, name)?,
                None => smallest,
            }
        }
    };
    Ok(base.with_overrides(&arguments.overrides)?)
}

/// The smallest preset of a protocol is its first.
fn smallest(protocol: Option<&str>) -> Result<Deployment> {
    let Some(protocol) = protocol else {
        return preset(DEFAULT_PRESET);
    };
    let first = registry::description(protocol).and_then(|known| known.presets.first());
    preset(first.map_or(protocol, |first| first.name))
}

/// The deployment in which a canary shows. One that the protocol has from another declares
/// deployments of the other.
fn shows(smallest: Deployment, name: &str) -> Result<Deployment> {
    let canary = Canary::named(&smallest.protocol, name);
    let Some(canary) = canary.filter(|canary| canary.protocol == smallest.protocol) else {
        return Ok(smallest);
    };
    let base = canary.preset.map_or(Ok(smallest), preset)?;
    Ok(base.with_overrides(canary.set)?)
}

fn preset(name: &str) -> Result<Deployment> {
    Ok(Deployment::preset(name, &PresetOptions::default())?)
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
    use ionian_kernel::protocol::Protocol;
    use ionian_protocols::unreplicated::Unreplicated;

    #[test]
    fn every_canary_of_every_protocol_is_known_and_declares_what_can_be_simulated() {
        for protocol in registry::NAMES {
            for canary in Canary::of(protocol) {
                let known = Defect::named(protocol, canary.name).unwrap();
                assert_eq!(known, Defect::OfRoles(canary));
                // These read the declarations.
                let _ = (known.durability(), known.seeds());
                let deployment = shows(smallest(Some(protocol)).unwrap(), canary.name).unwrap();
                assert_eq!(deployment.protocol, *protocol);
                family::check(&deployment).unwrap();
            }
        }
        let error = Defect::named(Unreplicated::NAME, "s1")
            .unwrap_err()
            .to_string();
        let more = match cfg!(feature = "canaries") {
            true => "",
            false => {
                "; those of one protocol (docs/defects.md) need `cargo build --release -p ionian-tools --features canaries`"
            }
        };
        assert!(error.ends_with(&format!("available: no-fence, forget-disk, ignores-disk-errors, hide-amnesia, gives-up-alone, reads-ahead, hides-deadlines, leaves-at-once{more}")), "{error}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("node.n0.roles=a,b"), "node.n0.roles=a,b");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
