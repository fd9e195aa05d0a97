//! Traces: which messages about a command the roles of a node have received and sent, and when.
//!
//! Nothing rides on the wire for it. Messages name the slots and the commands that they are about
//! anyway ([`Subject`]), so [`Node`](crate::node::Node) notes what passes while a driver wants it
//! to, and a tool joins the notes of all nodes to the [path] of one command. Roles do not
//! know of it (`docs/decisions/0047-tracing.md`).

mod parent;
pub mod path;
#[cfg(test)]
mod tests;

pub use parent::TraceParent;

use crate::id::{ClientId, Members, Slot};
use crate::layout::Address;
use crate::protocol::Message;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The name of a command: its lane's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId {
    /// The client lane.
    pub client: ClientId,
    /// Whether it needs no session, such as reads: a lane counts these apart.
    pub sessionless: bool,
    /// The lane's number for it. A lane that opens another session counts anew.
    pub number: u64,
}

impl CommandId {
    /// Whether it is one of a sample of one in this number of commands: the same on all nodes.
    pub fn is_sampled(self, one_in: u64) -> bool {
        let apart = u64::from(self.client.0) << 1 | u64::from(self.sessionless);
        // The finalizer of SplitMix64: numbers that follow each other are spread evenly.
        let mut hash = self.number ^ apart.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (hash ^ hash >> 31).is_multiple_of(one_in.max(1))
    }
}

/// Commands that follow each other in the count of their lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: CommandId,
    /// How many there are, at least one.
    pub count: u32,
}

impl Run {
    /// Whether this command is one of them.
    pub fn contains(&self, command: CommandId) -> bool {
        let apart = |id: CommandId| (id.client, id.sessionless);
        let offset = command.number.checked_sub(self.first.number);
        apart(self.first) == apart(command) && offset.is_some_and(|it| it < self.count.into())
    }

    /// Adds a command, if it is the next one.
    fn grow(&mut self, command: CommandId) -> bool {
        let next = CommandId {
            number: self.first.number.wrapping_add(self.count.into()),
            ..self.first
        };
        let follows = command == next && self.count < u32::MAX;
        self.count += u32::from(follows);
        follows
    }
}

/// What holds commands or answers to them, or refers to what does.
pub trait Commands {
    /// Shows the name of each.
    fn each_id(&self, show: &mut dyn FnMut(CommandId));

    /// Shows what it refers to in place of commands.
    fn each_reference(&self, show: &mut dyn FnMut(LogSlot)) {
        let _ = show;
    }
}

impl<T: Commands> Commands for Vec<T> {
    fn each_id(&self, show: &mut dyn FnMut(CommandId)) {
        self.iter().for_each(|one| one.each_id(show));
    }

    fn each_reference(&self, show: &mut dyn FnMut(LogSlot)) {
        self.iter().for_each(|one| one.each_reference(show));
    }
}

/// A slot, or something else that has a number for a while and that messages name in its place.
///
/// In protocols with several logs, or parts of one that count their slots by themselves, these have
/// numbers. What is no slot has a log of its own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogSlot {
    /// 0 for the log of all, or the number of one of several and one more.
    pub log: u16,
    /// The slot in it.
    pub slot: Slot,
}

/// The log whose slots are the numbers of payloads: commands that travel apart from their slot.
const PAYLOADS: u16 = u16::MAX - 1;

/// The log whose slots are the numbers of inquiries: what readers ask before they read.
const INQUIRIES: u16 = u16::MAX;

impl LogSlot {
    /// What stands for a payload with this number. Those who number payloads begin at random.
    pub const fn of_payload(number: u64) -> Self {
        LogSlot {
            log: PAYLOADS,
            slot: Slot(number),
        }
    }

    /// What stands for an inquiry with this number. Those who inquire begin at random.
    pub const fn of_inquiry(number: u64) -> Self {
        LogSlot {
            log: INQUIRIES,
            slot: Slot(number),
        }
    }

    /// Whether it is the number of an inquiry.
    const fn is_inquiry(self) -> bool {
        self.log == INQUIRIES
    }

    /// Whether it is one of a log.
    pub const fn is_of_log(self) -> bool {
        self.log < PAYLOADS
    }
}

/// What a message is about. Messages of which traces show nothing have none.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The name of what its receiver does with it.
    pub stage: &'static str,
    /// The slot.
    pub slot: Option<LogSlot>,
    /// The commands that are in it.
    pub commands: Option<&'a dyn Commands>,
}

impl<'a> Subject<'a> {
    /// Neither a slot nor commands yet.
    pub fn new(stage: &'static str) -> Self {
        Subject {
            stage,
            slot: None,
            commands: None,
        }
    }

    /// The same where the commands are those of roles and not of clients, in a log of their own.
    /// Their names may be those of commands of clients.
    pub fn internal(mut self) -> Self {
        self.commands = None;
        self.in_log(0u16)
    }

    /// The same where slots are those of the log with this number.
    pub fn in_log(mut self, number: impl Into<u16>) -> Self {
        if let Some(slot) = self.slot.as_mut().filter(|slot| slot.is_of_log()) {
            slot.log = number.into() + 1;
        }
        self
    }
}

