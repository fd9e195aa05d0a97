//! The trace of a run: a line an event for people, and always a running hash, so that two runs of
//! one seed can be compared without keeping either.

use crate::event::Micros;
use std::io::Write;

/// Where the lines of a trace go.
pub type Sink = Box<dyn Write>;

/// Collects what happens in a run.
pub(crate) struct Trace {
    hash: u64,
    sink: Option<Sink>,
}

impl Trace {
    pub(crate) fn new(sink: Option<Sink>) -> Self {
        Trace { hash: 0, sink }
    }

    /// Notes an event of `node`. `digest` stands in the hash for what `line` tells people, for a
    /// line without a reader is not worth formatting.
    pub(crate) fn note(
        &mut self,
        at: Micros,
        node: usize,
        what: &'static str,
        digest: u64,
        line: impl Fn() -> String,
    ) {
        for number in [at, node as u64, hash_bytes(what.as_bytes()), digest] {
            self.hash = mix(self.hash, number);
        }
        if let Some(sink) = &mut self.sink {
            // A trace that cannot be written must not change the run: it ends here instead.
            if writeln!(sink, "{at:>10} n{node:<2} {what:<9} {}", line()).is_err() {
                self.sink = None;
            }
        }
    }

    /// The hash of everything so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Writes out what is buffered.
    pub(crate) fn finish(&mut self) {
        if let Some(sink) = &mut self.sink {
            let _ = sink.flush();
        }
    }
}

/// Stirs `number` into `hash`.
pub(crate) fn mix(hash: u64, number: u64) -> u64 {
    let product =
        u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * u128::from(number ^ 0xd6e8_feb8_6659_fd93);
    (product as u64) ^ ((product >> 64) as u64) ^ hash.rotate_left(23)
}

/// A hash of `bytes` that is the same on every machine.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks_exact(8);
    let mut tail = [0; 8];
    tail[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let whole = chunks.fold(bytes.len() as u64, |hash, chunk| {
        mix(
            hash,
            u64::from_le_bytes(chunk.try_into().expect("chunks of eight")),
        )
    });
    mix(whole, u64::from_le_bytes(tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_byte_and_the_length_count() {
        let mut seen = BTreeSet::new();
        for length in 0..20 {
            let mut bytes = vec![0; length];
            assert!(seen.insert(hash_bytes(&bytes)));
            for at in 0..length {
                bytes[at] = 1;
                assert!(seen.insert(hash_bytes(&bytes)));
                bytes[at] = 0;
            }
        }
    }

    #[test]
    fn order_counts() {
        assert_ne!(mix(mix(0, 1), 2), mix(mix(0, 2), 1));
    }
}
