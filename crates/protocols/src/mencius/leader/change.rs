//! What a leader does for a change of members (`docs/protocols/mencius.md`, "Membership").
//!
//! Each stripe is handed over from the configuration before, C, to the next one, D, as the log of
//! MultiPaxos is: its leader wins a round of the epoch in which both are in force, the joint epoch.
//! Where that round goes on is the *frontier* of the stripe. Leaders tell each other the frontiers.
//! When a leader knows those of all stripes, it knows the frontier of the log, F: the highest of
//! them. When the replicas of D keep everything below F, it has the change finished by a command in
//! its own stripe.
//!
//! **Claim.** From F on no round of C, or of an earlier epoch, chooses or skips anything, now or
//! later. In each stripe a read quorum of C has promised a joint round. Every write quorum of C
//! meets it, in an acceptor that had voted, or noted a reservation, before it promised, and has
//! told the joint leader so, which went on above; or that refuses both from then on. A leader of C
//! can still win a round where read quorums do not meet (grids), and can do nothing in it. What it
//! had reserved before, and may skip at any time, is below the frontier. That is also why a noop
//! need not be chosen there: the next joint leader of the stripe may find another frontier, and
//! this one stays right.
//!
//! *So nothing is revoked by C and proposed by D at once*: leaders of D begin at F, where rounds of
//! C have no power. *Below F* nothing is left to decide: replicas of D have executed it, votes and
//! skips alike, and no leader of D asks acceptors about it. *From F on* only joint rounds and those
//! of D do anything; each write quorum of the joint epoch, of votes or of reservations, has a write
//! quorum of D in it, which every read quorum of D meets. So a leader of D hears of every vote that
//! counts and of every reservation, and the argument of `reservation.rs` goes on.
//!
//! *Readers.* The command that finishes the change is itself chosen by votes of a joint round: a
//! write quorum of C has promised the joint epoch in that stripe, and acceptors tell readers the
//! highest epoch of all stripes, so readers of C notice. To readers of D acceptors tell F at least,
//! below which writes are that D's acceptors never voted for.

use super::{Leader, Served};
use crate::mencius::config::Config;
use crate::mencius::stripe::{Stripe, StripePosition};
use crate::mencius::{Envelope, branch};
use crate::parts::leader::{FINISH_AGAIN_AFTER, Progress};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

/// A change of members under way: the epoch of both configurations.
pub(super) struct Change {
    epoch: Epoch,
    /// By stripe, in slots of the log: where earlier epochs end, as some joint round found it.
    frontiers: Vec<Option<Slot>>,
    /// How far replicas are in the log, since this leader began to lead its own stripe.
    progress: Progress,
    tell_at: Instant,
    finish_at: Instant,
}

impl Change {
    /// The one that is under way in this configuration: the one that is known, or a new one.
    pub(super) fn under_way(config: &Config, known: Option<Box<Change>>) -> Option<Box<Change>> {
        let any = config.of(Stripe(0));
        if !any.is_joint() {
            return None;
        }
        let new = || {
            Box::new(Change {
                epoch: any.epoch(),
                frontiers: vec![None; config.stripes.count()],
                progress: Progress::new(any),
                tell_at: Instant::ZERO,
                finish_at: Instant::ZERO,
            })
        };
        known
            .filter(|known| known.epoch == any.epoch())
            .or_else(|| Some(new()))
    }

    /// The leader begins to lead its own stripe.
    pub(super) fn begin_round(&mut self) {
        self.progress.begin_round();
    }

    /// A replica says how far it is.
    pub(super) fn report(&mut self, from: ReplicaId, executed: Slot, kept: Slot, current: bool) {
        self.progress.report(from, executed, kept, current);
    }

    /// Takes a frontier in. Returns whether it is the first of its stripe: any will do.
    fn note(&mut self, stripe: Stripe, frontier: Slot) -> bool {
        let known = self.frontiers.get_mut(usize::from(stripe.0));
        let Some(known) = known.filter(|known| known.is_none()) else {
            return false;
        };
        *known = Some(frontier);
        true
    }

    /// That of the log, once those of all stripes are known.
    fn frontier(&self) -> Option<Slot> {
        let all: Option<Vec<Slot>> = self.frontiers.iter().copied().collect();
        all?.into_iter().max()
    }

    /// What replicas are to keep through a crash as soon as they can.
    pub(super) fn keep(&self) -> Slot {
        self.frontier().unwrap_or_default()
    }

    /// Those that are known.
    fn known(&self) -> Vec<(Stripe, Slot)> {
        let all = (0..).map(Stripe).zip(&self.frontiers);
        all.filter_map(|(stripe, frontier)| Some((stripe, (*frontier)?)))
            .collect()
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let knows_any = self.frontiers.iter().any(Option::is_some);
        knows_any.then_some(self.tell_at)
    }
}

impl Leader {
    /// Does what is to be done for the change under way.
    pub(super) fn hand_over(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let Some(change) = &mut self.change else {
            return;
        };
        let mut found = Vec::new();
        for Served { stripe, core, .. } in &self.served {
            if let Some(frontier) = core.frontier() {
                let frontier = StripePosition::of_part(frontier);
                let frontier = self.config.stripes.end(*stripe, frontier);
                if change.note(*stripe, frontier) {
                    found.push(frontier);
                }
            }
        }
        let known = change.known();
        if !known.is_empty() && (!found.is_empty() || change.tell_at <= now) {
            change.tell_at = now + self.config.options().heartbeat;
            let others = self.config.leaders().without(Set::one(self.id));
            let (epoch, frontiers) = (change.epoch, known);
            out.send(Envelope::ToLeaders(
                others,
                super::In::Frontiers { epoch, frontiers },
            ));
        }
        for frontier in found {
            self.reach(frontier, self.config.replicas());
        }
        self.finish_change(now, out);
    }

    /// Another leader knows some frontiers. The log is used up to there by everything that waits
    /// for the change.
    pub(super) fn on_frontiers(
        &mut self,
        epoch: Epoch,
        frontiers: Vec<(Stripe, Slot)>,
        out: &mut Out<'_, Self>,
    ) {
        let change = self.change.as_mut();
        let Some(change) = change.filter(|change| change.epoch == epoch) else {
            return;
        };
        let new = |(stripe, frontier): &(Stripe, Slot)| change.note(*stripe, *frontier);
        let new: Vec<(Stripe, Slot)> = frontiers.into_iter().filter(new).collect();
        for (_, frontier) in new {
            out.reached(branch::HEARS_FRONTIER);
            self.reach(frontier, self.config.replicas());
        }
    }

    /// Finishes the change, if it is time to.
    fn finish_change(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let leads_jointly = self.own().is_some_and(|own| own.core.frontier().is_some());
        let Some(change) = &mut self.change else {
            return;
        };
        let Some(frontier) = change.frontier().filter(|_| leads_jointly) else {
            return;
        };
        if now < change.finish_at || !change.progress.is_handed_over(frontier) {
            return;
        }
        let mut proposed = false;
        self.call(now, 0, out, |core, port| {
            proposed = core.propose_finish(now, frontier, port);
        });
        if let Some(change) = self.change.as_mut().filter(|_| proposed) {
            change.finish_at = now + FINISH_AGAIN_AFTER;
            out.reached(branch::FINISHES_CHANGE);
        }
    }
}
