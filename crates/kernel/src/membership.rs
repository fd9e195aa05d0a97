//! Which configuration a cluster has: decided by the log itself.
//!
//! A change is a command like any other, except that it goes to the [`Membership`] that every
//! replica keeps beside its state machine. Replicas tell their drivers when it changes, drivers
//! tell each other, and each reconfigures the roles of its node. What a configuration says (nodes,
//! addresses, roles) is a text that only drivers read. `docs/decisions/0012-membership.md` has the
//! argument why a change is safe at any moment.

use crate::id::{Epoch, Slot};
use crate::level::Level;
use crate::machine::Need;
use crate::wire::{Reader, Wire, WireError, decode_all, encode_all};
use crate::{wire_enum, wire_struct};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;

/// The configuration in force, or the two between which a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// How many steps came before: each change that is begun, finished or abandoned is one.
    pub epoch: Epoch,
    /// Rounds of this epoch and later ones use the quorums of `text` (unless there is a `next`).
    pub since: Epoch,
    /// Everything below this slot is kept by f+1 replicas. Acceptors of earlier configurations
    /// voted there, and those of this one may know nothing of it: no leader asks them, and none
    /// proposes anything there.
    pub frontier: Slot,
    /// The configuration; empty in epoch 0, where it is the one that the nodes were founded with.
    pub text: Bytes,
    /// The configuration that it is being changed into: until the change is finished or abandoned,
    /// both are in force together.
    pub next: Option<Bytes>,
    /// How long sessions live, once that was changed.
    pub expiry: Option<SessionExpiry>,
    /// The level of the cluster.
    pub level: Level,
}

/// Set in the tag before `expiry` when the level follows. A cluster of the first level writes its
/// membership as programs did that knew no levels.
const HAS_LEVEL: u8 = 2;

impl Wire for Membership {
    fn encode(&self, out: &mut Vec<u8>) {
        self.epoch.encode(out);
        Wire::encode(&self.since, out);
        self.frontier.encode(out);
        self.text.encode(out);
        self.next.encode(out);
        let above = self.level > Level::FIRST;
        out.push(u8::from(self.expiry.is_some()) | if above { HAS_LEVEL } else { 0 });
        if let Some(expiry) = self.expiry {
            expiry.encode(out);
        }
        if above {
            self.level.0.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut membership = Membership {
            epoch: Wire::decode(reader)?,
            since: Wire::decode(reader)?,
            frontier: Wire::decode(reader)?,
            text: Wire::decode(reader)?,
            next: Wire::decode(reader)?,
            expiry: None,
            level: Level::FIRST,
        };
        let tag = u8::decode(reader)?;
        if tag > 1 | HAS_LEVEL {
            let what = "session expiry of a membership";
            return Err(WireError::UnknownTag { what, tag });
        }
        if tag & 1 != 0 {
            membership.expiry = Some(Wire::decode(reader)?);
        }
        if tag & HAS_LEVEL != 0 {
            membership.level = Level(u16::decode(reader)?);
            if membership.level <= Level::FIRST {
                return Err(WireError::OutOfRange {
                    what: "level of a membership",
                    value: membership.level.0.into(),
                });
            }
        }
        Ok(membership)
    }
    fn since(&self) -> Level {
        self.level
    }
}

/// How long a session may be unused before it is forgotten, by the log's time. The one option that
/// replicas must change in the same slot, for what they do depends on it: so it is part of what
/// they keep, and not only of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionExpiry {
    /// When the cluster was founded, in milliseconds: a replica that executes the log from its
    /// beginning begins with that.
    pub founded_ms: u64,
    /// Now, in milliseconds.
    pub now_ms: u64,
}

wire_struct! { SessionExpiry { founded_ms, now_ms } }

