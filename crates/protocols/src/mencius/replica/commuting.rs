//! Out-of-order commit (Mencius 5): which commands can be executed before earlier ones are known to
//! be chosen.
//!
//! By the rules of simple consensus a slot that a leader has suggested a command in holds that
//! command or a noop, once it is decided: only the leader that has reserved a slot suggests in it,
//! once (`leader/reservation.rs`). So a command that is chosen can be executed when every earlier
//! slot is executed, skipped, chosen or suggested, and the command commutes with all that are not
//! executed yet. Commands commute when the state machine says so by the keys that they touch, when
//! they do not depend on each other through their session, and when the time at which they are
//! executed makes no difference.

use crate::parts::replica::ReplicaCore;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::machine::Footprint;
use ionian_replication::batch::{Command, Purpose, Value};

/// Suggestions and chosen values further than this number of slots ahead of what is executed are
/// not looked at: a cluster that has so much under way waits for throughput and not for order.
const REACH: u64 = 1024;

/// What was suggested and is not executed.
#[derive(Default)]
pub(super) struct Commuting {
    suggested: BTreeMap<Slot, Value>,
    /// What is touched by the commands of slots that were looked at and not executed.
    footprints: BTreeMap<Slot, Footprint>,
}

impl Commuting {
    /// A leader suggests a value: the slot holds this or a noop, once it is decided.
    pub(super) fn suggest(&mut self, executed: Slot, slot: Slot, value: Value) {
        if slot >= executed && slot.distance(executed) < REACH {
            self.suggested.insert(slot, value);
        }
    }

    /// Whether nothing is suggested: every slot that comes next is then executed as soon as it is
    /// chosen.
    pub(super) fn has_none(&self) -> bool {
        self.suggested.is_empty()
    }

    /// Everything below `executed` is executed.
    pub(super) fn forget_below(&mut self, executed: Slot) {
        while let Some(first) = self
            .suggested
            .first_entry()
            .filter(|first| *first.key() < executed)
        {
            first.remove();
        }
        while let Some(first) = self
            .footprints
            .first_entry()
            .filter(|first| *first.key() < executed)
        {
            first.remove();
        }
    }

    /// The chosen slots that can be executed now, in order. `skipped_until` tells from a slot on
    /// which is the first that is not known to be skipped.
    pub(super) fn ready(
        &mut self,
        replica: &ReplicaCore,
        skipped_until: impl Fn(Slot) -> Slot,
    ) -> Vec<Slot> {
        let (mut ready, mut earlier) = (Vec::new(), Earlier::default());
        let (mut slot, end) = (
            replica.executed(),
            replica.executed().plus(REACH).min(replica.held_until()),
        );
        let mut latest = replica.executor().now();
        while slot < end {
            let next = skipped_until(slot);
            if next > slot {
                slot = next;
                continue;
            }
            let chosen = replica.value(slot);
            let Some(value) = chosen.or_else(|| self.suggested.get(&slot)) else {
                break;
            };
            latest = latest.max(value.stamp);
            if !replica.was_early(slot) && !value.batch.is_empty() {
                let footprint = self
                    .footprints
                    .entry(slot)
                    .or_insert_with(|| replica.executor().footprint(&value.batch));
                if footprint.everything {
                    break;
                }
                let free =
                    chosen.is_some() && !footprint.timed && !earlier.conflicts(value, footprint);
                match free && replica.executor().commutes_until(latest) {
                    true => ready.push(slot),
                    false => earlier.add(value, footprint),
                }
            }
            slot = slot.next();
        }
        ready
    }
}

/// What the commands touch that come earlier in the log and are not executed.
#[derive(Default)]
struct Earlier {
    read: BTreeSet<u64>,
    written: BTreeSet<u64>,
    /// The smallest number of a command of each session, and the largest floor.
    sessions: BTreeMap<SessionId, (u64, u64)>,
    /// Each command of a session.
    commands: BTreeSet<(SessionId, u64)>,
}

impl Earlier {
    fn add(&mut self, value: &Value, footprint: &Footprint) {
        self.read.extend(&footprint.reads);
        self.written.extend(&footprint.writes);
        for command in value.batch.commands() {
            let Purpose::Execute(session) = command.purpose else {
                continue;
            };
            let (smallest, highest) = self.sessions.entry(session).or_insert((u64::MAX, 0));
            (*smallest, *highest) = (command.number.min(*smallest), command.floor.max(*highest));
            self.commands.insert((session, command.number));
        }
    }

    fn conflicts(&self, value: &Value, footprint: &Footprint) -> bool {
        let touched = |key| self.written.contains(key) || self.read.contains(key);
        footprint.reads.iter().any(|key| self.written.contains(key))
            || footprint.writes.iter().any(touched)
            || value.batch.commands().any(|command| self.settles(&command))
    }

    /// Whether executing one of two commands of a session first would make the session discard the
    /// other, or the two are copies of one command. Copies that only read touch nothing that the
    /// other writes, but an operator may skip one of them and not the other (`ionian log skip`),
    /// and the session keeps what became of the first that is executed.
    fn settles(&self, command: &Command<&[u8]>) -> bool {
        let Purpose::Execute(session) = command.purpose else {
            return false;
        };
        let of_session = self.sessions.get(&session);
        of_session.is_some_and(|(smallest, highest)| {
            *smallest < command.floor
                || command.number < *highest
                || self.commands.contains(&(session, command.number))
        })
    }
}
