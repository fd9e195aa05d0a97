//! What a healed cluster has to come to before a run ends. That clients are served says little of a
//! single node: others may stand in for it permanently.

use crate::event::Micros;
use crate::node::SimNode;
use ionian_kernel::layout::Address;
use ionian_kernel::status::each;
use std::collections::{BTreeMap, BTreeSet};

/// How far a cluster has come to rest.
#[derive(Default)]
pub(crate) struct Rest {
    /// The end of the log that each kind executes, as far as any replica knew when the work was
    /// done.
    end: Option<BTreeMap<u8, u64>>,
    /// What has settled: not all of it does so at one time, because lanes keep their sessions open.
    settled: BTreeSet<(Address, &'static str)>,
}

/// An instance that stores no snapshot though its last one has found no room.
pub(crate) fn owed_snapshot(nodes: &[SimNode]) -> Option<String> {
    let nodes = nodes.iter();
    let mut instances = nodes.flat_map(|node| node.instances().map(move |it| (node, it.0)));
    let (node, owing) = instances.find(|(node, address)| node.disk.owed.contains(address))?;
    let name = node.protocol.name(owing);
    Some(format!("{name} stores no snapshot after one without room"))
}

impl Rest {
    /// Something that is left at an instance.
    pub(crate) fn left_over(&mut self, now: Micros, nodes: &[SimNode]) -> Option<String> {
        let mut left = None;
        let instances = nodes
            .iter()
            .flat_map(|node| node.instances().map(move |it| (node, it)));
        for (node, (address, instance)) in instances {
            let status = instance.status();
            let metrics = node.protocol.description().metrics[usize::from(address.kind)];
            let metrics = each(metrics).zip(&status.metrics);
            let settling = metrics
                .filter(|(metric, _)| metric.settles)
                .map(|(metric, value)| (metric.name, *value));
            let forgotten = status.remembers.map(|all| ("forgotten", u64::from(!all)));
            // A node counts as failed until it says that it holds what is chosen.
            let is_behind = |until| node.clock.read(now) > until;
            let behind = status
                .current_until
                .map(|until| ("behind", u64::from(is_behind(until))));
            for (what, value) in settling.chain(forgotten).chain(behind) {
                if value == 0 {
                    self.settled.insert((address, what));
                } else if !self.settled.contains(&(address, what)) {
                    left = Some(format!(
                        "{} has {what}={value}",
                        node.protocol.name(address)
                    ));
                }
            }
        }
        left
    }

    /// A replica that has not executed all slots that were in use when the work was done, with or
    /// without a command in them.
    pub(crate) fn short_of_the_end(&mut self, nodes: &[SimNode]) -> Option<String> {
        let mut replicas = Vec::new();
        for node in nodes {
            for (address, instance) in node.instances() {
                let status = instance.status();
                let executed = status.executed.unwrap_or_default().0;
                replicas.extend(status.log_end.map(|end| (node, address, executed, end.0)));
            }
        }
        // Those of one kind execute one log.
        let end = self.end.get_or_insert_with(|| {
            let mut ends = BTreeMap::new();
            for (_, address, executed, end) in &replicas {
                let known: &mut u64 = ends.entry(address.kind).or_default();
                *known = (*executed).max(*end).max(*known);
            }
            ends
        });
        let end_of = |address: &Address| end.get(&address.kind).copied().unwrap_or(0);
        let short = replicas
            .iter()
            .find(|(_, address, executed, _)| *executed < end_of(address));
        short.map(|(node, address, executed, _)| {
            format!(
                "{} has executed {executed} of {} slots",
                node.protocol.name(*address),
                end_of(address)
            )
        })
    }
}
