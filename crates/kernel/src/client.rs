//! The border between an application (the Redis gateway, the library's handle, a load generator)
//! and the client lane that carries its commands.

use crate::id::Slot;
use crate::trace::CommandId;
use crate::wire::{Reader, Wire, WireError};
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

/// How fresh a read must be (compartmentalization 3.4 and 3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadLevel {
    /// Sees every write that was acknowledged before the read began, on any lane.
    #[default]
    Linearizable,
    /// Sees every write and read that this client lane has completed, and a prefix of the log.
    Sequential,
    /// Sees some prefix of the log.
    Eventual,
}

/// What the disk of a node has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskRoom {
    /// Every command.
    #[default]
    Enough,
    /// Reads, and short commands that need no memory: they may make room.
    Little,
    /// Reads, and what is certain to make room.
    None,
}

/// What the application wants done with a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Through the log: executed exactly once, by every replica.
    Write,
    /// Through the log, for the cluster's membership and not for the state machine: the payload is
    /// an encoded [`Change`](crate::membership::Change), the answer a
    /// [`Verdict`](crate::membership::Verdict).
    Change,
    /// By one replica, changing nothing.
    Read(ReadLevel),
}

/// One command of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Comes back in the [`Reply`]. The application keeps it unique among its open requests.
    pub token: u64,
    /// What to do with the payload.
    pub operation: Operation,
    /// Bytes for the state machine, opaque to every role but the replica.
    pub payload: Bytes,
}

/// The answer to the [`Request`] with the same token. Every request gets exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The token of the request.
    pub token: u64,
    /// The name of the command, for [traces](crate::trace); none if the cluster has not answered.
    pub command: Option<CommandId>,
    /// The answer of the state machine, or why it was not asked. Answers that arrived together
    /// share memory: an application that keeps a short one for long copies it.
    pub outcome: Result<Bytes, Refusal>,
    /// What the lane has seen of the log by now, this answer included: every slot below. Zero where
    /// there is no log that all replicas execute.
    pub seen: Slot,
}

impl Reply {
    /// A refusal by one who has not seen the log.
    pub fn refused(token: u64, refusal: Refusal) -> Self {
        Reply {
            token,
            command: None,
            outcome: Err(refusal),
            seen: Slot::ZERO,
        }
    }
}

/// Why a request was not answered by the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Too many requests, or too many bytes of them, are in flight on this lane. Nothing was sent:
    /// try again later.
    Busy,
    /// The cluster did not answer in time. The command had no effect and will have none.
    Unavailable,
    /// The cluster did not answer in time. The command may or may not have been executed.
    Unknown,
    /// A write was sent as a read. Nothing was executed.
    NotARead,
    /// The command is larger than the cluster carries. Nothing was sent.
    TooLarge,
    /// The state machine fails on this command or query. Nothing was executed.
    Failed,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refusal::Busy => "too much in flight, the command was not executed, try again later",
            Refusal::Unavailable => {
                "the cluster did not answer in time, the command was not executed"
            }
            Refusal::Unknown => {
                "the cluster did not answer in time, the command may or may not have been executed"
            }
            Refusal::NotARead => "the command changes state and cannot be sent as a read",
            Refusal::TooLarge => "the command is larger than the cluster's limit",
            Refusal::Failed => "the state machine fails on this command, which was not executed",
        })
    }
}

impl core::error::Error for Refusal {}

/// Limits of a client lane; see `docs/operations.md` for what each one trades.
#[derive(Clone, Copy, Debug)]
pub struct LaneLimits {
    /// Requests in flight at once; one more is refused as [`Refusal::Busy`].
    pub in_flight: usize,
    /// Bytes of all payloads in flight; what would be more is refused as [`Refusal::Busy`], unless
    /// it comes alone. It also limits the bytes of results that the cluster keeps for the lane
    /// because an earlier command is unanswered; beyond it the next command is refused too.
    pub in_flight_bytes: usize,
    /// Bytes of one payload; a larger one is refused as [`Refusal::TooLarge`].
    pub payload_bytes: usize,
    /// How long a request may take before the lane gives up on it.
    pub patience: Duration,
    /// How long to wait for the first answer before asking again.
    pub retry_after: Duration,
}

impl Default for LaneLimits {
    fn default() -> Self {
        LaneLimits {
            in_flight: 4096,
            // What a small machine gets replicated within the patience below.
            in_flight_bytes: 32 << 20,
            payload_bytes: 8 << 20,
            patience: Duration::from_secs(5),
            retry_after: Duration::from_millis(300),
        }
    }
}

/// Limits of the clients of a node.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Connections at once; one more gets an error and is closed.
    pub connections: usize,
    /// Bytes of commands and replies that a node holds for all clients together; beyond it, the
    /// connection that holds most is closed.
    pub memory_bytes: usize,
    /// Bytes of commands and replies that a node holds for one client; beyond it, its connection is
    /// closed.
    pub client_bytes: usize,
    /// How long a command may stay unfinished.
    pub unfinished: Duration,
    /// How long a client may rest before its connection is closed; zero: without end.
    pub idle: Duration,
    /// A command that takes this long is slow: its times are kept.
    pub slower_than: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits {
            connections: 10_000,
            // A node stays below half a gigabyte: what a client holds is on its way through the
            // roles as well.
            memory_bytes: 128 << 20,
            // The largest reply, and room.
            client_bytes: 80 << 20,
            unfinished: Duration::from_secs(60),
            idle: Duration::ZERO,
            // The default of Redis's `slowlog-log-slower-than`.
            slower_than: Duration::from_millis(10),
        }
    }
}

impl Wire for Request {
    fn encode(&self, out: &mut Vec<u8>) {
        self.token.encode(out);
        match self.operation {
            Operation::Write => 0u8,
            Operation::Read(ReadLevel::Linearizable) => 1,
            Operation::Read(ReadLevel::Sequential) => 2,
            Operation::Read(ReadLevel::Eventual) => 3,
            Operation::Change => 4,
        }
        .encode(out);
        self.payload.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let token = u64::decode(reader)?;
        let operation = match u8::decode(reader)? {
            0 => Operation::Write,
            1 => Operation::Read(ReadLevel::Linearizable),
            2 => Operation::Read(ReadLevel::Sequential),
            3 => Operation::Read(ReadLevel::Eventual),
            4 => Operation::Change,
            tag => {
                return Err(WireError::UnknownTag {
                    what: "operation",
                    tag,
                });
            }
        };
        Ok(Request {
            token,
            operation,
            payload: Bytes::decode(reader)?,
        })
    }
}
