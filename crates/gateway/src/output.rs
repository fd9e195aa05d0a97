//! The replies that a client has not taken yet.

/// A queue of bytes.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// So many from the front are sent.
    sent: usize,
}

/// An emptied buffer above this is given back: ten thousand connections that once had a large reply
/// must not hold on to its memory.
const KEPT_CAPACITY: usize = 16 << 10;

impl Output {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Where to append.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(crate) fn on_sent(&mut self, len: usize) {
        self.sent += len;
        assert!(self.sent <= self.bytes.len(), "more was sent than there was");
        if self.sent == self.bytes.len() {
            self.clear();
        } else if self.sent > self.bytes.len() / 2 {
            // Each byte is moved at most once on average, as more are gone than stay.
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.sent = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_CAPACITY {
            self.bytes = Vec::new();
        }
    }
}
