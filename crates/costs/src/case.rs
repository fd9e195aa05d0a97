//! Which deployments are measured, and with which commands: every preset of every protocol, with
//! writes in memory, writes on disks, and linearizable reads.

use crate::cluster::{Cluster, Run};
use crate::load::Load;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::layout::{Layout, Options};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::registry::{self, Work};

/// Executed slots that a replica keeps for its peers: few, so that its log soon has the size that
/// it keeps.
const RETAINED_SLOTS: usize = 1024;

/// One deployment with one kind of command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    preset: &'static str,
    protocol: &'static str,
    /// Which commands arrive.
    pub load: Load,
}

impl Case {
    /// All cases, in the order of the registry.
    pub fn all() -> impl Iterator<Item = Case> {
        ionian_deployment::presets().flat_map(|(protocol, preset)| {
            Load::ALL.map(|load| Case {
                preset: preset.name,
                protocol: protocol.name,
                load,
            })
        })
    }

    /// The case of this name.
    pub fn named(name: &str) -> Option<Case> {
        Case::all().find(|case| case.name() == name)
    }

    /// Its name in `docs/costs.toml`.
    pub fn name(&self) -> String {
        format!("{}, {}", self.preset, self.load.name())
    }

    /// The deployment, which serves: every lane has had a command answered.
    ///
    /// # Panics
    /// When the deployment does not serve.
    pub fn begin(&self) -> Box<dyn Run> {
        let deployment = Deployment::preset(self.preset, &PresetOptions::default());
        let work = Begin(deployment.expect("a preset"), self.load);
        registry::with_protocol(self.protocol, work).expect("it is in the registry")
    }
}

struct Begin(Deployment, Load);

impl Work for Begin {
    type Output = Box<dyn Run>;

    fn run<P: Protocol>(self) -> Box<dyn Run> {
        let Begin(deployment, load) = self;
        let layout = deployment.layout(P::KINDS).expect("a layout");
        let options = Options {
            retained_slots: RETAINED_SLOTS,
            ..layout.options
        };
        Box::new(Cluster::<P>::begin(Layout { options, ..layout }, load))
    }
}
