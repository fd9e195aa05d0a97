//! How a replica gets what it missed: single slots from a peer or, failing that, from the leader; a
//! snapshot when it is so far behind that peers have forgotten the slots.

use super::offer::time_for;
use super::stretches::Stretches;
use crate::multipaxos::config::Config;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::random::Random;
use ionian_kernel::time::{Duration, Instant, transit};
use ionian_replication::backoff::doubled;

/// A piece of a snapshot is larger than other messages: it is waited for this many times longer.
const PIECE_PATIENCE: u32 = 8;

/// While the leader answers, a peer is asked again after this number of waits for an answer
/// (`resend_after`): it may have a snapshot of what the leader repairs slot by slot. A silent peer
/// costs one or two of these waits.
const PEER_EVERY: u32 = 16;

/// While values of this size come in, what is missing is probably behind them: it is first asked
/// for after the time that as much more would take, but not much later either.
const BULK_BYTES: usize = 64 << 10;
const BULK_PATIENCE: Duration = Duration::from_secs(1);

/// Whom to ask next for the slots that are missing.
pub(super) enum Ask {
    /// This peer.
    Peer(ReplicaId),
    /// The leader: peers did not have them.
    Leader,
    /// This peer, for the next piece of its snapshot.
    Snapshot(ReplicaId, Slot, u64),
}

/// Watches for holes. Asking repeats until the hole is filled (l1): at first after a short wait,
/// because most holes are messages that are still on their way, then with longer waits.
pub(super) struct CatchUp {
    config: Arc<Config>,
    me: ReplicaId,
    peers: Set<ReplicaId>,
    random: Random,
    /// The slot that could not be executed when the timer was set.
    stuck_at: Slot,
    ask_at: Option<Instant>,
    /// What came in large values since the timer was set.
    bulk: usize,
    /// Whether that has put the first question off once. Not again: large values may never stop
    /// coming.
    waited: bool,
    attempts: u32,
    /// The whole stretches that the leader was asked for: when one is there, more are asked for.
    stretches: Stretches,
    /// Whether one is there, and no more were asked for since.
    goes_on: bool,
    /// Counts the peers that were asked in turn.
    turn: u64,
    /// How many more of them are asked at once, one after the other, as long as they have nothing.
    left: usize,
    /// From this time on a peer is asked next even if the leader is of help.
    peer_at: Instant,
    /// Whether what is missing will not come unless it is asked for: this replica is cut off from a
    /// sender of chosen values.
    cut_off: bool,
    /// Whether a peer is asked and has not answered, while cut off.
    asks: bool,
    /// The peer that was of help last, while cut off.
    helper: Option<ReplicaId>,
    /// A snapshot on its way here.
    install: Option<Install>,
    pub(super) asked: u64,
}

struct Install {
    from: ReplicaId,
    executed: Slot,
    received: Vec<u8>,
    /// The limit of bytes a second does not let it ask for the next piece before this.
    due: Instant,
}

impl CatchUp {
    pub(super) fn new(config: Arc<Config>, me: ReplicaId, mut random: Random) -> Self {
        let peers = config.replicas().without(Set::one(me));
        CatchUp {
            config,
            me,
            peers,
            stuck_at: Slot::ZERO,
            ask_at: None,
            bulk: 0,
            waited: false,
            attempts: 0,
            stretches: Stretches::default(),
            goes_on: false,
            turn: random.any() >> 1,
            left: 0,
            random,
            peer_at: Instant::ZERO,
            cut_off: false,
            asks: false,
            helper: None,
            install: None,
            asked: 0,
        }
    }

