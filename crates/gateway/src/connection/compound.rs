//! The compound in flight: forming it, and the reply to it.

use super::{Connection, Note};
use crate::commands;
use crate::host::count;
use crate::info::Keys;
use crate::measured::{Outcome, micros};
use crate::reply::Context;
use crate::resp3;
use crate::room;
use crate::slowlog::Slow;
use crate::traces::Kept;
use crate::tracking;
use crate::transaction::{self, Expected};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Refusal};
use ionian_kernel::trace::CommandId;
use ionian_machines::kv::{self, Command, Compound, Demand};
use std::time::{Duration, Instant, SystemTime};

impl Connection {
    /// The compound to send to the cluster now. Returns it once.
    pub fn take_request(&mut self) -> Option<(Operation, Bytes)> {
        self.request.take()
    }

    /// What the compound demands besides what its bytes pay for.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// Whether there is such a compound.
    pub fn has_request(&self) -> bool {
        self.request.is_some()
    }

    /// The expected size of its reply: the size of the largest recent reply of this connection.
    pub fn forecast(&self) -> Option<usize> {
        self.forecast
    }

    /// Whether a compound waits for its reply.
    pub fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Since when the client has waited for the compound in flight: since the compound was formed
    /// or, if the one before was not answered in time, since its first command was received. So a
    /// client waits for one deadline, not one per command.
    pub fn in_flight_since(&self) -> Option<Instant> {
        self.flight.is_some().then_some(self.asked_at)
    }

    /// Gives up the compound in flight because it takes too long: one of reads has no effect,
    /// whether it was sent or not. Call [`advance`](Self::advance) afterwards.
    pub fn give_up(&mut self) {
        let sent = self.request.take().is_none();
        let refusal = match sent && self.flight_changes {
            true => Refusal::Unknown,
            false => Refusal::Unavailable,
        };
        self.on_reply(None, Err(refusal));
    }

    /// The reply to the compound in flight, which the cluster knows by this name.
    /// [`advance`](Self::advance) is to follow.
    pub fn on_reply(&mut self, command: Option<CommandId>, outcome: Result<Bytes, Refusal>) {
        let Some(expected) = self.flight.take() else {
            return;
        };
        self.flight_bytes = 0;
        let mut notes = std::mem::take(&mut self.flight_notes);
        let now = Instant::now();
        let took = now.saturating_duration_since(self.flight_since);
        if self.closing {
            // It was aborted meanwhile, and its client is to see no more than it has.
            return;
        }
        if let Expected::Users(level) = expected {
            self.on_users(level, outcome);
            return self.account();
        }
        let is_outdated = outcome.as_ref().is_ok_and(|reply| kv::is_outdated(reply));
        // The answers to these say nothing of what users may do.
        if is_outdated && !matches!(expected, Expected::Info(_) | Expected::Check) {
            self.on_outdated(expected, notes);
            return self.account();
        }
        self.flight_request = None;
        if self.flight_changes {
            // A measurement may have overtaken it on its way.
            self.host.memory.note_write();
        }
        let is_blocking = matches!(expected, Expected::Blocking);
        let times = Times {
            now,
            took,
            submitted: self.flight_since,
            command,
        };
        if is_blocking {
            if self.waits_after(&outcome, &mut notes) {
                return self.account();
            }
            self.unblock();
            // The time that a client has waited for a stream is not the cluster's.
            notes
                .iter_mut()
                .for_each(|note| note.since = self.flight_since);
        }
        self.ends_with_answer = true;
        self.unanswered =
            !is_blocking && matches!(outcome, Err(Refusal::Unavailable | Refusal::Unknown));
        if let Ok(reply) = &outcome {
            self.forecast = Some(room::forecast(self.forecast.unwrap_or(0), reply.len()));
        }
        let mut context = Context {
            host: &self.host,
            client: &self.client,
            out: self.output.tail(),
        };
        match (outcome, expected) {
            (Ok(reply), Expected::Pipeline(mut commands)) => {
                let (done, mut replies) = kv::answered(&reply);
                // A program of a lower level, which did not execute any of them, says so once.
                if kv::is_malformed(&replies) {
                    replies = replies.repeat(commands.len()).into();
                }
                transaction::write_replies(&replies, &mut context);
                // The others are sent again when there is room for their replies.
                let done = done.unwrap_or(commands.len()).clamp(1, commands.len());
                let again = notes.split_off(done.min(notes.len()));
                count_executed(&replies, &notes, times, &mut context);
                again
                    .into_iter()
                    .rev()
                    .for_each(|note| self.notes.push_front(note));
                for command in commands.drain(done.min(commands.len())..).rev() {
                    self.waiting_bytes += footprint(&command);
                    self.waiting.push_front(command);
                }
            }
            (Ok(reply), Expected::One | Expected::Blocking) => {
                let replies = kv::answered(&reply).1;
                transaction::write_replies(&replies, &mut context);
                count_executed(&replies, &notes, times, &mut context);
            }
            (Ok(reply), Expected::Changed(words)) => {
                context.out.extend_from_slice(&reply);
                commands::on_changed(&context, &words, &reply);
            }
            (_, Expected::Users(_)) => unreachable!("it was taken before"),
            (Ok(reply), Expected::Transaction(own, _)) => {
                transaction::write_executed(&reply, &own, &mut context);
                count_executed(&reply, &notes, times, &mut context);
            }
            (Ok(reply), Expected::Info(words)) => {
                commands::server::write_info(&mut context, &words, Keys::of(&reply));
            }
            (Err(_), Expected::Info(words)) => {
                commands::server::write_info(&mut context, &words, None)
            }
            (Ok(_), Expected::Check) => context.ok(),
            (Ok(reply), Expected::Versions(keys)) => {
                self.transaction.on_versions(keys, &reply, &mut context)
            }
            (Err(refusal), expected) => {
                count(&self.host.stats.compounds_refused, 1);
                for note in &notes {
                    context.host.meter.answered(note.family, refusal.into());
                    context
                        .host
                        .meter
                        .served(note.family, micros(times.of(note)));
                }
                let commands = match expected {
                    Expected::Pipeline(commands) => commands.len(),
                    Expected::Changed(words) => {
                        commands::on_change_refused(&self.client, &words, refusal);
                        1
                    }
                    Expected::Transaction(..)
                    | Expected::Users(_)
                    | Expected::One
                    | Expected::Blocking
                    | Expected::Check
                    | Expected::Info(_) => 1,
                    Expected::Versions(_) => {
                        self.transaction.on_versions_refused();
                        1
                    }
                };
                (0..commands).for_each(|_| context.error(refusal_text(refusal)));
            }
        }
        self.account();
    }

