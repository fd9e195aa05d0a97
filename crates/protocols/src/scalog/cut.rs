//! Cuts: how far the log of each server is ordered, and what a slot of the ordering's log adds.
//!
//! **The log alone defines the cuts.** What an aggregator proposes are [changes](Change); the cut
//! behind a slot is the cut before it with the changes of the slot [applied](Cut::apply), in their
//! order. Whatever overtook something else on its way to the log, and whichever aggregators and
//! leaders proposed, each follower computes the same cuts from the same slots. Three rules make any
//! true change harmless, however old it is:
//!
//! - Lengths are the pointwise maximum of those before and those proposed. A length that was true
//!   once stays true, because a log only grows in a generation. So no cut goes back, and a length
//!   that comes late adds nothing.
//! - A shard is opened under a name that no shard ever had: its *generation* is the slot that
//!   opened it. Lengths and closings name the generation that they mean, and have no effect in
//!   another one or when that one is closed. An opening names the generation that it follows.
//! - An opening lists the *lives* of the shard's servers. A server that has lost its memory begins
//!   another life, and so has no part in a generation whose logs it held before. To order what that
//!   generation holds takes lengths of all its servers, and it reports none: the shard must be
//!   closed, and opened anew. While the shard is closed or spare the log lists new lives too, so
//!   that servers know that their earlier ones are over.
//!
//! Order inside a slot: shards by number, generations of a shard in turn, servers by number, and
//! the records of a server by their index.

use super::id::{Generation, ServerId};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};
use ionian_kernel::id::{ClientId, Id, Index, MAX_INSTANCES, Slot};
use ionian_kernel::wire::{Reader, Wire, encode_all};
use ionian_kernel::{wire_enum, wire_struct};
use ionian_replication::batch::{Batch, Command, Purpose};

/// The log of one server in one generation of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// The generation.
    pub generation: Generation,
    /// The server that appends to it.
    pub server: ServerId,
}

wire_struct! { LogId { generation, server } }

/// What a slot does to a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// All servers of the shard hold this many records of each server's log.
    Grow {
        /// The shard.
        shard: Index,
        /// The generation in which they do.
        generation: Generation,
        /// The lengths, by the servers' places in the shard.
        lengths: Vec<u64>,
    },
    /// Nothing more of this generation is ordered ("Finalize").
    Close {
        /// The shard.
        shard: Index,
        /// The generation.
        generation: Generation,
    },
    /// A new generation begins ("AddShard").
    Open {
        /// The shard.
        shard: Index,
        /// The generation that it follows.
        after: Generation,
        /// The lives of its servers, by their places in the shard.
        lives: Vec<u64>,
    },
    /// Servers of a closed shard have begun other lives, and take part in no generation before the
    /// next.
    Lives {
        /// The shard.
        shard: Index,
        /// Its last generation.
        after: Generation,
        /// The lives of its servers, by their places in the shard.
        lives: Vec<u64>,
    },
}

wire_enum! {
    Change {
        0 => Grow { shard, generation, lengths }, 1 => Close { shard, generation },
        2 => Open { shard, after, lives }, 3 => Lives { shard, after, lives }
    }
}

/// The batch that a leader orders for these changes.
pub fn batch_of(changes: &Vec<Change>) -> Batch {
    Batch::one(&note(encode_all(changes).into()))
}

/// The changes in a batch of the log; none in a noop, and in what a leader proposes of its own
/// accord.
pub fn changes_of(batch: &Batch) -> Option<Vec<Change>> {
    if batch.len() != 1 {
        return None;
    }
    let command = batch.commands().next();
    let command = command.filter(|command| command.purpose == Purpose::Internal)?;
    let mut arena = BytesMut::new();
    let mut reader = Reader::copying(command.payload, &mut arena);
    let changes = Vec::decode(&mut reader).ok();
    changes.filter(|_| reader.remaining() == 0)
}

