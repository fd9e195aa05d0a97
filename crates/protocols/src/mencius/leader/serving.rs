//! Which stripes a leader serves, and which of them is its own: a change of members can change
//! both.

use super::gaps::Gaps;
use super::long_skips::LongSkips;
use super::reservation::Reservation;
use super::{Leader, Port, Served};
use crate::mencius::config::Config;
use crate::mencius::stripe::Stripe;
use crate::parts::leader::LeaderCore;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

impl Leader {
    /// Which stripes it serves may have changed, and which of them is its own.
    pub(super) fn serve_anew(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let mut before = core::mem::take(&mut self.served);
        let mut new = Vec::new();
        for stripe in self.config.served_by(self.id) {
            let known = before.iter().position(|served| served.stripe == stripe);
            self.served.push(match known {
                Some(place) => before.swap_remove(place),
                None => {
                    new.push(stripe);
                    let (who, seed) = ((self.id, self.node), self.random.any());
                    // The rounds that an earlier leader of this number has used in the stripe are
                    // of earlier epochs.
                    Served::new(&self.config, stripe, who, false, seed)
                }
            });
        }
        for mut left in before {
            left.core.turn_queue_away(&mut Port {
                id: self.id,
                config: &self.config,
                stripe: left.stripe,
                others: (&self.served, &[]),
                suggested: None,
                frontier: self.frontier,
                keep: Slot::ZERO,
                out,
            });
        }
        for place in 0..self.served.len() {
            if new.contains(&self.served[place].stripe) {
                self.served[place].core.start(now);
            }
        }
        self.move_home(now);
    }

    /// Another stripe may be its own now, or none.
    fn move_home(&mut self, now: Instant) {
        let home = self.config.home_of(self.id);
        if core::mem::replace(&mut self.home, home) == home {
            return;
        }
        let leads = self.own().map(|own| own.round.is_some());
        self.returning.begin(now, leads);
        if let Some(stripe) = home.filter(|_| leads == Some(true)) {
            self.leads_its_own(stripe);
        }
    }
}

impl Served {
    /// Begins to serve a stripe.
    pub(super) fn new(
        config: &Config,
        stripe: Stripe,
        who: (LeaderId, NodeId),
        is_new: bool,
        seed: u64,
    ) -> Self {
        Served {
            stripe,
            core: LeaderCore::new(config.of(stripe).clone(), who, is_new, seed),
            reservation: Reservation::default(),
            round: None,
            vacant: None,
            gaps: Gaps::default(),
            long_skips: LongSkips::default(),
        }
    }
}
