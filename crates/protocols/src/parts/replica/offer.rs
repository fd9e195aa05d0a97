//! The snapshot that a replica hands out to peers, piece by piece, while it goes on.
//!
//! It is a frozen picture, and pieces are written as they are asked for. What is written stays at
//! hand, so that a peer can ask again from any offset: at most one whole snapshot is held, as long
//! as it is used.

use super::{ReplicaCore, ReplicaPort};
use crate::parts::branch;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::{ReplicaId, Slot};
use ionian_kernel::machine::Frozen;
use ionian_kernel::time::{Duration, Instant};

/// Bytes of a snapshot in one message, at most: about a millisecond of work for the node that
/// writes it.
const PIECE_BYTES: usize = 512 << 10;

/// A piece is this part of what may be sent in a second, so that a low limit is no series of jerks;
/// but a message for a few bytes is a waste.
const PIECES_A_SECOND: usize = 128;
const SMALLEST_PIECE: usize = 64;

/// A snapshot of which no peer has asked a piece for this long is dropped.
const KEPT: Duration = Duration::from_secs(10);

/// See the top of this file.
pub(crate) struct Offer {
    /// The state is that before this slot.
    pub(crate) executed: Slot,
    /// What is not written yet, if anything is.
    frozen: Option<Box<dyn Frozen>>,
    /// What is written, each piece with its offset.
    pieces: Vec<(u64, Bytes)>,
    written: u64,
    piece_bytes: usize,
    used_at: Instant,
}

/// A piece of a snapshot.
pub(crate) struct Piece {
    /// Its bytes.
    pub(crate) bytes: Bytes,
    /// Whether the snapshot ends with it.
    pub(crate) last: bool,
}

impl ReplicaCore {
    /// Begins to hand a peer a snapshot: the one at hand if it is of use, or else a new one.
    pub(super) fn offer_snapshot(
        &mut self,
        now: Instant,
        to: ReplicaId,
        start: Slot,
        port: &mut impl ReplicaPort,
    ) {
        if self.snapshots.are_elsewhere() {
            // The one at hand, or an empty piece: the peer asks for the state of all logs.
            if !self.offer_at_hand(now, to, start, port) {
                port.snapshot_chunk(to, self.executed, 0, false, Bytes::new());
            }
            return;
        }
        // After an older one the peer would still miss slots that are forgotten here.
        let oldest = self.log.base().max(start.next());
        if self
            .offer
            .as_ref()
            .is_none_or(|offer| offer.executed < oldest)
        {
            if !self.is_a_prefix(now) {
                return port.reached(branch::OFFER_WAITS);
            }
            self.make_offer(now);
        }
        self.send_chunk(now, to, 0, port);
    }

    /// Takes a snapshot of the present state, for peers.
    pub(super) fn make_offer(&mut self, now: Instant) {
        let rate = self.config.options().snapshot_bytes_per_second;
        let frozen = self.executor.freeze();
        self.offer = Some(Offer::new(rate, now, self.executed, frozen));
    }

    /// A peer wants a piece of a snapshot.
    pub fn on_fetch_snapshot(
        &mut self,
        now: Instant,
        to: ReplicaId,
        executed: Slot,
        offset: u64,
        port: &mut impl ReplicaPort,
    ) {
        match self
            .offer
            .as_ref()
            .is_some_and(|offer| offer.executed == executed)
        {
            true => self.send_chunk(now, to, offset, port),
            // That one is gone: the peer begins again with another.
            false => {
                port.reached(branch::OFFER_GONE);
                self.offer_snapshot(now, to, Slot::ZERO, port);
            }
        }
    }

    pub(super) fn send_chunk(
        &mut self,
        now: Instant,
        to: ReplicaId,
        offset: u64,
        port: &mut impl ReplicaPort,
    ) {
        let offer = self.offer.as_mut().expect("there is a snapshot at hand");
        let Some(Piece { bytes, last }) = offer.piece(now, offset) else {
            self.stale += 1;
            return;
        };
        port.snapshot_chunk(to, offer.executed, offset, last, bytes);
    }
}

impl Offer {
    /// Of the state before the slot `executed`, to be sent at this rate, in bytes a second.
    pub(crate) fn new(rate: usize, now: Instant, executed: Slot, frozen: Box<dyn Frozen>) -> Self {
        let piece_bytes = (rate / PIECES_A_SECOND).clamp(SMALLEST_PIECE, PIECE_BYTES);
        Offer {
            executed,
            frozen: Some(frozen),
            pieces: Vec::new(),
            written: 0,
            piece_bytes,
            used_at: now,
        }
    }

