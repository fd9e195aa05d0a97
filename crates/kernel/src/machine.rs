//! The replicated service: what a user of the library implements.

use crate::guard::LogCommand;
use crate::level::Level;
use crate::time::Timestamp;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;

/// A deterministic service. Every replica applies the same commands in the same order, so a machine
/// must compute its state and its replies from nothing but its state and the arguments: no clock,
/// no randomness, no iteration over a randomly seeded map.
///
/// Commands come from clients: any bytes may arrive, and a machine answers malformed ones with an
/// error reply of its own making. It must not panic on them.
pub trait StateMachine: Any + Send {
    /// Executes `command` and appends its reply to `reply`. `now` is the time that the leader
    /// stamped into the log; it never falls from one command to the next.
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>);

    /// As [`apply`](StateMachine::apply), with what else every replica knows of the command:
    /// replicas call this one. The same on every replica, and when the log is executed again.
    fn apply_logged(&mut self, now: Timestamp, command: &LogCommand<'_>, reply: &mut Vec<u8>) {
        self.apply(now, command.payload, reply);
    }

    /// Answers `query` without changing any state. `now` lies between the time of the last command
    /// applied and the next deadline after it: time passes for readers too, but nothing expires by
    /// it alone.
    ///
    /// # Errors
    /// [`NotARead`] when `query` would change the state: it must go through the log instead. A
    /// write that one replica executed as a read would make that replica differ from the others.
    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead>;

    /// Appends a picture of the whole state to `out`, the same bytes on every replica in that
    /// state.
    fn snapshot(&self, out: &mut Vec<u8>);

    /// A picture of the present state that can be written out piece by piece while commands go on:
    /// the pieces together are what [`snapshot`](StateMachine::snapshot) would have appended now.
    /// The default takes the whole snapshot at once; a large machine shares its state with the
    /// picture instead and copies what changes, so that no command waits for it.
    fn freeze(&self) -> Box<dyn Frozen> {
        let mut whole = Vec::new();
        self.snapshot(&mut whole);
        Box::new(Whole(Some(whole)))
    }

    /// Replaces the whole state by that of `snapshot`.
    ///
    /// # Errors
    /// Says what is wrong with the bytes; the state is then unchanged.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError>;

    /// Names what `command` reads and writes, so that commands which touch nothing in common can be
    /// executed in either order. It must follow from the command alone, whatever the state. The
    /// default says that it may touch everything.
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        let _ = command;
        footprint.everything = true;
    }

    /// The machine as one whose state has parts that several threads may use at the same time; none
    /// where it has not, which is the default: one thread then executes every command.
    fn parts(&mut self) -> Option<&mut dyn Parts> {
        None
    }

    /// The earliest time after `now` at which the mere passing of time changes what the machine
    /// answers (a key expires, say). The log is then given the new time, even if no command comes.
    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let _ = now;
        None
    }

    /// How many steps of work its commands have taken since it was made, as far as they are not in
    /// proportion to the bytes of the commands. Replicas store snapshots by it, so that a restart
    /// does not have much to execute again. A step is of the order of a hundred nanoseconds. It is
    /// no part of the state: replicas may differ in it, and [`restore`](StateMachine::restore)
    /// leaves it as it is.
    fn work(&self) -> u64 {
        0
    }

    /// What of the state machines of the levels below cannot have: the cluster then cannot go back
    /// to these. A machine whose commands are the same at all levels keeps the default.
    ///
    /// A machine that asks for a level must execute no command below that level which would lead
    /// to such a state.
    fn needs(&self) -> Option<Need> {
        None
    }
}

/// What the state of a machine needs: see [`StateMachine::needs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The lowest level whose programs know such a state.
    pub level: Level,
    /// What of the state it is: for operators, such as `users`.
    pub what: String,
}

