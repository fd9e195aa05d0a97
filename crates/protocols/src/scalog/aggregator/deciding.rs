//! What follows from the reports of servers: how far shards have grown, and which are to be closed
//! or opened.

use super::Aggregator;
use crate::scalog::branch;
use crate::scalog::config::Config;
use crate::scalog::cut::{Change, Cut, Shard};
use crate::scalog::id::{Generation, ServerId};
use alloc::vec::Vec;
use ionian_kernel::id::{Index, Slot};
use ionian_kernel::role::Out;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;

/// An opening or a closing that has had no effect is proposed again after this time, then after
/// twice that time, and so on.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// A shard that was opened again is opened once more after this time at the earliest, and after
/// twice that time, and so on: one that is closed as soon as it is open must not keep the others
/// busy.
const OPEN_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// How often these times are doubled.
const MOST_DOUBLED: u32 = 4;

/// A shard that was opened again after more than this time is no such shard.
const STEADY_AFTER: Duration = Duration::from_secs(10);

/// See the top of this file.
#[derive(Default)]
pub(super) struct Deciding {
    /// The last report of each server.
    heard: SmallMap<ServerId, Heard>,
    /// Since when it listens.
    since: Instant,
    cut: Cut,
    /// What was proposed of each shard beyond the cut.
    proposed: SmallMap<Index, Proposed>,
    /// What the cuts have shown of each shard.
    seen: SmallMap<Index, Seen>,
    /// Shards whose records come too late to the replica that is furthest.
    late: Vec<Index>,
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
    is_open: bool,
    lengths: Vec<u64>,
    /// To open or to close the shard.
    turned: Tries,
    /// Later lives of its servers.
    listed: Tries,
}

/// When the same was proposed last, and how often.
#[derive(Default)]
struct Tries(Option<(Instant, u32)>);

impl Tries {
    /// Whether it is time to propose it, for the first time or again.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|(at, times)| {
            now >= at + doubled(ASK_AGAIN_AFTER, times.saturating_sub(1), MOST_DOUBLED)
        });
        if is_due {
            let times = self.0.map_or(0, |(_, times)| times);
            self.0 = Some((now, times.saturating_add(1)));
        }
        is_due
    }
}

/// What the cuts have shown of a shard.
#[derive(Default)]
struct Seen {
    /// When it was opened last, and how often in a row that was soon after the time before.
    opened_at: Instant,
    openings: u32,
    /// When it was opened or has grown: all its servers worked then.
    worked_at: Instant,
    /// Since when its servers report what cannot be ordered.
    stands_since: Option<Instant>,
}

/// Why a shard is to be closed.
#[derive(Clone, Copy)]
enum Failing {
    Forgetful,
    Silent,
    StandsStill,
    Late,
    Surplus,
}

impl Deciding {
    pub(super) fn start(&mut self, now: Instant) {
        self.since = now;
    }

