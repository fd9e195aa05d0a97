//! The first half of a leaderless read through a relay (PigPaxos 8.2): the largest watermark of a
//! group, with the names of those that have none above it.
//!
//! Acceptors that have promised rounds of different epochs are named in messages of their own.
//! While the membership is changing, a new acceptor may be the only one that has promised a round
//! of both configurations. If the others seemed to have done so, they would not be enough for a
//! read.

use super::Relay;
use super::gathering::{Answered, Gathered};
use crate::multipaxos::message::ReaderId;
use crate::multipaxos::{Envelope, acceptor, client, read_batcher};
use crate::pigpaxos::message::Watermarks;
use alloc::boxed::Box;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};

/// Who reads, and its number for the inquiry.
pub(super) type Key = (ReaderId, u64);

/// What an acceptor answers: its watermark, the epoch of its promise, and how far a replica of its
/// node has executed.
pub(super) type Answer = (Slot, Epoch, Slot);

/// What acceptors have answered, by the epoch of their promises.
#[derive(Default)]
pub(super) struct Largest(SmallMap<Epoch, OfEpoch>);

#[derive(Default)]
struct OfEpoch {
    answered: AcceptorSet,
    watermark: Slot,
    /// The acceptor whose replica has executed the most, and how far that is.
    ahead: (Slot, AcceptorId),
}

impl Gathered for Largest {
    type Answer = Answer;

    fn add(&mut self, from: AcceptorId, (watermark, epoch, executed): Answer) {
        let known = self.0.entry(epoch).or_default();
        known.answered.insert(from);
        known.watermark = known.watermark.max(watermark);
        known.ahead = known.ahead.max((executed, from));
    }
}

impl Relay {
    /// A reader asks these acceptors for their watermarks.
    pub(super) fn on_pre_read(
        &mut self,
        now: Instant,
        (members, patience): (AcceptorSet, Duration),
        (reader, inquiry): Key,
        out: &mut Out<'_, Self>,
    ) {
        let waits = self.waits(patience);
        if !self
            .watermarks
            .begin(now, (reader, inquiry), members, waits)
        {
            return self.is_full(out);
        }
        let message = acceptor::In::RelayedPreRead {
            from: self.id,
            reader,
            inquiry,
        };
        out.send(Envelope::ToAcceptors(members, message));
    }

    /// An acceptor answers a reader.
    pub(super) fn on_pre_read_ack(
        &mut self,
        now: Instant,
        from: AcceptorId,
        key: Key,
        answer: Answer,
        out: &mut Out<'_, Self>,
    ) {
        self.suspicion.heard(from);
        let suspects = self.suspicion.suspects();
        if let Some(answered) = self.watermarks.add(now, key, from, answer, suspects) {
            self.tell_reader(key, answered, out);
        }
    }

    pub(super) fn tell_reader(
        &self,
        (reader, inquiry): Key,
        answered: Answered<Largest>,
        out: &mut Out<'_, Self>,
    ) {
        let (Largest(mut told), mut missing) = (answered.gathered, answered.missing);
        if told.is_empty() {
            told.insert(Epoch::default(), OfEpoch::default());
        }
        for (epoch, of_epoch) in told {
            let (executed, ahead) = of_epoch.ahead;
            let watermarks = Box::new(Watermarks {
                relay: Some(self.id),
                inquiry,
                answered: of_epoch.answered,
                watermark: of_epoch.watermark,
                epoch,
                ahead,
                executed,
                missing: core::mem::take(&mut missing),
            });
            out.send(to_reader(reader, watermarks));
        }
    }
}

/// A message to a reader.
pub(crate) fn to_reader(reader: ReaderId, watermarks: Box<Watermarks>) -> Envelope {
    match reader {
        ReaderId::Client { id } => {
            Envelope::ToClients(Set::one(id), client::In::Watermarks { watermarks })
        }
        ReaderId::ReadBatcher { id } => {
            let message = read_batcher::In::Watermarks { watermarks };
            Envelope::ToReadBatchers(Set::one(id), message)
        }
    }
}
