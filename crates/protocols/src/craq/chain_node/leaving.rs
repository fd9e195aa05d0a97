//! What a member must wait for before it has another one removed, where there are leases.
//!
//! The master announces first that the other is leaving. A member that takes it for dead, and
//! learns of the announcement, waits until each lease that was given before it is over
//! (`lease.rs`), and then has it removed. Any such member may: each waits for itself. If the other
//! is heard again, the member that had it announced withdraws the announcement; if that member is
//! removed, the master does.
//!
//! The time that a role receives may be older than the message that it comes with. So the wait
//! begins with the first later time: the clock was read for that after the announcement had come.

use super::ChainNode;
use crate::craq::branch;
use crate::craq::master::outcome;
use crate::craq::message::{Announcement, Leaving, Step};
use crate::craq::settings::lease;
use alloc::collections::BTreeMap;
use core::time::Duration;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

/// By this part of its length, the inverse, a lease is waited for longer: the clocks of two nodes
/// may differ in their rates.
const DRIFT: u32 = 10;

/// The announcements that the node knows of, at most one for each member.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<Announcement, Wait>);

#[derive(Debug)]
enum Wait {
    /// It has come at this time or later.
    Comes(Instant),
    /// It had come by this time.
    Began(Instant),
    /// The leases are over.
    Over,
}

impl ChainNode {
    /// How long a lease may last by this node's clock that another node has by its own.
    fn longest_lease(&self) -> Duration {
        let length = lease(self.config.options()).unwrap_or_default();
        length + length / DRIFT
    }

    /// Notes the announcements of the chain that the node has learned.
    pub(super) fn note_leaving(&mut self, now: Instant) {
        let all = &self.chain.leaving;
        let is_known = |it: &Announcement| all.iter().any(|leaving| leaving.announced == *it);
        self.waits.0.retain(|announced, _| is_known(announced));
        for leaving in all {
            let wait = self.waits.0.entry(leaving.announced);
            wait.or_insert(Wait::Comes(now));
        }
    }

    /// When an announcement is to be acted on.
    pub(super) fn leaving_timer(&self) -> Option<Instant> {
        let length = self.longest_lease();
        let at = |wait: &Wait| match wait {
            Wait::Comes(at) => Some(*at + Duration::from_micros(1)),
            Wait::Began(at) => Some(*at + length),
            // What is over and not done is tried again with a heartbeat.
            Wait::Over => None,
        };
        self.waits.0.values().filter_map(at).min()
    }

    /// Time passes: removes members whose leases are over.
    pub(super) fn wait_for_leases(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let length = self.longest_lease();
        for wait in self.waits.0.values_mut() {
            match wait {
                Wait::Comes(at) if *at < now => *wait = Wait::Began(now),
                Wait::Began(at) if now.since(*at) >= length => *wait = Wait::Over,
                _ => {}
            }
        }
        let is_over = |leaving: &&Leaving| {
            let wait = self.waits.0.get(&leaving.announced);
            matches!(wait, Some(Wait::Over))
        };
        let over = self.chain.leaving.iter().filter(is_over);
        let least = self.config.least();
        let is_dead = |leaving: &&Leaving| {
            let place = self.chain.place_of(leaving.node);
            let fits = place.and_then(|place| outcome(&self.chain, place, least));
            fits.is_some() && self.suspects(now).any(|node| node == leaving.node)
        };
        if let Some(leaving) = over.copied().find(|leaving| is_dead(&leaving)) {
            out.reached(branch::LEASE_OVER);
            let (from, life, announced) = (self.id, self.life, leaving.announced);
            let step = Step::Remove {
                from,
                life,
                announced,
            };
            self.link.step(now, step, out);
        }
    }

    /// The announcement that this node has made and that is to be withdrawn, if any.
    pub(super) fn recovered(&self, now: Instant) -> Option<Announcement> {
        let is_heard = |leaving: &&Leaving| {
            leaving.by == self.id && !self.suspects(now).any(|node| node == leaving.node)
        };
        let heard = self.chain.leaving.iter().find(is_heard);
        heard.map(|leaving| leaving.announced)
    }
}
