//! The bytes that wait to be written to one peer.

use crate::frame::frame_span;

/// Memory that is kept when everything has been written: enough for any usual burst.
const KEPT_CAPACITY: usize = 1 << 20;

/// Frames one after the other, of which a first part has been written. The buffer always begins at
/// the beginning of a frame, so that after a broken connection the frames that did not get out whole
/// can be counted.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    buffer: Vec<u8>,
    written: usize,
}

impl Outgoing {
    /// Where to append frames.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Puts a frame before all others, of which nothing was written yet.
    pub(crate) fn put_first(&mut self, frame: &[u8]) {
        assert!(self.written == 0, "a connection begins in the middle of a frame");
        self.buffer.splice(..0, frame.iter().copied());
    }

    /// What is to be written next.
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
        assert!(self.written <= self.buffer.len(), "more was written than there was");
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

    /// Forgets everything and says how many frames did not get out whole.
    pub(crate) fn clear(&mut self) -> u64 {
        let (_, unfinished) = self.walk();
        *self = Outgoing::default();
        unfinished
    }

    /// How many bytes the wholly written frames take, and how many other frames there are.
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
    use crate::frame::encode_frame;
    use bytes::Bytes;

    fn filled(frames: u64, payload: usize) -> Outgoing {
        let mut outgoing = Outgoing::default();
        for member in 0..frames {
            encode_frame(outgoing.tail(), member, &Bytes::from(vec![7; payload])).unwrap();
        }
        outgoing
    }

    #[test]
    fn a_frame_that_was_cut_counts_as_lost_and_a_whole_one_does_not() {
        let span = filled(1, 5).len();
        for (written, lost) in [(0, 3), (1, 3), (span - 1, 3), (span, 2), (2 * span, 1), (3 * span - 1, 1)] {
            let mut outgoing = filled(3, 5);
            outgoing.advance(written);
            assert_eq!(outgoing.clear(), lost, "after {written} bytes");
            assert!(outgoing.is_empty());
        }
    }

    #[test]
    fn written_bytes_are_given_back_before_everything_is_written() {
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
