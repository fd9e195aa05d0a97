//! Replies that the client has not read yet.

use std::collections::VecDeque;

/// A queue of bytes.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// The number of bytes at the front that were sent.
    sent: usize,
    /// Some of the positions in `bytes` between two replies.
    borders: VecDeque<usize>,
}

/// An empty buffer with a larger capacity is freed: ten thousand connections that once had a large
/// reply must not retain its memory.
const KEPT_CAPACITY: usize = 16 << 10;

/// Distance between remembered positions. At most this much, and one reply, remains of a dropped
/// output.
const BORDER_DISTANCE: usize = 16 << 10;

impl Output {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The memory of the output.
    pub(crate) fn held(&self) -> usize {
        if self.bytes.capacity() > KEPT_CAPACITY {
            self.bytes.capacity()
        } else {
            self.len()
        }
    }

    /// The buffer to which whole replies are appended.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        let here = self.bytes.len();
        if self
            .borders
            .back()
            .is_none_or(|last| here - last >= BORDER_DISTANCE)
        {
            self.borders.push_back(here);
        }
        &mut self.bytes
    }

    pub(crate) fn on_sent(&mut self, len: usize) {
        self.sent += len;
        assert!(
            self.sent <= self.bytes.len(),
            "more was sent than there was"
        );
        if self.sent == self.bytes.len() {
            self.clear();
        } else if self.sent > self.bytes.len() / 2 {
            // Each byte is moved at most once on average, because more bytes are removed than
            // remain.
            self.bytes.drain(..self.sent);
            if self.bytes.capacity() > 4 * self.bytes.len() + KEPT_CAPACITY {
                self.bytes.shrink_to(2 * self.bytes.len());
            }
            self.borders.retain_mut(|border| {
                let is_ahead = *border >= self.sent;
                *border = border.saturating_sub(self.sent);
                is_ahead
            });
            self.sent = 0;
        }
    }

    /// Drops the replies of which the client has received nothing, if they are many, as far as
    /// their starts are known. Returns true if an error can follow; false if it would be inside a
    /// large reply.
    pub(crate) fn drop_unsent(&mut self) -> bool {
        if self.len() <= 2 * BORDER_DISTANCE {
            return true;
        }
        let border = self
            .borders
            .iter()
            .copied()
            .find(|border| *border >= self.sent)
            .unwrap_or(self.bytes.len());
        if border - self.sent > 2 * BORDER_DISTANCE {
            self.clear();
            return false;
        }
        let rest = self.bytes[self.sent..border].to_vec();
        self.clear();
        self.tail().extend_from_slice(&rest);
        true
    }

    pub(crate) fn clear(&mut self) {
        self.sent = 0;
        self.borders.clear();
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_CAPACITY {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_ends_where_a_reply_ends() {
        let large = BORDER_DISTANCE * 3;
        // Sizes of the replies, bytes sent, bytes left, and whether an error can follow.
        for (replies, sent, left, between) in [
            (vec![], 0, 0, true),
            (vec![10, 10], 0, 20, true),
            (vec![10, 10], 5, 15, true),
            (vec![10, large, 10], 5, large + 15, false),
            (vec![large, large], 0, 0, true),
            (vec![large, large], 1, large - 1, false),
            (vec![large, large], large - 1, 1, true),
            (vec![large, large], large, 0, true),
            (vec![large, large, 10], 2 * large - 7, 17, true),
        ] {
            let mut output = Output::default();
            for len in &replies {
                output.tail().extend(std::iter::repeat_n(b'x', *len));
            }
            output.on_sent(sent);
            let is_between = output.drop_unsent();
            let expected = if between { left } else { 0 };
            assert_eq!(
                (is_between, output.len()),
                (between, expected),
                "{replies:?} {sent}"
            );
        }
    }
}
