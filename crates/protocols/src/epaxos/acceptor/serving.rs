//! What an acceptor does for replicas: tokens of reads, instances that they miss, and forgetting
//! what they keep.

use super::{Acceptor, Known, Record};
use crate::epaxos::instance::{InstanceId, Space};
use crate::epaxos::message::{Instance, Reach, Run, Touched};
use crate::epaxos::{Envelope, branch, replica};
use alloc::vec::Vec;
use ionian_kernel::id::{ReplicaId, Set};
use ionian_kernel::role::Out;

/// A message with instances ends after so many bytes, and after so many instances.
const FETCHED_BYTES: usize = 256 << 10;
const FETCHED: usize = 512;

/// What an instance takes in a message beside its command, about.
const BYTES_OF_EACH: usize = 64;

impl Acceptor {
    /// A replica asks what a read conflicts with. Nothing is recorded: reads change nothing.
    pub(super) fn on_pre_read(
        &mut self,
        from: ReplicaId,
        inquiry: u64,
        touched: &Touched,
        out: &mut Out<'_, Self>,
    ) {
        let deps = self.index.query(&touched.0);
        let message = replica::In::PreReadAck {
            from: self.id,
            life: self.life,
            inquiry,
            deps,
        };
        // It names instances. One whose record is lost is recovered, and the read waits for it; a
        // write that was answered before has durable records at a majority.
        out.send_unfenced(Envelope::ToReplicas(Set::one(from), message));
    }

    /// A replica misses instances.
    pub(super) fn on_fetch(&mut self, from: ReplicaId, runs: &[Run], out: &mut Out<'_, Self>) {
        let (mut instances, mut bytes, mut forgotten) = (Vec::new(), 0, false);
        for Run { space, start, end } in runs {
            let kept = self.kept.below(*space).min(*end);
            let held = self.store.range(*space, (*start, kept)).count() as u64;
            forgotten |= kept.saturating_sub(*start) > held;
            for (id, known) in self.store.range(*space, (*start, *end)) {
                if bytes >= FETCHED_BYTES || instances.len() >= FETCHED {
                    break;
                }
                if let Some(choice) = &known.decided {
                    bytes += choice.byte_len() + BYTES_OF_EACH;
                    let choice = choice.clone();
                    instances.push(Instance { id, choice });
                }
            }
        }
        let message = replica::In::Fetched {
            from: self.id,
            instances,
            forgotten,
            reaches: self.store.reaches(),
        };
        // As in `pass_on`.
        out.send_unfenced(Envelope::ToReplicas(Set::one(from), message));
    }

    /// A replica has these in a stored snapshot.
    pub(super) fn on_kept(&mut self, from: ReplicaId, reaches: &[Reach], out: &mut Out<'_, Self>) {
        if !self.kept.tell(from, reaches).is_empty() {
            out.persist(Record::Kept {
                reaches: self.kept.reaches(),
            });
        }
        self.release(out);
    }

    /// Forgets instances that f + 1 replicas keep, as far as the index does not name them: a
    /// command that is recorded after a crash must still depend on them. A barrier clears the index.
    pub(super) fn release(&mut self, out: &mut Out<'_, Self>) {
        let spaces: Vec<Space> = self.kept.reaches().iter().map(|reach| reach.space).collect();
        for space in spaces {
            let below = self.kept.below(space);
            let held = self.store.range(space, (0, below));
            let goes = |(id, known): (InstanceId, &Known)| {
                (known.decided.is_some() && !self.index.contains(id)).then_some(id)
            };
            let gone: Vec<InstanceId> = held.filter_map(goes).collect();
            gone.into_iter().for_each(|id| self.store.remove(id));
        }
        while let Some(record) = self.store.straggler() {
            out.reached(branch::RECORDED_ANEW);
            out.persist(record);
        }
        out.release_below(self.store.first_place());
    }
}
