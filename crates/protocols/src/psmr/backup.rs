//! The state for a backup.
//!
//! What this replica has executed is at hand: the parts of the machine, each as far as its worker
//! is. It may lack the end of one log and not that of another, so a later write may be there and an
//! earlier one of another group may not. If the backup must contain all that was acknowledged
//! before it was asked for, the replica has a command without effect ordered in g_all, with a
//! number that it has drawn. When that is executed here, so is everything that was acknowledged
//! before it was proposed, in every group (see [`merge`](super::merge)): then the picture is taken.
//! Another cluster may be founded with either, where it does not matter how far the logs are here.

use super::groups::{Groups, Sends, send};
use super::merge::{Merge, core, replica};
use super::message::Message;
use crate::multipaxos::kind;
use alloc::boxed::Box;
use ionian_kernel::id::Slot;
use ionian_kernel::machine::Frozen;
use ionian_kernel::role::{Cover, Picture};
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::backoff::doubled;
use ionian_replication::batch::{Command, Purpose};
use ionian_replication::executor::Executor;

/// A backup that was not asked about for this long is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the top of this file.
pub(super) struct Backup {
    /// The number of the driver's request.
    request: u64,
    /// The number of the command.
    mark: u64,
    /// When the command is to be proposed, again if it was before.
    propose_at: Instant,
    attempts: u32,
    /// When the driver last asked.
    asked_at: Instant,
    /// Whether the command is executed.
    is_executed: bool,
    /// The state, and how far g_all is executed in it.
    picture: Option<(u64, Box<dyn Frozen>)>,
}

impl Backup {
    pub(super) fn next_timer(&self) -> Instant {
        let end = self.asked_at + PATIENCE;
        match self.picture {
            Some(_) => end,
            None => self.propose_at.min(end),
        }
    }
}

impl Merge {
    /// See [`Role::freeze`](ionian_kernel::role::Role::freeze).
    pub(super) fn freeze(&mut self, now: Instant, cover: Cover, groups: &mut Groups) -> Picture {
        let request = match cover {
            Cover::Below(at) => return self.freeze_executed(at, groups),
            Cover::Acknowledged(request) => request,
        };
        // Zero asks for any command.
        let mark = self.random.any().max(1);
        self.backup.take_if(|backup| backup.request != request);
        let backup = self.backup.get_or_insert(Backup {
            request,
            mark,
            propose_at: now,
            attempts: 0,
            asked_at: now,
            is_executed: false,
            picture: None,
        });
        backup.asked_at = now;
        match backup.picture.take() {
            Some((done, picture)) => {
                self.backup = None;
                Picture::Taken(done, picture)
            }
            None => Picture::NotYet(self.done().0),
        }
    }

    /// A picture of what this replica has executed, if that is at least `at` slots of all logs
    /// together: the number that a replica reports is the stamp of the picture.
    fn freeze_executed(&mut self, at: u64, groups: &mut Groups) -> Picture {
        self.delivery.finish(groups);
        let logs = 0..=groups.all();
        let executed = logs.map(|group| core(groups, group).executed().0).sum();
        if executed < at {
            return Picture::NotYet(executed);
        }
        self.gather(self.touches.everything(), groups);
        let whole = replica(groups.member(groups.all())).core_mut();
        let picture = whole.executor_mut().freeze();
        self.spread(self.touches.everything(), groups);
        Picture::Taken(executed, picture)
    }

    /// Has the command proposed when it is time.
    pub(super) fn ask_for_mark(&mut self, now: Instant, out: &mut Sends) {
        self.backup
            .take_if(|backup| backup.asked_at + PATIENCE <= now);
        let waits = |backup: &&mut Backup| backup.picture.is_none() && backup.propose_at <= now;
        let Some(backup) = self.backup.as_mut().filter(waits) else {
            return;
        };
        let after = doubled(self.config.options().resend_after * 2, backup.attempts, 4);
        backup.attempts += 1;
        backup.propose_at = now + after;
        let number = backup.mark;
        let message = Message::WantBarrier { number };
        send(out, kind::Leader, self.config.leaders(), message);
    }

    /// The slots of g_all below this one, none of which is missing, are executed next.
    pub(super) fn look_for_mark(&mut self, end: Slot, groups: &Groups) {
        let Some(backup) = self.backup.as_mut() else {
            return;
        };
        let all = core(groups, groups.all());
        let mut next = all
            .chosen_from(all.executed())
            .take_while(|(slot, _)| *slot < end);
        let is_mark = |command: Command<&[u8]>| {
            command.purpose == Purpose::Internal && command.number == backup.mark
        };
        backup.is_executed |= next.any(|(_, value)| value.batch.commands().any(is_mark));
    }

    /// The machine is whole: takes the picture if it contains what it must.
    pub(super) fn picture_for_backup(&mut self, whole: &mut Executor) {
        let done = self.done();
        let covers = |backup: &&mut Backup| backup.is_executed && backup.picture.is_none();
        if let Some(backup) = self.backup.as_mut().filter(covers) {
            backup.picture = Some((done.0, whole.freeze()));
        }
    }
}
