//! How a replica gets what it missed: single slots from a peer or, failing that, from the leader; a
//! snapshot when it is so far behind that peers have forgotten the slots.

use super::super::canary::Canary;
use super::super::config::Config;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::random::Random;
use ionian_kernel::time::{Duration, Instant};

/// Bytes of a snapshot in one message.
pub(super) const CHUNK_BYTES: usize = 512 << 10;

/// A snapshot that nobody has asked a piece of for this long is dropped.
pub(super) const SNAPSHOT_KEPT: Duration = Duration::from_secs(10);

/// Whom to ask next for the slots that are missing.
pub(super) enum Ask {
    /// This peer.
    Peer(ReplicaId),
    /// The leader: peers did not have them.
    Leader,
    /// This peer, for the next piece of its snapshot.
    Snapshot(ReplicaId, Slot, u64),
}

/// Watches for holes. Asking repeats until the hole is filled (l1): at first after a short wait, because
/// most holes are messages that are still on their way, then with longer waits.
pub(super) struct CatchUp {
    config: Arc<Config>,
    me: ReplicaId,
    peers: Set<ReplicaId>,
    random: Random,
    /// The slot that could not be executed when the timer was set.
    stuck_at: Slot,
    ask_at: Option<Instant>,
    attempts: u32,
    /// A snapshot on its way here.
    install: Option<Install>,
    pub(super) asked: u64,
}

struct Install {
    from: ReplicaId,
    executed: Slot,
    total: u64,
    received: Vec<u8>,
}

impl CatchUp {
    pub(super) fn new(config: Arc<Config>, me: ReplicaId, random: Random) -> Self {
        let peers = config.replicas().without(Set::one(me));
        CatchUp { config, me, peers, random, stuck_at: Slot::ZERO, ask_at: None, attempts: 0, install: None, asked: 0 }
    }

    /// The membership has changed.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>) {
        self.peers = config.replicas().without(Set::one(self.me));
        self.config = config;
    }

    /// Called whenever the replica has executed what it could: `executed` is where it stands, `wanted` how
    /// far it knows the log to reach.
    pub(super) fn watch(&mut self, now: Instant, executed: Slot, wanted: Slot) {
        if executed >= wanted {
            self.ask_at = None;
            self.attempts = 0;
            self.install = None;
        } else if self.ask_at.is_none() || executed > self.stuck_at {
            let fired = self.attempts > 0 && self.config.has(Canary::L1HoleTimerOnce);
            if executed > self.stuck_at {
                self.attempts = 0;
            }
            self.stuck_at = executed;
            let after = self.config.options().resend_after;
            self.ask_at = (!fired).then(|| now + self.random.duration(after, 2 * after));
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.ask_at
    }

    /// The time has come: whom to ask. Peers and the leader take turns.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Ask> {
        if self.ask_at.is_none_or(|at| at > now) {
            return None;
        }
        self.asked += 1;
        let after = self.config.options().resend_after * (1 << self.attempts.min(3));
        self.ask_at = (!self.config.has(Canary::L1HoleTimerOnce)).then(|| now + self.random.duration(after, 2 * after));
        self.attempts += 1;
        // A peer that goes silent in the middle of its snapshot is left after a few times of asking.
        if self.attempts.is_multiple_of(4) {
            self.install = None;
        }
        if let Some(install) = &self.install {
            return Some(Ask::Snapshot(install.from, install.executed, install.received.len() as u64));
        }
        // Peers in turn, not at random: the one that is dead must not be asked twice before another.
        match self.peers.pick(self.asked / 2) {
            Some(peer) if self.attempts % 2 == 1 => Some(Ask::Peer(peer)),
            _ => Some(Ask::Leader),
        }
    }

    /// Takes a piece of a snapshot in: the next piece to ask for, or the whole.
    pub(super) fn on_chunk(&mut self, now: Instant, chunk: Chunk) -> Progress {
        let Chunk { from, executed, offset, total, bytes } = chunk;
        let continues = |install: &Install| (install.from, install.executed) == (from, executed);
        if offset == 0 && !self.install.as_ref().is_some_and(continues) {
            // The size is a peer's word: memory grows only as pieces come.
            self.install = Some(Install { from, executed, total, received: Vec::new() });
        }
        let Some(install) = self.install.as_mut().filter(|install| continues(install)) else { return Progress::None };
        if offset != install.received.len() as u64 || total != install.total {
            return Progress::None;
        }
        install.received.extend_from_slice(&bytes);
        self.attempts = 1;
        self.ask_at = Some(now + self.config.options().resend_after * 8);
        let received = install.received.len() as u64;
        if received < total {
            return Progress::Next(from, executed, received);
        }
        let install = self.install.take().expect("just filled");
        Progress::Whole(executed, Bytes::from(install.received))
    }
}

/// A piece of a peer's snapshot.
pub(super) struct Chunk {
    pub(super) from: ReplicaId,
    pub(super) executed: Slot,
    pub(super) offset: u64,
    pub(super) total: u64,
    pub(super) bytes: Bytes,
}

/// What a piece led to.
pub(super) enum Progress {
    /// It was a duplicate, or of a snapshot that is not wanted.
    None,
    /// Ask this peer for the piece of this snapshot at this offset.
    Next(ReplicaId, Slot, u64),
    /// The snapshot of the state before this slot is here.
    Whole(Slot, Bytes),
}

/// The snapshot that a replica is handing out.
pub(super) struct Offer {
    pub(super) executed: Slot,
    pub(super) bytes: Bytes,
    pub(super) used_at: Instant,
}

impl Offer {
    /// The piece at `offset`.
    pub(super) fn chunk(&self, offset: u64) -> Bytes {
        let start = (offset as usize).min(self.bytes.len());
        let end = (start + CHUNK_BYTES).min(self.bytes.len());
        self.bytes.slice(start..end)
    }
}