    /// Sends the waiting commands as one compound: the reads at the front, if there are any;
    /// otherwise all commands, including reads between writes, which preserves the order. Returns
    /// true if something was sent.
    pub(super) fn dispatch(&mut self) -> bool {
        if self.flight.is_some() || self.blocked.is_some() || self.closing || self.output_is_full()
        {
            return false;
        }
        self.judge_waiting(self.host.limits.compound_commands);
        let Some(first) = self.waiting.front() else {
            return false;
        };
        let reads = first.is_read();
        let limits = &self.host.limits;
        let (mut commands, mut bytes) = (0, 0);
        for command in self.waiting.iter().take(limits.compound_commands) {
            bytes += command.encoded_len();
            if reads && !command.is_read() || commands > 0 && bytes > limits.compound_bytes {
                break;
            }
            commands += 1;
        }
        self.flight_notes = self.notes.drain(..commands).collect();
        let commands: Vec<_> = self.waiting.drain(..commands).collect();
        self.waiting_bytes -= commands.iter().map(footprint).sum::<usize>();
        let compound = Compound::Pipeline(commands);
        self.host.meter.formed(self.flight_notes.len());
        let judged = self.flight_notes.iter().map(|note| note.judgement.epoch());
        let judged = judged.min();
        self.submit(&compound, judged);
        if self.unanswered
            && let Some(first) = self.flight_notes.first()
        {
            self.asked_at = first.since;
        }
        let Compound::Pipeline(commands) = compound else {
            unreachable!("it was made a pipeline")
        };
        self.flight = Some(if commands.len() > 1 {
            self.flight_bytes *= 2;
            Expected::Pipeline(commands)
        } else {
            Expected::One
        });
        true
    }

    /// Sends a compound. `judged` is the lowest epoch of the users by which its commands were
    /// judged: the machine refuses it if the users have changed since.
    pub(super) fn submit(&mut self, compound: &Compound, judged: Option<u64>) {
        let operation = match compound {
            _ if !compound.is_read() => Operation::Write,
            Compound::SetUser { .. }
            | Compound::DeleteUsers(_)
            | Compound::SetLimit(_)
            | Compound::Measure => unreachable!("it is no read"),
            // A watch must see the present version, whatever the consistency level of the
            // connection.
            Compound::Versions(_) | Compound::Users { .. } | Compound::Room => {
                Operation::Read(ReadLevel::Linearizable)
            }
            Compound::Transaction { watched, .. } if !watched.is_empty() => {
                Operation::Read(ReadLevel::Linearizable)
            }
            // What is read after a WATCH must not be older than what it has seen.
            Compound::Transaction { .. } | Compound::Pipeline(_)
                if self.client.watched.get() > 0 =>
            {
                Operation::Read(ReadLevel::Linearizable)
            }
            Compound::Transaction { .. } | Compound::Pipeline(_) => {
                Operation::Read(self.client.level.get())
            }
        };
        self.submit_at(operation, compound, judged);
    }

