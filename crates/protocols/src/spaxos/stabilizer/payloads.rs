//! The payloads that a stabilizer holds, until when each is needed, and where its record is.
//!
//! A payload that is known to be chosen in a slot is needed until f+1 replicas keep that slot: it
//! is given no other. One of which nothing is known is needed until they keep every slot in which
//! it would not be void.

use super::super::message::{Payload, PayloadId};
use crate::spaxos::id::{DisseminatorId, PayloadNumber, RecordPlace};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;
use ionian_kernel::id::{Epoch, Round, Slot};
use ionian_replication::batch::Batch;
use ionian_replication::page::Page;

/// Records of payloads that are forgotten may stand between those of others up to this many, and as
/// many again as there are payloads.
const MAX_GAPS: usize = 64;

/// How much memory the payloads may need: their bytes, and for each this much more to find it.
/// Reached only while f+1 replicas are behind for very long, or until the log has passed what no
/// leader orders (see `stale.rs`); the stabilizer refuses more until then, and commands wait.
const MAX_MEMORY: usize = 1 << 31;
const MEMORY_OF_EACH: usize = 512;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Payloads {
    /// By the process that disseminates them, and their numbers there.
    held: BTreeMap<(DisseminatorId, u64), BTreeMap<PayloadNumber, Held>>,
    count: usize,
    /// What is chosen in which slot.
    chosen: BTreeMap<Slot, PayloadId>,
    /// Payloads by the slot from which on they are void. What was chosen or forgotten meanwhile
    /// stays where it is: there are few such slots, and whatever comes in goes into the last.
    void_from: BTreeMap<Slot, Vec<PayloadId>>,
    /// Whose each record is, from the first that is needed on.
    records: VecDeque<Option<PayloadId>>,
    /// The place of the first of them.
    first_place: RecordPlace,
    bytes: usize,
    changes: u64,
}

struct Held {
    void_from: Slot,
    batch: Batch,
    /// The round in which it is to be ordered.
    round: Round,
    /// It can be forgotten as soon as replicas keep every slot below this one.
    end: Slot,
    place: RecordPlace,
}

impl Payloads {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// How many bytes all of them hold.
    pub(super) fn byte_len(&self) -> usize {
        self.bytes
    }

    fn memory(&self) -> usize {
        self.bytes + self.count * MEMORY_OF_EACH
    }

    /// Whether there is no room for another.
    pub(super) fn is_full(&self) -> bool {
        self.memory() >= MAX_MEMORY
    }

    /// Whether half of the room is used.
    pub(super) fn is_half_full(&self) -> bool {
        self.memory() >= MAX_MEMORY / 2
    }

