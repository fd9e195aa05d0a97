//! What follows for a server from the cut: in which generation it takes part, and what it forgets.

use super::{Record, Server};
use crate::scalog::branch;
use crate::scalog::cut::{Cut, LogId, server_at};
use crate::scalog::id::Generation;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;
use ionian_replication::batch::Batch;

impl Server {
    pub(super) fn on_ordered(
        &mut self,
        now: Instant,
        from: ReplicaId,
        (slot, kept): (Slot, Slot),
        cut: Cut,
        out: &mut Out<'_, Self>,
    ) {
        self.kept.heard(from, kept, self.config.size());
        let is_news = self.known.as_ref().is_none_or(|(known, _)| *known < slot);
        if is_news {
            let before = self.ordered();
            self.kept.mark(slot, &cut.shard(self.shard));
            self.known = Some((slot, cut));
            self.follow(out);
            self.pass_on_waiting(out);
            self.unordered_bytes = self
                .own_log()
                .map_or(0, |log| self.logs.bytes_from(log, self.ordered()));
            if self.ordered() > before {
                self.again = (self.unordered() > 0).then(|| (now + self.options().resend_after, 0));
            }
        }
        self.forget(out);
    }

    /// Takes part in the last generation of its shard if that is open and lists its life; leaves
    /// the one before.
    fn follow(&mut self, out: &mut Out<'_, Self>) {
        let Some((_, cut)) = &self.known else {
            return;
        };
        let shard = cut.shard(self.shard);
        let over = shard.generation.0.saturating_sub(u64::from(shard.is_open));
        if self.left.0 < over {
            let generation = Generation(over);
            self.left = generation;
            out.persist(Record::Left { generation });
        }
        let is_its = shard.is_open && shard.lives.get(self.place) == Some(&self.life);
        let is_its = is_its && shard.generation > self.left;
        let now_in = is_its.then_some(shard.generation);
        if now_in == self.generation {
            return;
        }
        let before = core::mem::replace(&mut self.generation, now_in);
        (self.sent, self.again) = (0, None);
        if let Some(generation) = before {
            self.leave(generation, out);
        }
        if let Some(log) = self.own_log() {
            // What it finds again was sent, or is sent again when that is due.
            self.sent = self.logs.length(log);
            self.again = (self.unordered() > 0).then_some((Instant::ZERO, 0));
        }
    }

    /// A generation is over. It drops what no cut covers, if it knows what that is: a later
    /// generation says nothing of the cuts of this one. Commands of its own log go on; those of its
    /// peers' logs are theirs to pass on, or their lanes'.
    fn leave(&mut self, generation: Generation, out: &mut Out<'_, Self>) {
        out.reached(branch::LEFT);
        for server in self.config.servers_of(self.shard) {
            let log = LogId { generation, server };
            let known = self.known.as_ref();
            let ordered = known.and_then(|(_, cut)| cut.ordered(log, self.config.size()));
            let Some(ordered) = ordered else {
                return;
            };
            let void = self.logs.cut_off(log, ordered);
            if server == self.id {
                self.pass_on_void(void, out);
            }
        }
    }

    fn pass_on_void(&mut self, void: Vec<Batch>, out: &mut Out<'_, Self>) {
        self.counts.void += void.len() as u64;
        for batch in void {
            out.reached(branch::VOID);
            if let Some(server) = self.elsewhere() {
                self.pass_on(server, &batch, out);
            }
        }
    }

    /// Commands that waited for a shard to open go where one is.
    fn pass_on_waiting(&mut self, out: &mut Out<'_, Self>) {
        if self.open.is_empty() && self.large.is_none() {
            return;
        }
        if let Some(server) = self.elsewhere() {
            let waiting = Some(self.open.take()).filter(|batch| !batch.is_empty());
            for batch in waiting.into_iter().chain(self.large.take()) {
                self.pass_on(server, &batch, out);
            }
        }
    }

    /// Forgets what f+1 replicas keep.
    fn forget(&mut self, out: &mut Out<'_, Self>) {
        let Some((_, cut)) = &self.known else {
            return;
        };
        let shard = cut.shard(self.shard);
        let kept = self.kept.enough();
        if let Some(mark) = self.kept.pass(kept) {
            for (place, below) in mark.lengths.iter().enumerate() {
                let server = server_at(self.shard, place, self.config.size());
                let generation = mark.generation;
                let log = LogId { generation, server };
                self.logs.trim(log, self.logs.length(log).min(*below));
            }
        }
        // All of the generations before the last was ordered before that was opened.
        let is_kept = kept.0 >= shard.generation.0;
        if is_kept {
            self.logs.forget_before(shard.generation);
        }
        let is_over = !shard.is_open && kept >= shard.since;
        if is_over {
            self.logs
                .forget_before(Generation(shard.generation.0.saturating_add(1)));
        }
        // The log lists its life: so it has none of the generations before, and if the shard is
        // opened once more with an earlier life, nothing of that is ordered.
        let is_listed = shard.lives.get(self.place) == Some(&self.life);
        let is_whole = is_kept && self.generation.is_some() || is_over && is_listed;
        if self.forgets && is_whole {
            self.forgets = false;
            out.reached(branch::WHOLE);
        }
        out.release_below(self.logs.first_place().0);
    }
}