/// A command of the protocol itself, with this payload.
pub(super) fn note(payload: Bytes) -> Command {
    Command {
        client: ClientId(0),
        purpose: Purpose::Internal,
        number: 0,
        floor: 0,
        payload,
    }
}

/// A shard, as the log has left it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// Its last generation.
    pub generation: Generation,
    /// Whether that one is still open.
    pub is_open: bool,
    /// The slot after the one that opened or closed it last: all generations before the last, and
    /// that too if it is closed, are ordered below this slot.
    pub since: Slot,
    /// The lives of its servers, by their places: in this generation, or later ones if it is
    /// closed.
    pub lives: Vec<u64>,
    /// How many records of each server's log are ordered.
    pub lengths: Vec<u64>,
}

wire_struct! { Shard { generation, is_open, since, lives, lengths } }

/// All that the slots of the log have ordered up to one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The records that are ordered: the position of the next one in the order of all.
    pub base: u64,
    /// The shards, by number. Those that the log has not opened yet may be missing.
    pub shards: Vec<Shard>,
}

wire_struct! { Cut { base, shards } }

/// Records that a slot orders: those of `log` from one index up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The log.
    pub log: LogId,
    /// The first record.
    pub from: u64,
    /// The record after the last.
    pub to: u64,
}

impl Cut {
    /// The shard of this number.
    pub fn shard(&self, shard: Index) -> Shard {
        let known = self.shards.get(usize::from(shard));
        known.cloned().unwrap_or_default()
    }

    /// How many records of a log are ordered, of one of a shard's last generation; the shards have
    /// `size` servers each.
    pub fn ordered(&self, log: LogId, size: usize) -> Option<u64> {
        let (shard, place) = place_of(log.server, size);
        let shard = self.shards.get(usize::from(shard))?;
        let known = shard.lengths.get(place).copied();
        known.filter(|_| shard.generation == log.generation)
    }

    /// Whether nothing of a log is ordered any more.
    pub fn is_over(&self, log: LogId, size: usize) -> bool {
        let (shard, _) = place_of(log.server, size);
        self.shards.get(usize::from(shard)).is_some_and(|shard| {
            let is_closed = log.generation == shard.generation && !shard.is_open;
            log.generation < shard.generation || is_closed
        })
    }

    /// Applies what `slot` does: the records that it orders, in order. The shards have `size`
    /// servers each.
    pub fn apply(&mut self, slot: Slot, changes: &[Change], size: usize) -> Vec<Range> {
        let mut grown = BTreeMap::new();
        for change in changes {
            self.apply_one(slot, change, size, &mut grown);
        }
        let ranges = grown
            .into_iter()
            .map(|((_, log), (from, to))| Range { log, from, to });
        let ranges: Vec<Range> = ranges.collect();
        let count = ranges.iter().map(|range| range.to - range.from);
        self.base = count.fold(self.base, u64::saturating_add);
        ranges
    }

    fn apply_one(
        &mut self,
        slot: Slot,
        change: &Change,
        size: usize,
        grown: &mut BTreeMap<(Index, LogId), (u64, u64)>,
    ) {
        match change {
            Change::Grow {
                shard,
                generation,
                lengths,
            } => {
                let Some(it) = self
                    .open(*shard, *generation)
                    .filter(|_| exists(*shard, size))
                else {
                    return;
                };
                for (place, (known, length)) in it.lengths.iter_mut().zip(lengths).enumerate() {
                    let length = (*length).max(*known);
                    if length > *known {
                        let log = LogId {
                            generation: *generation,
                            server: server_at(*shard, place, size),
                        };
                        let grown = grown.entry((*shard, log)).or_insert((*known, length));
                        grown.1 = length;
                        *known = length;
                    }
                }
            }
            Change::Close { shard, generation } => {
                if let Some(it) = self.open(*shard, *generation) {
                    (it.is_open, it.since) = (false, slot.next());
                }
            }
            Change::Open {
                shard,
                after,
                lives,
            } => {
                let generation = Generation(slot.next().0);
                let closed = self.closed(*shard, *after, lives, size);
                // A name is used once: a shard that this slot has closed is opened by a later one.
                if let Some(it) = closed.filter(|it| it.since <= slot) {
                    *it = Shard {
                        generation,
                        is_open: true,
                        since: slot.next(),
                        lives: lives.clone(),
                        lengths: vec![0; size],
                    };
                }
            }
            Change::Lives {
                shard,
                after,
                lives,
            } => {
                if let Some(it) = self.closed(*shard, *after, lives, size) {
                    it.lives.clone_from(lives);
                }
            }
        }
    }

