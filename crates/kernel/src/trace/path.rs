//! The path of one command, joined from what all nodes have noted.
//!
//! A message is sent under the name under which it is received, so a receiver's sender is the role
//! that has sent a message of that name about the same slot or command. Times of different nodes
//! are compared: where their clocks differ, so do the times between them.

use super::{CommandId, Event, LogSlot, Run};
use crate::time::Instant;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// A role instance on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The name of the node.
    pub node: String,
    /// The name of its kind.
    pub role: String,
    /// Its number among its kind.
    pub index: u64,
}

/// An [`Event`], by names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where.
    pub place: Place,
    /// When, by the clock of that node.
    pub at: Instant,
    /// The numbers of the instances that the role has sent the message to; none if it has received
    /// it.
    pub sent: Option<Vec<u64>>,
    /// The name of the message.
    pub message: String,
    /// What the receiver does with it.
    pub stage: String,
    /// The slot that the message names.
    pub slot: Option<LogSlot>,
    /// Commands in the message.
    pub commands: Option<Run>,
}

impl Seen {
    /// An event of this node, whose protocol has these names of kinds.
    pub fn of(event: &Event, node: &str, kinds: &[&str]) -> Self {
        let kind = usize::from(event.role.kind);
        Seen {
            place: Place {
                node: node.into(),
                role: kinds.get(kind).copied().unwrap_or_default().into(),
                index: event.role.index.into(),
            },
            at: event.at,
            sent: event.sent.map(|to| to.iter().map(u64::from).collect()),
            message: event.message.into(),
            stage: event.stage.into(),
            slot: event.slot,
            commands: event.commands,
        }
    }
}

/// The name of the stage in which a client lane sends a command.
pub const SUBMIT: &str = "submit";

/// What one role does for a command after it has received messages of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The role.
    pub place: Place,
    /// The stage.
    pub stage: String,
    /// When the role began to handle the first message; for the lane, when it sent the command.
    pub began: Instant,
    /// When the role sent the last message because of it; `began` if it sent none.
    pub ended: Instant,
    /// The span in which the first message was sent: none for the lane that sent the command, and
    /// where that event is missing.
    pub parent: Option<usize>,
    /// The message that it began with.
    message: String,
}

/// A part of the time that a client lane waited for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The role that did something then; `None` if a message was under way or in a queue.
    pub at: Option<Place>,
    /// The stage of the role, or the one that the message leads to.
    pub stage: String,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

/// See the top of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The slot of the command; none for a read that needs none.
    pub slot: Option<LogSlot>,
    /// What roles have done, in the order in which they began.
    pub spans: Vec<Span>,
    /// What the answer waited for, from the lane back to it, without gaps. Empty if events are
    /// missing.
    pub steps: Vec<Step>,
}

impl Path {
    /// The path of a command; the events of each node are in the order in which they happened.
    pub fn of(command: CommandId, events: &[Seen]) -> Path {
        let has = |event: &Seen| event.commands.is_some_and(|run| run.contains(command));
        let slots: BTreeSet<LogSlot> = events
            .iter()
            .filter(|event| has(event))
            .filter_map(|event| event.slot)
            .collect();
        let in_slot = |event: &Seen| {
            event.commands.is_none() && event.slot.is_some_and(|slot| slots.contains(&slot))
        };
        let mut relevant: Vec<&Seen> = events
            .iter()
            .filter(|event| has(event) || in_slot(event))
            .collect();
        // Stable: what happened on a node stays in order.
        relevant.sort_by_key(|event| event.at);
        Path {
            // A command that was proposed twice is executed in the first; the log of all comes
            // before its parts.
            slot: slots.first().copied().filter(|slot| slot.is_of_log()),
            spans: spans(&relevant),
            steps: steps(&relevant).unwrap_or_default(),
        }
    }

    /// The span of the lane that sent the command.
    pub fn root(&self) -> Option<usize> {
        self.spans.iter().position(|span| span.stage == SUBMIT)
    }

