//! What follows from the reports of servers: how far shards have grown, and which are to be closed
//! or opened.

use super::Aggregator;
use crate::scalog::branch;
use crate::scalog::config::Config;
use crate::scalog::cut::{Change, Cut, Shard};
use crate::scalog::id::{Generation, ServerId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::{Index, Slot};
use ionian_kernel::role::Out;
use ionian_kernel::time::{Duration, Instant};

/// An opening or a closing that has had no effect is proposed again after this time.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// See the top of this file.
#[derive(Default)]
pub(super) struct Deciding {
    /// The last report of each server.
    heard: BTreeMap<ServerId, Heard>,
    /// Since when it listens.
    since: Instant,
    cut: Cut,
    /// What was proposed of each shard beyond the cut.
    proposed: BTreeMap<Index, Proposed>,
    closed: u64,
}

/// A report.
pub(super) struct Heard {
    pub(super) life: u64,
    pub(super) generation: Generation,
    pub(super) lengths: Vec<u64>,
    pub(super) seen: Slot,
    pub(super) at: Instant,
}

#[derive(Default)]
struct Proposed {
    generation: Generation,
    lengths: Vec<u64>,
    /// When it was proposed to open or to close the shard.
    turned_at: Option<Instant>,
}

impl Deciding {
    pub(super) fn start(&mut self, now: Instant) {
        self.since = now;
    }

    /// A server has reported; whether something follows from that perhaps.
    pub(super) fn heard(&mut self, from: ServerId, heard: Heard) -> bool {
        let Heard {
            life,
            generation,
            seen,
            ..
        } = heard;
        let lengths = heard.lengths.clone();
        let before = self.heard.insert(from, heard);
        before.is_none_or(|before| {
            before.lengths != lengths
                || (before.life, before.generation, before.seen) != (life, generation, seen)
        })
    }

    /// The cut is this one; whether something follows from that perhaps.
    pub(super) fn follow(&mut self, cut: Cut) -> bool {
        let states = |cut: &Cut| -> Vec<_> {
            let shards = cut.shards.iter();
            shards
                .map(|shard| (shard.generation, shard.is_open))
                .collect()
        };
        let turned = states(&self.cut) != states(&cut);
        self.cut = cut;
        turned
    }

    /// What was proposed may be lost.
    pub(super) fn propose_again(&mut self) {
        self.proposed.clear();
    }

    /// What is to be proposed now, and counts as proposed.
    pub(super) fn changes(
        &mut self,
        now: Instant,
        config: &Config,
        out: &mut Out<'_, Aggregator>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        for shard in config.shards() {
            let state = self.cut.shard(shard);
            let proposed = self.proposed.entry(shard).or_default();
            if proposed.generation != state.generation {
                *proposed = Proposed {
                    generation: state.generation,
                    ..Proposed::default()
                };
            }
            match state.is_open {
                true => {
                    changes.extend(self.grown(shard, &state, config));
                    changes.extend(self.closing(now, shard, &state, config, out));
                }
                false => changes.extend(self.opening(now, shard, &state, config, out)),
            }
        }
        changes
    }

    /// How far a shard has grown: the minimum of what *all* its servers hold of each log, in this
    /// generation. A server that has not reported in it may hold nothing.
    fn grown(&mut self, shard: Index, state: &Shard, config: &Config) -> Option<Change> {
        let generation = state.generation;
        let mut lengths: Option<Vec<u64>> = None;
        for (place, server) in config.servers_of(shard).enumerate() {
            let heard = self.heard.get(&server)?;
            let counts =
                heard.generation == generation && state.lives.get(place) == Some(&heard.life);
            if !counts || heard.lengths.len() != config.size() {
                return None;
            }
            lengths = Some(match lengths {
                None => heard.lengths.clone(),
                Some(lengths) => pointwise(&lengths, &heard.lengths, u64::min),
            });
        }
        let lengths = pointwise(&lengths?, &state.lengths, u64::max);
        let proposed = self.proposed.get_mut(&shard)?;
        let is_more = |known: &[u64]| {
            let mut pairs = lengths.iter().enumerate();
            pairs.any(|(place, length)| known.get(place).is_none_or(|known| known < length))
        };
        if !is_more(&state.lengths) || !is_more(&proposed.lengths) {
            return None;
        }
        proposed.lengths.clone_from(&lengths);
        Some(Change::Grow {
            shard,
            generation,
            lengths,
        })
    }

    /// Closes a shard of which a server is gone, or has forgotten what it holds.
    fn closing(
        &mut self,
        now: Instant,
        shard: Index,
        state: &Shard,
        config: &Config,
        out: &mut Out<'_, Aggregator>,
    ) -> Option<Change> {
        let generation = state.generation;
        let forgets = |(place, server)| {
            let heard: Option<&Heard> = self.heard.get(&server);
            heard.is_some_and(|heard| {
                heard.seen.0 >= generation.0 && state.lives.get(place) != Some(&heard.life)
            })
        };
        let is_forgetful = config.servers_of(shard).enumerate().any(forgets);
        // Not when all are silent: then it is this aggregator that hears nothing.
        let is_heard = |server| !self.is_silent(now, server, config);
        let is_silent =
            !config.servers_of(shard).all(is_heard) && config.servers.iter().any(is_heard);
        if !(is_forgetful || is_silent) || !self.turns(now, shard) {
            return None;
        }
        self.closed += 1;
        out.reached(match is_forgetful {
            true => branch::CLOSES_FORGETFUL,
            false => branch::CLOSES_SILENT,
        });
        Some(Change::Close { shard, generation })
    }

    /// Opens a shard when all its servers are there and know that it is closed.
    fn opening(
        &mut self,
        now: Instant,
        shard: Index,
        state: &Shard,
        config: &Config,
        out: &mut Out<'_, Aggregator>,
    ) -> Option<Change> {
        let mut lives = Vec::new();
        for server in config.servers_of(shard) {
            let heard = self.heard.get(&server)?;
            if self.is_silent(now, server, config) || heard.seen < state.since {
                return None;
            }
            lives.push(heard.life);
        }
        if !self.turns(now, shard) {
            return None;
        }
        if state.generation > Generation::ZERO {
            out.reached(branch::OPENS_AGAIN);
        }
        Some(Change::Open {
            shard,
            after: state.generation,
            lives,
        })
    }

    fn is_silent(&self, now: Instant, server: ServerId, config: &Config) -> bool {
        let heard = self.heard.get(&server).map_or(self.since, |heard| heard.at);
        now.since(heard) > config.server_timeout()
    }

    /// Whether it is time to open or to close this shard, for the first time or again.
    fn turns(&mut self, now: Instant, shard: Index) -> bool {
        let proposed = self.proposed.entry(shard).or_default();
        let is_due = proposed
            .turned_at
            .is_none_or(|at| now >= at + ASK_AGAIN_AFTER);
        if is_due {
            proposed.turned_at = Some(now);
        }
        is_due
    }

    /// How many shards are open.
    pub(super) fn open_shards(&self) -> u64 {
        self.cut.shards.iter().filter(|shard| shard.is_open).count() as u64
    }

    /// How often it wanted to close one.
    pub(super) fn closed(&self) -> u64 {
        self.closed
    }
}

fn pointwise(one: &[u64], other: &[u64], choose: fn(u64, u64) -> u64) -> Vec<u64> {
    let pairs = one.iter().zip(other);
    pairs.map(|(one, other)| choose(*one, *other)).collect()
}
