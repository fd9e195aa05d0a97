//! Which deployments are counted, and with which commands: every preset of every protocol, with
//! writes in memory and linearizable reads, and the first preset of each with writes on disks.

use crate::cluster::{Run, begin};
use crate::load::Load;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::client::ReadLevel;

/// One deployment with one kind of command.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    preset: &'static str,
    kind: &'static Kind,
}

/// Commands of one kind.
#[derive(Debug, PartialEq)]
struct Kind {
    /// Its name in `docs/costs.toml`.
    name: &'static str,
    read_fraction: f64,
    durability: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "writes",
        read_fraction: 0.0,
        durability: "memory",
    },
    Kind {
        name: "writes on disk",
        read_fraction: 0.0,
        durability: "disk",
    },
    Kind {
        name: "reads",
        read_fraction: 1.0,
        durability: "memory",
    },
];

impl Case {
    /// All cases, in the order of the registry.
    pub fn all() -> impl Iterator<Item = Case> {
        ionian_deployment::presets().flat_map(|(protocol, preset)| {
            let is_first = protocol.presets.first().map(|it| it.name) == Some(preset.name);
            // What a disk adds is the same for every preset of a protocol.
            let kinds = KINDS.iter();
            let kinds = kinds.filter(move |kind| is_first || kind.durability == "memory");
            kinds.map(|kind| Case {
                preset: preset.name,
                kind,
            })
        })
    }

    /// The case of this name.
    pub fn named(name: &str) -> Option<Case> {
        Case::all().find(|case| case.name() == name)
    }

    /// Its name in `docs/costs.toml`.
    pub fn name(&self) -> String {
        format!("{}, {}", self.preset, self.kind.name)
    }

    /// The deployment, which serves: every lane has had a command answered.
    ///
    /// # Panics
    /// When the deployment does not serve.
    pub fn begin(&self) -> Box<dyn Run> {
        let deployment = Deployment::preset(self.preset, &PresetOptions::default());
        // Replicas keep few executed slots for their peers, so that their logs soon have the size
        // that they keep.
        let settings = [
            "options.retained_slots=1024".to_owned(),
            format!("durability={}", self.kind.durability),
        ];
        let deployment = deployment.and_then(|preset| preset.with_overrides(&settings));
        let load = Load {
            read_fraction: self.kind.read_fraction,
            skew: 0.0,
            read_level: ReadLevel::Linearizable,
            value_bytes: 16,
            pipeline: 1,
            keys: 1000,
            burst: 400,
            filled: false,
            separate_clients: false,
        };
        begin(&deployment.expect("a preset"), &load).expect("a preset")
    }
}