    /// Whether every span follows from that of the lane that sent the command.
    pub fn is_connected(&self) -> bool {
        let leads_to_root = |mut at: usize| {
            for _ in 0..self.spans.len() {
                match self.spans[at].parent {
                    Some(parent) => at = parent,
                    None => return self.root() == Some(at),
                }
            }
            false
        };
        !self.spans.is_empty() && (0..self.spans.len()).all(leads_to_root)
    }

    /// The spans that follow from this one.
    pub fn children(&self, of: usize) -> impl Iterator<Item = usize> {
        (0..self.spans.len()).filter(move |it| self.spans[*it].parent == Some(of))
    }
}

/// The event that sent what `received` has received: the last before it, or else the first after it
/// (clocks differ).
fn sender<'a>(received: &Seen, events: &'a [&'a Seen]) -> Option<(usize, &'a Seen)> {
    let to = received.place.index;
    let is_sender = |event: &Seen| {
        let reaches = |sent: &Vec<u64>| sent.contains(&to);
        event.message == received.message && event.sent.as_ref().is_some_and(reaches)
    };
    let sends = || {
        let all = events.iter().copied().enumerate();
        all.filter(|(_, event)| is_sender(event))
    };
    let before = sends().rfind(|(_, event)| event.at <= received.at);
    before.or_else(|| sends().next())
}

fn spans(events: &[&Seen]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    // Which span each event belongs to.
    let mut of_event = Vec::new();
    for event in events {
        let is_here = |span: &Span| span.place == event.place;
        let found = match event.sent.is_some() {
            // A role sends because of what it has received last.
            true => {
                let mut before = of_event.iter().rev().copied();
                before.find(|span: &usize| is_here(&spans[*span]))
            }
            false => spans
                .iter()
                .position(|span| is_here(span) && span.stage == event.stage),
        };
        let span = found.unwrap_or_else(|| {
            let stage = match event.sent.is_some() {
                true => SUBMIT.into(),
                false => event.stage.clone(),
            };
            spans.push(Span {
                place: event.place.clone(),
                stage,
                began: event.at,
                ended: event.at,
                parent: None,
                message: event.message.clone(),
            });
            spans.len() - 1
        });
        if event.sent.is_some() {
            spans[span].ended = event.at;
        }
        of_event.push(span);
    }
    for (at, event) in events.iter().enumerate() {
        let span = of_event[at];
        let begins = of_event.iter().position(|it| *it == span) == Some(at);
        if begins && event.sent.is_none() {
            let from = sender(event, events).map(|(sent, _)| of_event[sent]);
            spans[span].parent = from.filter(|from| *from != span);
        }
    }
    spans
}

/// From the answer back to the lane that sent the command.
fn steps(events: &[&Seen]) -> Option<Vec<Step>> {
    let first = events.iter().find(|event| event.sent.is_some())?;
    let is_answer = |event: &&&Seen| event.place == first.place && event.commands.is_some();
    let mut received = events
        .iter()
        .filter(is_answer)
        .find(|event| event.sent.is_none())?;
    let mut steps = Vec::new();
    // Each step leads to an event of another role that is no later, or was, by its clock.
    for _ in 0..events.len() {
        let (sent_at, sent) = sender(received, events)?;
        steps.push(Step {
            at: None,
            stage: received.stage.clone(),
            began: sent.at,
            ended: received.at,
        });
        let mut before = events[..sent_at].iter().rev();
        let cause = before.find(|event| event.sent.is_none() && event.place == sent.place);
        let Some(cause) = cause else {
            let is_lane = sent.place == first.place;
            steps.push(Step {
                at: Some(sent.place.clone()),
                stage: SUBMIT.into(),
                began: first.at,
                ended: sent.at,
            });
            steps.reverse();
            return is_lane.then_some(steps);
        };
        steps.push(Step {
            at: Some(sent.place.clone()),
            stage: cause.stage.clone(),
            began: cause.at,
            ended: sent.at,
        });
        received = cause;
    }
    None
}

#[cfg(test)]
mod tests;
