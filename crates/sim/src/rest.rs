//! What a healed cluster has to come to before a run ends. That clients are served says little of a
//! single node: others may stand in for it permanently.

use crate::event::Micros;
use crate::oracle::View;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol::{Instance, Protocol};
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

fn name<P: Protocol>(address: Address) -> String {
    format!("{}{}", P::KINDS[address.kind as usize], address.index)
}

/// An instance that stores no snapshot though its last one has found no room.
pub(crate) fn owed_snapshot<P: Protocol>(view: &View<'_, P>) -> Option<String> {
    let nodes = view.nodes.iter();
    let mut instances = nodes.flat_map(|node| node.instances().map(move |it| (node, it.0)));
    let (_, owing) = instances.find(|(node, address)| node.disk.owed.contains(address))?;
    let name = name::<P>(owing);
    Some(format!("{name} stores no snapshot after one without room"))
}

impl Rest {
    /// Something that is left at an instance.
    pub(crate) fn left_over<P: Protocol>(
        &mut self,
        now: Micros,
        view: &View<'_, P>,
    ) -> Option<String> {
        let mut left = None;
        let nodes = view.nodes.iter();
        let instances = nodes.flat_map(|node| node.instances().map(move |it| (node, it)));
        for (node, (address, instance)) in instances {
            let status = instance.status();
            let metrics = each(P::METRICS[usize::from(address.kind)]).zip(&status.metrics);
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
                    left = Some(format!("{} has {what}={value}", name::<P>(address)));
                }
            }
        }
        left
    }

    /// A replica that has not executed all slots that were in use when the work was done, with or
    /// without a command in them.
    pub(crate) fn short_of_the_end<P: Protocol>(&mut self, view: &View<'_, P>) -> Option<String> {
        let mut replicas = Vec::new();
        for (address, instance) in view.instances() {
            let status = instance.status();
            let executed = status.executed.unwrap_or_default().0;
            replicas.extend(status.log_end.map(|end| (address, executed, end.0)));
        }
        // Those of one kind execute one log.
        let end = self.end.get_or_insert_with(|| {
            let mut ends = BTreeMap::new();
            for (address, executed, end) in &replicas {
                let known: &mut u64 = ends.entry(address.kind).or_default();
                *known = (*executed).max(*end).max(*known);
            }
            ends
        });
        let end_of = |address: &Address| end.get(&address.kind).copied().unwrap_or(0);
        let short = replicas
            .iter()
            .find(|(address, executed, _)| *executed < end_of(address));
        short.map(|(address, executed, _)| {
            format!(
                "{} has executed {executed} of {} slots",
                name::<P>(*address),
                end_of(address)
            )
        })
    }
}