    /// What there is from `offset` on; `None` for an offset beyond what was written.
    pub(crate) fn piece(&mut self, now: Instant, offset: u64) -> Option<Piece> {
        if offset > self.written {
            return None;
        }
        self.used_at = now;
        if offset == self.written {
            self.write_some();
        }
        let whole = self.frozen.is_none();
        let place = self
            .pieces
            .partition_point(|(start, _)| *start <= offset)
            .checked_sub(1);
        let Some((start, piece)) = place.map(|place| &self.pieces[place]) else {
            return Some(Piece {
                bytes: Bytes::new(),
                last: whole,
            });
        };
        let bytes = piece.slice(piece.len().min((offset - start) as usize)..);
        Some(Piece {
            last: whole && offset + bytes.len() as u64 == self.written,
            bytes,
        })
    }

    /// Writes at least one piece more, if there is one.
    fn write_some(&mut self) {
        let mut written = Vec::new();
        while let Some(frozen) = &mut self.frozen
            && written.len() < self.piece_bytes
        {
            if !frozen.write_some(&mut written) {
                self.frozen = None;
            }
        }
        // A machine may hand over everything at once.
        let mut rest = Bytes::from(written);
        while !rest.is_empty() {
            let piece = rest.split_to(self.piece_bytes.min(rest.len()));
            let start = self.written;
            self.written += piece.len() as u64;
            self.pieces.push((start, piece));
        }
    }

    /// Whether no peer has asked for a piece lately.
    pub(crate) fn is_abandoned(&self, now: Instant) -> bool {
        now.since(self.used_at) > KEPT
    }
}

/// How long `bytes` take at this rate, in bytes a second.
pub(crate) fn time_for(bytes: usize, rate: usize) -> Duration {
    Duration::from_micros((bytes as u64).saturating_mul(1_000_000) / rate.max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Hands over these pieces, and counts how many it has.
    struct Pieces(Vec<Vec<u8>>);

    impl Frozen for Pieces {
        fn write_some(&mut self, out: &mut Vec<u8>) -> bool {
            match self.0.is_empty() {
                true => false,
                false => {
                    out.append(&mut self.0.remove(0));
                    true
                }
            }
        }
    }

    fn offer(rate: usize, pieces: Vec<Vec<u8>>) -> Offer {
        Offer::new(rate, Instant(0), Slot(7), Box::new(Pieces(pieces)))
    }

    /// Takes everything from `offset` on; returns it with the number of pieces.
    fn take_all(offer: &mut Offer, mut offset: u64) -> (Vec<u8>, usize) {
        let (mut all, mut count) = (Vec::new(), 0);
        loop {
            let piece = offer.piece(Instant(1), offset).unwrap();
            all.extend_from_slice(&piece.bytes);
            offset += piece.bytes.len() as u64;
            count += 1;
            if piece.last {
                return (all, count);
            }
        }
    }

    #[test]
    fn pieces_are_written_as_they_are_asked_for_and_again_from_any_offset() {
        let parts: Vec<Vec<u8>> = (0..40u8).map(|byte| vec![byte; 50]).collect();
        let whole = parts.concat();
        // Pieces of 100 bytes.
        let mut offer = offer(100 * PIECES_A_SECOND, parts);
        assert!(offer.piece(Instant(1), 1).is_none(), "out of turn");
        let first = offer.piece(Instant(1), 0).unwrap();
        assert_eq!(
            (&first.bytes[..], first.last, offer.written),
            (&whole[..100], false, 100)
        );
        let (all, count) = take_all(&mut offer, 0);
        assert!(all == whole && count == 21, "20 pieces and the end");
        for offset in [0, 1, 99, 100, 101, 1950, 1999, 2000] {
            assert!(
                take_all(&mut offer, offset).0 == whole[offset as usize..],
                "from {offset}"
            );
        }
        assert!(offer.piece(Instant(1), 2001).is_none());
    }

    #[test]
    fn a_machine_that_hands_over_all_at_once_is_parted_and_an_empty_one_ends_at_once() {
        let mut large = offer(100 * PIECES_A_SECOND, vec![vec![7; 1050]]);
        assert_eq!(take_all(&mut large, 0), (vec![7; 1050], 12));
        assert_eq!(take_all(&mut offer(1, vec![]), 0), (vec![], 1));
    }

    #[test]
    fn it_lasts_as_long_as_it_is_used() {
        let mut offer = offer(1, vec![vec![7; 1050]]);
        let late = Instant(0) + KEPT;
        offer.piece(late, 0);
        assert!(!offer.is_abandoned(late + KEPT));
        assert!(offer.is_abandoned(late + KEPT + Duration::from_micros(1)));
    }
}
