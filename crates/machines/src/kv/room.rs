//! How much memory the keys may take: Redis's `maxmemory`, with the policy `noeviction`.
//!
//! All replicas must refuse the same commands, so the limit, and what is compared with it, are a
//! part of the state. What keys take is counted with every change, by a rule that does not depend
//! on the machine ([`Entry::bytes`](super::entry::Entry::bytes)). But commands that touch nothing
//! in common may be executed in either order, by several threads, and a count that each of them
//! changes and compares would show the order. So what is compared is the count of the last
//! [`Compound::Measure`](super::Compound::Measure), which no command may overtake. Gateways send
//! one a second while they write. Between two of them the limit may be exceeded by what is written
//! then.

use bytes::Bytes;

/// The error of Redis 7.
pub(super) const REFUSAL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The limit of memory, and how much was used when that was measured last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The most bytes that keys and values may take; zero for no limit.
    pub limit: u64,
    /// How many they took at the last measurement; zero without a limit.
    pub used: u64,
}

impl Room {
    /// Whether commands that need more memory are refused.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full_with(0)
    }

    /// The same, if as many bytes more are used.
    #[inline]
    pub(super) fn is_full_with(&self, growth: u64) -> bool {
        self.used.saturating_add(growth) > self.limit && self.limit > 0
    }

    /// What the reply to [`Compound::Room`](super::Compound::Room) or
    /// [`Compound::Measure`](super::Compound::Measure) says.
    ///
    /// # Errors
    /// The reply, if it is malformed.
    pub fn of_reply(reply: &Bytes) -> Result<Room, &Bytes> {
        let encoded = reply[..].try_into().map_err(|_| reply)?;
        Ok(Room::decode(encoded))
    }

    pub(super) fn encode(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.limit.to_le_bytes());
        out[8..].copy_from_slice(&self.used.to_le_bytes());
        out
    }

    pub(super) fn decode(encoded: [u8; 16]) -> Room {
        let number = |from: usize| {
            let bytes = encoded[from..from + 8].try_into();
            u64::from_le_bytes(bytes.expect("eight bytes"))
        };
        Room {
            limit: number(0),
            used: number(8),
        }
    }
}
