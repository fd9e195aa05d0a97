//! What a server does with commands: it appends them to its log, and sends them to its peers and to
//! the replicas; or it passes them on.

use super::{In, MESSAGE_BYTES, Record, Server};
use crate::scalog::cut::LogId;
use crate::scalog::id::{ServerId, as_batchers};
use crate::scalog::{Envelope, branch, client, replica};
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::{Instant, transit};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::{Batch, BatchBuilder};

/// What the servers of open shards together hold of their own logs that is not ordered, and of
/// commands that wait, in bytes: each has an equal part, or one thing alone that is larger. A slot
/// can order all of it, and must fit a message to a replica that is behind. What lanes send beyond
/// it is dropped, and asked again by them.
const UNORDERED_BYTES: usize = 32 << 20;

impl Server {
    pub(super) fn on_commands(&mut self, now: Instant, commands: &Batch, out: &mut Out<'_, Self>) {
        match self.elsewhere() {
            Some(server) => {
                self.pass_on(server, commands, out);
                self.point_elsewhere(commands, out);
            }
            None => self.take_in(now, commands, out),
        }
    }

    /// Takes commands in, if there is room for them. Where no shard is open they wait. While one
    /// batch that is larger than the whole room waits, no others are taken in: under a steady load
    /// its turn would never come.
    pub(super) fn take_in(&mut self, now: Instant, commands: &Batch, out: &mut Out<'_, Self>) {
        let waiting = self.unordered_bytes + self.open.byte_len();
        let limit = UNORDERED_BYTES / (self.config.size() * self.config.open_shards()).max(1);
        let has_room = waiting == 0 || waiting + commands.byte_len() <= limit;
        if self.logs.is_full() || self.large.is_some() {
            self.counts.dropped += commands.len() as u64;
        } else if has_room {
            self.append_open(now, commands, out);
        } else if commands.byte_len() > limit {
            self.large = Some(commands.clone());
        } else {
            self.counts.dropped += commands.len() as u64;
        }
    }

    /// Takes in the batch that is larger than the room when nothing else waits.
    pub(super) fn take_large_in(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.unordered_bytes + self.open.byte_len() == 0
            && let Some(commands) = self.large.take()
        {
            self.append_open(now, &commands, out);
        }
    }

    fn append_open(&mut self, now: Instant, commands: &Batch, out: &mut Out<'_, Self>) {
        self.open.append(now, commands);
        if self.generation.is_none() {
            out.reached(branch::HELD);
        } else if self.open.is_full(self.options()) {
            self.close(out);
        }
    }

    /// The servers of other shards that are open, as far as it knows.
    fn open_elsewhere(&self) -> Set<ServerId> {
        let Some((_, cut)) = &self.known else {
            return Set::EMPTY;
        };
        let shards = self.config.shards();
        shards
            .filter(|shard| *shard != self.shard && cut.shard(*shard).is_open)
            .flat_map(|shard| self.config.servers_of(shard))
            .collect()
    }

    /// While its own shard is closed: a server of a shard that is open, if there is one.
    pub(super) fn elsewhere(&mut self) -> Option<ServerId> {
        if self.generation.is_some() {
            return None;
        }
        self.turn += 1;
        self.open_elsewhere().pick(self.turn)
    }

    /// Tells lanes that have sent commands to a closed shard which servers take some in.
    fn point_elsewhere(&self, commands: &Batch, out: &mut Out<'_, Self>) {
        let lanes: Set<ClientId> = commands.commands().map(|it| it.client).collect();
        let to = as_batchers(self.open_elsewhere());
        out.send(Envelope::ToClients(lanes, client::In::PassedOn { to }));
    }

    pub(super) fn pass_on(&mut self, to: ServerId, commands: &Batch, out: &mut Out<'_, Self>) {
        self.counts.passed_on += commands.len() as u64;
        out.reached(branch::PASSED_ON);
        let commands = commands.clone();
        out.send(Envelope::ToServers(Set::one(to), In::PassedOn { commands }));
    }

    /// Appends the open batch to its log; where batches hold one command, each command by itself.
    pub(super) fn close(&mut self, out: &mut Out<'_, Self>) {
        let batch = self.open.take();
        self.counts.commands += batch.len() as u64;
        if self.options().batch_commands > 1 {
            return self.append_own(batch, out);
        }
        for command in batch.commands() {
            let mut builder = BatchBuilder::default();
            builder.push(&command);
            self.append_own(builder.take(), out);
        }
    }

    fn append_own(&mut self, batch: Batch, out: &mut Out<'_, Self>) {
        let log = self.own_log().expect("its shard is open");
        self.unordered_bytes += batch.byte_len();
        self.append(log, batch, out);
    }

    pub(super) fn append(&mut self, log: LogId, batch: Batch, out: &mut Out<'_, Self>) {
        let (place, index) = self.logs.append(log, batch.clone());
        out.persist(Record::Kept {
            place,
            log,
            index,
            batch,
        });
    }

    /// Sends what is new in its log to its peers, and to the replicas, which need not wait for the
    /// cut to have it.
    pub(super) fn send_new(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let Some(log) = self.own_log() else {
            return;
        };
        let (peers, replicas) = (self.config.peers_of(self.id), self.config.replicas());
        while self.sent < self.logs.length(log) {
            let (first, records) = (self.sent, self.logs.read(log, self.sent, MESSAGE_BYTES));
            self.sent += records.len() as u64;
            let message = replica::In::Records {
                log,
                first,
                records: records.clone(),
            };
            out.send(Envelope::ToReplicas(replicas, message));
            let message = In::Backup {
                log,
                first,
                records,
                turn: self.reporting.turn(),
            };
            out.send(Envelope::ToServers(peers, message));
        }
        if self.again.is_none() && self.unordered() > 0 {
            self.again = Some((now + self.options().resend_after, 0));
        }
    }

    /// What is not ordered may not have reached a peer. As much is sent as a message holds: the
    /// rest when that is ordered.
    pub(super) fn send_again(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let Some((_, attempts)) = self.again.filter(|(at, _)| *at <= now) else {
            return;
        };
        self.again = None;
        let Some(log) = self.own_log().filter(|_| self.unordered() > 0) else {
            return;
        };
        out.reached(branch::BACKS_UP_AGAIN);
        let first = self.ordered();
        let records = self.logs.read(log, first, MESSAGE_BYTES);
        let bytes = records.iter().map(Batch::byte_len).sum();
        let wait = doubled(self.options().resend_after, attempts + 1, 6) + transit(bytes);
        self.again = Some((now + wait, attempts + 1));
        let message = In::Backup {
            log,
            first,
            records,
            turn: self.reporting.turn(),
        };
        let peers = self.config.peers_of(self.id);
        out.send(Envelope::ToServers(peers, message));
    }

    /// Tells servers which aggregator it asks.
    pub(super) fn send_turn(&mut self, to: Set<ServerId>, out: &mut Out<'_, Self>) {
        let (from, turn) = (self.id, self.reporting.turn());
        out.send(Envelope::ToServers(to, In::Turn { from, turn }));
    }
}
