//! SipHash-1-3 with keys that are the same on every replica: footprints, the order of SCAN and the
//! versions of WATCH are computed from it. The hasher of the standard library is the same function
//! today but promises nothing about tomorrow, and two replicas may be built by different compilers.

/// The position of a key: where SCAN meets it, and its name in a footprint.
pub(super) fn position(key: &[u8]) -> u64 {
    sip13(0x6961_6e2e_696f_6e00, 0x6b76_2e70_6f73_0001, key)
}

/// SipHash with one compression and three finalization rounds.
pub(super) fn sip13(key0: u64, key1: u64, data: &[u8]) -> u64 {
    let mut state = State {
        v0: key0 ^ 0x736f_6d65_7073_6575,
        v1: key1 ^ 0x646f_7261_6e64_6f6d,
        v2: key0 ^ 0x6c79_6765_6e65_7261,
        v3: key1 ^ 0x7465_6462_7974_6573,
    };
    let mut words = data.chunks_exact(8);
    for word in &mut words {
        state.compress(u64::from_le_bytes(
            word.try_into().expect("chunks of eight bytes"),
        ));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    last[7] = data.len() as u8;
    state.compress(u64::from_le_bytes(last));
    state.v2 ^= 0xff;
    for _ in 0..3 {
        state.round();
    }
    state.v0 ^ state.v1 ^ state.v2 ^ state.v3
}

struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline]
    fn compress(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;

    /// The standard library's hasher is SipHash-1-3 with keys of zero at present: a second opinion.
    #[test]
    fn agrees_with_the_standard_library() {
        let data: Vec<u8> = (0..100).collect();
        for len in 0..data.len() {
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write(&data[..len]);
            assert_eq!(sip13(0, 0, &data[..len]), hasher.finish(), "{len} bytes");
        }
    }

    /// Replicas of different versions must agree on it, so it may never change.
    #[test]
    fn the_position_of_a_key_is_fixed() {
        assert_eq!(position(b"ionian"), 13_257_782_613_209_006_530);
    }
}