    /// The membership has changed.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>) {
        self.peers = config.replicas().without(Set::one(self.me));
        self.config = config;
    }

    /// Called whenever the replica has executed what it could: `executed` is where it stands, or
    /// how far it could get if nothing held it back; `wanted` how far it knows the log to reach.
    pub(super) fn watch(&mut self, now: Instant, executed: Slot, wanted: Slot) {
        if let Some(install) = &self.install
            && install.executed <= executed
        {
            self.install = None;
        }
        self.goes_on |= self.stretches.came(executed);
        if executed >= wanted {
            self.ask_at = None;
            self.attempts = 0;
            self.stretches.begin_anew();
            self.goes_on = false;
            self.install = None;
        } else if self.goes_on {
            // The leader was of help and more than it was asked for is missing: it is asked again
            // at once, or a peer whose turn it is.
            self.helper = None;
            self.stuck_at = executed;
            self.attempts = u32::from(now < self.peer_at);
            self.ask_at = Some(now);
        } else if self.ask_at.is_none() || executed > self.stuck_at {
            if executed > self.stuck_at {
                self.attempts = 0;
            }
            self.stuck_at = executed;
            (self.bulk, self.waited) = (0, false);
            self.ask_at = Some(if self.cut_off && !self.asks {
                now
            } else {
                self.soon(now)
            });
        }
    }

    /// It asks for nothing more, although something may be missing, until it is to watch again.
    pub(super) fn pause(&mut self, missing: Slot) {
        self.goes_on |= self.stretches.came(missing);
        self.ask_at = None;
    }

    /// The leader was asked for as many slots as a message may ask for, up to `last`.
    pub(super) fn asked_leader(&mut self, last: Slot) {
        self.stretches.asked(last);
    }

    /// Which whole stretches it has asked the leader for.
    pub(super) fn stretches(&self) -> &Stretches {
        &self.stretches
    }

    fn soon(&mut self, now: Instant) -> Instant {
        let after = self.config.options().resend_after;
        now + self.random.duration(after, 2 * after)
    }

    /// Sets whether this replica is cut off from a sender of chosen values.
    pub(super) fn set_cut_off(&mut self, cut_off: bool) {
        (self.cut_off, self.asks, self.helper) = (
            cut_off,
            self.asks && cut_off,
            self.helper.filter(|_| cut_off),
        );
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// A peer has answered; `helps` if that made the log go on. If it did not, and the peer is the
    /// one that was asked, gives the next one to ask: all others are asked before it waits again.
    pub(super) fn answered(&mut self, peer: ReplicaId, helps: bool) -> Option<ReplicaId> {
        self.asks = false;
        if helps {
            self.helper = Some(peer).filter(|_| self.cut_off);
            return None;
        }
        let is_asked = self.peers.pick(self.turn) == Some(peer) && self.ask_at.is_some();
        if !is_asked || self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.turn += 1;
        self.peers.pick(self.turn)
    }

    /// A peer is asked for what comes at `executed`, before it was time to.
    pub(super) fn asked_already(&mut self, now: Instant, executed: Slot) {
        self.stuck_at = executed;
        self.asks = self.cut_off;
        self.ask_at = Some(self.soon(now));
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.ask_at
    }

    /// Whether it has begun to take in a snapshot.
    pub(super) fn is_installing(&self) -> bool {
        self.install.is_some()
    }

    /// A value of this many bytes came.
    pub(super) fn heard(&mut self, bytes: usize) {
        self.bulk += if bytes >= BULK_BYTES { bytes } else { 0 };
        self.stretches.heard(bytes);
    }

    /// Whom to ask, if it is time to. Peers and the leader take turns.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Ask> {
        if self.ask_at.is_none_or(|at| at > now) || self.puts_off(now) {
            return None;
        }
        self.asked += 1;
        if !core::mem::take(&mut self.goes_on) {
            self.stretches.begin_anew();
        }
        let resend_after = self.config.options().resend_after;
        let after = match self.install {
            Some(_) => resend_after * PIECE_PATIENCE,
            None => doubled(resend_after, self.attempts, 3),
        };
        self.ask_at = Some(now + self.random.duration(after, 2 * after));
        self.attempts += 1;
        // A peer that goes silent in the middle of its snapshot is left after a few times of
        // asking.
        if self.attempts.is_multiple_of(4) {
            self.install = None;
        }
        Some(match &self.install {
            Some(install) => {
                let offset = install.received.len() as u64;
                Ask::Snapshot(install.from, install.executed, offset)
            }
            None => self.ask_for_slots(now),
        })
    }

    /// Puts a question off whose time has come: the limit of bytes a second does not allow the next
    /// piece of a snapshot yet, or what is missing is probably behind large values.
    fn puts_off(&mut self, now: Instant) -> bool {
        if let Some(install) = self.install.as_ref().filter(|install| install.due > now) {
            self.ask_at = Some(install.due);
            return true;
        }
        let is_bulk = self.bulk > 0 && self.attempts == 0 && !self.waited && !self.goes_on;
        if is_bulk {
            self.waited = true;
            let longer = transit(core::mem::take(&mut self.bulk)).min(BULK_PATIENCE);
            self.ask_at = Some(now + longer);
        }
        is_bulk
    }

    /// At first the peer that was of help. If it is not any more, then peers in turn, not at
    /// random: the one that is dead must not be asked twice before another.
    fn ask_for_slots(&mut self, now: Instant) -> Ask {
        self.asks = self.cut_off;
        self.helper = self
            .helper
            .filter(|helper| self.attempts < 3 && self.peers.contains(*helper));
        if self.attempts.is_multiple_of(2) {
            return Ask::Leader;
        }
        self.peer_at = now + self.config.options().resend_after * PEER_EVERY;
        if let Some(helper) = self.helper.filter(|_| self.attempts == 1) {
            return Ask::Peer(helper);
        }
        self.turn += 1;
        self.left = self.peers.len().saturating_sub(1);
        let next = self.peers.pick(self.turn);
        next.map_or(Ask::Leader, Ask::Peer)
    }

    /// Takes a piece of a snapshot in: the next piece to ask for, or the whole.
    pub(super) fn on_chunk(&mut self, now: Instant, chunk: Chunk) -> Progress {
        let Chunk {
            from,
            executed,
            offset,
            last,
            bytes,
        } = chunk;
        let continues = |install: &Install| (install.from, install.executed) == (from, executed);
        if offset == 0 && !self.install.as_ref().is_some_and(continues) {
            self.install = Some(Install {
                from,
                executed,
                received: Vec::new(),
                due: now,
            });
        }
        let Some(install) = self.install.as_mut().filter(|install| continues(install)) else {
            return Progress::None;
        };
        if offset != install.received.len() as u64 {
            return Progress::None;
        }
        install.received.extend_from_slice(&bytes);
        if last {
            let install = self.install.take().expect("just filled");
            return Progress::Whole(executed, Bytes::from(install.received));
        }
        // Time that a slow link has cost is not made up for: the limit holds from now on.
        install.due = now.max(
            install.due + time_for(bytes.len(), self.config.options().snapshot_bytes_per_second),
        );
        if install.due > now {
            self.attempts = 0;
            self.ask_at = Some(install.due);
            return Progress::None;
        }
        self.attempts = 1;
        self.ask_at = Some(now + self.config.options().resend_after * PIECE_PATIENCE);
        Progress::Next(from, executed, install.received.len() as u64)
    }
}

