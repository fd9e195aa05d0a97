//! The aggregator: gathers what servers report, and proposes what all servers of a shard hold.
//!
//! Stands between servers and leader. The published one is a tree of them; here one level is
//! enough, for a report is a few numbers. To the ordering it is a batcher.
//!
//! It remembers nothing that matters: what it proposes is true whenever it is chosen, or has no
//! effect (see [`cut`](super::cut)). So any number of aggregators may be at work, old and new, and
//! what is lost on the way to the log follows from the next report.
//!
//! What it must get right is that a length is held by *all* servers of a shard: of a shard whose
//! servers have not all reported in the generation, it proposes nothing.
//!
//! It closes the shard of a server that is silent while others report, and of one that says that it
//! saw its shard opened with another life. Only a later life of the same server can have seen that:
//! the life that the opening lists had begun before it, and with it all earlier ones were over. And
//! it opens closed shards, all servers of which report, until as many are open as are to be
//! (`open_shards`): so nothing need be done by hand when a server fails or comes back. A shard that
//! is closed without need costs a moment of that shard.

mod deciding;

use self::deciding::{Deciding, Heard};
use super::config::Config;
use super::cut::{Change, Cut, batch_of};
use super::id::{AggregatorId, Generation, ServerId, as_batcher};
use super::{Envelope, branch, metrics};
use crate::multipaxos;
use crate::multipaxos::message::Proposer;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_kernel::wire::Never;
use ionian_replication::backoff::doubled;

messages! {
    /// The messages that an aggregator receives.
    "aggregator" In {
        /// A message that MultiPaxos's batcher receives too.
        0 => Ordering via message {
            /// The message.
            message: multipaxos::batcher::In,
        },
        /// What a server holds.
        1 => Report {
            /// The server.
            from: ServerId,
            /// Its life.
            life: u64,
            /// The generation in which it takes part; zero if it takes part in none.
            generation: Generation,
            /// How many records it holds of each log of the generation, without a gap, by the
            /// servers' places.
            lengths: Vec<u64>,
            /// It knows the cut before this slot.
            seen: Slot,
        },
        /// A replica has executed the log so far.
        2 => Ordered {
            /// Every slot below this one is executed.
            slot: Slot,
            /// What these slots have ordered.
            cut: Cut,
            /// It waits for records of these shards, and has for too long.
            late: Vec<Index>,
        },
    }
}

/// What is not chosen after this time is proposed again, to another leader if this one is silent;
/// and after twice that time, and so on, for it may wait in a leader's queue.
const PROPOSE_AGAIN_AFTER: Duration = Duration::from_millis(150);

/// How often that time is doubled.
const MOST_DOUBLED: u32 = 4;

/// An aggregator.
pub struct Aggregator {
    id: AggregatorId,
    config: Config,
    deciding: Deciding,
    /// The slot before which it knows the cut, once a replica has told it.
    known: Option<Slot>,
    round: Round,
    /// Turns to the next leader when the one that it asks is silent.
    stray: u64,
    /// When each proposal was sent that is not known to be chosen, by number.
    under_way: BTreeMap<u64, Instant>,
    next_number: u64,
    /// How often in a row proposals were overdue.
    attempts: u32,
    /// Whether something has changed since it looked.
    is_new: bool,
    look_at: Instant,
    reports: u64,
    proposals: u64,
}

