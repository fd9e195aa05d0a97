//! The replica: executes the whole log as MultiPaxos's does, and knows besides what leaders have
//! skipped.
//!
//! Stands between proxy leader and client (or unbatcher), and between readers and client.

mod commuting;
mod port;
mod skipped;

use self::commuting::Commuting;
use self::port::Port;
use self::skipped::Skipped;
use super::Envelope;
use super::branch;
use super::config::Config;
use super::metrics;
use super::stripe::{Stripe, StripePosition};
use crate::multipaxos;
use crate::parts;
use crate::parts::replica::divergence::Mark;
use crate::parts::replica::{Chunk, ReplicaCore};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::machine::RestoreError;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Cover, Out, Picture, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Instant, Timestamp};
use ionian_kernel::wire::Never;
use ionian_replication::batch::Value;

messages! {
    /// The messages that a replica receives.
    "replica" In {
        /// What MultiPaxos's receives, of slots of the log.
        0 => OfLog via message {
            /// The message.
            message: multipaxos::replica::In,
        },
        /// A leader has skipped these slots: they hold noops.
        1 => Skip {
            /// The stripe.
            stripe: Stripe,
            /// The first position.
            start: StripePosition,
            /// The position after the last.
            end: StripePosition,
        },
        /// A leader suggests this value: the slot holds it or a noop, once it is decided. Told by
        /// an acceptor beside.
        3 => Suggested {
            /// The slot of the log.
            slot: Slot,
            /// The value.
            value: Value,
        },
        /// The leader of a stripe lives, and every slot of the log below `executed` is in use or
        /// skipped.
        2 => Heartbeat {
            /// The stripe.
            stripe: Stripe,
            /// The leader's round.
            round: Round,
            /// How far the log is known to reach.
            executed: Slot,
            /// The replica is to keep what is below this slot through a crash as soon as it is
            /// executed.
            keep: Slot,
            /// What the leader would stamp into the log now.
            time: Timestamp,
        },
    }
}

/// A replica.
pub struct Replica {
    id: ReplicaId,
    config: Arc<Config>,
    core: ReplicaCore,
    /// What was skipped, by stripe.
    skipped: Vec<Skipped>,
    /// The skips that it was told of last, if there was room for them.
    told: Option<(Stripe, StripePosition, StripePosition)>,
    /// The highest round heard of, by stripe.
    rounds: Vec<Round>,
    /// When the leader of each stripe was heard last.
    heard: Vec<Instant>,
    commuting: Commuting,
    /// Whether anything is known of any slot that was not when it last looked for commands that
    /// commute.
    learned: bool,
    early: u64,
}

