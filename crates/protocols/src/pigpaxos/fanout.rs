//! How a proxy leader asks acceptors through relays: it divides them into groups, chooses a relay
//! for each, and passes over relays that do not answer (PigPaxos 3.1 and 4.2, the gray list).

use super::branch;
use super::groups::Order;
use super::message::RelayId;
use super::relaying::Relaying;
use crate::parts::proxy_leader::Ask;
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
    /// Those on it only because an acceptor of their node was late with an answer to another relay.
    /// When it is in time again they are taken off the list.
    late: Set<RelayId>,
    asked: Asked,
    /// When `asked` is looked at next.
    look_at: Instant,
    /// Those of the last request, and what they were made for.
    groups: Vec<Group>,
    made_for: Option<Division>,
}

/// The relays that have a request, and when they got the first since they last answered.
struct Asked {
    relays: Set<RelayId>,
    /// By the number of the relay.
    since: [Instant; MAX_INSTANCES],
}

/// Acceptors that are asked together.
struct Group {
    members: AcceptorSet,
    /// The relays that can ask them.
    relays: Set<RelayId>,
    slack: u8,
}

/// What groups are made for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Division {
    /// All acceptors that are asked, and those of them that are divided into groups.
    to: AcceptorSet,
    left: AcceptorSet,
    suspects: Set<RelayId>,
    /// When, if they are drawn. What comes in together is asked together.
    drawn_at: Option<Instant>,
}

impl Fanout {
    pub(crate) fn new(seed: u64) -> Self {
        Fanout {
            random: Random::new(seed),
            suspicion: Suspicion::default(),
            late: Set::EMPTY,
            asked: Asked {
                relays: Set::EMPTY,
                since: [Instant::ZERO; MAX_INSTANCES],
            },
            look_at: Instant::ZERO,
            groups: Vec::new(),
            made_for: None,
        }
    }

    /// A relay has answered: these acceptors of its group have answered, and these have not. The
    /// relays on the nodes of the latter need not be tried.
    pub(crate) fn heard(
        &mut self,
        now: Instant,
        from: RelayId,
        (answered, missing): (AcceptorSet, AcceptorSet),
        relaying: &Relaying,
    ) {
        self.asked.relays.remove(from);
        self.suspicion.heard(from);
        self.late.remove(from);
        // An answer of one alone may be late again.
        if !self.late.is_empty() && answered.len() > 1 {
            let in_time = relaying.relays_of(answered).and(self.late);
            self.suspicion.all_heard(in_time);
            self.late = self.late.without(in_time);
        }
        if !missing.is_empty() {
            let silent = relaying.relays_of(missing).without(Set::one(from));
            let known = self.suspicion.suspects();
            self.late = self.late.or(silent.without(known));
            self.suspicion.silent(silent, now);
        }
    }

    /// A relay was given a request.
    pub(crate) fn asked(&mut self, relay: RelayId, now: Instant) {
        if self.asked.relays.insert(relay) {
            self.asked.since[usize::from(relay.index())] = now;
        }
    }

    /// Answers to what was asked before do not come any more: the round is over.
    pub(crate) fn clear(&mut self) {
        self.asked.relays = Set::EMPTY;
        self.made_for = None;
    }

    /// Suspects the relays that have not answered for the time `patience`.
    fn look(&mut self, now: Instant, patience: Duration, reached: &mut impl FnMut(&'static str)) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + patience / 4;
        for relay in self.asked.relays.iter() {
            if now.since(self.asked.since[usize::from(relay.index())]) > patience {
                reached(branch::RELAY_SUSPECTED);
                self.suspicion.silent(Set::one(relay), now);
                self.late.remove(relay);
                self.asked.relays.remove(relay);
            }
        }
    }

    /// Divides a request to acceptors into messages; those in `near` are on this node.
    ///
    /// A group in which no relay answers is asked by the relay of another group, which soon does
    /// not wait for it. So a group that is down costs its requester nothing, and one whose relays
    /// are suspected without reason is asked all the same (5.7).
    pub(crate) fn split(
        &mut self,
        now: Instant,
        (ask, near): (Ask, AcceptorSet),
        relaying: &Relaying,
        reached: &mut impl FnMut(&'static str),
        legs: &mut Vec<Leg>,
    ) {
        let Ask {
            to,
            silent,
            attempt,
        } = ask;
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
        // Neither those that a suspected relay is tried with nor those of this node that were
        // silent are counted on: they may be down.
        let silent = silent.and(direct);
        self.divide(now, (to.without(probed).without(silent), left), relaying);
        let first = legs.len();
        let mut stranded = AcceptorSet::EMPTY;
        for group in &self.groups {
            let turn = match relaying.settings.rotate {
                true => self.random.any() >> 1,
                false => 0,
            };
            let members = group.members;
            match group.relays.pick(turn) {
                None => stranded = stranded.or(members),
                Some(relay) if members.len() > 1 => legs.push(Leg::Relayed {
                    relay,
                    members,
                    slack: group.slack,
                }),
                // One alone: a relay would be a detour.
                Some(_) => direct = direct.or(members),
            }
        }
        let groups = &mut legs[first..];
        if !probed.is_empty() || !stranded.is_empty() {
            relaying.wait_for_all_if_needed(direct.without(silent).len(), groups);
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

    /// Divides the acceptors `left`, of those that are asked, into groups, if they are not.
    fn divide(
        &mut self,
        now: Instant,
        (to, left): (AcceptorSet, AcceptorSet),
        relaying: &Relaying,
    ) {
        let suspects = self.suspicion.suspects();
        let settings = &relaying.settings;
        // One group is all, in whatever order.
        let is_drawn = settings.shuffle && settings.groups > 1;
        let division = Division {
            to,
            left,
            suspects,
            drawn_at: is_drawn.then_some(now),
        };
        if self.made_for == Some(division) {
            return;
        }
        self.made_for = Some(division);
        let order = match is_drawn {
            true => Order::shuffled(
                left,
                self.acceptors_of(suspects, relaying),
                &mut self.random,
            ),
            // Of all acceptors, also those that this request is not for: a group has the same
            // acceptors, such as those of a region, whichever node the proxy leader is on.
            false => Order::by_number(relaying.acceptors()),
        };
        self.groups.clear();
        self.groups.extend((0..settings.groups).map(|group| {
            let members = order
                .slice(group, settings.groups, settings.overlap)
                .and(left);
            let others = to.without(members).len();
            Group {
                members,
                relays: relaying.relays_of(members).without(suspects),
                slack: relaying.slack(members, settings.groups, others) as u8,
            }
        }));
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

    /// See [`Suspicion::on_timer`].
    pub(crate) fn on_timer(&mut self, now: Instant) {
        self.suspicion.on_timer(now);
    }

    /// How many relays are on the gray list, as far as requests have come lately.
    pub(crate) fn suspects(&self) -> usize {
        self.suspicion.reported()
    }
}
