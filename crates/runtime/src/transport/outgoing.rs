//! The bytes that wait to be written to one peer, in two classes. Large messages wait for all
//! others and are written in pieces; other messages are written between the pieces. So heartbeats
//! and votes never wait behind values that take seconds.

use super::frame::{HEADER_BYTES, PIECE_HEADER_BYTES, frame_span, piece_header};
use bytes::Bytes;
use ionian_kernel::id::Members;
use std::collections::VecDeque;
use std::io::IoSlice;

/// A message of at least this size is large. Batches of small commands are smaller: many of them go
/// in one write.
pub(crate) const LARGE_FROM: usize = 32 << 10;

/// The largest piece of a large message: at 100 Mbit/s it occupies the link for 5 ms.
const PIECE_BYTES: usize = 64 << 10;

/// The memory that is kept when everything has been written: enough for most bursts.
const KEPT_CAPACITY: usize = 1 << 20;

/// See the top of this file.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) short: Frames,
    pub(crate) large: Large,
}

/// What to write next.
pub(crate) enum Next<'a> {
    /// The short frames.
    Short(&'a [u8]),
    /// A piece of a large message: its header, how much of the header is written, and the unwritten
    /// part of the piece.
    Large([u8; PIECE_HEADER_BYTES], usize, &'a [u8]),
}

impl Next<'_> {
    /// Writes it, or at most its first `most` bytes.
    pub(crate) fn write<E>(
        &self,
        most: usize,
        write: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        match self {
            Next::Short(bytes) => write(&[IoSlice::new(&bytes[..most.min(bytes.len())])]),
            Next::Large(header, from, piece) => {
                let header = &header[*from..];
                let header = &header[..most.min(header.len())];
                let piece = &piece[..piece.len().min(most - header.len())];
                write(&[IoSlice::new(header), IoSlice::new(piece)])
            }
        }
    }
}

impl Outgoing {
    /// What to write next, if at most this many bytes of short and of large messages may be
    /// written; `None` if nothing may.
    pub(crate) fn next(&self, ready: [usize; 2]) -> Option<Next<'_>> {
        let short =
            (!self.short.is_empty() && ready[0] > 0).then(|| Next::Short(self.short.unwritten()));
        let large = || self.large.next().filter(|_| ready[1] > 0);
        if self.large.is_begun() {
            return large();
        }
        // The rest of a frame may have to wait after a part is written: then no other bytes may
        // come in between.
        if short.is_some() || !self.short.is_between_frames() {
            short
        } else {
            large()
        }
    }

    /// How many bytes wait.
    pub(crate) fn len(&self) -> usize {
        self.short.len() + self.large.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops everything; returns how many messages were not written completely.
    pub(crate) fn clear(&mut self) -> u64 {
        self.short.clear() + self.large.clear()
    }
}

/// Large messages in order. The first may be partly written. Peers share their bytes.
#[derive(Debug, Default)]
pub(crate) struct Large {
    /// The addressed instances, and the message.
    waiting: VecDeque<(Members, Bytes)>,
    /// The offset of the present piece in the first message, and how many bytes of its header and
    /// the piece are written.
    at: usize,
    written: usize,
    /// How many bytes wait, including headers.
    unwritten: usize,
}

impl Large {
    /// Whether the same message to the same instances waits already: a second copy adds nothing.
    pub(crate) fn has(&self, members: Members, message: &Bytes) -> bool {
        self.waiting
            .iter()
            .any(|waiting| waiting.0 == members && waiting.1 == *message)
    }

    pub(crate) fn push(&mut self, members: Members, message: Bytes) {
        self.unwritten += message.len() + PIECE_HEADER_BYTES * message.len().div_ceil(PIECE_BYTES);
        self.waiting.push_back((members, message));
    }

    pub(crate) fn len(&self) -> usize {
        self.unwritten
    }

    /// Whether a piece is partly written.
    fn is_begun(&self) -> bool {
        self.written > 0
    }

    /// The present piece: the addressed instances, its bytes, and how many bytes of the message
    /// follow it.
    fn piece(&self) -> Option<(Members, &[u8], usize)> {
        let (members, message) = self.waiting.front()?;
        let end = message.len().min(self.at + PIECE_BYTES);
        Some((*members, &message[self.at..end], message.len() - end))
    }