    /// A shard that can have these lives, if it is closed and this is its last generation.
    fn closed(
        &mut self,
        shard: Index,
        after: Generation,
        lives: &[u64],
        size: usize,
    ) -> Option<&mut Shard> {
        if !exists(shard, size) || lives.len() != size {
            return None;
        }
        let count = self.shards.len().max(usize::from(shard) + 1);
        self.shards.resize_with(count, Shard::default);
        let it = &mut self.shards[usize::from(shard)];
        (!it.is_open && it.generation == after).then_some(it)
    }

    /// A shard, if this is its generation and open.
    fn open(&mut self, shard: Index, generation: Generation) -> Option<&mut Shard> {
        let it = self.shards.get_mut(usize::from(shard))?;
        (it.is_open && it.generation == generation).then_some(it)
    }
}

/// The shard of a server, and its place there.
pub(super) fn place_of(server: ServerId, size: usize) -> (Index, usize) {
    let index = usize::from(server.0);
    ((index / size) as Index, index % size)
}

/// Whether there can be a shard of this number.
fn exists(shard: Index, size: usize) -> bool {
    (usize::from(shard) + 1) * size <= MAX_INSTANCES
}

/// The server at a place of a shard.
pub(super) fn server_at(shard: Index, place: usize, size: usize) -> ServerId {
    ServerId::at((usize::from(shard) * size + place) as Index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(shard: Index, after: u64, lives: [u64; 2]) -> Change {
        Change::Open {
            shard,
            after: Generation(after),
            lives: lives.into(),
        }
    }

    fn grow(shard: Index, generation: u64, lengths: [u64; 2]) -> Change {
        Change::Grow {
            shard,
            generation: Generation(generation),
            lengths: lengths.into(),
        }
    }

    fn close(shard: Index, generation: u64) -> Change {
        Change::Close {
            shard,
            generation: Generation(generation),
        }
    }

    fn range(generation: u64, server: Index, from: u64, to: u64) -> Range {
        let (generation, server) = (Generation(generation), ServerId(server));
        Range {
            log: LogId { generation, server },
            from,
            to,
        }
    }

    #[test]
    fn a_cut_orders_shards_by_number_and_their_servers_by_number() {
        let mut cut = Cut::default();
        let opened = cut.apply(Slot(4), &[open(1, 0, [7, 8]), open(0, 0, [5, 6])], 2);
        assert_eq!((opened, cut.base), (vec![], 0));
        let ranges = cut.apply(Slot(5), &[grow(1, 5, [2, 1]), grow(0, 5, [0, 3])], 2);
        let expected = [range(5, 1, 0, 3), range(5, 2, 0, 2), range(5, 3, 0, 1)];
        assert_eq!((&ranges[..], cut.base), (&expected[..], 6));
    }

    #[test]
    fn no_cut_goes_back_whatever_overtakes_what() {
        let mut cut = Cut::default();
        cut.apply(Slot(0), &[open(0, 0, [5, 6])], 2);
        cut.apply(Slot(1), &[grow(0, 1, [4, 4])], 2);
        let before = cut.clone();
        assert_eq!(cut.apply(Slot(2), &[grow(0, 1, [0, 0])], 2), []);
        assert_eq!(cut, before);
        let mixed = cut.apply(Slot(3), &[grow(0, 1, [2, 6]), grow(0, 1, [5, 1])], 2);
        assert_eq!(mixed, [range(1, 0, 4, 5), range(1, 1, 4, 6)]);
    }

    #[test]
    fn what_comes_late_for_a_closed_shard_has_no_effect() {
        let mut cut = Cut::default();
        cut.apply(Slot(0), &[open(0, 0, [5, 6])], 2);
        let last = cut.apply(
            Slot(1),
            &[grow(0, 1, [2, 0]), close(0, 1), grow(0, 1, [9, 9])],
            2,
        );
        assert_eq!(last, [range(1, 0, 0, 2)]);
        let closed = cut.clone();
        assert_eq!(
            (closed.shard(0).is_open, closed.shard(0).since),
            (false, Slot(2))
        );
        let late = [
            grow(0, 1, [9, 9]),
            close(0, 1),
            open(0, 0, [5, 6]),
            open(0, 2, [5, 6]),
        ];
        assert_eq!(cut.apply(Slot(2), &late, 2), []);
        assert_eq!(cut, closed);
        let log = range(1, 1, 0, 0).log;
        assert!(cut.is_over(log, 2) && cut.ordered(log, 2) == Some(0));
        // It is opened again under another name, which begins with nothing.
        cut.apply(Slot(3), &[open(0, 1, [5, 9])], 2);
        assert_eq!(cut.ordered(log, 2), None);
        let old = [grow(0, 1, [9, 9]), close(0, 1), grow(0, 4, [0, 1])];
        assert_eq!(cut.apply(Slot(4), &old, 2), [range(4, 1, 0, 1)]);
    }

    #[test]
    fn the_log_lists_later_lives_of_a_closed_shard_and_of_no_open_one() {
        let anew = |after: u64| Change::Lives {
            shard: 0,
            after: Generation(after),
            lives: vec![5, 60],
        };
        let mut cut = Cut::default();
        cut.apply(Slot(0), &[anew(0)], 2);
        assert_eq!(
            (&cut.shard(0).lives, cut.shard(0).is_open),
            (&vec![5, 60], false)
        );
        cut.apply(Slot(1), &[open(0, 0, [5, 6])], 2);
        let opened = cut.clone();
        cut.apply(Slot(2), &[anew(2), anew(0)], 2);
        assert_eq!(cut, opened);
        cut.apply(Slot(3), &[close(0, 2), anew(0), anew(2)], 2);
        assert_eq!(
            (cut.shard(0).lives, cut.shard(0).since),
            (vec![5, 60], Slot(4))
        );
    }

    #[test]
    fn changes_of_shards_that_cannot_be_are_ignored() {
        let mut cut = Cut::default();
        let lives = vec![1; 3];
        let (shard, after) = (0, Generation(0));
        let odd = [
            Change::Open {
                shard,
                after,
                lives,
            },
            open(Index::MAX, 0, [1, 2]),
            grow(3, 0, [1, 1]),
            close(3, 0),
        ];
        assert_eq!(cut.apply(Slot(0), &odd, 2), []);
        assert_eq!(cut, Cut::default());
    }

    #[test]
    fn changes_come_back_from_the_log_and_nothing_else_is_taken_for_them() {
        let changes = vec![open(0, 0, [5, 6]), grow(0, 1, [2, 0]), close(0, 1)];
        assert_eq!(changes_of(&batch_of(&changes)), Some(changes));
        assert_eq!(changes_of(&Batch::default()), None);
        let command = Command {
            purpose: Purpose::Change,
            ..note(encode_all(&Vec::<Change>::new()).into())
        };
        assert_eq!(changes_of(&Batch::one(&command)), None);
        assert_eq!(
            changes_of(&Batch::one(&note(Bytes::from_static(b"?")))),
            None
        );
    }
}
