//! What each message costs, for the simulator: as much as it costs the same node when the
//! deployment is measured.

use ionian_kernel::layout::{Address, Layout};
use ionian_planner::demand::{Measured, Message};
use ionian_planner::executed::executed;
use ionian_sim::AnyMessage;
use ionian_sim::performance::Costs;
use std::cell::Cell;
use std::collections::BTreeMap;

/// What the messages of one deployment cost.
pub(crate) struct MessageCosts<'a> {
    measured: &'a Measured,
    layout: &'a Layout,
    /// Kinds of roles that take no time.
    free: Vec<u8>,
    /// For a node that did not handle a message when it was measured: what it costs the node that
    /// handled the most of them.
    elsewhere: BTreeMap<(u8, &'static str), Message>,
    /// The message that a node handles, and how many commands were executed before.
    handled: Cell<Option<(&'static str, u64)>>,
}

impl<'a> MessageCosts<'a> {
    /// Those of the deployment with this layout. Roles in `exempt` take no time.
    pub(crate) fn new(measured: &'a Measured, layout: &'a Layout, exempt: &[&str]) -> Self {
        let mut elsewhere: BTreeMap<(u8, &'static str), Message> = BTreeMap::new();
        for (name, message) in measured.nodes.iter().flat_map(|node| &node.messages) {
            let known = elsewhere.entry(*name).or_insert(*message);
            if known.per_command < message.per_command {
                *known = *message;
            }
        }
        MessageCosts {
            measured,
            layout,
            free: measured.kinds_named(exempt),
            elsewhere,
            handled: Cell::default(),
        }
    }

    fn message(&self, to: Address, name: &'static str) -> Option<&Message> {
        let node = self.layout.node_of(to)?;
        let node = self.measured.nodes.iter().find(|known| known.id == node)?;
        let name = (to.kind, name);
        node.messages.get(&name).or(self.elsewhere.get(&name))
    }
}

impl Costs for MessageCosts<'_> {
    fn of(&self, to: Address, message: &dyn AnyMessage) -> f64 {
        self.handled.set(Some((message.name(), executed())));
        if self.free.contains(&to.kind) {
            return 0.0;
        }
        let Some(cost) = self.message(to, message.name()) else {
            return 0.0;
        };
        match cost.has_sizes() {
            true => cost.us(message.encode().len()),
            false => cost.us(0),
        }
    }

    fn executing(&self, to: Address) -> f64 {
        let Some((name, before)) = self.handled.take() else {
            return 0.0;
        };
        match self.message(to, name) {
            Some(cost) if !self.free.contains(&to.kind) => cost.executing_us(executed() - before),
            _ => 0.0,
        }
    }
}