    fn next(&self) -> Option<Next<'_>> {
        let (members, piece, rest) = self.piece()?;
        let of_header = self.written.min(PIECE_HEADER_BYTES);
        // A header that is written is not computed again: its checksum covers the whole piece.
        let header = match of_header < PIECE_HEADER_BYTES {
            true => piece_header(members, piece, rest),
            false => [0; PIECE_HEADER_BYTES],
        };
        Some(Next::Large(
            header,
            of_header,
            &piece[self.written - of_header..],
        ))
    }

    /// The next `count` bytes, all of one piece, were written.
    pub(crate) fn advance(&mut self, count: usize) {
        let (_, piece, rest) = self.piece().expect("something waits");
        let length = piece.len();
        self.unwritten -= count;
        self.written += count;
        if self.written < PIECE_HEADER_BYTES + length {
            return;
        }
        (self.written, self.at) = (0, self.at + length);
        if rest == 0 {
            self.at = 0;
            self.waiting.pop_front();
        }
    }

    fn clear(&mut self) -> u64 {
        core::mem::take(self).waiting.len() as u64
    }
}

/// Frames in order, of which a first part is written. The buffer always starts at a frame, so that
/// the incompletely written frames can be counted when a connection breaks.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    written: usize,
}

impl Frames {
    /// Removes the frame that was appended last if it is large; returns its message.
    pub(crate) fn take_large(&mut self, start: usize) -> Option<Bytes> {
        if self.buffer.len() - start < HEADER_BYTES + LARGE_FROM {
            return None;
        }
        // Copies the shorter part: the message, or the frames before it, which then stay in memory
        // as long as the message.
        let (message, at) = if start < self.buffer.len() / 2 {
            let before = self.buffer[..start].to_vec();
            (core::mem::replace(&mut self.buffer, before), start)
        } else {
            (self.buffer.split_off(start), 0)
        };
        self.buffer.shrink_to(KEPT_CAPACITY);
        Some(Bytes::from(message).slice(at + HEADER_BYTES..))
    }

    /// Whether no frame is partly written.
    fn is_between_frames(&self) -> bool {
        self.written == 0 || self.walk().0 == self.written
    }

    /// The buffer to append frames to.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Inserts a frame before all others. Nothing may be written yet.
    pub(crate) fn put_first(&mut self, frame: &[u8]) {
        assert!(
            self.written == 0,
            "a connection begins in the middle of a frame"
        );
        self.buffer.splice(..0, frame.iter().copied());
    }

    /// The bytes to be written next.
    pub(crate) fn unwritten(&self) -> &[u8] {
        &self.buffer[self.written..]
    }

