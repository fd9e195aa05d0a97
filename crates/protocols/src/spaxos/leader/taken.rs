//! The payloads that a leader has taken in one round: none of them gets a second slot.

use crate::spaxos::id::{DisseminatorId, PayloadNumber};
use crate::spaxos::message::PayloadId;
use alloc::vec::Vec;
use ionian_kernel::id::{Round, Slot};
use ionian_replication::window::Window;

/// The number of payloads of one process that are taken at most, counted from the first that it may
/// propose again. It proposes those beyond it again, and by then the first are settled.
const MAX_TAKEN: usize = 1 << 20;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Taken {
    round: Round,
    /// By the process that disseminates them: a few, the latest last. Those of a process that is
    /// gone stay until the log has passed them.
    processes: Vec<Process>,
}

/// The payloads of one process of a disseminator.
struct Process {
    disseminator: DisseminatorId,
    life: u64,
    /// By their numbers, from the first that may be proposed again on; with the slot of each as
    /// soon as it has one.
    payloads: Window<PayloadNumber, Option<Slot>>,
    /// All that were taken are void from this slot on.
    void_from: Slot,
}

impl Taken {
    /// The leader leads in this round. What it took in another is not proposed in this one.
    pub(super) fn enter(&mut self, round: Round) {
        if self.round != round {
            *self = Taken {
                round,
                processes: Vec::new(),
            };
        }
    }

    /// Takes a payload that is not void in `next`, the slot that it would get. Its disseminator
    /// proposes nothing more that has a number below `floor`.
    ///
    /// # Errors
    /// If it was taken before, or cannot be now; with the slot that it has got, if any.
    pub(super) fn take(
        &mut self,
        id: PayloadId,
        (floor, void_from, next): (PayloadNumber, Slot, Slot),
    ) -> Result<(), Option<Slot>> {
        let process = self.process(id, next);
        let (payloads, number) = (&mut process.payloads, id.number);
        payloads.advance_to(floor);
        if !payloads.admits(number) || payloads.get(number).is_some() {
            return Err(payloads.get(number).copied().flatten());
        }
        payloads.insert(number, None);
        process.void_from = process.void_from.max(void_from);
        Ok(())
    }

    /// What is known of the process that disseminates a payload. Where that is nothing, others are
    /// forgotten of which all that was taken is void in `next` and later slots: it is not taken
    /// again. So there are no more processes than slots in which a payload is not void.
    fn process(&mut self, id: PayloadId, next: Slot) -> &mut Process {
        let PayloadId {
            disseminator, life, ..
        } = id;
        let is_it =
            |process: &Process| (process.disseminator, process.life) == (disseminator, life);
        let place = self.processes.iter().rposition(is_it);
        let place = place.unwrap_or_else(|| {
            self.processes.retain(|process| process.void_from > next);
            self.processes.push(Process {
                disseminator,
                life,
                payloads: Window::new(PayloadNumber::ZERO, MAX_TAKEN),
                void_from: Slot::ZERO,
            });
            self.processes.len() - 1
        });
        &mut self.processes[place]
    }

    /// A payload that was taken is dropped before it got a slot.
    pub(super) fn drop(&mut self, id: PayloadId, next: Slot) {
        self.process(id, next).payloads.remove(id.number);
    }

    /// Whether the disseminator of a payload that was taken proposes it no more.
    pub(super) fn is_past(&self, id: PayloadId) -> bool {
        let of =
            |process: &&Process| (process.disseminator, process.life) == (id.disseminator, id.life);
        let process = self.processes.iter().find(of);
        process.is_some_and(|process| id.number < process.payloads.base())
    }

    /// A slot was given to what a disseminator calls `number`.
    pub(super) fn placed(
        &mut self,
        disseminator: DisseminatorId,
        number: PayloadNumber,
        slot: Slot,
    ) {
        let processes = self.processes.iter_mut();
        for process in processes.filter(|process| process.disseminator == disseminator) {
            if let Some(place) = process.payloads.get_mut(number) {
                *place = Some(slot);
            }
        }
    }

    /// The number of payloads that are taken.
    pub(super) fn len(&self) -> usize {
        let processes = self.processes.iter();
        processes.map(|process| process.payloads.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(life: u64, number: u64) -> PayloadId {
        PayloadId {
            disseminator: DisseminatorId(1),
            life,
            number: PayloadNumber(number),
        }
    }

    fn take(
        taken: &mut Taken,
        id: PayloadId,
        (floor, void_from, next): (u64, u64, u64),
    ) -> Result<(), Option<Slot>> {
        taken.take(id, (PayloadNumber(floor), Slot(void_from), Slot(next)))
    }

    #[test]
    fn a_payload_is_taken_once_in_a_round_and_at_or_above_the_floor_only() {
        let mut taken = Taken::default();
        taken.enter(Round(1));
        assert_eq!(take(&mut taken, id(5, 7), (6, 9, 0)), Ok(()));
        assert_eq!(take(&mut taken, id(5, 7), (6, 9, 1)), Err(None));
        taken.placed(DisseminatorId(1), PayloadNumber(7), Slot(3));
        assert_eq!(take(&mut taken, id(5, 7), (6, 9, 4)), Err(Some(Slot(3))));
        assert_eq!(take(&mut taken, id(5, 5), (6, 9, 4)), Err(None));
        let is_past = |taken: &Taken, life, number| taken.is_past(id(life, number));
        assert!(is_past(&taken, 5, 5) && !is_past(&taken, 5, 6) && !is_past(&taken, 6, 5));
        assert_eq!(take(&mut taken, id(6, 7), (6, 9, 4)), Ok(()));
        taken.enter(Round(1));
        assert_eq!(taken.len(), 2);
        taken.drop(id(6, 7), Slot(4));
        assert_eq!(take(&mut taken, id(6, 7), (6, 9, 4)), Ok(()));
        taken.enter(Round(2));
        assert_eq!(take(&mut taken, id(5, 7), (6, 9, 4)), Ok(()));
    }

    #[test]
    fn processes_are_forgotten_when_the_log_has_passed_all_that_was_taken_of_them() {
        let mut taken = Taken::default();
        assert_eq!(take(&mut taken, id(5, 7), (0, 9, 0)), Ok(()));
        assert_eq!(take(&mut taken, id(5, 8), (0, 4, 0)), Ok(()));
        assert_eq!(take(&mut taken, id(6, 7), (0, 20, 8)), Ok(()));
        assert_eq!(taken.len(), 3, "one of them is not void in slot 8");
        assert_eq!(take(&mut taken, id(7, 7), (0, 20, 9)), Ok(()));
        assert_eq!(taken.len(), 2);
        assert_eq!(take(&mut taken, id(6, 7), (0, 20, 10)), Err(None));
    }
}