/// A command for the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Leads from one configuration to another.
    Begin {
        /// The epoch that the change was planned in.
        base: Epoch,
        /// The configuration of that epoch.
        from: Bytes,
        /// The new one.
        to: Bytes,
        /// Whether there must be a time in which both are in force: quorums or replicas differ.
        joint: bool,
    },
    /// What the new configuration needs has been handed over to it.
    Finish {
        /// The epoch in which both were in force.
        epoch: Epoch,
        /// Everything below this slot is kept by f+1 replicas of the new configuration.
        frontier: Slot,
    },
    /// Back to the configuration before.
    Abandon {
        /// The epoch in which both were in force.
        epoch: Epoch,
    },
    /// Other options for the same nodes and roles: in force as soon as a node hears of it, and how
    /// long sessions live in this very slot.
    Tune {
        /// The epoch that the change was planned in.
        base: Epoch,
        /// The configuration of that epoch.
        from: Bytes,
        /// The new one, which differs in its options alone.
        to: Bytes,
        /// How long sessions live by the one, and by the other.
        expiry_ms: (u64, u64),
    },
    /// The next level, or the one before, for a cluster whose members support both: in force in
    /// this very slot.
    Level {
        /// The epoch that the change was planned in.
        base: Epoch,
        /// The new level.
        to: Level,
    },
}

wire_enum! { Change {
    0 => Begin { base, from, to, joint },
    1 => Finish { epoch, frontier },
    2 => Abandon { epoch },
    3 => Tune { base, from, to, expiry_ms },
    4 since 18 => Level { base, to },
} }

/// What became of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It led to this epoch.
    Accepted {
        /// The epoch.
        epoch: Epoch,
    },
    /// Another change came first.
    Outdated {
        /// The epoch in which the cluster is.
        epoch: Epoch,
        /// Whether a change is under way there.
        changing: bool,
    },
    /// The command cannot be read.
    Malformed {},
    /// The level stays, because programs of the one before do not know what the state has.
    Needed {
        /// What that is, as text.
        what: Bytes,
    },
}

wire_enum! { Verdict {
    0 => Accepted { epoch },
    1 => Outdated { epoch, changing },
    2 => Malformed {},
    3 since 18 => Needed { what },
} }

impl Membership {
    /// That of a new cluster.
    pub fn founding(level: Level) -> Self {
        Membership {
            level,
            ..Membership::default()
        }
    }

    /// Whether a change is under way.
    pub fn is_changing(&self) -> bool {
        self.next.is_some()
    }

    /// Executes a command of the log and returns the encoded [`Verdict`]. The same command twice is
    /// one. `needs` says what the state machine needs.
    pub fn execute(&mut self, command: &Bytes, needs: impl FnOnce() -> Option<Need>) -> Bytes {
        let verdict = match decode_all::<Change>(command) {
            Err(_) => Verdict::Malformed {},
            Ok(Change::Level { base, to })
                if self.can_turn_to(base, to)
                    && to < self.level
                    && let Some(Need { level, what }) = needs()
                    && to < level =>
            {
                Verdict::Needed { what: what.into() }
            }
            Ok(change) if self.carry_out(&change) || self.is_done(&change) => {
                Verdict::Accepted { epoch: self.epoch }
            }
            Ok(_) => Verdict::Outdated {
                epoch: self.epoch,
                changing: self.is_changing(),
            },
        };
        Bytes::from(encode_all(&verdict))
    }

    /// Carries the change out, if it was meant for what there is; says whether it did.
    fn carry_out(&mut self, change: &Change) -> bool {
        let here = self.epoch;
        match change {
            Change::Begin {
                base,
                from,
                to,
                joint,
            } if *base == here && !self.is_changing() => {
                (self.text, self.next) = match joint {
                    true => (from.clone(), Some(to.clone())),
                    false => (to.clone(), None),
                };
            }
            Change::Finish { epoch, frontier } if *epoch == here && self.is_changing() => {
                self.frontier = self.frontier.max(*frontier);
                self.text = self.next.take().expect("a change is under way");
                self.since = here.next();
            }
            Change::Abandon { epoch } if *epoch == here && self.is_changing() => {
                self.next = None;
                self.since = here.next();
            }
            Change::Tune {
                base,
                to,
                expiry_ms: (before, after),
                ..
            } if *base == here && !self.is_changing() => {
                self.text = to.clone();
                let founded_ms = self.expiry.map_or(*before, |expiry| expiry.founded_ms);
                self.expiry = Some(SessionExpiry {
                    founded_ms,
                    now_ms: *after,
                });
            }
            Change::Level { base, to } if self.can_turn_to(*base, *to) => self.level = *to,
            _ => return false,
        }
        self.epoch = here.next();
        true
    }

