//! The shapes of deployments on which a protocol is tried: its presets, what follows from them, and
//! what is drawn at random.

use core::ops::Range;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::protocol::Description;
use ionian_sim::{Durability, Scenario, Simulated, layouts};

/// Nodes that stop have lost their memory, and stay away.
pub(crate) const MEMORY: Durability = Durability::Memory { returns: false };
/// Nodes that stop have lost their memory, and come back.
pub(crate) const AMNESIA: Durability = Durability::Memory { returns: true };

fn scenario(protocol: Simulated, name: impl Into<String>, layout: Layout) -> Scenario {
    Scenario {
        stable_log: !protocol.description().executes_before_stable,
        ..Scenario::new(name, layout)
    }
}

/// The deployments that come with the protocol.
pub(crate) fn presets(protocol: Simulated) -> Vec<Scenario> {
    let Description {
        name,
        kinds,
        presets,
        ..
    } = protocol.description();
    let presets = presets.iter().map(|preset| {
        let deployment = Deployment::preset(preset.name, &PresetOptions::default());
        let layout = deployment.and_then(|deployment| deployment.layout(kinds));
        scenario(
            protocol,
            preset.name,
            layout.expect("a preset is a deployment"),
        )
    });
    let presets: Vec<_> = presets.collect();
    assert!(!presets.is_empty(), "{name} has no preset");
    presets
}

/// The deployments that come with the protocol, but for those with dozens of instances of a role:
/// a run of these takes as long as twenty others, and only [`all`] has them.
pub(crate) fn usual(protocol: Simulated) -> impl Iterator<Item = Scenario> {
    const FEW: usize = 12;
    let presets = presets(protocol).into_iter();
    presets.filter(|preset| {
        let mut roles = preset.layout.instances.iter();
        roles.all(|places| places.iter().count() <= FEW)
    })
}

/// The smallest deployment that comes with the protocol.
pub(crate) fn smallest(protocol: Simulated) -> Scenario {
    let presets = presets(protocol).into_iter();
    let smallest = presets.min_by_key(|preset| preset.layout.nodes().len());
    smallest.expect("a protocol has presets")
}

/// All shapes.
pub(crate) fn all(protocol: Simulated) -> Vec<Scenario> {
    let mut shapes = presets(protocol);
    shapes.extend(fewest(protocol));
    shapes.extend(parted(protocol));
    let base = smallest(protocol);
    for level in [
        ReadLevel::Linearizable,
        ReadLevel::Sequential,
        ReadLevel::Eventual,
    ] {
        shapes.push(Scenario {
            name: format!("{} with {level:?} reads", base.name),
            read_levels: vec![level],
            ..base.clone()
        });
    }
    shapes.push(one_slot_at_a_time(base));
    shapes
}

/// The smallest preset with f+1 of what executes, if it has more and the protocol accepts that:
/// after f failures a single one is left.
pub(crate) fn fewest(protocol: Simulated) -> Option<Scenario> {
    let base = smallest(protocol);
    let mut layout = base.layout.clone();
    let fewest = layout.f + 1;
    for kind in protocol.description().executors {
        let places = &mut layout.instances[usize::from(*kind)];
        *places = places.iter().take(fewest).collect();
    }
    protocol.protocol().configure(layout.clone()).ok()?;
    let is_fewer = layout.instances != base.layout.instances;
    let name = format!("{} with f+1 of what executes", base.name);
    is_fewer.then(|| scenario(protocol, name, layout))
}

/// The smallest preset with what executes, and clients, on nodes of their own, and with one more of
/// what executes, if the protocol accepts that: it may be cut off from the others alone.
pub(crate) fn parted(protocol: Simulated) -> Option<Scenario> {
    const APART: u16 = 100;
    let base = smallest(protocol);
    let mut layout = base.layout.clone();
    for (kind, places) in (0..).zip(&mut layout.instances) {
        let count = places.iter().count() as u16;
        let nodes = match kind == 0 || protocol.description().executors.contains(&kind) {
            true => 0..count + 1,
            false => APART..APART + count,
        };
        *places = nodes.map(NodeId).collect::<Vec<_>>().into();
    }
    protocol.protocol().configure(layout.clone()).ok()?;
    let name = format!("{} with what executes apart", base.name);
    Some(scenario(protocol, name, layout))
}

/// Deployments of which no preset has the like.
pub(crate) fn drawn(protocol: Simulated, seeds: Range<u64>) -> impl Iterator<Item = Scenario> {
    seeds.map(move |seed| {
        let layout = layouts::drawn(protocol, seed);
        scenario(protocol, layouts::in_words(protocol, &layout), layout)
    })
}

/// Limits that count slots are reached all the time.
fn one_slot_at_a_time(base: Scenario) -> Scenario {
    let mut layout = base.layout;
    layout.options.window_slots = 1;
    Scenario {
        name: format!("{} with a window of one slot", base.name),
        layout,
        ..base
    }
}

/// What can survive a crash: where no node may fail, none keeps what another loses.
pub(crate) fn durabilities(scenario: &Scenario) -> &'static [Durability] {
    match scenario.layout.f {
        0 => &[Durability::Disk],
        _ => &[Durability::Disk, MEMORY, AMNESIA],
    }
}
