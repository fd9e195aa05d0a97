//! What several messages are made of: payloads, and the references to them that the log holds.

use super::id::{DisseminatorId, PayloadNumber, StabilizerId};
use alloc::vec::Vec;
use bytes::BytesMut;
use ionian_kernel::id::*;
use ionian_kernel::trace::{CommandId, Commands, LogSlot, Names, Subject};
use ionian_kernel::wire::{Reader, Wire};
use ionian_kernel::wire_struct;
use ionian_replication::batch::{Batch, BatchBuilder, Command, Purpose};

/// The name of a payload. No two payloads have the same, whatever becomes of the disseminator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadId {
    /// Who named it.
    pub disseminator: DisseminatorId,
    /// A random number that the disseminator drew when its process began.
    pub life: u64,
    /// Its number among the payloads of that process. They begin with the number `life`, so that a
    /// stray answer to an earlier process settles nothing.
    pub number: PayloadNumber,
}

wire_struct! { PayloadId { disseminator, life, number } }

impl PayloadId {
    /// What stands for it in traces.
    fn traced(&self) -> LogSlot {
        LogSlot::of_payload(self.number.0)
    }
}

impl Names for PayloadId {
    fn add_to<'a>(&'a self, subject: &mut Subject<'a>) {
        subject.slot = Some(self.traced());
    }
}

/// Commands as disseminators hand them to stabilizers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Its name.
    pub id: PayloadId,
    /// The round in which alone it may be given a slot. It is stable when a write quorum of the
    /// round's epoch stores it.
    pub round: Round,
    /// It has an effect only in a slot below this one.
    pub void_from: Slot,
    /// The commands.
    pub batch: Batch,
}

wire_struct! { Payload { id, round, void_from, batch } }

/// This is how traces learn which commands a payload has.
impl Names for Payload {
    fn add_to<'a>(&'a self, subject: &mut Subject<'a>) {
        self.id.add_to(subject);
        self.batch.add_to(subject);
    }
}

/// What goes with a payload and is no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The payload.
    pub id: PayloadId,
    /// It has an effect only in a slot below this one.
    pub void_from: Slot,
    /// The round in which alone it may be given a slot.
    pub round: Round,
    /// Its disseminator proposes nothing more that has a number below this one.
    pub floor: PayloadNumber,
}

wire_struct! { Ticket { id, void_from, round, floor } }

impl Commands for Ticket {
    fn each_id(&self, _: &mut dyn FnMut(CommandId)) {}

    fn each_reference(&self, show: &mut dyn FnMut(LogSlot)) {
        show(self.id.traced());
    }
}

/// What the log holds in place of a payload: where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The payload.
    pub id: PayloadId,
    /// In this slot and later ones it is void: what is executed there is a noop.
    pub void_from: Slot,
    /// These stabilizers have said that they hold it; a write quorum is among them.
    pub stored: Set<StabilizerId>,
}

wire_struct! { Reference { id, void_from, stored } }

/// A reference is not longer than this when it is written.
const REFERENCE_BYTES: usize = 48;

impl Reference {
    /// The batch that a leader orders in its place.
    pub fn batch(&self) -> Batch {
        let (client, purpose) = (ClientId(0), Purpose::Internal);
        let mut payload = Vec::with_capacity(REFERENCE_BYTES);
        self.encode(&mut payload);
        let mut builder = BatchBuilder::default();
        builder.push(&Command {
            client,
            purpose,
            number: 0,
            floor: 0,
            payload,
        });
        builder.take()
    }

    /// The reference in a batch of the log; none in a noop and in what a leader proposes of its own
    /// accord.
    pub fn of(batch: &Batch) -> Option<Reference> {
        if batch.len() != 1 {
            return None;
        }
        let command = batch
            .commands()
            .next()
            .filter(|command| command.purpose == Purpose::Internal)?;
        let mut arena = BytesMut::new();
        let mut reader = Reader::copying(command.payload, &mut arena);
        Reference::decode(&mut reader)
            .ok()
            .filter(|_| reader.remaining() == 0)
    }

    /// What stands in traces for the payload of a reference in this batch.
    pub fn traced(batch: &Batch) -> Option<LogSlot> {
        Reference::of(batch).map(|reference| reference.id.traced())
    }

    /// Whether it is void in `slot`.
    pub fn is_void(&self, slot: Slot) -> bool {
        slot >= self.void_from
    }
}

/// Payloads and the slots in which they are chosen.
pub type Places = Vec<(PayloadId, Slot)>;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use ionian_kernel::wire::encode_all;

    #[test]
    fn a_reference_comes_back_from_the_log_and_nothing_else_is_one() {
        let id = PayloadId {
            disseminator: DisseminatorId(3),
            life: u64::MAX,
            number: PayloadNumber(7),
        };
        let reference = Reference {
            id,
            void_from: Slot(9),
            stored: Set::first(2),
        };
        assert_eq!(Reference::of(&reference.batch()), Some(reference));
        assert!(!reference.is_void(Slot(8)) && reference.is_void(Slot(9)));
        assert_eq!(Reference::of(&Batch::default()), None);
        let (client, payload) = (ClientId(0), encode_all(&reference).into());
        let command = Command {
            client,
            purpose: Purpose::Change,
            number: 0,
            floor: 0,
            payload,
        };
        assert_eq!(Reference::of(&Batch::one(&command)), None);
        let short = Command {
            purpose: Purpose::Internal,
            payload: Bytes::from_static(b"?"),
            ..command
        };
        assert_eq!(Reference::of(&Batch::one(&short)), None);
    }
}