    /// Whether a change of the level that was planned in the epoch `base` is possible.
    fn can_turn_to(&self, base: Epoch, to: Level) -> bool {
        base == self.epoch
            && !self.is_changing()
            && to.0.abs_diff(self.level.0) == 1
            && to >= Level::FIRST
    }

    /// Whether the change is the one that led here: its sender asks again.
    fn is_done(&self, change: &Change) -> bool {
        match change {
            Change::Begin { base, to, .. } => {
                base.next() == self.epoch && self.next.as_ref().unwrap_or(&self.text) == to
            }
            Change::Tune { base, to, .. } => {
                base.next() == self.epoch && !self.is_changing() && self.text == *to
            }
            Change::Level { base, to } => {
                base.next() == self.epoch && !self.is_changing() && self.level == *to
            }
            Change::Finish { epoch, .. } | Change::Abandon { epoch } => {
                epoch.next() == self.epoch && !self.is_changing()
            }
        }
    }
}

/// Reads a [`Verdict`].
///
/// # Errors
/// When the bytes are none.
pub fn verdict(reply: &Bytes) -> Result<Verdict, WireError> {
    decode_all(reply)
}

impl core::fmt::Display for Verdict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Verdict::Accepted { epoch } => write!(f, "epoch {} begins", epoch.0),
            Verdict::Outdated {
                epoch,
                changing: false,
            } => {
                write!(
                    f,
                    "the cluster is in epoch {} by now: another change came first",
                    epoch.0
                )
            }
            Verdict::Outdated {
                epoch,
                changing: true,
            } => {
                write!(
                    f,
                    "another change is under way, in epoch {}: it must be finished or abandoned first",
                    epoch.0
                )
            }
            Verdict::Malformed {} => f.write_str("the change cannot be read"),
            Verdict::Needed { what } => write!(
                f,
                "the level stays: programs of the level below do not know what this cluster has: {}",
                String::from_utf8_lossy(what)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn begin(base: u32, to: &'static str, joint: bool) -> Change {
        Change::Begin {
            base: Epoch(base),
            from: text("a"),
            to: text(to),
            joint,
        }
    }

    fn execute(membership: &mut Membership, change: &Change) -> Verdict {
        verdict(&membership.execute(&Bytes::from(encode_all(change)), || None)).unwrap()
    }

    #[test]
    fn one_change_at_a_time_each_once() {
        let mut membership = Membership::default();
        let accepted = |epoch| Verdict::Accepted {
            epoch: Epoch(epoch),
        };
        let outdated = |epoch, changing| Verdict::Outdated {
            epoch: Epoch(epoch),
            changing,
        };
        assert_eq!(execute(&mut membership, &begin(0, "b", true)), accepted(1));
        assert_eq!(
            execute(&mut membership, &begin(0, "b", true)),
            accepted(1),
            "the same, asked again"
        );
        assert_eq!(
            execute(&mut membership, &begin(0, "c", true)),
            outdated(1, true)
        );
        assert_eq!(
            execute(&mut membership, &begin(1, "c", false)),
            outdated(1, true)
        );
        assert_eq!(
            (&membership.text, &membership.next),
            (&text("a"), &Some(text("b")))
        );
        assert_eq!(
            execute(
                &mut membership,
                &Change::Finish {
                    epoch: Epoch(1),
                    frontier: Slot(7)
                }
            ),
            accepted(2)
        );
        assert_eq!(
            (membership.since, membership.frontier, &membership.text),
            (Epoch(2), Slot(7), &text("b"))
        );
        assert_eq!(
            execute(&mut membership, &Change::Abandon { epoch: Epoch(0) }),
            outdated(2, false)
        );
        assert_eq!(execute(&mut membership, &begin(2, "d", false)), accepted(3));
        assert_eq!(
            (membership.since, &membership.text, &membership.next),
            (Epoch(2), &text("d"), &None)
        );
    }

    #[test]
    fn options_change_at_once_and_how_long_sessions_lived_at_first_is_kept() {
        let mut membership = Membership::default();
        let tune = |base, to, expiry_ms| Change::Tune {
            base: Epoch(base),
            from: text("a"),
            to: text(to),
            expiry_ms,
        };
        let accepted = |epoch| Verdict::Accepted {
            epoch: Epoch(epoch),
        };
        assert_eq!(
            execute(&mut membership, &tune(0, "b", (600, 5))),
            accepted(1)
        );
        assert_eq!(
            execute(&mut membership, &tune(0, "b", (600, 5))),
            accepted(1),
            "the same, asked again"
        );
        let outdated = |epoch, changing| Verdict::Outdated {
            epoch: Epoch(epoch),
            changing,
        };
        assert_eq!(
            execute(&mut membership, &tune(0, "c", (600, 7))),
            outdated(1, false)
        );
        assert_eq!(execute(&mut membership, &tune(1, "d", (5, 9))), accepted(2));
        let expiry = Some(SessionExpiry {
            founded_ms: 600,
            now_ms: 9,
        });
        let (epoch, text) = (Epoch(2), text("d"));
        assert_eq!(
            membership,
            Membership {
                epoch,
                text,
                expiry,
                ..Membership::default()
            },
            "rounds stay what they were"
        );
        execute(&mut membership, &begin(2, "e", true));
        assert_eq!(
            execute(&mut membership, &tune(3, "f", (9, 9))),
            outdated(3, true),
            "not between two configurations"
        );
        assert_eq!(membership.expiry, expiry);
    }

    #[test]
    fn levels_change_one_at_a_time_whatever_the_program_supports() {
        let mut membership = Membership::default();
        let level = |base, to| Change::Level {
            base: Epoch(base),
            to: Level(to),
        };
        let refused = |epoch, changing| Verdict::Outdated {
            epoch: Epoch(epoch),
            changing,
        };
        let oldest = Level::FIRST.0;
        for to in [oldest, oldest + 2, oldest - 1] {
            assert_eq!(
                execute(&mut membership, &level(0, to)),
                refused(0, false),
                "{to}"
            );
        }
        let accepted = |epoch| Verdict::Accepted {
            epoch: Epoch(epoch),
        };
        for _ in 0..2 {
            assert_eq!(
                execute(&mut membership, &level(0, oldest + 1)),
                accepted(1),
                "again is once"
            );
        }
        assert_eq!(membership.level, Level(oldest + 1));
        assert_eq!(execute(&mut membership, &begin(1, "b", true)), accepted(2));
        assert_eq!(
            execute(&mut membership, &level(2, oldest)),
            refused(2, true)
        );
        execute(&mut membership, &Change::Abandon { epoch: Epoch(2) });
        assert_eq!(execute(&mut membership, &level(3, oldest)), accepted(4));
        assert_eq!(membership.level, Level::FIRST);
    }

    #[test]
    fn membership_of_the_first_level_is_written_as_before_there_were_levels() {
        let expiry = Some(SessionExpiry {
            founded_ms: 1,
            now_ms: 2,
        });
        for expiry in [None, expiry] {
            let mut membership = Membership {
                epoch: Epoch(7),
                text: text("a"),
                expiry,
                ..Membership::default()
            };
            let mut before = Vec::new();
            (Epoch(7), (Epoch(0), Slot(0))).encode(&mut before);
            (text("a"), (None::<Bytes>, expiry)).encode(&mut before);
            assert_eq!(encode_all(&membership), before);
            for level in [Level::FIRST, Level::LATEST] {
                membership.level = level;
                let bytes = Bytes::from(encode_all(&membership));
                assert_eq!(decode_all(&bytes).as_ref(), Ok(&membership));
                assert_eq!(Wire::since(&membership), level);
            }
        }
        for wrong in [&[4][..], &[2, 17, 0], &[2]] {
            let bytes = [&[0; 4 + 4 + 8 + 4 + 1], wrong].concat();
            assert!(
                decode_all::<Membership>(&bytes.into()).is_err(),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn an_abandoned_change_leaves_what_was_there() {
        let mut membership = Membership::default();
        execute(&mut membership, &begin(0, "b", true));
        execute(&mut membership, &Change::Abandon { epoch: Epoch(1) });
        assert_eq!(
            membership,
            Membership {
                epoch: Epoch(2),
                since: Epoch(2),
                text: text("a"),
                ..Membership::default()
            }
        );
        assert_eq!(
            membership.execute(&text("?"), || None),
            Bytes::from(encode_all(&Verdict::Malformed {}))
        );
    }
}