impl Replica {
    /// The replica of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        // Any stripe's configuration will do: replicas, readers and quorums are the same in all.
        let mut core = ReplicaCore::new(config.of(Stripe(0)).clone(), birth);
        core.set_unordered(config.settings.out_of_order);
        Replica {
            id: ReplicaId(birth.address.index),
            core,
            skipped: config.stripes.iter().map(|_| Skipped::default()).collect(),
            told: None,
            rounds: vec![Round(0); config.stripes.count()],
            heard: vec![Instant::ZERO; config.stripes.count()],
            commuting: Commuting::default(),
            learned: false,
            early: 0,
            config,
        }
    }

    /// Every slot below this one is executed.
    pub fn executed(&self) -> Slot {
        self.core.executed()
    }

    /// What it has learned and executed.
    pub fn core(&self) -> &ReplicaCore {
        &self.core
    }

    /// The replica's part, and its port.
    #[inline]
    fn part<'a, 'b>(
        &'a mut self,
        out: &'a mut Out<'b, Self>,
    ) -> (&'a mut ReplicaCore, Port<'a, 'b>) {
        let port = Port {
            id: self.id,
            config: &self.config,
            skipped: &self.skipped,
            rounds: &self.rounds,
            out,
        };
        (&mut self.core, port)
    }

    fn on_log_message(
        &mut self,
        now: Instant,
        message: multipaxos::replica::In,
        out: &mut Out<'_, Self>,
    ) {
        use multipaxos::replica::In as Message;
        let (core, mut port) = self.part(out);
        let port = &mut port;
        match message {
            Message::Chosen {
                slot,
                value,
                replier,
            } => core.on_chosen(now, slot, value, Some(replier), port),
            Message::Read { reads, executed } => core.on_read(now, reads, executed),
            // Each stripe has a leader, which says so by a message of its own.
            Message::Heartbeat { .. } => {}
            Message::Fetch {
                from,
                start,
                end,
                waits,
            } => core.on_fetch(now, from, (start, end), waits, port),
            Message::Fetched { from, slots } => core.on_fetched(now, from, slots, port),
            Message::FetchSnapshot {
                from,
                executed,
                offset,
            } => core.on_fetch_snapshot(now, from, executed, offset, port),
            Message::SnapshotChunk {
                from,
                executed,
                offset,
                last,
                bytes,
            } => {
                let chunk = Chunk {
                    from,
                    executed,
                    offset,
                    last,
                    bytes,
                };
                core.on_chunk(now, chunk, port);
            }
            Message::UnbatcherAlive { from } => core.on_unbatcher_alive(now, from),
            Message::Mark {
                from,
                start,
                end,
                sum,
            } => core.on_mark(from, Mark { start, end, sum }),
        }
    }

    fn on_skip(
        &mut self,
        stripe: Stripe,
        start: StripePosition,
        end: StripePosition,
        out: &mut Out<'_, Self>,
    ) {
        let known = self.config.stripes.from(stripe, self.core.executed());
        let skipped = &mut self.skipped[usize::from(stripe.0)];
        self.told = (!skipped.is_full()).then_some((stripe, start, end));
        let unknown = start.max(known);
        let knows_some = skipped.end_from(start) > start || start < known;
        if knows_some {
            out.reached(branch::SKIP_OF_KNOWN);
        }
        skipped.insert(unknown, end);
    }

    /// The first slot from this one on that is not known to be skipped.
    fn skipped_until(&self, slot: Slot) -> Slot {
        let stripes = self.config.stripes;
        let ends = stripes.iter().zip(&self.skipped).map(|(stripe, skipped)| {
            let position = stripes.from(stripe, slot);
            stripes.slot(stripe, skipped.end_from(position))
        });
        ends.min().expect("a log has stripes")
    }

    /// Executes the noops that come next, and what follows them.
    fn pass_skipped(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        loop {
            let stripes = self.config.stripes;
            let end = self.skipped_until(self.core.executed());
            if end <= self.core.executed() {
                return;
            }
            if end.distance(self.core.executed()) > self.config.options().retained_slots as u64 {
                out.reached(branch::PASSES_OVER);
            }
            let (core, mut port) = self.part(out);
            core.skip_to(now, end, &mut port);
            for (stripe, skipped) in stripes.iter().zip(&mut self.skipped) {
                skipped.forget_below(stripes.from(stripe, self.core.executed()));
            }
        }
    }

    /// The leader of a stripe lives. Checks all leaders whenever one is heard; with none heard
    /// there is nothing to fetch.
    fn on_heartbeat(&mut self, now: Instant, stripe: Stripe, round: Round) {
        let stripe = usize::from(stripe.0);
        self.rounds[stripe] = round.max(self.rounds[stripe]);
        self.heard[stripe] = now;
        let timeout = self.config.options().election_timeout;
        let cut_off = self.heard.iter().any(|heard| now.since(*heard) > timeout);
        self.core.set_cut_off(cut_off);
    }

    /// Executes what commutes with everything that comes before it.
    fn run_ahead(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.commuting.forget_below(self.core.executed());
        if !self.config.settings.out_of_order || !self.learned || !self.core.may_run_ahead(now) {
            return;
        }
        self.learned = false;
        if self.commuting.has_none() {
            return;
        }
        let (core, mut port) = self.part(out);
        core.finish(now, &mut port);
        let mut commuting = core::mem::take(&mut self.commuting);
        let ready = commuting.ready(&self.core, |slot| self.skipped_until(slot));
        self.commuting = commuting;
        self.early += ready.len() as u64;
        for slot in ready {
            out.reached(branch::RUNS_AHEAD);
            self.core.execute_early(slot);
        }
    }
}

impl Role for Replica {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError> {
        self.core.restore(stamp, snapshot)
    }

    fn on_snapshot(&mut self, stamp: u64, stored: bool, _: &mut Out<'_, Self>) {
        self.core.on_snapshot(stamp, stored);
    }

    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        self.core.freeze(now, cover)
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.heard.fill(now);
        let (core, mut port) = self.part(out);
        core.start(now, &mut port);
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.core.reconfigure(config.of(Stripe(0)).clone());
        self.core.set_unordered(config.settings.out_of_order);
        // What commutes may go ahead from now on.
        self.learned = true;
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        if self.core.is_out() {
            return;
        }
        self.learned |= !matches!(message, In::Heartbeat { .. });
        match message {
            In::OfLog { message } => self.on_log_message(now, message, out),
            In::Skip { stripe, start, end } if self.config.knows(stripe) => {
                self.on_skip(stripe, start, end, out)
            }
            In::Heartbeat {
                stripe,
                round,
                executed,
                keep,
                time,
            } if self.config.knows(stripe) => {
                self.on_heartbeat(now, stripe, round);
                self.core.on_heartbeat(now, executed, keep, time);
            }
            In::Suggested { slot, value } => {
                self.commuting.suggest(self.core.executed(), slot, value)
            }
            In::Skip { .. } | In::Heartbeat { .. } => {}
        }
        self.pass_skipped(now, out);
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let (core, mut port) = self.part(out);
        core.on_timer(now, &mut port);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.core.next_timer()
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.core.is_out() {
            return;
        }
        self.run_ahead(now, out);
        let (core, mut port) = self.part(out);
        core.on_burst_end(now, &mut port);
    }

    fn invariants(&self) {
        self.core.invariants();
        self.skipped.iter().for_each(Skipped::invariants);
        if let Some((stripe, start, end)) = self.told {
            let start = start.max(self.config.stripes.from(stripe, self.core.executed()));
            let known = self.skipped[usize::from(stripe.0)].end_from(start);
            assert!(
                known >= end,
                "told that {stripe:?} is skipped up to {end:?}, a replica knows of it up to {known:?}"
            );
        }
    }

    const METRICS: Metrics = &[
        parts::metrics::REPLICA,
        parts::metrics::WORKERS,
        metrics::REPLICA,
    ];

    fn status(&self, status: &mut Status) {
        self.core.report_status(status);
        status.add([self.early]);
    }
}
