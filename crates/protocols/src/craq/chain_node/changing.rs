//! Changes of the membership: how a chain node hands their commands to the master, has the master
//! know which nodes count, and tells its leaders when the chain is handed over.
//!
//! # Why a change is safe
//!
//! - *The master's log.* It is a log of MultiPaxos, and the change a command in it: between the two
//!   configurations is an epoch in which every quorum contains one of each (decision 0012). An
//!   acceptor on a new node has a number of its own, or takes no part in rounds before that epoch.
//! - *What was acknowledged.* The master counts who holds everything (`roster.rs`). It knows of a
//!   change before it lets a new node in, whose life says in which epoch it began. Leaders finish
//!   the change when a chain node has read in the master's log that the chain is handed over. That
//!   stays so until the master knows of the next membership, whose epoch comes later. So as many
//!   nodes of the new configuration as suspicions leave hold everything when the old one ends, and
//!   as many of the old one do if the change is abandoned.
//! - *Who writes.* Nothing is new: the members of the chain are those of the master's log, each
//!   with its life, and a node that joins holds all that a sealed member holds. A node
//!   that has left the cluster may still be a member. It counts no longer, and its neighbours have
//!   it removed. Another machine that gets its number is another member, because its life began in
//!   a later epoch.
//! - *Once each.* Sessions are part of the state that a new node copies (defect s6).

use super::link::Ask;
use super::{ChainNode, Record};
use crate::craq::Envelope;
use crate::craq::config::CHANGES;
use crate::craq::id::ChainNodeId;
use crate::craq::message::{FIRST_LIFE, Step, first_life};
use crate::craq::roster::Roster;
use crate::craq::{branch, kind, leader};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::Instant;
use ionian_replication::batch::{Answer, Batch, Command, Outcome, Purpose};

/// What a chain node knows of the membership.
#[derive(Debug)]
pub(super) struct Changing {
    /// The clients that wait for an answer to a change, and their numbers for it.
    askers: SmallMap<ClientId, u64>,
    /// The master knows the membership of this epoch, and no change is under way there.
    settled: Epoch,
    /// Which nodes count, as the master has said last.
    roster: Roster,
    /// Whether its log lacks entries (`records.rs`).
    pub(super) lacks_records: bool,
}

impl Changing {
    /// Knows the nodes that the cluster began with.
    pub(super) fn new(founding: Set<ChainNodeId>) -> Self {
        Changing {
            askers: SmallMap::new(),
            settled: Epoch::default(),
            roster: Roster::founding(founding),
            lacks_records: false,
        }
    }

    /// Which nodes count, as far as is known.
    pub(super) fn roster(&self) -> &Roster {
        &self.roster
    }
}

/// The change of the membership that a batch is, if it is one.
pub(super) fn change_in(batch: &Batch) -> Option<Command<&[u8]>> {
    let mut commands = batch.commands();
    let first = commands.next()?;
    let is_alone = first.purpose == Purpose::Change && commands.next().is_none();
    is_alone.then_some(first)
}

impl ChainNode {
    /// A client asks for a change: the master decides on it. One at a time of each client, and of
    /// not many clients; others ask again.
    pub(super) fn on_change(
        &mut self,
        now: Instant,
        change: &Command<&[u8]>,
        out: &mut Out<'_, Self>,
    ) {
        let payload = Bytes::copy_from_slice(change.payload);
        if self.changing.askers.len() == CHANGES {
            return;
        }
        if self.link.change(now, change.client, payload, out) {
            out.reached(branch::CHANGE);
            self.changing.askers.insert(change.client, change.number);
        }
    }

    /// The master has decided, or (none) has not answered.
    pub(super) fn changed(&mut self, client: ClientId, verdict: Option<Bytes>) {
        let number = self.changing.askers.remove(&client);
        if let (Some(number), Some(verdict)) = (number, verdict) {
            self.replies.answers.push(&Answer {
                client,
                purpose: Purpose::Change,
                number,
                outcome: Outcome::Done(verdict),
            });
        }
    }

    /// With each heartbeat: whether the master knows the membership.
    pub(super) fn look_at_roster(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.config.epoch() > self.changing.settled {
            self.link.look(now, Ask::Roster, out);
        }
    }

    /// What the master knows of the membership.
    pub(super) fn on_roster(&mut self, now: Instant, roster: Roster, out: &mut Out<'_, Self>) {
        let epoch = self.config.epoch();
        let (before, next) = self.config.standing();
        let (known, handed_over) = (roster.epoch, roster.handed_over);
        self.changing.roster = roster;
        if known == Epoch::default() && self.config.is_founding() {
            self.changing.settled = epoch;
        } else if known < epoch {
            let members = Step::Members {
                epoch,
                now: before,
                next,
            };
            self.link.step(now, members, out);
        } else if known == epoch && next.is_none() {
            self.changing.settled = epoch;
        } else if known == epoch && handed_over {
            out.reached(branch::HANDED_OVER);
            let leaders: Set<LeaderId> = self.config.all(kind::Leader);
            out.send(Envelope::ToLeaders(leaders, leader::In::Ready { epoch }));
        }
    }

    /// The life that a node begins which has had none.
    pub(super) fn first_life(&self) -> u64 {
        match self.config.is_founding() {
            true => FIRST_LIFE,
            false => first_life(self.config.epoch()),
        }
    }

    /// A node that the change under way adds, and that has been added before under this number,
    /// begins anew: the master counts on what it copies from now on.
    pub(super) fn begin_anew(&mut self, out: &mut Out<'_, Self>) -> bool {
        let life = first_life(self.config.epoch());
        let is_anew = self.life < life && self.config.added().contains(self.id);
        if is_anew {
            out.reached(branch::BEGINS_ANEW);
            self.life = life;
            out.persist_vital(Record::Life { life });
        }
        is_anew
    }

    /// Whether a member of the chain has left the cluster: by its number, or by its life, if its
    /// number is another's now.
    pub(super) fn has_left(&self, node: ChainNodeId) -> bool {
        let place = self.chain.place_of(node);
        let life = place.map(|place| self.chain.members[place].life);
        let is_old = life.is_some_and(|life| life < first_life(self.config.epoch()));
        !self.config.nodes().contains(node) || is_old && self.config.added().contains(node)
    }
}