/// A field of a message that says what the message is about.
pub trait Names {
    /// Adds what it names.
    fn add_to<'a>(&'a self, subject: &mut Subject<'a>);
}

impl Names for Slot {
    fn add_to<'a>(&'a self, subject: &mut Subject<'a>) {
        subject.slot = Some(LogSlot {
            log: 0,
            slot: *self,
        });
    }
}

/// The number of an inquiry.
impl Names for u64 {
    fn add_to<'a>(&'a self, subject: &mut Subject<'a>) {
        subject.slot = Some(LogSlot::of_inquiry(*self));
    }
}

impl<T: Commands> Names for T {
    fn add_to<'a>(&'a self, subject: &mut Subject<'a>) {
        subject.commands = Some(self);
    }
}

/// A message that a role has received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by the clock of the node.
    pub at: Instant,
    /// The role.
    pub role: Address,
    /// The instances that it has sent the message to; none if it begins to handle it.
    pub sent: Option<Members>,
    /// The name of the message.
    pub message: &'static str,
    /// What the receiver does with it.
    pub stage: &'static str,
    /// The slot that the message names.
    pub slot: Option<LogSlot>,
    /// Commands in the message: one event for each run of them.
    pub commands: Option<Run>,
}

/// How many events a node keeps; the oldest makes room. They take three megabytes.
pub const MOST_EVENTS: usize = 1 << 15;

/// How many runs of commands of one message are noted, at most. A batch has one for each client
/// lane, unless lanes skip numbers.
const MOST_RUNS: usize = 64;

/// How many slots of sampled commands are remembered: more than are in progress at once.
const REMEMBERED: usize = 1 << 12;

/// How many inquiries are remembered with what they are made for: more than a node has under way,
/// unless it is one of many roles. They take at most half a megabyte.
const MOST_INQUIRIES: usize = 256;

/// How many requests to record are remembered at once.
const MOST_RECORDINGS: usize = 8;

/// What a node is to note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    /// One in this number of commands; with 1 all. Not zero.
    pub one_in: u64,
    /// Until then.
    pub until: Instant,
}

/// The commands of a message that are noted.
#[derive(Debug, Default)]
struct Runs {
    runs: Vec<Run>,
    /// Whether there are any with a name, noted or not.
    any: bool,
}

/// Notes events.
#[derive(Debug)]
pub struct Recorder {
    /// What is recorded now, and what goes on after that: each in less detail than the one before,
    /// and for longer.
    recordings: Vec<Recording>,
    events: VecDeque<Event>,
    /// How many events have made room for others.
    lost: u64,
    /// The last slots with sampled commands, each at the place of its number's remainder.
    slots: Vec<Option<LogSlot>>,
    /// The inquiry to which a role handles an answer now.
    inquiry: Option<LogSlot>,
    /// The last inquiries of which roles have said what they are made for.
    inquiries: VecDeque<(LogSlot, Vec<Run>)>,
}

impl Recorder {
    /// With room for all events that it keeps.
    pub fn new(recording: Recording) -> Self {
        Recorder {
            recordings: alloc::vec![recording],
            events: VecDeque::new(),
            lost: 0,
            slots: alloc::vec![None; REMEMBERED],
            inquiry: None,
            inquiries: VecDeque::new(),
        }
    }

    /// An inquiry is made for this command.
    pub(crate) fn inquires_for(&mut self, inquiry: LogSlot, command: CommandId) {
        if self
            .inquiries
            .back()
            .is_none_or(|(last, _)| *last != inquiry)
        {
            self.inquiries.retain(|(earlier, _)| *earlier != inquiry);
            if self.inquiries.len() == MOST_INQUIRIES {
                self.inquiries.pop_front();
            }
            self.inquiries.push_back((inquiry, Vec::new()));
        }
        if let Some((_, runs)) = self.inquiries.back_mut() {
            add(command, runs);
        }
    }

    /// Goes on as long as either wants, in as much detail.
    pub fn extend(&mut self, now: Instant, other: Recording) {
        self.recordings.retain(|one| one.until > now);
        let has = |one: &Recording| one.one_in <= other.one_in && one.until >= other.until;
        if self.recordings.iter().any(has) {
            return;
        }
        self.recordings
            .retain(|one| one.one_in < other.one_in || one.until > other.until);
        let place = self
            .recordings
            .partition_point(|one| one.one_in < other.one_in);
        self.recordings.insert(place, other);
        // What lasts longest stays.
        if self.recordings.len() > MOST_RECORDINGS {
            self.recordings.remove(0);
        }
    }

    /// The events in order, and how many earlier ones are lost.
    pub fn events(&self) -> (impl Iterator<Item = &Event>, u64) {
        (self.events.iter(), self.lost)
    }

    /// What is recorded, and until when.
    pub fn recording(&self) -> Option<Recording> {
        self.recordings.first().copied()
    }

    pub(crate) fn notes_all(&self) -> bool {
        self.one_in() == 1
    }