    /// Sends a compound; `judged` is none if it was judged in this moment, or asks for the gateway.
    pub(super) fn submit_at(
        &mut self,
        operation: Operation,
        compound: &Compound,
        judged: Option<u64>,
    ) {
        assert!(
            self.flight.is_none(),
            "a connection has at most one compound in flight"
        );
        count(&self.host.stats.compounds, 1);
        self.flight_since = Instant::now();
        self.asked_at = self.flight_since;
        let rights = &self.host.rights;
        let payload = rights.encoded(compound, judged);
        self.flight_request = rights.are_checked().then(|| (operation, payload.clone()));
        self.judged_again = 0;
        self.flight_bytes = payload.len();
        self.flight_changes = !matches!(operation, Operation::Read(_));
        if self.flight_changes {
            self.host.memory.note_write();
        }
        self.demand = compound.demand();
        self.request = Some((operation, payload));
    }
}

/// When the reply to a compound came, and how long after the compound was formed.
#[derive(Clone, Copy)]
struct Times {
    now: Instant,
    took: Duration,
    submitted: Instant,
    /// The name of the compound in the cluster.
    command: Option<CommandId>,
}

impl Times {
    /// How long the client has waited for the reply to a command, from its receipt.
    fn of(self, note: &Note) -> Duration {
        self.now.saturating_duration_since(note.since)
    }
}

/// Counts commands that were executed, and invalidates the keys that they have read.
fn count_executed(replies: &[u8], notes: &[Note], times: Times, context: &mut Context<'_>) {
    let (usage, meter) = (&context.host.usage, &context.host.meter);
    let mut rest = replies;
    // The commands of a pipeline have usually come together.
    let mut waited = (times.now, 0);
    for note in notes {
        if waited.0 != note.since {
            waited = (note.since, micros(times.of(note)));
        }
        usage.called(note.name, times.took);
        meter.served(note.family, waited.1);
        let Some((reply, after)) = resp3::split_reply(rest) else {
            meter.answered(note.family, Outcome::Ok);
            continue;
        };
        match reply.strip_prefix(b"-") {
            Some(text) => {
                usage.failed(note.name, text);
                meter.answered(note.family, Outcome::Error);
            }
            None => meter.answered(note.family, Outcome::Ok),
        }
        rest = after;
    }
    // The first has waited longest. One of each compound is enough to see what is slow.
    if let Some(first) = notes.first() {
        keep(first, notes.len(), times, context);
    }
    notes
        .iter()
        .for_each(|note| tracking::invalidate(&note.tracked, context));
}

/// Keeps the times of a command, the first of `together`, if it was slow or is traced.
fn keep(note: &Note, together: usize, times: Times, context: &Context<'_>) {
    let (host, client, took) = (context.host, context.client, times.of(note));
    let kept = Kept::new(
        (note.name, together),
        times.command,
        [note.since, times.submitted, times.now],
        took >= host.limits.slower_than,
    );
    host.keep(kept, client, |kept| Slow {
        id: 0,
        at: SystemTime::now(),
        took,
        name: note.name,
        arguments: note.words.saturating_sub(1),
        address: client.address.clone(),
        client: client.name.borrow().to_vec(),
        kept,
    });
}

/// Approximate memory of a waiting command: its words are slices of the input, with their lengths
/// around them.
pub(super) fn footprint(command: &Command) -> usize {
    command.encoded_len() + size_of::<Command>()
}

/// The error for a refusal. Clients know both codes: the same command may succeed later.
pub(super) fn refusal_text(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Busy => {
            "BUSY Ionian is overloaded: too much in flight, the command was not executed, try again later"
        }
        Refusal::Unavailable => {
            "TRYAGAIN the cluster did not answer in time, the command was not executed"
        }
        Refusal::Unknown => {
            "TRYAGAIN the cluster did not answer in time, the command may or may not have been executed"
        }
        Refusal::NotARead => "ERR the command changes state and cannot be sent as a read",
        Refusal::TooLarge => "ERR the command is larger than the cluster's limit",
        Refusal::Failed => "ERR the state machine fails on this command, which was not executed",
    }
}
