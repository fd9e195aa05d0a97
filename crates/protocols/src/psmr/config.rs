//! Which layouts are deployments of P-SMR, and what every role needs to know of its own.

use super::settings::{APART, GROUPS, Turns};
use crate::multipaxos::{self, kind};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::{Index, LeaderId, Set};
use ionian_kernel::layout::{Address, Layout, LayoutError, Options};

/// A layout that was checked. Each group is a deployment of MultiPaxos: with the same instances, or
/// with leaders, proxy leaders and acceptors of its own.
#[derive(Clone, Debug)]
pub struct Config {
    layout: Layout,
    groups: Vec<Arc<multipaxos::config::Config>>,
}

/// The kinds whose instances can be of one group each. The others have to do with all groups:
/// clients do not know any, and a replica executes them all.
const DIVISIBLE: [u8; 3] = [kind::Leader, kind::ProxyLeader, kind::Acceptor];

impl Config {
    /// Checks a layout.
    ///
    /// # Errors
    /// Says which rule of the protocol it breaks.
    pub fn new(layout: Layout) -> Result<Self, LayoutError> {
        let count = GROUPS.value(&layout.options) as usize + 1;
        let groups = match is_divided(&layout.options) {
            true => apart(&layout, count)?,
            false => together(&layout, count)?,
        };
        Ok(Config { layout, groups })
    }

    /// The configurations of all groups: g_all is the last.
    pub fn groups(&self) -> &[Arc<multipaxos::config::Config>] {
        &self.groups
    }

    /// That of g_all.
    pub fn all(&self) -> &multipaxos::config::Config {
        &self.groups[self.count()]
    }

    /// How many groups there are beside g_all, which has this number.
    pub fn count(&self) -> usize {
        self.groups.len() - 1
    }

    /// Whether an instance has a part in a group.
    pub(super) fn is_of(&self, address: Address, group: usize) -> bool {
        let is_divided = is_divided(self.options()) && DIVISIBLE.contains(&address.kind);
        !is_divided || group_of(address.index, self.groups.len()) == group
    }

    /// The leaders of all groups.
    pub(super) fn leaders(&self) -> Set<LeaderId> {
        self.layout.all(kind::Leader)
    }

    /// All instances.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How workers take turns, if they do.
    pub(super) fn turns(&self) -> Option<Turns> {
        Turns::of(self.options())
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.layout.options
    }
}

/// How many groups have acceptors of their own.
pub(super) fn quorum_systems(options: &Options) -> usize {
    match is_divided(options) {
        true => GROUPS.value(options) as usize + 1,
        false => 1,
    }
}

fn is_divided(options: &Options) -> bool {
    APART.value(options) > 0
}

/// The group of a leader, proxy leader or acceptor that is of one alone. Where each node has as
/// many of them as there are groups, those of a group are on different nodes.
fn group_of(index: Index, groups: usize) -> usize {
    usize::from(index) % groups
}

/// Groups with the same instances. They begin with different leaders: each of these does a part of
/// the work.
fn together(
    layout: &Layout,
    count: usize,
) -> Result<Vec<Arc<multipaxos::config::Config>>, LayoutError> {
    let one = multipaxos::config::Config::new(layout.clone())?.telling_neighbours();
    let leaders = one.leaders();
    let group = |group| {
        let first = leaders.pick(group as u64);
        let first = first.expect("a deployment has leaders");
        Arc::new(one.clone().beginning_with(first))
    };
    Ok((0..count).map(group).collect())
}

/// Groups with instances of their own.
fn apart(
    layout: &Layout,
    count: usize,
) -> Result<Vec<Arc<multipaxos::config::Config>>, LayoutError> {
    let group = |group| {
        let mut own = layout.clone();
        for kind in DIVISIBLE {
            let places = layout.places(kind);
            let of_group = places
                .iter()
                .filter(|(at, _)| group_of(*at, count) == group);
            own.instances[usize::from(kind)] = of_group.collect();
        }
        let one = multipaxos::config::Config::new(own).map_err(|LayoutError(fault)| {
            LayoutError(format!(
                "of the {count} groups, to which leaders, proxy leaders and acceptors belong by their numbers, \
                 group {group}: {fault}"
            ))
        })?;
        let first = one.leaders().pick(group as u64);
        let first = first.expect("a deployment has leaders");
        Ok(Arc::new(one.telling_neighbours().beginning_with(first)))
    };
    (0..count).map(group).collect()
}