/// A piece of a peer's snapshot.
pub struct Chunk {
    /// The peer.
    pub from: ReplicaId,
    /// The snapshot is of the state before this slot.
    pub executed: Slot,
    /// Where the piece begins.
    pub offset: u64,
    /// Whether the snapshot ends with the piece.
    pub last: bool,
    /// The piece.
    pub bytes: Bytes,
}

/// What a piece led to.
pub(super) enum Progress {
    /// It was a duplicate, or of a snapshot that is not wanted, or the next is not to be asked for
    /// yet.
    None,
    /// Ask this peer for the piece of this snapshot at this offset.
    Next(ReplicaId, Slot, u64),
    /// The snapshot of the state before this slot is here.
    Whole(Slot, Bytes),
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use ionian_kernel::layout::{Layout, NodeId, Options, numbered};

    fn catch_up(rate: usize) -> CatchUp {
        let node = |count: u16| (0..count).map(NodeId).collect::<Vec<_>>();
        let instances = vec![
            node(1),
            vec![],
            vec![],
            node(2),
            node(2),
            node(3),
            node(3),
            vec![],
        ];
        // Impatient, so that it is the limit that holds it back.
        let resend_after = Duration::from_millis(1);
        let options = Options {
            snapshot_bytes_per_second: rate,
            resend_after,
            ..Options::default()
        };
        let config = Config::new(Layout {
            f: 1,
            instances: numbered(instances),
            options,
            ..Layout::default()
        })
        .unwrap();
        let mut catch_up = CatchUp::new(Arc::new(config), ReplicaId(0), Random::new(1));
        catch_up.watch(Instant(0), Slot(0), Slot(100));
        catch_up
    }