impl Aggregator {
    /// The aggregator of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        let mut random = Random::new(birth.seed);
        Aggregator {
            id: AggregatorId(birth.address.index),
            deciding: Deciding::default(),
            known: None,
            round: Round(0),
            stray: 0,
            under_way: BTreeMap::new(),
            // What was chosen for an earlier process settles nothing of this one.
            next_number: random.any() >> 1,
            attempts: 0,
            is_new: false,
            look_at: Instant::ZERO,
            reports: 0,
            proposals: 0,
            config,
        }
    }

    /// Proposes what follows from the reports, unless much is under way: what was chosen then makes
    /// room, and the next proposal contains what all the later reports say.
    fn look(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.next_look().is_none_or(|at| at > now) {
            return;
        }
        (self.is_new, self.look_at) = (false, now + self.config.options().heartbeat);
        let changes = self.deciding.changes(now, &self.config, out);
        if !changes.is_empty() {
            self.propose(now, &changes, out);
        }
    }

    fn next_look(&self) -> Option<Instant> {
        let has_room = self.under_way.len() < self.config.options().batches_in_flight;
        let next = match self.is_new {
            true => Instant::ZERO,
            false => self.look_at,
        };
        Some(next).filter(|_| has_room && self.known.is_some())
    }

    fn propose(&mut self, now: Instant, changes: &Vec<Change>, out: &mut Out<'_, Self>) {
        let number = self.next_number;
        self.next_number += 1;
        self.proposals += 1;
        self.under_way.insert(number, now);
        let message = multipaxos::leader::In::Propose {
            proposer: Proposer::Batcher {
                id: as_batcher(self.id),
                number,
            },
            near: Set::EMPTY,
            batch: batch_of(changes),
            again: false,
        };
        let leader = self.config.ordering.leader(self.round, self.stray);
        out.send(Envelope::ToLeaders(Set::one(leader), message));
    }

    fn on_ordering(
        &mut self,
        now: Instant,
        message: multipaxos::batcher::In,
        out: &mut Out<'_, Self>,
    ) {
        use multipaxos::batcher::In as Message;
        match message {
            Message::BatchesChosen { numbers } => {
                for number in numbers {
                    if self.under_way.remove(&number).is_some() {
                        self.attempts = 0;
                    }
                }
            }
            Message::NewLeader { round } if round >= self.round => self.follow(round, 0, out),
            Message::NotLeader { round } if round > self.round => self.follow(round, 0, out),
            // The stray was wrong. (Not when there was none: then the leader of the round itself
            // does not lead, and none better is known.)
            Message::NotLeader { round } if round == self.round && self.stray > 0 => {
                self.follow(round, 0, out);
            }
            Message::NewLeader { .. } | Message::NotLeader { .. } => {}
            // Commands go to servers.
            Message::Commands { .. } => {}
        }
        self.look(now, out);
    }

    /// Asks this leader from now on, which may have nothing of what was proposed.
    fn follow(&mut self, round: Round, stray: u64, out: &mut Out<'_, Self>) {
        (self.round, self.stray) = (round, stray);
        if !self.under_way.is_empty() {
            out.reached(branch::PROPOSES_AGAIN);
        }
        self.under_way.clear();
        self.deciding.propose_again();
        self.is_new = true;
    }

    fn overdue_at(&self) -> Option<Instant> {
        let first = self.under_way.first_key_value();
        let after = doubled(PROPOSE_AGAIN_AFTER, self.attempts, MOST_DOUBLED);
        first.map(|(_, sent)| *sent + after)
    }
}

impl Role for Aggregator {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_start(&mut self, now: Instant, _: &mut Out<'_, Self>) {
        self.deciding.start(now);
    }

    fn on_reconfigure(&mut self, _: Instant, config: Config, _: &mut Out<'_, Self>) {
        self.config = config;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Ordering { message } => self.on_ordering(now, message, out),
            In::Report {
                from,
                life,
                generation,
                lengths,
                seen,
            } => {
                self.reports += 1;
                let heard = Heard {
                    life,
                    generation,
                    lengths,
                    seen,
                    at: now,
                };
                if self.config.servers.contains(from) {
                    self.is_new |= self.deciding.heard(from, heard, &self.config);
                }
            }
            In::Ordered { slot, cut, late } if self.known <= Some(slot) => {
                self.known = Some(slot);
                self.is_new |= self.deciding.follow(now, cut);
                self.is_new |= self.deciding.are_late(now, late, &self.config);
            }
            In::Ordered { .. } => {}
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.overdue_at().is_some_and(|at| at <= now) {
            self.attempts += 1;
            self.follow(self.round, self.stray + 1, out);
        }
        self.look(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        earliest(self.overdue_at(), self.next_look())
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.look(now, out);
    }

    const METRICS: Metrics = &[metrics::AGGREGATOR];

    fn status(&self, status: &mut Status) {
        status.add([
            self.reports,
            self.proposals,
            self.under_way.len() as u64,
            self.deciding.open_shards(),
            self.deciding.closed(),
        ]);
    }
}
