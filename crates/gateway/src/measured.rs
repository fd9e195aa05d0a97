//! What the gateway measures of its clients and their commands, for metrics.

use crate::host::Host;
use ionian_kernel::client::Refusal;
use ionian_kernel::histogram::{Numbers, Times};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Kinds of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Commands that only read.
    Read,
    /// Commands that write.
    Write,
    /// EXEC with what it executes.
    Transaction,
    /// Commands that the gateway answers itself.
    Admin,
}

impl Family {
    /// All families with their names, in the order of the arrays in [`Measured`].
    pub const ALL: [(Family, &'static str); 4] = [
        (Family::Read, "read"),
        (Family::Write, "write"),
        (Family::Transaction, "transaction"),
        (Family::Admin, "admin"),
    ];

    /// The family of a command of the state machine with these flags of Redis.
    pub(crate) fn of(flags: &[&str]) -> Self {
        // Redis lists this flag first.
        match flags.first() == Some(&"write") {
            true => Family::Write,
            false => Family::Read,
        }
    }
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed.
    Ok,
    /// It got an error of its own.
    Error,
    /// The cluster did not answer in time, and the command was not executed.
    TryagainNo,
    /// The cluster did not answer in time, and the command may have been executed.
    TryagainMaybe,
    /// Too much was in flight, and the command was not executed.
    Busy,
}

impl Outcome {
    /// All outcomes with their names, in the order of the arrays in [`Measured`].
    pub const ALL: [(Outcome, &'static str); 5] = [
        (Outcome::Ok, "ok"),
        (Outcome::Error, "error"),
        (Outcome::TryagainNo, "tryagain_no"),
        (Outcome::TryagainMaybe, "tryagain_maybe"),
        (Outcome::Busy, "busy"),
    ];
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Busy => Outcome::Busy,
            Refusal::Unavailable => Outcome::TryagainNo,
            Refusal::Unknown => Outcome::TryagainMaybe,
            Refusal::NotARead | Refusal::TooLarge | Refusal::Failed => Outcome::Error,
        }
    }
}

/// The codes of errors that clients get who are not who they say, or may not what they want: the
/// order of [`Measured::denied`].
pub const DENIALS: [&str; 3] = ["NOAUTH", "WRONGPASS", "NOPERM"];

/// What a gateway has measured since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Clients that are connected.
    pub connections: u64,
    /// Clients that have connected.
    pub connections_total: u64,
    /// Clients that were refused because there were too many.
    pub connections_rejected: u64,
    /// Commands that quotas of users have delayed, and that they have refused.
    pub quota_commands: (u64, u64),
    /// Connections that quotas of users have refused.
    pub quota_connections: u64,
    /// Errors with the codes of [`DENIALS`].
    pub denied: [u64; DENIALS.len()],
    /// Clients whose TLS handshake has failed.
    pub handshakes_failed: u64,
    /// Attempts to log in that have waited, after several wrong passwords from the same address.
    pub logins_delayed: u64,
    /// Clients that were closed because all clients together held too much memory.
    pub evicted: u64,
    /// Clients that were closed because they violated the protocol.
    pub protocol_errors: u64,
    /// Bytes received.
    pub input_bytes: u64,
    /// Bytes sent.
    pub output_bytes: u64,
    /// Bytes of replies that clients have not read.
    pub output_backlog_bytes: u64,
    /// Bytes of memory that clients hold.
    pub held_bytes: u64,
    /// Commands by family and outcome.
    pub commands: [[u64; Outcome::ALL.len()]; Family::ALL.len()],
    /// The time from the receipt of a command to its reply, in microseconds, by family.
    pub service: [Times; Family::ALL.len()],
    /// How many commands each compound has.
    pub compound_commands: Numbers,
    /// The most bytes that keys and values may take, zero for no limit, and how many they took when
    /// that was measured last.
    pub memory: (u64, u64),
}

/// A time in microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    time.as_secs() * 1_000_000 + u64::from(time.subsec_micros())
}

/// The part of [`Measured`] that grows with every command.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    commands: [[Cell<u64>; Outcome::ALL.len()]; Family::ALL.len()],
    service: [RefCell<Times>; Family::ALL.len()],
    compound_commands: RefCell<Numbers>,
}

impl Meter {
    /// A command was answered.
    pub(crate) fn answered(&self, family: Family, outcome: Outcome) {
        let count = &self.commands[family as usize][outcome as usize];
        count.set(count.get() + 1);
    }

    /// A command was answered after this time in microseconds.
    pub(crate) fn served(&self, family: Family, us: u64) {
        self.service[family as usize].borrow_mut().record(us);
    }

    /// A compound of this many commands was formed.
    pub(crate) fn formed(&self, commands: usize) {
        self.compound_commands.borrow_mut().record(commands as u64);
    }
}

impl Host {
    /// What the gateway has measured so far.
    pub fn measured(&self) -> Measured {
        let (mut connections, mut backlog) = (0, 0);
        self.for_each_client(|client| {
            connections += 1;
            backlog += client.memory.get().replies as u64;
        });
        let stats = &self.stats;
        Measured {
            connections,
            connections_total: stats.connections.get(),
            connections_rejected: stats.connections_rejected.get(),
            quota_commands: (stats.quota_delayed.get(), stats.quota_refused.get()),
            quota_connections: stats.quota_connections.get(),
            denied: DENIALS.map(|code| self.usage.errors(code)),
            handshakes_failed: stats.handshakes_failed.get(),
            logins_delayed: stats.logins_delayed.get(),
            evicted: stats.evicted.get(),
            protocol_errors: stats.protocol_errors.get(),
            input_bytes: stats.bytes_in.get(),
            output_bytes: stats.bytes_out.get(),
            output_backlog_bytes: backlog,
            held_bytes: self.held() as u64,
            commands: self
                .meter
                .commands
                .each_ref()
                .map(|row| row.each_ref().map(Cell::get)),
            service: self.meter.service.each_ref().map(|times| *times.borrow()),
            compound_commands: *self.meter.compound_commands.borrow(),
            memory: (self.memory.known().limit, self.memory.known().used),
        }
    }
}
