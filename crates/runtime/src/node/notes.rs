//! What the event loops of a node have noted for traces.

use super::application::Kept;
use super::clock::Clock;
use super::event_loop::EventLoop;
use super::roles::RoleLoopView;
use crate::admin::traces::{LONGEST, MOST_COMMANDS, MOST_SLOTS, TraceRequest};
use crate::traces::{KeptCommand, NodeNotes, NotedEvent, RecordingStatus};
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
    record: Option<Recording>,
    commands: Vec<CommandId>,
    slots: Vec<LogSlot>,
}

/// What a loop answers.
#[derive(Default)]
pub(crate) struct Notes {
    events: Vec<NotedEvent>,
    lost: u64,
    recording: Option<Recording>,
}

impl Question {
    fn of(request: &TraceRequest, now: Instant) -> Self {
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
        if self.commands.is_empty() {
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

impl Kept {
    /// The times of this process's clock are those of the node's.
    fn command(self, clock: Clock) -> KeptCommand {
        let (now, node_now) = (std::time::Instant::now(), clock.now());
        let at = |time| (node_now - now.saturating_duration_since(time)).0;
        KeptCommand {
            name: self.name.to_owned(),
            together: self.together as u64,
            command: self.command.map(Into::into),
            parent: self.parent.map(|parent| parent.to_string()),
            slow: self.slow,
            received_us: at(self.received),
            submitted_us: at(self.submitted),
            answered_us: at(self.answered),
            id: self.id,
            written_us: at(self.written.unwrap_or(self.answered)),
        }
    }
}

impl EventLoop {
    /// Carries out a request.
    pub(super) async fn notes(&self, request: TraceRequest) -> NodeNotes {
        let now = self.clock.now();
        let question = Question::of(&request, now);
        let asked = question.clone();
        let others = self
            .ask_others(move |role_loop: &mut dyn RoleLoopView| role_loop.roles().notes(&asked));
        let others = others.await;
        let state = &mut *self.state.borrow_mut();
        if let Some(Recording { one_in, until }) = question.record {
            state.io.application.keep(one_in, until.since(now));
        }
        let own = state.roles.of_main_loop().notes(&question);
        let mut notes = NodeNotes {
            node: self.info.name.clone(),
            protocol: self.info.identity.protocol.clone(),
            recording: own.recording.map(|recording| RecordingStatus {
                one_in: recording.one_in,
                for_ms: recording.until.since(now).as_millis() as u64,
            }),
            ..NodeNotes::default()
        };
        for of_loop in others.into_iter().chain([own]) {
            notes.lost += of_loop.lost;
            notes.events.extend(of_loop.events);
        }
        let kept = state.io.application.kept();
        if !question.commands.is_empty() {
            notes.delays = state.delays.all(state.protocol.description().kinds);
        }
        notes.commands = kept.into_iter().map(|it| it.command(self.clock)).collect();
        notes
    }
}
