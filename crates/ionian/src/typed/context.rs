//! What a typed machine may know beside its state and the command.

use crate::{LogCommand, Random, Timestamp};

/// What a machine may know beside its state and the command: the same on every replica, and when a
/// replica executes the log again after a restart.
///
/// The level of the cluster is not part of it: it says what the nodes may say to each other, and
/// not every protocol decides it in the log that orders commands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Context {
    /// The time that the leader stamped into the log, in milliseconds since the beginning of 1970
    /// (UTC), as for [`StateMachine::apply`] and [`StateMachine::read`]. It never falls from one
    /// command to the next. Deadlines are `now + Duration`, ages `now.since(earlier)`.
    ///
    /// [`StateMachine::apply`]: crate::StateMachine::apply
    /// [`StateMachine::read`]: crate::StateMachine::read
    pub now: Timestamp,
    /// Where the command comes from. None for a query, and for the commands of the test kit, whose
    /// model of the machine is given nothing but the time.
    pub origin: Option<CommandOrigin>,
}

/// Where a command comes from. A command is executed once, so no two commands of a cluster have the
/// same session and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandOrigin {
    /// The slot of the log in which it is, perhaps with others. With P-SMR it is the slot in the
    /// log of the command's group. With EPaxos, which has no log, it is always 0.
    pub slot: u64,
    /// The session of the client lane that sent it: that of a node, for all users of that node.
    pub session: u64,
    /// Its number in the session. A lane numbers its commands as it gets them; they need not be
    /// executed in this order.
    pub number: u64,
}

impl Context {
    pub(super) fn new(now: Timestamp, command: Option<&LogCommand<'_>>) -> Self {
        let origin = command.map(|command| CommandOrigin {
            slot: command.slot.0,
            session: command.session.0,
            number: command.number,
        });
        Context { now, origin }
    }

    /// Random numbers for this command: others than for every other command, and the same on every
    /// replica. Each call of this method begins them anew. Without an [`origin`](Self::origin) they
    /// are always the same.
    ///
    /// They are for drawing lots among equals, not for secrets: who knows the origin knows
    /// them, and a client can choose among commands by what they will draw.
    pub fn random(&self) -> Random {
        Random::new(self.origin.map_or(0, |origin| origin.seed()))
    }
}

impl CommandOrigin {
    /// The state of replicas depends on it: it stays as it is.
    fn seed(self) -> u64 {
        // 2^64 by the golden ratio: an odd number without pattern.
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let parts = [self.slot, self.session, self.number];
        parts.into_iter().fold(SPREAD, |seed, part| {
            let spread = (seed ^ part).wrapping_mul(SPREAD);
            spread ^ spread >> 32
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn drawn(slot: u64, session: u64, number: u64) -> u64 {
        let origin = Some(CommandOrigin {
            slot,
            session,
            number,
        });
        let context = Context {
            now: Timestamp(7),
            origin,
        };
        context.random().any()
    }

    /// Replicas of two releases must agree.
    #[test]
    fn the_numbers_of_a_command_never_change() {
        let numbers = [2_660_148_890_460_549_424, 6_535_227_233_046_288_171];
        assert_eq!([drawn(0, 0, 0), drawn(5, 1, 3)], numbers);
    }

    #[test]
    fn commands_draw_different_numbers() {
        let mut all = BTreeSet::new();
        for slot in 0..20 {
            for session in 0..20 {
                all.extend((0..20).map(|number| drawn(slot, session, number)));
            }
        }
        assert_eq!(all.len(), 8000);
    }

    #[test]
    fn each_call_begins_anew_and_time_makes_no_difference() {
        let context = |now| Context::new(Timestamp(now), None);
        assert_eq!(context(1).random().any(), context(2).random().any());
    }
}