    /// The peer that was of help may be as far behind as this replica by now.
    #[test]
    fn where_the_leader_is_of_help_all_peers_have_their_turns_and_none_costs_much() {
        let mut catch_up = catch_up(1);
        let (mut now, mut executed, mut asked) = (Instant(0), Slot(0), Vec::new());
        catch_up.set_cut_off(true);
        catch_up.answered(ReplicaId(1), true);
        while executed < Slot(100 * 32) {
            now = catch_up.next_timer().expect("much is missing").max(now);
            match catch_up.ask(now) {
                Some(Ask::Peer(peer)) => asked.push(peer.0),
                Some(Ask::Leader) => {
                    catch_up.asked_leader(Slot(executed.0 + 31));
                    now = now + Duration::from_millis(1);
                    executed = executed.plus(32);
                    catch_up.watch(now, executed, Slot(1_000_000));
                }
                _ => {}
            }
        }
        // About every 16 ms of 100 and what they cost.
        assert!((5..10).contains(&asked.len()), "{asked:?}");
        let one_twice = asked.windows(2).skip(1).any(|pair| pair[0] == pair[1]);
        assert!(asked[0] == 1 && !one_twice, "{asked:?}");
    }

    fn piece(from: u8, offset: u64, length: usize, last: bool) -> Chunk {
        Chunk {
            from: ReplicaId(from),
            executed: Slot(50),
            offset,
            last,
            bytes: vec![from; length].into(),
        }
    }

    const MS: u64 = 1000;

    #[test]
    fn no_more_is_asked_for_than_the_limit_allows() {
        // A piece of 1000 bytes is worth 10 ms.
        let mut catch_up = catch_up(100_000);
        let mut now = Instant(0);
        for number in 0..20 {
            assert!(matches!(
                catch_up.on_chunk(now, piece(1, number * 1000, 1000, false)),
                Progress::None
            ));
            assert_eq!(
                catch_up.next_timer(),
                Some(Instant((number + 1) * 10 * MS)),
                "whatever the link has cost"
            );
            // A new hole elsewhere is no reason to hurry.
            catch_up.watch(now, Slot(number), Slot(200));
            now = Instant((number + 1) * 10 * MS);
            assert!(catch_up.ask(now - Duration::from_micros(1)).is_none());
            let asked = match catch_up.next_timer() {
                Some(at) => catch_up.ask(at.max(now)),
                None => None,
            };
            assert!(
                matches!(asked, Some(Ask::Snapshot(ReplicaId(1), Slot(50), offset)) if offset == (number + 1) * 1000)
            );
            now = now + Duration::from_millis(1);
        }
        // A link slower than the limit makes up for nothing.
        now = Instant(10_000 * MS);
        assert!(matches!(
            catch_up.on_chunk(now, piece(1, 20_000, 1000, false)),
            Progress::Next(_, _, 21_000)
        ));
        assert!(matches!(
            catch_up.on_chunk(now, piece(1, 21_000, 1000, false)),
            Progress::None
        ));
        assert_eq!(catch_up.next_timer(), Some(now + Duration::from_millis(10)));
    }

    #[test]
    fn only_the_pieces_of_one_snapshot_in_turn_make_a_whole() {
        let mut catch_up = catch_up(1 << 40);
        let now = Instant(5);
        assert!(
            matches!(
                catch_up.on_chunk(now, piece(1, 10, 10, true)),
                Progress::None
            ),
            "no beginning"
        );
        assert!(matches!(
            catch_up.on_chunk(now, piece(1, 0, 10, false)),
            Progress::Next(ReplicaId(1), Slot(50), 10)
        ));
        assert!(
            matches!(
                catch_up.on_chunk(now, piece(2, 10, 10, true)),
                Progress::None
            ),
            "of another peer"
        );
        assert!(
            matches!(
                catch_up.on_chunk(now, piece(1, 0, 10, false)),
                Progress::None
            ),
            "a duplicate"
        );
        assert!(
            matches!(
                catch_up.on_chunk(now, piece(1, 20, 10, true)),
                Progress::None
            ),
            "out of turn"
        );
        match catch_up.on_chunk(now, piece(1, 10, 3, true)) {
            Progress::Whole(executed, bytes) => {
                assert_eq!((executed, &bytes[..]), (Slot(50), &[1; 13][..]))
            }
            _ => panic!("it is whole"),
        }
    }
}
