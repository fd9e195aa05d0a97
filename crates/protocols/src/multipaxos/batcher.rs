//! The batcher (4.1): gathers commands into batches, so that the leader handles one message a
//! batch.
//!
//! Stands between client and leader. It keeps every batch until a proxy leader says that it was
//! chosen, and hands what is left to a new leader at once, so that a leader's death costs no client
//! a retry.

pub(crate) mod batches;

use super::config::Config;
use super::message::Proposer;
use super::metrics;
use super::{Envelope, kind, leader};
use alloc::sync::Arc;
use alloc::vec::Vec;
use batches::{Batches, Due};
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_kernel::wire::Never;
use ionian_replication::batch::Batch;

messages! {
    /// The messages that a batcher receives.
    "batcher" In {
        /// Commands of a client.
        0 for "batch.wait" of commands => Commands {
            /// The commands.
            commands: Batch,
        },
        /// A proxy leader got these batches chosen.
        1 => BatchesChosen {
            /// This batcher's numbers of the batches.
            numbers: Vec<u64>,
        },
        /// A leader has finished phase 1.
        2 => NewLeader {
            /// Its round.
            round: Round,
        },
        /// A batch came to a leader that does not lead.
        3 => NotLeader {
            /// The highest round that it knows of.
            round: Round,
        },
    }
}

/// How long the leader may leave a batch unchosen before it is proposed again. Well above what the
/// proxy leaders need to get round a dead acceptor, since a batch proposed twice is work done
/// twice.
const PROPOSE_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// A batcher.
pub struct Batcher {
    id: BatcherId,
    config: Arc<Config>,
    node: NodeId,
    near: Set<ReplicaId>,
    /// With each batch goes when it was sent last.
    batches: Batches<Instant>,
    round: Round,
    /// Turns to the next leader when the one that it asks is silent.
    stray: u64,
    /// When it turned to the leader that it asks now.
    turned_at: Instant,
    /// When that leader was last seen to serve: something was chosen that was sent to it.
    served_at: Instant,
}

impl Batcher {
    /// The batcher of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Batcher {
            id: BatcherId(birth.address.index),
            node: birth.node,
            near: config.near(kind::Replica, birth.node),
            batches: Batches::new(
                PROPOSE_AGAIN_AFTER,
                config.options(),
                &mut Random::new(birth.seed),
            ),
            round: Round(0),
            stray: 0,
            turned_at: Instant::ZERO,
            served_at: Instant::ZERO,
            config,
        }
    }

    /// Closes the open batch and proposes what there is room for.
    fn close(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.batches.close(now, now);
        self.propose_waiting(now, out);
    }

    fn propose_waiting(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some(due) = self.batches.next(now) {
            self.propose(now, due, out);
        }
    }

    fn propose(
        &mut self,
        now: Instant,
        Due {
            number,
            batch,
            again,
        }: Due,
        out: &mut Out<'_, Self>,
    ) {
        *self.batches.with(number) = now;
        let leader = self.config.leader(self.round, self.stray);
        let (proposer, near) = (
            Proposer::Batcher {
                id: self.id,
                number,
            },
            self.near,
        );
        out.send(Envelope::ToLeaders(
            Set::one(leader),
            leader::In::Propose {
                proposer,
                near,
                batch,
                again,
            },
        ));
    }

    fn turn(&mut self, now: Instant, round: Round, stray: u64) {
        (self.round, self.stray) = (round, stray);
        (self.turned_at, self.served_at) = (now, now);
    }

    fn on_chosen(&mut self, now: Instant, numbers: &[u64], out: &mut Out<'_, Self>) {
        let Self {
            batches,
            turned_at,
            served_at,
            ..
        } = self;
        batches.settle(numbers, |sent| {
            if sent >= *turned_at {
                *served_at = now;
            }
        });
        self.propose_waiting(now, out);
    }

    /// Sends again what is overdue, to another leader if this one is silent: it was sent something
    /// since it was last seen to serve, and that is overdue. What is overdue with its predecessor,
    /// or was lost on the way while other batches were chosen, says nothing against it. (Of two
    /// leaders one may be dead: each turn without need is one back to that.)
    fn propose_overdue(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let overdue = self.batches.overdue(now);
        if overdue
            .iter()
            .any(|due| *self.batches.with(due.number) >= self.served_at)
        {
            self.turn(now, self.round, self.stray + 1);
        }
        overdue
            .into_iter()
            .for_each(|due| self.propose(now, due, out));
    }

    /// Turns to the leader of `round`, which may have none of what is in flight.
    fn follow(&mut self, now: Instant, round: Round, out: &mut Out<'_, Self>) {
        self.turn(now, round, 0);
        self.batches.requeue();
        self.propose_waiting(now, out);
    }
}

impl Role for Batcher {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_reconfigure(&mut self, _: Instant, config: Arc<Config>, _: &mut Out<'_, Self>) {
        self.near = config.near(kind::Replica, self.node);
        self.batches.reconfigure(config.options());
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Commands { commands } => {
                if self.batches.take_in(now, &commands, self.config.options()) {
                    self.close(now, out);
                }
            }
            In::BatchesChosen { numbers } => self.on_chosen(now, &numbers, out),
            In::NewLeader { round } if round >= self.round => self.follow(now, round, out),
            In::NotLeader { round } if round > self.round => self.follow(now, round, out),
            // The stray was wrong. (Not when there was none: then the leader of the round itself
            // does not lead, and none better is known.)
            In::NotLeader { round } if round == self.round && self.stray > 0 => {
                self.follow(now, round, out)
            }
            In::NewLeader { .. } | In::NotLeader { .. } => {}
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.batches.check_at.is_some_and(|at| at <= now) {
            self.propose_overdue(now, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        // A batch that is not full is closed too (l9).
        earliest(
            self.batches.check_at,
            self.batches.closes_at(self.config.options()),
        )
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.batches.is_due(now, self.config.options()) {
            self.close(now, out);
        }
    }

    fn invariants(&self) {
        self.batches.invariants();
    }

    const METRICS: Metrics = &[metrics::BATCHES];

    fn status(&self, status: &mut Status) {
        self.batches.report(status);
    }
}
