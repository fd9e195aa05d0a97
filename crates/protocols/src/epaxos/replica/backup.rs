//! The state for a backup: with all that was acknowledged before it was asked for.
//!
//! What a replica has executed says nothing of that, for others execute other instances first. So
//! it has a leader propose a *mark*, a barrier with a number that it has drawn: whatever was
//! acknowledged before was recorded by a majority, and all replicas execute it before the mark.
//! The picture is taken when the mark is executed, and nothing after it. It is therefore the same
//! on each replica, and a state that was: no command is in it without those that were answered
//! before that command was sent.

use super::Replica;
use crate::epaxos::message::Payload;
use alloc::boxed::Box;
use bytes::Bytes;
use ionian_kernel::id::{ClientId, Set};
use ionian_kernel::machine::Frozen;
use ionian_kernel::role::{Cover, Out, Picture};
use ionian_kernel::time::{Duration, Instant};
use ionian_replication::batch::{Batch, Command, Purpose};

/// A backup that was not asked about for this long is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the top of this file.
pub(super) struct Backup {
    /// The driver's number.
    request: u64,
    /// The number of the mark.
    mark: u64,
    /// When the mark is to be proposed, again if it was before.
    propose_at: Instant,
    attempts: u64,
    /// When the driver last asked.
    asked_at: Instant,
    /// The state behind the mark, and how many instances were executed.
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

impl Replica {
    /// The state for a backup, from which another cluster may be founded: its instances are others.
    pub(super) fn picture(&mut self, now: Instant, cover: Cover) -> Picture {
        let count = self.count();
        match cover {
            _ if !self.snapshots.has_state() => Picture::NotYet(0),
            Cover::Below(at) if count >= at => Picture::Taken(count, self.executor.freeze()),
            Cover::Below(_) => Picture::NotYet(count),
            Cover::Acknowledged(request) => self.picture_at_mark(now, request),
        }
    }

    fn picture_at_mark(&mut self, now: Instant, request: u64) -> Picture {
        let mark = self.random.any();
        let is_new = |backup: &mut Backup| backup.request != request;
        self.backup.take_if(is_new);
        let backup = self.backup.get_or_insert(Backup {
            request,
            mark,
            propose_at: now,
            attempts: 0,
            asked_at: now,
            picture: None,
        });
        backup.asked_at = now;
        match backup.picture.take() {
            Some((count, frozen)) => {
                self.backup = None;
                Picture::Taken(count, frozen)
            }
            None => Picture::NotYet(self.count()),
        }
    }

    /// Has the mark proposed when it is time: by a leader near, then by others in turn.
    pub(super) fn propose_mark(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        let is_over = |backup: &mut Backup| backup.asked_at + PATIENCE <= now;
        self.backup.take_if(is_over);
        let Some(backup) = &mut self.backup else {
            return;
        };
        if backup.picture.is_some() || backup.propose_at > now {
            return;
        }
        let near = match backup.attempts {
            0 => self.leaders,
            _ => Set::EMPTY,
        };
        let attempt = backup.attempts;
        backup.attempts += 1;
        backup.propose_at = now + self.config.options().resend_after * 2;
        let batch = Batch::one(&Command {
            client: ClientId(0),
            purpose: Purpose::Internal,
            number: backup.mark,
            floor: 0,
            payload: Bytes::new(),
        });
        self.propose(now, (near, attempt), batch, out);
    }

    /// A barrier is executed, and nothing after it.
    pub(super) fn passed_barrier(&mut self, payload: &Payload) {
        let count = self.count();
        let Some(backup) = &mut self.backup else {
            return;
        };
        let is_mark =
            payload.value.batch.commands().any(|command| {
                command.purpose == Purpose::Internal && command.number == backup.mark
            });
        if is_mark && backup.picture.is_none() {
            backup.picture = Some((count, self.executor.freeze()));
        }
    }
}
