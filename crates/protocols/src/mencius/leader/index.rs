//! How far the log is used: what leaders tell each other, and pass on (compartmentalization 6.2).

use super::{In, Leader, MAX_JUMP, Served};
use crate::mencius::{Envelope, branch};
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

impl Leader {
    /// Tells the other leaders how far this one is.
    pub(super) fn tell_index(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.told = self.suggested;
        self.tell_at = now + self.config.options().heartbeat;
        let others = self.config.leaders().without(Set::one(self.id));
        // Unfenced: if a crash undoes the suggestion, the others have skipped more than needed,
        // which is safe.
        out.send_unfenced(Envelope::ToLeaders(
            others,
            In::Index {
                from: self.id,
                slot: self.suggested,
            },
        ));
    }

    pub(super) fn on_index(
        &mut self,
        now: Instant,
        from: LeaderId,
        slot: Slot,
        out: &mut Out<'_, Self>,
    ) {
        self.links.heard(from, now);
        let those = self.links.those_that_miss(from, now);
        // Notify the replicas beside every leader that suggests, not only the furthest: each
        // suggestion implies a skip (Mencius 4.4, Optimization 1).
        let mut waiting = self.config.replicas_of(from);
        if !those.is_empty() {
            out.reached(branch::PASSES_ON);
            // Unfenced: as when it was said.
            out.send_unfenced(Envelope::ToLeaders(those, In::PassedOn { from, slot }));
            // Those that are to pass on what is executed.
            waiting = self.config.replicas();
        }
        self.reach(slot, waiting);
    }

    /// The log is used up to `slot`, and these replicas wait for what is skipped below.
    pub(super) fn reach(&mut self, slot: Slot, waiting: Set<ReplicaId>) {
        let is_near = |known| slot.distance(known) <= MAX_JUMP;
        // A leader that has restarted learns from replicas first how far the log is.
        if is_near(self.frontier) || is_near(self.executed()) {
            self.frontier = self.frontier.max(slot);
            self.prompt = self.prompt.or(waiting);
        }
    }

    /// Some replica has executed every slot of the log below this one, as far as the leader knows.
    fn executed(&self) -> Slot {
        let of_log = |served: &Served| self.config.stripes.end(served.stripe, served.executed());
        self.served.iter().map(of_log).max().unwrap_or_default()
    }

    /// Has the others pass on what they hear of those that this one does not hear.
    pub(super) fn ask_for_missing(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let others = self.config.leaders().without(Set::one(self.id));
        let leaders = self
            .links
            .missing(now, others, self.config.options().election_timeout);
        let rest = others.without(leaders);
        if !leaders.is_empty() && !rest.is_empty() {
            out.reached(branch::MISSES_LEADER);
            // Unfenced: it reveals nothing.
            out.send_unfenced(Envelope::ToLeaders(
                rest,
                In::Misses {
                    from: self.id,
                    leaders,
                },
            ));
        }
    }
}
