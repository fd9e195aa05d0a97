//! What an acceptor writes down, and how it finds that again.

use super::{AcceptorCore, AcceptorPort};
use crate::parts::message::Vote;
use alloc::collections::BTreeMap;
use ionian_kernel::id::*;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::wire_enum;

/// What an acceptor must find again.
#[derive(Clone, Debug)]
pub enum Record {
    /// It will not take part in lower rounds. Vital: rare, and the one thing without which an
    /// acceptor that lost its votes could not be let in again.
    Promised {
        /// The round.
        round: Round,
    },
    /// It voted, and promised the round with it.
    Voted {
        /// The slot.
        slot: Slot,
        /// The vote.
        vote: Vote,
    },
    /// It forgot the slots below this one.
    Forgot {
        /// The first slot that it still knows.
        below: Slot,
    },
    /// It voted in a higher round for the value that it had voted for before: written without the
    /// value, which can be large, and which every new leader proposes again.
    Confirmed {
        /// The slot.
        slot: Slot,
        /// The round of the vote.
        round: Round,
    },
    /// It has no part in rounds of earlier epochs. What the log says of votes in them is of another
    /// acceptor of its number, which lived on this node before it.
    Began {
        /// The first epoch in which it takes part.
        epoch: Epoch,
    },
}

wire_enum! {
    Record {
        0 => Promised { round }, 1 => Voted { slot, vote }, 2 => Forgot { below }, 3 => Confirmed { slot, round },
        4 => Began { epoch }
    }
}

impl Record {
    /// The slot whose vote it is part of: needed until that is forgotten. All else is small, and
    /// written again at a checkpoint.
    pub fn slot(&self) -> Option<Slot> {
        match self {
            Record::Voted { slot, .. } | Record::Confirmed { slot, .. } => Some(*slot),
            Record::Promised { .. } | Record::Forgot { .. } | Record::Began { .. } => None,
        }
    }
}

/// Records come in the order of the log, in which slots need not be in order, and some are of slots
/// that were forgotten later.
#[derive(Default)]
pub(super) struct Recovered {
    pub(super) votes: BTreeMap<Slot, Vote>,
    forgotten: Slot,
    /// By epoch: below this slot there are confirmations without the vote that they are of, which
    /// is released and may be gone.
    bare: SmallMap<Epoch, Slot>,
    /// Whether there was any record: it has lived before.
    any: bool,
}

impl Recovered {
    /// What was found so far of earlier epochs is another's. (Not all that was found: this is
    /// written again.)
    fn begin(&mut self, epoch: Epoch) {
        self.votes.retain(|_, vote| vote.round.epoch() >= epoch);
        self.bare.retain(|it, _| *it >= epoch);
    }

    /// Votes below this slot are missing that were confirmed.
    fn missing(&self) -> Slot {
        self.bare.values().copied().max().unwrap_or_default()
    }
}

impl AcceptorCore {
    /// Takes in a record from before a crash, oldest first.
    pub fn recover(&mut self, record: Record) {
        self.recovered.any = true;
        match record {
            Record::Promised { round } => self.promise = self.promise.max(round),
            Record::Voted { slot, vote } => {
                self.promise = self.promise.max(vote.round);
                self.recovered.votes.insert(slot, vote);
            }
            // Its vote is an earlier record, of the same key.
            Record::Confirmed { slot, round } => {
                self.promise = self.promise.max(round);
                if let Some(vote) = self.recovered.votes.get_mut(&slot) {
                    vote.round = round;
                } else {
                    let bare = self.recovered.bare.entry(round.epoch()).or_default();
                    *bare = slot.next().max(*bare);
                }
            }
            Record::Forgot { below } => {
                self.recovered.forgotten = self.recovered.forgotten.max(below)
            }
            Record::Began { epoch } => {
                self.began = self.began.max(epoch);
                self.recovered.begin(epoch);
            }
        }
    }

    /// All records were recovered.
    pub fn start(&mut self, port: &mut impl AcceptorPort) {
        let mut recovered = core::mem::take(&mut self.recovered);
        self.begin(&mut recovered, port);
        if self.has_had_no_part() {
            self.rejoin = None;
        }
        let missing = recovered.missing();
        let Recovered {
            votes, forgotten, ..
        } = recovered;
        // Below the frontier no leader asks, whatever was voted for there.
        let unneeded = forgotten.max(self.config.frontier());
        assert!(
            missing <= unneeded,
            "the log confirms a vote below {missing:?} that it does not have"
        );
        self.votes.reset(forgotten);
        self.vote_bytes = 0;
        self.watermark = forgotten;
        for (slot, vote) in votes.into_iter().filter(|(slot, _)| *slot >= forgotten) {
            self.keep(slot, vote);
            self.watermark = slot.next();
        }
        port.release_below(forgotten);
    }

    /// Whether it is new in the configuration that the cluster changes into, and has not taken part
    /// in a round yet: then it has lost no vote, though it has lost its memory. No leader could let
    /// it in again before there is a round of both configurations, which may need its promise.
    ///
    /// It may take part in rounds of this epoch or later ones alone, and its first promise of one,
    /// which it gives before it votes, is on disk whatever the durability before anyone hears of
    /// it. Where the new configuration is in force alone nothing follows from such a promise
    /// missing here: the acceptor may have begun in that epoch, or in an earlier one.
    fn has_had_no_part(&self) -> bool {
        !self.config.was_there(self.id) && self.promise.epoch() < self.config.epoch()
    }

    /// What it writes down again at a checkpoint: one record that is written to disk whatever the
    /// durability, and others.
    pub fn checkpoint(&self) -> (Record, impl Iterator<Item = Record>) {
        let promised = Record::Promised {
            round: self.promise,
        };
        let forgot = Record::Forgot {
            below: self.votes.base(),
        };
        (promised, [forgot].into_iter().chain(self.beginning()))
    }

    /// Separates its own records from those of an earlier acceptor with the same number on this
    /// node.
    ///
    /// The log of the earlier acceptor was not needed after it left, so it can end anywhere, even
    /// between a vote and its confirmation. This acceptor takes part only in later epochs. It
    /// records the first of them before anything else, and a restart drops every older record.
    /// That loses nothing: what the earlier acceptor helped to choose lies below the frontier, or
    /// the quorums of the epochs in between hold it; its promises concern only finished rounds.
    ///
    /// If a crash removes this record, it removes everything that this acceptor wrote. If it is
    /// new in the configuration, it records its first epoch again. In a later configuration it
    /// keeps the votes of the earlier acceptor, as if that had never left. If some of these votes
    /// above the frontier are missing, it does not start, and the node must be replaced; no vote
    /// is lost.
    fn begin(&mut self, recovered: &mut Recovered, port: &mut impl AcceptorPort) {
        let is_new = !self.config.was_there(self.id);
        let first = self.config.first_epoch_of(self.id);
        if (is_new || !recovered.any) && first > self.began {
            self.began = first;
            recovered.begin(first);
            if let Some(record) = self.beginning() {
                port.persist(record);
            }
        }
    }

    /// One that was there when the cluster was founded has no predecessor.
    fn beginning(&self) -> Option<Record> {
        let epoch = self.began;
        (epoch > Epoch::default()).then_some(Record::Began { epoch })
    }
}
