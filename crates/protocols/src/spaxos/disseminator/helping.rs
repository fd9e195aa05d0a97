//! Proposing on behalf of others (as published: acknowledgements go to all servers, and the leader
//! knows by its own what is stable). A disseminator beside the leader hears from the stabilizers as
//! soon as the payload's own does, and its proposal takes no hop. Where no disseminator shares a
//! node with a leader, none helps.

use super::super::config::Config;
use super::super::message::Ticket;
use crate::spaxos::id::{DisseminatorId, PayloadNumber, StabilizerId};
use alloc::collections::BTreeMap;
use ionian_kernel::id::*;
use ionian_kernel::small_map::SmallMap;

/// What a disseminator knows of the payloads of others.
pub(super) struct Helping {
    config: Config,
    me: DisseminatorId,
    /// The leaders on this node.
    leaders: Set<LeaderId>,
    others: SmallMap<DisseminatorId, Other>,
    helped: u64,
}

/// The payloads of one process of another disseminator, in one round.
#[derive(Default)]
struct Other {
    round: Round,
    life: u64,
    /// By number: who has stored it, and whether it was proposed. As many as that one has in
    /// flight.
    stored: BTreeMap<PayloadNumber, (Set<StabilizerId>, bool)>,
}

impl Helping {
    pub(super) fn new(config: Config, me: DisseminatorId) -> Self {
        Helping {
            leaders: leaders_beside(&config, me),
            config,
            me,
            others: SmallMap::new(),
            helped: 0,
        }
    }

    /// The membership has changed.
    pub(super) fn reconfigure(&mut self, config: Config) {
        self.leaders = leaders_beside(&config, self.me);
        let stay = config.disseminators;
        self.others.retain(|other, _| stay.contains(*other));
        self.config = config;
    }

    /// Whether another disseminator lives beside the leader of `round`, and this one does not.
    pub(super) fn is_helped(&self, round: Round) -> bool {
        let leader = round.leader();
        let helper = self
            .config
            .helpers()
            .any(|(helper, leaders)| helper != self.me && leaders.contains(leader));
        helper && !self.leaders.contains(leader)
    }

    /// A stabilizer holds another's payload. When that makes it stable, and its leader lives here:
    /// who holds it, and the replicas beside its disseminator, for a proposal.
    pub(super) fn on_stored(
        &mut self,
        from: StabilizerId,
        ticket: &Ticket,
    ) -> Option<(Set<StabilizerId>, Set<ReplicaId>)> {
        if !self.leaders.contains(ticket.round.leader()) {
            return None;
        }
        let other = self.others.entry(ticket.id.disseminator).or_default();
        if ticket.round < other.round {
            return None;
        }
        if (ticket.round, ticket.id.life) != (other.round, other.life) {
            *other = Other {
                round: ticket.round,
                life: ticket.id.life,
                stored: BTreeMap::new(),
            };
        }
        while let Some(first) = other
            .stored
            .first_entry()
            .filter(|first| *first.key() < ticket.floor)
        {
            first.remove();
        }
        let (stored, proposed) = other.stored.entry(ticket.id.number).or_default();
        stored.insert(from);
        if *proposed || !self.config.is_stable(ticket.round, *stored) {
            return None;
        }
        *proposed = true;
        self.helped += 1;
        Some((*stored, self.config.replicas_near(ticket.id.disseminator)))
    }

    /// These stabilizers have lost their memory since: what is not stable yet does not count on
    /// them.
    pub(super) fn renew(&mut self, renewed: Set<StabilizerId>) {
        for (stored, proposed) in self
            .others
            .values_mut()
            .flat_map(|other| other.stored.values_mut())
        {
            if !*proposed {
                *stored = stored.without(renewed);
            }
        }
    }

    /// How many payloads it has proposed for others.
    pub(super) fn helped(&self) -> u64 {
        self.helped
    }
}

/// The leaders on the node of a disseminator.
fn leaders_beside(config: &Config, me: DisseminatorId) -> Set<LeaderId> {
    let mut helpers = config.helpers();
    let own = helpers.find(|(helper, _)| *helper == me);
    own.map_or(Set::EMPTY, |(_, leaders)| leaders)
}
