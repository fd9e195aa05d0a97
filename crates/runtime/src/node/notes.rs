//! What the roles of an event loop have noted for traces, and the question for it.

use crate::admin::traces::{LONGEST, MOST_COMMANDS, MOST_SLOTS, TraceRequest};
use crate::traces::NotedEvent;
use ionian_kernel::node::Node;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::{CommandId, Event, LogSlot, Recording};
use std::collections::BTreeSet;
use std::time::Duration;

/// The most events in a document: some for each of its commands. They take about four megabytes.
const MOST_EVENTS: usize = 20_000;

/// What a request asks of each loop.
#[derive(Clone)]
pub(crate) struct Question {
    now: Instant,
    pub(super) record: Option<Recording>,
    commands: Vec<CommandId>,
    slots: Vec<LogSlot>,
}

/// What a loop answers.
#[derive(Default)]
pub(crate) struct Notes {
    pub(super) events: Vec<NotedEvent>,
    pub(super) lost: u64,
    pub(super) recording: Option<Recording>,
}

impl Question {
    pub(super) fn of(request: &TraceRequest, now: Instant) -> Self {
        let lasting = Duration::from_millis(request.for_ms).min(LONGEST);
        let commands = request.wanted.commands.iter().take(MOST_COMMANDS);
        let slots = request.wanted.slots.iter().take(MOST_SLOTS);
        Question {
            now,
            record: request.one_in.map(|one_in| Recording {
                one_in: one_in.max(1),
                until: now + lasting,
            }),
            commands: commands.filter_map(|name| name.id()).collect(),
            slots: slots.map(|name| (*name).into()).collect(),
        }
    }

    /// Whether the question names commands, or asks only whether messages are recorded.
    pub(super) fn names_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// What a loop with these roles answers.
    pub(super) fn ask<P: Protocol>(&self, node: &mut Node<P>) -> Notes {
        if let Some(recording) = self.record {
            node.record(self.now, recording);
        }
        let recording = node.recording().filter(|it| it.until > self.now);
        let (events, lost) = node.events();
        let mut notes = Notes {
            recording,
            lost,
            ..Notes::default()
        };
        if !self.names_commands() {
            return notes;
        }
        let events: Vec<&Event> = events.collect();
        let is_meant = |event: &Event| {
            let run = event.commands.as_ref();
            run.is_some_and(|run| self.commands.iter().any(|command| run.contains(*command)))
        };
        let meant = events.iter().filter(|event| is_meant(event));
        let own = meant.filter_map(|event| event.slot);
        let slots: BTreeSet<LogSlot> = own.chain(self.slots.iter().copied()).collect();
        let in_slot = |event: &Event| {
            event.commands.is_none() && event.slot.is_some_and(|slot| slots.contains(&slot))
        };
        let wanted = events
            .iter()
            .filter(|event| is_meant(event) || in_slot(event));
        notes.events = wanted
            .take(MOST_EVENTS)
            .map(|event| NotedEvent::of(event, P::KINDS))
            .collect();
        notes
    }
}
