//! What each node of a deployment spends on a command of the deployment.

use crate::line::Line;
use anyhow::{Result, ensure};
use ionian_costs::Traffic;
use ionian_kernel::layout::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A message, by the kind of role that handles it and its name.
pub type Name = (u8, &'static str);

/// What each node of a deployment spends on a command of the deployment.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The nodes, in the order of their numbers.
    pub nodes: Vec<Node>,
    /// The names of the kinds of roles.
    pub kinds: &'static [&'static str],
}

/// See [`Measured`].
#[derive(Clone, Debug)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its name in the deployment.
    pub name: String,
    /// What it handles. What ends of bursts, timers and system calls cost is shared out over the
    /// messages in proportion to their own costs.
    pub messages: BTreeMap<Name, Message>,
    /// What it sends and receives.
    pub traffic: PerCommand,
}

/// Messages of one name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message {
    /// How many the node handles for each command of the deployment.
    pub per_command: f64,
    /// What its cost depends on.
    pub by: By,
    /// How much of that one has, on average.
    pub size: f64,
    /// What one costs, by its size.
    pub cost: Line,
}

/// What the cost of a message depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Its bytes: it contains the commands that it is about.
    Bytes,
    /// How many commands the node executes because of it.
    Executed,
}

/// What a node sends and receives for each command of the deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PerCommand {
    /// Messages received.
    pub messages_in: f64,
    /// Messages sent; one to several nodes counts for each.
    pub messages_out: f64,
    /// Bytes of messages received, with their frames.
    pub bytes_in: f64,
    /// Bytes of messages sent.
    pub bytes_out: f64,
    /// Writes to connections.
    pub writes: f64,
}

/// What the kernel takes for writes to connections and reads from them, in microseconds of
/// processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemCalls {
    /// A write, by its bytes.
    pub write: Line,
    /// A read, by its bytes.
    pub read: Line,
}

impl SystemCalls {
    /// What it takes for all that a node sends and receives.
    pub fn us(&self, traffic: &Traffic) -> f64 {
        self.write
            .us(traffic.writes as f64, traffic.bytes_out as f64)
            + self.read.us(traffic.reads as f64, traffic.bytes_in as f64)
    }
}

impl Message {
    /// Microseconds for one of this many bytes, without what the node executes because of it if
    /// that is priced apart.
    pub fn us(&self, bytes: usize) -> f64 {
        match self.by {
            By::Bytes => self.cost.us(1.0, bytes as f64),
            By::Executed => self.cost.fixed_us,
        }
    }

    /// Microseconds for this many commands that the node executes because of it, if they are priced
    /// apart.
    pub fn executing_us(&self, commands: u64) -> f64 {
        match self.by {
            By::Bytes => 0.0,
            By::Executed => self.cost.us(0.0, commands as f64),
        }
    }

    /// Whether the cost depends on the bytes.
    pub fn has_sizes(&self) -> bool {
        self.by == By::Bytes && self.cost.unit_us > 0.0
    }

    /// Microseconds for each command of the deployment.
    pub fn demand_us(&self) -> f64 {
        self.per_command * self.cost.us(1.0, self.size)
    }
}

impl Node {
    /// Microseconds that each kind of role spends on a command of the deployment.
    pub fn roles(&self) -> BTreeMap<u8, f64> {
        let mut roles = BTreeMap::new();
        for ((kind, _), message) in &self.messages {
            *roles.entry(*kind).or_default() += message.demand_us();
        }
        roles
    }

    /// Microseconds that all of them spend.
    pub fn demand_us(&self) -> f64 {
        self.roles().values().fold(0.0, |sum, us| sum + us)
    }
}

impl PerCommand {
    /// Of all that a node has sent and received for this many commands.
    pub fn of(traffic: &Traffic, commands: f64) -> Self {
        let of = |number| number as f64 / commands;
        PerCommand {
            messages_in: of(traffic.frames_in),
            messages_out: of(traffic.frames_out),
            bytes_in: of(traffic.bytes_in),
            bytes_out: of(traffic.bytes_out),
            writes: of(traffic.writes),
        }
    }
}

/// Makes the messages of a node cost this much for each command.
pub fn scale(messages: &mut BTreeMap<Name, Message>, total_us: f64) {
    let sum: f64 = messages.values().map(Message::demand_us).sum();
    for message in messages.values_mut().filter(|_| sum > 0.0) {
        message.cost = message.cost.times(total_us / sum);
    }
}

impl Measured {
    /// The kinds of roles with these names.
    pub fn kinds_named(&self, names: &[&str]) -> Vec<u8> {
        let all = (0..).zip(self.kinds);
        all.filter(|(_, kind)| names.contains(kind))
            .map(|(number, _)| number)
            .collect()
    }

    /// Microseconds that the busiest instance of a role spends on a command, and all of them
    /// together.
    ///
    /// # Errors
    /// If there is none.
    pub fn role(&self, name: &str) -> Result<(f64, f64)> {
        let kinds = self.kinds_named(&[name]);
        let of = |node: &Node| node.roles().get(kinds.first()?).copied();
        let us: Vec<f64> = self.nodes.iter().filter_map(of).collect();
        ensure!(!us.is_empty(), "no node has the role {name}");
        Ok((us.iter().copied().fold(0.0, f64::max), us.iter().sum()))
    }
}