    /// A server has reported; whether something follows from that perhaps.
    pub(super) fn heard(&mut self, from: ServerId, heard: Heard, config: &Config) -> bool {
        let now = heard.at;
        if (config.servers.iter()).all(|server| self.is_silent(now, server, config)) {
            // It was this aggregator that heard nothing: the others may be heard again as well.
            self.since = now;
        }
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
    pub(super) fn follow(&mut self, now: Instant, cut: Cut) -> bool {
        let mut turned = false;
        for (shard, after) in (0..).zip(&cut.shards) {
            let before = self.cut.shard(shard);
            let seen = self.seen.entry(shard).or_default();
            if before.generation != after.generation {
                let is_soon = now.since(seen.opened_at) < STEADY_AFTER;
                let is_again = before.generation > Generation::ZERO && is_soon;
                seen.openings = if is_again { seen.openings + 1 } else { 0 };
                (seen.opened_at, seen.worked_at) = (now, now);
            } else if before.lengths != after.lengths {
                seen.worked_at = now;
            }
            turned |= (before.generation, before.is_open) != (after.generation, after.is_open);
        }
        self.cut = cut;
        turned
    }

    /// The records of these shards come late to the furthest replica; whether something follows
    /// from that perhaps.
    pub(super) fn are_late(&mut self, now: Instant, shards: Vec<Index>, config: &Config) -> bool {
        // The first replica that it hears may be one that is behind.
        let has_listened = now.since(self.since) > config.server_timeout();
        let shards = if has_listened { shards } else { Vec::new() };
        let is_news = self.late != shards;
        self.late = shards;
        is_news
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
        let mut working = Vec::new();
        for shard in config.shards() {
            let state = self.cut.shard(shard);
            let proposed = self.proposed.entry(shard).or_default();
            if (proposed.generation, proposed.is_open) != (state.generation, state.is_open) {
                *proposed = Proposed {
                    generation: state.generation,
                    is_open: state.is_open,
                    ..Proposed::default()
                };
            }
            if !state.is_open {
                continue;
            }
            if !self.late.contains(&shard) {
                changes.extend(self.grown(shard, &state, config));
            }
            match self.failing(now, shard, &state, config) {
                Some(why) => changes.extend(self.closing(now, shard, &state, why, out)),
                None => working.push((shard, state)),
            }
        }
        while working.len() > config.open_shards()
            && let Some((shard, state)) = working.pop()
        {
            changes.extend(self.closing(now, shard, &state, Failing::Surplus, out));
        }
        self.open_more(now, working.len(), config, out, &mut changes);
        changes
    }

    /// Opens shards until as many work as are to be open. What the log says of the lives of servers
    /// that are spare follows them.
    fn open_more(
        &mut self,
        now: Instant,
        mut open: usize,
        config: &Config,
        out: &mut Out<'_, Aggregator>,
        changes: &mut Vec<Change>,
    ) {
        for shard in config.shards() {
            let state = self.cut.shard(shard);
            if state.is_open {
                continue;
            }
            if open >= config.open_shards() {
                changes.extend(self.later_lives(now, shard, &state, config));
                continue;
            }
            let Some(lives) = self.lives_of(now, shard, &state, config) else {
                continue;
            };
            open += 1;
            if !self.proposed.entry(shard).or_default().turned.is_due(now) {
                continue;
            }
            let after = state.generation;
            if after > Generation::ZERO {
                out.reached(branch::OPENS_AGAIN);
            } else if self
                .cut
                .shards
                .iter()
                .any(|shard| !shard.is_open && shard.generation > after)
            {
                out.reached(branch::OPENS_SPARE);
            }
            changes.push(Change::Open {
                shard,
                after,
                lives,
            });
        }
    }

    /// What all servers of a shard hold of each log in this generation, put together. A server
    /// that has not reported in it may hold nothing.
    fn held(
        &self,
        shard: Index,
        state: &Shard,
        config: &Config,
        choose: fn(u64, u64) -> u64,
    ) -> Option<Vec<u64>> {
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
                Some(lengths) => pointwise(&lengths, &heard.lengths, choose),
            });
        }
        lengths
    }

    /// How far a shard has grown: the minimum of what *all* its servers hold of each log.
    fn grown(&mut self, shard: Index, state: &Shard, config: &Config) -> Option<Change> {
        let generation = state.generation;
        let lengths = self.held(shard, state, config, u64::min)?;
        let lengths = pointwise(&lengths, &state.lengths, u64::max);
        let proposed = self.proposed.get_mut(&shard)?;
        if !is_more(&lengths, &state.lengths) || !is_more(&lengths, &proposed.lengths) {
            return None;
        }
        proposed.lengths.clone_from(&lengths);
        Some(Change::Grow {
            shard,
            generation,
            lengths,
        })
    }

    /// Whether a server has reported for too long what its peers do not get, or one does not learn
    /// that the shard is open: it can send, and receives nothing. What all hold waits for the
    /// ordering alone.
    fn stands_still(&mut self, now: Instant, shard: Index, state: &Shard, config: &Config) -> bool {
        let is_heard = |server| !self.is_silent(now, server, config);
        let [least, most] =
            [u64::min, u64::max].map(|choose| self.held(shard, state, config, choose));
        let waits = |held: &Vec<u64>| is_more(held, &state.lengths);
        let moves = least.is_some_and(|least| waits(&least)) || most.is_some_and(|it| !waits(&it));
        let stands = !moves && config.servers_of(shard).all(is_heard);
        let seen = self.seen.entry(shard).or_default();
        if !stands {
            seen.stands_since = None;
            return false;
        }
        let since = *seen.stands_since.get_or_insert(now);
        now.since(since.max(seen.worked_at)) > config.server_timeout() * 2
    }

    /// Whether a shard is to be closed: a server of it is gone, or has forgotten what it holds, or
    /// its records do not come to its servers or to replicas.
    fn failing(
        &mut self,
        now: Instant,
        shard: Index,
        state: &Shard,
        config: &Config,
    ) -> Option<Failing> {
        let forgets = |(place, server)| {
            let heard: Option<&Heard> = self.heard.get(&server);
            heard.is_some_and(|heard| {
                heard.seen.0 >= state.generation.0 && state.lives.get(place) != Some(&heard.life)
            })
        };
        if config.servers_of(shard).enumerate().any(forgets) {
            return Some(Failing::Forgetful);
        }
        if self.late.contains(&shard) {
            return Some(Failing::Late);
        }
        if self.stands_still(now, shard, state, config) {
            return Some(Failing::StandsStill);
        }
        // Not when all are silent: then it is this aggregator that hears nothing. And not one that
        // has grown lately: other aggregators hear its servers.
        let is_heard = |server| !self.is_silent(now, server, config);
        let worked = self.seen.get(&shard).map(|seen| seen.worked_at);
        let works = worked.is_some_and(|at| now.since(at) <= config.server_timeout());
        let is_silent = !works && !config.servers_of(shard).all(is_heard);
        let is_silent = is_silent && config.servers.iter().any(is_heard);
        is_silent.then_some(Failing::Silent)
    }

    fn closing(
        &mut self,
        now: Instant,
        shard: Index,
        state: &Shard,
        why: Failing,
        out: &mut Out<'_, Aggregator>,
    ) -> Option<Change> {
        if !self.proposed.entry(shard).or_default().turned.is_due(now) {
            return None;
        }
        self.closed += 1;
        out.reached(match why {
            Failing::Forgetful => branch::CLOSES_FORGETFUL,
            Failing::Silent => branch::CLOSES_SILENT,
            Failing::StandsStill => branch::CLOSES_STANDING,
            Failing::Late => branch::CLOSES_LATE,
            Failing::Surplus => branch::CLOSES_SURPLUS,
        });
        let generation = state.generation;
        Some(Change::Close { shard, generation })
    }

    /// The lives of the servers of a closed shard, if it can be opened: when all of them are there
    /// and know that it is closed.
    fn lives_of(
        &self,
        now: Instant,
        shard: Index,
        state: &Shard,
        config: &Config,
    ) -> Option<Vec<u64>> {
        let seen = self.seen.get(&shard);
        let waits = seen.is_some_and(|seen| {
            let after = doubled(OPEN_AGAIN_AFTER, seen.openings, MOST_DOUBLED);
            seen.openings > 0 && now < seen.opened_at + after
        });
        if waits {
            return None;
        }
        let life_of = |server| {
            let heard = self.heard.get(&server)?;
            let is_there = !self.is_silent(now, server, config) && heard.seen >= state.since;
            is_there.then_some(heard.life)
        };
        config.servers_of(shard).map(life_of).collect()
    }

    /// The lives of the servers of a spare shard, if the log lists others. The shard is not opened,
    /// and without that a server that has lost its memory would never know that no generation needs
    /// what it held.
    fn later_lives(
        &mut self,
        now: Instant,
        shard: Index,
        state: &Shard,
        config: &Config,
    ) -> Option<Change> {
        let servers = config.servers_of(shard).enumerate();
        // One that is silent may have begun another, which other aggregators know.
        let life_of = |(place, server)| {
            let heard = self.heard.get(&server);
            match heard.filter(|_| !self.is_silent(now, server, config)) {
                Some(heard) => heard.life,
                None => state.lives.get(place).copied().unwrap_or_default(),
            }
        };
        let lives: Vec<u64> = servers.map(life_of).collect();
        let is_news = lives != state.lives;
        if !is_news || !self.proposed.entry(shard).or_default().listed.is_due(now) {
            return None;
        }
        let after = state.generation;
        Some(Change::Lives {
            shard,
            after,
            lives,
        })
    }

    fn is_silent(&self, now: Instant, server: ServerId, config: &Config) -> bool {
        let heard = self.heard.get(&server).map_or(self.since, |heard| heard.at);
        now.since(heard.max(self.since)) > config.server_timeout()
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

/// Whether one of these lengths is larger than the one that is known.
fn is_more(lengths: &[u64], known: &[u64]) -> bool {
    let mut pairs = lengths.iter().enumerate();
    pairs.any(|(place, length)| known.get(place).is_none_or(|known| known < length))
}

fn pointwise(one: &[u64], other: &[u64], choose: fn(u64, u64) -> u64) -> Vec<u64> {
    let pairs = one.iter().zip(other);
    pairs.map(|(one, other)| choose(*one, *other)).collect()
}