/// Methods of a [`StateMachine`] that wraps another one in its field, and leaves these to it:
/// `delegate!(0: snapshot freeze restore)` within the implementation. A wrapper names every method
/// that the machine within may have: the others are those by default.
#[macro_export]
macro_rules! delegate {
    ($field:tt: $($method:ident)*) => { $($crate::delegate!(@$method $field);)* };
    (@apply $field:tt) => {
        fn apply(&mut self, now: $crate::time::Timestamp, command: &[u8], reply: &mut Vec<u8>) {
            self.$field.apply(now, command, reply);
        }
        fn apply_logged(
            &mut self,
            now: $crate::time::Timestamp,
            command: &$crate::guard::LogCommand<'_>,
            reply: &mut Vec<u8>,
        ) {
            self.$field.apply_logged(now, command, reply);
        }
    };
    (@read $field:tt) => {
        fn read(
            &self,
            now: $crate::time::Timestamp,
            query: &[u8],
            reply: &mut Vec<u8>,
        ) -> Result<(), $crate::machine::NotARead> {
            self.$field.read(now, query, reply)
        }
    };
    (@snapshot $field:tt) => {
        fn snapshot(&self, out: &mut Vec<u8>) {
            self.$field.snapshot(out);
        }
    };
    (@freeze $field:tt) => {
        fn freeze(&self) -> Box<dyn $crate::machine::Frozen> {
            self.$field.freeze()
        }
    };
    (@restore $field:tt) => {
        fn restore(&mut self, snapshot: &[u8]) -> Result<(), $crate::machine::RestoreError> {
            self.$field.restore(snapshot)
        }
    };
    (@footprint $field:tt) => {
        fn footprint(&self, command: &[u8], footprint: &mut $crate::machine::Footprint) {
            self.$field.footprint(command, footprint);
        }
    };
    (@parts $field:tt) => {
        fn parts(&mut self) -> Option<&mut dyn $crate::machine::Parts> {
            self.$field.parts()
        }
    };
    (@work $field:tt) => {
        fn work(&self) -> u64 {
            self.$field.work()
        }
    };
    (@needs $field:tt) => {
        fn needs(&self) -> Option<$crate::machine::Need> {
            self.$field.needs()
        }
    };
    (@next_deadline $field:tt) => {
        fn next_deadline(
            &self,
            now: $crate::time::Timestamp,
        ) -> Option<$crate::time::Timestamp> {
            self.$field.next_deadline(now)
        }
    };
}

/// A state machine whose state is divided into parts by keys (P-SMR, section IV: commands that
/// depend on each other are executed by one thread).
///
/// [`restore`](StateMachine::restore) may be called while parts are lent: what was lent is void.
///
/// A part that is lent is a machine of its own. It executes the commands and queries whose
/// [footprint](StateMachine::footprint) lies in the part. What touches several parts is executed by
/// the whole machine when those parts, at least, are back in it. A part is owned by one thread at a
/// time, so safe code cannot have a data race.
pub trait Parts {
    /// Divides the state into `count` parts, all of which are here, and into as many as the machine
    /// can have if it cannot have that many. Returns how many there are now. What clients see does
    /// not depend on the number, and neither does a snapshot.
    fn divide(&mut self, count: usize) -> usize;

    /// The part of what this key of a footprint names.
    fn part_of(&mut self, key: u64) -> usize;

    /// Whether each part that is lent gives the answer of the whole machine to this query, whatever
    /// its footprint says, because only commands that touch everything change the answer.
    fn each_answers(&self, query: &[u8]) -> bool {
        let _ = query;
        false
    }

    /// Takes out a part that is here.
    fn lend(&mut self, part: usize) -> Box<dyn StateMachine>;

    /// Puts in a part that was [lent](Parts::lend).
    fn take_back(&mut self, part: usize, lent: Box<dyn StateMachine>);
}

/// A picture of a state machine's state, independent of what the machine does later. It may be
/// written on another thread.
pub trait Frozen: Send {
    /// Appends the next piece, of a size that does not stall its writer (tens of kilobytes up to a
    /// megabyte); false when nothing is left and nothing was appended.
    fn write_some(&mut self, out: &mut Vec<u8>) -> bool;
}

/// A picture that was taken in one piece.
pub(crate) struct Whole(pub(crate) Option<Vec<u8>>);

impl Frozen for Whole {
    fn write_some(&mut self, out: &mut Vec<u8>) -> bool {
        match self.0.take() {
            Some(mut whole) => {
                out.append(&mut whole);
                true
            }
            None => false,
        }
    }
}

/// What a command touches. Two commands conflict when one writes what the other reads or writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The command may read and write anything: it conflicts with every other.
    pub everything: bool,
    /// The time at which it is executed makes a difference, even if no
    /// [deadline](StateMachine::next_deadline) passes.
    pub timed: bool,
    /// Hashes of the keys that it reads. Equal keys have equal hashes on every replica.
    pub reads: Vec<u64>,
    /// Hashes of the keys that it writes.
    pub writes: Vec<u64>,
}

impl Footprint {
    /// Makes it that of a command that touches nothing, without giving memory back.
    pub fn clear(&mut self) {
        (self.everything, self.timed) = (false, false);
        self.reads.clear();
        self.writes.clear();
    }

    /// Whether the order of the two commands can matter. Hashes that collide count as a conflict.
    pub fn conflicts(&self, other: &Footprint) -> bool {
        let hits = |writes: &[u64], other: &Footprint| {
            writes
                .iter()
                .any(|key| other.reads.contains(key) || other.writes.contains(key))
        };
        self.everything
            || other.everything
            || hits(&self.writes, other)
            || hits(&other.writes, self)
    }
}

/// The query would change the state and was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotARead;

/// A snapshot that cannot be restored, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreError(pub String);

impl core::fmt::Display for NotARead {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the command changes state and cannot be sent as a read")
    }
}

impl core::fmt::Display for RestoreError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the snapshot cannot be restored: {}", self.0)
    }
}

impl core::error::Error for NotARead {}
impl core::error::Error for RestoreError {}
