//! Inquiries of the master's log, and the leases that they give.
//!
//! An *inquiry* is a linearizable read of the master's log that says what the chain is. One serves
//! all reads that came in before it began. With the setting `lease_ms` it also gives a *lease*: an
//! inquiry that stays valid.
//!
//! # Why a lease holds
//!
//! An inquiry that began at time t, and that says "the chain is that of epoch e, you are a
//! member of it, and you are not announced as leaving", gives a lease until t + `lease_ms` by this
//! node's clock, for as long as the node is in epoch e. While the lease lasts no step of the
//! master's log takes this node out of the chain:
//!
//! - Such a step is taken in two steps (`master.rs`). The first announces it.
//!   The second names the announcement, and the node that writes it has waited 1.1 times `lease_ms`
//!   by its own clock since it learned of the announcement (`leaving.rs`).
//! - An inquiry that began when the announcement was chosen, or later, sees it, or sees that it was
//!   withdrawn; then it cannot be named any more. So each inquiry that gave a lease began before
//!   the announcement was chosen, and before any node learned of it.
//! - So if the rates of two clocks differ by at most a tenth, the lease is over before the second
//!   step is written, by whichever of them one counts. No clock is compared with another, and the
//!   argument names neither the leader of the master's log nor its replicas: they may change.
//!
//! One way out of the chain needs no announcement: a node that says that its earlier life is over
//! says it after that life. Joining needs none either, also at the end: what is committed in the
//! longer chain passes the members that were there before, when they have entered it, and what the
//! new tail commits as it enters it each of them holds. So does a step that changes no member.
//!
//! The time of an inquiry is what the clock showed before it began. The time of an answer must be
//! what the clock shows after the state was looked at, and the time that a role receives may be
//! older, if the process was stopped. So answers under a lease leave by `Out::send_until`.

use super::ChainNode;
use super::link::Ask;
use crate::craq::id::ChainEpoch;
use crate::craq::message::Chain;
use crate::craq::settings::lease;
use ionian_kernel::role::Out;
use ionian_kernel::time::Instant;

/// A lease is renewed after this part of its length, while there are reads.
const RENEWAL: u32 = 3;

/// See the top of this file.
#[derive(Debug, Default)]
pub(super) struct Inquiries {
    /// The number of the last one that has begun.
    begun: u64,
    /// All up to this one have ended, or were left unanswered.
    pub(super) ended: u64,
    /// The last one that something waits for.
    wanted: u64,
    /// When the one under way has begun.
    pub(super) since: Option<Instant>,
    lease: Option<Lease>,
    /// Whether the lease has served reads since it was last looked whether to renew it.
    is_used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    epoch: ChainEpoch,
    since: Instant,
    until: Instant,
}

impl Inquiries {
    /// The number of the next one that begins: what waits for it has come in before it.
    pub(super) fn next(&mut self) -> u64 {
        self.wanted = self.begun + 1;
        self.wanted
    }

    /// The one under way has ended. Gives the time when it has begun.
    fn end(&mut self) -> Option<Instant> {
        self.ended = self.begun;
        self.since.take()
    }

    /// The master has left the one under way unanswered. Says which it is.
    pub(super) fn fail(&mut self) -> u64 {
        self.end();
        self.begun
    }

    /// The node is in another chain.
    pub(super) fn drop_lease(&mut self) {
        self.lease = None;
    }
}

impl ChainNode {
    /// The end of the lease, if there is one at this time.
    pub(super) fn lease(&mut self, now: Instant) -> Option<Instant> {
        let held = self.inquiries.lease.as_ref();
        let held = held.filter(|lease| lease.epoch == self.chain.epoch && now < lease.until);
        let until = held.filter(|_| self.is_member())?.until;
        self.inquiries.is_used = true;
        Some(until)
    }

    /// Begins an inquiry, if none is under way and something waits for one, or the lease is to be
    /// renewed.
    pub(super) fn inquire(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let is_used = core::mem::take(&mut self.inquiries.is_used);
        let length = lease(self.config.options()).unwrap_or_default();
        let is_old = |lease: &Lease| now.since(lease.since) >= length / RENEWAL;
        let renews = is_used && self.inquiries.lease.as_ref().is_some_and(is_old);
        let is_wanted = self.inquiries.wanted > self.inquiries.begun;
        if self.inquiries.since.is_none() && (is_wanted || renews) {
            self.inquiries.begun += 1;
            self.inquiries.since = Some(now);
            let before = self.link.inquiry();
            self.link.look(now, Ask::Inquiry, out);
            self.link.on_burst_end(now, out);
            if let Some(number) = self.link.inquiry().filter(|it| Some(*it) != before) {
                for reads in self.reads.awaiting(self.inquiries.begun) {
                    out.inquires_for(number, reads);
                }
            }
        }
    }

    /// The inquiry has found this chain. If it is the one that this node is in it may give a lease.
    pub(super) fn inquired(&mut self, chain: &Chain) {
        let since = self.inquiries.end();
        let is_member = chain.place(self.id, self.life).is_some();
        let stays = is_member && chain.leaving_of(self.id).is_none();
        if let (Some(length), Some(since)) = (lease(self.config.options()), since)
            && stays
            && chain.epoch == self.chain.epoch
        {
            self.inquiries.lease = Some(Lease {
                epoch: chain.epoch,
                since,
                until: since + length,
            });
        }
    }
}
