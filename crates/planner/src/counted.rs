//! Which messages each node of a deployment handles for a request: the roles run in this process,
//! without a clock, so that the same deployment gives the same numbers.

use crate::demand::{Measured, Message, Name, Node, PerCommand, SystemCalls, scale};
use crate::executed::CountedService;
use crate::handled::{Handled, Tally};
use crate::prices::{Commands, Corner, Costs};
use anyhow::{Context, Result};
use ionian_costs::count::Uncounted;
use ionian_costs::{KeyValue, Load, Traffic, begin_with};
use ionian_deployment::Deployment;
use ionian_kernel::layout::NodeId;
use ionian_kernel::work::Inline;
use ionian_protocols::registry;
use std::collections::BTreeMap;

/// Keys that are written and read.
const KEYS: usize = 64;

/// Requests of a burst at most. With more at a time a command costs hardly less.
pub const MAX_BURST: usize = 256;

/// Requests that are counted, unless that is too few or too many bursts.
const REQUESTS: usize = 6144;

/// Receivers take turns, burst by burst: each must have had its turns. Many numbers of receivers
/// divide these.
const BURSTS: (usize, usize) = (24, 60);

/// How many requests share messages when this many connections wait for an answer at a time. They
/// do not ask at the same moment: the more there are, the more of them are answered together.
/// Fitted to what leaders do more than other nodes in running clusters (docs/plan.md).
pub fn together(connections: usize) -> usize {
    let shared = (2.0 * (connections as f64).sqrt()).round() as usize;
    shared.clamp(1, connections.clamp(1, MAX_BURST))
}

/// What each node has handled.
#[derive(Debug)]
pub struct Counted {
    nodes: Vec<CountedNode>,
    requests: f64,
    kinds: &'static [&'static str],
}

#[derive(Debug)]
struct CountedNode {
    id: NodeId,
    name: String,
    handled: BTreeMap<Name, Handled>,
    traffic: Traffic,
}

/// Counts while `burst` requests are in flight.
///
/// # Errors
/// If it is not a deployment of its protocol, or has too many nodes.
pub fn count(
    deployment: &Deployment,
    commands: Commands,
    corner: Corner,
    burst: usize,
) -> Result<Counted> {
    let burst = burst.clamp(1, MAX_BURST);
    let bursts = (REQUESTS / burst).clamp(BURSTS.0, BURSTS.1);
    let (read_fraction, read_level) = commands.share_of_reads();
    let load = Load {
        read_fraction,
        skew: 0.0,
        read_level,
        value_bytes: corner.value_bytes,
        pipeline: corner.pipeline,
        keys: KEYS,
        burst,
        filled: true,
        separate_clients: false,
    };
    let service = Box::new(CountedService(KeyValue::new(&deployment.machine, &load)?));
    let hire = |_: usize, count| Inline::hire(count);
    let mut run = begin_with(deployment, &load, service, &hire)?;
    (0..bursts / 3).for_each(|_| run.burst(&mut Uncounted));
    let (before, requests) = (run.traffic().to_vec(), run.commands());
    let mut tally = Tally(vec![BTreeMap::new(); run.nodes().len()]);
    (0..bursts).for_each(|_| run.burst(&mut tally));
    let description = registry::description(&deployment.protocol)
        .with_context(|| format!("protocol = {:?}: does not exist", deployment.protocol))?;
    let layout = deployment.layout(description.kinds)?;
    let traffic = run.traffic().iter().zip(&before);
    let traffic = traffic.map(|(after, before)| after.since(before));
    let nodes = run.nodes().iter().zip(tally.0).zip(traffic);
    let nodes = nodes.map(|((id, handled), traffic)| CountedNode {
        id: *id,
        name: layout.name(*id).to_owned(),
        handled,
        traffic,
    });
    Ok(Counted {
        nodes: nodes.collect(),
        requests: (run.commands() - requests) as f64,
        kinds: description.kinds,
    })
}

impl Counted {
    /// What each node spends on a request. A message without a price was not met when prices were
    /// measured: it is rare, and costs nothing.
    pub fn priced(&self, costs: &Costs, calls: &SystemCalls) -> Measured {
        let node = |node: &CountedNode| {
            let priced = node.handled.iter().filter_map(|(name, handled)| {
                let price = costs.messages.get(name.1)?;
                let message = Message {
                    per_command: handled.count as f64 / self.requests,
                    by: price.by,
                    size: handled.size(price.by),
                    cost: price.cost,
                };
                Some((*name, message))
            });
            let mut messages: BTreeMap<Name, Message> = priced.collect();
            let own: f64 = messages.values().map(Message::demand_us).sum();
            scale(&mut messages, own + calls.us(&node.traffic) / self.requests);
            Node {
                id: node.id,
                name: node.name.clone(),
                messages,
                traffic: PerCommand::of(&node.traffic, self.requests),
            }
        };
        Measured {
            nodes: self.nodes.iter().map(node).collect(),
            kinds: self.kinds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_connections_share_more_but_not_in_proportion() {
        let shared = [1, 2, 4, 16, 64, 256, 16_384, 1_000_000].map(together);
        assert_eq!(shared, [1, 2, 4, 8, 16, 32, 256, 256]);
    }
}
