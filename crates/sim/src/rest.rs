//! What a healed cluster has to come to before a run ends. That clients are served says little of a
//! single node: others may stand in for it for ever.

use crate::journal;
use crate::model::Model;
use crate::oracle::View;
use crate::world::Simulation;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol::{Instance, Protocol};
use std::collections::BTreeSet;

/// What an instance says of itself that comes to nothing at some time after all faults: it takes
/// part, and deals with what is under way. (Not always at one time for all: lanes keep their
/// sessions open.)
const COMES_TO_NOTHING: &[&str] = &[
    "amnesiac",
    "inquiries",
    "deferred_reads",
    "pending",
    "waiting",
];

/// How far a cluster has come to rest.
#[derive(Default)]
pub(crate) struct Rest {
    /// The end of the log, as far as any replica knew when the work was done.
    end: Option<u64>,
    /// What has come to nothing.
    settled: BTreeSet<(Address, &'static str)>,
}

impl<P: Protocol, M: Model> Simulation<P, M> {
    /// What the cluster, whose clients have all that they want, is still to come to, if anything.
    pub(crate) fn awaited(&mut self) -> Option<String> {
        let journal = journal::open(&self.journal);
        let behind = journal
            .behind()
            .next()
            .or_else(|| journal.waiting_for_time().next());
        drop(journal);
        let view = View {
            nodes: &self.nodes,
            changed: 0,
        };
        let left = self.rest.left_over(&view);
        let short = self.rest.short_of_the_end(&view);
        let of_oracles = || self.oracles.iter().find_map(|oracle| oracle.awaited(&view));
        behind.or(short).or(left).or_else(of_oracles)
    }
}

fn name<P: Protocol>(address: Address) -> String {
    format!("{}{}", P::KINDS[address.kind as usize], address.index)
}

impl Rest {
    /// Something that is left at an instance.
    fn left_over<P: Protocol>(&mut self, view: &View<'_, P>) -> Option<String> {
        let mut left = None;
        for (address, instance) in view.instances() {
            instance.status(&mut |figure, value| {
                if !COMES_TO_NOTHING.contains(&figure) || self.settled.contains(&(address, figure))
                {
                    return;
                }
                match value {
                    0 => drop(self.settled.insert((address, figure))),
                    _ => left = Some(format!("{} has {figure}={value}", name::<P>(address))),
                }
            });
        }
        left
    }

    /// A replica that has not executed all slots that were in use when the work was done, with or
    /// without a command in them.
    fn short_of_the_end<P: Protocol>(&mut self, view: &View<'_, P>) -> Option<String> {
        let mut replicas = Vec::new();
        for (address, instance) in view.instances() {
            let (mut executed, mut end) = (0, None);
            instance.status(&mut |figure, value| match figure {
                "executed" => executed = value,
                "known_log_end" => end = Some(value),
                _ => {}
            });
            replicas.extend(end.map(|end| (address, executed, end)));
        }
        let known = || {
            replicas
                .iter()
                .map(|(_, executed, end)| *executed.max(end))
                .max()
                .unwrap_or(0)
        };
        let end = *self.end.get_or_insert_with(known);
        let short = replicas.iter().find(|(_, executed, _)| *executed < end);
        short.map(|(address, executed, _)| {
            format!(
                "{} has executed {executed} of {end} slots",
                name::<P>(*address)
            )
        })
    }
}
