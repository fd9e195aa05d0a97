//! A command whose user has quotas: it waits, or is refused, or takes what it needs.

use super::Connection;
use super::admission::Admission;
use crate::commands;
use crate::host::count;
use crate::measured::{Family, Outcome};
use crate::quotas::{PATIENCE, Pace};
use bytes::Bytes;
use ionian_machines::acl::Quota;
use ionian_machines::kv;
use std::time::{Duration, Instant};

/// How often a command is looked at that waits until other connections have their answers.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Connection {
    /// Whether the quotas of its user let a command pass; otherwise what becomes of it.
    #[inline]
    pub(super) fn admit_by_quotas(&mut self, words: &[Bytes]) -> Result<(), Admission> {
        match self.client.account.borrow().is_limited() {
            true => {}
            false => return Ok(()),
        }
        let admitted = self.admit_limited(words);
        if admitted.is_ok() && matches!(self.pace, Pace::Paid(Some(_)) | Pace::Crowded(_)) {
            // The time that it has waited is not the cluster's.
            self.client.last_active.set(Instant::now());
        }
        admitted
    }

    fn admit_limited(&mut self, words: &[Bytes]) -> Result<(), Admission> {
        if self.is_free_of_quotas(words) {
            return Ok(());
        }
        let now = self.host.now();
        if let Pace::Refused(_, quota) = self.pace
            && self.client.account.borrow().allowed(quota).is_none()
        {
            // It was taken away meanwhile.
            self.pace = Pace::Unpaid;
        }
        if self.pace == Pace::Unpaid {
            let account = self.client.account.borrow();
            let bytes = self.command_bytes as u64;
            let most = account.allowed(Quota::Bytes);
            let pace = match most.is_some_and(|most| bytes > most) {
                true => Pace::Refused(now + PATIENCE, Quota::Bytes),
                false => account.pay(bytes, now),
            };
            drop(account);
            self.set_pace(pace);
        }
        match self.pace {
            Pace::Paid(Some(at)) | Pace::Refused(at, _) if now < at => Err(Admission::Waits),
            Pace::Refused(_, quota) => Err(self.refuse_by_quota(words, quota)),
            _ => self.admit_to_flight(words, now),
        }
    }

    /// Whether the command counts for no user: it is of a client that has to log in, or does so. So
    /// what clients that have not logged in take keeps none from logging in.
    fn is_free_of_quotas(&self, words: &[Bytes]) -> bool {
        let logs_in = || commands::find(words).is_some_and(|own| own.logs_in(words));
        !self.client.logged_in.get() && (self.host.default_must_log_in() || logs_in())
    }

    /// Whether the bytes of a command fit, with those of the commands that have no answer. One
    /// command always does.
    fn admit_to_flight(&mut self, words: &[Bytes], now: Instant) -> Result<(), Admission> {
        let allowed = self.client.account.borrow().allowed(Quota::Flight);
        // The gateway's own commands take no memory, and may give some back.
        let Some(allowed) = allowed.filter(|_| commands::find(words).is_none()) else {
            return Ok(());
        };
        let own = self.memory_now().unanswered();
        let others = self.client.account.borrow().unanswered();
        let all = others - self.client.memory.get().unanswered() + own;
        if all == 0 || (all + self.command_bytes) as u64 <= allowed {
            return Ok(());
        }
        match self.pace {
            Pace::Crowded(until) if now >= until => {
                return Err(self.refuse_by_quota(words, Quota::Flight));
            }
            Pace::Crowded(_) => {}
            _ => self.set_pace(Pace::Crowded(now + PATIENCE)),
        }
        Err(Admission::Waits)
    }

    fn set_pace(&mut self, pace: Pace) {
        if matches!(pace, Pace::Paid(Some(_)) | Pace::Crowded(_)) {
            count(&self.host.stats.quota_delayed, 1);
        }
        self.pace = pace;
    }

    fn refuse_by_quota(&mut self, words: &[Bytes], quota: Quota) -> Admission {
        let account = self.client.account.borrow();
        let most = account.allowed(quota).unwrap_or(u64::MAX);
        let text = match quota == Quota::Bytes && self.command_bytes as u64 > most {
            true => account.too_large(most),
            false => account.refusal(quota),
        };
        drop(account);
        if !self.is_idle() {
            return Admission::Waits;
        }
        count(&self.host.stats.quota_refused, 1);
        let account = self.client.account.borrow().clone();
        account.audit_refusal(&self.client, self.host.now());
        let family = kv::command_info(words).map(|info| Family::of(info.flags));
        let family = family.unwrap_or(Family::Admin);
        self.host.meter.answered(family, Outcome::Busy);
        self.refuse(words, &text);
        Admission::Answered
    }

    /// When to [`advance`](Self::advance) the connection because a command waits for its quotas.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        // Until it is idle, answers advance it.
        match self.pace {
            _ if !self.stalled || !self.is_idle() => None,
            Pace::Paid(at) => at,
            Pace::Refused(at, _) => Some(at),
            Pace::Crowded(until) => Some(until.min(self.host.now() + LOOK_EVERY)),
            Pace::Unpaid => None,
        }
    }
}
