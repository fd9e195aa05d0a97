//! How a chain node enters the next chain.

use super::sealing::Sealing;
use super::writes::Up;
use super::{ChainNode, Record};
use crate::craq::message::Chain;
use crate::craq::{Envelope, batcher, branch, client, kind};
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

impl ChainNode {
    /// Enters a chain that the master has decided, if it is a later one; says whether it is.
    pub(super) fn enter(&mut self, now: Instant, chain: Chain, out: &mut Out<'_, Self>) -> bool {
        if !chain.is_later_than(&self.chain) {
            return false;
        }
        let before = (self.place, self.predecessor(), self.is_tail());
        let same = chain.epoch == self.chain.epoch;
        if !same {
            self.open_seal(now, &chain);
        }
        self.chain = chain;
        self.note_leaving(now);
        if !same {
            self.take_place();
            if self.place.is_none() {
                self.leave(now, before.0.is_some(), out);
            }
        }
        let (chain, end) = (self.chain.clone(), self.history.end());
        out.persist(Record::Entered { chain, end });
        if same {
            return true;
        }
        if self.is_tail() && !before.2 {
            self.tail_from = end;
        }
        self.begin_in_chain(now);
        if let Some(place) = self.place
            && before.0.is_some()
        {
            match (place, before) {
                (0, (Some(1..), ..)) => out.reached(branch::HEAD_DIED),
                (_, (_, predecessor, _)) if predecessor != self.predecessor() => {
                    out.reached(branch::MIDDLE_DIED);
                }
                _ => {}
            }
            if self.is_tail() && !before.2 {
                out.reached(branch::TAIL_DIED);
            }
        }
        self.commit_as_tail(now, out);
        self.reads_in_new_chain(now, out);
        self.beat(now, self.others(), out);
        self.sync(now, out);
        if self.is_head() {
            self.tell_clients(out);
        }
        true
    }

    /// Finds its place in the chain.
    pub(super) fn take_place(&mut self) {
        self.place = self.chain.place(self.id, self.life);
    }

    /// It is in another life now: it is no member, whatever it was.
    pub(super) fn lose_place(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let was_member = self.place.is_some();
        self.sealing = Sealing::default();
        self.take_place();
        self.leave(now, was_member, out);
        let (chain, end) = (self.chain.clone(), self.history.end());
        out.persist(Record::Entered { chain, end });
        self.begin_in_chain(now);
        self.reads_in_new_chain(now, out);
    }

    /// It knows nothing of its neighbours yet.
    pub(super) fn begin_in_chain(&mut self, now: Instant) {
        self.entered = now;
        (self.up, self.down) = (Up::new(now, self.predecessor().is_none()), None);
        self.joining.restart(now);
    }

    /// It is no member of the chain: the others go on from what is committed.
    fn leave(&mut self, now: Instant, was_member: bool, out: &mut Out<'_, Self>) {
        if was_member {
            out.reached(branch::REMOVED);
            self.was_removed(now);
        }
        if self.history.pending() > 0 {
            out.reached(branch::DISCARDS);
        }
        self.history.truncate(self.history.applied());
        self.hand_on_writes(out);
    }

    /// Batchers and clients learn the chain.
    fn tell_clients(&self, out: &mut Out<'_, Self>) {
        let chain = &self.chain;
        let batchers: Set<BatcherId> = self.config.all(kind::Batcher);
        if !batchers.is_empty() {
            let chain = chain.clone();
            out.send(Envelope::ToBatchers(batchers, batcher::In::Chain { chain }));
        }
        let clients: Set<ClientId> = self.config.all(kind::Client);
        let chain = chain.clone();
        out.send(Envelope::ToClients(clients, client::In::Chain { chain }));
    }
}
