//! Execution as with workers: each command that lies in one part is executed by that part.

use ionian_kernel::machine::{Footprint, Parts, StateMachine};
use ionian_kernel::time::Timestamp;
use std::collections::BTreeSet;

/// The replies of a machine in this number of parts to commands, each with its time. A command that
/// touches several parts, or none, is executed while all others are lent. In the end all parts are
/// back.
pub(crate) fn replies_in_parts<M: StateMachine + Parts>(
    machine: &mut M,
    count: usize,
    history: &[(u64, Vec<u8>)],
) -> Vec<Vec<u8>> {
    let count = machine.divide(count);
    let mut lent: Vec<_> = (0..count).map(|part| Some(machine.lend(part))).collect();
    let mut replies = Vec::new();
    for (now, command) in history {
        let (mut footprint, mut reply) = (Footprint::default(), Vec::new());
        machine.footprint(command, &mut footprint);
        let keys = footprint.reads.iter().chain(&footprint.writes);
        let touched: BTreeSet<usize> = match footprint.everything {
            true => (0..count).collect(),
            false => keys.map(|key| machine.part_of(*key)).collect(),
        };
        match touched.first() {
            Some(part) if touched.len() == 1 && !footprint.everything => {
                let part = lent[*part].as_mut().expect("it is lent");
                part.apply(Timestamp(*now), command, &mut reply);
            }
            _ => {
                for part in &touched {
                    machine.take_back(*part, lent[*part].take().expect("it is lent"));
                }
                machine.apply(Timestamp(*now), command, &mut reply);
                for part in touched {
                    lent[part] = Some(machine.lend(part));
                }
            }
        }
        replies.push(reply);
    }
    for (part, lent) in lent.into_iter().enumerate() {
        machine.take_back(part, lent.expect("it is lent"));
    }
    replies
}
