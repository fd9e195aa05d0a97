//! What a node reports for traces: a JSON document.

use ionian_kernel::id::{ClientId, Slot};
use ionian_kernel::time::Instant;
use ionian_kernel::trace::path::{Place, Seen};
use ionian_kernel::trace::{CommandId, Event, LogSlot, Run};
use serde::{Deserialize, Serialize};

/// What a node has noted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeNotes {
    /// The node's name.
    pub node: String,
    /// The protocol's name.
    pub protocol: String,
    /// What it notes now.
    #[serde(default)]
    pub recording: Option<RecordingStatus>,
    /// How many events have made room for later ones.
    pub lost: u64,
    /// The events about the commands that were asked for, those of each role in order.
    pub events: Vec<NotedEvent>,
    /// Commands of its clients whose times it has kept, the oldest first.
    pub commands: Vec<KeptCommand>,
    /// Times in which its roles waited long, the oldest first, if it was asked for commands. Older
    /// programs say none.
    #[serde(default)]
    pub delays: Vec<Delay>,
}

/// Records waited for the disk, and messages of roles for these records.
pub const DELAY_DISK: &str = "disk";

/// A timer was due, and the event loop of the roles did not run: the process was stopped, had no
/// processor, or did something else on this thread.
pub const DELAY_LATE: &str = "late";

/// One run of the event loop took long, without its time on the disk.
pub const DELAY_RUN: &str = "run";

/// A time in which roles of a node waited long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// For what: [`DELAY_DISK`], [`DELAY_LATE`], [`DELAY_RUN`].
    pub what: String,
    /// Since when, in microseconds of Unix time by the clock of the node.
    pub began_us: u64,
    /// Until when.
    pub ended_us: u64,
    /// What was held back, if that is known; of some roles only, if there are many.
    pub roles: Vec<DelayedRole>,
}

/// What a delay held back of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayedRole {
    /// The kind of the role.
    pub role: String,
    /// Its number among its kind.
    pub index: u64,
    /// How many messages.
    pub messages: u64,
    /// The number of the log whose slots they name, and one more, in protocols with several.
    pub log: u16,
    /// The first and the last slot that they name.
    pub slots: Option<(u64, u64)>,
}

/// What a node notes now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingStatus {
    /// One in this number of commands.
    pub one_in: u64,
    /// How much longer, in milliseconds.
    pub for_ms: u64,
}

/// A message that a role has received or sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedEvent {
    /// When, in microseconds of Unix time by the clock of the node.
    pub at_us: u64,
    /// The kind of the role.
    pub role: String,
    /// Its number among its kind.
    pub index: u64,
    /// The numbers of the instances that it has sent the message to; none if it has received it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Vec<u64>>,
    /// The name of the message.
    pub message: String,
    /// What the receiver does with it.
    pub stage: String,
    /// The slot that the message names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u64>,
    /// The number of the log that counts it, and one more, in protocols with several.
    #[serde(default)]
    pub log: u16,
    /// The first command of a run in the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandName>,
    /// How many commands the run has.
    #[serde(default)]
    pub count: u32,
}

/// The name of a command.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct CommandName {
    /// The number of its client lane.
    pub lane: u64,
    /// Whether it needs no session, as reads.
    pub sessionless: bool,
    /// The lane's number for it.
    pub number: u64,
}

/// A slot, or what stands for another number ([`LogSlot`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotName {
    /// See [`LogSlot::log`].
    pub log: u16,
    /// See [`LogSlot::slot`].
    pub slot: u64,
}

/// The events that are wanted: those about any of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Commands, with the slots of which the node knows that they have them.
    pub commands: Vec<CommandName>,
    /// Slots of which another node knows that they have these commands.
    pub slots: Vec<SlotName>,
}

impl From<LogSlot> for SlotName {
    fn from(slot: LogSlot) -> Self {
        SlotName {
            log: slot.log,
            slot: slot.slot.0,
        }
    }
}

impl From<SlotName> for LogSlot {
    fn from(name: SlotName) -> Self {
        LogSlot {
            log: name.log,
            slot: Slot(name.slot),
        }
    }
}

impl CommandName {
    /// As roles name it; none if no lane has this number.
    pub fn id(self) -> Option<CommandId> {
        Some(CommandId {
            client: ClientId(self.lane.try_into().ok()?),
            sessionless: self.sessionless,
            number: self.number,
        })
    }
}

impl From<CommandId> for CommandName {
    fn from(id: CommandId) -> Self {
        CommandName {
            lane: id.client.0.into(),
            sessionless: id.sessionless,
            number: id.number,
        }
    }
}

/// A command of a client, with the times of its way through the gateway in microseconds of Unix
/// time by the clock of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCommand {
    /// Its name in Redis, without arguments.
    pub name: String,
    /// How many commands went with it, itself included.
    pub together: u64,
    /// Its name in the cluster; none if the cluster has not answered.
    #[serde(default)]
    pub command: Option<CommandName>,
    /// The trace and the span that it is a part of, as its client gave them: a `traceparent` of
    /// W3C Trace Context.
    #[serde(default)]
    pub parent: Option<String>,
    /// Whether it is kept because it was slow.
    pub slow: bool,
    /// When the node received it.
    pub received_us: u64,
    /// When it was given to the client lane: before, it waited for others of its client.
    pub submitted_us: u64,
    /// When its reply was there.
    pub answered_us: u64,
    /// When the write of its reply to its connection began.
    pub written_us: u64,
    /// A number of its own, of this process.
    pub id: u64,
}

impl NotedEvent {
    pub(crate) fn of(event: &Event, kinds: &[&str]) -> Self {
        let Seen {
            place,
            at,
            sent,
            message,
            stage,
            slot,
            commands,
        } = Seen::of(event, "", kinds);
        NotedEvent {
            at_us: at.0,
            role: place.role,
            index: place.index,
            sent,
            message,
            stage,
            slot: slot.map(|it| it.slot.0),
            log: slot.map_or(0, |it| it.log),
            command: commands.map(|run| run.first.into()),
            count: commands.map_or(0, |run| run.count),
        }
    }
}

impl NodeNotes {
    /// The events as paths are joined from.
    pub fn seen(&self) -> impl Iterator<Item = Seen> {
        self.events.iter().map(|event| Seen {
            place: Place {
                node: self.node.clone(),
                role: event.role.clone(),
                index: event.index,
            },
            at: Instant(event.at_us),
            sent: event.sent.clone(),
            message: event.message.clone(),
            stage: event.stage.clone(),
            slot: event.slot.map(|slot| {
                let log = event.log;
                SlotName { log, slot }.into()
            }),
            commands: event.command.and_then(|name| {
                let (first, count) = (name.id()?, event.count);
                Some(Run { first, count })
            }),
        })
    }
}
