//! The first half of a leaderless read through a relay (PigPaxos 8.2): the largest watermark of a
//! group, with the names of those that have none above it.

use super::Relay;
use super::gathering::{Answered, Gathered};
use crate::multipaxos::message::ReaderId;
use crate::multipaxos::{Envelope, acceptor, client, read_batcher};
use crate::pigpaxos::message::Watermarks;
use alloc::boxed::Box;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant};

/// Who reads, and its number for the inquiry.
pub(super) type Key = (ReaderId, u64);

/// What an acceptor answers: its watermark, the epoch of its promise, and how far a replica of its
/// node has executed.
pub(super) type Answer = (Slot, Epoch, Slot);

#[derive(Default)]
pub(super) struct Largest {
    watermark: Slot,
    epoch: Epoch,
    /// The acceptor whose replica has executed the most, and how far that is.
    ahead: (Slot, AcceptorId),
}

impl Gathered for Largest {
    type Answer = Answer;

    fn add(&mut self, from: AcceptorId, (watermark, epoch, executed): Answer) {
        self.watermark = self.watermark.max(watermark);
        self.epoch = self.epoch.max(epoch);
        self.ahead = self.ahead.max((executed, from));
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
        let Largest {
            watermark,
            epoch,
            ahead: (executed, ahead),
        } = answered.gathered;
        let (relay, missing) = (Some(self.id), answered.missing);
        let watermarks = Box::new(Watermarks {
            relay,
            inquiry,
            answered: answered.answered,
            watermark,
            epoch,
            ahead,
            executed,
            missing,
        });
        out.send(to_reader(reader, watermarks));
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
