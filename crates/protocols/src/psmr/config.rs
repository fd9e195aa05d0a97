//! Which layouts are deployments of P-SMR, and what every role needs to know of its own.

use super::settings::{GROUPS, Turns};
use crate::multipaxos;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::{LeaderId, Set};
use ionian_kernel::layout::{Layout, LayoutError, Options};

/// A layout that was checked. Each group is a deployment of MultiPaxos with the same instances.
#[derive(Clone, Debug)]
pub struct Config {
    groups: Vec<Arc<multipaxos::config::Config>>,
}

impl Config {
    /// Checks a layout.
    ///
    /// # Errors
    /// Says which rule of the protocol it breaks.
    pub fn new(layout: Layout) -> Result<Self, LayoutError> {
        let count = GROUPS.value(&layout.options) as usize + 1;
        let one = multipaxos::config::Config::new(layout)?.telling_neighbours();
        let leaders: Set<LeaderId> = one.leaders();
        // The groups begin with different leaders: each of these does a part of the work.
        let group = |group| {
            let first = leaders.pick(group as u64);
            let first = first.expect("a deployment has leaders");
            Arc::new(one.clone().beginning_with(first))
        };
        Ok(Config {
            groups: (0..count).map(group).collect(),
        })
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

    /// How workers take turns, if they do.
    pub(super) fn turns(&self) -> Option<Turns> {
        Turns::of(self.options())
    }

    /// The options.
    pub fn options(&self) -> &Options {
        self.all().options()
    }
}
