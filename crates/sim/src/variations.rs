//! Other deployments that a cluster can be changed into, made from the one that it was founded
//! with.

use crate::roles::Simulated;
use ionian_kernel::id::Index;
use ionian_kernel::layout::{Layout, NodeId, Places};
use ionian_kernel::protocol::Transition;
use ionian_kernel::quorum_spec::QuorumSpec;

/// All nodes of a deployment with at most this many are replaced together.
const SMALL: usize = 5;

/// For [`Scenario::changes`](crate::Scenario::changes): the first, the last and the middle node
/// replaced by new ones, all nodes of a small deployment replaced, one more on a new node of
/// everything of which there can be one more, one more of all that can be added without an epoch of
/// both configurations, and, where there are three acceptors in majorities, a grid of four.
/// Instances have the same numbers wherever they occur, so that each can be changed into each.
pub fn variations(protocol: Simulated, layout: &Layout) -> Vec<Layout> {
    let nodes = layout.nodes();
    let (Some(first), Some(last)) = (nodes.first().copied(), nodes.last().copied()) else {
        return Vec::new();
    };
    let mut numbers = Numbers::new(layout);
    let mut variations = vec![
        numbers.replace(layout, first),
        numbers.replace(layout, last),
    ];
    if nodes.len() <= SMALL {
        let replaced = nodes
            .iter()
            .fold(layout.clone(), |to, node| numbers.replace(&to, *node));
        variations.push(replaced);
    }
    let one_more = |kind| {
        let more = Numbers::new(layout).extend(layout, |other| other == kind);
        protocol.protocol().transition(layout, &more).ok()
    };
    let more = numbers.extend(layout, |kind| one_more(kind).is_some());
    variations.push(numbers.extend(layout, |kind| one_more(kind) == Some(Transition::AtOnce)));
    let grid = Layout {
        quorums: QuorumSpec::Grid {
            rows: 2,
            columns: 2,
        },
        ..more.clone()
    };
    if layout.quorums == QuorumSpec::Majority
        && protocol.protocol().transition(layout, &grid).is_ok()
    {
        variations.push(grid);
    }
    variations.push(more);
    let middle = nodes.iter().nth(nodes.len() / 2).copied();
    let middle = middle.filter(|node| ![first, last].contains(node));
    variations.extend(middle.map(|node| numbers.replace(layout, node)));
    variations
}

/// Numbers that are not in use.
pub(crate) struct Numbers {
    node: u16,
    /// By kind.
    instances: Vec<Index>,
}

impl Numbers {
    pub(crate) fn new(layout: &Layout) -> Self {
        let next = |places: &Places| places.iter().last().map_or(0, |(index, _)| index + 1);
        Numbers {
            node: layout.nodes().last().map_or(0, |last| last.0 + 1),
            instances: layout.instances.iter().map(next).collect(),
        }
    }

    fn node(&mut self) -> NodeId {
        self.node += 1;
        NodeId(self.node - 1)
    }

    fn instance(&mut self, kind: usize) -> Index {
        self.instances[kind] += 1;
        self.instances[kind] - 1
    }

    /// What lived on `old` lives on a new node, under new numbers.
    pub(crate) fn replace(&mut self, layout: &Layout, old: NodeId) -> Layout {
        let new = self.node();
        let mut instances = Vec::new();
        for (kind, places) in layout.instances.iter().enumerate() {
            let moved = |(index, node)| {
                if node == old {
                    (self.instance(kind), new)
                } else {
                    (index, node)
                }
            };
            instances.push(places.iter().map(moved).collect());
        }
        Layout {
            instances,
            ..layout.clone()
        }
    }

    /// One more instance of each of these kinds that there is, on a new node.
    fn extend(&mut self, layout: &Layout, kinds: impl Fn(u8) -> bool) -> Layout {
        let new = self.node();
        let mut instances = Vec::new();
        for (kind, places) in layout.instances.iter().enumerate() {
            let one = (places.iter().next().is_some() && kinds(kind as u8))
                .then(|| (self.instance(kind), new));
            instances.push(places.iter().chain(one).collect());
        }
        Layout {
            instances,
            ..layout.clone()
        }
    }
}