    /// How many bytes wait.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() - self.written
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` unwritten bytes were written.
    pub(crate) fn advance(&mut self, count: usize) {
        self.written += count;
        assert!(
            self.written <= self.buffer.len(),
            "more was written than there was"
        );
        if self.written == self.buffer.len() {
            self.written = 0;
            self.buffer.clear();
            self.buffer.shrink_to(KEPT_CAPACITY);
        } else if self.written > KEPT_CAPACITY && self.written > self.buffer.len() / 2 {
            // Each byte is moved at most once for each byte written: the cost stays linear.
            let (whole, _) = self.walk();
            self.buffer.drain(..whole);
            self.written -= whole;
        }
    }

    /// Drops everything; returns how many frames were not written completely.
    pub(crate) fn clear(&mut self) -> u64 {
        let (_, unfinished) = self.walk();
        *self = Frames::default();
        unfinished
    }

    /// How many bytes the completely written frames have, and how many other frames there are.
    fn walk(&self) -> (usize, u64) {
        let (mut at, mut whole, mut unfinished) = (0, 0, 0);
        while at < self.buffer.len() {
            at += frame_span(&self.buffer[at..]);
            match at <= self.written {
                true => whole = at,
                false => unfinished += 1,
            }
        }
        (whole, unfinished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::frame::{FrameReader, encode_frame};
    use bytes::Bytes;

    fn filled(frames: u64, payload: usize) -> Frames {
        let mut outgoing = Frames::default();
        for member in 0..frames {
            encode_frame(
                outgoing.tail(),
                Members::from_bits(member),
                &Bytes::from(vec![7; payload]),
            )
            .unwrap();
        }
        outgoing
    }

    #[test]
    fn incompletely_written_frame_counts_as_dropped() {
        let span = filled(1, 5).len();
        for (written, lost) in [
            (0, 3),
            (1, 3),
            (span - 1, 3),
            (span, 2),
            (2 * span, 1),
            (3 * span - 1, 1),
        ] {
            let mut outgoing = filled(3, 5);
            outgoing.advance(written);
            assert_eq!(outgoing.clear(), lost, "after {written} bytes");
            assert!(outgoing.is_empty());
        }
    }

    /// Writes at most `count` bytes at a time, and calls `meanwhile` after each write.
    fn write_all(
        outgoing: &mut Outgoing,
        count: usize,
        mut meanwhile: impl FnMut(&mut Outgoing, usize),
    ) -> Vec<u8> {
        let mut stream = Vec::new();
        for turn in 0.. {
            let Some(next) = outgoing.next([usize::MAX; 2]) else {
                break;
            };
            let is_short = matches!(next, Next::Short(_));
            let written = next.write(count, |slices| {
                slices
                    .iter()
                    .for_each(|slice| stream.extend_from_slice(slice));
                Ok::<_, ()>(slices.iter().map(|slice| slice.len()).sum())
            });
            if is_short {
                outgoing.short.advance(written.unwrap())
            } else {
                outgoing.large.advance(written.unwrap())
            }
            meanwhile(outgoing, turn);
        }
        assert!(outgoing.is_empty());
        stream
    }

    fn read_all(stream: &[u8]) -> Vec<(Members, usize)> {
        let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
        for part in stream.chunks(50_000) {
            reader.space().extend_from_slice(part);
            while let Some(frame) = reader.next_frame().unwrap() {
                frames.push((frame.members, frame.message.as_slice().len()));
            }
        }
        assert_eq!(reader.pending(), 0);
        frames
    }

    #[test]
    fn short_frames_overtake_a_large_message_between_its_pieces() {
        for count in [1000, 10_000, 70_000, 1 << 20] {
            let mut outgoing = Outgoing::default();
            outgoing
                .large
                .push(Members::from_bits(7), vec![7; 300_000].into());
            outgoing
                .large
                .push(Members::from_bits(8), vec![8; LARGE_FROM].into());
            let stream = write_all(&mut outgoing, count, |outgoing, turn| {
                if turn < 2 {
                    encode_frame(
                        outgoing.short.tail(),
                        Members::from_bits(turn as u64),
                        &Bytes::from(vec![1; 500]),
                    )
                    .unwrap();
                }
            });
            let small = 504;
            assert_eq!(
                read_all(&stream),
                [(0, small), (1, small), (7, 300_000), (8, LARGE_FROM)]
                    .map(|(to, size)| (Members::from_bits(to), size)),
                "{count} at a time"
            );
        }
    }

    #[test]
    fn started_frame_is_finished_before_other_bytes_are_written() {
        let mut outgoing = Outgoing {
            short: filled(1, 50),
            ..Outgoing::default()
        };
        outgoing
            .large
            .push(Members::from_bits(7), vec![7; LARGE_FROM].into());
        assert!(
            matches!(outgoing.next([0, 1]), Some(Next::Large(..))),
            "the short frame may not go yet"
        );
        assert!(outgoing.next([0, 0]).is_none());
        outgoing.short.advance(10);
        assert!(
            outgoing.next([0, 1]).is_none(),
            "nothing fits into the middle of a frame"
        );
        assert!(matches!(outgoing.next([1, 1]), Some(Next::Short(_))));
    }

    #[test]
    fn large_message_is_removed_without_a_copy_when_that_is_cheaper() {
        for (frames, moves) in [(0, false), (3, false), (5000, true)] {
            let mut outgoing = filled(frames, 5);
            let before = outgoing.unwritten().to_vec();
            let message = Bytes::from(vec![7; LARGE_FROM]);
            encode_frame(outgoing.tail(), Members::from_bits(9), &message).unwrap();
            let lay = outgoing.unwritten()[before.len() + HEADER_BYTES..].as_ptr();
            let taken = outgoing.take_large(before.len()).unwrap();
            assert_eq!(taken.as_ptr() != lay, moves, "behind {frames} frames");
            assert!(taken[4..] == message && outgoing.unwritten() == before);
            assert!(
                outgoing
                    .take_large(before.len().saturating_sub(25))
                    .is_none(),
                "a short one"
            );
        }
    }

    #[test]
    fn same_large_message_is_queued_once() {
        let mut large = Large::default();
        let message = Bytes::from(vec![7; 100_000]);
        large.push(Members::from_bits(1), message.clone());
        assert!(
            large.has(Members::from_bits(1), &message.to_vec().into())
                && !large.has(Members::from_bits(2), &message)
                && !large.has(Members::from_bits(1), &message.slice(1..))
        );
        large.advance(1);
        assert!(
            large.has(Members::from_bits(1), &message),
            "it is still on its way"
        );
        assert_eq!(large.clear(), 1);
        assert!(!large.has(Members::from_bits(1), &message));
    }

    #[test]
    fn memory_of_written_bytes_is_freed_before_everything_is_written() {
        let mut outgoing = filled(50, 100_000);
        let all = outgoing.unwritten().to_vec();
        let mut seen = Vec::new();
        while !outgoing.is_empty() {
            let count = outgoing.len().min(77_777);
            seen.extend_from_slice(&outgoing.unwritten()[..count]);
            outgoing.advance(count);
            assert!(outgoing.buffer.len() <= 2 * outgoing.len() + KEPT_CAPACITY + 200_000);
        }
        assert!(seen == all);
        assert!(outgoing.buffer.capacity() <= KEPT_CAPACITY);
    }
}
