//! The shapes of deployments on which a protocol is tried: its presets, and what follows from them
//! and from the list of its roles.

use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Layout, NodeId, Places, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_sim::{Durability, Scenario};

/// Nodes that stop have lost their memory, and stay away.
pub(crate) const MEMORY: Durability = Durability::Memory { returns: false };
/// Nodes that stop have lost their memory, and come back.
pub(crate) const AMNESIA: Durability = Durability::Memory { returns: true };

fn scenario<P: Protocol>(name: impl Into<String>, layout: Layout) -> Scenario {
    Scenario {
        stable_log: !P::EXECUTES_BEFORE_STABLE,
        ..Scenario::new(name, layout)
    }
}

/// The deployments that come with the protocol.
pub(crate) fn presets<P: Protocol>() -> Vec<Scenario> {
    let presets = P::PRESETS.iter().map(|preset| {
        let deployment = Deployment::preset(preset.name, &PresetOptions::default());
        let layout = deployment.and_then(|deployment| deployment.layout(P::KINDS));
        scenario::<P>(preset.name, layout.expect("a preset is a deployment"))
    });
    let presets: Vec<_> = presets.collect();
    assert!(!presets.is_empty(), "{} has no preset", P::NAME);
    presets
}

/// The smallest of them.
pub(crate) fn smallest<P: Protocol>() -> Scenario {
    let presets = presets::<P>().into_iter();
    let smallest = presets.min_by_key(|preset| preset.layout.nodes().len());
    smallest.expect("a protocol has presets")
}

/// All shapes.
pub(crate) fn all<P: Protocol>() -> Vec<Scenario> {
    let mut shapes = presets::<P>();
    shapes.extend(fewest::<P>());
    shapes.extend(parted::<P>());
    shapes.extend(together::<P>());
    shapes.extend(presets::<P>().iter().flat_map(arranged::<P>));
    let base = smallest::<P>();
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
pub(crate) fn fewest<P: Protocol>() -> Option<Scenario> {
    let base = smallest::<P>();
    let mut layout = base.layout.clone();
    let fewest = layout.f + 1;
    for kind in P::EXECUTORS {
        let places = &mut layout.instances[usize::from(*kind)];
        *places = places.iter().take(fewest).collect();
    }
    P::configure(layout.clone()).ok()?;
    let is_fewer = layout.instances != base.layout.instances;
    let name = format!("{} with f+1 of what executes", base.name);
    is_fewer.then(|| scenario::<P>(name, layout))
}

/// The smallest preset with what executes, and clients, on nodes of their own, and with one more of
/// what executes, if the protocol accepts that: it may be cut off from the others alone.
pub(crate) fn parted<P: Protocol>() -> Option<Scenario> {
    const APART: u16 = 100;
    let base = smallest::<P>();
    let mut layout = base.layout.clone();
    for (kind, places) in (0..).zip(&mut layout.instances) {
        let count = places.iter().count() as u16;
        let nodes = match kind == 0 || P::EXECUTORS.contains(&kind) {
            true => 0..count + 1,
            false => APART..APART + count,
        };
        *places = nodes.map(NodeId).collect::<Vec<_>>().into();
    }
    P::configure(layout.clone()).ok()?;
    let name = format!("{} with what executes apart", base.name);
    Some(scenario::<P>(name, layout))
}

/// Every role on each of 1, 3 and 5 nodes, and every role of the smallest preset, where the
/// protocol accepts that.
fn together<P: Protocol>() -> Vec<Scenario> {
    let all = vec![true; P::KINDS.len()];
    let smallest = smallest::<P>();
    let some: Vec<bool> = smallest
        .layout
        .instances
        .iter()
        .map(|it| it.iter().count() > 0)
        .collect();
    let mut shapes = together_of::<P>("every role", &all);
    if some != all {
        let name = format!("every role of {}", smallest.name);
        shapes.extend(together_of::<P>(&name, &some));
    }
    shapes
}

/// These kinds of roles on each node.
fn together_of<P: Protocol>(what: &str, kinds: &[bool]) -> Vec<Scenario> {
    let shapes = (0..3).filter_map(|f| {
        let nodes: Vec<NodeId> = (0..2 * f as u16 + 1).map(NodeId).collect();
        let name = format!("{} with {what} on each of {} nodes", P::NAME, nodes.len());
        let of = |is_there: &bool| match is_there {
            true => nodes.clone(),
            false => Vec::new(),
        };
        let layout = Layout {
            f,
            instances: numbered(kinds.iter().map(of).collect()),
            ..Layout::default()
        };
        P::configure(layout.clone()).ok()?;
        Some(scenario::<P>(name, layout))
    });
    shapes.collect()
}

/// A preset with majorities of three whose roles are apart, with twice as many of what it has
/// three of, each on a node of its own: in a grid and in groups, where the protocol accepts that.
fn arranged<P: Protocol>(preset: &Scenario) -> Vec<Scenario> {
    let layout = &preset.layout;
    let is_apart = layout.nodes().len() > 2 * layout.f + 1;
    if !is_apart || layout.f == 0 || layout.quorums != QuorumSpec::Majority {
        return Vec::new();
    }
    let mut next = (0..).map(NodeId);
    let mut place = |places: &Places| {
        let count = places.iter().count();
        let count = if count == 3 { 6 } else { count };
        next.by_ref().take(count).collect::<Vec<_>>()
    };
    let instances = numbered(layout.instances.iter().map(&mut place).collect());
    let grid = QuorumSpec::Grid {
        rows: 2,
        columns: 3,
    };
    let shapes = [
        ("a grid", grid),
        ("groups", QuorumSpec::Groups { groups: 2 }),
        ("counts", QuorumSpec::Counts { read: 2, write: 5 }),
    ];
    let shapes = shapes.into_iter().filter_map(|(arranged, quorums)| {
        let layout = Layout {
            quorums,
            instances: instances.clone(),
            ..layout.clone()
        };
        P::configure(layout.clone()).ok()?;
        Some(scenario::<P>(
            format!("{} in {arranged}", preset.name),
            layout,
        ))
    });
    shapes.collect()
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
