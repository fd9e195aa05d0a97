//! What happens to a cluster, and ends.

use crate::wan::SECOND;
use core::ops::Range;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::random::Random;
use ionian_sim::performance::wan::Change;

/// See the top of this file. At most one node, or the link of two, is affected at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No message passes from one node to another.
    Link(NodeId, NodeId),
    /// A node sends nothing.
    Mute(NodeId),
    /// A node receives nothing.
    Deaf(NodeId),
    /// A node does nothing.
    Pause(NodeId),
    /// A node is down.
    Crash(NodeId),
    /// A node stops again and again soon after it has started, as with a full disk.
    Stops(NodeId),
    /// All nodes are down, as after a power failure.
    Power,
}

impl Fault {
    pub(crate) const KINDS: u64 = 7;

    /// A fault of this kind. Nodes of each role are drawn as often.
    pub(crate) fn drawn(kind: u64, random: &mut Random, layout: &Layout) -> Fault {
        let roles = layout.instances.iter().map(|places| {
            let nodes = places.iter().map(|(_, node)| node);
            nodes.collect::<Vec<NodeId>>()
        });
        let roles: Vec<_> = roles.filter(|nodes| !nodes.is_empty()).collect();
        let mut node = || {
            let nodes = &roles[random.below(roles.len() as u64) as usize];
            nodes[random.below(nodes.len() as u64) as usize]
        };
        let (one, mut other) = (node(), node());
        while other == one {
            other = node();
        }
        match kind {
            0 => Fault::Link(one, other),
            1 => Fault::Mute(one),
            2 => Fault::Deaf(one),
            3 => Fault::Pause(one),
            4 => Fault::Crash(one),
            5 => Fault::Stops(one),
            _ => Fault::Power,
        }
    }

    /// How long it lasts, in microseconds.
    pub(crate) fn lasts(self, random: &mut Random) -> u64 {
        let times = match self {
            Fault::Power => [SECOND / 5, SECOND],
            _ => [SECOND, 8 * SECOND],
        };
        times[random.below(2) as usize]
    }

    /// What changes, and when.
    pub(crate) fn changes(
        self,
        layout: &Layout,
        times: Range<u64>,
        random: &mut Random,
    ) -> Vec<(u64, Change)> {
        let nodes = layout.nodes();
        let cuts = |is_cut: &dyn Fn(NodeId, NodeId) -> bool| {
            let pairs = nodes
                .iter()
                .flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
            let cut = pairs.filter(|(from, to)| from != to && is_cut(*from, *to));
            let both = cut.flat_map(|(from, to)| {
                let end = Change::Splice { from, to };
                [(times.start, Change::Cut { from, to }), (times.end, end)]
            });
            both.collect()
        };
        let down = |node, times: &Range<u64>| {
            let back = (times.end, Change::Return { node });
            [(times.start, Change::Death { node }), back]
        };
        match self {
            Fault::Link(one, other) => cuts(&|from, to| (from, to) == (one, other)),
            Fault::Mute(node) => cuts(&|from, _| from == node),
            Fault::Deaf(node) => cuts(&|_, to| to == node),
            Fault::Pause(node) => {
                let us = times.end - times.start;
                vec![(times.start, Change::Stall { node, us })]
            }
            Fault::Crash(node) => down(node, &times).into(),
            Fault::Stops(node) => {
                let mut changes = Vec::new();
                let mut at = times.start;
                while at + SECOND < times.end {
                    let back = at + random.between(SECOND / 10, SECOND / 2);
                    changes.extend(down(node, &(at..back)));
                    at = back + random.between(SECOND / 100, SECOND / 2);
                }
                changes.extend(down(node, &(at..times.end)));
                changes
            }
            Fault::Power => {
                let half = (times.end - times.start) / 2;
                let mut back = || random.between(times.end - half, times.end);
                let all = nodes.iter().map(|node| down(*node, &(times.start..back())));
                all.flatten().collect()
            }
        }
    }

    /// Whether clients of a node may notice it as long as it lasts.
    pub(crate) fn affects(self, node: NodeId) -> bool {
        match self {
            Fault::Link(one, other) => node == one || node == other,
            Fault::Mute(one)
            | Fault::Deaf(one)
            | Fault::Pause(one)
            | Fault::Crash(one)
            | Fault::Stops(one) => node == one,
            Fault::Power => true,
        }
    }

    /// Whether the process of a node ends.
    pub(crate) fn stops(self, node: NodeId) -> bool {
        let ends = matches!(self, Fault::Crash(_) | Fault::Stops(_) | Fault::Power);
        ends && self.affects(node)
    }

    pub(crate) fn in_words(self, named: impl Fn(NodeId) -> String) -> String {
        match self {
            Fault::Link(one, other) => format!("{} -/-> {}", named(one), named(other)),
            Fault::Mute(node) => format!("{} is mute", named(node)),
            Fault::Deaf(node) => format!("{} is deaf", named(node)),
            Fault::Pause(node) => format!("{} pauses", named(node)),
            Fault::Crash(node) => format!("{} is down", named(node)),
            Fault::Stops(node) => format!("{} stops again and again", named(node)),
            Fault::Power => "all are down".to_owned(),
        }
    }
}
