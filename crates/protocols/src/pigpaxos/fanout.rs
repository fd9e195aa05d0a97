//! How a proxy leader asks acceptors through relays: it divides them into groups, chooses a relay
//! for each, and passes over relays that do not answer (PigPaxos 3.1 and 4.2, the gray list).

use super::branch;
use super::groups::Order;
use super::message::RelayId;
use super::relaying::Relaying;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::random::Random;
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::suspicion::Suspicion;

/// Acceptors are asked without relays in this attempt, counted from 0, and in every second one
/// after it: whatever is wrong with relays, their votes come. In those between through relays: some
/// acceptors may be reached only so.
const DIRECT_FROM: u32 = 2;

/// One message of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leg {
    /// To these acceptors.
    Direct(AcceptorSet),
    /// To a relay, which is to ask `members` and may answer without the votes of `slack` of them.
    Relayed {
        relay: RelayId,
        members: AcceptorSet,
        slack: u8,
    },
}

/// What a proxy leader knows of the relays.
pub(crate) struct Fanout {
    random: Random,
    /// The gray list.
    suspicion: Suspicion<RelayId>,
    /// The relays that have a request, and when they got the first since they last answered.
    asked: BTreeMap<RelayId, Instant>,
    /// When `asked` is looked at next.
    look_at: Instant,
}

impl Fanout {
    pub(crate) fn new(seed: u64) -> Self {
        Fanout {
            random: Random::new(seed),
            suspicion: Suspicion::default(),
            asked: BTreeMap::new(),
            look_at: Instant::ZERO,
        }
    }

    /// A relay has answered, and these acceptors of its group have not: the relays on their nodes
    /// need not be tried.
    pub(crate) fn heard(
        &mut self,
        now: Instant,
        from: RelayId,
        missing: AcceptorSet,
        relaying: &Relaying,
    ) {
        self.asked.remove(&from);
        self.suspicion.heard(from);
        if !missing.is_empty() {
            let silent = relaying.relays_of(missing).without(Set::one(from));
            self.suspicion.silent(silent, now);
        }
    }

    /// A relay was given a request.
    pub(crate) fn asked(&mut self, relay: RelayId, now: Instant) {
        self.asked.entry(relay).or_insert(now);
    }

    /// Answers to what was asked before do not come any more: the round is over.
    pub(crate) fn clear(&mut self) {
        self.asked.clear();
    }

    /// Suspects the relays that have not answered for the time `patience`.
    fn look(&mut self, now: Instant, patience: Duration, reached: &mut impl FnMut(&'static str)) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + patience / 4;
        let suspicion = &mut self.suspicion;
        self.asked.retain(|relay, asked_at| {
            let is_late = now.since(*asked_at) > patience;
            if is_late {
                reached(branch::RELAY_SUSPECTED);
                suspicion.silent(Set::one(*relay), now);
            }
            !is_late
        });
    }

    /// Divides a request to the acceptors `to` into messages; those in `near` are on this node.
    /// `attempt` is how often it was asked before.
    ///
    /// A group in which no relay answers is asked by the relay of another group, which soon does
    /// not wait for it. So a group that is down costs its requester nothing, and one whose relays
    /// are suspected without reason is asked all the same (5.7).
    pub(crate) fn split(
        &mut self,
        now: Instant,
        (to, near): (AcceptorSet, AcceptorSet),
        attempt: u32,
        relaying: &Relaying,
        reached: &mut impl FnMut(&'static str),
        legs: &mut Vec<Leg>,
    ) {
        self.look(now, relaying.patience, reached);
        if attempt >= DIRECT_FROM && (attempt - DIRECT_FROM).is_multiple_of(2) {
            reached(branch::ASKS_DIRECTLY);
            return legs.push(Leg::Direct(to));
        }
        let mut direct = to.and(near);
        let far = to.without(near);
        let probes = self.probes(now, far, relaying, reached);
        let mut probed = AcceptorSet::EMPTY;
        for relay in probes.iter() {
            let (members, slack) = (relaying.beside(relay).and(far), 0);
            probed = probed.or(members);
            legs.push(Leg::Relayed {
                relay,
                members,
                slack,
            });
        }
        let left = far.without(probed);
        let suspects = self.suspicion.suspects();
        let settings = &relaying.settings;
        let order = match settings.shuffle {
            true => Order::shuffled(
                left,
                self.acceptors_of(suspects, relaying),
                &mut self.random,
            ),
            // Of all acceptors, also those that this request is not for: a group has the same
            // acceptors, such as those of a region, whichever node the proxy leader is on.
            false => Order::by_number(relaying.acceptors()),
        };
        let first = legs.len();
        let mut stranded = AcceptorSet::EMPTY;
        for group in 0..settings.groups {
            let members = order
                .slice(group, settings.groups, settings.overlap)
                .and(left);
            let candidates = relaying.relays_of(members).without(suspects);
            let turn = match settings.rotate {
                true => self.random.any() >> 1,
                false => 0,
            };
            match candidates.pick(turn) {
                None => stranded = stranded.or(members),
                Some(relay) if members.len() > 1 => {
                    // Not those that a suspected relay is tried with: they may be down.
                    let others = left.or(direct).without(members).len();
                    let slack = relaying.slack(members, settings.groups, others) as u8;
                    legs.push(Leg::Relayed {
                        relay,
                        members,
                        slack,
                    });
                }
                // One alone: a relay would be a detour.
                Some(_) => direct = direct.or(members),
            }
        }
        let groups = &mut legs[first..];
        if !probed.is_empty() || !stranded.is_empty() {
            relaying.wait_for_all_if_needed(direct.len(), groups);
        }
        if !stranded.is_empty() {
            reached(branch::GROUP_STRANDED);
            let group = self.random.below(groups.len().max(1) as u64) as usize;
            match groups.get_mut(group) {
                Some(Leg::Relayed { members, .. }) => *members = members.or(stranded),
                _ => direct = direct.or(stranded),
            }
        }
        if !direct.is_empty() {
            legs.push(Leg::Direct(direct));
        }
    }

    /// Suspected relays that are tried now: each is to ask the acceptors of its own node alone, so
    /// that nothing waits for it.
    fn probes(
        &mut self,
        now: Instant,
        far: AcceptorSet,
        relaying: &Relaying,
        reached: &mut impl FnMut(&'static str),
    ) -> Set<RelayId> {
        let due = self.suspicion.probe(now);
        // As most often.
        if due.is_empty() {
            return due;
        }
        reached(branch::RELAY_PROBED);
        let due = due.and(relaying.relays());
        due.iter()
            .filter(|relay| relaying.beside(*relay).meets(far))
            .collect()
    }

    fn acceptors_of(&self, relays: Set<RelayId>, relaying: &Relaying) -> AcceptorSet {
        relays.iter().fold(AcceptorSet::EMPTY, |all, relay| {
            all.or(relaying.beside(relay))
        })
    }

    /// How many relays are on the gray list.
    pub(crate) fn suspects(&self) -> usize {
        self.suspicion.suspects().len()
    }
}