    /// How often one was taken in or forgotten.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn get(&self, id: PayloadId) -> Option<&Batch> {
        self.held(id).map(|held| &held.batch)
    }

    fn held(&self, id: PayloadId) -> Option<&Held> {
        self.held.get(&(id.disseminator, id.life))?.get(&id.number)
    }

    fn held_mut(&mut self, id: PayloadId) -> Option<&mut Held> {
        self.held
            .get_mut(&(id.disseminator, id.life))?
            .get_mut(&id.number)
    }

    pub(super) fn payload(&self, id: PayloadId) -> Option<Payload> {
        self.held(id).map(|held| Payload {
            id,
            round: held.round,
            void_from: held.void_from,
            batch: held.batch.clone(),
        })
    }

    /// All of them, each with the round in which it is to be ordered.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PayloadId, Round, &Batch)> {
        let all = self.iter_after(None);
        all.map(|(id, held)| (id, held.round, &held.batch))
    }

    /// Those that come after this one in the order of their names, or all.
    fn iter_after(&self, after: Option<PayloadId>) -> impl Iterator<Item = (PayloadId, &Held)> {
        let begins_in = after.map_or((DisseminatorId(0), 0), |after| {
            (after.disseminator, after.life)
        });
        self.held.range(begins_in..).flat_map(move |(of, held)| {
            let (disseminator, life) = *of;
            let begins_after = after.filter(|_| *of == begins_in).map(|after| after.number);
            let start = begins_after.map_or(Bound::Unbounded, Bound::Excluded);
            let id = move |number| PayloadId {
                disseminator,
                life,
                number,
            };
            held.range((start, Bound::Unbounded))
                .map(move |(number, held)| (id(*number), held))
        })
    }

    /// Those that come after `after` in the order of their names and are to be ordered in rounds of
    /// epochs before `before`, at most this many bytes but at least one payload, and whether there
    /// are no more.
    pub(super) fn page(
        &self,
        after: Option<PayloadId>,
        before: Option<Epoch>,
        most_bytes: usize,
    ) -> (Vec<Payload>, bool) {
        let (mut page, mut room) = (Vec::new(), Page::new(most_bytes));
        let wanted = |held: &Held| before.is_none_or(|before| held.round.epoch() < before);
        for (id, held) in self.iter_after(after).filter(|(_, held)| wanted(held)) {
            if !room.takes(held.batch.byte_len() + 64) {
                return (page, false);
            }
            page.push(Payload {
                id,
                round: held.round,
                void_from: held.void_from,
                batch: held.batch.clone(),
            });
        }
        (page, true)
    }

    /// Takes a payload in; the place of its record, unless it is held already.
    pub(super) fn keep(&mut self, payload: Payload) -> Option<RecordPlace> {
        if self.held(payload.id).is_some() {
            return None;
        }
        let place = self.next_place();
        self.records.push_back(Some(payload.id));
        self.insert(payload, place);
        Some(place)
    }

    fn insert(&mut self, payload: Payload, place: RecordPlace) {
        let Payload {
            id,
            round,
            void_from,
            batch,
        } = payload;
        self.changes += 1;
        self.bytes += batch.byte_len();
        self.void_from.entry(void_from).or_default().push(id);
        self.count += 1;
        let life = self.held.entry((id.disseminator, id.life)).or_default();
        life.insert(
            id.number,
            Held {
                void_from,
                batch,
                round,
                end: void_from,
                place,
            },
        );
    }

    /// Takes in what records say, by their places, but for those below `released`: they were not
    /// needed any more.
    pub(super) fn recover(
        &mut self,
        released: RecordPlace,
        mut recovered: BTreeMap<RecordPlace, Payload>,
    ) {
        self.first_place = released;
        for (place, payload) in recovered.split_off(&released) {
            if self.records.is_empty() {
                self.first_place = place;
            }
            // A record that was written again is older than that.
            self.forget(payload.id);
            while self.next_place() < place {
                self.records.push_back(None);
            }
            self.records.push_back(Some(payload.id));
            self.insert(payload, place);
        }
    }

    /// The payload is chosen in `slot`; false when that was known, or it is not held.
    pub(super) fn chosen(&mut self, id: PayloadId, slot: Slot) -> bool {
        let Some(held) = self.held_mut(id) else {
            return false;
        };
        let end = held.void_from.min(slot.next());
        if end == held.end {
            return false;
        }
        held.end = end;
        self.chosen.insert(slot, id);
        true
    }

    /// The payloads that are not known to be chosen.
    fn undecided(&self) -> impl Iterator<Item = &Held> {
        let all = self.held.values().flat_map(BTreeMap::values);
        all.filter(|held| held.end == held.void_from)
    }

    /// The bytes of payloads of rounds before this one that are not known to be chosen, and the
    /// first slot in which all of them are void.
    pub(super) fn undecided_before(&self, round: Round) -> (usize, Slot) {
        let undecided = self.undecided().filter(|held| held.round < round);
        undecided.fold((0, Slot::ZERO), |(bytes, void_from), held| {
            (bytes + held.batch.byte_len(), void_from.max(held.void_from))
        })
    }

    /// The first slot in which the older half of the payloads is void that are not known to be
    /// chosen, by the memory that they need; none if that is less than a quarter of the room. The
    /// older a payload is, the lower is the slot from which on it is void, whatever its round.
    pub(super) fn older_half(&self) -> Option<Slot> {
        let (mut by_slot, mut total) = (BTreeMap::<Slot, usize>::new(), 0);
        for held in self.undecided() {
            let memory = held.batch.byte_len() + MEMORY_OF_EACH;
            *by_slot.entry(held.void_from).or_default() += memory;
            total += memory;
        }
        let mut older = 0;
        let mut slots = by_slot.into_iter().filter_map(|(slot, memory)| {
            older += memory;
            (older >= total / 2).then_some(slot)
        });
        slots.next().filter(|_| total >= MAX_MEMORY / 4)
    }

    /// f+1 replicas keep every slot below `kept`.
    pub(super) fn forget_kept(&mut self, kept: Slot) {
        while let Some(first) = self
            .chosen
            .first_entry()
            .filter(|first| *first.key() < kept)
        {
            let id = first.remove();
            self.forget_ended(id, kept);
        }
        while let Some(first) = self
            .void_from
            .first_entry()
            .filter(|first| *first.key() <= kept)
        {
            for id in first.remove() {
                self.forget_ended(id, kept);
            }
        }
    }

    fn forget_ended(&mut self, id: PayloadId, kept: Slot) {
        if self.held(id).is_some_and(|held| held.end <= kept) {
            self.forget(id);
        }
    }

    pub(super) fn forget(&mut self, id: PayloadId) {
        let life = (id.disseminator, id.life);
        let Some(of_life) = self.held.get_mut(&life) else {
            return;
        };
        let Some(held) = of_life.remove(&id.number) else {
            return;
        };
        if of_life.is_empty() {
            self.held.remove(&life);
        }
        self.changes += 1;
        self.count -= 1;
        self.bytes -= held.batch.byte_len();
        self.clear_record(held.place);
    }

    fn clear_record(&mut self, place: RecordPlace) {
        self.records[place.distance(self.first_place) as usize] = None;
        while self.records.front().is_some_and(Option::is_none) {
            self.records.pop_front();
            self.first_place = self.first_place.next();
        }
    }

    /// The place of the first record that is needed.
    pub(super) fn first_place(&self) -> RecordPlace {
        self.first_place
    }

    fn next_place(&self) -> RecordPlace {
        self.first_place.plus(self.records.len() as u64)
    }

    /// Gives the payload with the oldest record another place when that record holds back many
    /// others that are not needed any more; the place, and the payload to write there.
    pub(super) fn move_oldest(&mut self) -> Option<(RecordPlace, Payload)> {
        if self.records.len() <= 2 * self.count + MAX_GAPS {
            return None;
        }
        let id = self
            .records
            .front()
            .copied()
            .flatten()
            .expect("the first record is needed");
        let place = self.next_place();
        self.records.push_back(Some(id));
        let held = self.held_mut(id).expect("it is held");
        let before = core::mem::replace(&mut held.place, place);
        self.clear_record(before);
        self.payload(id).map(|payload| (place, payload))
    }

    pub(super) fn invariants(&self) {
        let needed = self.records.iter().flatten().count();
        let held: usize = self.held.values().map(BTreeMap::len).sum();
        assert!(
            needed == held && held == self.count,
            "a stabilizer lost count of its payloads"
        );
        let listed: usize = self.void_from.values().map(Vec::len).sum();
        assert!(listed >= needed, "a payload will never be forgotten");
        assert!(
            self.records.front().is_none_or(Option::is_some),
            "a record is held back that is not needed"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use ionian_kernel::id::ClientId;
    use ionian_kernel::id::SessionId;
    use ionian_replication::batch::Command;
    use ionian_replication::batch::Purpose;

    fn id(number: u64) -> PayloadId {
        PayloadId {
            disseminator: DisseminatorId(0),
            life: 5,
            number: PayloadNumber(number),
        }
    }

    fn payload(number: u64, void_from: u64) -> Payload {
        let (client, purpose, payload) = (
            ClientId(0),
            Purpose::Execute(SessionId(1)),
            vec![7; 100].into(),
        );
        let batch = Batch::one(&Command {
            client,
            purpose,
            number,
            floor: 0,
            payload,
        });
        Payload {
            id: id(number),
            round: Round(1),
            void_from: Slot(void_from),
            batch,
        }
    }

    fn place(number: u64) -> Option<RecordPlace> {
        Some(RecordPlace(number))
    }

    fn held(payloads: &Payloads) -> Vec<u64> {
        payloads.invariants();
        payloads.iter().map(|(id, _, _)| id.number.0).collect()
    }

    #[test]
    fn a_payload_is_held_until_its_slot_is_kept_or_it_would_be_void() {
        let mut payloads = Payloads::default();
        for number in 0..4 {
            assert_eq!(payloads.keep(payload(number, 10)), place(number));
        }
        assert_eq!(payloads.keep(payload(3, 10)), None, "held already");
        assert!(
            payloads.chosen(id(1), Slot(4))
                && !payloads.chosen(id(1), Slot(4))
                && !payloads.chosen(id(9), Slot(4))
        );
        assert!(
            !payloads.chosen(id(2), Slot(15)),
            "void there: nothing follows from it"
        );
        payloads.forget_kept(Slot(4));
        assert_eq!(held(&payloads), [0, 1, 2, 3]);
        payloads.forget_kept(Slot(5));
        assert_eq!(held(&payloads), [0, 2, 3]);
        payloads.forget_kept(Slot(10));
        assert_eq!(
            (held(&payloads), payloads.byte_len(), payloads.first_place()),
            (vec![], 0, RecordPlace(4))
        );
    }

    #[test]
    fn the_log_is_not_held_back_by_payloads_that_no_leader_orders() {
        let mut payloads = Payloads::default();
        payloads.keep(payload(0, 1 << 20));
        let mut written = 0;
        for number in 1..1000 {
            payloads.keep(payload(number, 1 << 20));
            payloads.chosen(id(number), Slot(number));
            payloads.forget_kept(Slot(number + 1));
            while let Some((place, moved)) = payloads.move_oldest() {
                assert_eq!((moved.id, place.next()), (id(0), payloads.next_place()));
                written += 1;
            }
            let records = payloads.next_place().distance(payloads.first_place());
            assert!(records <= 2 + MAX_GAPS as u64);
        }
        assert_eq!(held(&payloads), [0]);
        assert!((10..20).contains(&written), "written again {written} times");
    }

    #[test]
    fn what_was_written_is_found_again_wherever_it_was_moved() {
        let recover = |released, records: &[(u64, u64)]| {
            let mut payloads = Payloads::default();
            let records = records
                .iter()
                .map(|(place, number)| (RecordPlace(*place), payload(*number, 10)));
            payloads.recover(RecordPlace(released), records.collect());
            payloads
        };
        // Two that are forgotten, one, and the first of them again at a later place.
        let mut payloads = recover(0, &[(7, 0), (9, 1), (10, 0)]);
        assert_eq!(
            (
                held(&payloads),
                payloads.first_place(),
                payloads.next_place()
            ),
            (vec![0, 1], RecordPlace(9), RecordPlace(11))
        );
        assert_eq!(payloads.keep(payload(2, 10)), place(11));
        // Places go on even if nothing is left: a record that was released may come to light again.
        assert_eq!(recover(11, &[]).keep(payload(3, 10)), place(11));
        let mut payloads = recover(11, &[(9, 1), (10, 0), (11, 3)]);
        assert_eq!(
            (held(&payloads), payloads.keep(payload(2, 10))),
            (vec![3], place(12))
        );
    }

    #[test]
    fn pages_hold_everything_once() {
        let mut payloads = Payloads::default();
        for number in 0..10 {
            payloads.keep(payload(number, 10));
        }
        let (mut after, mut all, mut pages) = (None, Vec::new(), 0);
        loop {
            let (page, last) = payloads.page(after, None, 200);
            all.extend(page.iter().map(|payload| payload.id.number.0));
            after = page.last().map(|payload| payload.id);
            pages += 1;
            if last {
                break;
            }
        }
        assert_eq!((all, pages), ((0..10).collect(), 10));
        let round = Epoch(2).first_round();
        payloads.keep(Payload {
            round,
            ..payload(10, 10)
        });
        let count = |before| payloads.page(None, before, usize::MAX).0.len();
        assert_eq!((count(Some(Epoch(2))), count(Some(Epoch(3)))), (10, 11));
        assert_eq!(Payloads::default().page(None, None, 300), (vec![], true));
    }
}
