//! What a member must wait for before it has another one removed, where there are leases.
//!
//! The master announces first that the other is leaving. A member that takes it for dead, and
//! learns of the announcement, waits until each lease that was given before it is over
//! (`lease.rs`). Then it looks at the chain, and at the other once more: if that is silent still,
//! it has it removed. Any such member may: each waits for itself. The look begins after the wait,
//! so a member that was stopped meanwhile hears first what had come for it.
//!
//! If the other is heard again without a gap for as long as a member may be silent, the member that
//! had it announced withdraws the announcement; if that member is removed, the master does. One
//! heartbeat is not enough: a member that stalls again and again would never be removed.
//!
//! The time that a role receives may be older than the message that it comes with. So the wait
//! begins with the first later time: the clock was read for that after the announcement had come.

use super::ChainNode;
use super::link::Ask;
use crate::craq::message::{Announcement, Leaving};
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
    /// They were over when the node began to look at the chain.
    Looks,
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
            Wait::Over | Wait::Looks => None,
        };
        self.waits.0.values().filter_map(at).min()
    }

    /// Time passes: looks at the chain when leases are over.
    pub(super) fn wait_for_leases(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let mut ends = false;
        let length = self.longest_lease();
        for wait in self.waits.0.values_mut() {
            match wait {
                Wait::Comes(at) if *at < now => *wait = Wait::Began(now),
                Wait::Began(at) if now.since(*at) >= length => {
                    *wait = Wait::Over;
                    ends = true;
                }
                _ => {}
            }
        }
        if ends {
            self.look(now, out);
        }
    }

    /// Looks at the chain, if it does not already.
    pub(super) fn look(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if !self.link.look(now, Ask::Look, out) {
            return;
        }
        for wait in self.waits.0.values_mut() {
            if matches!(wait, Wait::Over) {
                *wait = Wait::Looks;
            }
        }
    }

    /// The announcement of a member that is to be removed now that the node has looked, if any.
    pub(super) fn removable(&self, now: Instant) -> Option<Announcement> {
        let is_dead = |leaving: &&Leaving| {
            let wait = self.waits.0.get(&leaving.announced);
            let place = self.chain.place_of(leaving.node);
            matches!(wait, Some(Wait::Looks))
                && place.is_some_and(|place| self.may_be_removed(place))
                && self.suspects(now).any(|node| node == leaving.node)
        };
        let dead = self.chain.leaving.iter().find(is_dead);
        dead.map(|leaving| leaving.announced)
    }

    /// The announcement that this node has made and that is to be withdrawn, if any.
    pub(super) fn recovered(&self, now: Instant) -> Option<Announcement> {
        let is_heard = |leaving: &&Leaving| {
            let node = leaving.node;
            leaving.by == self.id && self.hears_steadily(node, now) && !self.has_left(node)
        };
        let heard = self.chain.leaving.iter().find(is_heard);
        heard.map(|leaving| leaving.announced)
    }
}