    fn one_in(&self) -> u64 {
        self.recordings.first().map_or(1, |now| now.one_in)
    }

    /// A role has sent a message to instances (`sent`) or begins to handle one. Returns whether
    /// recording goes on.
    pub(crate) fn note<M: Message>(
        &mut self,
        clock: impl FnOnce() -> Instant,
        (role, sent): (Address, Option<Members>),
        message: &M,
    ) -> bool {
        let Some(subject) = message.subject() else {
            return true;
        };
        if sent.is_none() {
            // Those who are asked do not know whether the reads are in a sample.
            let is_noted = |slot: &LogSlot| slot.is_inquiry() && self.one_in() == 1;
            self.inquiry = subject.slot.filter(is_noted);
        }
        let about = self.wanted(&subject);
        if about.is_empty() {
            return true;
        }
        let at = clock();
        let over = self
            .recordings
            .iter()
            .take_while(|it| it.until <= at)
            .count();
        if over > 0 {
            self.recordings.drain(..over);
            return !self.recordings.is_empty();
        }
        for (slot, commands) in about {
            if let Some(slot) = slot {
                self.slots[slot.slot.0 as usize % REMEMBERED] = Some(slot);
            }
            self.push(Event {
                at,
                role,
                sent,
                message: message.name(),
                stage: subject.stage,
                slot,
                commands,
            });
        }
        true
    }

    /// A role has handled what it has begun to handle, and sent what follows from it.
    pub(crate) fn handled(&mut self) {
        self.inquiry = None;
    }

    /// The slot and the commands of each event that is noted of a message.
    fn wanted(&self, subject: &Subject<'_>) -> Vec<(Option<LogSlot>, Option<Run>)> {
        let mut wanted = Vec::new();
        let Some(commands) = subject.commands else {
            let Some(slot) = subject.slot.filter(|slot| self.is_wanted(*slot)) else {
                return wanted;
            };
            match self
                .inquiries
                .iter()
                .rev()
                .find(|(known, _)| *known == slot)
            {
                Some((_, runs)) => wanted.extend(runs.iter().map(|run| (Some(slot), Some(*run)))),
                None => wanted.push((Some(slot), None)),
            }
            return wanted;
        };
        let mut refers = false;
        commands.each_reference(&mut |to| {
            refers = true;
            if self.is_wanted(to) && wanted.len() < MOST_RUNS {
                wanted.push((Some(to), None));
            }
        });
        if refers {
            return wanted;
        }
        // What is sent because of an answer to an inquiry has what the inquiry was made for.
        let slot = subject.slot.or(self.inquiry);
        let named = self.sampled_runs(commands);
        match slot {
            // What has no name may stand for a command in the sample that has gone another way.
            Some(_) if !named.any => wanted.push((slot, None)),
            _ => wanted.extend(named.runs.into_iter().map(|run| (slot, Some(run)))),
        }
        wanted
    }

    /// Whether a message that names only this slot is noted.
    fn is_wanted(&self, slot: LogSlot) -> bool {
        self.one_in() == 1 || self.slots[slot.slot.0 as usize % REMEMBERED] == Some(slot)
    }

    fn sampled_runs(&self, commands: &dyn Commands) -> Runs {
        let mut named = Runs::default();
        let one_in = self.one_in();
        commands.each_id(&mut |command| {
            named.any = true;
            if one_in == 1 || command.is_sampled(one_in) {
                add(command, &mut named.runs);
            }
        });
        named
    }

    fn push(&mut self, event: Event) {
        if self.events.len() == MOST_EVENTS {
            self.events.pop_front();
            self.lost += 1;
        }
        self.events.push_back(event);
    }
}

/// Adds a command to runs of them, if there is room.
fn add(command: CommandId, runs: &mut Vec<Run>) {
    let follows = runs.last_mut().is_some_and(|last| last.grow(command));
    if !follows && runs.len() < MOST_RUNS {
        let (first, count) = (command, 1);
        runs.push(Run { first, count });
    }
}

/// The subject of a message, for [`messages!`](crate::messages!).
#[doc(hidden)]
#[macro_export]
macro_rules! message_subject {
    () => {
        None
    };
    ($inner:ident) => {
        $inner.subject()
    };
    ($inner:ident .$internal:ident) => {
        $inner.subject().map($crate::trace::Subject::$internal)
    };
    ($inner:ident $log:ident) => {
        $inner.subject().map(|subject| subject.in_log(*$log))
    };
    ($stage:literal $($part:ident $(-> $slot:ident)?)+) => {{
        let mut subject = $crate::trace::Subject::new($stage);
        $($crate::field_subject!(subject $part $($slot)?);)+
        Some(subject)
    }};
}

/// What a field adds to the subject of its message.
#[doc(hidden)]
#[macro_export]
macro_rules! field_subject {
    ($subject:ident $part:ident) => {
        $crate::trace::Names::add_to($part, &mut $subject)
    };
    ($subject:ident $part:ident $slot:ident) => {
        $crate::trace::Names::add_to($part, &mut $subject);
        $subject.slot = $slot($part)
    };
}
